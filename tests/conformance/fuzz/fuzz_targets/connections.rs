//! Socket addresses and private data of a kernel consumer against the dispatch tables of the loaded image: listeners, shared endpoints
//! and connectors with addresses of any bytes and any length, private data longer than any adapter takes, steps in any order.
//!
//! An input is a run of steps: what, on which object, then what it needs. After each input everything is closed and nothing may be left.
#![no_main]

use std::cell::OnceCell;
use std::net::SocketAddr;

use conformance::consumer::{
    Adapter, CompletionQueue, Connector, Listener, Offer, ProtectionDomain, QueuePair, QueuePairShape, SharedEndpoint,
    SocketAddress, Started,
};
use libfuzzer_sys::fuzz_target;

#[path = "host.rs"]
mod host;
#[path = "seeds.rs"]
mod seeds;

/// Objects of a kind in one input.
const MOST: usize = 8;

/// The longest private data that is offered: more than any provider takes.
const DATA: [u8; 1024] = [7; 1024];

thread_local! {
    static ADAPTERS: OnceCell<&'static [Adapter; 2]> = const { OnceCell::new() };
}

fuzz_target!(init: seeds::write(seeds()), |bytes: &[u8]| {
    ADAPTERS.with(|adapters| {
        let adapters = adapters.get_or_init(|| Box::leak(Box::new([0, 1].map(|index| host::machine().open(index)))));
        host::leaves_nothing(|| (), || one_input(adapters, bytes));
    });
});

fn one_input(adapters: &[Adapter; 2], bytes: &[u8]) {
    let mut world = World::new(adapters);
    let mut input = Input(bytes);
    while let Some(step) = input.byte() {
        world.step(step, &mut input);
    }
    world.close();
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn index(&mut self) -> usize {
        usize::from(self.byte().unwrap_or_default())
    }

    fn port(&mut self) -> u16 {
        u16::from_le_bytes([self.byte().unwrap_or_default(), self.byte().unwrap_or_default()])
    }

    fn take(&mut self, length: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// One of the adapters' with a port; the address that no adapter has; or so many bytes of anything.
    fn address(&mut self, adapters: &[Adapter; 2]) -> SocketAddress {
        let with = |address: SocketAddr, port| SocketAddress::from(SocketAddr::new(address.ip(), port));
        match self.byte().unwrap_or_default() {
            0 => with(adapters[0].address(), self.port()),
            1 => with(adapters[1].address(), self.port()),
            2 => with(adapters[0].address_v6(), self.port()),
            3 => with(adapters[1].address_v6(), self.port()),
            4 => with(([0, 0, 0, 0], 0).into(), self.port()),
            5 => with(([0_u16; 8], 0).into(), self.port()),
            length => SocketAddress::of_bytes(self.take(usize::from(length) % 29)),
        }
    }

    fn offer(&mut self) -> Offer<'static> {
        let [inbound_reads, outbound_reads] = [0, 1].map(|_| match self.byte().unwrap_or_default() {
            255 => u32::MAX,
            reads => u32::from(reads),
        });
        let length = usize::from(self.port()) % (DATA.len() + 1);
        Offer { inbound_reads, outbound_reads, private_data: &DATA[..length] }
    }
}

/// A consumer's objects on one adapter that its connections use.
struct Side {
    pairs: Vec<QueuePair>,
    queue: CompletionQueue,
    domain: ProtectionDomain,
}

struct World<'a> {
    adapters: &'a [Adapter; 2],
    sides: [Side; 2],
    /// Each with where it listens, or an address without a port.
    listeners: Vec<(Listener, SocketAddress)>,
    endpoints: Vec<SharedEndpoint>,
    connectors: Vec<Connector>,
    started: Vec<Started>,
    /// What is closing: it ends when the connectors are closed that arrived at it or connect over it.
    ending_listeners: Vec<(Listener, Started)>,
    ending_endpoints: Vec<(SharedEndpoint, Started)>,
}

impl<'a> World<'a> {
    fn new(adapters: &'a [Adapter; 2]) -> Self {
        let sides = [0, 1].map(|index| {
            let adapter = &adapters[index];
            let domain = ProtectionDomain::new(adapter).expect("a protection domain");
            let queue = CompletionQueue::new(adapter, 256).expect("a completion queue");
            Side { pairs: Vec::new(), queue, domain }
        });
        Self {
            adapters,
            sides,
            listeners: Vec::new(),
            endpoints: Vec::new(),
            connectors: Vec::new(),
            started: Vec::new(),
            ending_listeners: Vec::new(),
            ending_endpoints: Vec::new(),
        }
    }

    fn step(&mut self, step: u8, input: &mut Input<'_>) {
        let adapter = &self.adapters[usize::from(step >> 7)];
        match step & 0x7F {
            0..12 => self.listen(adapter, input),
            12..20 if self.endpoints.len() < MOST => {
                let address = input.address(self.adapters);
                self.endpoints.extend(SharedEndpoint::new(adapter, address).ok());
            }
            20..28 if self.connectors.len() < MOST => self.connectors.extend(Connector::new(adapter).ok()),
            28..52 => self.connect(step >> 7, input),
            52..64 => self.arrive(input),
            64..80 => self.answer(step >> 7, input),
            80..92 => self.on_connector(input, |connector| Some(connector.begin_complete_connect())),
            92..98 => self.on_connector(input, |connector| Some(connector.begin_disconnect())),
            98..104 => {
                let length = usize::from(input.port()) % (DATA.len() + 1);
                self.on_connector(input, |connector| {
                    connector.reject(&DATA[..length]);
                    None
                });
            }
            104..110 => self.on_connector(input, |connector| {
                connector.address_statuses();
                let mut length = 0;
                connector.connection_data(None, &mut length);
                None
            }),
            110..116 => {
                if let Some((listener, _)) = pick(&self.listeners, input.index()) {
                    listener.pause_events(step & 1 != 0);
                }
            }
            _ => self.close_one(input),
        }
    }

    fn listen(&mut self, adapter: &Adapter, input: &mut Input<'_>) {
        let address = input.address(self.adapters);
        if self.listeners.len() < MOST
            && let Ok(listener) = Listener::new(adapter)
        {
            let listens = listener.listen(address) == 0;
            let address = if listens { listener.local_address() } else { adapter.address() };
            self.listeners.push((listener, address.into()));
        }
    }

    /// A queue pair of a side; a new one unless there are many.
    fn pair(&mut self, side: u8, which: usize) -> (usize, usize) {
        let side = usize::from(side);
        let Side { pairs, queue, domain } = &mut self.sides[side];
        if pairs.len() < MOST {
            let shape = QueuePairShape { receive_depth: 4, initiator_depth: 4, ..QueuePairShape::default() };
            pairs.push(QueuePair::new(domain, queue, queue, shape).expect("a queue pair"));
        }
        // The newest, mostly.
        let last = pairs.len() - 1;
        (side, if which < 200 { last } else { which % pairs.len() })
    }

    fn connect(&mut self, side: u8, input: &mut Input<'_>) {
        let (side, pair) = self.pair(side, input.index());
        let pair = &self.sides[side].pairs[pair];
        let Some(connector) = pick(&self.connectors, input.index()) else { return };
        let (way, offer) = (input.index(), input.offer());
        // To a listener, or to any address.
        let listening = if way & 1 == 0 { pick(&self.listeners, input.index()) } else { None };
        let to = listening.map_or_else(|| input.address(self.adapters), |(_, address)| *address);
        let endpoint = if way & 2 == 0 { None } else { pick(&self.endpoints, input.index()) };
        let started = match endpoint {
            Some(endpoint) => connector.begin_connect_shared(pair, endpoint, to, &offer),
            None => connector.begin_connect(pair, input.address(self.adapters), to, &offer),
        };
        self.started.push(started);
    }

    /// Takes what has arrived anywhere.
    fn arrive(&mut self, input: &mut Input<'_>) {
        conformance::machine::wait_until_idle();
        if let Some((listener, _)) = pick(&self.listeners, input.index())
            && listener.waiting() > 0
        {
            self.connectors.push(listener.next());
        }
    }

    fn answer(&mut self, side: u8, input: &mut Input<'_>) {
        let (side, pair) = self.pair(side, input.index());
        let (which, offer) = (input.index(), input.offer());
        let Some(connector) = pick(&self.connectors, which) else { return };
        self.started.push(connector.begin_accept(&self.sides[side].pairs[pair], &offer));
    }

    fn on_connector(&mut self, input: &mut Input<'_>, act: impl FnOnce(&Connector) -> Option<Started>) {
        let Some(connector) = pick(&self.connectors, input.index()) else { return };
        self.started.extend(act(connector));
    }

    fn close_one(&mut self, input: &mut Input<'_>) {
        let (kind, which) = (input.index(), input.index());
        let out_of = |count: usize| which.checked_rem(count);
        match kind % 3 {
            0 => drop(out_of(self.connectors.len()).map(|at| self.connectors.remove(at))),
            1 => {
                if let Some(at) = out_of(self.endpoints.len()) {
                    let endpoint = self.endpoints.remove(at);
                    let ending = endpoint.object().begin_close();
                    self.ending_endpoints.push((endpoint, ending));
                }
            }
            _ => {
                if let Some(at) = out_of(self.listeners.len()) {
                    let (listener, _) = self.listeners.remove(at);
                    let ending = listener.object().begin_close();
                    self.ending_listeners.push((listener, ending));
                }
            }
        }
    }

    /// Closes everything; every call that pended has its completion then. What arrived and was not taken is the consumer's to
    /// close, too.
    fn close(mut self) {
        while !self.listeners.is_empty() {
            self.close_one(&mut Input(&[2, 0]));
        }
        while !self.endpoints.is_empty() {
            self.close_one(&mut Input(&[1, 0]));
        }
        self.connectors.clear();
        conformance::machine::wait_until_idle();
        for (listener, ending) in &self.ending_listeners {
            while listener.waiting() > 0 {
                drop(listener.next());
            }
            ending.wait();
        }
        for ending in self.ending_endpoints.iter().map(|(_, ending)| ending).chain(&self.started) {
            ending.wait();
        }
    }
}

/// One of those that are there.
fn pick<T>(from: &[T], which: usize) -> Option<&T> {
    which.checked_rem(from.len()).map(|at| &from[at])
}

/// Connections taken all the way and broken off at each step, over both families and a shared endpoint.
fn seeds() -> Vec<Vec<u8>> {
    const OTHER: u8 = 0x80;
    let mut seeds = Vec::new();
    for (near, peer) in [(0, 1), (2, 3), (0, 0)] {
        let there = if peer == 0 { 0 } else { OTHER };
        let connect = |way: u8, at: &[u8]| [&[28, 0, 0, way, 4, 4, 8, 0, 0][..], at].concat();
        let steps = [
            vec![there, peer, 0x88, 0x13],
            vec![20],
            connect(0, &[near, 0, 0]),
            vec![52, 0],
            vec![64 | there, 0, 1, 4, 4, 3, 0],
            vec![80, 0],
            vec![104, 0],
            vec![92, 0],
        ];
        for taken in 3..=steps.len() {
            seeds.push(steps[..taken].concat());
        }
        let shared = [
            vec![there, peer, 0, 0],
            vec![12, near, 0xA0, 0x0F],
            vec![20],
            connect(2, &[0]),
            vec![52, 0],
            vec![98, 1, 3, 0],
        ];
        seeds.push(shared.concat());
    }
    // Addresses of every length, good and bad families, and private data longer than any adapter takes.
    seeds.extend((6..35_u8).map(|length| [vec![0, length, 2, 0, 0x88, 0x13, 10, 0, 0, 1], vec![0; 28]].concat()));
    seeds.push(
        [vec![1, 0, 0, 0, 20, 28, 0, 0, 0, 255, 255], 1024_u16.to_le_bytes().to_vec(), vec![0, 0, 0, 0]].concat(),
    );
    seeds
}
