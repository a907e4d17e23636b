//! Messages between connectors that take time: what no scenario of the loopback reaches.

use std::net::SocketAddr;

use softndk_engine::limits::MESSAGE_DELAY;
use softndk_engine::{
    AdapterSettings, Connect, ConnectError, DisconnectReason, ReadLimits, Requested, Semantics, Source, Timeouts,
};
use softndk_engine_kit::{A, B, CLOSE, CONNECT, DISCONNECT, Depths, Event, FIRST, GONE, Pair, SECOND, World};

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
