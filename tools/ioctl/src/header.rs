//! Names, control codes and the header that every request starts with.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The version of this ABI. A change that an older partner would misread raises it; the driver answers any other version with
/// [`crate::Status::REVISION_MISMATCH`] (except [`crate::VersionRequest`], by which a tool finds out).
pub const ABI_VERSION: u32 = 2;

/// The device object, as the driver names it.
pub const DEVICE_NAME: &str = r"\Device\SoftNdk";

/// The symbolic link to it, as the driver names it.
pub const SYMBOLIC_LINK_NAME: &str = r"\DosDevices\Global\SoftNdk";

/// What a program opens.
pub const WIN32_DEVICE_NAME: &str = r"\\.\SoftNdk";

/// The device object of ndktest.sys, as that driver names it.
pub const TEST_DEVICE_NAME: &str = r"\Device\NdkTest";

/// The symbolic link to it.
pub const TEST_SYMBOLIC_LINK_NAME: &str = r"\DosDevices\Global\NdkTest";

/// What a program opens for pairs, transfers and scripts.
pub const TEST_WIN32_DEVICE_NAME: &str = r"\\.\NdkTest";

/// Device type of every control code: in the range left to vendors (0x8000 and up).
pub const DEVICE_TYPE: u32 = 0x8A5D;

/// How the I/O manager passes the buffers (the low two bits of a control code).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Method {
    /// METHOD_BUFFERED: one system buffer for input and output.
    Buffered = 0,
    /// METHOD_IN_DIRECT: the second buffer is locked for reading.
    InDirect = 1,
    /// METHOD_OUT_DIRECT: the second buffer is locked for writing.
    OutDirect = 2,
}

/// CTL_CODE(DEVICE_TYPE, function, method, FILE_READ_DATA | FILE_WRITE_DATA).
///
/// The access bits are the same for every code: a handle must have been opened for reading and writing, and the I/O manager
/// refuses the request with access denied otherwise.
#[must_use]
pub const fn control_code(function: u32, method: Method) -> u32 {
    const READ_AND_WRITE: u32 = 3;
    (DEVICE_TYPE << 16) | (READ_AND_WRITE << 14) | ((function & 0xFFF) << 2) | method as u32
}

/// The first eight bytes of every input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RequestHeader {
    /// [`ABI_VERSION`] of the caller.
    pub version: u32,
    /// Size of the whole input in bytes; equal to the input buffer's length.
    pub size: u32,
}

impl RequestHeader {
    /// The header for an input (or reply) of type `T`.
    #[must_use]
    pub const fn of<T>() -> Self {
        Self { version: ABI_VERSION, size: size_of::<T>() as u32 }
    }
}

/// A request: its control code, and the reply's fixed part.
pub trait Request: FromBytes + IntoBytes + Immutable + KnownLayout + Copy {
    /// The whole 32-bit control code; compare all of it, not the function bits.
    const CODE: u32;
    /// The fixed part of the output; `()` when there is none.
    type Reply;
}

const _: () = {
    assert!(size_of::<RequestHeader>() == 8);
    assert!(core::mem::offset_of!(RequestHeader, version) == 0);
    assert!(core::mem::offset_of!(RequestHeader, size) == 4);
    assert!(DEVICE_TYPE >= 0x8000 && DEVICE_TYPE <= 0xFFFF);
};
