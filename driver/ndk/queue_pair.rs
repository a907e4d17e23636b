//! The dispatch table of a queue pair: posting work.
//!
//! Every function reads the same way: find the queue pair, decode flags and SGEs, hand them to the engine. A post that is
//! refused here makes the engine process the requests it holds back, as NDKPI requires of any inline failure.

use core::{ffi::c_void, slice};

use ndkpi_sys::{
    ndkpi::{
        NDK_LOGICAL_ADDRESS, NDK_MR, NDK_MW, NDK_OBJECT_HEADER, NDK_OBJECT_TYPE, NDK_OP_FLAG_REMOTE_WRITE_BIT,
        NDK_OP_FLAGS, NDK_QP, NDK_QP_DISPATCH, NDK_SGE, NdkObjectTypeMr, NdkObjectTypeMw, NdkObjectTypeQp,
    },
    nt::{NTSTATUS, PVOID, SIZE_T, STATUS_SUCCESS, UINT32, UINT64, ULONG},
};
use softndk_engine::{
    Close, FastRegistration, Hold, LogicalAddress, MemoryToken, PostError, QueuePair, RequestFlags, Rights, Sge,
};
use softndk_ioctl::NdkCall;
use softndk_kernel::pool::{PoolBox, Tag};

use super::{
    adapter::query_extension,
    consumer_object::{self, CloseCallback, ConsumerObject, Kind, Object},
    memory_region::MemoryRegionKind,
    memory_window::MemoryWindowKind,
};
use crate::{
    platform::KernelPlatform,
    refusal::{Nothing, Refusal, refuse},
    tags,
};

static DISPATCH: NDK_QP_DISPATCH = NDK_QP_DISPATCH {
    NdkCloseQp: consumer_object::close::<QueuePairKind>,
    NdkQueryExtension: query_extension,
    NdkFlush: flush,
    NdkSend: send,
    NdkReceive: receive,
    NdkBind: bind,
    NdkFastRegister: fast_register,
    NdkInvalidate: invalidate,
    NdkRead: read,
    NdkWrite: write,
    NdkSendAndInvalidate: send_and_invalidate,
};

pub struct QueuePairKind;

impl Kind for QueuePairKind {
    type Visible = NDK_QP;
    type Handle = QueuePair<KernelPlatform>;

    const TYPE: NDK_OBJECT_TYPE = NdkObjectTypeQp;
    const TAG: Tag = tags::QUEUE_PAIR;

    fn visible(header: NDK_OBJECT_HEADER) -> NDK_QP {
        NDK_QP { Header: header, Dispatch: &raw const DISPATCH }
    }

    fn consumer_object(object: PoolBox<Object<Self>>) -> ConsumerObject {
        ConsumerObject::QueuePair(object)
    }

    fn close(handle: &Self::Handle, callback: CloseCallback) -> Close<KernelPlatform> {
        handle.close(callback)
    }

    fn hold(handle: &Self::Handle) -> Hold<KernelPlatform> {
        handle.hold()
    }
}

/// The flags of a work request, taken apart; `None` if there is one this operation does not have.
///
/// NDKPI: flags of several bits are compared whole; RDMA_READ_SINK and the rights belong to fast registrations.
fn request_flags(flags: NDK_OP_FLAGS) -> Option<RequestFlags> {
    let pairs = [
        (NDK_OP_FLAGS::SILENT_SUCCESS, RequestFlags::SILENT_SUCCESS),
        (NDK_OP_FLAGS::READ_FENCE, RequestFlags::READ_FENCE),
        (NDK_OP_FLAGS::SEND_AND_SOLICIT_EVENT, RequestFlags::SOLICIT),
        (NDK_OP_FLAGS::INLINE, RequestFlags::INLINE),
        (NDK_OP_FLAGS::DEFER, RequestFlags::DEFER),
        (NDK_OP_FLAGS::RDMA_READ_LOCAL_INVALIDATE, RequestFlags::LOCAL_INVALIDATE),
    ];
    let mut rest = flags.bits();
    let mut taken = RequestFlags::empty();
    for (theirs, ours) in pairs {
        if rest & theirs.bits() != 0 {
            taken |= ours;
            rest &= !theirs.bits();
        }
    }
    (rest == 0).then_some(taken)
}

/// The rights a fast registration grants, and its other flags.
fn registration_flags(flags: NDK_OP_FLAGS) -> Option<(RequestFlags, Rights)> {
    let mut rights = Rights::empty();
    rights.set(Rights::REMOTE_READ, flags.contains(NDK_OP_FLAGS::ALLOW_REMOTE_READ));
    rights.set(Rights::LOCAL_WRITE, flags.contains(NDK_OP_FLAGS::ALLOW_LOCAL_WRITE));
    rights.set(Rights::REMOTE_WRITE, flags.contains(NDK_OP_FLAGS::ALLOW_REMOTE_WRITE));
    if flags.bits() & NDK_OP_FLAG_REMOTE_WRITE_BIT != 0 && !rights.contains(Rights::REMOTE_WRITE) {
        return None;
    }
    let of_registrations = NDK_OP_FLAGS::ALLOW_REMOTE_READ
        | NDK_OP_FLAGS::ALLOW_LOCAL_WRITE
        | NDK_OP_FLAGS::ALLOW_REMOTE_WRITE
        | NDK_OP_FLAGS::RDMA_READ_SINK;
    Some((request_flags(flags.difference(of_registrations))?, rights))
}

/// The rights a window grants, and its other flags. Local write is the region's to grant: alone it makes no sense here.
fn window_flags(flags: NDK_OP_FLAGS) -> Option<(RequestFlags, Rights)> {
    let (flags, rights) = registration_flags(flags)?;
    let local_only = rights == Rights::LOCAL_WRITE;
    (!local_only).then_some((flags, rights))
}

/// The consumer's scatter/gather list; `None` for a null list with a nonzero count.
///
/// # Safety
/// `list` is null or has `count` SGEs that stay as they are during the call.
pub unsafe fn sges<'a>(list: *const NDK_SGE, count: ULONG) -> Option<&'a [NDK_SGE]> {
    if count == 0 {
        return Some(&[]);
    }
    if list.is_null() || !list.is_aligned() {
        return None;
    }
    // SAFETY: the consumer's array for the length of the call.
    Some(unsafe { slice::from_raw_parts(list, count as usize) })
}

pub fn sge(entry: &NDK_SGE) -> Sge {
    Sge { address: entry.Address.value(), length: entry.Length, token: MemoryToken(entry.MemoryRegionToken) }
}

/// A consumer's context as the number the engine keeps.
pub fn word(context: *mut c_void) -> u64 {
    context.expose_provenance() as u64
}

fn result(call: NdkCall, queue_pair: &QueuePair<KernelPlatform>, posted: Result<(), PostError>) -> NTSTATUS {
    posted.map_or_else(|cause| refuse(call, queue_pair, cause), |()| STATUS_SUCCESS)
}

/// A post refused before the engine saw it.
fn refuse_early(call: NdkCall, queue_pair: &QueuePair<KernelPlatform>, refusal: Refusal) -> NTSTATUS {
    queue_pair.schedule_held();
    refuse(call, queue_pair, refusal)
}

/// What is wrong with flags or a list of which one is.
fn flags_or_list(flags_are_good: bool) -> Refusal {
    if flags_are_good { Refusal::NO_LIST } else { Refusal::UNKNOWN_FLAGS }
}

/// NDKPI: NDK_FN_FLUSH.
unsafe extern "C" fn flush(queue_pair: *mut NDK_QP) {
    // SAFETY: the consumer passes a queue pair of this provider.
    if let Some(queue_pair) = unsafe { consumer_object::handle::<QueuePairKind>(queue_pair) } {
        queue_pair.flush();
    }
}

/// NDKPI: NDK_FN_SEND.
unsafe extern "C" fn send(
    queue_pair: *mut NDK_QP,
    context: PVOID,
    list: *const NDK_SGE,
    count: ULONG,
    flags: NDK_OP_FLAGS,
) -> NTSTATUS {
    // SAFETY: the consumer passes a queue pair of this provider.
    let Some(queue_pair) = (unsafe { consumer_object::handle::<QueuePairKind>(queue_pair) }) else {
        return refuse(NdkCall::SEND, &Nothing, Refusal::NO_OBJECT);
    };
    // SAFETY: the consumer's list for the length of the call.
    let (Some(flags), Some(list)) = (request_flags(flags), unsafe { sges(list, count) }) else {
        return refuse_early(NdkCall::SEND, queue_pair, flags_or_list(request_flags(flags).is_some()));
    };
    result(NdkCall::SEND, queue_pair, queue_pair.send(word(context), flags, list.iter().map(sge)))
}

/// NDKPI: NDK_FN_SEND_AND_INVALIDATE.
unsafe extern "C" fn send_and_invalidate(
    queue_pair: *mut NDK_QP,
    context: PVOID,
    list: *const NDK_SGE,
    count: ULONG,
    flags: NDK_OP_FLAGS,
    token: UINT32,
) -> NTSTATUS {
    // SAFETY: the consumer passes a queue pair of this provider.
    let Some(queue_pair) = (unsafe { consumer_object::handle::<QueuePairKind>(queue_pair) }) else {
        return refuse(NdkCall::SEND_AND_INVALIDATE, &Nothing, Refusal::NO_OBJECT);
    };
    // SAFETY: the consumer's list for the length of the call.
    let (Some(flags), Some(list)) = (request_flags(flags), unsafe { sges(list, count) }) else {
        return refuse_early(NdkCall::SEND_AND_INVALIDATE, queue_pair, flags_or_list(request_flags(flags).is_some()));
    };
    result(
        NdkCall::SEND_AND_INVALIDATE,
        queue_pair,
        queue_pair.send_and_invalidate(word(context), flags, list.iter().map(sge), MemoryToken(token)),
    )
}

/// NDKPI: NDK_FN_RECEIVE.
unsafe extern "C" fn receive(queue_pair: *mut NDK_QP, context: PVOID, list: *const NDK_SGE, count: ULONG) -> NTSTATUS {
    // SAFETY: the consumer passes a queue pair of this provider.
    let Some(queue_pair) = (unsafe { consumer_object::handle::<QueuePairKind>(queue_pair) }) else {
        return refuse(NdkCall::RECEIVE, &Nothing, Refusal::NO_OBJECT);
    };
    // SAFETY: the consumer's list for the length of the call.
    let Some(list) = (unsafe { sges(list, count) }) else {
        return refuse(NdkCall::RECEIVE, queue_pair, Refusal::NO_LIST);
    };
    result(NdkCall::RECEIVE, queue_pair, queue_pair.receive(word(context), list.iter().map(sge)))
}

/// The arguments of a Read or Write.
struct Transfer<'a> {
    queue_pair: &'a QueuePair<KernelPlatform>,
    flags: RequestFlags,
    list: &'a [NDK_SGE],
}

/// The argument checks of Read and Write, which are the same.
///
/// # Safety
/// As NDK_FN_READ: a queue pair of this provider that is not closed, and a list that stays as it is during the call.
unsafe fn transfer<'a>(
    call: NdkCall,
    queue_pair: *mut NDK_QP,
    list: *const NDK_SGE,
    count: ULONG,
    flags: NDK_OP_FLAGS,
) -> Result<Transfer<'a>, NTSTATUS> {
    // SAFETY: the caller's promise.
    let queue_pair = unsafe { consumer_object::handle::<QueuePairKind>(queue_pair) };
    let Some(queue_pair) = queue_pair else { return Err(refuse(call, &Nothing, Refusal::NO_OBJECT)) };
    // SAFETY: the caller's promise.
    match (request_flags(flags), unsafe { sges(list, count) }) {
        (Some(flags), Some(list)) => Ok(Transfer { queue_pair, flags, list }),
        (flags, _) => Err(refuse_early(call, queue_pair, flags_or_list(flags.is_some()))),
    }
}

/// NDKPI: NDK_FN_READ.
unsafe extern "C" fn read(
    queue_pair: *mut NDK_QP,
    context: PVOID,
    list: *const NDK_SGE,
    count: ULONG,
    address: UINT64,
    token: UINT32,
    flags: NDK_OP_FLAGS,
) -> NTSTATUS {
    // SAFETY: what the consumer passes is what `transfer` wants.
    match unsafe { transfer(NdkCall::READ, queue_pair, list, count, flags) } {
        Ok(Transfer { queue_pair, flags, list }) => result(
            NdkCall::READ,
            queue_pair,
            queue_pair.read(word(context), flags, list.iter().map(sge), address, MemoryToken(token)),
        ),
        Err(status) => status,
    }
}

/// NDKPI: NDK_FN_WRITE.
unsafe extern "C" fn write(
    queue_pair: *mut NDK_QP,
    context: PVOID,
    list: *const NDK_SGE,
    count: ULONG,
    address: UINT64,
    token: UINT32,
    flags: NDK_OP_FLAGS,
) -> NTSTATUS {
    // SAFETY: what the consumer passes is what `transfer` wants.
    match unsafe { transfer(NdkCall::WRITE, queue_pair, list, count, flags) } {
        Ok(Transfer { queue_pair, flags, list }) => result(
            NdkCall::WRITE,
            queue_pair,
            queue_pair.write(word(context), flags, list.iter().map(sge), address, MemoryToken(token)),
        ),
        Err(status) => status,
    }
}

/// NDKPI: NDK_FN_BIND.
unsafe extern "C" fn bind(
    queue_pair: *mut NDK_QP,
    context: PVOID,
    region: *mut NDK_MR,
    window: *mut NDK_MW,
    address: PVOID,
    length: SIZE_T,
    flags: NDK_OP_FLAGS,
) -> NTSTATUS {
    // SAFETY: the consumer passes a queue pair of this provider.
    let Some(queue_pair) = (unsafe { consumer_object::handle::<QueuePairKind>(queue_pair) }) else {
        return refuse(NdkCall::BIND, &Nothing, Refusal::NO_OBJECT);
    };
    // SAFETY: the consumer passes a memory region of this provider.
    let region = unsafe { consumer_object::handle::<MemoryRegionKind>(region) };
    // SAFETY: the consumer passes a memory window of this provider.
    let window = unsafe { consumer_object::handle::<MemoryWindowKind>(window) };
    let (Some(region), Some(window), Some((flags, rights))) = (region, window, window_flags(flags)) else {
        let objects = region.is_some() && window.is_some();
        let refusal = if objects { Refusal::UNKNOWN_FLAGS } else { Refusal::NO_OBJECT };
        return refuse_early(NdkCall::BIND, queue_pair, refusal);
    };
    let (address, length) = (address.addr() as u64, length as u64);
    result(NdkCall::BIND, queue_pair, queue_pair.bind(word(context), flags, region, window, address, length, rights))
}

/// NDKPI: NDK_FN_FAST_REGISTER.
unsafe extern "C" fn fast_register(
    queue_pair: *mut NDK_QP,
    context: PVOID,
    region: *mut NDK_MR,
    page_count: ULONG,
    pages: *const NDK_LOGICAL_ADDRESS,
    first_byte_offset: ULONG,
    length: SIZE_T,
    base: PVOID,
    flags: NDK_OP_FLAGS,
) -> NTSTATUS {
    // SAFETY: the consumer passes a queue pair of this provider.
    let Some(queue_pair) = (unsafe { consumer_object::handle::<QueuePairKind>(queue_pair) }) else {
        return refuse(NdkCall::FAST_REGISTER, &Nothing, Refusal::NO_OBJECT);
    };
    // SAFETY: the consumer passes a memory region of this provider.
    let region = unsafe { consumer_object::handle::<MemoryRegionKind>(region) };
    // SAFETY: the consumer's array for the length of the call.
    let pages = unsafe { page_list(pages, page_count) };
    let (Some(region), Some(pages), Some((flags, rights))) = (region, pages, registration_flags(flags)) else {
        let refusal = if region.is_none() { Refusal::NO_OBJECT } else { flags_or_list(pages.is_none()) };
        return refuse_early(NdkCall::FAST_REGISTER, queue_pair, refusal);
    };
    let registration = FastRegistration { first_byte_offset, length: length as u64, base: base.addr() as u64, rights };
    let pages = pages.iter().map(|page| LogicalAddress(page.QuadPart.cast_unsigned()));
    result(
        NdkCall::FAST_REGISTER,
        queue_pair,
        queue_pair.fast_register(word(context), flags, region, registration, pages),
    )
}

/// The consumer's page list; `None` for a null list with a nonzero count.
///
/// # Safety
/// `pages` is null or has `count` entries that stay as they are during the call.
unsafe fn page_list<'a>(pages: *const NDK_LOGICAL_ADDRESS, count: ULONG) -> Option<&'a [NDK_LOGICAL_ADDRESS]> {
    if count == 0 {
        return Some(&[]);
    }
    if pages.is_null() || !pages.is_aligned() {
        return None;
    }
    // SAFETY: the consumer's array for the length of the call.
    Some(unsafe { slice::from_raw_parts(pages, count as usize) })
}

/// What kind of object a header says it heads; `None` without one. Read by its address: the layers above write other words of
/// the header at any time.
///
/// # Safety
/// `object` is null or the header of an object of this provider that is not closed.
unsafe fn object_type(object: *mut NDK_OBJECT_HEADER) -> Option<NDK_OBJECT_TYPE> {
    if object.is_null() || !object.is_aligned() {
        return None;
    }
    // SAFETY: the caller's promise; only the address of the field is computed.
    let place = unsafe { &raw const (*object).ObjectType };
    // SAFETY: as above.
    Some(unsafe { place.read_volatile() })
}

/// NDKPI: NDK_FN_INVALIDATE, of a fast-register region or a window.
unsafe extern "C" fn invalidate(
    queue_pair: *mut NDK_QP,
    context: PVOID,
    object: *mut NDK_OBJECT_HEADER,
    flags: NDK_OP_FLAGS,
) -> NTSTATUS {
    // SAFETY: the consumer passes a queue pair of this provider.
    let Some(queue_pair) = (unsafe { consumer_object::handle::<QueuePairKind>(queue_pair) }) else {
        return refuse(NdkCall::INVALIDATE, &Nothing, Refusal::NO_OBJECT);
    };
    // SAFETY: null, or the header of an object of this provider.
    let (Some(kind), Some(flags)) = (unsafe { object_type(object) }, request_flags(flags)) else {
        let refusal = if object.is_null() { Refusal::NO_OBJECT } else { Refusal::UNKNOWN_FLAGS };
        return refuse_early(NdkCall::INVALIDATE, queue_pair, refusal);
    };
    if kind == NdkObjectTypeMr {
        // SAFETY: the header says that this is a memory region.
        let region = unsafe { consumer_object::handle::<MemoryRegionKind>(object.cast()) };
        return region.map_or_else(
            || refuse_early(NdkCall::INVALIDATE, queue_pair, Refusal::NO_OBJECT),
            |it| result(NdkCall::INVALIDATE, queue_pair, queue_pair.invalidate(word(context), flags, it)),
        );
    }
    if kind == NdkObjectTypeMw {
        // SAFETY: the header says that this is a memory window.
        let window = unsafe { consumer_object::handle::<MemoryWindowKind>(object.cast()) };
        return window.map_or_else(
            || refuse_early(NdkCall::INVALIDATE, queue_pair, Refusal::NO_OBJECT),
            |it| result(NdkCall::INVALIDATE, queue_pair, queue_pair.invalidate_window(word(context), flags, it)),
        );
    }
    refuse_early(NdkCall::INVALIDATE, queue_pair, Refusal::NO_OBJECT)
}
