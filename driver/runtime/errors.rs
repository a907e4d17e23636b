//! The table of errors: for each of the engine's its cause in the list of refusals, its status by NDKPI, and by NetworkDirect where that
//! has another.
//!
//! NDKPI names few statuses; where it is silent, `docs/decisions.md` says why. A failed call leaves through `refusal.rs`.

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
    ConnectError, CreateError, DisconnectReason, ModerationError, Outcome, PostError, RegionError, ResizeError,
};
use softndk_ioctl::RefusalCause;
use softndk_kernel::pool::NoMemory;

/// STATUS_RESOURCE_IN_USE.
pub const STATUS_RESOURCE_IN_USE: NTSTATUS = 0xC000_0708_u32.cast_signed();

/// Why memory could not be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingError {
    /// The chain is not virtually contiguous over the requested length.
    NotContiguous,
    /// The chain describes memory that may be freed or that the processor must not cache.
    NotPinned,
    /// More bytes than can be mapped.
    TooLong,
    NoResources,
}

impl From<NoMemory> for MappingError {
    fn from(_: NoMemory) -> Self {
        Self::NoResources
    }
}

/// A row of the table.
#[derive(Clone, Copy)]
pub struct Failure {
    pub cause: RefusalCause,
    /// By NDKPI.
    pub ndk: NTSTATUS,
    /// By NetworkDirect.
    pub nd: NTSTATUS,
}

/// An error that has rows.
pub trait EngineError: Into<Failure> {}

/// The rows of each type of error.
macro_rules! errors {
    ($($(#[$comment:meta])* $Error:ident { $($Variant:ident: $CAUSE:ident, $ndk:ident $(, nd $nd:ident)?;)+ })+) => {$(
        $(#[$comment])*
        impl From<$Error> for Failure {
            fn from(error: $Error) -> Self {
                match error { $($Error::$Variant => failure!($CAUSE, $ndk $(, $nd)?),)+ }
            }
        }

        impl EngineError for $Error {}
    )+};
}

macro_rules! failure {
    ($CAUSE:ident, $ndk:ident) => {
        failure!($CAUSE, $ndk, $ndk)
    };
    ($CAUSE:ident, $ndk:ident, $nd:ident) => {
        Failure { cause: RefusalCause::$CAUSE, ndk: $ndk, nd: $nd }
    };
}

errors! {
    /// Object creation.
    CreateError {
        NoResources: CREATE_NO_RESOURCES, STATUS_INSUFFICIENT_RESOURCES;
        OverLimit: CREATE_OVER_LIMIT, STATUS_INVALID_PARAMETER;
        Foreign: CREATE_FOREIGN, STATUS_INVALID_PARAMETER;
        AdapterGone: CREATE_ADAPTER_GONE, STATUS_DEVICE_REMOVED;
    }

    /// Mapping of a consumer's memory.
    MappingError {
        NotContiguous: MAPPING_NOT_CONTIGUOUS, STATUS_INVALID_PARAMETER;
        NotPinned: MAPPING_NOT_PINNED, STATUS_INVALID_PARAMETER;
        TooLong: MAPPING_TOO_LONG, STATUS_INVALID_PARAMETER;
        NoResources: MAPPING_NO_RESOURCES, STATUS_INSUFFICIENT_RESOURCES;
    }

    /// Registration and initialisation of regions, logical mappings. By NetworkDirect windows that are bound are an error, so that no
    /// packet comes of it: DEVICE_BUSY is a warning.
    RegionError {
        NoResources: REGION_NO_RESOURCES, STATUS_INSUFFICIENT_RESOURCES;
        BadLength: REGION_BAD_LENGTH, STATUS_INVALID_PARAMETER;
        InUse: REGION_IN_USE, STATUS_INVALID_DEVICE_STATE;
        WindowsBound: REGION_WINDOWS_BOUND, STATUS_DEVICE_BUSY, nd STATUS_RESOURCE_IN_USE;
        WrongKind: REGION_WRONG_KIND, STATUS_INVALID_DEVICE_REQUEST, nd STATUS_INVALID_DEVICE_STATE;
        TooManyPages: REGION_TOO_MANY_PAGES, STATUS_IMPLEMENTATION_LIMIT, nd STATUS_INVALID_PARAMETER;
        Closing: REGION_CLOSING, STATUS_CANCELLED;
    }

    /// Another depth for a queue.
    ResizeError {
        NoResources: RESIZE_NO_RESOURCES, STATUS_INSUFFICIENT_RESOURCES;
        OverLimit: RESIZE_OVER_LIMIT, STATUS_INVALID_PARAMETER;
        Occupied: RESIZE_OCCUPIED, STATUS_BUFFER_OVERFLOW;
        Failed: RESIZE_FAILED, STATUS_INTERNAL_ERROR;
    }

    /// Moderation of notifications.
    ModerationError {
        NoResources: MODERATION_NO_RESOURCES, STATUS_INSUFFICIENT_RESOURCES;
        Mix: MODERATION_MIX, STATUS_INVALID_PARAMETER_MIX;
    }

    /// A work request refused inline. By NetworkDirect it is a Bind: outside of the region, or a right that the region does not have.
    PostError {
        QueueFull: POST_QUEUE_FULL, STATUS_NO_MORE_ENTRIES;
        TooManySges: POST_TOO_MANY_ELEMENTS, STATUS_DATA_OVERRUN;
        TooMuchData: POST_TOO_MUCH_DATA, STATUS_BUFFER_OVERFLOW;
        BadFlags: POST_BAD_FLAGS, STATUS_INVALID_PARAMETER;
        BadParameter: POST_BAD_PARAMETER, STATUS_INVALID_PARAMETER, nd STATUS_ACCESS_VIOLATION;
        NotConnected: POST_NOT_CONNECTED, STATUS_CONNECTION_INVALID;
        AccessDenied: POST_ACCESS_DENIED, STATUS_ACCESS_VIOLATION;
        NoResources: POST_NO_RESOURCES, STATUS_INSUFFICIENT_RESOURCES;
        Concurrent: POST_CONCURRENT, STATUS_INVALID_DEVICE_STATE;
    }

    /// Connection calls, inline or by completion. By NetworkDirect the call decides which status `InvalidState` has.
    ConnectError {
        NoResources: CONNECT_NO_RESOURCES, STATUS_INSUFFICIENT_RESOURCES;
        InvalidAddress: CONNECT_INVALID_ADDRESS, STATUS_INVALID_ADDRESS;
        AddressInUse: CONNECT_ADDRESS_IN_USE, STATUS_SHARING_VIOLATION;
        TupleInUse: CONNECT_TUPLE_IN_USE, STATUS_ADDRESS_ALREADY_EXISTS;
        NoPorts: CONNECT_NO_PORTS, STATUS_TOO_MANY_ADDRESSES;
        NetworkUnreachable: CONNECT_NETWORK_UNREACHABLE, STATUS_NETWORK_UNREACHABLE;
        HostUnreachable: CONNECT_HOST_UNREACHABLE, STATUS_HOST_UNREACHABLE;
        Refused: CONNECT_REFUSED, STATUS_CONNECTION_REFUSED;
        Aborted: CONNECT_ABORTED, STATUS_CONNECTION_ABORTED;
        TimedOut: CONNECT_TIMED_OUT, STATUS_IO_TIMEOUT;
        AlreadyConnected: CONNECT_ALREADY_CONNECTED, STATUS_CONNECTION_ACTIVE;
        InvalidState: CONNECT_INVALID_STATE, STATUS_CONNECTION_INVALID;
        PrivateDataTooLong: CONNECT_PRIVATE_DATA_TOO_LONG, STATUS_INVALID_BUFFER_SIZE;
        Foreign: CONNECT_FOREIGN, STATUS_INVALID_PARAMETER;
        AdapterGone: CONNECT_ADAPTER_GONE, STATUS_DEVICE_REMOVED;
    }
}

/// How a work request completed: its status by both interfaces, or the failure.
pub fn of_outcome(outcome: Outcome) -> Result<NTSTATUS, Failure> {
    Err(match outcome {
        Outcome::Success => return Ok(STATUS_SUCCESS),
        Outcome::Cancelled => return Ok(STATUS_CANCELLED),
        Outcome::LocalAccess => failure!(RESULT_LOCAL_ACCESS, STATUS_ACCESS_VIOLATION),
        Outcome::RemoteAccess => failure!(RESULT_REMOTE_ACCESS, STATUS_REMOTE_RESOURCES, STATUS_ACCESS_VIOLATION),
        Outcome::RemoteError => failure!(RESULT_REMOTE_ERROR, STATUS_REMOTE_RESOURCES),
        Outcome::NotReady => failure!(RESULT_NOT_READY, STATUS_IO_TIMEOUT),
        Outcome::ReceiveTooSmall => failure!(RESULT_RECEIVE_TOO_SMALL, STATUS_BUFFER_OVERFLOW, STATUS_DATA_OVERRUN),
        Outcome::InvalidRequest => failure!(RESULT_INVALID_REQUEST, STATUS_INVALID_DEVICE_REQUEST),
    })
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
        DisconnectReason::RefusedByPeer => 9,
        DisconnectReason::StreamLost => 10,
        DisconnectReason::AddressGone => 7,
        DisconnectReason::AdapterGone => 8,
    }
}
