//! NTSTATUS: the values that the host itself uses, and the name of every one.

use minidump_common::errors::{FastFailCode, NtStatusWindows};
use num_traits::FromPrimitive as _;

/// A Windows status: negative is an error, as in the WDK headers.
pub type NtStatus = i32;

macro_rules! statuses {
    ($($name:ident = $value:literal;)*) => {
        $(pub const $name: NtStatus = $value as u32 as i32;)*

        #[cfg(test)]
        const OWN: &[(NtStatus, &str)] = &[$(($name, stringify!($name)),)*];
    };
}

/// The documented name of a status, for reports.
pub fn name(status: NtStatus) -> String {
    match NtStatusWindows::from_u32(status as u32) {
        Some(known) => format!("{known:?}"),
        None => crate::ndis::status::known(status)
            .map_or_else(|| "unnamed status".to_owned(), |known| format!("NDIS_STATUS_{known}")),
    }
}

/// Number and name: `0xC000009A STATUS_INSUFFICIENT_RESOURCES`.
pub fn text(status: NtStatus) -> String {
    format!("{:#010X} {}", status as u32, name(status))
}

/// The documented name of a fast fail's code.
pub fn fast_fail_name(code: u32) -> String {
    FastFailCode::from_u32(code).map_or_else(|| "unnamed fast fail".to_owned(), |known| format!("{known:?}"))
}

statuses! {
    STATUS_SUCCESS = 0x0000_0000;
    STATUS_WAIT_1 = 0x0000_0001;
    STATUS_TIMEOUT = 0x0000_0102;
    STATUS_PENDING = 0x0000_0103;
    STATUS_DATATYPE_MISALIGNMENT = 0x8000_0002;
    STATUS_BREAKPOINT = 0x8000_0003;
    STATUS_SINGLE_STEP = 0x8000_0004;
    STATUS_BUFFER_OVERFLOW = 0x8000_0005;
    STATUS_NO_MORE_ENTRIES = 0x8000_001A;
    STATUS_UNSUCCESSFUL = 0xC000_0001;
    STATUS_MORE_PROCESSING_REQUIRED = 0xC000_0016;
    STATUS_NOT_IMPLEMENTED = 0xC000_0002;
    STATUS_ACCESS_VIOLATION = 0xC000_0005;
    STATUS_INVALID_HANDLE = 0xC000_0008;
    STATUS_INVALID_PARAMETER = 0xC000_000D;
    STATUS_NO_SUCH_DEVICE = 0xC000_000E;
    STATUS_INVALID_DEVICE_REQUEST = 0xC000_0010;
    STATUS_ILLEGAL_INSTRUCTION = 0xC000_001D;
    STATUS_ACCESS_DENIED = 0xC000_0022;
    STATUS_FILE_FORCED_CLOSED = 0xC000_00B6;
    STATUS_INVALID_SECURITY_DESCR = 0xC000_0079;
    STATUS_BUFFER_TOO_SMALL = 0xC000_0023;
    STATUS_OBJECT_TYPE_MISMATCH = 0xC000_0024;
    STATUS_OBJECT_NAME_NOT_FOUND = 0xC000_0034;
    STATUS_OBJECT_NAME_COLLISION = 0xC000_0035;
    STATUS_PROCEDURE_NOT_FOUND = 0xC000_007A;
    STATUS_INTEGER_DIVIDE_BY_ZERO = 0xC000_0094;
    STATUS_PRIVILEGED_INSTRUCTION = 0xC000_0096;
    STATUS_INSUFFICIENT_RESOURCES = 0xC000_009A;
    STATUS_IO_TIMEOUT = 0xC000_00B5;
    STATUS_NOT_SUPPORTED = 0xC000_00BB;
    STATUS_INVALID_DEVICE_STATE = 0xC000_0184;
    STATUS_INVALID_BUFFER_SIZE = 0xC000_0206;
    STATUS_INVALID_ADDRESS_COMPONENT = 0xC000_0207;
    STATUS_ADDRESS_ALREADY_EXISTS = 0xC000_020A;
    STATUS_CONNECTION_RESET = 0xC000_020D;
    STATUS_CONNECTION_REFUSED = 0xC000_0236;
    STATUS_NETWORK_UNREACHABLE = 0xC000_023C;
    STATUS_HOST_UNREACHABLE = 0xC000_023D;
    STATUS_PORT_UNREACHABLE = 0xC000_023F;
    STATUS_CONNECTION_ABORTED = 0xC000_0241;
    STATUS_CANCELLED = 0xC000_0120;
    STATUS_DEVICE_REMOVED = 0xC000_02B6;
    STATUS_FLOAT_MULTIPLE_TRAPS = 0xC000_02B5;
    STATUS_NOT_FOUND = 0xC000_0225;
    STATUS_ASSERTION_FAILURE = 0xC000_0420;
}

/// `NT_SUCCESS`.
pub const fn is_success(status: NtStatus) -> bool {
    status >= 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_names_are_the_documented_ones() {
        for (status, own) in OWN {
            assert_eq!(name(*status), *own);
        }
    }

    #[test]
    fn statuses_that_the_host_does_not_use_have_names() {
        assert_eq!(text(0xC000_013D_u32.cast_signed()), "0xC000013D STATUS_REMOTE_RESOURCES");
        assert_eq!(text(0xC000_0241_u32.cast_signed()), "0xC0000241 STATUS_CONNECTION_ABORTED");
        assert_eq!(name(0xC001_0004_u32.cast_signed()), "NDIS_STATUS_BAD_VERSION");
        assert_eq!(name(0xC0DE_0001_u32.cast_signed()), "unnamed status");
        assert_eq!(fast_fail_name(2), "FAST_FAIL_STACK_COOKIE_CHECK_FAILURE");
    }
}
