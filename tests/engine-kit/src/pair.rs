//! Two consumers with what each creates, connected.

use crate::network::{MESSAGE_DELAY, Network, TcpListeningSocket, TcpSocket};
use crate::{
    events::Event,
    harness::Harness,
    memory::Buffer,
    world::{EVERYTHING, FIRST, SECOND, World},
};
use softndk_engine::{
    Accept, Adapter, Arm, Close, Completion, CompletionQueue, Connect, ConnectError, Connector, FastRegistration,
    Listener, ListeningSocket as _, LogicalAddress, Memory, MemoryRegion, MemoryToken, Open, Outcome, PostError,
    ProtectionDomain, QueuePair, QueuePairSettings, ReadLimits, Registration, RequestFlags, Rights, Semantics, Sge,
};
use std::{net::SocketAddr, sync::Arc};

/// What a consumer creates on one adapter.
pub struct Side {
    pub open: Open<Harness>,
    pub domain: ProtectionDomain<Harness>,
    pub initiator: CompletionQueue<Harness>,
    pub receiver: CompletionQueue<Harness>,
    pub pair: QueuePair<Harness>,
    pub connector: Connector<Harness>,
}

/// How deep the queues of a [`Side`] are.
#[derive(Clone, Copy)]
pub struct Depths {
    pub completions: u32,
    pub initiator: u32,
    pub receive: u32,
    pub sges: u32,
    pub inline: u32,
}

impl Default for Depths {
    fn default() -> Self {
        Self { completions: 64, initiator: 32, receive: 32, sges: 4, inline: 128 }
    }
}

impl Side {
    /// `base` numbers the blocks and callbacks of this side.
    pub fn open(world: &World, adapter: &Adapter<Harness>, semantics: Semantics, depths: Depths, base: u64) -> Self {
        let open = adapter.open(semantics, world.consumer_object(base)).unwrap();
        let domain = open.create_protection_domain(world.consumer_object(base + 1)).unwrap();
        Self::within(world, open, domain, depths, base)
    }

    /// Another queue pair of the same open and protection domain, with completion queues and a connector of its own.
    pub fn beside(world: &World, other: &Self, base: u64) -> Self {
        Self::within(world, other.open.clone(), other.domain.clone(), Depths::default(), base)
    }

    fn within(
        world: &World,
        open: Open<Harness>,
        domain: ProtectionDomain<Harness>,
        depths: Depths,
        base: u64,
    ) -> Self {
        let notify = |id| Some(base + id);
        let initiator =
            open.create_completion_queue(depths.completions, notify(2), None, world.consumer_object(base + 2)).unwrap();
        let receiver =
            open.create_completion_queue(depths.completions, notify(3), None, world.consumer_object(base + 3)).unwrap();
        let settings = QueuePairSettings {
            receive_queue: &receiver,
            initiator_queue: &initiator,
            context: base + 4,
            receive_depth: depths.receive,
            initiator_depth: depths.initiator,
            receive_sges: depths.sges,
            initiator_sges: depths.sges,
            inline_data: depths.inline,
            shared: None,
        };
        let pair = QueuePair::create(&domain, settings, world.consumer_object(base + 4)).unwrap();
        let connector = open.create_connector(world.consumer_object(base + 5)).unwrap();
        Self { open, domain, initiator, receiver, pair, connector }
    }

    /// A fast-register region, initialised for 32 pages.
    pub fn fast_region(&self, world: &World) -> MemoryRegion<Harness> {
        let region = self.domain.create_memory_region(true, world.consumer_object(51)).unwrap();
        region.initialize_fast_register(32, true).unwrap();
        region
    }

    /// Maps a buffer; the address of its first byte.
    pub fn build(&self, world: &World, buffer: &Buffer) -> LogicalAddress {
        self.open.build_mapping(world.map(buffer)).map_err(|(error, _)| error).unwrap().first
    }

    /// Fast-registers `pages` pages from `first` under a label, with every right.
    pub fn fast_register(
        &self,
        region: &MemoryRegion<Harness>,
        first: LogicalAddress,
        pages: u64,
        base: u64,
    ) -> Result<(), PostError> {
        let registration = FastRegistration { first_byte_offset: 0, length: pages * 4096, base, rights: EVERYTHING };
        let list = (0..pages as u32).map(|page| LogicalAddress(first.0 + u64::from(page) * 4096));
        self.pair.fast_register(60, RequestFlags::SILENT_SUCCESS, region, registration, list)
    }

    pub fn privileged(&self) -> MemoryToken {
        self.domain.privileged_token()
    }

    /// Registers a whole buffer under a label.
    pub fn register(&self, world: &World, buffer: &Buffer, base: u64, rights: Rights) -> MemoryRegion<Harness> {
        let region = self.domain.create_memory_region(false, world.consumer_object(50)).unwrap();
        let memory = world.map(buffer);
        let length = memory.length();
        region.register(Registration { memory, base, length, rights }).map_err(|(error, _)| error).unwrap();
        region
    }
}

pub fn polled(queue: &CompletionQueue<Harness>) -> Vec<Completion> {
    let mut all = Vec::new();
    // Across a stream each empty poll brings one object a step forward.
    let most = if cfg!(feature = "streams") { 200 } else { 1 };
    let mut empty = 0;
    while empty < most {
        let given = queue.poll(7, |_, completion| all.push(*completion));
        empty = if given > 0 { 0 } else { empty + 1 };
    }
    all
}

/// Contexts and outcomes of what is in a queue.
pub fn outcomes(queue: &CompletionQueue<Harness>) -> Vec<(u64, Outcome)> {
    polled(queue).iter().map(|completion| (completion.context, completion.outcome)).collect()
}

pub fn sge(address: u64, length: u32, token: MemoryToken) -> Sge {
    Sge { address, length, token }
}

/// Two connected sides.
pub struct Pair {
    pub world: World,
    pub listener: Listener<Harness>,
    pub a: Side,
    pub b: Side,
}

pub const A: u64 = 100;
pub const B: u64 = 200;
/// Callback numbers of the connection calls, beside a side's base.
pub const CONNECT: u64 = 20;
pub const ACCEPT: u64 = 21;
pub const DISCONNECT: u64 = 22;
pub const GONE: u64 = 23;
pub const CLOSE: u64 = 30;

impl Pair {
    pub fn new() -> Self {
        Self::with(Semantics::NDK, Depths::default())
    }

    pub fn with(semantics: Semantics, depths: Depths) -> Self {
        Self::in_world(World::new(), semantics, depths)
    }

    pub fn in_world(world: World, semantics: Semantics, depths: Depths) -> Self {
        let mut pair = Self::unconnected(world, semantics, depths);
        pair.connect();
        pair
    }

    /// Everything made, the listener listening, nothing connected.
    pub fn unconnected(world: World, semantics: Semantics, depths: Depths) -> Self {
        let a = Side::open(&world, &world.first, semantics, depths, A);
        let b = Side::open(&world, &world.second, semantics, depths, B);
        let listener = b.open.create_listener(B + 6, world.consumer_object(B + 6)).unwrap();
        listener.listen(SocketAddr::new(SECOND, 445), 0).unwrap();
        Self { world, listener, a, b }
    }

    pub fn connect_request(&self) -> Result<softndk_engine::Requested, ConnectError> {
        self.request_with(ReadLimits { inbound: 16, outbound: 16 })
    }

    fn request_with(&self, limits: ReadLimits) -> Result<softndk_engine::Requested, ConnectError> {
        self.a.connector.connect(Connect {
            queue_pair: &self.a.pair,
            source: softndk_engine::Source::Address(SocketAddr::new(FIRST, 0)),
            destination: SocketAddr::new(SECOND, 445),
            limits,
            private_data: b"hello",
            callback: A + CONNECT,
        })
    }

    /// The arrived connector replaces B's own, which is closed.
    pub fn take_arrived(&mut self) {
        let arrived = self.world.events.arrived.pop().expect("a connection request arrived");
        let unused = std::mem::replace(&mut self.b.connector, arrived);
        assert!(matches!(unused.close(0), Close::Done(_)));
    }

    pub fn accept(&self) -> Result<softndk_engine::Requested, ConnectError> {
        self.accept_with(ReadLimits { inbound: 8, outbound: 4 })
    }

    fn accept_with(&self, limits: ReadLimits) -> Result<softndk_engine::Requested, ConnectError> {
        self.b.connector.accept(Accept {
            queue_pair: &self.b.pair,
            limits,
            private_data: b"welcome",
            disconnect: Some(B + GONE),
            callback: B + ACCEPT,
        })
    }

    pub fn connect(&mut self) {
        self.connect_ends(ReadLimits { inbound: 16, outbound: 16 }, ReadLimits { inbound: 8, outbound: 4 });
    }

    /// [`Self::connect`] with the same limits at both ends.
    pub fn connect_with(&mut self, limits: ReadLimits) {
        self.connect_ends(limits, limits);
    }

    fn connect_ends(&mut self, asked: ReadLimits, answered: ReadLimits) {
        self.request_with(asked).unwrap();
        assert_eq!(self.world.run(), [Event::Requested(B + 6)]);
        self.take_arrived();
        self.accept_with(answered).unwrap();
        assert_eq!(self.world.run(), [Event::Completed(A + CONNECT, Ok(()))]);
        self.a.connector.complete_connect(Some(A + GONE), A + ACCEPT).unwrap();
        assert_eq!(self.world.run(), [Event::Completed(B + ACCEPT, Ok(()))]);
    }

    /// A connects to a peer that is bytes on a connection; what listens there, the connection, and the Request.
    pub fn connect_to_bytes(&mut self, reads: u32) -> (TcpListeningSocket, TcpSocket, Vec<u8>) {
        let at = SocketAddr::new(SECOND, 447);
        let mut listener = Network::occupy(&self.world.harness().network, at);
        let request = Connect {
            queue_pair: &self.a.pair,
            source: softndk_engine::Source::Address(SocketAddr::new(FIRST, 0)),
            destination: at,
            limits: ReadLimits { inbound: reads, outbound: reads },
            private_data: &[],
            callback: A + CONNECT,
        };
        self.a.connector.connect(request).unwrap();
        self.world.run();
        let (mut peer, _) = listener.accept().expect("a connection");
        let received = peer.take_received();
        (listener, peer, received)
    }

    /// B sends something that no consumer sees: across a stream an initiator that has received nothing ends with grace.
    pub fn speak(&mut self) {
        if MESSAGE_DELAY != 0 {
            self.b.pair.write(0, RequestFlags::SILENT_SUCCESS, std::iter::empty(), 0, MemoryToken(1)).unwrap();
            self.world.run();
        }
    }

    /// Another connection from A's adapter to B's, between queue pairs of their own; that of B is in a protection domain of the
    /// same open as its first.
    pub fn another_connection(&mut self, domain: &ProtectionDomain<Harness>) -> (Side, Side) {
        let world = &mut self.world;
        let caller = Side::open(world, &world.first, Semantics::NDK, Depths::default(), A);
        let mut answering = Side::within(world, self.b.open.clone(), domain.clone(), Depths::default(), B);
        caller
            .connector
            .connect(Connect {
                queue_pair: &caller.pair,
                source: softndk_engine::Source::Address(SocketAddr::new(FIRST, 0)),
                destination: SocketAddr::new(SECOND, 445),
                limits: ReadLimits { inbound: 8, outbound: 8 },
                private_data: &[],
                callback: A + CONNECT,
            })
            .unwrap();
        world.run();
        let arrived = world.events.arrived.pop().expect("a connection request arrived");
        drop(std::mem::replace(&mut answering.connector, arrived).close(CLOSE));
        let limits = ReadLimits { inbound: 8, outbound: 8 };
        let accept =
            Accept { queue_pair: &answering.pair, limits, private_data: &[], disconnect: None, callback: B + ACCEPT };
        answering.connector.accept(accept).unwrap();
        world.run();
        caller.connector.complete_connect(None, A + ACCEPT).unwrap();
        world.run();
        (caller, answering)
    }

    /// Closes what [`Self::another_connection`] made.
    pub fn close_other_connection(&mut self, caller: &Side, answering: &Side) {
        self.close_other_side(caller);
        self.close_other_side(answering);
        drop(caller.domain.close(CLOSE));
        drop(caller.open.close(CLOSE));
        self.world.run();
    }

    /// Closes what [`Side::beside`] made.
    pub fn close_other_side(&mut self, side: &Side) {
        drop(side.connector.close(CLOSE));
        drop(side.pair.close(CLOSE));
        drop(side.initiator.close(CLOSE));
        drop(side.receiver.close(CLOSE));
        self.world.run();
    }

    /// Closes everything, children first, and checks that nothing is left.
    pub fn close(self) {
        self.close_and_count();
    }

    /// As [`Self::close`], of a test that keeps no object of the engine: no object keeps itself in memory either.
    pub fn close_for_good(self) {
        assert_eq!(self.close_and_count(), 0, "something in the engine points to itself");
    }

    /// The number of references to the platform when everything has been closed and dropped.
    fn close_and_count(mut self) -> usize {
        for (side, base) in [(&self.a, A), (&self.b, B)] {
            drop(side.connector.close(base + CLOSE));
            drop(side.pair.close(base + CLOSE));
            drop(side.initiator.close(base + CLOSE));
            drop(side.receiver.close(base + CLOSE));
            drop(side.domain.close(base + CLOSE));
        }
        if MESSAGE_DELAY != 0 {
            // What arrives while a test waits for an answer.
            self.world.events.arrived.drain(..).for_each(|arrived| drop(arrived.close(CLOSE)));
        }
        drop(self.listener.close(B + CLOSE));
        drop(self.a.open.close(A + CLOSE));
        drop(self.b.open.close(B + CLOSE));
        self.world.run();
        self.world.assert_empty();
        let counters = self.world.counters.clone();
        drop(self);
        Arc::strong_count(&counters.blocks) - 1
    }

    /// Arms both queues of a side.
    pub fn arm(side: &Side, arm: Arm) {
        side.initiator.arm(arm);
        side.receiver.arm(arm);
    }
}
