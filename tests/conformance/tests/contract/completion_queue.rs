//! Completion queues: limits, arming and its merge table, the notification after entries that are already there, one
//! notification at a time, posting from inside one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use conformance::case;
use conformance::consumer::{Adapter, Buffer, CompletionQueue, Pair, QueuePairShape, Window, WindowKind};
use conformance::machine::{settle, with_two_adapters};
use conformance::trial::Case;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{STATUS_CANCELLED, STATUS_INVALID_PARAMETER};

pub const CASES: &[Case] = &[
    case!(depth_above_the_limit_is_refused: "NDK-CQ-1"),
    case!(no_notification_without_arming: "NDK-CQ-2"),
    case!(one_arming_gives_one_notification: "NDK-CQ-2"),
    case!(arming_an_empty_queue_notifies_on_the_next_result: "NDK-CQ-2"),
    case!(arming_after_new_results_notifies_at_once: "NDK-CQ-4"),
    case!(solicited_arming_ignores_ordinary_results: "NDK-CQ-7"),
    case!(solicited_arming_takes_a_solicited_receive: "NDK-CQ-7"),
    case!(solicited_arming_takes_an_error: "NDK-CQ-7"),
    case!(the_stronger_of_two_armings_counts: "NDK-CQ-3"),
    case!(errors_arming_ignores_ordinary_results: "NDK-CQ-3"),
    case!(results_come_in_order_and_at_most_as_asked: "NDK-CQ-8"),
    case!(plain_results_carry_contexts_and_lengths: "NDK-CQ-8"),
    case!(posts_from_inside_a_notification: "NDK-CQ-5", "NDK-CQ-6"),
    case!(receive_and_initiator_queue_may_be_one: "NDK-CQ-8"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();

fn depth_above_the_limit_is_refused() {
    with_two_adapters(|first, _| {
        let most = first.info().MaxCqDepth;
        for depth in [most + 1, u32::MAX] {
            assert_eq!(CompletionQueue::new(first, depth).err(), Some(STATUS_INVALID_PARAMETER), "depth {depth}");
        }
        for depth in [1, 2, 1000] {
            CompletionQueue::new(first, depth).expect("a legal depth").close();
        }
    });
}

/// A connection that can send.
struct Scene<'a> {
    near: Window<'a>,
    far: Window<'a>,
    pair: Pair<'a>,
}

impl<'a> Scene<'a> {
    fn new(first: &'a Adapter, second: &'a Adapter) -> Self {
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(4096), WindowKind::Registered);
        let far = Window::open(&pair.passive, Buffer::scattered(4096), WindowKind::Registered);
        Self { near, far, pair }
    }

    fn send(&self, request: u64, flags: NDK_OP_FLAGS) {
        let receive = [self.far.element(0..64)];
        assert_eq!(self.pair.passive.queue_pair.receive(request, &receive), 0);
        assert_eq!(self.pair.active.queue_pair.send(request, &[self.near.element(0..64)], flags), 0);
        assert_eq!(self.pair.active.initiator.wait_for_one().Status, 0);
    }

    fn receive_queue(&self) -> &CompletionQueue {
        &self.pair.passive.receive
    }
}

fn no_notification_without_arming() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        for request in 0..5 {
            scene.send(request, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT);
        }
        settle();
        assert_eq!(scene.receive_queue().notification_count(), 0);
        assert_eq!(scene.receive_queue().take(16).len(), 5);
    });
}

fn one_arming_gives_one_notification() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        scene.receive_queue().arm(NDK_CQ_NOTIFY_ANY);
        for request in 0..5 {
            scene.send(request, NONE);
        }
        settle();
        assert_eq!(scene.receive_queue().notification_count(), 1);
        assert_eq!(scene.receive_queue().notification_status(), 0);
        assert_eq!(scene.receive_queue().take(16).len(), 5);
    });
}

fn arming_an_empty_queue_notifies_on_the_next_result() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        for round in 1..=3 {
            scene.receive_queue().arm(NDK_CQ_NOTIFY_ANY);
            settle();
            assert_eq!(scene.receive_queue().notification_count(), round - 1, "armed and empty");
            scene.send(u64::from(round), NONE);
            settle();
            assert_eq!(scene.receive_queue().notification_count(), round);
            assert_eq!(scene.receive_queue().take(16).len(), 1);
        }
    });
}

fn arming_after_new_results_notifies_at_once() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        scene.send(1, NONE);
        settle();
        scene.receive_queue().clear_notification();
        scene.receive_queue().arm(NDK_CQ_NOTIFY_ANY);
        assert!(scene.receive_queue().wait_for_notification(), "a result was there before the arming");
        assert_eq!(scene.receive_queue().notification_count(), 1);
    });
}

fn solicited_arming_ignores_ordinary_results() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        scene.receive_queue().arm(NDK_CQ_NOTIFY_SOLICITED);
        scene.send(1, NONE);
        scene.send(2, NONE);
        settle();
        assert_eq!(scene.receive_queue().notification_count(), 0);
    });
}

fn solicited_arming_takes_a_solicited_receive() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        scene.receive_queue().arm(NDK_CQ_NOTIFY_SOLICITED);
        scene.send(1, NONE);
        scene.send(2, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT);
        settle();
        assert_eq!(scene.receive_queue().notification_count(), 1);
    });
}

fn solicited_arming_takes_an_error() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        assert_eq!(scene.pair.passive.queue_pair.receive(1, &[scene.far.element(0..64)]), 0);
        scene.receive_queue().arm(NDK_CQ_NOTIFY_SOLICITED);
        scene.pair.passive.queue_pair.flush();
        let result = scene.receive_queue().wait_for_one();
        assert_eq!(result.Status, STATUS_CANCELLED);
        settle();
        assert_eq!(scene.receive_queue().notification_count(), 1);
    });
}

fn the_stronger_of_two_armings_counts() {
    const ERRORS: u32 = NDK_CQ_NOTIFY_ERRORS;
    const SOLICITED: u32 = NDK_CQ_NOTIFY_SOLICITED;
    const ANY: u32 = NDK_CQ_NOTIFY_ANY;
    // First, second, what they amount to: the table of NDK_FN_ARM_CQ.
    let table = [
        (ANY, ANY, ANY),
        (ANY, ERRORS, ANY),
        (ANY, SOLICITED, ANY),
        (ERRORS, ANY, ANY),
        (ERRORS, ERRORS, ERRORS),
        (ERRORS, SOLICITED, SOLICITED),
        (SOLICITED, ANY, ANY),
        (SOLICITED, ERRORS, SOLICITED),
        (SOLICITED, SOLICITED, SOLICITED),
    ];
    with_two_adapters(|first, second| {
        for (one, two, sum) in table {
            let scene = Scene::new(first, second);
            let queue = scene.receive_queue();
            queue.arm(one);
            queue.arm(two);
            scene.send(1, NONE);
            settle();
            assert_eq!(queue.notification_count(), u32::from(sum == ANY), "{one} then {two}, an ordinary result");
            scene.send(2, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT);
            settle();
            assert_eq!(queue.notification_count(), u32::from(sum != ERRORS), "{one} then {two}, a solicited result");
        }
    });
}

fn errors_arming_ignores_ordinary_results() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        scene.receive_queue().arm(NDK_CQ_NOTIFY_ERRORS);
        scene.send(1, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT);
        settle();
        assert_eq!(scene.receive_queue().notification_count(), 0);
    });
}

fn results_come_in_order_and_at_most_as_asked() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        for request in 0..20 {
            scene.send(request, NONE);
        }
        assert_eq!(scene.receive_queue().take(0).len(), 0);
        let mut seen = Vec::new();
        for room in [1, 2, 3, 5, 16] {
            let results = scene.receive_queue().take(room);
            assert!(results.len() == room.min(20 - seen.len()), "{} results for room {room}", results.len());
            seen.extend(results.iter().map(|result| result.RequestContext as u64));
        }
        assert_eq!(seen, (0..20).collect::<Vec<_>>());
        assert!(scene.receive_queue().take(16).is_empty());
    });
}

fn plain_results_carry_contexts_and_lengths() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        scene.send(0xC0DE, NONE);
        let results = scene.receive_queue().take_plain(4);
        assert_eq!(results.len(), 1);
        assert_eq!(results[0].Status, 0);
        assert_eq!(results[0].BytesTransferred, 64);
        assert_eq!(results[0].QPContext as usize, QueuePairShape::default().context);
        assert_eq!(results[0].RequestContext as u64, 0xC0DE);
    });
}

/// Everything after the first send happens in notifications: results are taken, the receive is posted again, the next
/// message goes the other way, the queue is armed again.
fn posts_from_inside_a_notification() {
    const ROUNDS: u32 = 1000;
    with_two_adapters(|first, second| {
        let scene = Arc::new(Scene::new(first, second));
        // SAFETY: the closures below end before the scene: the count is reached and the queues are closed first.
        let scene: Arc<Scene<'static>> = unsafe { std::mem::transmute(scene) };
        let received = Arc::new(AtomicU32::new(0));
        let done = Arc::new(conformance::consumer::Signal::new());
        for passive in [false, true] {
            let (weak, received, done) = (Arc::downgrade(&scene), Arc::clone(&received), Arc::clone(&done));
            let react = move || {
                let Some(scene) = weak.upgrade() else { return };
                let (end, window) =
                    if passive { (&scene.pair.passive, &scene.far) } else { (&scene.pair.active, &scene.near) };
                // The consumer pattern of the contract: drain until empty, then arm, without looking again.
                loop {
                    let results = end.receive.take(8);
                    if results.is_empty() {
                        break;
                    }
                    for result in results {
                        assert_eq!(result.Status, 0, "a receive from inside a notification");
                        assert_eq!(end.queue_pair.receive(0, &[window.element(64..128)]), 0);
                        if received.fetch_add(1, Ordering::AcqRel) + 1 < ROUNDS {
                            let flags = NDK_OP_FLAG_SILENT_SUCCESS;
                            assert_eq!(end.queue_pair.send(0, &[window.element(0..64)], flags), 0);
                        } else {
                            done.set();
                        }
                    }
                }
                end.receive.arm(NDK_CQ_NOTIFY_ANY);
            };
            let end = if passive { &scene.pair.passive } else { &scene.pair.active };
            let window = if passive { &scene.far } else { &scene.near };
            assert_eq!(end.queue_pair.receive(0, &[window.element(64..128)]), 0);
            end.receive.on_notification(react);
            end.receive.arm(NDK_CQ_NOTIFY_ANY);
        }
        let flags = NDK_OP_FLAG_SILENT_SUCCESS;
        assert_eq!(scene.pair.active.queue_pair.send(0, &[scene.near.element(0..64)], flags), 0);
        assert!(done.wait(), "{} of {ROUNDS} messages, then a notification was lost", received.load(Ordering::Acquire));
        settle();
        for end in [&scene.pair.active, &scene.pair.passive] {
            end.receive.on_notification(|| {});
        }
    });
}

fn receive_and_initiator_queue_may_be_one() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        let domain = &scene.pair.active.domain;
        let queue = CompletionQueue::new(first, 64).expect("a completion queue");
        let queue_pair = conformance::consumer::QueuePair::new(domain, &queue, &queue, QueuePairShape::default())
            .expect("a queue pair");
        assert_eq!(queue_pair.receive(5, &[scene.near.element(0..64)]), 0);
        queue_pair.flush();
        let result = queue.wait_for_one();
        assert_eq!((result.Status, result.RequestContext as u64), (STATUS_CANCELLED, 5));
        queue_pair.close();
        queue.close();
    });
}
