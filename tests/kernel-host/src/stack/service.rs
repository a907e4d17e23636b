//! Service runs of a stack: which context does one, and when.

use std::sync::Arc;

use super::bound::TcpIpStack;
use super::{FrameDirection, sending};
use crate::dispatcher::{self, Deadline, Time};
use crate::ndis::miniport::lock;
use crate::worker;
use crate::wsk::{self, chance, late};

/// Polls of one run; a DPC does not go on without end.
const POLLS: usize = 8;

/// The service run that is queued or under way.
#[derive(Default)]
pub(super) struct Runs {
    queued: bool,
    running: bool,
    /// Something has happened since the run has looked.
    again: bool,
}

/// The deadline that the stack has at the clock.
#[derive(Default)]
pub(super) struct Deadlines {
    armed: Option<(Time, u64)>,
    /// The stack is unbound.
    ended: bool,
}

impl TcpIpStack {
    /// Something has happened: a run follows, on a DPC or a worker thread. Any level, with any lock of the host but the stack's own.
    pub(crate) fn notify(self: &Arc<Self>) {
        {
            let mut runs = lock(&self.runs);
            if runs.running {
                runs.again = true;
                return;
            }
            if std::mem::replace(&mut runs.queued, true) {
                return;
            }
        }
        self.queue();
    }

    fn queue(self: &Arc<Self>) {
        // A stack that is being unbound waits for the run.
        let Some(reference) = self.bound.enter() else { return };
        reference.stay();
        let stack = Arc::clone(self);
        let run = move || {
            lock(&stack.runs).queued = false;
            stack.service();
            stack.bound.leave();
        };
        if chance::once_in(3) {
            worker::queue_own(run);
        } else {
            // As by an interrupt: not in this call, whatever its level is.
            late::interrupt(run);
        }
    }

    /// Runs here and now; a run that is under way on another thread polls once more instead. No lock of the host is held.
    pub(super) fn service(self: &Arc<Self>) {
        let Some(_bound) = self.bound.enter() else { return };
        {
            let mut runs = lock(&self.runs);
            if std::mem::replace(&mut runs.running, true) {
                runs.again = true;
                return;
            }
        }
        for _ in 0..POLLS {
            lock(&self.runs).again = false;
            self.poll();
            self.arm();
            let mut runs = lock(&self.runs);
            if !runs.again {
                runs.running = false;
                return;
            }
        }
        let mut runs = lock(&self.runs);
        runs.running = false;
        let queues = !std::mem::replace(&mut runs.queued, true);
        drop(runs);
        if queues {
            self.queue();
        }
    }

    fn poll(self: &Arc<Self>) {
        let (mut frames, waiters) = self.engine.lock().poll(dispatcher::now());
        if let Some(filter) = lock(&self.filter).as_mut() {
            frames.retain(|frame| filter(FrameDirection::Sent, frame));
        }
        if let Some(miniport) = self.miniport.upgrade() {
            sending::send(&miniport, frames);
            if self.returns_kept(dispatcher::now()) {
                miniport.data.return_kept_by_stack(&miniport);
            }
        }
        for waiter in waiters {
            waiter.set();
        }
        wsk::frames_processed(self);
    }

    /// Has the clock start the next run.
    fn arm(&self) {
        let mut deadlines = lock(&self.deadlines);
        let now = dispatcher::now();
        let due = self.engine.lock().next_due(now).into_iter().chain(self.kept_due()).min();
        let mut clock = dispatcher::lock();
        if let Some(key) = deadlines.armed.take() {
            clock.deadlines.remove(&key);
        }
        if !deadlines.ended {
            deadlines.armed = due.map(|due| clock.add_deadline(due, Deadline::Stack(self.id)));
        }
    }

    /// The clock starts no more runs.
    pub(super) fn disarm(&self) {
        let mut deadlines = lock(&self.deadlines);
        deadlines.ended = true;
        if let Some(key) = deadlines.armed.take() {
            dispatcher::lock().deadlines.remove(&key);
        }
    }
}
