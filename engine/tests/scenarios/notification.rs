//! Notifications of completion queues through service passes: when, how often, and what may be done inside.

use std::net::SocketAddr;

use softndk_engine::{
    Accept, Arm, Completion, Connect, MemoryToken, ModerationError, Outcome, QueueFailure, QueuePair,
    QueuePairSettings, ReadLimits, RequestFlags, Semantics, Source,
};
use softndk_engine_kit::{self as kit, A, B, CLOSE, Depths, Event, FIRST, Pair, World, outcomes};

const NONE: RequestFlags = RequestFlags::empty();

fn read(pair: &Pair, context: u64) {
    pair.a.pair.read(context, NONE, std::iter::empty(), 0, MemoryToken::NONE).unwrap();
}

#[test]
fn no_arm_no_notification_and_one_arm_one_notification() {
    let mut pair = Pair::new();
    read(&pair, 1);
    assert_eq!(pair.world.run(), []);
    pair.a.initiator.arm(Arm::Any);
    assert_eq!(pair.world.run(), [Event::Notified(A + 2, Ok(()))]);
    read(&pair, 2);
    read(&pair, 3);
    assert_eq!(pair.world.run(), []);
    pair.a.initiator.arm(Arm::Any);
    pair.a.initiator.arm(Arm::Errors);
    read(&pair, 4);
    assert_eq!(pair.world.run(), [Event::Notified(A + 2, Ok(()))]);
    pair.close();
}

#[test]
fn a_solicited_arm_waits_for_a_solicited_message() {
    let mut pair = Pair::new();
    for context in 0..3 {
        pair.b.pair.receive(context, std::iter::empty()).unwrap();
    }
    pair.b.receiver.arm(Arm::Solicited);
    pair.a.pair.send(1, NONE, std::iter::empty()).unwrap();
    assert_eq!(pair.world.run(), []);
    pair.a.pair.send(2, RequestFlags::SOLICIT, std::iter::empty()).unwrap();
    assert_eq!(pair.world.run(), [Event::Notified(B + 3, Ok(()))]);
    pair.b.receiver.arm(Arm::Solicited);
    pair.b.pair.flush();
    assert_eq!(pair.world.run(), [Event::Notified(B + 3, Ok(()))], "errors satisfy it too");
    pair.close();
}

// Rule: BUG-5, NDK-CQ-14
/// The consumer's pattern: drain to empty, arm, return; and post from inside.
#[test]
fn drain_arm_and_post_inside_the_notification_lose_nothing_and_never_overlap() {
    let mut pair = Pair::new();
    let (queue, qp) = (pair.a.initiator.clone(), pair.a.pair.clone());
    let seen = std::sync::Arc::new(std::sync::Mutex::new((Vec::new(), 0)));
    let inside = seen.clone();
    pair.world.events.inside = Some(Box::new(move |event| {
        if !matches!(event, Event::Notified(..)) {
            return;
        }
        let mut seen = inside.lock().expect("callbacks do not overlap");
        seen.1 += 1;
        seen.0.extend(outcomes(&queue).iter().map(|(context, _)| *context));
        if let Some(next) = seen.0.last().map(|last| last + 1).filter(|next| *next < 100) {
            qp.read(next, NONE, std::iter::empty(), 0, MemoryToken::NONE).unwrap();
        }
        queue.arm(Arm::Any);
    }));
    pair.a.initiator.arm(Arm::Any);
    read(&pair, 0);
    pair.world.run();
    let (contexts, notifications) = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(contexts, (0..100).collect::<Vec<_>>());
    assert_eq!(notifications, 100);
    pair.world.events.inside = None;
    pair.close();
}

#[test]
fn everything_may_be_closed_inside_a_notification() {
    let mut pair = Pair::new();
    let (side, listener) = (&pair.a, pair.listener.clone());
    let objects = (side.connector.clone(), side.pair.clone(), side.initiator.clone(), side.open.clone());
    pair.world.events.inside = Some(Box::new(move |event| {
        if matches!(event, Event::Notified(..)) {
            let (connector, pair, queue, open) = &objects;
            drop((open.close(CLOSE), queue.close(CLOSE), pair.close(CLOSE), connector.close(CLOSE)));
            drop(listener.close(CLOSE));
        }
    }));
    pair.a.initiator.arm(Arm::Any);
    read(&pair, 1);
    pair.world.run();
    pair.world.events.inside = None;
    pair.close();
}

#[test]
fn an_overflow_ends_the_queue_pair_and_is_notified_once_with_its_status() {
    let depths = Depths { completions: 4, initiator: 32, ..Depths::default() };
    let mut pair = Pair::with(Semantics::NDK, depths);
    for context in 0..5 {
        read(&pair, context);
    }
    pair.a.initiator.arm(Arm::Errors);
    let events = pair.world.run();
    assert!(events.contains(&Event::Notified(A + 2, Err(QueueFailure::Overflow))), "{events:?}");
    assert!(events.contains(&Event::Disconnected(B + kit::GONE)), "{events:?}");
    assert_eq!(outcomes(&pair.a.initiator), [0, 1, 2, 3].map(|context| (context, Outcome::Success)));
    read(&pair, 9);
    pair.a.initiator.arm(Arm::Any);
    assert_eq!(pair.world.run(), []);
    assert_eq!(outcomes(&pair.a.initiator), []);
    assert_eq!(pair.world.first.counters().completion_queue_error, 1);
    pair.close();
}

/// A queue pair beside that of a side, on the same completion queues.
fn beside(pair: &Pair) -> QueuePair<kit::Harness> {
    let settings = QueuePairSettings {
        receive_queue: &pair.a.receiver,
        initiator_queue: &pair.a.initiator,
        context: 0,
        receive_depth: 4,
        initiator_depth: 1,
        receive_sges: 1,
        initiator_sges: 1,
        inline_data: 0,
        shared: None,
    };
    QueuePair::create(&pair.a.domain, settings, pair.world.consumer_object(A + 7)).unwrap()
}

/// A flush leaves the connection open; what it overruns ends it.
#[test]
fn cancelled_receives_that_overrun_a_queue_end_the_connection_for_the_peer() {
    for flushed_first in [false, true] {
        let depths = Depths { completions: 4, ..Depths::default() };
        let mut pair = Pair::with(Semantics::NDK, depths);
        if flushed_first {
            pair.a.pair.flush();
            assert_eq!(pair.world.run(), []);
        }
        for context in 0..5 {
            pair.a.pair.receive(context, std::iter::empty()).unwrap();
        }
        pair.a.pair.flush();
        let events = pair.world.run();
        assert_eq!(events, [Event::Disconnected(B + kit::GONE)], "flushed first: {flushed_first}");
        assert_eq!(outcomes(&pair.a.receiver), [0, 1, 2, 3].map(|context| (context, Outcome::Cancelled)));
        assert_eq!(pair.world.first.counters().completion_queue_error, 1);
        pair.close();
    }
}

/// Nothing that was under way reaches the peer then: the queue had failed before the queue pair was made.
#[test]
fn a_receive_cancelled_into_a_failed_queue_ends_the_connection_too() {
    let depths = Depths { completions: 1, ..Depths::default() };
    let mut pair = Pair::unconnected(World::new(), Semantics::NDK, depths);
    for context in 0..2 {
        pair.a.pair.receive(context, std::iter::empty()).unwrap();
    }
    pair.a.pair.flush();
    pair.world.run();
    let late = beside(&pair);
    let first = std::mem::replace(&mut pair.a.pair, late);
    drop(first.close(A + CLOSE));
    pair.connect();
    pair.a.pair.receive(7, std::iter::empty()).unwrap();
    pair.a.pair.flush();
    assert!(pair.world.run().contains(&Event::Disconnected(B + kit::GONE)));
    pair.close();
}

#[test]
fn a_queue_pair_that_was_flushed_before_ends_with_its_queue() {
    let mut pair = Pair::with(Semantics::NDK, Depths { completions: 1, ..Depths::default() });
    let beside = beside(&pair);
    pair.a.pair.flush();
    assert_eq!(pair.world.run(), []);
    (0..2).for_each(|context| beside.receive(context, std::iter::empty()).unwrap());
    beside.flush();
    assert_eq!(pair.world.run(), [Event::Disconnected(B + kit::GONE)]);
    drop(beside.close(CLOSE));
    pair.close();
}

#[test]
fn one_queue_may_serve_both_ends_and_entries_keep_the_order_of_cause_and_effect() {
    // Both ends in one open: a queue serves no other.
    let mut pair = Pair::unconnected(World::new(), Semantics::NDK, Depths::default());
    let one = pair.a.open.create_completion_queue(64, None, None, pair.world.consumer_object(1)).unwrap();
    let queue_pair = |context| {
        let settings = QueuePairSettings {
            receive_queue: &one,
            initiator_queue: &one,
            context,
            receive_depth: 8,
            initiator_depth: 8,
            receive_sges: 1,
            initiator_sges: 1,
            inline_data: 0,
            shared: None,
        };
        QueuePair::create(&pair.a.domain, settings, pair.world.consumer_object(context)).unwrap()
    };
    let (here, there) = (queue_pair(2), queue_pair(3));
    let listener = pair.a.open.create_listener(4, pair.world.consumer_object(4)).unwrap();
    listener.listen(SocketAddr::new(FIRST, 446), 0).unwrap();
    let limits = ReadLimits::default();
    let connector = &pair.a.connector;
    let request = Connect {
        queue_pair: &here,
        source: Source::Address(SocketAddr::new(FIRST, 0)),
        destination: SocketAddr::new(FIRST, 446),
        limits,
        private_data: &[],
        callback: 5,
    };
    connector.connect(request).unwrap();
    pair.world.run();
    let peer = pair.world.events.arrived.pop().unwrap();
    peer.accept(Accept { queue_pair: &there, limits, private_data: &[], disconnect: None, callback: 6 }).unwrap();
    pair.world.run();
    connector.complete_connect(None, 7).unwrap();
    pair.world.run();
    here.receive(100, std::iter::empty()).unwrap();
    there.receive(200, std::iter::empty()).unwrap();
    here.send(1, NONE, std::iter::empty()).unwrap();
    there.send(2, NONE, std::iter::empty()).unwrap();
    assert_eq!(outcomes(&one), [1, 200, 2, 100].map(|context| (context, Outcome::Success)));
    drop((peer.close(8), listener.close(8)));
    for queue_pair in [here, there] {
        drop(queue_pair.close(8));
    }
    drop(one.close(8));
    pair.close();
}

#[test]
fn the_first_work_of_an_idle_processor_schedules_it_and_only_that() {
    let mut pair = Pair::new();
    pair.world.run();
    let scheduled = |pair: &Pair| pair.world.harness().scheduled.swap(false, std::sync::atomic::Ordering::SeqCst);
    scheduled(&pair);
    pair.a.initiator.arm(Arm::Any);
    assert!(!scheduled(&pair), "nothing to do");
    read(&pair, 1);
    assert!(scheduled(&pair));
    pair.b.pair.flush();
    assert!(!scheduled(&pair), "the service pass has not run yet");
    pair.world.run();
    scheduled(&pair);
    pair.a.pair.flush();
    assert!(scheduled(&pair));
    pair.close();
}

/// What a poll fills may be pageable, and another processor may add meanwhile: no lock is held.
#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn a_poll_gives_its_completions_out_without_the_lock_in_order_over_several_batches() {
    let depths = Depths { completions: 100, initiator: 64, ..Depths::default() };
    let mut pair = Pair::with(Semantics::NDK, depths);
    for context in 0..40 {
        read(&pair, context);
    }
    let (queue, mut seen) = (&pair.a.initiator, Vec::new());
    let count = queue.poll(50, |index, completion| {
        if index == 0 {
            // Both take the queue's lock.
            queue.arm(Arm::Any);
            read(&pair, 40);
        }
        seen.push((index, completion.context));
    });
    assert_eq!(count, 41);
    assert_eq!(seen, (0..41).map(|index| (index, u64::from(index))).collect::<Vec<_>>());
    for context in 0..40 {
        read(&pair, context);
    }
    assert_eq!([16, 3, 16, 9].map(|most| queue.poll(most, |_, _| {})), [16, 3, 16, 5]);
    pair.world.run();
    pair.close();
}

const MICROSECOND: u64 = 1000;
const MILLISECOND: u64 = 1_000_000;

#[test]
fn an_interval_holds_a_notification_back_until_its_deadline_and_no_longer() {
    let mut pair = Pair::new();
    pair.a.initiator.moderate(10_000, u32::MAX).unwrap();
    for round in 0..3 {
        pair.a.initiator.arm(Arm::Any);
        read(&pair, round);
        read(&pair, round);
        assert_eq!(pair.world.run(), [], "held back");
        let start = pair.world.harness().timer_queue.load(std::sync::atomic::Ordering::SeqCst);
        let seen = pair.world.advance(30 * MILLISECOND);
        let [(at, Event::Notified(callback, Ok(())))] = seen[..] else { panic!("{seen:?}") };
        assert_eq!(callback, A + 2);
        // The timer may be a tick off, and a tick is a millisecond here.
        assert!((start + 9 * MILLISECOND..=start + 10 * MILLISECOND).contains(&at), "{at} after {start}");
    }
    pair.close();
}

#[test]
fn an_interval_below_the_tick_is_over_with_the_pass_and_after_everything_else_in_it() {
    let mut pair = Pair::new();
    pair.a.initiator.moderate(20, u32::MAX).unwrap();
    pair.a.initiator.arm(Arm::Any);
    pair.a.receiver.arm(Arm::Any);
    read(&pair, 1);
    pair.a.pair.receive(2, std::iter::empty()).unwrap();
    pair.b.pair.send(3, NONE, std::iter::empty()).unwrap();
    assert_eq!(pair.world.run(), [Event::Notified(A + 3, Ok(())), Event::Notified(A + 2, Ok(()))]);
    pair.close();
}

#[test]
fn a_queue_closed_while_its_notification_is_held_back_is_let_go_at_once() {
    let mut pair = Pair::new();
    pair.a.initiator.moderate(u32::MAX - 1, u32::MAX).unwrap();
    pair.a.initiator.arm(Arm::Any);
    read(&pair, 1);
    pair.world.run();
    let before = pair.a.initiator.depth();
    assert_eq!(before, 64);
    pair.close();
}

#[test]
fn settings_without_a_bound_are_refused_and_the_older_ones_stay() {
    let mut pair = Pair::new();
    let queue = pair.a.initiator.clone();
    queue.moderate(u32::MAX, 2).unwrap();
    for count in [65, u32::MAX] {
        assert_eq!(queue.moderate(u32::MAX, count), Err(ModerationError::Mix));
    }
    queue.arm(Arm::Any);
    read(&pair, 1);
    assert_eq!(pair.world.advance(1000 * MILLISECOND), []);
    assert_eq!(pair.world.run(), []);
    read(&pair, 2);
    assert_eq!(pair.world.run(), [Event::Notified(A + 2, Ok(()))]);
    pair.close();
}

/// Whatever time the entries come at, and however many: never after the interval, one notification an arm.
#[test]
fn many_rounds_of_a_moderated_queue_are_each_notified_once_and_in_time() {
    let mut pair = Pair::new();
    let timer_queue = |pair: &Pair| pair.world.harness().timer_queue.load(std::sync::atomic::Ordering::SeqCst);
    let mut seed = 7_u64;
    for round in 0..500_u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (interval, count) = (1 + (seed >> 33) % 5000, 2 + (seed >> 20) % 9);
        pair.a.initiator.moderate(interval as u32, count as u32).unwrap();
        pair.a.initiator.arm(Arm::Any);
        let (mut on_message, mut first, mut added) = (0, None, 0);
        for _ in 0..12 {
            let now = timer_queue(&pair);
            if added < count {
                read(&pair, round);
                added += 1;
                first.get_or_insert(now);
            }
            on_message += pair.world.run().len() + pair.world.advance(600 * MICROSECOND).len();
            let late = timer_queue(&pair) > first.unwrap() + interval * MICROSECOND;
            assert!(on_message == 1 || !late && added < count, "round {round}: {on_message} by {interval} and {count}");
        }
        assert_eq!(on_message, 1);
        outcomes(&pair.a.initiator);
    }
    pair.close();
}

#[test]
fn a_failed_queue_ends_every_queue_pair_that_uses_it() {
    let depths = Depths { completions: 4, initiator: 32, ..Depths::default() };
    let mut pair = Pair::with(Semantics::NDK, depths);
    let settings = QueuePairSettings {
        receive_queue: &pair.a.initiator,
        initiator_queue: &pair.a.receiver,
        context: 7,
        receive_depth: 4,
        initiator_depth: 4,
        receive_sges: 1,
        initiator_sges: 1,
        inline_data: 0,
        shared: None,
    };
    let beside = QueuePair::create(&pair.a.domain, settings, pair.world.consumer_object(77)).unwrap();
    beside.receive(1, std::iter::empty()).unwrap();
    (0..5).for_each(|context| read(&pair, context));
    pair.world.run();
    // Its receive was flushed into the failed queue, which took it away without a word.
    assert!(matches!(beside.close(CLOSE), softndk_engine::Close::Done(_)));
    pair.close();
}

/// The queue pair that uses the queue is still there and goes on completing.
#[test]
fn a_queue_that_is_being_closed_notifies_no_more() {
    for before in [false, true] {
        let mut pair = Pair::new();
        pair.a.initiator.arm(Arm::Any);
        if before {
            read(&pair, 1);
        }
        assert!(matches!(pair.a.initiator.close(A + CLOSE), softndk_engine::Close::Pending));
        read(&pair, 2);
        pair.a.initiator.arm(Arm::Any);
        assert_eq!(pair.world.run(), []);
        pair.close();
    }
}

#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn a_poll_takes_no_more_than_it_was_asked_for() {
    let depths = Depths { initiator: 64, completions: 64, ..Depths::default() };
    let pair = Pair::with(Semantics::NDK, depths);
    for context in 0..50 {
        read(&pair, context);
    }
    let mut next = 0;
    for most in [1, 20, 0, 16, 17] {
        let given = pair.a.initiator.poll(most, |index, completion| {
            assert_eq!(completion.context, next + u64::from(index));
        });
        assert_eq!((next, given), (next, most.min(50 - next as u32)));
        next += u64::from(given);
    }
    pair.close();
}

/// 0 of the one and 0 or 1 of the other are no moderation, whatever the other number is.
#[test]
fn settings_that_mean_nothing_hold_nothing_back() {
    for (interval, count) in [(0, 5), (0, u32::MAX), (1_000_000, 0), (1_000_000, 1), (u32::MAX, 1), (0, 0)] {
        let mut pair = Pair::new();
        pair.a.initiator.moderate(interval, count).unwrap();
        pair.a.initiator.arm(Arm::Any);
        read(&pair, 1);
        assert_eq!(pair.world.run(), [Event::Notified(A + 2, Ok(()))], "{interval} {count}");
        pair.close();
    }
}

/// A consumer that leaves completions behind and says so is notified of them again; one that only arms is not.
#[test]
fn an_arm_for_the_rest_notifies_of_what_was_left() {
    let mut pair = Pair::new();
    for context in 0..3 {
        read(&pair, context);
    }
    pair.a.initiator.arm(Arm::Any);
    assert_eq!(pair.world.run(), [Event::Notified(A + 2, Ok(()))]);
    assert_eq!(pair.a.initiator.poll(1, |_, _| {}), 1);
    pair.a.initiator.arm(Arm::Any);
    assert_eq!(pair.world.run(), []);
    pair.a.initiator.arm_for_rest();
    assert_eq!(pair.world.run(), [Event::Notified(A + 2, Ok(()))]);
    assert_eq!(outcomes(&pair.a.initiator).len(), 2);
    pair.a.initiator.arm_for_rest();
    assert_eq!(pair.world.run(), []);
    assert!(!pair.a.initiator.has_failed());
    pair.close();
}

/// A front end that looks by itself is not told of what it expects; once it has found the queue empty it is told of what comes.
#[test]
fn a_front_end_that_takes_everything_is_told_of_what_comes_next() {
    let mut pair = Pair::new();
    let taken = |pair: &Pair, most: usize| pair.a.initiator.take(&mut vec![Completion::default(); most], true);
    pair.a.initiator.arm(Arm::Any);
    pair.a.initiator.disarm();
    for context in 0..3 {
        read(&pair, context);
    }
    assert_eq!(pair.world.run(), [], "it is going to look");
    assert_eq!(taken(&pair, 2), (2, true));
    read(&pair, 3);
    assert_eq!(pair.world.run(), [], "only an empty queue is armed");
    assert_eq!(taken(&pair, 8), (2, false));
    assert_eq!(pair.world.run(), [], "nothing is new");
    read(&pair, 4);
    assert_eq!(pair.world.run(), [Event::Notified(A + 2, Ok(()))]);
    assert_eq!(taken(&pair, 1), (1, false));
    pair.a.initiator.disarm();
    read(&pair, 5);
    assert_eq!(pair.world.run(), []);
    pair.a.initiator.arm(Arm::Any);
    assert_eq!(pair.world.run(), [Event::Notified(A + 2, Ok(()))], "what came while it was not armed is new");
    pair.close();
}
