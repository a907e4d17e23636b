//! One hostile queue pair from its creation to its end.

use super::super::program::*;
use super::flipper::Flipper;
use super::guarded::{Guarded, SECRET};
use super::mutation::{Known, Layout, Target};
use super::neighbours::SharedQueue;
use fastrand::Rng;
use kernel_host::dispatcher::Event;
use kernel_host::memory::user_buffer::UserBuffer;
use networkdirect::machine::pass;
use softndk_ioctl::Status;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::private::{BIND_WINDOW, BindWindow, BindWindowReply};
use softndk_ioctl::nd::rings::{
    InitiatorEntry, OperationFlags, QueueLayout, QueueSizes, RequestType, ResultEntry, Ring, Sge, completion_layout,
};
use std::fmt;
use std::sync::Arc;

/// Depths that are no powers of two: the rings have more entries.
pub const SIZES: QueueSizes =
    QueueSizes { initiator_depth: 24, initiator_sges: 4, inline_data: 128, receive_depth: 24, receive_sges: 3 };
const PEER_SIZES: QueueSizes = QueueSizes { receive_depth: 32, ..super::super::program::SIZES };
pub const OWN_DEPTH: u32 = 64;
pub const GUILTY_CONTEXT: u64 = 0x6017_0000;
/// Bytes of the memory that the hostile process and its peer may use.
const LENGTH: usize = 16 << 10;
/// Bytes behind a ring that are the process's and not the ring's.
const TAIL: usize = 4096;

/// Statuses of results that docs/networkdirect.md has.
pub fn assert_documented(result: &ResultEntry) {
    let known = [0, 0xC000_0120, 0xC000_0005, 0xC000_013D, 0xC000_00B5, 0xC000_003C, 0xC000_0010].map(u32::cast_signed);
    assert!(known.contains(&result.status) && result.request_type < 6, "{result:?}");
}

/// What came out.
#[derive(Default)]
pub struct Totals {
    pub mutations: u64,
    doorbells: u64,
    ended: u64,
    survived: u64,
}

impl fmt::Display for Totals {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} doorbells, {} queue pairs ended and {} did not", self.doorbells, self.ended, self.survived)
    }
}

impl Totals {
    /// Changes that end every queue pair at once would show little, and so would those that end none.
    pub fn assert_reaches_both_ends(&self) {
        assert!(self.ended > 0 && self.survived > 0, "{self}");
        assert!(self.doorbells > 2 * (self.ended + self.survived), "{self}");
    }
}

pub struct Scene {
    guilty: Program,
    peer: Program,
    /// What requests of the hostile process may use, and what its peer offers.
    own: Guarded,
    sink: Guarded,
    shared: SharedQueue,
    window: u64,
    known: Arc<Known>,
    pub flipper: Flipper,
    /// Lets the neighbours talk once more.
    others: Arc<Event>,
    pub totals: Totals,
}

/// What the rings of a round are made of.
struct Rings {
    shared_receives: Option<Pair>,
    own_queue: Option<Queue>,
    targets: Vec<Target>,
}

impl Scene {
    pub fn new(guilty: Program, shared: SharedQueue, private: &[Guarded], others: Arc<Event>) -> Self {
        let peer = Program::with(500, 2, PEER_SIZES, 256);
        // Each round has its own.
        for program in [&guilty, &peer] {
            assert_eq!(program.nd.free(QP_FREE, program.pair.handle), Status::SUCCESS);
        }
        let own = Guarded::new(&guilty.nd, guilty.domain, LENGTH, 0x11);
        let sink = Guarded::new(&peer.nd, peer.domain, LENGTH, 0x22);
        let window = guilty.nd.create(MW_CREATE, guilty.domain);
        let mut known =
            Known { windows: vec![window, own.region.handle, guilty.domain, shared.handle], ..Known::default() };
        for memory in [&own, &sink, &own, &sink].into_iter().chain(private) {
            known.tokens.push(memory.region.token);
            known.addresses.push(memory.region.address());
        }
        let known = Arc::new(known);
        Self {
            guilty,
            peer,
            own,
            sink,
            shared,
            window,
            known,
            flipper: Flipper::start(),
            others,
            totals: Totals::default(),
        }
    }

    pub fn round(&mut self, seed: u64) {
        let mut random = Rng::with_seed(seed);
        let rings = self.rings(&mut random);
        self.peer.pair = self.new_peer();
        let connectors = connect(&self.peer, &self.guilty);
        let mut ended = false;
        // Of a hundred doorbells so many come with changes that may end the queue pair.
        let wildness = [0, 10, 30, 100][random.usize(..4)];
        for _ in 0..random.u32(1..=24) {
            self.prepare(&mut random);
            let wild = random.u8(..100) < wildness;
            for _ in 0..random.u32(..40) {
                let target = &rings.targets[random.usize(..rings.targets.len())];
                let change = if wild { target.choose(&mut random) } else { target.choose_harmless(&mut random) };
                // SAFETY: the memory goes at the end of the round.
                unsafe { target.apply(change) };
                self.totals.mutations += 1;
            }
            ended = self.act(&rings, wild, &mut random);
            if ended {
                break;
            }
        }
        *if ended { &mut self.totals.ended } else { &mut self.totals.survived } += 1;
        self.finish(&rings, connectors, &mut random);
    }

    fn new_peer(&self) -> Pair {
        new_pair(&self.peer.nd, self.peer.domain, (self.peer.queue.handle, self.peer.queue.handle), PEER_SIZES)
    }

    /// A new queue pair for the hostile process.
    fn rings(&mut self, random: &mut Rng) -> Rings {
        let nd = &self.guilty.nd;
        let mut targets = Vec::new();
        let mut target = |memory: &UserBuffer, layout| {
            targets.push(Target { address: memory.address(), layout, known: Arc::clone(&self.known) });
        };
        let (shared_receives, own_queue) = match random.u8(..4) {
            0 => (Some(shared_receives(&self.guilty)), None),
            1 => (None, Some(nd.queue(self.guilty.adapter, OWN_DEPTH))),
            _ => (None, None),
        };
        let queue = own_queue.as_ref().map_or(self.shared.handle, |queue| queue.handle);
        let sizes =
            shared_receives.as_ref().map_or(SIZES, |_| QueueSizes { receive_depth: 0, receive_sges: 0, ..SIZES });
        let handle = match &shared_receives {
            Some(shared) => create_shared(&self.guilty, queue, shared.handle, sizes),
            None => create_pair(nd, self.guilty.domain, (queue, queue), sizes, GUILTY_CONTEXT),
        };
        let pair = Pair::attach_in(nd, handle, sizes, with_tail(sizes));
        target(&pair.memory, Layout::Requests(pair.layout, sizes));
        if let Some(shared) = &shared_receives {
            target(&shared.memory, Layout::Requests(shared.layout, RECEIVES));
        }
        if let Some(queue) = &own_queue {
            let (ring, _): (Ring, _) = completion_layout(OWN_DEPTH).expect("a ring");
            target(&queue.memory, Layout::Results(ring));
        }
        self.guilty.pair = pair;
        Rings { shared_receives, own_queue, targets }
    }

    /// Work that makes sense, on both sides, for what the rings have room for.
    fn prepare(&mut self, random: &mut Rng) {
        let (peer, guilty) = (&self.peer, &self.guilty);
        let room = PEER_SIZES.receive_depth.saturating_sub(outstanding(&peer.pair).1);
        for _ in 0..random.u32(..=8).min(room) {
            peer.pair.receive(&peer.nd, 1, &[piece(&self.sink, random)]);
        }
        let room = PEER_SIZES.initiator_depth.saturating_sub(outstanding(&peer.pair).0);
        for _ in 0..random.u32(..3).min(room) {
            peer.pair.send(&peer.nd, 2, OperationFlags::empty(), &[piece(&self.sink, random)]);
        }
        let (sent, received) = guilty.pair.waiting();
        for _ in 0..random.u32(..12).min(32_u32.saturating_sub(sent)) {
            self.write_entry(random);
        }
        if guilty.pair.layout.receive.entries != 0 {
            for _ in 0..random.u32(..6).min(32_u32.saturating_sub(received)) {
                guilty.pair.write_receive(3, &[piece(&self.own, random)]);
            }
        }
        peer.queue.poll().iter().for_each(assert_documented);
    }

    fn write_entry(&self, random: &mut Rng) {
        let kinds = [RequestType::Send, RequestType::Read, RequestType::Write, RequestType::Invalidate];
        let known = if random.u8(..16) == 0 { 4 } else { 3 };
        let kind = kinds[random.usize(..known)];
        let remote = piece(&self.sink, random);
        let head = InitiatorEntry {
            remote_address: remote.address,
            remote_token: remote.token,
            window: self.window,
            ..entry(kind, 4, OperationFlags::empty())
        };
        if kind == RequestType::Send && random.bool() {
            let head = InitiatorEntry { flags: OperationFlags::INLINE.bits(), ..head };
            self.guilty.pair.write_entry(head, &[], &[0x33; 128][..random.usize(..=128)]);
            return;
        }
        let sges: Vec<_> = (0..random.usize(1..=4)).map(|_| piece(&self.own, random)).collect();
        self.guilty.pair.write_entry(head, &sges, &[]);
    }

    /// Something that has the driver look at the rings while they change; whether the queue pair has ended by it.
    fn act(&mut self, rings: &Rings, wild: bool, random: &mut Rng) -> bool {
        while self.shared.unread() > 1024 {
            pass(1);
        }
        let before = self.flipper.mutations();
        self.flipper.begin(rings.targets.clone(), wild, random.u64(..), random.u64(32..512));
        while self.flipper.mutations() == before {
            std::thread::yield_now();
        }
        let nd = &self.guilty.nd;
        let handle = match random.u8(..16) {
            0 => {
                self.bind(random);
                self.guilty.pair.handle
            }
            1 => {
                let _flushed = nd.free(QP_FLUSH, self.guilty.pair.handle);
                self.guilty.pair.handle
            }
            2 | 3 => rings.own_queue.as_ref().map_or(self.guilty.pair.handle, |queue| queue.handle),
            4..7 => rings.shared_receives.as_ref().map_or(self.guilty.pair.handle, |shared| shared.handle),
            _ => self.guilty.pair.handle,
        };
        self.others.set();
        let answer = nd.doorbell(handle);
        self.flipper.end();
        self.totals.doorbells += 1;
        if let Some(queue) = &rings.own_queue {
            // Its count of results is anything.
            queue.take(OWN_DEPTH as usize);
        }
        match answer {
            Status::SUCCESS => false,
            Status::INVALID_PARAMETER => {
                assert_eq!(nd.doorbell(handle), INVALID_DEVICE_STATE, "once it has ended it stays so");
                true
            }
            // A Bind or a Flush before it has met the entry.
            INVALID_DEVICE_STATE => true,
            other => panic!("a doorbell answers {other:?}"),
        }
    }

    fn bind(&self, random: &mut Rng) {
        let piece = piece(&self.own, random);
        let asked = BindWindow {
            version: 1,
            flags: 0x18,
            queue_pair: self.guilty.pair.handle,
            region: self.own.region.handle,
            window: self.window,
            context: 5,
            address: piece.address,
            length: u64::from(piece.length),
        };
        let _bound = self.guilty.nd.try_ask::<BindWindowReply>(BIND_WINDOW, &asked);
    }

    /// Frees what the round has made, and looks at all memory.
    fn finish(&mut self, rings: &Rings, (theirs, ours): (u64, u64), random: &mut Rng) {
        let guilty = &self.guilty;
        let frees = [(CONNECTOR_FREE, ours), (QP_FREE, guilty.pair.handle)];
        let order = if random.bool() { [0, 1] } else { [1, 0] };
        for (code, object) in order.map(|index| frees[index]) {
            assert_eq!(guilty.nd.free(code, object), Status::SUCCESS);
        }
        assert_eq!(self.peer.nd.free(CONNECTOR_FREE, theirs), Status::SUCCESS);
        assert_eq!(self.peer.nd.free(QP_FREE, self.peer.pair.handle), Status::SUCCESS);
        self.peer.queue.poll().iter().for_each(assert_documented);
        assert_tail(&guilty.pair);
        if let Some(shared) = &rings.shared_receives {
            assert_eq!(guilty.nd.free(SRQ_FREE, shared.handle), Status::SUCCESS);
            assert_tail(shared);
        }
        if let Some(queue) = &rings.own_queue {
            assert_eq!(guilty.nd.free(CQ_FREE, queue.handle), Status::SUCCESS);
        }
        for memory in [&self.own, &self.sink] {
            memory.assert_guards();
            memory.assert_no_secrets();
        }
        self.own.bytes_mut()[..LENGTH].fill(0x11);
        self.sink.bytes_mut()[..LENGTH].fill(0x22);
    }

    pub fn close(self) -> impl Sized {
        let Self { guilty, peer, own, sink, .. } = self;
        (guilty.close(), peer.close(), own, sink)
    }
}

/// Requests in both queues of an honest queue pair, in its rings or behind them.
fn outstanding(pair: &Pair) -> (u32, u32) {
    let (waiting, taken) = (pair.waiting(), pair.taken());
    let behind = |taken: u32, retired: u32| taken.wrapping_sub(retired);
    (
        waiting.0 + behind(taken.initiator_taken, taken.initiator_retired),
        waiting.1 + behind(taken.receive_taken, taken.receive_retired),
    )
}

/// An SGE somewhere in memory.
fn piece(memory: &Guarded, random: &mut Rng) -> Sge {
    let length = random.u32(..1024);
    memory.region.sge(random.u64(..=(LENGTH as u64 - u64::from(length))), length)
}

const RECEIVES: QueueSizes =
    QueueSizes { initiator_depth: 0, initiator_sges: 0, inline_data: 0, receive_depth: 24, receive_sges: 3 };

fn with_tail(sizes: QueueSizes) -> UserBuffer {
    let length = QueueLayout::new(sizes).expect("a layout").length;
    let mut memory = UserBuffer::new(length + TAIL);
    memory.as_mut_slice()[length..].fill(SECRET);
    memory
}

/// What is not the driver's to write is as it was: the gaps of the header, and what lies behind the ring.
fn assert_tail(pair: &Pair) {
    let memory = pair.memory.as_slice();
    assert!(memory[8..64].iter().chain(&memory[88..128]).all(|byte| *byte == 0), "the driver wrote into a gap");
    assert!(memory[pair.layout.length..].iter().all(|byte| *byte == SECRET), "the driver wrote behind a ring");
}

fn shared_receives(program: &Program) -> Pair {
    let asked = CreateSharedReceiveQueue {
        version: 1,
        queue_depth: RECEIVES.receive_depth,
        max_request_sge: RECEIVES.receive_sges,
        domain: program.domain,
        ..CreateSharedReceiveQueue::default()
    };
    let handle = program.nd.ask::<ResourceDescriptor>(SRQ_CREATE, &asked).handle;
    Pair::attach_in(&program.nd, handle, RECEIVES, with_tail(RECEIVES))
}

fn create_shared(program: &Program, queue: u64, shared: u64, sizes: QueueSizes) -> u64 {
    let asked = CreateQueuePair {
        version: 1,
        max_inline_data: sizes.inline_data,
        initiator_queue_depth: sizes.initiator_depth,
        max_initiator_request_sge: sizes.initiator_sges,
        receive_queue: queue,
        initiator_queue: queue,
        domain: program.domain,
        receive: shared,
        ..CreateQueuePair::default()
    };
    let context = softndk_ioctl::nd::private::QueuePairContext { context: GUILTY_CONTEXT };
    let input = [zerocopy::IntoBytes::as_bytes(&asked), zerocopy::IntoBytes::as_bytes(&context)].concat();
    let (status, output) = send(&program.nd.file, QP_CREATE_WITH_SRQ, &input, size_of::<ResourceDescriptor>());
    assert_eq!(status, Status::SUCCESS);
    <ResourceDescriptor as zerocopy::FromBytes>::read_from_bytes(&output).expect("an answer").handle
}
