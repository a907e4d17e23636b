//! Shared receive queues: limits, hand-out, order of the senders that wait, notification, changes of depth, ends.

use conformance::case;
use conformance::consumer::{
    Adapter, Buffer, CompletionQueue, End, Pair, QueuePair, QueuePairShape, SharedReceiveQueue, SharedShape, Window,
    WindowKind,
};
use conformance::machine::{wait_until_idle, with_two_adapters};
use conformance::trial::Case;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{
    STATUS_BUFFER_OVERFLOW, STATUS_DATA_OVERRUN, STATUS_INVALID_PARAMETER, STATUS_NO_MORE_ENTRIES, STATUS_PENDING,
};

pub const CASES: &[Case] = &[
    case!(depth_and_sges_above_the_limits_are_refused: "NDK-SRQ-1"),
    case!(receives_go_out_in_order_each_to_one_queue_pair: "NDK-SRQ-2"),
    case!(a_receive_completes_where_it_was_taken: "NDK-SRQ-3"),
    case!(the_notification_comes_once_below_the_threshold: "NDK-SRQ-4", "NDK-SRQ-5"),
    case!(modify_below_the_threshold_notifies_at_once: "NDK-SRQ-6"),
    case!(modify_with_nothing_keeps_everything: "NDK-SRQ-7", "NDK-SRQ-8"),
    case!(a_new_queue_is_not_armed: "NDK-SRQ-9"),
    case!(a_queue_without_a_function_never_notifies: "NDK-SRQ-10"),
    case!(a_flush_leaves_what_is_in_the_shared_queue: "NDK-SRQ-11"),
    case!(a_queue_pair_that_ends_gives_back_what_it_had_not_taken: "NDK-SRQ-12"),
    case!(a_receive_too_many_or_too_scattered_is_refused: "NDK-SRQ-13"),
    case!(a_send_that_finds_the_queue_empty_waits: "NDK-SRQ-14"),
    case!(waiting_senders_are_served_in_their_order: "NDK-SRQ-15"),
    case!(modify_above_the_limit_is_refused: "NDK-SRQ-16"),
    case!(modify_changes_the_depth_and_keeps_the_receives: "NDK-SRQ-17"),
    case!(queued_receives_are_dropped_with_the_queue: "NDK-SRQ-18", "NDK-CLOSE-9"),
    case!(queue_pairs_over_the_limits_are_refused: "NDK-SRQ-19"),
];

const SIZE: usize = 4096;

/// Connections from one adapter to the other whose passive ends share a receive queue.
struct Hub<'a> {
    near: Vec<Window<'a>>,
    peer: Window<'a>,
    pairs: Vec<Pair<'a>>,
    shared: SharedReceiveQueue,
    domain_end: End<'a>,
}

impl<'a> Hub<'a> {
    fn new(first: &'a Adapter, second: &'a Adapter, count: usize, shape: SharedShape) -> Self {
        // The domain of all objects of the passive side.
        let domain_end = End::new(second, QueuePairShape::default());
        let shared = SharedReceiveQueue::new(&domain_end.domain, shape).expect("a shared receive queue");
        let pairs: Vec<_> = (0..count)
            .map(|number| {
                let shape = QueuePairShape { context: 0x1000 * (number + 1), ..QueuePairShape::default() };
                let mut passive = End::new(second, shape);
                let queue_pair =
                    QueuePair::with_shared(&domain_end.domain, &passive.receive, &passive.initiator, &shared, shape);
                passive.queue_pair = queue_pair.expect("a queue pair");
                Pair::join(End::new(first, shape), passive, first.address(), second.address())
            })
            .collect();
        let near = pairs.iter().map(|pair| Window::open(&pair.active, Buffer::scattered(SIZE), WindowKind::Registered));
        let near = near.collect();
        let peer = Window::open(&domain_end, Buffer::scattered(SIZE), WindowKind::Registered);
        Self { near, peer, pairs, shared, domain_end }
    }

    fn post(&self, request: u64) {
        assert_eq!(self.shared.receive(request, &[self.peer.sge(0..64)]), 0);
    }

    fn send(&self, sender: usize, length: usize) {
        let message = [self.near[sender].sge(0..length)];
        assert_eq!(self.pairs[sender].active.queue_pair.send(7, &message, NDK_OP_FLAG_SILENT_SUCCESS), 0);
    }

    fn taken(&self, receiver: usize) -> Vec<NDK_RESULT_EX> {
        self.pairs[receiver].passive.receive.take(64)
    }

    fn requests(&self, receiver: usize) -> Vec<u64> {
        self.taken(receiver)
            .iter()
            .map(|result| {
                assert_eq!((result.Status, result.Type), (0, NdkOperationTypeReceive));
                result.RequestContext as u64
            })
            .collect()
    }

    /// Everything in an order that a consumer may choose: queue pairs first, then the queue they share.
    fn end(self) {
        drop(self.near);
        drop(self.peer);
        drop(self.pairs);
        self.shared.close();
        drop(self.domain_end);
    }
}

fn with_hub(count: usize, shape: SharedShape, trial: impl FnOnce(&Hub)) {
    with_two_adapters(|first, second| {
        let hub = Hub::new(first, second, count, shape);
        trial(&hub);
        hub.end();
    });
}

fn depth_and_sges_above_the_limits_are_refused() {
    with_two_adapters(|_, second| {
        let end = End::new(second, QueuePairShape::default());
        let (depth, sges) = (second.info().MaxSrqDepth, second.info().MaxReceiveRequestSge);
        let create =
            |depth, sges| SharedReceiveQueue::new(&end.domain, SharedShape { depth, sges, ..SharedShape::default() });
        for (depth, sges) in [(depth + 1, 1), (u32::MAX, 1), (4, sges + 1), (4, u32::MAX)] {
            assert_eq!(create(depth, sges).err(), Some(STATUS_INVALID_PARAMETER), "{depth} and {sges}");
        }
        for (depth, sges) in [(depth, 1), (1, sges), (depth, sges)] {
            create(depth, sges).expect("the limits themselves").close();
        }
    });
}

fn receives_go_out_in_order_each_to_one_queue_pair() {
    with_hub(3, SharedShape::default(), |hub| {
        for round in 0..20 {
            (0..6).for_each(|request| hub.post(10 * round + request));
            for sender in [2, 0, 0, 1, 2, 1] {
                hub.send(sender, 10);
                // Messages of different queue pairs may overtake each other.
                wait_until_idle();
            }
            let expected = [[1, 2], [3, 5], [0, 4]].map(|pair| pair.map(|request| 10 * round + request));
            for (receiver, expected) in expected.into_iter().enumerate() {
                assert_eq!(hub.requests(receiver), expected);
            }
        }
    });
}

fn a_receive_completes_where_it_was_taken() {
    with_hub(2, SharedShape::default(), |hub| {
        for receiver in [1, 0, 1] {
            hub.post(5);
            hub.send(receiver, 33);
            wait_until_idle();
            let results = hub.taken(receiver);
            assert_eq!(results.len(), 1);
            assert_eq!(results[0].QPContext as usize, 0x1000 * (receiver + 1));
            assert_eq!((results[0].RequestContext as u64, results[0].BytesTransferred), (5, 33));
            assert!(hub.taken(1 - receiver).is_empty());
        }
    });
}

fn the_notification_comes_once_below_the_threshold() {
    with_hub(1, SharedShape::default(), |hub| {
        (0..8).for_each(|request| hub.post(request));
        for (threshold, left) in [(6, 5_usize), (3, 2)] {
            assert_eq!(hub.shared.modify(0, threshold), 0);
            let before = hub.shared.notification_count();
            let mut queued = if left == 5 { 8 } else { 4 };
            while queued > 0 {
                hub.send(0, 1);
                wait_until_idle();
                queued -= 1;
                let notified = u32::from(queued <= left);
                assert_eq!(
                    hub.shared.notification_count(),
                    before + notified,
                    "{queued} queued, threshold {threshold}"
                );
                if left == 5 && queued == 4 {
                    break;
                }
            }
        }
        assert_eq!(hub.shared.notification_status(), 0);
    });
}

fn modify_below_the_threshold_notifies_at_once() {
    with_hub(1, SharedShape::default(), |hub| {
        hub.post(1);
        for (threshold, notified) in [(1, 0), (2, 1), (1000, 2), (1, 2)] {
            assert_eq!(hub.shared.modify(0, threshold), 0);
            wait_until_idle();
            assert_eq!(hub.shared.notification_count(), notified, "threshold {threshold}, one queued");
        }
    });
}

fn modify_with_nothing_keeps_everything() {
    with_hub(1, SharedShape { depth: 4, ..SharedShape::default() }, |hub| {
        (0..4).for_each(|request| hub.post(request));
        assert_eq!(hub.shared.modify(0, 4), 0);
        assert_eq!(hub.shared.modify(0, 0), 0);
        assert_eq!(hub.shared.receive(9, &[]), STATUS_NO_MORE_ENTRIES, "depth 0 keeps the depth");
        wait_until_idle();
        assert_eq!(hub.shared.notification_count(), 0);
        hub.send(0, 1);
        wait_until_idle();
        assert_eq!(hub.shared.notification_count(), 1, "threshold 0 keeps the arming and the threshold");
        assert_eq!(hub.shared.modify(0, 0), 0);
        assert_eq!(hub.shared.modify(5, 0), 0);
        hub.send(0, 1);
        wait_until_idle();
        assert_eq!(hub.shared.notification_count(), 1, "threshold 0 does not arm");
    });
}

fn a_new_queue_is_not_armed() {
    with_hub(1, SharedShape { threshold: 10, ..SharedShape::default() }, |hub| {
        hub.post(1);
        hub.send(0, 1);
        wait_until_idle();
        assert_eq!(hub.shared.notification_count(), 0);
    });
}

fn a_queue_without_a_function_never_notifies() {
    with_hub(1, SharedShape { silent: true, ..SharedShape::default() }, |hub| {
        assert_eq!(hub.shared.modify(0, 10), 0);
        hub.post(1);
        hub.send(0, 1);
        wait_until_idle();
        assert_eq!((hub.shared.notification_count(), hub.requests(0)), (0, vec![1]));
    });
}

fn a_flush_leaves_what_is_in_the_shared_queue() {
    with_hub(2, SharedShape::default(), |hub| {
        (0..4).for_each(|request| hub.post(request));
        hub.pairs[0].passive.queue_pair.flush();
        wait_until_idle();
        assert!(hub.taken(0).is_empty(), "nothing of it is the queue pair's");
        (0..4).for_each(|_| hub.send(1, 1));
        wait_until_idle();
        assert_eq!(hub.requests(1), [0, 1, 2, 3]);
    });
}

/// A long message is on its way when its sender's end flushes.
fn a_queue_pair_that_ends_gives_back_what_it_had_not_taken() {
    with_two_adapters(|first, second| {
        let hub = Hub::new(first, second, 2, SharedShape::default());
        for (side, count) in [(0, 3), (1, 2)] {
            (0..count).for_each(|request| hub.post(request));
            hub.send(side, 1);
            wait_until_idle();
            assert_eq!(hub.requests(side), [0]);
            if side == 0 {
                hub.pairs[0].active.queue_pair.flush();
                hub.pairs[0].passive.connector().close();
                hub.pairs[0].passive.queue_pair.close();
                wait_until_idle();
                assert!(hub.taken(0).is_empty());
                hub.send(1, 1);
                hub.send(1, 1);
                wait_until_idle();
                assert_eq!(hub.requests(1), [1, 2], "the other queue pair gets them");
            }
        }
        hub.end();
    });
}

fn a_receive_too_many_or_too_scattered_is_refused() {
    with_hub(1, SharedShape { depth: 3, sges: 2, ..SharedShape::default() }, |hub| {
        let sge = hub.peer.sge(0..1);
        assert_eq!(hub.shared.receive(1, &[sge; 3]), STATUS_DATA_OVERRUN);
        for request in 0..3 {
            assert_eq!(hub.shared.receive(request, &[sge; 2]), 0);
        }
        assert_eq!(hub.shared.receive(4, &[]), STATUS_NO_MORE_ENTRIES);
        hub.send(0, 2);
        wait_until_idle();
        assert_eq!(hub.requests(0), [0]);
        assert_eq!(hub.shared.receive(4, &[]), 0);
    });
}

fn a_send_that_finds_the_queue_empty_waits() {
    with_hub(1, SharedShape::default(), |hub| {
        hub.send(0, 64);
        kernel_host::dispatcher::delay(-100_000_000);
        assert!(hub.taken(0).is_empty());
        assert_eq!(hub.pairs[0].passive.connector().disconnect_events(), 0);
        hub.post(3);
        wait_until_idle();
        assert_eq!(hub.requests(0), [3]);
    });
}

fn waiting_senders_are_served_in_their_order() {
    with_hub(4, SharedShape::default(), |hub| {
        for order in [[0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]] {
            for sender in order {
                hub.send(sender, 1);
                wait_until_idle();
            }
            for (place, receiver) in order.into_iter().enumerate() {
                hub.post(place as u64);
                wait_until_idle();
                assert_eq!(hub.requests(receiver), [place as u64], "{order:?}");
            }
        }
    });
}

fn modify_above_the_limit_is_refused() {
    with_hub(1, SharedShape { depth: 2, ..SharedShape::default() }, |hub| {
        let most = hub.domain_end.adapter.info().MaxSrqDepth;
        hub.post(0);
        for depth in [most + 1, u32::MAX] {
            assert_eq!(hub.shared.modify(depth, 50), STATUS_INVALID_PARAMETER);
        }
        wait_until_idle();
        assert_eq!(hub.shared.notification_count(), 0, "nor was it armed");
        hub.post(1);
        assert_eq!(hub.shared.receive(2, &[]), STATUS_NO_MORE_ENTRIES);
        assert_eq!(hub.shared.modify(most, 0), 0, "the limit itself");
        hub.post(2);
    });
}

fn modify_changes_the_depth_and_keeps_the_receives() {
    with_hub(1, SharedShape { depth: 4, ..SharedShape::default() }, |hub| {
        (0..4).for_each(|request| hub.post(request));
        for depth in [1, 3] {
            assert_eq!(hub.shared.modify(depth, 0), STATUS_BUFFER_OVERFLOW, "to {depth}");
        }
        let (mut next, mut expected) = (4_u64, 0);
        for depth in [7_u64, 5, 12, 6] {
            while next - expected > depth - 1 {
                hub.send(0, 1);
                wait_until_idle();
                assert_eq!(hub.requests(0), [expected]);
                expected += 1;
            }
            assert_eq!(hub.shared.modify(depth as u32, 0), 0, "to {depth}");
            while next - expected < depth {
                hub.post(next);
                next += 1;
            }
            assert_eq!(hub.shared.receive(next, &[]), STATUS_NO_MORE_ENTRIES);
        }
        (expected..next).for_each(|_| hub.send(0, 1));
        wait_until_idle();
        assert_eq!(hub.requests(0), (expected..next).collect::<Vec<_>>());
    });
}

fn queued_receives_are_dropped_with_the_queue() {
    with_two_adapters(|first, second| {
        let hub = Hub::new(first, second, 1, SharedShape::default());
        (0..5).for_each(|request| hub.post(request));
        let closing = hub.shared.object().begin_close();
        assert_eq!(closing.inline(), STATUS_PENDING, "a queue pair uses it");
        hub.send(0, 1);
        wait_until_idle();
        assert_eq!(hub.requests(0), [0], "and goes on using it");
        hub.pairs[0].passive.connector().close();
        hub.pairs[0].passive.queue_pair.close();
        closing.wait();
        let left = hub.taken(0);
        assert!(left.is_empty(), "{left:#x?}");
        drop(hub.near);
        drop(hub.peer);
        drop(hub.pairs);
    });
}

fn queue_pairs_over_the_limits_are_refused() {
    with_two_adapters(|_, second| {
        let end = End::new(second, QueuePairShape::default());
        let shared = SharedReceiveQueue::new(&end.domain, SharedShape::default()).expect("a shared receive queue");
        let info = second.info();
        let good = QueuePairShape::default();
        let shapes = [
            QueuePairShape { initiator_depth: info.MaxInitiatorQueueDepth + 1, ..good },
            QueuePairShape { initiator_sges: info.MaxInitiatorRequestSge + 1, ..good },
            QueuePairShape { inline_size: info.MaxInlineDataSize + 1, ..good },
        ];
        let queue: &CompletionQueue = &end.receive;
        for shape in shapes {
            let refused = QueuePair::with_shared(&end.domain, queue, queue, &shared, shape).err();
            assert_eq!(refused, Some(STATUS_INVALID_PARAMETER), "{shape:?}");
        }
        let queue_pair = QueuePair::with_shared(&end.domain, queue, queue, &shared, good).expect("within the limits");
        assert_eq!(queue_pair.receive(1, &[]), STATUS_INVALID_PARAMETER, "it has no receive queue of its own");
        queue_pair.close();
        shared.close();
    });
}
