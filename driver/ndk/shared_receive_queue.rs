//! The dispatch table of a shared receive queue.

use ndkpi_sys::{
    ndkpi::{
        NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER, NDK_OBJECT_TYPE, NDK_SGE, NDK_SRQ, NDK_SRQ_DISPATCH,
        NdkObjectTypeSrq,
    },
    nt::{NTSTATUS, PVOID, STATUS_SUCCESS, ULONG},
};
use softndk_engine::{Close, Hold, SharedReceiveQueue};
use softndk_ioctl::NdkCall;
use softndk_kernel::pool::{PoolBox, Tag};

use super::{
    adapter::query_extension,
    consumer_object::{self, CloseCallback, ConsumerObject, Kind, Object},
    deferred,
    queue_pair::{sge, sges, word},
};
use crate::{
    platform::{Callback, KernelPlatform},
    refusal::{Nothing, Refusal, refuse},
    tags,
};

static DISPATCH: NDK_SRQ_DISPATCH = NDK_SRQ_DISPATCH {
    NdkCloseSrq: consumer_object::close::<SharedReceiveQueueKind>,
    NdkQueryExtension: query_extension,
    NdkModifySrq: modify,
    NdkSrqReceive: receive,
};

pub struct SharedReceiveQueueKind;

impl Kind for SharedReceiveQueueKind {
    type Visible = NDK_SRQ;
    type Handle = SharedReceiveQueue<KernelPlatform>;

    const TYPE: NDK_OBJECT_TYPE = NdkObjectTypeSrq;
    const TAG: Tag = tags::SHARED_RECEIVE_QUEUE;

    fn visible(header: NDK_OBJECT_HEADER) -> NDK_SRQ {
        NDK_SRQ { Header: header, Dispatch: &raw const DISPATCH }
    }

    fn consumer_object(object: PoolBox<Object<Self>>) -> ConsumerObject {
        ConsumerObject::SharedReceiveQueue(object)
    }

    fn close(handle: &Self::Handle, callback: CloseCallback) -> Close<KernelPlatform> {
        handle.close(callback)
    }

    fn hold(handle: &Self::Handle) -> Hold<KernelPlatform> {
        handle.hold()
    }
}

/// NDKPI: NDK_FN_MODIFY_SRQ. A deep queue is allocated by the mapper's thread.
unsafe extern "C" fn modify(
    queue: *mut NDK_SRQ,
    depth: ULONG,
    threshold: ULONG,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer passes a shared receive queue of this provider.
    let Some(object) = (unsafe { Object::<SharedReceiveQueueKind>::from_visible(queue) }) else {
        return refuse(NdkCall::MODIFY_SRQ, &Nothing, Refusal::NO_OBJECT);
    };
    let Some(queue) = object.handle() else { return refuse(NdkCall::MODIFY_SRQ, &Nothing, Refusal::NO_OBJECT) };
    let callback = completion.map(|function| Callback::new(function, context));
    let changed = queue.clone();
    let act = move || {
        let refused = |cause| refuse(NdkCall::MODIFY_SRQ, &changed, cause);
        changed.modify(depth, threshold).map_or_else(refused, |()| STATUS_SUCCESS)
    };
    deferred::request_sized(
        NdkCall::MODIFY_SRQ,
        object.origin.completion_mode,
        queue.size_of(depth),
        callback,
        || queue.hold(),
        act,
    )
}

/// NDKPI: NDK_FN_SRQ_RECEIVE.
unsafe extern "C" fn receive(queue: *mut NDK_SRQ, context: PVOID, list: *const NDK_SGE, count: ULONG) -> NTSTATUS {
    // SAFETY: the consumer passes a shared receive queue of this provider.
    let Some(queue) = (unsafe { consumer_object::handle::<SharedReceiveQueueKind>(queue) }) else {
        return refuse(NdkCall::SRQ_RECEIVE, &Nothing, Refusal::NO_OBJECT);
    };
    // SAFETY: the consumer's list for the length of the call.
    let Some(list) = (unsafe { sges(list, count) }) else {
        return refuse(NdkCall::SRQ_RECEIVE, queue, Refusal::NO_LIST);
    };
    let refused = |cause| refuse(NdkCall::SRQ_RECEIVE, queue, cause);
    queue.receive(word(context), list.iter().map(sge)).map_or_else(refused, |()| STATUS_SUCCESS)
}
