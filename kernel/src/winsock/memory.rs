//! The memory of a ring or of datagrams, with the descriptor by which Winsock Kernel reads and writes it.
//!
//! Rules it keeps: non-paged, so never locked or unlocked; reached by addresses only, because Winsock Kernel uses one part of it while the
//! owner uses another.

use core::{ops::Range, ptr, ptr::NonNull, slice};

use ndkpi_sys::wsk::WSK_BUF;
use wdk_sys::{
    MDL,
    ntddk::{IoAllocateMdl, IoFreeMdl, MmBuildMdlForNonPagedPool},
};

use crate::pool::{NoMemory, PoolSlice, Tag};

pub(super) struct Memory {
    bytes: PoolSlice<u8>,
    list: NonNull<MDL>,
}

// SAFETY: memory and its descriptor, used by whichever thread has the part.
unsafe impl Send for Memory {}
// SAFETY: what is done by a shared reference is done to parts that the caller alone has, as the functions ask.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn try_new(tag: Tag, length: usize) -> Result<Self, NoMemory> {
        let size = u32::try_from(length).map_err(|_| NoMemory)?;
        let bytes = PoolSlice::try_filled(tag, length, 0_u8)?;
        // SAFETY: only makes a descriptor of this span; no IRP; IRQL <= DISPATCH_LEVEL.
        let list = unsafe { IoAllocateMdl(bytes.first().cast(), size, 0, 0, ptr::null_mut()) };
        let memory = Self { bytes, list: NonNull::new(list).ok_or(NoMemory)? };
        // SAFETY: a fresh descriptor of non-paged pool of ours.
        unsafe { MmBuildMdlForNonPagedPool(memory.list.as_ptr()) };
        Ok(memory)
    }

    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    /// The part as Winsock Kernel takes it; nothing if it is not inside.
    pub fn buffer(&self, part: &Range<usize>) -> Option<WSK_BUF> {
        let offset = u32::try_from(self.inside(part)?.start).ok()?;
        Some(WSK_BUF { Mdl: self.list.as_ptr().cast(), Offset: offset, Length: part.len() })
    }

    /// Copies bytes to the start of a part, as many as fit; how many.
    ///
    /// # Safety
    /// No other context reads or writes the part.
    pub unsafe fn write(&self, part: &Range<usize>, from: &[u8]) -> usize {
        let Some(part) = self.inside(part) else { return 0 };
        let count = part.len().min(from.len());
        // SAFETY: inside the memory.
        let place = unsafe { self.bytes.first().add(part.start) };
        // SAFETY: `count` bytes from there are inside, too; the caller's are not in the ring.
        unsafe { place.copy_from_nonoverlapping(from.as_ptr(), count) };
        count
    }

    /// Has a function write all of it.
    ///
    /// # Safety
    /// No other context reads or writes it until the function returns.
    pub unsafe fn write_with<T>(&self, write: impl FnOnce(&mut [u8]) -> T) -> T {
        // SAFETY: all of it was initialised, and no other context uses it meanwhile (the caller's promise).
        write(unsafe { slice::from_raw_parts_mut(self.bytes.first(), self.length()) })
    }

    /// The bytes of a part.
    ///
    /// # Safety
    /// No other context writes the part for as long as the bytes are borrowed.
    pub unsafe fn read(&self, part: &Range<usize>) -> &[u8] {
        let Some(part) = self.inside(part) else { return &[] };
        // SAFETY: inside the memory.
        let place = unsafe { self.bytes.first().add(part.start) };
        // SAFETY: all of the part is inside, was initialised, and stays as it is (the caller's promise).
        unsafe { slice::from_raw_parts(place, part.len()) }
    }

    fn inside<'a>(&self, part: &'a Range<usize>) -> Option<&'a Range<usize>> {
        (part.start <= part.end && part.end <= self.length()).then_some(part)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: made by IoAllocateMdl, and no call with it is under way when its owner goes.
        unsafe { IoFreeMdl(self.list.as_ptr()) };
    }
}
