//! Events: the life of driver and adapters, connections, refusals; each once, in order.
//!
//! Each goes two ways: to Event Tracing for Windows as provider `SoftNdk`, where sessions listen (`softndk.wprp`), and into a ring that
//! `ndkctl events` reads. `IRQL <= DISPATCH_LEVEL`; nothing is allocated. A refusal may come with a
//! spin lock of its queue held, so nothing here takes a lock but that of the ring.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use ndkpi_sys::nt::{NTSTATUS, STATUS_SUCCESS};
use softndk_engine::{ConnectionCause, ConnectionChange, ConnectionRecord, DisconnectReason};
use softndk_ioctl::{
    AdapterAddress, COMMIT, ConnectionEnd, EVENTS_KEPT, EventEntry, EventKind, ObjectKind, RefusalCause, RefusalEntry,
};
use softndk_kernel::irql;
use tracelogging::{define_provider, write_event};

use super::{
    errors::{Failure, of_disconnect},
    records::{Records, record},
};

define_provider!(PROVIDER, "SoftNdk");

/// Keywords of the provider: what a session can choose.
mod keyword {
    pub const LIFE: u64 = 0x1;
    pub const REFUSALS: u64 = 0x2;
    pub const CONNECTIONS: u64 = 0x4;
}

static KEPT: Records<EventEntry, EVENTS_KEPT> = Records::new(0, EventEntry::NONE);

record!(EventEntry);

/// Registers the provider. PASSIVE_LEVEL, once, from DriverEntry: what comes before is not traced.
pub fn start() {
    // A driver without tracing works as well; then nothing is registered.
    // SAFETY: the provider is a static, and `stop` comes before the image goes.
    let _status = unsafe { PROVIDER.register() };
    write_event!(PROVIDER, "DriverLoaded", level(Informational), keyword(keyword::LIFE), str8("Commit", COMMIT));
    keep(EventEntry { event: EventKind::DRIVER_LOADED, ..EventEntry::NONE });
}

/// PASSIVE_LEVEL, from unload or DriverEntry's failure path, when nothing else of the driver runs.
pub fn stop() {
    write_event!(PROVIDER, "DriverUnloaded", level(Informational), keyword(keyword::LIFE));
    PROVIDER.unregister();
}

fn keep(entry: EventEntry) {
    KEPT.keep(EventEntry { processor: irql::processor(), ..entry });
}

/// Events so far; the newest has this number.
pub fn total() -> u64 {
    KEPT.total()
}

/// The event with this number, or the oldest that is kept if it is gone; `None` behind the newest.
pub fn at(number: u64) -> Option<EventEntry> {
    KEPT.get(number)
}

/// An adapter was initialised.
pub fn adapter_started(net_luid: u64) {
    write_event!(
        PROVIDER,
        "AdapterStarted",
        level(Informational),
        keyword(keyword::LIFE),
        u64_hex("NetLuid", &net_luid)
    );
    keep(EventEntry { event: EventKind::ADAPTER_STARTED, net_luid, ..EventEntry::NONE });
}

/// An adapter was not initialised.
pub fn adapter_failed(net_luid: u64, status: NTSTATUS) {
    write_event!(
        PROVIDER,
        "AdapterFailed",
        level(Error),
        keyword(keyword::LIFE),
        u64_hex("NetLuid", &net_luid),
        win_ntstatus("Status", &status),
    );
    keep(EventEntry { event: EventKind::ADAPTER_FAILED, net_luid, status, ..EventEntry::NONE });
}

/// An adapter was halted.
pub fn adapter_halted(net_luid: u64) {
    write_event!(
        PROVIDER,
        "AdapterHalted",
        level(Informational),
        keyword(keyword::LIFE),
        u64_hex("NetLuid", &net_luid)
    );
    keep(EventEntry { event: EventKind::ADAPTER_HALTED, net_luid, ..EventEntry::NONE });
}

/// NDK of an adapter went on or off.
pub fn ndk_switched(net_luid: u64, on: bool) {
    write_event!(
        PROVIDER,
        "NdkSwitched",
        level(Informational),
        keyword(keyword::LIFE),
        u64_hex("NetLuid", &net_luid),
        bool8("On", &on),
    );
    let event = if on { EventKind::NDK_ENABLED } else { EventKind::NDK_DISABLED };
    keep(EventEntry { event, net_luid, ..EventEntry::NONE });
}

/// The UDP port of uplinks was opened, or not.
pub fn uplink_changed(is_v6: bool, port: u16, status: NTSTATUS) {
    let is_open = status == STATUS_SUCCESS;
    write_event!(
        PROVIDER,
        "UplinkChanged",
        level(Informational),
        keyword(keyword::LIFE),
        bool8("IsOpen", &is_open),
        bool8("IsIpv6", &is_v6),
        u16("Port", &port),
        win_ntstatus("Status", &status),
    );
    let any = if is_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    keep(EventEntry {
        event: if is_open { EventKind::UPLINK_OPEN } else { EventKind::UPLINK_FAILED },
        status,
        local: AdapterAddress::new(any, 0, 0),
        ports: [port, 0],
        ..EventEntry::NONE
    });
}

/// A call was refused, or a request failed.
pub fn refused(entry: &RefusalEntry) {
    write_event!(
        PROVIDER,
        "Refused",
        level(Warning),
        keyword(keyword::REFUSALS),
        str8("Call", entry.call.name().unwrap_or_default()),
        str8("ObjectKind", entry.kind.name().unwrap_or_default()),
        u64("Object", &entry.object),
        win_ntstatus("Status", &entry.status),
        str8("Cause", entry.cause.name().unwrap_or_default()),
        str8("Rule", entry.cause.rule(entry.call).unwrap_or_default()),
        str8("Place", entry.place.name().unwrap_or_default()),
        str8("Way", entry.way.name().unwrap_or_default()),
        u32("Irql", &entry.irql),
    );
    keep(EventEntry {
        event: EventKind::REFUSED,
        object: entry.object,
        kind: entry.kind,
        status: entry.status,
        call: entry.call,
        cause: entry.cause,
        way: entry.way,
        place: entry.place,
        ..EventEntry::NONE
    });
}

/// Something became of one end of a connection.
#[cold]
#[inline(never)]
pub fn connection(record: &ConnectionRecord) {
    let (event, end, cause) = described(record.change);
    let entry = EventEntry {
        event,
        end,
        cause,
        object: record.connector,
        kind: ObjectKind::CONNECTOR,
        ports: [port(record.local), port(record.peer)],
        local: address(record.local),
        peer: address(record.peer),
        ..EventEntry::NONE
    };
    write_event!(
        PROVIDER,
        "Connection",
        level(Informational),
        keyword(keyword::CONNECTIONS),
        str8("Change", entry.event.name().unwrap_or_default()),
        u64("Connector", &entry.object),
        str8("End", entry.end.name().unwrap_or_default()),
        str8("Cause", entry.cause.name().unwrap_or_default()),
        binary("Local", entry.local.significant()),
        u16("LocalPort", &port(record.local)),
        binary("Peer", entry.peer.significant()),
        u16("PeerPort", &port(record.peer)),
    );
    keep(entry);
}

fn port(address: Option<SocketAddr>) -> u16 {
    address.map_or(0, |address| address.port())
}

fn address(address: Option<SocketAddr>) -> AdapterAddress {
    address.map_or(AdapterAddress::UNUSED, |address| {
        let scope = if let SocketAddr::V6(address) = address { address.scope_id() } else { 0 };
        let bits = if address.is_ipv4() { 32 } else { 128 };
        AdapterAddress::new(address.ip(), bits, scope)
    })
}

fn described(change: ConnectionChange) -> (EventKind, ConnectionEnd, RefusalCause) {
    let none = (ConnectionEnd(0), RefusalCause(0));
    let (event, (end, cause)) = match change {
        ConnectionChange::Requested => (EventKind::CONNECTION_REQUESTED, none),
        ConnectionChange::Arrived => (EventKind::CONNECTION_ARRIVED, none),
        ConnectionChange::Connected => (EventKind::CONNECTED, none),
        ConnectionChange::Accepted => (EventKind::ACCEPTED, none),
        ConnectionChange::Failed(cause) => (EventKind::CONNECTION_FAILED, end(cause)),
        ConnectionChange::Ended(cause) => (EventKind::CONNECTION_ENDED, end(cause)),
    };
    (event, end, cause)
}

fn end(cause: ConnectionCause) -> (ConnectionEnd, RefusalCause) {
    let end = match cause {
        ConnectionCause::Disconnected => ConnectionEnd::DISCONNECTED,
        ConnectionCause::Closed => ConnectionEnd::CLOSED,
        ConnectionCause::Rejected => ConnectionEnd::REJECTED,
        ConnectionCause::RequestFailed => ConnectionEnd::REQUEST_FAILED,
        ConnectionCause::TimedOut => ConnectionEnd::TIMED_OUT,
        ConnectionCause::PeerRejected => ConnectionEnd::PEER_REJECTED,
        ConnectionCause::PeerGaveUp => ConnectionEnd::PEER_GAVE_UP,
        ConnectionCause::Refused(error) => return (ConnectionEnd::REFUSED, Failure::from(error).cause),
        ConnectionCause::Call(error) => return (ConnectionEnd::CALL_FAILED, Failure::from(error).cause),
        ConnectionCause::Reason(reason) => reason_of(reason),
    };
    (end, RefusalCause(0))
}

/// By the number that the disconnect event has.
fn reason_of(reason: DisconnectReason) -> ConnectionEnd {
    ConnectionEnd(of_disconnect(reason))
}
