//! Completion queues that change their depth, and completion queues that overrun.

use conformance::case;
use conformance::consumer::{Adapter, CompletionQueue, End, Pair, QueuePair, QueuePairShape, Remote};
use conformance::machine::{Setup, concurrently, wait_until_idle, with_machine, with_two_adapters};
use conformance::trial::Case;
use fastrand::Rng;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{
    STATUS_BUFFER_OVERFLOW, STATUS_CANCELLED, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER,
};

pub const CASES: &[Case] = &[
    case!(a_queue_grows_with_results_in_it: "NDK-RESIZE-1"),
    case!(a_depth_above_the_limit_is_refused: "NDK-RESIZE-2"),
    case!(shrinking_below_the_results_in_it_changes_nothing: "NDK-RESIZE-3"),
    case!(resizing_while_results_come_and_go_loses_none: "NDK-RESIZE-4"),
    case!(a_shrunk_queue_overruns_at_its_new_depth: "NDK-RESIZE-5"),
    case!(a_resize_keeps_the_arming: "NDK-RESIZE-1", "NDK-CQ-2"),
    case!(an_overrun_notifies_whatever_the_queue_is_armed_for: "NDK-CQ-11", "NDK-CQ-22"),
    case!(after_an_overrun_nothing_more_is_reported: "NDK-CQ-23"),
    case!(an_overrun_ends_every_queue_pair_of_the_queue: "NDK-CQ-24"),
    case!(an_overrun_is_never_moderated: "NDK-CQ-22", "NDK-MOD-4"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();

fn read(queue_pair: &QueuePair, request: u64) {
    assert_eq!(queue_pair.read(request, &[], Remote { address: 0, token: 0 }, NONE), 0);
}

/// Reads one after the other, whose results are in the queue when this returns.
fn read_all(queue_pair: &QueuePair, numbers: std::ops::Range<u64>) {
    numbers.for_each(|request| read(queue_pair, request));
    wait_until_idle();
}

/// A connection, and how many requests may be under way on it.
fn with_pair(trial: impl FnOnce(&Pair, u32)) {
    with_two_adapters(|first, second| {
        let shape = first.fit(QueuePairShape { initiator_depth: 256, ..QueuePairShape::default() });
        trial(&Pair::connect_with(first, second, shape), shape.initiator_depth);
    });
}

fn requests(results: &[NDK_RESULT_EX]) -> Vec<u64> {
    assert!(results.iter().all(|result| result.Status == 0), "{results:#x?}");
    results.iter().map(|result| result.RequestContext as u64).collect()
}

fn a_queue_grows_with_results_in_it() {
    with_pair(|pair, most| {
        let (queue, queue_pair) = (&pair.active.initiator, &pair.active.queue_pair);
        assert_eq!(queue.resize(4), 0);
        let (mut next, mut expected) = (0, 0);
        let last = most - 6;
        // Positions in every place of the ring, the old one never empty when the new one comes.
        for depth in [5, 7, 16, 17, most / 2, last] {
            read_all(queue_pair, next..next + 3);
            next += 3;
            assert_eq!(queue.resize(depth), 0, "to {depth}");
            let taken = requests(&queue.take(2));
            assert_eq!(taken, (expected..expected + 2).collect::<Vec<_>>());
            expected += 2;
        }
        read_all(queue_pair, next..expected + u64::from(last));
        next = expected + u64::from(last);
        let mut seen = Vec::new();
        loop {
            let results = queue.take(33);
            if results.is_empty() {
                break;
            }
            seen.extend(requests(&results));
        }
        assert_eq!(seen, (expected..next).collect::<Vec<_>>());
    });
}

fn a_depth_above_the_limit_is_refused() {
    with_pair(|pair, most| {
        let (queue, queue_pair) = (&pair.active.initiator, &pair.active.queue_pair);
        let limit = pair.active.adapter.info().MaxCqDepth;
        for depth in [limit + 1, u32::MAX, 0] {
            assert_eq!(queue.resize(depth), STATUS_INVALID_PARAMETER, "to {depth}");
        }
        read_all(queue_pair, 0..u64::from(most));
        assert_eq!(requests(&queue.take(most as usize)).len(), most as usize);
        assert_eq!(queue.resize(limit), 0, "to the limit");
        read_all(queue_pair, 1..2);
        assert_eq!(requests(&queue.take(256)), [1]);
    });
}

fn shrinking_below_the_results_in_it_changes_nothing() {
    with_pair(|pair, most| {
        let (queue, queue_pair) = (&pair.active.initiator, &pair.active.queue_pair);
        read_all(queue_pair, 0..9);
        for depth in [1, 2, 8] {
            assert_eq!(queue.resize(depth), STATUS_BUFFER_OVERFLOW, "to {depth}");
        }
        read_all(queue_pair, 9..u64::from(most));
        assert_eq!(requests(&queue.take(300)), (0..u64::from(most)).collect::<Vec<_>>(), "the old depth holds");
        read_all(queue_pair, 0..9);
        assert_eq!(queue.resize(9), 0, "to exactly what is in it");
        assert_eq!(requests(&queue.take(300)), (0..9).collect::<Vec<_>>());
    });
}

fn resizing_while_results_come_and_go_loses_none() {
    const RESULTS: u64 = 4000;
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let shape = first.fit(QueuePairShape { initiator_depth: 256, ..QueuePairShape::default() });
        let capacity = u64::from(first.info().MaxCqDepth).min(564) - 64;
        let pair = Pair::connect_with(&first, &second, shape);
        let (queue, queue_pair) = (&pair.active.initiator, &pair.active.queue_pair);
        concurrently(
            machine,
            || {
                let (mut posted, mut expected) = (0, 0);
                while expected < RESULTS {
                    while posted < RESULTS && posted - expected < 64 {
                        read(queue_pair, posted);
                        posted += 1;
                    }
                    for request in requests(&queue.take(48)) {
                        assert_eq!(request, expected);
                        expected += 1;
                    }
                }
            },
            || {
                let mut random = Rng::with_seed(0x5EED);
                for _ in 0..300 {
                    let depth = 64 + random.u64(..=capacity) as u32;
                    // There may be so many rings without a poll in between; in some schedules no thread polls.
                    while queue.resize(depth) == STATUS_INSUFFICIENT_RESOURCES {
                        kernel_host::dispatcher::delay(-10);
                    }
                    kernel_host::dispatcher::delay(-10);
                }
            },
        );
        assert!(queue.take(64).is_empty());
        drop(pair);
    });
}

fn a_shrunk_queue_overruns_at_its_new_depth() {
    with_pair(|pair, _| {
        let (queue, queue_pair) = (&pair.active.initiator, &pair.active.queue_pair);
        assert_eq!(queue.resize(3), 0);
        (0..3).for_each(|request| read(queue_pair, request));
        queue.arm(NDK_CQ_NOTIFY_ERRORS);
        wait_until_idle();
        assert_eq!(queue.notification_count(), 0, "three fit");
        read(queue_pair, 3);
        wait_until_idle();
        assert_eq!((queue.notification_count(), queue.notification_status()), (1, STATUS_BUFFER_OVERFLOW));
    });
}

fn a_resize_keeps_the_arming() {
    with_pair(|pair, _| {
        let queue = &pair.active.initiator;
        queue.arm(NDK_CQ_NOTIFY_ANY);
        assert_eq!(queue.resize(8), 0);
        wait_until_idle();
        assert_eq!(queue.notification_count(), 0);
        read(&pair.active.queue_pair, 1);
        wait_until_idle();
        assert_eq!(queue.notification_count(), 1);
    });
}

/// A connection whose initiator completion queue holds two results.
fn narrow<'a>(first: &'a Adapter, second: &'a Adapter) -> Pair<'a> {
    let mut active = End::new(first, QueuePairShape::default());
    let initiator = CompletionQueue::new(first, 2).expect("a completion queue");
    let queue_pair = QueuePair::new(&active.domain, &active.receive, &initiator, QueuePairShape::default());
    active.queue_pair = queue_pair.expect("a queue pair");
    active.initiator = initiator;
    Pair::join(active, End::new(second, QueuePairShape::default()), first.address(), second.address())
}

fn an_overrun_notifies_whatever_the_queue_is_armed_for() {
    with_two_adapters(|first, second| {
        for kind in [NDK_CQ_NOTIFY_ERRORS, NDK_CQ_NOTIFY_SOLICITED, NDK_CQ_NOTIFY_ANY] {
            let pair = narrow(first, second);
            let queue = &pair.active.initiator;
            (0..3).for_each(|request| read(&pair.active.queue_pair, request));
            wait_until_idle();
            assert_eq!(queue.notification_count(), 0, "not armed");
            queue.arm(kind);
            wait_until_idle();
            assert_eq!((queue.notification_count(), queue.notification_status()), (1, STATUS_BUFFER_OVERFLOW));
        }
    });
}

fn after_an_overrun_nothing_more_is_reported() {
    with_two_adapters(|first, second| {
        let pair = narrow(first, second);
        let queue = &pair.active.initiator;
        (0..3).for_each(|request| read(&pair.active.queue_pair, request));
        wait_until_idle();
        // What was there before it may still be taken; nothing comes after that.
        assert!(queue.take(8).len() <= 2);
        assert_eq!(pair.active.queue_pair.read(9, &[], Remote { address: 0, token: 0 }, NONE), 0, "accepted");
        wait_until_idle();
        assert!(queue.take(8).is_empty());
        queue.arm(NDK_CQ_NOTIFY_ANY);
        wait_until_idle();
        queue.arm(NDK_CQ_NOTIFY_ANY);
        wait_until_idle();
        assert_eq!(queue.notification_count(), 1, "notified once");
    });
}

/// The queue pair beside the one that overran it has done nothing and is ended all the same.
fn an_overrun_ends_every_queue_pair_of_the_queue() {
    with_two_adapters(|first, second| {
        let pair = narrow(first, second);
        let queue = &pair.active.initiator;
        let mut beside = End::new(first, QueuePairShape::default());
        let queue_pair = QueuePair::new(&beside.domain, &beside.receive, queue, QueuePairShape::default());
        beside.queue_pair = queue_pair.expect("a queue pair");
        let other = Pair::join(beside, End::new(second, QueuePairShape::default()), first.address(), second.address());
        assert_eq!(other.active.queue_pair.receive(77, &[]), 0);
        (0..3).for_each(|request| read(&pair.active.queue_pair, request));
        wait_until_idle();
        for pair in [&pair, &other] {
            assert!(pair.passive.connector().wait_for_disconnect(), "the peer gets an event");
            assert_eq!(pair.passive.connector().disconnect_events(), 1);
        }
        let flushed = other.active.receive.wait_for_one();
        assert_eq!((flushed.Status, flushed.RequestContext as u64), (STATUS_CANCELLED, 77));
    });
}

fn an_overrun_is_never_moderated() {
    with_two_adapters(|first, second| {
        let pair = narrow(first, second);
        let queue = &pair.active.initiator;
        assert_eq!(queue.resize(16), 0);
        assert_eq!(queue.moderate(u32::MAX, 16), 0);
        assert_eq!(queue.resize(12), 0);
        assert_eq!(queue.moderate(10_000_000, u32::MAX), 0);
        queue.arm(NDK_CQ_NOTIFY_ERRORS);
        (0..13).for_each(|request| read(&pair.active.queue_pair, request));
        wait_until_idle();
        assert_eq!((queue.notification_count(), queue.notification_status()), (1, STATUS_BUFFER_OVERFLOW));
    });
}
