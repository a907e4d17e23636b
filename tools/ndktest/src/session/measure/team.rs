//! Loops of several processors at once: a thread each, bound to its processor, all begun together.

use core::{
    ffi::c_void,
    sync::atomic::{AtomicU32, Ordering},
};

use softndk_ioctl::Status;
use softndk_kernel::{
    event::Event,
    pool::{NoMemory, PoolArray},
    thread::{self, Bound, Thread},
};

use super::{
    call_status::spin,
    chains::Chains,
    interruption::{Interruption, Signals},
};
use crate::{driver::Driver, tags};

/// How long the request's thread waits before it looks round, in nanoseconds.
const LOOK: u64 = 10_000_000;

/// One processor's loop, and what became of it.
pub struct Member<'a> {
    pub chains: Chains<'a>,
    team: &'a Team<'a>,
    processor: u32,
    /// Time of the first post, and of the last completion.
    pub begun: u64,
    pub ended: u64,
    outcome: Result<(), Status>,
}

/// What the members have in common.
pub struct Team<'a> {
    signals: &'a Signals,
    size: u32,
    ready: AtomicU32,
    finished: AtomicU32,
    over: Event,
}

impl<'a> Team<'a> {
    pub fn try_new(signals: &'a Signals, size: u32) -> Result<Self, Status> {
        let over = Event::try_synchronization(tags::EVENT, false).map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        Ok(Self { signals, size, ready: AtomicU32::new(0), finished: AtomicU32::new(0), over })
    }

    /// Runs all loops, one on this thread, several on threads of their own. PASSIVE_LEVEL.
    pub fn run(&self, members: &mut [Member<'a>], interruption: &Interruption<'_>) -> Result<(), Status> {
        if let [member] = members {
            return member.run(interruption);
        }
        let mut started = Ok(());
        let first = members.as_mut_ptr();
        let threads = PoolArray::try_from_fn(tags::SESSION, members.len(), |number| {
            // A member that cannot be started keeps the others from starting.
            if started.is_err() {
                return Ok(None);
            }
            // SAFETY: the member is that thread's alone until the thread is joined, which is below.
            match unsafe { Thread::start(work, first.wrapping_add(number).cast()) } {
                Ok(thread) => Ok::<_, NoMemory>(Some(thread)),
                Err(status) => {
                    started = Err(Status(status));
                    Ok(None)
                }
            }
        });
        let mut threads = threads.map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        let gave_up = started.and_then(|()| self.wait(interruption));
        if gave_up.is_err() {
            self.signals.stop();
        }
        for thread in threads.iter_mut().filter_map(Option::take) {
            thread.join();
        }
        gave_up?;
        // The loops that were stopped say less than the one for which they were.
        let mut outcomes = members.iter().map(|member| member.outcome);
        let all = || members.iter().map(|member| member.outcome);
        let first = all().find(|outcome| outcome.is_err_and(|status| status != Status::CANCELLED));
        first.or_else(|| outcomes.find(Result::is_err)).unwrap_or(Ok(()))
    }

    /// Until every member is done, or the request should end.
    fn wait(&self, interruption: &Interruption<'_>) -> Result<(), Status> {
        while self.finished.load(Ordering::Acquire) < self.size {
            if let Some(request_wait) = interruption.request_wait {
                request_wait.check()?;
            }
            interruption.wait(&self.over, LOOK);
        }
        Ok(())
    }
}

impl<'a> Member<'a> {
    pub fn new(chains: Chains<'a>, team: &'a Team<'a>, processor: u32) -> Self {
        Self { chains, team, processor, begun: 0, ended: 0, outcome: Ok(()) }
    }

    fn run(&mut self, interruption: &Interruption<'_>) -> Result<(), Status> {
        let clock = &Driver::get().ok_or(Status::DEVICE_REMOVED)?.clock;
        self.chains.warm_up(interruption)?;
        self.meet(interruption)?;
        self.begun = clock.now();
        self.chains.run_all(interruption)?;
        self.ended = clock.now();
        Ok(())
    }

    /// Waits until every member is warm.
    fn meet(&self, interruption: &Interruption<'_>) -> Result<(), Status> {
        self.team.ready.fetch_add(1, Ordering::AcqRel);
        let mut spins = 0;
        while self.team.ready.load(Ordering::Acquire) < self.team.size {
            interruption.check()?;
            spin(&mut spins);
        }
        Ok(())
    }
}

unsafe extern "C" fn work(context: *mut c_void) {
    // SAFETY: the member of this thread, which nothing else uses until the thread is joined.
    if let Some(member) = unsafe { context.cast::<Member<'_>>().as_mut() } {
        let bound = Bound::to(member.processor);
        let team = member.team;
        let outcome = member.run(&Interruption { signals: team.signals, request_wait: None });
        drop(bound);
        if outcome.is_err() {
            team.signals.stop();
        }
        member.outcome = outcome;
        team.finished.fetch_add(1, Ordering::AcqRel);
        team.over.set();
    }
    thread::exit();
}
