//! Several processors at once: posts, service passes, invalidations, flushes and closes that meet.
//!
//! Each test has a seed in its loop and a least amount of success, so that a run in which everything fails is not green.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use softndk_engine::{
    Budget, Close, CloseCompletion, Completion, CompletionQueue, ConnectEvent, DisconnectEvent, Fabric, LogicalAddress,
    Notification, Outcome, PostError, RequestCompletion, RequestFlags, Retired, Semantics, Sink,
};
use softndk_engine_kit::{
    self as kit, A, B, Buffer, ConsumerObject, Depths, EVERYTHING, Harness, HarnessCounters, PROCESSOR, Pair, sge,
};

/// Service passes in which a completion must come: a handful is enough, and a busy machine may run others first.
const PASSES: u64 = 50_000_000;
/// Rounds of the test of invalidations, and the share of them that may prove nothing.
const ROUNDS: u64 = 200;

const NONE: RequestFlags = RequestFlags::empty();

/// Drops every event at once and counts the closes.
#[derive(Default)]
struct Dropping {
    closed: u64,
}

impl Sink<Harness> for Dropping {
    fn notify(&mut self, event: Notification<Harness>) {
        event.status.unwrap();
    }
    fn request_completed(&mut self, _: RequestCompletion<Harness>) {}
    fn connection_requested(&mut self, _: ConnectEvent<Harness>) {}
    fn disconnected(&mut self, _: DisconnectEvent<Harness>) {}
    fn closed(&mut self, event: CloseCompletion<Harness>) {
        self.closed += 1;
        drop::<Option<ConsumerObject>>(event.object.consumer_object);
    }
    fn retired(&mut self, _: Retired<Harness>) {}
}

/// The processors that run service passes.
#[derive(Default)]
struct Processors {
    stop: AtomicBool,
    passes: AtomicU64,
}

/// Plays a processor until it is to stop.
fn service_passes(fabric: &Fabric<Harness>, processor: u32, processors: &Processors) -> u64 {
    PROCESSOR.with(|place| place.set(processor));
    let mut sink = Dropping::default();
    while !processors.stop.load(Ordering::Relaxed) {
        fabric.service_pass(processor, Budget { bytes: 1 << 18, items: 16 }, &mut sink);
        processors.passes.fetch_add(1, Ordering::Relaxed);
        std::thread::yield_now();
    }
    sink.closed
}

fn wait_for(queue: &CompletionQueue<Harness>, processors: &Processors, what: &str) -> Completion {
    let passes = || processors.passes.load(Ordering::Relaxed);
    let first = passes();
    loop {
        let mut found = None;
        queue.poll(1, |_, completion| found = Some(*completion));
        if let Some(completion) = found {
            return completion;
        }
        assert!(passes() < first + PASSES, "no completion: {what}");
        std::hint::spin_loop();
    }
}

// Rule: NDK-MR-7
/// A writes without end into B's region; B invalidates in the middle. Once the invalidation is complete, no byte changes.
#[test]
fn no_byte_moves_after_an_invalidation_has_completed() {
    const PAGES: u64 = 32;
    let (mut moved, mut rounds) = (0, 0);
    // A run whose invalidations all came before the first byte has shown nothing: it goes on.
    while rounds < ROUNDS || moved <= 10 {
        assert!(rounds < 100 * ROUNDS, "{rounds} rounds, {moved} writes");
        rounds += 1;
        let mut pair = Pair::with(Semantics::NDK, Depths::default());
        let length = PAGES as usize * 4096;
        let (here, there) = (Buffer::new(length, 0x55), Buffer::new(length, 0));
        let local = pair.a.register(&pair.world, &here, 0, EVERYTHING);
        let mapping: LogicalAddress = pair.b.build(&pair.world, &there);
        let region = pair.b.fast_region(&pair.world);
        pair.b.fast_register(&region, mapping, PAGES, 0).unwrap();
        let processors = Processors::default();
        std::thread::scope(|scope| {
            let (fabric, processors) = (&pair.world.fabric, &processors);
            for processor in 0..2 {
                scope.spawn(move || service_passes(fabric, processor, processors));
            }
            let (qp, queue) = (&pair.a.pair, &pair.a.initiator);
            let (from, to) = (local.local_token(), region.remote_token());
            let writer = scope.spawn(move || {
                PROCESSOR.with(|place| place.set(1));
                let mut successes = 0_u64;
                for context in 0.. {
                    let list = [sge(0, length as u32, from)].into_iter();
                    qp.write(context, NONE, list, 0, to).unwrap();
                    let completion = wait_for(queue, processors, "write");
                    assert_eq!(completion.context, context);
                    if completion.outcome != Outcome::Success {
                        // Across a stream the one before it may have been refused.
                        let was_before = cfg!(feature = "streams") && completion.outcome == Outcome::Cancelled;
                        assert!(was_before || completion.outcome == Outcome::RemoteError, "{completion:?}");
                        break;
                    }
                    successes += 1;
                }
                successes
            });
            for _ in 0..(rounds * 7919) % 5000 {
                std::hint::spin_loop();
            }
            pair.b.pair.invalidate(9, NONE, &region).unwrap();
            assert_eq!(wait_for(&pair.b.initiator, processors, "invalidate").outcome, Outcome::Success);
            there.fill(0xAA);
            moved += writer.join().unwrap();
            assert!(there.read(0, length).iter().all(|byte| *byte == 0xAA), "round {rounds}: a byte moved afterwards");
            processors.stop.store(true, Ordering::Relaxed);
        });
        pair.b.open.release_mapping(mapping);
        drop((local.close(1), region.close(1)));
        pair.world.run();
        pair.close();
    }
}

// Rule: BUG-4, NDK-QP-23
/// Both sides send and receive; one side flushes at some time. Every accepted request completes exactly once, in order.
#[test]
fn every_accepted_request_completes_exactly_once_however_the_end_comes() {
    let mut successes = 0;
    for seed in 0..300_u64 {
        let depths = Depths { completions: 4096, initiator: 64, receive: 64, ..Depths::default() };
        let pair = Pair::with(Semantics::NDK, depths);
        let processors = Processors::default();
        let posted: [AtomicU64; 4] = Default::default();
        std::thread::scope(|scope| {
            let fabric = &pair.world.fabric;
            let processors = &processors;
            let turner = scope.spawn(move || service_passes(fabric, 0, processors));
            let mut posters = Vec::new();
            for (side, base) in [(&pair.a, 0), (&pair.b, 2)] {
                let posted = &posted;
                posters.push(scope.spawn(move || {
                    PROCESSOR.with(|place| place.set(base as u32 / 2));
                    for round in 0..200 {
                        let flags = if (round + seed) % 5 == 0 { RequestFlags::DEFER } else { NONE };
                        let send = side.pair.send(posted[base].load(Ordering::Relaxed), flags, std::iter::empty());
                        count(send, &posted[base]);
                        let context = posted[base + 1].load(Ordering::Relaxed);
                        count(side.pair.receive(context, std::iter::empty()), &posted[base + 1]);
                    }
                }));
            }
            for _ in 0..(seed * 104_729) % 60_000 {
                std::hint::spin_loop();
            }
            match seed % 4 {
                0 => pair.a.pair.flush(),
                1 => drop::<Close<Harness>>(pair.a.connector.close(1)),
                2 => drop(pair.b.connector.disconnect(1)),
                _ => {}
            }
            for poster in posters {
                poster.join().unwrap();
            }
            processors.stop.store(true, Ordering::Relaxed);
            turner.join().unwrap();
        });
        let mut pair = pair;
        pair.a.pair.flush();
        pair.b.pair.flush();
        drop((pair.a.connector.close(1), pair.b.connector.close(1)));
        pair.world.run();
        let queues = [&pair.a.initiator, &pair.a.receiver, &pair.b.initiator, &pair.b.receiver];
        for (queue, posted) in queues.into_iter().zip(&posted) {
            let completions = kit::outcomes(queue);
            let contexts: Vec<_> = completions.iter().map(|(context, _)| *context).collect();
            assert_eq!(contexts, (0..posted.load(Ordering::Relaxed)).collect::<Vec<_>>(), "seed {seed}");
            let first_failure = completions.iter().position(|(_, outcome)| *outcome != Outcome::Success);
            let after = first_failure.map_or(&[][..], |place| &completions[place..]);
            assert!(after.iter().all(|(_, outcome)| *outcome == Outcome::Cancelled), "seed {seed}");
            successes += first_failure.unwrap_or(completions.len());
        }
        pair.close();
    }
    assert!(successes > 300, "only {successes} requests succeeded");
}

fn count(posted: Result<(), PostError>, counter: &AtomicU64) {
    match posted {
        Ok(()) => {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        Err(PostError::QueueFull) => std::thread::yield_now(),
        Err(other) => panic!("{other:?}"),
    }
}

/// Registers, builds, releases and deregisters on several processors while another reads through what there is.
#[test]
fn tables_change_under_readers_and_everything_comes_back() {
    let pair = Pair::with(Semantics::NDK, Depths::default());
    let processors = Processors::default();
    let counters: HarnessCounters = pair.world.counters.clone();
    let buffer = Buffer::new(8192, 1);
    let good = pair.b.register(&pair.world, &buffer, 0, EVERYTHING);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (fabric, processors) = (&pair.world.fabric, &processors);
        let turner = scope.spawn(move || service_passes(fabric, 0, processors));
        let mut changers = Vec::new();
        for side in [&pair.a, &pair.b] {
            let (buffer, counters, reads) = (&buffer, &counters, &reads);
            changers.push(scope.spawn(move || {
                // Continues until there was a read: without a reader the changes show nothing.
                for round in (0_u64..).take_while(|round| *round < 3000 || reads.load(Ordering::Relaxed) <= 10) {
                    let mapping = side.open.build_mapping(counters.map(buffer)).ok().unwrap();
                    let region = side.domain.create_memory_region(round % 2 == 0, counters.consumer_object(1)).unwrap();
                    if region.is_fast_register() {
                        region.initialize_fast_register(4, true).unwrap();
                    } else {
                        let memory = counters.map(buffer);
                        let registration =
                            softndk_engine::Registration { memory, base: 0, length: 8192, rights: EVERYTHING };
                        region.register(registration).ok().unwrap();
                    }
                    assert!(side.open.release_mapping(mapping.first));
                    drop(region.close(1));
                    if round >= 3000 {
                        std::thread::yield_now();
                    }
                }
            }));
        }
        while changers.iter().any(|changer| !changer.is_finished()) {
            let list = [sge(0, 8192, good.remote_token())].into_iter();
            pair.b.pair.write(1, NONE, list, 0, good.remote_token()).unwrap();
            // A's end has nothing under that token: the first write ends the connection, the others are cancelled.
            wait_for(&pair.b.initiator, processors, "write");
            reads.fetch_add(1, Ordering::Relaxed);
        }
        for changer in changers {
            changer.join().unwrap();
        }
        processors.stop.store(true, Ordering::Relaxed);
        turner.join().unwrap();
    });
    drop(good.close(1));
    pair.close();
}

/// Connects and closes on two threads against one listener: no call hangs and no object is left.
#[test]
fn connects_that_meet_closes_leave_nothing() {
    for seed in 0..300_u64 {
        let mut pair = Pair::unconnected(kit::World::new(), Semantics::NDK, Depths::default());
        let processors = Processors::default();
        std::thread::scope(|scope| {
            let (fabric, processors) = (&pair.world.fabric, &processors);
            let turner = scope.spawn(move || service_passes(fabric, 0, processors));
            let request = pair.connect_request();
            request.unwrap();
            for _ in 0..(seed * 31) % 3000 {
                std::hint::spin_loop();
            }
            drop(pair.a.connector.close(A));
            drop(pair.listener.close(B));
            drop(pair.a.pair.close(A));
            for _ in 0..1000 {
                std::hint::spin_loop();
            }
            processors.stop.store(true, Ordering::Relaxed);
            turner.join().unwrap();
        });
        pair.world.run();
        pair.close();
    }
}
