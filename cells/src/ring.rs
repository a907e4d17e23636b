//! A bounded ring with one producer at a time and one consumer.
//!
//! Request queues are such rings. The producer claims the ring, stages entries and publishes them together; the consumer works
//! on the oldest entry in place and pops it when it is done. A second producer at the same time gets no claim.
//!
//! Rules: entries staged and not published are dropped with the claim; the capacity is exact, whatever the memory behind it.

use alloc::alloc::{alloc, dealloc};
use core::alloc::Layout;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::Deref;
use core::ptr::NonNull;

use crate::shared::NoMemory;
use crate::sync::{AtomicBool, AtomicUsize, Ordering, UnsafeCell, fence};

/// How the two ends of a ring lie in memory.
pub trait Spacing: Send + Sync {
    fn at(position: usize) -> Self;
    fn word(&self) -> &AtomicUsize;
}

/// Each end has a cache line to itself: for ends that work at the same time.
#[repr(align(64))]
pub struct Apart(AtomicUsize);

/// Both in one line: for rings that are used together with one whose ends are apart.
pub struct Together(AtomicUsize);

impl Spacing for Apart {
    fn at(position: usize) -> Self {
        Self(AtomicUsize::new(position))
    }

    fn word(&self) -> &AtomicUsize {
        &self.0
    }
}

impl Spacing for Together {
    fn at(position: usize) -> Self {
        Self(AtomicUsize::new(position))
    }

    fn word(&self) -> &AtomicUsize {
        &self.0
    }
}

type Entry<T> = UnsafeCell<MaybeUninit<T>>;

/// One allocation with its entries, which lie behind it: a queue pair has five rings, and its making counts.
struct Ring<T, S: Spacing> {
    /// The oldest entry; written by the consumer.
    head: S,
    /// One past the newest published entry; written by the producer.
    tail: S,
    claimed: AtomicBool,
    /// False once one of the two ends has gone.
    whole: AtomicBool,
    capacity: usize,
    mask: usize,
    entries: NonNull<Entry<T>>,
}

// SAFETY: an entry is reached by the claiming producer (outside head..tail) or by the one consumer (inside), never by both.
unsafe impl<T: Send, S: Spacing> Sync for Ring<T, S> {}
// SAFETY: owning the ring is owning its entries.
unsafe impl<T: Send, S: Spacing> Send for Ring<T, S> {}

/// The pointer of one of the two ends to their ring; the second that goes frees it.
struct End<T, S: Spacing> {
    ring: NonNull<Ring<T, S>>,
    _owns: PhantomData<Ring<T, S>>,
}

// SAFETY: an end gives out `&Ring` from any thread and may drop the ring, with its entries, on any.
unsafe impl<T: Send, S: Spacing> Send for End<T, S> {}
// SAFETY: as for `Send`; who has the ring last is decided atomically.
unsafe impl<T: Send, S: Spacing> Sync for End<T, S> {}

/// The producer's end.
pub struct Sender<T, S: Spacing = Apart>(End<T, S>);

/// The consumer's end.
pub struct Receiver<T, S: Spacing = Apart>(End<T, S>);

/// The producer's claim on the ring, with entries staged and not yet published.
pub struct Claim<'a, T, S: Spacing = Apart> {
    ring: &'a Ring<T, S>,
    tail: usize,
    staged: usize,
    free: usize,
}

/// Both ends of a ring.
pub type Ends<T, S> = (Sender<T, S>, Receiver<T, S>);

/// A ring for exactly `capacity` entries.
pub fn channel<T: Send, S: Spacing>(capacity: usize) -> Result<Ends<T, S>, NoMemory> {
    let size = if capacity == 0 { 0 } else { capacity.checked_next_power_of_two().ok_or(NoMemory)? };
    let (layout, offset) = Ring::<T, S>::layout(size).ok_or(NoMemory)?;
    // SAFETY: the layout is not empty: a ring has a head and a tail.
    let block = NonNull::new(unsafe { alloc(layout) }).ok_or(NoMemory)?;
    // SAFETY: the offset is the layout's, so within the block or at its end.
    let entries = unsafe { block.add(offset) }.cast::<Entry<T>>();
    for index in 0..size {
        // SAFETY: the block has `size` entries there.
        let entry = unsafe { entries.add(index) };
        // SAFETY: as above, and nothing else knows the block.
        unsafe { entry.write(UnsafeCell::new(MaybeUninit::uninit())) };
    }
    let ring = block.cast::<Ring<T, S>>();
    let content = Ring {
        head: S::at(0),
        tail: S::at(0),
        claimed: AtomicBool::new(false),
        whole: AtomicBool::new(true),
        capacity,
        mask: size.saturating_sub(1),
        entries,
    };
    // SAFETY: the block begins with a ring, and nothing else knows it.
    unsafe { ring.write(content) };
    let end = || End { ring, _owns: PhantomData };
    Ok((Sender(end()), Receiver(end())))
}

impl<T, S: Spacing> Ring<T, S> {
    /// The block of a ring with so many entries, and where they begin in it.
    fn layout(size: usize) -> Option<(Layout, usize)> {
        let entries = Layout::array::<Entry<T>>(size).ok()?;
        Layout::new::<Self>().extend(entries).ok()
    }

    /// Entries that there is memory for.
    fn size(&self) -> usize {
        if self.capacity == 0 { 0 } else { self.mask.wrapping_add(1) }
    }

    #[inline]
    fn entry(&self, position: usize) -> Option<&Entry<T>> {
        if self.capacity == 0 {
            return None;
        }
        // SAFETY: the mask is that of the last of the entries, and there is one.
        let entry = unsafe { self.entries.add(position & self.mask) };
        // SAFETY: made with the ring, in its block.
        Some(unsafe { entry.as_ref() })
    }
}

impl<T, S: Spacing> Deref for End<T, S> {
    type Target = Ring<T, S>;

    #[inline]
    fn deref(&self) -> &Ring<T, S> {
        // SAFETY: this end keeps the ring.
        unsafe { self.ring.as_ref() }
    }
}

impl<T, S: Spacing> Drop for End<T, S> {
    fn drop(&mut self) {
        // Release for what this end did, acquire for what the other did before.
        if self.whole.swap(false, Ordering::Release) {
            return;
        }
        fence(Ordering::Acquire);
        let (entries, size) = (self.entries, self.size());
        // SAFETY: the other end has gone, and this one goes: the ring is not used again. Its drop drops what the entries hold.
        unsafe { self.ring.drop_in_place() };
        for index in 0..size {
            // SAFETY: there are so many.
            let entry = unsafe { entries.add(index) };
            // SAFETY: made with the ring, and dropped with it; what was in it has been dropped.
            unsafe { entry.drop_in_place() };
        }
        if let Some((layout, _)) = Ring::<T, S>::layout(size) {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(self.ring.as_ptr().cast(), layout) };
        }
    }
}

impl<T, S: Spacing> Sender<T, S> {
    /// Claims the producer's end; `None` when another producer has it.
    pub fn claim(&self) -> Option<Claim<'_, T, S>> {
        if self.0.claimed.swap(true, Ordering::SeqCst) {
            return None;
        }
        crate::sync::loom_fence();
        let tail = self.0.tail.word().load(Ordering::Relaxed);
        let used = tail.wrapping_sub(self.0.head.word().load(Ordering::Acquire));
        Some(Claim { ring: &self.0, tail, staged: 0, free: self.0.capacity.saturating_sub(used) })
    }

    /// Entries published and not yet popped.
    pub fn len(&self) -> usize {
        let head = self.0.head.word().load(Ordering::Acquire);
        self.0.tail.word().load(Ordering::Acquire).wrapping_sub(head).min(self.0.capacity)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is no entry in it, and place for one.
    #[inline]
    pub fn is_vacant(&self) -> bool {
        self.0.capacity != 0 && self.is_empty()
    }

    /// Whether a producer has a claim. One that claims after an answer of false sees what was stored before the question; what
    /// one published that gave its claim up before is there.
    pub fn is_claimed(&self) -> bool {
        crate::sync::loom_fence();
        self.0.claimed.load(Ordering::SeqCst)
    }
}

impl<T, S: Spacing> Claim<'_, T, S> {
    /// How many more entries can be staged.
    pub fn free(&self) -> usize {
        self.free
    }

    /// The position the next staged entry gets; the consumer names it by [`Receiver::at`].
    pub fn position(&self) -> usize {
        self.tail.wrapping_add(self.staged)
    }

    /// Stages an entry; it is given back when the ring is full.
    pub fn stage(&mut self, value: T) -> Result<(), T> {
        let Some(entry) = self.ring.entry(self.position()).filter(|_| self.free > 0) else { return Err(value) };
        entry.with_mut(|place| {
            // SAFETY: the position is outside head..tail, so the consumer does not touch it, and this claim is the only one.
            let place = unsafe { &mut *place };
            place.write(value);
        });
        // A position, as head and tail are.
        self.staged = self.staged.wrapping_add(1);
        self.free -= 1;
        Ok(())
    }

    /// As [`Self::stage`] for an entry that is made in its place; whether there was one.
    #[inline]
    pub fn stage_with(&mut self, make: impl FnOnce() -> T) -> bool {
        let Some(entry) = self.ring.entry(self.position()).filter(|_| self.free > 0) else { return false };
        entry.with_mut(|place| {
            // SAFETY: as in `stage`.
            let place = unsafe { &mut *place };
            place.write(make());
        });
        self.staged = self.staged.wrapping_add(1);
        self.free -= 1;
        true
    }

    /// Makes everything staged visible and gives up the claim. The wake-up of the consumer that follows orders it.
    pub fn publish(mut self) {
        let tail = self.position();
        self.staged = 0;
        self.ring.tail.word().store(tail, Ordering::Release);
    }

    /// As [`Self::publish`], for a producer that then checks whether the consumer waits: the check does not overtake the
    /// entries.
    pub fn announce(mut self) {
        let tail = self.position();
        self.staged = 0;
        self.ring.tail.word().store(tail, Ordering::SeqCst);
        crate::sync::loom_fence();
    }
}

impl<T, S: Spacing> Drop for Claim<'_, T, S> {
    fn drop(&mut self) {
        for offset in 0..self.staged {
            if let Some(entry) = self.ring.entry(self.tail.wrapping_add(offset)) {
                entry.with_mut(|place| {
                    // SAFETY: as in `stage`: outside head..tail and under this claim.
                    let place = unsafe { &mut *place };
                    // SAFETY: staged, so initialised; the count is dropped with the claim, so it is dropped once.
                    unsafe { place.assume_init_drop() };
                });
            }
        }
        self.ring.claimed.store(false, Ordering::Release);
    }
}

impl<T, S: Spacing> Receiver<T, S> {
    /// Entries published and not yet popped.
    pub fn len(&self) -> usize {
        let head = self.0.head.word().load(Ordering::Relaxed);
        self.0.tail.word().load(Ordering::SeqCst).wrapping_sub(head)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The position of the oldest entry, present or not yet published.
    pub fn position(&self) -> usize {
        self.0.head.word().load(Ordering::Relaxed)
    }

    /// The oldest entry.
    pub fn front(&mut self) -> Option<&mut T> {
        self.at(self.position())
    }

    /// The entry at a position between the oldest and the newest.
    pub fn at(&mut self, position: usize) -> Option<&mut T> {
        if position.wrapping_sub(self.position()) >= self.len() {
            return None;
        }
        let entry = self.0.entry(position)?;
        Some(entry.with_mut(|place| {
            // SAFETY: inside head..tail, so the producer does not touch it; `&mut self` makes the consumer's borrow exclusive.
            let place = unsafe { &mut *place };
            // SAFETY: published, so initialised.
            unsafe { place.assume_init_mut() }
        }))
    }

    /// The entry at a position, for reading.
    #[inline]
    pub fn peek(&self, position: usize) -> Option<&T>
    where
        T: Sync,
    {
        if position.wrapping_sub(self.position()) >= self.len() {
            return None;
        }
        let entry = self.0.entry(position)?;
        Some(entry.with(|place| {
            // SAFETY: inside head..tail, so the producer does not touch it; `&self` keeps the consumer from changing it.
            let place = unsafe { &*place };
            // SAFETY: published, so initialised.
            unsafe { place.assume_init_ref() }
        }))
    }

    /// Shows the oldest entries, up to `most`, one after the other to `visit`, and ends with the first that it returns false for: how
    /// many it returned true for.
    #[inline]
    pub fn visit(&self, most: usize, mut visit: impl FnMut(&T) -> bool) -> usize
    where
        T: Sync,
    {
        let (head, most) = (self.position(), most.min(self.len()));
        let mut visited = 0_usize;
        while visited < most {
            let Some(entry) = self.0.entry(head.wrapping_add(visited)) else { break };
            let goes_on = entry.with(|place| {
                // SAFETY: as in `peek`.
                let place = unsafe { &*place };
                // SAFETY: published, so initialised.
                visit(unsafe { place.assume_init_ref() })
            });
            if !goes_on {
                break;
            }
            visited = visited.wrapping_add(1);
        }
        visited
    }

    /// Takes the oldest entry.
    pub fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let head = self.position();
        let value = self.0.entry(head)?.with_mut(|place| {
            // SAFETY: as in `at`.
            let place = unsafe { &mut *place };
            // SAFETY: published, so initialised; the head moves past it below, so it is read once.
            unsafe { place.assume_init_read() }
        });
        self.0.head.word().store(head.wrapping_add(1), Ordering::Release);
        Some(value)
    }

    /// Drops the oldest entry in its place.
    #[inline]
    pub fn drop_front(&mut self) {
        if let Some(entry) = self.front() {
            let entry = core::ptr::from_mut(entry);
            // SAFETY: the front is initialised, and the head moves past it below, so it is dropped once and not read again.
            unsafe { entry.drop_in_place() };
            self.release(1);
        }
    }

    /// Frees the places of the `count` oldest entries (or as many as there are) and drops nothing: for entries that own nothing.
    #[inline]
    pub fn release(&mut self, count: usize) {
        let count = count.min(self.len());
        self.0.head.word().store(self.position().wrapping_add(count), Ordering::Release);
    }

    /// Drops the `count` oldest entries (or as many as there are).
    pub fn skip(&mut self, count: usize) {
        if core::mem::needs_drop::<T>() {
            for _ in 0..count {
                self.drop_front();
            }
        } else {
            let count = count.min(self.len());
            self.0.head.word().store(self.position().wrapping_add(count), Ordering::Release);
        }
    }
}

impl<T, S: Spacing> Drop for Ring<T, S> {
    fn drop(&mut self) {
        let mut position = self.head.word().load(Ordering::Relaxed);
        let tail = self.tail.word().load(Ordering::Relaxed);
        while position != tail {
            if let Some(entry) = self.entry(position) {
                entry.with_mut(|place| {
                    // SAFETY: both ends are gone: the access is exclusive.
                    let place = unsafe { &mut *place };
                    // SAFETY: inside head..tail, so initialised, and visited once.
                    unsafe { place.assume_init_drop() };
                });
            }
            position = position.wrapping_add(1);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::vec;
    use std::vec::Vec;

    use super::{Apart, channel};

    #[test]
    fn capacity_is_exact_even_when_memory_is_rounded_up() {
        for capacity in [0, 1, 2, 3, 7, 8] {
            let (sender, mut receiver) = channel::<_, Apart>(capacity).unwrap();
            assert_eq!(sender.is_vacant(), capacity != 0);
            let mut claim = sender.claim().unwrap();
            assert_eq!(claim.free(), capacity);
            for value in 0..capacity {
                claim.stage(value).unwrap();
            }
            assert_eq!(claim.stage(99), Err(99));
            claim.publish();
            assert_eq!((sender.len(), receiver.len()), (capacity, capacity));
            assert!(!sender.is_vacant());
            for value in 0..capacity {
                assert_eq!(receiver.pop(), Some(value));
            }
            assert_eq!(receiver.pop(), None);
        }
    }

    #[test]
    fn announced_entries_are_there_and_can_be_looked_at_in_any_place() {
        let (sender, mut receiver) = channel::<_, Apart>(3).unwrap();
        for round in 0..5_u32 {
            assert!(sender.is_empty() && receiver.is_empty());
            assert_eq!(receiver.peek(receiver.position()), None);
            let mut claim = sender.claim().unwrap();
            claim.stage(round).unwrap();
            assert!(claim.stage_with(|| round + 100));
            assert!(receiver.is_empty());
            claim.announce();
            assert!(!sender.is_empty() && sender.claim().is_some());
            let position = receiver.position();
            let seen = [0, 1, 2].map(|offset| receiver.peek(position.wrapping_add(offset)).copied());
            assert_eq!(seen, [Some(round), Some(round + 100), None]);
            let mut visited = Vec::new();
            let mut collect = |most, last| {
                let count = receiver.visit(most, |entry| {
                    visited.push(*entry);
                    *entry != last
                });
                (count, core::mem::take(&mut visited))
            };
            assert_eq!(collect(9, 99), (2, vec![round, round + 100]));
            assert_eq!(collect(1, 99), (1, vec![round]));
            assert_eq!(collect(9, round), (0, vec![round]));
            assert_eq!((receiver.pop(), receiver.pop()), (Some(round), Some(round + 100)));
        }
    }

    #[test]
    fn entries_keep_their_order_over_many_rounds_of_the_ring() {
        let (sender, mut receiver) = channel::<_, Apart>(3).unwrap();
        for value in 0..1000_u32 {
            let mut claim = sender.claim().unwrap();
            assert_eq!(claim.position(), value as usize);
            claim.stage(value).unwrap();
            claim.publish();
            assert_eq!(receiver.front().copied(), Some(value));
            assert_eq!(receiver.at(value as usize + 1), None);
            assert_eq!(receiver.pop(), Some(value));
        }
    }

    #[test]
    fn a_dropped_claim_takes_its_staged_entries_along() {
        let value = Arc::new(());
        let (sender, mut receiver) = channel::<_, Apart>(4).unwrap();
        let mut claim = sender.claim().unwrap();
        claim.stage(value.clone()).unwrap();
        assert!(sender.claim().is_none());
        drop(claim);
        assert!(receiver.pop().is_none());
        assert_eq!(Arc::strong_count(&value), 1);
        let mut claim = sender.claim().unwrap();
        assert_eq!(claim.free(), 4);
        claim.stage(value.clone()).unwrap();
        claim.stage(value.clone()).unwrap();
        claim.publish();
        receiver.skip(1);
        assert_eq!(Arc::strong_count(&value), 2);
        drop((sender, receiver));
        assert_eq!(Arc::strong_count(&value), 1);
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::atomic::{AtomicBool, Ordering};
    use loom::thread;

    use super::{Apart, channel};
    use crate::Shared;

    #[test]
    fn the_consumer_sees_whole_entries_in_order() {
        loom::model(|| {
            let (sender, mut receiver) = channel::<_, Apart>(2).unwrap();
            let consumer = thread::spawn(move || {
                let mut next = 1;
                while let Some(entry) = receiver.pop() {
                    assert_eq!(entry, [next; 2]);
                    next += 1;
                }
                (receiver, next)
            });
            for value in 1..=2 {
                let mut claim = sender.claim().unwrap();
                claim.stage([value; 2]).unwrap();
                claim.publish();
            }
            let (mut receiver, mut next) = consumer.join().unwrap();
            while let Some(entry) = receiver.pop() {
                assert_eq!(entry, [next; 2]);
                next += 1;
            }
            assert_eq!(next, 3);
        });
    }

    /// The ends go at once: the entry that is left is dropped once, after the last use of both.
    #[test]
    fn the_second_end_that_goes_takes_what_is_left_along() {
        loom::model(|| {
            let value = loom::sync::Arc::new(());
            let (sender, receiver) = channel::<_, Apart>(1).unwrap();
            let consumer = thread::spawn(move || drop(receiver));
            let mut claim = sender.claim().unwrap();
            claim.stage(value.clone()).unwrap();
            claim.publish();
            drop(sender);
            consumer.join().unwrap();
            assert!(loom::sync::Arc::strong_count(&value) == 1);
        });
    }

    /// A consumer that says that it has ended, finds no claim and then no entry is seen to have ended by the producer, which looks
    /// once it has the claim. One that finds a claim looks again when there is none.
    #[test]
    fn an_end_is_noticed_by_a_producer_that_is_not() {
        loom::model(|| {
            let (sender, receiver) = channel::<_, Apart>(1).unwrap();
            let shared = Shared::try_new((AtomicBool::new(false), sender)).unwrap();
            let producer = {
                let shared = shared.clone();
                thread::spawn(move || {
                    let mut claim = shared.1.claim().unwrap();
                    let noticed = shared.0.load(Ordering::SeqCst);
                    claim.stage(1).unwrap();
                    claim.publish();
                    noticed
                })
            };
            shared.0.store(true, Ordering::SeqCst);
            let claimed = shared.1.is_claimed();
            let found = !receiver.is_empty();
            let noticed = producer.join().unwrap();
            assert!(claimed || found || noticed);
            assert!(!shared.1.is_claimed() && !receiver.is_empty());
        });
    }

    /// A consumer that sets its waiting mark and then finds no entry is seen waiting by the producer, or it finds the entry.
    #[test]
    fn a_waiting_consumer_is_noticed() {
        loom::model(|| {
            let (sender, receiver) = channel::<_, Apart>(1).unwrap();
            let waiting = Shared::try_new(AtomicBool::new(false)).unwrap();
            let producer = {
                let waiting = waiting.clone();
                thread::spawn(move || {
                    let mut claim = sender.claim().unwrap();
                    claim.stage(1).unwrap();
                    claim.announce();
                    waiting.load(Ordering::SeqCst)
                })
            };
            waiting.store(true, Ordering::SeqCst);
            crate::sync::loom_fence();
            let found = !receiver.is_empty();
            let noticed = producer.join().unwrap();
            assert!(found || noticed);
        });
    }
}
