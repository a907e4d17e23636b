//! The dispatch table of a shared receive queue.

use ndkpi_sys::{
    ndkpi::{NDK_FN_REQUEST_COMPLETION, NDK_SGE, NDK_SRQ, NDK_SRQ_DISPATCH},
    nt::{NTSTATUS, PVOID, STATUS_SUCCESS, ULONG},
};
use softndk_ioctl::NdkCall;

use super::{
    consumer_object,
    entry::{Sgl, entry},
    extension::query_extension,
    kind::kind,
    queue_pair::{sge, word},
};
use crate::runtime::{
    deferred,
    platform::Callback,
    refusal::{Nothing, Refusal, refuse},
};

kind!(SharedReceiveQueueKind, SharedReceiveQueueRef: SharedReceiveQueue, NDK_SRQ, NdkObjectTypeSrq, SHARED_RECEIVE_QUEUE);

pub static DISPATCH: NDK_SRQ_DISPATCH = NDK_SRQ_DISPATCH {
    NdkCloseSrq: consumer_object::close::<SharedReceiveQueueKind>,
    NdkQueryExtension: query_extension,
    NdkModifySrq: entry!(modify(*mut NDK_SRQ, ULONG, ULONG, [Option<NDK_FN_REQUEST_COMPLETION>, PVOID]) -> NTSTATUS),
    NdkSrqReceive: entry!(receive(*mut NDK_SRQ, PVOID, [*const NDK_SGE, ULONG]) -> NTSTATUS),
};

/// NDKPI: NDK_FN_MODIFY_SRQ. A deep queue is allocated by the mapper's thread.
fn modify(
    queue: SharedReceiveQueueRef<'_>,
    depth: ULONG,
    threshold: ULONG,
    completion: Option<Callback<NDK_FN_REQUEST_COMPLETION>>,
) -> NTSTATUS {
    let Some((object, queue)) = queue.both() else {
        return refuse(NdkCall::MODIFY_SRQ, &Nothing, Refusal::NO_OBJECT);
    };
    let changed = queue.clone();
    let act = move || {
        let refused = |cause| refuse(NdkCall::MODIFY_SRQ, &changed, cause);
        changed.modify(depth, threshold).map_or_else(refused, |()| STATUS_SUCCESS)
    };
    deferred::request_sized(
        NdkCall::MODIFY_SRQ,
        object.origin.completion_mode,
        queue.size_of(depth),
        completion,
        || queue.hold(),
        act,
    )
}

/// NDKPI: NDK_FN_SRQ_RECEIVE.
fn receive(queue: SharedReceiveQueueRef<'_>, context: PVOID, list: Sgl<'_>) -> NTSTATUS {
    let Some(queue) = queue.get() else {
        return refuse(NdkCall::SRQ_RECEIVE, &Nothing, Refusal::NO_OBJECT);
    };
    let Some(list) = list.get() else {
        return refuse(NdkCall::SRQ_RECEIVE, queue, Refusal::NO_LIST);
    };
    let refused = |cause| refuse(NdkCall::SRQ_RECEIVE, queue, cause);
    queue.receive(word(context), list.map(sge)).map_or_else(refused, |()| STATUS_SUCCESS)
}
