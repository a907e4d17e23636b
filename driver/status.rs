//! The one place where errors get their NTSTATUS.
//!
//! The engine reports an error; its status by NDKPI (and, where that is silent, `docs/decisions.md`) is written here and
//! nowhere else. A failure becomes a [`Refusal`], whose status leaves through `refusal.rs` only.

use ndkpi_sys::nt::{
    NTSTATUS, STATUS_ACCESS_VIOLATION, STATUS_ADDRESS_ALREADY_EXISTS, STATUS_BUFFER_OVERFLOW, STATUS_CANCELLED,
    STATUS_CONNECTION_ABORTED, STATUS_CONNECTION_ACTIVE, STATUS_CONNECTION_INVALID, STATUS_CONNECTION_REFUSED,
    STATUS_DATA_OVERRUN, STATUS_DEVICE_BUSY, STATUS_DEVICE_REMOVED, STATUS_HOST_UNREACHABLE,
    STATUS_IMPLEMENTATION_LIMIT, STATUS_INSUFFICIENT_RESOURCES, STATUS_INTERNAL_ERROR, STATUS_INVALID_ADDRESS,
    STATUS_INVALID_BUFFER_SIZE, STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER,
    STATUS_INVALID_PARAMETER_MIX, STATUS_IO_TIMEOUT, STATUS_NETWORK_UNREACHABLE, STATUS_NO_MORE_ENTRIES,
    STATUS_REMOTE_RESOURCES, STATUS_SHARING_VIOLATION, STATUS_SUCCESS, STATUS_TOO_MANY_ADDRESSES, ULONG,
};
use softndk_engine::{
    AccessFault, Completion, ConnectError, CreateError, DisconnectReason, ModerationError, Operation, Outcome,
    PostError, QueueFailure, RegionError, ResizeError,
};

use softndk_ioctl::{RefusalCause, RefusalPlace};

use crate::{memory::MappingError, refusal::Refusal};

/// Object creation.
impl From<CreateError> for Refusal {
    fn from(cause: CreateError) -> Self {
        let status = match cause {
            CreateError::NoResources => STATUS_INSUFFICIENT_RESOURCES,
            CreateError::OverLimit | CreateError::Foreign => STATUS_INVALID_PARAMETER,
            CreateError::AdapterGone => STATUS_DEVICE_REMOVED,
        };
        let cause = match cause {
            CreateError::NoResources => RefusalCause::CREATE_NO_RESOURCES,
            CreateError::OverLimit => RefusalCause::CREATE_OVER_LIMIT,
            CreateError::Foreign => RefusalCause::CREATE_FOREIGN,
            CreateError::AdapterGone => RefusalCause::CREATE_ADAPTER_GONE,
        };
        Self::new(cause, status)
    }
}

/// Mapping of a consumer's memory.
impl From<MappingError> for Refusal {
    fn from(cause: MappingError) -> Self {
        let status = match cause {
            MappingError::NotContiguous | MappingError::NotPinned | MappingError::TooLong => STATUS_INVALID_PARAMETER,
            MappingError::NoResources => STATUS_INSUFFICIENT_RESOURCES,
        };
        let cause = match cause {
            MappingError::NotContiguous => RefusalCause::MAPPING_NOT_CONTIGUOUS,
            MappingError::NotPinned => RefusalCause::MAPPING_NOT_PINNED,
            MappingError::TooLong => RefusalCause::MAPPING_TOO_LONG,
            MappingError::NoResources => RefusalCause::MAPPING_NO_RESOURCES,
        };
        Self::new(cause, status)
    }
}

/// Registration and initialisation of regions, logical mappings.
impl From<RegionError> for Refusal {
    fn from(cause: RegionError) -> Self {
        let status = match cause {
            RegionError::NoResources => STATUS_INSUFFICIENT_RESOURCES,
            RegionError::BadLength => STATUS_INVALID_PARAMETER,
            RegionError::InUse => STATUS_INVALID_DEVICE_STATE,
            RegionError::WindowsBound => STATUS_DEVICE_BUSY,
            RegionError::WrongKind => STATUS_INVALID_DEVICE_REQUEST,
            RegionError::TooManyPages => STATUS_IMPLEMENTATION_LIMIT,
            RegionError::Closing => STATUS_CANCELLED,
        };
        let cause = match cause {
            RegionError::NoResources => RefusalCause::REGION_NO_RESOURCES,
            RegionError::BadLength => RefusalCause::REGION_BAD_LENGTH,
            RegionError::InUse => RefusalCause::REGION_IN_USE,
            RegionError::WindowsBound => RefusalCause::REGION_WINDOWS_BOUND,
            RegionError::WrongKind => RefusalCause::REGION_WRONG_KIND,
            RegionError::TooManyPages => RefusalCause::REGION_TOO_MANY_PAGES,
            RegionError::Closing => RefusalCause::REGION_CLOSING,
        };
        Self::new(cause, status)
    }
}

/// Another depth for a queue.
impl From<ResizeError> for Refusal {
    fn from(cause: ResizeError) -> Self {
        let status = match cause {
            ResizeError::NoResources => STATUS_INSUFFICIENT_RESOURCES,
            ResizeError::OverLimit => STATUS_INVALID_PARAMETER,
            ResizeError::Occupied => STATUS_BUFFER_OVERFLOW,
            ResizeError::Failed => STATUS_INTERNAL_ERROR,
        };
        let cause = match cause {
            ResizeError::NoResources => RefusalCause::RESIZE_NO_RESOURCES,
            ResizeError::OverLimit => RefusalCause::RESIZE_OVER_LIMIT,
            ResizeError::Occupied => RefusalCause::RESIZE_OCCUPIED,
            ResizeError::Failed => RefusalCause::RESIZE_FAILED,
        };
        Self::new(cause, status)
    }
}

/// Moderation of notifications.
impl From<ModerationError> for Refusal {
    fn from(cause: ModerationError) -> Self {
        let status = match cause {
            ModerationError::NoResources => STATUS_INSUFFICIENT_RESOURCES,
            ModerationError::Mix => STATUS_INVALID_PARAMETER_MIX,
        };
        let cause = match cause {
            ModerationError::NoResources => RefusalCause::MODERATION_NO_RESOURCES,
            ModerationError::Mix => RefusalCause::MODERATION_MIX,
        };
        Self::new(cause, status)
    }
}

/// A work request refused inline.
impl From<PostError> for Refusal {
    fn from(cause: PostError) -> Self {
        let status = match cause {
            PostError::QueueFull => STATUS_NO_MORE_ENTRIES,
            PostError::TooManySges => STATUS_DATA_OVERRUN,
            PostError::TooMuchData => STATUS_BUFFER_OVERFLOW,
            PostError::BadFlags | PostError::BadParameter => STATUS_INVALID_PARAMETER,
            PostError::NotConnected => STATUS_CONNECTION_INVALID,
            PostError::AccessDenied => STATUS_ACCESS_VIOLATION,
            PostError::NoResources => STATUS_INSUFFICIENT_RESOURCES,
            PostError::Concurrent => STATUS_INVALID_DEVICE_STATE,
        };
        let cause = match cause {
            PostError::QueueFull => RefusalCause::POST_QUEUE_FULL,
            PostError::TooManySges => RefusalCause::POST_TOO_MANY_ELEMENTS,
            PostError::TooMuchData => RefusalCause::POST_TOO_MUCH_DATA,
            PostError::BadFlags => RefusalCause::POST_BAD_FLAGS,
            PostError::BadParameter => RefusalCause::POST_BAD_PARAMETER,
            PostError::NotConnected => RefusalCause::POST_NOT_CONNECTED,
            PostError::AccessDenied => RefusalCause::POST_ACCESS_DENIED,
            PostError::NoResources => RefusalCause::POST_NO_RESOURCES,
            PostError::Concurrent => RefusalCause::POST_CONCURRENT,
        };
        Self::new(cause, status)
    }
}

/// How a work request completed; a failure is a refusal.
pub fn of_completion(completion: &Completion) -> Result<NTSTATUS, Refusal> {
    let refusal = match completion.outcome {
        Outcome::Success => return Ok(STATUS_SUCCESS),
        Outcome::Cancelled => return Ok(STATUS_CANCELLED),
        Outcome::LocalAccess => Refusal::new(RefusalCause::RESULT_LOCAL_ACCESS, STATUS_ACCESS_VIOLATION),
        Outcome::RemoteAccess => Refusal::new(RefusalCause::RESULT_REMOTE_ACCESS, STATUS_REMOTE_RESOURCES),
        Outcome::RemoteError => Refusal::new(RefusalCause::RESULT_REMOTE_ERROR, STATUS_REMOTE_RESOURCES),
        Outcome::NotReady => Refusal::new(RefusalCause::RESULT_NOT_READY, STATUS_IO_TIMEOUT),
        Outcome::ReceiveTooSmall => Refusal::new(RefusalCause::RESULT_RECEIVE_TOO_SMALL, STATUS_BUFFER_OVERFLOW),
        Outcome::InvalidRequest => Refusal::new(RefusalCause::RESULT_INVALID_REQUEST, STATUS_INVALID_DEVICE_REQUEST),
    };
    let Some(fault) = completion.fault else { return Err(refusal) };
    Err(refusal.because(of_fault(fault), place_of(completion)))
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

/// Connection calls, inline or by completion.
impl From<ConnectError> for Refusal {
    fn from(cause: ConnectError) -> Self {
        let status = match cause {
            ConnectError::NoResources => STATUS_INSUFFICIENT_RESOURCES,
            ConnectError::InvalidAddress => STATUS_INVALID_ADDRESS,
            ConnectError::AddressInUse => STATUS_SHARING_VIOLATION,
            ConnectError::TupleInUse => STATUS_ADDRESS_ALREADY_EXISTS,
            ConnectError::NoPorts => STATUS_TOO_MANY_ADDRESSES,
            ConnectError::NetworkUnreachable => STATUS_NETWORK_UNREACHABLE,
            ConnectError::HostUnreachable => STATUS_HOST_UNREACHABLE,
            ConnectError::Refused => STATUS_CONNECTION_REFUSED,
            ConnectError::Aborted => STATUS_CONNECTION_ABORTED,
            ConnectError::TimedOut => STATUS_IO_TIMEOUT,
            ConnectError::AlreadyConnected => STATUS_CONNECTION_ACTIVE,
            ConnectError::InvalidState => STATUS_CONNECTION_INVALID,
            ConnectError::PrivateDataTooLong => STATUS_INVALID_BUFFER_SIZE,
            ConnectError::Foreign => STATUS_INVALID_PARAMETER,
            ConnectError::AdapterGone => STATUS_DEVICE_REMOVED,
        };
        let cause = match cause {
            ConnectError::NoResources => RefusalCause::CONNECT_NO_RESOURCES,
            ConnectError::InvalidAddress => RefusalCause::CONNECT_INVALID_ADDRESS,
            ConnectError::AddressInUse => RefusalCause::CONNECT_ADDRESS_IN_USE,
            ConnectError::TupleInUse => RefusalCause::CONNECT_TUPLE_IN_USE,
            ConnectError::NoPorts => RefusalCause::CONNECT_NO_PORTS,
            ConnectError::NetworkUnreachable => RefusalCause::CONNECT_NETWORK_UNREACHABLE,
            ConnectError::HostUnreachable => RefusalCause::CONNECT_HOST_UNREACHABLE,
            ConnectError::Refused => RefusalCause::CONNECT_REFUSED,
            ConnectError::Aborted => RefusalCause::CONNECT_ABORTED,
            ConnectError::TimedOut => RefusalCause::CONNECT_TIMED_OUT,
            ConnectError::AlreadyConnected => RefusalCause::CONNECT_ALREADY_CONNECTED,
            ConnectError::InvalidState => RefusalCause::CONNECT_INVALID_STATE,
            ConnectError::PrivateDataTooLong => RefusalCause::CONNECT_PRIVATE_DATA_TOO_LONG,
            ConnectError::Foreign => RefusalCause::CONNECT_FOREIGN,
            ConnectError::AdapterGone => RefusalCause::CONNECT_ADAPTER_GONE,
        };
        Self::new(cause, status)
    }
}

/// Why a connection ended, for NDKPI's NDK_FN_DISCONNECT_EVENT_CALLBACK_EX: the numbers are softndk's own,
/// `docs/connections.md` lists them.
pub fn of_disconnect(reason: DisconnectReason) -> ULONG {
    match reason {
        DisconnectReason::Disconnected => 1,
        DisconnectReason::Closed => 2,
        DisconnectReason::PeerFailed => 3,
        DisconnectReason::TimedOut => 4,
        DisconnectReason::PeerAddressGone => 5,
        DisconnectReason::PeerAdapterGone => 6,
        DisconnectReason::AddressGone => 7,
        DisconnectReason::AdapterGone => 8,
    }
}

/// CqStatus of a notification.
pub fn of_queue(status: Result<(), QueueFailure>) -> NTSTATUS {
    match status {
        Ok(()) => STATUS_SUCCESS,
        Err(QueueFailure::Overflow) => STATUS_BUFFER_OVERFLOW,
    }
}
