//! Slots by number, in the order in which they were put here.

use crate::pool::{NoMemory, PoolSlice, Tag};

/// There is space for every slot, so that nothing fails later.
pub(super) struct SlotQueue {
    numbers: PoolSlice<usize>,
    first: usize,
    count: usize,
}

impl SlotQueue {
    /// One for so many slots, with none of them in it.
    pub fn try_empty(tag: Tag, slots: usize) -> Result<Self, NoMemory> {
        Ok(Self { numbers: PoolSlice::try_filled(tag, slots, 0)?, first: 0, count: 0 })
    }

    /// One with all of so many slots in it.
    pub fn try_full(tag: Tag, slots: usize) -> Result<Self, NoMemory> {
        let mut queue = Self::try_empty(tag, slots)?;
        for slot in 0..slots {
            queue.push(slot);
        }
        Ok(queue)
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Puts a slot behind the others. It is in no queue of its kind.
    pub fn push(&mut self, slot: usize) {
        let end = self.index(self.count);
        if let Some(place) = self.numbers.get_mut(end) {
            *place = slot;
            self.count = self.count.saturating_add(1).min(self.numbers.len());
        }
    }

    /// Takes the slot that is here longest.
    pub fn pop(&mut self) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let slot = self.numbers.get(self.first).copied();
        self.first = self.index(1);
        self.count = self.count.saturating_sub(1);
        slot
    }

    /// Where the slot stands that has so many before it.
    fn index(&self, before: usize) -> usize {
        self.first.saturating_add(before).checked_rem(self.numbers.len()).unwrap_or(0)
    }
}
