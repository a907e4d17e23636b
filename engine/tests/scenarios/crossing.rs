//! Queues, timers and shared receives met by another processor between two steps (see `interleaving.rs` for connections).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use softndk_engine::{
    Arm, Budget, Close, CompletionQueue, MemoryToken, Outcome, Pass, QueuePair, RequestFlags, ResizeError, Semantics,
};
use softndk_engine_kit::meanwhile::{at_every_step, at_step};
use softndk_engine_kit::{A, CLOSE, Depths, Event, Events, Harness, Pair, World, outcomes};

const MILLISECOND: u64 = 1_000_000;

fn read(pair: &QueuePair<Harness>, context: u64) {
    pair.read(context, RequestFlags::empty(), std::iter::empty(), 0, MemoryToken::NONE).unwrap();
}

fn successes(contexts: std::ops::Range<u64>) -> Vec<(u64, Outcome)> {
    contexts.map(|context| (context, Outcome::Success)).collect()
}

/// What a resize meets: entries that come, entries that go, another resize.
#[test]
fn a_resize_loses_no_entry_that_comes_or_goes_meanwhile() {
    type Meeting = fn(&QueuePair<Harness>, &CompletionQueue<Harness>) -> Vec<(u64, Outcome)>;
    let meetings: [Meeting; 3] = [
        |pair, _| {
            (4..8).for_each(|context| read(pair, context));
            Vec::new()
        },
        |pair, queue| {
            let taken = outcomes(queue);
            (4..8).for_each(|context| read(pair, context));
            taken
        },
        |pair, queue| {
            queue.resize(9).unwrap();
            (4..8).for_each(|context| read(pair, context));
            Vec::new()
        },
    ];
    for (meeting, swapped) in meetings.into_iter().flat_map(|meeting| [(meeting, false), (meeting, true)]) {
        at_every_step(|place| {
            let pair = Pair::new();
            (0..4).for_each(|context| read(&pair.a.pair, context));
            let taken = Rc::new(RefCell::new(Vec::new()));
            let meet = {
                let (queue_pair, queue, taken) = (pair.a.pair.clone(), pair.a.initiator.clone(), taken.clone());
                move || {
                    let seen = meeting(&queue_pair, &queue);
                    taken.borrow_mut().extend(seen);
                }
            };
            let queue = pair.a.initiator.clone();
            let resize = move || queue.resize(17).unwrap();
            let done = if swapped { at_step(place, meet, resize) } else { at_step(place, resize, meet) };
            if !done && !swapped {
                (4..8).for_each(|context| read(&pair.a.pair, context));
            }
            let mut all = taken.take();
            all.extend(outcomes(&pair.a.initiator));
            assert_eq!(all, successes(0..8), "step {place}, swapped: {swapped}");
            pair.close();
            done
        });
    }
}

#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn a_queue_that_is_never_polled_cannot_be_resized_for_ever() {
    let pair = Pair::new();
    let mut resizes = 0;
    let refused = loop {
        read(&pair.a.pair, resizes);
        match pair.a.initiator.resize(64) {
            Ok(()) => resizes += 1,
            Err(error) => break error,
        }
        assert!(resizes < 32, "rings pile up");
    };
    assert_eq!(refused, ResizeError::NoResources);
    assert_eq!(outcomes(&pair.a.initiator), successes(0..resizes + 1));
    pair.a.initiator.resize(64).unwrap();
    pair.close();
}

/// The entries that a queue of the ND column has beyond its depth are not observable.
#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn the_slack_of_a_queue_counts_for_overflow_only() {
    let depths = Depths { completions: 4, ..Depths::default() };
    let pair = Pair::with(Semantics::ND, depths);
    assert_eq!(pair.a.initiator.depth(), 4);
    pair.a
        .initiator
        .moderate(u32::MAX, 5)
        .expect_err("a count over the depth is no bound, and neither is the interval");
    (0..5).for_each(|context| read(&pair.a.pair, context));
    assert_eq!(pair.a.initiator.resize(4), Err(ResizeError::Occupied));
    assert_eq!(outcomes(&pair.a.initiator), successes(0..5));
    pair.close();
}

#[test]
fn new_moderation_and_entries_that_meet_it_notify_once() {
    for swapped in [false, true] {
        at_every_step(|place| {
            let mut pair = Pair::new();
            pair.a.initiator.moderate(u32::MAX, 3).unwrap();
            pair.a.initiator.arm(Arm::Any);
            read(&pair.a.pair, 0);
            assert_eq!(pair.world.run(), []);
            let (queue_pair, queue) = (pair.a.pair.clone(), pair.a.initiator.clone());
            let enter = move || read(&queue_pair, 1);
            let moderate = move || queue.moderate(u32::MAX, 2).unwrap();
            let done = if swapped { at_step(place, enter, moderate) } else { at_step(place, moderate, enter) };
            let expected = if done { vec![Event::Notified(A + 2, Ok(()))] } else { Vec::new() };
            assert_eq!(pair.world.run(), expected, "step {place}, swapped: {swapped}");
            pair.close();
            done
        });
    }
}

/// The deadline of a held-back notification has passed; a service pass sees it while the arm is changed, satisfied or
/// withdrawn.
#[test]
fn a_deadline_that_comes_while_its_timer_is_set_or_cleared_notifies_once() {
    type Change = fn(&CompletionQueue<Harness>, &QueuePair<Harness>);
    let changes: [Change; 4] = [
        |queue, _| queue.moderate(20_000, 100).unwrap(),
        |queue, _| queue.moderate(0, 0).unwrap(),
        |_, pair| read(pair, 1),
        |queue, _| assert!(matches!(queue.close(A + CLOSE), Close::Pending), "a queue pair uses it"),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        for swapped in [false, true] {
            at_every_step(|place| {
                let mut pair = Pair::in_world(World::new(), Semantics::NDK, Depths::default());
                pair.a.initiator.moderate(10_000, 100).unwrap();
                pair.a.initiator.arm(Arm::Any);
                read(&pair.a.pair, 0);
                assert_eq!(pair.world.run(), []);
                pair.world.harness().timer_queue.fetch_add(11 * MILLISECOND, Ordering::SeqCst);
                let events = Rc::new(RefCell::new(Events::new(pair.world.counters.clone())));
                let service_pass = {
                    let (fabric, events) = (pair.world.fabric.clone(), events.clone());
                    let budget = Budget { bytes: 1 << 20, items: 64 };
                    move || while fabric.service_pass(0, budget, &mut *events.borrow_mut()) == Pass::More {}
                };
                let change = {
                    let (queue, queue_pair) = (pair.a.initiator.clone(), pair.a.pair.clone());
                    move || change(&queue, &queue_pair)
                };
                let done =
                    if swapped { at_step(place, change, service_pass) } else { at_step(place, service_pass, change) };
                let mut seen = std::mem::take(&mut events.borrow_mut().seen);
                seen.extend(pair.world.run());
                seen.extend(pair.world.advance(100 * MILLISECOND).into_iter().map(|(_, event)| event));
                let on_message = seen.iter().filter(|event| **event == Event::Notified(A + 2, Ok(()))).count();
                let closed = number == 3 && (done || swapped);
                assert!(
                    on_message == 1 || closed && on_message == 0,
                    "change {number}, step {place}, swapped {swapped}: {seen:?}"
                );
                pair.close();
                done
            });
        }
    }
}
