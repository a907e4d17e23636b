//! The one place where causes become NTSTATUS.
//!
//! The engine reports why; what NDKPI (and, where it is silent, `docs/decisions.md`) calls it is written here and nowhere else.

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
    ConnectError, CreateError, DisconnectReason, ModerationError, Outcome, PostError, QueueFailure, RegionError,
    ResizeError,
};

use crate::memory::MappingError;

/// Object creation.
pub fn of_create(cause: CreateError) -> NTSTATUS {
    match cause {
        CreateError::NoResources => STATUS_INSUFFICIENT_RESOURCES,
        CreateError::OverLimit | CreateError::Foreign => STATUS_INVALID_PARAMETER,
        CreateError::AdapterGone => STATUS_DEVICE_REMOVED,
    }
}

/// Mapping of a consumer's memory.
pub fn of_mapping(cause: MappingError) -> NTSTATUS {
    match cause {
        MappingError::NotContiguous | MappingError::NotPinned | MappingError::TooLong => STATUS_INVALID_PARAMETER,
        MappingError::NoResources => STATUS_INSUFFICIENT_RESOURCES,
    }
}

/// Registration and initialisation of regions, logical mappings.
pub fn of_region(cause: RegionError) -> NTSTATUS {
    match cause {
        RegionError::NoResources => STATUS_INSUFFICIENT_RESOURCES,
        RegionError::BadLength => STATUS_INVALID_PARAMETER,
        RegionError::InUse => STATUS_INVALID_DEVICE_STATE,
        RegionError::WindowsBound => STATUS_DEVICE_BUSY,
        RegionError::WrongKind => STATUS_INVALID_DEVICE_REQUEST,
        RegionError::TooManyPages => STATUS_IMPLEMENTATION_LIMIT,
        RegionError::Closing => STATUS_CANCELLED,
    }
}

/// Another depth for a queue.
pub fn of_resize(cause: ResizeError) -> NTSTATUS {
    match cause {
        ResizeError::NoResources => STATUS_INSUFFICIENT_RESOURCES,
        ResizeError::OverLimit => STATUS_INVALID_PARAMETER,
        ResizeError::Occupied => STATUS_BUFFER_OVERFLOW,
        ResizeError::Failed => STATUS_INTERNAL_ERROR,
    }
}

/// Moderation of notifications.
pub fn of_moderation(cause: ModerationError) -> NTSTATUS {
    match cause {
        ModerationError::NoResources => STATUS_INSUFFICIENT_RESOURCES,
        ModerationError::Mix => STATUS_INVALID_PARAMETER_MIX,
    }
}

/// A work request refused inline.
pub fn of_post(cause: PostError) -> NTSTATUS {
    match cause {
        PostError::QueueFull => STATUS_NO_MORE_ENTRIES,
        PostError::TooManyElements => STATUS_DATA_OVERRUN,
        PostError::TooMuchData => STATUS_BUFFER_OVERFLOW,
        PostError::BadFlags | PostError::BadParameter => STATUS_INVALID_PARAMETER,
        PostError::NotConnected => STATUS_CONNECTION_INVALID,
        PostError::AccessDenied => STATUS_ACCESS_VIOLATION,
        PostError::NoResources => STATUS_INSUFFICIENT_RESOURCES,
        PostError::Concurrent => STATUS_INVALID_DEVICE_STATE,
    }
}

/// How a work request completed.
pub fn of_outcome(outcome: Outcome) -> NTSTATUS {
    match outcome {
        Outcome::Success => STATUS_SUCCESS,
        Outcome::Cancelled => STATUS_CANCELLED,
        Outcome::LocalAccess => STATUS_ACCESS_VIOLATION,
        Outcome::RemoteAccess | Outcome::RemoteError => STATUS_REMOTE_RESOURCES,
        Outcome::NotReady => STATUS_IO_TIMEOUT,
        Outcome::ReceiveTooSmall => STATUS_BUFFER_OVERFLOW,
        Outcome::InvalidRequest => STATUS_INVALID_DEVICE_REQUEST,
    }
}

/// Connection calls, inline or by completion.
pub fn of_connect(cause: ConnectError) -> NTSTATUS {
    match cause {
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
    }
}

/// How a request with a completion callback ended.
pub fn of_result(result: Result<(), ConnectError>) -> NTSTATUS {
    result.map_or_else(of_connect, |()| STATUS_SUCCESS)
}

/// Why a connection ended, for NDKPI's NDK_FN_DISCONNECT_EVENT_CALLBACK_EX: numbers of ours, `docs/connections.md` lists them.
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
