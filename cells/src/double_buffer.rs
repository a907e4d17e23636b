//! Two buffers under one name: readers see the current one while the next one is being written.
//!
//! A fast-register region keeps its page lists here. A draft is written into a free buffer, becomes ready, and is published in
//! order; a withdrawn buffer is free again when every reader has left. A third draft is refused.
//!
//! Rules: at most one buffer is current; a buffer is written only by the holder of its [`Draft`], and becomes free only after
//! the epoch of its withdrawal has passed. All states are atomics, so that misuse is refused and never unsound.

use core::ops::{Deref, DerefMut};

use crate::epoch::{Epoch, Guard, Stamp};
use crate::shared::Shared;
use crate::sync::{AtomicU32, AtomicU64, Ordering, UnsafeCell, loom_fence};

const FREE: u32 = 0;
const DRAFT: u32 = 1;
const READY: u32 = 2;
const CURRENT: u32 = 3;
const OLD: u32 = 4;
/// The value of `current` when no buffer is.
const NONE: u32 = 2;

struct Buffer<T> {
    state: AtomicU32,
    withdrawn: AtomicU64,
    content: UnsafeCell<T>,
}

/// See the module.
pub struct DoubleBuffer<T> {
    current: AtomicU32,
    buffers: [Buffer<T>; 2],
    epoch: Shared<Epoch>,
}

// SAFETY: a buffer is reached by one `Draft` (mutably) or by readers of the current buffer (shared), never both: the states and
// the epoch keep them apart. `T: Send + Sync` allows both kinds of access from any thread.
unsafe impl<T: Send + Sync> Sync for DoubleBuffer<T> {}
// SAFETY: owning the double buffer is owning both buffers.
unsafe impl<T: Send + Sync> Send for DoubleBuffer<T> {}

/// A buffer being written; dropping it frees the buffer.
pub struct Draft<'a, T> {
    buffer: &'a Buffer<T>,
    index: u32,
}

/// A finished draft that is not published yet.
#[derive(Debug, Eq, PartialEq)]
pub struct Ready(u32);

impl<T> DoubleBuffer<T> {
    pub fn new(first: T, second: T, epoch: Shared<Epoch>) -> Self {
        let buffer = |content| Buffer {
            state: AtomicU32::new(FREE),
            withdrawn: AtomicU64::new(0),
            content: UnsafeCell::new(content),
        };
        Self { current: AtomicU32::new(NONE), buffers: [buffer(first), buffer(second)], epoch }
    }

    /// A free buffer to write; `None` when both are in use.
    pub fn draft(&self) -> Option<Draft<'_, T>> {
        self.buffers.iter().zip(0..).find_map(|(buffer, index)| {
            let claimed = buffer.state.compare_exchange(FREE, DRAFT, Ordering::Acquire, Ordering::Relaxed).is_ok();
            claimed.then(|| Draft { buffer, index })
        })
    }

    /// Makes a ready draft current; it is given back when another buffer is current.
    pub fn publish(&self, ready: Ready) -> Result<(), Ready> {
        let Some(buffer) = self.buffers.get(ready.0 as usize) else { return Err(ready) };
        if buffer.state.compare_exchange(READY, CURRENT, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Err(ready);
        }
        if self.current.compare_exchange(NONE, ready.0, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            buffer.state.store(READY, Ordering::Release);
            return Err(ready);
        }
        Ok(())
    }

    /// Frees a ready draft that will not be published.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the draft is used up, so that it cannot be published afterwards"
    )]
    pub fn discard(&self, ready: Ready) {
        if let Some(buffer) = self.buffers.get(ready.0 as usize) {
            let _ = buffer.state.compare_exchange(READY, FREE, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// Withdraws the current buffer; it is free when the stamp has passed and [`Self::reclaim`] was called.
    pub fn withdraw(&self) -> Option<Stamp> {
        let index = self.current.load(Ordering::Relaxed);
        let buffer = self.buffers.get(index as usize)?;
        self.current.compare_exchange(index, NONE, Ordering::SeqCst, Ordering::Relaxed).ok()?;
        let stamp = self.epoch.retire();
        buffer.withdrawn.store(stamp.number(), Ordering::Relaxed);
        buffer.state.store(OLD, Ordering::Release);
        Some(stamp)
    }

    /// Frees withdrawn buffers whose readers have left; true when none is left.
    pub fn reclaim(&self) -> bool {
        let reclaim = |buffer: &Buffer<T>| {
            if buffer.state.load(Ordering::Acquire) != OLD {
                return true;
            }
            let passed = self.epoch.passed(Stamp(buffer.withdrawn.load(Ordering::Relaxed)));
            passed && buffer.state.compare_exchange(OLD, FREE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        // Both, whatever became of the first.
        let [first, second] = self.buffers.each_ref().map(reclaim);
        first && second
    }

    /// The current content, valid as long as the guard.
    #[inline]
    pub fn read<'g>(&'g self, guard: &'g Guard<'_>) -> Option<&'g T> {
        if !guard.is_of(&self.epoch) {
            return None;
        }
        loom_fence();
        let index = self.current.load(Ordering::SeqCst);
        let buffer = self.buffers.get(index as usize)?;
        Some(buffer.content.with(|content| {
            // SAFETY: the buffer was current after this context entered the epoch; it becomes writable only when the context
            // has left, and the result borrows the guard.
            unsafe { &*content }
        }))
    }

    /// Whether a buffer is current now.
    pub fn is_published(&self) -> bool {
        self.current.load(Ordering::Relaxed) != NONE
    }
}

impl<T> Draft<'_, T> {
    /// Ends the writing; the draft waits to be published or discarded.
    pub fn finish(self) -> Ready {
        let ready = Ready(self.index);
        self.buffer.state.store(READY, Ordering::Release);
        core::mem::forget(self);
        ready
    }
}

impl<T> Deref for Draft<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.buffer.content.with(|content| {
            // SAFETY: the state DRAFT belongs to this value alone; the buffer is read and written only through it.
            unsafe { &*content }
        })
    }
}

impl<T> DerefMut for Draft<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.buffer.content.with_mut(|content| {
            // SAFETY: as for `deref`, and `&mut self` makes the borrow exclusive.
            unsafe { &mut *content }
        })
    }
}

impl<T> Drop for Draft<'_, T> {
    fn drop(&mut self) {
        self.buffer.state.store(FREE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::DoubleBuffer;
    use crate::{Epoch, Shared};

    fn double_buffer() -> (Shared<Epoch>, DoubleBuffer<u32>) {
        let epoch = Shared::try_new(Epoch::try_new(2).unwrap()).unwrap();
        let double_buffer = DoubleBuffer::new(0, 0, epoch.clone());
        (epoch, double_buffer)
    }

    #[test]
    fn a_third_draft_is_refused_until_the_old_edition_is_reclaimed() {
        let (epoch, double_buffer) = double_buffer();
        let mut draft = double_buffer.draft().unwrap();
        *draft = 1;
        double_buffer.publish(draft.finish()).unwrap();
        let mut next = double_buffer.draft().unwrap();
        *next = 2;
        let next = double_buffer.publish(next.finish()).unwrap_err();
        assert!(double_buffer.draft().is_none());
        let guard = epoch.enter(0).unwrap();
        assert_eq!(double_buffer.read(&guard), Some(&1));
        double_buffer.withdraw().unwrap();
        assert!(!double_buffer.reclaim());
        assert_eq!(double_buffer.read(&guard), None);
        drop(guard);
        assert!(double_buffer.reclaim());
        double_buffer.publish(next).unwrap();
        assert_eq!(double_buffer.read(&epoch.enter(0).unwrap()), Some(&2));
        assert!(double_buffer.draft().is_some());
    }

    #[test]
    fn a_discarded_draft_frees_its_buffer_and_publishes_nothing() {
        let (epoch, double_buffer) = double_buffer();
        let kept = double_buffer.draft().unwrap().finish();
        let discarded = double_buffer.draft().unwrap().finish();
        assert!(double_buffer.draft().is_none());
        double_buffer.discard(discarded);
        assert!(double_buffer.draft().is_some());
        assert!(!double_buffer.is_published());
        assert_eq!(double_buffer.read(&epoch.enter(0).unwrap()), None);
        double_buffer.publish(kept).unwrap();
        assert!(double_buffer.is_published());
        double_buffer.withdraw().unwrap();
        assert!(!double_buffer.is_published());
    }

    #[test]
    fn an_edition_that_is_still_read_does_not_keep_the_other_one() {
        let (epoch, double_buffer) = double_buffer();
        double_buffer.publish(double_buffer.draft().unwrap().finish()).unwrap();
        let second = double_buffer.draft().unwrap();
        double_buffer.withdraw().unwrap();
        assert!(double_buffer.reclaim());
        double_buffer.publish(second.finish()).unwrap();
        let first = double_buffer.draft().unwrap();
        double_buffer.withdraw().unwrap();
        double_buffer.publish(first.finish()).unwrap();
        let late = epoch.enter(0).unwrap();
        double_buffer.withdraw().unwrap();
        assert!(!double_buffer.reclaim(), "the first buffer is read");
        assert!(double_buffer.draft().is_some(), "the second one is not");
        drop(late);
    }

    #[test]
    fn a_dropped_draft_and_a_discarded_one_free_their_buffers() {
        let (_, double_buffer) = double_buffer();
        drop(double_buffer.draft().unwrap());
        let (first, second) = (double_buffer.draft().unwrap(), double_buffer.draft().unwrap());
        double_buffer.discard(first.finish());
        drop(second);
        assert!(double_buffer.draft().is_some());
        assert!(double_buffer.withdraw().is_none());
    }

    #[test]
    fn a_guard_of_another_epoch_reads_nothing() {
        let (_, double_buffer) = double_buffer();
        double_buffer.publish(double_buffer.draft().unwrap().finish()).unwrap();
        let other = Epoch::try_new(1).unwrap();
        assert_eq!(double_buffer.read(&other.enter(0).unwrap()), None);
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::thread;

    use super::DoubleBuffer;
    use crate::{Epoch, Shared};

    /// A reader sees a whole content or none, while the owner withdraws and writes a new one.
    #[test]
    fn a_reader_never_sees_an_edition_being_written() {
        loom::model(|| {
            let epoch = Shared::try_new(Epoch::try_new(1).unwrap()).unwrap();
            let double_buffer = Shared::try_new(DoubleBuffer::new([0; 2], [9; 2], epoch.clone())).unwrap();
            let mut draft = double_buffer.draft().unwrap();
            *draft = [1; 2];
            double_buffer.publish(draft.finish()).unwrap();
            let reader = {
                let (epoch, double_buffer) = (epoch.clone(), double_buffer.clone());
                thread::spawn(move || {
                    let guard = epoch.enter(0).unwrap();
                    if let Some([first, second]) = double_buffer.read(&guard) {
                        assert_eq!(first, second);
                    }
                })
            };
            double_buffer.withdraw().unwrap();
            let _ = double_buffer.reclaim();
            for value in [2, 3] {
                if let Some(mut draft) = double_buffer.draft() {
                    *draft = [value; 2];
                    drop(draft);
                }
            }
            reader.join().unwrap();
        });
    }
}
