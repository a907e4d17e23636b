//! Tables that grow by blocks which never move.
//!
//! A vector that grows moves all it has, and these grow under locks of raised IRQL: with ten thousand connections that is a
//! millisecond in which a processor does nothing else. Here growing allocates one block, and what is there stays where it is.
//! [`Blocks`] is a stack whose values are found by their index, [`SortedBlocks`] a list in order.
//!
//! Rules: growing allocates at most one block at a time and the table of blocks; taking out allocates nothing.

use alloc::vec::Vec;
use core::cmp::Ordering;

use softndk_cells::NoMemory;

use crate::capacity::{insert_within_capacity, push_within_capacity, remove_at};
use crate::limits::BLOCK;

/// Values by index, added and taken at the end. Capacity that was reserved stays.
pub(crate) struct Blocks<T> {
    blocks: Vec<Vec<T>>,
    length: usize,
}

impl<T> Blocks<T> {
    pub(crate) const fn new() -> Self {
        Self { blocks: Vec::new(), length: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn capacity(&self) -> usize {
        self.blocks.len().saturating_mul(BLOCK)
    }

    /// Capacity for so many values in all. One more than there were costs one block at most.
    pub(crate) fn reserve(&mut self, total: usize) -> Result<(), NoMemory> {
        while self.capacity() < total {
            let end = self.blocks.len();
            add_block(&mut self.blocks, end, BLOCK)?;
        }
        Ok(())
    }

    /// Adds `value` at the end, with a new block if the last is full.
    pub(crate) fn push(&mut self, value: T) -> Result<(), NoMemory> {
        self.reserve(self.length.saturating_add(1))?;
        self.push_within_capacity(value).map_err(|_| NoMemory)
    }

    /// Adds `value` at the end if that needs no new block.
    pub(crate) fn push_within_capacity(&mut self, value: T) -> Result<(), T> {
        let Some(block) = self.blocks.get_mut(self.length / BLOCK) else { return Err(value) };
        push_within_capacity(block, value)?;
        self.length = self.length.saturating_add(1);
        Ok(())
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let last = self.length.checked_sub(1)?;
        let value = self.blocks.get_mut(last / BLOCK)?.pop()?;
        self.length = last;
        Some(value)
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.blocks.get(index / BLOCK)?.get(index % BLOCK)
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.blocks.get_mut(index / BLOCK)?.get_mut(index % BLOCK)
    }
}

/// Values in the order of a key, each key once.
pub(crate) struct SortedBlocks<T> {
    /// None is empty; a full one is cut into two halves when one more value belongs there.
    blocks: Vec<Vec<T>>,
}

/// Where a value of a [`SortedBlocks`] is, or would be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Place {
    block: usize,
    index: usize,
}

/// Values of a sorted table's block: they are moved to make space for one more.
const SORTED: usize = BLOCK / 4;

impl<T> SortedBlocks<T> {
    pub(crate) const fn new() -> Self {
        Self { blocks: Vec::new() }
    }

    /// The place of the value that `order` calls equal; where it would be if there is none.
    pub(crate) fn search(&self, order: impl Fn(&T) -> Ordering) -> Result<Place, Place> {
        // The last block whose first value is not behind what is looked for.
        let behind =
            self.blocks.partition_point(|block| block.first().is_some_and(|first| order(first) != Ordering::Greater));
        let block = behind.saturating_sub(1);
        let values = self.blocks.get(block).map_or(&[][..], Vec::as_slice);
        let found = values.binary_search_by(order);
        found.map(|index| Place { block, index }).map_err(|index| Place { block, index })
    }

    pub(crate) fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        self.blocks.get_mut(place.block)?.get_mut(place.index)
    }

    /// The values from a place on.
    pub(crate) fn from(&self, place: Place) -> impl Iterator<Item = &T> {
        let (first, others) = self.blocks.get(place.block..).unwrap_or_default().split_first().unzip();
        let first = first.and_then(|block| block.get(place.index..)).unwrap_or_default();
        first.iter().chain(others.unwrap_or_default().iter().flatten())
    }

    /// Puts a value to the place that [`Self::search`] gave for it.
    pub(crate) fn insert(&mut self, place: Place, value: T) -> Result<(), NoMemory> {
        let Place { block, index } = self.make_space(place)?;
        let block = self.blocks.get_mut(block).ok_or(NoMemory)?;
        insert_within_capacity(block, index, value).map_err(|_| NoMemory)
    }

    /// The same place in a block that is not full.
    fn make_space(&mut self, place: Place) -> Result<Place, NoMemory> {
        let length = self.blocks.get(place.block).map(Vec::len);
        match length {
            None => add_block(&mut self.blocks, 0, SORTED).map(|()| place),
            Some(SORTED) => self.cut(place),
            Some(_) => Ok(place),
        }
    }

    /// Moves what is behind the middle of a block to a new one. At the end of the table nothing: values that come in order, as
    /// ports do, fill their blocks.
    fn cut(&mut self, place: Place) -> Result<Place, NoMemory> {
        let next = place.block.saturating_add(1);
        let is_end = next == self.blocks.len() && place.index == SORTED;
        let stay = if is_end { SORTED } else { SORTED / 2 };
        add_block(&mut self.blocks, next, SORTED)?;
        if let Some([full, new]) = self.pair(place.block) {
            move_tail(full, stay, new);
        }
        Ok(place.index.checked_sub(stay).map_or(place, |index| Place { block: next, index }))
    }

    pub(crate) fn remove(&mut self, place: Place) -> Option<T> {
        let value = remove_at(self.blocks.get_mut(place.block)?, place.index)?;
        self.join(place.block);
        if let Some(before) = place.block.checked_sub(1) {
            self.join(before);
        }
        Some(value)
    }

    /// Makes one of a block and the next where one of them is empty, or both together are not half full.
    fn join(&mut self, block: usize) {
        let Some([one, other]) = self.pair(block) else { return };
        if one.is_empty() {
            core::mem::swap(one, other);
        }
        if other.is_empty() || one.len().saturating_add(other.len()) <= SORTED / 2 {
            move_tail(other, 0, one);
            let _empty = remove_at(&mut self.blocks, block.saturating_add(1));
        }
    }

    /// A block and the next.
    fn pair(&mut self, block: usize) -> Option<&mut [Vec<T>; 2]> {
        self.blocks.get_mut(block..)?.first_chunk_mut()
    }
}

/// Moves the values behind the first `stay` to the end of another block that has space for them.
fn move_tail<T>(from: &mut Vec<T>, stay: usize, to: &mut Vec<T>) {
    from.get_mut(stay..).unwrap_or_default().reverse();
    while from.len() > stay {
        let Some(value) = from.pop() else { return };
        let moved = push_within_capacity(to, value);
        debug_assert!(moved.is_ok());
    }
}

/// A block for so many values, in front of the one at `place`.
fn add_block<T>(blocks: &mut Vec<Vec<T>>, place: usize, length: usize) -> Result<(), NoMemory> {
    blocks.try_reserve(1)?;
    let mut block = Vec::new();
    block.try_reserve_exact(length)?;
    insert_within_capacity(blocks, place, block).map_err(|_| NoMemory)
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    use super::{BLOCK, Blocks, SORTED, SortedBlocks};

    #[test]
    fn values_stay_where_they_are_while_blocks_are_added() {
        let mut blocks = Blocks::new();
        blocks.push(0).unwrap();
        let first: *const usize = blocks.get(0).unwrap();
        let count = 3 * BLOCK + 5;
        for number in 1..count {
            blocks.push(number).unwrap();
        }
        assert_eq!((blocks.len(), blocks.capacity()), (count, 4 * BLOCK));
        assert_eq!(blocks.get(0).map(core::ptr::from_ref), Some(first));
        assert!((0..count).all(|number| blocks.get(number) == Some(&number)));
        assert_eq!(blocks.get(count), None);
        *blocks.get_mut(BLOCK).unwrap() = 7;
        let out: Vec<_> = core::iter::from_fn(|| blocks.pop()).collect();
        assert!(out.iter().rev().enumerate().all(|(number, out)| *out == if number == BLOCK { 7 } else { number }));
        assert_eq!((out.len(), blocks.len(), blocks.capacity()), (count, 0, 4 * BLOCK));
    }

    #[test]
    fn values_are_added_within_what_was_reserved_and_not_beyond() {
        let mut blocks = Blocks::new();
        assert_eq!(blocks.push_within_capacity(1), Err(1));
        blocks.reserve(BLOCK + 1).unwrap();
        for number in 0..2 * BLOCK {
            assert_eq!(blocks.push_within_capacity(number), Ok(()));
        }
        assert_eq!(blocks.push_within_capacity(1), Err(1));
    }

    /// Inserted and removed as a set does it, in an order that visits all of a block's places.
    #[test]
    fn values_stand_in_order_whatever_comes_and_goes() {
        let (mut sorted, mut expected) = (SortedBlocks::new(), BTreeSet::new());
        let mut number = 1_u32;
        for round in 0..40_000 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = number >> 20;
            // Grows for a while, and shrinks for a while.
            if (number >> 10) % 8 < if round / 8_000 % 2 == 0 { 6 } else { 2 } {
                let place = sorted.search(|other: &u32| other.cmp(&value));
                assert_eq!(place.is_ok(), !expected.insert(value));
                if let Err(place) = place {
                    sorted.insert(place, value).unwrap();
                }
            } else {
                let found = sorted.search(|other| other.cmp(&value)).ok().and_then(|place| sorted.remove(place));
                assert_eq!(found, expected.take(&value));
            }
            if round % 97 == 0 {
                let place = sorted.search(|other| other.cmp(&value)).unwrap_or_else(|place| place);
                assert!(sorted.from(place).eq(expected.range(value..)), "from {value}");
                let halves = sorted.blocks.windows(2).map(|pair| pair[0].len() + pair[1].len());
                assert!(halves.min().is_none_or(|least| least > SORTED / 2), "blocks that are nearly empty are joined");
                assert!(sorted.blocks.iter().all(|block| block.capacity() == SORTED), "no block has grown");
            }
        }
    }

    #[test]
    fn values_that_come_in_order_fill_their_blocks_and_leave_one_behind() {
        let mut sorted = SortedBlocks::new();
        for value in 0..10 * SORTED {
            let place = sorted.search(|other: &usize| other.cmp(&value)).unwrap_err();
            sorted.insert(place, value).unwrap();
        }
        assert_eq!(sorted.blocks.len(), 10);
        for value in 0..10 * SORTED {
            let place = sorted.search(|other| other.cmp(&value)).unwrap();
            assert_eq!(sorted.get_mut(place).copied(), Some(value));
            assert_eq!(sorted.remove(place), Some(value));
        }
        assert_eq!((sorted.blocks.len(), sorted.blocks[0].len()), (1, 0));
    }
}
