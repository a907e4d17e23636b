//! A value that is set once and read without a lock from then on.
//!
//! Rule: readers find the whole value or none; a second value is given back.

use core::mem::MaybeUninit;

use crate::sync::{AtomicU32, Ordering, UnsafeCell};

const EMPTY: u32 = 0;
const WRITING: u32 = 1;
const SET: u32 = 2;

/// See the module.
pub struct Once<T> {
    state: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value is written by the one context that found the cell empty, before the state says that it is set, and only
// read after that: shared readers need `Sync`, and a value that another thread sets needs `Send`.
unsafe impl<T: Send + Sync> Sync for Once<T> {}
// SAFETY: owning the cell is owning its value.
unsafe impl<T: Send> Send for Once<T> {}

impl<T> Once<T> {
    pub fn new() -> Self {
        Self { state: AtomicU32::new(EMPTY), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Sets the value; it is given back when there is one, or when another context is about to set one.
    pub fn set(&self, value: T) -> Result<(), T> {
        if self.state.compare_exchange(EMPTY, WRITING, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return Err(value);
        }
        self.value.with_mut(|place| {
            // SAFETY: only the context that has changed the state from EMPTY comes here, and readers wait for SET.
            let place = unsafe { &mut *place };
            place.write(value);
        });
        self.state.store(SET, Ordering::Release);
        Ok(())
    }

    #[inline]
    pub fn get(&self) -> Option<&T> {
        if self.state.load(Ordering::Acquire) != SET {
            return None;
        }
        Some(self.value.with(|place| {
            // SAFETY: set, and from then on only read.
            let place = unsafe { &*place };
            // SAFETY: set, so initialised.
            unsafe { place.assume_init_ref() }
        }))
    }
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Once<T> {
    fn drop(&mut self) {
        if self.state.load(Ordering::Relaxed) == SET {
            self.value.with_mut(|place| {
                // SAFETY: the cell is going: the access is exclusive.
                let place = unsafe { &mut *place };
                // SAFETY: set, so initialised, and dropped here only.
                unsafe { place.assume_init_drop() };
            });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::Once;

    #[test]
    fn the_first_value_stays_and_goes_with_the_cell() {
        let (first, second) = (Arc::new(1), Arc::new(2));
        let once = Once::default();
        assert!(once.get().is_none());
        once.set(first.clone()).unwrap();
        assert_eq!(once.set(second.clone()).unwrap_err(), second);
        assert_eq!(once.get(), Some(&first));
        assert_eq!(Arc::strong_count(&first), 2);
        drop(once);
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 1));
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::thread;

    use super::Once;
    use crate::{Dispose, Shared};

    impl Dispose for Once<[u32; 2]> {}

    #[test]
    fn a_reader_finds_the_whole_value_or_none_and_one_writer_wins() {
        loom::model(|| {
            let once = Shared::try_new(Once::new()).unwrap();
            let other = {
                let once = once.clone();
                thread::spawn(move || once.set([2; 2]).is_ok())
            };
            let here = once.set([1; 2]).is_ok();
            let seen = once.get().copied();
            assert!(seen.is_none_or(|[first, second]| first == second));
            assert!(here != other.join().unwrap());
            assert!(once.get().is_some());
        });
    }
}
