//! Shared receive queues: the order of receives, the waiting senders, the notification, and the rest at the close.

use softndk_engine::{
    Accept, Close, Connect, CreateError, Operation, Outcome, PostError, QueuePair, QueuePairSettings, ReadLimits,
    RequestFlags, ResizeError, Semantics, SharedReceiveQueue, SharedReceiveQueueSettings,
};
use softndk_engine_kit::{
    self, A, B, CLOSE, Depths, EVERYTHING, Event, FIRST, Harness, SECOND, Side, World, outcomes, polled,
};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const NONE: RequestFlags = RequestFlags::empty();
/// Blocks and callbacks of the shared queue.
const SHARED: u64 = 300;

/// Several senders, and as many receivers that share one queue and one completion queue.
struct Hub {
    world: World,
    senders: Vec<Side>,
    receivers: Vec<Side>,
    shared: SharedReceiveQueue<Harness>,
}

/// A sender whose stream is lost while it waits keeps no receive from the others.
#[cfg(feature = "streams")]
#[test]
fn a_lost_stream_takes_no_receive() {
    let mut hub = Hub::new(2, 8);
    // Something has come from the peer: a close breaks the connection, and no end comes behind the Send.
    hub.senders[0].pair.receive(9, std::iter::empty()).unwrap();
    hub.receivers[0].pair.send(9, NONE, std::iter::empty()).unwrap();
    hub.world.run();
    outcomes(&hub.receivers[0].initiator);
    hub.send(0, 1);
    hub.world.run();
    drop(hub.senders[0].connector.close(CLOSE));
    drop(hub.senders[0].pair.close(CLOSE));
    hub.world.run();
    hub.post(1);
    hub.world.run();
    hub.send(1, 2);
    hub.world.run();
    assert_eq!((hub.received(0), hub.received(1)), (vec![], vec![1]));
    hub.end();
}

fn settings(depth: u32, sges: u32, threshold: u32) -> SharedReceiveQueueSettings<Harness> {
    SharedReceiveQueueSettings { depth, sges, threshold, notify: Some(SHARED), processor: None }
}

impl Hub {
    fn new(count: usize, depth: u32) -> Self {
        Self::with(Semantics::NDK, count, depth)
    }

    fn with(semantics: Semantics, count: usize, depth: u32) -> Self {
        let mut world = World::new();
        let home = Side::open(&world, &world.second, Semantics::NDK, Depths::default(), B);
        let shared =
            SharedReceiveQueue::create(&home.domain, settings(depth, 3, 0), world.consumer_object(SHARED)).unwrap();
        let mut receivers = vec![home];
        for _ in 1..count {
            let (first, consumer_object) = (&receivers[0], |id| world.consumer_object(id));
            let side = Side {
                open: first.open.clone(),
                domain: first.domain.clone(),
                initiator: first.open.create_completion_queue(64, Some(B + 2), None, consumer_object(B + 2)).unwrap(),
                receiver: first.open.create_completion_queue(64, Some(B + 3), None, consumer_object(B + 3)).unwrap(),
                pair: first.pair.clone(),
                connector: first.open.create_connector(consumer_object(B + 5)).unwrap(),
            };
            receivers.push(side);
        }
        assert!(matches!(receivers[0].pair.close(0), Close::Done(_)));
        let listener = receivers[0].open.create_listener(B + 6, world.consumer_object(B + 6)).unwrap();
        listener.listen(SocketAddr::new(SECOND, 445), 0).unwrap();
        let mut senders = Vec::new();
        for (number, side) in receivers.iter_mut().enumerate() {
            side.pair = share(&world, side, &shared, 1000 + number as u64);
            let sender = Side::open(&world, &world.first, semantics, Depths::default(), A);
            connect(&mut world, &sender, side);
            senders.push(sender);
        }
        drop(listener.close(CLOSE));
        world.run();
        Self { world, senders, receivers, shared }
    }

    fn send(&self, sender: usize, context: u64) {
        self.senders[sender].pair.send(context, NONE, std::iter::empty()).unwrap();
    }

    fn post(&self, context: u64) {
        self.shared.receive(context, std::iter::empty()).unwrap();
    }

    /// Contexts of the successful receives of one queue pair.
    fn received(&self, receiver: usize) -> Vec<u64> {
        let all = polled(&self.receivers[receiver].receiver);
        for completion in &all {
            assert_eq!((completion.outcome, completion.operation), (Outcome::Success, Operation::Receive));
            assert_eq!(completion.queue_pair_context, 1000 + receiver as u64);
        }
        all.iter().map(|completion| completion.context).collect()
    }

    fn end(mut self) {
        let mut sides: Vec<_> = self.senders.iter().chain(&self.receivers).collect();
        for side in &sides {
            drop(side.connector.close(CLOSE));
            drop(side.pair.close(CLOSE));
        }
        drop(self.shared.close(CLOSE));
        for side in &sides {
            drop(side.initiator.close(CLOSE));
            drop(side.receiver.close(CLOSE));
        }
        sides.truncate(self.senders.len() + 1);
        for side in sides {
            drop(side.domain.close(CLOSE));
            drop(side.open.close(CLOSE));
        }
        self.world.run();
        self.world.assert_empty();
    }
}

fn share(world: &World, side: &Side, shared: &SharedReceiveQueue<Harness>, context: u64) -> QueuePair<Harness> {
    let settings = QueuePairSettings {
        receive_queue: &side.receiver,
        initiator_queue: &side.initiator,
        context,
        receive_depth: u32::MAX,
        initiator_depth: 32,
        receive_sges: u32::MAX,
        initiator_sges: 4,
        inline_data: 128,
        shared: Some(shared),
    };
    QueuePair::create(&side.domain, settings, world.consumer_object(context)).unwrap()
}

/// Connects a sender to a receiver; a listener listens at the second adapter.
fn connect(world: &mut World, sender: &Side, receiver: &mut Side) {
    let limits = ReadLimits { inbound: 1, outbound: 1 };
    let request = Connect {
        queue_pair: &sender.pair,
        source: softndk_engine::Source::Address(SocketAddr::new(FIRST, 0)),
        destination: SocketAddr::new(SECOND, 445),
        limits,
        private_data: b"",
        callback: 1,
    };
    sender.connector.connect(request).unwrap();
    world.run();
    let arrived = world.events.arrived.pop().expect("a connection request arrived");
    drop(std::mem::replace(&mut receiver.connector, arrived).close(0));
    let accept = Accept { queue_pair: &receiver.pair, limits, private_data: b"", disconnect: Some(2), callback: 3 };
    receiver.connector.accept(accept).unwrap();
    world.run();
    sender.connector.complete_connect(Some(4), 5).unwrap();
    world.run();
}

#[test]
#[cfg_attr(feature = "streams", ignore = "no Send across a stream waits for its receive")]
fn receives_go_out_in_order_each_to_one_queue_pair_and_complete_there() {
    let hub = Hub::new(3, 16);
    for round in 0..40 {
        for context in 0..6 {
            hub.post(10 * round + context);
        }
        for (place, sender) in [2, 0, 0, 1, 2, 1].into_iter().enumerate() {
            hub.send(sender, place as u64);
        }
        assert_eq!(hub.received(0), [10 * round + 1, 10 * round + 2]);
        assert_eq!(hub.received(1), [10 * round + 3, 10 * round + 5]);
        assert_eq!(hub.received(2), [10 * round, 10 * round + 4]);
        for sender in &hub.senders {
            assert_eq!(outcomes(&sender.initiator).len(), 2);
        }
    }
    hub.end();
}

#[test]
#[cfg_attr(feature = "streams", ignore = "looks at the steps of a peer at hand")]
fn messages_go_into_the_sges_of_the_receive_they_took() {
    let hub = Hub::new(2, 4);
    let (source, sink) = (softndk_engine_kit::Buffer::new(64, 7), softndk_engine_kit::Buffer::new(640, 0));
    let from: Vec<_> = hub.senders.iter().map(|side| side.register(&hub.world, &source, 0x1000, EVERYTHING)).collect();
    let into = hub.receivers[0].register(&hub.world, &sink, 0x8000, EVERYTHING);
    for round in 0..20_u64 {
        sink.fill(0);
        // One, two and three SGEs.
        for count in 1..=3_u64 {
            let sge = |part: u64| softndk_engine_kit::sge(0x8000 + 100 * count + 20 * part, 15, into.local_token());
            let list: Vec<_> = (0..count).map(sge).collect();
            hub.shared.receive(count, list.into_iter()).unwrap();
        }
        for count in 1..=3_u32 {
            let side = (round as usize + count as usize) % 2;
            let message = softndk_engine_kit::sge(0x1000, 15 * count, from[side].local_token());
            hub.senders[side].pair.send(1, NONE, std::iter::once(message)).unwrap();
        }
        for count in 1..=3 {
            for part in 0..3 {
                let expected = if part < count { 7 } else { 0 };
                let at = 100 * count + 20 * part;
                assert_eq!(sink.read(at, 20)[..15], [expected; 15], "round {round}, {count} elements, {part}");
                assert_eq!(sink.read(at + 15, 5), [0; 5]);
            }
        }
        assert_eq!(hub.received(0).len() + hub.received(1).len(), 3);
    }
    for region in from.iter().chain([&into]) {
        drop(region.close(CLOSE));
    }
    hub.end();
}

/// The first sender's memory is gone when its receive comes: the receive goes to the next sender.
// Rule: NDK-SRQ-15, NDK-MR-5
#[test]
#[cfg_attr(feature = "streams", ignore = "no Send across a stream waits for its receive")]
fn a_waiting_sender_that_fails_for_its_memory_takes_no_receive() {
    let mut hub = Hub::new(2, 16);
    let region = hub.senders[0].register(&hub.world, &softndk_engine_kit::Buffer::new(64, 7), 0x1000, EVERYTHING);
    let message = softndk_engine_kit::sge(0x1000, 64, region.local_token());
    hub.senders[0].pair.send(1, NONE, std::iter::once(message)).unwrap();
    hub.send(1, 2);
    hub.world.run();
    drop(region.close(CLOSE));
    hub.world.run();
    assert_eq!(outcomes(&hub.senders[0].initiator), [], "it goes on waiting");
    hub.post(70);
    hub.world.run();
    assert_eq!(outcomes(&hub.senders[0].initiator), [(1, Outcome::LocalAccess)]);
    assert_eq!(outcomes(&hub.senders[1].initiator), [(2, Outcome::Success)]);
    assert_eq!((hub.received(0), hub.received(1)), (vec![], vec![70]));
    hub.end();
}

/// A sender that came after it does not get the receive even if it runs first.
#[test]
fn waiting_senders_are_served_in_the_order_they_came() {
    let mut hub = Hub::new(4, 16);
    for order in [[0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]] {
        for sender in order {
            hub.send(sender, 1);
        }
        hub.world.run();
        for (place, sender) in order.into_iter().enumerate() {
            hub.post(place as u64);
            // The promised sender has not been serviced yet.
            hub.send(order[3], 2);
            hub.world.run();
            assert_eq!(hub.received(sender), [place as u64], "{order:?}");
        }
        // Those that were sent in between.
        for context in 0..4 {
            hub.post(context);
            hub.world.run();
        }
        assert_eq!(hub.received(order[3]), [0, 1, 2, 3]);
        for sender in &hub.senders {
            outcomes(&sender.initiator);
        }
    }
    hub.end();
}

#[test]
fn what_was_promised_to_a_sender_that_ends_goes_to_the_next() {
    for by in 0..4 {
        let mut hub = Hub::new(3, 16);
        (0..3).for_each(|sender| hub.send(sender, 1));
        hub.world.run();
        hub.post(70);
        // Before the promised sender is serviced.
        match by {
            0 => hub.senders[0].pair.flush(),
            1 => drop(hub.senders[0].pair.close(CLOSE)),
            2 => hub.receivers[0].pair.flush(),
            _ => drop(hub.receivers[0].connector.close(CLOSE)),
        }
        hub.world.run();
        let taken: Vec<_> = (0..3).map(|receiver| polled(&hub.receivers[receiver].receiver)).collect();
        let all: Vec<_> = taken.iter().flatten().map(|completion| completion.context).collect();
        assert_eq!(all, [70], "way {by}");
        hub.post(71);
        hub.world.run();
        hub.post(72);
        hub.world.run();
        let successes = |hub: &Hub, receiver: usize| {
            let all = polled(&hub.receivers[receiver].receiver);
            all.iter().filter(|completion| completion.outcome == Outcome::Success).count()
        };
        let total = taken.iter().flatten().filter(|one| one.outcome == Outcome::Success).count()
            + (0..3).map(|receiver| successes(&hub, receiver)).sum::<usize>();
        assert!(total >= 2, "way {by}: both that are left are served, {total}");
        hub.end();
    }
}

#[test]
#[cfg_attr(feature = "streams", ignore = "no Send across a stream waits for its receive")]
fn many_that_gave_up_do_not_hold_up_the_one_behind_them() {
    let mut hub = Hub::new(100, 16);
    (0..100).for_each(|sender| hub.send(sender, 1));
    hub.world.run();
    for sender in 0..99 {
        hub.senders[sender].pair.flush();
    }
    hub.world.run();
    hub.post(5);
    hub.world.run();
    assert_eq!(hub.received(99), [5]);
    hub.end();
}

#[test]
#[cfg_attr(feature = "streams", ignore = "no Send across a stream waits for its receive")]
fn a_flush_leaves_what_no_context_took_for_the_others() {
    let mut hub = Hub::new(2, 16);
    (0..4).for_each(|context| hub.post(context));
    hub.send(0, 1);
    hub.receivers[0].pair.flush();
    hub.world.run();
    assert_eq!(hub.received(0), [0]);
    (0..3).for_each(|_| hub.send(1, 2));
    hub.world.run();
    assert_eq!(hub.received(1), [1, 2, 3]);
    hub.end();
}

/// A message that is being moved when its sender ends: the receive it took completes, once, where it was taken.
#[test]
#[cfg_attr(feature = "streams", ignore = "no Send across a stream waits for its receive")]
fn a_receive_taken_by_a_message_that_breaks_off_completes_once_and_cancelled() {
    let mut hub = Hub::new(2, 16);
    let length = 1 << 20;
    let (source, sink) = (softndk_engine_kit::Buffer::new(length, 7), softndk_engine_kit::Buffer::new(length, 0));
    let from = hub.senders[0].register(&hub.world, &source, 0, EVERYTHING);
    let into = hub.receivers[0].register(&hub.world, &sink, 0, EVERYTHING);
    hub.shared.receive(40, std::iter::once(softndk_engine_kit::sge(0, length as u32, into.local_token()))).unwrap();
    hub.post(41);
    hub.world.harness().dispatch.store(true, Ordering::SeqCst);
    let message = softndk_engine_kit::sge(0, length as u32, from.local_token());
    hub.senders[0].pair.send(1, NONE, std::iter::once(message)).unwrap();
    hub.world.harness().dispatch.store(false, Ordering::SeqCst);
    assert_eq!(outcomes(&hub.receivers[0].receiver), [], "under way");
    hub.senders[0].pair.flush();
    hub.world.run();
    assert_eq!(outcomes(&hub.receivers[0].receiver), [(40, Outcome::Cancelled)]);
    hub.send(1, 2);
    hub.world.run();
    assert_eq!(hub.received(1), [41]);
    for region in [&from, &into] {
        drop(region.close(CLOSE));
    }
    hub.end();
}

#[test]
fn the_notification_is_armed_by_modify_and_comes_once_below_the_threshold() {
    let mut hub = Hub::new(1, 16);
    let on_message = [Event::Notified(SHARED, Ok(()))];
    (0..5).for_each(|context| hub.post(context));
    let take = |hub: &mut Hub| {
        hub.send(0, 1);
        hub.world.run()
    };
    assert_eq!(take(&mut hub), [], "a new queue is not armed");
    hub.shared.modify(0, 3).unwrap();
    assert_eq!(hub.world.run(), [], "4 are not below 3");
    assert_eq!(take(&mut hub), [], "nor are 3");
    assert_eq!(take(&mut hub), on_message, "2 are");
    assert_eq!(take(&mut hub), [], "once");
    hub.shared.modify(0, 0).unwrap();
    hub.shared.modify(20, 0).unwrap();
    assert_eq!(hub.world.run(), [], "nothing was armed");
    hub.shared.modify(0, 2).unwrap();
    assert_eq!(hub.world.run(), on_message, "1 is below 2 already");
    hub.shared.modify(0, 1).unwrap();
    hub.shared.modify(0, 0).unwrap();
    assert_eq!(take(&mut hub), on_message, "threshold 0 keeps the arming");
    hub.end();
}

#[test]
fn the_threshold_of_the_settings_counts_once_it_is_armed_and_notifications_do_not_overlap() {
    let mut hub = Hub::new(1, 16);
    let queue = hub.shared.clone();
    let inside = std::sync::Arc::new(std::sync::Mutex::new(0));
    let count = inside.clone();
    hub.world.events.inside = Some(Box::new(move |event| {
        if *event == Event::Notified(SHARED, Ok(())) {
            let mut count = count.try_lock().expect("never two at a time");
            *count += 1;
            if *count < 5 {
                queue.modify(0, 1).unwrap();
            }
        }
    }));
    hub.shared.modify(0, 1).unwrap();
    hub.world.run();
    assert_eq!(*inside.lock().unwrap(), 5);
    hub.world.events.inside = None;
    hub.end();
}

#[test]
fn modify_changes_the_depth_exactly_and_keeps_what_is_queued() {
    let hub = Hub::new(2, 4);
    (0..4).for_each(|context| hub.post(context));
    assert_eq!(hub.shared.receive(4, std::iter::empty()), Err(PostError::QueueFull));
    for depth in [1, 3] {
        assert_eq!(hub.shared.modify(depth, 9), Err(ResizeError::Occupied));
    }
    let limit = hub.world.second.limits().shared_depth;
    assert_eq!(hub.shared.modify(limit + 1, 0), Err(ResizeError::OverLimit));
    let (mut next, mut expected) = (4, 0);
    for depth in [6, 9, 9, 16, 5, 12] {
        hub.send(0, 1);
        hub.send(1, 1);
        expected += 2;
        assert_eq!(hub.received(0), [expected - 2]);
        assert_eq!(hub.received(1), [expected - 1]);
        for sender in &hub.senders {
            outcomes(&sender.initiator);
        }
        while next - expected > u64::from(depth) {
            hub.send(0, 1);
            assert_eq!(hub.received(0), [expected]);
            expected += 1;
        }
        hub.shared.modify(depth, 0).unwrap();
        while next - expected < u64::from(depth) {
            hub.post(next);
            next += 1;
        }
        assert_eq!(hub.shared.receive(next, std::iter::empty()), Err(PostError::QueueFull), "depth {depth}");
        outcomes(&hub.senders[0].initiator);
    }
    while expected < next {
        hub.send(0, 1);
        assert_eq!(hub.received(0), [expected]);
        outcomes(&hub.senders[0].initiator);
        expected += 1;
    }
    hub.end();
}

#[test]
fn what_is_over_the_limits_or_of_another_domain_is_refused() {
    let hub = Hub::new(1, 4);
    let side = &hub.receivers[0];
    let limits = *hub.world.second.limits();
    let create = |settings| SharedReceiveQueue::create(&side.domain, settings, hub.world.consumer_object(0)).err();
    assert_eq!(create(settings(limits.shared_depth + 1, 1, 0)), Some(CreateError::OverLimit));
    assert_eq!(create(settings(0, 1, 0)), Some(CreateError::OverLimit));
    assert_eq!(create(settings(4, limits.receive_sges + 1, 0)), Some(CreateError::OverLimit));
    let four = (0..4).map(|_| softndk_engine_kit::sge(0, 0, softndk_engine::MemoryToken::NONE));
    assert_eq!(hub.shared.receive(1, four.collect::<Vec<_>>().into_iter()), Err(PostError::TooManySges));
    assert_eq!(side.pair.receive(1, std::iter::empty()), Err(PostError::BadParameter));
    let domain = side.open.create_protection_domain(hub.world.consumer_object(0)).unwrap();
    let settings = QueuePairSettings {
        receive_queue: &side.receiver,
        initiator_queue: &side.initiator,
        context: 0,
        receive_depth: 0,
        initiator_depth: 1,
        receive_sges: 0,
        initiator_sges: 1,
        inline_data: 0,
        shared: Some(&hub.shared),
    };
    assert_eq!(QueuePair::create(&domain, settings, hub.world.consumer_object(0)).err(), Some(CreateError::Foreign));
    drop(domain.close(CLOSE));
    hub.end();
}

#[test]
fn a_close_waits_for_the_queue_pairs_and_drops_what_is_queued() {
    let mut hub = Hub::new(1, 16);
    (0..3).for_each(|context| hub.post(context));
    hub.shared.modify(0, 9).unwrap();
    assert!(matches!(hub.shared.close(SHARED + CLOSE), Close::Pending));
    assert_eq!(hub.world.run(), [], "no notification after the close");
    hub.send(0, 1);
    assert_eq!(hub.received(0), [0], "the queue pair still takes from it");
    drop(hub.receivers[0].connector.close(CLOSE));
    drop(hub.receivers[0].pair.close(CLOSE));
    let events = hub.world.run();
    assert!(events.contains(&Event::Closed(SHARED + CLOSE, SHARED)), "{events:?}");
    assert_eq!(outcomes(&hub.receivers[0].receiver), [], "no receive completes that was not taken");
    hub.end();
}

/// A sender of the other contract gives up after a while where there is one receiver; here any queue pair may take one.
#[test]
#[cfg_attr(feature = "streams", ignore = "no Send across a stream waits for its receive")]
fn a_sender_waits_for_a_shared_receive_for_ever() {
    let mut hub = Hub::with(Semantics::ND, 1, 16);
    hub.send(0, 1);
    hub.world.run();
    hub.world.advance(3_600_000_000_000);
    hub.world.run();
    assert_eq!(outcomes(&hub.senders[0].initiator), []);
    hub.post(9);
    hub.world.run();
    assert_eq!(hub.received(0), [9]);
    hub.end();
}

/// Posting, taking and leaving on several processors: each receive goes to one queue pair, and no sender starves.
#[test]
fn receives_posted_and_taken_at_the_same_time_go_to_one_receiver_each() {
    const SENDS: usize = 400;
    let mut hub = Hub::new(3, 16);
    let Hub { world, senders, receivers, shared } = &mut hub;
    let (senders, receivers, shared) = (&*senders, &*receivers, &*shared);
    let (running, leave) = (AtomicU32::new(2), AtomicU32::new(0));
    let (running, leave) = (&running, &leave);
    let over = &AtomicBool::new(false);
    let traffic = |index: usize| {
        move || {
            let (mut sent, mut seen) = (0, Vec::new());
            while seen.len() < SENDS {
                assert!(!over.load(Ordering::SeqCst), "{sent} sent and {} received by {index}", seen.len());
                // Across a stream a Send does not wait for its receive: no more of them than the queue of their results takes.
                let goes_on = sent < SENDS && sent - seen.len() < 16;
                if goes_on && senders[index].pair.send(0, NONE, std::iter::empty()).is_ok() {
                    sent += 1;
                }
                polled(&senders[index].initiator);
                seen.extend(polled(&receivers[index].receiver).iter().map(|completion| {
                    assert_eq!(completion.outcome, Outcome::Success);
                    completion.context
                }));
                leave.fetch_max(seen.len() as u32, Ordering::SeqCst);
                std::thread::yield_now();
            }
            running.fetch_sub(1, Ordering::SeqCst);
            seen
        }
    };
    let mut all = std::thread::scope(|scope| {
        let others = [scope.spawn(traffic(0)), scope.spawn(traffic(1))];
        let leaver = scope.spawn(move || {
            let mut seen = Vec::new();
            while leave.load(Ordering::SeqCst) < SENDS as u32 / 2 && !over.load(Ordering::SeqCst) {
                let _ = senders[2].pair.send(0, NONE, std::iter::empty());
                polled(&senders[2].initiator);
                seen.extend(polled(&receivers[2].receiver).iter().map(|completion| completion.context));
                std::thread::yield_now();
            }
            receivers[2].pair.flush();
            seen
        });
        scope.spawn(move || {
            let mut context = 0;
            while running.load(Ordering::SeqCst) > 0 && !over.load(Ordering::SeqCst) {
                context += u64::from(shared.receive(context, std::iter::empty()).is_ok());
                std::thread::yield_now();
            }
        });
        // Thousands are enough.
        for _ in (0..50_000_000_u64).take_while(|_| running.load(Ordering::SeqCst) > 0) {
            world.step(1 << 18);
        }
        over.store(true, Ordering::SeqCst);
        let mut all = leaver.join().unwrap();
        for other in others {
            all.extend(other.join().unwrap());
        }
        all
    });
    all.extend(polled(&receivers[2].receiver).iter().map(|completion| completion.context));
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "a receive was completed twice");
    assert!(count >= 2 * SENDS);
    hub.end();
}

/// Inside the notification the queue is armed again and due at once; another processor runs a pass meanwhile.
#[test]
fn notifications_of_one_shared_queue_never_overlap() {
    let mut hub = Hub::new(1, 4);
    let (fabric, counters, shared) = (hub.world.fabric.clone(), hub.world.counters.clone(), hub.shared.clone());
    let mut rounds = 0;
    hub.world.events.inside = Some(Box::new(move |event| {
        if *event == Event::Notified(SHARED, Ok(())) && rounds < 3 {
            rounds += 1;
            shared.modify(0, 2).unwrap();
            let mut meanwhile = softndk_engine_kit::Events::new(counters.clone());
            let budget = softndk_engine::Budget { bytes: 1 << 20, items: 64 };
            for processor in 0..2 {
                fabric.service_pass(processor, budget, &mut meanwhile);
            }
            assert_eq!(meanwhile.seen, []);
        }
    }));
    hub.shared.modify(0, 2).unwrap();
    assert_eq!(hub.world.run(), vec![Event::Notified(SHARED, Ok(())); 4]);
    hub.world.events.inside = None;
    hub.end();
}

/// A service pass that promises receives to senders works on the same queue.
#[test]
fn a_queue_that_is_not_armed_does_not_notify_whatever_passes_serve_it() {
    let mut hub = Hub::new(2, 4);
    for sender in 0..2 {
        hub.send(sender, 1);
    }
    drop(hub.senders[0].connector.close(CLOSE));
    hub.post(1);
    hub.post(2);
    let events = hub.world.run();
    assert!(!events.contains(&Event::Notified(SHARED, Ok(()))), "{events:?}");
    hub.end();
}
