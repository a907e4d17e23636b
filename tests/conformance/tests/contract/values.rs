//! Values unlike their neighbours: in each trial no two arguments of a call are alike, none is zero, and each flag is alone, so that an
//! argument that is forgotten, or taken for the one beside it, shows (xtask/lists/arguments.txt).

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use conformance::case;
use conformance::consumer::{
    Buffer, CompletionQueue, Connector, End, FastRegistration, Listener, Mapping, MemoryWindow, Offer, Pair, QueuePair,
    QueuePairShape, Remote, SharedEndpoint, SharedReceiveQueue, SharedShape, Window, WindowKind,
};
use conformance::machine::{AdapterSetup, Setup, wait_until_idle, with_machine, with_two_adapters};
use conformance::peers;
use conformance::trial::Case;
use kernel_host::KernelConfig;
use kernel_host::thread::Thread;
use ndkpi_sys::ndkinfo::*;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{
    GROUP_AFFINITY, STATUS_BUFFER_OVERFLOW, STATUS_DATA_OVERRUN, STATUS_INVALID_ADDRESS, STATUS_NO_MORE_ENTRIES,
    STATUS_REMOTE_RESOURCES,
};

pub const CASES: &[Case] = &[
    case!(queue_pair_has_each_number_in_its_place: "NDK-QP-1", "NDK-QP-4", "NDK-QP-26", "VALUES-1"; not in tiny, stream),
    case!(shared_queue_has_each_number_in_its_place: "NDK-SRQ-13", "NDK-QP-4", "VALUES-1"; not in tiny),
    case!(read_limits_and_data_go_their_own_ways: "NDK-CM-6", "NDK-CM-5", "VALUES-1"; not in tiny),
    case!(zones_of_a_shared_endpoint_and_of_a_source: "NDK-CM-2", "NDK-CM-50", "VALUES-1"),
    case!(requests_carry_what_they_were_posted_with: "NDK-CQ-8", "VALUES-1"),
    case!(silent_success_alone: "NDK-QP-7", "VALUES-1"),
    case!(deferred_alone: "NDK-QP-6", "VALUES-1"),
    case!(inline_alone: "NDK-QP-24", "VALUES-1"),
    case!(solicited_alone: "NDK-CQ-7", "VALUES-1"),
    case!(each_right_of_a_registration_alone: "NDK-MR-10", "VALUES-1"),
    case!(each_right_of_a_fast_registration_alone: "NDK-FRMR-12", "VALUES-1"),
    case!(a_read_that_closes_its_sink: "NDK-RLI-1", "VALUES-1"),
    case!(fence_alone: "NDK-QP-31", "VALUES-1"),
    case!(preferred_processors: "NDK-CQ-16", "VALUES-1"),
    case!(every_limit_stands_in_its_field: "NDK-INFO-5", "NDK-INFO-6", "NDK-INFO-9", "VALUES-1"),
    case!(both_forms_of_a_result_have_each_value_in_its_place: "NDK-CQ-8", "NDK-CQ-9", "NDK-CQ-19", "VALUES-1"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
const SILENT: NDK_OP_FLAGS = NDK_OP_FLAG_SILENT_SUCCESS;

/// No two numbers of it are alike.
const SHAPE: QueuePairShape = QueuePairShape {
    context: 0x51DE_0123_4567,
    receive_depth: 3,
    initiator_depth: 5,
    receive_sges: 2,
    initiator_sges: 4,
    inline_size: 24,
};

fn at_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// A connected pair with memory at both ends.
struct Scene<'a> {
    near: Window<'a>,
    peer: Window<'a>,
    pair: Pair<'a>,
}

impl<'a> Scene<'a> {
    fn of(pair: Pair<'a>) -> Self {
        let near = Window::open(&pair.active, Buffer::scattered(8192), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(8192), WindowKind::Registered);
        near.buffer.fill_with_seed(1);
        peer.buffer.fill_with_seed(2);
        Self { near, peer, pair }
    }

    fn queue_pair(&self) -> &QueuePair {
        &self.pair.active.queue_pair
    }

    fn list(&self, count: usize) -> Vec<NDK_SGE> {
        self.near.first_in_sges(64, count)
    }

    /// The contexts of all results that there are, which are successes.
    fn done(&self) -> Vec<u64> {
        wait_until_idle();
        self.pair.active.initiator.take(64).iter().map(done).collect()
    }
}

fn done(result: &NDK_RESULT_EX) -> u64 {
    assert_eq!(result.Status, 0, "{result:?}");
    result.RequestContext as u64
}

fn with_scene(shape: QueuePairShape, trial: impl FnOnce(&Scene<'_>)) {
    with_two_adapters(|first, second| trial(&Scene::of(Pair::connect_with(first, second, shape))));
}

fn queue_pair_has_each_number_in_its_place() {
    with_scene(SHAPE, |scene| {
        let (active, passive) = (scene.queue_pair(), &scene.pair.passive.queue_pair);
        let into = |count| scene.peer.first_in_sges(64, count);
        assert_eq!(passive.receive(1, &into(3)), STATUS_DATA_OVERRUN, "two elements a receive");
        assert_eq!(active.send(1, &scene.list(5), NONE), STATUS_DATA_OVERRUN, "four elements a send");
        let long = [0x5A_u8; 25];
        let inline = |length: u32| NDK_SGE {
            Address: NDK_SGE_ADDRESS { VirtualAddress: long.as_ptr().cast_mut().cast() },
            Length: length,
            MemoryRegionToken: 0,
        };
        assert_eq!(active.send(1, &[inline(25)], NDK_OP_FLAG_INLINE), STATUS_BUFFER_OVERFLOW, "24 bytes inline");
        // There is no receive: what is posted stays.
        for context in 11..=15 {
            assert_eq!(active.send(context, &scene.list(4), NONE), 0);
        }
        assert_eq!(active.send(16, &scene.list(1), NONE), STATUS_NO_MORE_ENTRIES, "five requests");
        for context in 21..=23 {
            assert_eq!(passive.receive(context, &into(2)), 0);
        }
        // Three Sends have taken the receives; two wait.
        let received = scene.pair.passive.receive.wait_for(3);
        assert!(received.iter().all(|result| result.QPContext as usize == SHAPE.context), "{received:?}");
        assert_eq!(received.iter().map(done).collect::<Vec<_>>(), [21, 22, 23]);
        assert_eq!(received[0].BytesTransferred, 64);
        let sent = scene.pair.active.initiator.wait_for(3);
        assert_eq!(sent.iter().map(done).collect::<Vec<_>>(), [11, 12, 13]);
        assert!(sent.iter().all(|result| result.QPContext as usize == SHAPE.context), "{sent:?}");
        assert_eq!(active.send(14, &[inline(24)], NDK_OP_FLAG_INLINE), 0);
        for context in 24..=26 {
            assert_eq!(passive.receive(context, &into(1)), 0);
        }
        assert_eq!(scene.pair.passive.receive.wait_for(3).len(), 3);
        // All receives are taken: as many more are accepted, and not one beyond.
        for context in 27..=29 {
            assert_eq!(passive.receive(context, &into(1)), 0);
        }
        assert_eq!(passive.receive(30, &into(1)), STATUS_NO_MORE_ENTRIES, "three receives");
    });
}

fn shared_queue_has_each_number_in_its_place() {
    with_two_adapters(|first, _| {
        let end = End::new(first, QueuePairShape::default());
        let shape = SharedShape { depth: 5, sges: 3, threshold: 2, silent: false };
        let shared = SharedReceiveQueue::new(&end.domain, shape).expect("a shared receive queue");
        let buffer = Buffer::scattered(4096);
        let region = end.domain.register(&buffer, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
        let list = |count: usize| vec![buffer.sge(0..16, region.local_token()); count];
        assert_eq!(shared.receive(1, &list(4)), STATUS_DATA_OVERRUN, "three elements");
        for context in 1..=5 {
            assert_eq!(shared.receive(context, &list(3)), 0);
        }
        assert_eq!(shared.receive(6, &list(1)), STATUS_NO_MORE_ENTRIES, "five receives");
        let (receive, initiator) = (CompletionQueue::new(first, 8), CompletionQueue::new(first, 8));
        let (receive, initiator) = (receive.expect("a queue"), initiator.expect("a queue"));
        let pair = QueuePair::with_shared(&end.domain, &receive, &initiator, &shared, SHAPE).expect("a queue pair");
        pair.close();
        region.close();
        shared.close();
    });
}

/// Both sides offer other numbers, and what each sees is told by them: nothing is capped.
fn read_limits_and_data_go_their_own_ways() {
    with_two_adapters(|first, second| {
        let listener = Listener::new(second).expect("a listener");
        assert_eq!(listener.listen(at_port(second.address(), 0x1234)), 0);
        let endpoint = SharedEndpoint::new(first, at_port(first.address(), 0x2345)).expect("an endpoint");
        for (shared, extended) in [(false, false), (false, true), (true, false), (true, true)] {
            let active = End::new(first, QueuePairShape::default());
            let passive = End::new(second, QueuePairShape::default());
            let connector = Connector::new(first).expect("a connector");
            let offer = Offer { inbound_reads: 3, outbound_reads: 5, private_data: b"called" };
            let (from, to) = (at_port(first.address(), 0x3456), listener.local_address());
            let connecting = if shared {
                connector.begin_connect_shared(&active.queue_pair, &endpoint, to, &offer)
            } else {
                connector.begin_connect(&active.queue_pair, from, to, &offer)
            };
            let offered = listener.next();
            let seen = offered.data();
            assert_eq!((seen.inbound_reads, seen.outbound_reads), (5, 3), "the other way round");
            assert_eq!(seen.private_data[..6], *b"called");
            let port = if shared { 0x2345 } else { 0x3456 };
            assert_eq!((offered.peer_address().port(), offered.local_address().port()), (port, 0x1234));
            let answer = Offer { inbound_reads: 4, outbound_reads: 2, private_data: b"answered" };
            let accepting = if extended {
                offered.begin_accept_ex(&passive.queue_pair, &answer)
            } else {
                offered.begin_accept(&passive.queue_pair, &answer)
            };
            assert_eq!(connecting.wait(), 0);
            let seen = connector.data();
            assert_eq!((seen.inbound_reads, seen.outbound_reads), (2, 4), "the lesser of both sides");
            assert_eq!(seen.private_data[..8], *b"answered");
            assert_eq!(connector.begin_complete_connect().wait(), 0);
            assert_eq!(accepting.wait(), 0);
        }
    });
}

fn zones_of_a_shared_endpoint_and_of_a_source() {
    let [near, peer] = [1, 2].map(|host| Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, host));
    let adapters = [near, peer].map(|ip| AdapterSetup { addresses: vec![ip.into()], keywords: Vec::new() }).to_vec();
    with_machine(&Setup { adapters, ..Setup::default() }, |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let [zone, other] = [0, 1].map(|index| machine.adapters[index].if_index());
        let address = |ip, port, zone| SocketAddr::V6(SocketAddrV6::new(ip, port, 0, zone));
        let refused = SharedEndpoint::new(&first, address(near, 91, other)).err();
        assert_eq!(refused, Some(STATUS_INVALID_ADDRESS), "a zone of another interface");
        let endpoint = SharedEndpoint::new(&first, address(near, 91, zone)).expect("an endpoint");
        assert_eq!(endpoint.local_address(), address(near, 91, zone));
        let listener = Listener::new(&second).expect("a listener");
        assert_eq!(listener.listen(address(peer, 80, zone)), STATUS_INVALID_ADDRESS, "a zone of another interface");
        assert_eq!(listener.listen(address(peer, 80, other)), 0);
        let (active, connector) = (End::new(&first, QueuePairShape::default()), Connector::new(&first));
        let connector = connector.expect("a connector");
        let (from, to) = (address(near, 92, other), address(peer, 80, zone));
        let refused = connector.begin_connect(&active.queue_pair, from, to, &Offer::default()).wait();
        assert_eq!(refused, STATUS_INVALID_ADDRESS, "a zone of another interface");
    });
}

fn requests_carry_what_they_were_posted_with() {
    with_scene(QueuePairShape { context: 0x00C0_FFEE_0001, ..QueuePairShape::default() }, |scene| {
        let (active, passive) = (scene.queue_pair(), &scene.pair.passive.queue_pair);
        assert_eq!(passive.receive(0x1111_2222_3333, &[scene.peer.sge(5000..5010), scene.peer.sge(6000..6090)]), 0);
        let sent = [scene.near.sge(100..170), scene.near.sge(300..330)];
        assert_eq!(active.send(0x2222_3333_4444, &sent, NONE), 0);
        let received = scene.pair.passive.receive.wait_for_one();
        assert_eq!((done(&received), received.BytesTransferred), (0x1111_2222_3333, 100));
        assert_eq!(received.Type, NdkOperationTypeReceive);
        let (source, sink) = (scene.near.buffer.to_vec(), scene.peer.buffer.to_vec());
        assert_eq!(sink[5000..5010], source[100..110]);
        assert_eq!(sink[6000..6060], source[110..170]);
        assert_eq!(sink[6060..6090], source[300..330]);
        assert_eq!(active.write(0x3333_4444_5555, &[scene.near.sge(40..47)], scene.peer.remote(1003), NONE), 0);
        assert_eq!(active.read(0x4444_5555_6666, &[scene.near.sge(7000..7013)], scene.peer.remote(2005), NONE), 0);
        let expected = [
            (0x2222_3333_4444, NdkOperationTypeSend),
            (0x3333_4444_5555, NdkOperationTypeWrite),
            (0x4444_5555_6666, NdkOperationTypeRead),
        ];
        let results = scene.pair.active.initiator.wait_for(3);
        let seen = results.iter().map(|result| (done(result), result.Type)).collect::<Vec<_>>();
        assert_eq!(seen, expected);
        assert!(results.iter().all(|result| result.QPContext as usize == 0x00C0_FFEE_0001));
        let (near, peer) = (scene.near.buffer.to_vec(), scene.peer.buffer.to_vec());
        assert_eq!(peer[1003..1010], near[40..47]);
        assert_eq!(near[7000..7013], peer[2005..2018]);
    });
}

/// What posts one request of a kind, with a context and flags.
type Post<'a> = Box<dyn Fn(u64, NDK_OP_FLAGS) -> i32 + 'a>;

/// Runs a trial with each kind of initiator request. Each can be posted twice: the second undoes the first.
fn each_kind(trial: impl Fn(&Scene<'_>, &str, &Post<'_>, &Post<'_>)) {
    with_scene(QueuePairShape { inline_size: 16, ..QueuePairShape::default() }, |scene| {
        let (active, passive) = (scene.queue_pair(), &scene.pair.passive.queue_pair);
        let domain = &scene.pair.active.domain;
        let receive = || assert_eq!(passive.receive(900, &[scene.peer.sge(0..64)]), 0);
        let send: Post<'_> = Box::new(|context, flags| {
            receive();
            active.send(context, &scene.list(1), flags)
        });
        trial(scene, "Send", &send, &send);
        let read: Post<'_> =
            Box::new(|context, flags| active.read(context, &scene.list(1), scene.peer.remote(0), flags));
        trial(scene, "Read", &read, &read);
        let write: Post<'_> =
            Box::new(|context, flags| active.write(context, &scene.list(1), scene.peer.remote(0), flags));
        trial(scene, "Write", &write, &write);
        let (window, region) =
            (MemoryWindow::new(domain).expect("a window"), scene.near.region.as_ref().expect("a region"));
        let range = (scene.near.buffer.label(), 64);
        let bind: Post<'_> = Box::new(|context, flags| {
            active.bind(context, region.object(), window.object(), range, flags | NDK_OP_FLAG_ALLOW_REMOTE_READ)
        });
        let invalidate: Post<'_> = Box::new(|context, flags| active.invalidate(context, window.object(), flags));
        trial(scene, "Bind, Invalidate", &bind, &invalidate);
        let buffer = Buffer::scattered(4096);
        let mapping = Mapping::build(scene.pair.active.adapter, &buffer).expect("a mapping");
        let fast = domain.fast_region(mapping.pages().len() as u32, true);
        let registration = FastRegistration {
            pages: mapping.pages(),
            first_byte_offset: mapping.first_byte_offset(),
            length: buffer.length(),
            base: buffer.label(),
        };
        let register: Post<'_> =
            Box::new(|context, flags| active.fast_register(context, fast.object(), &registration, flags));
        let end: Post<'_> = Box::new(|context, flags| active.invalidate(context, fast.object(), flags));
        trial(scene, "FastRegister, Invalidate", &register, &end);
        // The peer's registration, which the request ends, is made anew for each.
        let far = Buffer::scattered(4096);
        let mapping_of_peer = Mapping::build(scene.pair.passive.adapter, &far).expect("a mapping");
        let theirs = scene.pair.passive.domain.fast_region(mapping_of_peer.pages().len() as u32, true);
        let send_and_invalidate: Post<'_> = Box::new(|context, flags| {
            receive();
            let rights = NDK_OP_FLAG_ALLOW_REMOTE_READ;
            conformance::consumer::register_fast(&scene.pair.passive, &theirs, &mapping_of_peer, &far, rights);
            active.send_and_invalidate(context, &scene.list(1), flags, theirs.remote_token())
        });
        trial(scene, "SendAndInvalidate, Send", &send_and_invalidate, &send);
        theirs.close();
        fast.close();
        window.close();
    });
}

fn silent_success_alone() {
    each_kind(|scene, name, first, second| {
        assert_eq!(first(0x71, SILENT), 0, "{name}");
        assert!(scene.done().is_empty(), "{name}");
        assert_eq!(second(0x72, SILENT), 0, "{name}");
        assert!(scene.done().is_empty(), "{name}");
        assert_eq!(first(0x73, NONE), 0, "{name}");
        assert_eq!(second(0x74, NONE), 0, "{name}");
        assert_eq!(scene.done(), [0x73, 0x74], "{name}");
        scene.pair.passive.receive.take(64);
    });
}

/// A request with the flag stays where it is until one without it follows.
fn deferred_alone() {
    each_kind(|scene, name, first, second| {
        assert_eq!(first(0x81, NDK_OP_FLAG_DEFER), 0, "{name}");
        let mut done = scene.done();
        assert_eq!(second(0x82, NDK_OP_FLAG_DEFER), 0, "{name}");
        done.extend(scene.done());
        // What comes from the peer has a queue pair look at its requests.
        assert!(done.is_empty() || peers::across_streams(), "{name}");
        assert_eq!(scene.queue_pair().write(0x83, &[], scene.peer.remote(0), NONE), 0, "{name}");
        done.extend(scene.done());
        assert_eq!(done, [0x81, 0x82, 0x83], "{name}");
        scene.pair.passive.receive.take(64);
    });
}

/// The token means nothing, and the bytes are those of the call.
fn inline_alone() {
    with_scene(QueuePairShape { inline_size: 16, ..QueuePairShape::default() }, |scene| {
        let (active, passive) = (scene.queue_pair(), &scene.pair.passive.queue_pair);
        let inline = |bytes: &mut [u8]| NDK_SGE {
            Address: NDK_SGE_ADDRESS { VirtualAddress: bytes.as_mut_ptr().cast() },
            Length: bytes.len() as u32,
            MemoryRegionToken: 0x0BAD_0BAD,
        };
        for (round, seed) in [(0_usize, 0x31_u8), (1, 0x41), (2, 0x51)] {
            let mut bytes: Vec<u8> = (0..9).map(|index| seed + index).collect();
            let list = [inline(&mut bytes)];
            let place = 1000 * (round + 1);
            if round == 0 {
                assert_eq!(active.write(1, &list, scene.peer.remote(place), NDK_OP_FLAG_INLINE), 0);
            } else {
                assert_eq!(passive.receive(2, &[scene.peer.sge(place..place + 16)]), 0);
                assert_eq!(active.send(3, &list, NDK_OP_FLAG_INLINE), 0);
            }
            bytes.fill(0);
            assert_eq!(scene.done().len(), 1);
            let expected: Vec<u8> = (0..9).map(|index| seed + index).collect();
            assert_eq!(scene.peer.buffer.to_vec()[place..place + 9], expected);
        }
    });
}

fn solicited_alone() {
    with_scene(QueuePairShape::default(), |scene| {
        let (active, passive) = (scene.queue_pair(), &scene.pair.passive);
        let far = Buffer::scattered(4096);
        let mapping = Mapping::build(passive.adapter, &far).expect("a mapping");
        let theirs = passive.domain.fast_region(mapping.pages().len() as u32, true);
        for (flags, notified) in [(NONE, 0), (NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT, 1)] {
            for with_invalidate in [false, true] {
                if with_invalidate {
                    conformance::consumer::register_fast(
                        passive,
                        &theirs,
                        &mapping,
                        &far,
                        NDK_OP_FLAG_ALLOW_REMOTE_READ,
                    );
                }
                let before = passive.receive.notification_count();
                passive.receive.arm(NDK_CQ_NOTIFY_SOLICITED);
                assert_eq!(passive.queue_pair.receive(1, &[scene.peer.sge(0..64)]), 0);
                let posted = if with_invalidate {
                    active.send_and_invalidate(2, &scene.list(1), flags, theirs.remote_token())
                } else {
                    active.send(2, &scene.list(1), flags)
                };
                assert_eq!(posted, 0);
                wait_until_idle();
                assert_eq!(passive.receive.notification_count() - before, notified, "{flags:?}");
                assert_eq!((passive.receive.take(4).len(), scene.done()), (1, vec![2]));
            }
        }
        theirs.close();
        drop(mapping);
    });
}

/// Which accesses memory allows: what the peer reads, what it writes, what a Receive may fill.
fn allows(scene: &Scene<'_>, memory: &Window<'_>, access: &str) -> bool {
    let (active, passive) = (scene.queue_pair(), &scene.pair.passive);
    let posted = match access {
        "read" => active.read(1, &scene.list(1), memory.remote(0), NONE),
        "write" => active.write(1, &scene.list(1), memory.remote(0), NONE),
        _ => {
            assert_eq!(passive.queue_pair.receive(2, &[memory.sge(0..64)]), 0);
            active.send(1, &scene.list(1), NONE)
        }
    };
    assert_eq!(posted, 0);
    scene.pair.active.initiator.wait_for_one().Status == 0 && peers::stands(&scene.pair.active)
}

const ACCESSES: [&str; 3] = ["read", "write", "receive"];

fn each_right_of_a_registration_alone() {
    let table = [
        (NDK_MR_FLAG_ALLOW_REMOTE_READ, [true, false, false]),
        (NDK_MR_FLAG_ALLOW_LOCAL_WRITE, [false, false, true]),
        (NDK_MR_FLAG_ALLOW_REMOTE_WRITE, [false, true, true]),
    ];
    with_two_adapters(|first, second| {
        for (flags, allowed) in table {
            for (access, allowed) in ACCESSES.into_iter().zip(allowed) {
                // An access that is not allowed ends the connection.
                let scene = Scene::of(Pair::connect(first, second));
                let buffer = Buffer::scattered(4096);
                let region = scene.pair.passive.domain.register(&buffer, flags);
                let memory = Window::of_region(buffer, region);
                assert_eq!(allows(&scene, &memory, access), allowed, "{access} with {flags:?}");
            }
        }
    });
}

fn each_right_of_a_fast_registration_alone() {
    let table = [
        (NDK_OP_FLAG_ALLOW_REMOTE_READ, [true, false, false]),
        (NDK_OP_FLAG_ALLOW_LOCAL_WRITE, [false, false, true]),
        (NDK_OP_FLAG_ALLOW_REMOTE_WRITE, [false, true, true]),
    ];
    with_two_adapters(|first, second| {
        for (flags, allowed) in table {
            for (access, allowed) in ACCESSES.into_iter().zip(allowed) {
                let scene = Scene::of(Pair::connect(first, second));
                let kind = WindowKind::FastRegistered;
                let memory = Window::open_with(&scene.pair.passive, Buffer::scattered(4096), kind, flags);
                assert_eq!(allows(&scene, &memory, access), allowed, "{access} with {flags:?}");
            }
        }
    });
}

fn a_read_that_closes_its_sink() {
    with_scene(QueuePairShape::default(), |scene| {
        let kind = WindowKind::FastRegistered;
        let sink = Window::open(&scene.pair.active, Buffer::scattered(4096), kind);
        let flag = NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE;
        assert_eq!(scene.queue_pair().read(5, &[sink.sge(0..64)], scene.peer.remote(0), flag), 0);
        assert_eq!(scene.done(), [5]);
        assert_eq!(scene.queue_pair().read(6, &[sink.sge(0..64)], scene.peer.remote(0), NONE), 0);
        assert!(scene.pair.active.initiator.wait_for_one().Status != 0, "the sink is closed");
    });
}

/// Each waits for a long Read: what sends its last bytes, and what takes its sink away.
fn fence_alone() {
    with_two_adapters(|first, second| {
        let long = first.fit_fast(2 << 20);
        let pair = Pair::connect(first, second);
        let contiguous = || Buffer::new(long, 0, kernel_host::FrameOrder::Contiguous);
        let source = Window::open(&pair.passive, contiguous(), WindowKind::Registered);
        let target = Window::open(&pair.passive, Buffer::scattered(4096), WindowKind::Registered);
        source.buffer.fill_with_seed(5);
        let (queue_pair, fence) = (&pair.active.queue_pair, NDK_OP_FLAG_READ_FENCE);
        let theirs = pair.passive.domain.fast_region(1, true);
        let small = Buffer::new(64, 0, kernel_host::FrameOrder::Contiguous);
        let mapping = Mapping::build(second, &small).expect("a mapping");
        for kind in ["Write", "Send", "SendAndInvalidate", "Invalidate"] {
            let sink = Window::open(&pair.active, contiguous(), WindowKind::FastRegistered);
            sink.buffer.fill_with_seed(6);
            let token = theirs.remote_token();
            if kind == "SendAndInvalidate" {
                let rights = NDK_OP_FLAG_ALLOW_REMOTE_READ;
                conformance::consumer::register_fast(&pair.passive, &theirs, &mapping, &small, rights);
            }
            if kind.starts_with("Send") {
                assert_eq!(pair.passive.queue_pair.receive(9, &[target.sge(0..4096)]), 0);
            }
            assert_eq!(queue_pair.read(1, &[sink.sge(0..long)], source.remote(0), NONE), 0);
            let end = [sink.sge(long - 4096..long)];
            let posted = match kind {
                "Write" => queue_pair.write(2, &end, target.remote(0), fence),
                "Send" => queue_pair.send(2, &end, fence),
                "SendAndInvalidate" => queue_pair.send_and_invalidate(2, &end, fence, token),
                _ => queue_pair.invalidate(2, sink.region.as_ref().expect("a region").object(), fence),
            };
            assert_eq!(posted, 0, "{kind}");
            let results = pair.active.initiator.wait_for(2);
            assert_eq!(results.iter().map(done).collect::<Vec<_>>(), [1, 2], "{kind}");
            let sent = source.buffer.to_vec();
            assert!(sink.buffer.to_vec() == sent, "{kind}: the whole Read");
            if kind != "Invalidate" {
                assert!(target.buffer.to_vec()[..] == sent[long - 4096..], "{kind}: the bytes of the Read");
            }
            target.buffer.fill_with_seed(8);
            pair.passive.receive.take(4);
        }
        theirs.close();
        drop(mapping);
    });
}

/// Each queue prefers another processor than the caller's, and than the other queue's.
fn preferred_processors() {
    let setup = Setup { kernel: KernelConfig { processors: 4, ..Setup::default().kernel }, ..Setup::default() };
    with_machine(&setup, |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let on = |processor: u32| GROUP_AFFINITY { Mask: 1 << processor, ..GROUP_AFFINITY::default() };
        for (of_queue, of_shared) in [(1, 3), (2, 1), (3, 2)] {
            let (active, mut passive) =
                (End::new(&first, QueuePairShape::default()), End::new(&second, QueuePairShape::default()));
            let home = End::new(&second, QueuePairShape::default());
            let receive = CompletionQueue::near(&second, 8, on(of_queue)).expect("a completion queue");
            let shape = SharedShape { depth: 4, sges: 1, threshold: 2, silent: false };
            let shared = SharedReceiveQueue::near(&home.domain, shape, on(of_shared)).expect("a shared queue");
            let queue_pair =
                QueuePair::with_shared(&home.domain, &receive, &passive.initiator, &shared, QueuePairShape::default());
            passive.queue_pair = queue_pair.expect("a queue pair");
            passive.receive = receive;
            let pair = Pair::join(active, passive, first.address(), second.address());
            let seen = Arc::new(AtomicUsize::new(usize::MAX));
            let inside = Arc::clone(&seen);
            let queue = &pair.passive.receive;
            queue.on_notification(move || inside.store(Thread::current().processor(), Ordering::Release));
            queue.arm(NDK_CQ_NOTIFY_ANY);
            assert_eq!((shared.receive(1, &[]), shared.receive(2, &[])), (0, 0));
            assert_eq!(shared.modify(0, 2), 0, "a new queue is not armed");
            assert_eq!(pair.active.queue_pair.send(3, &[], NONE), 0);
            wait_until_idle();
            assert_eq!(seen.load(Ordering::Acquire), of_queue as usize, "the completion queue's");
            assert_eq!(shared.notification_processor(), of_shared as usize, "the shared receive queue's");
            assert_eq!(queue.take(4).len(), 1);
            drop(pair);
            shared.close();
            drop(home);
        }
    });
}

/// The numbers of docs/limits.md. What is alike in one profile differs in the other, but for the fields that are alike in all.
fn every_limit_stands_in_its_field() {
    let card = NDK_ADAPTER_INFO {
        Version: NDK_VERSION { Major: 2, Minor: 1 },
        VendorId: 0x00FF_FFFF,
        DeviceId: 1,
        MaxRegistrationSize: 4_294_963_200,
        MaxWindowSize: 4_294_963_200,
        FRMRPageCount: 512,
        MaxInitiatorRequestSge: 32,
        MaxReceiveRequestSge: 32,
        MaxReadRequestSge: 32,
        MaxTransferLength: 1 << 30,
        MaxInlineDataSize: 256,
        MaxInboundReadLimit: 16,
        MaxOutboundReadLimit: 128,
        MaxReceiveQueueDepth: 16_351,
        MaxInitiatorQueueDepth: 16_351,
        MaxSrqDepth: 16_351,
        MaxCqDepth: 4_194_303,
        LargeRequestThreshold: 4096,
        MaxCallerData: 56,
        MaxCalleeData: 148,
        AdapterFlags: NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED
            | NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED
            | NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED
            | NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED
            | NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED
            | NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED
            | NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED,
        RdmaTechnology: NdkiWarp,
    };
    let tiny = NDK_ADAPTER_INFO {
        MaxRegistrationSize: 4 << 20,
        MaxWindowSize: 4 << 20,
        FRMRPageCount: 16,
        MaxInitiatorRequestSge: 4,
        MaxReceiveRequestSge: 4,
        MaxReadRequestSge: 2,
        MaxTransferLength: 2 << 20,
        MaxInlineDataSize: 16,
        MaxInboundReadLimit: 1,
        MaxOutboundReadLimit: 1,
        MaxReceiveQueueDepth: 64,
        MaxInitiatorQueueDepth: 64,
        MaxSrqDepth: 64,
        MaxCqDepth: 256,
        MaxCallerData: 16,
        MaxCalleeData: 16,
        RdmaTechnology: NdkRoCEv2,
        ..card
    };
    let mut setup = Setup::default();
    for (adapter, (profile, technology)) in setup.adapters.iter_mut().zip([("0", "1"), ("2", "4")]) {
        adapter.keywords.extend([("LimitsProfile", profile), ("*NetworkDirectTechnology", technology)]);
    }
    with_machine(&setup, |machine| {
        for (index, expected) in [card, tiny].iter().enumerate() {
            let info = machine.open(index).info();
            assert_eq!(format!("{info:#?}"), format!("{expected:#?}"));
        }
    });
}

/// A receive that invalidated, a Send, and a Read that is refused, each taken by both functions.
fn both_forms_of_a_result_have_each_value_in_its_place() {
    const CONTEXT: usize = 0x0CAF_E123_4567;
    let plain = |queue: &CompletionQueue| {
        let results = queue.take_plain(3);
        assert_eq!(results.len(), 1, "{results:?}");
        NDK_RESULT_EX {
            Status: results[0].Status,
            BytesTransferred: results[0].BytesTransferred,
            QPContext: results[0].QPContext,
            RequestContext: results[0].RequestContext,
            ..NDK_RESULT_EX::zeroed()
        }
    };
    with_two_adapters(|first, second| {
        for plainly in [false, true] {
            let shape = QueuePairShape { context: CONTEXT, ..QueuePairShape::default() };
            let scene = Scene::of(Pair::connect_with(first, second, shape));
            let (active, passive) = (&scene.pair.active, &scene.pair.passive);
            let take = |queue: &CompletionQueue| {
                wait_until_idle();
                let result = if plainly { plain(queue) } else { queue.wait_for_one() };
                assert_eq!(result.QPContext as usize, CONTEXT, "{result:?}");
                result
            };
            let victim = Window::open(passive, Buffer::scattered(4096), WindowKind::FastRegistered);
            let token = victim.remote_token();
            assert_eq!(passive.queue_pair.receive(0x1234_5678_9ABC, &[scene.peer.sge(0..64)]), 0);
            let message = [scene.near.sge(0..37)];
            assert_eq!(active.queue_pair.send_and_invalidate(0x2345_6789_ABCD, &message, NONE, token), 0);
            let received = take(&passive.receive);
            assert_eq!((done(&received), received.BytesTransferred), (0x1234_5678_9ABC, 37));
            let sent = take(&active.initiator);
            assert_eq!(done(&sent), 0x2345_6789_ABCD);
            let remote = scene.peer.remote(0);
            let unknown = Remote { token: remote.token ^ 0x0055_5500, ..remote };
            assert_eq!(active.queue_pair.read(0x3456_789A_BCDE, &[scene.near.sge(0..41)], unknown, NONE), 0);
            let refused = take(&active.initiator);
            assert_eq!((refused.Status, refused.RequestContext as usize), (STATUS_REMOTE_RESOURCES, 0x3456_789A_BCDE));
            if !plainly {
                let kinds = [received, sent, refused].map(|result| result.Type);
                let expected = [NdkOperationTypeReceiveAndInvalidate, NdkOperationTypeSend, NdkOperationTypeRead];
                assert_eq!(kinds, expected);
                let outputs = [received, sent, refused].map(|result| result.TypeSpecificCompletionOutput);
                assert_eq!(outputs, [token as usize, 0, 0]);
                assert_eq!([received, sent].map(|result| result.ProviderErrorCode), [0, 0]);
            }
        }
    });
}
