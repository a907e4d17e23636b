//! The statuses of both versions: NTSTATUS numbers in an HRESULT, and the few of COM.

use core::fmt;

/// What a method returns and a completion carries. Open: any NTSTATUS may come through.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Status(pub i32);

macro_rules! statuses {
    ($($name:ident = $value:literal;)*) => {
        impl Status {
            $(pub const $name: Self = Self($value as i32);)*

            /// The name without `ND_`, `STATUS_` or `COM_`, where this crate has it.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    SUCCESS = 0x0000_0000_u32;
    TIMEOUT = 0x0000_0102_u32;
    PENDING = 0x0000_0103_u32;
    BUFFER_OVERFLOW = 0x8000_0005_u32;
    DEVICE_BUSY = 0x8000_0011_u32;
    NO_MORE_ENTRIES = 0x8000_001A_u32;
    UNSUCCESSFUL = 0xC000_0001_u32;
    ACCESS_VIOLATION = 0xC000_0005_u32;
    INVALID_HANDLE = 0xC000_0008_u32;
    INVALID_PARAMETER = 0xC000_000D_u32;
    NO_SUCH_DEVICE = 0xC000_000E_u32;
    INVALID_DEVICE_REQUEST = 0xC000_0010_u32;
    NO_MEMORY = 0xC000_0017_u32;
    ACCESS_DENIED = 0xC000_0022_u32;
    BUFFER_TOO_SMALL = 0xC000_0023_u32;
    INVALID_PARAMETER_MIX = 0xC000_0030_u32;
    DATA_OVERRUN = 0xC000_003C_u32;
    DATA_ERROR = 0xC000_003E_u32;
    SHARING_VIOLATION = 0xC000_0043_u32;
    INSUFFICIENT_RESOURCES = 0xC000_009A_u32;
    DEVICE_NOT_READY = 0xC000_00A3_u32;
    IO_TIMEOUT = 0xC000_00B5_u32;
    NOT_SUPPORTED = 0xC000_00BB_u32;
    DEVICE_DOES_NOT_EXIST = 0xC000_00C0_u32;
    BAD_NETWORK_NAME = 0xC000_00CC_u32;
    INTERNAL_ERROR = 0xC000_00E5_u32;
    INVALID_PARAMETER_1 = 0xC000_00EF_u32;
    INVALID_PARAMETER_2 = 0xC000_00F0_u32;
    INVALID_PARAMETER_3 = 0xC000_00F1_u32;
    INVALID_PARAMETER_4 = 0xC000_00F2_u32;
    INVALID_PARAMETER_5 = 0xC000_00F3_u32;
    INVALID_PARAMETER_6 = 0xC000_00F4_u32;
    INVALID_PARAMETER_7 = 0xC000_00F5_u32;
    INVALID_PARAMETER_8 = 0xC000_00F6_u32;
    INVALID_PARAMETER_9 = 0xC000_00F7_u32;
    INVALID_PARAMETER_10 = 0xC000_00F8_u32;
    CANCELED = 0xC000_0120_u32;
    FILE_CLOSED = 0xC000_0128_u32;
    REMOTE_ERROR = 0xC000_013D_u32;
    INVALID_ADDRESS = 0xC000_0141_u32;
    INVALID_DEVICE_STATE = 0xC000_0184_u32;
    INVALID_BUFFER_SIZE = 0xC000_0206_u32;
    TOO_MANY_ADDRESSES = 0xC000_0209_u32;
    ADDRESS_ALREADY_EXISTS = 0xC000_020A_u32;
    CONNECTION_DISCONNECTED = 0xC000_020C_u32;
    CONNECTION_REFUSED = 0xC000_0236_u32;
    ADDRESS_ALREADY_ASSOCIATED = 0xC000_0238_u32;
    ADDRESS_NOT_ASSOCIATED = 0xC000_0239_u32;
    CONNECTION_INVALID = 0xC000_023A_u32;
    CONNECTION_ACTIVE = 0xC000_023B_u32;
    NETWORK_UNREACHABLE = 0xC000_023C_u32;
    HOST_UNREACHABLE = 0xC000_023D_u32;
    REQUEST_ABORTED = 0xC000_0240_u32;
    CONNECTION_ABORTED = 0xC000_0241_u32;
    DEVICE_REMOVED = 0xC000_02B6_u32;
    RESOURCE_IN_USE = 0xC000_0708_u32;
    COM_FALSE = 0x0000_0001_u32;
    COM_POINTER = 0x8000_4003_u32;
    COM_NO_INTERFACE = 0x8000_4002_u32;
    COM_NO_AGGREGATION = 0x8004_0110_u32;
    COM_NO_CLASS = 0x8004_0111_u32;
}

impl Status {
    /// SUCCEEDED: neither a warning nor an error. [`Status::PENDING`] and [`Status::TIMEOUT`] count as success.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 >= 0
    }

    /// NT_ERROR: a request that is refused so leaves no completion packet.
    #[must_use]
    pub const fn is_error(self) -> bool {
        (self.0 as u32) >> 30 == 3
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(out, "{name} (0x{:08X})", self.0),
            None => write!(out, "status 0x{:08X}", self.0),
        }
    }
}
