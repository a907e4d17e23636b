//! Moderation of notifications: when a count or an interval holds them back, for how long, and what is never held back.
//! Time is the host's: it runs with the machine's and jumps when no thread can run. A bound has to be kept by the best of a few
//! tries, because a late provider is late in each.

use conformance::case;
use conformance::consumer::{Adapter, CompletionQueue, Pair, QueuePairShape, Remote};
use conformance::machine::{wait_until_idle, with_two_adapters};
use conformance::trial::Case;
use kernel_host::dispatcher;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::STATUS_INVALID_PARAMETER_MIX;

pub const CASES: &[Case] = &[
    case!(a_new_queue_is_not_moderated: "NDK-MOD-1"),
    case!(an_interval_or_count_of_nothing_means_no_moderation: "NDK-MOD-2", "NDK-MOD-3"),
    case!(an_endless_interval_leaves_it_to_the_count_exactly: "NDK-MOD-4"),
    case!(an_endless_count_leaves_it_to_the_interval: "NDK-MOD-5"),
    case!(two_endless_bounds_are_refused_and_change_nothing: "NDK-MOD-6"),
    case!(the_latest_settings_win: "NDK-MOD-7"),
    case!(no_notification_is_later_than_its_interval_and_a_millisecond: "NDK-MOD-8"),
    case!(the_settings_of_a_real_consumer_bound_the_latency: "NDK-MOD-8"; not in stream),
    case!(results_can_be_taken_while_the_notification_is_held_back: "NDK-MOD-9"),
    case!(a_queue_may_be_closed_while_its_notification_is_held_back: "NDK-CLOSE-3"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
const ENDLESS: u32 = u32::MAX;
/// 100 ns units in a millisecond.
const MILLISECOND: u64 = 10_000;

fn with_pair(trial: impl FnOnce(&Pair)) {
    with_two_adapters(|first, second| trial(&connect(first, second)));
}

fn connect<'a>(first: &'a Adapter, second: &'a Adapter) -> Pair<'a> {
    Pair::connect_with(first, second, QueuePairShape { initiator_depth: 64, ..QueuePairShape::default() })
}

/// A result in the initiator's queue, at once.
fn result(pair: &Pair) {
    let nowhere = Remote { address: 0, token: 0 };
    assert_eq!(pair.active.queue_pair.read(1, &[], nowhere, NONE), 0);
}

/// A busy machine may be late on its own.
const TRIES: u32 = 50;

/// Arms, brings one result about, and answers how long the notification took.
fn latency(pair: &Pair) -> u64 {
    let queue = &pair.active.initiator;
    queue.clear_notification();
    queue.arm(NDK_CQ_NOTIFY_ANY);
    let start = dispatcher::now();
    result(pair);
    assert!(queue.wait_for_notification(), "no notification");
    let end = dispatcher::now();
    assert_eq!(queue.take(64).len(), 1);
    end - start
}

fn wait(milliseconds: u64) {
    dispatcher::delay(-((milliseconds * MILLISECOND) as i64));
}

/// The clock of a busy machine goes on between two calls: a notification is too early only by the clock. Less a tick of 10 ms.
fn assert_not_early(queue: &CompletionQueue, before: u32, start: u64, milliseconds: u64) {
    let count = queue.notification_count();
    let passed = dispatcher::now() - start;
    assert!(
        count == before || passed >= (milliseconds - 10) * MILLISECOND,
        "notified after {passed} of {milliseconds} ms"
    );
}

/// Notified once, possibly late: the delay is judged elsewhere, by the best of many tries.
fn assert_notified_once(queue: &CompletionQueue, before: u32, settings: (u32, u32)) {
    let notified = (0..1000).any(|_| {
        queue.notification_count() > before || {
            wait(1);
            false
        }
    });
    assert!(notified, "not notified with {settings:?}");
    wait(1);
    assert_eq!(queue.notification_count(), before + 1, "{settings:?}");
}

fn a_new_queue_is_not_moderated() {
    with_pair(|pair| assert!((0..TRIES).any(|_| latency(pair) < MILLISECOND)));
}

fn an_interval_or_count_of_nothing_means_no_moderation() {
    with_pair(|pair| {
        for (interval, count) in [(0, 0), (0, 7), (0, ENDLESS), (ENDLESS, 0), (ENDLESS, 1), (1_000_000, 1)] {
            assert_eq!(pair.active.initiator.moderate(1_000_000, ENDLESS), 0);
            assert_eq!(pair.active.initiator.moderate(interval, count), 0, "{interval} and {count}");
            assert!((0..TRIES).any(|_| latency(pair) < MILLISECOND), "{interval} and {count}");
        }
    });
}

fn an_endless_interval_leaves_it_to_the_count_exactly() {
    with_pair(|pair| {
        let queue = &pair.active.initiator;
        for count in [2, 3, 16, 64] {
            assert_eq!(queue.moderate(ENDLESS, count), 0);
            let before = queue.notification_count();
            queue.arm(NDK_CQ_NOTIFY_ANY);
            (1..count).for_each(|_| result(pair));
            wait(1000);
            assert_eq!(queue.notification_count(), before, "{} of {count} results", count - 1);
            result(pair);
            wait_until_idle();
            assert_eq!(queue.notification_count(), before + 1, "{count} results");
            assert_eq!(queue.take(64).len(), count as usize);
        }
    });
}

fn an_endless_count_leaves_it_to_the_interval() {
    with_pair(|pair| {
        let queue = &pair.active.initiator;
        for count in [ENDLESS, 65, 64] {
            assert_eq!(queue.moderate(50_000, count), 0);
            let (before, start) = (queue.notification_count(), dispatcher::now());
            queue.arm(NDK_CQ_NOTIFY_ANY);
            (0..40).for_each(|_| result(pair));
            wait(40);
            assert_not_early(queue, before, start, 50);
            assert_notified_once(queue, before, (50_000, count));
            assert_eq!(queue.take(64).len(), 40);
        }
    });
}

fn two_endless_bounds_are_refused_and_change_nothing() {
    with_pair(|pair| {
        let queue = &pair.active.initiator;
        assert_eq!(queue.moderate(ENDLESS, 2), 0);
        for count in [ENDLESS, 65] {
            assert_eq!(queue.moderate(ENDLESS, count), STATUS_INVALID_PARAMETER_MIX);
        }
        queue.arm(NDK_CQ_NOTIFY_ANY);
        result(pair);
        wait(100);
        assert_eq!(queue.notification_count(), 0, "the count is still 2");
        result(pair);
        wait_until_idle();
        assert_eq!(queue.notification_count(), 1);
    });
}

fn the_latest_settings_win() {
    with_pair(|pair| {
        let queue = &pair.active.initiator;
        let held = |interval, count| {
            let before = queue.notification_count();
            assert_eq!(queue.moderate(interval, count), 0);
            queue.arm(NDK_CQ_NOTIFY_ANY);
            result(pair);
            result(pair);
            before
        };
        for (interval, count) in [(0, 0), (ENDLESS, 2), (20_000, ENDLESS), (1000, 64)] {
            let before = held(ENDLESS, 8);
            wait(1);
            assert_eq!(queue.notification_count(), before, "held back for six more");
            assert_eq!(queue.moderate(interval, count), 0);
            assert_notified_once(queue, before, (interval, count));
            queue.take(64);
        }
        let start = dispatcher::now();
        let before = held(1_000_000, ENDLESS);
        assert_eq!(queue.moderate(2_000_000, ENDLESS), 0);
        wait(1500);
        assert_not_early(queue, before, start, 2000);
        assert_notified_once(queue, before, (2_000_000, ENDLESS));
    });
}

fn no_notification_is_later_than_its_interval_and_a_millisecond() {
    with_pair(|pair| {
        for interval in [1, 20, 500, 999, 1000, 1001, 2500, 15_625, 100_000] {
            for count in [2, 16, ENDLESS] {
                assert_eq!(pair.active.initiator.moderate(interval, count), 0);
                let most = u64::from(interval) * 10 + MILLISECOND;
                let kept = (0..TRIES).any(|_| latency(pair) <= most);
                assert!(kept, "later than {interval} us and a millisecond with count {count}");
            }
        }
    });
}

/// NDKPI: what the system's file server asks for, while other results keep coming.
fn the_settings_of_a_real_consumer_bound_the_latency() {
    with_pair(|pair| {
        let queue = &pair.active.initiator;
        assert_eq!(queue.moderate(20, ENDLESS), 0);
        let mut kept = 0;
        for round in 0..200 {
            queue.clear_notification();
            queue.arm(NDK_CQ_NOTIFY_ANY);
            let start = dispatcher::now();
            (0..=round % 7).for_each(|_| result(pair));
            assert!(queue.wait_for_notification());
            kept += u32::from(dispatcher::now() - start <= 200 + MILLISECOND);
            assert_eq!(queue.notification_count(), round + 1, "one arm, one notification");
            while !queue.take(16).is_empty() {}
        }
        assert!(kept >= 100, "{kept} of 200 notifications in time");
    });
}

fn results_can_be_taken_while_the_notification_is_held_back() {
    with_pair(|pair| {
        let queue: &CompletionQueue = &pair.active.initiator;
        assert_eq!(queue.moderate(ENDLESS, 60), 0);
        queue.arm(NDK_CQ_NOTIFY_ANY);
        for _ in 0..5 {
            result(pair);
            wait_until_idle();
            assert_eq!(queue.take(64).len(), 1);
        }
        assert_eq!(queue.notification_count(), 0);
    });
}

/// The timer must not outlive the queue; the host reports it if it does.
fn a_queue_may_be_closed_while_its_notification_is_held_back() {
    with_pair(|pair| {
        let queue = &pair.active.initiator;
        assert_eq!(queue.moderate(1_000_000, ENDLESS), 0);
        queue.arm(NDK_CQ_NOTIFY_ANY);
        result(pair);
        pair.active.connector().close();
        pair.active.queue_pair.close();
        queue.close();
        wait(2000);
        assert_eq!(queue.notification_count(), 0);
    });
}
