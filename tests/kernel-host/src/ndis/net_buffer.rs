//! NET_BUFFER_LISTs and NET_BUFFERs: their pools, their memory, and the accessors that NDIS exports.
//!
//! A list is as large as the running NDIS makes it, which is more than a driver's headers declare; list, buffer, MDL and data
//! lie in blocks of their own with guards behind them. What a fresh list contains is what NDIS puts there and nothing more:
//! with pool data the whole buffer is unused data space, so a driver sets offset and length itself.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Mutex;

use ndkpi_sys::ndis::{NDIS_OBJECT_HEADER, NET_BUFFER, NET_BUFFER_LIST, NET_BUFFER_LIST_POOL_PARAMETERS};

use super::attributes::{ExpectedHeader, check_header};
use super::loan::LoanedBytes;
use super::miniport::lock;
use super::rule::{Group, broken, live};
use super::{is_owner, ndis};
use crate::memory::mdl;
use crate::nt::MDL;

/// Size of a NET_BUFFER_LIST as a recent NDIS makes it: more information slots than a 6.60 driver has, and its own tail.
const LIST_SIZE: usize = 0x180;
const BUFFER_SIZE: usize = 0xB0;

/// A pool of NET_BUFFER_LISTs.
pub struct NetBufferPool {
    pub handle: usize,
    /// The miniport or miniport driver that it belongs to.
    pub owner: usize,
    parameters: NET_BUFFER_LIST_POOL_PARAMETERS,
    lists: Mutex<HashMap<usize, List>>,
}

// SAFETY: the parameters hold plain numbers.
unsafe impl Send for NetBufferPool {}
// SAFETY: as above; the rest is behind a lock.
unsafe impl Sync for NetBufferPool {}

/// One list with everything that was made for it.
pub struct List {
    memory: LoanedBytes,
    parts: Vec<BufferPart>,
}

/// A piece of data with its MDL.
struct BufferPart {
    mdl: *mut MDL,
    data: LoanedBytes,
}

// SAFETY: kernel memory of which any thread may dispose.
unsafe impl Send for BufferPart {}

impl Drop for BufferPart {
    fn drop(&mut self) {
        // SAFETY: made by `BufferPart::new` and freed once.
        unsafe { mdl::free(self.mdl) };
    }
}

impl BufferPart {
    fn new(bytes: &[u8]) -> Option<Self> {
        let data = LoanedBytes::copy_of(bytes);
        // SAFETY: the block is mapped non-paged memory of that length.
        let mdl = unsafe { mdl::allocate(data.as_pointer() as usize, bytes.len()) }?;
        // SAFETY: a fresh MDL over non-paged memory.
        unsafe { mdl::build_for_nonpaged_pool(mdl) };
        Some(Self { mdl, data })
    }
}

impl List {
    /// A list with one buffer whose data are these pieces, each behind an MDL of its own; all of it is used data.
    pub fn with_data(pieces: &[&[u8]], pool: usize) -> Option<Self> {
        Self::with_data_behind(pieces, 0, pool)
    }

    /// As [`Self::with_data`], with `unused` bytes at the start of the first piece that are no data.
    pub fn with_data_behind(pieces: &[&[u8]], unused: usize, pool: usize) -> Option<Self> {
        let parts = pieces.iter().map(|piece| BufferPart::new(piece)).collect::<Option<Vec<_>>>()?;
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let list = Self::bare(true, pool, parts);
        // SAFETY: the buffer lies in this list's memory.
        unsafe { list.describe(unused, length.saturating_sub(unused)) };
        Some(list)
    }

    /// The data may be read and not written from now on, where the host can see to that.
    pub fn lend_for_reading(&self) {
        self.parts.iter().for_each(|part| part.data.make_read_only());
    }

    /// Appends the buffers of other lists behind this one's. They still belong to those lists: the owner of this list keeps
    /// those as well.
    pub fn continue_with(&self, others: &[Self]) {
        let mut last = self.buffer();
        for other in others {
            // SAFETY: both lists have a buffer, which is the host's own and not handed out yet.
            unsafe { (*last).Next = other.buffer() };
            last = other.buffer();
        }
    }

    /// A list as a pool makes it.
    fn bare(with_buffer: bool, pool: usize, parts: Vec<BufferPart>) -> Self {
        let memory = LoanedBytes::filled(LIST_SIZE + if with_buffer { BUFFER_SIZE } else { 0 }, 0);
        let list = Self { memory, parts };
        let first = list.parts.first().map_or(std::ptr::null_mut(), |part| part.mdl);
        for pair in list.parts.windows(2) {
            // SAFETY: both MDLs are this list's own.
            unsafe { (*pair[0].mdl).Next = pair[1].mdl };
        }
        let pointer = list.pointer();
        // SAFETY: zeroed memory of the list's own, large enough for both structures.
        unsafe {
            (*pointer).NdisPoolHandle = pool as *mut c_void;
            if with_buffer {
                let buffer = list.buffer();
                (*pointer).FirstNetBuffer = buffer;
                (*buffer).NdisPoolHandle = pool as *mut c_void;
                (*buffer).MdlChain = first.cast();
                (*buffer).CurrentMdl = first.cast();
            }
        }
        list
    }

    /// Sets the used data of the buffer, which begins in the first MDL.
    unsafe fn describe(&self, offset: usize, length: usize) {
        let buffer = self.buffer();
        // SAFETY: the caller's list has a buffer.
        unsafe {
            (*buffer).DataOffset = offset as u32;
            (*buffer).CurrentMdlOffset = offset as u32;
            (*buffer).NbDataLength.DataLength = length as u32;
        }
    }

    #[must_use]
    pub fn pointer(&self) -> *mut NET_BUFFER_LIST {
        self.memory.as_pointer().cast()
    }

    fn buffer(&self) -> *mut NET_BUFFER {
        self.pointer().cast::<u8>().wrapping_add(LIST_SIZE).cast()
    }
}

impl NetBufferPool {
    fn allocate(&self) -> Option<*mut NET_BUFFER_LIST> {
        let data = self.parameters.DataSize as usize;
        let parts = if data == 0 { Vec::new() } else { vec![BufferPart::new(&vec![0xCD; data])?] };
        let list = List::bare(self.parameters.fAllocateNetBuffer != 0, self.handle, parts);
        if data != 0 {
            // SAFETY: a pool with data has buffers.
            unsafe { list.describe(data, 0) };
        }
        Some(self.keep(list))
    }

    fn allocate_over(&self, chain: *mut MDL, offset: u32, length: usize) -> *mut NET_BUFFER_LIST {
        let list = List::bare(true, self.handle, Vec::new());
        let (current, current_offset) = locate(chain, offset);
        let buffer = list.buffer();
        // SAFETY: the list's own buffer.
        unsafe {
            (*buffer).MdlChain = chain.cast();
            (*buffer).CurrentMdl = current.cast();
            (*buffer).CurrentMdlOffset = current_offset;
            (*buffer).DataOffset = offset;
            (*buffer).NbDataLength.stDataLength = length;
        }
        self.keep(list)
    }

    fn keep(&self, list: List) -> *mut NET_BUFFER_LIST {
        let pointer = list.pointer();
        lock(&self.lists).insert(pointer as usize, list);
        pointer
    }

    /// Whether the pool has given this list out and not got it back.
    #[must_use]
    pub fn owns(&self, list: *mut NET_BUFFER_LIST) -> bool {
        lock(&self.lists).contains_key(&(list as usize))
    }
}

/// The pool that a list belongs to, if it is a live one.
#[must_use]
pub fn pool_of(list: *mut NET_BUFFER_LIST) -> Option<std::sync::Arc<NetBufferPool>> {
    ndis().pools.all().into_iter().find(|pool| pool.owns(list))
}

/// The MDL in which byte `offset` of a chain lies, and the offset inside it.
fn locate(chain: *mut MDL, offset: u32) -> (*mut MDL, u32) {
    let (mut current, mut rest) = (chain, offset);
    while !current.is_null() {
        // SAFETY: a chain of live MDLs by contract.
        let (count, next) = unsafe { ((*current).ByteCount, (*current).Next) };
        if rest < count || next.is_null() {
            break;
        }
        rest -= count;
        current = next;
    }
    (current, rest)
}

/// The bytes of a buffer's used data; `None` when its MDLs do not hold them or are not mapped.
pub fn read_data(buffer: *mut NET_BUFFER) -> Option<Vec<u8>> {
    // SAFETY: a live NET_BUFFER by contract.
    let (mut current, offset, length) = unsafe {
        let buffer = &*buffer;
        (buffer.CurrentMdl.cast::<MDL>(), buffer.CurrentMdlOffset as usize, buffer.NbDataLength.DataLength as usize)
    };
    let mut bytes = Vec::with_capacity(length);
    let mut skip = offset;
    while bytes.len() < length {
        if current.is_null() {
            return None;
        }
        // SAFETY: a live MDL of the buffer's chain.
        let (count, address, next) =
            unsafe { ((*current).ByteCount as usize, system_address(current)?, (*current).Next) };
        let take = count.checked_sub(skip)?.min(length - bytes.len());
        // SAFETY: the MDL describes that many mapped bytes.
        bytes.extend((0..take).map(|index| unsafe { (address as *const u8).add(skip + index).read_volatile() }));
        skip = 0;
        current = next;
    }
    Some(bytes)
}

/// `MmGetSystemAddressForMdlSafe`: where the MDL is mapped, mapping it if it is not.
///
/// # Safety
///
/// `described` is a live MDL.
unsafe fn system_address(described: *mut MDL) -> Option<usize> {
    const MAPPED_OR_NONPAGED: i16 = 0x1 | 0x4;
    const NORMAL_PRIORITY: u32 = 16;
    // SAFETY: the caller's contract.
    unsafe {
        if (*described).MdlFlags & MAPPED_OR_NONPAGED != 0 {
            return Some((*described).MappedSystemVa as usize);
        }
        mdl::map(described, NORMAL_PRIORITY | mdl::MDL_MAPPING_NO_EXECUTE)
    }
}

fn check_pool_parameters(parameters: &NET_BUFFER_LIST_POOL_PARAMETERS) -> Result<(), String> {
    const NAME: &str = "NET_BUFFER_LIST_POOL_PARAMETERS";
    let header: NDIS_OBJECT_HEADER = parameters.Header;
    check_header(
        header,
        ExpectedHeader { structure: NAME, object_type: 0x80, revision: 1, size: 0x10, size_of: 0x10 },
    )?;
    if parameters.PoolTag == 0 {
        return Err(format!("{NAME}: PoolTag is 0"));
    }
    if !parameters.ContextSize.is_multiple_of(16) {
        return Err(format!(
            "{NAME}: ContextSize {} is no multiple of MEMORY_ALLOCATION_ALIGNMENT",
            parameters.ContextSize
        ));
    }
    if parameters.DataSize != 0 && parameters.fAllocateNetBuffer == 0 {
        return Err(format!("{NAME}: DataSize without fAllocateNetBuffer"));
    }
    Ok(())
}

fn pool(handle: *mut c_void, function: &str) -> std::sync::Arc<NetBufferPool> {
    live(ndis().pools.get(handle), function, "NET_BUFFER_LIST pool", handle)
}

crate::exports! {
    module "ndis.sys";

    /// Makes a pool of NET_BUFFER_LISTs.
    /// Checks: a live miniport or driver handle, object header, tag, context alignment, data only with buffers.
    /// Source: NDIS: NdisAllocateNetBufferListPool, NET_BUFFER_LIST_POOL_PARAMETERS
    [UP_TO_DISPATCH] fn NdisAllocateNetBufferListPool(
        owner: *mut c_void,
        parameters: *const NET_BUFFER_LIST_POOL_PARAMETERS,
    ) -> *mut c_void {
        if !is_owner(owner) {
            broken(Group::NetBuffer, owner as usize, "NdisAllocateNetBufferListPool: the handle is no live miniport or driver");
        }
        if parameters.is_null() {
            broken(Group::NetBuffer, owner as usize, "NdisAllocateNetBufferListPool: Parameters is NULL");
        }
        // SAFETY: not null; the driver's structure by contract.
        let parameters = unsafe { parameters.read_unaligned() };
        if let Err(rule) = check_pool_parameters(&parameters) {
            broken(Group::NetBuffer, owner as usize, format!("NdisAllocateNetBufferListPool: {rule}"));
        }
        if crate::fault::should_fail("NdisAllocateNetBufferListPool") {
            return std::ptr::null_mut();
        }
        let made = ndis().pools.insert_with(|handle| NetBufferPool {
            handle,
            owner: owner as usize,
            parameters,
            lists: Mutex::new(HashMap::new()),
        });
        made.handle as *mut c_void
    }

    /// Frees a pool.
    /// Checks: a live pool, every list of it freed.
    /// Source: NDIS: NdisFreeNetBufferListPool
    [UP_TO_DISPATCH] fn NdisFreeNetBufferListPool(handle: *mut c_void) {
        let pool = pool(handle, "NdisFreeNetBufferListPool");
        let left = lock(&pool.lists).len();
        if left != 0 {
            broken(Group::NetBuffer, pool.handle, format!("NdisFreeNetBufferListPool: {left} lists of the pool are not freed"));
        }
        let _ = ndis().pools.remove(handle);
    }

    /// Allocates a list, with buffer and data as the pool says.
    /// Checks: a live pool, context size and backfill multiples of 16.
    /// Source: NDIS: NdisAllocateNetBufferList
    [UP_TO_DISPATCH] fn NdisAllocateNetBufferList(handle: *mut c_void, context: u16, backfill: u16) -> *mut NET_BUFFER_LIST {
        let pool = pool(handle, "NdisAllocateNetBufferList");
        if !context.is_multiple_of(16) || !backfill.is_multiple_of(16) {
            broken(Group::NetBuffer, pool.handle, "NdisAllocateNetBufferList: context sizes are multiples of 16");
        }
        if crate::fault::should_fail("NdisAllocateNetBufferList") {
            return std::ptr::null_mut();
        }
        pool.allocate().unwrap_or(std::ptr::null_mut())
    }

    /// Allocates a list and a buffer over an MDL chain of the caller.
    /// Checks: a live pool with buffers and without data, the chain holds offset and length.
    /// Source: NDIS: NdisAllocateNetBufferAndNetBufferList
    [UP_TO_DISPATCH] fn NdisAllocateNetBufferAndNetBufferList(
        handle: *mut c_void,
        context: u16,
        backfill: u16,
        chain: *mut MDL,
        offset: u32,
        length: usize,
    ) -> *mut NET_BUFFER_LIST {
        let pool = pool(handle, "NdisAllocateNetBufferAndNetBufferList");
        if pool.parameters.fAllocateNetBuffer == 0 || pool.parameters.DataSize != 0 {
            let rule = "NdisAllocateNetBufferAndNetBufferList: the pool must have fAllocateNetBuffer and no DataSize";
            broken(Group::NetBuffer, pool.handle, rule);
        }
        if !context.is_multiple_of(16) || !backfill.is_multiple_of(16) {
            broken(Group::NetBuffer, pool.handle, "NdisAllocateNetBufferAndNetBufferList: context sizes are multiples of 16");
        }
        let held = chain_length(chain);
        if held < u64::from(offset) + length as u64 {
            let rule = format!("NdisAllocateNetBufferAndNetBufferList: the MDL chain holds {held} bytes, not {offset} + {length}");
            broken(Group::NetBuffer, pool.handle, rule);
        }
        if crate::fault::should_fail("NdisAllocateNetBufferAndNetBufferList") {
            return std::ptr::null_mut();
        }
        pool.allocate_over(chain, offset, length)
    }

    /// Frees a list with what its pool made for it.
    /// Checks: a list of a live pool, freed once, not indicated and not yet returned.
    /// Source: NDIS: NdisFreeNetBufferList
    [UP_TO_DISPATCH] fn NdisFreeNetBufferList(list: *mut NET_BUFFER_LIST) {
        let Some(pool) = pool_of(list) else {
            broken(Group::NetBuffer, list as usize, "NdisFreeNetBufferList: no list of a live pool (freed twice?)");
        };
        if ndis().miniports.all().iter().any(|miniport| miniport.data.holds(list)) {
            broken(Group::NetBuffer, list as usize, "NdisFreeNetBufferList: the list is indicated and not returned yet");
        }
        let freed = lock(&pool.lists).remove(&(list as usize));
        drop(freed);
    }

    /// Makes an MDL over non-paged memory.
    /// Checks: a live miniport or driver handle; those of IoAllocateMdl and MmBuildMdlForNonPagedPool.
    /// Source: NDIS: NdisAllocateMdl
    [UP_TO_DISPATCH] fn NdisAllocateMdl(owner: *mut c_void, address: *mut c_void, length: u32) -> *mut MDL {
        if !is_owner(owner) {
            broken(Group::NetBuffer, owner as usize, "NdisAllocateMdl: the handle is no live miniport or driver");
        }
        if crate::fault::should_fail("NdisAllocateMdl") {
            return std::ptr::null_mut();
        }
        // SAFETY: the driver says that the memory is its own and non-paged.
        let made = unsafe { mdl::allocate(address as usize, length as usize) };
        let Some(made) = made else { return std::ptr::null_mut() };
        // SAFETY: a fresh MDL.
        unsafe { mdl::build_for_nonpaged_pool(made) };
        crate::ledger::record("NDIS MDL", made as usize, format!("over {length} bytes"));
        made
    }

    /// Frees an MDL of NdisAllocateMdl.
    /// Checks: an MDL of NdisAllocateMdl, freed once.
    /// Source: NDIS: NdisFreeMdl
    [UP_TO_DISPATCH] fn NdisFreeMdl(made: *mut MDL) {
        if crate::ledger::release("NDIS MDL", made as usize).is_none() {
            broken(Group::NetBuffer, made as usize, "NdisFreeMdl: no live MDL of NdisAllocateMdl (freed twice?)");
        }
        // SAFETY: made by NdisAllocateMdl and freed once, as the ledger says.
        unsafe { mdl::free(made) };
    }

    /// The first bytes of a buffer's data, in place where they are contiguous and aligned, else copied to the storage.
    /// Checks: alignment arguments.
    /// Source: NDIS: NdisGetDataBuffer
    [UP_TO_DISPATCH] fn NdisGetDataBuffer(
        buffer: *mut NET_BUFFER,
        needed: u32,
        storage: *mut c_void,
        align_multiple: u32,
        align_offset: u32,
    ) -> *mut c_void {
        if !align_multiple.is_power_of_two() || align_offset >= align_multiple {
            broken(Group::NetBuffer, buffer as usize, "NdisGetDataBuffer: AlignMultiple is a power of two above AlignOffset");
        }
        if crate::fault::should_fail("NdisGetDataBuffer") {
            return std::ptr::null_mut();
        }
        let place = in_place(buffer, needed as usize);
        if let Some(place) = place.filter(|place| place % align_multiple as usize == align_offset as usize) {
            return place as *mut c_void;
        }
        let copied = read_data(buffer).filter(|bytes| bytes.len() >= needed as usize && !storage.is_null());
        let Some(bytes) = copied else { return std::ptr::null_mut() };
        // SAFETY: the storage holds the bytes that were asked for, by contract.
        unsafe { storage.cast::<u8>().copy_from(bytes.as_ptr(), needed as usize) };
        storage
    }

    /// Moves the start of used data back into unused data space; a new MDL in front is not modelled and answers RESOURCES.
    /// Source: NDIS: NdisRetreatNetBufferDataStart
    [UP_TO_DISPATCH] fn NdisRetreatNetBufferDataStart(
        buffer: *mut NET_BUFFER,
        delta: u32,
        _backfill: u32,
        _allocate: *mut c_void,
    ) -> i32 {
        // SAFETY: a live buffer by contract.
        let (offset, length, chain) = unsafe { ((*buffer).DataOffset, (*buffer).NbDataLength.DataLength, (*buffer).MdlChain) };
        let Some(offset) = offset.checked_sub(delta) else { return super::status::RESOURCES };
        let (current, current_offset) = locate(chain.cast(), offset);
        // SAFETY: as above.
        unsafe {
            (*buffer).DataOffset = offset;
            (*buffer).NbDataLength.DataLength = length.saturating_add(delta);
            (*buffer).CurrentMdl = current.cast();
            (*buffer).CurrentMdlOffset = current_offset;
        }
        super::status::SUCCESS
    }

    /// Moves the start of used data forward.
    /// Checks: not beyond the end of the data.
    /// Source: NDIS: NdisAdvanceNetBufferDataStart
    [UP_TO_DISPATCH] fn NdisAdvanceNetBufferDataStart(
        buffer: *mut NET_BUFFER,
        delta: u32,
        _free_mdl: u8,
        _free: *mut c_void,
    ) {
        // SAFETY: a live buffer by contract.
        let (offset, length, chain) = unsafe { ((*buffer).DataOffset, (*buffer).NbDataLength.DataLength, (*buffer).MdlChain) };
        let Some(length) = length.checked_sub(delta) else {
            broken(Group::NetBuffer, buffer as usize, "NdisAdvanceNetBufferDataStart: beyond the end of the data");
        };
        let (current, current_offset) = locate(chain.cast(), offset + delta);
        // SAFETY: as above.
        unsafe {
            (*buffer).DataOffset = offset + delta;
            (*buffer).NbDataLength.DataLength = length;
            (*buffer).CurrentMdl = current.cast();
            (*buffer).CurrentMdlOffset = current_offset;
        }
    }
}

fn chain_length(chain: *mut MDL) -> u64 {
    let (mut current, mut total) = (chain, 0);
    while !current.is_null() {
        // SAFETY: a chain of live MDLs by contract.
        let (count, next) = unsafe { ((*current).ByteCount, (*current).Next) };
        total += u64::from(count);
        current = next;
    }
    total
}

/// The address of the first `needed` bytes where one MDL holds them all.
fn in_place(buffer: *mut NET_BUFFER, needed: usize) -> Option<usize> {
    // SAFETY: a live NET_BUFFER by contract.
    let (current, offset, length) = unsafe {
        let buffer = &*buffer;
        (buffer.CurrentMdl.cast::<MDL>(), buffer.CurrentMdlOffset as usize, buffer.NbDataLength.DataLength as usize)
    };
    if needed > length || current.is_null() {
        return None;
    }
    // SAFETY: a live MDL of the buffer.
    let (count, address) = unsafe { ((*current).ByteCount as usize, system_address(current)?) };
    (offset.checked_add(needed)? <= count).then_some(address + offset)
}
