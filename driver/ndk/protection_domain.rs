//! The dispatch table of a protection domain: creating what lives in it.

use ndkpi_sys::{
    ndkpi::{
        NDK_CQ, NDK_FN_CREATE_COMPLETION, NDK_FN_SRQ_NOTIFICATION_CALLBACK, NDK_MR, NDK_MW, NDK_OBJECT_HEADER,
        NDK_OBJECT_TYPE, NDK_PD, NDK_PD_DISPATCH, NDK_QP, NDK_SRQ, NdkObjectTypePd,
    },
    nt::{
        BOOLEAN, FALSE, GROUP_AFFINITY, NTSTATUS, PVOID, STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED, UINT32, ULONG,
    },
};
use softndk_engine::{Close, ProtectionDomain, QueuePairSettings};

use super::{
    adapter::query_extension,
    block::{self, Block, CloseCallback, Kind, Object},
    completion_queue::CompletionQueueKind,
    memory_region::MemoryRegionKind,
    queue_pair::QueuePairKind,
};
use crate::{
    kernel::pool::{PoolBox, Tag, tags},
    platform::KernelPlatform,
};

static DISPATCH: NDK_PD_DISPATCH = NDK_PD_DISPATCH {
    NdkClosePd: block::close::<ProtectionDomainKind>,
    NdkQueryExtension: query_extension,
    NdkCreateMr: create_mr,
    NdkCreateMw: create_mw,
    NdkCreateSrq: create_srq,
    NdkCreateQp: create_qp,
    NdkCreateQpWithSrq: create_qp_with_srq,
    NdkGetPrivilegedMemoryRegionToken: privileged_token,
};

pub struct ProtectionDomainKind;

impl Kind for ProtectionDomainKind {
    type Visible = NDK_PD;
    type Handle = ProtectionDomain<KernelPlatform>;

    const TYPE: NDK_OBJECT_TYPE = NdkObjectTypePd;
    const TAG: Tag = tags::PROTECTION_DOMAIN;

    fn visible(header: NDK_OBJECT_HEADER) -> NDK_PD {
        NDK_PD { Header: header, Dispatch: &raw const DISPATCH }
    }

    fn block(object: PoolBox<Object<Self>>) -> Block {
        Block::ProtectionDomain(object)
    }

    fn close(handle: &Self::Handle, callback: CloseCallback) -> Close<KernelPlatform> {
        handle.close(callback)
    }
}

/// The object and its engine part behind what a consumer passes.
///
/// # Safety
/// `domain` is null or a protection domain of ours that is not closed yet.
unsafe fn find<'a>(
    domain: *mut NDK_PD,
) -> Option<(&'a Object<ProtectionDomainKind>, &'a ProtectionDomain<KernelPlatform>)> {
    // SAFETY: the caller's promise.
    let object = unsafe { Object::<ProtectionDomainKind>::from_visible(domain) }?;
    Some((object, object.handle()?))
}

/// NDKPI: NDK_FN_CREATE_MR. Inline.
unsafe extern "C" fn create_mr(
    domain: *mut NDK_PD,
    fast_register: BOOLEAN,
    _completion: Option<NDK_FN_CREATE_COMPLETION>,
    _context: PVOID,
    result: *mut *mut NDK_MR,
) -> NTSTATUS {
    // SAFETY: the consumer passes a protection domain of ours.
    let Some((object, domain)) = (unsafe { find(domain) }) else { return STATUS_INVALID_PARAMETER };
    if result.is_null() {
        return STATUS_INVALID_PARAMETER;
    }
    let created = Object::<MemoryRegionKind>::create(object.version, |block| {
        domain.create_memory_region(fast_register != FALSE, block)
    });
    // SAFETY: the consumer's place for the object.
    unsafe { block::give(created, result) }
}

/// NDKPI: NDK_FN_CREATE_MW. `MaxMwCount` is 0.
unsafe extern "C" fn create_mw(
    _domain: *mut NDK_PD,
    _completion: Option<NDK_FN_CREATE_COMPLETION>,
    _context: PVOID,
    _result: *mut *mut NDK_MW,
) -> NTSTATUS {
    STATUS_NOT_SUPPORTED
}

/// NDKPI: NDK_FN_CREATE_SRQ. `MaxSrqDepth` is 0.
unsafe extern "C" fn create_srq(
    _domain: *mut NDK_PD,
    _depth: ULONG,
    _elements: ULONG,
    _threshold: ULONG,
    _notification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
    _notification_context: PVOID,
    _affinity: *mut GROUP_AFFINITY,
    _completion: Option<NDK_FN_CREATE_COMPLETION>,
    _context: PVOID,
    _result: *mut *mut NDK_SRQ,
) -> NTSTATUS {
    STATUS_NOT_SUPPORTED
}

/// NDKPI: NDK_FN_CREATE_QP. Inline.
unsafe extern "C" fn create_qp(
    domain: *mut NDK_PD,
    receive_queue: *mut NDK_CQ,
    initiator_queue: *mut NDK_CQ,
    queue_pair_context: PVOID,
    receive_depth: ULONG,
    initiator_depth: ULONG,
    receive_elements: ULONG,
    initiator_elements: ULONG,
    inline_data: ULONG,
    _completion: Option<NDK_FN_CREATE_COMPLETION>,
    _context: PVOID,
    result: *mut *mut NDK_QP,
) -> NTSTATUS {
    // SAFETY: the consumer passes a protection domain of ours.
    let Some((object, domain)) = (unsafe { find(domain) }) else { return STATUS_INVALID_PARAMETER };
    // SAFETY: the consumer passes completion queues of ours.
    let receive_queue = unsafe { block::handle::<CompletionQueueKind>(receive_queue) };
    // SAFETY: as above.
    let initiator_queue = unsafe { block::handle::<CompletionQueueKind>(initiator_queue) };
    let (Some(receive_queue), Some(initiator_queue), false) = (receive_queue, initiator_queue, result.is_null()) else {
        return STATUS_INVALID_PARAMETER;
    };
    let settings = QueuePairSettings {
        receive_queue,
        initiator_queue,
        context: queue_pair_context.expose_provenance() as u64,
        receive_depth,
        initiator_depth,
        receive_elements,
        initiator_elements,
        inline_data,
    };
    let created = Object::<QueuePairKind>::create(object.version, |block| domain.create_queue_pair(settings, block));
    // SAFETY: the consumer's place for the object.
    unsafe { block::give(created, result) }
}

/// NDKPI: NDK_FN_CREATE_QP_WITH_SRQ. There are no shared receive queues.
unsafe extern "C" fn create_qp_with_srq(
    _domain: *mut NDK_PD,
    _receive_queue: *mut NDK_CQ,
    _initiator_queue: *mut NDK_CQ,
    _shared_receive_queue: *mut NDK_SRQ,
    _queue_pair_context: PVOID,
    _initiator_depth: ULONG,
    _initiator_elements: ULONG,
    _inline_data: ULONG,
    _completion: Option<NDK_FN_CREATE_COMPLETION>,
    _context: PVOID,
    _result: *mut *mut NDK_QP,
) -> NTSTATUS {
    STATUS_NOT_SUPPORTED
}

/// NDKPI: NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN.
unsafe extern "C" fn privileged_token(domain: *mut NDK_PD, token: *mut UINT32) {
    // SAFETY: the consumer passes a protection domain of ours.
    let Some((_, domain)) = (unsafe { find(domain) }) else { return };
    // SAFETY: null, or the consumer's place for the token.
    if let Some(token) = unsafe { token.as_mut() } {
        *token = domain.privileged_token().0;
    }
}
