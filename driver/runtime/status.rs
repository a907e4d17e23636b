//! Statuses and causes of what is no error of a call: results, notifications, the ends of connections. Errors have a table (`errors.rs`).

use ndkpi_sys::nt::{NTSTATUS, STATUS_BUFFER_OVERFLOW, STATUS_REMOTE_RESOURCES, STATUS_SUCCESS};
use softndk_engine::{AccessFault, Completion, Operation, Outcome, QueueFailure};
use softndk_ioctl::{NdkCall, RefusalCause, RefusalPlace};

use super::{errors, refusal::Refusal};

/// The call that posted a request; receives of shared queues count as the others.
pub fn call_of(operation: Operation) -> NdkCall {
    match operation {
        Operation::Receive
        | Operation::ReceiveAndInvalidate
        | Operation::ReceiveImmediate
        | Operation::ReceiveWriteImmediate => NdkCall::RECEIVE,
        // Kernel consumers have no immediate data.
        Operation::Send | Operation::SendImmediate => NdkCall::SEND,
        Operation::SendAndInvalidate => NdkCall::SEND_AND_INVALIDATE,
        Operation::Read => NdkCall::READ,
        Operation::Write | Operation::WriteImmediate => NdkCall::WRITE,
        Operation::Bind => NdkCall::BIND,
        Operation::FastRegister => NdkCall::FAST_REGISTER,
        Operation::Invalidate => NdkCall::INVALIDATE,
    }
}

/// How a work request completed; a failure is a refusal.
pub fn of_completion(completion: &Completion) -> Result<NTSTATUS, Refusal> {
    errors::of_outcome(completion.outcome).map_err(|failure| {
        let refusal = Refusal::new(failure.cause, failure.ndk);
        completion.fault.map_or(refusal, |fault| refusal.because(of_fault(fault), place_of(completion)))
    })
}

/// What was wrong with memory, a token or a receive.
pub fn of_fault(fault: AccessFault) -> RefusalCause {
    match fault {
        AccessFault::NoToken => RefusalCause::RESULT_NO_TOKEN,
        AccessFault::StaleToken => RefusalCause::RESULT_STALE_TOKEN,
        AccessFault::PrivilegedToken => RefusalCause::RESULT_PRIVILEGED_TOKEN,
        AccessFault::WindowToken => RefusalCause::RESULT_WINDOW_TOKEN,
        AccessFault::NotInUse => RefusalCause::RESULT_NOT_IN_USE,
        AccessFault::Domain => RefusalCause::RESULT_OTHER_DOMAIN,
        AccessFault::QueuePair => RefusalCause::RESULT_OTHER_QUEUE_PAIR,
        AccessFault::Rights => RefusalCause::RESULT_NO_RIGHT,
        AccessFault::Bounds => RefusalCause::RESULT_OUT_OF_BOUNDS,
        AccessFault::NoMapping => RefusalCause::RESULT_NO_MAPPING,
        AccessFault::ReceiveTooSmall => RefusalCause::RESULT_SHORT_RECEIVE,
        AccessFault::NotInvalidated => RefusalCause::RESULT_NOT_INVALIDATED,
    }
}

/// At whose memory or receive a request failed.
fn place_of(completion: &Completion) -> RefusalPlace {
    let is_own = completion.outcome == Outcome::LocalAccess;
    match completion.operation {
        Operation::Receive | Operation::ReceiveAndInvalidate => RefusalPlace::OWN_SINK,
        Operation::Read if is_own => RefusalPlace::OWN_SINK,
        Operation::Read => RefusalPlace::PEER_SOURCE,
        _ if is_own => RefusalPlace::OWN_SOURCE,
        Operation::Write => RefusalPlace::PEER_SINK,
        _ if completion.fault == Some(AccessFault::NotInvalidated) => RefusalPlace::PEER_SINK,
        _ => RefusalPlace::PEER_RECEIVE,
    }
}

/// A peer's request that failed at this end.
pub fn of_peer(operation: Operation, fault: AccessFault) -> Refusal {
    let place = if operation == Operation::Read { RefusalPlace::HERE_SOURCE } else { RefusalPlace::HERE_SINK };
    let cause = of_fault(fault);
    Refusal::new(cause, STATUS_REMOTE_RESOURCES).because(cause, place)
}

/// CqStatus of a notification.
pub fn of_queue(status: Result<(), QueueFailure>) -> NTSTATUS {
    match status {
        Ok(()) => STATUS_SUCCESS,
        Err(QueueFailure::Overflow) => STATUS_BUFFER_OVERFLOW,
    }
}
