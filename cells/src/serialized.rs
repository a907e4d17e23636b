//! A value that one context at a time works on, without waiting.
//!
//! A context with work for the value raises it. The first to raise holds it; the others leave, and the holder sees their raises
//! when it finishes and goes round again. This is no lock: no context spins on it.
//!
//! Rule: no raise is lost. Everything done before [`Serialized::raise`] is seen by the holder before its [`Held::finish`]
//! reports that the value is released.

use core::ops::{Deref, DerefMut};

use crate::sync::{AtomicU32, Ordering, UnsafeCell};

/// See the module.
pub struct Serialized<T> {
    /// 0: free. Else: held, and raised this often since it was last released.
    raised: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through `Held`, of which there is one at a time; it moves between threads as `T: Send`.
unsafe impl<T: Send> Sync for Serialized<T> {}
// SAFETY: owning the wrapper is owning the value.
unsafe impl<T: Send> Send for Serialized<T> {}

/// Exclusive access to the value; dropping it releases the value whatever has been raised since (link the work somewhere
/// before).
pub struct Held<'a, T> {
    serialized: &'a Serialized<T>,
    seen: u32,
}

impl<T> Serialized<T> {
    pub fn new(value: T) -> Self {
        Self { raised: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Takes the value, or makes its holder go round again.
    pub fn raise(&self) -> Option<Held<'_, T>> {
        // Four thousand million raises during one hold would wrap; a hold is bounded to some microseconds.
        (self.raised.fetch_add(1, Ordering::AcqRel) == 0).then(|| Held { serialized: self, seen: 1 })
    }

    /// Whether a context holds it now.
    pub fn is_held(&self) -> bool {
        self.raised.load(Ordering::Acquire) != 0
    }

    /// The value, when the caller owns the wrapper.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.with_mut(|value| {
            // SAFETY: `&mut self` means that there is no `Held` and no other borrow.
            unsafe { &mut *value }
        })
    }
}

impl<T> Held<'_, T> {
    /// Releases the value, unless it was raised since the last check: then it stays with the caller.
    pub fn finish(mut self) -> Option<Self> {
        match self.serialized.raised.compare_exchange(self.seen, 0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                core::mem::forget(self);
                None
            }
            Err(raised) => {
                self.seen = raised;
                Some(self)
            }
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.serialized.value.with(|value| {
            // SAFETY: this `Held` is the only one, and `&self` forbids a mutable borrow through it.
            unsafe { &*value }
        })
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.serialized.value.with_mut(|value| {
            // SAFETY: this `Held` is the only one, and `&mut self` makes the borrow exclusive.
            unsafe { &mut *value }
        })
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.serialized.raised.swap(0, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Serialized;

    #[test]
    fn the_second_raise_sends_the_holder_round_again() {
        let serialized = Serialized::new(0);
        let mut held = serialized.raise().unwrap();
        *held += 1;
        assert!(serialized.raise().is_none());
        assert!(serialized.raise().is_none());
        let held = held.finish().expect("raised meanwhile");
        assert!(serialized.raise().is_none());
        let held = held.finish().expect("raised again");
        assert!(held.finish().is_none());
        assert_eq!(*serialized.raise().unwrap(), 1);
    }

    #[test]
    fn a_dropped_claim_can_be_taken_again() {
        let serialized = Serialized::new(());
        let held = serialized.raise();
        assert!(serialized.is_held());
        drop(held);
        assert!(!serialized.is_held());
        assert!(serialized.raise().is_some());
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::thread;

    use super::Serialized;
    use crate::Shared;
    use crate::sync::{AtomicUsize, Ordering};

    /// Each context leaves a unit of work and raises; the holder consumes all of them. None is left over.
    #[test]
    fn no_raise_is_lost_and_the_value_has_one_holder() {
        loom::model(|| {
            let cell = Shared::try_new((AtomicUsize::new(0), Serialized::new(0_usize))).unwrap();
            let work = |cell: &Shared<(AtomicUsize, Serialized<usize>)>| {
                cell.0.fetch_add(1, Ordering::Relaxed);
                let mut held = cell.1.raise();
                while let Some(mut serialized) = held {
                    *serialized += cell.0.swap(0, Ordering::Relaxed);
                    held = serialized.finish();
                }
            };
            let other = {
                let cell = cell.clone();
                thread::spawn(move || work(&cell))
            };
            work(&cell);
            work(&cell);
            other.join().unwrap();
            assert_eq!(*cell.1.raise().unwrap(), 3);
        });
    }
}
