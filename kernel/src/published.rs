//! What exists once per loaded driver: made in DriverEntry, found from everywhere, freed at unload.

use core::{
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::pool::{NoMemory, PoolBox, Tag};

/// A value in the pool that a static names.
pub struct Published<T: 'static> {
    place: AtomicPtr<T>,
    tag: Tag,
}

impl<T: Send + Sync> Published<T> {
    pub const fn new(tag: Tag) -> Self {
        Self { place: AtomicPtr::new(ptr::null_mut()), tag }
    }

    /// Makes a value reachable. PASSIVE_LEVEL, from DriverEntry, once until [`Published::withdraw`].
    pub fn publish(&self, value: T) -> Result<&'static T, NoMemory> {
        let place = PoolBox::try_new(self.tag, value)?.into_raw();
        self.place.store(place.as_ptr(), Ordering::Release);
        // SAFETY: the value lives until `withdraw`, which runs when no code of the driver can use it any more.
        Ok(unsafe { place.as_ref() })
    }

    /// The value, while there is one. Any IRQL.
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or a value that lives until `withdraw`.
        unsafe { self.place.load(Ordering::Acquire).as_ref() }
    }

    /// Frees the value. PASSIVE_LEVEL, from DriverEntry's failure path or unload.
    ///
    /// # Safety
    /// Nothing of the driver uses the value any more or will use it again.
    pub unsafe fn withdraw(&self) {
        if let Some(place) = NonNull::new(self.place.swap(ptr::null_mut(), Ordering::AcqRel)) {
            // SAFETY: the value came from `publish`, which used this tag, and no context uses it (the caller's promise).
            drop(unsafe { PoolBox::from_raw(self.tag, place) });
        }
    }
}
