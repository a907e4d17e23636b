//! User mode's requests that fail, and its results that are failures, for the list of refusals.
//!
//! Every request ends in one of two places, at once (`request`) or after it has pended (`pending`), and each asks here. A request has one
//! status only, so its cause is what that status means for NetworkDirect; results have the engine's cause.

use ndkpi_sys::nt::{
    NTSTATUS, STATUS_ACCESS_VIOLATION, STATUS_ADDRESS_ALREADY_EXISTS, STATUS_BUFFER_OVERFLOW, STATUS_BUFFER_TOO_SMALL,
    STATUS_CANCELLED, STATUS_CONNECTION_ABORTED, STATUS_CONNECTION_ACTIVE, STATUS_CONNECTION_INVALID,
    STATUS_CONNECTION_REFUSED, STATUS_DEVICE_BUSY, STATUS_DEVICE_REMOVED, STATUS_HOST_UNREACHABLE,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_ADDRESS, STATUS_INVALID_BUFFER_SIZE, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_HANDLE, STATUS_INVALID_PARAMETER, STATUS_IO_TIMEOUT,
    STATUS_NETWORK_UNREACHABLE, STATUS_QUOTA_EXCEEDED, STATUS_REVISION_MISMATCH, STATUS_SHARING_VIOLATION,
    STATUS_TOO_MANY_ADDRESSES,
};
use softndk_engine::{Completion, CompletionQueue, Outcome};
use softndk_ioctl::{ObjectKind, RefusalCause, RefusalWay, nd::call_of_code};
use softndk_kernel::irp::Request;

use super::status::{STATUS_BAD_NETWORK_NAME, invalid_parameter, of_outcome};
use crate::runtime::{
    errors::STATUS_RESOURCE_IN_USE,
    platform::KernelPlatform,
    refusal::{Refusal, Subject, refuse_by},
    status,
};

/// The process of a request.
struct Process(u32);

impl Subject for Process {
    fn subject(&self) -> (ObjectKind, u64) {
        (ObjectKind::default(), u64::from(self.0))
    }
}

/// Records the end of a request if it is a failure. `IRQL <= DISPATCH_LEVEL`, before the packet is completed.
pub fn record(request: &Request, status: NTSTATUS, way: RefusalWay) {
    let is_told_elsewhere = matches!(status, STATUS_CANCELLED | STATUS_BUFFER_OVERFLOW | STATUS_QUOTA_EXCEEDED);
    if status < 0 && !is_told_elsewhere {
        let call = call_of_code(request.device_control().code);
        let _same = refuse_by(way, call, &Process(request.process()), Refusal::new(cause_of(status), status));
    }
}

/// The status of a result, which is a refusal where it is a failure.
pub fn status_of(queue: &CompletionQueue<KernelPlatform>, completion: &Completion) -> NTSTATUS {
    if completion.outcome == Outcome::Success { of_outcome(Outcome::Success) } else { of_failure(queue, completion) }
}

#[cold]
fn of_failure(queue: &CompletionQueue<KernelPlatform>, completion: &Completion) -> NTSTATUS {
    let status = of_outcome(completion.outcome);
    match status::of_completion(completion) {
        Ok(_) => status,
        Err(refusal) => {
            refuse_by(RefusalWay::RESULT, status::call_of(completion.operation), queue, refusal.with_status(status))
        }
    }
}

/// What a status means.
fn cause_of(status: NTSTATUS) -> RefusalCause {
    match status {
        STATUS_ACCESS_VIOLATION => RefusalCause::ND_NO_ACCESS,
        STATUS_INVALID_PARAMETER => RefusalCause::ND_BAD_REQUEST,
        STATUS_INVALID_HANDLE => RefusalCause::ND_BAD_HANDLE,
        STATUS_INSUFFICIENT_RESOURCES => RefusalCause::NO_MEMORY,
        STATUS_DEVICE_REMOVED => RefusalCause::CREATE_ADAPTER_GONE,
        STATUS_INVALID_DEVICE_REQUEST => RefusalCause::ND_UNKNOWN_REQUEST,
        STATUS_INVALID_DEVICE_STATE => RefusalCause::ND_WRONG_STATE,
        STATUS_REVISION_MISMATCH => RefusalCause::ND_OTHER_LAYOUT,
        STATUS_BUFFER_TOO_SMALL => RefusalCause::ND_SHORT_OUTPUT,
        STATUS_DEVICE_BUSY => RefusalCause::ND_IN_USE,
        STATUS_RESOURCE_IN_USE => RefusalCause::REGION_WINDOWS_BOUND,
        STATUS_BAD_NETWORK_NAME => RefusalCause::ND_NO_HOST,
        STATUS_INVALID_ADDRESS => RefusalCause::CONNECT_INVALID_ADDRESS,
        STATUS_SHARING_VIOLATION => RefusalCause::CONNECT_ADDRESS_IN_USE,
        STATUS_ADDRESS_ALREADY_EXISTS => RefusalCause::CONNECT_TUPLE_IN_USE,
        STATUS_TOO_MANY_ADDRESSES => RefusalCause::CONNECT_NO_PORTS,
        STATUS_NETWORK_UNREACHABLE => RefusalCause::CONNECT_NETWORK_UNREACHABLE,
        STATUS_HOST_UNREACHABLE => RefusalCause::CONNECT_HOST_UNREACHABLE,
        STATUS_CONNECTION_REFUSED => RefusalCause::CONNECT_REFUSED,
        STATUS_CONNECTION_ABORTED => RefusalCause::CONNECT_ABORTED,
        STATUS_IO_TIMEOUT => RefusalCause::CONNECT_TIMED_OUT,
        STATUS_CONNECTION_ACTIVE => RefusalCause::CONNECT_ALREADY_CONNECTED,
        STATUS_CONNECTION_INVALID => RefusalCause::CONNECT_INVALID_STATE,
        STATUS_INVALID_BUFFER_SIZE => RefusalCause::CONNECT_PRIVATE_DATA_TOO_LONG,
        _ if (1..=10).any(|number| status == invalid_parameter(number)) => {
            let number = status.wrapping_sub(invalid_parameter(1)).cast_unsigned();
            RefusalCause(RefusalCause::ND_PARAMETER_1.0.saturating_add(number))
        }
        _ => RefusalCause::ND_STATUS,
    }
}
