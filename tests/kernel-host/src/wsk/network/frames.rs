//! Connections to machines on the link of an adapter: each is a connection inside this host whose other end, a wire, is pumped to and
//! from a connection of the adapter's stack, as `outside` does with sockets of Linux.
//!
//! Nothing here blocks: what cannot go on does so after the stack's next service run, or when the network wakes the wire.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::{BACKLOG, Network, NetworkError, PortId, StreamId, WINDOW, Woken, covers, exists};
use crate::dispatcher;
use crate::stack::{self, ConnectionHandle, Handshake, ListenerId, ReadOutcome, TcpIpStack};

/// What the stacks do for the network.
pub(super) struct Frames {
    listeners: Vec<FrameListener>,
    dials: BTreeMap<PortId, FrameDial>,
    /// By the end that is not the driver's.
    wires: BTreeMap<StreamId, FrameWire>,
}

/// A listening address of a stack, for a bound port.
struct FrameListener {
    port: PortId,
    stack: Arc<TcpIpStack>,
    address: SocketAddr,
    id: ListenerId,
}

/// A connection of a stack. It has no owner any more when this is dropped.
struct Connection {
    stack: Arc<TcpIpStack>,
    handle: ConnectionHandle,
}

enum FrameDial {
    Begun(Connection),
    Answered(Result<StreamId, NetworkError>),
}

struct FrameWire {
    connection: Connection,
    end_sent: bool,
    end_received: bool,
}

/// The connection is broken, here or over there.
struct WireBroken;

impl Connection {
    fn abort(self) {
        self.stack.engine().abort(self.handle);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.stack.engine().release(self.handle, dispatcher::now());
        self.stack.notify();
    }
}

impl Drop for FrameListener {
    fn drop(&mut self) {
        self.stack.engine().stop_listening(self.id, dispatcher::now());
        self.stack.notify();
    }
}

impl Frames {
    pub(super) const fn new() -> Self {
        Self { listeners: Vec::new(), dials: BTreeMap::new(), wires: BTreeMap::new() }
    }
}

impl Network {
    /// Whether an address is that of another machine on the link of a stack.
    pub(in crate::wsk) fn is_on_link(&self, address: IpAddr) -> bool {
        !self.is_outside(address) && stack::route(address).is_some() && !exists(address)
    }

    /// Has every stack listen at those of its addresses that bound ports cover, and at no others.
    pub(in crate::wsk) fn listen_in_frames(&mut self) {
        let stacks: Vec<_> = stack::bound_to_table().into_iter().map(|stack| (stack.addresses(), stack)).collect();
        let has = |stack: &Arc<TcpIpStack>, ip: IpAddr| {
            stacks.iter().any(|(own, other)| Arc::ptr_eq(stack, other) && own.iter().any(|own| own.address == ip))
        };
        self.frames.listeners.retain(|listener| has(&listener.stack, listener.address.ip()));
        for (port, bound) in self.ports.iter().filter(|(_, port)| port.waiting.is_some()) {
            for (own, stack) in &stacks {
                let addresses = own.iter().map(|own| SocketAddr::new(own.address, bound.address.port()));
                for address in addresses.filter(|address| covers(bound.address, *address)) {
                    // Nothing where the stack listens already.
                    let id = stack.engine().listen(address);
                    let listener = |id| FrameListener { port: *port, stack: Arc::clone(stack), address, id };
                    self.frames.listeners.extend(id.map(listener));
                }
            }
        }
    }

    /// Whether a connect of the port has begun, and its answer was not taken.
    pub(super) fn dials_in_frames(&self, port: PortId) -> bool {
        self.frames.dials.contains_key(&port)
    }

    /// Connects to a machine on a link, or looks how far that is; `None` while there is no answer.
    pub(super) fn connect_in_frames(
        &mut self,
        port: PortId,
        remote: SocketAddr,
    ) -> Option<Result<StreamId, NetworkError>> {
        match self.frames.dials.remove(&port) {
            Some(FrameDial::Answered(result)) => return Some(result),
            Some(begun) => {
                self.frames.dials.insert(port, begun);
                return None;
            }
            None => {}
        }
        let Some(connection) = self.dial_in_frames(port, remote) else {
            return Some(Err(NetworkError::Unreachable));
        };
        connection.stack.notify();
        self.frames.dials.insert(port, FrameDial::Begun(connection));
        None
    }

    fn dial_in_frames(&self, port: PortId, remote: SocketAddr) -> Option<Connection> {
        let bound = self.bound_address(port);
        let (stack, near) = stack::route(remote.ip())?;
        let has_bound = || stack.addresses().iter().any(|own| own.address == bound.ip());
        let source = if bound.ip().is_unspecified() { near } else { Some(bound.ip()).filter(|_| has_bound())? };
        let handle = stack.engine().connect(SocketAddr::new(source, bound.port()), remote)?;
        Some(Connection { stack, handle })
    }

    /// Forgets the connect of a port.
    pub(super) fn hang_up_in_frames(&mut self, port: PortId) {
        match self.frames.dials.remove(&port) {
            Some(FrameDial::Begun(connection)) => connection.abort(),
            Some(FrameDial::Answered(Ok(stream))) => self.break_off(stream),
            _ => {}
        }
    }

    /// The port is not bound any more.
    pub(super) fn released_in_frames(&mut self, port: PortId) {
        self.hang_up_in_frames(port);
        self.frames.listeners.retain(|listener| listener.port != port);
    }

    /// A stack has processed frames, or is gone.
    pub(in crate::wsk) fn frames_processed(&mut self, stack: &Arc<TcpIpStack>) {
        self.accept_in_frames(stack);
        let of_stack = |dial: &FrameDial| matches!(dial, FrameDial::Begun(own) if Arc::ptr_eq(&own.stack, stack));
        let dials: Vec<PortId> =
            self.frames.dials.iter().filter(|(_, dial)| of_stack(dial)).map(|(port, _)| *port).collect();
        for port in dials {
            self.advance_frame_dial(port);
        }
        let wires = self.frames.wires.iter().filter(|(_, wire)| Arc::ptr_eq(&wire.connection.stack, stack));
        for id in wires.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.pump_frames(id);
        }
    }

    fn accept_in_frames(&mut self, stack: &Arc<TcpIpStack>) {
        let listeners = self.frames.listeners.iter().filter(|listener| Arc::ptr_eq(&listener.stack, stack));
        for (port, id) in listeners.map(|listener| (listener.port, listener.id)).collect::<Vec<_>>() {
            loop {
                let accepted = stack.engine().accept(id);
                let Some(handle) = accepted else { break };
                self.take_frame_connection(port, Connection { stack: Arc::clone(stack), handle });
            }
        }
    }

    fn take_frame_connection(&mut self, port: PortId, connection: Connection) {
        let waiting = self.ports.get(&port).and_then(|port| port.waiting.as_ref());
        let is_free = waiting.is_some_and(|waiting| waiting.len() < BACKLOG);
        let addresses = connection.stack.engine().addresses(connection.handle);
        let Some((local, remote)) = addresses.filter(|(local, _)| is_free && !self.is_silent(local.ip())) else {
            return connection.abort();
        };
        let here = self.begin_frame_wire(connection, local, remote);
        if let Some(waiting) = self.ports.get_mut(&port).and_then(|port| port.waiting.as_mut()) {
            waiting.push_back(here);
        }
        self.woken.push(Woken::Acceptable(port));
    }

    /// Links the driver's end of a connection with its wire.
    fn begin_frame_wire(&mut self, connection: Connection, local: SocketAddr, remote: SocketAddr) -> StreamId {
        let (here, wire) = self.link(local, remote);
        self.frames.wires.insert(wire, FrameWire { connection, end_sent: false, end_received: false });
        here
    }

    fn advance_frame_dial(&mut self, port: PortId) {
        let Some(FrameDial::Begun(connection)) = self.frames.dials.remove(&port) else { return };
        let (handshake, addresses) = {
            let engine = connection.stack.engine();
            (engine.handshake(connection.handle), engine.addresses(connection.handle))
        };
        let answer = match (handshake, addresses) {
            (Handshake::Begun, _) => {
                self.frames.dials.insert(port, FrameDial::Begun(connection));
                return;
            }
            (Handshake::Done, Some((local, remote))) => Ok(self.begin_frame_wire(connection, local, remote)),
            (Handshake::Gone, _) => Err(NetworkError::Unreachable),
            _ => Err(NetworkError::Refused),
        };
        self.frames.dials.insert(port, FrameDial::Answered(answer));
        self.woken.push(Woken::Answered(port));
    }

    /// Whether the end is a wire's; then it goes on.
    pub(super) fn serves_frame_wire(&mut self, woken: Woken) -> bool {
        let (Woken::Readable(id) | Woken::Writable(id)) = woken else { return false };
        let is_wire = self.frames.wires.contains_key(&id);
        if is_wire {
            self.pump_frames(id);
        }
        is_wire
    }

    /// Moves what can be moved between a wire and its connection.
    fn pump_frames(&mut self, id: StreamId) {
        let Some(mut wire) = self.frames.wires.remove(&id) else { return };
        let moved = self.send_in_frames(id, &mut wire).and_then(|()| self.receive_in_frames(id, &mut wire));
        match moved {
            Ok(()) if wire.end_sent && wire.end_received => self.close(id),
            Ok(()) => {
                self.frames.wires.insert(id, wire);
            }
            Err(WireBroken) => {
                wire.connection.abort();
                self.break_off(id);
            }
        }
    }

    fn send_in_frames(&mut self, id: StreamId, wire: &mut FrameWire) -> Result<(), WireBroken> {
        let Connection { stack, handle } = &wire.connection;
        loop {
            let own = self.streams.get(&id).filter(|own| !own.reset).ok_or(WireBroken)?;
            let (bytes, _) = own.incoming.as_slices();
            if bytes.is_empty() {
                if own.end_received && !wire.end_sent {
                    wire.end_sent = true;
                    stack.engine().finish(*handle);
                    stack.notify();
                }
                return Ok(());
            }
            match stack.engine().write(*handle, bytes).ok_or(WireBroken)? {
                0 => return Ok(()),
                count => drop(self.read(id, count)),
            }
            stack.notify();
        }
    }

    fn receive_in_frames(&mut self, id: StreamId, wire: &mut FrameWire) -> Result<(), WireBroken> {
        let Connection { stack, handle } = &wire.connection;
        let mut buffer = [0; 4096];
        while !wire.end_received {
            let capacity = self.capacity(id).ok_or(WireBroken)?;
            if capacity == 0 {
                return Ok(());
            }
            let most = capacity.min(WINDOW).min(buffer.len());
            let found = stack.engine().read(*handle, &mut buffer[..most]);
            match found {
                ReadOutcome::Nothing => return Ok(()),
                ReadOutcome::Broken => return Err(WireBroken),
                ReadOutcome::End => wire.end_received = self.finish(id),
                ReadOutcome::Bytes(count) => {
                    self.write(id, &buffer[..count]);
                    stack.notify();
                }
            }
        }
        Ok(())
    }
}
