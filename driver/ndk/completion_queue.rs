//! The dispatch table of a completion queue.

use ndkpi_sys::{
    ndkpi::{
        NDK_CQ, NDK_CQ_DISPATCH, NDK_CQ_NOTIFY_ERRORS, NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER, NDK_OBJECT_TYPE,
        NDK_OPERATION_TYPE, NDK_RESULT, NDK_RESULT_EX, NdkObjectTypeCq, NdkOperationTypeBind,
        NdkOperationTypeFastRegister, NdkOperationTypeInvalidate, NdkOperationTypeRead, NdkOperationTypeReceive,
        NdkOperationTypeReceiveAndInvalidate, NdkOperationTypeSend, NdkOperationTypeWrite,
    },
    nt::{NTSTATUS, PVOID, STATUS_SUCCESS, ULONG},
};
use softndk_engine::{Arm, Close, Completion, CompletionQueue, Hold, Operation};
use softndk_ioctl::{NdkCall, RefusalWay};
use softndk_kernel::pool::{PoolBox, Tag};

use super::{
    adapter::query_extension,
    consumer_object::{self, CloseCallback, ConsumerObject, Kind, Object},
    deferred,
};
use crate::{
    platform::{Callback, KernelPlatform},
    refusal::{Nothing, Refusal, refuse, refuse_by},
    status, tags,
};

static DISPATCH: NDK_CQ_DISPATCH = NDK_CQ_DISPATCH {
    NdkCloseCq: consumer_object::close::<CompletionQueueKind>,
    NdkQueryExtension: query_extension,
    NdkResizeCq: resize,
    NdkArmCq: arm,
    NdkGetCqResults: get_results,
    NdkControlCqInterruptModeration: control_moderation,
    NdkGetCqResultsEx: get_results_ex,
};

pub struct CompletionQueueKind;

impl Kind for CompletionQueueKind {
    type Visible = NDK_CQ;
    type Handle = CompletionQueue<KernelPlatform>;

    const TYPE: NDK_OBJECT_TYPE = NdkObjectTypeCq;
    const TAG: Tag = tags::COMPLETION_QUEUE;

    fn visible(header: NDK_OBJECT_HEADER) -> NDK_CQ {
        NDK_CQ { Header: header, Dispatch: &raw const DISPATCH }
    }

    fn consumer_object(object: PoolBox<Object<Self>>) -> ConsumerObject {
        ConsumerObject::CompletionQueue(object)
    }

    fn close(handle: &Self::Handle, callback: CloseCallback) -> Close<KernelPlatform> {
        handle.close(callback)
    }

    fn hold(handle: &Self::Handle) -> Hold<KernelPlatform> {
        handle.hold()
    }
}

/// NDKPI: NDK_FN_RESIZE_CQ. Done inline: nothing is moved.
unsafe extern "C" fn resize(
    queue: *mut NDK_CQ,
    depth: ULONG,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer passes a completion queue of this provider.
    let Some(object) = (unsafe { Object::<CompletionQueueKind>::from_visible(queue) }) else {
        return refuse(NdkCall::RESIZE_CQ, &Nothing, Refusal::NO_OBJECT);
    };
    let Some(queue) = object.handle() else { return refuse(NdkCall::RESIZE_CQ, &Nothing, Refusal::NO_OBJECT) };
    let size = match queue.size_of(depth) {
        Ok(size) => size,
        Err(cause) => return refuse(NdkCall::RESIZE_CQ, queue, cause),
    };
    let callback = completion.map(|function| Callback::new(function, context));
    let resizing = queue.clone();
    let resize = move || {
        let refused = |cause| refuse(NdkCall::RESIZE_CQ, &resizing, cause);
        resizing.resize(depth).map_or_else(refused, |()| STATUS_SUCCESS)
    };
    deferred::request_sized(NdkCall::RESIZE_CQ, object.origin.completion_mode, size, callback, || queue.hold(), resize)
}

/// NDKPI: NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION. In force when it returns.
unsafe extern "C" fn control_moderation(queue: *mut NDK_CQ, interval: ULONG, count: ULONG) -> NTSTATUS {
    // SAFETY: the consumer passes a completion queue of this provider.
    let Some(queue) = (unsafe { consumer_object::handle::<CompletionQueueKind>(queue) }) else {
        return refuse(NdkCall::CONTROL_CQ_INTERRUPT_MODERATION, &Nothing, Refusal::NO_OBJECT);
    };
    let refused = |cause| refuse(NdkCall::CONTROL_CQ_INTERRUPT_MODERATION, queue, cause);
    queue.moderate(interval, count).map_or_else(refused, |()| STATUS_SUCCESS)
}

/// NDKPI: NDK_FN_ARM_CQ. An unknown type arms for everything, so that no consumer waits for ever.
unsafe extern "C" fn arm(queue: *mut NDK_CQ, kind: ULONG) {
    // SAFETY: the consumer passes a completion queue of this provider.
    let Some(queue) = (unsafe { consumer_object::handle::<CompletionQueueKind>(queue) }) else { return };
    queue.arm(match kind {
        NDK_CQ_NOTIFY_ERRORS => Arm::Errors,
        ndkpi_sys::ndkpi::NDK_CQ_NOTIFY_SOLICITED => Arm::Solicited,
        _ => Arm::Any,
    });
}

/// NDKPI: NDK_FN_GET_CQ_RESULTS.
unsafe extern "C" fn get_results(queue: *mut NDK_CQ, results: *mut NDK_RESULT, most: ULONG) -> ULONG {
    // SAFETY: the consumer passes a completion queue of this provider and an array of `most` results.
    unsafe { poll(queue, results, most, plain) }
}

/// NDKPI: NDK_FN_GET_CQ_RESULTS_EX.
unsafe extern "C" fn get_results_ex(queue: *mut NDK_CQ, results: *mut NDK_RESULT_EX, most: ULONG) -> ULONG {
    // SAFETY: the consumer passes a completion queue of this provider and an array of `most` results.
    unsafe { poll(queue, results, most, extended) }
}

/// Moves completions into the consumer's array.
///
/// # Safety
/// `queue` is a completion queue of this provider; `results` is null or an array of `most` entries.
unsafe fn poll<R>(queue: *mut NDK_CQ, results: *mut R, most: ULONG, form: fn(&Completion, NTSTATUS) -> R) -> ULONG {
    // SAFETY: the caller's promise.
    let Some(queue) = (unsafe { consumer_object::handle::<CompletionQueueKind>(queue) }) else { return 0 };
    if results.is_null() {
        return 0;
    }
    queue.poll(most, |index, completion| {
        // SAFETY: the engine gives indices below `most`.
        let place = unsafe { results.add(index as usize) };
        // SAFETY: inside the consumer's array.
        unsafe { place.write(form(completion, status_of(queue, completion))) };
    })
}

/// The status of a result. A failure is a refusal, reported by this result.
fn status_of(queue: &CompletionQueue<KernelPlatform>, completion: &Completion) -> NTSTATUS {
    let refused = |refusal| refuse_by(RefusalWay::RESULT, call_of(completion.operation), queue, refusal);
    status::of_outcome(completion.outcome).unwrap_or_else(refused)
}

fn plain(completion: &Completion, status: NTSTATUS) -> NDK_RESULT {
    NDK_RESULT {
        Status: status,
        BytesTransferred: completion.bytes,
        QPContext: pointer(completion.queue_pair_context),
        RequestContext: pointer(completion.context),
    }
}

fn extended(completion: &Completion, status: NTSTATUS) -> NDK_RESULT_EX {
    NDK_RESULT_EX {
        Status: status,
        BytesTransferred: completion.bytes,
        QPContext: pointer(completion.queue_pair_context),
        RequestContext: pointer(completion.context),
        Type: operation_type(completion.operation),
        ProviderErrorCode: 0,
        TypeSpecificCompletionOutput: completion.output.0 as usize,
    }
}

/// A consumer's word, given back as it came.
fn pointer(word: u64) -> PVOID {
    core::ptr::with_exposed_provenance_mut(word as usize)
}

/// The call that posted a request; receives of shared queues count as the others.
fn call_of(operation: Operation) -> NdkCall {
    match operation {
        Operation::Receive | Operation::ReceiveAndInvalidate => NdkCall::RECEIVE,
        Operation::Send => NdkCall::SEND,
        Operation::SendAndInvalidate => NdkCall::SEND_AND_INVALIDATE,
        Operation::Read => NdkCall::READ,
        Operation::Write => NdkCall::WRITE,
        Operation::Bind => NdkCall::BIND,
        Operation::FastRegister => NdkCall::FAST_REGISTER,
        Operation::Invalidate => NdkCall::INVALIDATE,
    }
}

fn operation_type(operation: Operation) -> NDK_OPERATION_TYPE {
    match operation {
        Operation::Receive => NdkOperationTypeReceive,
        Operation::ReceiveAndInvalidate => NdkOperationTypeReceiveAndInvalidate,
        Operation::Send | Operation::SendAndInvalidate => NdkOperationTypeSend,
        Operation::Read => NdkOperationTypeRead,
        Operation::Write => NdkOperationTypeWrite,
        Operation::Bind => NdkOperationTypeBind,
        Operation::FastRegister => NdkOperationTypeFastRegister,
        Operation::Invalidate => NdkOperationTypeInvalidate,
    }
}
