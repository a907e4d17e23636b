//! Where the bytes of a ring are: a stretch of positions that grows at its end and shrinks at its start, both modulo the capacity.
//!
//! Only numbers; the memory is the owner's. Bytes that a device or a network stack reads or writes at the same time are known to the owner,
//! which keeps them inside the stretch ([`ByteRing::held`]) or outside of it ([`ByteRing::free`]).

use core::ops::Range;

/// See the module.
#[derive(Clone, Debug)]
pub struct ByteRing {
    capacity: usize,
    /// Where the oldest byte is; below the capacity, or both are 0.
    start: usize,
    /// Bytes held, at most the capacity.
    length: usize,
}

impl ByteRing {
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self { capacity, start: 0, length: 0 }
    }

    /// Bytes held.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes that could still be held.
    #[must_use]
    pub const fn space(&self) -> usize {
        self.capacity.saturating_sub(self.length)
    }

    /// The positions behind the newest byte that are free and lie in one piece.
    #[must_use]
    pub fn free(&self) -> Range<usize> {
        self.piece(self.length, self.space())
    }

    /// The positions of the oldest bytes behind the first `skipped` ones, as far as they lie in one piece.
    #[must_use]
    pub fn held(&self, skipped: usize) -> Range<usize> {
        let skipped = skipped.min(self.length);
        self.piece(skipped, self.length.saturating_sub(skipped))
    }

    /// The bytes at the first `count` positions of [`ByteRing::free`] are held from now on; more than are free are not counted.
    pub fn fill(&mut self, count: usize) {
        self.length = self.length.saturating_add(count.min(self.space()));
    }

    /// The `count` oldest bytes, or as many as there are, are free from now on.
    pub fn release(&mut self, count: usize) {
        let count = count.min(self.length);
        self.start = self.position(count);
        self.length = self.length.saturating_sub(count);
    }

    /// At most `length` positions from the one `offset` behind the start, up to the end of the memory.
    fn piece(&self, offset: usize, length: usize) -> Range<usize> {
        let first = self.position(offset);
        let length = length.min(self.capacity.saturating_sub(first));
        first..first.saturating_add(length)
    }

    /// The position so many behind the start. No more than the capacity.
    fn position(&self, offset: usize) -> usize {
        // `start` and `offset` are at most the capacity, so one subtraction does; the sum of two may not fit.
        let before_end = self.capacity.saturating_sub(self.start);
        if offset < before_end { self.start.saturating_add(offset) } else { offset.saturating_sub(before_end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::VecDeque, vec, vec::Vec};

    #[test]
    fn an_empty_ring_is_free_from_its_start_to_its_end() {
        let ring = ByteRing::new(8);
        assert!(ring.is_empty());
        assert_eq!(ring.free(), 0..8);
        assert!(ring.held(0).is_empty());
        assert_eq!(ring.space(), 8);
    }

    #[test]
    fn what_is_free_wraps_in_two_pieces() {
        let mut ring = ByteRing::new(8);
        ring.fill(6);
        ring.release(4);
        assert_eq!(ring.free(), 6..8);
        ring.fill(2);
        assert_eq!(ring.free(), 0..4);
        assert_eq!(ring.held(0), 4..8);
        ring.fill(1);
        assert_eq!(ring.held(0), 4..8);
        assert_eq!(ring.held(4), 0..1);
        assert_eq!(ring.held(2), 6..8);
        assert!(ring.held(5).is_empty());
        assert!(ring.held(99).is_empty());
    }

    #[test]
    fn a_full_ring_has_nothing_free() {
        let mut ring = ByteRing::new(4);
        ring.fill(3);
        ring.release(3);
        ring.fill(1);
        ring.fill(9);
        assert_eq!(ring.len(), 4);
        assert_eq!(ring.space(), 0);
        assert!(ring.free().is_empty());
        assert_eq!(ring.held(0), 3..4);
        assert_eq!(ring.held(1), 0..3);
    }

    #[test]
    fn more_than_there_is_is_not_released() {
        let mut ring = ByteRing::new(4);
        ring.fill(2);
        ring.release(9);
        assert!(ring.is_empty());
        assert_eq!(ring.free(), 2..4);
    }

    #[test]
    fn a_ring_of_nothing_holds_nothing() {
        let mut ring = ByteRing::new(0);
        ring.fill(1);
        ring.release(1);
        assert!(ring.is_empty());
        assert!(ring.free().is_empty());
        assert!(ring.held(0).is_empty());
    }

    #[test]
    fn the_capacity_may_be_the_largest_number() {
        let mut ring = ByteRing::new(usize::MAX);
        ring.fill(usize::MAX);
        ring.release(usize::MAX - 1);
        ring.fill(5);
        assert_eq!(ring.len(), 6);
        assert_eq!(ring.held(0), usize::MAX - 1..usize::MAX);
        assert_eq!(ring.held(1), 0..5);
    }

    /// Bytes that go in come out, in their order, whatever the sizes of the pieces.
    #[test]
    fn bytes_come_out_as_they_went_in() {
        for capacity in 1..12_usize {
            let mut ring = ByteRing::new(capacity);
            let mut memory = vec![0_u8; capacity];
            let mut model = VecDeque::new();
            let mut next = 0_u8;
            let mut random = 12_345_u32;
            for _ in 0..2_000 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let wanted = (random >> 16) as usize % (capacity + 2);
                if random >> 31 == 0 {
                    let place = ring.free();
                    let count = wanted.min(place.len());
                    for byte in &mut memory[place][..count] {
                        *byte = next;
                        model.push_back(next);
                        next = next.wrapping_add(1);
                    }
                    ring.fill(count);
                } else {
                    let place = ring.held(0);
                    let count = wanted.min(place.len());
                    let expected: Vec<u8> = model.drain(..count).collect();
                    assert_eq!(memory[place][..count], expected[..]);
                    ring.release(count);
                }
                assert_eq!(ring.len(), model.len());
                assert_eq!(ring.space(), capacity - model.len());
                assert_eq!(ring.free().is_empty(), ring.space() == 0);
                assert_eq!(ring.held(0).is_empty(), ring.is_empty());
            }
        }
    }
}
