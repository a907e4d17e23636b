//! The user's buffer as a consumer's memory: memory lists over its parts, registrations, logical mappings.

use core::{ffi::c_void, mem::offset_of, ptr, ptr::NonNull};

use ndkpi_sys::{
    ndkpi::{
        NDK_ADAPTER, NDK_LOGICAL_ADDRESS, NDK_LOGICAL_ADDRESS_MAPPING, NDK_MR, NDK_MR_FLAGS, NDK_MW, NDK_OP_FLAGS,
        NDK_PD, NDK_RESULT_EX, NDK_SGE, NDK_SGE_ADDRESS,
    },
    nt::{PAGE_SIZE, STATUS_BUFFER_TOO_SMALL},
};
use softndk_ioctl::{BufferLayout, RegionKind, Status};
use softndk_kernel::{irp::Request, pool::PoolSlice};
use wdk_sys::{
    _MEMORY_CACHING_TYPE, _MM_PAGE_PRIORITY, _MODE, KPROCESSOR_MODE, MDL,
    ntddk::{IoAllocateMdl, IoBuildPartialMdl, IoFreeMdl, MmMapLockedPagesSpecifyCache, MmUnmapLockedPages},
};

use super::{
    consumer::{OpenedAdapter, Owned, Waiter, check},
    object::{FastRegistration, Handle},
    pair::Side,
    request::RequestWait,
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
        let list = MemoryList::try_new(address, length as u32)?;
        // SAFETY: `check_buffer` made sure that the span lies inside the locked buffer; our list has room for its frames.
        unsafe { IoBuildPartialMdl(self.mdl.as_ptr(), list.0.as_ptr(), address, length as u32) };
        Ok(Some(Part { list, base: start as u64, length }))
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

/// A memory list of our own, freed when dropped.
pub struct MemoryList(NonNull<MDL>);

impl MemoryList {
    /// For a span whose page frames are not known yet.
    pub fn try_new(address: *mut c_void, length: u32) -> Result<Self, Status> {
        // SAFETY: only reserves room for the page frames of this span; no IRP.
        let list = unsafe { IoAllocateMdl(address, length, 0, 0, ptr::null_mut()) };
        Ok(Self(NonNull::new(list).ok_or(Status::INSUFFICIENT_RESOURCES)?))
    }

    pub fn as_ptr(&self) -> *mut ndkpi_sys::nt::MDL {
        self.0.as_ptr().cast()
    }
}

impl Drop for MemoryList {
    fn drop(&mut self) {
        // SAFETY: our own list, not mapped any more.
        unsafe { IoFreeMdl(self.0.as_ptr()) };
    }
}

/// A part of the buffer.
pub struct Part {
    list: MemoryList,
    /// Address of the first byte in its process: a label.
    pub base: u64,
    pub length: u64,
}

impl Part {
    pub fn list(&self) -> *mut ndkpi_sys::nt::MDL {
        self.list.as_ptr()
    }

    /// The part in system address space.
    pub fn map(&self) -> Result<MappedPart<'_>, Status> {
        // SAFETY: our own list over locked pages; kernel mode never raises.
        let address = unsafe {
            MmMapLockedPagesSpecifyCache(
                self.list.0.as_ptr(),
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
        unsafe { MmUnmapLockedPages(self.address.as_ptr(), self.part.list.0.as_ptr()) };
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
        request_wait: &RequestWait<'_>,
    ) -> Result<Self, Status> {
        match kind {
            RegionKind::WINDOW if purpose.remote => Self::windowed(side, part, purpose, request_wait),
            RegionKind::REGISTERED | RegionKind::WINDOW => Self::whole(side, part, purpose),
            RegionKind::LOGICAL if !purpose.remote => Self::logical(side, part),
            _ => Self::fast_registered(side, part, purpose, request_wait),
        }
    }

    fn whole(side: &Side, part: &Part, purpose: Purpose) -> Result<Self, Status> {
        let flags = match (purpose.remote, purpose.written) {
            (true, true) => NDK_MR_FLAGS::ALLOW_REMOTE_WRITE,
            (true, false) => NDK_MR_FLAGS::ALLOW_REMOTE_READ,
            (false, true) => NDK_MR_FLAGS::ALLOW_LOCAL_WRITE,
            (false, false) => NDK_MR_FLAGS::ALLOW_LOCAL_READ,
        };
        let region = Owned::create(|done| side.domain.handle().create_memory_region(false, done))?;
        let list = (part.list(), part.length as usize);
        // SAFETY: the memory list stays as it is until the request is complete, and locked until the region is closed.
        Waiter::wait_for(|done| unsafe { region.handle().register(list, flags, done) })?;
        Ok(Self {
            window: None,
            local_token: region.handle().local_token(),
            remote_token: region.handle().remote_token(),
            address: part.base,
            region: Some(region),
            _mapping: None,
            fast: false,
        })
    }

    /// A region, and a window over all of it.
    fn windowed(side: &Side, part: &Part, purpose: Purpose, request_wait: &RequestWait<'_>) -> Result<Self, Status> {
        let whole = Self::whole(side, part, purpose)?;
        let region = whole.region.as_ref().ok_or(Status::INSUFFICIENT_RESOURCES)?.handle();
        let window = Owned::create(|done| side.domain.handle().create_memory_window(done))?;
        let flags = if purpose.written { NDK_OP_FLAGS::ALLOW_REMOTE_WRITE } else { NDK_OP_FLAGS::ALLOW_REMOTE_READ };
        let (queue_pair, length) = (side.queue_pair.handle(), part.length as usize);
        let status = queue_pair.bind(ptr::null_mut(), region, window.handle(), whole.address, length, flags);
        check(status)?;
        check(side.wait_for_one(request_wait)?.Status)?;
        let remote_token = window.handle().remote_token();
        Ok(Self { window: Some(window), remote_token, fast: true, ..whole })
    }

    fn logical(side: &Side, part: &Part) -> Result<Self, Status> {
        let mapping = LogicalMapping::try_new(&side.adapter, part.list(), part.length as usize)?;
        let address = mapping.contiguous().ok_or(Status::NOT_SUPPORTED)?;
        Ok(Self {
            window: None,
            region: None,
            _mapping: Some(mapping),
            address,
            local_token: side.domain.handle().privileged_token(),
            remote_token: 0,
            fast: false,
        })
    }

    fn fast_registered(
        side: &Side,
        part: &Part,
        purpose: Purpose,
        request_wait: &RequestWait<'_>,
    ) -> Result<Self, Status> {
        let mapping = LogicalMapping::try_new(&side.adapter, part.list(), part.length as usize)?;
        let region = initialised_region(&side.domain, mapping.pages().len() as u32, purpose.remote)?;
        let flags = match (purpose.remote, purpose.written) {
            (true, true) => NDK_OP_FLAGS::ALLOW_REMOTE_WRITE,
            (true, false) => NDK_OP_FLAGS::ALLOW_REMOTE_READ,
            (false, true) => NDK_OP_FLAGS::ALLOW_LOCAL_WRITE,
            (false, false) => NDK_OP_FLAGS::empty(),
        };
        let base = BASE + u64::from(mapping.first_byte_offset);
        let registration = FastRegistration {
            region: region.handle(),
            pages: mapping.pages(),
            first_byte_offset: mapping.first_byte_offset,
            length: part.length as usize,
            base,
        };
        // SAFETY: the mapping goes after the region.
        let status = unsafe { side.queue_pair.handle().fast_register(ptr::null_mut(), &registration, flags) };
        check(status)?;
        check(side.wait_for_one(request_wait)?.Status)?;
        Ok(Self {
            window: None,
            local_token: region.handle().local_token(),
            remote_token: region.handle().remote_token(),
            address: base,
            region: Some(region),
            _mapping: Some(mapping),
            fast: true,
        })
    }

    /// Invalidates a fast registration or a window through its own side's queue pair.
    pub fn invalidate(&self, side: &Side, request_wait: &RequestWait<'_>) -> Result<NDK_RESULT_EX, Status> {
        let (queue_pair, flags) = (side.queue_pair.handle(), NDK_OP_FLAGS::empty());
        let status = match (&self.window, &self.region) {
            (Some(window), _) => queue_pair.invalidate(ptr::null_mut(), window.handle(), flags),
            (None, Some(region)) => queue_pair.invalidate(ptr::null_mut(), region.handle(), flags),
            (None, None) => return Err(Status::INVALID_PARAMETER),
        };
        check(status)?;
        side.wait_for_one(request_wait)
    }
}

/// A region of a domain that is ready for fast registrations of so many pages.
pub fn initialised_region(domain: &Owned<NDK_PD>, pages: u32, remote: bool) -> Result<Owned<NDK_MR>, Status> {
    let region = Owned::create(|done| domain.handle().create_memory_region(true, done))?;
    Waiter::wait_for(|done| region.handle().initialize(pages, remote, done))?;
    Ok(region)
}

/// Logical addresses of a part, released when dropped.
pub struct LogicalMapping {
    /// The adapter, once there is something to release.
    adapter: Option<Handle<'static, NDK_ADAPTER>>,
    /// NDK_LOGICAL_ADDRESS_MAPPING: a word of the provider, the page count, the pages.
    words: PoolSlice<NDK_LOGICAL_ADDRESS>,
    pub first_byte_offset: u32,
}

impl LogicalMapping {
    pub fn try_new(adapter: &OpenedAdapter, list: *mut ndkpi_sys::nt::MDL, length: usize) -> Result<Self, Status> {
        let mut mapping = Self {
            adapter: None,
            words: PoolSlice::try_filled(tags::SESSION, 0, NDK_LOGICAL_ADDRESS::default())
                .map_err(|_| Status::INSUFFICIENT_RESOURCES)?,
            first_byte_offset: 0,
        };
        let mut needed = 0;
        let object = NonNull::new(adapter.handle().as_ptr()).ok_or(Status::INSUFFICIENT_RESOURCES)?;
        // SAFETY: a mapping goes before the close of its adapter.
        let adapter = unsafe { Handle::new(object) };
        let probe = mapping.build(adapter, list, length, &mut needed);
        if probe != STATUS_BUFFER_TOO_SMALL {
            return Err(Status(probe));
        }
        let words = (needed as usize).div_ceil(size_of::<NDK_LOGICAL_ADDRESS>());
        let filled = PoolSlice::try_filled(tags::SESSION, words, NDK_LOGICAL_ADDRESS::default());
        mapping.words = filled.map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        check(mapping.build(adapter, list, length, &mut needed))?;
        mapping.adapter = Some(adapter);
        Ok(mapping)
    }

    /// NdkBuildLAM.
    fn build(
        &mut self,
        adapter: Handle<'_, NDK_ADAPTER>,
        list: *mut ndkpi_sys::nt::MDL,
        length: usize,
        size: &mut u32,
    ) -> i32 {
        let offset = &mut self.first_byte_offset;
        // SAFETY: the words have at least `size` bytes; the list's memory is locked for longer than the mapping is there.
        unsafe { adapter.build_logical_mapping((list, length), &mut self.words, size, offset) }
    }

    pub fn pages(&self) -> &[NDK_LOGICAL_ADDRESS] {
        const HEAD: usize =
            offset_of!(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageArray) / size_of::<NDK_LOGICAL_ADDRESS>();
        self.words.get(HEAD..).unwrap_or(&[])
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
        if let Some(adapter) = self.adapter.take() {
            // SAFETY: a mapping of this adapter, released once and after everything that used it.
            unsafe { adapter.release_logical_mapping(&mut self.words) };
        }
    }
}
