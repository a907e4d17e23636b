//! When the requests that wait for results complete (CQ_NOTIFY).
//!
//! A request completes when an unread result of the requested kind has arrived since the last notification; all that wait complete
//! together. Requests for solicited results complete with errors, too. A queue that has overrun completes every request as failed,
//! now and from then on.

use ndkpi_sys::nt::{NTSTATUS, STATUS_BUFFER_OVERFLOW, STATUS_INVALID_PARAMETER, STATUS_PENDING, STATUS_SUCCESS};
use softndk_ioctl::nd::control::Notify;
use softndk_kernel::irp::{Buffer, Request};

use super::{
    completion_queue::CompletionQueue,
    object,
    pending::{NOT_TAKEN, NotTaken, Pended, PendingList},
    request::{Call, input},
};
use crate::runtime::platform::CancelledRequest;

/// ND_CQ_NOTIFY_*, weakest first.
const ERRORS: u32 = 0;
const ANY: u32 = 1;
const SOLICITED: u32 = 2;

/// The request kinds as they are compared: ANY is the strongest.
const fn strength(kind: u32) -> Option<u64> {
    match kind {
        ERRORS => Some(0),
        SOLICITED => Some(1),
        ANY => Some(2),
        _ => None,
    }
}

/// The requests that wait on a queue, and what they have been notified of. Under the queue's lock. Results count from 1.
pub struct Notifications {
    waiting: PendingList,
    /// How many requests of each strength wait.
    strengths: [u32; 3],
    /// Results written so far, and the newest of them that is solicited or an error.
    written: u64,
    solicited: u64,
    /// The newest result at the last notification.
    notified: u64,
    failed: bool,
}

impl Notifications {
    pub fn new() -> Self {
        Self { waiting: PendingList::new(), strengths: [0; 3], written: 0, solicited: 0, notified: 0, failed: false }
    }

    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// One more result.
    pub fn count(&mut self, solicited: bool) {
        self.written = self.written.saturating_add(1);
        if solicited {
            self.solicited = self.written;
        }
    }

    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The requests that complete now, while so many results are unread.
    pub fn due(&mut self, unread: u32) -> PendingList {
        let seen = self.notified.max(self.written.saturating_sub(u64::from(unread)));
        let newest = match self.strengths {
            [_, _, any] if any != 0 => self.written,
            [_, solicited, _] if solicited != 0 => self.solicited,
            _ => return PendingList::new(),
        };
        if newest <= seen {
            return PendingList::new();
        }
        self.notified = self.written;
        self.take_all()
    }

    /// The queue has overrun: all requests that wait.
    pub fn fail(&mut self) -> PendingList {
        self.failed = true;
        self.take_all()
    }

    /// One more request, of this strength.
    fn push(&mut self, pended: Pended) -> Result<(), NotTaken> {
        let strength = pended.kind();
        self.waiting.push(pended)?;
        if let Some(count) = self.strengths.get_mut(strength as usize) {
            *count = count.saturating_add(1);
        }
        Ok(())
    }

    /// One request less.
    fn forget(&mut self, strength: u64) {
        if let Some(count) = self.strengths.get_mut(strength as usize) {
            *count = count.saturating_sub(1);
        }
    }

    pub fn take_cancelled(&mut self, request: CancelledRequest) -> Option<Pended> {
        let pended = self.waiting.take_cancelled(request)?;
        self.forget(pended.kind());
        Some(pended)
    }

    pub fn take_of_file(&mut self, file: u64) -> PendingList {
        let mut taken = self.waiting.take_of_file(file);
        taken.each_kind(|strength| self.forget(strength));
        taken
    }

    pub fn take_all(&mut self) -> PendingList {
        self.strengths = [0; 3];
        self.waiting.take_all()
    }
}

/// CQ_NOTIFY.
pub fn notify(call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
    let asked = match input::<Notify>(&Buffer::of(&request)) {
        Ok(asked) => asked,
        Err(status) => return Err((request, status)),
    };
    let queue = match call.context.object::<CompletionQueue>(asked.handle) {
        Ok(queue) => queue,
        Err(status) => return Err((request, status)),
    };
    let Some(strength) = strength(asked.kind) else { return Err((request, STATUS_INVALID_PARAMETER)) };
    queue.drain();
    let pended = match Pended::begin(request, call, object::owner(&queue), strength) {
        Ok(pended) => pended,
        Err(refused) => return Err((refused.request, refused.status)),
    };
    let over = {
        let mut state = queue.state.lock();
        if state.closed {
            Err(NotTaken::new(pended, NOT_TAKEN))
        } else if state.notifications.failed {
            Err(NotTaken::new(pended, STATUS_BUFFER_OVERFLOW))
        } else {
            state.notifications.push(pended).map(|()| state.due())
        }
    };
    match over {
        Ok(due) => due.finish(STATUS_SUCCESS),
        Err(not_taken) => not_taken.finish(),
    }
    Ok(STATUS_PENDING)
}
