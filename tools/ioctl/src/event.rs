//! What happened in the driver last: its life and that of its adapters, connections, refusals. The same records go to Event Tracing for
//! Windows (provider `SoftNdk`).

use crate::adapter::AdapterAddress;
use crate::header::{Method, Request, RequestHeader, control_code};
use crate::names::open_names;
use crate::object_list::ObjectKind;
use crate::refusal::{NdkCall, RefusalCause, RefusalPlace, RefusalWay};
use crate::status::Status;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Events that the driver keeps; an older one gives its place to a new one.
pub const EVENTS_KEPT: usize = 512;

/// Lists the events that are kept, in parts. METHOD_BUFFERED.
///
/// Output: one [`EventListReply`], then `returned_count` entries of `entry_size` bytes each, oldest first, from the one with the
/// number `first` or, if that is gone, the oldest that is kept. The next part begins at [`EventListReply::next`]; a part without
/// entries is the end. A tool that continues from there follows what happens, and by the numbers sees what it missed.
///
/// Statuses: SUCCESS; INFO_LENGTH_MISMATCH; REVISION_MISMATCH; BUFFER_TOO_SMALL (output shorter than the fixed part and one
/// entry); DEVICE_REMOVED (no adapter is left).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EventListRequest {
    /// Version and size.
    pub header: RequestHeader,
    /// Number of the first event to list; 0 begins with the oldest.
    pub first: u64,
}

impl Request for EventListRequest {
    const CODE: u32 = control_code(0x805, Method::Buffered);
    type Reply = EventListReply;
}

/// The fixed part of a list of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EventListReply {
    /// ABI version, and the size of this fixed part.
    pub header: RequestHeader,
    /// Entries that follow.
    pub returned_count: u32,
    /// Distance from one entry to the next, in bytes.
    pub entry_size: u32,
    /// Where to go on.
    pub next: u64,
    /// Events since the driver was loaded; the newest has this number, the first had 1.
    pub total: u64,
}

/// One event. What a kind of event does not have is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EventEntry {
    /// 1 for the driver's first, and one more with each.
    pub number: u64,
    /// Nanoseconds since.
    pub age: u64,
    /// Number of the object: a connector, or what a refused call was made on.
    pub object: u64,
    /// What that object is.
    pub kind: ObjectKind,
    /// What happened.
    pub event: EventKind,
    /// NET_LUID of the adapter, for events of an adapter.
    pub net_luid: u64,
    /// The status of a refusal or of an adapter that did not start.
    pub status: i32,
    /// Which call was refused.
    pub call: NdkCall,
    /// Why it was.
    pub cause: RefusalCause,
    /// How that was reported.
    pub way: RefusalWay,
    /// At whose memory or receive.
    pub place: RefusalPlace,
    /// What ended a connection or an attempt.
    pub end: ConnectionEnd,
    /// Ports of a connection, local and the peer's, in host order.
    pub ports: [u16; 2],
    /// Processor on which it happened.
    pub processor: u32,
    /// Local address of a connection.
    pub local: AdapterAddress,
    /// The peer's.
    pub peer: AdapterAddress,
}

impl EventEntry {
    /// Nothing.
    pub const NONE: Self = Self {
        number: 0,
        age: 0,
        object: 0,
        kind: ObjectKind(0),
        event: EventKind(0),
        net_luid: 0,
        status: 0,
        call: NdkCall(0),
        cause: RefusalCause(0),
        way: RefusalWay(0),
        place: RefusalPlace(0),
        end: ConnectionEnd(0),
        ports: [0; 2],
        processor: 0,
        local: AdapterAddress::UNUSED,
        peer: AdapterAddress::UNUSED,
    };

    /// The status.
    #[must_use]
    pub const fn status(&self) -> Status {
        Status(self.status)
    }
}

open_names! {
    /// What happened. Open.
    EventKind {
        /// The driver was loaded.
        DRIVER_LOADED = 1, "driver loaded";
        /// The driver is unloaded: Event Tracing has the event, the list ends with the driver.
        DRIVER_UNLOADED = 2, "driver unloaded";
        /// An adapter was initialised.
        ADAPTER_STARTED = 3, "adapter started";
        /// An adapter was not: the status says why.
        ADAPTER_FAILED = 4, "adapter failed to start";
        /// An adapter was halted.
        ADAPTER_HALTED = 5, "adapter halted";
        /// NDK is on.
        NDK_ENABLED = 6, "NDK enabled";
        /// NDK is off.
        NDK_DISABLED = 7, "NDK disabled";
        /// A call was refused, or a request failed.
        REFUSED = 8, "refused";
        /// A connector has sent a connection request.
        CONNECTION_REQUESTED = 9, "connection requested";
        /// A listener's consumer was handed a connection request.
        CONNECTION_ARRIVED = 10, "connection request arrived";
        /// The end that asked is connected.
        CONNECTED = 11, "connected";
        /// The end that was asked is connected.
        ACCEPTED = 12, "accepted";
        /// An attempt came to nothing.
        CONNECTION_FAILED = 13, "connection failed";
        /// A connection is over, at this end.
        CONNECTION_ENDED = 14, "connection ended";
        /// The UDP port of uplinks is open: the local address has it.
        UPLINK_OPEN = 15, "uplink open";
        /// It is not: the status says why.
        UPLINK_FAILED = 16, "uplink failed";
    }
}

open_names! {
    /// What ended a connection or an attempt. Open. The first eight are the reasons of the disconnect event (docs/connections.md).
    ConnectionEnd {
        /// The peer disconnected.
        PEER_DISCONNECTED = 1, "the peer disconnected";
        /// The peer closed its connector without disconnecting.
        PEER_CLOSED = 2, "the peer closed its connector without disconnecting";
        /// A request of the peer failed.
        PEER_FAILED = 3, "a request of the peer failed";
        /// The peer waited too long for this end's answer to its disconnect.
        PEER_TIMED_OUT = 4, "the peer waited too long for this end's answer";
        /// The peer's address was removed.
        PEER_ADDRESS_GONE = 5, "the peer's address was removed";
        /// The peer's adapter was disabled or is going away.
        PEER_ADAPTER_GONE = 6, "the peer's adapter was disabled or is going away";
        /// This end's address was removed.
        ADDRESS_GONE = 7, "this end's address was removed";
        /// This end's adapter was disabled or is going away.
        ADAPTER_GONE = 8, "this end's adapter was disabled or is going away";
        /// This end disconnected.
        DISCONNECTED = 16, "this end disconnected";
        /// This end closed its connector.
        CLOSED = 17, "this end closed its connector";
        /// This end rejected the request.
        REJECTED = 18, "this end rejected the request";
        /// A request of this end failed.
        REQUEST_FAILED = 19, "a request of this end failed";
        /// The peer did not answer in time.
        TIMED_OUT = 20, "the peer did not answer in time";
        /// The peer rejected the request.
        PEER_REJECTED = 21, "the peer rejected the request";
        /// Nothing there takes the request: the cause says why.
        REFUSED = 22, "nothing there takes the request";
        /// The peer gave the attempt up.
        PEER_GAVE_UP = 23, "the peer gave the attempt up";
        /// Connect failed before a request went out: the cause says why.
        CALL_FAILED = 24, "connect failed before a request went out";
    }
}

const _: () = {
    assert!(size_of::<EventListRequest>() == 16);
    assert!(size_of::<EventListReply>() == 32);
    assert!(size_of::<EventEntry>() == 120);
    assert!(core::mem::offset_of!(EventEntry, net_luid) == 32);
    assert!(core::mem::offset_of!(EventEntry, ports) == 64);
    assert!(core::mem::offset_of!(EventEntry, local) == 72);
};

#[cfg(test)]
mod tests {
    use super::{ConnectionEnd, EventKind};

    extern crate std;
    use std::string::ToString;

    #[test]
    fn kinds_and_ends_of_later_versions_are_numbers() {
        assert_eq!(
            (EventKind::CONNECTION_ENDED.to_string(), EventKind(99).to_string()),
            ("connection ended".into(), "99".into())
        );
        assert_eq!(ConnectionEnd::PEER_GAVE_UP.to_string(), "the peer gave the attempt up");
        assert_eq!(ConnectionEnd(15).to_string(), "15");
    }
}
