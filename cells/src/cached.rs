//! A value of a slot table that was found before, found again without a search.
//!
//! A context that looks for the same value in every one of its passes caches where it was. Nothing is counted: as long as the epoch
//! has retired nothing since, the value is still in its table or at least not reused, and a context that is inside keeps it so.
//!
//! Rules: what is cached is given to a context inside the epoch only, and for as long as it is inside; a table retires what it holds
//! before it is dropped; the cache keeps the epoch alive, so that its numbers never begin anew.

use core::ptr::NonNull;

use crate::epoch::{Epoch, Guard};
use crate::shared::Shared;
use crate::slot_table::{SlotKey, SlotTable};

/// A cache of one value; see the module.
pub struct Cached<T> {
    epoch: Shared<Epoch>,
    found: Option<Found<T>>,
}

struct Found<T> {
    /// A part of a value of the table.
    value: NonNull<T>,
    table: usize,
    /// The epoch's number when it was found: it grows with each retirement.
    number: u64,
}

// SAFETY: the value is only ever given out as `&T`, by the rules of the table that it is in.
unsafe impl<T: Sync> Send for Cached<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Cached<T> {}

impl<T> Cached<T> {
    /// An empty cache.
    pub const fn new(epoch: Shared<Epoch>) -> Self {
        Self { epoch, found: None }
    }

    /// Looks a value up and caches the part of it that `part` names, if it names one. Returns the whole value.
    #[inline]
    pub fn find<'g, V>(
        &mut self,
        table: &'g SlotTable<V>,
        key: SlotKey,
        guard: &'g Guard<'_>,
        part: impl for<'v> FnOnce(&'v V) -> Option<&'v T>,
    ) -> Option<&'g V> {
        let value = table.get(key, guard);
        let found = |value| Found { value: NonNull::from_ref(value), table: table.identity(), number: guard.entered() };
        self.found = value.filter(|_| guard.is_of(&self.epoch)).and_then(part).map(found);
        value
    }

    /// The cached value of this table, unless something has been retired since.
    #[inline]
    pub fn get<'g, V>(&self, table: &'g SlotTable<V>, guard: &'g Guard<'_>) -> Option<&'g T> {
        let found = self.found.as_ref()?;
        if !guard.is_of(&self.epoch) || found.table != table.identity() || found.number != guard.now() {
            return None;
        }
        // SAFETY: the value was in the table, or was being taken out, when the epoch had this number, and the table is borrowed. What
        // is retired from now on is reused only when this context has left, because it entered before.
        Some(unsafe { found.value.as_ref() })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Cached;
    use crate::{Epoch, Shared, SlotTable};

    fn table() -> (Shared<Epoch>, SlotTable<[u32; 2]>) {
        let epoch = Shared::try_new(Epoch::try_new(2).unwrap()).unwrap();
        (epoch.clone(), SlotTable::try_new(4, 3, epoch).unwrap())
    }

    #[test]
    fn what_was_found_is_found_again_until_something_is_retired() {
        let (epoch, table) = table();
        let mut cached = Cached::new(epoch.clone());
        let (key, other) = (table.insert([1, 2]).unwrap(), table.insert([3, 4]).unwrap());
        let guard = epoch.enter(0).unwrap();
        assert_eq!(cached.get(&table, &guard), None);
        assert_eq!(cached.find(&table, key, &guard, |value| value.get(1)), Some(&[1, 2]));
        drop(guard);
        let guard = epoch.enter(1).unwrap();
        assert_eq!(cached.get(&table, &guard), Some(&2));
        let removed = table.remove(other).unwrap();
        assert_eq!(cached.get(&table, &guard), None, "something has been retired");
        drop(guard);
        assert_eq!(table.reclaim(removed).unwrap(), [3, 4]);
        let guard = epoch.enter(0).unwrap();
        assert_eq!(cached.find(&table, key, &guard, |value| value.first()), Some(&[1, 2]));
        assert_eq!(cached.get(&table, &guard), Some(&1));
        assert_eq!(cached.find(&table, other, &guard, |value| value.first()), None);
        assert_eq!(cached.get(&table, &guard), None, "the last search found nothing");
    }

    #[test]
    fn it_is_not_found_in_another_table_or_epoch() {
        let ((epoch, table), (other_epoch, other_table)) = (table(), table());
        let mut cached = Cached::new(epoch.clone());
        let key = table.insert([1, 2]).unwrap();
        let second = SlotTable::<[u32; 2]>::try_new(4, 3, epoch.clone()).unwrap();
        let (guard, other_guard) = (epoch.enter(0).unwrap(), other_epoch.enter(0).unwrap());
        assert_eq!(cached.find(&table, key, &guard, |value| value.first()), Some(&[1, 2]));
        assert_eq!(cached.get(&second, &guard), None);
        assert_eq!(cached.get(&other_table, &other_guard), None);
        let other_key = other_table.insert([5, 6]).unwrap();
        assert_eq!(cached.find(&other_table, other_key, &other_guard, |value| value.first()), Some(&[5, 6]));
        assert_eq!(cached.get(&other_table, &other_guard), None, "a cache holds what its own epoch protects");
    }

    #[test]
    fn a_table_takes_its_cached_values_along() {
        let (epoch, mut table) = table();
        let mut cached = Cached::new(epoch.clone());
        let key = table.insert([1, 2]).unwrap();
        let guard = epoch.enter(0).unwrap();
        assert_eq!(cached.find(&table, key, &guard, |value| value.first()), Some(&[1, 2]));
        let mut other = SlotTable::try_new(4, 3, epoch.clone()).unwrap();
        core::mem::swap(&mut table, &mut other);
        assert_eq!(cached.get(&table, &guard), None, "another one in its place");
        assert_eq!(cached.get(&other, &guard), Some(&1));
        drop(other);
        table = SlotTable::try_new(4, 3, epoch.clone()).unwrap();
        assert_eq!(cached.get(&table, &guard), None);
    }

    #[test]
    fn a_table_that_is_dropped_retires_what_it_holds() {
        let (epoch, table) = table();
        let guard = epoch.enter(0).unwrap();
        drop(table);
        assert!(guard.now() > guard.entered());
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::thread;

    use super::Cached;
    use crate::{Dispose, Epoch, Shared, SlotTable};

    struct World {
        epoch: Shared<Epoch>,
        table: SlotTable<loom::cell::UnsafeCell<u32>>,
    }

    impl Dispose for World {}

    // SAFETY: the model checks exactly this: that the content has one writer or readers.
    unsafe impl Sync for World {}
    // SAFETY: as above.
    unsafe impl Send for World {}

    /// A value that was cached is read in a later pass, or it has been retired; it is never read while it is taken out.
    #[test]
    fn a_cached_value_stays_while_the_reader_is_inside() {
        loom::model(|| {
            let epoch = Shared::try_new(Epoch::try_new(1).unwrap()).unwrap();
            let table = SlotTable::try_new(2, 3, epoch.clone()).unwrap();
            let key = table.insert(loom::cell::UnsafeCell::new(1)).unwrap();
            let world = Shared::try_new(World { epoch: epoch.clone(), table }).unwrap();
            let mut cached = Cached::new(epoch.clone());
            let guard = epoch.enter(0).unwrap();
            assert!(cached.find(&world.table, key, &guard, |value| Some(value)).is_some());
            drop(guard);
            let reader = {
                let world = world.clone();
                thread::spawn(move || {
                    let guard = world.epoch.enter(0).unwrap();
                    if let Some(value) = cached.get(&world.table, &guard) {
                        // SAFETY: the model fails when this read meets the write below.
                        value.with(|value| unsafe { assert_eq!(*value, 1) });
                    }
                })
            };
            let removed = world.table.remove(key).unwrap();
            if let Ok(value) = world.table.reclaim(removed) {
                // SAFETY: as above.
                value.with_mut(|value| unsafe { *value = 2 });
            }
            reader.join().unwrap();
        });
    }
}
