//! Reclamation by epoch: a retired value may be reused when every context that could have seen it has left.
//!
//! Each context that reads shared tables enters for the length of a service pass and leaves after it. Retiring a value yields a
//! [`Stamp`]; it has passed when every context that is inside entered after it. The epoch holds no garbage and frees nothing;
//! the owner of a retired value asks again.
//!
//! Rules: a context stays inside for at most one piece of copying; slots are claimed and never waited for; a context that must
//! wait for a stamp registers it, and the contexts whose leaving it waits for learn that when they leave.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::last::Dispose;
use crate::shared::NoMemory;
use crate::sync::{AtomicU64, AtomicUsize, Ordering, loom_fence};

/// A point in time: it covers every value that was retired before it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Stamp(pub(crate) u64);

impl Stamp {
    /// The stamp as a plain number, for keeping it in an atomic.
    pub(crate) const fn number(self) -> u64 {
        self.0
    }
}

/// The time since when one context has been inside; 0 is none. A cache line of its own.
#[repr(align(64))]
struct ReaderSlot(AtomicU64);

/// See the module.
pub struct Epoch {
    now: AtomicU64,
    /// The latest stamp that a context waits for; 0 when none does.
    wanted: AtomicU64,
    /// Places that have ever been taken: those behind them need not be looked at.
    used: AtomicUsize,
    slots: Box<[ReaderSlot]>,
}

impl Dispose for Epoch {}

/// Inside: a value that this context finds in the tables stays until the guard is dropped.
pub struct Guard<'a> {
    epoch: &'a Epoch,
    slot: &'a ReaderSlot,
    entered: u64,
}

impl Epoch {
    /// An epoch for `contexts` contexts at a time.
    pub fn try_new(contexts: usize) -> Result<Self, NoMemory> {
        let mut slots = Vec::new();
        slots.try_reserve_exact(contexts)?;
        slots.extend((0..contexts).map(|_| ReaderSlot(AtomicU64::new(0))));
        Ok(Self {
            now: AtomicU64::new(1),
            wanted: AtomicU64::new(0),
            used: AtomicUsize::new(0),
            slots: slots.into_boxed_slice(),
        })
    }

    /// Enters, beginning the search for a free slot at `hint`; `None` when all are taken.
    pub fn enter(&self, hint: usize) -> Option<Guard<'_>> {
        let now = self.now.load(Ordering::SeqCst);
        // Mostly the place of the hint is free, and no search is needed.
        if let Some(guard) = self.take(hint, now) {
            return Some(guard);
        }
        let first = hint % self.slots.len().max(1);
        (first..self.slots.len()).chain(0..first).find_map(|index| self.take(index, now))
    }

    #[inline]
    fn take(&self, index: usize, now: u64) -> Option<Guard<'_>> {
        let slot = self.slots.get(index)?;
        if slot.0.load(Ordering::Relaxed) != 0 {
            return None;
        }
        // Before the slot is taken: who does not see this has retired before this context looks anything up.
        if index >= self.used.load(Ordering::Relaxed) {
            self.used.fetch_max(index.wrapping_add(1), Ordering::SeqCst);
        }
        if slot.0.compare_exchange(0, now, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return None;
        }
        loom_fence();
        Some(Guard { epoch: self, slot, entered: now })
    }

    /// Closes the present epoch; what the caller took out of sight before is unreachable once the stamp has passed.
    pub fn retire(&self) -> Stamp {
        loom_fence();
        Stamp(self.now.fetch_add(1, Ordering::SeqCst).wrapping_add(1))
    }

    /// Whether every context inside entered after the stamp was taken.
    pub fn passed(&self, stamp: Stamp) -> bool {
        self.passed_beside(stamp, None)
    }

    /// As [`Self::passed`], whatever the context at one slot does.
    fn passed_beside(&self, stamp: Stamp, beside: Option<&ReaderSlot>) -> bool {
        loom_fence();
        let used = self.used.load(Ordering::SeqCst);
        self.slots.iter().take(used).all(|slot| {
            let entered = slot.0.load(Ordering::SeqCst);
            entered == 0 || entered >= stamp.0 || beside.is_some_and(|beside| core::ptr::eq(slot, beside))
        })
    }

    /// Asks the contexts that entered before the stamp to report when they leave. Check [`Self::passed`] again after this and
    /// before returning.
    pub fn want(&self, stamp: Stamp) {
        self.wanted.fetch_max(stamp.0, Ordering::SeqCst);
        loom_fence();
    }

    /// Whether a context waits for others to leave; returning true clears the registration.
    pub fn take_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) != 0 && self.wanted.swap(0, Ordering::SeqCst) != 0
    }
}

impl Guard<'_> {
    /// Leaves; true when a waiting context depends on it (see [`Epoch::want`]). A context that entered after every awaited
    /// stamp gets false: while one context stays inside for long, the others leave without a wake-up.
    pub fn leave(self) -> bool {
        let (epoch, entered) = (self.epoch, self.entered);
        drop(self);
        loom_fence();
        epoch.wanted.load(Ordering::SeqCst) > entered
    }

    /// Whether no other context is inside that entered before the stamp was taken. What was retired is still protected by this
    /// guard: nothing may be reused before it is dropped.
    pub fn is_last_before(&self, stamp: Stamp) -> bool {
        self.epoch.passed_beside(stamp, Some(self.slot))
    }

    /// The epoch's number from which on this guard protects: no later than what its context finds.
    pub(crate) const fn entered(&self) -> u64 {
        self.entered
    }

    /// The epoch's number now: it has grown with each retirement since the context entered.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        loom_fence();
        self.epoch.now.load(Ordering::SeqCst)
    }

    /// Whether this guard protects what `epoch` retires.
    pub(crate) fn is_of(&self, epoch: &Epoch) -> bool {
        core::ptr::eq(self.epoch, epoch)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // Sequentially consistent, against the flag that `leave` reads next: the retirer raises it and then reads this.
        self.slot.0.store(0, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Epoch;

    #[test]
    fn a_stamp_waits_for_those_inside_and_not_for_later_ones() {
        let epoch = Epoch::try_new(3).unwrap();
        let early = epoch.enter(0).unwrap();
        let stamp = epoch.retire();
        let late = epoch.enter(0).unwrap();
        assert!(!epoch.passed(stamp));
        epoch.want(stamp);
        assert!(early.leave());
        assert!(epoch.passed(stamp));
        assert!(epoch.take_wanted());
        assert!(!epoch.take_wanted());
        assert!(!late.leave());
    }

    #[test]
    fn only_awaited_contexts_report_a_waiter_while_one_stays_inside() {
        let epoch = Epoch::try_new(4).unwrap();
        let long = epoch.enter(0).unwrap();
        let stamp = epoch.retire();
        epoch.want(stamp);
        for _ in 0..10 {
            assert!(!epoch.enter(1).unwrap().leave(), "entered after everything that is waited for");
        }
        let (meanwhile, second) = (epoch.enter(1).unwrap(), epoch.retire());
        epoch.want(second);
        epoch.want(stamp);
        assert!(meanwhile.leave(), "the later of both stamps counts");
        assert!(long.leave());
        assert!(epoch.take_wanted() && !epoch.take_wanted());
    }

    #[test]
    fn the_last_context_inside_knows_that_it_is() {
        let epoch = Epoch::try_new(3).unwrap();
        let (here, other) = (epoch.enter(0).unwrap(), epoch.enter(1).unwrap());
        let stamp = epoch.retire();
        assert!(!here.is_last_before(stamp) && !other.is_last_before(stamp));
        let late = epoch.enter(2).unwrap();
        drop(other);
        assert!(here.is_last_before(stamp));
        assert!(!epoch.passed(stamp), "it is inside itself");
        assert!(!late.is_last_before(stamp), "the first is before the stamp");
    }

    #[test]
    fn a_context_too_many_finds_no_place() {
        let epoch = Epoch::try_new(2).unwrap();
        let guards = [epoch.enter(1), epoch.enter(1)];
        assert!(guards.iter().all(Option::is_some));
        assert!(epoch.enter(0).is_none());
        drop(guards);
        assert!(epoch.enter(usize::MAX).is_some());
    }

    #[test]
    fn an_epoch_without_places_lets_no_context_in() {
        assert!(Epoch::try_new(0).unwrap().enter(0).is_none());
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::thread;

    use super::{Epoch, Stamp};
    use crate::sync::{AtomicBool, AtomicU64, Ordering, UnsafeCell};
    use crate::{Dispose, Shared};

    struct World {
        epoch: Epoch,
        visible: AtomicBool,
        content: UnsafeCell<u32>,
    }

    impl Dispose for World {}

    // SAFETY: the model checks exactly this: that the content has one writer or readers.
    unsafe impl Sync for World {}
    // SAFETY: as above.
    unsafe impl Send for World {}

    /// A retired value is reused only when the reader has gone, and the waiting side is woken.
    #[test]
    fn reuse_never_meets_a_reader_and_the_wake_up_is_not_lost() {
        loom::model(|| {
            let world = Shared::try_new(World {
                epoch: Epoch::try_new(1).unwrap(),
                visible: AtomicBool::new(true),
                content: UnsafeCell::new(0),
            })
            .unwrap();
            let reader = {
                let world = world.clone();
                thread::spawn(move || {
                    let guard = world.epoch.enter(0).unwrap();
                    if world.visible.load(Ordering::SeqCst) {
                        // SAFETY: the model fails when this read meets the write below.
                        world.content.with(|content| unsafe { assert_eq!(*content, 0) });
                    }
                    guard.leave()
                })
            };
            world.visible.store(false, Ordering::SeqCst);
            let stamp = world.epoch.retire();
            let mut reused = world.epoch.passed(stamp);
            if !reused {
                world.epoch.want(stamp);
                reused = world.epoch.passed(stamp);
            }
            if reused {
                // SAFETY: as above.
                world.content.with_mut(|content| unsafe { *content = 1 });
            }
            let awaited = reader.join().unwrap();
            assert!(reused || awaited);
        });
    }

    /// Two waiting contexts: parked, until the context that takes the registration makes them check again.
    struct Line {
        epoch: Epoch,
        stamps: [AtomicU64; 2],
        parked: [AtomicBool; 2],
    }

    impl Dispose for Line {}

    impl Line {
        fn has_passed(&self, index: usize) -> bool {
            self.epoch.passed(Stamp(self.stamps[index].load(Ordering::SeqCst)))
        }

        fn park(&self, index: usize) {
            self.parked[index].store(true, Ordering::SeqCst);
            self.epoch.want(Stamp(self.stamps[index].load(Ordering::SeqCst)));
            if self.has_passed(index) {
                self.wake();
            }
        }

        fn wake(&self) {
            if self.epoch.take_wanted() {
                for index in 0..2 {
                    if self.parked[index].swap(false, Ordering::SeqCst) && !self.has_passed(index) {
                        self.park(index);
                    }
                }
            }
        }
    }

    /// No context is left waiting when every context has left, although one registration is taken for both stamps.
    #[test]
    fn two_stamps_under_one_registration_are_both_checked() {
        loom::model(|| {
            let line = Shared::try_new(Line {
                epoch: Epoch::try_new(1).unwrap(),
                stamps: [AtomicU64::new(0), AtomicU64::new(0)],
                parked: [AtomicBool::new(false), AtomicBool::new(false)],
            })
            .unwrap();
            let reader = {
                let line = line.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        if line.epoch.enter(0).unwrap().leave() {
                            line.wake();
                        }
                    }
                })
            };
            for index in 0..2 {
                line.stamps[index].store(line.epoch.retire().number(), Ordering::SeqCst);
                line.park(index);
            }
            reader.join().unwrap();
            assert!(line.parked.iter().all(|parked| !parked.load(Ordering::SeqCst)));
        });
    }
}
