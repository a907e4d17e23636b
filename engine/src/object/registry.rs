//! The registry: the objects of one adapter, for its listings and limits.
//!
//! Rules: an object is found from the moment it is published until it is finished; taking one out allocates nothing; the pointer
//! of the registry is dropped outside its lock.

use core::sync::atomic::Ordering;

use softndk_cells::{Dispose, NoMemory};

use crate::blocks::Blocks;
use crate::limits::REGISTRY_STEP;
use crate::object::header::Object;
use crate::platform::{Lock, Platform};

/// More than there are kinds of objects.
const KINDS: usize = 16;

pub(crate) struct Registry<P: Platform> {
    /// Most objects of a kind, where that is limited.
    most: u32,
    inner: P::Lock<RegistryContents<P>>,
}

impl<P: Platform> Dispose for Registry<P> {}

struct RegistryContents<P: Platform> {
    objects: Blocks<Option<Object<P>>>,
    free: Blocks<u32>,
    /// Objects there are, by the number of their kind.
    counts: [u32; KINDS],
}

impl<P: Platform> RegistryContents<P> {
    /// The count of an object's kind, if a limit holds for it.
    fn count(&mut self, object: &Object<P>) -> Option<&mut u32> {
        let kind = object.core()?.kind;
        self.counts.get_mut(kind as usize).filter(|_| object.is_limited())
    }
}

impl<P: Platform> Registry<P> {
    pub(crate) fn new(most: u32) -> Self {
        Self {
            most,
            inner: P::Lock::new(RegistryContents { objects: Blocks::new(), free: Blocks::new(), counts: [0; KINDS] }),
        }
    }

    /// Publishes a complete object. More of its kind than the limits allow are refused as without memory.
    pub(crate) fn register(&self, object: &Object<P>) -> Result<(), NoMemory> {
        self.inner.with(|registry| {
            if registry.count(object).is_some_and(|count| *count >= self.most) {
                return Err(NoMemory);
            }
            let index = if let Some(index) = registry.free.pop() {
                index
            } else {
                let index = u32::try_from(registry.objects.len()).map_err(|_| NoMemory)?;
                // Capacity for every index, so that unregistering never allocates.
                registry.free.reserve(registry.objects.len().saturating_add(1))?;
                registry.objects.push(None)?;
                index
            };
            if let Some(core) = object.core() {
                core.index.store(index, Ordering::Relaxed);
            }
            if let Some(place) = registry.objects.get_mut(index as usize) {
                *place = Some(object.clone());
            }
            if let Some(count) = registry.count(object) {
                *count += 1;
            }
            Ok(())
        })
    }

    /// Takes a finished object out. The registry's pointer is dropped outside the lock.
    pub(crate) fn forget(&self, index: u32) {
        let object = self.inner.with(|registry| {
            let object = registry.objects.get_mut(index as usize).and_then(Option::take);
            if object.is_some() {
                // `register` reserved capacity for every index.
                let kept = registry.free.push_within_capacity(index);
                debug_assert!(kept.is_ok());
            }
            if let Some(count) = object.as_ref().and_then(|object| registry.count(object)) {
                *count = count.saturating_sub(1);
            }
            object
        });
        drop(object);
    }

    /// The first object at or behind a position of the registry, and its position.
    pub(crate) fn next_object(&self, mut position: usize) -> Option<(usize, Object<P>)> {
        loop {
            let (after, object) = self.scan_from(position)?;
            if let Some(object) = object {
                return Some((after.saturating_sub(1), object));
            }
            position = after;
        }
    }

    /// As [`Self::next_object`] over a bounded number of places: the position to go on from, with the object before it if there
    /// was one; `None` behind the last place.
    pub(crate) fn scan_from(&self, position: usize) -> Option<(usize, Option<Object<P>>)> {
        self.inner.with(|registry| {
            let end = registry.objects.len().min(position.saturating_add(REGISTRY_STEP));
            let mut places = (position..end)
                .map(|place| (place.saturating_add(1), registry.objects.get(place).and_then(Option::as_ref)));
            let (after, _) = places.clone().next_back()?;
            let found = places.find_map(|(after, object)| Some((after, Some(object?.clone()))));
            Some(found.unwrap_or((after, None)))
        })
    }

    /// Calls `each` for every object that exists all the while, with no lock held.
    pub(crate) fn each(&self, mut each: impl FnMut(&Object<P>)) {
        let mut position = 0;
        while let Some((found, object)) = self.next_object(position) {
            each(&object);
            position = found.saturating_add(1);
        }
    }
}
