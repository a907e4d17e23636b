//! Connections of TCP in memory: bytes in any cut, late, with a window that fills, ends and resets.
//!
//! It stands for the system's TCP, and for nothing of ours. Rules: bytes arrive in order and a reset overtakes them; sending allocates
//! nothing; a socket is woken when something has arrived, and when a full window has space again.

use crate::harness::Harness;
use fastrand::Rng;
use softndk_cells::{Dispose, NoMemory, Shared};
use softndk_engine::{Arrived, ConnectError, ListenState, ListeningSocket, Socket, Waker};
use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

/// The longest that something travels, in nanoseconds; 0 where peers are at hand.
pub const MESSAGE_DELAY: u64 = if cfg!(feature = "streams") { 200_000 } else { 0 };

/// How long what goes to a peer travels, in nanoseconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Travel {
    /// Pseudo-random, up to this.
    UpTo(u64),
    Exactly(u64),
}

impl Travel {
    fn take(self, random: &mut Rng) -> u64 {
        match self {
            Self::Exactly(nanoseconds) => nanoseconds,
            Self::UpTo(most) => random.u64(..=most),
        }
    }
}

/// Under which the network's next arrival stands among the deadlines of the processors.
pub(crate) const NETWORK: u32 = u32::MAX;

/// Pieces under way in one direction, and bytes of one.
const PIECES: usize = 32;
const PIECE: usize = 2048;

/// The network of a machine.
pub struct Network {
    now: Arc<AtomicU64>,
    wakes: Arc<Mutex<BTreeMap<u32, u64>>>,
    state: Mutex<NetworkState>,
}

struct NetworkState {
    travel: Travel,
    pipes: Vec<Shared<Pipe>>,
    ports: Vec<(SocketAddr, Shared<Port>)>,
    /// Addresses that are there, beside those of ports.
    hosts: Vec<IpAddr>,
    /// Sockets that are to listen do not do so yet.
    holds_ports: bool,
    /// Listening sockets accept nothing, and wake nothing when that is over.
    stalls_accepts: bool,
    /// The port that sockets connect from, whatever they asked for.
    source_port: Option<u16>,
    /// Wakers of the sockets that do not listen yet.
    waiting: Vec<Waker<Harness>>,
    made: u64,
}

/// What connections come to.
struct Port {
    state: Mutex<PortState>,
}

#[derive(Default)]
struct PortState {
    waker: Option<Waker<Harness>>,
    queue: VecDeque<(TcpSocket, SocketAddr)>,
}

/// Zones do not count: a machine has each address once.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip(), one.port()) == (other.ip(), other.port())
}

/// One end of a pipe.
pub struct TcpSocket {
    network: Arc<Network>,
    pipe: Shared<Pipe>,
    end: usize,
    /// Of the end that connects: where from and where to.
    to: Option<(SocketAddr, SocketAddr)>,
    /// The oldest bytes that have been received, from the first on that has not been consumed.
    input: Option<Vec<u8>>,
    at: usize,
    refusal: ConnectError,
    /// Of the end that connects, which waits until it is taken.
    new_port: Option<u16>,
}

struct Pipe {
    state: Mutex<PipeState>,
}

struct PipeState {
    /// What goes to each end.
    flows: [Flow; 2],
    wakers: [Option<Waker<Harness>>; 2],
    /// Ends that are not closed.
    open: u32,
    travel: Travel,
    random: Rng,
}

/// What goes to one end.
struct Flow {
    pieces: VecDeque<(u64, Vec<u8>)>,
    free: Vec<Vec<u8>>,
    /// When what was sent last arrives.
    last: u64,
    finish: Option<u64>,
    reset: Option<u64>,
    /// The sender has found the window full.
    is_awaited: bool,
    /// The receiver has seen the end, and that it is a reset.
    has_ended: bool,
    was_reset: bool,
    /// Bytes of the pieces that the receiver has used up.
    taken: usize,
}

impl Flow {
    fn try_new() -> Result<Self, NoMemory> {
        let (mut pieces, mut free) = (VecDeque::new(), Vec::new());
        pieces.try_reserve_exact(PIECES)?;
        free.try_reserve_exact(PIECES)?;
        for _ in 0..PIECES {
            let mut piece = Vec::new();
            piece.try_reserve_exact(PIECE)?;
            free.push(piece);
        }
        Ok(Self {
            pieces,
            free,
            last: 0,
            finish: None,
            reset: None,
            is_awaited: false,
            has_ended: false,
            was_reset: false,
            taken: 0,
        })
    }

    /// When the next thing arrives.
    fn next(&self) -> Option<u64> {
        let first = self.pieces.front().map(|(due, _)| *due).or(self.finish).filter(|_| !self.has_ended);
        [first, self.reset.filter(|_| !self.was_reset)].into_iter().flatten().min()
    }

    /// Whether the sender has ended it.
    const fn is_closed(&self) -> bool {
        self.finish.is_some() || self.reset.is_some()
    }
}

impl PipeState {
    /// When something that goes now arrives.
    fn due(&mut self, now: u64) -> u64 {
        let is_quick = matches!(self.travel, Travel::UpTo(_)) && self.random.u8(..3) == 0;
        now.saturating_add(if is_quick { 0 } else { self.travel.take(&mut self.random) })
    }

    /// A piece of what is sent: in most cases all of it, in some a few bytes.
    fn cut(&mut self, length: usize) -> usize {
        let most = length.min(PIECE);
        if most > 1 && self.random.u8(..4) == 0 { self.random.usize(1..most.min(64)) } else { most }
    }
}

impl Dispose for Pipe {}
impl Dispose for Port {}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test fails with the network locked")
}

impl Network {
    pub(crate) fn new(now: Arc<AtomicU64>, wakes: Arc<Mutex<BTreeMap<u32, u64>>>) -> Self {
        let state = NetworkState {
            travel: Travel::Exactly(0),
            pipes: Vec::new(),
            ports: Vec::new(),
            hosts: Vec::new(),
            holds_ports: false,
            stalls_accepts: false,
            source_port: None,
            waiting: Vec::new(),
            made: 0,
        };
        Self { now, wakes, state: Mutex::new(state) }
    }

    /// How long what is sent on connections that are made from now on travels.
    pub fn set_travel(&self, travel: Travel) {
        locked(&self.state).travel = travel;
    }

    /// Addresses that are there from now on, beside those that something listens at.
    pub fn set_hosts(&self, hosts: Vec<IpAddr>) {
        locked(&self.state).hosts = hosts;
    }

    /// Sockets that are to listen take their time from now on, or do so at once, those that wait too.
    pub fn hold_ports(&self, holds: bool) {
        let waiting = {
            let mut state = locked(&self.state);
            state.holds_ports = holds;
            std::mem::take(&mut state.waiting)
        };
        waiting.iter().for_each(Waker::wake);
    }

    /// Listening sockets lack memory for connections from now on, or have it again.
    pub fn stall_accepts(&self, stalls: bool) {
        locked(&self.state).stalls_accepts = stalls;
    }

    /// Sockets connect from this port from now on: those that they ask for are in use.
    pub fn set_source_port(&self, port: u16) {
        locked(&self.state).source_port = Some(port);
    }

    /// A connection from a program that is no peer of the engine's.
    pub fn dial(this: &Arc<Self>, from: SocketAddr, to: SocketAddr) -> TcpSocket {
        let mut socket = Self::connect(this, from, to).expect("memory");
        socket.reach();
        socket
    }

    /// Another program's listener.
    pub fn occupy(this: &Arc<Self>, at: SocketAddr) -> TcpListeningSocket {
        let mut socket = Self::listen(this, at).expect("memory");
        socket.open();
        assert_eq!(socket.state, ListenState::Listening);
        socket
    }

    pub(crate) fn connect(this: &Arc<Self>, from: SocketAddr, to: SocketAddr) -> Result<TcpSocket, NoMemory> {
        let mut state = locked(&this.state);
        let pipe = PipeState {
            flows: [Flow::try_new()?, Flow::try_new()?],
            wakers: [None, None],
            open: 2,
            travel: state.travel,
            random: Rng::with_seed(state.made),
        };
        let pipe = Shared::try_new(Pipe { state: Mutex::new(pipe) })?;
        state.made += 1;
        state.pipes.retain(|pipe| locked(&pipe.state).open > 0);
        state.pipes.try_reserve(1)?;
        state.pipes.push(pipe.clone());
        drop(state);
        let refusal = ConnectError::Refused;
        Ok(TcpSocket {
            network: this.clone(),
            pipe,
            end: 0,
            to: Some((from, to)),
            input: None,
            at: 0,
            refusal,
            new_port: None,
        })
    }

    pub(crate) fn listen(this: &Arc<Self>, at: SocketAddr) -> Result<TcpListeningSocket, NoMemory> {
        let port = Shared::try_new(Port { state: Mutex::default() })?;
        Ok(TcpListeningSocket { network: this.clone(), at, port, state: ListenState::Starting, is_stalled: false })
    }

    fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    /// Something arrives then.
    fn wake_at(&self, due: u64) {
        let mut wakes = locked(&self.wakes);
        let next = wakes.entry(NETWORK).or_insert(due);
        *next = due.min(*next);
    }

    /// Wakes the sockets that something has arrived at.
    pub(crate) fn arrive(&self) {
        let mut next = 0;
        loop {
            let pipe = locked(&self.state).pipes.get(next).cloned();
            let Some(pipe) = pipe else { return };
            self.change(&pipe, |_, _| {});
            next += 1;
        }
    }

    /// Changes the state of a pipe, wakes the ends that something has arrived at, and remembers when the next thing does.
    fn change<R>(&self, pipe: &Shared<Pipe>, change: impl FnOnce(&mut PipeState, u64) -> R) -> R {
        let now = self.now();
        let mut state = locked(&pipe.state);
        let result = change(&mut state, now);
        let mut woken = [None, None];
        for ((flow, waker), woken) in state.flows.iter().zip(&state.wakers).zip(&mut woken) {
            if flow.next().is_some_and(|due| due <= now) {
                woken.clone_from(waker);
            }
        }
        let next = state.flows.iter().filter_map(Flow::next).filter(|due| *due > now).min();
        drop(state);
        woken.into_iter().flatten().for_each(|waker| waker.wake());
        if let Some(next) = next {
            self.wake_at(next);
        }
        result
    }
}

impl TcpSocket {
    /// Takes all bytes that have arrived.
    pub fn take_received(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while self.receive() == Arrived::Bytes {
            let before = all.len();
            all.extend_from_slice(self.bytes());
            self.consume(all.len() - before);
        }
        all
    }

    /// How many bytes of this end the other one has used up, in whole pieces.
    pub fn taken_by_peer(&self) -> usize {
        locked(&self.pipe.state).flows[self.other()].taken
    }

    const fn other(&self) -> usize {
        1 - self.end
    }

    /// Reaches the port that it connects to.
    fn reach(&mut self) {
        let Some((from, to)) = self.to.take() else { return };
        let (port, is_there) = {
            let state = locked(&self.network.state);
            let port = state.ports.iter().find(|(at, _)| is_same(*at, to)).map(|(_, port)| port.clone());
            (port, state.hosts.contains(&to.ip()) || state.ports.iter().any(|(at, _)| at.ip() == to.ip()))
        };
        let (network, pipe, end) = (self.network.clone(), self.pipe.clone(), self.other());
        let refusal = ConnectError::Refused;
        let accepted = TcpSocket { network, pipe, end, to: None, input: None, at: 0, refusal, new_port: None };
        if !is_there {
            self.refusal = ConnectError::HostUnreachable;
        }
        // Closed where nothing takes it.
        let Some(port) = port else { return };
        let mut state = locked(&port.state);
        if state.queue.try_reserve(1).is_err() {
            return drop(state);
        }
        state.queue.push_back((accepted, from));
        let waker = state.waker.clone();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Socket<Harness> for TcpSocket {
    type Memory = ();

    fn allocate() -> Result<(), NoMemory> {
        Ok(())
    }

    fn take_memory(&mut self, (): ()) {}

    fn attach(&mut self, waker: Waker<Harness>) {
        locked(&self.pipe.state).wakers[self.end] = Some(waker);
        if let (Some((from, _)), Some(port)) = (&mut self.to, locked(&self.network.state).source_port) {
            from.set_port(port);
            self.new_port = Some(port);
        }
        self.advance();
    }

    fn advance(&mut self) {
        if self.new_port.is_none() {
            self.reach();
        }
    }

    fn take_new_port(&mut self) -> Option<u16> {
        self.new_port.take()
    }

    fn send(&mut self, bytes: &[u8]) -> usize {
        let other = self.other();
        self.network.change(&self.pipe, |state, now| {
            let mut sent = 0;
            while sent < bytes.len() {
                let rest = &bytes[sent..];
                let (cut, due) = (state.cut(rest.len()), state.due(now));
                let flow = &mut state.flows[other];
                if flow.is_closed() || flow.has_ended {
                    // As TCP has it: nothing says that they are not taken.
                    return bytes.len();
                }
                let Some(mut piece) = flow.free.pop() else {
                    flow.is_awaited = true;
                    break;
                };
                piece.extend(rest.iter().take(cut));
                sent += piece.len();
                flow.last = flow.last.max(due);
                flow.pieces.push_back((flow.last, piece));
            }
            sent
        })
    }

    fn receive(&mut self) -> Arrived {
        if self.input.is_some() {
            return Arrived::Bytes;
        }
        let end = self.end;
        let (arrived, input) = self.network.change(&self.pipe, |state, now| {
            let flow = &mut state.flows[end];
            if flow.reset.is_some_and(|due| due <= now) {
                (flow.has_ended, flow.was_reset) = (true, true);
                while let Some((_, mut piece)) = flow.pieces.pop_front() {
                    piece.clear();
                    flow.free.push(piece);
                }
                return (Arrived::Reset, None);
            }
            match flow.pieces.front() {
                Some((due, _)) if *due <= now => {
                    return (Arrived::Bytes, flow.pieces.pop_front().map(|(_, piece)| piece));
                }
                Some(_) => return (Arrived::Nothing, None),
                None => {}
            }
            if flow.finish.is_some_and(|due| due <= now) {
                flow.has_ended = true;
                return (Arrived::Finished, None);
            }
            (Arrived::Nothing, None)
        });
        self.input = input;
        arrived
    }

    fn end_ahead(&self) -> Arrived {
        let now = self.network.now();
        let state = locked(&self.pipe.state);
        let flow = &state.flows[self.end];
        if flow.was_reset || flow.reset.is_some_and(|due| due <= now) {
            Arrived::Reset
        } else if flow.finish.is_some_and(|due| due <= now) {
            Arrived::Finished
        } else {
            Arrived::Nothing
        }
    }

    fn bytes(&self) -> &[u8] {
        self.input.as_ref().map_or(&[], |input| &input[self.at..])
    }

    fn consume(&mut self, count: usize) {
        self.at += count;
        if !self.bytes().is_empty() {
            return;
        }
        self.at = 0;
        let Some(mut piece) = self.input.take() else { return };
        let length = piece.len();
        piece.clear();
        let sender = {
            let mut state = locked(&self.pipe.state);
            let flow = &mut state.flows[self.end];
            flow.taken += length;
            flow.free.push(piece);
            let is_awaited = std::mem::take(&mut flow.is_awaited);
            state.wakers[self.other()].clone().filter(|_| is_awaited)
        };
        if let Some(sender) = sender {
            sender.wake();
        }
    }

    fn finish(&mut self) {
        let other = self.other();
        self.network.change(&self.pipe, |state, now| {
            let due = state.due(now);
            let flow = &mut state.flows[other];
            if !flow.is_closed() {
                flow.last = flow.last.max(due);
                flow.finish = Some(flow.last);
            }
        });
    }

    fn abort(&mut self) {
        let (end, other) = (self.end, self.other());
        self.network.change(&self.pipe, |state, now| {
            let due = state.due(now);
            state.flows[end].reset.get_or_insert(now);
            (state.flows[end].has_ended, state.flows[end].was_reset) = (true, true);
            state.flows[other].reset.get_or_insert(due);
        });
    }

    fn is_over(&self) -> bool {
        let state = locked(&self.pipe.state);
        let incoming = &state.flows[self.end];
        incoming.has_ended && (state.flows[self.other()].is_closed() || incoming.was_reset)
    }

    fn refusal(&self) -> ConnectError {
        self.refusal
    }

    fn close(&mut self) {
        if !self.is_over() {
            self.abort();
        }
        let waker = locked(&self.pipe.state).wakers[self.end].take();
        drop(waker);
    }
}

impl Drop for TcpSocket {
    fn drop(&mut self) {
        self.close();
        locked(&self.pipe.state).open -= 1;
    }
}

/// What takes connections.
pub struct TcpListeningSocket {
    network: Arc<Network>,
    at: SocketAddr,
    port: Shared<Port>,
    state: ListenState,
    is_stalled: bool,
}

impl TcpListeningSocket {
    /// Listens, if it has not begun.
    fn open(&mut self) {
        if self.state != ListenState::Starting {
            return;
        }
        let mut state = locked(&self.network.state);
        self.state = if state.ports.iter().any(|(at, _)| is_same(*at, self.at)) {
            ListenState::Failed(ConnectError::AddressInUse)
        } else if state.ports.try_reserve(1).is_err() {
            ListenState::Failed(ConnectError::NoResources)
        } else {
            state.ports.push((self.at, self.port.clone()));
            ListenState::Listening
        };
    }
}

impl ListeningSocket<Harness> for TcpListeningSocket {
    fn attach(&mut self, waker: Waker<Harness>) {
        locked(&self.port.state).waker = Some(waker);
        self.advance();
    }

    fn advance(&mut self) {
        let waker = locked(&self.port.state).waker.clone();
        let is_held = {
            let mut state = locked(&self.network.state);
            let is_held = state.holds_ports && self.state == ListenState::Starting;
            if let Some(waker) = waker.filter(|_| is_held) {
                state.waiting.push(waker);
            }
            is_held
        };
        if !is_held {
            self.open();
        }
    }

    fn state(&self) -> ListenState {
        self.state
    }

    fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    fn resume(&mut self) {
        self.is_stalled = false;
        self.advance();
    }

    fn accept(&mut self) -> Option<(TcpSocket, SocketAddr)> {
        self.is_stalled |= locked(&self.network.state).stalls_accepts;
        if self.is_stalled {
            return None;
        }
        locked(&self.port.state).queue.pop_front()
    }

    fn close(&mut self) {
        locked(&self.network.state).ports.retain(|(_, port)| !port.is(&self.port));
        let (waker, queue) = {
            let mut state = locked(&self.port.state);
            (state.waker.take(), std::mem::take(&mut state.queue))
        };
        drop((waker, queue));
    }
}

impl Drop for TcpListeningSocket {
    fn drop(&mut self) {
        self.close();
    }
}
