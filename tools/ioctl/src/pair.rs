//! Connection pairs: two connected queue pairs, client and server, that belong to one open file of the control device.
//!
//! ndktest.sys is the consumer: it opens both adapters through Winsock Kernel, listens on the server's, connects from the client's,
//! and keeps both ends. A pair's id means something only on the file that made it; closing the file closes its
//! pairs.

use crate::adapter::{AdapterAddress, AddressFamily};
use crate::header::{Method, Request, RequestHeader, control_code};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Connects two queue pairs. METHOD_BUFFERED; pends while connecting, and can be cancelled.
///
/// A number that is 0 where "0: …" is written means the named default; the reply has the value in force.
///
/// Statuses: SUCCESS; INFO_LENGTH_MISMATCH; REVISION_MISMATCH; BUFFER_TOO_SMALL (output shorter than [`PairCreateReply`]);
/// INVALID_PARAMETER (depth, SGE count or read limit above the adapter's limit, unknown flag, unknown family, reserved not
/// zero); NOT_SUPPORTED (a flag this driver does not implement, or pairs altogether); DEVICE_DOES_NOT_EXIST (no adapter with
/// an index); DEVICE_NOT_READY (NDK disabled); DEVICE_REMOVED (adapter went while connecting);
/// INVALID_ADDRESS (an adapter has no address of the family); HOST_UNREACHABLE (different wires); CONNECTION_REFUSED,
/// IO_TIMEOUT, CONNECTION_ABORTED (from connecting); INSUFFICIENT_RESOURCES; CANCELLED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PairCreateRequest {
    /// Version and size.
    pub header: RequestHeader,
    /// Index of the adapter that connects: its place in the adapter list of ndktest.sys.
    pub client_adapter: u32,
    /// Index of the adapter that listens; may be the same (loopback on one adapter).
    pub server_adapter: u32,
    /// Address family to connect over; UNSPECIFIED: IPv4 if both have one, else IPv6.
    pub family: AddressFamily,
    /// Port to listen on, host order; 0: the driver chooses.
    pub port: u16,
    /// Options.
    pub flags: PairFlags,
    /// Requests the client's initiator queue holds; 0: 128.
    pub initiator_queue_depth: u32,
    /// Receives the server's queue holds; 0: 128.
    pub receive_queue_depth: u32,
    /// Scatter/gather elements of one request, either direction; 0: the adapter's limit for reads.
    pub max_request_sge: u32,
    /// Reads the client may have outstanding; 0: the adapter's limits.
    pub read_limit: u32,
}

impl Request for PairCreateRequest {
    const CODE: u32 = control_code(0x810, Method::Buffered);
    type Reply = PairCreateReply;
}

/// Sets the interrupt moderation of both completion queues of a pair. METHOD_BUFFERED.
///
/// Statuses: SUCCESS; INFO_LENGTH_MISMATCH; REVISION_MISMATCH; NOT_FOUND; DEVICE_REMOVED; DEVICE_BUSY (a transfer is running);
/// what NdkControlCqInterruptModeration returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PairModerationRequest {
    /// Version and size.
    pub header: RequestHeader,
    /// Id from [`PairCreateReply::pair`].
    pub pair: u32,
    /// Microseconds; 0 and 0xFFFF_FFFF as in NDKPI.
    pub interval: u32,
    /// Completions; 0 and 0xFFFF_FFFF as in NDKPI.
    pub count: u32,
    /// Zero.
    pub reserved: u32,
}

impl Request for PairModerationRequest {
    const CODE: u32 = control_code(0x812, Method::Buffered);
    type Reply = ();
}

/// Options of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct PairFlags(u32);

bitflags::bitflags! {
    impl PairFlags: u32 {
        /// Completions are waited for with NdkArmCq and its notification; without it they are polled for.
        const NOTIFY = 1;
        /// The server's receives are posted to a shared receive queue (NdkCreateSrq, NdkCreateQpWithSrq, NdkSrqReceive).
        const SHARED_RECEIVE = 2;
    }
}

/// The pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PairCreateReply {
    /// ABI version, and the size of this reply.
    pub header: RequestHeader,
    /// The pair's id on this file; never 0.
    pub pair: u32,
    /// Depth the client's initiator queue was made with.
    pub initiator_queue_depth: u32,
    /// Depth the server's receive queue was made with.
    pub receive_queue_depth: u32,
    /// SGEs a request may have.
    pub max_request_sge: u32,
    /// Reads the client may have outstanding, after negotiation.
    pub read_limit: u32,
    /// Zero.
    pub reserved: u32,
    /// Client's end.
    pub client: PairEndpoint,
    /// Server's end.
    pub server: PairEndpoint,
}

/// Address and port of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PairEndpoint {
    /// Address; its prefix length is 0 here.
    pub address: AdapterAddress,
    /// Port, host order.
    pub port: u16,
    /// Zero.
    pub reserved: [u8; 6],
}

/// Disconnects a pair and closes its objects. METHOD_BUFFERED, no output; pends until everything is closed.
///
/// A transfer that is running ends with CANCELLED first. Cancelling this request does not stop the closing.
///
/// Statuses: SUCCESS; INFO_LENGTH_MISMATCH; REVISION_MISMATCH; INVALID_PARAMETER (reserved not zero); NOT_FOUND (no such pair
/// on this file). A pair whose adapter was removed can still be closed: SUCCESS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PairCloseRequest {
    /// Version and size.
    pub header: RequestHeader,
    /// Id from [`PairCreateReply::pair`].
    pub pair: u32,
    /// Zero.
    pub reserved: u32,
}

impl Request for PairCloseRequest {
    const CODE: u32 = control_code(0x811, Method::Buffered);
    type Reply = ();
}

const _: () = {
    assert!(size_of::<PairCreateRequest>() == 40);
    assert!(core::mem::offset_of!(PairCreateRequest, client_adapter) == 8);
    assert!(core::mem::offset_of!(PairCreateRequest, family) == 16);
    assert!(core::mem::offset_of!(PairCreateRequest, port) == 18);
    assert!(core::mem::offset_of!(PairCreateRequest, flags) == 20);
    assert!(core::mem::offset_of!(PairCreateRequest, initiator_queue_depth) == 24);
    assert!(core::mem::offset_of!(PairCreateRequest, read_limit) == 36);
    assert!(size_of::<PairEndpoint>() == 32);
    assert!(core::mem::offset_of!(PairEndpoint, port) == 24);
    assert!(size_of::<PairCreateReply>() == 96);
    assert!(core::mem::offset_of!(PairCreateReply, pair) == 8);
    assert!(core::mem::offset_of!(PairCreateReply, read_limit) == 24);
    assert!(core::mem::offset_of!(PairCreateReply, client) == 32);
    assert!(core::mem::offset_of!(PairCreateReply, server) == 64);
    assert!(size_of::<PairCloseRequest>() == 16);
    assert!(core::mem::offset_of!(PairCloseRequest, pair) == 8);
};
