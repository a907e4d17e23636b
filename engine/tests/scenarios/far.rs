//! Peers that only messages reach, which take time: what no scenario of a peer at hand reaches.

use std::net::SocketAddr;

use softndk_engine::limits::MESSAGE_DELAY;
use softndk_engine::{
    AdapterSettings, Connect, ConnectError, DisconnectReason, FarPeers, Outcome, ReadLimits, RequestFlags, Requested,
    Rights, Semantics, Source, Timeouts, Travel,
};
use softndk_engine_kit::{
    A, B, Buffer, CLOSE, CONNECT, DISCONNECT, Depths, Event, FIRST, GONE, Pair, SECOND, World, outcomes, sge,
};

fn unconnected() -> Pair {
    Pair::unconnected(World::new(), Semantics::NDK, Depths::default())
}

fn connect_to(pair: &Pair, port: u16) -> Result<Requested, ConnectError> {
    pair.a.connector.connect(Connect {
        queue_pair: &pair.a.pair,
        source: Source::Address(SocketAddr::new(FIRST, 0)),
        destination: SocketAddr::new(SECOND, port),
        limits: ReadLimits::default(),
        private_data: &[],
        callback: A + CONNECT,
    })
}

#[test]
fn a_refusal_comes_by_the_completion_and_leaves_all_as_it_was() {
    let mut pair = unconnected();
    assert_eq!(connect_to(&pair, 9), Ok(Requested::Pending));
    assert_eq!(connect_to(&pair, 9), Err(ConnectError::AlreadyConnected), "the first is on its way");
    assert_eq!(pair.world.run(), [Event::Completed(A + CONNECT, Err(ConnectError::Refused))]);
    assert_eq!(pair.world.first.counters().connect_failure, 1);
    pair.connect();
    pair.close_for_good();
}

#[test]
fn a_message_waits_for_its_time_and_comes_in_time() {
    let mut pair = unconnected();
    let begun = pair.world.now();
    pair.connect_request().unwrap();
    assert!(!pair.world.step(1) && pair.world.events.seen.is_empty(), "no pass delivers it before");
    let seen = pair.world.advance(MESSAGE_DELAY);
    assert!(
        matches!(seen[..], [(at, Event::Requested(_))] if (begun..=begun + MESSAGE_DELAY).contains(&at)),
        "{seen:?}"
    );
    pair.take_arrived();
    pair.close_for_good();
}

/// The notice and the end that follows it arrive from a connector that is gone, in their order.
#[test]
fn what_a_closed_connector_has_sent_arrives_in_order() {
    for _ in 0..20 {
        let mut pair = Pair::new();
        pair.a.connector.disconnect(A + DISCONNECT).unwrap();
        drop(pair.a.connector.close(A + CLOSE));
        let events = pair.world.run();
        assert_eq!(events.iter().filter(|event| **event == Event::Disconnected(B + GONE)).count(), 1, "{events:?}");
        assert_eq!(pair.world.events.reasons, [DisconnectReason::Disconnected]);
        assert!(events.contains(&Event::Completed(A + DISCONNECT, Err(ConnectError::Aborted))), "{events:?}");
        pair.close_for_good();
    }
}

/// The request and what gives it up are both on their way when the connector is closed.
#[test]
fn a_connect_that_is_given_up_at_once_leaves_nothing() {
    let mut pair = unconnected();
    pair.connect_request().unwrap();
    drop(pair.a.connector.close(A + CLOSE));
    let events = pair.world.run();
    assert!(events.contains(&Event::Completed(A + CONNECT, Err(ConnectError::Aborted))), "{events:?}");
    for arrived in std::mem::take(&mut pair.world.events.arrived) {
        assert_eq!(arrived.reject(&[]), Err(ConnectError::Aborted));
        drop(arrived.close(CLOSE));
    }
    pair.close_for_good();
}

/// The answer is on its way while the connect times out and a second one begins.
#[test]
fn a_late_answer_is_not_that_of_the_next_attempt() {
    let timeouts = Timeouts { connect: 10 * MESSAGE_DELAY, ..Timeouts::default() };
    let mut pair = Pair::unconnected(
        World::with_settings(AdapterSettings { timeouts, ..AdapterSettings::default() }),
        Semantics::NDK,
        Depths::default(),
    );
    let other = pair.b.open.create_listener(B + 7, pair.world.consumer_object(B + 7)).unwrap();
    other.listen(SocketAddr::new(SECOND, 446)).unwrap();
    let deadline = pair.world.now() + timeouts.connect;
    pair.connect_request().unwrap();
    assert_eq!(pair.world.run(), [Event::Requested(B + 6)]);
    pair.take_arrived();
    pair.world.advance(deadline - 1 - pair.world.now());
    pair.accept().unwrap();
    let timed_out = (deadline, Event::Completed(A + CONNECT, Err(ConnectError::TimedOut)));
    assert_eq!(pair.world.advance(1), [timed_out]);
    connect_to(&pair, 446).unwrap();
    let events = pair.world.run();
    assert!(events.contains(&Event::Requested(B + 7)), "{events:?}");
    assert!(!events.contains(&Event::Completed(A + CONNECT, Ok(()))), "the second is not accepted: {events:?}");
    drop(other.close(CLOSE));
    pair.close();
}

const TRAVEL: u64 = MESSAGE_DELAY / 2;

/// Two connected sides whose requests and answers travel so long each; `reads` of each may be under way.
fn far_apart(reads: u32) -> Pair {
    apart(Travel::Exactly(TRAVEL), reads)
}

fn apart(travel: Travel, reads: u32) -> Pair {
    let far = Some(FarPeers::ConnectorsAndQueuePairs(travel));
    let world = World::with_settings(AdapterSettings { far, ..AdapterSettings::default() });
    let mut pair = Pair::unconnected(world, Semantics::NDK, Depths::default());
    pair.connect_with(ReadLimits { inbound: reads, outbound: reads });
    pair
}

/// Runs until the initiator queue of A has so many results; how long that took.
fn until_results(pair: &mut Pair, wanted: usize) -> (u64, Vec<(u64, Outcome)>) {
    let began = pair.world.now();
    let mut results = outcomes(&pair.a.initiator);
    while results.len() < wanted {
        assert!(pair.world.now() - began < 1_000 * TRAVEL, "{} of {wanted} results", results.len());
        pair.world.advance(TRAVEL / 10);
        results.extend(outcomes(&pair.a.initiator));
    }
    (pair.world.now() - began, results)
}

/// Sixteen Reads of 64 bytes from B's memory: how long they took.
fn sixteen_reads(pair: &mut Pair) -> u64 {
    let (source, sink) = (Buffer::new(4096, 0), Buffer::new(4096, 0));
    source.write(0, &(0..1024_u32).map(|at| (at % 251) as u8).collect::<Vec<_>>());
    let remote = pair.b.register(&pair.world, &source, 0, Rights::REMOTE_READ);
    let local = pair.a.build(&pair.world, &sink);
    for index in 0..16_u64 {
        let into = sge(local.0 + 64 * index, 64, pair.a.privileged());
        let flags = RequestFlags::empty();
        pair.a.pair.read(index, flags, [into].into_iter(), 64 * index, remote.remote_token()).unwrap();
    }
    let (took, results) = until_results(pair, 16);
    assert_eq!(results, (0..16).map(|index| (index, Outcome::Success)).collect::<Vec<_>>());
    assert_eq!(sink.read(0, 1024), source.read(0, 1024));
    drop(remote.close(CLOSE));
    assert!(pair.a.open.release_mapping(local));
    took
}

/// Sixteen Reads are under way at a time: they take one way there and one back, not sixteen.
#[test]
fn many_reads_share_the_time_that_a_far_peer_takes() {
    let mut pair = far_apart(16);
    let took = sixteen_reads(&mut pair);
    assert!((2 * TRAVEL..=2 * TRAVEL + TRAVEL / 5).contains(&took), "{took} ns for ways of {TRAVEL} ns");
    pair.close();
}

/// No more are under way than the connection allows: four at a time take four times as long.
#[test]
fn no_more_reads_are_under_way_than_the_connection_allows() {
    let mut pair = far_apart(4);
    let took = sixteen_reads(&mut pair);
    assert!((8 * TRAVEL..=8 * TRAVEL + TRAVEL).contains(&took), "{took} ns for ways of {TRAVEL} ns");
    pair.close();
}

/// What follows a Read with a fence, or needs no other end, waits for the Read; what does not passes it on the way.
#[test]
fn a_read_fence_waits_for_the_reads_before_it() {
    let mut pair = far_apart(16);
    let (here, there) = (Buffer::new(4096, 1), Buffer::new(4096, 2));
    let remote = pair.b.register(&pair.world, &there, 0, Rights::REMOTE_READ | Rights::REMOTE_WRITE);
    let local = pair.a.build(&pair.world, &here);
    let token = remote.remote_token();
    for (flags, trips) in [(RequestFlags::empty(), 1), (RequestFlags::READ_FENCE, 2)] {
        let element = |at| [sge(local.0 + at, 64, pair.a.privileged())].into_iter();
        pair.a.pair.read(1, RequestFlags::empty(), element(0), 0, token).unwrap();
        pair.a.pair.write(2, flags, element(64), 64, token).unwrap();
        let (took, results) = until_results(&mut pair, 2);
        assert_eq!(results, [(1, Outcome::Success), (2, Outcome::Success)]);
        let least = 2 * TRAVEL * trips;
        assert!((least..=least + TRAVEL / 2).contains(&took), "{took} ns, {flags:?}");
    }
    drop(remote.close(CLOSE));
    assert!(pair.a.open.release_mapping(local));
    pair.close();
}

/// Requests of every kind and of many lengths, one and several at a time, over ways of any length: every one completes once.
#[test]
fn every_request_of_a_far_peer_completes() {
    for round in 0..40_u64 {
        let mut pair = apart(Travel::UpTo(10_000), 16);
        let (here, there) = (Buffer::new(32_768, 1), Buffer::new(32_768, 2));
        let remote = pair.b.register(&pair.world, &there, 0, Rights::REMOTE_READ | Rights::REMOTE_WRITE);
        let local = pair.a.build(&pair.world, &here);
        let sink = pair.b.build(&pair.world, &there);
        let mut expected = Vec::new();
        for index in 0..8_u64 {
            let length = [8, 2048, 2049, 10_000][((index + round) % 4) as usize];
            let element = [sge(local.0, length, pair.a.privileged())].into_iter();
            let flags = RequestFlags::empty();
            match (index + round / 4) % 3 {
                0 => pair.a.pair.read(index, flags, element, 0, remote.remote_token()).unwrap(),
                1 => pair.a.pair.write(index, flags, element, 0, remote.remote_token()).unwrap(),
                _ => {
                    let receive = [sge(sink.0, 16_384, pair.b.privileged())].into_iter();
                    pair.b.pair.receive(100 + index, receive).unwrap();
                    pair.a.pair.send(index, flags, element).unwrap();
                }
            }
            expected.push((index, Outcome::Success));
            if index % 3 == round % 3 {
                pair.world.run();
                assert_eq!(outcomes(&pair.a.initiator), expected, "round {round}");
                expected.clear();
            }
        }
        pair.world.run();
        assert_eq!(outcomes(&pair.a.initiator), expected, "round {round}");
        drop(remote.close(CLOSE));
        assert!(pair.a.open.release_mapping(local) && pair.b.open.release_mapping(sink));
        pair.close();
    }
}
