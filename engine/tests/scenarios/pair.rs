//! A steppable world for scenario tests: a platform of plain memory, and two consumers on one wire.
//!
//! What it is: the smallest front end there can be. Callbacks are numbers, blocks count themselves, nothing happens until
//! [`World::run`] is called. What it is not: a mock of the engine; everything goes through its public interface.
#![allow(dead_code, reason = "oracle and bench use a part of it")]

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use softndk_engine::{
    Accept, Adapter, AdapterSettings, Arm, Budget, Close, CloseCompletion, Completion, CompletionQueue, Connect,
    ConnectError, ConnectEvent, Connector, DisconnectEvent, DisconnectReason, Element, Fabric, FastRegistration,
    Limits, Listener, Lock, LogicalAddress, Memory, MemoryRegion, MemoryToken, Notification, Opening, Outcome,
    Platform, PostError, ProtectionDomain, QueueFailure, QueuePair, QueuePairSettings, ReadLimits, Registration,
    RequestCompletion, RequestFlags, Retired, Rights, Semantics, Sink, Turn,
};

/// A spin lock: what the driver uses too.
pub struct SpinLock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only while `taken` is ours.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T: Send> Lock<T> for SpinLock<T> {
    fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    fn with<R>(&self, access: impl FnOnce(&mut T) -> R) -> R {
        let mut tries = 0_u32;
        while self.taken.swap(true, Ordering::Acquire) {
            tries += 1;
            assert!(tries < 100_000_000, "a lock is never let go");
            std::hint::spin_loop();
            if tries.is_multiple_of(1024) {
                std::thread::yield_now();
            }
        }
        let watched = meanwhile::taken();
        // SAFETY: `taken` was false and is ours now.
        let result = access(unsafe { &mut *self.value.get() });
        self.taken.store(false, Ordering::Release);
        if watched {
            meanwhile::let_go();
        }
        result
    }
}

/// Another processor's doing between two steps of this one: after the n-th time that a thread lets go of its last lock.
pub mod meanwhile {
    use std::cell::{Cell, RefCell};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Spares the threads of a bench the look at their own state.
    static USED: AtomicBool = AtomicBool::new(false);

    thread_local! {
        static HELD: Cell<u32> = const { Cell::new(0) };
        static LEFT: Cell<u32> = const { Cell::new(0) };
        static DOING: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    }

    pub(super) fn taken() -> bool {
        let watched = USED.load(Ordering::Relaxed);
        if watched {
            HELD.with(|held| held.set(held.get() + 1));
        }
        watched
    }

    pub(super) fn let_go() {
        HELD.with(|held| held.set(held.get() - 1));
        if HELD.with(Cell::get) > 0 {
            return;
        }
        let left = LEFT.with(|left| left.replace(left.get().saturating_sub(1)));
        let doing = (left == 1).then(|| DOING.with(|doing| doing.borrow_mut().take())).flatten();
        if let Some(doing) = doing {
            doing();
        }
    }

    /// Does `act`, and `doing` after its `place`-th step (from 1). False when `act` has fewer; then `doing` is not done.
    pub fn at_step(place: u32, act: impl FnOnce(), doing: impl FnOnce() + 'static) -> bool {
        USED.store(true, Ordering::Relaxed);
        DOING.with(|place| *place.borrow_mut() = Some(Box::new(doing)));
        LEFT.with(|left| left.set(place));
        act();
        LEFT.with(|left| left.set(0));
        DOING.with(|place| place.borrow_mut().take()).is_none()
    }

    /// Calls `round` with 1, 2, … until it says that the call had no such step.
    pub fn at_every_step(mut round: impl FnMut(u32) -> bool) {
        let steps = (1..1000).take_while(|place| round(*place)).count();
        assert!((1..900).contains(&steps), "{steps} steps");
    }
}

/// Bytes that everybody may write at the same time, as registered memory is.
pub struct Bytes(Box<[UnsafeCell<u8>]>);

// SAFETY: reached through raw pointers only, racing by design.
unsafe impl Sync for Bytes {}
// SAFETY: plain bytes.
unsafe impl Send for Bytes {}

/// A stretch of bytes, mapped.
pub struct Mapped {
    bytes: Arc<Bytes>,
    /// Where in the bytes it begins.
    first: usize,
    live: Arc<AtomicUsize>,
}

impl Memory for Mapped {
    fn length(&self) -> u64 {
        (self.bytes.0.len() - self.first) as u64
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Mapped {
    fn at(&self, offset: u64, length: usize) -> *mut u8 {
        let offset = self.first + offset as usize;
        assert!(offset + length <= self.bytes.0.len(), "the engine checks bounds");
        self.bytes.0.as_ptr().cast_mut().cast::<u8>().wrapping_add(offset)
    }
}

/// The consumer's side of a stretch of bytes.
#[derive(Clone)]
pub struct Buffer(Arc<Bytes>);

impl Buffer {
    /// Bytes that a peer may write at this moment can be filled all the same.
    pub fn fill(&self, byte: u8) {
        for place in &self.0.0 {
            // SAFETY: as for `write`.
            unsafe { place.get().write_volatile(byte) };
        }
    }

    pub fn new(length: usize, fill: u8) -> Self {
        Self(Arc::new(Bytes((0..length).map(|_| UnsafeCell::new(fill)).collect())))
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        for (place, byte) in self.0.0[offset..].iter().zip(bytes) {
            // SAFETY: racing writes of single bytes are what registered memory is about.
            unsafe { place.get().write_volatile(*byte) };
        }
    }

    pub fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        // SAFETY: as for `write`.
        self.0.0[offset..offset + length].iter().map(|place| unsafe { place.get().read_volatile() }).collect()
    }

    pub fn address(&self) -> u64 {
        self.0.0.as_ptr() as u64
    }

    pub fn length(&self) -> u64 {
        self.0.0.len() as u64
    }
}

/// A block of the front end.
pub struct Block {
    pub id: u64,
    live: Arc<AtomicUsize>,
}

impl Drop for Block {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::SeqCst);
    }
}

thread_local! {
    /// The processor this thread plays.
    pub static PROCESSOR: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    /// This thread is at DISPATCH_LEVEL.
    static RAISED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Everything outside the engine.
#[derive(Default)]
pub struct Harness {
    pub kicked: AtomicBool,
    pub dispatch: AtomicBool,
    /// Nanoseconds; moved by [`World::advance`] only.
    pub clock: AtomicU64,
    /// The moment each processor wants to be woken at.
    pub wakes: std::sync::Mutex<BTreeMap<u32, u64>>,
    pub blocks: Arc<AtomicUsize>,
    pub mappings: Arc<AtomicUsize>,
    pub copies: AtomicU64,
    /// Runs before each copy: a test steps in between two pieces.
    pub before_copy: std::sync::Mutex<Option<Box<dyn FnMut() + Send>>>,
    pub watch_copies: AtomicBool,
    /// Copies in their order while watched: whether it was the end of a message, where to, how long.
    pub order: std::sync::Mutex<Vec<(bool, u64, usize)>>,
}

impl Harness {
    fn copied(&self, last: bool, to: u64, length: usize) {
        if self.watch_copies.load(Ordering::Relaxed) {
            self.order.lock().unwrap().push((last, to, length));
            self.copies.fetch_add(1, Ordering::SeqCst);
            let hook = self.before_copy.lock().unwrap().take();
            if let Some(mut hook) = hook {
                hook();
                self.before_copy.lock().unwrap().get_or_insert(hook);
            }
        }
    }
}

impl Platform for Harness {
    type Lock<T: Send> = SpinLock<T>;
    type Memory = Mapped;
    type Block = Block;
    type CloseCallback = u64;
    type RequestCallback = u64;
    type NotifyCallback = u64;
    type ConnectCallback = u64;
    type DisconnectCallback = u64;

    fn copy(&self, to: (&Mapped, u64), from: (&Mapped, u64), length: usize) {
        self.copied(false, to.1, length);
        let (to, from) = (to.0.at(to.1, length), from.0.at(from.1, length));
        // SAFETY: both ranges were checked by `at`; they may overlap.
        unsafe { std::ptr::copy(from, to, length) };
    }

    fn copy_last(&self, to: (&Mapped, u64), from: (&Mapped, u64), length: usize) {
        assert!(length <= softndk_engine::limits::LAST_BYTES);
        self.copied(true, to.1, length);
        let (to, from) = (to.0.at(to.1, length), from.0.at(from.1, length));
        // SAFETY: as for `copy`.
        unsafe { std::ptr::copy(from, to, length) };
    }

    fn store(&self, to: (&Mapped, u64), bytes: &[u8]) {
        let to = to.0.at(to.1, bytes.len());
        // SAFETY: checked by `at`; engine memory does not overlap consumer memory.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    fn read_inline(&self, address: u64, into: &mut [u8]) {
        // SAFETY: an inline element of these tests names a buffer that outlives the post.
        unsafe { std::ptr::copy_nonoverlapping(address as *const u8, into.as_mut_ptr(), into.len()) };
    }

    fn processor(&self) -> u32 {
        PROCESSOR.with(std::cell::Cell::get)
    }

    fn kick(&self, _processor: u32) {
        self.kicked.store(true, Ordering::SeqCst);
    }

    fn at_dispatch(&self) -> bool {
        self.dispatch.load(Ordering::Relaxed) || RAISED.with(std::cell::Cell::get)
    }

    fn raised<R>(&self, piece: impl FnOnce() -> R) -> R {
        let before = RAISED.with(|raised| raised.replace(true));
        let result = piece();
        RAISED.with(|raised| raised.set(before));
        result
    }

    fn wake_at(&self, processor: u32, deadline: u64) {
        self.wakes.lock().unwrap().insert(processor, deadline);
    }

    fn now(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }
}

/// What came out of the engine, in order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    Notified(u64, Result<(), QueueFailure>),
    Completed(u64, Result<(), ConnectError>),
    Requested(u64),
    Disconnected(u64),
    Closed(u64, u64),
    Retired(Option<u64>),
}

/// What a test does inside a callback.
pub type Inside = Box<dyn FnMut(&Event) + Send>;

/// Collects events; arrived connectors are adopted and kept.
pub struct Events {
    pub seen: Vec<Event>,
    pub arrived: Vec<Connector<Harness>>,
    /// What the disconnect events said.
    pub reasons: Vec<DisconnectReason>,
    pub refuse: bool,
    pub harness: HarnessCounters,
    /// Called inside each callback.
    pub inside: Option<Inside>,
}

#[derive(Clone)]
pub struct HarnessCounters {
    pub blocks: Arc<AtomicUsize>,
    pub mappings: Arc<AtomicUsize>,
}

impl HarnessCounters {
    pub fn block(&self, id: u64) -> Block {
        self.blocks.fetch_add(1, Ordering::SeqCst);
        Block { id, live: self.blocks.clone() }
    }

    pub fn map(&self, buffer: &Buffer) -> Mapped {
        self.map_from(buffer, 0)
    }

    /// Maps a buffer from its `first` byte on.
    pub fn map_from(&self, buffer: &Buffer, first: usize) -> Mapped {
        self.mappings.fetch_add(1, Ordering::SeqCst);
        Mapped { bytes: buffer.0.clone(), first, live: self.mappings.clone() }
    }
}

impl Events {
    pub fn new(harness: HarnessCounters) -> Self {
        Self { seen: Vec::new(), arrived: Vec::new(), reasons: Vec::new(), refuse: false, harness, inside: None }
    }

    fn note(&mut self, event: Event) {
        if let Some(inside) = &mut self.inside {
            inside(&event);
        }
        self.seen.push(event);
    }
}

impl Sink<Harness> for Events {
    fn notify(&mut self, event: Notification<Harness>) {
        self.note(Event::Notified(event.callback, event.status));
    }

    fn request_completed(&mut self, event: RequestCompletion<Harness>) {
        self.note(Event::Completed(event.callback, event.result));
    }

    fn connection_requested(&mut self, event: ConnectEvent<Harness>) {
        self.note(Event::Requested(event.callback));
        if !self.refuse {
            self.arrived.push(event.connector.adopt(self.harness.block(900)));
        }
    }

    fn disconnected(&mut self, event: DisconnectEvent<Harness>) {
        self.reasons.push(event.reason);
        self.note(Event::Disconnected(event.callback));
    }

    fn closed(&mut self, event: CloseCompletion<Harness>) {
        let block = event.object.block.as_ref().map_or(0, |block| block.id);
        self.note(Event::Closed(event.callback, block));
    }

    fn retired(&mut self, event: Retired<Harness>) {
        self.note(Event::Retired(event.callback));
    }
}

pub const FIRST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
pub const EVERYTHING: Rights = Rights::all();

/// A fabric with two adapters on one wire.
pub struct World {
    pub fabric: Fabric<Harness>,
    pub first: Adapter<Harness>,
    pub second: Adapter<Harness>,
    pub events: Events,
    pub counters: HarnessCounters,
}

impl World {
    pub fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    pub fn with_limits(limits: Limits) -> Self {
        Self::try_new(limits).unwrap()
    }

    pub fn with_settings(settings: AdapterSettings) -> Self {
        Self::try_with(settings).unwrap()
    }

    pub fn try_new(limits: Limits) -> Option<Self> {
        Self::try_with(AdapterSettings { limits, ..Default::default() })
    }

    fn try_with(settings: AdapterSettings) -> Option<Self> {
        let harness = Harness::default();
        let counters = HarnessCounters { blocks: harness.blocks.clone(), mappings: harness.mappings.clone() };
        let fabric = Fabric::try_new(harness, 2).ok()?;
        let first = fabric.add_adapter(settings).ok()?;
        let Ok(second) = fabric.add_adapter(settings) else {
            first.remove();
            return None;
        };
        let addressed = first.set_addresses(&[FIRST]).is_ok() && second.set_addresses(&[SECOND]).is_ok();
        if !addressed {
            first.remove();
            second.remove();
            return None;
        }
        let events = Events::new(counters.clone());
        Some(Self { fabric, first, second, events, counters })
    }

    pub fn harness(&self) -> &Harness {
        self.fabric.platform()
    }

    pub fn block(&self, id: u64) -> Block {
        self.counters.block(id)
    }

    pub fn map(&self, buffer: &Buffer) -> Mapped {
        self.counters.map(buffer)
    }

    /// One turn with a small budget on both processors; true when something is left.
    pub fn step(&mut self, bytes: u64) -> bool {
        let budget = Budget { bytes, items: 1 };
        let turns = [0, 1].map(|processor| self.fabric.turn(processor, budget, &mut self.events));
        turns.contains(&Turn::More)
    }

    /// Runs until nothing is left to do and answers what came out.
    pub fn run(&mut self) -> Vec<Event> {
        let budget = Budget { bytes: 1 << 20, items: 64 };
        let mut turns = 0;
        loop {
            self.harness().kicked.store(false, Ordering::SeqCst);
            let outcome = [0, 1].map(|processor| self.fabric.turn(processor, budget, &mut self.events));
            turns += 1;
            assert!(turns < 100_000, "the engine never comes to rest");
            if outcome == [Turn::Idle; 2] && !self.harness().kicked.load(Ordering::SeqCst) {
                return std::mem::take(&mut self.events.seen);
            }
        }
    }

    /// Lets time pass: every processor gets its turn at the moment it asked for, none without asking. What came out, with the
    /// moment of each event.
    pub fn advance(&mut self, nanoseconds: u64) -> Vec<(u64, Event)> {
        let end = self.harness().clock.load(Ordering::SeqCst) + nanoseconds;
        let mut seen = Vec::new();
        loop {
            let due = self.harness().wakes.lock().unwrap().iter().map(|(&processor, &at)| (at, processor)).min();
            let Some((at, processor)) = due.filter(|(at, _)| *at <= end) else { break };
            self.harness().wakes.lock().unwrap().remove(&processor);
            let now = self.harness().clock.fetch_max(at, Ordering::SeqCst).max(at);
            let budget = Budget { bytes: 1 << 20, items: 64 };
            while self.fabric.turn(processor, budget, &mut self.events) == Turn::More {}
            seen.extend(std::mem::take(&mut self.events.seen).into_iter().map(|event| (now, event)));
        }
        self.harness().clock.fetch_max(end, Ordering::SeqCst);
        seen
    }

    /// Nothing of ours is left in the engine.
    pub fn assert_empty(&mut self) {
        self.run();
        assert_eq!(self.counters.blocks.load(Ordering::SeqCst), 0, "blocks are left");
        assert_eq!(self.counters.mappings.load(Ordering::SeqCst), 0, "mappings are left");
        let mut objects = 0;
        self.first.objects(&mut |_| objects += 1);
        self.second.objects(&mut |_| objects += 1);
        assert_eq!(objects, 0, "objects are left");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.first.remove();
        self.second.remove();
    }
}

/// What a consumer creates on one adapter.
pub struct Side {
    pub opening: Opening<Harness>,
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
    pub elements: u32,
    pub inline: u32,
}

impl Default for Depths {
    fn default() -> Self {
        Self { completions: 64, initiator: 32, receive: 32, elements: 4, inline: 128 }
    }
}

impl Side {
    /// `base` numbers the blocks and callbacks of this side.
    pub fn open(world: &World, adapter: &Adapter<Harness>, semantics: Semantics, depths: Depths, base: u64) -> Self {
        let opening = adapter.open(semantics, world.block(base)).unwrap();
        let domain = opening.create_protection_domain(world.block(base + 1)).unwrap();
        Self::within(world, opening, domain, depths, base)
    }

    /// Another queue pair of the same opening and protection domain, with completion queues and a connector of its own.
    pub fn beside(world: &World, other: &Self, base: u64) -> Self {
        Self::within(world, other.opening.clone(), other.domain.clone(), Depths::default(), base)
    }

    fn within(
        world: &World,
        opening: Opening<Harness>,
        domain: ProtectionDomain<Harness>,
        depths: Depths,
        base: u64,
    ) -> Self {
        let notify = |id| Some(base + id);
        let initiator =
            opening.create_completion_queue(depths.completions, notify(2), None, world.block(base + 2)).unwrap();
        let receiver =
            opening.create_completion_queue(depths.completions, notify(3), None, world.block(base + 3)).unwrap();
        let settings = QueuePairSettings {
            receive_queue: &receiver,
            initiator_queue: &initiator,
            context: base + 4,
            receive_depth: depths.receive,
            initiator_depth: depths.initiator,
            receive_elements: depths.elements,
            initiator_elements: depths.elements,
            inline_data: depths.inline,
            shared: None,
        };
        let pair = domain.create_queue_pair(settings, world.block(base + 4)).unwrap();
        let connector = opening.create_connector(world.block(base + 5)).unwrap();
        Self { opening, domain, initiator, receiver, pair, connector }
    }

    /// A fast-register region, initialised for 32 pages.
    pub fn fast_region(&self, world: &World) -> MemoryRegion<Harness> {
        let region = self.domain.create_memory_region(true, world.block(51)).unwrap();
        region.initialize_fast_register(32, true).unwrap();
        region
    }

    /// Maps a buffer; the address of its first byte.
    pub fn build(&self, world: &World, buffer: &Buffer) -> LogicalAddress {
        self.opening.build_mapping(world.map(buffer)).map_err(|(error, _)| error).unwrap().first
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
        let region = self.domain.create_memory_region(false, world.block(50)).unwrap();
        let memory = world.map(buffer);
        let length = memory.length();
        region.register(Registration { memory, base, length, rights }).map_err(|(error, _)| error).unwrap();
        region
    }
}

pub fn polled(queue: &CompletionQueue<Harness>) -> Vec<Completion> {
    let mut all = Vec::new();
    while queue.poll(7, |_, completion| all.push(*completion)) > 0 {}
    all
}

/// Contexts and outcomes of what is in a queue.
pub fn outcomes(queue: &CompletionQueue<Harness>) -> Vec<(u64, Outcome)> {
    polled(queue).iter().map(|completion| (completion.context, completion.outcome)).collect()
}

pub fn element(address: u64, length: u32, token: MemoryToken) -> Element {
    Element { address, length, token }
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
        let listener = b.opening.create_listener(B + 6, world.block(B + 6)).unwrap();
        listener.listen(SocketAddr::new(SECOND, 445)).unwrap();
        Self { world, listener, a, b }
    }

    pub fn connect_request(&self) -> Result<softndk_engine::Requested, ConnectError> {
        self.a.connector.connect(Connect {
            queue_pair: &self.a.pair,
            source: softndk_engine::Source::Address(SocketAddr::new(FIRST, 0)),
            destination: SocketAddr::new(SECOND, 445),
            limits: ReadLimits { inbound: 16, outbound: 16 },
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
        self.b.connector.accept(Accept {
            queue_pair: &self.b.pair,
            limits: ReadLimits { inbound: 8, outbound: 4 },
            private_data: b"welcome",
            disconnect: Some(B + GONE),
            callback: B + ACCEPT,
        })
    }

    pub fn connect(&mut self) {
        self.connect_request().unwrap();
        assert_eq!(self.world.run(), [Event::Requested(B + 6)]);
        self.take_arrived();
        self.accept().unwrap();
        assert_eq!(self.world.run(), [Event::Completed(A + CONNECT, Ok(()))]);
        self.a.connector.complete_connect(Some(A + GONE), A + ACCEPT).unwrap();
        assert_eq!(self.world.run(), [Event::Completed(B + ACCEPT, Ok(()))]);
    }

    /// Another connection from A's adapter to B's, between queue pairs of their own; that of B is in a protection domain of
    /// the same opening as its first.
    pub fn another_connection(&mut self, domain: &ProtectionDomain<Harness>) -> (Side, Side) {
        let world = &mut self.world;
        let caller = Side::open(world, &world.first, Semantics::NDK, Depths::default(), A);
        let mut answering = Side::within(world, self.b.opening.clone(), domain.clone(), Depths::default(), B);
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
        drop(caller.opening.close(CLOSE));
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

    /// How many still know the platform when everything has been closed and forgotten.
    fn close_and_count(mut self) -> usize {
        for (side, base) in [(&self.a, A), (&self.b, B)] {
            drop(side.connector.close(base + CLOSE));
            drop(side.pair.close(base + CLOSE));
            drop(side.initiator.close(base + CLOSE));
            drop(side.receiver.close(base + CLOSE));
            drop(side.domain.close(base + CLOSE));
        }
        drop(self.listener.close(B + CLOSE));
        drop(self.a.opening.close(A + CLOSE));
        drop(self.b.opening.close(B + CLOSE));
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
