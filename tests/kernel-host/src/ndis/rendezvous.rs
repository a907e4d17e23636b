//! Where a request that a miniport may finish asynchronously meets its completion: pause, restart, OID requests.
//!
//! The completion may come before the handler has returned, from another thread; it has to come exactly once, and only if the
//! handler returns pending.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::dispatcher::Event;

/// How long a pause or restart may take, in kernel time, before the host calls it a hang.
pub const LIMIT: Duration = Duration::from_mins(1);

enum CallPhase<T> {
    Idle,
    Called,
    Completed(T),
}

/// One outstanding request at a time.
pub struct Rendezvous<T> {
    phase: Mutex<CallPhase<T>>,
    completed: Event,
}

/// Why a completion, or a return value, breaks the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    /// Completed without a request.
    NothingOutstanding,
    /// Completed a second time.
    CompletedTwice,
    /// Completed by the completion function and finished by the return value as well.
    CompletedAndReturned,
    /// Still not completed after so long.
    NeverCompleted,
}

impl<T> Default for Rendezvous<T> {
    fn default() -> Self {
        Self { phase: Mutex::new(CallPhase::Idle), completed: Event::notification() }
    }
}

impl<T> Rendezvous<T> {
    /// Before the handler is called.
    pub fn begin(&self) {
        *self.lock() = CallPhase::Called;
        self.completed.reset();
    }

    /// The completion function.
    pub fn complete(&self, value: T) -> Result<(), Mismatch> {
        let mut phase = self.lock();
        match *phase {
            CallPhase::Idle => return Err(Mismatch::NothingOutstanding),
            CallPhase::Completed(_) => return Err(Mismatch::CompletedTwice),
            CallPhase::Called => *phase = CallPhase::Completed(value),
        }
        drop(phase);
        self.completed.set();
        Ok(())
    }

    /// After the handler returned something final: a completion besides is one too many.
    pub fn end(&self) -> Result<(), Mismatch> {
        match std::mem::replace(&mut *self.lock(), CallPhase::Idle) {
            CallPhase::Completed(_) => Err(Mismatch::CompletedAndReturned),
            CallPhase::Idle | CallPhase::Called => Ok(()),
        }
    }

    /// After the handler returned pending: waits for the completion, [`LIMIT`] at most.
    pub fn wait(&self) -> Result<T, Mismatch> {
        self.wait_for(LIMIT)
    }

    /// As [`Self::wait`], with a limit of its own.
    pub fn wait_for(&self, limit: Duration) -> Result<T, Mismatch> {
        self.completed.wait(Some(limit));
        match std::mem::replace(&mut *self.lock(), CallPhase::Idle) {
            CallPhase::Completed(value) => Ok(value),
            CallPhase::Idle | CallPhase::Called => Err(Mismatch::NeverCompleted),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CallPhase<T>> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
