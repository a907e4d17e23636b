//! Which driver is this? The one request that a tool of any ABI version can make.

use crate::header::{Method, Request, RequestHeader, control_code};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Queries versions. METHOD_BUFFERED.
///
/// The header's version is not compared, so that an older or newer tool can find out the driver's version.
///
/// Statuses: SUCCESS; INFO_LENGTH_MISMATCH (input is not exactly this structure); BUFFER_TOO_SMALL (output shorter than
/// [`VersionReply`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct VersionRequest {
    /// Version and size.
    pub header: RequestHeader,
}

impl Request for VersionRequest {
    const CODE: u32 = control_code(0x800, Method::Buffered);
    type Reply = VersionReply;
}

/// The component that replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct VersionReply {
    /// The driver's own ABI version, and the size of this reply.
    pub header: RequestHeader,
    /// softndk version: major, minor, patch, 0.
    pub driver_version: [u16; 4],
    /// NDIS contract the miniport registered with: major, minor.
    pub ndis_version: [u16; 2],
    /// Highest NDKPI version an open is answered with: major, minor.
    pub ndkpi_version: [u16; 2],
    /// Active processors the driver serves.
    pub processor_count: u32,
    /// How this image was built.
    pub flags: VersionFlags,
}

/// How the driver image was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct VersionFlags(u32);

bitflags::bitflags! {
    impl VersionFlags: u32 {
        /// Built with debug assertions: its speed is not representative.
        const DEBUG_BUILD = 1;
        /// Pair and transfer requests are implemented.
        const TRANSFERS = 2;
        /// Bits of newer versions are data.
        const _ = !0;
    }
}

const _: () = {
    assert!(size_of::<VersionRequest>() == 8);
    assert!(size_of::<VersionReply>() == 32);
    assert!(core::mem::offset_of!(VersionReply, driver_version) == 8);
    assert!(core::mem::offset_of!(VersionReply, ndis_version) == 16);
    assert!(core::mem::offset_of!(VersionReply, ndkpi_version) == 20);
    assert!(core::mem::offset_of!(VersionReply, processor_count) == 24);
    assert!(core::mem::offset_of!(VersionReply, flags) == 28);
};
