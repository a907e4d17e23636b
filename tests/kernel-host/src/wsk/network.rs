//! TCP inside the host, and UDP in `datagram`: bound ports, listeners, and connections whose two ends are queues of bytes.
//!
//! Everything answers at once and nothing waits: whoever cannot go on asks again when [`Network::take_woken`] names its end.
//! Requests, packets and delivery are not known here. What leads to a host in another process is in `outside`, and to a machine on the link of
//! an adapter in `frames`.

mod datagram;
mod frames;
mod linux;
mod machines;
mod outside;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(super) use datagram::Arrival;
pub use datagram::Datagram;
use datagram::Datagrams;
use frames::Frames;
pub(super) use linux::Happenings;
pub use machines::MachineAddress;
pub(super) use outside::Moved;
use outside::Outside;

use crate::capture;
use crate::dispatcher;
use crate::netio;
use crate::netio::address_table::DetectionState;

/// What one end may have sent and the other not yet taken.
const WINDOW: usize = 64 * 1024;
/// Connections that wait for an accept; more are refused.
const BACKLOG: usize = 200;
/// How long TCP remembers both ends of a connection, in units of 100 ns.
const TIME_WAIT: u64 = 120 * 10_000_000;
/// Ports that TCP gives out itself.
const DYNAMIC: std::ops::RangeInclusive<u16> = 49_152..=u16::MAX;

/// A bound address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PortId(u64);

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StreamId(u64);

/// Why a bind or a connect fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NetworkError {
    /// No address of this host.
    NotLocal,
    InUse,
    /// A port of every address is in use, or every address is asked for where one is: the default security of sockets shares nothing.
    Denied,
    Unreachable,
    Refused,
    /// A datagram is longer than any can be.
    TooLong,
}

/// Who may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    Acceptable(PortId),
    /// There is a datagram.
    Arrived(PortId),
    /// Its connect.
    Answered(PortId),
    Readable(StreamId),
    Writable(StreamId),
}

/// What a look for bytes has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Bytes(Vec<u8>),
    /// The peer has ended its direction, and all bytes were taken.
    End,
    /// The peer has broken the connection.
    Reset,
    Nothing,
}

struct Port {
    address: SocketAddr,
    /// Of a listener: ends that were not accepted.
    waiting: Option<VecDeque<StreamId>>,
}

struct Stream {
    local: SocketAddr,
    remote: SocketAddr,
    peer: Option<StreamId>,
    incoming: VecDeque<u8>,
    /// The peer's end stands behind `incoming`.
    end_received: bool,
    end_sent: bool,
    reset: bool,
}

pub(super) struct Network {
    ports: BTreeMap<PortId, Port>,
    streams: BTreeMap<StreamId, Stream>,
    next: u64,
    next_dynamic: u16,
    /// Addresses that answer nothing.
    silent: Vec<IpAddr>,
    /// Both ends of connections that this end has ended first, and until when TCP remembers them.
    remembered: Vec<(SocketAddr, SocketAddr, u64)>,
    woken: Vec<Woken>,
    datagrams: Datagrams,
    outside: Outside,
    frames: Frames,
}

/// Whether this host has the address, usable or not.
fn exists(address: IpAddr) -> bool {
    let loopback = matches!(address, IpAddr::V4(v4) if v4.is_loopback());
    let usable = |detection| matches!(detection, DetectionState::Preferred | DetectionState::Deprecated);
    loopback || netio::table().rows().iter().any(|row| row.address.address == address && usable(row.detection))
}

/// Whether a port of this bound address takes connections to an address.
fn covers(bound: SocketAddr, wanted: SocketAddr) -> bool {
    let any = bound.ip().is_unspecified() && bound.is_ipv4() == wanted.is_ipv4();
    bound.port() == wanted.port() && (any || bound.ip() == wanted.ip())
}

impl Network {
    pub(super) const fn new() -> Self {
        Self {
            ports: BTreeMap::new(),
            streams: BTreeMap::new(),
            next: 1,
            next_dynamic: *DYNAMIC.start(),
            silent: Vec::new(),
            remembered: Vec::new(),
            woken: Vec::new(),
            datagrams: Datagrams::new(),
            outside: Outside::new(),
            frames: Frames::new(),
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Binds; port 0 picks one.
    pub(super) fn bind(&mut self, wanted: SocketAddr, listens: bool) -> Result<PortId, NetworkError> {
        if !wanted.ip().is_unspecified() && !exists(wanted.ip()) {
            return Err(NetworkError::NotLocal);
        }
        // A free port may be taken outside.
        for _ in DYNAMIC {
            let address = if wanted.port() == 0 { self.free_port(wanted.ip())? } else { wanted };
            if let Some(error) = self.conflict(address) {
                return Err(error);
            }
            match if listens { self.outside.listen(address) } else { Ok(Vec::new()) } {
                Ok(listeners) => {
                    let id = PortId(self.number());
                    self.ports.insert(id, Port { address, waiting: listens.then(VecDeque::new) });
                    self.outside.bound(id, listeners);
                    if listens {
                        self.listen_in_frames();
                    }
                    return Ok(id);
                }
                Err(NetworkError::InUse) if wanted.port() == 0 => {}
                Err(error) => return Err(error),
            }
        }
        Err(NetworkError::InUse)
    }

    fn is_bound(&self, address: SocketAddr) -> bool {
        self.conflict(address).is_some()
    }

    /// Why a port cannot be bound beside those that are.
    fn conflict(&self, wanted: SocketAddr) -> Option<NetworkError> {
        let bound = self.ports.values().map(|port| port.address);
        let mut others = bound.filter(|bound| covers(*bound, wanted) || covers(wanted, *bound)).peekable();
        others.peek()?;
        Some(if others.any(|other| other == wanted) { NetworkError::InUse } else { NetworkError::Denied })
    }

    fn free_port(&mut self, ip: IpAddr) -> Result<SocketAddr, NetworkError> {
        for _ in DYNAMIC {
            let address = SocketAddr::new(ip, self.next_dynamic);
            self.next_dynamic = self.next_dynamic.checked_add(1).unwrap_or(*DYNAMIC.start());
            if !self.is_bound(address) {
                return Ok(address);
            }
        }
        Err(NetworkError::InUse)
    }

    /// The address of a bound port, or of any while it is not known.
    pub(super) fn bound_address(&self, port: PortId) -> SocketAddr {
        let unknown = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let bound = self.ports.get(&port).map(|port| port.address);
        bound.or_else(|| self.datagrams.bound_address(port)).unwrap_or(unknown)
    }

    /// The port is free again; connections that were not accepted are broken.
    pub(super) fn release(&mut self, port: PortId) {
        self.silence(port);
        self.free(port);
    }

    /// The port takes no connections and datagrams any more. No other socket can be bound to it before [`Self::free`].
    pub(super) fn silence(&mut self, port: PortId) {
        let waiting = self.ports.get_mut(&port).and_then(|port| port.waiting.take());
        for stream in waiting.into_iter().flatten() {
            self.break_off(stream);
        }
        self.datagrams.release(port);
        self.released(port);
    }

    /// Other sockets can be bound to the port from now on.
    pub(super) fn free(&mut self, port: PortId) {
        self.ports.remove(&port);
    }

    /// An address answers nothing from now on, or answers again.
    pub(super) fn set_silent(&mut self, address: IpAddr, silent: bool) {
        self.silent.retain(|other| *other != address);
        if silent {
            self.silent.push(address);
        }
    }

    pub(super) fn is_silent(&self, address: IpAddr) -> bool {
        self.silent.contains(&address)
    }

    /// The connections of an address are broken: it is gone.
    pub(super) fn address_removed(&mut self, address: IpAddr) {
        let ends = self.streams.iter().filter(|(_, stream)| stream.local.ip() == address);
        for id in ends.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.reset(id);
            self.woken.extend([Woken::Readable(id), Woken::Writable(id)]);
        }
    }

    /// Connects; the other end waits at the listener. `None` while the address answers nothing, or another host has not answered yet.
    pub(super) fn connect(&mut self, port: PortId, remote: SocketAddr) -> Option<Result<StreamId, NetworkError>> {
        if self.is_silent(remote.ip()) {
            return None;
        }
        if self.is_outside(remote.ip()) {
            return self.connect_outside(port, remote);
        }
        if self.dials_in_frames(port) || self.is_on_link(remote.ip()) {
            return self.connect_in_frames(port, remote);
        }
        Some(self.try_connect(port, remote))
    }

    fn try_connect(&mut self, port: PortId, remote: SocketAddr) -> Result<StreamId, NetworkError> {
        if !exists(remote.ip()) {
            return Err(NetworkError::Unreachable);
        }
        let bound = self.bound_address(port);
        let local = if bound.ip().is_unspecified() { SocketAddr::new(remote.ip(), bound.port()) } else { bound };
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(NetworkError::Unreachable);
        }
        let now = dispatcher::now();
        self.remembered.retain(|(.., until)| *until > now);
        if self.remembered.iter().any(|(own, other, _)| (*own, *other) == (local, remote)) {
            return Err(NetworkError::InUse);
        }
        let listens = |port: &Port| {
            let free = port.waiting.as_ref().is_some_and(|waiting| waiting.len() < BACKLOG);
            free && covers(port.address, remote)
        };
        let Some(listener) = self.ports.iter().find(|(_, port)| listens(port)).map(|(id, _)| *id) else {
            return Err(NetworkError::Refused);
        };
        let (here, there) = self.link(local, remote);
        capture::opened(local, remote);
        if let Some(waiting) = self.ports.get_mut(&listener).and_then(|port| port.waiting.as_mut()) {
            waiting.push_back(there);
        }
        self.woken.push(Woken::Acceptable(listener));
        Ok(here)
    }

    /// Makes a connection: its end at `local`, and that at `remote`.
    fn link(&mut self, local: SocketAddr, remote: SocketAddr) -> (StreamId, StreamId) {
        let (here, there) = (StreamId(self.number()), StreamId(self.number()));
        let end = |local, remote, peer| Stream {
            local,
            remote,
            peer: Some(peer),
            incoming: VecDeque::new(),
            end_received: false,
            end_sent: false,
            reset: false,
        };
        self.streams.insert(here, end(local, remote, there));
        self.streams.insert(there, end(remote, local, here));
        (here, there)
    }

    /// The connection that has waited longest.
    pub(super) fn accept(&mut self, port: PortId) -> Option<StreamId> {
        self.ports.get_mut(&port)?.waiting.as_mut()?.pop_front()
    }

    /// The addresses of an end: its own, and the other's.
    pub(super) fn addresses(&self, stream: StreamId) -> Option<(SocketAddr, SocketAddr)> {
        self.streams.get(&stream).map(|stream| (stream.local, stream.remote))
    }

    fn is_reset(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_none_or(|stream| stream.reset || stream.peer.is_none())
    }

    /// How many bytes may be sent now; `None` on a broken connection.
    pub(super) fn capacity(&self, stream: StreamId) -> Option<usize> {
        if self.is_reset(stream) {
            return None;
        }
        let peer = self.streams.get(&stream)?.peer?;
        Some(WINDOW.saturating_sub(self.streams.get(&peer)?.incoming.len()))
    }

    /// Sends bytes for which there is capacity.
    pub(super) fn write(&mut self, stream: StreamId, bytes: &[u8]) {
        if let Some(peer) = self.streams.get(&stream).and_then(|stream| stream.peer)
            && let Some(other) = self.streams.get_mut(&peer)
        {
            capture::bytes(other.remote, other.local, bytes);
            other.incoming.extend(bytes);
            self.woken.push(Woken::Readable(peer));
        }
    }

    /// Ends the own direction behind what was sent; false on a broken connection.
    pub(super) fn finish(&mut self, stream: StreamId) -> bool {
        if self.is_reset(stream) {
            return false;
        }
        let Some(own) = self.streams.get_mut(&stream) else { return false };
        if !std::mem::replace(&mut own.end_sent, true) {
            capture::ended(own.local, own.remote);
            if !own.end_received {
                self.remembered.push((own.local, own.remote, dispatcher::now().saturating_add(TIME_WAIT)));
            }
        }
        if let Some(peer) = own.peer
            && let Some(other) = self.streams.get_mut(&peer)
        {
            other.end_received = true;
            self.woken.push(Woken::Readable(peer));
        }
        true
    }

    /// Takes bytes that have come, at most so many.
    pub(super) fn read(&mut self, stream: StreamId, most: usize) -> Found {
        let Some(own) = self.streams.get_mut(&stream) else { return Found::Reset };
        if own.reset {
            return Found::Reset;
        }
        if own.incoming.is_empty() {
            return if own.end_received { Found::End } else { Found::Nothing };
        }
        let count = own.incoming.len().min(most);
        // In whole pieces: byte by byte this is most of a transfer's time.
        let (first, second) = own.incoming.as_slices();
        let first = &first[..first.len().min(count)];
        let bytes = [first, &second[..count - first.len()]].concat();
        self.skip(stream, count);
        Found::Bytes(bytes)
    }

    /// Takes bytes that have come, without a copy.
    pub(super) fn skip(&mut self, stream: StreamId, count: usize) {
        let Some(own) = self.streams.get_mut(&stream) else { return };
        own.incoming.drain(..count);
        self.woken.extend(own.peer.map(Woken::Writable));
    }

    /// How many bytes have come and were not taken.
    pub(super) fn available(&self, stream: StreamId) -> usize {
        self.streams.get(&stream).map_or(0, |stream| stream.incoming.len())
    }

    /// Breaks the connection: what was sent and not taken is lost.
    pub(super) fn reset(&mut self, stream: StreamId) {
        let Some(own) = self.streams.get_mut(&stream) else { return };
        capture::reset(own.local, own.remote);
        own.reset = true;
        own.incoming.clear();
        let peer = own.peer.take();
        if let Some(peer) = peer
            && let Some(other) = self.streams.get_mut(&peer)
        {
            other.reset = true;
            other.peer = None;
            other.incoming.clear();
            self.woken.extend([Woken::Readable(peer), Woken::Writable(peer)]);
        }
    }

    /// The end is not used any more: broken, unless both directions have ended.
    pub(super) fn close(&mut self, stream: StreamId) {
        let ended = self
            .streams
            .get(&stream)
            .is_some_and(|own| own.end_sent && own.end_received && own.incoming.is_empty() && !own.reset);
        if !ended {
            self.reset(stream);
        }
        // A peer that has ended both ways keeps what it has to read; it sends nothing more.
        self.streams.remove(&stream);
    }

    fn break_off(&mut self, stream: StreamId) {
        self.reset(stream);
        self.streams.remove(&stream);
    }

    /// Who may go on since the last call.
    pub(super) fn take_woken(&mut self) -> Vec<Woken> {
        let mut woken = Vec::new();
        while !self.woken.is_empty() {
            let found = std::mem::take(&mut self.woken);
            woken.extend(found.into_iter().filter(|end| !self.serves_wire(*end) && !self.serves_frame_wire(*end)));
        }
        woken
    }
}

/// The wildcard address of a family.
pub(super) fn any(v6: bool) -> IpAddr {
    if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)
    }

    /// Both ends of a connection, and its listener.
    fn connected(network: &mut Network) -> (StreamId, StreamId, PortId) {
        let listener = network.bind(at(7), true).expect("a free port");
        let port = network.bind(at(0), false).expect("a free port");
        let here = network.try_connect(port, at(7)).expect("a listener");
        assert_eq!(network.take_woken(), [Woken::Acceptable(listener)]);
        let there = network.accept(listener).expect("a connection");
        (here, there, listener)
    }

    /// What has come lies in two pieces where it goes round the end of its memory.
    #[test]
    fn bytes_keep_their_order_in_any_cut() {
        let mut network = Network::new();
        let (here, there) = network.link(at(1), at(2));
        let (mut sent, mut taken) = (0_u32, 0_u32);
        for step in 0..20_000 {
            let count = (step * 7919) % 900;
            let free = network.capacity(here).unwrap_or(0).min(count as usize) as u32;
            network.write(here, &(sent..sent + free).map(|number| number as u8).collect::<Vec<_>>());
            sent += free;
            if let Found::Bytes(bytes) = network.read(there, ((step * 104_729) % 1_000) as usize) {
                for byte in bytes {
                    assert_eq!(byte, taken as u8);
                    taken += 1;
                }
            }
        }
        assert!(taken > 1_000_000 && sent - taken <= WINDOW as u32, "{sent} {taken}");
    }

    #[test]
    fn ports_are_bound_once_and_addresses_are_the_hosts() {
        let mut network = Network::new();
        let first = network.bind(at(0), false).expect("a free port");
        let address = network.bound_address(first);
        assert!(DYNAMIC.contains(&address.port()));
        assert_eq!(network.bind(address, false), Err(NetworkError::InUse));
        let wildcard = SocketAddr::new(any(false), address.port());
        assert_eq!(network.bind(wildcard, true), Err(NetworkError::Denied));
        network.release(first);
        assert!(network.bind(wildcard, true).is_ok());
        let elsewhere = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), 1);
        assert_eq!(network.bind(elsewhere, false), Err(NetworkError::NotLocal));
        let port = network.bind(at(0), false).expect("a free port");
        assert_eq!(network.try_connect(port, elsewhere), Err(NetworkError::Unreachable));
        assert_eq!(network.try_connect(port, at(9)), Err(NetworkError::Refused));
        network.set_silent(elsewhere.ip(), true);
        assert_eq!(network.connect(port, elsewhere), None);
        network.set_silent(elsewhere.ip(), false);
        assert_eq!(network.connect(port, elsewhere), Some(Err(NetworkError::Unreachable)));
    }

    #[test]
    fn an_end_stands_behind_the_bytes_and_both_ends_may_close_then() {
        let mut network = Network::new();
        let (here, there, _) = connected(&mut network);
        network.write(here, b"abc");
        assert!(network.finish(here));
        assert_eq!(network.read(there, 2), Found::Bytes(b"ab".to_vec()));
        assert_eq!(network.read(there, 2), Found::Bytes(b"c".to_vec()));
        assert_eq!(network.read(there, 2), Found::End);
        network.write(there, b"d");
        assert!(network.finish(there));
        network.close(there);
        assert_eq!(network.read(here, 9), Found::Bytes(b"d".to_vec()));
        assert_eq!(network.read(here, 9), Found::End);
    }

    #[test]
    fn a_close_before_both_ends_breaks_the_connection() {
        let mut network = Network::new();
        let (here, there, _) = connected(&mut network);
        network.write(here, b"abc");
        network.close(here);
        assert_eq!(network.read(there, 9), Found::Reset);
        assert_eq!(network.capacity(there), None);
        assert!(!network.finish(there));
    }

    #[test]
    fn an_address_that_is_removed_takes_its_connections_along() {
        let mut network = Network::new();
        let (here, there, _) = connected(&mut network);
        network.address_removed(Ipv4Addr::LOCALHOST.into());
        assert_eq!((network.read(here, 1), network.read(there, 1)), (Found::Reset, Found::Reset));
        assert!(network.take_woken().contains(&Woken::Writable(here)));
    }

    #[test]
    fn the_window_is_bounded_and_a_closed_listener_breaks_what_waits() {
        let mut network = Network::new();
        let (here, there, listener) = connected(&mut network);
        network.write(here, &vec![1; WINDOW]);
        assert_eq!(network.capacity(here), Some(0));
        network.take_woken();
        assert!(matches!(network.read(there, 100), Found::Bytes(_)));
        assert_eq!(network.take_woken(), [Woken::Writable(here)]);
        assert_eq!(network.capacity(here), Some(100));
        let port = network.bind(at(0), false).expect("a free port");
        let late = network.try_connect(port, at(7)).expect("a listener");
        network.release(listener);
        assert_eq!(network.read(late, 1), Found::Reset);
        assert_eq!(network.capacity(here), Some(100));
    }
}
