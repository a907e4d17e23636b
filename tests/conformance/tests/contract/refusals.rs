//! The entry that a refusal adds to the driver's list: the call, the object, the status, the cause, and how it was reported. That every failure of
//! every other trial leaves one is checked by the consumer layer (`consumer::refusals`).

use std::net::SocketAddr;

use conformance::case;
use conformance::consumer::{
    Adapter, Buffer, Connector, End, Offer, Pair, QueuePairShape, Remote, Window, WindowKind, refusals,
};
use conformance::machine::with_two_adapters;
use conformance::peers;
use conformance::trial::Case;
use ndkpi_sys::ndkpi::{NDK_MR_FLAG_ALLOW_LOCAL_WRITE, NDK_OP_FLAGS};
use ndkpi_sys::nt::{
    NTSTATUS, STATUS_CONNECTION_INVALID, STATUS_CONNECTION_REFUSED, STATUS_INVALID_PARAMETER, STATUS_NO_MORE_ENTRIES,
    STATUS_REMOTE_RESOURCES,
};
use softndk_ioctl::{NdkCall, ObjectKind, RefusalCause, RefusalEntry, RefusalPlace, RefusalWay};

pub const CASES: &[Case] = &[
    case!(refused_call_names_object_and_cause: "IOCTL-13"),
    case!(failed_completion_and_result_name_object_and_cause: "IOCTL-13"),
    case!(failed_invalidation_names_the_peers_memory_and_a_short_receive_the_receive: "IOCTL-13"; not in stream),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();

/// The refusal that the last failure left, which must be this one.
#[track_caller]
fn left(call: NdkCall, kind: ObjectKind, status: NTSTATUS, cause: RefusalCause) -> RefusalEntry {
    let entry = refusals::matched().expect("a refusal");
    assert_eq!((entry.call, entry.kind, entry.cause), (call, kind, cause), "{entry:?}");
    assert_eq!(entry.status, status, "{entry:?}");
    assert_ne!(entry.object, 0);
    entry
}

fn refused_call_names_object_and_cause() {
    with_two_adapters(|first, _| {
        let shape = QueuePairShape { receive_depth: 1, ..QueuePairShape::default() };
        let (one, other) = (End::new(first, shape), End::new(first, shape));
        assert_eq!(one.queue_pair.receive(1, &[]), 0);
        assert_eq!(one.queue_pair.receive(2, &[]), STATUS_NO_MORE_ENTRIES);
        let full =
            left(NdkCall::RECEIVE, ObjectKind::QUEUE_PAIR, STATUS_NO_MORE_ENTRIES, RefusalCause::POST_QUEUE_FULL);
        assert_eq!((full.way, full.irql), (RefusalWay::CALL, 0));
        let unconnected = |end: &End| {
            assert_eq!(end.queue_pair.send(3, &[], NONE), STATUS_CONNECTION_INVALID);
            let cause = RefusalCause::POST_NOT_CONNECTED;
            left(NdkCall::SEND, ObjectKind::QUEUE_PAIR, STATUS_CONNECTION_INVALID, cause).object
        };
        assert_eq!(unconnected(&one), full.object, "the same queue pair has the same number");
        assert_ne!(unconnected(&other), full.object, "another one has not");
        assert_eq!(one.queue_pair.send(4, &[], NDK_OP_FLAGS::from_bits_retain(0x4000_0000)), STATUS_INVALID_PARAMETER);
        left(NdkCall::SEND, ObjectKind::QUEUE_PAIR, STATUS_INVALID_PARAMETER, RefusalCause::UNKNOWN_FLAGS);
        assert_eq!(one.initiator.resize(u32::MAX), STATUS_INVALID_PARAMETER);
        left(
            NdkCall::RESIZE_CQ,
            ObjectKind::COMPLETION_QUEUE,
            STATUS_INVALID_PARAMETER,
            RefusalCause::CREATE_OVER_LIMIT,
        );
    });
}

fn any_port(adapter: &Adapter) -> SocketAddr {
    SocketAddr::new(adapter.address().ip(), 0)
}

fn failed_completion_and_result_name_object_and_cause() {
    with_two_adapters(|first, second| {
        let (end, connector) = (End::new(first, QueuePairShape::default()), Connector::new(first).expect("one"));
        let nowhere = SocketAddr::new(second.address().ip(), 4999);
        let connecting = connector.begin_connect(&end.queue_pair, any_port(first), nowhere, &Offer::default());
        assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
        left(NdkCall::CONNECT, ObjectKind::CONNECTOR, STATUS_CONNECTION_REFUSED, RefusalCause::CONNECT_REFUSED);
        let pair = Pair::connect(first, second);
        let buffer = Buffer::scattered(8);
        let region = pair.active.domain.register(&buffer, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
        let remote = Remote { address: 0, token: 0x0BAD_0BAD };
        let near = [buffer.whole(region.local_token())];
        // Across a stream a Write has no result that says so.
        let (posted, call, place) = if peers::across_streams() {
            (pair.active.queue_pair.read(7, &near, remote, NONE), NdkCall::READ, RefusalPlace::PEER_SOURCE)
        } else {
            (pair.active.queue_pair.write(7, &near, remote, NONE), NdkCall::WRITE, RefusalPlace::PEER_SINK)
        };
        assert_eq!(posted, 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, STATUS_REMOTE_RESOURCES);
        let failed = left(call, ObjectKind::COMPLETION_QUEUE, STATUS_REMOTE_RESOURCES, RefusalCause::RESULT_NO_TOKEN);
        assert_eq!((failed.way, failed.place), (RefusalWay::RESULT, place));
        region.close();
    });
}

/// Across a stream the message has succeeded by then.
fn failed_invalidation_names_the_peers_memory_and_a_short_receive_the_receive() {
    with_two_adapters(|first, second| {
        for (token, length, cause, place) in [
            (Some(0x0BAD_0BAD), 0, RefusalCause::RESULT_NOT_INVALIDATED, RefusalPlace::PEER_SINK),
            (None, 8, RefusalCause::RESULT_SHORT_RECEIVE, RefusalPlace::PEER_RECEIVE),
        ] {
            let pair = Pair::connect(first, second);
            let message = Window::open(&pair.active, Buffer::scattered(8), WindowKind::Registered);
            assert_eq!(pair.passive.queue_pair.receive(1, &[]), 0);
            let queue_pair = &pair.active.queue_pair;
            let sges = [message.sge(0..length)];
            let posted = token.map_or_else(
                || queue_pair.send(2, &sges, NONE),
                |token| queue_pair.send_and_invalidate(2, &sges, NONE, token),
            );
            assert_eq!(posted, 0);
            assert!(pair.active.initiator.wait_for_one().Status < 0);
            let failed = refusals::matched().map(|entry| (entry.way, entry.cause, entry.place));
            assert_eq!(failed, Some((RefusalWay::RESULT, cause, place)));
        }
    });
}
