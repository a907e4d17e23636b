//! Objects of several opens of one adapter: a trial for each row of the table in `docs/rules.md`, and both orders of closing
//! the opens. A consumer may hold one open for each of its sockets.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use conformance::case;
use conformance::consumer::{
    Adapter, Buffer, CompletionQueue, Connector, End, FastRegistration, Listener, Mapping, MemoryWindow, Offer, Pair,
    ProtectionDomain, QueuePair, QueuePairShape, Remote, SharedEndpoint, SharedReceiveQueue, SharedShape, Started,
    Window, WindowKind, establish,
};
use conformance::machine::{Machine, Setup, concurrently, wait_until_idle, with_machine};
use conformance::peers;
use conformance::trial::Case;
use ndkpi_sys::ndkinfo::NDK_VERSION;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::*;

pub const CASES: &[Case] = &[
    case!(queue_pair_on_completion_queues_of_other_opens: "NDK-OPEN-8", "NDK-CQ-17"),
    case!(shared_receives_stay_in_their_domain: "NDK-OPEN-9"),
    case!(connector_connects_a_queue_pair_of_another_open: "NDK-OPEN-10", "NDK-CLOSE-10"),
    case!(connector_shares_an_endpoint_of_a_third_open: "NDK-OPEN-11", "NDK-CLOSE-12"),
    case!(arrived_connector_accepts_with_a_queue_pair_of_another_open: "NDK-OPEN-12", "NDK-CM-41"),
    case!(arrived_connector_is_of_its_listeners_open: "NDK-OPEN-13"),
    case!(privileged_token_reaches_the_mappings_of_every_open: "NDK-OPEN-14"; not in scattered),
    case!(pages_of_another_open_are_fast_registered: "NDK-OPEN-15"),
    case!(mapping_is_released_through_any_open: "NDK-OPEN-16", "NDK-LAM-8"),
    case!(mapping_goes_with_the_open_that_built_it: "NDK-OPEN-17", "NDK-CLOSE-15"),
    case!(domains_of_two_opens_are_two_domains: "NDK-OPEN-18", "NDK-QP-37", "NDK-MR-5"),
    case!(ports_are_the_adapters: "NDK-OPEN-19"),
    case!(objects_of_two_adapters_do_not_work_together: "NDK-OPEN-20"),
    case!(the_open_of_the_connector_closes_first: "NDK-OPEN-21", "NDK-OPEN-5"),
    case!(the_open_of_the_queue_pair_closes_first: "NDK-OPEN-21", "NDK-OPEN-5"),
    case!(opens_closed_over_each_others_objects_close_with_the_last: "NDK-OPEN-21", "NDK-CLOSE-2"),
    case!(one_open_for_each_socket: "NDK-OPEN-10", "NDK-OPEN-12", "NDK-OPEN-4"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
const LENGTH: usize = 10_000;

/// A machine and so many opens of each of its adapters; every other one asks for the oldest version.
fn with_opens(count: usize, trial: impl FnOnce(&Machine, &[Adapter], &[Adapter])) {
    with_machine(&Setup::default(), |machine| {
        let open = |index| (0..count).map(|number| open(machine, index, number)).collect::<Vec<_>>();
        trial(machine, &open(0), &open(1));
    });
}

fn open(machine: &Machine, index: usize, number: usize) -> Adapter {
    let version = [NDK_VERSION { Major: 2, Minor: 0 }, NDK_VERSION { Major: 1, Minor: 0 }][number % 2];
    machine.try_open(index, version).expect("an open")
}

fn queue(adapter: &Adapter) -> CompletionQueue {
    CompletionQueue::new(adapter, 32).expect("a completion queue")
}

fn domain(adapter: &Adapter) -> ProtectionDomain {
    ProtectionDomain::new(adapter).expect("a protection domain")
}

/// A queue pair whose domain, completion queues and later connector or listener (and mappings) are of opens of their own.
fn end_of([pair, receive, initiator, rest]: [&Adapter; 4]) -> End<'_> {
    let (domain, receive, initiator) = (domain(pair), queue(receive), queue(initiator));
    let queue_pair = QueuePair::new(&domain, &receive, &initiator, QueuePairShape::default());
    End { connector: None, queue_pair: queue_pair.expect("a queue pair"), initiator, receive, domain, adapter: rest }
}

/// Everything of one open, but for what takes part in connecting.
fn end_across<'a>(pair: &'a Adapter, connector: &'a Adapter) -> End<'a> {
    end_of([pair, pair, pair, connector])
}

fn join<'a>(active: End<'a>, passive: End<'a>) -> Pair<'a> {
    let (from, to) = (active.adapter.address(), passive.adapter.address());
    Pair::join(active, passive, from, to)
}

fn port_zero(adapter: &Adapter) -> SocketAddr {
    SocketAddr::new(adapter.address().ip(), 0)
}

fn listening(adapter: &Adapter) -> Listener {
    let listener = Listener::new(adapter).expect("a listener");
    assert_eq!(listener.listen(port_zero(adapter)), 0);
    listener
}

/// Bytes from the active end's memory into the passive one's and back, by Write, Read and Send.
fn transfer(pair: &Pair<'_>, near: &Window<'_>, peer: &Window<'_>) {
    near.buffer.fill_with_seed(1);
    assert_eq!(pair.active.queue_pair.write(1, &[near.sge(0..LENGTH)], peer.remote(0), NONE), 0);
    assert_eq!(pair.active.initiator.wait_for_one().Status, 0, "a Write");
    peer.buffer.assert_seed(1, 0..LENGTH);
    peer.buffer.fill_with_seed(2);
    assert_eq!(pair.active.queue_pair.read(2, &[near.sge(0..LENGTH)], peer.remote(0), NONE), 0);
    assert_eq!(pair.active.initiator.wait_for_one().Status, 0, "a Read");
    near.buffer.assert_seed(2, 0..LENGTH);
    near.buffer.fill_with_seed(3);
    assert_eq!(pair.passive.queue_pair.receive(4, &[peer.sge(0..LENGTH)]), 0);
    assert_eq!(pair.active.queue_pair.send(3, &[near.sge(0..LENGTH)], NONE), 0);
    assert_eq!(pair.active.initiator.wait_for_one().Status, 0, "a Send");
    assert_eq!(pair.passive.receive.wait_for_one().Status, 0, "a Receive");
    peer.buffer.assert_seed(3, 0..LENGTH);
}

fn disconnect(pair: &Pair<'_>) {
    let leaving = [&pair.active, &pair.passive].map(|end| end.connector().begin_disconnect());
    assert_eq!(leaving.map(|leaving| leaving.wait()), [0, 0]);
}

fn queue_pair_on_completion_queues_of_other_opens() {
    with_opens(3, |_, first, second| {
        let active = end_of([&first[0], &first[1], &first[2], &first[0]]);
        let passive = end_of([&second[0], &second[1], &second[1], &second[0]]);
        // Another queue pair, of the open that the receive queue is of.
        let (other, shape) = (domain(&first[1]), QueuePairShape { context: 0x9001, ..QueuePairShape::default() });
        let beside = QueuePair::new(&other, &active.receive, &active.initiator, shape).expect("a queue pair");
        assert_eq!(beside.receive(7, &[]), 0);
        let pair = join(active, passive);
        for end in [&pair.active, &pair.passive] {
            end.receive.arm(NDK_CQ_NOTIFY_ANY);
            end.initiator.arm(NDK_CQ_NOTIFY_ANY);
        }
        assert_eq!(pair.passive.queue_pair.receive(1, &[]), 0);
        assert_eq!(pair.active.queue_pair.send(2, &[], NONE), 0);
        for (queue, request) in [(&pair.active.initiator, 2), (&pair.passive.receive, 1)] {
            assert!(queue.wait_for_notification());
            let result = queue.wait_for_one();
            assert_eq!((result.Status, result.RequestContext as u64, result.QPContext.addr()), (0, request, 0x9000));
        }
        beside.flush();
        let result = pair.active.receive.wait_for_one();
        assert_eq!((result.Status, result.QPContext.addr()), (STATUS_CANCELLED, 0x9001));
        drop(beside);
    });
}

fn shared_receives_stay_in_their_domain() {
    with_opens(2, |_, first, second| {
        let within = domain(&first[0]);
        let shared = SharedReceiveQueue::new(&within, SharedShape::default()).expect("a shared receive queue");
        let shape = QueuePairShape::default();
        // The completion queues may be of any open, the domain may not be another: not one of the same open either.
        let (receive, initiator) = (queue(&first[0]), queue(&first[1]));
        for other in [domain(&first[0]), domain(&first[1])] {
            let refused = QueuePair::with_shared(&other, &receive, &initiator, &shared, shape);
            assert_eq!(refused.err(), Some(STATUS_INVALID_PARAMETER));
        }
        let queue_pair = QueuePair::with_shared(&within, &receive, &initiator, &shared, shape).expect("a queue pair");
        let passive =
            End { connector: None, queue_pair, initiator, receive, domain: domain(&first[1]), adapter: &first[1] };
        let pair = join(end_across(&second[0], &second[1]), passive);
        assert_eq!(shared.receive(5, &[]), 0);
        assert_eq!(pair.active.queue_pair.send(6, &[], NONE), 0);
        let result = pair.passive.receive.wait_for_one();
        assert_eq!((result.Status, result.RequestContext as u64), (0, 5));
        drop(pair);
        drop(shared);
    });
}

fn connector_connects_a_queue_pair_of_another_open() {
    with_opens(2, |_, first, second| {
        for (pair, connector) in [(0, 1), (1, 0)] {
            let active = end_across(&first[pair], &first[connector]);
            let pair = join(active, end_across(&second[0], &second[0]));
            let near = Window::open(&pair.active, Buffer::scattered(LENGTH), WindowKind::Registered);
            let peer = Window::open(&pair.passive, Buffer::scattered(LENGTH), WindowKind::Registered);
            transfer(&pair, &near, &peer);
            // The queue pair belongs to the connector, whatever open either is of.
            let closing = pair.active.queue_pair.object().begin_close();
            wait_until_idle();
            assert!(!closing.is_done(), "the queue pair closed before its connector");
            pair.active.connector().close();
            closing.wait();
        }
        // An attempt that comes to nothing leaves both usable.
        let (active, connector) = (end_across(&first[0], &first[1]), Connector::new(&first[1]).expect("a connector"));
        let listener = listening(&second[0]);
        let connect = || {
            let to = listener.local_address();
            connector.begin_connect(&active.queue_pair, port_zero(&first[1]), to, &Offer::default())
        };
        let refused = connect();
        assert_eq!(listener.next().reject(&[]), 0);
        assert_eq!(refused.wait(), STATUS_CONNECTION_REFUSED);
        let again = connect();
        let passive = end_across(&second[1], &second[0]);
        let arrived = listener.next();
        let accepting = arrived.begin_accept(&passive.queue_pair, &Offer::default());
        assert_eq!(again.wait(), 0);
        assert_eq!(connector.begin_complete_connect().wait(), 0);
        assert_eq!(accepting.wait(), 0);
        drop((connector, arrived));
    });
}

fn connector_shares_an_endpoint_of_a_third_open() {
    with_opens(3, |_, first, second| {
        let endpoint = SharedEndpoint::new(&first[2], port_zero(&first[2])).expect("a shared endpoint");
        let listeners = [listening(&second[0]), listening(&second[1])];
        let actives: Vec<_> = (0..2).map(|_| end_across(&first[0], &first[1])).collect();
        let connect = |active: &End<'_>, listener: &Listener| -> (Connector, Started) {
            let connector = Connector::new(active.adapter).expect("a connector");
            let to = listener.local_address();
            let started = connector.begin_connect_shared(&active.queue_pair, &endpoint, to, &Offer::default());
            (connector, started)
        };
        let mut kept = Vec::new();
        for (active, listener) in actives.iter().zip(&listeners) {
            let passive = end_across(&second[2], &second[0]);
            let (near, connecting) = connect(active, listener);
            let peer = listener.next();
            let from = [peer.peer_address(), endpoint.local_address()].map(peers::without_port);
            assert_eq!(from[0], from[1]);
            let accepting = peer.begin_accept(&passive.queue_pair, &Offer::default());
            assert_eq!(connecting.wait(), 0);
            assert_eq!(near.begin_complete_connect().wait(), 0);
            assert_eq!(accepting.wait(), 0);
            kept.push((near, peer, passive));
        }
        let more = end_across(&first[0], &first[1]);
        let (again, connecting) = connect(&more, &listeners[1]);
        assert_eq!(
            connecting.wait(),
            STATUS_ADDRESS_ALREADY_EXISTS,
            "each remote is connected once, from whatever open"
        );
        drop(again);
        // The endpoint goes with the last connector over it.
        let closing = endpoint.object().begin_close();
        kept.pop();
        wait_until_idle();
        assert!(!closing.is_done(), "the endpoint closed under a connector of another open");
        kept.clear();
        closing.wait();
    });
}

fn arrived_connector_accepts_with_a_queue_pair_of_another_open() {
    with_opens(2, |_, first, second| {
        for extended in [false, true] {
            for (pair, listener) in [(0, 1), (1, 0)] {
                let (active, passive) =
                    (end_across(&first[0], &first[0]), end_across(&second[pair], &second[listener]));
                let listener = listening(passive.adapter);
                let near = Connector::new(&first[0]).expect("a connector");
                let to = listener.local_address();
                let connecting = near.begin_connect(&active.queue_pair, port_zero(&first[0]), to, &Offer::default());
                let peer = listener.next();
                let accepting = if extended {
                    peer.begin_accept_ex(&passive.queue_pair, &Offer::default())
                } else {
                    peer.begin_accept(&passive.queue_pair, &Offer::default())
                };
                assert_eq!(connecting.wait(), 0);
                assert_eq!(near.begin_complete_connect().wait(), 0);
                assert_eq!(accepting.wait(), 0);
                assert_eq!(active.queue_pair.receive(1, &[]), 0);
                assert_eq!(passive.queue_pair.send(2, &[], NONE), 0);
                assert_eq!([&passive.initiator, &active.receive].map(|queue| queue.wait_for_one().Status), [0, 0]);
                let leaving = near.begin_disconnect();
                assert!(peer.wait_for_disconnect());
                assert_eq!(peer.disconnect_reason(), u32::from(extended));
                assert_eq!(peer.begin_disconnect().wait(), 0);
                assert_eq!(leaving.wait(), 0);
            }
        }
    });
}

fn arrived_connector_is_of_its_listeners_open() {
    with_machine(&Setup::default(), |machine| {
        let (active, other) = (open(machine, 0, 0), open(machine, 1, 0));
        // The oldest version, which the connector must carry.
        let listening_open = open(machine, 1, 1);
        let (near, passive) = (end_across(&active, &active), end_across(&other, &other));
        let listener = listening(&listening_open);
        let from = (&active, &near.queue_pair, port_zero(&active));
        let connection = establish(from, (&listener, &passive.queue_pair), &Offer::default());
        let (connector, arrived) = connection.expect("a connection");
        assert_eq!(arrived.object().version(), listening_open.version());
        let stopping = listener.object().begin_close();
        let closed = AtomicBool::new(false);
        concurrently(
            machine,
            || {
                wait_until_idle();
                assert!(!closed.load(Ordering::Acquire), "the listener's open closed under a connector that arrived");
                // Its own queue pair is still there, and works.
                assert_eq!(passive.queue_pair.send(1, &[], NONE), 0);
                arrived.close();
                stopping.wait();
                wait_until_idle();
                assert!(closed.load(Ordering::Acquire), "nothing is left of the listener's open");
            },
            || {
                drop(listening_open);
                closed.store(true, Ordering::Release);
            },
        );
        drop((connector, near, passive));
    });
}

fn privileged_token_reaches_the_mappings_of_every_open() {
    with_opens(3, |_, first, second| {
        // Mappings are built on the third open, the queue pair is of the first.
        let active = end_across(&first[0], &first[2]);
        let pair = join(active, end_across(&second[0], &second[1]));
        let near = Window::open(&pair.active, Buffer::scattered(LENGTH), WindowKind::Privileged);
        let peer = Window::open(&pair.passive, Buffer::scattered(LENGTH), WindowKind::Registered);
        transfer(&pair, &near, &peer);
        // A mapping of another adapter is no memory of this one.
        let foreign = Buffer::scattered(LENGTH);
        let mapping = Mapping::build(&second[0], &foreign).expect("a mapping");
        let token = pair.active.domain.privileged_token();
        let sge = conformance::consumer::sge(mapping.address_of(0), 100, token);
        assert_eq!(pair.active.queue_pair.write(9, &[sge], peer.remote(0), NONE), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, STATUS_ACCESS_VIOLATION);
    });
}

fn pages_of_another_open_are_fast_registered() {
    with_opens(3, |_, first, second| {
        let pair = join(end_across(&first[0], &first[2]), end_across(&second[1], &second[0]));
        let near = Window::open(&pair.active, Buffer::scattered(LENGTH), WindowKind::FastRegistered);
        let peer = Window::open(&pair.passive, Buffer::scattered(LENGTH), WindowKind::FastRegistered);
        transfer(&pair, &near, &peer);
        // Pages of two opens in one registration.
        let halves = [
            Buffer::new(4096, 0, kernel_host::FrameOrder::Scattered),
            Buffer::new(4096, 0, kernel_host::FrameOrder::Scattered),
        ];
        let mappings = [Mapping::build(&first[1], &halves[0]), Mapping::build(&first[2], &halves[1])];
        let mappings = mappings.map(|mapping| mapping.expect("a mapping"));
        let pages = [mappings[0].pages()[0], mappings[1].pages()[0]];
        let region = pair.active.domain.fast_region(2, true);
        let registration = FastRegistration { pages: &pages, first_byte_offset: 0, length: 8192, base: 0x70000 };
        let rights = NDK_OP_FLAG_ALLOW_REMOTE_READ;
        assert_eq!(pair.active.queue_pair.fast_register(8, region.object(), &registration, rights), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
        halves[0].fill_with_seed(5);
        halves[1].fill_with_seed(6);
        let remote = Remote { address: 0x70000, token: region.remote_token() };
        assert_eq!(pair.passive.queue_pair.read(9, &[peer.sge(0..8192)], remote, NONE), 0);
        assert_eq!(pair.passive.initiator.wait_for_one().Status, 0);
        let read = peer.buffer.to_vec();
        assert_eq!((&read[..4096], &read[4096..8192]), (&halves[0].to_vec()[..], &halves[1].to_vec()[..]));
    });
}

fn mapping_is_released_through_any_open() {
    with_opens(2, |_, first, second| {
        let pair = join(end_across(&first[0], &first[0]), end_across(&second[0], &second[0]));
        let peer = Window::open(&pair.passive, Buffer::scattered(LENGTH), WindowKind::Registered);
        let buffer = Buffer::scattered(LENGTH);
        let mut mapping = Mapping::build(&first[0], &buffer).expect("a mapping");
        let token = pair.active.domain.privileged_token();
        let sge = conformance::consumer::sge(mapping.address_of(0), 100, token);
        let write = || {
            assert_eq!(pair.active.queue_pair.write(1, &[sge], peer.remote(0), NONE), 0);
            pair.active.initiator.wait_for_one().Status
        };
        // An open of another adapter has nothing to release.
        mapping.release_through(&second[0]);
        assert_eq!(write(), 0);
        mapping.release_through(&first[1]);
        assert_eq!(write(), STATUS_ACCESS_VIOLATION, "the token is invalid");
        std::mem::forget(mapping);
    });
}

fn mapping_goes_with_the_open_that_built_it() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (open(machine, 0, 0), open(machine, 1, 0));
        let pair = join(end_across(&first, &first), end_across(&second, &second));
        let peer = Window::open(&pair.passive, Buffer::scattered(LENGTH), WindowKind::Registered);
        let building = open(machine, 0, 1);
        let buffer = Buffer::scattered(LENGTH);
        let mapping = Mapping::build(&building, &buffer).expect("a mapping");
        let token = pair.active.domain.privileged_token();
        let sge = conformance::consumer::sge(mapping.address_of(0), 100, token);
        assert_eq!(pair.active.queue_pair.write(1, &[sge], peer.remote(0), NONE), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
        // A consumer that forgets the mapping: nothing holds the close up, and nothing reaches the memory afterwards.
        std::mem::forget(mapping);
        drop(building);
        assert_eq!(pair.active.queue_pair.write(2, &[sge], peer.remote(0), NONE), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, STATUS_ACCESS_VIOLATION);
    });
}

fn domains_of_two_opens_are_two_domains() {
    with_opens(2, |_, first, second| {
        for other in [domain(&first[0]), domain(&first[1])] {
            let pair = join(end_across(&first[0], &first[1]), end_across(&second[0], &second[0]));
            let peer = Window::open(&pair.passive, Buffer::scattered(LENGTH), WindowKind::Registered);
            let buffer = Buffer::scattered(LENGTH);
            let rights = NDK_MR_FLAG_ALLOW_REMOTE_WRITE | NDK_MR_FLAG_ALLOW_REMOTE_READ;
            let (region, fast) = (other.register(&buffer, rights), other.fast_region(4, true));
            let window = MemoryWindow::new(&other).expect("a memory window");
            let queue_pair = &pair.active.queue_pair;
            let range = (buffer.label(), LENGTH);
            let bind = NDK_OP_FLAG_ALLOW_REMOTE_READ;
            assert_eq!(queue_pair.bind(1, region.object(), window.object(), range, bind), STATUS_INVALID_PARAMETER);
            let own = MemoryWindow::new(&pair.active.domain).expect("a memory window");
            assert_eq!(queue_pair.bind(1, region.object(), own.object(), range, bind), STATUS_INVALID_PARAMETER);
            assert_eq!(queue_pair.invalidate(1, fast.object(), NONE), STATUS_INVALID_PARAMETER);
            assert_eq!(queue_pair.invalidate(1, window.object(), NONE), STATUS_INVALID_PARAMETER);
            let mapping = Mapping::build(&first[0], &buffer).expect("a mapping");
            let registration = FastRegistration {
                pages: mapping.pages(),
                first_byte_offset: mapping.first_byte_offset(),
                length: LENGTH,
                base: buffer.label(),
            };
            let refused = queue_pair.fast_register(1, fast.object(), &registration, bind);
            assert_eq!(refused, STATUS_INVALID_PARAMETER);
            let sge = buffer.sge(0..100, region.local_token());
            assert_eq!(queue_pair.write(2, &[sge], peer.remote(0), NONE), 0);
            assert_eq!(pair.active.initiator.wait_for_one().Status, STATUS_ACCESS_VIOLATION);
        }
    });
}

fn ports_are_the_adapters() {
    with_opens(2, |_, first, second| {
        let listener = listening(&first[0]);
        let taken = listener.local_address();
        let other = Listener::new(&first[1]).expect("a listener");
        assert_eq!(other.listen(taken), STATUS_SHARING_VIOLATION);
        assert_eq!(SharedEndpoint::new(&first[1], taken).err(), Some(STATUS_SHARING_VIOLATION));
        let (end, connector) = (end_across(&first[1], &first[1]), Connector::new(&first[1]).expect("a connector"));
        let to = listening(&second[0]);
        let connecting = connector.begin_connect(&end.queue_pair, taken, to.local_address(), &Offer::default());
        assert_eq!(connecting.wait(), STATUS_SHARING_VIOLATION);
        // A listener of one open is reached from every other one, of the same adapter too.
        let pair = join(end_across(&first[1], &first[0]), end_across(&first[0], &first[1]));
        disconnect(&pair);
    });
}

fn objects_of_two_adapters_do_not_work_together() {
    with_opens(1, |_, first, second| {
        let (first, second) = (&first[0], &second[0]);
        let (own, foreign) = (queue(first), queue(second));
        let within = domain(first);
        let shape = QueuePairShape::default();
        for (receive, initiator) in [(&foreign, &own), (&own, &foreign)] {
            let refused = QueuePair::new(&within, receive, initiator, shape);
            assert_eq!(refused.err(), Some(STATUS_INVALID_PARAMETER));
        }
        let (here, there) = (end_across(first, first), end_across(second, second));
        let listener = listening(second);
        let to = listener.local_address();
        let connector = Connector::new(first).expect("a connector");
        let offer = Offer::default();
        let connect = |pair: &QueuePair| connector.begin_connect(pair, port_zero(first), to, &offer).wait();
        assert_eq!(connect(&there.queue_pair), STATUS_INVALID_PARAMETER);
        let endpoint = SharedEndpoint::new(second, port_zero(second)).expect("a shared endpoint");
        let shared = connector.begin_connect_shared(&here.queue_pair, &endpoint, to, &offer);
        assert_eq!(shared.wait(), STATUS_INVALID_PARAMETER);
        // Nothing of it has stayed: the same objects connect.
        let connecting = connector.begin_connect(&here.queue_pair, port_zero(first), to, &offer);
        let arrived = listener.next();
        assert_eq!(arrived.begin_accept(&end_across(first, first).queue_pair, &offer).wait(), STATUS_INVALID_PARAMETER);
        let accepting = arrived.begin_accept(&there.queue_pair, &offer);
        assert_eq!(connecting.wait(), 0);
        assert_eq!(connector.begin_complete_connect().wait(), 0);
        assert_eq!(accepting.wait(), 0);
        drop((connector, arrived));
    });
}

/// One side of a connection over two opens, A and B: connector (or listener) and receive queue are A's, the rest is B's. It
/// borrows no open, so that these can be closed before it.
struct Across {
    connector: Option<Connector>,
    listener: Option<Listener>,
    queue_pair: QueuePair,
    receive: CompletionQueue,
    initiator: CompletionQueue,
    domain: ProtectionDomain,
}

impl Across {
    fn new(a: &Adapter, b: &Adapter) -> Self {
        let End { queue_pair, initiator, receive, domain, .. } = end_of([b, a, b, a]);
        Self { connector: None, listener: None, queue_pair, receive, initiator, domain }
    }

    /// Two connected sides, the first over the two first opens.
    fn connected(opens: &[Adapter; 4]) -> [Self; 2] {
        let [mut active, mut passive] = [Self::new(&opens[0], &opens[1]), Self::new(&opens[2], &opens[3])];
        let listener = listening(&opens[2]);
        let from = (&opens[0], &active.queue_pair, port_zero(&opens[0]));
        let connection = establish(from, (&listener, &passive.queue_pair), &Offer::default());
        let (near, peer) = connection.expect("a connection");
        (active.connector, passive.connector, passive.listener) = (Some(near), Some(peer), Some(listener));
        [active, passive]
    }

    fn connector(&self) -> &Connector {
        self.connector.as_ref().expect("a connector")
    }

    /// Starts the close of everything that is of A.
    fn close_a(&self) -> Vec<Started> {
        let mut closing = vec![self.connector().object().begin_close(), self.receive.object().begin_close()];
        closing.extend(self.listener.as_ref().map(|listener| listener.object().begin_close()));
        closing
    }

    /// Starts the close of everything that is of B.
    fn close_b(&self) -> Vec<Started> {
        let [pair, queue] = [self.queue_pair.object().begin_close(), self.initiator.object().begin_close()];
        vec![pair, queue, self.domain.object().begin_close()]
    }
}

/// Opens of both adapters for [`Across::connected`].
fn four(machine: &Machine) -> [Adapter; 4] {
    [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(index, number)| open(machine, index, number))
}

/// Work that waits, so that a connection is not at rest when it is taken down.
fn leave_work(sides: &[Across; 2]) {
    for side in sides {
        assert_eq!(side.queue_pair.send(1, &[], NONE), 0, "a Send that waits for a receive");
    }
}

/// Closes the open that the objects of `first` are of, with the connection up; it must wait until those and what relies on them
/// are closed.
fn closes_over(machine: &Machine, which: usize, first: fn(&Across) -> Vec<Started>, then: fn(&Across) -> Vec<Started>) {
    let mut opens: Vec<_> = four(machine).into();
    let sides = Across::connected(opens.as_slice().try_into().expect("four opens"));
    leave_work(&sides);
    let (closing_open, side) = (opens.remove(which), &sides[which / 2]);
    let closed = AtomicBool::new(false);
    concurrently(
        machine,
        || {
            wait_until_idle();
            assert!(!closed.load(Ordering::Acquire), "an open closed over its objects");
            // What stays open goes on working while the open is being closed.
            assert_eq!(side.queue_pair.receive(9, &[]), 0);
            let its_own = first(side);
            wait_until_idle();
            // A queue of A under a queue pair of B; a queue pair of B under a connector of A.
            assert!(its_own.iter().any(|started| !started.is_done()), "an object closed under one of another open");
            assert!(!closed.load(Ordering::Acquire), "an open closed under an object of another one");
            let others = then(side);
            for started in its_own.iter().chain(&others) {
                started.wait();
            }
            wait_until_idle();
            assert!(closed.load(Ordering::Acquire), "nothing is left of the open");
        },
        || {
            drop(closing_open);
            closed.store(true, Ordering::Release);
        },
    );
    drop(sides);
}

fn the_open_of_the_connector_closes_first() {
    with_machine(&Setup::default(), |machine| {
        for which in [0, 2] {
            closes_over(machine, which, Across::close_a, Across::close_b);
        }
    });
}

fn the_open_of_the_queue_pair_closes_first() {
    with_machine(&Setup::default(), |machine| {
        for which in [1, 3] {
            closes_over(machine, which, Across::close_b, Across::close_a);
        }
    });
}

/// All four opens one after another by one thread, in several orders: the last object releases all of them.
fn opens_closed_over_each_others_objects_close_with_the_last() {
    with_machine(&Setup::default(), |machine| {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
            let opens = four(machine);
            let sides = Across::connected(&opens);
            leave_work(&sides);
            let mut opens = opens.map(Some);
            let left = AtomicUsize::new(4);
            concurrently(
                machine,
                || {
                    wait_until_idle();
                    assert_eq!(left.load(Ordering::Acquire), 4, "an open closed over its objects");
                    let mut closing: Vec<_> = sides.iter().flat_map(Across::close_b).collect();
                    wait_until_idle();
                    assert_eq!(left.load(Ordering::Acquire), 4, "an open closed under connectors of another");
                    closing.extend(sides.iter().flat_map(Across::close_a));
                    for started in closing {
                        started.wait();
                    }
                },
                || {
                    for which in order {
                        drop(opens[which].take());
                        left.fetch_sub(1, Ordering::AcqRel);
                    }
                },
            );
            assert_eq!(left.load(Ordering::Acquire), 0);
        }
    });
}

/// How sockets over NDK are made: an open each, a listener on one, and each accepted socket with an open of its own, closed with it.
fn one_open_for_each_socket() {
    with_machine(&Setup::default(), |machine| {
        let listening_open = open(machine, 1, 1);
        let listener = listening(&listening_open);
        let sockets: Vec<_> = (0..4)
            .map(|number| {
                let (near, peer) = (open(machine, 0, number), open(machine, 1, number));
                let [mut client, mut server] = [Across::new(&near, &near), Across::new(&peer, &peer)];
                let from = (&near, &client.queue_pair, port_zero(&near));
                let connection = establish(from, (&listener, &server.queue_pair), &Offer::default());
                let (connector, accepted) = connection.expect("a connection");
                (client.connector, server.connector) = (Some(connector), Some(accepted));
                assert_eq!(server.queue_pair.receive(1, &[]), 0);
                assert_eq!(client.queue_pair.send(2, &[], NONE), 0);
                assert_eq!([&client.initiator, &server.receive].map(|queue| queue.wait_for_one().Status), [0, 0]);
                ((client, near), (server, peer))
            })
            .collect();
        // Each socket goes whole, its open last, whatever the others do.
        for ((client, near), (server, peer)) in sockets {
            drop((client, near));
            assert!(server.connector().wait_for_disconnect());
            drop((server, peer));
        }
        assert_eq!(machine.adapters[1].ndk_opens(), 1);
    });
}
