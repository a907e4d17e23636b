//! The statuses of the control device, by their Windows names.

use core::fmt;

/// An NTSTATUS. Open: the driver may hand on any status of the kernel or of its own NDK functions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Status(pub i32);

macro_rules! statuses {
    ($($name:ident = $value:literal, $meaning:literal;)*) => {
        impl Status {
            $(#[doc = $meaning] pub const $name: Self = Self($value as i32);)*

            /// The Windows name without `STATUS_`, where this crate has it.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// The status with this Windows name (without `STATUS_`), where this crate has it.
            #[must_use]
            pub fn named(name: &str) -> Option<Self> {
                $(if name == stringify!($name) { return Some(Self::$name); })*
                None
            }

            /// What the status means on the control device, in one sentence, where this crate has it.
            #[must_use]
            pub const fn meaning(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($meaning),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    SUCCESS = 0x0000_0000_u32, "Done.";
    PENDING = 0x0000_0103_u32, "Not finished; never a final status.";
    DATATYPE_MISALIGNMENT = 0x8000_0002_u32, "The direct buffer does not start on a page boundary.";
    BUFFER_OVERFLOW = 0x8000_0005_u32, "The reply was cut to what fits; its header says how much there is. In a transfer: more bytes in a request than the adapter takes.";
    DEVICE_BUSY = 0x8000_0011_u32, "The pair is running another transfer.";
    NO_MORE_ENTRIES = 0x8000_001A_u32, "A queue is full.";
    INFO_LENGTH_MISMATCH = 0xC000_0004_u32, "The input is not exactly as long as its structure, or its header's size disagrees with its length.";
    ACCESS_VIOLATION = 0xC000_0005_u32, "A region or right did not cover the access.";
    INVALID_PARAMETER = 0xC000_000D_u32, "A field is out of its range, an unknown flag is set, or a reserved field is not zero.";
    INVALID_DEVICE_REQUEST = 0xC000_0010_u32, "Unknown control code.";
    ACCESS_DENIED = 0xC000_0022_u32, "The handle was not opened for reading and writing (answered by the I/O manager), or the caller is neither SYSTEM nor Administrator.";
    BUFFER_TOO_SMALL = 0xC000_0023_u32, "The output buffer is too short for the reply's fixed part or for the layout the request asks for.";
    OBJECT_NAME_NOT_FOUND = 0xC000_0034_u32, "The device was opened with a name behind it.";
    DATA_OVERRUN = 0xC000_003C_u32, "Too many scatter/gather elements.";
    REVISION_MISMATCH = 0xC000_0059_u32, "The input's version is not the driver's ABI version.";
    INSUFFICIENT_RESOURCES = 0xC000_009A_u32, "Memory, mappings or NDK objects ran out; nothing was left behind.";
    DEVICE_NOT_READY = 0xC000_00A3_u32, "The adapter is there, but NDK is disabled on it or it is paused.";
    IO_TIMEOUT = 0xC000_00B5_u32, "The connection was not established in time.";
    NOT_SUPPORTED = 0xC000_00BB_u32, "A known flag, operation or region kind that this driver does not implement.";
    DEVICE_DOES_NOT_EXIST = 0xC000_00C0_u32, "No adapter has this index.";
    CANCELLED = 0xC000_0120_u32, "The request was cancelled, or its file was closed.";
    REMOTE_RESOURCES = 0xC000_013D_u32, "The peer's memory or rights did not allow the access.";
    INVALID_ADDRESS = 0xC000_0141_u32, "The adapter has no address of the wanted family.";
    IO_DEVICE_ERROR = 0xC000_0185_u32, "A completion queue failed.";
    INVALID_BUFFER_SIZE = 0xC000_0206_u32, "A region is longer than its kind can register.";
    CONNECTION_DISCONNECTED = 0xC000_020C_u32, "The pair's connection has ended; close the pair and make a new one.";
    NOT_FOUND = 0xC000_0225_u32, "No pair of this file has this id; ids of other files and of closed pairs are unknown.";
    CONNECTION_REFUSED = 0xC000_0236_u32, "No listener at the address, or the listener refused.";
    CONNECTION_INVALID = 0xC000_023A_u32, "The queue pair was never connected.";
    HOST_UNREACHABLE = 0xC000_023D_u32, "The two adapters are not on the same wire.";
    CONNECTION_ABORTED = 0xC000_0241_u32, "The connection was ended while it was being set up.";
    SHARING_VIOLATION = 0xC000_0043_u32, "In a script: the local address and port are in use.";
    INTERNAL_ERROR = 0xC000_00E5_u32, "In a script: an object failed.";
    INVALID_PARAMETER_MIX = 0xC000_0030_u32, "In a script: two arguments that do not go together.";
    INVALID_DEVICE_STATE = 0xC000_0184_u32, "In a script: the call does not fit the object's state.";
    TOO_MANY_ADDRESSES = 0xC000_0209_u32, "In a script: no port is left.";
    ADDRESS_ALREADY_EXISTS = 0xC000_020A_u32, "In a script: a connection between the two addresses exists.";
    GRACEFUL_DISCONNECT = 0xC000_0237_u32, "In a script: the peer has disconnected.";
    CONNECTION_RESET = 0xC000_020D_u32, "In a script: the peer has gone.";
    CONNECTION_ACTIVE = 0xC000_023B_u32, "In a script: the queue pair or connector is in use.";
    NETWORK_UNREACHABLE = 0xC000_023C_u32, "In a script: there is no way to the network.";
    IMPLEMENTATION_LIMIT = 0xC000_042B_u32, "In a script: more pages than the adapter fast-registers.";
    DEVICE_REMOVED = 0xC000_02B6_u32, "An adapter that the request or its pair uses was removed, halted or had NDK disabled.";
}

impl Status {
    /// NT_SUCCESS: success and informational statuses.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 >= 0
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(formatter, "STATUS_{name} (0x{:08X})", self.0),
            None => write!(formatter, "status 0x{:08X}", self.0),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}
