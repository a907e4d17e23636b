//! Closing: every order that the contract allows, parents before children included; what an antecedent waits for; no
//! callback after a close has completed.

use conformance::case;
use conformance::consumer::{Buffer, NdkObject, Object, Pair, Started, Window, WindowKind};
use conformance::machine::{wait_until_idle, with_two_adapters};
use conformance::peers;
use conformance::trial::Case;
use fastrand::Rng;
use ndkpi_sys::ndkpi::*;

pub const CASES: &[Case] = &[
    case!(children_first: "NDK-CLOSE-1", "NDK-CLOSE-3", "BUG-8"),
    case!(parents_first: "NDK-CLOSE-2", "NDK-CLOSE-1"),
    case!(a_hundred_random_orders: "NDK-CLOSE-2", "NDK-CLOSE-3", "NDK-CLOSE-8", "NDK-CLOSE-10", "NDK-CLOSE-14"),
    case!(random_orders_with_work_outstanding: "NDK-CLOSE-2", "NDK-QP-3", "BUG-8"),
    case!(closing_a_queue_pair_flushes_it: "NDK-CLOSE-17", "BUG-4"),
    case!(domain_waits_for_each_kind_of_child: "NDK-CLOSE-14"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
const PARTS: usize = 7;

/// Antecedent and successor, by position in [`begin`]: the first closes after the second.
const EDGES: [(usize, usize); 7] = [
    // The initiator and receive queues wait for the queue pair, which waits for the connector.
    (2, 1),
    (3, 1),
    (1, 0),
    // The domain waits for the queue pair, the region and the fast-register region.
    (6, 1),
    (6, 4),
    (6, 5),
    (6, 0),
];

/// Starts the close of one part of the active end.
fn begin(pair: &Pair<'_>, window: &Window<'_>, fast: &Window<'_>, part: usize) -> Started {
    let end = &pair.active;
    match part {
        0 => end.connector().object().begin_close(),
        1 => end.queue_pair.object().begin_close(),
        2 => end.initiator.object().begin_close(),
        3 => end.receive.object().begin_close(),
        4 => window.region.as_ref().expect("a region").object().begin_close(),
        5 => fast.region.as_ref().expect("a region").object().begin_close(),
        _ => end.domain.object().begin_close(),
    }
}

/// Connects, perhaps leaves work in the queues, closes in the given order, and checks who waited for whom.
fn close_in_order(pair: &Pair<'_>, order: &[usize], busy: bool) {
    let window = Window::open(&pair.active, Buffer::scattered(20_000), WindowKind::Registered);
    let fast = Window::open(&pair.active, Buffer::scattered(20_000), WindowKind::FastRegistered);
    let peer = Window::open(&pair.passive, Buffer::scattered(20_000), WindowKind::Registered);
    if busy {
        let sge = [window.sge(0..20_000)];
        assert_eq!(pair.active.queue_pair.receive(1, &sge), 0);
        assert_eq!(pair.active.queue_pair.read(2, &sge, peer.remote(0), NONE), 0);
        assert_eq!(pair.active.queue_pair.write(3, &[fast.sge(0..20_000)], peer.remote(0), NDK_OP_FLAG_DEFER), 0);
        assert_eq!(pair.active.queue_pair.send(4, &sge, NONE), 0, "a send that waits for a receive");
    }
    let mut closing: Vec<(usize, Started)> = Vec::new();
    for part in order {
        closing.push((*part, begin(pair, &window, &fast, *part)));
        let started = |part: usize| closing.iter().find(|(closed, _)| *closed == part).map(|(_, started)| *started);
        for (antecedent, successor) in EDGES {
            let early = started(antecedent).is_some_and(|close| close.is_done()) && started(successor).is_none();
            assert!(!early, "part {antecedent} closed before part {successor} was asked to, order {order:?}");
        }
    }
    for (_, started) in &closing {
        started.wait();
    }
    let close = |part: usize| &closing.iter().find(|(closed, _)| *closed == part).expect("every part").1;
    for (antecedent, successor) in EDGES {
        let in_order = close(successor).may_precede(close(antecedent));
        assert!(in_order, "part {antecedent} closed before part {successor}, {order:?}");
    }
}

fn children_first() {
    with_two_adapters(|first, second| {
        for busy in [false, true] {
            close_in_order(&Pair::connect(first, second), &[0, 1, 2, 3, 4, 5, 6], busy);
        }
    });
}

fn parents_first() {
    with_two_adapters(|first, second| {
        for busy in [false, true] {
            close_in_order(&Pair::connect(first, second), &[6, 5, 4, 3, 2, 1, 0], busy);
        }
    });
}

fn random_orders(count: usize, busy: bool) {
    with_two_adapters(|first, second| {
        let mut random = Rng::with_seed(0xC105E);
        for _ in 0..count {
            let mut order: Vec<usize> = (0..PARTS).collect();
            random.shuffle(&mut order);
            close_in_order(&Pair::connect(first, second), &order, busy);
        }
    });
}

fn a_hundred_random_orders() {
    random_orders(100, false);
}

fn random_orders_with_work_outstanding() {
    random_orders(100, true);
}

fn closing_a_queue_pair_flushes_it() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        for request in 0..4 {
            assert_eq!(pair.active.queue_pair.receive(request, &[]), 0);
            assert_eq!(pair.active.queue_pair.send(request, &[], NONE), 0);
        }
        let closing = pair.active.queue_pair.object().begin_close();
        for queue in [&pair.active.receive, &pair.active.initiator] {
            let results = queue.wait_for(4);
            assert!(results.iter().all(peers::waited), "{results:#x?}");
        }
        pair.active.connector().close();
        closing.wait();
    });
}

fn domain_waits_for_each_kind_of_child() {
    with_two_adapters(|first, _| {
        let buffer = Buffer::scattered(4096);
        for kind in 0..3 {
            let end = conformance::consumer::End::new(first, conformance::consumer::QueuePairShape::default());
            let region = end.domain.register(&buffer, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
            let fast = end.domain.fast_region(4, true);
            let closes: [&dyn Fn(); 3] = [&|| end.queue_pair.close(), &|| region.close(), &|| fast.close()];
            for (index, close) in closes.iter().enumerate() {
                if index != kind {
                    close();
                }
            }
            let closing = pending(end.domain.object());
            wait_until_idle();
            assert!(!closing.is_done(), "the domain closed although child {kind} is open");
            closes[kind]();
            closing.wait();
        }
    });
}

fn pending<T: NdkObject>(object: &Object<T>) -> Started {
    let closing = object.begin_close();
    assert_eq!(closing.inline(), ndkpi_sys::nt::STATUS_PENDING, "a close with children open");
    closing
}
