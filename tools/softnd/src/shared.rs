//! A counted pointer like `Arc`, of which the making can fail. The driver can hold a count, too, as the context of a request.

use alloc::boxed::Box;
use core::{
    ffi::c_void,
    mem,
    ops::Deref,
    ptr::NonNull,
    sync::atomic::{AtomicUsize, Ordering, fence},
};

use softnd_interfaces::Status;

use crate::heap::try_box;

pub struct Shared<T>(NonNull<Counted<T>>);

struct Counted<T> {
    count: AtomicUsize,
    value: T,
}

// SAFETY: as of `Arc`: the value is reached from every thread that has a clone, and dropped by the last.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub fn new(value: T) -> Result<Self, Status> {
        let counted = try_box(Counted { count: AtomicUsize::new(1), value })?;
        Ok(Self(NonNull::from(Box::leak(counted))))
    }

    fn counted(&self) -> &Counted<T> {
        // SAFETY: this clone's count keeps the block.
        unsafe { self.0.as_ref() }
    }

    pub fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// The pointer with its count, for where only a number can be kept.
    pub fn into_raw(self) -> *mut c_void {
        let raw = self.0.as_ptr().cast();
        mem::forget(self);
        raw
    }

    /// Takes a count back.
    ///
    /// # Safety
    /// `raw` comes from `into_raw` of this type, and its count was not taken back yet.
    pub unsafe fn from_raw(raw: NonNull<c_void>) -> Self {
        Self(raw.cast())
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        self.counted().count.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        if self.counted().count.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: the last count is gone, so the block is this one's alone; it was leaked from a box.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn last_clone_drops_the_value() {
        let value = Arc::new(());
        let shared = Shared::new(value.clone()).unwrap();
        let raw = NonNull::new(shared.clone().into_raw()).unwrap();
        assert!(shared.is(&shared.clone()));
        drop(shared);
        assert_eq!(Arc::strong_count(&value), 2);
        // SAFETY: the one raw pointer is taken back once.
        drop(unsafe { Shared::<Arc<()>>::from_raw(raw) });
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
