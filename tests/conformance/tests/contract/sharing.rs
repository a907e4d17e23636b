//! Queue pairs that share completion queues, flushes at any time, and which queue pairs a failure reaches.

use kernel_host::schedule;
use std::sync::atomic::{AtomicUsize, Ordering};

use conformance::case;
use conformance::consumer::{
    Adapter, Buffer, Connector, End, Offer, Pair, QueuePair, QueuePairShape, Window, WindowKind, establish,
};
use conformance::machine::{Setup, concurrently, wait_until_idle, with_machine, with_two_adapters};
use conformance::peers;
use conformance::trial::Case;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{STATUS_CANCELLED, STATUS_REMOTE_RESOURCES};

pub const CASES: &[Case] = &[
    case!(queue_pairs_on_one_completion_queue_keep_their_contexts: "NDK-CQ-17"),
    case!(flush_at_any_time: "NDK-QP-23"),
    case!(peer_of_a_failed_request_gets_one_event: "NDK-QP-28"),
    case!(receive_that_invalidated_comes_by_the_plain_call: "NDK-CQ-20"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();

/// A second connection whose active queue pair shares the completion queues of the first one's.
struct Second<'a> {
    _near: Connector,
    _peer: Connector,
    active: QueuePair,
    passive: End<'a>,
}

impl<'a> Second<'a> {
    fn beside(pair: &Pair<'a>, first: &'a Adapter, second: &'a Adapter) -> Self {
        let shape = QueuePairShape { context: 0x9001, ..QueuePairShape::default() };
        let end = &pair.active;
        let active = QueuePair::new(&end.domain, &end.receive, &end.initiator, shape).expect("a queue pair");
        let passive = End::new(second, QueuePairShape::default());
        let from = (first, &active, first.address());
        let connection = establish(from, (&pair.listener, &passive.queue_pair), &Offer::default());
        let (near, peer) = connection.expect("a connection");
        Self { _near: near, _peer: peer, active, passive }
    }
}

fn queue_pairs_on_one_completion_queue_keep_their_contexts() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let other = Second::beside(&pair, first, second);
        for request in 0..8 {
            assert_eq!(pair.passive.queue_pair.receive(request, &[]), 0);
            assert_eq!(other.passive.queue_pair.receive(request, &[]), 0);
            assert_eq!(pair.active.queue_pair.send(request, &[], NONE), 0);
            assert_eq!(other.active.send(100 + request, &[], NONE), 0);
        }
        let results = pair.active.initiator.wait_for(16);
        for (context, base) in [(QueuePairShape::default().context, 0), (0x9001, 100)] {
            let own = results.iter().filter(|result| result.QPContext.addr() == context);
            let requests: Vec<u64> = own.map(|result| result.RequestContext as u64).collect();
            assert_eq!(requests, (base..base + 8).collect::<Vec<_>>(), "queue pair {context:#x}");
        }
    });
}

fn flush_at_any_time() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        // Never connected.
        let end = End::new(&first, QueuePairShape::default());
        end.queue_pair.flush();
        assert_eq!(end.queue_pair.receive(1, &[]), 0);
        end.queue_pair.flush();
        assert_eq!(end.receive.wait_for_one().Status, STATUS_CANCELLED);
        // After the end.
        let pair = Pair::connect(&first, &second);
        pair.active.connector().close();
        pair.active.queue_pair.flush();
        pair.active.queue_pair.flush();
        // While another processor posts; every request that was accepted comes back.
        for round in 0..20 {
            let shape = first.fit(QueuePairShape { initiator_depth: 200, ..Default::default() });
            let count = shape.initiator_depth as usize;
            let pair = Pair::connect_with(&first, &second, shape);
            let accepted = AtomicUsize::new(0);
            concurrently(
                machine,
                || {
                    for request in 0..count as u64 {
                        let status = pair.active.queue_pair.send(request, &[], NONE);
                        assert_eq!(status, 0, "a post that meets a flush");
                        accepted.fetch_add(1, Ordering::AcqRel);
                    }
                },
                || {
                    while accepted.load(Ordering::Acquire) < round * count / 20 {
                        schedule::spin();
                    }
                    pair.active.queue_pair.flush();
                },
            );
            let results = pair.active.initiator.wait_for(count);
            assert!(results.iter().all(peers::waited), "{results:#x?}");
        }
    });
}

fn peer_of_a_failed_request_gets_one_event() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(64), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(64), WindowKind::Registered);
        assert_eq!(pair.passive.queue_pair.receive(7, &[]), 0);
        let nowhere = conformance::consumer::Remote { token: !peer.remote_token(), ..peer.remote(0) };
        assert_eq!(pair.active.queue_pair.write(1, &[near.sge(0..64)], nowhere, NONE), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, peers::late(STATUS_REMOTE_RESOURCES));
        assert!(pair.passive.connector().wait_for_disconnect(), "the peer gets an event");
        wait_until_idle();
        assert_eq!(pair.passive.connector().disconnect_events(), 1);
        assert!(pair.passive.receive.take(4).is_empty(), "and keeps its receives until it ends itself");
        // The peer's own end makes no second event.
        pair.passive.connector().close();
        wait_until_idle();
        assert_eq!(pair.passive.connector().disconnect_events(), 1);
    });
}

fn receive_that_invalidated_comes_by_the_plain_call() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let window = Window::open(&pair.passive, Buffer::scattered(4096), WindowKind::FastRegistered);
        assert_eq!(pair.passive.queue_pair.receive(5, &[]), 0);
        assert_eq!(pair.active.queue_pair.send_and_invalidate(1, &[], NONE, window.remote_token()), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
        wait_until_idle();
        let results = pair.passive.receive.take_plain(4);
        assert_eq!(results.len(), 1);
        assert_eq!((results[0].Status, results[0].RequestContext as u64), (0, 5));
        let near = Window::open(&pair.active, Buffer::scattered(64), WindowKind::Registered);
        assert_eq!(pair.active.queue_pair.read(2, &[near.sge(0..64)], window.remote(0), NONE), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, STATUS_REMOTE_RESOURCES, "the token is invalid");
    });
}
