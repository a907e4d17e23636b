//! Time-outs of connections, off by default, and the reasons that disconnect events give.

use softndk_engine::{
    AdapterSettings, Close, ConnectError, DisconnectReason, Outcome, RequestFlags, Semantics, Timeouts,
};
use softndk_engine_kit::MESSAGE_DELAY;
use softndk_engine_kit::{
    self as kit, A, ACCEPT, B, CLOSE, CONNECT, DISCONNECT, Depths, Event, FIRST, GONE, Pair, Side, World,
};

const SECONDS: u64 = 1_000_000_000;

fn unconnected(timeouts: Timeouts) -> Pair {
    let world = World::with_settings(AdapterSettings { timeouts, ..AdapterSettings::default() });
    Pair::unconnected(world, Semantics::NDK, Depths::default())
}

#[test]
fn without_time_outs_both_sides_wait_for_ever() {
    let mut pair = unconnected(Timeouts::default());
    pair.connect_request().unwrap();
    pair.world.run();
    assert_eq!(pair.world.advance(1_000_000 * SECONDS), []);
    pair.take_arrived();
    pair.accept().unwrap();
    pair.world.run();
    assert_eq!(pair.world.advance(1_000_000 * SECONDS), []);
    pair.close();
}

#[test]
fn a_connect_without_an_answer_times_out_and_can_be_tried_again() {
    let mut pair = unconnected(Timeouts { connect: 5 * SECONDS, ..Timeouts::default() });
    pair.connect_request().unwrap();
    assert_eq!(pair.world.run(), [Event::Requested(B + 6)]);
    let completed = Event::Completed(A + CONNECT, Err(ConnectError::TimedOut));
    assert_eq!(pair.world.advance(10 * SECONDS), [(5 * SECONDS, completed)]);
    let late = pair.world.events.arrived.pop().unwrap();
    assert_eq!(late.reject(&[]), Err(ConnectError::Aborted));
    assert!(matches!(late.close(1), Close::Done(_)));
    pair.connect();
    assert_eq!(pair.world.advance(10 * SECONDS), [], "an answered Connect waits no more");
    pair.close();
}

#[test]
#[cfg_attr(feature = "streams", ignore = "a stream that is broken says no reason, and travels")]
fn an_accept_whose_peer_never_completes_times_out() {
    let mut pair = unconnected(Timeouts { accept: 3 * SECONDS, ..Timeouts::default() });
    pair.connect_request().unwrap();
    pair.world.run();
    pair.take_arrived();
    pair.world.advance(7 * SECONDS);
    let begun = pair.world.now();
    pair.accept().unwrap();
    pair.world.run();
    let completed = Event::Completed(B + ACCEPT, Err(ConnectError::TimedOut));
    assert_eq!(pair.world.advance(10 * SECONDS), [(begun + 3 * SECONDS, completed)]);
    pair.world.deliver_messages();
    assert_eq!(pair.a.connector.complete_connect(None, 0), Err(ConnectError::TimedOut));
    pair.close();
}

#[test]
fn a_disconnect_that_is_never_answered_times_out_and_is_flushed() {
    let mut pair = unconnected(Timeouts { disconnect: 2 * SECONDS, ..Timeouts::default() });
    pair.connect();
    pair.a.pair.receive(7, std::iter::empty()).unwrap();
    let begun = pair.world.now();
    pair.a.connector.disconnect(A + DISCONNECT).unwrap();
    assert_eq!(pair.world.run(), [Event::Disconnected(B + GONE)]);
    let events: Vec<_> = pair.world.advance(4 * SECONDS);
    let completed = Event::Completed(A + DISCONNECT, Err(ConnectError::TimedOut));
    assert_eq!(events, [(begun + 2 * SECONDS, completed)]);
    assert_eq!(kit::outcomes(&pair.a.receiver), [(7, Outcome::Cancelled)]);
    assert_eq!(pair.world.events.reasons, [DisconnectReason::Disconnected]);
    // The other side has heard once, and its own Disconnect has no peer to wait for.
    pair.b.connector.disconnect(B + DISCONNECT).unwrap();
    assert_eq!(pair.world.run(), [Event::Completed(B + DISCONNECT, Ok(()))]);
    pair.close();
}

#[test]
fn an_answered_disconnect_does_not_time_out_and_closed_connectors_leave_no_timer() {
    let every = Timeouts { connect: SECONDS, accept: SECONDS, disconnect: SECONDS, receiver_not_ready: None };
    let mut pair = unconnected(every);
    pair.connect();
    pair.a.connector.disconnect(A + DISCONNECT).unwrap();
    pair.world.run();
    pair.b.connector.disconnect(B + DISCONNECT).unwrap();
    let mut events = pair.world.run();
    events.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(events, [Event::Completed(A + DISCONNECT, Ok(())), Event::Completed(B + DISCONNECT, Ok(()))]);
    assert_eq!(pair.world.advance(5 * SECONDS), []);
    pair.close();
    for step in 0..3 {
        let mut pair = unconnected(every);
        pair.connect_request().unwrap();
        pair.world.run();
        pair.take_arrived();
        if step > 0 {
            pair.accept().unwrap();
            pair.world.run();
        }
        if step > 1 {
            pair.a.connector.complete_connect(None, 0).unwrap();
            pair.world.run();
            pair.b.connector.disconnect(B + DISCONNECT).unwrap();
        }
        drop((pair.a.connector.close(A + CLOSE), pair.b.connector.close(B + CLOSE)));
        pair.close();
    }
}

/// Ends a connection in some way and gives the reasons both sides hear.
fn reasons(end: impl FnOnce(&mut Pair)) -> Vec<DisconnectReason> {
    let mut pair = Pair::new();
    end(&mut pair);
    pair.world.run();
    let mut reasons = std::mem::take(&mut pair.world.events.reasons);
    // The order of the two sides is not defined.
    reasons.sort_by_key(|reason| format!("{reason:?}"));
    pair.world.second.start();
    pair.close();
    reasons
}

#[test]
#[cfg_attr(feature = "streams", ignore = "a stream that is broken says no reason, and travels")]
fn disconnect_events_say_why() {
    use DisconnectReason as Reason;
    let disconnected = reasons(|pair| assert!(pair.a.connector.disconnect(A + DISCONNECT).is_ok()));
    assert_eq!(disconnected, [Reason::Disconnected]);
    assert_eq!(reasons(|pair| drop(pair.a.connector.close(A + CLOSE))), [Reason::Closed]);
    let failed = reasons(|pair| {
        let token = softndk_engine::MemoryToken(99);
        pair.a.pair.write(1, RequestFlags::empty(), std::iter::once(kit::sge(0, 8, token)), 0, token).unwrap();
    });
    assert_eq!(failed, [Reason::PeerFailed]);
    let gone = reasons(|pair| pair.world.second.set_addresses(&[FIRST]).unwrap());
    assert_eq!(gone, [Reason::AddressGone, Reason::PeerAddressGone]);
    let gone = reasons(|pair| pair.world.second.shut_down());
    assert_eq!(gone, [Reason::AdapterGone, Reason::PeerAdapterGone]);
}

/// The answer is there and only the flush is to be done, which no service pass has reached yet.
#[test]
#[cfg_attr(feature = "streams", ignore = "a stream that is broken says no reason, and travels")]
fn a_disconnect_that_was_answered_in_time_succeeds_though_its_flush_comes_late() {
    let mut pair = unconnected(Timeouts { disconnect: 2 * SECONDS, ..Timeouts::default() });
    pair.connect();
    pair.a.pair.receive(7, std::iter::empty()).unwrap();
    pair.a.connector.disconnect(A + DISCONNECT).unwrap();
    assert_eq!(pair.world.run(), [Event::Disconnected(B + GONE)]);
    // A service pass has served a queue pair last, so the next one serves connectors first.
    let other = Side::beside(&pair.world, &pair.b, B);
    other.pair.flush();
    pair.world.run();
    pair.b.connector.disconnect(B + DISCONNECT).unwrap();
    pair.world.harness().timer_queue.store(5 * SECONDS, std::sync::atomic::Ordering::SeqCst);
    let events = pair.world.run();
    assert!(events.contains(&Event::Completed(A + DISCONNECT, Ok(()))), "{events:?}");
    pair.close_other_side(&other);
    pair.close();
}

#[test]
fn an_address_that_goes_does_not_change_an_end_that_was_reported() {
    // This side's own disconnect is under way: it gets no event.
    let mut pair = Pair::new();
    pair.a.connector.disconnect(A + DISCONNECT).unwrap();
    pair.world.first.set_addresses(&[]).unwrap();
    let events = pair.world.run();
    assert!(!events.contains(&Event::Disconnected(A + GONE)), "{events:?}");
    pair.close();
    // The peer's disconnect was first, and no service pass has delivered the event yet; nor the notice, where messages take time.
    let mut pair = Pair::new();
    pair.b.connector.disconnect(B + DISCONNECT).unwrap();
    pair.world.first.set_addresses(&[]).unwrap();
    let events = pair.world.run();
    assert_eq!(events.iter().filter(|event| **event == Event::Disconnected(A + GONE)).count(), 1);
    let first = if MESSAGE_DELAY != 0 { DisconnectReason::AddressGone } else { DisconnectReason::Disconnected };
    assert_eq!(pair.world.events.reasons, [first]);
    pair.close();
    // The same, with the event delivered.
    let mut pair = Pair::new();
    pair.b.connector.disconnect(B + DISCONNECT).unwrap();
    assert_eq!(pair.world.run(), [Event::Disconnected(A + GONE)]);
    pair.world.first.set_addresses(&[]).unwrap();
    assert!(!pair.world.run().contains(&Event::Disconnected(A + GONE)));
    pair.close();
}

/// Each time-out works by itself and beside the others, whatever their numbers.
#[test]
fn time_outs_do_not_hide_one_another() {
    let both = Timeouts { connect: 4 * SECONDS, accept: 4 * SECONDS, ..Timeouts::default() };
    let all = Timeouts { disconnect: 4 * SECONDS, ..both };
    let disconnect = Timeouts { connect: 0, disconnect: 4 * SECONDS, ..both };
    for timeouts in [both, all, disconnect] {
        let mut pair = unconnected(timeouts);
        pair.connect_request().unwrap();
        pair.world.run();
        pair.take_arrived();
        let waits = pair.world.advance(10 * SECONDS);
        let expected = (timeouts.connect != 0)
            .then_some((4 * SECONDS, Event::Completed(A + CONNECT, Err(ConnectError::TimedOut))));
        assert_eq!(waits, Vec::from_iter(expected), "{timeouts:?}");
        if timeouts.connect == 0 {
            let begun = pair.world.now();
            pair.accept().unwrap();
            let late = pair.world.advance(10 * SECONDS);
            assert!(
                late.contains(&(begun + 4 * SECONDS, Event::Completed(B + ACCEPT, Err(ConnectError::TimedOut)))),
                "{late:?}"
            );
        }
        pair.close();
    }
}

/// A timer keeps its object only as long as it is set.
#[test]
fn what_waited_is_freed_when_it_is_closed() {
    let timeouts =
        Timeouts { connect: SECONDS, accept: SECONDS, disconnect: SECONDS, receiver_not_ready: Some(SECONDS) };
    let mut pair = unconnected(timeouts);
    pair.connect();
    pair.a.pair.send(1, RequestFlags::empty(), std::iter::empty()).unwrap();
    pair.a.connector.disconnect(1).unwrap();
    pair.close_for_good();
    let pair = unconnected(timeouts);
    pair.connect_request().unwrap();
    pair.close_for_good();
}
