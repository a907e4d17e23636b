//! The spin lock of the test platform: what the driver uses too.

use crate::meanwhile;
use softndk_engine::Lock;
use std::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, Ordering},
};

/// A spin lock: what the driver uses too.
pub struct SpinLock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only while this context has set `taken`.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T: Send> Lock<T> for SpinLock<T> {
    fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    fn with<R>(&self, access: impl FnOnce(&mut T) -> R) -> R {
        meanwhile::point_of_a_lock();
        let mut tries = 0_u32;
        while self.taken.swap(true, Ordering::Acquire) {
            if tries == 0 {
                meanwhile::waits_for_a_lock();
            }
            tries += 1;
            assert!(tries < 100_000_000, "a lock is never let go");
            std::hint::spin_loop();
            if tries.is_multiple_of(1024) {
                std::thread::yield_now();
            }
        }
        let watched = meanwhile::taken();
        // SAFETY: `taken` was false and this context has set it.
        let result = access(unsafe { &mut *self.value.get() });
        self.taken.store(false, Ordering::Release);
        if watched {
            meanwhile::let_go();
        }
        meanwhile::point_of_a_lock();
        result
    }
}
