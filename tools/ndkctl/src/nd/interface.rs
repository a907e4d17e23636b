//! Ownership of interface pointers.

use super::system::System;
use softnd_interfaces::unknown::IUnknown;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// One reference to an object of the provider; dropping it releases that.
pub struct Interface<'s, I> {
    pointer: NonNull<I>,
    /// The DLL stays as long as its system.
    system: PhantomData<&'s System<'s>>,
}

impl<I> Interface<'_, I> {
    /// # Safety
    ///
    /// `pointer` is null, or a live interface of this type, of which the caller gives away a reference.
    pub(super) unsafe fn from_raw(pointer: *mut c_void) -> Option<Self> {
        Some(Self { pointer: NonNull::new(pointer.cast())?, system: PhantomData })
    }

    /// For calls of its methods.
    #[must_use]
    pub const fn this(&self) -> *mut I {
        self.pointer.as_ptr()
    }

    /// As an argument of another object's method.
    #[must_use]
    pub const fn unknown(&self) -> *mut c_void {
        self.pointer.as_ptr().cast()
    }
}

impl<I> Drop for Interface<'_, I> {
    fn drop(&mut self) {
        // SAFETY: every interface is an IUnknown; the reference is this object's.
        unsafe { IUnknown::release(self.this().cast()) };
    }
}
