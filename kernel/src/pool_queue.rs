//! Values in the order in which they came, in memory that is allocated with the queue.

use crate::pool::{NoMemory, PoolArray, Tag};

/// There is a place for every value that there is, so that nothing fails later. The owner locks it.
pub struct PoolQueue<T> {
    places: PoolArray<Option<T>>,
    first: usize,
    count: usize,
}

impl<T> PoolQueue<T> {
    /// With so many places, and no value.
    pub fn try_empty(tag: Tag, places: usize) -> Result<Self, NoMemory> {
        Ok(Self { places: PoolArray::try_from_fn::<NoMemory>(tag, places, |_| Ok(None))?, first: 0, count: 0 })
    }

    /// With a value in each of so many places; they are made by their indices.
    pub fn try_full<E: From<NoMemory>>(
        tag: Tag,
        places: usize,
        mut make: impl FnMut(usize) -> Result<T, E>,
    ) -> Result<Self, E> {
        Ok(Self {
            places: PoolArray::try_from_fn(tag, places, |index| make(index).map(Some))?,
            first: 0,
            count: places,
        })
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Puts a value behind the others.
    pub fn push(&mut self, value: T) {
        let end = self.index(self.count);
        if let Some(place) = self.places.get_mut(end).filter(|place| place.is_none()) {
            *place = Some(value);
            self.count = self.count.saturating_add(1);
        }
    }

    /// Takes the value that is here longest.
    pub fn pop(&mut self) -> Option<T> {
        let value = self.places.get_mut(self.first)?.take()?;
        self.first = self.index(1);
        self.count = self.count.saturating_sub(1);
        Some(value)
    }

    /// Where the value stands that has so many before it.
    fn index(&self, before: usize) -> usize {
        self.first.wrapping_add(before).checked_rem(self.places.len()).unwrap_or(0)
    }
}
