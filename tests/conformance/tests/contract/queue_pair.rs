//! Posting: what is refused at once and leaves the queue pair healthy, what is accepted and completes exactly once,
//! deferred chains, silent requests, inline data, sends that wait, flushes.

use conformance::case;
use conformance::consumer::{
    Adapter, Buffer, End, FastRegistration, Mapping, Pair, QueuePair, QueuePairShape, Window, WindowKind, sge,
};
use conformance::machine::{wait_until_idle, with_two_adapters};
use conformance::peers;
use conformance::trial::Case;
use ndkpi_sys::ndkinfo::NDK_ADAPTER_INFO;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{
    STATUS_BUFFER_OVERFLOW, STATUS_CANCELLED, STATUS_CONNECTION_INVALID, STATUS_DATA_OVERRUN, STATUS_INVALID_PARAMETER,
    STATUS_NO_MORE_ENTRIES, STATUS_REMOTE_RESOURCES,
};

pub const CASES: &[Case] = &[
    case!(shape_above_the_limits_is_refused: "NDK-QP-1"),
    case!(initiator_posts_before_a_connection_are_refused: "NDK-QP-2", "NDK-QP-3"),
    case!(receive_before_a_connection_is_accepted: "NDK-QP-17"),
    case!(full_initiator_queue_is_refused: "NDK-QP-4", "NDK-QP-3", "NDK-QP-18"; not in stream),
    case!(full_receive_queue_is_refused: "NDK-QP-4"),
    case!(too_many_sges_are_refused: "NDK-QP-4", "NDK-QP-18"),
    case!(too_many_bytes_are_refused: "NDK-QP-4", "NDK-QP-18", "BUG-3"),
    case!(no_bytes_need_no_token: "NDK-QP-5"),
    case!(send_of_nothing_consumes_a_receive: "NDK-QP-5", "NDK-QP-20", "NDK-CQ-18"),
    case!(deferred_chain_of_sixteen_runs_with_its_last: "NDK-QP-6", "NDK-CQ-8"),
    case!(deferred_chain_of_the_whole_queue_runs_with_its_last: "NDK-QP-6", "NDK-DEFER-4"),
    case!(refused_post_lets_held_requests_run: "NDK-DEFER-1"),
    case!(silent_successes_give_no_result_and_free_their_slots: "NDK-QP-7", "NDK-QP-21"),
    case!(silent_failure_gives_a_result: "NDK-QP-7"; not in stream),
    case!(send_waits_for_a_receive: "NDK-QP-8"; not in stream),
    case!(send_larger_than_its_receive_fails_both: "NDK-QP-9"),
    case!(flush_cancels_both_queues: "NDK-QP-10"),
    case!(inline_data_is_read_before_the_call_returns: "NDK-QP-11", "NDK-QP-24", "NDK-QP-25"),
    case!(inline_data_above_the_limit_is_refused: "NDK-QP-26", "NDK-QP-18"),
    case!(send_and_invalidate_ends_the_region_first: "NDK-QP-16", "NDK-QP-29", "NDK-CQ-19", "NDK-FRMR-6"),
    case!(send_and_invalidate_of_an_unknown_token_fails: "NDK-QP-30"),
    case!(reads_beyond_the_limit_wait_in_the_queue: "NDK-QP-32"),
    case!(queue_wraps_many_times: "NDK-QP-3", "NDK-CQ-8"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();

fn shape_above_the_limits_is_refused() {
    with_two_adapters(|first, _| {
        let info = first.info();
        let end = End::new(first, QueuePairShape::default());
        let shape = QueuePairShape::default();
        let over = [
            QueuePairShape { receive_depth: info.MaxReceiveQueueDepth + 1, ..shape },
            QueuePairShape { initiator_depth: info.MaxInitiatorQueueDepth + 1, ..shape },
            QueuePairShape { receive_sges: info.MaxReceiveRequestSge + 1, ..shape },
            QueuePairShape { initiator_sges: info.MaxInitiatorRequestSge + 1, ..shape },
            QueuePairShape { inline_size: info.MaxInlineDataSize + 1, ..shape },
            QueuePairShape { receive_depth: u32::MAX, ..shape },
            QueuePairShape { initiator_sges: u32::MAX, ..shape },
        ];
        for shape in over {
            let made = QueuePair::new(&end.domain, &end.receive, &end.initiator, shape);
            assert_eq!(made.err(), Some(STATUS_INVALID_PARAMETER), "{shape:?}");
        }
        let most = QueuePairShape {
            receive_depth: info.MaxReceiveQueueDepth,
            initiator_depth: info.MaxInitiatorQueueDepth,
            receive_sges: info.MaxReceiveRequestSge,
            initiator_sges: info.MaxInitiatorRequestSge,
            inline_size: info.MaxInlineDataSize,
            ..shape
        };
        QueuePair::new(&end.domain, &end.receive, &end.initiator, most).expect("a queue pair at the limits").close();
    });
}

fn initiator_posts_before_a_connection_are_refused() {
    with_two_adapters(|first, _| {
        let end = End::new(first, QueuePairShape::default());
        let buffer = Buffer::scattered(4096);
        let region = end.domain.register(&buffer, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
        let list = [buffer.whole(region.local_token())];
        let remote = conformance::consumer::Remote { address: buffer.label(), token: region.remote_token() };
        let fast = end.domain.fast_region(16, true);
        let mapping = Mapping::build(first, &buffer).expect("a logical mapping");
        let registration = FastRegistration {
            pages: mapping.pages(),
            first_byte_offset: mapping.first_byte_offset(),
            length: buffer.length(),
            base: buffer.label(),
        };
        let queue_pair = &end.queue_pair;
        let answers = [
            queue_pair.send(1, &list, NONE),
            queue_pair.read(2, &list, remote, NONE),
            queue_pair.write(3, &list, remote, NONE),
            queue_pair.send_and_invalidate(4, &list, NONE, region.remote_token()),
            queue_pair.fast_register(5, fast.object(), &registration, NDK_OP_FLAG_ALLOW_REMOTE_READ),
            queue_pair.invalidate(6, fast.object(), NONE),
        ];
        assert!(answers.iter().all(|status| *status == STATUS_CONNECTION_INVALID), "{answers:#x?}");
        wait_until_idle();
        assert!(end.initiator.take(8).is_empty(), "a refused request has a result");
        drop(mapping);
        fast.close();
        region.close();
    });
}

fn receive_before_a_connection_is_accepted() {
    with_two_adapters(|first, second| {
        let active = End::new(first, QueuePairShape::default());
        let passive = End::new(second, QueuePairShape::default());
        let buffer = Buffer::scattered(256);
        let region = passive.domain.register(&buffer, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
        assert_eq!(passive.queue_pair.receive(1, &[buffer.whole(region.local_token())]), 0);
        let pair = Pair::join(active, passive, first.address(), second.address());
        assert_eq!(pair.active.queue_pair.send(2, &[], NONE), 0);
        let received = pair.passive.receive.wait_for_one();
        assert_eq!((received.Status, received.RequestContext as u64), (0, 1));
        region.close();
    });
}

/// A connection with good memory on both sides.
struct Scene<'a> {
    near: Window<'a>,
    peer: Window<'a>,
    pair: Pair<'a>,
}

impl<'a> Scene<'a> {
    fn new(first: &'a Adapter, second: &'a Adapter) -> Self {
        Self::with(first, second, QueuePairShape::default())
    }

    fn with(first: &'a Adapter, second: &'a Adapter, shape: QueuePairShape) -> Self {
        let pair = Pair::connect_with(first, second, shape);
        let near = Window::open(&pair.active, Buffer::scattered(70_000), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(70_000), WindowKind::Registered);
        near.buffer.fill_with_seed(1);
        Self { near, peer, pair }
    }

    fn write(&self, request: u64, flags: NDK_OP_FLAGS) -> i32 {
        self.pair.active.queue_pair.write(request, &[self.near.sge(0..64)], self.peer.remote(0), flags)
    }

    /// The queue pair works: one Write goes through.
    fn assert_healthy(&self) {
        assert_eq!(self.write(0x600D, NONE), 0);
        let result = self.pair.active.initiator.wait_for_one();
        assert_eq!((result.Status, result.RequestContext as u64), (0, 0x600D));
    }

    fn assert_contexts(&self, expected: impl IntoIterator<Item = u64>) {
        let expected: Vec<u64> = expected.into_iter().collect();
        let results = self.pair.active.initiator.wait_for(expected.len());
        assert!(results.iter().all(|result| result.Status == 0), "{results:#x?}");
        let seen: Vec<u64> = results.iter().map(|result| result.RequestContext as u64).collect();
        assert_eq!(seen, expected);
    }
}

fn full_initiator_queue_is_refused() {
    with_two_adapters(|first, second| {
        let depth = 8;
        let scene = Scene::with(first, second, QueuePairShape { initiator_depth: depth, ..QueuePairShape::default() });
        // Sends without a receive stay in the queue.
        for request in 0..u64::from(depth) {
            assert_eq!(scene.pair.active.queue_pair.send(request, &[], NONE), 0, "send {request} of {depth}");
        }
        for _ in 0..3 {
            assert_eq!(scene.pair.active.queue_pair.send(99, &[], NONE), STATUS_NO_MORE_ENTRIES);
        }
        for request in 0..u64::from(depth) {
            assert_eq!(scene.pair.passive.queue_pair.receive(request, &[]), 0);
        }
        scene.assert_contexts(0..u64::from(depth));
        scene.assert_healthy();
    });
}

fn full_receive_queue_is_refused() {
    with_two_adapters(|first, second| {
        let depth = 8;
        let scene = Scene::with(first, second, QueuePairShape { receive_depth: depth, ..QueuePairShape::default() });
        for request in 0..u64::from(depth) {
            assert_eq!(scene.pair.passive.queue_pair.receive(request, &[]), 0);
        }
        assert_eq!(scene.pair.passive.queue_pair.receive(99, &[]), STATUS_NO_MORE_ENTRIES);
        assert_eq!(scene.pair.active.queue_pair.send(1, &[], NONE), 0);
        assert_eq!(scene.pair.passive.receive.wait_for_one().RequestContext as u64, 0);
        assert_eq!(scene.pair.passive.queue_pair.receive(100, &[]), 0, "there is a free slot again");
    });
}

fn too_many_sges_are_refused() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        let most = QueuePairShape::default().initiator_sges as usize;
        let near: Vec<NDK_SGE> = (0..=most).map(|index| scene.near.sge(index..index + 1)).collect();
        let peer: Vec<NDK_SGE> = (0..=most).map(|index| scene.peer.sge(index..index + 1)).collect();
        let queue_pair = &scene.pair.active.queue_pair;
        let remote = scene.peer.remote(0);
        assert_eq!(queue_pair.send(1, &near, NONE), STATUS_DATA_OVERRUN);
        assert_eq!(queue_pair.write(2, &near, remote, NONE), STATUS_DATA_OVERRUN);
        assert_eq!(queue_pair.read(3, &near, remote, NONE), STATUS_DATA_OVERRUN);
        assert_eq!(scene.pair.passive.queue_pair.receive(4, &peer), STATUS_DATA_OVERRUN);
        scene.assert_healthy();
    });
}

fn too_many_bytes_are_refused() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        let most = first.info().MaxTransferLength;
        // Two scatter/gather elements whose lengths add up to one byte too many, and one whose sum does not fit 32 bits.
        let token = scene.near.local_token();
        let label = scene.near.buffer.label();
        let over = [sge(label, most as usize, token), sge(label, 1, token)];
        let wrapping = [sge(label, u32::MAX as usize, token), sge(label, 2, token)];
        let queue_pair = &scene.pair.active.queue_pair;
        for list in [over, wrapping] {
            assert_eq!(queue_pair.send(1, &list, NONE), STATUS_BUFFER_OVERFLOW);
            assert_eq!(queue_pair.write(2, &list, scene.peer.remote(0), NONE), STATUS_BUFFER_OVERFLOW);
            assert_eq!(queue_pair.read(3, &list, scene.peer.remote(0), NONE), STATUS_BUFFER_OVERFLOW);
        }
        scene.assert_healthy();
    });
}

fn no_bytes_need_no_token() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        let nowhere = conformance::consumer::Remote { address: 0xDEAD_BEEF, token: 0x1234_5678 };
        let empty = [sge(0xBAD, 0, 0x8765_4321)];
        let queue_pair = &scene.pair.active.queue_pair;
        assert_eq!(queue_pair.read(1, &[], nowhere, NONE), 0);
        assert_eq!(queue_pair.write(2, &[], nowhere, NONE), 0);
        assert_eq!(queue_pair.read(3, &empty, nowhere, NONE), 0);
        assert_eq!(queue_pair.write(4, &empty, nowhere, NONE), 0);
        scene.assert_contexts(1..=4);
        scene.assert_healthy();
    });
}

fn send_of_nothing_consumes_a_receive() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        assert_eq!(scene.pair.passive.queue_pair.receive(1, &[scene.peer.sge(0..64)]), 0);
        assert_eq!(scene.pair.passive.queue_pair.receive(2, &[scene.peer.sge(64..128)]), 0);
        assert_eq!(scene.pair.active.queue_pair.send(1, &[], NONE), 0);
        assert_eq!(scene.pair.active.queue_pair.send(2, &[scene.near.sge(0..10)], NONE), 0);
        let results = scene.pair.passive.receive.wait_for(2);
        let seen: Vec<(u64, u32)> =
            results.iter().map(|result| (result.RequestContext as u64, result.BytesTransferred)).collect();
        assert_eq!(seen, [(1, 0), (2, 10)]);
    });
}

fn chain(length: impl FnOnce(&NDK_ADAPTER_INFO) -> u32) {
    with_two_adapters(|first, second| {
        let length = length(&first.info());
        let shape = QueuePairShape { initiator_depth: length, ..QueuePairShape::default() };
        let scene = Scene::with(first, second, shape);
        for round in 0..3_u64 {
            let first_request = round * u64::from(length);
            for request in 0..length - 1 {
                assert_eq!(scene.write(first_request + u64::from(request), NDK_OP_FLAG_DEFER), 0);
            }
            assert_eq!(scene.write(first_request + u64::from(length) - 1, NONE), 0);
            scene.assert_contexts(first_request..first_request + u64::from(length));
        }
    });
}

fn deferred_chain_of_sixteen_runs_with_its_last() {
    chain(|_| 16);
}

fn deferred_chain_of_the_whole_queue_runs_with_its_last() {
    chain(|info| info.MaxInitiatorQueueDepth);
}

fn refused_post_lets_held_requests_run() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        for request in 0..5 {
            assert_eq!(scene.write(request, NDK_OP_FLAG_DEFER), 0);
        }
        let most = QueuePairShape::default().initiator_sges as usize;
        let too_many: Vec<NDK_SGE> = (0..=most).map(|index| scene.near.sge(index..index + 1)).collect();
        let refused = scene.pair.active.queue_pair.write(9, &too_many, scene.peer.remote(0), NONE);
        assert_eq!(refused, STATUS_DATA_OVERRUN);
        // The consumer posts no terminator; the five must complete all the same.
        scene.assert_contexts(0..5);
    });
}

fn silent_successes_give_no_result_and_free_their_slots() {
    with_two_adapters(|first, second| {
        let scene = Scene::with(first, second, QueuePairShape { initiator_depth: 4, ..QueuePairShape::default() });
        for request in 0..100 {
            let mut status = scene.write(request, NDK_OP_FLAG_SILENT_SUCCESS);
            for _ in 0..50 {
                if status != STATUS_NO_MORE_ENTRIES {
                    break;
                }
                wait_until_idle();
                status = scene.write(request, NDK_OP_FLAG_SILENT_SUCCESS);
            }
            assert_eq!(status, 0, "silent request {request}");
        }
        wait_until_idle();
        assert!(scene.pair.active.initiator.take(8).is_empty(), "a silent success has a result");
        scene.assert_healthy();
    });
}

fn silent_failure_gives_a_result() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        let nowhere = conformance::consumer::Remote { token: !scene.peer.remote_token(), ..scene.peer.remote(0) };
        let near = [scene.near.sge(0..64)];
        assert_eq!(scene.pair.active.queue_pair.write(1, &near, nowhere, NDK_OP_FLAG_SILENT_SUCCESS), 0);
        assert_eq!(scene.write(2, NDK_OP_FLAG_SILENT_SUCCESS), 0);
        let results = scene.pair.active.initiator.wait_for(2);
        assert_eq!(results[0].Status, STATUS_REMOTE_RESOURCES);
        assert_eq!(results[1].Status, STATUS_CANCELLED, "what follows a failure is cancelled, silent or not");
    });
}

fn send_waits_for_a_receive() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        assert_eq!(scene.pair.active.queue_pair.send(1, &[scene.near.sge(0..64)], NONE), 0);
        assert_eq!(scene.write(2, NONE), 0);
        wait_until_idle();
        assert!(scene.pair.active.initiator.take(4).is_empty(), "a send completed without a receive, or was overtaken");
        assert_eq!(scene.pair.passive.queue_pair.receive(3, &[scene.peer.sge(0..64)]), 0);
        scene.assert_contexts(1..=2);
        assert_eq!(scene.pair.passive.receive.wait_for_one().BytesTransferred, 64);
        scene.peer.buffer.assert_seed(1, 0..64);
    });
}

fn send_larger_than_its_receive_fails_both() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        scene.peer.buffer.fill_with_seed(2);
        assert_eq!(scene.pair.passive.queue_pair.receive(1, &[scene.peer.sge(0..64)]), 0);
        assert_eq!(scene.pair.active.queue_pair.send(2, &[scene.near.sge(0..65)], NONE), 0);
        let received = scene.pair.passive.receive.wait_for_one();
        assert_eq!(received.Status, STATUS_BUFFER_OVERFLOW);
        let sent = scene.pair.active.initiator.wait_for_one();
        assert_eq!(sent.Status, peers::late(STATUS_REMOTE_RESOURCES));
        let before: Vec<u8> = (0..4096).map(|position| conformance::consumer::pattern(2, position)).collect();
        assert_eq!(scene.peer.buffer.to_vec()[64..4096], before[64..], "nothing past the receive is written");
    });
}

fn flush_cancels_both_queues() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        let end = &scene.pair.active;
        for request in 0..4 {
            assert_eq!(end.queue_pair.receive(request, &[scene.near.sge(0..64)]), 0);
            assert_eq!(end.queue_pair.send(10 + request, &[], NONE), 0, "a send that waits for a receive");
        }
        end.queue_pair.flush();
        for (queue, first_request) in [(&end.receive, 0), (&end.initiator, 10)] {
            let results = queue.wait_for(4);
            let seen: Vec<u64> = results.iter().map(|result| result.RequestContext as u64).collect();
            assert!(results.iter().all(peers::waited), "{results:#x?}");
            assert_eq!(seen, (first_request..first_request + 4).collect::<Vec<_>>());
        }
    });
}

fn inline_data_is_read_before_the_call_returns() {
    with_two_adapters(|first, second| {
        let size = first.info().MaxInlineDataSize.min(256);
        let shape = QueuePairShape { inline_size: size, ..QueuePairShape::default() };
        let scene = Scene::with(first, second, shape);
        // More scatter/gather elements than the queue pair takes otherwise, on memory without a region.
        let mut data: Vec<u8> = (0..size).map(|index| index as u8).collect();
        let expected = data.clone();
        let pieces: Vec<NDK_SGE> =
            data.chunks(8).map(|piece| sge(piece.as_ptr() as u64, piece.len(), 0xDEAD)).collect();
        let status = scene.pair.active.queue_pair.send(1, &pieces, NDK_OP_FLAG_INLINE);
        data.fill(0xFF);
        std::hint::black_box(&data);
        assert_eq!(status, 0, "an inline send of {size} bytes in {} scatter/gather elements", pieces.len());
        assert_eq!(scene.pair.passive.queue_pair.receive(2, &[scene.peer.sge(0..4096)]), 0);
        assert_eq!(scene.pair.passive.receive.wait_for_one().BytesTransferred, size);
        assert_eq!(scene.peer.buffer.to_vec()[..size as usize], expected);
        scene.assert_contexts([1]);
    });
}

fn inline_data_above_the_limit_is_refused() {
    with_two_adapters(|first, second| {
        let shape = first.fit(QueuePairShape { inline_size: 64, ..QueuePairShape::default() });
        let scene = Scene::with(first, second, shape);
        let data = [0_u8; 1024];
        let list = [sge(data.as_ptr() as u64, 1024, 0)];
        assert_eq!(scene.pair.active.queue_pair.send(1, &list, NDK_OP_FLAG_INLINE), STATUS_BUFFER_OVERFLOW);
        scene.assert_healthy();
    });
}

fn send_and_invalidate_ends_the_region_first() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        let passive = &scene.pair.passive;
        let window = Window::open(passive, Buffer::scattered(4096), WindowKind::FastRegistered);
        let token = window.remote_token();
        assert_eq!(passive.queue_pair.receive(1, &[scene.peer.sge(0..64)]), 0);
        let status = scene.pair.active.queue_pair.send_and_invalidate(2, &[scene.near.sge(0..64)], NONE, token);
        assert_eq!(status, 0);
        let received = passive.receive.wait_for_one();
        assert_eq!(received.Status, 0);
        assert_eq!(received.Type, NdkOperationTypeReceiveAndInvalidate);
        assert_eq!(received.TypeSpecificCompletionOutput, token as usize);
        let sent = scene.pair.active.initiator.wait_for_one();
        assert_eq!((sent.Status, sent.Type), (0, NdkOperationTypeSend), "the sender's own result is a Send");
        // Invalidating again must fail, which ends the connection.
        let region = window.region.as_ref().expect("a region");
        assert_eq!(passive.queue_pair.invalidate(3, region.object(), NONE), 0);
        assert!(passive.initiator.wait_for_one().Status < 0, "the second invalidation");
    });
}

fn send_and_invalidate_of_an_unknown_token_fails() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        let passive = &scene.pair.passive;
        assert_eq!(passive.queue_pair.receive(1, &[scene.peer.sge(0..64)]), 0);
        let unknown = scene.peer.remote_token() ^ 0x0055_5555;
        let status = scene.pair.active.queue_pair.send_and_invalidate(2, &[scene.near.sge(0..64)], NONE, unknown);
        assert_eq!(status, 0);
        assert_eq!(scene.pair.active.initiator.wait_for_one().Status, peers::late(STATUS_REMOTE_RESOURCES));
        assert!(passive.receive.wait_for_one().Status < 0, "the receive of a message that ends the connection");
    });
}

fn reads_beyond_the_limit_wait_in_the_queue() {
    with_two_adapters(|first, second| {
        let shape = first.fit(QueuePairShape { initiator_depth: 256, ..QueuePairShape::default() });
        let scene = Scene::with(first, second, shape);
        let count = u64::from(shape.initiator_depth);
        for request in 0..count {
            let near = [scene.near.sge(0..64)];
            let flags = if request == count - 1 { NONE } else { NDK_OP_FLAG_DEFER };
            assert_eq!(scene.pair.active.queue_pair.read(request, &near, scene.peer.remote(0), flags), 0);
        }
        scene.assert_contexts(0..count);
    });
}

fn queue_wraps_many_times() {
    with_two_adapters(|first, second| {
        let scene = Scene::with(first, second, QueuePairShape { initiator_depth: 3, ..QueuePairShape::default() });
        for round in 0..100_u64 {
            let count = 1 + round % 3;
            for request in 0..count {
                assert_eq!(scene.write(round * 3 + request, NONE), 0);
            }
            scene.assert_contexts((0..count).map(|request| round * 3 + request));
        }
    });
}
