//! Memory of a consumer: pages of its own, scattered if wanted, pinned as long as the buffer exists, with a pattern around
//! the bytes that a provider may touch.
//!
//! The memory lists handed to the provider carry an address that means nothing in this process: the contract calls it
//! an index, and a provider that follows it faults. Each list is overwritten and freed when the holder drops it, which
//! is as soon as the call it was made for has completed.

use std::ops::Range;
use std::ptr;

use kernel_host::FrameOrder;
use kernel_host::memory::mdl::{self, Access, View};
use kernel_host::memory::user_buffer::{LockedMdl, UserBuffer};
use ndkpi_sys::ndkpi::{NDK_SGE, NDK_SGE_ADDRESS};
use ndkpi_sys::nt::MDL;

const PAGE: usize = 4096;
/// Fills the parts of the pages that do not belong to the buffer.
const GUARD: u8 = 0xE7;
/// Where buffers seem to lie: user addresses of a process that does not exist.
const FIRST_LABEL: usize = 0x0000_6BAD_0000_0000;
const LABEL_STEP: usize = 1 << 34;

pub struct Buffer {
    pages: UserBuffer,
    /// Keeps the pages pinned independently of the memory lists.
    _pin: LockedMdl,
    label: usize,
    offset: usize,
    length: usize,
}

// SAFETY: the memory is plain bytes; who touches them when is what the trials are about.
unsafe impl Send for Buffer {}
// SAFETY: as above; access to the bytes is through raw pointers.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Zeroed, beginning `offset` bytes into its first page.
    pub fn new(length: usize, offset: usize, order: FrameOrder) -> Self {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let pages = UserBuffer::with_offset(length, offset, order);
        let pin = pages.lock(Access::Write);
        let label = FIRST_LABEL + (number % 256) * LABEL_STEP + offset;
        let buffer = Self { pages, _pin: pin, label, offset, length };
        for range in buffer.surroundings() {
            // SAFETY: the range lies in the buffer's own pages.
            unsafe { ptr::write_bytes(buffer.page_start().add(range.start), GUARD, range.len()) };
        }
        buffer
    }

    /// On scattered frames, beginning in the middle of a page: nothing to rely on.
    pub fn scattered(length: usize) -> Self {
        Self::new(length, 1016, FrameOrder::Scattered)
    }

    pub fn length(&self) -> usize {
        self.length
    }

    /// The address by which scatter/gather elements name the buffer.
    pub fn label(&self) -> u64 {
        self.label as u64
    }

    fn page_start(&self) -> *mut u8 {
        (self.pages.address() - self.offset) as *mut u8
    }

    fn pointer(&self) -> *mut u8 {
        self.pages.address() as *mut u8
    }

    /// What lies in the same pages before and after the buffer, by offset from the first page.
    fn surroundings(&self) -> [Range<usize>; 2] {
        let end = self.offset + self.length;
        [0..self.offset, end..end.max(1).next_multiple_of(PAGE)]
    }

    /// What the provider, or anything else in the kernel, maps of the buffer's pages now.
    pub fn views(&self) -> Vec<View> {
        mdl::views_of(self.pages.frames())
    }

    /// Nothing outside the buffer was written.
    pub fn assert_surroundings(&self) {
        for range in self.surroundings() {
            for position in range {
                // SAFETY: the position lies in the buffer's own pages.
                let byte = unsafe { self.page_start().add(position).read_volatile() };
                assert_eq!(
                    byte,
                    GUARD,
                    "the byte {} from the start of the buffer was written",
                    position as isize - self.offset as isize
                );
            }
        }
    }

    /// A memory list over the whole buffer.
    pub fn memory_list(&self) -> MemoryList<'_> {
        MemoryList::new(self, 0..self.length)
    }

    /// A chain of memory lists that cover the buffer together, cut at these offsets.
    pub fn chain(&self, cuts: &[usize]) -> MemoryList<'_> {
        let mut end = self.length;
        let mut next: Option<Box<MemoryList<'_>>> = None;
        for start in cuts.iter().rev().copied().chain(Some(0)) {
            let mut list = MemoryList::new(self, start..end);
            if let Some(next) = &next {
                list.link(next);
            }
            list.next = next.take();
            next = Some(Box::new(list));
            end = start;
        }
        *next.expect("at least one list")
    }

    /// A scatter/gather element over part of the buffer, by its label.
    pub fn sge(&self, range: Range<usize>, token: u32) -> NDK_SGE {
        sge(self.label() + range.start as u64, range.len(), token)
    }

    /// The whole buffer in one scatter/gather element.
    pub fn whole(&self, token: u32) -> NDK_SGE {
        self.sge(0..self.length, token)
    }

    /// The buffer in `count` scatter/gather elements of nearly equal lengths.
    pub fn in_sges(&self, count: usize, token: u32) -> Vec<NDK_SGE> {
        let cut = |index: usize| self.length * index / count;
        (0..count).map(|index| self.sge(cut(index)..cut(index + 1), token)).collect()
    }

    /// Fills byte by byte; volatile, because another context may be writing here.
    pub fn fill(&self, pattern: impl Fn(usize) -> u8) {
        for position in 0..self.length {
            // SAFETY: inside the buffer.
            unsafe { self.pointer().add(position).write_volatile(pattern(position)) };
        }
    }

    /// Fills with bytes that depend on `seed` and the position.
    pub fn fill_with_seed(&self, seed: u64) {
        let mut block = block(seed);
        for (index, start) in (0..self.length).step_by(PAGE).enumerate() {
            number(&mut block, index);
            let length = PAGE.min(self.length - start);
            // SAFETY: inside the buffer.
            unsafe { ptr::copy_nonoverlapping(block.as_ptr(), self.pointer().add(start), length) };
        }
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        // SAFETY: both are `length` bytes and do not overlap.
        unsafe { ptr::copy_nonoverlapping(self.pointer(), bytes.as_mut_ptr(), self.length) };
        bytes
    }

    /// Volatile read of one byte, for memory that another context writes.
    pub fn byte(&self, position: usize) -> u8 {
        assert!(position < self.length, "a byte of the buffer");
        // SAFETY: inside the buffer.
        unsafe { self.pointer().add(position).read_volatile() }
    }

    /// The bytes of `range` are those of [`Self::fill_with_seed`], as if the buffer began where the range does.
    pub fn assert_seed(&self, seed: u64, range: Range<usize>) {
        let mut bytes = [0; PAGE];
        let mut expected = block(seed);
        for (index, start) in range.clone().step_by(PAGE).enumerate() {
            let length = PAGE.min(range.end - start);
            // SAFETY: inside the buffer.
            unsafe { ptr::copy_nonoverlapping(self.pointer().add(start), bytes.as_mut_ptr(), length) };
            number(&mut expected, index);
            if bytes[..length] != expected[..length] {
                let wrong = (0..length).find(|position| bytes[*position] != expected[*position]).unwrap_or(0);
                panic!("byte {} of {} is wrong: {:#x}", start + wrong, self.length, bytes[wrong]);
            }
        }
    }

    pub fn assert_all(&self, value: u8) {
        let wrong = self.to_vec().iter().position(|byte| *byte != value);
        assert_eq!(wrong, None, "a byte of {} that is not {value:#x}", self.length);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_surroundings();
        }
    }
}

/// A byte of the seeded pattern.
pub fn pattern(seed: u64, position: usize) -> u8 {
    let mut block = block(seed);
    number(&mut block, position / PAGE);
    block[position % PAGE]
}

/// A page of bytes that depend on the seed.
fn block(seed: u64) -> [u8; PAGE] {
    let mut bytes = [0; PAGE];
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for word in bytes.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    bytes
}

/// Numbers a page, so that no two of a pattern are alike.
fn number(block: &mut [u8; PAGE], index: usize) {
    for place in [0, PAGE / 2, PAGE - 8] {
        let bytes = (index as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93).to_le_bytes();
        block[place..place + 8].copy_from_slice(&bytes);
    }
}

pub fn sge(address: u64, length: usize, token: u32) -> NDK_SGE {
    NDK_SGE {
        Address: NDK_SGE_ADDRESS { VirtualAddress: ptr::without_provenance_mut(address as usize) },
        Length: length as u32,
        MemoryRegionToken: token,
    }
}

/// A memory list over a range of a buffer's pages, for one call.
pub struct MemoryList<'a> {
    list: *mut kernel_host::nt::MDL,
    pages: usize,
    next: Option<Box<MemoryList<'a>>>,
    _buffer: &'a Buffer,
}

// SAFETY: kernel memory of which any thread may dispose; the buffer is shared between threads already.
unsafe impl Send for MemoryList<'_> {}

impl<'a> MemoryList<'a> {
    /// A list over `range` of the buffer.
    fn new(buffer: &'a Buffer, range: Range<usize>) -> Self {
        let start = buffer.label + range.start;
        // SAFETY: the list is freed when the holder is dropped.
        let list = unsafe { mdl::allocate(start, range.len()) }.expect("memory for a memory list");
        let first = (buffer.offset + range.start) / PAGE;
        let count = mdl::span(start, range.len());
        // SAFETY: a list made just now for these pages.
        unsafe { mdl::fill_locked(list, &buffer.pages.frames()[first..first + count], Access::Write) };
        Self { list, pages: count, next: None, _buffer: buffer }
    }

    pub fn pointer(&self) -> *mut MDL {
        self.list.cast()
    }

    /// Links another list behind this one.
    pub fn link(&self, next: &MemoryList<'_>) {
        // SAFETY: both lists live.
        unsafe { (*self.list).Next = next.list };
    }

    /// Maps the first list's pages for the consumer's own use, until [`Self::unmap`].
    pub fn map(&self) -> usize {
        // SAFETY: the list exists and its pages are locked.
        unsafe { mdl::map(self.list, mdl::MDL_MAPPING_NO_EXECUTE) }.expect("address space for a mapping")
    }

    pub fn unmap(&self, address: usize) {
        // SAFETY: the list exists.
        unsafe { mdl::unmap(address, self.list) };
    }

    pub fn unlink(&self) {
        // SAFETY: the list exists.
        unsafe { (*self.list).Next = ptr::null_mut() };
    }
}

impl Drop for MemoryList<'_> {
    fn drop(&mut self) {
        self.next = None;
        // SAFETY: locked by `new` and not unlocked since.
        unsafe { mdl::unlock(self.list) };
        for page in 0..self.pages {
            // A provider that kept a pointer into this list finds no pages there.
            // SAFETY: the array has an entry for each page.
            unsafe { mdl::frame_array(self.list).add(page).write(0) };
        }
        // SAFETY: made by `new` and freed once.
        unsafe { mdl::free(self.list) };
    }
}
