//! Consumers that feed themselves at DISPATCH_LEVEL: every loop that ends with an empty queue ends, and one that waits finds
//! its result. Another processor is played by service passes that this thread runs for it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use softndk_engine::limits::{DISPATCH_BYTES, DISPATCH_RESULTS, IN_PLACE_DISPATCH, PIECE_SLOW};
use softndk_engine::{Arm, Budget, CompletionQueue, Fabric, MemoryToken, Pass, QueuePair, RequestFlags, Semantics};
use softndk_engine_kit::{A, Buffer, Depths, EVERYTHING, Event, Events, Harness, PROCESSOR, Pair, polled, sge};

const NONE: RequestFlags = RequestFlags::empty();
/// More rounds than any bounded loop takes.
const ENDLESS: u64 = 20 * DISPATCH_RESULTS;

fn post(pair: &QueuePair<Harness>, context: u64) {
    pair.read(context, NONE, std::iter::empty(), 0, MemoryToken::NONE).unwrap();
}

fn poll_one(queue: &CompletionQueue<Harness>) -> u32 {
    queue.poll(1, |_, _| {})
}

/// Another processor works off the list of this one, as a thread of the driver does. Its notifications go nowhere.
fn work_elsewhere(fabric: &Fabric<Harness>, events: &mut Events) {
    PROCESSOR.with(|place| place.set(1));
    for processor in 0..2 {
        while fabric.service_pass(processor, Budget { bytes: 1 << 20, items: 64 }, events) == Pass::More {}
    }
    PROCESSOR.with(|place| place.set(0));
}

fn deep() -> Pair {
    let depths = Depths { completions: 8 * DISPATCH_RESULTS as u32, initiator: 64, ..Depths::default() };
    Pair::with(Semantics::NDK, depths)
}

/// Runs at DISPATCH_LEVEL outside of any callback.
fn at_dispatch<R>(pair: &Pair, body: impl FnOnce() -> R) -> R {
    pair.world.harness().dispatch.store(true, Ordering::SeqCst);
    let result = body();
    pair.world.harness().dispatch.store(false, Ordering::SeqCst);
    result
}

/// Where the pieces of a Read of 1 MiB begin, in KiB, when each copy takes so many nanoseconds.
fn pieces(pair: &mut Pair, (local, remote): (MemoryToken, MemoryToken), each_takes: u64) -> Vec<u64> {
    let fabric = pair.world.fabric.clone();
    let harness = pair.world.harness();
    *harness.before_copy.lock().unwrap() = Some(Box::new(move || {
        fabric.platform().timer_queue.fetch_add(each_takes, Ordering::SeqCst);
    }));
    harness.watch_copies.store(true, Ordering::SeqCst);
    pair.a.pair.read(1, NONE, [sge(0, 1 << 20, local)].into_iter(), 0, remote).unwrap();
    let harness = pair.world.harness();
    harness.watch_copies.store(false, Ordering::SeqCst);
    *harness.before_copy.lock().unwrap() = None;
    let copies = std::mem::take(&mut *harness.order.lock().unwrap());
    pair.world.run();
    assert_eq!(polled(&pair.a.initiator).len(), 1);
    let begins = copies.iter().filter(|(is_end, ..)| !is_end).map(|(_, to, _)| to - copies[0].1);
    begins.map(|begin| begin / 1024).collect()
}

// Rule: BUG-7
#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn pieces_are_short_where_memory_is_slow_and_long_again_when_it_is_not() {
    let mut pair = Pair::new();
    let (here, there) = (Buffer::new(1 << 20, 0), Buffer::new(1 << 20, 7));
    let local = pair.a.register(&pair.world, &here, 0, EVERYTHING);
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    let tokens = (local.local_token(), remote.remote_token());
    let slow: Vec<u64> = std::iter::once(0).chain((128..1024).step_by(64)).collect();
    assert_eq!(pieces(&mut pair, tokens, PIECE_SLOW + 1), slow, "half of the first, and not less than 64 KiB");
    assert_eq!(
        pieces(&mut pair, tokens, 0),
        [0, 64, 192, 448, 704, 960],
        "twice as long each time, and not more than 256 KiB"
    );
    assert_eq!(pieces(&mut pair, tokens, PIECE_SLOW), [0, 256, 512, 768], "neither slow nor quick");
    assert!(here.read(0, 1 << 20).iter().all(|byte| *byte == 7));
    drop((local.close(1), remote.close(1)));
    pair.close();
}

// Rule: BUG-7
#[test]
fn a_post_inside_a_callback_copies_nothing_until_it_has_returned() {
    let mut pair = Pair::new();
    let (here, there) = (Buffer::new(4096, 0), Buffer::new(4096, 7));
    let local = pair.a.register(&pair.world, &here, 0, EVERYTHING);
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    let (queue_pair, buffer) = (pair.a.pair.clone(), here.clone());
    let (local_token, remote_token) = (local.local_token(), remote.remote_token());
    let untouched = Arc::new(Mutex::new(None));
    let seen = untouched.clone();
    pair.world.events.inside = Some(Box::new(move |_| {
        let list = [sge(0, 4096, local_token)].into_iter();
        queue_pair.read(2, NONE, list, 0, remote_token).unwrap();
        *seen.lock().unwrap() = Some(buffer.read(0, 4096) == [0; 4096]);
    }));
    pair.a.initiator.arm(Arm::Any);
    post(&pair.a.pair, 1);
    pair.world.run();
    assert_eq!(*untouched.lock().unwrap(), Some(true), "the callback has seen its own post done");
    pair.world.events.inside = None;
    assert_eq!(here.read(0, 4096), [7; 4096]);
    assert_eq!(polled(&pair.a.initiator).len(), 2);
    drop((local.close(1), remote.close(1)));
    pair.close();
}

// Rule: BUG-7, NDK-CQ-14
/// `while (poll() > 0) { post another }`, then arm, while another processor completes each post at once.
#[test]
fn a_loop_in_a_callback_that_another_processor_feeds_ends_and_is_notified_of_the_rest() {
    let mut pair = deep();
    let (queue, queue_pair, fabric) = (pair.a.initiator.clone(), pair.a.pair.clone(), pair.world.fabric.clone());
    let mut elsewhere = Events::new(pair.world.counters.clone());
    let rounds = Arc::new(Mutex::new(Vec::new()));
    let seen = rounds.clone();
    pair.world.events.inside = Some(Box::new(move |event| {
        if !matches!(event, Event::Notified(..)) {
            return;
        }
        let mut taken = 0;
        // The second notification takes what is left and posts nothing more.
        let first = seen.lock().unwrap().is_empty();
        while poll_one(&queue) > 0 && taken < ENDLESS {
            taken += 1;
            if first {
                post(&queue_pair, taken);
                work_elsewhere(&fabric, &mut elsewhere);
            }
        }
        seen.lock().unwrap().push(taken);
        queue.arm(Arm::Any);
    }));
    post(&pair.a.pair, 0);
    pair.a.initiator.arm(Arm::Any);
    pair.world.run();
    let rounds = rounds.lock().unwrap().clone();
    assert_eq!(rounds.first(), Some(&DISPATCH_RESULTS), "results in one notification");
    assert_eq!(
        rounds.iter().sum::<u64>(),
        DISPATCH_RESULTS + 1,
        "{rounds:?}: a result was left without a notification"
    );
    pair.world.events.inside = None;
    pair.close();
}

// Rule: BUG-7
#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn a_loop_over_two_queues_that_another_processor_feeds_ends() {
    let pair = deep();
    let mut elsewhere = Events::new(pair.world.counters.clone());
    post(&pair.a.pair, 0);
    let rounds = at_dispatch(&pair, || {
        let mut rounds = 0;
        while poll_one(&pair.a.initiator) + poll_one(&pair.b.initiator) > 0 && rounds < ENDLESS {
            rounds += 1;
            post(if rounds % 2 == 0 { &pair.a.pair } else { &pair.b.pair }, rounds);
            work_elsewhere(&pair.world.fabric, &mut elsewhere);
        }
        rounds
    });
    assert!(rounds <= DISPATCH_RESULTS + 1, "{rounds} rounds");
    assert_eq!(poll_one(&pair.a.initiator) + poll_one(&pair.b.initiator), 1, "the last one is still there");
    pair.close();
}

// Rule: BUG-7, NDK-CQ-14
/// The queue whose notification it is has a result from the beginning, and answers empty because another queue in the same
/// callback has used the allowance up.
#[test]
fn a_result_that_an_empty_answer_holds_back_counts_as_new() {
    let mut pair = deep();
    let (queue, other) = (pair.a.initiator.clone(), pair.b.initiator.clone());
    let (other_pair, fabric) = (pair.b.pair.clone(), pair.world.fabric.clone());
    let mut elsewhere = Events::new(pair.world.counters.clone());
    let taken = Arc::new(Mutex::new(Vec::new()));
    let seen = taken.clone();
    pair.world.events.inside = Some(Box::new(move |event| {
        if *event != Event::Notified(A + 2, Ok(())) {
            return;
        }
        let mut seen = seen.lock().unwrap();
        for context in 0..if seen.is_empty() { DISPATCH_RESULTS } else { 0 } {
            post(&other_pair, context);
            work_elsewhere(&fabric, &mut elsewhere);
            assert_eq!(poll_one(&other), 1);
        }
        seen.push(poll_one(&queue));
        queue.arm(Arm::Any);
    }));
    post(&pair.a.pair, 0);
    pair.a.initiator.arm(Arm::Any);
    pair.world.run();
    assert_eq!(*taken.lock().unwrap(), [0, 1], "results of the queue in its first and second notification");
    pair.world.events.inside = None;
    pair.close();
}

// Rule: BUG-7
#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn results_that_were_there_before_are_all_handed_out() {
    let pair = deep();
    let many = 2 * DISPATCH_RESULTS;
    (0..many).for_each(|context| post(&pair.a.pair, context));
    let taken = at_dispatch(&pair, || {
        let mut taken = 0;
        while poll_one(&pair.a.initiator) > 0 {
            taken += 1;
        }
        taken
    });
    assert_eq!(taken, many);
    pair.close();
}

// Rule: BUG-7
#[test]
fn a_queue_that_has_answered_empty_once_goes_on_when_it_is_asked_again() {
    let pair = deep();
    let mut elsewhere = Events::new(pair.world.counters.clone());
    let (mut taken, mut empty) = (0, 0);
    at_dispatch(&pair, || {
        for context in 0..3 * DISPATCH_RESULTS {
            post(&pair.a.pair, context);
            work_elsewhere(&pair.world.fabric, &mut elsewhere);
            // A consumer that waits for the result of its post.
            while poll_one(&pair.a.initiator) == 0 {
                empty += 1;
                assert!(empty <= 3, "asked {empty} times in vain");
            }
            taken += 1;
        }
    });
    assert_eq!(taken, 3 * DISPATCH_RESULTS);
    assert!(empty >= 2, "nothing was held back");
    pair.close();
}

// Rule: BUG-7
/// What one processor has granted to a queue is no grant on another one.
#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn a_loop_that_goes_on_upon_another_processor_ends_there_as_soon() {
    let pair = deep();
    post(&pair.a.pair, 0);
    let drain = || {
        let mut taken = 0;
        while poll_one(&pair.a.initiator) > 0 && taken < ENDLESS {
            taken += 1;
            post(&pair.a.pair, taken);
        }
        taken
    };
    let (here, there) = at_dispatch(&pair, || {
        let here = drain();
        PROCESSOR.with(|place| place.set(1));
        let there = drain();
        PROCESSOR.with(|place| place.set(0));
        (here, there)
    });
    assert_eq!((here, there), (DISPATCH_RESULTS, DISPATCH_RESULTS));
    assert_eq!(polled(&pair.a.initiator).len(), 1, "the last one is still there");
    pair.close();
}

// Rule: BUG-7
/// A consumer that for each result of one queue drains a second one and then looks once more whether that is empty. The second
/// answer of that queue is no sign that the loop over the first one has been left.
#[test]
fn a_loop_that_drains_a_second_queue_for_each_result_of_the_first_ends() {
    let pair = deep();
    let mut elsewhere = Events::new(pair.world.counters.clone());
    post(&pair.a.pair, 0);
    let (first, second) = at_dispatch(&pair, || {
        let (mut first, mut second) = (0, 0);
        while poll_one(&pair.a.initiator) > 0 && first < ENDLESS {
            first += 1;
            post(&pair.a.pair, first);
            post(&pair.b.pair, first);
            work_elsewhere(&pair.world.fabric, &mut elsewhere);
            for _check in 0..2 {
                while poll_one(&pair.b.initiator) > 0 {
                    second += 1;
                }
            }
        }
        (first, second)
    });
    assert!(first <= DISPATCH_RESULTS, "{first} results of the first queue");
    assert_eq!(second + polled(&pair.b.initiator).len() as u64, first, "results of the second queue");
    assert_eq!(polled(&pair.a.initiator).len(), 1, "the last one is still there");
    pair.close();
}

// Rule: BUG-7
#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn posts_at_dispatch_level_copy_in_place_until_the_allowance_of_the_processor_is_used_up() {
    let mut pair = Pair::new();
    let length = IN_PLACE_DISPATCH as usize;
    let (here, there) = (Buffer::new(length, 0), Buffer::new(length, 7));
    let local = pair.a.register(&pair.world, &here, 0, EVERYTHING);
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    let read = |context| {
        let list = [sge(0, length as u32, local.local_token())].into_iter();
        pair.a.pair.read(context, NONE, list, 0, remote.remote_token()).unwrap();
    };
    let in_place = || {
        let mut polled = 0;
        pair.a.initiator.poll(32, |_, _| polled += 1);
        polled
    };
    pair.world.harness().dispatch.store(true, Ordering::SeqCst);
    (0..8).for_each(read);
    assert_eq!(in_place(), DISPATCH_BYTES / IN_PLACE_DISPATCH, "the rest is left to a service pass");
    pair.world.harness().dispatch.store(false, Ordering::SeqCst);
    pair.world.run();
    let done = |pair: &Pair| polled(&pair.a.initiator).len();
    assert_eq!(done(&pair), 4);
    // A service pass renews the allowance; so does a post below DISPATCH_LEVEL.
    let read = |pair: &Pair, context| {
        let list = [sge(0, length as u32, local.local_token())].into_iter();
        pair.a.pair.read(context, NONE, list, 0, remote.remote_token()).unwrap();
    };
    at_dispatch(&pair, || (0..4).for_each(|context| read(&pair, context)));
    assert_eq!(done(&pair), 4, "renewed by the service pass");
    read(&pair, 9);
    assert_eq!(done(&pair), 1);
    at_dispatch(&pair, || (0..4).for_each(|context| read(&pair, context)));
    assert_eq!(done(&pair), 4, "renewed by the post below");
    drop((local.close(1), remote.close(1)));
    pair.close();
}

// Rule: BUG-7
#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn an_empty_poll_at_dispatch_level_brings_what_waits_on_its_processor_a_piece_forward() {
    let mut pair = Pair::new();
    let pieces = 16;
    let length = pieces * IN_PLACE_DISPATCH as usize;
    let (here, there) = (Buffer::new(length, 0), Buffer::new(length, 7));
    let local = pair.a.register(&pair.world, &here, 0, EVERYTHING);
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    let polls = at_dispatch(&pair, || {
        let list = [sge(0, length as u32, local.local_token())].into_iter();
        pair.a.pair.read(1, NONE, list, 0, remote.remote_token()).unwrap();
        (1..=1000).find(|_| poll_one(&pair.a.initiator) > 0).unwrap_or(0)
    });
    assert_eq!(polls, pieces, "one piece in the post, one in each poll that finds nothing, and the poll that finds it");
    assert_eq!(here.read(0, length), vec![7; length]);
    pair.world.run();
    drop((local.close(1), remote.close(1)));
    pair.close();
}
