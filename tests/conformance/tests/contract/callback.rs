//! Callbacks and what waits for them: completions that come once, objects closed inside callbacks, closes that wait until
//! a callback has returned, requests that a close ends, and everything at DISPATCH_LEVEL.

use kernel_host::schedule;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conformance::case;
use conformance::consumer::completion::{calling_at_dispatch, reacting, verify_all};
use conformance::consumer::{
    Buffer, CompletionQueue, Connector, End, Listener, Offer, Pair, ProtectionDomain, QueuePair, QueuePairShape,
    Remote, Started, Window, WindowKind, establish,
};
use conformance::machine::{Setup, concurrently, pass_time, wait_until_idle, with_machine, with_two_adapters};
use conformance::trial::Case;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::STATUS_PENDING;

pub const CASES: &[Case] = &[
    case!(completions_come_once_and_only_for_what_pended: "NDK-ASY-1", "NDK-ASY-3", "NDK-ASY-4"),
    case!(region_closed_inside_the_completion_of_its_registration: "NDK-ASY-5", "NDK-CLOSE-4"),
    case!(connector_used_while_its_connect_is_pending: "NDK-ASY-6"),
    case!(everything_but_open_at_dispatch_level: "NDK-ASY-10"),
    case!(queue_closes_after_its_notification_has_returned: "NDK-CLOSE-5", "BUG-1"),
    case!(result_that_comes_while_the_callback_runs_is_notified_after_it: "NDK-CQ-12", "NDK-CQ-14", "BUG-5"),
    case!(adapter_closes_after_the_last_close_completion_has_returned: "NDK-CLOSE-6", "NDK-OPEN-6"),
    case!(adapter_closed_while_the_last_close_completion_runs: "NDK-CLOSE-6", "NDK-OPEN-6", "BUG-1"),
    case!(closing_a_connector_ends_its_pending_requests: "NDK-CLOSE-7"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
/// More than a provider maps or unmaps inside a call.
const LARGE: usize = 6 << 20;

/// What a callback saw, for the trial that waits outside.
type Seen<T> = Arc<Mutex<Option<T>>>;

fn seen<T>() -> (Seen<T>, Seen<T>) {
    let place = Arc::new(Mutex::new(None));
    (Arc::clone(&place), place)
}

fn take<T>(place: &Seen<T>) -> Option<T> {
    place.lock().expect("no panic while it was held").take()
}

fn put<T>(place: &Seen<T>, value: T) {
    *place.lock().expect("no panic while it was held") = Some(value);
}

/// A scenario with every asynchronous call of the contract; the consumer layer counts completions and checks out pointers.
fn completions_come_once_and_only_for_what_pended() {
    with_two_adapters(|first, second| {
        {
            let pair = Pair::connect(first, second);
            let near =
                Window::open(&pair.active, Buffer::scattered(first.fit_registered(LARGE)), WindowKind::Registered);
            let peer = Window::open(&pair.passive, Buffer::scattered(4096), WindowKind::FastRegistered);
            assert_eq!(pair.active.queue_pair.read(1, &[near.sge(0..4096)], peer.remote(0), NONE), 0);
            assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
            assert_eq!(near.region.as_ref().expect("a region").deregister(), 0);
            // Refusals are answers like others: inline, or once.
            assert!(CompletionQueue::new(first, u32::MAX).is_err());
            let taken = Listener::new(second).expect("a listener");
            assert!(taken.listen(pair.listener.local_address()) < 0, "an address in use");
            let leaving = pair.active.connector().begin_disconnect();
            assert!(pair.passive.connector().wait_for_disconnect());
            assert_eq!(pair.passive.connector().begin_disconnect().wait(), 0);
            assert_eq!(leaving.wait(), 0);
        }
        wait_until_idle();
        verify_all();
    });
}

/// Once with a registration that succeeds, and once with one that fails because the region has memory already: then nothing but
/// the running completion keeps the region.
fn region_closed_inside_the_completion_of_its_registration() {
    with_two_adapters(|first, _| {
        let end = End::new(first, QueuePairShape::default());
        for in_use in [false, true] {
            let (small, buffer) = (Buffer::scattered(4096), Buffer::scattered(first.fit_registered(LARGE)));
            let region = Arc::new(end.domain.create_region(false).expect("a region"));
            if in_use {
                assert_eq!(region.register(&small, NDK_MR_FLAG_ALLOW_LOCAL_WRITE), 0);
            }
            let (inside, outside) = seen::<(i32, Started, bool)>();
            let closed = Arc::clone(&region);
            let status = reacting(
                move |status, _| {
                    let closing = closed.object().begin_close();
                    // Long enough for a provider that does not wait.
                    schedule::linger(Duration::from_millis(20));
                    put(&inside, (status, closing, closing.is_done()));
                },
                || region.register(&buffer, NDK_MR_FLAG_ALLOW_REMOTE_WRITE),
            );
            assert_eq!(status < 0, in_use, "{status:#x}");
            // A provider that registers this much inline has no such completion; the region is then still open.
            if let Some((inner, closing, too_soon)) = take(&outside) {
                assert_eq!(inner, status, "the completion carries the status");
                assert_eq!(closing.inline(), STATUS_PENDING, "closed while its own completion runs");
                assert!(!too_soon, "the close completed before the request's completion had returned");
                closing.wait();
            } else {
                region.close();
            }
        }
    });
}

fn connector_used_while_its_connect_is_pending() {
    with_two_adapters(|first, second| {
        let (active, passive) =
            (End::new(first, QueuePairShape::default()), End::new(second, QueuePairShape::default()));
        let listener = Listener::new(second).expect("a listener");
        assert_eq!(listener.listen(second.address()), 0);
        let connector = Connector::new(first).expect("a connector");
        let offer = Offer::default();
        let connecting = connector.begin_connect(&active.queue_pair, first.address(), listener.local_address(), &offer);
        assert_eq!(connecting.inline(), STATUS_PENDING, "it is not accepted yet");
        assert_eq!(connector.local_address().ip(), first.address().ip());
        assert_eq!(connector.peer_address(), listener.local_address());
        assert!(connector.object().query_unknown_extension() < 0);
        // The other objects of the side work as well.
        assert_eq!(active.queue_pair.receive(1, &[]), 0);
        let offered = listener.next();
        assert!(!connecting.is_done());
        let accepting = offered.begin_accept(&passive.queue_pair, &offer);
        assert_eq!(connecting.wait(), 0);
        assert_eq!(connector.begin_complete_connect().wait(), 0);
        assert_eq!(accepting.wait(), 0);
    });
}

fn everything_but_open_at_dispatch_level() {
    with_two_adapters(|first, second| {
        let large = first.fit_registered(LARGE);
        calling_at_dispatch(|| {
            let (active, passive) =
                (End::new(first, QueuePairShape::default()), End::new(second, QueuePairShape::default()));
            let listener = Listener::new(second).expect("a listener");
            assert_eq!(listener.listen(second.address()), 0);
            let from = (first, &active.queue_pair, first.address());
            let (near, peer) =
                establish(from, (&listener, &passive.queue_pair), &Offer::default()).expect("a connection");
            let buffer = Buffer::scattered(large);
            let region = active.domain.register(&buffer, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
            assert_eq!(region.deregister(), 0);
            let fast = active.domain.fast_region(16, true);
            let leaving = near.begin_disconnect();
            assert!(peer.wait_for_disconnect());
            assert_eq!(peer.begin_disconnect().wait(), 0);
            assert_eq!(leaving.wait(), 0);
            for closing in [near.object().begin_close(), peer.object().begin_close(), listener.object().begin_close()] {
                closing.wait();
            }
            for closing in [region.object().begin_close(), fast.object().begin_close()] {
                closing.wait();
            }
            for end in [active, passive] {
                end.queue_pair.object().begin_close().wait();
                end.initiator.object().begin_close().wait();
                end.receive.object().begin_close().wait();
                end.domain.object().begin_close().wait();
            }
        });
    });
}

fn queue_closes_after_its_notification_has_returned() {
    with_two_adapters(|first, _| {
        let domain = ProtectionDomain::new(first).expect("a protection domain");
        let queue = Arc::new(CompletionQueue::new(first, 8).expect("a completion queue"));
        // A result whose queue pair is closed already: nothing but the notification keeps the queue.
        let pair = QueuePair::new(&domain, &queue, &queue, QueuePairShape::default()).expect("a queue pair");
        assert_eq!(pair.receive(1, &[]), 0);
        pair.close();
        wait_until_idle();
        let (inside, outside) = seen::<(Started, bool)>();
        let closed = Arc::clone(&queue);
        queue.on_notification(move || {
            let closing = closed.object().begin_close();
            schedule::linger(Duration::from_millis(20));
            put(&inside, (closing, closing.is_done()));
        });
        queue.arm(NDK_CQ_NOTIFY_ANY);
        assert!(queue.wait_for_notification(), "a result is there");
        let (closing, too_soon) = take(&outside).expect("the notification ran");
        assert_eq!(closing.inline(), STATUS_PENDING, "closed while its notification runs");
        assert!(!too_soon, "the close completed before the notification had returned");
        closing.wait();
        domain.close();
    });
}

/// Armed inside the callback, then a result from another processor before it returns: no other notification would wake this consumer.
fn result_that_comes_while_the_callback_runs_is_notified_after_it() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let pair = Arc::new(Pair::connect(&first, &second));
        // SAFETY: the reaction is taken away below, before the pair and the adapters go.
        let pair: Arc<Pair<'static>> = unsafe { std::mem::transmute(pair) };
        let weak = Arc::downgrade(&pair);
        let post = |pair: &Pair<'_>, request| {
            let nowhere = Remote { address: 0, token: 0 };
            assert_eq!(pair.active.queue_pair.read(request, &[], nowhere, NONE), 0);
        };
        // The callback has armed the queue; the second result is there.
        let (armed, added) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (arming, adding) = (Arc::clone(&armed), Arc::clone(&added));
        pair.active.initiator.on_notification(move || {
            let Some(pair) = weak.upgrade() else { return };
            let queue = &pair.active.initiator;
            if queue.notification_count() == 1 {
                assert_eq!(queue.take(4).len(), 1);
                queue.arm(NDK_CQ_NOTIFY_ANY);
                arming.store(true, Ordering::Release);
                wait_until(&adding);
                assert_eq!(queue.notification_count(), 1, "notifications of one queue overlap");
            }
        });
        // The first post has returned when the queue is armed: its context has nothing to do with the second result.
        post(&pair, 1);
        wait_until_idle();
        concurrently(
            machine,
            || {
                pair.active.initiator.arm(NDK_CQ_NOTIFY_ANY);
                wait_until(&added);
            },
            || {
                wait_until(&armed);
                post(&pair, 2);
                pass_time();
                added.store(true, Ordering::Release);
            },
        );
        wait_until_idle();
        assert_eq!(pair.active.initiator.notification_count(), 2, "the second result was not notified");
        assert_eq!(pair.active.initiator.take(4).len(), 1);
        pair.active.initiator.on_notification(|| {});
    });
}

fn wait_until(happened: &AtomicBool) {
    while !happened.load(Ordering::Acquire) {
        schedule::linger(Duration::from_millis(1));
    }
}

fn adapter_closes_after_the_last_close_completion_has_returned() {
    with_machine(&Setup::default(), |machine| {
        let adapter = machine.open(0);
        let domain = ProtectionDomain::new(&adapter).expect("a protection domain");
        let region = domain.create_region(false).expect("a region");
        let adapter_closed = Arc::new(AtomicBool::new(false));
        let (inside, outside) = seen::<bool>();
        let watched = Arc::clone(&adapter_closed);
        // Pends for its region; its completion is the last callback under the adapter.
        let closing = reacting(
            move |_, _| {
                schedule::linger(Duration::from_millis(50));
                put(&inside, watched.load(Ordering::Acquire));
            },
            || domain.object().begin_close(),
        );
        assert_eq!(closing.inline(), STATUS_PENDING);
        let begun = AtomicBool::new(false);
        concurrently(
            machine,
            || {
                while !begun.load(Ordering::Acquire) {
                    schedule::let_others();
                }
                wait_until_idle();
                region.object().begin_close().wait();
                closing.wait();
            },
            || {
                begun.store(true, Ordering::Release);
                drop(adapter);
                adapter_closed.store(true, Ordering::Release);
            },
        );
        let too_soon = take(&outside).expect("the domain's close completed");
        assert!(!too_soon, "the adapter closed before the last close completion had returned");
        assert!(adapter_closed.load(Ordering::Acquire));
    });
}

/// As above, but the adapter's close is not requested yet when the last object goes: no service pass of the completion's processor stands
/// between the two.
fn adapter_closed_while_the_last_close_completion_runs() {
    with_machine(&Setup::default(), |machine| {
        let adapter = machine.open(0);
        let domain = ProtectionDomain::new(&adapter).expect("a protection domain");
        let region = domain.create_region(false).expect("a region");
        let (runs, adapter_closed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (inside, outside) = seen::<bool>();
        let (running, watched) = (Arc::clone(&runs), Arc::clone(&adapter_closed));
        let closing = reacting(
            move |_, _| {
                running.store(true, Ordering::Release);
                // Time for the other thread, on a busy machine too.
                schedule::linger(Duration::from_millis(300));
                put(&inside, watched.load(Ordering::Acquire));
            },
            || domain.object().begin_close(),
        );
        assert_eq!(closing.inline(), STATUS_PENDING, "its region is open");
        concurrently(
            machine,
            || {
                region.object().begin_close().wait();
                closing.wait();
            },
            || {
                wait_until(&runs);
                drop(adapter);
                adapter_closed.store(true, Ordering::Release);
            },
        );
        let too_soon = take(&outside).expect("the domain's close completed");
        assert!(!too_soon, "the adapter closed before the last close completion had returned");
    });
}

fn closing_a_connector_ends_its_pending_requests() {
    with_two_adapters(|first, second| {
        let listener = Listener::new(second).expect("a listener");
        assert_eq!(listener.listen(second.address()), 0);
        let offer = Offer::default();
        let ends = || (End::new(first, QueuePairShape::default()), End::new(second, QueuePairShape::default()));

        // A Connect without an answer.
        let (active, _passive) = ends();
        let connector = Connector::new(first).expect("a connector");
        let connecting = connector.begin_connect(&active.queue_pair, first.address(), listener.local_address(), &offer);
        let offered = listener.next();
        connector.close();
        assert!(connecting.wait() < 0, "a Connect whose connector was closed");
        offered.close();

        // An Accept that the peer has not completed.
        let (active, passive) = ends();
        let connector = Connector::new(first).expect("a connector");
        let connecting = connector.begin_connect(&active.queue_pair, first.address(), listener.local_address(), &offer);
        let offered = listener.next();
        let accepting = offered.begin_accept(&passive.queue_pair, &offer);
        assert_eq!(connecting.wait(), 0);
        offered.close();
        assert!(accepting.wait() < 0, "an Accept whose connector was closed");
        connector.close();

        // A Disconnect that the peer has not answered.
        let pair = Pair::connect(first, second);
        let leaving = pair.active.connector().begin_disconnect();
        assert!(pair.passive.connector().wait_for_disconnect());
        pair.active.connector().close();
        assert!(leaving.wait() < 0, "a Disconnect whose connector was closed");
        wait_until_idle();
        verify_all();
    });
}
