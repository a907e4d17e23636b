//! Deadlines of objects: moderation, time-outs, waiting for a receiver.
//!
//! Each processor has the deadlines of the objects that wait there, earliest first. When one has passed, a service pass puts
//! the object on the run queue, and the object checks what it waited for. The front end is asked for one pass at the earliest
//! deadline of a processor ([`Platform::wake_at`]).
//!
//! Rules: a [`Timer`] is made with its object and has its slot; setting and clearing allocate nothing and cost a few steps in
//! a heap. While it is set it points to its object, so the end of an object clears its timer. A pass takes a bounded number of
//! deadlines. The lock here is taken last of all and calls nothing but `wake_at`.

use core::sync::atomic::{AtomicU64, Ordering};

use softndk_cells::NoMemory;

use crate::blocks::Blocks;
use crate::limits::EXPIRE_STEP;
use crate::object::header::Object;
use crate::object::scheduler::Scheduler;
use crate::platform::{Lock, Platform};

/// No deadline.
const NEVER: u64 = u64::MAX;

/// The deadlines of one processor.
pub(crate) struct TimerQueue<P: Platform> {
    deadlines: P::Lock<Deadlines<Object<P>>>,
    /// The deadline that the front end has.
    asked: AtomicU64,
}

/// A heap of slots, the earliest in front.
struct Deadlines<T> {
    slots: Blocks<TimerSlot<T>>,
    /// Numbers of slots that are set.
    heap: Blocks<u32>,
    /// Numbers of unused slots.
    free: Blocks<u32>,
}

struct TimerSlot<T> {
    deadline: u64,
    /// Where in the heap it is, while `object` is there.
    position: usize,
    object: Option<T>,
}

/// A place of its own for one object that may have to wait.
pub(crate) struct Timer<P: Platform> {
    scheduler: Scheduler<P>,
    processor: u32,
    slot: u32,
}

impl<P: Platform> Timer<P> {
    /// A timer that is not set; its object is put on the list of `processor`.
    pub(crate) fn try_new(scheduler: &Scheduler<P>, processor: u32) -> Result<Self, NoMemory> {
        let timer_queue = scheduler.timer_queue(processor).ok_or(NoMemory)?;
        let slot = timer_queue.deadlines.with(Deadlines::add)?;
        Ok(Self { scheduler: scheduler.clone(), processor, slot })
    }

    /// Has the object serviced once the platform's clock has reached `deadline`, which replaces an earlier one.
    pub(crate) fn set(&self, object: &Object<P>, deadline: u64) {
        let Some(timer_queue) = self.scheduler.timer_queue(self.processor) else { return };
        let deadline = deadline.min(NEVER - 1);
        let replaced = timer_queue.deadlines.with(|deadlines| {
            let replaced = deadlines.set(self.slot, object.clone(), deadline);
            if deadline < timer_queue.asked.load(Ordering::Relaxed) {
                timer_queue.ask(&self.scheduler, self.processor, deadline);
            }
            replaced
        });
        drop(replaced);
    }

    /// Clears the deadline and releases the object.
    pub(crate) fn clear(&self) {
        if let Some(timer_queue) = self.scheduler.timer_queue(self.processor) {
            let object = timer_queue.deadlines.with(|deadlines| deadlines.clear(self.slot));
            drop(object);
        }
    }
}

impl<P: Platform> Drop for Timer<P> {
    fn drop(&mut self) {
        if let Some(timer_queue) = self.scheduler.timer_queue(self.processor) {
            let object = timer_queue.deadlines.with(|deadlines| {
                let object = deadlines.clear(self.slot);
                deadlines.remove(self.slot);
                object
            });
            drop(object);
        }
    }
}

impl<P: Platform> TimerQueue<P> {
    pub(crate) fn new() -> Self {
        Self { deadlines: P::Lock::new(Deadlines::new()), asked: AtomicU64::new(NEVER) }
    }

    /// Called under the lock, so that the front end gets the deadlines in order.
    fn ask(&self, scheduler: &Scheduler<P>, processor: u32, deadline: u64) {
        self.asked.store(deadline, Ordering::Release);
        if deadline != NEVER {
            scheduler.platform().wake_at(processor, deadline);
        }
    }

    /// Puts the objects with a passed deadline on the run queue, and asks for the next deadline.
    pub(crate) fn expire(&self, scheduler: &Scheduler<P>, processor: u32) {
        let asked = self.asked.load(Ordering::Acquire);
        if asked == NEVER {
            return;
        }
        let now = scheduler.platform().now();
        if now < asked {
            return;
        }
        for _ in 0..EXPIRE_STEP {
            let Some(object) = self.deadlines.with(|deadlines| deadlines.take(now)) else { break };
            scheduler.link_at(&object, Some(processor));
        }
        self.deadlines.with(|deadlines| {
            let next = deadlines.earliest();
            self.ask(scheduler, processor, next);
        });
    }
}

impl<T> Deadlines<T> {
    const fn new() -> Self {
        Self { slots: Blocks::new(), heap: Blocks::new(), free: Blocks::new() }
    }

    /// A slot for one more timer, with capacity in the heap for every slot.
    fn add(&mut self) -> Result<u32, NoMemory> {
        if let Some(slot) = self.free.pop() {
            return Ok(slot);
        }
        let number = self.slots.len();
        self.heap.reserve(number.saturating_add(1))?;
        self.free.reserve(number.saturating_add(1))?;
        let name = u32::try_from(number).map_err(|_| NoMemory)?;
        self.slots.push(TimerSlot { deadline: NEVER, position: 0, object: None })?;
        Ok(name)
    }

    fn remove(&mut self, slot: u32) {
        // `add` reserved capacity for every slot.
        let kept = self.free.push_within_capacity(slot);
        debug_assert!(kept.is_ok());
    }

    fn set(&mut self, number: u32, object: T, deadline: u64) -> Option<T> {
        let heap_length = self.heap.len();
        let slot = self.slots.get_mut(number as usize)?;
        slot.deadline = deadline;
        let replaced = slot.object.replace(object);
        let position = if replaced.is_some() {
            slot.position
        } else {
            slot.position = heap_length;
            let kept = self.heap.push_within_capacity(number);
            debug_assert!(kept.is_ok());
            heap_length
        };
        self.sift(position);
        replaced
    }

    fn clear(&mut self, number: u32) -> Option<T> {
        let slot = self.slots.get_mut(number as usize)?;
        let object = slot.object.take()?;
        let position = slot.position;
        self.swap(position, self.heap.len().saturating_sub(1));
        self.heap.pop();
        self.sift(position);
        Some(object)
    }

    /// The object with the earliest deadline, if that has passed.
    fn take(&mut self, now: u64) -> Option<T> {
        let first = *self.heap.get(0)?;
        if self.deadline(first) > now {
            return None;
        }
        self.clear(first)
    }

    fn earliest(&self) -> u64 {
        self.heap.get(0).map_or(NEVER, |first| self.deadline(*first))
    }

    fn deadline(&self, number: u32) -> u64 {
        self.slots.get(number as usize).map_or(NEVER, |slot| slot.deadline)
    }

    fn deadline_at(&self, position: usize) -> u64 {
        self.heap.get(position).map_or(NEVER, |number| self.deadline(*number))
    }

    /// Moves what is at a position of the heap to where it belongs.
    fn sift(&mut self, mut position: usize) {
        if position >= self.heap.len() {
            return;
        }
        while position > 0 && self.deadline_at(position) < self.deadline_at((position - 1) / 2) {
            self.swap(position, (position - 1) / 2);
            position = (position - 1) / 2;
        }
        loop {
            let left = position.saturating_mul(2).saturating_add(1);
            let right = left.saturating_add(1);
            let smaller = if self.deadline_at(right) < self.deadline_at(left) { right } else { left };
            if smaller >= self.heap.len() || self.deadline_at(position) <= self.deadline_at(smaller) {
                return;
            }
            self.swap(position, smaller);
            position = smaller;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        let (Some(&first), Some(&second)) = (self.heap.get(one), self.heap.get(other)) else { return };
        for (position, number) in [(one, second), (other, first)] {
            if let Some(entry) = self.heap.get_mut(position) {
                *entry = number;
            }
            if let Some(slot) = self.slots.get_mut(number as usize) {
                slot.position = position;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::{Deadlines, NEVER};
    use crate::limits::BLOCK;

    #[test]
    fn objects_come_out_in_the_order_of_their_deadlines_and_not_before() {
        let mut deadlines = Deadlines::new();
        let slots: Vec<_> = (0..50).map(|_| deadlines.add().unwrap()).collect();
        for (number, slot) in slots.iter().enumerate() {
            // 7 and 50 have no common divisor: each deadline once.
            assert_eq!(deadlines.set(*slot, number, 10 + number as u64 * 7 % 50), None);
        }
        assert_eq!((deadlines.earliest(), deadlines.take(9)), (10, None));
        for deadline in 10..60 {
            assert_eq!(deadlines.take(deadline).map(|number| 10 + number as u64 * 7 % 50), Some(deadline));
        }
        assert_eq!(deadlines.earliest(), NEVER);
    }

    #[test]
    fn places_beyond_one_block_keep_their_deadlines() {
        let mut deadlines = Deadlines::new();
        let count = 2 * BLOCK as u64 + 3;
        for number in 0..count {
            let slot = deadlines.add().unwrap();
            assert_eq!(deadlines.set(slot, number, count - number), None);
        }
        let out: Vec<_> = core::iter::from_fn(|| deadlines.take(NEVER)).collect();
        assert!(out.iter().copied().eq((0..count).rev()));
    }

    #[test]
    fn a_deadline_set_again_counts_once_whether_it_moves_forward_or_back() {
        let mut deadlines = Deadlines::new();
        let slots: Vec<_> = (0..9).map(|_| deadlines.add().unwrap()).collect();
        for slot in &slots {
            deadlines.set(*slot, *slot, 100 + u64::from(*slot));
        }
        assert_eq!(deadlines.set(slots[8], 80, 5), Some(8));
        assert_eq!(deadlines.set(slots[0], 1000, 500), Some(0));
        let out: Vec<_> = core::iter::from_fn(|| deadlines.take(NEVER)).collect();
        assert_eq!(out, [80, 1, 2, 3, 4, 5, 6, 7, 1000]);
    }

    #[test]
    fn cleared_deadlines_never_come_and_their_places_are_used_again() {
        for gone in 0..12_usize {
            let mut deadlines = Deadlines::new();
            let slots: Vec<_> = (0..12).map(|_| deadlines.add().unwrap()).collect();
            for (number, slot) in slots.iter().enumerate() {
                deadlines.set(*slot, number, number as u64 * 5 % 12);
            }
            assert_eq!(deadlines.clear(slots[gone]), Some(gone));
            assert_eq!(deadlines.clear(slots[gone]), None);
            deadlines.remove(slots[gone]);
            assert_eq!(deadlines.add().unwrap(), slots[gone]);
            let out: Vec<_> = core::iter::from_fn(|| deadlines.take(NEVER)).collect();
            let mut expected: Vec<_> = (0..12).filter(|number| *number != gone).collect();
            expected.sort_by_key(|number| number * 5 % 12);
            assert_eq!(out, expected);
        }
    }
}
