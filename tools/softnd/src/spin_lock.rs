//! A lock for a few loads and stores. A thread that waits gives its processor to others after some turns.

use core::{
    cell::UnsafeCell,
    hint,
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicBool, Ordering},
};

use crate::imports::{Sleep, SwitchToThread};

/// Turns before the processor is offered to other threads, and before they are waited for.
const TURNS: u32 = 64;
const OFFERS: u32 = 32;

pub struct SpinLock<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the holder of the lock only.
unsafe impl<T: Send> Sync for SpinLock<T> {}

pub struct Locked<'lock, T>(&'lock SpinLock<T>);

impl<T> SpinLock<T> {
    pub const fn new(value: T) -> Self {
        Self { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    pub fn lock(&self) -> Locked<'_, T> {
        let mut turns = 0_u32;
        while self.locked.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            turns = turns.wrapping_add(1);
            if !turns.is_multiple_of(TURNS) {
                hint::spin_loop();
            } else if turns < TURNS * OFFERS {
                // SAFETY: no precondition.
                unsafe { SwitchToThread() };
            } else {
                // The holder may be of lower priority: only a wait lets it run.
                // SAFETY: no precondition.
                unsafe { Sleep(1) };
            }
        }
        Locked(self)
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held, so no other reference to the value is used.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Locked<'_, T> {
    fn drop(&mut self) {
        self.0.locked.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Arc, thread};

    #[test]
    fn one_thread_at_a_time_holds_it() {
        let lock = Arc::new(SpinLock::new(0_u32));
        let threads = (0..4).map(|_| {
            let lock = lock.clone();
            thread::spawn(move || (0..1000).for_each(|_| *lock.lock() += 1))
        });
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*lock.lock(), 4000);
    }
}
