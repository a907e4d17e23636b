//! The dispatch table of a queue pair: posting work.
//!
//! Every function reads the same way: find the queue pair, decode flags and SGEs, hand them to the engine. A post that is
//! refused here makes the engine process the requests it holds back, as NDKPI requires of any inline failure.

use core::ffi::c_void;

use ndkpi_sys::{
    ndkpi::{
        NDK_LOGICAL_ADDRESS, NDK_MR, NDK_MW, NDK_OBJECT_HEADER, NDK_OP_FLAG_REMOTE_WRITE_BIT, NDK_OP_FLAGS, NDK_QP,
        NDK_QP_DISPATCH, NDK_SGE,
    },
    nt::{NTSTATUS, PVOID, SIZE_T, STATUS_SUCCESS, UINT32, UINT64, ULONG},
};
use softndk_engine::{FastRegistration, MemoryToken, PostError, QueuePair, RequestFlags, Rights, Sge};
use softndk_ioctl::NdkCall;

use super::{
    consumer_object,
    entry::{Entries, HeaderRef, PageEntries, PageList, Sgl, entry},
    extension::query_extension,
    kind::kind,
    memory_region::{MemoryRegionKind, MemoryRegionRef},
    memory_window::{MemoryWindowKind, MemoryWindowRef},
};
use crate::runtime::{
    platform::KernelPlatform,
    refusal::{Nothing, Refusal, refuse},
};

kind!(QueuePairKind, QueuePairRef: QueuePair, NDK_QP, NdkObjectTypeQp, QUEUE_PAIR);

pub static DISPATCH: NDK_QP_DISPATCH = NDK_QP_DISPATCH {
    NdkCloseQp: consumer_object::close::<QueuePairKind>,
    NdkQueryExtension: query_extension,
    NdkFlush: entry!(flush(*mut NDK_QP)),
    NdkSend: entry!(send(*mut NDK_QP, PVOID, [*const NDK_SGE, ULONG], NDK_OP_FLAGS) -> NTSTATUS),
    NdkReceive: entry!(receive(*mut NDK_QP, PVOID, [*const NDK_SGE, ULONG]) -> NTSTATUS),
    NdkBind: entry!(bind(*mut NDK_QP, PVOID, *mut NDK_MR, *mut NDK_MW, PVOID, SIZE_T, NDK_OP_FLAGS) -> NTSTATUS),
    NdkFastRegister: entry!(
        fast_register(
            *mut NDK_QP,
            PVOID,
            *mut NDK_MR,
            [ULONG, *const NDK_LOGICAL_ADDRESS],
            [ULONG, SIZE_T, PVOID],
            NDK_OP_FLAGS
        ) -> NTSTATUS
    ),
    NdkInvalidate: entry!(invalidate(*mut NDK_QP, PVOID, *mut NDK_OBJECT_HEADER, NDK_OP_FLAGS) -> NTSTATUS),
    NdkRead: entry!(read(*mut NDK_QP, PVOID, [*const NDK_SGE, ULONG], UINT64, UINT32, NDK_OP_FLAGS) -> NTSTATUS),
    NdkWrite: entry!(write(*mut NDK_QP, PVOID, [*const NDK_SGE, ULONG], UINT64, UINT32, NDK_OP_FLAGS) -> NTSTATUS),
    NdkSendAndInvalidate: entry!(
        send_and_invalidate(*mut NDK_QP, PVOID, [*const NDK_SGE, ULONG], NDK_OP_FLAGS, UINT32) -> NTSTATUS
    ),
};

/// The flags of a work request, taken apart; `None` if there is one this operation does not have.
///
/// NDKPI: flags of several bits are compared whole; RDMA_READ_SINK and the rights belong to fast registrations.
fn request_flags(flags: NDK_OP_FLAGS) -> Option<RequestFlags> {
    const {
        assert!(NDK_OP_FLAGS::SILENT_SUCCESS.bits() == RequestFlags::SILENT_SUCCESS.bits() as u32);
        assert!(NDK_OP_FLAGS::READ_FENCE.bits() == RequestFlags::READ_FENCE.bits() as u32);
        assert!(NDK_OP_FLAGS::SEND_AND_SOLICIT_EVENT.bits() == RequestFlags::SOLICIT.bits() as u32);
        assert!(NDK_OP_FLAGS::INLINE.bits() == RequestFlags::INLINE.bits() as u32);
        assert!(NDK_OP_FLAGS::DEFER.bits() == RequestFlags::DEFER.bits() as u32);
        assert!(NDK_OP_FLAGS::RDMA_READ_LOCAL_INVALIDATE.bits() == RequestFlags::LOCAL_INVALIDATE.bits() as u32);
    }
    u16::try_from(flags.bits()).ok().and_then(RequestFlags::from_bits)
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

pub fn sge(entry: NDK_SGE) -> Sge {
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
fn flush(queue_pair: QueuePairRef<'_>) {
    if let Some(queue_pair) = queue_pair.get() {
        queue_pair.flush();
    }
}

/// NDKPI: NDK_FN_SEND.
fn send(queue_pair: QueuePairRef<'_>, context: PVOID, list: Sgl<'_>, flags: NDK_OP_FLAGS) -> NTSTATUS {
    match request(NdkCall::SEND, queue_pair, list, flags) {
        Ok(Request { queue_pair, flags, list }) => {
            result(NdkCall::SEND, queue_pair, queue_pair.send(word(context), flags, list.map(sge)))
        }
        Err(status) => status,
    }
}

/// NDKPI: NDK_FN_SEND_AND_INVALIDATE.
fn send_and_invalidate(
    queue_pair: QueuePairRef<'_>,
    context: PVOID,
    list: Sgl<'_>,
    flags: NDK_OP_FLAGS,
    token: UINT32,
) -> NTSTATUS {
    match request(NdkCall::SEND_AND_INVALIDATE, queue_pair, list, flags) {
        Ok(Request { queue_pair, flags, list }) => result(
            NdkCall::SEND_AND_INVALIDATE,
            queue_pair,
            queue_pair.send_and_invalidate(word(context), flags, list.map(sge), MemoryToken(token)),
        ),
        Err(status) => status,
    }
}

/// NDKPI: NDK_FN_RECEIVE.
fn receive(queue_pair: QueuePairRef<'_>, context: PVOID, list: Sgl<'_>) -> NTSTATUS {
    let Some(queue_pair) = queue_pair.get() else {
        return refuse(NdkCall::RECEIVE, &Nothing, Refusal::NO_OBJECT);
    };
    let Some(list) = list.get() else {
        return refuse(NdkCall::RECEIVE, queue_pair, Refusal::NO_LIST);
    };
    result(NdkCall::RECEIVE, queue_pair, queue_pair.receive(word(context), list.map(sge)))
}

/// What requests with a scatter/gather list and flags have in common.
struct Request<'a> {
    queue_pair: &'a QueuePair<KernelPlatform>,
    flags: RequestFlags,
    list: Entries<'a, NDK_SGE>,
}

/// The argument checks of such a request.
fn request<'a>(
    call: NdkCall,
    queue_pair: QueuePairRef<'a>,
    list: Sgl<'a>,
    flags: NDK_OP_FLAGS,
) -> Result<Request<'a>, NTSTATUS> {
    let Some(queue_pair) = queue_pair.get() else { return Err(refuse(call, &Nothing, Refusal::NO_OBJECT)) };
    match (request_flags(flags), list.get()) {
        (Some(flags), Some(list)) => Ok(Request { queue_pair, flags, list }),
        (flags, _) => Err(refuse_early(call, queue_pair, flags_or_list(flags.is_some()))),
    }
}

/// NDKPI: NDK_FN_READ.
fn read(
    queue_pair: QueuePairRef<'_>,
    context: PVOID,
    list: Sgl<'_>,
    address: UINT64,
    token: UINT32,
    flags: NDK_OP_FLAGS,
) -> NTSTATUS {
    match request(NdkCall::READ, queue_pair, list, flags) {
        Ok(Request { queue_pair, flags, list }) => result(
            NdkCall::READ,
            queue_pair,
            queue_pair.read(word(context), flags, list.map(sge), address, MemoryToken(token)),
        ),
        Err(status) => status,
    }
}

/// NDKPI: NDK_FN_WRITE.
fn write(
    queue_pair: QueuePairRef<'_>,
    context: PVOID,
    list: Sgl<'_>,
    address: UINT64,
    token: UINT32,
    flags: NDK_OP_FLAGS,
) -> NTSTATUS {
    match request(NdkCall::WRITE, queue_pair, list, flags) {
        Ok(Request { queue_pair, flags, list }) => result(
            NdkCall::WRITE,
            queue_pair,
            queue_pair.write(word(context), flags, list.map(sge), address, MemoryToken(token)),
        ),
        Err(status) => status,
    }
}

/// NDKPI: NDK_FN_BIND.
fn bind(
    queue_pair: QueuePairRef<'_>,
    context: PVOID,
    region: MemoryRegionRef<'_>,
    window: MemoryWindowRef<'_>,
    address: PVOID,
    length: SIZE_T,
    flags: NDK_OP_FLAGS,
) -> NTSTATUS {
    let Some(queue_pair) = queue_pair.get() else {
        return refuse(NdkCall::BIND, &Nothing, Refusal::NO_OBJECT);
    };
    let (region, window) = (region.get(), window.get());
    let (Some(region), Some(window), Some((flags, rights))) = (region, window, window_flags(flags)) else {
        let objects = region.is_some() && window.is_some();
        let refusal = if objects { Refusal::UNKNOWN_FLAGS } else { Refusal::NO_OBJECT };
        return refuse_early(NdkCall::BIND, queue_pair, refusal);
    };
    let (address, length) = (address.addr() as u64, length as u64);
    result(NdkCall::BIND, queue_pair, queue_pair.bind(word(context), flags, region, window, address, length, rights))
}

/// NDKPI: NDK_FN_FAST_REGISTER.
fn fast_register(
    queue_pair: QueuePairRef<'_>,
    context: PVOID,
    region: MemoryRegionRef<'_>,
    pages: PageList<'_>,
    (first_byte_offset, length, base): (ULONG, SIZE_T, PVOID),
    flags: NDK_OP_FLAGS,
) -> NTSTATUS {
    let Some(queue_pair) = queue_pair.get() else {
        return refuse(NdkCall::FAST_REGISTER, &Nothing, Refusal::NO_OBJECT);
    };
    let (Some(region), Some(pages), Some((flags, rights))) = (region.get(), pages.get(), registration_flags(flags))
    else {
        let no_list = flags_or_list(pages.get().is_none());
        let refusal = if region.get().is_none() { Refusal::NO_OBJECT } else { no_list };
        return refuse_early(NdkCall::FAST_REGISTER, queue_pair, refusal);
    };
    let registration = FastRegistration { first_byte_offset, length: length as u64, base: base.addr() as u64, rights };
    result(
        NdkCall::FAST_REGISTER,
        queue_pair,
        queue_pair.fast_register(word(context), flags, region, registration, PageEntries(pages)),
    )
}

/// NDKPI: NDK_FN_INVALIDATE, of a fast-register region or a window.
fn invalidate(queue_pair: QueuePairRef<'_>, context: PVOID, object: HeaderRef<'_>, flags: NDK_OP_FLAGS) -> NTSTATUS {
    let Some(queue_pair) = queue_pair.get() else {
        return refuse(NdkCall::INVALIDATE, &Nothing, Refusal::NO_OBJECT);
    };
    let (Some(_), Some(flags)) = (object.kind(), request_flags(flags)) else {
        let refusal = if object.is_null() { Refusal::NO_OBJECT } else { Refusal::UNKNOWN_FLAGS };
        return refuse_early(NdkCall::INVALIDATE, queue_pair, refusal);
    };
    if let Some(region) = object.get::<MemoryRegionKind>() {
        return result(NdkCall::INVALIDATE, queue_pair, queue_pair.invalidate(word(context), flags, region));
    }
    if let Some(window) = object.get::<MemoryWindowKind>() {
        return result(NdkCall::INVALIDATE, queue_pair, queue_pair.invalidate_window(word(context), flags, window));
    }
    refuse_early(NdkCall::INVALIDATE, queue_pair, Refusal::NO_OBJECT)
}
