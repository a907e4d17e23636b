//! The one place where the engine's errors get the status that NetworkDirect has for them (`docs/networkdirect.md`).

use ndkpi_sys::nt::{
    NTSTATUS, STATUS_ACCESS_VIOLATION, STATUS_ADDRESS_ALREADY_EXISTS, STATUS_BUFFER_OVERFLOW, STATUS_CANCELLED,
    STATUS_CONNECTION_ABORTED, STATUS_CONNECTION_ACTIVE, STATUS_CONNECTION_INVALID, STATUS_CONNECTION_REFUSED,
    STATUS_DATA_OVERRUN, STATUS_DEVICE_REMOVED, STATUS_HOST_UNREACHABLE, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INTERNAL_ERROR, STATUS_INVALID_ADDRESS, STATUS_INVALID_BUFFER_SIZE, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER, STATUS_IO_TIMEOUT, STATUS_NETWORK_UNREACHABLE,
    STATUS_NO_MORE_ENTRIES, STATUS_REMOTE_RESOURCES, STATUS_SHARING_VIOLATION, STATUS_SUCCESS,
    STATUS_TOO_MANY_ADDRESSES,
};
use softndk_engine::{ConnectError, CreateError, Operation, Outcome, PostError, RegionError, ResizeError};
use softndk_ioctl::nd::rings::RequestType;

use crate::memory::MappingError;

/// What a request is answered with: bytes of output, or the status of its failure.
pub type Answered = Result<usize, NTSTATUS>;

/// The name of the destination stands for no host.
pub const STATUS_BAD_NETWORK_NAME: NTSTATUS = 0xC000_00CC_u32.cast_signed();

/// An object is in use by others.
pub const STATUS_RESOURCE_IN_USE: NTSTATUS = 0xC000_0708_u32.cast_signed();

/// STATUS_INVALID_PARAMETER_1 to _10: which parameter of the provider's method.
pub const fn invalid_parameter(number: i32) -> NTSTATUS {
    0xC000_00EE_u32.cast_signed().wrapping_add(number)
}

/// Object creation.
pub fn of_create(cause: CreateError) -> NTSTATUS {
    match cause {
        CreateError::NoResources => STATUS_INSUFFICIENT_RESOURCES,
        CreateError::OverLimit | CreateError::Foreign => STATUS_INVALID_PARAMETER,
        CreateError::AdapterGone => STATUS_DEVICE_REMOVED,
    }
}

/// Mapping of a process's memory.
pub fn of_mapping(cause: MappingError) -> NTSTATUS {
    match cause {
        MappingError::NotContiguous | MappingError::NotPinned | MappingError::TooLong => STATUS_INVALID_PARAMETER,
        MappingError::NoResources => STATUS_INSUFFICIENT_RESOURCES,
    }
}

/// Registration.
pub fn of_region(cause: RegionError) -> NTSTATUS {
    match cause {
        RegionError::NoResources => STATUS_INSUFFICIENT_RESOURCES,
        RegionError::BadLength | RegionError::TooManyPages => STATUS_INVALID_PARAMETER,
        RegionError::InUse | RegionError::WrongKind => STATUS_INVALID_DEVICE_STATE,
        // An error, so that no packet comes of it: DEVICE_BUSY is a warning.
        RegionError::WindowsBound => STATUS_RESOURCE_IN_USE,
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

/// A Bind refused at once.
pub fn of_bind(cause: PostError) -> NTSTATUS {
    match cause {
        PostError::QueueFull => STATUS_NO_MORE_ENTRIES,
        PostError::TooManySges => STATUS_DATA_OVERRUN,
        PostError::TooMuchData => STATUS_BUFFER_OVERFLOW,
        PostError::BadFlags => STATUS_INVALID_PARAMETER,
        // Outside of the region, or a right that the region does not have.
        PostError::BadParameter | PostError::AccessDenied => STATUS_ACCESS_VIOLATION,
        PostError::NotConnected => STATUS_CONNECTION_INVALID,
        PostError::NoResources => STATUS_INSUFFICIENT_RESOURCES,
        PostError::Concurrent => STATUS_INVALID_DEVICE_STATE,
    }
}

/// How a work request completed.
pub fn of_outcome(outcome: Outcome) -> NTSTATUS {
    match outcome {
        Outcome::Success => STATUS_SUCCESS,
        Outcome::Cancelled => STATUS_CANCELLED,
        Outcome::LocalAccess | Outcome::RemoteAccess => STATUS_ACCESS_VIOLATION,
        Outcome::RemoteError => STATUS_REMOTE_RESOURCES,
        Outcome::NotReady => STATUS_IO_TIMEOUT,
        Outcome::ReceiveTooSmall => STATUS_DATA_OVERRUN,
        Outcome::InvalidRequest => STATUS_INVALID_DEVICE_REQUEST,
    }
}

/// Which request completed.
pub fn of_operation(operation: Operation) -> RequestType {
    match operation {
        Operation::Receive => RequestType::Receive,
        Operation::ReceiveAndInvalidate => RequestType::ReceiveAndInvalidate,
        Operation::ReceiveImmediate => RequestType::ReceiveImmediate,
        Operation::ReceiveWriteImmediate => RequestType::ReceiveWriteImmediate,
        Operation::Send | Operation::SendAndInvalidate | Operation::SendImmediate => RequestType::Send,
        Operation::Read => RequestType::Read,
        Operation::Write | Operation::WriteImmediate => RequestType::Write,
        Operation::Bind => RequestType::Bind,
        // No fast registration is posted here.
        Operation::FastRegister | Operation::Invalidate => RequestType::Invalidate,
    }
}

/// Connection calls, at once or by their completion. What does not fit the state of a connector is `state`.
pub fn of_connect(cause: ConnectError, state: NTSTATUS) -> NTSTATUS {
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
        ConnectError::InvalidState => state,
        ConnectError::PrivateDataTooLong => STATUS_INVALID_BUFFER_SIZE,
        ConnectError::Foreign => STATUS_INVALID_PARAMETER,
        ConnectError::AdapterGone => STATUS_DEVICE_REMOVED,
    }
}
