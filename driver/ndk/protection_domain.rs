//! The dispatch table of a protection domain: creating the objects that belong to it.

use ndkpi_sys::{
    ndkpi::{
        NDK_CQ, NDK_FN_CREATE_COMPLETION, NDK_FN_SRQ_NOTIFICATION_CALLBACK, NDK_MR, NDK_MW, NDK_OBJECT_HEADER,
        NDK_OBJECT_TYPE, NDK_PD, NDK_PD_DISPATCH, NDK_QP, NDK_SRQ, NdkObjectTypePd,
    },
    nt::{BOOLEAN, FALSE, GROUP_AFFINITY, NTSTATUS, PVOID, UINT32, ULONG},
};
use softndk_engine::{
    Close, CompletionQueue, Hold, ProtectionDomain, QueuePair, QueuePairSettings, SharedReceiveQueue,
    SharedReceiveQueueSettings,
};
use softndk_ioctl::NdkCall;
use softndk_kernel::pool::{PoolBox, Tag};

use super::{
    adapter::{home, query_extension},
    completion_queue::CompletionQueueKind,
    consumer_object::{self, CloseCallback, ConsumerObject, Creation, Kind, Object},
    memory_region::MemoryRegionKind,
    memory_window::MemoryWindowKind,
    queue_pair::QueuePairKind,
    shared_receive_queue::SharedReceiveQueueKind,
};
use crate::{
    platform::{Callback, KernelPlatform},
    refusal::{Nothing, Refusal, refuse},
    tags,
};

static DISPATCH: NDK_PD_DISPATCH = NDK_PD_DISPATCH {
    NdkClosePd: consumer_object::close::<ProtectionDomainKind>,
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

    fn consumer_object(object: PoolBox<Object<Self>>) -> ConsumerObject {
        ConsumerObject::ProtectionDomain(object)
    }

    fn close(handle: &Self::Handle, callback: CloseCallback) -> Close<KernelPlatform> {
        handle.close(callback)
    }

    fn hold(handle: &Self::Handle) -> Hold<KernelPlatform> {
        handle.hold()
    }
}

/// The object and its engine part behind what a consumer passes.
///
/// # Safety
/// `domain` is null or a protection domain of this provider that is not closed yet.
unsafe fn find<'a>(
    domain: *mut NDK_PD,
) -> Option<(&'a Object<ProtectionDomainKind>, &'a ProtectionDomain<KernelPlatform>)> {
    // SAFETY: the caller's promise.
    let object = unsafe { Object::<ProtectionDomainKind>::from_visible(domain) }?;
    Some((object, object.handle()?))
}

/// NDKPI: NDK_FN_CREATE_MR.
unsafe extern "C" fn create_mr(
    domain: *mut NDK_PD,
    fast_register: BOOLEAN,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: PVOID,
    result: *mut *mut NDK_MR,
) -> NTSTATUS {
    // SAFETY: the consumer passes a protection domain of this provider.
    let Some((object, domain)) = (unsafe { find(domain) }) else {
        return refuse(NdkCall::CREATE_MR, &Nothing, Refusal::NO_OBJECT);
    };
    let make =
        |consumer_object| domain.create_memory_region(fast_register != FALSE, consumer_object).map_err(Refusal::from);
    let creation = Creation { call: NdkCall::CREATE_MR, origin: object.origin, completion, context, result };
    // SAFETY: the consumer's arguments.
    unsafe { creation.run::<MemoryRegionKind>(|| domain.hold(), make) }
}

/// NDKPI: NDK_FN_CREATE_MW.
unsafe extern "C" fn create_mw(
    domain: *mut NDK_PD,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: PVOID,
    result: *mut *mut NDK_MW,
) -> NTSTATUS {
    // SAFETY: the consumer passes a protection domain of this provider.
    let Some((object, domain)) = (unsafe { find(domain) }) else {
        return refuse(NdkCall::CREATE_MW, &Nothing, Refusal::NO_OBJECT);
    };
    let make = |consumer_object| domain.create_memory_window(consumer_object).map_err(Refusal::from);
    let creation = Creation { call: NdkCall::CREATE_MW, origin: object.origin, completion, context, result };
    // SAFETY: the consumer's arguments.
    unsafe { creation.run::<MemoryWindowKind>(|| domain.hold(), make) }
}

/// NDKPI: NDK_FN_CREATE_SRQ. A deep queue is allocated by the mapper's thread.
unsafe extern "C" fn create_srq(
    domain: *mut NDK_PD,
    depth: ULONG,
    sges: ULONG,
    threshold: ULONG,
    notification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
    notification_context: PVOID,
    affinity: *mut GROUP_AFFINITY,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: PVOID,
    result: *mut *mut NDK_SRQ,
) -> NTSTATUS {
    // SAFETY: the consumer passes a protection domain of this provider.
    let Some((object, domain)) = (unsafe { find(domain) }) else {
        return refuse(NdkCall::CREATE_SRQ, &Nothing, Refusal::NO_OBJECT);
    };
    // SAFETY: null, or the consumer's affinity for the length of the call.
    let processor = unsafe { affinity.as_ref() }.and_then(home);
    let notify = notification.map(|function| Callback::new(function, notification_context));
    let settings = SharedReceiveQueueSettings { depth, sges, threshold, notify, processor };
    let size = match SharedReceiveQueue::size(domain, &settings) {
        Ok(size) => size,
        Err(cause) => return refuse(NdkCall::CREATE_SRQ, domain, cause),
    };
    let maker = domain.clone();
    let make =
        move |consumer_object| SharedReceiveQueue::create(&maker, settings, consumer_object).map_err(Refusal::from);
    let creation = Creation { call: NdkCall::CREATE_SRQ, origin: object.origin, completion, context, result };
    // SAFETY: the consumer's arguments.
    unsafe { creation.run_sized::<SharedReceiveQueueKind>(size, || domain.hold(), make) }
}

/// NDKPI: NDK_FN_CREATE_QP. A deep queue pair is allocated by the mapper's thread.
unsafe extern "C" fn create_qp(
    domain: *mut NDK_PD,
    receive_queue: *mut NDK_CQ,
    initiator_queue: *mut NDK_CQ,
    queue_pair_context: PVOID,
    receive_depth: ULONG,
    initiator_depth: ULONG,
    receive_sges: ULONG,
    initiator_sges: ULONG,
    inline_data: ULONG,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: PVOID,
    result: *mut *mut NDK_QP,
) -> NTSTATUS {
    // SAFETY: the consumer passes a protection domain of this provider.
    let Some((object, domain)) = (unsafe { find(domain) }) else {
        return refuse(NdkCall::CREATE_QP, &Nothing, Refusal::NO_OBJECT);
    };
    // SAFETY: the consumer passes completion queues of this provider.
    let receive_queue = unsafe { consumer_object::handle::<CompletionQueueKind>(receive_queue) };
    // SAFETY: as above.
    let initiator_queue = unsafe { consumer_object::handle::<CompletionQueueKind>(initiator_queue) };
    let (Some(receive_queue), Some(initiator_queue)) = (receive_queue, initiator_queue) else {
        return refuse(NdkCall::CREATE_QP, domain, Refusal::NO_OBJECT);
    };
    let shape = Shape {
        context: queue_pair_context.expose_provenance() as u64,
        receive_depth,
        initiator_depth,
        receive_sges,
        initiator_sges,
        inline_data,
    };
    let creation = Creation { call: NdkCall::CREATE_QP, origin: object.origin, completion, context, result };
    let queues = Queues { receive: receive_queue.clone(), initiator: initiator_queue.clone(), shared: None };
    // SAFETY: the consumer's arguments.
    unsafe { create_queue_pair(creation, domain, queues, shape) }
}

/// The numbers of a queue pair.
#[derive(Clone, Copy)]
struct Shape {
    context: u64,
    receive_depth: u32,
    initiator_depth: u32,
    receive_sges: u32,
    initiator_sges: u32,
    inline_data: u32,
}

/// The queues of a queue pair.
struct Queues {
    receive: CompletionQueue<KernelPlatform>,
    initiator: CompletionQueue<KernelPlatform>,
    shared: Option<SharedReceiveQueue<KernelPlatform>>,
}

impl Queues {
    fn settings(&self, shape: Shape) -> QueuePairSettings<'_, KernelPlatform> {
        QueuePairSettings {
            receive_queue: &self.receive,
            initiator_queue: &self.initiator,
            context: shape.context,
            receive_depth: shape.receive_depth,
            initiator_depth: shape.initiator_depth,
            receive_sges: shape.receive_sges,
            initiator_sges: shape.initiator_sges,
            inline_data: shape.inline_data,
            shared: self.shared.as_ref(),
        }
    }
}

/// # Safety
/// As [`Creation::run`].
unsafe fn create_queue_pair(
    creation: Creation<NDK_QP>,
    domain: &ProtectionDomain<KernelPlatform>,
    queues: Queues,
    shape: Shape,
) -> NTSTATUS {
    let size = match QueuePair::size(domain, &queues.settings(shape)) {
        Ok(size) => size,
        Err(cause) => return refuse(creation.call, domain, cause),
    };
    let maker = domain.clone();
    // The consumer may close the queues while the mapper's thread creates the queue pair.
    let shared = queues.shared.as_ref().map(SharedReceiveQueue::hold);
    let holds = (queues.receive.hold(), queues.initiator.hold(), shared);
    let make = move |consumer_object| {
        let created = QueuePair::create(&maker, queues.settings(shape), consumer_object);
        drop(holds);
        created.map_err(Refusal::from)
    };
    // SAFETY: the caller's promise.
    unsafe { creation.run_sized::<QueuePairKind>(size, || domain.hold(), make) }
}

/// NDKPI: NDK_FN_CREATE_QP_WITH_SRQ.
unsafe extern "C" fn create_qp_with_srq(
    domain: *mut NDK_PD,
    receive_queue: *mut NDK_CQ,
    initiator_queue: *mut NDK_CQ,
    shared_receive_queue: *mut NDK_SRQ,
    queue_pair_context: PVOID,
    initiator_depth: ULONG,
    initiator_sges: ULONG,
    inline_data: ULONG,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: PVOID,
    result: *mut *mut NDK_QP,
) -> NTSTATUS {
    // SAFETY: the consumer passes a protection domain of this provider.
    let Some((object, domain)) = (unsafe { find(domain) }) else {
        return refuse(NdkCall::CREATE_QP_WITH_SRQ, &Nothing, Refusal::NO_OBJECT);
    };
    // SAFETY: the consumer passes queues of this provider.
    let receive_queue = unsafe { consumer_object::handle::<CompletionQueueKind>(receive_queue) };
    // SAFETY: as above.
    let initiator_queue = unsafe { consumer_object::handle::<CompletionQueueKind>(initiator_queue) };
    // SAFETY: as above.
    let shared = unsafe { consumer_object::handle::<SharedReceiveQueueKind>(shared_receive_queue) };
    let (Some(receive_queue), Some(initiator_queue), Some(shared)) = (receive_queue, initiator_queue, shared) else {
        return refuse(NdkCall::CREATE_QP_WITH_SRQ, domain, Refusal::NO_OBJECT);
    };
    let shape = Shape {
        context: queue_pair_context.expose_provenance() as u64,
        receive_depth: 0,
        initiator_depth,
        receive_sges: 0,
        initiator_sges,
        inline_data,
    };
    let queues =
        Queues { receive: receive_queue.clone(), initiator: initiator_queue.clone(), shared: Some(shared.clone()) };
    let creation = Creation { call: NdkCall::CREATE_QP_WITH_SRQ, origin: object.origin, completion, context, result };
    // SAFETY: the consumer's arguments.
    unsafe { create_queue_pair(creation, domain, queues, shape) }
}

/// NDKPI: NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN.
unsafe extern "C" fn privileged_token(domain: *mut NDK_PD, token: *mut UINT32) {
    // SAFETY: the consumer passes a protection domain of this provider.
    let Some((_, domain)) = (unsafe { find(domain) }) else { return };
    // SAFETY: null, or the consumer's place for the token.
    if let Some(token) = unsafe { token.as_mut() } {
        *token = domain.privileged_token().0;
    }
}
