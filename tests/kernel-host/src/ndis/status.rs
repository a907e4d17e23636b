//! The `NDIS_STATUS` values that this host returns or looks at, and the test for success.

/// The type of a status: the same numbers as NTSTATUS.
pub type NdisStatus = i32;

macro_rules! statuses {
    ($($name:ident = $value:literal;)*) => {
        $(pub const $name: NdisStatus = $value as u32 as i32;)*

        /// The name of a status in a report, without its `NDIS_STATUS_`.
        #[must_use]
        pub fn name(status: NdisStatus) -> String {
            match status {
                $($name => stringify!($name).to_owned(),)*
                other => format!("{:#010x}", other as u32),
            }
        }
    };
}

statuses! {
    SUCCESS = 0x0000_0000;
    PENDING = 0x0000_0103;
    NOT_RECOGNIZED = 0x0001_0001;
    NOT_ACCEPTED = 0x0001_0003;
    INDICATION_REQUIRED = 0x4023_0001;
    LINK_STATE = 0x4001_0017;
    BUFFER_OVERFLOW = 0x8000_0005;
    FAILURE = 0xC000_0001;
    INVALID_PARAMETER = 0xC000_000D;
    RESOURCES = 0xC000_009A;
    NOT_SUPPORTED = 0xC000_00BB;
    CLOSING = 0xC001_0002;
    BAD_VERSION = 0xC001_0004;
    BAD_CHARACTERISTICS = 0xC001_0005;
    ADAPTER_NOT_FOUND = 0xC001_0006;
    REQUEST_ABORTED = 0xC001_000C;
    ADAPTER_NOT_READY = 0xC001_0011;
    INVALID_LENGTH = 0xC001_0014;
    INVALID_DATA = 0xC001_0015;
    BUFFER_TOO_SHORT = 0xC001_0016;
    INVALID_OID = 0xC001_0017;
    ADAPTER_REMOVED = 0xC001_0018;
    MULTICAST_FULL = 0xC001_0009;
    INVALID_PACKET = 0xC001_000F;
    SEND_ABORTED = 0xC023_000C;
    MEDIA_DISCONNECTED = 0xC023_001F;
    PAUSED = 0xC023_002A;
}
