//! Memory of consumers as the engine sees it: mapped segments behind an opaque owner.
//!
//! A consumer's MDL is read while it is registered and never kept: pages come through private MDLs, mapped no-execute, and
//! read-only where nothing may be written. Non-paged pool keeps its address. An MDL's virtual address is an index here and
//! never followed. Dropping a mapping unmaps it.

use core::{ffi::c_void, ptr, ptr::NonNull};

use ndkpi_sys::nt::{MDL, MDL_FLAGS, PAGE_SIZE};
use softndk_cells::Erased;
use softndk_engine::limits;
use softndk_kernel::{
    copy,
    pool::{PoolBox, PoolSlice, PoolSpace},
    work::Job,
};
use wdk_sys::{
    _MEMORY_CACHING_TYPE, _MM_PAGE_PRIORITY, _MODE, KPROCESSOR_MODE,
    ntddk::{IoAllocateMdl, IoBuildPartialMdl, IoFreeMdl, MmMapLockedPagesSpecifyCache, MmUnmapLockedPages},
};

use super::{errors::MappingError, mapper::Release};
use crate::tags;

/// `MdlMappingNoWrite`.
const MAPPING_NO_WRITE: u32 = 0x8000_0000;
/// `MdlMappingNoExecute`.
pub const MAPPING_NO_EXECUTE: u32 = 0x4000_0000;

/// More than this is mapped and unmapped by the mapper's thread, not by the caller.
pub const LARGE: u64 = 4 << 20;

/// What the mapping is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    ReadOnly,
    ReadWrite,
}

/// What of the chain is reachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The requested bytes; offset 0 is the first of them.
    Bytes,
    /// Whole pages; offset 0 is the start of the first page.
    Pages,
}

/// A checked MDL chain: virtually contiguous over `length` bytes.
#[derive(Clone, Copy)]
pub struct Chain {
    first: NonNull<MDL>,
    /// Virtual address of the first byte: a label.
    pub base: u64,
    pub length: u64,
    segments: usize,
}

// SAFETY: the consumer leaves the chain alone until the request has completed, so it may be read on any thread.
unsafe impl Send for Chain {}

impl Chain {
    /// Checks a consumer's chain of at least `length` bytes, of which it may be `longest`.
    ///
    /// # Safety
    /// `mdl` is null or a live chain of MDLs.
    pub unsafe fn check(mdl: *mut MDL, length: u64, longest: u64) -> Result<Self, MappingError> {
        // Before anything is mapped, because this may be megabytes at DISPATCH_LEVEL.
        if length > longest {
            return Err(MappingError::TooLong);
        }
        let first = NonNull::new(mdl).ok_or(MappingError::NotContiguous)?;
        // SAFETY: live, by the caller's promise.
        let mut parts = unsafe { Parts::of(first) };
        let mut base = None;
        let mut covered = 0_u64;
        let mut segments = 0_usize;
        while covered < length {
            let part = parts.next().ok_or(MappingError::NotContiguous)?;
            if !part.is_pinned() {
                return Err(MappingError::NotPinned);
            }
            let address = part.virtual_address();
            let expected = base.get_or_insert(address).checked_add(covered).ok_or(MappingError::NotContiguous)?;
            if address != expected {
                return Err(MappingError::NotContiguous);
            }
            covered = covered.checked_add(u64::from(part.byte_count)).ok_or(MappingError::NotContiguous)?;
            segments = segments.checked_add(1).ok_or(MappingError::NotContiguous)?;
        }
        // No base: no bytes were requested.
        let base = base.filter(|base| base.checked_add(length).is_some()).ok_or(MappingError::NotContiguous)?;
        Ok(Self { first, base, length, segments })
    }

    /// Offset of the first byte in its page.
    pub fn first_byte_offset(&self) -> u32 {
        (self.base % PAGE_SIZE as u64) as u32
    }

    /// Pages the bytes touch.
    pub fn pages(&self) -> u64 {
        (u64::from(self.first_byte_offset()) + self.length).div_ceil(PAGE_SIZE as u64)
    }

    pub fn is_large(&self) -> bool {
        self.length > LARGE
    }
}

/// The fields of one MDL of a chain, read once: its owner and the memory manager may write it at any time (mapping it sets
/// flags and an address), so no reference is made to it and nothing of it is read twice.
#[derive(Clone, Copy)]
struct Part {
    mdl: NonNull<MDL>,
    next: *mut MDL,
    flags: MDL_FLAGS,
    start: u64,
    byte_offset: u32,
    byte_count: u32,
    mapped: *mut c_void,
}

impl Part {
    /// # Safety
    /// `mdl` is live.
    unsafe fn read(mdl: NonNull<MDL>) -> Self {
        // SAFETY: live, by the caller's promise; a copy, made by volatile reads so that each field is read just once.
        let copy = unsafe { mdl.as_ptr().read_volatile() };
        Self {
            mdl,
            next: copy.Next,
            flags: copy.MdlFlags,
            start: copy.StartVa.addr() as u64,
            byte_offset: copy.ByteOffset,
            byte_count: copy.ByteCount,
            mapped: copy.MappedSystemVa,
        }
    }

    /// Whether the pages stay what they are: locked, or non-paged pool, or part of such; and memory, not a device.
    fn is_pinned(&self) -> bool {
        let pinned = MDL_FLAGS::PAGES_LOCKED | MDL_FLAGS::SOURCE_IS_NONPAGED_POOL | MDL_FLAGS::PARTIAL;
        self.flags.intersects(pinned) && !self.flags.contains(MDL_FLAGS::IO_SPACE)
    }

    /// Start of the bytes in the address space they were described in.
    fn virtual_address(&self) -> u64 {
        self.start.wrapping_add(u64::from(self.byte_offset))
    }
}

/// The MDLs of a chain that describe any bytes. Chains of network buffers have empty ones, whose address is meaningless.
struct Parts {
    next: *mut MDL,
}

impl Parts {
    /// # Safety
    /// `first` starts a chain that is valid as long as the iterator.
    unsafe fn of(first: NonNull<MDL>) -> Self {
        Self { next: first.as_ptr() }
    }
}

impl Iterator for Parts {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        loop {
            // SAFETY: the next MDL of a live chain (`of`).
            let part = unsafe { Part::read(NonNull::new(self.next)?) };
            self.next = part.next;
            if part.byte_count != 0 {
                return Some(part);
            }
        }
    }
}

/// Mapped memory. See the module.
pub struct Mapping {
    /// Where the first segment is mapped, and its length: mostly the only one. Null and 0 until the segments have their offsets.
    address: *mut u8,
    length: u64,
    body: PoolBox<Body>,
}

// SAFETY: a system address, as those of the segments.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// What lends the memory of a mapping, and gets it back when it is dropped: after the memory is unmapped.
pub trait Lender: Send + Sync {}

struct Body {
    segments: PoolSlice<Segment>,
    length: u64,
    /// Dropped after the segments are unmapped.
    lender: Option<Erased<dyn Lender>>,
    /// Memory for the job that unmaps a large mapping.
    retire: Option<PoolSpace<Job<Release>>>,
}

/// Contiguous mapped bytes.
#[derive(Clone, Copy)]
struct Segment {
    /// Offset of the first byte in the mapping.
    start: u64,
    length: u64,
    address: *mut u8,
    /// The private MDL and what it was mapped at; null for memory that keeps its address.
    mdl: *mut wdk_sys::MDL,
    mapped: *mut c_void,
}

// SAFETY: system addresses, valid on every processor and in every context while the mapping exists.
unsafe impl Send for Segment {}
// SAFETY: as above; the bytes behind them are accessed through raw pointers only.
unsafe impl Sync for Segment {}

const UNUSED: Segment =
    Segment { start: 0, length: 0, address: ptr::null_mut(), mdl: ptr::null_mut(), mapped: ptr::null_mut() };

impl Mapping {
    /// Maps a chain. `IRQL <= DISPATCH_LEVEL`; the cost grows with the pages.
    pub fn try_new(chain: &Chain, access: Access, extent: Extent) -> Result<Self, MappingError> {
        let retire = if chain.is_large() { Some(PoolSpace::try_new(tags::MAPPING)?) } else { None };
        let segments = PoolSlice::try_filled(tags::MAPPING, chain.segments, UNUSED)?;
        // Built in its final place: a failure half-way unmaps by drop what was mapped.
        let mut mapping = Self {
            address: ptr::null_mut(),
            length: 0,
            body: PoolBox::try_new(tags::MAPPING, Body { segments, length: 0, lender: None, retire })?,
        };
        // SAFETY: `check` walked as many live MDLs, and the consumer leaves them alone until the request has completed.
        let parts = unsafe { Parts::of(chain.first) };
        let mut rest = chain.length;
        for (segment, part) in mapping.body.segments.iter_mut().zip(parts) {
            let covered = chain.length.saturating_sub(rest);
            if !part.is_pinned() || chain.base.checked_add(covered) != Some(part.virtual_address()) {
                // As below; `check` saw another MDL.
                return Err(MappingError::NotContiguous);
            }
            let length = rest.min(u64::from(part.byte_count));
            *segment = map(&part, length as u32, access)?;
            rest -= length;
        }
        if rest != 0 {
            // The consumer changed the chain while the request was pending.
            return Err(MappingError::NotContiguous);
        }
        mapping.arrange(chain, extent);
        Ok(mapping)
    }

    /// Gives the segments their offsets.
    fn arrange(&mut self, chain: &Chain, extent: Extent) {
        let last = self.body.segments.len().saturating_sub(1);
        let mut start = 0;
        for (index, segment) in self.body.segments.iter_mut().enumerate() {
            if extent == Extent::Pages && index == 0 {
                let lead = u64::from(chain.first_byte_offset());
                segment.address = segment.address.wrapping_sub(lead as usize);
                segment.length += lead;
            }
            if extent == Extent::Pages && index == last {
                let end = start + segment.length;
                segment.length += end.next_multiple_of(PAGE_SIZE as u64) - end;
            }
            segment.start = start;
            start += segment.length;
        }
        self.body.length = start;
        if let Some(first) = self.body.segments.iter().next() {
            (self.address, self.length) = (first.address, first.length);
        }
    }

    pub fn length(&self) -> u64 {
        self.body.length
    }

    /// Keeps what lends the memory until the memory is unmapped.
    pub fn keep(&mut self, lender: Erased<dyn Lender>) {
        self.body.lender = Some(lender);
    }

    /// Where the memory is mapped, if that is in one stretch.
    pub fn start(&self) -> Option<NonNull<u8>> {
        match &*self.body.segments {
            [only] => NonNull::new(only.address),
            _ => None,
        }
    }

    /// Too large to be unmapped by a caller at DISPATCH_LEVEL.
    pub fn is_large(&self) -> bool {
        self.body.length > LARGE
    }

    /// The memory for the job that unmaps this mapping on the mapper's thread, if it is large enough for that.
    pub fn take_retire_space(&mut self) -> Option<PoolSpace<Job<Release>>> {
        self.body.retire.take()
    }

    /// Where `offset` is mapped, and how many bytes follow it there.
    #[inline]
    fn at(&self, offset: u64) -> Option<(*mut u8, usize)> {
        if offset < self.length {
            return Some((self.address.wrapping_add(offset as usize), (self.length - offset) as usize));
        }
        self.behind_first(offset)
    }

    #[cold]
    fn behind_first(&self, offset: u64) -> Option<(*mut u8, usize)> {
        let segments = &*self.body.segments;
        let segment = match segments {
            [only] => only,
            _ => segments.get(segments.partition_point(|segment| segment.start <= offset).checked_sub(1)?)?,
        };
        let inside = offset.checked_sub(segment.start)?;
        let capacity = segment.length.checked_sub(inside).filter(|capacity| *capacity != 0)?;
        Some((segment.address.wrapping_add(inside as usize), capacity as usize))
    }

    /// Copies between two mappings, piece by piece where their segments end.
    fn each_piece(
        to: (&Self, u64),
        from: (&Self, u64),
        length: usize,
        mut copy: impl FnMut(*mut u8, *const u8, usize),
    ) {
        let mut done = 0_usize;
        while done < length {
            let target = to.1.checked_add(done as u64).and_then(|offset| to.0.at(offset));
            let source = from.1.checked_add(done as u64).and_then(|offset| from.0.at(offset));
            // The engine has checked both ranges; a range outside ends the copy.
            let (Some(target), Some(source)) = (target, source) else { return };
            let piece = (length - done).min(target.1).min(source.1);
            copy(target.0, source.0, piece);
            done = done.saturating_add(piece);
        }
    }

    /// Copies in an order of its own choice.
    pub fn copy(to: (&Self, u64), from: (&Self, u64), length: usize) {
        Self::each_piece(to, from, length, |target, source, piece| {
            // SAFETY: both pieces lie in live mappings.
            unsafe { copy::bytes(target, source, piece) };
        });
    }

    /// Copies at most [`limits::LAST_BYTES`] after everything before, in ascending order.
    pub fn copy_last(to: (&Self, u64), from: (&Self, u64), length: usize) {
        Self::each_piece(to, from, length, |target, source, piece| {
            // SAFETY: both pieces lie in live mappings.
            unsafe { copy::ascending(target, source, piece) };
        });
    }

    /// Copies a whole message: its end after everything else, in ascending order.
    #[inline]
    pub fn copy_message(to: (&Self, u64), from: (&Self, u64), length: usize) {
        let (Some(target), Some(source)) = (to.0.in_first(to.1, length), from.0.in_first(from.1, length)) else {
            return Self::copy_parts(to, from, length);
        };
        // SAFETY: both ranges lie in live mappings, each in one stretch.
        unsafe { copy::message::<{ limits::LAST_BYTES }>(target, source, length) };
    }

    /// Where `length` bytes from `offset` on are mapped, if they are all in the first segment.
    #[inline]
    fn in_first(&self, offset: u64, length: usize) -> Option<*mut u8> {
        let is_there = self.length.checked_sub(offset).is_some_and(|left| length as u64 <= left);
        is_there.then(|| self.address.wrapping_add(offset as usize))
    }

    #[cold]
    fn copy_parts(to: (&Self, u64), from: (&Self, u64), length: usize) {
        let bulk = length.saturating_sub(limits::LAST_BYTES);
        let after = |offset: u64| offset.saturating_add(bulk as u64);
        Self::copy(to, from, bulk);
        Self::copy_last((to.0, after(to.1)), (from.0, after(from.1)), length.min(limits::LAST_BYTES));
    }

    /// Copies mapped memory into bytes of the driver's own.
    pub fn load(&self, offset: u64, into: &mut [u8]) {
        let mut rest = into;
        let mut place = offset;
        while !rest.is_empty() {
            let Some((source, capacity)) = self.at(place) else { return };
            let length = rest.len().min(capacity);
            let Some((piece, after)) = rest.split_at_mut_checked(length) else { return };
            // SAFETY: the piece lies in this live mapping.
            unsafe { copy::bytes(piece.as_mut_ptr(), source, length) };
            place = place.saturating_add(length as u64);
            rest = after;
        }
    }

    /// Stores own bytes, the last ones in ascending order.
    pub fn store(&self, offset: u64, bytes: &[u8]) {
        let mut rest = bytes;
        let mut place = offset;
        while !rest.is_empty() {
            let Some((target, capacity)) = self.at(place) else { return };
            let Some((piece, deferred)) = rest.split_at_checked(rest.len().min(capacity)) else { return };
            // SAFETY: the piece lies in this live mapping, and these are bytes of the driver's own.
            unsafe { copy::ascending(target, piece.as_ptr(), piece.len()) };
            place = place.saturating_add(piece.len() as u64);
            rest = deferred;
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        for segment in self.segments.iter() {
            unmap(segment);
        }
    }
}

/// Maps the first `length` bytes of one MDL of a chain.
fn map(part: &Part, length: u32, access: Access) -> Result<Segment, MappingError> {
    if part.flags.contains(MDL_FLAGS::SOURCE_IS_NONPAGED_POOL) {
        let address = part.mapped.cast();
        return Ok(Segment { length: u64::from(length), address, ..UNUSED });
    }
    let mdl = PrivateMdl::try_new(part, length)?;
    let mapped = mdl.map(access).ok_or(MappingError::NoResources)?;
    let mdl = mdl.keep();
    Ok(Segment { start: 0, length: u64::from(length), address: mapped.cast(), mdl, mapped })
}

/// A private MDL over the same pages, freed unless it is kept.
struct PrivateMdl(NonNull<wdk_sys::MDL>);

impl PrivateMdl {
    fn try_new(part: &Part, length: u32) -> Result<Self, MappingError> {
        let address: *mut c_void = ptr::without_provenance_mut(part.virtual_address() as usize);
        // SAFETY: only reserves space for the page frames of this span; no IRP; IRQL <= DISPATCH_LEVEL.
        let mdl = unsafe { IoAllocateMdl(address, length, 0, 0, ptr::null_mut()) };
        let mdl = Self(NonNull::new(mdl).ok_or(MappingError::NoResources)?);
        if part.flags.contains(MDL_FLAGS::MAPPED_TO_SYSTEM_VA) {
            // A partial MDL would share the consumer's mapping, which ends when the consumer unmaps.
            mdl.copy_frames(part, length);
        } else {
            // SAFETY: the span lies inside the source, which is locked; the new MDL has space for its frames.
            unsafe { IoBuildPartialMdl(part.mdl.as_ptr().cast(), mdl.0.as_ptr(), address, length) };
        }
        Ok(mdl)
    }

    /// Describes the same frames as the start of `part`.
    fn copy_frames(&self, part: &Part, length: u32) {
        // As many as IoAllocateMdl has made space for: the offset in its page comes from the same address.
        let offset = part.virtual_address() % PAGE_SIZE as u64;
        let pages = (offset + u64::from(length)).div_ceil(PAGE_SIZE as u64) as usize;
        // SAFETY: the page frame numbers follow the MDL, as many as its bytes touch pages.
        let from = unsafe { part.mdl.as_ptr().add(1) }.cast::<u64>();
        // SAFETY: IoAllocateMdl made space for as many frames behind the new MDL.
        let to = unsafe { self.0.as_ptr().add(1) }.cast::<u64>();
        // SAFETY: `pages` frames on both sides, in different MDLs.
        unsafe { to.copy_from_nonoverlapping(from, pages) };
        // The frames are locked by the consumer for as long as the memory is registered.
        self.set_locked(true);
    }

    fn set_locked(&self, locked: bool) {
        // SAFETY: an own MDL, reached by no other context.
        let mdl = unsafe { &mut *self.0.as_ptr() };
        let bit = MDL_FLAGS::PAGES_LOCKED.bits();
        mdl.MdlFlags = if locked { mdl.MdlFlags | bit } else { mdl.MdlFlags & !bit };
    }

    fn map(&self, access: Access) -> Option<*mut c_void> {
        let protection = MAPPING_NO_EXECUTE | if access == Access::ReadOnly { MAPPING_NO_WRITE } else { 0 };
        // SAFETY: the driver's own MDL describes locked pages; kernel mode never raises; IRQL <= DISPATCH_LEVEL.
        let mapped = unsafe {
            MmMapLockedPagesSpecifyCache(
                self.0.as_ptr(),
                _MODE::KernelMode as KPROCESSOR_MODE,
                _MEMORY_CACHING_TYPE::MmCached,
                ptr::null_mut(),
                0,
                _MM_PAGE_PRIORITY::NormalPagePriority as u32 | protection,
            )
        };
        (!mapped.is_null()).then_some(mapped)
    }

    fn keep(self) -> *mut wdk_sys::MDL {
        let mdl = self.0.as_ptr();
        core::mem::forget(self);
        mdl
    }
}

impl Drop for PrivateMdl {
    fn drop(&mut self) {
        // The consumer unlocks the pages.
        self.set_locked(false);
        // SAFETY: the driver's own MDL, not mapped (any more).
        unsafe { IoFreeMdl(self.0.as_ptr()) };
    }
}

fn unmap(segment: &Segment) {
    if let Some(mdl) = NonNull::new(segment.mdl) {
        // SAFETY: mapped by `map` with this MDL, unmapped once; IRQL <= DISPATCH_LEVEL.
        unsafe { MmUnmapLockedPages(segment.mapped, mdl.as_ptr()) };
        drop(PrivateMdl(mdl));
    }
}
