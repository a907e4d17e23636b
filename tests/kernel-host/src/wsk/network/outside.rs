//! Connections to hosts in other processes: each is a connection inside this host whose other end, a wire, is a socket of Linux.
//!
//! Bytes go from the driver's memory to the socket and back without a stop; ends and resets are those of the network inside. Nothing here
//! blocks: what cannot go on does so when the socket is named by [`Happenings`], or when the network wakes the wire.

mod datagrams;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;

use super::linux::{self, Happenings};
use super::machines::{self, MachineAddress};
use crate::capture;
use crate::wsk::chance;
use datagrams::OutsidePort;

use super::{BACKLOG, Network, NetworkError, PortId, StreamId, Woken, exists};

/// What is outside of the host.
pub(super) struct Outside {
    machines: Vec<MachineAddress>,
    happenings: Option<Arc<Happenings>>,
    listeners: BTreeMap<PortId, Vec<Listener>>,
    dials: BTreeMap<PortId, Dial>,
    datagram_ports: BTreeMap<PortId, Vec<OutsidePort>>,
    /// By the end that is not the driver's.
    wires: BTreeMap<StreamId, Wire>,
    /// Wires that go on a little later.
    stalled: Vec<StreamId>,
}

/// A socket that listens for a bound port, under one of its addresses.
pub(super) struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

/// A connect.
enum Dial {
    Begun { socket: TcpStream, local: SocketAddr, remote: SocketAddr },
    Answered(Result<StreamId, NetworkError>),
}

struct Wire {
    socket: TcpStream,
    end_sent: bool,
    end_received: bool,
}

fn broken() -> io::Error {
    ErrorKind::ConnectionAborted.into()
}

fn reason(error: &io::Error) -> NetworkError {
    match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => NetworkError::Refused,
        ErrorKind::AddrInUse => NetworkError::InUse,
        _ => NetworkError::Unreachable,
    }
}

/// What a move of bytes to or from another host has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::wsk) enum Moved {
    Bytes(usize),
    /// The other host has ended its direction.
    End,
    Broken,
    Nothing,
}

impl Outside {
    pub(super) const fn new() -> Self {
        Self {
            machines: Vec::new(),
            happenings: None,
            listeners: BTreeMap::new(),
            dials: BTreeMap::new(),
            datagram_ports: BTreeMap::new(),
            wires: BTreeMap::new(),
            stalled: Vec::new(),
        }
    }

    fn stand_in(&self, address: IpAddr) -> Option<SocketAddrV4> {
        machines::stand_in(&self.machines, address).map(|stand_in| SocketAddrV4::new(stand_in, 0))
    }

    fn happenings(&self) -> io::Result<&Happenings> {
        self.happenings.as_deref().ok_or_else(broken)
    }

    /// The addresses of this host at which a port is reached from outside.
    fn own_addresses(&self, bound: SocketAddr) -> Vec<SocketAddr> {
        let is_meant = |address: IpAddr| {
            let any = bound.ip().is_unspecified() && bound.is_ipv4() == address.is_ipv4() && exists(address);
            any || bound.ip() == address
        };
        let own = self.machines.iter().map(|machine| machine.address).filter(|address| is_meant(*address));
        own.map(|address| SocketAddr::new(address, bound.port())).collect()
    }

    /// Listens for a port that is about to be bound.
    pub(super) fn listen(&self, bound: SocketAddr) -> Result<Vec<Listener>, NetworkError> {
        let listen = |address: SocketAddr| {
            let mut real = self.stand_in(address.ip()).ok_or(NetworkError::NotLocal)?;
            real.set_port(address.port());
            let socket = linux::listen(real).map_err(|error| reason(&error))?;
            Ok(Listener { socket, address })
        };
        self.own_addresses(bound).into_iter().map(listen).collect()
    }

    /// The port is bound.
    pub(super) fn bound(&mut self, port: PortId, listeners: Vec<Listener>) {
        for listener in &listeners {
            // Where Linux makes no socket, no other host connects.
            let _ = self.happenings().and_then(|happenings| happenings.add_source(&listener.socket, port.0));
        }
        if !listeners.is_empty() {
            self.listeners.insert(port, listeners);
        }
    }

    fn dial(&self, port: PortId, local: SocketAddr, remote: SocketAddr) -> io::Result<TcpStream> {
        let unknown = || io::Error::from(ErrorKind::HostUnreachable);
        let mut from = self.stand_in(local.ip()).ok_or_else(unknown)?;
        from.set_port(local.port());
        let mut to = self.stand_in(remote.ip()).ok_or_else(unknown)?;
        to.set_port(remote.port());
        let socket = linux::connect(from, to)?;
        self.happenings()?.add(&socket, port.0)?;
        Ok(socket)
    }
}

impl Network {
    /// Begins to reach the addresses of a table.
    pub(in crate::wsk) fn open(&mut self, machines: &[MachineAddress], happenings: Arc<Happenings>) {
        self.outside.machines = machines.to_vec();
        self.outside.happenings = Some(happenings);
    }

    /// Ends it: what is connected breaks.
    pub(in crate::wsk) fn shut(&mut self) {
        let Outside { wires, .. } = std::mem::replace(&mut self.outside, Outside::new());
        for (id, wire) in wires {
            linux::abort(wire.socket);
            self.break_off(id);
        }
    }

    /// Whether an address is that of another host.
    pub(in crate::wsk) fn is_outside(&self, address: IpAddr) -> bool {
        self.outside.stand_in(address).is_some() && !exists(address)
    }

    /// Connects to another host, or looks how far that is; `None` while there is no answer.
    pub(super) fn connect_outside(
        &mut self,
        port: PortId,
        remote: SocketAddr,
    ) -> Option<Result<StreamId, NetworkError>> {
        match self.outside.dials.remove(&port) {
            Some(Dial::Answered(result)) => return Some(result),
            Some(begun) => {
                self.outside.dials.insert(port, begun);
                return None;
            }
            None => {}
        }
        let bound = self.bound_address(port);
        let Some(local) = self.outside.own_addresses(bound).first().copied() else {
            return Some(Err(NetworkError::Unreachable));
        };
        match self.outside.dial(port, local, remote) {
            Ok(socket) => {
                self.outside.dials.insert(port, Dial::Begun { socket, local, remote });
                None
            }
            Err(error) => Some(Err(reason(&error))),
        }
    }

    /// Forgets the connect of a port.
    pub(in crate::wsk) fn hang_up(&mut self, port: PortId) {
        if let Some(Dial::Answered(Ok(stream))) = self.outside.dials.remove(&port) {
            self.break_off(stream);
        }
        self.hang_up_in_frames(port);
    }

    /// The port is not bound any more.
    pub(super) fn released(&mut self, port: PortId) {
        self.hang_up(port);
        self.released_in_frames(port);
        self.outside.listeners.remove(&port);
        self.outside.datagram_ports.remove(&port);
    }

    /// Something has happened to a socket, or to one that was closed since.
    pub(in crate::wsk) fn happened(&mut self, number: u64) {
        let port = PortId(number);
        if let Some(listeners) = self.outside.listeners.remove(&port) {
            for listener in &listeners {
                self.take_connections(port, listener);
            }
            self.outside.listeners.insert(port, listeners);
        } else if let Some(dial) = self.outside.dials.remove(&port) {
            let dial = match dial {
                Dial::Begun { socket, local, remote } => self.look_at_dial(port, socket, local, remote),
                answered @ Dial::Answered(_) => answered,
            };
            self.outside.dials.insert(port, dial);
        } else if !self.take_datagrams(port) {
            self.stream_happened(StreamId(number));
        }
    }

    fn take_connections(&mut self, port: PortId, listener: &Listener) {
        loop {
            match linux::accept(&listener.socket) {
                Ok(socket) => self.take_connection(port, listener.address, socket),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // It has ended before it was taken.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => return,
            }
        }
    }

    fn take_connection(&mut self, port: PortId, local: SocketAddr, socket: TcpStream) {
        let from = socket.peer_addr().ok();
        let remote = from.and_then(|from| {
            let address = machines::outside_address_of(&self.outside.machines, from.ip(), exists)?;
            Some(SocketAddr::new(address, from.port()))
        });
        let waiting = self.ports.get(&port).and_then(|port| port.waiting.as_ref());
        let is_free = waiting.is_some_and(|waiting| waiting.len() < BACKLOG);
        let Some(remote) = remote.filter(|_| is_free && exists(local.ip()) && !self.is_silent(local.ip())) else {
            linux::abort(socket);
            return;
        };
        let (here, wire) = self.link(local, remote);
        capture::opened(remote, local);
        if self.begin_wire(wire, socket, Happenings::add).is_err() {
            self.streams.remove(&here);
            return;
        }
        if let Some(waiting) = self.ports.get_mut(&port).and_then(|port| port.waiting.as_mut()) {
            waiting.push_back(here);
        }
        self.woken.push(Woken::Acceptable(port));
    }

    fn look_at_dial(&mut self, port: PortId, socket: TcpStream, local: SocketAddr, remote: SocketAddr) -> Dial {
        let failure = match socket.take_error() {
            Ok(None) if socket.peer_addr().is_err() => return Dial::Begun { socket, local, remote },
            Ok(None) => None,
            Ok(Some(error)) | Err(error) => Some(error),
        };
        self.woken.push(Woken::Answered(port));
        if let Some(error) = failure {
            return Dial::Answered(Err(reason(&error)));
        }
        let (here, wire) = self.link(local, remote);
        capture::opened(local, remote);
        if let Err(error) = self.begin_wire(wire, socket, Happenings::renumber) {
            self.streams.remove(&here);
            return Dial::Answered(Err(reason(&error)));
        }
        Dial::Answered(Ok(here))
    }

    fn begin_wire(
        &mut self,
        id: StreamId,
        socket: TcpStream,
        enter: fn(&Happenings, &TcpStream, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let entered = self.outside.happenings().and_then(|happenings| enter(happenings, &socket, id.0));
        if entered.is_err() {
            linux::abort(socket);
            self.streams.remove(&id);
            return entered;
        }
        self.outside.wires.insert(id, Wire { socket, end_sent: false, end_received: false });
        Ok(())
    }

    /// Whether the end is a wire's; then what the driver has done with its end is done to the socket.
    pub(super) fn serves_wire(&mut self, woken: Woken) -> bool {
        let (Woken::Readable(id) | Woken::Writable(id)) = woken else { return false };
        let is_wire = self.outside.wires.contains_key(&id);
        if is_wire {
            self.follow(id);
        }
        is_wire
    }

    /// The driver's end of a wire may go on.
    fn wake_end_of(&mut self, wire: StreamId) {
        if let Some(end) = self.streams.get(&wire).and_then(|own| own.peer) {
            self.woken.extend([Woken::Readable(end), Woken::Writable(end)]);
        }
    }

    fn stream_happened(&mut self, wire: StreamId) {
        if chance::stalls() && !self.outside.stalled.contains(&wire) {
            self.outside.stalled.push(wire);
        }
        self.wake_end_of(wire);
    }

    pub(in crate::wsk) fn has_stalled(&self) -> bool {
        !self.outside.stalled.is_empty()
    }

    /// A little time has passed.
    pub(in crate::wsk) fn go_on(&mut self) {
        for wire in std::mem::take(&mut self.outside.stalled) {
            self.wake_end_of(wire);
        }
    }

    /// The wire behind an end of the driver's.
    fn wire_behind(&self, end: StreamId) -> Option<(StreamId, &Wire)> {
        let id = self.streams.get(&end)?.peer?;
        Some((id, self.outside.wires.get(&id)?))
    }

    /// Sends what the system takes of some memory, over an end that leads to another host; nothing of other ends.
    ///
    /// # Safety
    ///
    /// The memory can be read.
    pub(in crate::wsk) unsafe fn send_outside(&mut self, end: StreamId, vectors: &[libc::iovec]) -> Option<Moved> {
        let (id, wire) = self.wire_behind(end)?;
        if self.outside.stalled.contains(&id) {
            return Some(Moved::Nothing);
        }
        // SAFETY: the caller's contract.
        let sent = unsafe { linux::send(&wire.socket, vectors) };
        if let (Ok(Some(count)), Some((own, other))) = (&sent, self.addresses(end)) {
            // SAFETY: as above.
            unsafe { capture::vectors(own, other, vectors, *count) };
        }
        Some(self.outcome(id, &sent, Moved::Bytes(0)))
    }

    /// Receives into some memory what has come from another host; whether something has, where there is no memory. Nothing of ends that
    /// lead elsewhere.
    ///
    /// # Safety
    ///
    /// The memory can be written.
    pub(in crate::wsk) unsafe fn receive_outside(&mut self, end: StreamId, vectors: &[libc::iovec]) -> Option<Moved> {
        let (id, wire) = self.wire_behind(end)?;
        if self.outside.stalled.contains(&id) {
            return Some(Moved::Nothing);
        }
        let received = if vectors.is_empty() {
            linux::peek(&wire.socket)
        } else {
            // SAFETY: the caller's contract.
            unsafe { linux::receive(&wire.socket, vectors) }
        };
        if let (Ok(Some(count)), Some((own, other))) = (&received, self.addresses(end))
            && !vectors.is_empty()
        {
            // SAFETY: they were received into that memory.
            unsafe { capture::vectors(other, own, vectors, *count) };
        }
        let outcome = self.outcome(id, &received, Moved::End);
        if outcome == Moved::End {
            self.has_ended(id);
        }
        let is_look = vectors.is_empty() && matches!(outcome, Moved::Bytes(_));
        Some(if is_look { Moved::Bytes(0) } else { outcome })
    }

    /// `zero` is what no bytes mean.
    fn outcome(&mut self, id: StreamId, moved: &io::Result<Option<usize>>, zero: Moved) -> Moved {
        match moved {
            Ok(None) => Moved::Nothing,
            Ok(Some(0)) => zero,
            Ok(Some(count)) => Moved::Bytes(*count),
            Err(_) => {
                self.break_wire(id);
                Moved::Broken
            }
        }
    }

    /// The other host has ended its direction.
    fn has_ended(&mut self, id: StreamId) {
        self.finish(id);
        if let Some(wire) = self.outside.wires.get_mut(&id) {
            wire.end_received = true;
        }
        self.follow(id);
    }

    fn break_wire(&mut self, id: StreamId) {
        if let Some(wire) = self.outside.wires.remove(&id) {
            linux::abort(wire.socket);
        }
        self.break_off(id);
    }

    /// Does to the socket what was done to the driver's end.
    fn follow(&mut self, id: StreamId) {
        let Some(wire) = self.outside.wires.get_mut(&id) else { return };
        let own = self.streams.get(&id);
        if own.is_none_or(|own| own.reset) {
            // Both have ended, and the driver has not looked.
            if wire.end_sent && matches!(linux::peek(&wire.socket), Ok(Some(0))) {
                self.outside.wires.remove(&id);
            }
            return self.break_wire(id);
        }
        if own.is_some_and(|own| own.end_received) && !wire.end_sent {
            wire.end_sent = true;
            if wire.socket.shutdown(Shutdown::Write).is_err() {
                return self.break_wire(id);
            }
        }
        if wire.end_sent && wire.end_received {
            self.outside.wires.remove(&id);
            self.close(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::super::{Arrival, Found};
    use super::*;

    /// Each takes two milliseconds or more when nothing happens.
    const STEPS: u32 = 20_000;

    /// The network of one host; its own address is one that every host has, and exists.
    struct Host {
        network: Network,
        happenings: Arc<Happenings>,
    }

    const OWN: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 1);
    const OTHER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

    fn at(address: Ipv4Addr, port: u16) -> SocketAddr {
        SocketAddr::new(address.into(), port)
    }

    /// Two hosts that are [`OTHER`] to each other, at addresses of Linux that no other test has.
    fn hosts() -> [Host; 2] {
        static PAIRS: AtomicU8 = AtomicU8::new(0);
        let [.., high, low] = std::process::id().to_be_bytes();
        let first = 101 + 2 * PAIRS.fetch_add(1, Ordering::Relaxed);
        let stand_ins = [first, first + 1].map(|last| Ipv4Addr::new(127, high, low, last));
        [(0, 1), (1, 0)].map(|(own, other)| {
            let machine = |address: Ipv4Addr, stand_in| MachineAddress { address: address.into(), stand_in };
            let table = [machine(OWN, stand_ins[own]), machine(OTHER, stand_ins[other])];
            let happenings = Arc::new(Happenings::new().expect("a queue"));
            let mut network = Network::new();
            network.open(&table, Arc::clone(&happenings));
            Host { network, happenings }
        })
    }

    /// Lets both hosts go on.
    fn step(hosts: &mut [Host; 2]) {
        for host in hosts {
            for number in host.happenings.wait_for(1) {
                host.network.happened(number);
            }
            host.network.take_woken();
        }
    }

    /// Lets both hosts go on until something has come.
    fn until<T>(hosts: &mut [Host; 2], mut found: impl FnMut(&mut [Host; 2]) -> Option<T>) -> T {
        for _ in 0..STEPS {
            if let Some(found) = found(hosts) {
                return found;
            }
            step(hosts);
        }
        panic!("it has not come");
    }

    /// A connection from the first host to the second, and the second's listener.
    fn connected(hosts: &mut [Host; 2]) -> (StreamId, StreamId, PortId) {
        let listener = hosts[1].network.bind(at(OWN, 0), true).expect("a free port");
        let to = at(OTHER, hosts[1].network.bound_address(listener).port());
        let port = hosts[0].network.bind(at(OWN, 0), false).expect("a free port");
        assert!(hosts[0].network.is_outside(OTHER.into()) && !hosts[0].network.is_outside(OWN.into()));
        let here = until(hosts, |hosts| hosts[0].network.connect(port, to)).expect("a listener");
        let there = until(hosts, |hosts| hosts[1].network.accept(listener));
        assert_eq!(hosts[0].network.addresses(here).map(|(_, remote)| remote), Some(to));
        let (local, remote) = hosts[1].network.addresses(there).expect("an end");
        assert_eq!((local, remote.ip()), (at(OWN, to.port()), OTHER.into()));
        (here, there, listener)
    }

    fn next(hosts: &mut [Host; 2], host: usize, stream: StreamId) -> Found {
        until(hosts, |hosts| Some(read(&mut hosts[host], stream)).filter(|found| *found != Found::Nothing))
    }

    fn vector(bytes: &[u8]) -> libc::iovec {
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
    }

    fn send(host: &mut Host, end: StreamId, bytes: &[u8]) -> Moved {
        // SAFETY: the bytes are borrowed for the call.
        unsafe { host.network.send_outside(end, &[vector(bytes)]) }.expect("it leads to another host")
    }

    fn write(host: &mut Host, end: StreamId, bytes: &[u8]) {
        assert_eq!(send(host, end, bytes), Moved::Bytes(bytes.len()));
    }

    fn read(host: &mut Host, end: StreamId) -> Found {
        let mut bytes = vec![0; 1000];
        // SAFETY: the bytes are borrowed for the call.
        let moved = unsafe { host.network.receive_outside(end, &[vector(&bytes)]) };
        match moved {
            Some(Moved::Bytes(count)) => {
                bytes.truncate(count);
                Found::Bytes(bytes)
            }
            Some(Moved::End) => Found::End,
            Some(Moved::Broken) => Found::Reset,
            Some(Moved::Nothing) => Found::Nothing,
            // It does not any more.
            None => host.network.read(end, 0),
        }
    }

    #[test]
    fn caller_from_the_stand_in_of_the_host_is_the_other_host() {
        let mut hosts = hosts();
        let [own, other] = hosts[0].network.outside.machines.clone().try_into().expect("two rows");
        hosts[0].network.outside.machines.push(MachineAddress { stand_in: own.stand_in, ..other });
        let listener = hosts[0].network.bind(at(OWN, 0), true).expect("a free port");
        let to = SocketAddrV4::new(own.stand_in, hosts[0].network.bound_address(listener).port());
        let _caller = linux::connect(SocketAddrV4::new(own.stand_in, 0), to).expect("a socket");
        let here = until(&mut hosts, |hosts| hosts[0].network.accept(listener));
        assert_eq!(hosts[0].network.addresses(here).map(|(_, remote)| remote.ip()), Some(OTHER.into()));
    }

    #[test]
    fn bytes_cross_in_order_and_no_more_than_there_is_space_for() {
        let mut hosts = hosts();
        let (here, there, _) = connected(&mut hosts);
        let (mut sent, mut received) = (0_usize, 0_usize);
        // The second host does not read: what Linux takes is bounded.
        loop {
            let bytes: Vec<u8> = (sent..sent + 50_000).map(|position| (position % 251) as u8).collect();
            match send(&mut hosts[0], here, &bytes) {
                Moved::Bytes(count) => sent += count,
                Moved::Nothing => break,
                other => panic!("{other:?}"),
            }
            assert!(sent < 1 << 28, "it has no bound");
        }
        // SAFETY: there is no memory.
        let look = |hosts: &mut [Host; 2]| unsafe { hosts[1].network.receive_outside(there, &[]) };
        until(&mut hosts, |hosts| (look(hosts) == Some(Moved::Bytes(0))).then_some(()));
        assert!(hosts[0].network.finish(here));
        loop {
            match next(&mut hosts, 1, there) {
                Found::Bytes(bytes) => {
                    assert!((received..).zip(bytes.iter()).all(|(position, byte)| *byte == (position % 251) as u8));
                    received += bytes.len();
                }
                Found::End => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(received, sent);
    }

    #[test]
    fn both_ends_close_after_both_directions_have_ended() {
        let mut hosts = hosts();
        let (here, there, _) = connected(&mut hosts);
        write(&mut hosts[0], here, b"abc");
        assert!(hosts[0].network.finish(here));
        assert_eq!(next(&mut hosts, 1, there), Found::Bytes(b"abc".to_vec()));
        assert_eq!(next(&mut hosts, 1, there), Found::End);
        write(&mut hosts[1], there, b"d");
        assert!(hosts[1].network.finish(there));
        hosts[1].network.close(there);
        assert_eq!(next(&mut hosts, 0, here), Found::Bytes(b"d".to_vec()));
        assert_eq!(next(&mut hosts, 0, here), Found::End);
        hosts[0].network.close(here);
        until(&mut hosts, |hosts| hosts.iter().all(|host| host.network.outside.wires.is_empty()).then_some(()));
        assert!(hosts.iter().all(|host| host.network.streams.is_empty()));
    }

    #[test]
    fn a_connection_that_is_broken_breaks_over_there() {
        let mut hosts = hosts();
        for breaks in [Network::close, Network::reset] {
            let (here, there, _) = connected(&mut hosts);
            write(&mut hosts[0], here, b"lost");
            breaks(&mut hosts[0].network, here);
            // What was sent before may have come.
            let mut found = next(&mut hosts, 1, there);
            while matches!(found, Found::Bytes(_)) {
                found = next(&mut hosts, 1, there);
            }
            assert_eq!(found, Found::Reset);
            assert_eq!(hosts[1].network.capacity(there), None);
        }
    }

    #[test]
    fn a_listener_that_is_released_resets_what_waits_and_frees_its_address() {
        let mut hosts = hosts();
        let (here, there, listener) = connected(&mut hosts);
        let to = at(OTHER, hosts[1].network.bound_address(listener).port());
        let port = hosts[0].network.bind(at(OWN, 0), false).expect("a free port");
        let waiting = until(&mut hosts, |hosts| hosts[0].network.connect(port, to)).expect("a listener");
        let given_up = hosts[0].network.bind(at(OWN, 0), false).expect("a free port");
        assert_eq!(hosts[0].network.connect(given_up, to), None);
        hosts[0].network.hang_up(given_up);
        hosts[1].network.release(listener);
        assert_eq!(next(&mut hosts, 0, waiting), Found::Reset);
        let refused = until(&mut hosts, |hosts| hosts[0].network.connect(given_up, to));
        assert_eq!(refused, Err(NetworkError::Refused));
        // What was accepted stays, and the address is free.
        write(&mut hosts[1], there, b"on");
        assert_eq!(next(&mut hosts, 0, here), Found::Bytes(b"on".to_vec()));
        assert!(hosts[1].network.bind(at(OWN, to.port()), true).is_ok());
    }

    fn next_datagram(hosts: &mut [Host; 2], host: usize, port: PortId) -> Arrival {
        until(hosts, |hosts| hosts[host].network.receive_datagram(port))
    }

    #[test]
    fn datagrams_cross_and_name_the_other_host() {
        let mut hosts = hosts();
        let [here, there] = [0, 1].map(|host| hosts[host].network.bind_datagrams(at(OWN, 0)).expect("a free port"));
        let [near, far] = [(0, here), (1, there)].map(|(host, port)| hosts[host].network.bound_address(port).port());
        for length in [1500, 0, 1, 40_000] {
            let bytes: Vec<u8> = (0..length).map(|place| (place % 251) as u8).collect();
            assert_eq!(hosts[0].network.send_datagram(here, at(OTHER, far), &bytes), Ok(()));
            let came = next_datagram(&mut hosts, 1, there);
            assert_eq!(came, Arrival::Datagram { from: at(OTHER, near), bytes: bytes.clone() });
            assert_eq!(hosts[1].network.send_datagram(there, at(OTHER, near), &bytes), Ok(()));
            let back = next_datagram(&mut hosts, 0, here);
            assert_eq!(back, Arrival::Datagram { from: at(OTHER, far), bytes });
        }
        // What comes to a port that is released is lost, and the port is free.
        hosts[1].network.release(there);
        assert_eq!(hosts[0].network.send_datagram(here, at(OTHER, far), b"lost"), Ok(()));
        let again = hosts[1].network.bind_datagrams(at(OWN, far)).expect("it is free");
        assert_eq!(hosts[0].network.send_datagram(here, at(OTHER, far), b"found"), Ok(()));
        let came = next_datagram(&mut hosts, 1, again);
        assert_eq!(came, Arrival::Datagram { from: at(OTHER, near), bytes: b"found".to_vec() });
    }

    #[test]
    fn datagrams_of_unknown_senders_and_to_silent_addresses_are_dropped() {
        let mut hosts = hosts();
        let there = hosts[1].network.bind_datagrams(at(OWN, 0)).expect("a free port");
        let far = hosts[1].network.bound_address(there).port();
        let mut real = hosts[1].network.outside.stand_in(OWN.into()).expect("it is in the table");
        real.set_port(far);
        let unknown = linux::datagrams(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        unknown.send_to(b"lost", real).expect("it is sent");
        let here = hosts[0].network.bind_datagrams(at(OWN, 0)).expect("a free port");
        let near = hosts[0].network.bound_address(here).port();
        hosts[1].network.set_silent(OWN.into(), true);
        assert_eq!(hosts[0].network.send_datagram(here, at(OTHER, far), b"lost"), Ok(()));
        (0..3).for_each(|_| step(&mut hosts));
        hosts[1].network.set_silent(OWN.into(), false);
        assert_eq!(hosts[0].network.send_datagram(here, at(OTHER, far), b"found"), Ok(()));
        let came = next_datagram(&mut hosts, 1, there);
        assert_eq!(came, Arrival::Datagram { from: at(OTHER, near), bytes: b"found".to_vec() });
        // A port of a program outside is in use.
        let mut held = hosts[0].network.outside.stand_in(OWN.into()).expect("it is in the table");
        held.set_port(0);
        let held = linux::datagrams(held).expect("a socket");
        let number = held.local_addr().expect("an address").port();
        assert_eq!(hosts[0].network.bind_datagrams(at(OWN, number)), Err(NetworkError::InUse));
    }

    #[test]
    fn ports_that_are_taken_outside_are_not_in_the_way() {
        let mut hosts = hosts();
        let (_, _, listener) = connected(&mut hosts);
        let to = at(OTHER, hosts[1].network.bound_address(listener).port());
        let real = hosts[0].network.outside.stand_in(OWN.into()).expect("it is in the table");
        let held = TcpListener::bind(real).expect("a free port");
        let number = held.local_addr().expect("an address").port();
        assert_eq!(hosts[0].network.bind(at(OWN, number), true), Err(NetworkError::InUse));
        // A connect takes another one.
        let port = hosts[0].network.bind(at(OWN, number), false).expect("it is free in here");
        until(&mut hosts, |hosts| hosts[0].network.connect(port, to)).expect("a connection");
        drop(held);
    }
}
