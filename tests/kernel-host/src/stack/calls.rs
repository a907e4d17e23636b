//! Calls of tests: echo, datagrams and connections of one stack. They block the calling thread of the kernel below DISPATCH_LEVEL,
//! with time-outs in the kernel's time.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use smoltcp::iface::SocketHandle;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::{icmp, tcp, udp};
use smoltcp::wire::{Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr, IpAddress};

use super::bound::TcpIpStack;
use super::engine::{Engine, Handshake, ReadOutcome};
use super::listeners::ListenerId;
use crate::dispatcher::{self, Event, Time};

/// Why a call of a stack fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackError {
    TimedOut,
    Refused,
    /// The connection was reset, or its peer is silent for too long.
    Broken,
    /// The stack has no address on that link.
    Unreachable,
    InUse,
}

const fn units(time: Duration) -> Time {
    time.as_nanos() as Time / 100
}

impl TcpIpStack {
    /// Looks at the sockets until something is found or the time is over. A look that moves something is followed by a run.
    fn wait<T>(self: &Arc<Self>, timeout: Duration, mut look: impl FnMut(&mut Engine) -> Option<T>) -> Option<T> {
        let until = dispatcher::now() + units(timeout);
        self.notify();
        loop {
            let waiter = Arc::new(Event::notification());
            {
                let mut engine = self.engine.lock();
                if let Some(found) = look(&mut engine) {
                    drop(engine);
                    self.notify();
                    return Some(found);
                }
                engine.add_waiter(Arc::clone(&waiter));
            }
            let left = until.saturating_sub(dispatcher::now());
            if left == 0 {
                return None;
            }
            waiter.wait(Some(Duration::from_nanos(left * 100)));
        }
    }

    /// Sends an echo request with these data; the data of the reply.
    #[must_use]
    pub fn ping(self: &Arc<Self>, to: IpAddr, data: &[u8], timeout: Duration) -> Option<Vec<u8>> {
        let to = IpAddress::from(to);
        let (handle, identifier) = {
            let mut engine = self.engine.lock();
            let identifier = engine.echo_identifier();
            let request = echo_request(engine.source_of(to)?, to, identifier, data)?;
            let mut socket = new_echo_socket(request.len());
            socket.bind(icmp::Endpoint::Ident(identifier)).ok()?;
            socket.send_slice(&request, to).ok()?;
            (engine.sockets.add(socket), identifier)
        };
        let reply = self.wait(timeout, |engine| {
            let socket = engine.sockets.get_mut::<icmp::Socket>(handle);
            let (packet, from) = socket.recv().ok()?;
            echo_reply(packet, identifier).filter(|_| from == to)
        });
        self.engine.lock().sockets.remove(handle);
        reply
    }

    /// Opens a port for datagrams; port 0 picks one.
    pub fn udp(self: &Arc<Self>, port: u16) -> Result<StackUdp, StackError> {
        const DATAGRAMS: usize = 64;
        let buffer = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; DATAGRAMS], vec![0; 128 * 1024]);
        let mut engine = self.engine.lock();
        let port = if port == 0 { engine.dynamic_port() } else { port };
        let mut socket = udp::Socket::new(buffer(), buffer());
        socket.bind(port).map_err(|_| StackError::InUse)?;
        let handle = engine.sockets.add(socket);
        Ok(StackUdp { stack: Arc::clone(self), handle, port })
    }

    /// Takes connections to an address of the stack.
    pub fn tcp_listen(self: &Arc<Self>, address: SocketAddr) -> Result<StackPort, StackError> {
        let id = self.engine.lock().listen(address).ok_or(StackError::InUse)?;
        Ok(StackPort { stack: Arc::clone(self), id })
    }

    /// Connects.
    pub fn tcp_connect(self: &Arc<Self>, to: SocketAddr, timeout: Duration) -> Result<StackStream, StackError> {
        let handle = {
            let mut engine = self.engine.lock();
            let source = engine.source_of(to.ip().into()).ok_or(StackError::Unreachable)?;
            let local = SocketAddr::new(source.into(), engine.dynamic_port());
            engine.connect(local, to).ok_or(StackError::Unreachable)?
        };
        let stream = StackStream { stack: Arc::clone(self), handle };
        let ended =
            self.wait(timeout, |engine| Some(engine.handshake(handle)).filter(|found| *found != Handshake::Begun));
        match ended {
            Some(Handshake::Done) => Ok(stream),
            Some(Handshake::Gone) => Err(StackError::Unreachable),
            Some(_) => Err(StackError::Refused),
            None => Err(StackError::TimedOut),
        }
    }
}

fn new_echo_socket(length: usize) -> icmp::Socket<'static> {
    let buffer = || icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; 4], vec![0; 4 * length.max(64)]);
    icmp::Socket::new(buffer(), buffer())
}

fn echo_request(from: IpAddress, to: IpAddress, ident: u16, data: &[u8]) -> Option<Vec<u8>> {
    let checksums = ChecksumCapabilities::default();
    let seq_no = 1;
    match (from, to) {
        (IpAddress::Ipv4(_), IpAddress::Ipv4(_)) => {
            let request = Icmpv4Repr::EchoRequest { ident, seq_no, data };
            let mut bytes = vec![0; request.buffer_len()];
            request.emit(&mut Icmpv4Packet::new_unchecked(&mut bytes), &checksums);
            Some(bytes)
        }
        (IpAddress::Ipv6(from), IpAddress::Ipv6(to)) => {
            let request = Icmpv6Repr::EchoRequest { ident, seq_no, data };
            let mut bytes = vec![0; request.buffer_len()];
            request.emit(&from, &to, &mut Icmpv6Packet::new_unchecked(&mut bytes), &checksums);
            Some(bytes)
        }
        _ => None,
    }
}

/// The data of the reply to a request with this identifier; the types of both families lie apart, the layouts do not.
fn echo_reply(packet: &[u8], identifier: u16) -> Option<Vec<u8>> {
    const REPLY: u8 = 0;
    const REPLY_V6: u8 = 129;
    let (header, data) = packet.split_at_checked(8)?;
    let is_reply = matches!(header[0], REPLY | REPLY_V6) && header[4..6] == identifier.to_be_bytes();
    is_reply.then(|| data.to_vec())
}

/// A port of a stack for datagrams.
pub struct StackUdp {
    stack: Arc<TcpIpStack>,
    handle: SocketHandle,
    port: u16,
}

impl StackUdp {
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends a datagram; false when there is no space for it.
    pub fn send(&self, to: SocketAddr, data: &[u8]) -> bool {
        let sent = self.stack.engine.lock().sockets.get_mut::<udp::Socket>(self.handle).send_slice(data, to);
        self.stack.notify();
        sent.is_ok()
    }

    /// The next datagram and its sender.
    #[must_use]
    pub fn receive(&self, timeout: Duration) -> Option<(Vec<u8>, SocketAddr)> {
        self.stack.wait(timeout, |engine| {
            let (data, meta) = engine.sockets.get_mut::<udp::Socket>(self.handle).recv().ok()?;
            Some((data.to_vec(), SocketAddr::new(meta.endpoint.addr.into(), meta.endpoint.port)))
        })
    }
}

impl Drop for StackUdp {
    fn drop(&mut self) {
        self.stack.engine.lock().sockets.remove(self.handle);
    }
}

/// A port of a stack that takes connections.
pub struct StackPort {
    stack: Arc<TcpIpStack>,
    id: ListenerId,
}

impl StackPort {
    /// The next connection.
    pub fn accept(&self, timeout: Duration) -> Result<StackStream, StackError> {
        let handle = self.stack.wait(timeout, |engine| engine.accept(self.id)).ok_or(StackError::TimedOut)?;
        Ok(StackStream { stack: Arc::clone(&self.stack), handle })
    }
}

impl Drop for StackPort {
    fn drop(&mut self) {
        self.stack.engine.lock().stop_listening(self.id, dispatcher::now());
        self.stack.notify();
    }
}

/// A connection of a stack. Its drop breaks it, unless both directions have ended.
pub struct StackStream {
    stack: Arc<TcpIpStack>,
    handle: SocketHandle,
}

impl StackStream {
    /// Hands all bytes to TCP.
    pub fn send(&self, bytes: &[u8], timeout: Duration) -> Result<(), StackError> {
        let mut sent = 0;
        while sent < bytes.len() {
            let written = self.stack.wait(timeout, |engine| {
                let written = engine.write(self.handle, &bytes[sent..]);
                (written != Some(0)).then_some(written)
            });
            sent += written.ok_or(StackError::TimedOut)?.ok_or(StackError::Broken)?;
        }
        Ok(())
    }

    /// Waits until the peer has acknowledged everything.
    pub fn flush(&self, timeout: Duration) -> Result<(), StackError> {
        let flushed = self.stack.wait(timeout, |engine| {
            if matches!(engine.handshake(self.handle), Handshake::Refused | Handshake::Gone) {
                return Some(Err(StackError::Broken));
            }
            (engine.unacknowledged(self.handle) == 0).then_some(Ok(()))
        });
        flushed.unwrap_or(Err(StackError::TimedOut))
    }

    /// Takes bytes that have come, at most so many; none at the peer's end.
    pub fn receive(&self, most: usize, timeout: Duration) -> Result<Vec<u8>, StackError> {
        let mut buffer = vec![0; most];
        let found = self.stack.wait(timeout, |engine| match engine.read(self.handle, &mut buffer) {
            ReadOutcome::Nothing => None,
            found => Some(found),
        });
        match found {
            Some(ReadOutcome::Bytes(count)) => {
                buffer.truncate(count);
                Ok(buffer)
            }
            Some(ReadOutcome::End) => Ok(Vec::new()),
            Some(_) => Err(StackError::Broken),
            None => Err(StackError::TimedOut),
        }
    }

    /// Takes exactly so many bytes.
    pub fn receive_exact(&self, count: usize, timeout: Duration) -> Result<Vec<u8>, StackError> {
        let mut bytes = Vec::with_capacity(count);
        while bytes.len() < count {
            let more = self.receive(count - bytes.len(), timeout)?;
            if more.is_empty() {
                return Err(StackError::Broken);
            }
            bytes.extend(more);
        }
        Ok(bytes)
    }

    /// Ends the own direction behind what was sent.
    pub fn finish(&self) {
        self.stack.engine.lock().finish(self.handle);
        self.stack.notify();
    }

    /// The addresses of both ends: the own one first.
    #[must_use]
    pub fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.stack.engine.lock().addresses(self.handle)
    }
}

impl Drop for StackStream {
    fn drop(&mut self) {
        let mut engine = self.stack.engine.lock();
        let state = engine.sockets.get::<tcp::Socket>(self.handle).state();
        if !matches!(state, tcp::State::TimeWait | tcp::State::LastAck | tcp::State::Closing | tcp::State::Closed) {
            engine.abort(self.handle);
        }
        engine.release(self.handle, dispatcher::now());
        drop(engine);
        self.stack.notify();
    }
}
