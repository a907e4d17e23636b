//! What all kinds of work requests have in common: flags, chains, fences, order, what may run beside them, and how long they wait.

use conformance::case;
use conformance::consumer::{
    Adapter, Buffer, Connector, End, FastRegistration, Listener, Mapping, MemoryRegion, MemoryWindow, Offer, Pair,
    QueuePair, QueuePairShape, Window, WindowKind, establish, sge,
};
use conformance::machine::{Setup, concurrently, wait_until_idle, with_machine, with_two_adapters};
use conformance::trial::Case;
use kernel_host::schedule;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{
    NTSTATUS, STATUS_CANCELLED, STATUS_CONNECTION_ACTIVE, STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_PARAMETER,
    STATUS_IO_TIMEOUT,
};

pub const CASES: &[Case] = &[
    case!(every_flag_of_every_operation: "NDK-QP-19", "NDK-QP-3", "NDK-QP-18"),
    case!(a_refused_post_of_any_kind_lets_held_requests_run: "NDK-DEFER-1", "NDK-QP-18"),
    case!(a_chain_gives_what_it_gives_without_the_flag: "NDK-DEFER-2", "NDK-DEFER-7", "NDK-QP-20"),
    case!(inline_works_wherever_data_leaves: "NDK-QP-27", "NDK-QP-24"),
    case!(a_flush_leaves_other_queue_pairs_alone: "NDK-QP-22"; not in stream),
    case!(a_fenced_request_waits_for_the_reads_before_it: "NDK-QP-31"),
    case!(reads_where_none_are_agreed_fail: "NDK-QP-33"),
    case!(reads_where_one_is_agreed_all_complete: "NDK-QP-32"),
    case!(a_read_closes_its_sink: "NDK-RLI-1", "NDK-RLI-2"),
    case!(a_read_cannot_close_memory_that_stays_open: "NDK-RLI-3"),
    case!(initiator_and_receive_requests_from_two_processors: "NDK-QP-34"),
    case!(posts_while_the_connector_is_closed: "NDK-QP-35", "NDK-QP-14"),
    case!(a_queue_pair_is_connected_once: "NDK-QP-36"),
    case!(all_bytes_are_there_with_the_result: "NDK-QP-38"),
    case!(bytes_written_before_a_send_are_there_with_its_receive: "NDK-QP-39"),
    case!(a_receiver_that_is_not_ready_in_time: "NDK-QP-41", "NDK-QP-28"; not in stream),
    case!(a_receiver_may_take_its_time: "NDK-QP-41", "NDK-QP-8"; not in stream),
    case!(a_registration_above_the_limit_is_refused: "NDK-MR-14"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
const READ: NDK_OP_FLAGS = NDK_OP_FLAG_ALLOW_REMOTE_READ;
/// As many scattered pages as every adapter registers fast.
const LENGTH: usize = 64_000;

/// A connection with good memory on both sides and, on the active one, a region and a window for requests about them.
struct Scene<'a> {
    window: MemoryWindow,
    lent: MemoryRegion,
    fast: MemoryRegion,
    mapping: Mapping<'a>,
    near: Window<'a>,
    peer: Window<'a>,
    pair: Pair<'a>,
}

/// A result's status, type and context.
type Plain = (NTSTATUS, NDK_OPERATION_TYPE, u64);

impl<'a> Scene<'a> {
    fn new(first: &'a Adapter, second: &'a Adapter, shape: QueuePairShape) -> Self {
        Self::of(Pair::connect_with(first, second, first.fit(shape)))
    }

    fn of(pair: Pair<'a>) -> Self {
        let near = Window::open(&pair.active, Buffer::scattered(LENGTH), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(LENGTH), WindowKind::Registered);
        near.buffer.fill_with_seed(1);
        peer.buffer.fill_with_seed(2);
        let mapping = Mapping::build(pair.active.adapter, &near.buffer).expect("a logical mapping");
        let fast = pair.active.domain.fast_region(mapping.pages().len() as u32, true);
        let lent = pair.active.domain.register(&near.buffer, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
        let window = MemoryWindow::new(&pair.active.domain).expect("a memory window");
        Self { window, lent, fast, mapping, near, peer, pair }
    }

    fn queue_pair(&self) -> &QueuePair {
        &self.pair.active.queue_pair
    }

    fn fast_register(&self, request: u64, flags: NDK_OP_FLAGS) -> NTSTATUS {
        let registration = FastRegistration {
            pages: self.mapping.pages(),
            first_byte_offset: self.mapping.first_byte_offset(),
            length: LENGTH,
            base: self.near.buffer.label(),
        };
        self.queue_pair().fast_register(request, self.fast.object(), &registration, flags)
    }

    fn bind(&self, request: u64, flags: NDK_OP_FLAGS) -> NTSTATUS {
        let range = (self.near.buffer.label(), LENGTH);
        self.queue_pair().bind(request, self.lent.object(), self.window.object(), range, flags)
    }

    /// Statuses, types and contexts of the next `count` results of the active side.
    fn results(&self, count: usize) -> Vec<Plain> {
        let results = self.pair.active.initiator.wait_for(count);
        results.iter().map(|result| (result.Status, result.Type, result.RequestContext as u64)).collect()
    }
}

/// One post of each operation with the given flags; whatever becomes of it later.
fn post(scene: &Scene<'_>, operation: &str, request: u64, flags: NDK_OP_FLAGS) -> NTSTATUS {
    let queue_pair = scene.queue_pair();
    let sge = [scene.near.sge(0..64)];
    // Inline scatter/gather elements are read at their addresses.
    let data = [7_u8; 16];
    let real = [sge_of(&data)];
    let list = if flags.contains(NDK_OP_FLAG_INLINE) { &real } else { &sge };
    match operation {
        "send" => queue_pair.send(request, list, flags),
        "send and invalidate" => queue_pair.send_and_invalidate(request, list, flags, 0x0BAD_0BAD),
        "read" => queue_pair.read(request, &sge, scene.peer.remote(0), flags),
        "write" => queue_pair.write(request, list, scene.peer.remote(0), flags),
        "bind" => scene.bind(request, flags),
        "fast register" => scene.fast_register(request, flags),
        "invalidate region" => queue_pair.invalidate(request, scene.fast.object(), flags),
        _ => queue_pair.invalidate(request, scene.window.object(), flags),
    }
}

fn sge_of(data: &[u8]) -> NDK_SGE {
    sge(data.as_ptr() as u64, data.len(), 0xDEAD)
}

/// NDKPI: NDK_OP_FLAG_*: which operation has which flag. Everything else is refused and leaves the queue pair healthy.
fn every_flag_of_every_operation() {
    const ALWAYS: u32 = 0x203;
    const TABLE: [(&str, u32); 8] = [
        ("send", ALWAYS | 0x44),
        ("send and invalidate", ALWAYS | 0x44),
        ("read", ALWAYS | 0x100),
        ("write", ALWAYS | 0x40),
        ("bind", ALWAYS | 0x88),
        ("fast register", ALWAYS | 0x98),
        ("invalidate region", ALWAYS),
        ("invalidate window", ALWAYS),
    ];
    with_two_adapters(|first, second| {
        let shape = QueuePairShape { initiator_depth: 256, inline_size: 64, ..QueuePairShape::default() };
        for (operation, taken) in TABLE {
            let scene = Scene::new(first, second, shape);
            let mut accepted = 0;
            for flags in (0..32).map(|bit| 1_u32 << bit).chain([0, 0x30, 0x38, 0x3FF, 0xFFFF_FFFF]) {
                // The two bits of remote write belong together, on operations that have them.
                let rights = taken & 0x80 != 0;
                let legal = match flags {
                    0x20 => false,
                    0x30 | 0x38 => rights,
                    0x10 => operation == "fast register",
                    _ => flags & !taken == 0,
                };
                // Held, so that nothing fails before all are posted.
                let posted = post(&scene, operation, u64::from(flags), NDK_OP_FLAGS::from_bits_retain(flags | 0x200));
                // A region's second registration in flight is the last that fits.
                let full = operation == "fast register" && posted as u32 == 0xC000_009A;
                let expected = if legal { 0 } else { STATUS_INVALID_PARAMETER };
                assert!(posted == expected || full, "{operation} with {flags:#x}: {posted:#x}");
                accepted += usize::from(posted == 0 && flags & 1 == 0);
            }
            // What was accepted comes back once, however it ended; what was refused does not.
            scene.queue_pair().flush();
            wait_until_idle();
            let results = scene.pair.active.initiator.take(256);
            let silent = results.iter().filter(|result| result.RequestContext as u64 & 1 != 0).count();
            assert_eq!(results.len() - silent, accepted, "{operation}: {results:#x?}");
        }
    });
}

fn a_refused_post_of_any_kind_lets_held_requests_run() {
    with_two_adapters(|first, second| {
        let unknown = NDK_OP_FLAGS::from_bits_retain(0x8000_0000);
        let too_many = QueuePairShape::default().initiator_sges as usize + 1;
        for operation in [
            "send",
            "send and invalidate",
            "read",
            "write",
            "bind",
            "fast register",
            "invalidate region",
            "invalidate window",
        ] {
            let scene = Scene::new(first, second, QueuePairShape::default());
            assert_eq!(scene.queue_pair().write(1, &[], scene.peer.remote(0), NDK_OP_FLAG_DEFER), 0);
            assert_eq!(post(&scene, operation, 2, unknown), STATUS_INVALID_PARAMETER);
            assert_eq!(scene.results(1), [(0, NdkOperationTypeWrite, 1)], "{operation}");
        }
        // For other reasons than flags.
        let scene = Scene::new(first, second, QueuePairShape::default());
        let list: Vec<_> = (0..too_many).map(|_| scene.near.sge(0..1)).collect();
        let outside = (scene.near.buffer.label() - 1, 1);
        let limit = first.info().MaxTransferLength;
        let whole = |_| NDK_SGE { Length: limit / 2 + 1, ..scene.near.sge(0..1) };
        let long: Vec<_> = (0..2).map(whole).collect();
        let reasons: [(&str, &dyn Fn() -> NTSTATUS); 4] = [
            ("scatter/gather elements", &|| scene.queue_pair().write(2, &list, scene.peer.remote(0), NONE)),
            ("length", &|| scene.queue_pair().write(2, &long, scene.peer.remote(0), NONE)),
            ("range", &|| scene.queue_pair().bind(2, scene.lent.object(), scene.window.object(), outside, READ)),
            ("nothing to close", &|| {
                scene.queue_pair().read(2, &[], scene.peer.remote(0), NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE)
            }),
        ];
        for (reason, refused) in reasons {
            assert_eq!(scene.queue_pair().write(1, &[], scene.peer.remote(0), NDK_OP_FLAG_DEFER), 0);
            assert_ne!(refused(), 0, "{reason}");
            assert_eq!(scene.results(1), [(0, NdkOperationTypeWrite, 1)], "{reason}");
        }
    });
}

/// Every operation once, each depending on the one before; what came of it on both sides.
fn chain(first: &Adapter, second: &Adapter, held: NDK_OP_FLAGS) -> (Vec<Plain>, Vec<u8>, Vec<u8>) {
    let scene = Scene::new(first, second, QueuePairShape { inline_size: 64, ..QueuePairShape::default() });
    let passive = &scene.pair.passive;
    for request in 0..3 {
        assert_eq!(passive.queue_pair.receive(request, &[scene.peer.sge(60_000..60_064)]), 0);
    }
    let peer = Window::open(passive, Buffer::scattered(4096), WindowKind::FastRegistered);
    let fenced = held | NDK_OP_FLAG_READ_FENCE;
    let queue_pair = scene.queue_pair();
    let through = |range| scene.near.buffer.sge(range, scene.fast.local_token());
    let posted = [
        scene.fast_register(1, held | READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE),
        scene.bind(2, held | READ),
        queue_pair.write(3, &[through(0..10_000)], scene.peer.remote(20_000), held),
        queue_pair.read(4, &[through(30_000..40_000)], scene.peer.remote(20_000), held),
        queue_pair.write(5, &[through(30_000..40_000)], scene.peer.remote(40_000), fenced),
        queue_pair.send(6, &[through(0..64)], held),
        queue_pair.send_and_invalidate(7, &[through(64..128)], held, peer.remote_token()),
        queue_pair.invalidate(8, scene.window.object(), held),
        queue_pair.read(
            9,
            &[through(50_000..50_064)],
            scene.peer.remote(0),
            held | NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE,
        ),
        scene.fast_register(10, held | READ),
        queue_pair.invalidate(11, scene.fast.object(), held),
        // The sink is closed: this fails, and with it what follows.
        queue_pair.write(12, &[through(0..1)], scene.peer.remote(0), held),
        queue_pair.write(13, &[], scene.peer.remote(0), held | NDK_OP_FLAG_SILENT_SUCCESS),
        queue_pair.send(14, &[], NONE),
    ];
    assert_eq!(posted, [0; 14]);
    let results = scene.results(14);
    let received = passive.receive.wait_for(2);
    let kinds: Vec<_> = received.iter().map(|result| (result.Status, result.Type)).collect();
    assert_eq!(kinds, [(0, NdkOperationTypeReceive), (0, NdkOperationTypeReceiveAndInvalidate)]);
    (results, scene.near.buffer.to_vec(), scene.peer.buffer.to_vec())
}

fn a_chain_gives_what_it_gives_without_the_flag() {
    with_two_adapters(|first, second| {
        let (plain, near, peer) = chain(first, second, NONE);
        let expected = [
            (0, NdkOperationTypeFastRegister),
            (0, NdkOperationTypeBind),
            (0, NdkOperationTypeWrite),
            (0, NdkOperationTypeRead),
            (0, NdkOperationTypeWrite),
            (0, NdkOperationTypeSend),
            (0, NdkOperationTypeSend),
            (0, NdkOperationTypeInvalidate),
            (0, NdkOperationTypeRead),
            (0, NdkOperationTypeFastRegister),
            (0, NdkOperationTypeInvalidate),
            (ndkpi_sys::nt::STATUS_ACCESS_VIOLATION, NdkOperationTypeWrite),
            (STATUS_CANCELLED, NdkOperationTypeWrite),
            (STATUS_CANCELLED, NdkOperationTypeSend),
        ];
        let numbered: Vec<_> =
            expected.iter().zip(1..).map(|((status, kind), number)| (*status, *kind, number)).collect();
        assert_eq!(plain, numbered);
        assert!(peer[20_000..30_000] == near[..10_000] && peer[40_000..50_000] == near[..10_000]);
        let (held, near_held, peer_held) = chain(first, second, NDK_OP_FLAG_DEFER);
        assert_eq!(held, plain);
        assert!(near_held == near && peer_held == peer, "the same bytes in the same places");
    });
}

fn inline_works_wherever_data_leaves() {
    with_two_adapters(|first, second| {
        let size = first.info().MaxInlineDataSize as usize;
        let shape = QueuePairShape { inline_size: size as u32, ..QueuePairShape::default() };
        let scene = Scene::new(first, second, shape);
        let sges = first.info().MaxInitiatorRequestSge as usize + 1;
        for operation in 0..3 {
            let mut data: Vec<u8> = (0..size).map(|index| (index * 3 + operation) as u8).collect();
            let expected = data.clone();
            let cut = |index: usize| size * index / sges;
            let list: Vec<_> = (0..sges).map(|index| sge_of(&data[cut(index)..cut(index + 1)])).collect();
            let passive = &scene.pair.passive;
            let target = [scene.peer.sge(0..size)];
            let region = Window::open(passive, Buffer::scattered(4096), WindowKind::FastRegistered);
            if operation < 2 {
                assert_eq!(passive.queue_pair.receive(7, &target), 0);
            }
            let (queue_pair, flags) = (scene.queue_pair(), NDK_OP_FLAG_INLINE | NDK_OP_FLAG_DEFER);
            let posted = match operation {
                0 => queue_pair.send(1, &list, flags),
                1 => queue_pair.send_and_invalidate(1, &list, flags, region.remote_token()),
                _ => queue_pair.write(1, &list, scene.peer.remote(0), flags),
            };
            assert_eq!(posted, 0, "{sges} scatter/gather elements of {size} bytes together");
            // Held until now, with the bytes from the time of the post.
            data.fill(0xEE);
            std::hint::black_box(&data);
            assert_eq!(queue_pair.write(2, &[], scene.peer.remote(0), NONE), 0);
            assert!(scene.results(2).iter().all(|(status, ..)| *status == 0));
            if operation < 2 {
                assert_eq!(passive.receive.wait_for_one().BytesTransferred as usize, size);
            }
            assert!(scene.peer.buffer.to_vec()[..size] == expected[..], "operation {operation}");
        }
    });
}

fn a_flush_leaves_other_queue_pairs_alone() {
    with_two_adapters(|first, second| {
        let shape = QueuePairShape::default();
        let one = Pair::connect(first, second);
        let mut sharing = End::new(first, shape);
        sharing.queue_pair.close();
        let other_shape = QueuePairShape { context: 0x77, ..shape };
        let (receive, initiator) = (&one.active.receive, &one.active.initiator);
        sharing.queue_pair = QueuePair::new(&one.active.domain, receive, initiator, other_shape).expect("a queue pair");
        let other = Pair::join(sharing, End::new(second, shape), first.address(), second.address());
        for pair in [&one, &other] {
            assert_eq!(pair.active.queue_pair.receive(1, &[]), 0);
            assert_eq!(pair.active.queue_pair.send(2, &[], NONE), 0, "a send that waits");
        }
        one.active.queue_pair.flush();
        for queue in [receive, initiator] {
            let result = queue.wait_for_one();
            assert_eq!((result.Status, result.QPContext as usize), (STATUS_CANCELLED, shape.context));
        }
        wait_until_idle();
        assert!(receive.take(1).is_empty() && initiator.take(1).is_empty(), "the other one is still waiting");
        assert_eq!(other.passive.queue_pair.receive(3, &[]), 0);
        assert_eq!(other.passive.queue_pair.send(4, &[], NONE), 0);
        for queue in [receive, initiator] {
            let result = queue.wait_for_one();
            assert_eq!((result.Status, result.QPContext as usize), (0, other_shape.context));
        }
    });
}

/// A long Read, then a fenced Write out of its sink: a Write that did not wait would carry bytes from before the Read.
fn a_fenced_request_waits_for_the_reads_before_it() {
    with_two_adapters(|first, second| {
        let long = first.fit_registered(8 << 20);
        let pair = Pair::connect(first, second);
        let contiguous = || Buffer::new(long, 0, kernel_host::FrameOrder::Contiguous);
        let sink = Window::open(&pair.active, contiguous(), WindowKind::Registered);
        let source = Window::open(&pair.passive, contiguous(), WindowKind::Registered);
        let target = Window::open(&pair.passive, contiguous(), WindowKind::Registered);
        source.buffer.fill_with_seed(5);
        sink.buffer.fill_with_seed(6);
        for fenced in [NDK_OP_FLAG_READ_FENCE, NDK_OP_FLAG_READ_FENCE | NDK_OP_FLAG_SILENT_SUCCESS] {
            let queue_pair = &pair.active.queue_pair;
            assert_eq!(queue_pair.read(1, &[sink.sge(0..long)], source.remote(0), NONE), 0);
            // From the end, which a Read fills last.
            let end = long - 4096..long;
            assert_eq!(queue_pair.write(2, &[sink.sge(end)], target.remote(0), fenced), 0);
            assert_eq!(queue_pair.write(3, &[], target.remote(0), NONE), 0);
            let count = if fenced.contains(NDK_OP_FLAG_SILENT_SUCCESS) { 2 } else { 3 };
            assert!(pair.active.initiator.wait_for(count).iter().all(|result| result.Status == 0));
            assert!(target.buffer.to_vec()[..4096] == source.buffer.to_vec()[long - 4096..]);
            sink.buffer.fill_with_seed(7);
            target.buffer.fill_with_seed(8);
        }
    });
}

/// A connection whose read limits were offered as they are here.
fn connected<'a>(first: &'a Adapter, second: &'a Adapter, reads: (u32, u32)) -> Scene<'a> {
    let offer = Offer { inbound_reads: reads.0, outbound_reads: reads.1, private_data: &[] };
    let listener = Listener::new(second).expect("a listener");
    let mut any = second.address();
    any.set_port(0);
    assert_eq!(listener.listen(any), 0);
    let (mut active, mut passive) =
        (End::new(first, QueuePairShape::default()), End::new(second, QueuePairShape::default()));
    let mut from = first.address();
    from.set_port(0);
    let made = establish((first, &active.queue_pair, from), (&listener, &passive.queue_pair), &offer);
    let (connector, accepted): (Connector, Connector) = made.expect("a connection");
    active.connector = Some(connector);
    passive.connector = Some(accepted);
    Scene::of(Pair { active, passive, listener })
}

fn reads_where_none_are_agreed_fail() {
    with_two_adapters(|first, second| {
        for reads in [(0, 0), (16, 0), (0, 16)] {
            let scene = connected(first, second, reads);
            assert_eq!(scene.queue_pair().write(1, &[scene.near.sge(0..64)], scene.peer.remote(0), NONE), 0);
            assert_eq!(scene.results(1), [(0, NdkOperationTypeWrite, 1)], "writes do not need any");
            assert_eq!(scene.queue_pair().read(2, &[scene.near.sge(0..64)], scene.peer.remote(0), NONE), 0);
            assert_eq!(scene.results(1), [(STATUS_INVALID_DEVICE_REQUEST, NdkOperationTypeRead, 2)], "{reads:?}");
            assert!(scene.pair.passive.connector().wait_for_disconnect());
        }
    });
}

fn reads_where_one_is_agreed_all_complete() {
    with_two_adapters(|first, second| {
        let scene = connected(first, second, (1, 1));
        for request in 0..16 {
            let near = [scene.near.sge(0..4096)];
            assert_eq!(scene.queue_pair().read(request, &near, scene.peer.remote(0), NDK_OP_FLAG_DEFER), 0);
        }
        assert_eq!(scene.queue_pair().read(16, &[], scene.peer.remote(0), NONE), 0);
        let results = scene.results(17);
        assert!(
            results.iter().zip(0..).all(|(seen, number)| *seen == (0, NdkOperationTypeRead, number)),
            "{results:?}"
        );
    });
}

const CLOSING: NDK_OP_FLAGS = NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE;

fn a_read_closes_its_sink() {
    with_two_adapters(|first, second| {
        for flags in [CLOSING, CLOSING | NDK_OP_FLAG_DEFER, CLOSING | NDK_OP_FLAG_SILENT_SUCCESS] {
            let scene = Scene::new(first, second, QueuePairShape::default());
            let sink = Window::open(&scene.pair.active, Buffer::scattered(LENGTH), WindowKind::FastRegistered);
            let other = scene.near.sge(0..1000);
            // The token of the first scatter/gather element and no other.
            assert_eq!(scene.queue_pair().read(1, &[sink.sge(0..9000), other], scene.peer.remote(0), flags), 0);
            assert_eq!(scene.queue_pair().write(2, &[other], scene.peer.remote(0), NONE), 0);
            let loud = usize::from(!flags.contains(NDK_OP_FLAG_SILENT_SUCCESS));
            assert!(scene.results(1 + loud).iter().all(|(status, ..)| *status == 0), "{flags:?}");
            sink.buffer.assert_seed(2, 0..9000);
            let region = sink.region.as_ref().expect("a region").object();
            assert_eq!(scene.queue_pair().invalidate(3, region, NONE), 0);
            assert_eq!(scene.results(1), [(STATUS_INVALID_DEVICE_REQUEST, NdkOperationTypeInvalidate, 3)]);
        }
    });
}

fn a_read_cannot_close_memory_that_stays_open() {
    with_two_adapters(|first, second| {
        let shape = QueuePairShape::default();
        let privileged =
            |scene: &Scene<'_>| sge(scene.mapping.address_of(0), 64, scene.pair.active.domain.privileged_token());
        let registered = |scene: &Scene<'_>| scene.near.sge(0..64);
        let sinks: [&dyn Fn(&Scene<'_>) -> NDK_SGE; 2] = [&privileged, &registered];
        for sink in sinks {
            for length in [64, 0] {
                let scene = Scene::new(first, second, shape);
                let list = [NDK_SGE { Length: length, ..sink(&scene) }];
                assert_eq!(scene.queue_pair().read(1, &list, scene.peer.remote(0), CLOSING), 0);
                assert_eq!(scene.results(1), [(STATUS_INVALID_DEVICE_REQUEST, NdkOperationTypeRead, 1)]);
                scene.near.buffer.assert_seed(1, 0..64);
            }
        }
        let scene = Scene::new(first, second, shape);
        assert_eq!(scene.queue_pair().read(1, &[], scene.peer.remote(0), CLOSING), STATUS_INVALID_PARAMETER);
        assert_eq!(scene.queue_pair().write(2, &[], scene.peer.remote(0), NONE), 0, "healthy");
        assert_eq!(scene.results(1), [(0, NdkOperationTypeWrite, 2)]);
    });
}

fn initiator_and_receive_requests_from_two_processors() {
    const ROUNDS: u64 = 2000;
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let pair = Pair::connect(&first, &second);
        let end = &pair.active;
        let posting = |receives: bool| {
            for request in 0..ROUNDS {
                let (mine, queue) = if receives {
                    (end.queue_pair.receive(request, &[]), &end.receive)
                } else {
                    (end.queue_pair.send(request, &[], NONE), &end.initiator)
                };
                let theirs = if receives {
                    pair.passive.queue_pair.send(request, &[], NONE)
                } else {
                    pair.passive.queue_pair.receive(request, &[])
                };
                assert_eq!((mine, theirs), (0, 0), "request {request}, receives: {receives}");
                let result = queue.wait_for_one();
                assert_eq!((result.Status, result.RequestContext as u64), (0, request));
                let other = if receives { &pair.passive.initiator } else { &pair.passive.receive };
                assert_eq!(other.wait_for_one().Status, 0);
            }
        };
        concurrently(machine, || posting(true), || posting(false));
    });
}

fn posts_while_the_connector_is_closed() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let count = first.info().MaxInitiatorQueueDepth.min(200);
        for round in 0..30 {
            let scene =
                Scene::new(&first, &second, QueuePairShape { initiator_depth: count, ..QueuePairShape::default() });
            let posting = || {
                for request in 0..u64::from(count) {
                    let posted =
                        scene.queue_pair().write(request, &[scene.near.sge(0..64)], scene.peer.remote(0), NONE);
                    assert_eq!(posted, 0, "round {round}");
                }
            };
            let closing = || {
                for _ in 0..round * 20 {
                    schedule::spin();
                }
                scene.pair.active.connector().close();
            };
            concurrently(machine, posting, closing);
            let mut seen = Vec::new();
            while seen.len() < count as usize {
                let capacity = count as usize - seen.len();
                seen.extend(
                    scene
                        .pair
                        .active
                        .initiator
                        .wait_for(capacity.min(20))
                        .iter()
                        .map(|result| (result.Status, result.RequestContext as u64)),
                );
            }
            let good = seen.iter().take_while(|(status, _)| *status == 0).count();
            assert!(seen[good..].iter().all(|(status, _)| *status == STATUS_CANCELLED), "{seen:?}");
            assert!(seen.iter().zip(0..).all(|((_, request), number)| *request == number), "in order, each once");
        }
    });
}

fn a_queue_pair_is_connected_once() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let leaving = pair.active.connector().begin_disconnect();
        assert!(pair.passive.connector().wait_for_disconnect());
        assert_eq!(pair.passive.connector().begin_disconnect().wait(), 0);
        assert_eq!(leaving.wait(), 0);
        let again = Connector::new(first).expect("a connector");
        let mut from = first.address();
        from.set_port(0);
        let to = pair.listener.local_address();
        let connecting = again.begin_connect(&pair.active.queue_pair, from, to, &Offer::default());
        assert_eq!(connecting.inline(), STATUS_CONNECTION_ACTIVE);
        // Nor can the other end accept with its own.
        let fresh = End::new(first, QueuePairShape::default());
        let connecting = again.begin_connect(&fresh.queue_pair, from, to, &Offer::default());
        let arrived = pair.listener.next();
        assert_eq!(
            arrived.begin_accept(&pair.passive.queue_pair, &Offer::default()).inline(),
            STATUS_CONNECTION_ACTIVE
        );
        assert_eq!(arrived.reject(&[]), 0);
        assert_ne!(connecting.wait(), 0);
    });
}

fn all_bytes_are_there_with_the_result() {
    with_two_adapters(|first, second| {
        let long = first.fit_registered(3 << 20);
        let pair = Pair::connect(first, second);
        let contiguous = || Buffer::new(long, 0, kernel_host::FrameOrder::Contiguous);
        let near = Window::open(&pair.active, contiguous(), WindowKind::Registered);
        let peer = Window::open(&pair.passive, contiguous(), WindowKind::Registered);
        for round in 0..6 {
            let read = round % 2 == 0;
            near.buffer.fill_with_seed(round);
            peer.buffer.fill_with_seed(round + 100);
            let list = [near.sge(0..long)];
            let queue_pair = &pair.active.queue_pair;
            let posted = if read {
                queue_pair.read(1, &list, peer.remote(0), NONE)
            } else {
                queue_pair.write(1, &list, peer.remote(0), NONE)
            };
            assert_eq!(posted, 0);
            assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
            let (target, seed) = if read { (&near.buffer, round + 100) } else { (&peer.buffer, round) };
            target.assert_seed(seed, 0..long);
        }
    });
}

fn bytes_written_before_a_send_are_there_with_its_receive() {
    with_two_adapters(|first, second| {
        let long = first.fit_registered(3 << 20);
        let pair = Pair::connect(first, second);
        let contiguous = || Buffer::new(long, 0, kernel_host::FrameOrder::Contiguous);
        let near = Window::open(&pair.active, contiguous(), WindowKind::Registered);
        let peer = Window::open(&pair.passive, contiguous(), WindowKind::Registered);
        for round in 0..4 {
            near.buffer.fill_with_seed(round);
            peer.buffer.fill_with_seed(round + 100);
            assert_eq!(pair.passive.queue_pair.receive(1, &[]), 0);
            assert_eq!(pair.active.queue_pair.write(2, &[near.sge(0..long)], peer.remote(0), NONE), 0);
            assert_eq!(pair.active.queue_pair.send(3, &[], NONE), 0);
            assert_eq!(pair.passive.receive.wait_for_one().Status, 0);
            peer.buffer.assert_seed(round, 0..long);
            assert!(pair.active.initiator.wait_for(2).iter().all(|result| result.Status == 0));
        }
    });
}

fn patient(milliseconds: &'static str) -> Setup {
    let mut setup = Setup::default();
    for adapter in &mut setup.adapters {
        adapter.keywords.push(("ReceiverNotReadyMs", milliseconds));
    }
    setup
}

fn wait(milliseconds: i64) {
    kernel_host::dispatcher::delay(-milliseconds * 10_000);
}

fn a_receiver_that_is_not_ready_in_time() {
    with_machine(&patient("200"), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let scene = Scene::new(&first, &second, QueuePairShape::default());
        // Each message has its own time: one that was received late does not shorten the next one's.
        for request in 0..3 {
            assert_eq!(scene.queue_pair().send(request, &[], NONE), 0);
            wait(150);
            assert_eq!(scene.pair.passive.queue_pair.receive(request, &[]), 0);
            assert_eq!(scene.results(1), [(0, NdkOperationTypeSend, request)]);
            assert_eq!(scene.pair.passive.receive.wait_for_one().Status, 0);
        }
        assert_eq!(scene.queue_pair().send(8, &[], NONE), 0);
        assert_eq!(scene.queue_pair().write(9, &[], scene.peer.remote(0), NONE), 0);
        wait(150);
        assert!(scene.pair.active.initiator.take(1).is_empty(), "not yet");
        wait(100);
        let ended = [(STATUS_IO_TIMEOUT, NdkOperationTypeSend, 8), (STATUS_CANCELLED, NdkOperationTypeWrite, 9)];
        assert_eq!(scene.results(2), ended);
        let passive = scene.pair.passive.connector();
        assert!(passive.wait_for_disconnect());
        wait_until_idle();
        assert_eq!(passive.disconnect_events(), 1);
        assert!(scene.pair.passive.receive.take(1).is_empty(), "nothing was received");
    });
}

fn a_receiver_may_take_its_time() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second, QueuePairShape::default());
        assert_eq!(scene.queue_pair().send(1, &[], NONE), 0);
        wait(3_600_000);
        assert!(scene.pair.active.initiator.take(1).is_empty());
        assert_eq!(scene.pair.passive.queue_pair.receive(2, &[]), 0);
        assert_eq!(scene.results(1), [(0, NdkOperationTypeSend, 1)]);
    });
}

fn a_registration_above_the_limit_is_refused() {
    let mut setup = Setup::default();
    setup.adapters[0].keywords.push(("LimitsProfile", "2"));
    with_machine(&setup, |machine| {
        let first = machine.open(0);
        let limit = first.info().MaxRegistrationSize;
        assert!(limit < 64 << 20, "a limit that a test can go over");
        let domain = conformance::consumer::ProtectionDomain::new(&first).expect("a protection domain");
        let buffer = Buffer::new(limit + 1, 0, kernel_host::FrameOrder::Contiguous);
        let region = domain.create_region(false).expect("a region");
        let list = buffer.memory_list();
        let flags = NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
        assert_eq!(region.register_list(list.pointer(), limit + 1, flags), STATUS_INVALID_PARAMETER);
        assert_eq!(region.register_list(list.pointer(), limit, flags), 0);
        drop(list);
        region.close();
    });
}
