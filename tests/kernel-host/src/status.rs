//! The NTSTATUS values that the host itself returns; nothing else.

/// A Windows status: negative is an error, as in the WDK headers.
pub type NtStatus = i32;

macro_rules! statuses {
    ($($name:ident = $value:literal;)*) => {
        $(pub const $name: NtStatus = $value as u32 as i32;)*

        /// The documented name of a status, for reports.
        pub fn name(status: NtStatus) -> &'static str {
            match status {
                $($name => stringify!($name),)*
                _ => "unnamed status",
            }
        }
    };
}

statuses! {
    STATUS_SUCCESS = 0x0000_0000;
    STATUS_WAIT_1 = 0x0000_0001;
    STATUS_TIMEOUT = 0x0000_0102;
    STATUS_PENDING = 0x0000_0103;
    STATUS_BUFFER_OVERFLOW = 0x8000_0005;
    STATUS_NO_MORE_ENTRIES = 0x8000_001A;
    STATUS_UNSUCCESSFUL = 0xC000_0001;
    STATUS_NOT_IMPLEMENTED = 0xC000_0002;
    STATUS_INVALID_HANDLE = 0xC000_0008;
    STATUS_INVALID_PARAMETER = 0xC000_000D;
    STATUS_NO_SUCH_DEVICE = 0xC000_000E;
    STATUS_INVALID_DEVICE_REQUEST = 0xC000_0010;
    STATUS_ACCESS_DENIED = 0xC000_0022;
    STATUS_BUFFER_TOO_SMALL = 0xC000_0023;
    STATUS_OBJECT_TYPE_MISMATCH = 0xC000_0024;
    STATUS_OBJECT_NAME_NOT_FOUND = 0xC000_0034;
    STATUS_OBJECT_NAME_COLLISION = 0xC000_0035;
    STATUS_PROCEDURE_NOT_FOUND = 0xC000_007A;
    STATUS_INSUFFICIENT_RESOURCES = 0xC000_009A;
    STATUS_NOT_SUPPORTED = 0xC000_00BB;
    STATUS_CANCELLED = 0xC000_0120;
    STATUS_DEVICE_REMOVED = 0xC000_02B6;
    STATUS_NOT_FOUND = 0xC000_0225;
}

/// `NT_SUCCESS`.
pub const fn is_success(status: NtStatus) -> bool {
    status >= 0
}
