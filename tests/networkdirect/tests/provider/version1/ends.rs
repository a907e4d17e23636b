//! Ends of a connection made through the interfaces of version 1.

use super::super::calls;
use super::super::client::*;
use networkdirect::machine::{address, pass};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;

pub const IND_PROVIDER: &str = "0C5DD316-5FDF-47E6-B2D0-2A6EDA8D39DD";
pub const BUFFER: usize = 128 * 1024;
pub const DEPTH: u64 = 64;

pub const PROVIDER_ADDRESSES: usize = 3;
pub const PROVIDER_OPEN: usize = 4;
pub const ADAPTER_FILE: usize = 5;
pub const ADAPTER_QUERY: usize = 6;
pub const ADAPTER_CONTROL: usize = 7;
pub const ADAPTER_QUEUE: usize = 8;
pub const ADAPTER_REGISTER: usize = 9;
pub const ADAPTER_DEREGISTER: usize = 10;
pub const ADAPTER_WINDOW: usize = 11;
pub const ADAPTER_CONNECTOR: usize = 12;
pub const ADAPTER_LISTEN: usize = 13;
pub const QUEUE_RESIZE: usize = 5;
pub const QUEUE_NOTIFY: usize = 6;
pub const QUEUE_RESULTS: usize = 7;
pub const FLUSH: usize = 3;
pub const START_BATCH: usize = 4;
pub const SUBMIT_BATCH: usize = 5;
pub const SEND: usize = 6;
pub const SEND_AND_INVALIDATE: usize = 7;
pub const RECEIVE: usize = 8;
pub const BIND: usize = 9;
pub const INVALIDATE: usize = 10;
pub const READ: usize = 11;
pub const WRITE: usize = 12;
pub const CREATE_ENDPOINT: usize = 5;
pub const CONNECT: usize = 6;
pub const COMPLETE: usize = 7;
pub const ACCEPT: usize = 8;
pub const REJECT: usize = 9;
pub const CONNECTION_DATA: usize = 10;
pub const LOCAL_ADDRESS: usize = 11;
pub const PEER_ADDRESS: usize = 12;
pub const NOTIFY_DISCONNECT: usize = 13;
pub const DISCONNECT: usize = 14;
pub const CONNECTION_REQUEST: usize = 5;

/// A protocol number, which means nothing.
const PROTOCOL: u64 = 123;

/// A result as GetResults gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The address of the ND_RESULT.
    pub result: u64,
    pub status: u32,
    pub bytes: u64,
}

/// The adapter with an address.
pub fn adapter(program: &Program, host: u8) -> Com<'_> {
    let provider = provider(program);
    let (socket, length) = program.socket(address(host, 0));
    let made = program.made(|out| provider.call(PROVIDER_OPEN, &[socket, length, out]));
    made.expect("the adapter opens").named("INDAdapter")
}

/// Made by the factory, as programs of version 1 do.
pub fn provider(program: &Program) -> Com<'_> {
    let factory = program.class_object(CLASS_FACTORY).expect("a factory");
    program.made(|out| factory.call(3, &[0, program.guid(IND_PROVIDER), out])).expect("version 1").named("INDProvider")
}

impl Com<'_> {
    /// Waits for the end of an overlapped call of version 1.
    pub fn finish1(&self, status: u32, overlapped: &Overlapped<'_>) -> u32 {
        if status != PENDING {
            return status;
        }
        overlapped.wait();
        let bytes = self.program.zeroed(8);
        self.status(GET_OVERLAPPED_RESULT, &[overlapped.address, bytes, 0])
    }
}

/// Adapter, queue, endpoint, connector, registered memory.
pub struct End<'p> {
    pub program: &'p Program,
    pub adapter: Com<'p>,
    pub queue: Com<'p>,
    pub connector: Com<'p>,
    pub endpoint: Com<'p>,
    /// ND_MR_HANDLE of the buffer.
    pub region: u64,
    pub buffer: u64,
    pub inline_data: u64,
    results: u64,
    /// The methods whose ND_RESULTs have not come.
    posted: RefCell<BTreeMap<u64, usize>>,
    left: Cell<u64>,
}

impl<'p> End<'p> {
    pub fn new(program: &'p Program, host: u8) -> Self {
        let adapter = adapter(program, host);
        let queue = queue(&adapter, 4 * DEPTH);
        let connector = connector(&adapter);
        let most = program.zeroed(8);
        let endpoint = program.made(|out| {
            let arguments = [queue.this, queue.this, DEPTH, DEPTH, 2, 2, 8, 8, most, out];
            connector.call(CREATE_ENDPOINT, &arguments)
        });
        let endpoint = endpoint.expect("an endpoint").named("INDEndpoint");
        let inline_data = program.u64_at(most);
        let buffer = program.zeroed(BUFFER);
        let region = register(&adapter, buffer, BUFFER as u64);
        let results = program.zeroed(8 * 64);
        let (posted, left) = (RefCell::default(), Cell::new(0));
        Self { program, adapter, queue, connector, endpoint, region, buffer, inline_data, results, posted, left }
    }

    /// Another endpoint and connector, for another connection.
    pub fn renew(&mut self) {
        self.connector = connector(&self.adapter);
        let endpoint = self.program.made(|out| {
            let arguments = [self.queue.this, self.queue.this, DEPTH, DEPTH, 2, 2, 8, 8, 0, out];
            self.connector.call(CREATE_ENDPOINT, &arguments)
        });
        self.endpoint = endpoint.expect("an endpoint").named("INDEndpoint");
    }

    /// A list of pieces of the buffer; with no region they are not registered.
    pub fn sges_of(&self, region: u64, pieces: &[(u64, u64)]) -> u64 {
        let words = pieces.iter().flat_map(|(offset, length)| [self.buffer + offset, *length, region]);
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        if bytes.is_empty() { 0 } else { self.program.bytes(&bytes) }
    }

    pub fn sges(&self, pieces: &[(u64, u64)]) -> u64 {
        self.sges_of(self.region, pieces)
    }

    /// A place for the result of a request of this method.
    pub fn result(&self, slot: usize) -> u64 {
        let place = self.program.zeroed(16);
        self.posted.borrow_mut().insert(place, slot);
        place
    }

    /// Posts with what stands behind result and list.
    fn post_with(&self, slot: usize, pieces: &[(u64, u64)], rest: &[u64]) -> u32 {
        let arguments = [&[self.result(slot), self.sges(pieces), pieces.len() as u64], rest].concat();
        self.endpoint.status(slot, &arguments)
    }

    pub fn send(&self, pieces: &[(u64, u64)], flags: u64) -> u32 {
        self.post_with(SEND, pieces, &[flags])
    }

    pub fn receive(&self, pieces: &[(u64, u64)]) -> u32 {
        self.post_with(RECEIVE, pieces, &[])
    }

    pub fn transfer(&self, slot: usize, pieces: &[(u64, u64)], descriptor: u64, offset: u64, flags: u64) -> u32 {
        self.post_with(slot, pieces, &[descriptor, offset, flags])
    }

    pub fn send_and_invalidate(&self, pieces: &[(u64, u64)], descriptor: u64, flags: u64) -> u32 {
        self.post_with(SEND_AND_INVALIDATE, pieces, &[descriptor, flags])
    }

    pub fn bind(&self, window: &Com<'_>, offset: u64, length: u64, flags: u64, descriptor: u64) -> u32 {
        let place = self.result(BIND);
        let buffer = self.buffer + offset;
        self.endpoint.status(BIND, &[place, self.region, window.this, buffer, length, flags, descriptor])
    }

    pub fn invalidate(&self, window: &Com<'_>) -> u32 {
        self.endpoint.status(INVALIDATE, &[self.result(INVALIDATE), window.this, 0])
    }

    pub fn window(&self, result: u64) -> Com<'p> {
        let made = self.program.made(|out| self.adapter.call(ADAPTER_WINDOW, &[result, out]));
        made.expect("a window").named("INDMemoryWindow")
    }

    /// At most so many of the results there are.
    pub fn take(&self, most: u64) -> Vec<Done> {
        let count = self.queue.call(QUEUE_RESULTS, &[self.results, most]);
        assert!(count <= most);
        (0..count).map(|index| self.done(self.program.u64_at(self.results + 8 * index))).collect()
    }

    fn done(&self, result: u64) -> Done {
        let mut seen = self.program.read(result, 16);
        kernel_host::distortion::bytes("v1::Result1", &mut seen);
        let status = u32::from_le_bytes(seen[..4].try_into().expect("four bytes"));
        let bytes = u64::from_le_bytes(seen[8..].try_into().expect("eight bytes"));
        if let Some(slot) = self.posted.borrow_mut().remove(&result) {
            calls::completed(("INDEndpoint", slot), status);
        }
        Done { result, status, bytes }
    }

    #[track_caller]
    pub fn wait_for(&self, count: usize) -> Vec<Done> {
        let mut all = Vec::new();
        for _ in 0..10_000 {
            all.extend(self.take(64));
            if all.len() >= count {
                assert_eq!(all.len(), count, "more results than requests: {all:x?}");
                networkdirect::machine::settle();
                return all;
            }
            pass(1);
        }
        panic!("{} of {count} results came: {all:x?}", all.len());
    }

    #[track_caller]
    pub fn one(&self) -> Done {
        self.wait_for(1)[0]
    }

    #[track_caller]
    pub fn succeeds(&self) -> Done {
        let done = self.one();
        assert_eq!(done.status, SUCCESS, "{done:x?}");
        done
    }

    pub fn fill(&self, seed: u8) {
        let bytes: Vec<u8> = (0..BUFFER).map(|index| (index as u8).wrapping_mul(13).wrapping_add(seed)).collect();
        self.program.write(self.buffer, &bytes);
    }

    pub fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        self.program.read(self.buffer + offset, length)
    }

    /// A port of the adapter's file.
    pub fn port(&self) -> u64 {
        self.program.export("make_port", &[self.adapter.call(ADAPTER_FILE, &[])])
    }

    /// Gives the memory back. The program would be killed with it otherwise.
    pub fn deregister(&self) {
        if self.left.replace(1) == 0 {
            let overlapped = self.program.overlapped();
            let status = self.adapter.status(ADAPTER_DEREGISTER, &[self.region, overlapped.address]);
            assert_eq!(self.adapter.finish1(status, &overlapped), SUCCESS);
        }
    }
}

pub fn queue<'p>(adapter: &Com<'p>, depth: u64) -> Com<'p> {
    let made = adapter.program.made(|out| adapter.call(ADAPTER_QUEUE, &[depth, out]));
    made.expect("a completion queue").named("INDCompletionQueue")
}

pub fn connector<'p>(adapter: &Com<'p>) -> Com<'p> {
    let made = adapter.program.made(|out| adapter.call(ADAPTER_CONNECTOR, &[out]));
    made.expect("a connector").named("INDConnector")
}

#[track_caller]
pub fn register(adapter: &Com<'_>, buffer: u64, length: u64) -> u64 {
    let (overlapped, place) = (adapter.program.overlapped(), adapter.program.zeroed(8));
    let status = adapter.status(ADAPTER_REGISTER, &[buffer, length, overlapped.address, place]);
    assert_eq!(status, PENDING, "always");
    let region = adapter.program.u64_at(place);
    assert_ne!(region, 0, "the handle is there at once");
    assert_eq!(adapter.finish1(status, &overlapped), SUCCESS);
    region
}

/// A listener on a port of the end's address.
pub fn listen<'p>(end: &End<'p>, port: u16) -> Com<'p> {
    let made =
        end.program.made(|out| end.adapter.call(ADAPTER_LISTEN, &[0, PROTOCOL, u64::from(port.to_be()), 0, out]));
    made.expect("a listener").named("INDListen")
}

/// Connect of an end, with private data.
pub fn connect_to(end: &End<'_>, to: SocketAddr, data: &[u8], overlapped: &Overlapped<'_>) -> u32 {
    let (socket, length) = end.program.socket(to);
    let data_place = if data.is_empty() { 0 } else { end.program.bytes(data) };
    let arguments = [end.endpoint.this, socket, length, PROTOCOL, 0, data_place, data.len() as u64, overlapped.address];
    end.connector.status(CONNECT, &arguments)
}

pub fn accept(end: &End<'_>, data: &[u8], overlapped: &Overlapped<'_>) -> u32 {
    let place = if data.is_empty() { 0 } else { end.program.bytes(data) };
    end.connector.status(ACCEPT, &[end.endpoint.this, place, data.len() as u64, overlapped.address])
}

/// The active end's request waits in the passive end's connector.
pub fn request<'p>(active: &End<'p>, passive: &End<'_>, listener: &Com<'_>, to: SocketAddr) -> Overlapped<'p> {
    let asked = passive.program.overlapped();
    let status = listener.status(CONNECTION_REQUEST, &[passive.connector.this, asked.address]);
    let connecting = active.program.overlapped();
    assert_eq!(connect_to(active, to, b"hello", &connecting), PENDING);
    assert_eq!(listener.finish1(status, &asked), SUCCESS);
    connecting
}

/// Connects the ends, the passive one at host 2.
pub fn connect(active: &End<'_>, passive: &End<'_>, port: u16) {
    let listener = listen(passive, port);
    let connecting = request(active, passive, &listener, address(2, port));
    let accepting = passive.program.overlapped();
    assert_eq!(accept(passive, b"back", &accepting), PENDING);
    assert_eq!(active.connector.finish1(PENDING, &connecting), SUCCESS);
    let completing = active.program.overlapped();
    let status = active.connector.status(COMPLETE, &[completing.address]);
    assert_eq!(active.connector.finish1(status, &completing), SUCCESS);
    assert_eq!(passive.connector.finish1(PENDING, &accepting), SUCCESS);
}

#[track_caller]
pub fn disconnect(end: &End<'_>) {
    let overlapped = end.program.overlapped();
    let status = end.connector.status(DISCONNECT, &[overlapped.address]);
    assert_eq!(end.connector.finish1(status, &overlapped), SUCCESS);
}

/// Runs a case between two ends of a process, which are connected first where that is asked for.
pub fn between(connected: bool, run: impl FnOnce(&mut End<'_>, &mut End<'_>)) {
    between_with(&[], connected, run);
}

/// On adapters with keywords.
pub fn between_with(keywords: &[(&str, &str)], connected: bool, run: impl FnOnce(&mut End<'_>, &mut End<'_>)) {
    let machine = networkdirect::machine::Machine::with(keywords);
    let program = Program::start(&machine);
    let (mut active, mut passive) = (End::new(&program, 1), End::new(&program, 2));
    if connected {
        connect(&active, &passive, 7300);
    }
    run(&mut active, &mut passive);
    drop((active, passive));
    drop(program);
    machine.finish();
}
