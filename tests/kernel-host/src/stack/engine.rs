//! TCP/IP of one adapter: smoltcp's interface and its sockets. Nothing here blocks, sends or calls an image: frames go in and
//! come out of [`FrameQueues`], and time is an argument.

use std::net::SocketAddr;
use std::sync::Arc;

use smoltcp::iface::{Config, Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};

use super::listeners::Listeners;
use super::queues::FrameQueues;
use crate::dispatcher::{Event, Time, UNITS_PER_SECOND};
use crate::inf::InterfaceAddress;

/// What a connection may have sent and its peer not acknowledged, and received and its owner not read. So many that the window needs no
/// scale: smoltcp rounds a scaled one down, and then panics on a byte that an earlier window allowed (its issue 1048).
const BUFFER: usize = u16::MAX as usize;
/// How long a peer may leave data unacknowledged before the connection ends.
const PEER_LIMIT: Duration = Duration::from_secs(20);
/// How often a peer whose window is closed is asked whether it has opened: the answer to the first time may be lost.
const WINDOW_PROBE: Duration = Duration::from_secs(1);
/// How long a connection that its owner has closed may take to end.
const CLOSE_LIMIT: Time = 60 * UNITS_PER_SECOND;
/// Rounds of sending in one poll; what is left is sent by the next.
const ROUNDS: usize = 256;
/// The least time between two polls that only time asks for, 100 µs.
const LEAST_PAUSE: Time = 1000;
/// Ports that the stack gives out itself.
const DYNAMIC: std::ops::RangeInclusive<u16> = 49_152..=u16::MAX;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    Begun,
    Done,
    /// The peer has refused it, or has reset or left the connection.
    Refused,
    /// The adapter is gone.
    Gone,
}

/// What a read of a connection has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    Bytes(usize),
    Nothing,
    /// The peer has ended its direction, and all bytes were taken.
    End,
    Broken,
}

pub(crate) struct Engine {
    interface: Interface,
    pub(super) sockets: SocketSet<'static>,
    queues: FrameQueues,
    pub(super) listeners: Listeners,
    /// Connections without an owner, and when they are removed at the latest.
    released: Vec<(SocketHandle, Time)>,
    /// Threads that wait for a change of any socket.
    waiters: Vec<Arc<Event>>,
    next_port: u16,
    next_identifier: u16,
    /// The adapter is gone.
    shut: bool,
}

pub(super) fn instant(time: Time) -> Instant {
    Instant::from_micros((time / 10) as i64)
}

/// A closed socket with its buffers.
pub(super) fn new_connection() -> tcp::Socket<'static> {
    let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER]);
    let mut socket = tcp::Socket::new(buffer(), buffer());
    socket.set_nagle_enabled(false);
    socket
}

impl Engine {
    pub(super) fn new(mac: [u8; 6], mtu: usize, seed: u64, now: Time) -> Self {
        let mut queues = FrameQueues::new(mtu);
        let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress(mac)));
        config.random_seed = seed;
        let interface = Interface::new(config, &mut queues, instant(now));
        Self {
            interface,
            sockets: SocketSet::new(Vec::new()),
            queues,
            listeners: Listeners::default(),
            released: Vec::new(),
            waiters: Vec::new(),
            next_port: *DYNAMIC.start(),
            next_identifier: 0x4B31,
            shut: false,
        }
    }

    /// The stack has these addresses from now on, eight at most.
    pub(super) fn set_addresses(&mut self, addresses: &[InterfaceAddress]) {
        self.interface.update_ip_addrs(|known| {
            known.clear();
            for address in addresses {
                // One beyond the most that smoltcp was built for has no effect.
                let _ = known.push(IpCidr::new(address.address.into(), address.prefix_length));
            }
        });
    }

    /// The address from which the stack reaches another.
    pub(super) fn source_of(&self, remote: IpAddress) -> Option<IpAddress> {
        let own = self.interface.ip_addrs();
        own.iter().find(|own| own.contains_addr(&remote)).map(IpCidr::address)
    }

    pub(super) fn push_received(&mut self, frame: Vec<u8>) {
        if !self.shut {
            self.queues.push_received(frame);
        }
    }

    /// Processes what has come and what time has brought. The frames to send, and the threads whose sockets may have changed.
    pub(super) fn poll(&mut self, now: Time) -> (Vec<Vec<u8>>, Vec<Arc<Event>>) {
        if self.shut {
            return (Vec::new(), std::mem::take(&mut self.waiters));
        }
        let time = instant(now);
        let mut changed = false;
        loop {
            match self.interface.poll_ingress_single(time, &mut self.queues, &mut self.sockets) {
                PollIngressSingleResult::None => break,
                PollIngressSingleResult::PacketProcessed => {}
                PollIngressSingleResult::SocketStateChanged => changed = true,
            }
            // Before the next frame, which may open another connection to the same port.
            self.listeners.fill(&mut self.sockets);
        }
        self.watch_peers();
        for _ in 0..ROUNDS {
            if self.interface.poll_egress(time, &mut self.queues, &mut self.sockets) == PollResult::None {
                break;
            }
            changed = true;
        }
        self.remove_ended(now);
        let waiters = if changed { std::mem::take(&mut self.waiters) } else { Vec::new() };
        (self.queues.take_sending(), waiters)
    }

    /// When the next poll is due, if nothing comes before.
    pub(super) fn next_due(&mut self, now: Time) -> Option<Time> {
        if self.shut {
            return None;
        }
        let asked = self.interface.poll_at(instant(now), &self.sockets);
        let asked = asked.map(|instant| (instant.total_micros().max(0) as Time).saturating_mul(10));
        let ends = self.released.iter().map(|(_, limit)| *limit);
        asked.into_iter().chain(ends).min().map(|due| due.max(now + LEAST_PAUSE))
    }

    /// The limit on a peer's silence holds while data is unacknowledged, and a closed window is probed then.
    fn watch_peers(&mut self) {
        for (_, socket) in self.sockets.iter_mut() {
            if let smoltcp::socket::Socket::Tcp(socket) = socket {
                let waits = socket.send_queue() != 0;
                socket.set_timeout(waits.then_some(PEER_LIMIT));
                if socket.keep_alive().is_some() != waits {
                    socket.set_keep_alive(waits.then_some(WINDOW_PROBE));
                }
            }
        }
    }

    fn remove_ended(&mut self, now: Time) {
        let sockets = &mut self.sockets;
        self.released.retain(|(handle, limit)| {
            let socket = sockets.get_mut::<tcp::Socket>(*handle);
            // A closed socket with a remote end has a reset to send.
            let has_ended = socket.state() == tcp::State::Closed && socket.remote_endpoint().is_none();
            if has_ended || *limit <= now {
                sockets.remove(*handle);
            }
            !has_ended && *limit > now
        });
    }

    /// A thread is to be woken by the next change.
    pub(super) fn add_waiter(&mut self, waiter: Arc<Event>) {
        self.waiters.push(waiter);
    }

    /// A port that no connection of the stack uses.
    pub(super) fn dynamic_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = port.checked_add(1).unwrap_or(*DYNAMIC.start());
        port
    }

    /// A number for the echo requests of one caller.
    pub(super) fn echo_identifier(&mut self) -> u16 {
        self.next_identifier = self.next_identifier.wrapping_add(1);
        self.next_identifier
    }

    /// Begins to connect; `None` when the addresses cannot be used.
    pub(crate) fn connect(&mut self, local: SocketAddr, remote: SocketAddr) -> Option<SocketHandle> {
        if self.shut {
            return None;
        }
        let mut socket = new_connection();
        socket.connect(self.interface.context(), remote, local).ok()?;
        Some(self.sockets.add(socket))
    }

    pub(crate) fn handshake(&self, handle: SocketHandle) -> Handshake {
        match self.sockets.get::<tcp::Socket>(handle).state() {
            _ if self.shut => Handshake::Gone,
            tcp::State::SynSent | tcp::State::SynReceived | tcp::State::Listen => Handshake::Begun,
            tcp::State::Closed => Handshake::Refused,
            _ => Handshake::Done,
        }
    }

    /// Sends as much as there is space for; `None` on a broken connection.
    pub(crate) fn write(&mut self, handle: SocketHandle, bytes: &[u8]) -> Option<usize> {
        if self.shut {
            return None;
        }
        self.sockets.get_mut::<tcp::Socket>(handle).send_slice(bytes).ok()
    }

    /// How many bytes are sent and not acknowledged.
    pub(crate) fn unacknowledged(&self, handle: SocketHandle) -> usize {
        self.sockets.get::<tcp::Socket>(handle).send_queue()
    }

    pub(crate) fn read(&mut self, handle: SocketHandle, buffer: &mut [u8]) -> ReadOutcome {
        if self.shut {
            return ReadOutcome::Broken;
        }
        match self.sockets.get_mut::<tcp::Socket>(handle).recv_slice(buffer) {
            Ok(0) => ReadOutcome::Nothing,
            Ok(count) => ReadOutcome::Bytes(count),
            Err(tcp::RecvError::Finished) => ReadOutcome::End,
            Err(tcp::RecvError::InvalidState) => ReadOutcome::Broken,
        }
    }

    /// Ends the own direction behind what was sent.
    pub(crate) fn finish(&mut self, handle: SocketHandle) {
        self.sockets.get_mut::<tcp::Socket>(handle).close();
    }

    /// Breaks the connection.
    pub(crate) fn abort(&mut self, handle: SocketHandle) {
        self.sockets.get_mut::<tcp::Socket>(handle).abort();
    }

    /// The connection has no owner any more; it ends by itself.
    pub(crate) fn release(&mut self, handle: SocketHandle, now: Time) {
        self.released.push((handle, now + CLOSE_LIMIT));
    }

    pub(crate) fn addresses(&self, handle: SocketHandle) -> Option<(SocketAddr, SocketAddr)> {
        let socket = self.sockets.get::<tcp::Socket>(handle);
        let address = |end: smoltcp::wire::IpEndpoint| SocketAddr::new(end.addr.into(), end.port);
        Some((address(socket.local_endpoint()?), address(socket.remote_endpoint()?)))
    }

    /// The adapter is gone: every connection is broken, and nothing is sent.
    pub(super) fn shut(&mut self) {
        self.shut = true;
    }
}

#[cfg(test)]
mod tests;
