//! A lock for what the host itself keeps: held for some instructions, taken with one locked instruction and released with a store,
//! as kernel code takes a spin lock. Nothing is called under it that may wait, take another lock or run an image.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct ShortLock<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the thread that set `locked` only.
unsafe impl<T: Send> Sync for ShortLock<T> {}

/// Opens the lock when the body ends, in whatever way.
struct Opening<'lock>(&'lock AtomicBool);

impl Drop for Opening<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl<T> ShortLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        while !self.try_lock() {
            self.wait();
        }
        self.run(body)
    }

    /// For reports, which may interrupt the thread that has the lock: `None` when it is taken.
    pub(crate) fn try_with<R>(&self, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.try_lock().then(|| self.run(body))
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// The thread has set `locked`.
    #[inline]
    fn run<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        let _opening = Opening(&self.locked);
        // SAFETY: the flag is this thread's until `_opening` drops: the only reference.
        body(unsafe { &mut *self.value.get() })
    }

    /// The thread that has it may have lost its processor.
    #[cold]
    fn wait(&self) {
        for _ in 0..1_024 {
            if !self.locked.load(Ordering::Relaxed) {
                return;
            }
            std::hint::spin_loop();
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_is_inside() {
        let lock = ShortLock::new(0_u32);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| lock.with(|count| *count += 1)));
            }
        });
        assert_eq!(lock.with(|count| *count), 40_000);
    }

    #[test]
    fn a_report_does_not_wait_for_it() {
        let lock = ShortLock::new(());
        lock.with(|()| assert_eq!(lock.try_with(|()| ()), None));
        assert_eq!(lock.try_with(|()| ()), Some(()));
    }
}
