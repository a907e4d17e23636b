//! Buffers of a fixed capacity: nothing is allocated after they are made, and what does not fit is refused.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

/// Bytes, one behind the other.
pub(crate) struct Bytes(Vec<u8>);

impl Bytes {
    pub(crate) fn try_new(capacity: usize) -> Result<Self, TryReserveError> {
        let mut memory = Vec::new();
        memory.try_reserve_exact(capacity)?;
        Ok(Self(memory))
    }

    pub(crate) fn free(&self) -> usize {
        self.0.capacity().saturating_sub(self.0.len())
    }

    /// Adds all of these, or none of them and says false.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> bool {
        // Cut to what is free, so that no growth code is left.
        let Some(first) = bytes.get(..bytes.len().min(self.free())) else { return false };
        let fits = first.len() == bytes.len();
        if fits {
            self.0.extend_from_slice(first);
        }
        fits
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Values, first come, first served.
pub(crate) struct Fifo<T> {
    slots: Vec<Option<T>>,
    first: usize,
    length: usize,
}

impl<T> Fifo<T> {
    pub(crate) fn try_new(capacity: usize) -> Result<Self, TryReserveError> {
        let mut slots = Vec::new();
        slots.try_reserve_exact(capacity)?;
        for _ in 0..capacity {
            // So that no growth code is left.
            if slots.len() < slots.capacity() {
                slots.push(None);
            }
        }
        Ok(Self { slots, first: 0, length: 0 })
    }

    pub(crate) const fn len(&self) -> usize {
        self.length
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) const fn has_space(&self) -> bool {
        self.length < self.slots.len()
    }

    fn place(&self, index: usize) -> usize {
        self.first.wrapping_add(index).checked_rem(self.slots.len()).unwrap_or(0)
    }

    /// Adds one at the end; false when there is no space.
    pub(crate) fn add(&mut self, value: T) -> bool {
        let place = self.place(self.length);
        let Some(slot) = self.slots.get_mut(place).filter(|slot| slot.is_none()) else { return false };
        *slot = Some(value);
        self.length = self.length.saturating_add(1);
        true
    }

    pub(crate) fn front(&self) -> Option<&T> {
        self.slots.get(self.first)?.as_ref()
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut T> {
        self.slots.get_mut(self.first)?.as_mut()
    }

    pub(crate) fn take(&mut self) -> Option<T> {
        let value = self.slots.get_mut(self.first)?.take()?;
        self.first = self.place(1);
        self.length = self.length.saturating_sub(1);
        Some(value)
    }

    pub(crate) fn clear(&mut self) {
        while self.take().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::{Bytes, Fifo};

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let mut bytes = Bytes::try_new(4).unwrap();
        assert!(bytes.add(&[1, 2, 3]) && !bytes.add(&[4, 5]) && bytes.add(&[4]));
        assert_eq!((bytes.as_slice(), bytes.free()), (&[1, 2, 3, 4][..], 0));
        bytes.clear();
        assert_eq!((bytes.as_slice(), bytes.free()), (&[][..], 4));
    }

    #[test]
    fn values_come_out_in_their_order_over_the_end_of_the_memory() {
        let mut fifo = Fifo::try_new(3).unwrap();
        assert!(fifo.is_empty() && fifo.take().is_none());
        for round in 0..10 {
            assert!(fifo.add(round) && fifo.add(round + 1) && fifo.has_space());
            assert_eq!((fifo.front().copied(), fifo.take(), fifo.len()), (Some(round), Some(round), 1));
            assert!(fifo.add(round + 2) && fifo.add(round + 3) && !fifo.has_space());
            assert!(!fifo.add(99), "it is full");
            assert_eq!([fifo.take(), fifo.take(), fifo.take()], [1, 2, 3].map(|step| Some(round + step)));
        }
        assert!(fifo.add(1) && !Fifo::try_new(0).unwrap().add(1));
        fifo.clear();
        assert!(fifo.is_empty());
    }
}
