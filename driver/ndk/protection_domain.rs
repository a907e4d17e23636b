//! The dispatch table of a protection domain: creating the objects that belong to it.

use ndkpi_sys::{
    ndkpi::{
        NDK_CQ, NDK_FN_CREATE_COMPLETION, NDK_FN_SRQ_NOTIFICATION_CALLBACK, NDK_MR, NDK_MW, NDK_PD, NDK_PD_DISPATCH,
        NDK_QP, NDK_SRQ,
    },
    nt::{BOOLEAN, FALSE, GROUP_AFFINITY, NTSTATUS, PVOID, UINT32, ULONG},
};
use softndk_engine::{
    CompletionQueue, ProtectionDomain, QueuePair, QueuePairSettings, SharedReceiveQueue, SharedReceiveQueueSettings,
};
use softndk_ioctl::NdkCall;

use super::{
    completion_queue::CompletionQueueRef,
    consumer_object::{self, Creation},
    entry::{Argument, CreateAnswer, Input, Out, entry, home},
    extension::query_extension,
    kind::kind,
    memory_region::MemoryRegionKind,
    memory_window::MemoryWindowKind,
    queue_pair::{QueuePairKind, word},
    shared_receive_queue::{SharedReceiveQueueKind, SharedReceiveQueueRef},
};
use crate::runtime::{
    platform::{Callback, KernelPlatform},
    refusal::{Nothing, Refusal, refuse},
};

kind!(ProtectionDomainKind, ProtectionDomainRef: ProtectionDomain, NDK_PD, NdkObjectTypePd, PROTECTION_DOMAIN);

pub static DISPATCH: NDK_PD_DISPATCH = NDK_PD_DISPATCH {
    NdkClosePd: consumer_object::close::<ProtectionDomainKind>,
    NdkQueryExtension: query_extension,
    NdkCreateMr: entry!(
        create_mr(*mut NDK_PD, BOOLEAN, [Option<NDK_FN_CREATE_COMPLETION>, PVOID, *mut *mut NDK_MR]) -> NTSTATUS
    ),
    NdkCreateMw: entry!(
        create_mw(*mut NDK_PD, [Option<NDK_FN_CREATE_COMPLETION>, PVOID, *mut *mut NDK_MW]) -> NTSTATUS
    ),
    NdkCreateSrq: entry!(
        create_srq(
            *mut NDK_PD,
            ULONG,
            ULONG,
            ULONG,
            [Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>, PVOID],
            *mut GROUP_AFFINITY,
            [Option<NDK_FN_CREATE_COMPLETION>, PVOID, *mut *mut NDK_SRQ]
        ) -> NTSTATUS
    ),
    NdkCreateQp: entry!(
        create_qp(
            *mut NDK_PD,
            *mut NDK_CQ,
            *mut NDK_CQ,
            [PVOID, ULONG, ULONG, ULONG, ULONG, ULONG],
            [Option<NDK_FN_CREATE_COMPLETION>, PVOID, *mut *mut NDK_QP]
        ) -> NTSTATUS
    ),
    NdkCreateQpWithSrq: entry!(
        create_qp_with_srq(
            *mut NDK_PD,
            *mut NDK_CQ,
            *mut NDK_CQ,
            *mut NDK_SRQ,
            [PVOID, ULONG, ULONG, ULONG],
            [Option<NDK_FN_CREATE_COMPLETION>, PVOID, *mut *mut NDK_QP]
        ) -> NTSTATUS
    ),
    NdkGetPrivilegedMemoryRegionToken: entry!(privileged_token(*mut NDK_PD, *mut UINT32)),
};

/// NDKPI: NDK_FN_CREATE_MR.
fn create_mr(domain: ProtectionDomainRef<'_>, fast_register: BOOLEAN, answer: CreateAnswer<'_, NDK_MR>) -> NTSTATUS {
    let Some((object, domain)) = domain.both() else {
        return refuse(NdkCall::CREATE_MR, &Nothing, Refusal::NO_OBJECT);
    };
    let make =
        |consumer_object| domain.create_memory_region(fast_register != FALSE, consumer_object).map_err(Refusal::from);
    let creation = Creation { call: NdkCall::CREATE_MR, origin: object.origin, answer };
    creation.run::<MemoryRegionKind>(|| domain.hold(), make)
}

/// NDKPI: NDK_FN_CREATE_MW.
fn create_mw(domain: ProtectionDomainRef<'_>, answer: CreateAnswer<'_, NDK_MW>) -> NTSTATUS {
    let Some((object, domain)) = domain.both() else {
        return refuse(NdkCall::CREATE_MW, &Nothing, Refusal::NO_OBJECT);
    };
    let make = |consumer_object| domain.create_memory_window(consumer_object).map_err(Refusal::from);
    let creation = Creation { call: NdkCall::CREATE_MW, origin: object.origin, answer };
    creation.run::<MemoryWindowKind>(|| domain.hold(), make)
}

/// NDKPI: NDK_FN_CREATE_SRQ. A deep queue is allocated by the mapper's thread.
fn create_srq(
    domain: ProtectionDomainRef<'_>,
    depth: ULONG,
    sges: ULONG,
    threshold: ULONG,
    notify: Option<Callback<NDK_FN_SRQ_NOTIFICATION_CALLBACK>>,
    affinity: Input<'_, GROUP_AFFINITY>,
    answer: CreateAnswer<'_, NDK_SRQ>,
) -> NTSTATUS {
    let Some((object, domain)) = domain.both() else {
        return refuse(NdkCall::CREATE_SRQ, &Nothing, Refusal::NO_OBJECT);
    };
    let processor = affinity.get().and_then(home);
    let settings = SharedReceiveQueueSettings { depth, sges, threshold, notify, processor };
    let size = match SharedReceiveQueue::size(domain, &settings) {
        Ok(size) => size,
        Err(cause) => return refuse(NdkCall::CREATE_SRQ, domain, cause),
    };
    let maker = domain.clone();
    let make =
        move |consumer_object| SharedReceiveQueue::create(&maker, settings, consumer_object).map_err(Refusal::from);
    let creation = Creation { call: NdkCall::CREATE_SRQ, origin: object.origin, answer };
    creation.run_sized::<SharedReceiveQueueKind>(size, || domain.hold(), make)
}

/// NDKPI: NDK_FN_CREATE_QP. A deep queue pair is allocated by the mapper's thread.
fn create_qp(
    domain: ProtectionDomainRef<'_>,
    receive_queue: CompletionQueueRef<'_>,
    initiator_queue: CompletionQueueRef<'_>,
    shape: Shape,
    answer: CreateAnswer<'_, NDK_QP>,
) -> NTSTATUS {
    let Some((object, domain)) = domain.both() else {
        return refuse(NdkCall::CREATE_QP, &Nothing, Refusal::NO_OBJECT);
    };
    let (Some(receive_queue), Some(initiator_queue)) = (receive_queue.get(), initiator_queue.get()) else {
        return refuse(NdkCall::CREATE_QP, domain, Refusal::NO_OBJECT);
    };
    let creation = Creation { call: NdkCall::CREATE_QP, origin: object.origin, answer };
    let queues = Queues { receive: receive_queue.clone(), initiator: initiator_queue.clone(), shared: None };
    create_queue_pair(creation, domain, queues, shape)
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

impl Argument<(PVOID, ULONG, ULONG, ULONG, ULONG, ULONG)> for Shape {
    unsafe fn take(
        (context, receive_depth, initiator_depth, receive_sges, initiator_sges, inline_data): (
            PVOID,
            ULONG,
            ULONG,
            ULONG,
            ULONG,
            ULONG,
        ),
    ) -> Self {
        Self { context: word(context), receive_depth, initiator_depth, receive_sges, initiator_sges, inline_data }
    }
}

/// Without a receive queue of its own.
impl Argument<(PVOID, ULONG, ULONG, ULONG)> for Shape {
    unsafe fn take((context, initiator_depth, initiator_sges, inline_data): (PVOID, ULONG, ULONG, ULONG)) -> Self {
        let context = word(context);
        Self { context, receive_depth: 0, initiator_depth, receive_sges: 0, initiator_sges, inline_data }
    }
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

fn create_queue_pair(
    creation: Creation<'_, NDK_QP>,
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
    creation.run_sized::<QueuePairKind>(size, || domain.hold(), make)
}

/// NDKPI: NDK_FN_CREATE_QP_WITH_SRQ.
fn create_qp_with_srq(
    domain: ProtectionDomainRef<'_>,
    receive_queue: CompletionQueueRef<'_>,
    initiator_queue: CompletionQueueRef<'_>,
    shared: SharedReceiveQueueRef<'_>,
    shape: Shape,
    answer: CreateAnswer<'_, NDK_QP>,
) -> NTSTATUS {
    let Some((object, domain)) = domain.both() else {
        return refuse(NdkCall::CREATE_QP_WITH_SRQ, &Nothing, Refusal::NO_OBJECT);
    };
    let (Some(receive_queue), Some(initiator_queue), Some(shared)) =
        (receive_queue.get(), initiator_queue.get(), shared.get())
    else {
        return refuse(NdkCall::CREATE_QP_WITH_SRQ, domain, Refusal::NO_OBJECT);
    };
    let queues =
        Queues { receive: receive_queue.clone(), initiator: initiator_queue.clone(), shared: Some(shared.clone()) };
    let creation = Creation { call: NdkCall::CREATE_QP_WITH_SRQ, origin: object.origin, answer };
    create_queue_pair(creation, domain, queues, shape)
}

/// NDKPI: NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN.
fn privileged_token(domain: ProtectionDomainRef<'_>, token: Out<'_, UINT32>) {
    if let Some(domain) = domain.get() {
        token.write(domain.privileged_token().0);
    }
}
