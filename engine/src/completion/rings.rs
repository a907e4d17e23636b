//! The storage of a queue whose depth may change: rings that follow one another.
//!
//! Normally there is one; after a resize new entries go into a fresh one, and the old one is let go when its last entry has
//! been taken, so that a resize moves nothing. The queue itself keeps its bound and its lock.
//!
//! Rules: every ring is as large as the queue was when it was made; storing and taking allocate nothing; a ring to be freed is
//! handed out, because freeing happens with no lock held.

use alloc::vec::Vec;

use softndk_cells::NoMemory;

use crate::capacity::push_within_capacity;

/// The storage of the entries from one position on.
pub(crate) struct Ring<T> {
    /// Its size is a power of two, so that positions need no division. It is filled as positions are first used: a deep queue
    /// is made as fast as a shallow one.
    entries: Vec<T>,
    /// The last slot before they begin anew.
    mask: usize,
    /// The position of the first entry that was stored here.
    start: u64,
}

impl<T: Copy> Ring<T> {
    pub(crate) fn try_new(depth: usize) -> Result<Self, NoMemory> {
        let size = depth.max(1).checked_next_power_of_two().ok_or(NoMemory)?;
        let mut entries = Vec::new();
        entries.try_reserve_exact(size)?;
        Ok(Self { entries, mask: size - 1, start: 0 })
    }

    /// The place of a position; the difference is small, whatever the positions are.
    const fn slot(&self, position: u64) -> usize {
        position.wrapping_sub(self.start) as usize & self.mask
    }

    /// Stores an entry in its slot, which is free. It is made there: one that is copied soon after it was put together elsewhere
    /// waits for the processor to write it first.
    #[inline]
    fn store(&mut self, position: u64, make: impl FnOnce() -> T) {
        let slot = self.slot(position);
        if let Some(slot) = self.entries.get_mut(slot) {
            *slot = make();
        } else {
            self.append(make());
        }
    }

    /// The first round: slots are filled one after the other, and the capacity for all of them is reserved.
    #[cold]
    fn append(&mut self, entry: T) {
        let stored = push_within_capacity(&mut self.entries, entry);
        debug_assert!(stored.is_ok());
    }
}

/// The rings of one queue.
pub(crate) struct Rings<T> {
    /// Takes new entries.
    last: Ring<T>,
    /// Rings whose entries are still to be taken, the oldest at the end.
    earlier: Vec<Ring<T>>,
}

/// Memory to give back with no lock held.
pub(crate) struct UsedUp<T> {
    #[expect(dead_code, reason = "kept until it is dropped")]
    ring: Option<Ring<T>>,
    #[expect(dead_code, reason = "as above")]
    list: Vec<Ring<T>>,
}

impl<T: Copy> Rings<T> {
    pub(crate) fn try_new(depth: usize) -> Result<Self, NoMemory> {
        Ok(Self { last: Ring::try_new(depth)?, earlier: Vec::new() })
    }

    #[inline]
    pub(crate) fn store(&mut self, position: u64, make: impl FnOnce() -> T) {
        self.last.store(position, make);
    }

    /// Gives up to `most` entries from a position on, which are no more than there are: how many, and a ring that holds no more entries
    /// because of it, with whose last entry this ends.
    #[inline]
    pub(crate) fn take_all(
        &mut self,
        position: u64,
        most: usize,
        mut give: impl FnMut(&T),
    ) -> (usize, Option<Ring<T>>) {
        if !self.earlier.is_empty() {
            return self.take_earlier(position, most, give);
        }
        let mut taken = 0_usize;
        while taken < most {
            // One by one at slots that are masked: as a block this would be a call of the system's memcpy.
            let from = self.last.slot(position.wrapping_add(taken as u64));
            let Some(entry) = self.last.entries.get(from) else { break };
            give(entry);
            taken = taken.wrapping_add(1);
        }
        (taken, None)
    }

    #[cold]
    fn take_earlier(&mut self, position: u64, most: usize, mut give: impl FnMut(&T)) -> (usize, Option<Ring<T>>) {
        for taken in 0..most {
            let (entry, used_up) = self.take(position.wrapping_add(taken as u64));
            let Some(entry) = entry else { return (taken, used_up) };
            give(&entry);
            if used_up.is_some() {
                return (taken.wrapping_add(1), used_up);
            }
        }
        (most, None)
    }

    /// The entry at a position, and a ring that holds no more entries because of it.
    pub(crate) fn take(&mut self, position: u64) -> (Option<T>, Option<Ring<T>>) {
        let Some(oldest) = self.earlier.last() else {
            return (self.last.entries.get(self.last.slot(position)).copied(), None);
        };
        let entry = oldest.entries.get(oldest.slot(position)).copied();
        let before = self.earlier.len().checked_sub(2).and_then(|index| self.earlier.get(index));
        let next = before.map_or(self.last.start, |ring| ring.start);
        (entry, if position.wrapping_add(1) == next { self.earlier.pop() } else { None })
    }

    /// Rings in which entries wait, with the one that takes new ones.
    pub(crate) fn count(&self) -> usize {
        self.earlier.len() + 1
    }

    /// Entries from `added` on go into `fresh`. `list` can hold [`Self::count`] rings and replaces the old list.
    pub(crate) fn change(&mut self, mut fresh: Ring<T>, mut list: Vec<Ring<T>>, taken: u64, added: u64) -> UsedUp<T> {
        fresh.start = added;
        let old = core::mem::replace(&mut self.last, fresh);
        let empty = old.start.max(taken) == added;
        let ring = if empty { Some(old) } else { push_within_capacity(&mut list, old).err() };
        for ring in self.earlier.drain(..) {
            let kept = push_within_capacity(&mut list, ring);
            debug_assert!(kept.is_ok());
        }
        UsedUp { ring, list: core::mem::replace(&mut self.earlier, list) }
    }

    #[cfg(test)]
    pub(crate) fn slots(&self) -> (usize, usize) {
        (self.last.entries.len(), self.last.entries.capacity())
    }
}
