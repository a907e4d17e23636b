//! The `NTSTATUS` values that NDKPI, NDIS and the network headers name. Completion statuses and inline statuses share
//! one space; which function gives which status is documented at its type.

/// A kernel status: negative numbers are warnings (`0x8…`) and errors (`0xC…`).
pub type NTSTATUS = i32;

/// `NT_SUCCESS`: success and informational statuses, [`STATUS_PENDING`] included. Warnings such as
/// [`STATUS_BUFFER_OVERFLOW`] are not successes.
#[inline]
#[must_use]
pub const fn NT_SUCCESS(Status: NTSTATUS) -> bool {
    Status >= 0
}

/// `NT_ERROR`: severity error.
#[inline]
#[must_use]
pub const fn NT_ERROR(Status: NTSTATUS) -> bool {
    Status.cast_unsigned() >> 30 == 3
}

pub const STATUS_SUCCESS: NTSTATUS = 0;
pub const STATUS_PENDING: NTSTATUS = 0x103;
pub const STATUS_BUFFER_OVERFLOW: NTSTATUS = 0x8000_0005_u32.cast_signed();
pub const STATUS_NO_MORE_FILES: NTSTATUS = 0x8000_0006_u32.cast_signed();
pub const STATUS_DEVICE_BUSY: NTSTATUS = 0x8000_0011_u32.cast_signed();
pub const STATUS_NO_MORE_ENTRIES: NTSTATUS = 0x8000_001A_u32.cast_signed();
pub const STATUS_UNSUCCESSFUL: NTSTATUS = 0xC000_0001_u32.cast_signed();
pub const STATUS_NOT_IMPLEMENTED: NTSTATUS = 0xC000_0002_u32.cast_signed();
pub const STATUS_ACCESS_VIOLATION: NTSTATUS = 0xC000_0005_u32.cast_signed();
pub const STATUS_INVALID_HANDLE: NTSTATUS = 0xC000_0008_u32.cast_signed();
pub const STATUS_INVALID_PARAMETER: NTSTATUS = 0xC000_000D_u32.cast_signed();
pub const STATUS_NO_SUCH_DEVICE: NTSTATUS = 0xC000_000E_u32.cast_signed();
pub const STATUS_INVALID_DEVICE_REQUEST: NTSTATUS = 0xC000_0010_u32.cast_signed();
pub const STATUS_END_OF_FILE: NTSTATUS = 0xC000_0011_u32.cast_signed();
pub const STATUS_MORE_PROCESSING_REQUIRED: NTSTATUS = 0xC000_0016_u32.cast_signed();
pub const STATUS_NO_MEMORY: NTSTATUS = 0xC000_0017_u32.cast_signed();
pub const STATUS_ACCESS_DENIED: NTSTATUS = 0xC000_0022_u32.cast_signed();
pub const STATUS_BUFFER_TOO_SMALL: NTSTATUS = 0xC000_0023_u32.cast_signed();
pub const STATUS_OBJECT_TYPE_MISMATCH: NTSTATUS = 0xC000_0024_u32.cast_signed();
pub const STATUS_INVALID_PARAMETER_MIX: NTSTATUS = 0xC000_0030_u32.cast_signed();
pub const STATUS_OBJECT_NAME_INVALID: NTSTATUS = 0xC000_0033_u32.cast_signed();
pub const STATUS_OBJECT_NAME_NOT_FOUND: NTSTATUS = 0xC000_0034_u32.cast_signed();
pub const STATUS_OBJECT_NAME_COLLISION: NTSTATUS = 0xC000_0035_u32.cast_signed();
pub const STATUS_DATA_OVERRUN: NTSTATUS = 0xC000_003C_u32.cast_signed();
pub const STATUS_SHARING_VIOLATION: NTSTATUS = 0xC000_0043_u32.cast_signed();
pub const STATUS_QUOTA_EXCEEDED: NTSTATUS = 0xC000_0044_u32.cast_signed();
pub const STATUS_DELETE_PENDING: NTSTATUS = 0xC000_0056_u32.cast_signed();
pub const STATUS_REVISION_MISMATCH: NTSTATUS = 0xC000_0059_u32.cast_signed();
pub const STATUS_INTEGER_OVERFLOW: NTSTATUS = 0xC000_0095_u32.cast_signed();
pub const STATUS_INSUFFICIENT_RESOURCES: NTSTATUS = 0xC000_009A_u32.cast_signed();
pub const STATUS_DEVICE_NOT_CONNECTED: NTSTATUS = 0xC000_009D_u32.cast_signed();
pub const STATUS_DEVICE_NOT_READY: NTSTATUS = 0xC000_00A3_u32.cast_signed();
pub const STATUS_IO_TIMEOUT: NTSTATUS = 0xC000_00B5_u32.cast_signed();
pub const STATUS_FILE_FORCED_CLOSED: NTSTATUS = 0xC000_00B6_u32.cast_signed();
pub const STATUS_NOT_SUPPORTED: NTSTATUS = 0xC000_00BB_u32.cast_signed();
pub const STATUS_REMOTE_NOT_LISTENING: NTSTATUS = 0xC000_00BC_u32.cast_signed();
pub const STATUS_INTERNAL_ERROR: NTSTATUS = 0xC000_00E5_u32.cast_signed();
pub const STATUS_INVALID_PARAMETER_1: NTSTATUS = 0xC000_00EF_u32.cast_signed();
pub const STATUS_INVALID_PARAMETER_2: NTSTATUS = 0xC000_00F0_u32.cast_signed();
pub const STATUS_INVALID_PARAMETER_3: NTSTATUS = 0xC000_00F1_u32.cast_signed();
pub const STATUS_INVALID_PARAMETER_4: NTSTATUS = 0xC000_00F2_u32.cast_signed();
pub const STATUS_INVALID_PARAMETER_5: NTSTATUS = 0xC000_00F3_u32.cast_signed();
pub const STATUS_INVALID_PARAMETER_6: NTSTATUS = 0xC000_00F4_u32.cast_signed();
pub const STATUS_CONNECTION_IN_USE: NTSTATUS = 0xC000_0108_u32.cast_signed();
pub const STATUS_CANCELLED: NTSTATUS = 0xC000_0120_u32.cast_signed();
pub const STATUS_FILE_CLOSED: NTSTATUS = 0xC000_0128_u32.cast_signed();
pub const STATUS_LOCAL_DISCONNECT: NTSTATUS = 0xC000_013B_u32.cast_signed();
pub const STATUS_REMOTE_DISCONNECT: NTSTATUS = 0xC000_013C_u32.cast_signed();
pub const STATUS_REMOTE_RESOURCES: NTSTATUS = 0xC000_013D_u32.cast_signed();
pub const STATUS_INVALID_CONNECTION: NTSTATUS = 0xC000_0140_u32.cast_signed();
pub const STATUS_INVALID_ADDRESS: NTSTATUS = 0xC000_0141_u32.cast_signed();
pub const STATUS_INVALID_DEVICE_STATE: NTSTATUS = 0xC000_0184_u32.cast_signed();
pub const STATUS_INVALID_BUFFER_SIZE: NTSTATUS = 0xC000_0206_u32.cast_signed();
pub const STATUS_INVALID_ADDRESS_COMPONENT: NTSTATUS = 0xC000_0207_u32.cast_signed();
pub const STATUS_INVALID_ADDRESS_WILDCARD: NTSTATUS = 0xC000_0208_u32.cast_signed();
pub const STATUS_TOO_MANY_ADDRESSES: NTSTATUS = 0xC000_0209_u32.cast_signed();
pub const STATUS_ADDRESS_ALREADY_EXISTS: NTSTATUS = 0xC000_020A_u32.cast_signed();
pub const STATUS_ADDRESS_CLOSED: NTSTATUS = 0xC000_020B_u32.cast_signed();
pub const STATUS_CONNECTION_DISCONNECTED: NTSTATUS = 0xC000_020C_u32.cast_signed();
pub const STATUS_CONNECTION_RESET: NTSTATUS = 0xC000_020D_u32.cast_signed();
pub const STATUS_NOT_FOUND: NTSTATUS = 0xC000_0225_u32.cast_signed();
pub const STATUS_CONNECTION_REFUSED: NTSTATUS = 0xC000_0236_u32.cast_signed();
pub const STATUS_GRACEFUL_DISCONNECT: NTSTATUS = 0xC000_0237_u32.cast_signed();
pub const STATUS_ADDRESS_ALREADY_ASSOCIATED: NTSTATUS = 0xC000_0238_u32.cast_signed();
pub const STATUS_ADDRESS_NOT_ASSOCIATED: NTSTATUS = 0xC000_0239_u32.cast_signed();
pub const STATUS_CONNECTION_INVALID: NTSTATUS = 0xC000_023A_u32.cast_signed();
pub const STATUS_CONNECTION_ACTIVE: NTSTATUS = 0xC000_023B_u32.cast_signed();
pub const STATUS_NETWORK_UNREACHABLE: NTSTATUS = 0xC000_023C_u32.cast_signed();
pub const STATUS_HOST_UNREACHABLE: NTSTATUS = 0xC000_023D_u32.cast_signed();
pub const STATUS_PROTOCOL_UNREACHABLE: NTSTATUS = 0xC000_023E_u32.cast_signed();
pub const STATUS_PORT_UNREACHABLE: NTSTATUS = 0xC000_023F_u32.cast_signed();
pub const STATUS_REQUEST_ABORTED: NTSTATUS = 0xC000_0240_u32.cast_signed();
pub const STATUS_CONNECTION_ABORTED: NTSTATUS = 0xC000_0241_u32.cast_signed();
pub const STATUS_CONNECTION_COUNT_LIMIT: NTSTATUS = 0xC000_0246_u32.cast_signed();
pub const STATUS_DEVICE_REMOVED: NTSTATUS = 0xC000_02B6_u32.cast_signed();
pub const STATUS_IMPLEMENTATION_LIMIT: NTSTATUS = 0xC000_042B_u32.cast_signed();
