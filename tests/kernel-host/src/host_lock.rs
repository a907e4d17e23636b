//! The locks around the host's own tables.
//!
//! Whatever a thread has seen in a table is old once it has let go of the lock: another one may come before it looks a second
//! time. So a look and what follows from it are one hold. Each hold is a point of an interruption that asks for them
//! ([`interruption::interrupted_in_the_host`]): a test stops one thread between two holds and lets another run there.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::interruption;

pub(crate) struct HostLock<T>(Mutex<T>);

impl<T: Default> Default for HostLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> HostLock<T> {
    pub(crate) const fn new(table: T) -> Self {
        Self(Mutex::new(table))
    }

    /// A panic with the lock held leaves the table whole.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        interruption::before_a_hold();
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For reports, which may come while the lock is held.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
