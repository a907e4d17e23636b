//! The user's buffer as a consumer's memory: memory lists over its parts, registrations, logical mappings.

use core::{ffi::c_void, mem::offset_of, ptr, ptr::NonNull};

use ndkpi_sys::{
    ndkpi::{
        NDK_ADAPTER, NDK_FN_RELEASE_LAM, NDK_LOGICAL_ADDRESS, NDK_LOGICAL_ADDRESS_MAPPING, NDK_MR, NDK_MR_FLAGS,
        NDK_MW, NDK_OP_FLAGS, NDK_RESULT_EX, NDK_SGE, NDK_SGE_ADDRESS,
    },
    nt::{PAGE_SIZE, STATUS_BUFFER_TOO_SMALL, TRUE},
};
use softndk_ioctl::{BufferLayout, RegionKind, Status};
use softndk_kernel::{irp::Request, pool::PoolSlice};
use wdk_sys::{
    _MEMORY_CACHING_TYPE, _MM_PAGE_PRIORITY, _MODE, KPROCESSOR_MODE, MDL,
    ntddk::{IoAllocateMdl, IoBuildPartialMdl, IoFreeMdl, MmMapLockedPagesSpecifyCache, MmUnmapLockedPages},
};

use super::{
    consumer::{self, OpenedAdapter, Owned, Waiter, check, completion},
    pair::Side,
    request::Patience,
};
use crate::tags;

/// `MdlMappingNoExecute`.
const MAPPING_NO_EXECUTE: u32 = 0x4000_0000;

/// The label a fast registration gives its first byte.
const BASE: u64 = 0x5EED_0000_0000;

/// The locked second buffer of a direct request.
pub struct UserBuffer {
    mdl: NonNull<MDL>,
    /// Address of the first byte in its process: a label.
    start: usize,
}

impl UserBuffer {
    /// Checks the buffer of a request against a layout.
    pub fn of(request: &Request, layout: &BufferLayout) -> Result<Self, Status> {
        let Some(mdl) = NonNull::new(request.mdl()) else {
            // No buffer: it cannot hold the result page.
            return Err(Status::BUFFER_TOO_SMALL);
        };
        // SAFETY: the I/O manager's memory list lives as long as the request; a copy, because mapping a list writes it.
        let list = unsafe { mdl.as_ptr().read_volatile() };
        layout.check_buffer(u64::from(list.ByteOffset), u64::from(list.ByteCount))?;
        Ok(Self { mdl, start: list.StartVa.addr().wrapping_add(list.ByteOffset as usize) })
    }

    /// A part of the buffer; nothing for no bytes.
    pub fn part(&self, offset: u64, length: u64) -> Result<Option<Part>, Status> {
        if length == 0 {
            return Ok(None);
        }
        let start = self.start.wrapping_add(offset as usize);
        let address: *mut c_void = ptr::without_provenance_mut(start);
        // SAFETY: only reserves room for the page frames of this span; no IRP.
        let part = unsafe { IoAllocateMdl(address, length as u32, 0, 0, ptr::null_mut()) };
        let part = NonNull::new(part).ok_or(Status::INSUFFICIENT_RESOURCES)?;
        // SAFETY: `check_buffer` made sure that the span lies inside the locked buffer; our list has room for its frames.
        unsafe { IoBuildPartialMdl(self.mdl.as_ptr(), part.as_ptr(), address, length as u32) };
        Ok(Some(Part { mdl: part, base: start as u64, length }))
    }

    /// Writes the result page.
    pub fn write_result(&self, bytes: &[u8]) -> Result<(), Status> {
        let page = self.part(0, softndk_ioctl::RESULT_LENGTH)?.ok_or(Status::BUFFER_TOO_SMALL)?;
        let mapped = page.map()?;
        let length = bytes.len().min(PAGE_SIZE);
        // SAFETY: one whole page is mapped and writable.
        unsafe { mapped.address().write_bytes(0, PAGE_SIZE) };
        // SAFETY: `length` is at most a page; the page is not our own memory.
        unsafe { mapped.address().copy_from_nonoverlapping(bytes.as_ptr(), length) };
        Ok(())
    }
}

/// A memory list of our own over a part of the buffer.
pub struct Part {
    mdl: NonNull<MDL>,
    /// Address of the first byte in its process: a label.
    pub base: u64,
    pub length: u64,
}

impl Part {
    pub fn list(&self) -> *mut ndkpi_sys::nt::MDL {
        self.mdl.as_ptr().cast()
    }

    /// The part in system address space.
    pub fn map(&self) -> Result<MappedPart<'_>, Status> {
        // SAFETY: our own list over locked pages; kernel mode never raises.
        let address = unsafe {
            MmMapLockedPagesSpecifyCache(
                self.mdl.as_ptr(),
                _MODE::KernelMode as KPROCESSOR_MODE,
                _MEMORY_CACHING_TYPE::MmCached,
                ptr::null_mut(),
                0,
                _MM_PAGE_PRIORITY::NormalPagePriority as u32 | MAPPING_NO_EXECUTE,
            )
        };
        let address = NonNull::new(address).ok_or(Status::INSUFFICIENT_RESOURCES)?;
        Ok(MappedPart { part: self, address })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // SAFETY: our own list, not mapped any more.
        unsafe { IoFreeMdl(self.mdl.as_ptr()) };
    }
}

/// A mapped part.
pub struct MappedPart<'a> {
    part: &'a Part,
    address: NonNull<c_void>,
}

impl MappedPart<'_> {
    pub fn address(&self) -> *mut u8 {
        self.address.as_ptr().cast()
    }
}

impl Drop for MappedPart<'_> {
    fn drop(&mut self) {
        // SAFETY: mapped with this list, unmapped once.
        unsafe { MmUnmapLockedPages(self.address.as_ptr(), self.part.mdl.as_ptr()) };
    }
}

/// What the memory is for.
#[derive(Clone, Copy)]
pub struct Purpose {
    /// The adapter writes into it.
    pub written: bool,
    /// The peer addresses it.
    pub remote: bool,
}

/// Memory the adapter knows: where it begins and under which tokens.
pub struct Registered {
    /// Closed before the region it is bound to.
    window: Option<Owned<NDK_MW>>,
    /// Closed before the mapping that its pages come from goes.
    region: Option<Owned<NDK_MR>>,
    _mapping: Option<LogicalMapping>,
    pub address: u64,
    pub local_token: u32,
    pub remote_token: u32,
    /// Fast-registered or bound, so it is invalidated in the end.
    pub fast: bool,
}

impl Registered {
    /// For transfers without data.
    pub const NOTHING: Self =
        Self { window: None, region: None, _mapping: None, address: 0, local_token: 0, remote_token: 0, fast: false };

    pub fn region(&self) -> Option<*mut NDK_MR> {
        self.region.as_ref().map(Owned::as_ptr)
    }

    /// One element over `length` bytes from `offset`.
    pub fn sge(&self, offset: u64, length: u32) -> NDK_SGE {
        let address: *mut c_void = ptr::with_exposed_provenance_mut((self.address + offset) as usize);
        NDK_SGE {
            Address: NDK_SGE_ADDRESS { VirtualAddress: address },
            Length: length,
            MemoryRegionToken: self.local_token,
        }
    }

    /// Makes a part known to the adapter in one of the ways.
    pub fn try_new(
        side: &Side,
        part: &Part,
        kind: RegionKind,
        purpose: Purpose,
        patience: &Patience<'_>,
    ) -> Result<Self, Status> {
        match kind {
            RegionKind::WINDOW if purpose.remote => Self::windowed(side, part, purpose, patience),
            RegionKind::REGISTERED | RegionKind::WINDOW => Self::whole(side, part, purpose),
            RegionKind::LOGICAL if !purpose.remote => Self::logical(side, part),
            _ => Self::fast_registered(side, part, purpose, patience),
        }
    }

    fn whole(side: &Side, part: &Part, purpose: Purpose) -> Result<Self, Status> {
        let flags = match (purpose.remote, purpose.written) {
            (true, true) => NDK_MR_FLAGS::ALLOW_REMOTE_WRITE,
            (true, false) => NDK_MR_FLAGS::ALLOW_REMOTE_READ,
            (false, true) => NDK_MR_FLAGS::ALLOW_LOCAL_WRITE,
            (false, false) => NDK_MR_FLAGS::ALLOW_LOCAL_READ,
        };
        let waiter = Waiter::try_new()?;
        let region = consumer::create_memory_region(&side.domain, false)?;
        let (done, context) = completion(&waiter);
        // SAFETY: NDKPI: NDK_FN_REGISTER_MR; the memory list stays as it is until the request is complete.
        let status = unsafe {
            (region.table().NdkRegisterMr)(region.as_ptr(), part.list(), part.length as usize, flags, done, context)
        };
        check(waiter.finish(status))?;
        Ok(Self {
            window: None,
            // SAFETY: NDKPI: NDK_FN_GET_LOCAL_TOKEN_FROM_MR of a registered region.
            local_token: unsafe { (region.table().NdkGetLocalTokenFromMr)(region.as_ptr()) },
            // SAFETY: NDKPI: NDK_FN_GET_REMOTE_TOKEN_FROM_MR of a registered region.
            remote_token: unsafe { (region.table().NdkGetRemoteTokenFromMr)(region.as_ptr()) },
            address: part.base,
            region: Some(region),
            _mapping: None,
            fast: false,
        })
    }

    /// A region, and a window over all of it.
    fn windowed(side: &Side, part: &Part, purpose: Purpose, patience: &Patience<'_>) -> Result<Self, Status> {
        let whole = Self::whole(side, part, purpose)?;
        let region = whole.region().ok_or(Status::INSUFFICIENT_RESOURCES)?;
        let window = consumer::create_memory_window(&side.domain)?;
        let flags = if purpose.written { NDK_OP_FLAGS::ALLOW_REMOTE_WRITE } else { NDK_OP_FLAGS::ALLOW_REMOTE_READ };
        let queue_pair = &side.queue_pair;
        let label = ptr::without_provenance_mut(whole.address as usize);
        // SAFETY: NDKPI: NDK_FN_BIND of a window and a region of the queue pair's protection domain.
        let status = unsafe {
            (queue_pair.table().NdkBind)(
                queue_pair.as_ptr(),
                ptr::null_mut(),
                region,
                window.as_ptr(),
                label,
                part.length as usize,
                flags,
            )
        };
        check(status)?;
        check(side.wait_for_one(patience)?.Status)?;
        // SAFETY: NDKPI: NDK_FN_GET_REMOTE_TOKEN_FROM_MW of a bound window.
        let remote_token = unsafe { (window.table().NdkGetRemoteTokenFromMw)(window.as_ptr()) };
        Ok(Self { window: Some(window), remote_token, fast: true, ..whole })
    }

    fn logical(side: &Side, part: &Part) -> Result<Self, Status> {
        let mapping = LogicalMapping::try_new(&side.adapter, part.list(), part.length as usize)?;
        let address = mapping.contiguous().ok_or(Status::NOT_SUPPORTED)?;
        let domain = &side.domain;
        let mut token = 0;
        // SAFETY: NDKPI: NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN with a place for the token.
        unsafe { (domain.table().NdkGetPrivilegedMemoryRegionToken)(domain.as_ptr(), &raw mut token) };
        Ok(Self {
            window: None,
            region: None,
            _mapping: Some(mapping),
            address,
            local_token: token,
            remote_token: 0,
            fast: false,
        })
    }

    fn fast_registered(side: &Side, part: &Part, purpose: Purpose, patience: &Patience<'_>) -> Result<Self, Status> {
        let mapping = LogicalMapping::try_new(&side.adapter, part.list(), part.length as usize)?;
        let waiter = Waiter::try_new()?;
        let region = consumer::create_memory_region(&side.domain, true)?;
        let pages = mapping.pages();
        let (done, context) = completion(&waiter);
        // SAFETY: NDKPI: NDK_FN_INITIALIZE_FAST_REGISTER_MR.
        let status = unsafe {
            (region.table().NdkInitializeFastRegisterMr)(
                region.as_ptr(),
                pages.len() as u32,
                u8::from(purpose.remote) * TRUE,
                done,
                context,
            )
        };
        check(waiter.finish(status))?;
        let flags = match (purpose.remote, purpose.written) {
            (true, true) => NDK_OP_FLAGS::ALLOW_REMOTE_WRITE,
            (true, false) => NDK_OP_FLAGS::ALLOW_REMOTE_READ,
            (false, true) => NDK_OP_FLAGS::ALLOW_LOCAL_WRITE,
            (false, false) => NDK_OP_FLAGS::empty(),
        };
        let base = BASE + u64::from(mapping.first_byte_offset);
        let queue_pair = &side.queue_pair;
        // SAFETY: NDKPI: NDK_FN_FAST_REGISTER with a page list that stays as it is for the call.
        let status = unsafe {
            (queue_pair.table().NdkFastRegister)(
                queue_pair.as_ptr(),
                ptr::null_mut(),
                region.as_ptr(),
                pages.len() as u32,
                pages.as_ptr(),
                mapping.first_byte_offset,
                part.length as usize,
                ptr::without_provenance_mut(base as usize),
                flags,
            )
        };
        check(status)?;
        check(side.wait_for_one(patience)?.Status)?;
        Ok(Self {
            window: None,
            // SAFETY: NDKPI: NDK_FN_GET_LOCAL_TOKEN_FROM_MR of an initialised region.
            local_token: unsafe { (region.table().NdkGetLocalTokenFromMr)(region.as_ptr()) },
            // SAFETY: NDKPI: NDK_FN_GET_REMOTE_TOKEN_FROM_MR of an initialised region.
            remote_token: unsafe { (region.table().NdkGetRemoteTokenFromMr)(region.as_ptr()) },
            address: base,
            region: Some(region),
            _mapping: Some(mapping),
            fast: true,
        })
    }

    /// Invalidates a fast registration or a window through its own side's queue pair.
    pub fn invalidate(&self, side: &Side, patience: &Patience<'_>) -> Result<NDK_RESULT_EX, Status> {
        let window = self.window.as_ref().map(|window| window.as_ptr().cast());
        let target = window.or_else(|| self.region().map(<*mut _>::cast)).ok_or(Status::INVALID_PARAMETER)?;
        let queue_pair = &side.queue_pair;
        // SAFETY: NDKPI: NDK_FN_INVALIDATE of a window or region of the same protection domain.
        let status = unsafe {
            (queue_pair.table().NdkInvalidate)(queue_pair.as_ptr(), ptr::null_mut(), target, NDK_OP_FLAGS::empty())
        };
        check(status)?;
        side.wait_for_one(patience)
    }
}

/// Logical addresses of a part, released when dropped.
pub struct LogicalMapping {
    /// The adapter and its release function, once there is something to release.
    release: Option<(NDK_FN_RELEASE_LAM, *mut NDK_ADAPTER)>,
    /// NDK_LOGICAL_ADDRESS_MAPPING: a word of the provider, the page count, the pages.
    words: PoolSlice<u64>,
    pub first_byte_offset: u32,
}

impl LogicalMapping {
    pub fn try_new(adapter: &OpenedAdapter, list: *mut ndkpi_sys::nt::MDL, length: usize) -> Result<Self, Status> {
        let mut mapping = Self {
            release: None,
            words: PoolSlice::try_filled(tags::SESSION, 0, 0).map_err(|_| Status::INSUFFICIENT_RESOURCES)?,
            first_byte_offset: 0,
        };
        let mut needed = 0;
        let probe = mapping.build(adapter, list, length, &mut needed);
        if probe != STATUS_BUFFER_TOO_SMALL {
            return Err(Status(probe));
        }
        let words = (needed as usize).div_ceil(size_of::<u64>());
        mapping.words = PoolSlice::try_filled(tags::SESSION, words, 0).map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        check(mapping.build(adapter, list, length, &mut needed))?;
        mapping.release = Some((adapter.table().NdkReleaseLAM, adapter.as_ptr()));
        Ok(mapping)
    }

    /// NdkBuildLAM without a completion, so inline.
    fn build(
        &mut self,
        adapter: &OpenedAdapter,
        list: *mut ndkpi_sys::nt::MDL,
        length: usize,
        capacity: &mut u32,
    ) -> i32 {
        let space = size_of_val(&*self.words);
        let place = if space == 0 { ptr::null_mut() } else { self.words.as_mut_ptr() };
        // SAFETY: NDKPI: NDK_FN_BUILD_LAM with a buffer of `capacity` bytes.
        unsafe {
            (adapter.table().NdkBuildLAM)(
                adapter.as_ptr(),
                list,
                length,
                None,
                ptr::null_mut(),
                place.cast(),
                capacity,
                &raw mut self.first_byte_offset,
            )
        }
    }

    pub fn pages(&self) -> &[NDK_LOGICAL_ADDRESS] {
        const HEAD: usize = offset_of!(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageArray) / size_of::<u64>();
        let words = self.words.get(HEAD..).unwrap_or(&[]);
        // SAFETY: a logical address is one 64-bit word.
        unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
    }

    /// The address of the first byte, if each page follows the one before.
    fn contiguous(&self) -> Option<u64> {
        let pages = self.pages();
        let follows = pages.windows(2).all(
            |pair| matches!(pair, [first, second] if first.QuadPart.wrapping_add(PAGE_SIZE as i64) == second.QuadPart),
        );
        let first = pages.first()?.QuadPart.cast_unsigned();
        first.checked_add(u64::from(self.first_byte_offset)).filter(|_| follows)
    }
}

impl Drop for LogicalMapping {
    fn drop(&mut self) {
        if let Some((release, adapter)) = self.release.take() {
            // SAFETY: NDKPI: NDK_FN_RELEASE_LAM of a mapping of this adapter, once, after everything that used it.
            unsafe { release(adapter, self.words.as_mut_ptr().cast()) };
        }
    }
}
