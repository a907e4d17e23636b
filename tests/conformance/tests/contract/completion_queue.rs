//! Completion queues: limits, arming and its merge table, the notification after entries that are already there, one
//! notification at a time, posting from inside one.

use kernel_host::schedule;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conformance::case;
use conformance::consumer::{
    Adapter, Buffer, CompletionQueue, End, Pair, QueuePair, QueuePairShape, Remote, Window, WindowKind,
};
use conformance::machine::{Setup, concurrently, pass_time, wait_until_idle, with_machine, with_two_adapters};
use conformance::trial::Case;
use kernel_host::thread::Thread;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{GROUP_AFFINITY, STATUS_CANCELLED, STATUS_INVALID_PARAMETER, STATUS_PENDING};

pub const CASES: &[Case] = &[
    case!(depth_above_the_limit_is_refused: "NDK-CQ-1"),
    case!(no_notification_without_arming: "NDK-CQ-2"),
    case!(one_arming_gives_one_notification: "NDK-CQ-2"),
    case!(arming_an_empty_queue_notifies_on_the_next_result: "NDK-CQ-2", "NDK-CQ-10"),
    case!(arming_after_new_results_notifies_at_once: "NDK-CQ-4"),
    case!(solicited_arming_ignores_ordinary_results: "NDK-CQ-7"),
    case!(solicited_arming_takes_a_solicited_receive: "NDK-CQ-7"),
    case!(solicited_arming_takes_an_error: "NDK-CQ-7"),
    case!(the_stronger_of_two_armings_counts: "NDK-CQ-3"),
    case!(errors_arming_ignores_ordinary_results: "NDK-CQ-3"),
    case!(results_come_in_order_and_at_most_as_asked: "NDK-CQ-8"),
    case!(plain_results_carry_contexts_and_lengths: "NDK-CQ-18", "NDK-OBJ-5"),
    case!(posts_from_inside_a_notification: "NDK-CQ-5", "NDK-CQ-6", "NDK-CQ-12", "BUG-5"),
    case!(receive_and_initiator_queue_may_be_one: "NDK-CQ-21"),
    case!(any_arming_takes_a_failed_result: "NDK-CQ-10"),
    case!(errors_arming_ignores_failed_results: "NDK-CQ-11"),
    case!(results_that_come_during_the_callback_are_new: "NDK-CQ-12", "NDK-CQ-14"),
    case!(only_qualifying_results_are_new_for_a_solicited_arming: "NDK-CQ-13"),
    case!(a_queue_without_a_function_never_notifies: "NDK-CQ-15"),
    case!(any_affinity_or_none_is_accepted: "NDK-CQ-16"),
    case!(notifications_come_from_the_preferred_processor: "NDK-CQ-16", "NDIS-LIFE-12"),
    case!(several_queue_pairs_share_a_queue_with_their_own_contexts: "NDK-CQ-17", "NDK-CQ-18"),
    case!(a_receive_that_invalidated_has_its_token_and_can_be_taken_plainly: "NDK-CQ-19", "NDK-CQ-20"),
    case!(a_close_waits_for_the_running_notification: "NDK-CLOSE-5"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();

fn depth_above_the_limit_is_refused() {
    with_two_adapters(|first, _| {
        let most = first.info().MaxCqDepth;
        for depth in [most + 1, u32::MAX] {
            assert_eq!(CompletionQueue::new(first, depth).err(), Some(STATUS_INVALID_PARAMETER), "depth {depth}");
        }
        for depth in [1, 2, most.min(1000)] {
            CompletionQueue::new(first, depth).expect("a legal depth").close();
        }
    });
}

/// A connection that can send.
struct Scene<'a> {
    near: Window<'a>,
    peer: Window<'a>,
    pair: Pair<'a>,
}

impl<'a> Scene<'a> {
    fn new(first: &'a Adapter, second: &'a Adapter) -> Self {
        let pair = Pair::connect(first, second);
        let near = Window::open(&pair.active, Buffer::scattered(4096), WindowKind::Registered);
        let peer = Window::open(&pair.passive, Buffer::scattered(4096), WindowKind::Registered);
        Self { near, peer, pair }
    }

    fn send(&self, request: u64, flags: NDK_OP_FLAGS) {
        let receive = [self.peer.sge(0..64)];
        assert_eq!(self.pair.passive.queue_pair.receive(request, &receive), 0);
        assert_eq!(self.pair.active.queue_pair.send(request, &[self.near.sge(0..64)], flags), 0);
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
        wait_until_idle();
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
        wait_until_idle();
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
            wait_until_idle();
            assert_eq!(scene.receive_queue().notification_count(), round - 1, "armed and empty");
            scene.send(u64::from(round), NONE);
            wait_until_idle();
            assert_eq!(scene.receive_queue().notification_count(), round);
            assert_eq!(scene.receive_queue().take(16).len(), 1);
        }
    });
}

fn arming_after_new_results_notifies_at_once() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        scene.send(1, NONE);
        wait_until_idle();
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
        wait_until_idle();
        assert_eq!(scene.receive_queue().notification_count(), 0);
    });
}

fn solicited_arming_takes_a_solicited_receive() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        scene.receive_queue().arm(NDK_CQ_NOTIFY_SOLICITED);
        scene.send(1, NONE);
        scene.send(2, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT);
        wait_until_idle();
        assert_eq!(scene.receive_queue().notification_count(), 1);
    });
}

fn solicited_arming_takes_an_error() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        assert_eq!(scene.pair.passive.queue_pair.receive(1, &[scene.peer.sge(0..64)]), 0);
        scene.receive_queue().arm(NDK_CQ_NOTIFY_SOLICITED);
        scene.pair.passive.queue_pair.flush();
        let result = scene.receive_queue().wait_for_one();
        assert_eq!(result.Status, STATUS_CANCELLED);
        wait_until_idle();
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
            wait_until_idle();
            assert_eq!(queue.notification_count(), u32::from(sum == ANY), "{one} then {two}, an ordinary result");
            scene.send(2, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT);
            wait_until_idle();
            assert_eq!(queue.notification_count(), u32::from(sum != ERRORS), "{one} then {two}, a solicited result");
        }
    });
}

fn errors_arming_ignores_ordinary_results() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        scene.receive_queue().arm(NDK_CQ_NOTIFY_ERRORS);
        scene.send(1, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT);
        wait_until_idle();
        assert_eq!(scene.receive_queue().notification_count(), 0);
    });
}

fn results_come_in_order_and_at_most_as_asked() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        for request in 0..20 {
            scene.send(request, NONE);
        }
        wait_until_idle();
        assert_eq!(scene.receive_queue().take(0).len(), 0);
        let mut seen = Vec::new();
        for capacity in [1, 2, 3, 5, 16] {
            let results = scene.receive_queue().take(capacity);
            assert!(
                results.len() == capacity.min(20 - seen.len()),
                "{} results for capacity {capacity}",
                results.len()
            );
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
/// message goes the other way, the queue is armed again. What was posted inside a callback gives its result after it; the results
/// that come from another processor meanwhile are those of [`results_that_come_during_the_callback_are_new`].
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
                    if passive { (&scene.pair.passive, &scene.peer) } else { (&scene.pair.active, &scene.near) };
                // The consumer pattern of the contract: drain until empty, then arm, without looking again.
                loop {
                    let results = end.receive.take(8);
                    if results.is_empty() {
                        break;
                    }
                    for result in results {
                        assert_eq!(result.Status, 0, "a receive from inside a notification");
                        assert_eq!(end.queue_pair.receive(0, &[window.sge(64..128)]), 0);
                        if received.fetch_add(1, Ordering::AcqRel) + 1 < ROUNDS {
                            let flags = NDK_OP_FLAG_SILENT_SUCCESS;
                            assert_eq!(end.queue_pair.send(0, &[window.sge(0..64)], flags), 0);
                        } else {
                            done.set();
                        }
                    }
                }
                end.receive.arm(NDK_CQ_NOTIFY_ANY);
            };
            let end = if passive { &scene.pair.passive } else { &scene.pair.active };
            let window = if passive { &scene.peer } else { &scene.near };
            assert_eq!(end.queue_pair.receive(0, &[window.sge(64..128)]), 0);
            end.receive.on_notification(react);
            end.receive.arm(NDK_CQ_NOTIFY_ANY);
        }
        let flags = NDK_OP_FLAG_SILENT_SUCCESS;
        assert_eq!(scene.pair.active.queue_pair.send(0, &[scene.near.sge(0..64)], flags), 0);
        assert!(done.wait(), "{} of {ROUNDS} messages, then a notification was lost", received.load(Ordering::Acquire));
        wait_until_idle();
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
        let queue_pair = QueuePair::new(domain, &queue, &queue, QueuePairShape::default()).expect("a queue pair");
        assert_eq!(queue_pair.receive(5, &[scene.near.sge(0..64)]), 0);
        queue_pair.flush();
        let result = queue.wait_for_one();
        assert_eq!((result.Status, result.RequestContext as u64), (STATUS_CANCELLED, 5));
        queue_pair.close();
        queue.close();
    });
}

fn any_arming_takes_a_failed_result() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        assert_eq!(scene.pair.passive.queue_pair.receive(1, &[scene.peer.sge(0..64)]), 0);
        scene.receive_queue().arm(NDK_CQ_NOTIFY_ANY);
        scene.pair.passive.queue_pair.flush();
        assert_eq!(scene.receive_queue().wait_for_one().Status, STATUS_CANCELLED);
        wait_until_idle();
        assert_eq!(scene.receive_queue().notification_count(), 1);
    });
}

fn errors_arming_ignores_failed_results() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        assert_eq!(scene.pair.passive.queue_pair.receive(1, &[scene.peer.sge(0..64)]), 0);
        scene.receive_queue().arm(NDK_CQ_NOTIFY_ERRORS);
        scene.pair.passive.queue_pair.flush();
        wait_until_idle();
        assert_eq!(scene.receive_queue().take(4)[0].Status, STATUS_CANCELLED);
        assert_eq!(scene.receive_queue().notification_count(), 0);
    });
}

/// The second result comes from another processor while the callback of the first runs, and the callback arms after it.
fn results_that_come_during_the_callback_are_new() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let scene = Arc::new(Scene::new(&first, &second));
        // SAFETY: the closure below ends before the scene: it runs twice and is replaced.
        let scene: Arc<Scene<'static>> = unsafe { std::mem::transmute(scene) };
        let queue = &scene.pair.active.initiator;
        let read = |request| {
            let nowhere = Remote { address: 0, token: 0 };
            assert_eq!(scene.pair.active.queue_pair.read(request, &[], nowhere, NONE), 0);
        };
        let (runs, added) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (inside, running, adding) = (Arc::downgrade(&scene), Arc::clone(&runs), Arc::clone(&added));
        queue.on_notification(move || {
            let Some(scene) = inside.upgrade() else { return };
            let queue = &scene.pair.active.initiator;
            if !running.swap(true, Ordering::AcqRel) {
                wait_for(&adding);
                queue.arm(NDK_CQ_NOTIFY_ANY);
                assert_eq!(queue.notification_count(), 1, "this one still runs");
            }
        });
        read(1);
        wait_until_idle();
        concurrently(
            machine,
            || {
                queue.arm(NDK_CQ_NOTIFY_ANY);
                wait_for(&added);
            },
            || {
                wait_for(&runs);
                read(2);
                pass_time();
                added.store(true, Ordering::Release);
            },
        );
        wait_until_idle();
        assert_eq!(queue.notification_count(), 2, "the second result was not notified");
        assert_eq!(queue.take(4).len(), 2);
        queue.on_notification(|| {});
    });
}

fn wait_for(happened: &AtomicBool) {
    while !happened.load(Ordering::Acquire) {
        schedule::linger(Duration::from_millis(1));
    }
}

fn only_qualifying_results_are_new_for_a_solicited_arming() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        let queue = scene.receive_queue();
        scene.send(1, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT);
        queue.arm(NDK_CQ_NOTIFY_SOLICITED);
        wait_until_idle();
        assert_eq!(queue.notification_count(), 1, "it was there and new");
        // The solicited result is still there, and was notified; the new one does not qualify.
        scene.send(2, NONE);
        queue.arm(NDK_CQ_NOTIFY_SOLICITED);
        wait_until_idle();
        assert_eq!(queue.notification_count(), 1);
        scene.send(3, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT);
        wait_until_idle();
        assert_eq!(queue.notification_count(), 2);
        assert_eq!(queue.take(8).len(), 3);
    });
}

fn a_queue_without_a_function_never_notifies() {
    with_two_adapters(|first, second| {
        let mut active = End::new(first, QueuePairShape::default());
        let initiator = CompletionQueue::silent(first, 32).expect("a queue without a function");
        let queue_pair = QueuePair::new(&active.domain, &active.receive, &initiator, QueuePairShape::default());
        active.queue_pair = queue_pair.expect("a queue pair");
        active.initiator = initiator;
        let passive = End::new(second, QueuePairShape::default());
        let pair = Pair::join(active, passive, first.address(), second.address());
        let queue = &pair.active.initiator;
        for kind in [NDK_CQ_NOTIFY_ERRORS, NDK_CQ_NOTIFY_SOLICITED, NDK_CQ_NOTIFY_ANY] {
            queue.arm(kind);
            assert_eq!(pair.active.queue_pair.read(1, &[], Remote { address: 0, token: 0 }, NONE), 0);
            wait_until_idle();
            assert_eq!(queue.take(4).len(), 1);
        }
        assert_eq!(queue.moderate(1000, 4), 0);
        assert_eq!(pair.active.queue_pair.read(1, &[], Remote { address: 0, token: 0 }, NONE), 0);
        wait_until_idle();
        assert_eq!(queue.notification_count(), 0);
    });
}

fn any_affinity_or_none_is_accepted() {
    with_two_adapters(|first, second| {
        for mask in [0, 1, 2, 0x8000_0000_0000_0000, u64::MAX] {
            let mut active = End::new(first, QueuePairShape::default());
            let affinity = GROUP_AFFINITY { Mask: mask as usize, ..GROUP_AFFINITY::default() };
            let initiator = CompletionQueue::near(first, 32, affinity).expect("a queue with an affinity");
            let queue_pair = QueuePair::new(&active.domain, &active.receive, &initiator, QueuePairShape::default());
            active.queue_pair = queue_pair.expect("a queue pair");
            active.initiator = initiator;
            let passive = End::new(second, QueuePairShape::default());
            let pair = Pair::join(active, passive, first.address(), second.address());
            pair.active.initiator.arm(NDK_CQ_NOTIFY_ANY);
            assert_eq!(pair.active.queue_pair.read(1, &[], Remote { address: 0, token: 0 }, NONE), 0);
            wait_until_idle();
            assert_eq!(pair.active.initiator.notification_count(), 1, "affinity {mask:#x}");
        }
    });
}

fn notifications_come_from_the_preferred_processor() {
    let setup = Setup::default();
    with_machine(&setup, |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        for processor in 0..setup.kernel.processors.min(2) {
            let mut active = End::new(&first, QueuePairShape::default());
            let affinity = GROUP_AFFINITY { Mask: 1 << processor, ..GROUP_AFFINITY::default() };
            let initiator = CompletionQueue::near(&first, 32, affinity).expect("a queue with an affinity");
            let queue_pair = QueuePair::new(&active.domain, &active.receive, &initiator, QueuePairShape::default());
            active.queue_pair = queue_pair.expect("a queue pair");
            active.initiator = initiator;
            let passive = End::new(&second, QueuePairShape::default());
            let pair = Pair::join(active, passive, first.address(), second.address());
            let seen = Arc::new(AtomicUsize::new(usize::MAX));
            let inside = Arc::clone(&seen);
            let here = move || inside.store(Thread::current().processor(), Ordering::Release);
            pair.active.initiator.on_notification(here);
            pair.active.initiator.arm(NDK_CQ_NOTIFY_ANY);
            assert_eq!(pair.active.queue_pair.read(1, &[], Remote { address: 0, token: 0 }, NONE), 0);
            wait_until_idle();
            assert_eq!(seen.load(Ordering::Acquire), processor);
        }
    });
}

fn several_queue_pairs_share_a_queue_with_their_own_contexts() {
    with_two_adapters(|first, second| {
        let shared = CompletionQueue::new(second, 64).expect("a completion queue");
        let scenes: Vec<_> = (1..=3_usize)
            .map(|number| {
                let shape = QueuePairShape { context: 0x1000 * number, ..QueuePairShape::default() };
                let mut passive = End::new(second, shape);
                let queue_pair = QueuePair::new(&passive.domain, &shared, &passive.initiator, shape);
                passive.queue_pair = queue_pair.expect("a queue pair");
                let pair = Pair::join(End::new(first, shape), passive, first.address(), second.address());
                let peer = Window::open(&pair.passive, Buffer::scattered(4096), WindowKind::Registered);
                let near = Window::open(&pair.active, Buffer::scattered(4096), WindowKind::Registered);
                (near, peer, pair)
            })
            .collect();
        for length in [1, 0, 64, 63] {
            for (number, (near, peer, pair)) in scenes.iter().enumerate() {
                assert_eq!(pair.passive.queue_pair.receive(number as u64, &[peer.sge(0..64)]), 0);
                assert_eq!(pair.active.queue_pair.send(1, &[near.sge(0..length)], NONE), 0);
                assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
                let result = shared.wait_for_one();
                assert_eq!(result.QPContext as usize, 0x1000 * (number + 1));
                assert_eq!((result.RequestContext as usize, result.BytesTransferred as usize), (number, length));
            }
        }
        drop(scenes);
        shared.close();
    });
}

fn a_receive_that_invalidated_has_its_token_and_can_be_taken_plainly() {
    with_two_adapters(|first, second| {
        let scene = Scene::new(first, second);
        for plain in [false, true] {
            let victim = Window::open(&scene.pair.passive, Buffer::scattered(4096), WindowKind::FastRegistered);
            let token = victim.remote(0).token;
            assert_eq!(scene.pair.passive.queue_pair.receive(7, &[scene.peer.sge(0..64)]), 0);
            let message = [scene.near.sge(0..10)];
            assert_eq!(scene.pair.active.queue_pair.send_and_invalidate(8, &message, NONE, token), 0);
            assert_eq!(scene.pair.active.initiator.wait_for_one().Type, NdkOperationTypeSend);
            if plain {
                wait_until_idle();
                let results = scene.receive_queue().take_plain(2);
                assert_eq!(results.len(), 1);
                assert_eq!((results[0].Status, results[0].BytesTransferred), (0, 10));
            } else {
                let result = scene.receive_queue().wait_for_one();
                assert_eq!(result.Type, NdkOperationTypeReceiveAndInvalidate);
                assert_eq!(result.TypeSpecificCompletionOutput, token as usize);
                assert_eq!((result.Status, result.BytesTransferred, result.ProviderErrorCode), (0, 10, 0));
            }
        }
    });
}

fn a_close_waits_for_the_running_notification() {
    with_two_adapters(|first, second| {
        let scene = Arc::new(Scene::new(first, second));
        // SAFETY: the closure below ends before the scene: it runs once and is replaced.
        let scene: Arc<Scene<'static>> = unsafe { std::mem::transmute(scene) };
        let closing = Arc::new(Mutex::new(None));
        let (inside, slot) = (Arc::downgrade(&scene), Arc::clone(&closing));
        scene.pair.active.initiator.on_notification(move || {
            let Some(scene) = inside.upgrade() else { return };
            let end = &scene.pair.active;
            end.connector().object().begin_close();
            end.queue_pair.object().begin_close();
            let started = end.initiator.object().begin_close();
            assert_eq!(started.inline(), STATUS_PENDING, "the callback runs");
            *slot.lock().unwrap() = Some(started);
        });
        // Moderated, so that arm and post have returned when the callback closes their objects.
        assert_eq!(scene.pair.active.initiator.moderate(20_000, u32::MAX), 0);
        scene.pair.active.initiator.arm(NDK_CQ_NOTIFY_ANY);
        assert_eq!(scene.pair.active.queue_pair.read(1, &[], Remote { address: 0, token: 0 }, NONE), 0);
        wait_until_idle();
        assert_eq!(scene.pair.active.initiator.notification_count(), 1);
        let started = closing.lock().unwrap().take().expect("closed inside the callback");
        started.wait();
        scene.pair.active.initiator.on_notification(|| {});
    });
}
