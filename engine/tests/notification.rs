//! Notifications of completion queues through turns: when, how often, and what may be done inside.

mod pair;

use pair::{A, B, CLOSE, Depths, Event, Pair, outcomes};
use softndk_engine::{Arm, MemoryToken, Outcome, QueueFailure, RequestFlags, Semantics};

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
    let objects = (side.connector.clone(), side.pair.clone(), side.initiator.clone(), side.opening.clone());
    pair.world.events.inside = Some(Box::new(move |event| {
        if matches!(event, Event::Notified(..)) {
            let (connector, pair, queue, opening) = &objects;
            drop((opening.close(CLOSE), queue.close(CLOSE), pair.close(CLOSE), connector.close(CLOSE)));
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
fn an_overflow_ends_the_queue_pair_and_is_told_once_with_its_status() {
    let depths = Depths { completions: 4, initiator: 32, ..Depths::default() };
    let mut pair = Pair::with(Semantics::NDK, depths);
    for context in 0..5 {
        read(&pair, context);
    }
    pair.a.initiator.arm(Arm::Errors);
    let events = pair.world.run();
    assert!(events.contains(&Event::Notified(A + 2, Err(QueueFailure::Overflow))), "{events:?}");
    assert!(events.contains(&Event::Disconnected(B + pair::GONE)), "{events:?}");
    assert_eq!(outcomes(&pair.a.initiator), [0, 1, 2, 3].map(|context| (context, Outcome::Success)));
    read(&pair, 9);
    pair.a.initiator.arm(Arm::Any);
    assert_eq!(pair.world.run(), []);
    assert_eq!(outcomes(&pair.a.initiator), []);
    assert_eq!(pair.world.first.counters().completion_queue_error, 1);
    pair.close();
}

#[test]
fn one_queue_may_serve_both_ends_and_entries_keep_the_order_of_cause_and_effect() {
    let mut pair = Pair::new();
    let (here, there) = (&pair.a, &pair.b);
    here.pair.receive(100, std::iter::empty()).unwrap();
    there.pair.receive(200, std::iter::empty()).unwrap();
    here.pair.send(1, NONE, std::iter::empty()).unwrap();
    there.pair.send(2, NONE, std::iter::empty()).unwrap();
    assert_eq!(outcomes(&here.initiator), [(1, Outcome::Success)]);
    assert_eq!(outcomes(&here.receiver), [(100, Outcome::Success)]);
    pair.world.run();
    pair.close();
}

#[test]
fn the_first_work_of_an_idle_processor_kicks_it_and_only_that() {
    let mut pair = Pair::new();
    pair.world.run();
    let kicked = |pair: &Pair| pair.world.harness().kicked.swap(false, std::sync::atomic::Ordering::SeqCst);
    kicked(&pair);
    pair.a.initiator.arm(Arm::Any);
    assert!(!kicked(&pair), "nothing to do");
    read(&pair, 1);
    assert!(kicked(&pair));
    pair.b.pair.flush();
    assert!(!kicked(&pair), "the turn has not come yet");
    pair.world.run();
    kicked(&pair);
    pair.a.pair.flush();
    assert!(kicked(&pair));
    pair.close();
}

/// What a poll fills may be pageable, and another processor may add meanwhile: no lock is held.
#[test]
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
