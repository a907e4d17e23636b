//! The counters of OID_NDK_STATISTICS, each exactly, and what else reports them; the lists of connections and endpoints from
//! none to more than the header's size can say.

use std::net::SocketAddr;

use conformance::case;
use conformance::consumer::{
    Adapter, Buffer, CompletionQueue, Connector, End, Listener, Offer, Pair, QueuePair, QueuePairShape, SharedEndpoint,
    Window, WindowKind,
};
use conformance::machine::{Machine, Setup, wait_until_idle, with_machine};
use conformance::peers;
use conformance::trial::Case;
use kernel_host::irql;
use ndkpi_sys::ndis::{
    NDIS_STATUS_BUFFER_TOO_SHORT, NDIS_STATUS_SUCCESS, OID_GEN_RCV_OK, OID_GEN_STATISTICS, OID_GEN_XMIT_OK,
    OID_NDK_CONNECTIONS, OID_NDK_LOCAL_ENDPOINTS, OID_NDK_SET_STATE, OID_NDK_STATISTICS,
};
use ndkpi_sys::ndkpi::NDK_OP_FLAGS;
use ndkpi_sys::nt::STATUS_REMOTE_RESOURCES;
use ndkpi_sys::nt::{STATUS_CONNECTION_REFUSED, STATUS_HOST_UNREACHABLE};

pub const CASES: &[Case] = &[
    case!(statistics_answer_at_dispatch_level: "NDIS-OID-9"),
    case!(connect_and_accept_count_what_is_established: "NDIS-OID-12"),
    case!(connect_failure_counts_refusals_on_both_sides: "NDIS-OID-13"),
    case!(connect_failure_counts_attempts_that_are_given_up: "NDIS-OID-13"),
    case!(connect_failure_counts_attempts_that_a_disable_ends: "NDIS-OID-13"),
    case!(connection_error_counts_ends_no_context_asked_for: "NDIS-OID-14"),
    case!(connection_error_counts_vanished_addresses: "NDIS-OID-14"),
    case!(active_connections_are_the_established_ones: "NDIS-OID-15"),
    case!(cq_error_counts_each_queue_once: "NDIS-OID-16"),
    case!(writes_count_octets_and_frames: "NDIS-OID-17", "NDIS-OID-18"),
    case!(reads_and_sends_count_octets_and_frames: "NDIS-OID-17", "NDIS-OID-18"),
    case!(refused_access_moves_nothing: "NDIS-OID-17"),
    case!(traffic_of_closed_queue_pairs_stays_counted: "NDIS-OID-17"),
    case!(connections_are_listed_from_none_to_many: "NDIS-OID-19"),
    case!(endpoints_are_listed_beyond_the_size_field: "NDIS-OID-20"),
    case!(shared_endpoints_are_distinguished_from_listeners: "NDIS-OID-20"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
/// decisions: what a frame carries at most, and what it costs besides.
const FRAME_PAYLOAD: u64 = 4096;
const FRAME_OVERHEAD: u64 = 90;

/// OID_NDK_STATISTICS by name; offsets of NDIS_NDK_PERFORMANCE_COUNTERS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    connect: u64,
    accept: u64,
    connect_failure: u64,
    connection_error: u64,
    active: u64,
    cq_error: u64,
    octets_in: u64,
    octets_out: u64,
    frames_in: u64,
    frames_out: u64,
}

fn word(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}

impl Counters {
    fn of(machine: &Machine, index: usize) -> Self {
        let answer = machine.adapters[index].direct_query_oid(OID_NDK_STATISTICS, 0xF8).expect("a started adapter");
        assert_eq!((answer.status, answer.data.len()), (NDIS_STATUS_SUCCESS, 0xF8));
        let counter = |index: usize| word(&answer.data, 8 + 8 * index);
        assert!((5..25).all(|reserved| counter(reserved) == 0), "reserved counters are zero");
        Self {
            connect: counter(0),
            accept: counter(1),
            connect_failure: counter(2),
            connection_error: counter(3),
            active: counter(4),
            cq_error: counter(25),
            octets_in: counter(26),
            octets_out: counter(27),
            frames_in: counter(28),
            frames_out: counter(29),
        }
    }

    fn of_both(machine: &Machine) -> [Self; 2] {
        [Self::of(machine, 0), Self::of(machine, 1)]
    }
}

/// OID_GEN_STATISTICS: octets in and out, directed frames in and out.
fn general(machine: &Machine, index: usize) -> [u64; 4] {
    let answer = machine.adapters[index].query_oid(OID_GEN_STATISTICS, 0x98).expect("a started adapter");
    assert_eq!((answer.status, answer.data.len()), (NDIS_STATUS_SUCCESS, 0x98));
    [0x18, 0x38, 0x20, 0x40].map(|offset| word(&answer.data, offset))
}

fn with_pair(trial: impl FnOnce(&Machine, &Pair<'_>)) {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        trial(machine, &Pair::connect(&first, &second));
    });
}

fn any_port(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), 0)
}

fn listening(adapter: &Adapter) -> Listener {
    let listener = Listener::new(adapter).expect("a listener");
    assert_eq!(listener.listen(any_port(adapter.address())), 0);
    listener
}

fn statistics_answer_at_dispatch_level() {
    with_machine(&Setup::default(), |machine| {
        let adapter = &machine.adapters[0];
        let level = irql::raise(irql::DISPATCH);
        let whole = adapter.direct_query_oid(OID_NDK_STATISTICS, 0xF8).expect("a started adapter");
        let short = adapter.direct_query_oid(OID_NDK_STATISTICS, 0xF7).expect("a started adapter");
        irql::lower(level);
        assert_eq!(whole.status, NDIS_STATUS_SUCCESS);
        assert_eq!((short.status, short.bytes_done, short.bytes_needed), (NDIS_STATUS_BUFFER_TOO_SHORT, 0, 0xF8));
    });
}

fn connect_and_accept_count_what_is_established() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let listener = listening(&second);
        let (near, peer) = (End::new(&first, QueuePairShape::default()), End::new(&second, QueuePairShape::default()));
        let connector = Connector::new(&first).expect("a connector");
        let offer = Offer::default();
        let connecting =
            connector.begin_connect(&near.queue_pair, any_port(first.address()), listener.local_address(), &offer);
        let arrived = listener.next();
        let accepting = arrived.begin_accept(&peer.queue_pair, &offer);
        assert_eq!(connecting.wait(), 0);
        wait_until_idle();
        assert_eq!(Counters::of_both(machine), [Counters::default(); 2], "answered is not yet established");
        assert_eq!(connector.begin_complete_connect().wait(), 0);
        assert_eq!(accepting.wait(), 0);
        let active = Counters { connect: 1, active: 1, ..Counters::default() };
        let passive = Counters { accept: 1, active: 1, ..Counters::default() };
        assert_eq!(Counters::of_both(machine), [active, passive]);
        // The other way round, and on one adapter alone.
        let _back = Pair::connect(&second, &first);
        let _alone = Pair::connect(&first, &first);
        let [active, passive] = Counters::of_both(machine);
        assert_eq!((active.connect, active.accept, active.active), (2, 2, 4));
        assert_eq!((passive.connect, passive.accept, passive.active), (1, 1, 2));
        assert_eq!((active.connect_failure, passive.connect_failure), (0, 0));
    });
}

fn connect_failure_counts_refusals_on_both_sides() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let failures = || Counters::of_both(machine).map(|counters| counters.connect_failure);
        let end = End::new(&first, QueuePairShape::default());
        let connector = Connector::new(&first).expect("a connector");
        let from = any_port(first.address());
        let connect = |to| connector.begin_connect(&end.queue_pair, from, to, &Offer::default());
        let unused = SocketAddr::new(second.address().ip(), 4);
        assert_eq!(connect(unused).wait(), STATUS_CONNECTION_REFUSED);
        wait_until_idle();
        assert_eq!(failures(), [1, 0], "no listener");
        assert_eq!(connect(SocketAddr::from(([10, 0, 0, 99], 4))).wait(), STATUS_HOST_UNREACHABLE);
        assert_eq!(failures(), [2, 0], "no adapter has the address");
        let listener = listening(&second);
        let connecting = connect(listener.local_address());
        assert_eq!(listener.next().reject(&[]), 0);
        assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
        wait_until_idle();
        assert_eq!(failures(), [3, 1], "a reject is a failure of both");
        listener.pause_events(true);
        assert_eq!(connect(listener.local_address()).wait(), STATUS_CONNECTION_REFUSED);
        assert_eq!(failures()[0], 4, "a paused listener");
        let [active, passive] = Counters::of_both(machine);
        assert_eq!((active.connect, active.active, passive.accept, passive.active), (0, 0, 0, 0));
    });
}

fn connect_failure_counts_attempts_that_are_given_up() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let failures = || {
            wait_until_idle();
            Counters::of_both(machine).map(|counters| counters.connect_failure)
        };
        let listener = listening(&second);
        let end = End::new(&first, QueuePairShape::default());
        let attempt = || {
            let connector = Connector::new(&first).expect("a connector");
            let from = any_port(first.address());
            let connecting =
                connector.begin_connect(&end.queue_pair, from, listener.local_address(), &Offer::default());
            (connector, listener.next(), connecting)
        };
        let (connector, arrived, _) = attempt();
        drop(connector);
        assert_eq!(failures(), [1, 1], "given up before the answer");
        drop(arrived);
        assert_eq!(failures(), [1, 1], "closing what has failed is no second failure");
        let (connector, arrived, connecting) = attempt();
        drop(arrived);
        assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
        assert_eq!(failures(), [2, 2], "closed by the passive side");
        drop(connector);
        let (connector, arrived, connecting) = attempt();
        let peer = End::new(&second, QueuePairShape::default());
        let accepting = arrived.begin_accept(&peer.queue_pair, &Offer::default());
        assert_eq!(connecting.wait(), 0);
        drop(connector);
        assert_ne!(accepting.wait(), 0);
        assert_eq!(failures(), [3, 3], "given up after the answer");
    });
}

fn connect_failure_counts_attempts_that_a_disable_ends() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        {
            let listener = listening(&second);
            let (near, peer) =
                (End::new(&first, QueuePairShape::default()), End::new(&second, QueuePairShape::default()));
            let connector = Connector::new(&first).expect("a connector");
            let offer = Offer::default();
            let connecting =
                connector.begin_connect(&near.queue_pair, any_port(first.address()), listener.local_address(), &offer);
            let arrived = listener.next();
            let accepting = arrived.begin_accept(&peer.queue_pair, &offer);
            assert_eq!(connecting.wait(), 0);
            assert_eq!(machine.adapters[0].set_oid(OID_NDK_SET_STATE, &[0]).expect("a started adapter").status, 0);
            wait_until_idle();
            assert_ne!(accepting.wait(), 0, "the accept that waits for CompleteConnect");
            let [active, passive] = Counters::of_both(machine);
            assert_eq!((active.connect_failure, passive.connect_failure), (1, 1));
            assert_eq!((active.connection_error, passive.connection_error), (0, 0), "none was established");
        }
    });
}

fn connection_error_counts_ends_no_context_asked_for() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let errors = || Counters::of_both(machine).map(|counters| counters.connection_error);
        // With grace: no error on either side.
        let graceful = Pair::connect(&first, &second);
        let one = graceful.active.connector().begin_disconnect();
        assert!(graceful.passive.connector().wait_for_disconnect());
        assert_eq!(graceful.passive.connector().begin_disconnect().wait(), 0);
        assert_eq!(one.wait(), 0);
        drop(graceful);
        wait_until_idle();
        assert_eq!(errors(), [0, 0], "both asked for it");
        // Aborted: an error of the side that did not close.
        let mut aborted = Pair::connect(&first, &second);
        peers::speak(&aborted.passive);
        drop(aborted.active.connector.take());
        assert!(aborted.passive.connector().wait_for_disconnect());
        wait_until_idle();
        assert_eq!(errors(), [0, 1]);
        drop(aborted);
        wait_until_idle();
        assert_eq!(errors(), [0, 1], "closing what is over is no error");
        // A request that fails ends the connection for both.
        let failed = Pair::connect(&first, &second);
        let near = Window::open(&failed.active, Buffer::scattered(64), WindowKind::Registered);
        let nowhere = conformance::consumer::Remote { address: 0x1000, token: 0xDEAD_0001 };
        assert_eq!(failed.active.queue_pair.write(1, &[near.sge(0..64)], nowhere, NONE), 0);
        assert_eq!(failed.active.initiator.wait_for_one().Status, peers::late(STATUS_REMOTE_RESOURCES));
        assert!(failed.passive.connector().wait_for_disconnect());
        wait_until_idle();
        assert_eq!(errors(), [1, 2]);
    });
}

fn connection_error_counts_vanished_addresses() {
    with_pair(|machine, pair| {
        machine.remove_address(0, pair.active.connector().local_address().ip());
        assert!(pair.active.connector().wait_for_disconnect());
        assert!(pair.passive.connector().wait_for_disconnect());
        wait_until_idle();
        assert_eq!(
            Counters::of_both(machine).map(|counters| (counters.connection_error, counters.active)),
            [(1, 0); 2]
        );
    });
}

fn active_connections_are_the_established_ones() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let active = || Counters::of_both(machine).map(|counters| counters.active);
        let mut pairs: Vec<Pair<'_>> = Vec::new();
        for count in 1..=4 {
            pairs.push(Pair::connect(&first, &second));
            assert_eq!(active(), [count; 2]);
        }
        // Closed at one side: the other side's is over as well.
        peers::speak(&pairs[3].passive);
        drop(pairs[3].active.connector.take());
        wait_until_idle();
        assert_eq!(active(), [3, 3], "an abort");
        drop(pairs.pop());
        wait_until_idle();
        assert_eq!(active(), [3, 3], "what is over is not taken off twice");
        let disconnecting = pairs[2].passive.connector().begin_disconnect();
        assert!(pairs[2].active.connector().wait_for_disconnect());
        assert_eq!(pairs[2].active.connector().begin_disconnect().wait(), 0);
        assert_eq!(disconnecting.wait(), 0);
        wait_until_idle();
        assert_eq!(active(), [2, 2], "with grace");
        pairs.clear();
        wait_until_idle();
        assert_eq!(active(), [0, 0]);
        let [near, peer] = Counters::of_both(machine);
        assert_eq!((near.connect, peer.accept), (4, 4), "what was established stays counted");
    });
}

fn cq_error_counts_each_queue_once() {
    with_machine(&Setup::default(), |machine| {
        let first = machine.open(0);
        let errors = || Counters::of(machine, 0).cq_error;
        let overflow = |expected| {
            let end = End::new(&first, QueuePairShape::default());
            let small = CompletionQueue::new(&first, 1).expect("a completion queue");
            let shape = QueuePairShape { receive_depth: 8, ..QueuePairShape::default() };
            let pair = QueuePair::new(&end.domain, &small, &end.initiator, shape).expect("a queue pair");
            assert_eq!(pair.receive(1, &[]), 0);
            pair.flush();
            wait_until_idle();
            assert_eq!(errors(), expected - 1, "a queue that is full has not failed");
            for request in 2..6 {
                assert_eq!(pair.receive(request, &[]), 0);
            }
            wait_until_idle();
            assert_eq!(errors(), expected, "results beyond the depth, however many, fail the queue once");
        };
        overflow(1);
        overflow(2);
        assert_eq!(errors(), 2);
    });
}

/// What `bytes` in one message add: octets and frames.
fn cost(bytes: u64) -> (u64, u64) {
    let frames = bytes.div_ceil(FRAME_PAYLOAD).max(1);
    (bytes + frames * FRAME_OVERHEAD, frames)
}

const LENGTHS: [usize; 8] = [0, 1, 4095, 4096, 4097, 65_536, 65_537, 300_000];

/// Runs `transfer` for every length; the bytes go from `from` to the other adapter, and nothing goes back.
fn count_each(machine: &Machine, from: usize, transfer: impl Fn(usize)) {
    let to = 1 - from;
    for length in LENGTHS {
        let (before, general_before) = (Counters::of_both(machine), [general(machine, 0), general(machine, 1)]);
        transfer(length);
        wait_until_idle();
        let (after, general_after) = (Counters::of_both(machine), [general(machine, 0), general(machine, 1)]);
        let (octets, frames) = cost(length as u64);
        let sent = Counters {
            octets_out: before[from].octets_out + octets,
            frames_out: before[from].frames_out + frames,
            ..before[from]
        };
        let received = Counters {
            octets_in: before[to].octets_in + octets,
            frames_in: before[to].frames_in + frames,
            ..before[to]
        };
        assert_eq!(after[from], sent, "{length} bytes, sender");
        assert_eq!(after[to], received, "{length} bytes, receiver");
        let grown = |index: usize| -> [u64; 4] {
            std::array::from_fn(|counter| general_after[index][counter] - general_before[index][counter])
        };
        assert_eq!(grown(from), [0, octets, 0, frames], "{length} bytes, sender's general statistics");
        assert_eq!(grown(to), [octets, 0, frames, 0], "{length} bytes, receiver's general statistics");
    }
}

fn writes_count_octets_and_frames() {
    with_pair(|machine, pair| {
        let near = Window::open(&pair.active, Buffer::scattered(300_000), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(300_000), WindowKind::Registered);
        count_each(machine, 0, |length| {
            let sges = if length == 0 { Vec::new() } else { near.first_in_sges(length, length.min(3)) };
            assert_eq!(pair.active.queue_pair.write(1, &sges, peer.remote(0), NONE), 0);
            assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
        });
        for (index, oid) in [(0, OID_GEN_XMIT_OK), (1, OID_GEN_RCV_OK)] {
            let frames = LENGTHS.iter().map(|length| cost(*length as u64).1).sum::<u64>();
            let answer = machine.adapters[index].query_oid(oid, 8).expect("a started adapter");
            assert_eq!(word(&answer.data, 0), frames);
        }
    });
}

fn reads_and_sends_count_octets_and_frames() {
    with_pair(|machine, pair| {
        let near = Window::open(&pair.active, Buffer::scattered(300_000), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(300_000), WindowKind::Registered);
        // The bytes of a Read go from the peer to the reader.
        count_each(machine, 1, |length| {
            let sges = if length == 0 { Vec::new() } else { vec![near.sge(0..length)] };
            assert_eq!(pair.active.queue_pair.read(1, &sges, peer.remote(0), NONE), 0);
            assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
        });
        count_each(machine, 0, |length| {
            let part = |window: &Window<'_>| if length == 0 { Vec::new() } else { vec![window.sge(0..length)] };
            assert_eq!(pair.passive.queue_pair.receive(2, &part(&peer)), 0);
            assert_eq!(pair.active.queue_pair.send(3, &part(&near), NONE), 0);
            assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
            assert_eq!(pair.passive.receive.wait_for_one().Status, 0);
        });
    });
}

fn refused_access_moves_nothing() {
    with_pair(|machine, pair| {
        let near = Window::open(&pair.active, Buffer::scattered(4096), WindowKind::Registered);
        let nowhere = conformance::consumer::Remote { address: 0x1000, token: 0xDEAD_0001 };
        assert_eq!(pair.active.queue_pair.write(1, &[near.sge(0..4096)], nowhere, NONE), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, peers::late(STATUS_REMOTE_RESOURCES));
        wait_until_idle();
        let [active, passive] = Counters::of_both(machine);
        assert_eq!((active.octets_in, passive.octets_out), (0, 0));
        assert!(passive.octets_in < 4096, "no payload arrived: {}", passive.octets_in);
    });
}

fn traffic_of_closed_queue_pairs_stays_counted() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        for round in 1..=5 {
            {
                let pair = Pair::connect(&first, &second);
                assert_eq!(pair.passive.queue_pair.receive(1, &[]), 0);
                assert_eq!(pair.active.queue_pair.send(2, &[], NONE), 0);
                assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
            }
            wait_until_idle();
            let [active, passive] = Counters::of_both(machine);
            assert_eq!((active.frames_out, passive.frames_in), (round, round));
        }
    });
}

/// A list OID in buffers of every awkward size; the entries' bytes.
fn list(machine: &Machine, index: usize, oid: u32, entry: usize, count: usize) -> Vec<Vec<u8>> {
    let adapter = &machine.adapters[index];
    // Across streams each address is followed by that of TCP, which is the same.
    let copies = 1 + usize::from(peers::across_streams());
    let (entries, count) = (count, count * copies);
    let total = 0x10 + entry * count;
    for capacity in [0, 1, 0xF, total - 1] {
        let short = adapter.query_oid(oid, capacity).expect("a started adapter");
        let seen = (short.status, short.bytes_done, short.bytes_needed as usize);
        assert_eq!(seen, (NDIS_STATUS_BUFFER_TOO_SHORT, 0, total), "{count} entries, {capacity} bytes");
    }
    let answer = adapter.query_oid(oid, total).expect("a started adapter");
    assert_eq!((answer.status, answer.data.len()), (NDIS_STATUS_SUCCESS, total), "{count} entries, exact length");
    let longer = adapter.query_oid(oid, total + 100).expect("a started adapter");
    assert_eq!((longer.status, longer.data.len()), (NDIS_STATUS_SUCCESS, total), "{count} entries, more length");
    let [size_low, size_high] = u16::try_from(total).unwrap_or(0xFFFF).to_le_bytes();
    assert_eq!(answer.data[..8], [0x80, 1, size_low, size_high, 0, 0, 0, 0], "{count} entries: header and flags");
    assert_eq!(answer.data[8..12], (count as u32).to_le_bytes());
    assert_eq!(
        answer.data[12..16],
        [u8::from(peers::across_streams()), 0, 0, 0],
        "whether it is mapped to TCP, and padding"
    );
    let listed: Vec<_> = answer.data[16..].chunks(entry * copies).map(|pair| pair[..entry].to_vec()).collect();
    assert!(answer.data[16..].chunks(entry * copies).all(|pair| pair.ends_with(&pair[..entry])));
    assert_eq!(listed.len(), entries);
    listed
}

/// A SOCKADDR_IN at an offset.
fn socket_address(entry: &[u8], offset: usize) -> SocketAddr {
    assert_eq!(entry[offset..offset + 2], 2_u16.to_le_bytes(), "AF_INET");
    let port = u16::from_be_bytes([entry[offset + 2], entry[offset + 3]]);
    let ip: [u8; 4] = entry[offset + 4..offset + 8].try_into().expect("four bytes");
    SocketAddr::from((ip, port))
}

fn connections_are_listed_from_none_to_many() {
    with_machine(&Setup::default(), |machine| {
        let entries = |index, count| list(machine, index, OID_NDK_CONNECTIONS, 0x40, count);
        assert!(entries(0, 0).is_empty());
        let (first, second) = (machine.open(0), machine.open(1));
        let mut pairs = Vec::new();
        for count in 1..=20 {
            pairs.push(Pair::connect(&first, &second));
            if ![1, 2, 20].contains(&count) {
                continue;
            }
            for (index, active) in [(0, true), (1, false)] {
                let mut listed: Vec<_> = entries(index, count)
                    .iter()
                    .map(|entry| {
                        assert_eq!(entry[0x38..], [0; 8], "a kernel connection has no user-mode owner");
                        (socket_address(entry, 0), socket_address(entry, 0x1C))
                    })
                    .collect();
                let mut known: Vec<_> = pairs
                    .iter()
                    .map(|pair| if active { pair.active.connector() } else { pair.passive.connector() })
                    .map(|connector| (connector.local_address(), connector.peer_address()))
                    .collect();
                listed.sort_unstable();
                known.sort_unstable();
                assert_eq!(listed, known);
            }
        }
        drop(pairs);
        wait_until_idle();
        assert!(entries(0, 0).is_empty());
    });
}

fn shared_endpoints_are_distinguished_from_listeners() {
    with_machine(&Setup::default(), |machine| {
        let second = machine.open(1);
        let listener = listening(&second);
        let shared = SharedEndpoint::new(&second, any_port(second.address())).expect("a shared endpoint");
        let mut listed: Vec<_> = list(machine, 1, OID_NDK_LOCAL_ENDPOINTS, 0x24, 2)
            .iter()
            .map(|entry| (socket_address(entry, 0), entry[0x1D]))
            .collect();
        let mut known = vec![(listener.local_address(), 1), (shared.local_address(), 0)];
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known);
        drop(shared);
        wait_until_idle();
        assert_eq!(list(machine, 1, OID_NDK_LOCAL_ENDPOINTS, 0x24, 1)[0][0x1D], 1);
    });
}

fn endpoints_are_listed_beyond_the_size_field() {
    with_machine(&Setup::default(), |machine| {
        let second = machine.open(1);
        let entries = |count| list(machine, 1, OID_NDK_LOCAL_ENDPOINTS, 0x24, count);
        let mut listeners = Vec::new();
        // 1820 entries of 0x24 bytes and their header are the first that 16 bits cannot count.
        for count in [0, 1, 2, 1819, 1820, 2000] {
            listeners.resize_with(count, || listening(&second));
            let listed = entries(count);
            assert!(listed.iter().all(|entry| entry[0x1C..] == [0, 1, 0, 0, 0, 0, 0, 0]), "kernel listeners");
            let mut ports: Vec<_> = listed.iter().map(|entry| socket_address(entry, 0)).collect();
            let mut known: Vec<_> = listeners.iter().map(Listener::local_address).collect();
            ports.sort_unstable();
            known.sort_unstable();
            assert_eq!(ports, known);
        }
    });
}
