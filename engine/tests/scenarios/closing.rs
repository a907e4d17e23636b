//! Closes: any order, exactly one completion, antecedents after their successors' callbacks, memory after its last reader.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use softndk_engine::limits::{PAGE, PIECE, PIECE_FIRST};
use softndk_engine::{
    Adapter, Budget, Close, CloseCompletion, ConnectError, ConnectEvent, Deregistered, DisconnectEvent, Fabric,
    Notification, ObjectKind, Outcome, Pass, RegionError, Registration, RequestCompletion, RequestFlags, Retired,
    Rights, Semantics, Sink,
};
use softndk_engine_kit::MESSAGE_DELAY;
use softndk_engine_kit::meanwhile::at_step;
use softndk_engine_kit::{
    self, A, B, Buffer, CLOSE, DISCONNECT, EVERYTHING, Event, Events, Harness, PROCESSOR, Pair, World, outcomes, sge,
};

const NONE: RequestFlags = RequestFlags::empty();

/// All orders of `0..n`.
fn orders(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![vec![]];
    }
    let mut all = Vec::new();
    for order in orders(n - 1) {
        for place in 0..n {
            let mut order = order.clone();
            order.insert(place, n - 1);
            all.push(order);
        }
    }
    all
}

/// What a side can close, by number; true when it was closed at once.
fn close(pair: &Pair, which: usize) -> bool {
    let side = &pair.b;
    let done: Close<Harness> = match which {
        0 => side.connector.close(0),
        1 => side.pair.close(1),
        2 => side.initiator.close(2),
        3 => side.receiver.close(3),
        4 => side.domain.close(4),
        5 => pair.listener.close(5),
        _ => side.open.close(6),
    };
    matches!(done, Close::Done(_))
}

#[test]
fn every_order_of_closing_a_connected_side_completes_each_object_once_and_parents_last() {
    for order in orders(7) {
        let mut pair = Pair::new();
        pair.b.pair.receive(9, std::iter::empty()).unwrap();
        let mut closed = Vec::new();
        for which in &order {
            if close(&pair, *which) {
                closed.push(*which);
            }
        }
        for event in pair.world.run() {
            if let Event::Closed(which, _) = event {
                closed.push(which as usize);
            }
        }
        let place = |which: usize| closed.iter().position(|other| *other == which).expect("closed");
        let mut sorted = closed.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4, 5, 6], "{order:?}");
        for (before, after) in [(0, 1), (0, 5), (1, 2), (1, 3), (1, 4), (4, 6), (2, 6), (3, 6), (5, 6), (0, 6)] {
            assert!(place(before) < place(after), "{order:?} closed as {closed:?}");
        }
        drop(pair.a.pair.close(1));
        drop((pair.a.connector.close(1), pair.a.initiator.close(1), pair.a.receiver.close(1)));
        drop((pair.a.domain.close(1), pair.a.open.close(1)));
        pair.world.assert_empty();
    }
}

#[test]
fn an_idle_object_closes_at_once_and_gives_its_consumer_object_back() {
    let world = World::new();
    let open = world.first.open(Semantics::NDK, world.consumer_object(7)).unwrap();
    let queue = open.create_completion_queue(1, None, None, world.consumer_object(8)).unwrap();
    assert!(
        matches!(queue.close(1), Close::Done(closed) if closed.consumer_object.as_ref().is_some_and(|consumer_object| consumer_object.id == 8))
    );
    assert!(
        matches!(open.close(1), Close::Done(closed) if closed.consumer_object.as_ref().is_some_and(|consumer_object| consumer_object.id == 7))
    );
}

/// Keeps the last close completion instead of dropping it.
#[derive(Default)]
struct Keeping {
    kept: Vec<CloseCompletion<Harness>>,
    notifications: Vec<Notification<Harness>>,
    retired: Vec<Retired<Harness>>,
}

impl Sink<Harness> for Keeping {
    fn notify(&mut self, event: Notification<Harness>) {
        self.notifications.push(event);
    }
    fn request_completed(&mut self, _: RequestCompletion<Harness>) {}
    fn connection_requested(&mut self, _: ConnectEvent<Harness>) {}
    fn disconnected(&mut self, _: DisconnectEvent<Harness>) {}
    fn closed(&mut self, event: CloseCompletion<Harness>) {
        self.kept.push(event);
    }
    fn retired(&mut self, event: Retired<Harness>) {
        self.retired.push(event);
    }
}

const BUDGET: Budget = Budget { bytes: 1 << 20, items: 100 };

// Rule: NDK-CLOSE-6
#[test]
fn an_antecedent_waits_until_the_successors_close_callback_has_returned() {
    let world = World::new();
    let open = world.first.open(Semantics::NDK, world.consumer_object(1)).unwrap();
    let domain = open.create_protection_domain(world.consumer_object(2)).unwrap();
    let region = domain.create_memory_region(false, world.consumer_object(3)).unwrap();
    let hold = region.hold();
    assert!(matches!(region.close(3), Close::Pending));
    assert!(matches!(domain.close(2), Close::Pending));
    assert!(matches!(open.close(1), Close::Pending));
    let mut sink = Keeping::default();
    world.fabric.service_pass(0, BUDGET, &mut sink);
    assert!(sink.kept.is_empty());
    drop(hold);
    for callback in [3, 2, 1] {
        world.fabric.service_pass(0, BUDGET, &mut sink);
        world.fabric.service_pass(0, BUDGET, &mut sink);
        let kept = sink.kept.pop().expect("one at a time");
        assert!(sink.kept.is_empty());
        assert_eq!(kept.callback, callback);
        drop(kept);
    }
}

// Rule: NDK-CLOSE-5
#[test]
fn a_completion_queue_waits_for_its_notification_to_return() {
    let pair = Pair::new();
    let mut sink = Keeping::default();
    pair.a.initiator.arm(softndk_engine::Arm::Any);
    pair.a.pair.read(1, NONE, std::iter::empty(), 0, softndk_engine::MemoryToken::NONE).unwrap();
    pair.world.fabric.service_pass(0, BUDGET, &mut sink);
    assert_eq!(sink.notifications.len(), 1);
    drop((pair.a.connector.close(1), pair.a.pair.close(2)));
    drop(pair.a.initiator.close(3));
    while pair.world.fabric.service_pass(0, BUDGET, &mut sink) == Pass::More {}
    sink.kept.clear();
    while pair.world.fabric.service_pass(0, BUDGET, &mut sink) == Pass::More {}
    assert!(sink.kept.iter().all(|kept| kept.callback != 3));
    sink.notifications.clear();
    pair.world.fabric.service_pass(0, BUDGET, &mut sink);
    assert!(sink.kept.iter().any(|kept| kept.callback == 3));
    drop(sink);
    pair.close();
}

// Rule: NDK-CLOSE-15
#[test]
fn an_open_takes_its_mappings_along_and_waits_for_them() {
    let mut world = World::new();
    let open = world.first.open(Semantics::NDK, world.consumer_object(1)).unwrap();
    let other = world.first.open(Semantics::NDK, world.consumer_object(2)).unwrap();
    let buffer = Buffer::new(4096, 0);
    let mapping = open.build_mapping(world.map(&buffer)).ok().unwrap();
    assert_eq!(mapping.pages, 1);
    let kept = other.build_mapping(world.map(&buffer)).ok().unwrap();
    assert!(open.build_mapping(world.map(&buffer)).is_ok());
    assert!(matches!(open.close(CLOSE), Close::Pending));
    assert!(!open.release_mapping(mapping.first), "it is gone already");
    assert_eq!(world.run(), [Event::Retired(None), Event::Retired(None), Event::Closed(CLOSE, 1)]);
    assert!(other.release_mapping(kept.first));
    assert_eq!(world.run(), [Event::Retired(None)]);
    assert!(matches!(other.close(CLOSE), Close::Done(_)));
    world.assert_empty();
}

/// The close of a region meets its own registration, which the front end does with a hold: whichever way it goes, the memory
/// comes out and no token is left.
#[test]
fn a_registration_that_meets_the_close_of_its_region_leaves_nothing() {
    for step in 1.. {
        let mut pair = Pair::new();
        let buffer = Buffer::new(4096, 0);
        let region = pair.a.domain.create_memory_region(false, pair.world.consumer_object(1)).unwrap();
        let hold = region.hold();
        let memory = pair.world.map(&buffer);
        let registration = Registration { memory, base: 0, length: 4096, rights: EVERYTHING };
        let closing = region.clone();
        let close = move || assert!(matches!(closing.close(CLOSE), Close::Pending));
        let met = at_step(step, || drop(region.register(registration)), close);
        if !met {
            assert!(step > 1, "no close ever met a registration");
            drop(hold);
            drop(region.close(CLOSE));
            pair.close();
            break;
        }
        drop(hold);
        assert_eq!(pair.world.run(), [Event::Closed(CLOSE, 1)], "after step {step}");
        assert_eq!(pair.world.counters.mappings.load(Ordering::SeqCst), 0, "after step {step}");
        pair.close();
    }
}

/// The same for a mapping and its open.
#[test]
fn a_mapping_that_meets_the_close_of_its_open_leaves_nothing() {
    for step in 1.. {
        let mut world = World::new();
        let open = world.first.open(Semantics::NDK, world.consumer_object(1)).unwrap();
        let buffer = Buffer::new(4096, 0);
        let (hold, memory, closing) = (open.hold(), world.map(&buffer), open.clone());
        let close = move || assert!(matches!(closing.close(CLOSE), Close::Pending));
        let met = at_step(step, || drop(open.build_mapping(memory)), close);
        drop(hold);
        if !met {
            assert!(step > 1, "no close ever met a build");
            drop(open.close(CLOSE));
            world.assert_empty();
            break;
        }
        let events = world.run();
        assert_eq!(events.last(), Some(&Event::Closed(CLOSE, 1)), "after step {step}");
        world.assert_empty();
    }
}

/// Memory that was mapped before the close and comes after it is refused.
#[test]
fn what_is_closing_takes_no_memory() {
    let mut pair = Pair::new();
    let buffer = Buffer::new(4096, 0);
    let [region, fast] =
        [false, true].map(|fast| pair.a.domain.create_memory_region(fast, pair.world.consumer_object(1)).unwrap());
    let holds = (region.hold(), fast.hold(), pair.a.open.hold());
    assert!(matches!(region.close(1), Close::Pending));
    assert!(matches!(fast.close(1), Close::Pending));
    assert!(matches!(pair.a.open.close(1), Close::Pending));
    let registration = Registration { memory: pair.world.map(&buffer), base: 0, length: 4096, rights: EVERYTHING };
    assert!(matches!(region.register(registration), Err((RegionError::Closing, _))));
    assert_eq!(fast.initialize_fast_register(1, true), Err(RegionError::Closing));
    assert!(matches!(pair.a.open.build_mapping(pair.world.map(&buffer)), Err((RegionError::Closing, _))));
    drop(holds);
    pair.world.run();
    pair.close();
}

#[test]
fn memory_given_to_a_closed_region_comes_back_with_it() {
    let pair = Pair::new();
    let buffer = Buffer::new(64, 0);
    let region = pair.a.register(&pair.world, &buffer, 0, EVERYTHING);
    let Close::Done(closed) = region.close(1) else { panic!("nothing uses it") };
    assert!(closed.memory.is_some());
    assert!(closed.consumer_object.is_some());
    drop(closed);
    pair.close();
}

#[test]
fn a_closed_fast_region_answers_no_more_and_gives_its_slot_back() {
    let pair = Pair::new();
    let buffer = Buffer::new(4096, 0);
    let mapping = pair.b.build(&pair.world, &buffer);
    let here = pair.a.register(&pair.world, &buffer, 0, EVERYTHING);
    let region = pair.b.fast_region(&pair.world);
    let token = region.remote_token();
    pair.b.fast_register(&region, mapping, 1, 0).unwrap();
    drop(region.close(1));
    // Every free slot is used before one comes again.
    let others: Vec<_> = (0..300).map(|_| pair.b.fast_region(&pair.world)).collect();
    let again = others.iter().any(|other| other.remote_token().0 & 0xf_ffff == token.0 & 0xf_ffff);
    assert!(again, "the slot is used again");
    pair.a.pair.read(1, NONE, [sge(0, 1, here.local_token())].into_iter(), 0, token).unwrap();
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::RemoteError)]);
    pair.b.open.release_mapping(mapping);
    for region in others {
        drop(region.close(1));
    }
    drop(here.close(1));
    pair.close();
}

#[test]
fn registration_limits_and_states_are_exact() {
    let pair = Pair::new();
    let buffer = Buffer::new(100, 0);
    let region = pair.a.domain.create_memory_region(false, pair.world.consumer_object(1)).unwrap();
    let register = |base: u64, length: u64| {
        let memory = pair.world.map(&buffer);
        region.register(Registration { memory, base, length, rights: EVERYTHING }).map_err(|(error, _)| error)
    };
    assert_eq!(register(0, 0), Err(RegionError::BadLength));
    assert_eq!(register(0, 101), Err(RegionError::BadLength));
    assert_eq!(register(u64::MAX - 98, 100), Err(RegionError::BadLength));
    assert!(matches!(region.deregister(1), Err(RegionError::WrongKind)));
    assert_eq!(region.initialize_fast_register(1, true), Err(RegionError::WrongKind));
    assert_eq!(register(u64::MAX - 99, 100), Ok(()));
    assert_eq!(register(0, 1), Err(RegionError::InUse));
    let first = region.local_token();
    assert!(matches!(region.deregister(1), Ok(Deregistered::Done(_))));
    assert_eq!(register(0, 1), Ok(()));
    assert_ne!(region.local_token(), first);
    let fast = pair.a.domain.create_memory_region(true, pair.world.consumer_object(1)).unwrap();
    assert_eq!(fast.initialize_fast_register(0, true), Err(RegionError::TooManyPages));
    assert_eq!(fast.initialize_fast_register(513, true), Err(RegionError::TooManyPages));
    assert_eq!(fast.initialize_fast_register(512, true), Ok(()));
    assert_eq!(fast.initialize_fast_register(512, true), Err(RegionError::InUse));
    drop((region.close(1), fast.close(1)));
    pair.close();
}

/// A service pass that serves everything, becomes idle, and hands nothing out.
fn pass_without_outcome(fabric: &Fabric<Harness>) {
    let mut sink = Keeping::default();
    assert_eq!(fabric.service_pass(0, BUDGET, &mut sink), Pass::Idle);
    assert!(sink.kept.is_empty() && sink.retired.is_empty());
}

/// A transfer that is in the middle of its first piece while the test does something else.
fn in_the_middle(pair: &mut Pair, act: impl FnMut() + Send + 'static) {
    *pair.world.harness().before_copy.lock().unwrap() = Some(Box::new(act));
    pair.world.harness().watch_copies.store(true, Ordering::SeqCst);
}

// Rule: NDK-MR-7, BUG-1
#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn a_deregister_during_a_copy_waits_for_the_piece_and_then_no_byte_moves() {
    let mut pair = Pair::new();
    let length = 4 * PIECE as usize;
    let (here, there) = (Buffer::new(length, 0), Buffer::new(length, 5));
    let local = pair.a.register(&pair.world, &here, 0, EVERYTHING);
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    let (region, fabric) = (remote.clone(), pair.world.fabric.clone());
    let mut first = true;
    in_the_middle(&mut pair, move || {
        if std::mem::take(&mut first) {
            assert!(matches!(region.deregister(77), Ok(Deregistered::Pending)));
            pass_without_outcome(&fabric);
        }
    });
    let list = [sge(0, length as u32, local.local_token())].into_iter();
    pair.a.pair.read(1, NONE, list, 0, remote.remote_token()).unwrap();
    pair.world.harness().watch_copies.store(false, Ordering::SeqCst);
    *pair.world.harness().before_copy.lock().unwrap() = None;
    assert_eq!(
        here.read(PIECE_FIRST as usize - 1, 2),
        [5, 0],
        "the piece under way was finished, the next one never begun"
    );
    let events = pair.world.run();
    assert!(events.contains(&Event::Retired(Some(77))), "{events:?}");
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::RemoteError)]);
    drop((local.close(1), remote.close(1)));
    pair.close();
}

#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn an_invalidate_during_a_copy_completes_after_the_piece() {
    let mut pair = Pair::new();
    let length = 2 * PIECE as usize;
    let (here, there) = (Buffer::new(length, 0), Buffer::new(length, 5));
    let local = pair.a.register(&pair.world, &here, 0, Rights::LOCAL_WRITE);
    let mapping = pair.b.build(&pair.world, &there);
    let region = pair.b.domain.create_memory_region(true, pair.world.consumer_object(51)).unwrap();
    region.initialize_fast_register((length as u64 / PAGE) as u32, true).unwrap();
    pair.b.fast_register(&region, mapping, length as u64 / PAGE, 0).unwrap();
    let (qp, fast, queue) = (pair.b.pair.clone(), region.clone(), pair.b.initiator.clone());
    let mut first = true;
    in_the_middle(&mut pair, move || {
        if std::mem::take(&mut first) {
            qp.invalidate(3, NONE, &fast).unwrap();
            assert_eq!(outcomes(&queue), [], "a reader is inside");
        }
    });
    let list = [sge(0, length as u32, local.local_token())].into_iter();
    pair.a.pair.read(1, NONE, list, 0, region.remote_token()).unwrap();
    pair.world.harness().watch_copies.store(false, Ordering::SeqCst);
    *pair.world.harness().before_copy.lock().unwrap() = None;
    pair.world.run();
    assert_eq!(outcomes(&pair.b.initiator), [(3, Outcome::Success)]);
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::RemoteError)]);
    assert_eq!(here.read(PIECE_FIRST as usize - 1, 2), [5, 0]);
    pair.b.open.release_mapping(mapping);
    drop((local.close(1), region.close(1)));
    pair.close();
}

#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn closing_a_region_and_releasing_a_mapping_during_a_copy_wait_for_it() {
    let mut pair = Pair::new();
    let length = 2 << 16;
    let (here, there) = (Buffer::new(length, 0), Buffer::new(length, 5));
    let sink = pair.a.build(&pair.world, &here);
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    let (region, open, fabric) = (remote.clone(), pair.a.open.clone(), pair.world.fabric.clone());
    let mappings = pair.world.counters.mappings.clone();
    let mut first = true;
    in_the_middle(&mut pair, move || {
        if std::mem::take(&mut first) {
            assert!(matches!(region.close(78), Close::Pending));
            assert!(open.release_mapping(sink));
            pass_without_outcome(&fabric);
            assert_eq!(mappings.load(Ordering::SeqCst), 2);
        }
    });
    let list = [sge(sink.0, length as u32, pair.a.privileged())].into_iter();
    pair.a.pair.read(1, NONE, list, 0, remote.remote_token()).unwrap();
    pair.world.harness().watch_copies.store(false, Ordering::SeqCst);
    *pair.world.harness().before_copy.lock().unwrap() = None;
    let events = pair.world.run();
    assert!(events.contains(&Event::Closed(78, 50)) && events.contains(&Event::Retired(None)), "{events:?}");
    assert_eq!(pair.world.counters.mappings.load(Ordering::SeqCst), 0);
    pair.close();
}

// Rule: BUG-4
#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn a_flush_during_a_delivery_completes_the_receive_exactly_once() {
    let mut pair = Pair::new();
    let length = 2 << 16;
    let (here, there) = (Buffer::new(length, 6), Buffer::new(length, 0));
    let local = pair.a.register(&pair.world, &here, 0, EVERYTHING);
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    pair.world.harness().dispatch.store(true, Ordering::SeqCst);
    for context in [8, 9] {
        let list = [sge(0, length as u32, remote.local_token())].into_iter();
        pair.b.pair.receive(context, list).unwrap();
    }
    let list = [sge(0, length as u32, local.local_token())].into_iter();
    // The rest of the message waits on the other processor's list, so that the flush comes in the middle of it.
    PROCESSOR.with(|processor| processor.set(1));
    pair.a.pair.send(1, NONE, list).unwrap();
    PROCESSOR.with(|processor| processor.set(0));
    pair.b.pair.flush();
    pair.world.fabric.service_pass(0, BUDGET, &mut Keeping::default());
    assert_eq!(outcomes(&pair.b.receiver), []);
    pair.world.run();
    let received = outcomes(&pair.b.receiver);
    assert_eq!(received, [(8, Outcome::Success), (9, Outcome::Cancelled)]);
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)]);
    drop((local.close(1), remote.close(1)));
    pair.close();
}

#[test]
fn an_end_in_the_middle_of_a_delivery_cancels_both_sides_once() {
    let mut pair = Pair::new();
    let length = 2 << 16;
    let (here, there) = (Buffer::new(length, 6), Buffer::new(length, 0));
    let local = pair.a.register(&pair.world, &here, 0, EVERYTHING);
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    pair.world.harness().dispatch.store(true, Ordering::SeqCst);
    pair.b.pair.receive(8, [sge(0, length as u32, remote.local_token())].into_iter()).unwrap();
    pair.a.pair.send(1, NONE, [sge(0, length as u32, local.local_token())].into_iter()).unwrap();
    drop(pair.a.connector.close(A + CLOSE));
    drop(pair.b.pair.close(B + CLOSE));
    pair.world.run();
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Cancelled)]);
    assert_eq!(outcomes(&pair.b.receiver), [(8, Outcome::Cancelled)]);
    drop((local.close(1), remote.close(1)));
    pair.close();
}

/// The peer closes while a disconnect waits for it and a copy is under way on another processor.
#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn a_disconnect_that_fails_still_waits_for_the_piece_under_way_and_the_flush() {
    // The close of the other side has to arrive in the middle.
    for closes in [false, true].into_iter().filter(|closes| *closes || MESSAGE_DELAY == 0) {
        let mut pair = Pair::new();
        let length = 4 * PIECE as usize;
        let (here, there) = (Buffer::new(length, 6), Buffer::new(length, 0));
        let local = pair.a.register(&pair.world, &here, 0, EVERYTHING);
        let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
        let (a, b, fabric) = (pair.a.connector.clone(), pair.b.connector.clone(), pair.world.fabric.clone());
        let counters = pair.world.counters.clone();
        let meanwhile = Arc::new(Mutex::new(Vec::new()));
        let (seen, mut first) = (meanwhile.clone(), true);
        in_the_middle(&mut pair, move || {
            if std::mem::take(&mut first) {
                a.disconnect(A + DISCONNECT).unwrap();
                drop(if closes { a.close(A + CLOSE) } else { b.close(B + CLOSE) });
                let mut events = Events::new(counters.clone());
                while fabric.service_pass(0, Budget { bytes: 1 << 20, items: 64 }, &mut events) == Pass::More {}
                seen.lock().unwrap().extend(events.seen);
            }
        });
        pair.a.pair.receive(2, std::iter::empty()).unwrap();
        pair.a
            .pair
            .write(1, NONE, [sge(0, length as u32, local.local_token())].into_iter(), 0, remote.remote_token())
            .unwrap();
        pair.world.harness().watch_copies.store(false, Ordering::SeqCst);
        *pair.world.harness().before_copy.lock().unwrap() = None;
        let over = Event::Completed(A + DISCONNECT, Err(ConnectError::Aborted));
        let seen = meanwhile.lock().unwrap().clone();
        assert!(!seen.contains(&over), "{seen:?}");
        let (initiator, receiver) = (pair.a.initiator.clone(), pair.a.receiver.clone());
        let expected = over.clone();
        pair.world.events.inside = Some(Box::new(move |event| {
            if *event == expected {
                assert_eq!(outcomes(&initiator), [(1, Outcome::Cancelled)]);
                assert_eq!(outcomes(&receiver), [(2, Outcome::Cancelled)]);
            }
        }));
        let events = pair.world.run();
        assert_eq!(events.iter().filter(|event| **event == over).count(), 1, "{events:?}");
        drop((local.close(1), remote.close(1)));
        pair.close();
    }
}

fn kinds(adapter: &Adapter<Harness>) -> Vec<ObjectKind> {
    let mut kinds = Vec::new();
    adapter.objects(&mut |object| kinds.push(object.kind));
    kinds
}

#[test]
fn snapshots_list_every_object_with_its_holds() {
    let pair = Pair::new();
    let listed = kinds(&pair.world.second);
    for (kind, count) in [
        (ObjectKind::Open, 1),
        (ObjectKind::ProtectionDomain, 1),
        (ObjectKind::CompletionQueue, 2),
        (ObjectKind::QueuePair, 1),
        (ObjectKind::Listener, 1),
        (ObjectKind::Connector, 1),
    ] {
        assert_eq!(listed.iter().filter(|other| **other == kind).count(), count, "{kind:?}");
    }
    drop(pair.b.open.close(1));
    let mut open = None;
    pair.world.second.objects(&mut |object| {
        if object.kind == ObjectKind::Open {
            open = Some(object);
        }
    });
    let open = open.unwrap();
    assert!(open.closing);
    // Domain, two completion queues, listener, connector.
    assert_eq!(open.holds, 5);
    pair.close();
}

#[test]
fn a_flush_deeper_than_one_step_completes_everything_in_order() {
    let depths = softndk_engine_kit::Depths {
        completions: 4000,
        initiator: 1000,
        receive: 1000,
        ..softndk_engine_kit::Depths::default()
    };
    let mut pair = Pair::with(Semantics::NDK, depths);
    for context in 0..1000 {
        pair.a.pair.receive(context, std::iter::empty()).unwrap();
        pair.a.pair.send(context, RequestFlags::DEFER, std::iter::empty()).unwrap();
    }
    pair.a.pair.flush();
    assert!(pair.world.step(1), "more is left after one look");
    pair.world.run();
    let expected: Vec<_> = (0..1000).map(|context| (context, Outcome::Cancelled)).collect();
    assert_eq!(outcomes(&pair.a.initiator), expected);
    assert_eq!(outcomes(&pair.a.receiver), expected);
    pair.a.pair.receive(5, std::iter::empty()).unwrap();
    pair.a.pair.send(6, NONE, std::iter::empty()).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.a.receiver), [(5, Outcome::Cancelled)]);
    assert_eq!(outcomes(&pair.a.initiator), [(6, Outcome::Cancelled)]);
    pair.close();
}

/// Objects point to one another while they are connected; whichever way that ends, nothing goes on pointing to itself.
#[test]
fn what_is_closed_is_freed_whatever_way_its_connection_ended() {
    let ways: [fn(&mut Pair); 9] = [
        |_| {},
        |pair| drop(pair.a.connector.close(A + CLOSE)),
        |pair| drop(pair.b.pair.close(B + CLOSE)),
        |pair| _ = pair.a.connector.disconnect(1).unwrap(),
        |pair| {
            pair.a.connector.disconnect(1).unwrap();
            pair.world.run();
            pair.b.connector.disconnect(2).unwrap();
        },
        |pair| {
            pair.a.connector.disconnect(1).unwrap();
            drop(pair.a.connector.close(A + CLOSE));
        },
        |pair| pair.world.second.set_addresses(&[]).unwrap(),
        |pair| pair.world.first.shut_down(),
        |pair| pair.a.pair.flush(),
    ];
    for (number, way) in ways.into_iter().enumerate() {
        for at_once in [false, true] {
            let mut pair = Pair::new();
            pair.a.pair.send(1, RequestFlags::empty(), std::iter::empty()).unwrap();
            pair.b.pair.receive(1, std::iter::empty()).unwrap();
            way(&mut pair);
            if !at_once {
                pair.world.run();
            }
            println!("way {number}, closed at once: {at_once}");
            pair.close_for_good();
        }
    }
}

/// The bound that keeps a deferred procedure short.
#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn one_pass_flushes_a_bounded_number_of_receives() {
    let depths =
        softndk_engine_kit::Depths { completions: 4000, receive: 3000, ..softndk_engine_kit::Depths::default() };
    let mut pair = Pair::with(Semantics::NDK, depths);
    for context in 0..3000 {
        pair.b.pair.receive(context, std::iter::empty()).unwrap();
    }
    pair.b.pair.flush();
    let mut most = 0;
    for _ in 0..100 {
        pair.world.step(1 << 20);
        most = most.max(outcomes(&pair.b.receiver).len());
    }
    assert!((1..=512).contains(&most), "{most} in one service pass");
    pair.close();
}

/// What the consumer of one open did not release is released with it; the mappings of others stay.
#[test]
fn an_open_that_is_closed_releases_its_own_mappings_and_no_others() {
    let mut pair = Pair::new();
    let other = pair.world.first.open(Semantics::NDK, pair.world.consumer_object(1)).unwrap();
    let buffer = Buffer::new(4096, 0);
    let mut kept = Vec::new();
    for _ in 0..3 {
        other.build_mapping(pair.world.map(&buffer)).map_err(|(error, _)| error).unwrap();
        kept.push(pair.a.build(&pair.world, &buffer));
    }
    drop(other.close(1));
    pair.world.run();
    assert_eq!(pair.world.counters.mappings.load(Ordering::SeqCst), 3);
    for mapping in kept {
        assert!(pair.a.open.release_mapping(mapping));
    }
    pair.close();
}

#[test]
fn cancelled_receives_say_whose_they_are() {
    let mut pair = Pair::new();
    pair.b.pair.receive(5, std::iter::empty()).unwrap();
    pair.b.pair.flush();
    pair.world.run();
    let cancelled = softndk_engine_kit::polled(&pair.b.receiver);
    assert_eq!(cancelled.len(), 1);
    let one = &cancelled[0];
    assert_eq!((one.context, one.queue_pair_context, one.bytes), (5, B + 4, 0));
    assert_eq!((one.outcome, one.operation), (Outcome::Cancelled, softndk_engine::Operation::Receive));
    pair.close();
}

#[test]
fn a_mapping_that_no_context_copies_from_is_given_back_at_once_and_once() {
    let mut pair = Pair::new();
    let mapping = pair.a.build(&pair.world, &Buffer::new(4096, 0));
    let releasing = pair.a.open.begin_release(mapping).unwrap();
    assert!(matches!(releasing.try_finish(), Ok(Some(_))));
    assert!(matches!(releasing.try_finish(), Ok(None)), "at most once");
    drop(releasing);
    assert!(pair.a.open.begin_release(mapping).is_none());
    assert_eq!(pair.world.run(), []);
    pair.close();
}
