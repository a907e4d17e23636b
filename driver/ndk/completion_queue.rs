//! The dispatch table of a completion queue.

use ndkpi_sys::{
    ndkpi::{
        NDK_CQ, NDK_CQ_DISPATCH, NDK_CQ_NOTIFY_ERRORS, NDK_FN_REQUEST_COMPLETION, NDK_OPERATION_TYPE, NDK_RESULT,
        NDK_RESULT_EX, NdkOperationTypeBind, NdkOperationTypeFastRegister, NdkOperationTypeInvalidate,
        NdkOperationTypeRead, NdkOperationTypeReceive, NdkOperationTypeReceiveAndInvalidate, NdkOperationTypeSend,
        NdkOperationTypeWrite,
    },
    nt::{NTSTATUS, PVOID, STATUS_SUCCESS, ULONG},
};
use softndk_engine::{Arm, Completion, CompletionQueue, Operation, Outcome};
use softndk_ioctl::{NdkCall, RefusalWay};

use super::{
    consumer_object,
    entry::{Results, entry},
    extension::query_extension,
    kind::kind,
};
use crate::runtime::{
    deferred,
    platform::{Callback, KernelPlatform},
    refusal::{Nothing, Refusal, refuse, refuse_by},
    status,
};

kind!(CompletionQueueKind, CompletionQueueRef: CompletionQueue, NDK_CQ, NdkObjectTypeCq, COMPLETION_QUEUE);

pub static DISPATCH: NDK_CQ_DISPATCH = NDK_CQ_DISPATCH {
    NdkCloseCq: consumer_object::close::<CompletionQueueKind>,
    NdkQueryExtension: query_extension,
    NdkResizeCq: entry!(resize(*mut NDK_CQ, ULONG, [Option<NDK_FN_REQUEST_COMPLETION>, PVOID]) -> NTSTATUS),
    NdkArmCq: entry!(arm(*mut NDK_CQ, ULONG)),
    NdkGetCqResults: entry!(get_results(*mut NDK_CQ, [*mut NDK_RESULT, ULONG]) -> ULONG),
    NdkControlCqInterruptModeration: entry!(control_moderation(*mut NDK_CQ, ULONG, ULONG) -> NTSTATUS),
    NdkGetCqResultsEx: entry!(get_results_ex(*mut NDK_CQ, [*mut NDK_RESULT_EX, ULONG]) -> ULONG),
};

/// NDKPI: NDK_FN_RESIZE_CQ. Done inline: nothing is moved.
fn resize(
    queue: CompletionQueueRef<'_>,
    depth: ULONG,
    completion: Option<Callback<NDK_FN_REQUEST_COMPLETION>>,
) -> NTSTATUS {
    let Some((object, queue)) = queue.both() else {
        return refuse(NdkCall::RESIZE_CQ, &Nothing, Refusal::NO_OBJECT);
    };
    let size = match queue.size_of(depth) {
        Ok(size) => size,
        Err(cause) => return refuse(NdkCall::RESIZE_CQ, queue, cause),
    };
    let resizing = queue.clone();
    let resize = move || {
        let refused = |cause| refuse(NdkCall::RESIZE_CQ, &resizing, cause);
        resizing.resize(depth).map_or_else(refused, |()| STATUS_SUCCESS)
    };
    let completion_mode = object.origin.completion_mode;
    deferred::request_sized(NdkCall::RESIZE_CQ, completion_mode, size, completion, || queue.hold(), resize)
}

/// NDKPI: NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION. In force when it returns.
fn control_moderation(queue: CompletionQueueRef<'_>, interval: ULONG, count: ULONG) -> NTSTATUS {
    let Some(queue) = queue.get() else {
        return refuse(NdkCall::CONTROL_CQ_INTERRUPT_MODERATION, &Nothing, Refusal::NO_OBJECT);
    };
    let refused = |cause| refuse(NdkCall::CONTROL_CQ_INTERRUPT_MODERATION, queue, cause);
    queue.moderate(interval, count).map_or_else(refused, |()| STATUS_SUCCESS)
}

/// NDKPI: NDK_FN_ARM_CQ. An unknown type arms for everything, so that no consumer waits for ever.
fn arm(queue: CompletionQueueRef<'_>, kind: ULONG) {
    let Some(queue) = queue.get() else { return };
    queue.arm(match kind {
        NDK_CQ_NOTIFY_ERRORS => Arm::Errors,
        ndkpi_sys::ndkpi::NDK_CQ_NOTIFY_SOLICITED => Arm::Solicited,
        _ => Arm::Any,
    });
}

/// NDKPI: NDK_FN_GET_CQ_RESULTS.
fn get_results(queue: CompletionQueueRef<'_>, results: Results<'_, NDK_RESULT>) -> ULONG {
    poll(queue, results)
}

/// NDKPI: NDK_FN_GET_CQ_RESULTS_EX.
fn get_results_ex(queue: CompletionQueueRef<'_>, results: Results<'_, NDK_RESULT_EX>) -> ULONG {
    poll(queue, results)
}

/// Moves completions into the consumer's array.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a form of its own for each of the two functions")]
fn poll<R: ResultForm>(queue: CompletionQueueRef<'_>, results: Results<'_, R>) -> ULONG {
    let Some(queue) = queue.get() else { return 0 };
    if results.is_null() {
        return 0;
    }
    queue.poll(results.count(), |index, completion| {
        if completion.outcome == Outcome::Success {
            results.write(index, || R::success(completion));
        } else {
            write_failure(queue, &results, index, completion);
        }
    })
}

/// A failure is a refusal, reported by this result.
#[cold]
#[inline(never)]
fn write_failure<R: ResultForm>(
    queue: &CompletionQueue<KernelPlatform>,
    results: &Results<'_, R>,
    index: u32,
    completion: &Completion,
) {
    let refused = |refusal| refuse_by(RefusalWay::RESULT, status::call_of(completion.operation), queue, refusal);
    let status = status::of_completion(completion).unwrap_or_else(refused);
    results.write(index, || R::success(completion).with_status(status, completion));
}

/// How a consumer gets a result.
trait ResultForm: Copy {
    fn success(completion: &Completion) -> Self;

    /// The same as a failure with this status.
    fn with_status(self, status: NTSTATUS, completion: &Completion) -> Self;
}

impl ResultForm for NDK_RESULT {
    #[inline]
    fn success(completion: &Completion) -> Self {
        Self {
            Status: STATUS_SUCCESS,
            BytesTransferred: completion.bytes,
            QPContext: pointer(completion.queue_pair_context),
            RequestContext: pointer(completion.context),
        }
    }

    fn with_status(self, status: NTSTATUS, _completion: &Completion) -> Self {
        Self { Status: status, ..self }
    }
}

impl ResultForm for NDK_RESULT_EX {
    #[inline]
    fn success(completion: &Completion) -> Self {
        Self {
            Status: STATUS_SUCCESS,
            BytesTransferred: completion.bytes,
            QPContext: pointer(completion.queue_pair_context),
            RequestContext: pointer(completion.context),
            Type: operation_type(completion.operation),
            ProviderErrorCode: 0,
            TypeSpecificCompletionOutput: completion.output as usize,
        }
    }

    fn with_status(self, status: NTSTATUS, completion: &Completion) -> Self {
        Self { Status: status, ProviderErrorCode: completion.output, TypeSpecificCompletionOutput: 0, ..self }
    }
}

/// A consumer's word, given back as it came.
fn pointer(word: u64) -> PVOID {
    core::ptr::with_exposed_provenance_mut(word as usize)
}

fn operation_type(operation: Operation) -> NDK_OPERATION_TYPE {
    match operation {
        Operation::Receive | Operation::ReceiveImmediate | Operation::ReceiveWriteImmediate => NdkOperationTypeReceive,
        Operation::ReceiveAndInvalidate => NdkOperationTypeReceiveAndInvalidate,
        Operation::Send | Operation::SendAndInvalidate | Operation::SendImmediate => NdkOperationTypeSend,
        Operation::Read => NdkOperationTypeRead,
        Operation::Write | Operation::WriteImmediate => NdkOperationTypeWrite,
        Operation::Bind => NdkOperationTypeBind,
        Operation::FastRegister => NdkOperationTypeFastRegister,
        Operation::Invalidate => NdkOperationTypeInvalidate,
    }
}
