//! A script's buffer: pool memory from a page boundary on, its memory list, and its logical mapping.

use core::ffi::c_void;

use ndkpi_sys::{ndkpi::NDK_LOGICAL_ADDRESS, nt::PAGE_SIZE};
use softndk_ioctl::{SCRIPT_BUFFER_MAX, Status, script_byte, script_digest};
use softndk_kernel::pool::PoolSlice;
use wdk_sys::ntddk::MmBuildMdlForNonPagedPool;

use super::resource::Stop;
use crate::{
    session::{
        consumer::OpenedAdapter,
        memory::{LogicalMapping, MemoryList},
    },
    tags,
};

pub struct ScriptBuffer {
    /// Dropped first: the addresses end before the memory. None: released.
    mapping: Option<LogicalMapping>,
    memory: PoolSlice<u8>,
    /// Where the first page begins in `memory`.
    start: usize,
    length: usize,
}

impl ScriptBuffer {
    /// Bytes of memory that a buffer takes: whole pages, and one to begin at a boundary.
    pub fn size_of(length: u64) -> Result<u64, Stop> {
        if length == 0 || length > SCRIPT_BUFFER_MAX {
            return Err(Stop::Broken);
        }
        let page = PAGE_SIZE as u64;
        Ok(length.div_ceil(page) * page + page)
    }

    /// Memory without addresses yet, filled from `seed`.
    pub fn try_new(length: u64, seed: u64) -> Result<Self, Stop> {
        let memory = PoolSlice::try_filled(tags::SESSION, Self::size_of(length)? as usize, 0_u8);
        let length = length as usize;
        let memory = memory.map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        let start = memory.first().addr().wrapping_neg() % PAGE_SIZE;
        let buffer = Self { mapping: None, memory, start, length };
        buffer.fill(0, length as u64, seed)?;
        Ok(buffer)
    }

    /// NdkBuildLAM.
    pub fn build(&mut self, adapter: &OpenedAdapter) -> Result<(), Status> {
        let list = self.list(0, self.length).map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        self.mapping = Some(LogicalMapping::try_new(adapter, list.as_ptr(), self.length)?);
        Ok(())
    }

    /// NdkReleaseLAM.
    pub fn release(&mut self) {
        self.mapping = None;
    }

    /// The address of the first byte.
    pub fn address(&self) -> u64 {
        // Within the block.
        self.memory.first().wrapping_add(self.start).addr() as u64
    }

    /// The logical address of the first byte; 0 once the mapping is released.
    pub fn logical_address(&self) -> u64 {
        self.pages().first().map_or(0, |page| page.QuadPart.cast_unsigned())
    }

    pub fn pages(&self) -> &[NDK_LOGICAL_ADDRESS] {
        self.mapping.as_ref().map_or(&[], LogicalMapping::pages)
    }

    /// Whether real addresses lie in the buffer.
    pub fn contains(&self, address: u64, length: u32) -> bool {
        let inside = address.checked_sub(self.address()).and_then(|offset| offset.checked_add(u64::from(length)));
        inside.is_some_and(|end| end <= self.length as u64)
    }

    fn range(&self, offset: u64, length: u64) -> Result<core::ops::Range<usize>, Stop> {
        let end = offset.checked_add(length).filter(|end| *end <= self.length as u64).ok_or(Stop::Broken)?;
        // Within the buffer, which is in memory.
        Ok(self.start.saturating_add(offset as usize)..self.start.saturating_add(end as usize))
    }

    /// A byte of the buffer, by a pointer and not by a reference: adapters may copy into and out of it at any time.
    fn byte(&self, position: usize) -> *mut u8 {
        self.memory.first().wrapping_add(position)
    }

    pub fn fill(&self, offset: u64, length: u64, seed: u64) -> Result<(), Stop> {
        for (number, position) in (offset..u64::MAX).zip(self.range(offset, length)?) {
            // SAFETY: `range` lies in the block.
            unsafe { self.byte(position).write_volatile(script_byte(seed, number)) };
        }
        Ok(())
    }

    /// The digest of what is there now.
    pub fn digest(&self, offset: u64, length: u64) -> Result<u64, Stop> {
        let range = self.range(offset, length)?;
        let copy = PoolSlice::try_filled(tags::SESSION, range.len(), 0_u8);
        let mut copy = copy.map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        for (byte, position) in copy.iter_mut().zip(range) {
            // SAFETY: `range` lies in the block.
            *byte = unsafe { self.byte(position).read_volatile() };
        }
        Ok(script_digest(&copy))
    }

    /// A memory list over a part that begins in the buffer, as far as the buffer goes.
    pub fn part(&self, offset: u64, length: u64) -> Result<MemoryList, Stop> {
        let rest = (self.length as u64).checked_sub(offset).filter(|rest| *rest != 0).ok_or(Stop::Broken)?;
        self.list(offset as usize, length.max(1).min(rest) as usize)
    }

    fn list(&self, offset: usize, length: usize) -> Result<MemoryList, Stop> {
        let address: *mut c_void = self.memory.first().wrapping_add(self.start).wrapping_add(offset).cast();
        let list = MemoryList::try_new(address, length as u32)?;
        // SAFETY: a fresh list over non-paged pool of ours.
        unsafe { MmBuildMdlForNonPagedPool(list.as_ptr().cast()) };
        Ok(list)
    }
}
