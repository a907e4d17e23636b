//! Which driver is this? The one request that a tool of any ABI version can make.

use crate::build::COMMIT_LENGTH;
use crate::header::{Method, Request, RequestHeader, control_code};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Queries versions. METHOD_BUFFERED.
///
/// The header's version is not compared, so that an older or newer tool can find out the driver's version.
///
/// The reply grows at its end only. An output that holds no more than its first [`VersionReply::FIRST_LENGTH`] bytes, as older tools bring it,
/// gets as much of the reply as fits.
///
/// Statuses: SUCCESS; INFO_LENGTH_MISMATCH (input is not exactly this structure); BUFFER_TOO_SMALL (output shorter than
/// [`VersionReply::FIRST_LENGTH`]).
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
    /// The commit that this image was built from, in ASCII, filled up with zeros; [`COMMIT_UNKNOWN`](crate::COMMIT_UNKNOWN) where the
    /// build does not name it, and zeros where an older driver answers.
    pub commit: [u8; COMMIT_LENGTH],
}

impl VersionReply {
    /// Length of its first edition, which ends before `commit`.
    pub const FIRST_LENGTH: usize = 32;

    /// The part of the reply that an output of this length gets; nothing where not even the first edition fits.
    #[must_use]
    pub fn part_for(&self, capacity: usize) -> Option<&[u8]> {
        let reply = self.as_bytes();
        reply.get(..capacity.min(reply.len())).filter(|part| part.len() >= Self::FIRST_LENGTH)
    }
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
    assert!(size_of::<VersionReply>() == 80);
    assert!(core::mem::offset_of!(VersionReply, driver_version) == 8);
    assert!(core::mem::offset_of!(VersionReply, ndis_version) == 16);
    assert!(core::mem::offset_of!(VersionReply, ndkpi_version) == 20);
    assert!(core::mem::offset_of!(VersionReply, processor_count) == 24);
    assert!(core::mem::offset_of!(VersionReply, flags) == 28);
    assert!(core::mem::offset_of!(VersionReply, commit) == VersionReply::FIRST_LENGTH);
};

#[cfg(test)]
mod tests {
    use super::VersionReply;
    use zerocopy::{FromZeros, IntoBytes};

    #[test]
    fn an_output_gets_what_fits_from_the_first_edition_on() {
        let reply = VersionReply { processor_count: 7, commit: [b'c'; 48], ..VersionReply::new_zeroed() };
        for (capacity, length) in
            [(31, None), (32, Some(32)), (33, Some(33)), (80, Some(80)), (4096, Some(80)), (0, None)]
        {
            let part = reply.part_for(capacity);
            assert_eq!(part, length.map(|length| &reply.as_bytes()[..length]), "space for {capacity}");
        }
    }
}
