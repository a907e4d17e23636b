//! Uplinks: the ways of adapters to stations of other machines.

use crate::adapter::AdapterAddress;
use crate::header::{Method, Request, RequestHeader, control_code};
use crate::status::Status;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Peers that one uplink has at most.
pub const UPLINK_PEER_MAX: usize = 16;

/// Lists the uplinks of all adapters, in parts. METHOD_BUFFERED.
///
/// Output: one [`UplinkListReply`], then `returned_count` entries of `entry_size` bytes each, by the numbers of the adapters, from the
/// adapter with the number `first` on. The next part begins at [`UplinkListReply::next`]; a part without entries is the end.
///
/// Statuses: SUCCESS; INFO_LENGTH_MISMATCH; REVISION_MISMATCH; BUFFER_TOO_SMALL (output shorter than the fixed part and one
/// entry); DEVICE_REMOVED (no adapter is left).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct UplinkListRequest {
    /// Version and size.
    pub header: RequestHeader,
    /// Number of the first adapter to look at.
    pub first: u64,
}

impl Request for UplinkListRequest {
    const CODE: u32 = control_code(0x806, Method::Buffered);
    type Reply = UplinkListReply;
}

/// The fixed part of a list of uplinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct UplinkListReply {
    /// ABI version, and the size of this fixed part.
    pub header: RequestHeader,
    /// Entries that follow.
    pub returned_count: u32,
    /// Distance from one entry to the next, in bytes.
    pub entry_size: u32,
    /// Where to go on.
    pub next: u64,
}

/// The uplink of one adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct UplinkEntry {
    /// NET_LUID of the adapter.
    pub net_luid: u64,
    /// Its number.
    pub adapter: u32,
    /// Its wire, whose number is the VXLAN network identifier.
    pub wire_number: u32,
    /// SUCCESS while datagrams can come, PENDING until the socket is bound, or why it is not; it is tried again each second.
    pub status: i32,
    /// Payload of the adapter's longest frame, in bytes.
    pub mtu: u32,
    /// The UDP port of this machine, and of all peers.
    pub port: u16,
    /// Entries of `peers` in use.
    pub peer_count: u16,
    /// Zero.
    pub reserved: u32,
    /// What did not go on.
    pub drops: UplinkDrops,
    /// The peers.
    pub peers: [UplinkPeer; UPLINK_PEER_MAX],
}

/// Frames and datagrams that an uplink dropped, by reason. The last three are of all adapters with the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct UplinkDrops {
    /// Frames that found no free datagram.
    pub exhausted: u64,
    /// Frames to a peer's own address: the way to the peer leads into its own uplink.
    pub looped: u64,
    /// Frames that came and were longer than the MTU.
    pub oversized: u64,
    /// Frames that came from the adapter's own station address: another machine has it, too.
    pub duplicates: u64,
    /// Datagrams that Winsock Kernel did not send: there is no route, or no memory.
    pub unsent: u64,
    /// Datagrams that were no VXLAN, or longer than every frame.
    pub malformed: u64,
    /// Datagrams of senders that are no peer, or of networks that no adapter has.
    pub foreign: u64,
}

/// One peer of an uplink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct UplinkPeer {
    /// The peer's address.
    pub address: AdapterAddress,
    /// Stations that were seen behind it in the last five minutes.
    pub stations: u32,
    /// 1 if a frame has come from it.
    pub has_answered: u32,
    /// Nanoseconds since the last frame came from it.
    pub age: u64,
    /// Frames for it.
    pub sent: u64,
    /// Frames of it.
    pub received: u64,
}

impl UplinkPeer {
    /// An unused entry.
    pub const UNUSED: Self =
        Self { address: AdapterAddress::UNUSED, stations: 0, has_answered: 0, age: 0, sent: 0, received: 0 };
}

impl UplinkEntry {
    /// The peers in use.
    #[must_use]
    pub fn peers(&self) -> &[UplinkPeer] {
        self.peers.get(..usize::from(self.peer_count)).unwrap_or(&self.peers)
    }

    /// The status.
    #[must_use]
    pub const fn status(&self) -> Status {
        Status(self.status)
    }
}

const _: () = {
    assert!(size_of::<UplinkListRequest>() == 16);
    assert!(size_of::<UplinkListReply>() == 24);
    assert!(size_of::<UplinkPeer>() == 56);
    assert!(size_of::<UplinkDrops>() == 56);
    assert!(size_of::<UplinkEntry>() == 32 + 56 + 16 * 56);
};
