//! Memory of a user program: page frames of its own at addresses of its own, scattered by default, as a buffer that
//! `DeviceIoControl` hands over or that a consumer locks down.

use crate::kernel::FrameOrder;
use crate::memory::address_space::{self, Protection, Reservation, Zone};
use crate::memory::{PAGE_SIZE, frames, mdl};
use crate::nt::MDL;

/// A buffer of a user program. It may begin in the middle of a page.
#[derive(Debug)]
pub struct UserBuffer {
    reservation: Reservation,
    frames: Vec<u32>,
    offset: usize,
    length: usize,
}

impl UserBuffer {
    /// A zeroed buffer whose frames are scattered.
    pub fn new(length: usize) -> Self {
        Self::with_offset(length, 0, FrameOrder::Scattered)
    }

    /// A zeroed buffer that begins `offset` bytes into its first page.
    pub fn with_offset(length: usize, offset: usize, order: FrameOrder) -> Self {
        assert!(offset < PAGE_SIZE, "the offset lies in the first page");
        let bytes = (offset + length).max(1).next_multiple_of(PAGE_SIZE);
        let reservation =
            Reservation::new(Zone::UserBuffers, bytes).unwrap_or_else(|| panic!("no addresses for a user buffer"));
        let frames = frames::allocate_in_order(bytes / PAGE_SIZE, order)
            .unwrap_or_else(|| panic!("no memory for a user buffer of {length} bytes"));
        reservation.map(&frames, Protection::ReadWrite);
        // SAFETY: the frames belong to this buffer alone.
        if !unsafe { frames::clear(&frames) } {
            // SAFETY: mapped read-write just now.
            unsafe { std::ptr::write_bytes(reservation.address() as *mut u8, 0, bytes) };
        }
        Self { reservation, frames, offset, length }
    }

    /// A buffer with these contents.
    pub fn from_slice(contents: &[u8]) -> Self {
        let mut buffer = Self::new(contents.len());
        buffer.as_mut_slice().copy_from_slice(contents);
        buffer
    }

    pub fn address(&self) -> usize {
        self.reservation.address() + self.offset
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped as long as the buffer.
        unsafe { std::slice::from_raw_parts(self.address() as *const u8, self.length) }
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: mapped as long as the buffer, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.address() as *mut u8, self.length) }
    }

    /// An MDL over the whole buffer with its pages locked, as `MmProbeAndLockPages` leaves it: not mapped.
    pub fn lock(&self, access: mdl::Access) -> LockedMdl {
        // SAFETY: the buffer's address and length are its own.
        let mdl = unsafe { mdl::allocate(self.address(), self.length) }
            .unwrap_or_else(|| panic!("no memory for an MDL over a user buffer"));
        // SAFETY: an MDL made just now for these frames.
        unsafe { mdl::fill_locked(mdl, &self.frames, access) };
        LockedMdl { mdl }
    }

    /// Changes the protection of whole pages, by their offset from the first page of the buffer.
    pub(crate) fn protect(&self, offset: usize, length: usize, protection: Protection) {
        self.reservation.protect(offset, length, protection);
    }

    /// The first page and all pages' length.
    pub(crate) fn pages(&self) -> (usize, usize) {
        (self.reservation.address(), self.reservation.length())
    }

    /// The frames of the buffer.
    pub fn frames(&self) -> &[u32] {
        &self.frames
    }
}

impl Drop for UserBuffer {
    fn drop(&mut self) {
        // A trial that has failed leaves what the driver still maps; its own words are the report then.
        if std::thread::panicking() {
            return;
        }
        mdl::check_frames_unmapped(&self.frames, "a user buffer goes away");
        self.reservation.release();
        frames::free(&self.frames);
    }
}

/// A locked MDL that the host owns; dropping it unlocks the pages and frees it.
#[derive(Debug)]
pub struct LockedMdl {
    mdl: *mut MDL,
}

impl LockedMdl {
    /// Locks mapped pages of a user program, whose protection the caller has checked; `None` when memory is short.
    pub(crate) fn over(address: usize, length: usize, access: mdl::Access) -> Option<Self> {
        let frames = address_space::frames_at(address & !(PAGE_SIZE - 1), mdl::span(address, length))?;
        // SAFETY: the MDL is this value's, which frees it.
        let mdl = unsafe { mdl::allocate(address, length) }?;
        // SAFETY: an MDL made just now for these frames.
        unsafe { mdl::fill_locked(mdl, &frames, access) };
        Some(Self { mdl })
    }

    /// The pages are lent for reading: every mapping of the MDL, and of partial ones of it, is read-only.
    pub(crate) fn lend_for_reading(&self) {
        mdl::lend_for_reading(self.mdl);
    }

    pub fn as_ptr(&self) -> *mut MDL {
        self.mdl
    }

    /// Gives up the ownership: the caller unlocks and frees.
    pub fn into_raw(self) -> *mut MDL {
        let mdl = self.mdl;
        std::mem::forget(self);
        mdl
    }
}

impl Drop for LockedMdl {
    fn drop(&mut self) {
        // SAFETY: made by `UserBuffer::lock` and not freed since.
        unsafe {
            mdl::unlock(self.mdl);
            mdl::free(self.mdl);
        }
    }
}
