//! Sockets, what waits at them, and how far it comes: the state behind the functions, under one lock.
//!
//! Each socket has two lanes, one for what goes out and one for what comes in. A lane's packets are completed in order and one at
//! a time; both lanes, and different sockets, are independent of each other. No packet is completed here: `delivery` does
//! that, without the lock.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard};

use ndkpi_sys::wsk::{MSG_TRUNC, WSK_SOCKET};

use super::buffer::Buffer;
use super::chance;
use super::client::Client;
use super::network::{Arrival, Found, Moved, Network, NetworkError, PortId, StreamId, Woken};
use crate::host_lock::HostLock;
use crate::io::own_packet::Taken;
use crate::ndis::loan::Loan;
use crate::status::{self, NtStatus};

/// The kind under which sockets are recorded.
pub const LEDGER_KIND: &str = "WSK socket";

/// What the driver sees of a socket.
pub(super) type SocketMemory = Loan<WSK_SOCKET>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SocketId(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Listening,
    Connection,
    Datagram,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneDirection {
    Outgoing,
    /// Bytes that come, connections, or datagrams.
    Incoming,
}

/// One lane of one socket.
pub(super) type LaneId = (SocketId, LaneDirection);

/// How far a socket has come. An accepted one has no port of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Made,
    Bound(PortId),
    /// The packet of the connect is not yet completed; the connection may be there.
    Connecting(PortId, Option<StreamId>),
    Connected(Option<PortId>, StreamId),
}

impl State {
    pub(super) fn port(self) -> Option<PortId> {
        match self {
            Self::Made => None,
            Self::Bound(port) | Self::Connecting(port, _) => Some(port),
            Self::Connected(port, _) => port,
        }
    }

    fn stream(self) -> Option<StreamId> {
        match self {
            Self::Connecting(_, stream) => stream,
            Self::Connected(_, stream) => Some(stream),
            Self::Made | Self::Bound(_) => None,
        }
    }

    /// The end that may be used.
    pub(super) fn connection(self) -> Option<StreamId> {
        match self {
            Self::Connected(_, stream) => Some(stream),
            _ => None,
        }
    }
}

/// The end that `WskDisconnect` was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Graceful,
    Abortive,
}

/// What a packet waits for.
pub(super) enum Wait {
    Connect { remote: SocketAddr, number: u64 },
    Send { buffer: Buffer, sent: usize },
    Disconnect,
    Receive { buffer: Buffer },
    Accept { memory: SocketMemory, local: usize, remote: usize },
    SendTo { buffer: Buffer, to: SocketAddr },
    ReceiveFrom { buffer: Buffer, from: usize, flags: usize },
}

impl Wait {
    fn direction(&self) -> LaneDirection {
        match self {
            Self::Connect { .. } | Self::Send { .. } | Self::Disconnect | Self::SendTo { .. } => {
                LaneDirection::Outgoing
            }
            Self::Receive { .. } | Self::Accept { .. } | Self::ReceiveFrom { .. } => LaneDirection::Incoming,
        }
    }
}

impl Lane {
    /// The functions whose packets wait.
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.waiting.iter().map(|(_, wait)| match wait {
            Wait::Connect { .. } => "WskConnect",
            Wait::Send { .. } => "WskSend",
            Wait::Disconnect => "WskDisconnect",
            Wait::Receive { .. } => "WskReceive",
            Wait::Accept { .. } => "WskAccept",
            Wait::SendTo { .. } => "WskSendTo",
            Wait::ReceiveFrom { .. } => "WskReceiveFrom",
        })
    }
}

/// How a packet ends, and what has to happen just before.
pub(super) struct SocketAnswer {
    pub(super) status: NtStatus,
    pub(super) information: usize,
    /// Addresses to write, and where.
    pub(super) addresses: Vec<(usize, SocketAddr)>,
    /// Flags of a datagram to write, and where.
    pub(super) flags: Option<(usize, u32)>,
    /// A socket that the driver gets.
    pub(super) accepted: Option<usize>,
    /// The socket is connected from now on.
    pub(super) connected: bool,
}

impl SocketAnswer {
    pub(super) fn of(status: NtStatus, information: usize) -> Self {
        Self { status, information, addresses: Vec::new(), flags: None, accepted: None, connected: false }
    }
}

impl From<NtStatus> for SocketAnswer {
    fn from(status: NtStatus) -> Self {
        Self::of(status, 0)
    }
}

impl From<NetworkError> for SocketAnswer {
    fn from(error: NetworkError) -> Self {
        match error {
            NetworkError::NotLocal => status::STATUS_INVALID_ADDRESS_COMPONENT,
            NetworkError::InUse => status::STATUS_ADDRESS_ALREADY_EXISTS,
            NetworkError::Denied => status::STATUS_ACCESS_DENIED,
            NetworkError::Unreachable => status::STATUS_HOST_UNREACHABLE,
            NetworkError::Refused => status::STATUS_CONNECTION_REFUSED,
            NetworkError::TooLong => status::STATUS_INVALID_BUFFER_SIZE,
        }
        .into()
    }
}

#[derive(Default)]
pub(super) struct Lane {
    waiting: VecDeque<(Taken, Wait)>,
    finished: VecDeque<(Taken, SocketAnswer)>,
    /// A thread completes its packets.
    running: bool,
    /// It is to be run later.
    queued: bool,
}

#[expect(clippy::struct_excessive_bools, reason = "independent facts: address family, gap, close, forced close")]
pub(super) struct Socket {
    memory: SocketMemory,
    pub(super) client: Arc<Client>,
    pub(super) kind: Kind,
    pub(super) v6: bool,
    pub(super) state: State,
    pub(super) ending: Option<Ending>,
    /// A send has failed, and what it should have sent is missing.
    has_gap: bool,
    outgoing: Lane,
    incoming: Lane,
    /// Packets whose completion routine has not returned, but for the close's.
    requests: usize,
    /// Functions of the socket that have not returned.
    executing: Vec<&'static str>,
    close_called: bool,
    close: Option<Taken>,
    /// The system has taken it away.
    pub(super) is_forced: bool,
}

// SAFETY: the loan and the packets are addresses that any thread may use.
unsafe impl Send for Socket {}

impl Socket {
    fn waits_for(&self, direction: LaneDirection) -> &VecDeque<(Taken, Wait)> {
        match direction {
            LaneDirection::Outgoing => &self.outgoing.waiting,
            LaneDirection::Incoming => &self.incoming.waiting,
        }
    }

    fn lane(&mut self, direction: LaneDirection) -> &mut Lane {
        match direction {
            LaneDirection::Outgoing => &mut self.outgoing,
            LaneDirection::Incoming => &mut self.incoming,
        }
    }
}

/// A socket whose close is due: everything else of it is complete.
pub(super) struct Closed {
    pub(super) memory: SocketMemory,
    pub(super) client: Arc<Client>,
    pub(super) packet: Taken,
    /// The socket's port, to which others can be bound when this is delivered.
    pub(super) port: Option<PortId>,
}

// SAFETY: as for `Socket`.
unsafe impl Send for Closed {}

/// What the caller of [`Stack::close`] does without the lock.
pub(super) struct Closing {
    pub(super) lanes: Vec<LaneId>,
    /// To be dropped.
    pub(super) unused: Vec<Wait>,
    /// When nothing is left to complete.
    pub(super) closed: Option<Closed>,
}

/// What the running thread of a lane does next.
pub(super) enum Next {
    Complete(Taken, SocketAnswer, Arc<Client>),
    /// Nothing more for now.
    Stop,
    /// Another thread goes on later.
    Later,
}

pub(super) struct Stack {
    pub(super) network: Network,
    sockets: BTreeMap<SocketId, Socket>,
    by_address: BTreeMap<usize, SocketId>,
    next: u64,
}

static STACK: HostLock<Stack> =
    HostLock::new(Stack { network: Network::new(), sockets: BTreeMap::new(), by_address: BTreeMap::new(), next: 1 });

pub(super) fn stack() -> MutexGuard<'static, Stack> {
    STACK.lock()
}

/// A line for each socket that has packets, for the report of a hang.
pub(crate) fn describe(text: &mut String) {
    let Some(stack) = STACK.try_lock() else { return };
    for socket in stack.sockets.values().filter(|socket| socket.requests != 0 || socket.close.is_some()) {
        let names: Vec<_> = socket.outgoing.names().chain(socket.incoming.names()).collect();
        let closing = if socket.close_called { ", whose close was called," } else { "" };
        let address = socket.memory.as_pointer() as usize;
        let _ = write!(text, "\n***   the WSK socket at {address:#x}{closing} has {} packets", socket.requests);
        if !names.is_empty() {
            let _ = write!(text, "; these wait: {}", names.join(", "));
        }
    }
}

impl Stack {
    pub(super) fn socket(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.sockets.get_mut(&id)
    }

    /// Enters a new socket; the driver's address of it.
    pub(super) fn add(
        &mut self,
        memory: SocketMemory,
        client: Arc<Client>,
        kind: Kind,
        v6: bool,
        state: State,
    ) -> usize {
        self.next += 1;
        let id = SocketId(self.next);
        let address = memory.as_pointer() as usize;
        let socket = Socket {
            memory,
            client,
            kind,
            v6,
            state,
            ending: None,
            outgoing: Lane::default(),
            incoming: Lane::default(),
            requests: 0,
            executing: Vec::new(),
            has_gap: false,
            close_called: false,
            close: None,
            is_forced: false,
        };
        self.sockets.insert(id, socket);
        self.by_address.insert(address, id);
        address
    }

    /// A function of a socket begins; the rule that it breaks instead.
    pub(super) fn enter(&mut self, address: usize, function: &'static str) -> Result<SocketId, String> {
        let id = self.by_address.get(&address).copied();
        let Some((id, socket)) = id.and_then(|id| Some((id, self.sockets.get_mut(&id)?))) else {
            return Err(format!("{function} is given what is no WSK socket (any more)"));
        };
        if socket.close_called {
            return Err(format!("{function} is called for a socket after its WskCloseSocket"));
        }
        socket.executing.push(function);
        Ok(id)
    }

    /// The function has returned.
    pub(super) fn leave(&mut self, id: SocketId, function: &'static str) {
        if let Some(socket) = self.sockets.get_mut(&id)
            && let Some(index) = socket.executing.iter().position(|other| *other == function)
        {
            socket.executing.swap_remove(index);
        }
    }

    /// Counts a packet of the socket; it is complete with [`Self::completed`].
    pub(super) fn begin_request(&mut self, id: SocketId) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.requests += 1;
        }
    }

    /// A completion routine has returned; the close may be due now.
    pub(super) fn completed(&mut self, id: SocketId) -> Option<Closed> {
        self.sockets.get_mut(&id)?.requests -= 1;
        self.close_due(id)
    }

    fn close_due(&mut self, id: SocketId) -> Option<Closed> {
        let socket = self.sockets.get_mut(&id)?;
        if socket.requests != 0 {
            return None;
        }
        let packet = socket.close.take()?;
        let Socket { memory, client, state, .. } = self.sockets.remove(&id)?;
        self.by_address.remove(&(memory.as_pointer() as usize));
        Some(Closed { memory, client, packet, port: state.port() })
    }

    /// The close of the socket that was bound to the port is complete.
    pub(super) fn free_port(&mut self, port: PortId) {
        self.network.free(port);
    }

    /// The connection is established for the driver.
    pub(super) fn connected(&mut self, id: SocketId) {
        if let Some(socket) = self.sockets.get_mut(&id)
            && let State::Connecting(port, Some(stream)) = socket.state
        {
            socket.state = State::Connected(Some(port), stream);
        }
    }

    /// Puts a packet behind the others of its lane.
    pub(super) fn wait(&mut self, id: SocketId, packet: Taken, wait: Wait) -> Option<LaneId> {
        let direction = wait.direction();
        let lane = self.sockets.get_mut(&id)?.lane(direction);
        lane.waiting.push_back((packet, wait));
        Some((id, direction))
    }

    /// Begins a close: everything that waits is cancelled.
    pub(super) fn close(&mut self, id: SocketId, packet: Taken) -> Closing {
        let mut closing = Closing { lanes: Vec::new(), unused: Vec::new(), closed: None };
        let Some(socket) = self.sockets.get_mut(&id) else { return closing };
        socket.close_called = true;
        socket.close = Some(packet);
        if let Some(stream) = socket.state.stream() {
            self.network.close(stream);
        }
        if let Some(port) = socket.state.port() {
            self.network.silence(port);
        }
        for direction in [LaneDirection::Outgoing, LaneDirection::Incoming] {
            let lane = socket.lane(direction);
            while let Some((packet, wait)) = lane.waiting.pop_front() {
                lane.finished.push_back((packet, status::STATUS_CANCELLED.into()));
                closing.unused.push(wait);
                closing.lanes.push((id, direction));
            }
        }
        closing.lanes.dedup();
        closing.closed = self.close_due(id);
        closing
    }

    /// Takes every socket away; the lanes that have something to complete.
    pub(super) fn close_forcibly(&mut self) -> Vec<LaneId> {
        let mut lanes = Vec::new();
        for (id, socket) in self.sockets.iter_mut().filter(|(_, socket)| !socket.close_called && !socket.is_forced) {
            socket.is_forced = true;
            if let Some(stream) = socket.state.stream() {
                self.network.close(stream);
            }
            if let Some(port) = socket.state.port() {
                self.network.release(port);
            }
            socket.state = State::Made;
            lanes.extend([(*id, LaneDirection::Outgoing), (*id, LaneDirection::Incoming)]);
        }
        lanes
    }

    /// Whether `WskDisconnect` was called for an open socket.
    pub(super) fn is_ending(&self, address: usize) -> bool {
        let socket = self.by_address.get(&address).and_then(|id| self.sockets.get(id));
        socket.is_some_and(|socket| socket.ending.is_some() && !socket.close_called)
    }

    /// Whether a send of an open socket has failed.
    pub(super) fn has_gap(&self, address: usize) -> bool {
        let socket = self.by_address.get(&address).and_then(|id| self.sockets.get(id));
        socket.is_some_and(|socket| socket.has_gap && !socket.close_called)
    }

    /// A send has failed, and the stream goes on without its bytes.
    pub(super) fn leave_gap(&mut self, id: SocketId) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.has_gap = socket.state.connection().is_some();
        }
    }

    /// TCP gives up a connection, if the socket has one.
    pub(super) fn break_off(&mut self, id: SocketId) {
        if let Some(stream) = self.sockets.get(&id).and_then(|socket| socket.state.connection()) {
            self.network.reset(stream);
        }
    }

    /// Whether an open socket has no port and no connection.
    pub(super) fn is_unbound(&self, address: usize) -> bool {
        let socket = self.by_address.get(&address).and_then(|id| self.sockets.get(id));
        socket.is_some_and(|socket| socket.state == State::Made && !socket.close_called)
    }

    /// Other functions of the socket that have not returned, while `own` runs.
    pub(super) fn executing_besides(&self, id: SocketId, own: &'static str) -> Option<&'static str> {
        self.sockets.get(&id)?.executing.iter().find(|other| **other != own).copied()
    }

    /// Sockets of a client whose close was not called.
    pub(super) fn open_of(&self, client: &Arc<Client>) -> usize {
        self.sockets.values().filter(|socket| Arc::ptr_eq(&socket.client, client) && !socket.close_called).count()
    }

    /// The lanes that can go on because of what happened in the network.
    pub(super) fn woken(&mut self) -> Vec<LaneId> {
        let woken = self.network.take_woken();
        let lane = |woken: Woken| {
            let (direction, is_it): (_, Box<dyn Fn(State) -> bool>) = match woken {
                Woken::Acceptable(port) | Woken::Arrived(port) => {
                    (LaneDirection::Incoming, Box::new(move |state| state == State::Bound(port)))
                }
                Woken::Answered(port) => {
                    (LaneDirection::Outgoing, Box::new(move |state| state == State::Connecting(port, None)))
                }
                Woken::Readable(stream) => {
                    (LaneDirection::Incoming, Box::new(move |state| state.stream() == Some(stream)))
                }
                Woken::Writable(stream) => {
                    (LaneDirection::Outgoing, Box::new(move |state| state.stream() == Some(stream)))
                }
            };
            let (id, socket) = self.sockets.iter().find(|(_, socket)| is_it(socket.state))?;
            (!socket.waits_for(direction).is_empty()).then_some((*id, direction))
        };
        let mut lanes: Vec<LaneId> = woken.into_iter().filter_map(lane).collect();
        lanes.dedup();
        lanes
    }

    /// The number of an attempt to connect.
    pub(super) fn attempt(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Ends an attempt to connect, if it still waits. The lane to run.
    pub(super) fn give_up(&mut self, id: SocketId, attempt: u64) -> Option<LaneId> {
        let socket = self.sockets.get_mut(&id)?;
        let lane = &mut socket.outgoing;
        if !matches!(lane.waiting.front(), Some((_, Wait::Connect { number, .. })) if *number == attempt) {
            return None;
        }
        let (packet, _) = lane.waiting.pop_front()?;
        lane.finished.push_back((packet, status::STATUS_IO_TIMEOUT.into()));
        if let State::Connecting(port, None) = socket.state {
            socket.state = State::Bound(port);
            self.network.hang_up(port);
        }
        Some((id, LaneDirection::Outgoing))
    }

    /// Lanes in which a connect waits.
    pub(super) fn connecting(&self) -> Vec<LaneId> {
        let connects = |socket: &Socket| matches!(socket.state, State::Connecting(_, None));
        self.sockets
            .iter()
            .filter(|(_, socket)| connects(socket))
            .map(|(id, _)| (*id, LaneDirection::Outgoing))
            .collect()
    }

    /// Whether a lane is to be queued: it is not yet.
    pub(super) fn begin_queueing(&mut self, (id, direction): LaneId) -> bool {
        let Some(socket) = self.sockets.get_mut(&id) else { return false };
        !std::mem::replace(&mut socket.lane(direction).queued, true)
    }

    /// A queued lane begins to run.
    pub(super) fn dequeued(&mut self, (id, direction): LaneId) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.lane(direction).queued = false;
        }
    }

    /// The caller becomes the thread of a lane; if another one is, that one looks again before it stops.
    pub(super) fn start(&mut self, (id, direction): LaneId) -> bool {
        let Some(socket) = self.sockets.get_mut(&id) else { return false };
        !std::mem::replace(&mut socket.lane(direction).running, true)
    }

    /// Moves what can be moved in a lane, and says what its thread does next.
    pub(super) fn service(&mut self, lane: LaneId) -> Next {
        let (id, direction) = lane;
        let mut pauses = false;
        while !pauses {
            self.pick(lane);
            match self.step(lane) {
                LaneStep::Moved => pauses = chance::once_in(4),
                LaneStep::Ended(answer) => {
                    let Some(socket) = self.sockets.get_mut(&id) else { return Next::Stop };
                    let lane = socket.lane(direction);
                    if let Some((packet, _)) = lane.waiting.pop_front() {
                        lane.finished.push_back((packet, answer));
                    }
                    pauses = chance::once_in(4);
                }
                LaneStep::Blocked => break,
            }
        }
        let Some(socket) = self.sockets.get_mut(&id) else { return Next::Stop };
        let client = Arc::clone(&socket.client);
        let lane = socket.lane(direction);
        if let Some((packet, answer)) = lane.finished.pop_front() {
            return Next::Complete(packet, answer, client);
        }
        lane.running = false;
        if pauses { Next::Later } else { Next::Stop }
    }

    /// The thread of a lane lets another one go on.
    pub(super) fn stop(&mut self, (id, direction): LaneId) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.lane(direction).running = false;
        }
    }

    /// Datagrams have no order: now and then another packet comes first.
    fn pick(&mut self, (id, direction): LaneId) {
        let Some(socket) = self.sockets.get_mut(&id).filter(|socket| socket.kind == Kind::Datagram) else { return };
        let waiting = &mut socket.lane(direction).waiting;
        if waiting.len() > 1 && chance::once_in(3) {
            waiting.swap(0, chance::below(waiting.len()));
        }
    }

    /// The first packet of a lane comes forward, as far as it can at once.
    fn step(&mut self, (id, direction): LaneId) -> LaneStep {
        let Some(socket) = self.sockets.get_mut(&id) else { return LaneStep::Blocked };
        let (state, gone, is_forced) = (socket.state, broken_connection(socket.ending), socket.is_forced);
        let lane = match direction {
            LaneDirection::Outgoing => &mut socket.outgoing,
            LaneDirection::Incoming => &mut socket.incoming,
        };
        let Some((_, wait)) = lane.waiting.front_mut() else { return LaneStep::Blocked };
        if is_forced {
            return LaneStep::Ended(status::STATUS_FILE_FORCED_CLOSED.into());
        }
        match (wait, state.stream(), state.port()) {
            (Wait::Connect { remote, .. }, None, Some(port)) => {
                connect(&mut self.network, &mut socket.state, port, *remote)
            }
            (Wait::Send { buffer, sent }, Some(stream), _) => send(&mut self.network, stream, buffer, sent, gone),
            (Wait::Disconnect, Some(stream), _) => {
                let ended = self.network.finish(stream);
                LaneStep::Ended(if ended { status::STATUS_SUCCESS } else { gone }.into())
            }
            (Wait::Receive { buffer }, Some(stream), _) => receive(&mut self.network, stream, buffer, gone),
            (Wait::Accept { .. }, None, Some(port)) => self.accept(id, port),
            (Wait::SendTo { buffer, to }, None, Some(port)) => send_to(&mut self.network, port, buffer, *to),
            (Wait::ReceiveFrom { buffer, from, flags }, None, Some(port)) => {
                receive_from(&mut self.network, port, buffer, *from, *flags)
            }
            _ => LaneStep::Ended(status::STATUS_INVALID_DEVICE_STATE.into()),
        }
    }

    fn accept(&mut self, id: SocketId, port: PortId) -> LaneStep {
        let Some(stream) = self.network.accept(port) else { return LaneStep::Blocked };
        let Some(socket) = self.sockets.get_mut(&id) else { return LaneStep::Blocked };
        let (client, v6) = (Arc::clone(&socket.client), socket.v6);
        let Some((packet, Wait::Accept { memory, local, remote })) = socket.incoming.waiting.pop_front() else {
            return LaneStep::Blocked;
        };
        let accepted = self.add(memory, client, Kind::Connection, v6, State::Connected(None, stream));
        let mut answer = SocketAnswer::of(status::STATUS_SUCCESS, accepted);
        answer.accepted = Some(accepted);
        if let Some((here, there)) = self.network.addresses(stream) {
            let wanted = [(local, here), (remote, there)];
            answer.addresses = wanted.into_iter().filter(|(to, _)| *to != 0).collect();
        }
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.incoming.finished.push_back((packet, answer));
        }
        LaneStep::Moved
    }
}

enum LaneStep {
    Blocked,
    Moved,
    Ended(SocketAnswer),
}

/// What requests of a broken connection get.
fn broken_connection(ending: Option<Ending>) -> NtStatus {
    match ending {
        Some(Ending::Abortive) => status::STATUS_CONNECTION_ABORTED,
        _ => status::STATUS_CONNECTION_RESET,
    }
}

fn connect(network: &mut Network, state: &mut State, port: PortId, remote: SocketAddr) -> LaneStep {
    match network.connect(port, remote) {
        None => LaneStep::Blocked,
        Some(Ok(stream)) => {
            *state = State::Connecting(port, Some(stream));
            LaneStep::Ended(SocketAnswer { connected: true, ..SocketAnswer::of(status::STATUS_SUCCESS, 0) })
        }
        Some(Err(error)) => {
            *state = State::Bound(port);
            LaneStep::Ended(error.into())
        }
    }
}

fn send(network: &mut Network, stream: StreamId, buffer: &Buffer, sent: &mut usize, gone: NtStatus) -> LaneStep {
    let left = buffer.length() - *sent;
    // SAFETY: the request is not completed.
    let count = match unsafe { network.send_outside(stream, &buffer.vectors(*sent, chance::cut(left))) } {
        None => match network.capacity(stream) {
            None => return LaneStep::Ended(gone.into()),
            Some(capacity) => {
                let count = chance::cut(left.min(capacity));
                // SAFETY: as above.
                network.write(stream, &unsafe { buffer.copy_out(*sent, count) });
                count
            }
        },
        Some(Moved::Bytes(count)) => count,
        Some(Moved::Nothing) => 0,
        Some(Moved::Broken | Moved::End) => return LaneStep::Ended(gone.into()),
    };
    if count == 0 && left != 0 {
        return LaneStep::Blocked;
    }
    *sent += count;
    if count == left {
        LaneStep::Ended(SocketAnswer::of(status::STATUS_SUCCESS, buffer.length()))
    } else {
        LaneStep::Moved
    }
}

fn receive(network: &mut Network, stream: StreamId, buffer: &Buffer, gone: NtStatus) -> LaneStep {
    // SAFETY: the request is not completed.
    match unsafe { network.receive_outside(stream, &buffer.vectors(0, chance::cut(buffer.length()))) } {
        None => {}
        Some(Moved::Nothing) => return LaneStep::Blocked,
        Some(Moved::Broken) => return LaneStep::Ended(gone.into()),
        Some(Moved::End) => return LaneStep::Ended(status::STATUS_SUCCESS.into()),
        Some(Moved::Bytes(count)) => return LaneStep::Ended(SocketAnswer::of(status::STATUS_SUCCESS, count)),
    }
    let count = chance::cut(buffer.length().min(network.available(stream)));
    match network.read(stream, count) {
        Found::Nothing => LaneStep::Blocked,
        Found::Reset => LaneStep::Ended(gone.into()),
        Found::End => LaneStep::Ended(status::STATUS_SUCCESS.into()),
        Found::Bytes(bytes) => {
            // SAFETY: the request is not completed, and there are not more than its length.
            unsafe { buffer.fill(&bytes) };
            LaneStep::Ended(SocketAnswer::of(status::STATUS_SUCCESS, bytes.len()))
        }
    }
}

fn send_to(network: &mut Network, port: PortId, buffer: &Buffer, to: SocketAddr) -> LaneStep {
    // SAFETY: the request is not completed.
    let bytes = unsafe { buffer.copy_out(0, buffer.length()) };
    LaneStep::Ended(match network.send_datagram(port, to, &bytes) {
        Ok(()) => SocketAnswer::of(status::STATUS_SUCCESS, bytes.len()),
        Err(error) => error.into(),
    })
}

/// `from` and `flags` are places of the driver's, or 0.
fn receive_from(network: &mut Network, port: PortId, buffer: &Buffer, from: usize, flags: usize) -> LaneStep {
    let (sender, bytes) = match network.receive_datagram(port) {
        None => return LaneStep::Blocked,
        Some(Arrival::Unreachable) => return LaneStep::Ended(status::STATUS_PORT_UNREACHABLE.into()),
        Some(Arrival::Datagram { from, bytes }) => (from, bytes),
    };
    let fits = bytes.len() <= buffer.length();
    let count = bytes.len().min(buffer.length());
    // SAFETY: the request is not completed, and there are not more than its length.
    unsafe { buffer.fill(&bytes[..count]) };
    let status = if fits { status::STATUS_SUCCESS } else { status::STATUS_BUFFER_OVERFLOW };
    let mut answer = SocketAnswer::of(status, count);
    answer.addresses.extend((from != 0).then_some((from, sender)));
    answer.flags = (flags != 0).then_some((flags, if fits { 0 } else { MSG_TRUNC }));
    LaneStep::Ended(answer)
}
