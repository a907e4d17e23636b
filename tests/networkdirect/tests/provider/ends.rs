//! Two ends of a connection in one process or two, made through the interfaces.

use super::calls;
use super::client::*;
use networkdirect::machine::address;
use std::cell::Cell;
use std::net::SocketAddr;

pub const BUFFER: usize = 256 * 1024;
pub const DEPTH: u64 = 64;

pub const PROVIDER_ADDRESSES: usize = 3;
pub const PROVIDER_RESOLVE: usize = 4;
pub const PROVIDER_OPEN: usize = 5;
pub const ADAPTER_FILE: usize = 3;
pub const ADAPTER_QUERY: usize = 4;
pub const ADAPTER_ADDRESSES: usize = 5;
pub const ADAPTER_COMPLETION_QUEUE: usize = 6;
pub const ADAPTER_MEMORY_REGION: usize = 7;
pub const ADAPTER_MEMORY_WINDOW: usize = 8;
pub const ADAPTER_SHARED_QUEUE: usize = 9;
pub const ADAPTER_QUEUE_PAIR: usize = 10;
pub const ADAPTER_QUEUE_PAIR_WITH_SHARED: usize = 11;
pub const ADAPTER_CONNECTOR: usize = 12;
pub const ADAPTER_LISTENER: usize = 13;

pub const FLUSH: usize = 3;
pub const SEND: usize = 4;
pub const RECEIVE: usize = 5;
pub const BIND: usize = 6;
pub const INVALIDATE: usize = 7;
pub const READ: usize = 8;
pub const WRITE: usize = 9;

pub const SILENT: u64 = 1;
pub const FENCE: u64 = 2;
pub const SOLICIT: u64 = 4;
pub const ALLOW_READ: u64 = 8;
pub const ALLOW_WRITE: u64 = 0x10;
pub const INLINE: u64 = 0x20;

pub const LOCAL_WRITE: u64 = 1;
pub const REMOTE_READ: u64 = 2;
pub const READ_SINK: u64 = 8;
pub const REMOTE_WRITE: u64 = 5;

pub const QUEUE_NOTIFY: usize = 7;
pub const QUEUE_RESULTS: usize = 8;
pub const REGION_REGISTER: usize = 5;
pub const REGION_DEREGISTER: usize = 6;
pub const REGION_LOCAL_TOKEN: usize = 7;
pub const REGION_REMOTE_TOKEN: usize = 8;

pub const CONNECTOR_BIND: usize = 5;
pub const CONNECTOR_CONNECT: usize = 6;
pub const CONNECTOR_COMPLETE: usize = 7;
pub const CONNECTOR_ACCEPT: usize = 8;
pub const CONNECTOR_REJECT: usize = 9;
pub const CONNECTOR_READ_LIMITS: usize = 10;
pub const CONNECTOR_PRIVATE_DATA: usize = 11;
pub const CONNECTOR_NOTIFY: usize = 14;
pub const CONNECTOR_DISCONNECT: usize = 15;
pub const LISTENER_BIND: usize = 5;
pub const LISTENER_LISTEN: usize = 6;
pub const LISTENER_REQUEST: usize = 8;

/// A result as the process reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub status: u32,
    pub bytes: u32,
    pub queue_pair: u64,
    pub context: u64,
    pub kind: u32,
}

/// One end: adapter, file, queues, a registered buffer, a connector.
pub struct End<'p> {
    pub program: &'p Program,
    pub adapter: Com<'p>,
    pub file: u64,
    pub queue: Com<'p>,
    pub region: Com<'p>,
    pub pair: Com<'p>,
    pub connector: Com<'p>,
    pub buffer: u64,
    results: u64,
    number: Cell<u64>,
}

impl<'p> End<'p> {
    pub fn new(program: &'p Program, host: u8) -> Self {
        let adapter = program.adapter(address(host, 0));
        let file = file_of(&adapter);
        let queue =
            adapter.makes(ADAPTER_COMPLETION_QUEUE, IND2_COMPLETION_QUEUE, &[file, 4 * DEPTH, 0, 0]).expect("a queue");
        let region = adapter.makes(ADAPTER_MEMORY_REGION, IND2_MEMORY_REGION, &[file]).expect("a region");
        let buffer = program.zeroed(BUFFER);
        register(&region, buffer, BUFFER as u64, LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE);
        let pair = pair_of(&adapter, &queue, host);
        let connector = adapter.makes(ADAPTER_CONNECTOR, IND2_CONNECTOR, &[file]).expect("a connector");
        let results = program.zeroed(32 * 64);
        Self { program, adapter, file, queue, region, pair, connector, buffer, results, number: Cell::new(0) }
    }

    pub fn token(&self) -> u64 {
        self.region.call(REGION_LOCAL_TOKEN, &[]) & 0xFFFF_FFFF
    }

    pub fn remote_token(&self) -> u64 {
        self.region.call(REGION_REMOTE_TOKEN, &[]) & 0xFFFF_FFFF
    }

    /// SGEs in the process's memory.
    pub fn sges(&self, pieces: &[(u64, u32)]) -> u64 {
        let token = self.token() as u32;
        let bytes: Vec<u8> = pieces
            .iter()
            .flat_map(|(offset, length)| {
                let mut sge = (self.buffer + offset).to_le_bytes().to_vec();
                sge.extend(length.to_le_bytes());
                sge.extend(token.to_le_bytes());
                sge
            })
            .collect();
        if bytes.is_empty() { 0 } else { self.program.bytes(&bytes) }
    }

    /// A context that no other request has.
    pub fn next_context(&self) -> u64 {
        self.number.set(self.number.get() + 1);
        self.number.get()
    }

    pub fn post(&self, slot: usize, pieces: &[(u64, u32)], flags: u64) -> u32 {
        let sges = self.sges(pieces);
        self.pair.status(slot, &[self.next_context(), sges, pieces.len() as u64, flags])
    }

    pub fn receive(&self, pieces: &[(u64, u32)]) -> u32 {
        self.post(RECEIVE, pieces, 0)
    }

    /// A Read or Write of a place in the peer's buffer.
    pub fn transfer(&self, slot: usize, pieces: &[(u64, u32)], remote: (u64, u64), flags: u64) -> u32 {
        let sges = self.sges(pieces);
        let context = self.next_context();
        self.pair.status(slot, &[context, sges, pieces.len() as u64, remote.0, remote.1, flags])
    }

    /// The results there are now.
    pub fn results(&self) -> Vec<Done> {
        let count = self.queue.call(QUEUE_RESULTS, &[self.results, 64]) as usize;
        let bytes = self.program.read(self.results, 32 * 64);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        (0..count)
            .map(|index| index * 32)
            .map(|at| Done {
                status: word(at),
                bytes: word(at + 4),
                queue_pair: long(at + 8),
                context: long(at + 16),
                kind: word(at + 24),
            })
            .inspect(|done| calls::completed(("IND2QueuePair", slot_of(done.kind)), done.status))
            .collect()
    }

    /// So many results, and no more.
    #[track_caller]
    pub fn wait_for(&self, count: usize) -> Vec<Done> {
        let mut all = Vec::new();
        for _ in 0..10_000 {
            all.extend(self.results());
            if all.len() >= count {
                assert_eq!(all.len(), count, "more results than requests: {all:x?}");
                networkdirect::machine::settle();
                return all;
            }
            networkdirect::machine::pass(1);
        }
        panic!("{} of {count} results came: {all:x?}", all.len());
    }

    #[track_caller]
    pub fn one(&self) -> Done {
        self.wait_for(1)[0]
    }

    #[track_caller]
    pub fn succeeds(&self, kind: u32) -> Done {
        let done = self.one();
        assert_eq!((done.status, done.kind), (SUCCESS, kind), "{done:x?}");
        done
    }

    pub fn fill(&self, offset: u64, length: usize, seed: u8) {
        let bytes: Vec<u8> = (0..length).map(|index| (index as u8).wrapping_mul(31).wrapping_add(seed)).collect();
        self.program.write(self.buffer + offset, &bytes);
    }

    pub fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        self.program.read(self.buffer + offset, length)
    }
}

/// The method that posts requests of a type.
fn slot_of(kind: u32) -> usize {
    [RECEIVE, SEND, BIND, INVALIDATE, READ, WRITE][kind as usize]
}

pub fn file_of(adapter: &Com<'_>) -> u64 {
    let place = adapter.program.zeroed(8);
    adapter.expects(ADAPTER_FILE, &[place], SUCCESS);
    adapter.program.keeps_a_handle();
    adapter.program.u64_at(place)
}

/// A queue pair whose context is the host's number.
pub fn pair_of<'p>(adapter: &Com<'p>, queue: &Com<'p>, host: u8) -> Com<'p> {
    let arguments = [queue.this, queue.this, u64::from(host), DEPTH, DEPTH, 2, 2, 128];
    adapter.makes(ADAPTER_QUEUE_PAIR, IND2_QUEUE_PAIR, &arguments).expect("a queue pair")
}

#[track_caller]
pub fn register(region: &Com<'_>, buffer: u64, length: u64, flags: u64) {
    let overlapped = region.program.overlapped();
    let status = region.status(REGION_REGISTER, &[buffer, length, flags, overlapped.address]);
    assert_eq!(region.finish(status, &overlapped), SUCCESS);
}

/// A listener at an address.
pub fn listen<'p>(end: &End<'p>, at: SocketAddr) -> Com<'p> {
    let listener = end.adapter.makes(ADAPTER_LISTENER, IND2_LISTENER, &[end.file]).expect("a listener");
    let (socket, length) = end.program.socket(at);
    listener.expects(LISTENER_BIND, &[socket, length], SUCCESS);
    listener.expects(LISTENER_LISTEN, &[0], SUCCESS);
    listener
}

/// Begins to connect: the request waits at the listener's side, in the passive end's connector.
pub fn request<'p>(
    active: &End<'p>,
    passive: &End<'_>,
    listener: &Com<'_>,
    at: SocketAddr,
    data: &[u8],
) -> Overlapped<'p> {
    request_with(active, passive, listener, at, data, (8, 8))
}

/// The same with the read limits that the active end offers.
pub fn request_with<'p>(
    active: &End<'p>,
    passive: &End<'_>,
    listener: &Com<'_>,
    at: SocketAddr,
    data: &[u8],
    (inbound, outbound): (u64, u64),
) -> Overlapped<'p> {
    let asked = passive.program.overlapped();
    let status = listener.status(LISTENER_REQUEST, &[passive.connector.this, asked.address]);
    assert_eq!(status, PENDING, "always");
    let (own, own_length) = active.program.socket(address(1, 0));
    active.connector.expects(CONNECTOR_BIND, &[own, own_length], SUCCESS);
    let connecting = active.program.overlapped();
    let (socket, length) = active.program.socket(at);
    let private = active.program.bytes(data);
    let limits = [active.pair.this, socket, length, inbound, outbound];
    let arguments = [limits.as_slice(), &[private, data.len() as u64, connecting.address]].concat();
    active.connector.expects(CONNECTOR_CONNECT, &arguments, PENDING);
    assert_eq!(listener.finish(status, &asked), SUCCESS);
    connecting
}

/// The active side's last step, after which the passive side's Accept succeeds.
#[track_caller]
pub fn complete(active: &End<'_>, passive: &End<'_>, accepting: &Overlapped<'_>) {
    let completing = active.program.overlapped();
    let status = active.connector.status(CONNECTOR_COMPLETE, &[completing.address]);
    assert_eq!(active.connector.finish(status, &completing), SUCCESS);
    assert_eq!(passive.connector.finish(PENDING, accepting), SUCCESS);
}

/// Connects two ends, the active one at host 1.
pub fn connect(active: &End<'_>, passive: &End<'_>, at: SocketAddr) {
    let listener = listen(passive, at);
    let connecting = request(active, passive, &listener, at, b"hello");
    let accepting = passive.program.overlapped();
    let data = passive.program.bytes(b"back");
    passive.connector.expects(CONNECTOR_ACCEPT, &[passive.pair.this, 8, 8, data, 4, accepting.address], PENDING);
    assert_eq!(active.connector.finish(PENDING, &connecting), SUCCESS);
    complete(active, passive, &accepting);
}

#[track_caller]
pub fn disconnect(end: &End<'_>) {
    let overlapped = end.program.overlapped();
    let status = end.connector.status(CONNECTOR_DISCONNECT, &[overlapped.address]);
    assert_eq!(end.connector.finish(status, &overlapped), SUCCESS);
}
