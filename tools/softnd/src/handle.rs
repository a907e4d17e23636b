//! Handles of the system that are closed when their owner goes.

use core::ptr;

use softnd_interfaces::Status;

use crate::imports::{
    CloseHandle, CreateEventW, DUPLICATE_SAME_ACCESS, DuplicateHandle, GetCurrentProcess, INVALID_HANDLE, RawHandle,
};

pub struct OwnedHandle(RawHandle);

// SAFETY: a handle is a number that means the same in every thread of the process.
unsafe impl Send for OwnedHandle {}
// SAFETY: as above.
unsafe impl Sync for OwnedHandle {}

impl OwnedHandle {
    /// Owns a handle that a function of the system has just made; none for those that mean a failure.
    pub fn new(raw: RawHandle) -> Option<Self> {
        (!raw.is_null() && raw != INVALID_HANDLE).then(|| Self(raw))
    }

    /// An event that wakes one waiter and is then not set.
    pub fn event() -> Result<Self, Status> {
        // SAFETY: no security, no name.
        let event = unsafe { CreateEventW(ptr::null(), 0, 0, ptr::null()) };
        Self::new(event).ok_or(Status::INSUFFICIENT_RESOURCES)
    }

    /// Another handle of what a client's handle is for: the client may close its own.
    pub fn duplicate(of: RawHandle) -> Result<Self, Status> {
        let mut made = ptr::null_mut();
        // SAFETY: no precondition.
        let process = unsafe { GetCurrentProcess() };
        // SAFETY: the place for the new handle is a local; any other number is a handle or refused.
        let done = unsafe { DuplicateHandle(process, of, process, &raw mut made, 0, 0, DUPLICATE_SAME_ACCESS) } != 0;
        if done { Self::new(made).ok_or(Status::INVALID_HANDLE) } else { Err(Status::INVALID_HANDLE) }
    }

    pub fn raw(&self) -> RawHandle {
        self.0
    }

    /// Gives it to a new owner.
    pub fn into_raw(self) -> RawHandle {
        let raw = self.0;
        core::mem::forget(self);
        raw
    }

    /// Takes a handle from [`OwnedHandle::into_raw`] back.
    pub fn from_raw(raw: RawHandle) -> Self {
        Self(raw)
    }
}

impl Drop for OwnedHandle {
    fn drop(&mut self) {
        // SAFETY: the handle is this value's own.
        unsafe { CloseHandle(self.0) };
    }
}
