//! Connections: the three steps, their failures, limits and data, and both kinds of endings.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use softndk_engine::{
    Accept, AdapterSettings, Close, Connect, ConnectError, ConnectionData, Limits, Outcome, PostError, ReadLimits,
    RequestFlags, Requested, Semantics, Source,
};
use softndk_engine_kit::{
    self, A, ACCEPT, B, CLOSE, CONNECT, ConsumerObject, DISCONNECT, Depths, Event, FIRST, GONE, Pair, SECOND, Side,
    World, outcomes,
};

const NONE: RequestFlags = RequestFlags::empty();

fn unconnected() -> Pair {
    Pair::unconnected(World::new(), Semantics::NDK, Depths::default())
}

fn connect_to(pair: &mut Pair, source: SocketAddr, destination: SocketAddr) -> Result<Requested, ConnectError> {
    let asked = pair.a.connector.connect(Connect {
        queue_pair: &pair.a.pair,
        source: Source::Address(source),
        destination,
        limits: ReadLimits::default(),
        private_data: &[],
        callback: A + CONNECT,
    });
    pair.world.answer(asked, A + CONNECT)
}

#[test]
fn private_data_and_limits_reach_the_other_side() {
    let mut pair = unconnected();
    pair.connect_request().unwrap();
    pair.world.run();
    pair.take_arrived();
    let mut buffer = [0xee; 60];
    let data = pair.b.connector.connection_data(&mut buffer).unwrap();
    assert_eq!(data, ConnectionData { limits: ReadLimits { inbound: 16, outbound: 16 }, required: 56, copied: 56 });
    assert_eq!(buffer[..6], *b"hello\0");
    assert_eq!(buffer[56..], [0xee; 4]);
    assert_eq!(pair.a.connector.connection_data(&mut buffer), Err(ConnectError::InvalidState));
    pair.accept().unwrap();
    pair.world.deliver_messages();
    let data = pair.a.connector.connection_data(&mut buffer[..8]).unwrap();
    assert_eq!(data, ConnectionData { limits: ReadLimits { inbound: 4, outbound: 8 }, required: 148, copied: 8 });
    assert_eq!(buffer[..8], *b"welcome\0");
    pair.a.connector.complete_connect(None, 0).unwrap();
    assert_eq!(pair.a.connector.connection_data(&mut []).unwrap().limits, ReadLimits { inbound: 4, outbound: 8 });
    assert_eq!(pair.a.connector.peer_address(), Some(SocketAddr::new(SECOND, 445)));
    assert_eq!(pair.b.connector.local_address(), Some(SocketAddr::new(SECOND, 445)));
    assert_eq!(pair.b.connector.peer_address(), pair.a.connector.local_address());
    pair.close();
}

#[test]
fn the_nd_column_reports_private_data_as_long_as_it_was_sent() {
    let mut pair = Pair::unconnected(World::new(), Semantics::ND, Depths::default());
    pair.connect_request().unwrap();
    pair.world.run();
    pair.take_arrived();
    let data = pair.b.connector.connection_data(&mut [0; 60]).unwrap();
    assert_eq!((data.required, data.copied), (5, 5));
    pair.close();
}

#[test]
fn read_limits_are_capped_by_both_adapters_silently() {
    let limits = Limits { inbound_reads: 3, outbound_reads: 7, ..Limits::default() };
    let mut pair = Pair::unconnected(World::with_limits(limits), Semantics::NDK, Depths::default());
    pair.connect_request().unwrap();
    pair.world.run();
    pair.take_arrived();
    let offered = pair.b.connector.connection_data(&mut []).unwrap().limits;
    assert_eq!(offered, ReadLimits { inbound: 3, outbound: 3 });
    pair.close();
}

#[test]
fn private_data_at_its_limit_is_taken_and_one_more_byte_is_not() {
    let mut pair = unconnected();
    let connect = |pair: &Pair, length: usize| {
        pair.a.connector.connect(Connect {
            queue_pair: &pair.a.pair,
            source: Source::Address(SocketAddr::new(FIRST, 0)),
            destination: SocketAddr::new(SECOND, 445),
            limits: ReadLimits::default(),
            private_data: &vec![7; length],
            callback: A + CONNECT,
        })
    };
    assert_eq!(connect(&pair, 57), Err(ConnectError::PrivateDataTooLong));
    assert_eq!(connect(&pair, 56), Ok(Requested::Pending));
    pair.world.run();
    pair.take_arrived();
    let accept = |length: usize| {
        pair.b.connector.accept(Accept {
            queue_pair: &pair.b.pair,
            limits: ReadLimits::default(),
            private_data: &vec![7; length],
            disconnect: None,
            callback: 0,
        })
    };
    assert_eq!(accept(149), Err(ConnectError::PrivateDataTooLong));
    assert_eq!(pair.b.connector.reject(&[0; 149]), Err(ConnectError::PrivateDataTooLong));
    assert_eq!(accept(148), Ok(Requested::Pending));
    pair.close();
}

#[test]
fn a_rejected_connect_is_refused_with_data_and_can_be_tried_again() {
    let mut pair = unconnected();
    pair.connect_request().unwrap();
    pair.world.run();
    let arrived = pair.world.events.arrived.pop().unwrap();
    arrived.reject(b"busy").unwrap();
    assert_eq!(pair.world.run(), [Event::Completed(A + CONNECT, Err(ConnectError::Refused))]);
    let mut buffer = [0; 4];
    pair.a.connector.connection_data(&mut buffer).unwrap();
    assert_eq!(&buffer, b"busy");
    assert!(matches!(arrived.close(1), Close::Done(_)));
    pair.connect();
    assert_eq!(pair.world.first.counters().connect_failure, 1);
    pair.close();
}

#[test]
fn a_dropped_or_closed_arrival_refuses() {
    for adopt in [false, true] {
        let mut pair = unconnected();
        pair.world.events.refuse = !adopt;
        pair.connect_request().unwrap();
        let mut events = pair.world.run();
        if adopt {
            drop(pair.world.events.arrived.pop().unwrap().close(5));
            events.extend(pair.world.run());
        }
        assert_eq!(events, [Event::Requested(B + 6), Event::Completed(A + CONNECT, Err(ConnectError::Refused))]);
        pair.close();
    }
}

#[test]
fn no_context_listening_paused_and_closing_listeners_refuse_at_once() {
    let mut pair = unconnected();
    let (source, port) = (SocketAddr::new(FIRST, 0), |port| SocketAddr::new(SECOND, port));
    assert_eq!(connect_to(&mut pair, source, port(446)), Err(ConnectError::Refused));
    pair.listener.pause(true);
    assert_eq!(connect_to(&mut pair, source, port(445)), Err(ConnectError::Refused));
    pair.listener.pause(false);
    let closing = pair.b.open.create_listener(0, pair.world.consumer_object(1)).unwrap();
    closing.listen(port(500), 0).unwrap();
    drop(closing.close(1));
    assert_eq!(connect_to(&mut pair, source, port(500)), Err(ConnectError::Refused));
    assert_eq!(connect_to(&mut pair, source, port(445)), Ok(Requested::Pending));
    pair.close();
}

#[test]
fn addresses_decide_between_invalid_unreachable_and_in_use() {
    let mut pair = unconnected();
    let there = SocketAddr::new(SECOND, 445);
    let other: IpAddr = [10, 0, 0, 9].into();
    assert_eq!(connect_to(&mut pair, SocketAddr::new(SECOND, 0), there), Err(ConnectError::InvalidAddress));
    let here = SocketAddr::new(FIRST, 0);
    assert_eq!(connect_to(&mut pair, here, SocketAddr::new(other, 445)), Err(ConnectError::HostUnreachable));
    let v6 = SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 445);
    assert_eq!(connect_to(&mut pair, here, v6), Err(ConnectError::InvalidAddress));
    let taken = pair.a.open.create_listener(0, pair.world.consumer_object(1)).unwrap();
    taken.listen(SocketAddr::new(FIRST, 600), 0).unwrap();
    assert_eq!(connect_to(&mut pair, SocketAddr::new(FIRST, 600), there), Err(ConnectError::AddressInUse));
    let second = pair.a.open.create_listener(0, pair.world.consumer_object(1)).unwrap();
    assert_eq!(second.listen(SocketAddr::new(FIRST, 600), 0), Err(ConnectError::AddressInUse));
    assert_eq!(second.listen(SocketAddr::new(SECOND, 601), 0), Err(ConnectError::InvalidAddress));
    second.listen(SocketAddr::new(FIRST, 0), 0).unwrap();
    assert_eq!(second.listen(SocketAddr::new(FIRST, 0), 0), Err(ConnectError::InvalidState));
    assert!(second.local_address().unwrap().port() >= 49152);
    assert_eq!(connect_to(&mut pair, SocketAddr::new(FIRST, 700), there), Ok(Requested::Pending));
    drop((taken.close(1), second.close(1)));
    pair.close();
}

#[test]
fn another_wire_is_unreachable() {
    let mut pair = unconnected();
    let third = pair
        .world
        .fabric
        .add_adapter(AdapterSettings { limits: Limits::default(), wire: 5, ..Default::default() })
        .unwrap();
    let address: IpAddr = [10, 0, 0, 3].into();
    third.set_addresses(&[address]).unwrap();
    let answer = connect_to(&mut pair, SocketAddr::new(FIRST, 0), SocketAddr::new(address, 445));
    assert_eq!(answer, Err(ConnectError::HostUnreachable));
    third.remove();
    pair.close();
}

#[test]
fn an_adapter_talks_to_itself_over_ipv6() {
    let mut world = World::new();
    let address = IpAddr::V6("fe80::1".parse().unwrap());
    world.first.set_addresses(&[FIRST, address]).unwrap();
    let a = Side::open(&world, &world.first, Semantics::NDK, Depths::default(), A);
    let b = Side::open(&world, &world.first, Semantics::NDK, Depths::default(), B);
    let listener = b.open.create_listener(B + 6, world.consumer_object(B + 6)).unwrap();
    listener.listen(SocketAddr::new(address, 1), 0).unwrap();
    let request = Connect {
        queue_pair: &a.pair,
        source: Source::Address(SocketAddr::new(address, 0)),
        destination: SocketAddr::new(address, 1),
        limits: ReadLimits::default(),
        private_data: &[],
        callback: A + CONNECT,
    };
    a.connector.connect(request).unwrap();
    assert_eq!(world.run(), [Event::Requested(B + 6)]);
    drop(world.events.arrived.pop().unwrap().close(1));
    Pair { world, listener, a, b }.close();
}

#[test]
fn ephemeral_ports_run_out_and_come_back() {
    let world = World::new();
    let open = world.first.open(Semantics::NDK, world.consumer_object(1)).unwrap();
    let mut listeners = Vec::new();
    loop {
        let listener = open.create_listener(0, world.consumer_object(2)).unwrap();
        match listener.listen(SocketAddr::new(FIRST, 0), 0) {
            Ok(_) => listeners.push(listener),
            Err(error) => {
                assert_eq!((error, listeners.len()), (ConnectError::NoPorts, 16384));
                drop(listeners.pop().unwrap().close(1));
                listener.listen(SocketAddr::new(FIRST, 0), 0).unwrap();
                listeners.push(listener);
                break;
            }
        }
    }
    for listener in listeners {
        assert!(matches!(listener.close(1), Close::Done(_)));
    }
    assert!(matches!(open.close(1), Close::Done(_)));
}

#[test]
fn the_listeners_endpoint_stays_in_use_until_its_last_connector_is_closed() {
    let mut pair = Pair::new();
    assert!(matches!(pair.listener.close(B + CLOSE), Close::Pending));
    let again = pair.b.open.create_listener(0, pair.world.consumer_object(1)).unwrap();
    assert_eq!(again.listen(SocketAddr::new(SECOND, 445), 0), Err(ConnectError::AddressInUse));
    drop(pair.b.connector.close(B + CLOSE));
    let events = pair.world.run();
    assert!(events.contains(&Event::Closed(B + CLOSE, B + 6)), "{events:?}");
    again.listen(SocketAddr::new(SECOND, 445), 0).unwrap();
    drop(again.close(1));
    pair.close();
}

#[test]
fn posting_before_the_connection_is_refused_except_receives() {
    let mut pair = unconnected();
    assert_eq!(pair.a.pair.send(1, NONE, std::iter::empty()), Err(PostError::NotConnected));
    pair.a.pair.receive(2, std::iter::empty()).unwrap();
    pair.connect_request().unwrap();
    pair.world.run();
    pair.take_arrived();
    pair.accept().unwrap();
    pair.world.deliver_messages();
    assert_eq!(pair.a.pair.send(1, NONE, std::iter::empty()), Err(PostError::NotConnected));
    assert_eq!(pair.b.pair.send(1, NONE, std::iter::empty()), Err(PostError::NotConnected));
    pair.a.connector.complete_connect(None, 0).unwrap();
    pair.world.deliver_messages();
    pair.b.pair.send(3, NONE, std::iter::empty()).unwrap();
    assert_eq!(outcomes(&pair.b.initiator), [(3, Outcome::Success)]);
    assert_eq!(outcomes(&pair.a.receiver), [(2, Outcome::Success)]);
    pair.close();
}

// Rule: NDK-CM-33
#[test]
fn a_first_message_before_the_accept_callback_is_not_lost() {
    let mut pair = unconnected();
    pair.connect_request().unwrap();
    pair.world.run();
    pair.take_arrived();
    pair.accept().unwrap();
    pair.world.run();
    pair.a.connector.complete_connect(None, 0).unwrap();
    pair.a.pair.send(1, NONE, std::iter::empty()).unwrap();
    assert_eq!(pair.world.run(), [Event::Completed(B + ACCEPT, Ok(()))]);
    pair.b.pair.receive(2, std::iter::empty()).unwrap();
    pair.world.run();
    assert_eq!(outcomes(&pair.b.receiver), [(2, Outcome::Success)]);
    pair.close();
}

#[test]
fn a_queue_pair_connects_once() {
    let mut pair = Pair::new();
    let second = pair.a.open.create_connector(pair.world.consumer_object(1)).unwrap();
    let request = |pair: &Pair| {
        second.connect(Connect {
            queue_pair: &pair.a.pair,
            source: Source::Address(SocketAddr::new(FIRST, 0)),
            destination: SocketAddr::new(SECOND, 445),
            limits: ReadLimits::default(),
            private_data: &[],
            callback: 0,
        })
    };
    assert_eq!(request(&pair), Err(ConnectError::AlreadyConnected));
    assert_eq!(pair.connect_request(), Err(ConnectError::AlreadyConnected));
    pair.a.pair.flush();
    pair.world.run();
    assert_eq!(request(&pair), Err(ConnectError::AlreadyConnected));
    drop(second.close(1));
    pair.close();
}

#[test]
fn giving_up_before_accept_makes_accept_fail_and_after_it_makes_it_complete_so() {
    for (semantics, after) in [(Semantics::NDK, ConnectError::Aborted), (Semantics::ND, ConnectError::Refused)] {
        for accepted in [false, true] {
            let mut pair = Pair::unconnected(World::new(), semantics, Depths::default());
            pair.connect_request().unwrap();
            pair.world.run();
            pair.take_arrived();
            if accepted {
                pair.accept().unwrap();
                pair.world.run();
            }
            drop(pair.a.connector.close(A + CLOSE));
            let events = pair.world.run();
            if accepted {
                assert_eq!(events, [Event::Completed(B + ACCEPT, Err(after))]);
            } else {
                let aborted = Err(ConnectError::Aborted);
                let closed = Event::Closed(A + CLOSE, A + 5);
                assert_eq!(events, [Event::Completed(A + CONNECT, aborted), closed]);
                assert_eq!(pair.accept(), Err(ConnectError::Aborted));
                assert_eq!(pair.b.connector.reject(&[]), Err(ConnectError::Aborted));
            }
            pair.close();
        }
    }
}

#[test]
fn an_answer_may_be_rejected_by_the_active_side() {
    let mut pair = unconnected();
    pair.connect_request().unwrap();
    pair.world.run();
    pair.take_arrived();
    pair.accept().unwrap();
    pair.world.run();
    pair.a.connector.reject(&[]).unwrap();
    assert_eq!(pair.world.run(), [Event::Completed(B + ACCEPT, Err(ConnectError::Aborted))]);
    assert_eq!(pair.a.connector.complete_connect(None, 0), Err(ConnectError::InvalidState));
    pair.close();
}

#[test]
fn an_acceptor_that_gives_up_makes_complete_connect_fail() {
    let mut pair = unconnected();
    pair.connect_request().unwrap();
    pair.world.run();
    pair.take_arrived();
    pair.accept().unwrap();
    drop(pair.b.connector.close(B + CLOSE));
    pair.world.run();
    assert_eq!(pair.a.connector.complete_connect(None, 0), Err(ConnectError::Aborted));
    pair.close();
}

#[test]
fn a_disconnect_waits_for_the_answer_then_flushes_then_completes() {
    let mut pair = Pair::new();
    pair.a.pair.receive(1, std::iter::empty()).unwrap();
    pair.b.pair.receive(2, std::iter::empty()).unwrap();
    pair.a.connector.disconnect(A + DISCONNECT).unwrap();
    assert_eq!(pair.world.run(), [Event::Disconnected(B + GONE)]);
    assert_eq!((outcomes(&pair.a.receiver), outcomes(&pair.b.receiver)), (vec![], vec![]), "nothing is flushed yet");
    // B can still answer with data.
    pair.b.pair.send(3, NONE, std::iter::empty()).unwrap();
    assert_eq!(outcomes(&pair.b.initiator), [(3, Outcome::Success)]);
    assert_eq!(outcomes(&pair.a.receiver), [(1, Outcome::Success)]);
    pair.a.pair.receive(4, std::iter::empty()).unwrap();
    pair.b.connector.disconnect(B + DISCONNECT).unwrap();
    let mut events = pair.world.run();
    events.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(events, [Event::Completed(A + DISCONNECT, Ok(())), Event::Completed(B + DISCONNECT, Ok(()))]);
    assert_eq!(outcomes(&pair.a.receiver), [(4, Outcome::Cancelled)]);
    assert_eq!(outcomes(&pair.b.receiver), [(2, Outcome::Cancelled)]);
    assert_eq!(pair.a.connector.disconnect(0), Err(ConnectError::InvalidState));
    let counters = pair.world.first.counters();
    assert_eq!((counters.active_connection, counters.connection_error), (0, 0));
    pair.close();
}

#[test]
fn both_disconnecting_at_once_get_no_event() {
    let mut pair = Pair::new();
    pair.a.connector.disconnect(A + DISCONNECT).unwrap();
    pair.b.connector.disconnect(B + DISCONNECT).unwrap();
    let events = pair.world.run();
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|event| matches!(event, Event::Completed(_, Ok(())))), "{events:?}");
    pair.close();
}

#[test]
fn closing_a_connected_connector_notifies_the_peer_once_and_fails_its_disconnect() {
    for peer_waits in [false, true] {
        let mut pair = Pair::new();
        if peer_waits {
            pair.b.connector.disconnect(B + DISCONNECT).unwrap();
            assert_eq!(pair.world.run(), [Event::Disconnected(A + GONE)]);
        }
        drop(pair.a.connector.close(A + CLOSE));
        let events = pair.world.run();
        let expected = if peer_waits {
            Event::Completed(B + DISCONNECT, Err(ConnectError::Aborted))
        } else {
            Event::Disconnected(B + GONE)
        };
        assert_eq!(events, [expected]);
        pair.close();
    }
}

#[test]
fn a_close_after_the_notice_is_no_second_event() {
    let mut pair = Pair::new();
    pair.a.connector.disconnect(A + DISCONNECT).unwrap();
    assert_eq!(pair.world.run(), [Event::Disconnected(B + GONE)]);
    drop(pair.a.connector.close(A + CLOSE));
    let events = pair.world.run();
    assert_eq!(events[0], Event::Completed(A + DISCONNECT, Err(ConnectError::Aborted)));
    assert!(!events.contains(&Event::Disconnected(B + GONE)), "{events:?}");
    pair.b.connector.disconnect(B + DISCONNECT).unwrap();
    assert_eq!(pair.world.run(), [Event::Completed(B + DISCONNECT, Ok(()))]);
    pair.close();
}

#[test]
fn a_disconnect_after_the_peer_has_gone_flushes_and_succeeds() {
    let mut pair = Pair::new();
    pair.speak();
    pair.b.pair.receive(2, std::iter::empty()).unwrap();
    drop(pair.a.connector.close(A + CLOSE));
    pair.world.run();
    assert_eq!(outcomes(&pair.b.receiver), [], "an incoming end flushes nothing");
    pair.b.connector.disconnect(B + DISCONNECT).unwrap();
    assert_eq!(pair.world.run(), [Event::Completed(B + DISCONNECT, Ok(()))]);
    assert_eq!(outcomes(&pair.b.receiver), [(2, Outcome::Cancelled)]);
    assert_eq!(pair.world.second.counters().connection_error, 1);
    pair.close();
}

#[test]
fn a_disconnect_that_the_peer_has_answered_succeeds_though_the_peer_closes_at_once() {
    let mut pair = Pair::new();
    pair.a.connector.disconnect(A + DISCONNECT).unwrap();
    assert_eq!(pair.world.run(), [Event::Disconnected(B + GONE)]);
    pair.b.connector.disconnect(B + DISCONNECT).unwrap();
    drop(pair.b.connector.close(B + CLOSE));
    let events = pair.world.run();
    for completion in [Event::Completed(A + DISCONNECT, Ok(())), Event::Completed(B + DISCONNECT, Ok(()))] {
        assert_eq!(events.iter().filter(|event| **event == completion).count(), 1, "{completion:?}: {events:?}");
    }
    assert_eq!(events.len(), 3, "and the close: {events:?}");
    pair.close();
}

#[test]
#[cfg_attr(feature = "streams", ignore = "no Send across a stream waits for its receive")]
fn a_waiting_send_is_cancelled_when_the_connection_ends() {
    let mut pair = Pair::new();
    pair.a.pair.send(1, NONE, std::iter::empty()).unwrap();
    pair.a.pair.send(2, RequestFlags::SILENT_SUCCESS, std::iter::empty()).unwrap();
    drop(pair.b.connector.close(B + CLOSE));
    assert_eq!(pair.world.run(), [Event::Disconnected(A + GONE)]);
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Cancelled), (2, Outcome::Cancelled)]);
    pair.close();
}

#[test]
fn a_vanished_address_ends_listeners_and_connections_and_notifies_both_sides() {
    let mut pair = Pair::new();
    pair.world.second.set_addresses(&[]).unwrap();
    let mut events = pair.world.run();
    events.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(events, [Event::Disconnected(A + GONE), Event::Disconnected(B + GONE)]);
    assert_eq!(pair.listener.local_address(), None);
    pair.close();
}

#[test]
fn a_shut_down_adapter_ends_everything_and_refuses_what_is_new() {
    let mut pair = Pair::new();
    let (mut connections, mut endpoints) = (0, 0);
    pair.world.second.connections(&mut |_| connections += 1);
    pair.world.second.endpoints(&mut |_| endpoints += 1);
    assert_eq!((connections, endpoints), (1, 1));
    pair.world.second.shut_down();
    let events = pair.world.run();
    assert_eq!(events.len(), 2, "{events:?}");
    (connections, endpoints) = (0, 0);
    pair.world.second.connections(&mut |_| connections += 1);
    pair.world.second.endpoints(&mut |_| endpoints += 1);
    assert_eq!((connections, endpoints), (0, 0));
    assert!(pair.world.second.open(Semantics::NDK, pair.world.consumer_object(1)).is_err());
    assert!(pair.b.open.create_connector(pair.world.consumer_object(1)).is_err());
    assert_eq!(pair.world.second.opens(), 1);
    pair.world.second.start();
    let open = pair.world.second.open(Semantics::NDK, pair.world.consumer_object(1)).unwrap();
    drop::<Close<softndk_engine_kit::Harness>>(open.close(1));
    pair.close();
}

#[test]
fn many_connections_one_after_the_other_leave_nothing() {
    let mut pair = Pair::new();
    for _ in 0..200 {
        let depths = Depths::default();
        drop(pair.a.connector.close(A + CLOSE));
        drop(pair.b.connector.close(B + CLOSE));
        for (side, adapter, base) in [(&mut pair.a, &pair.world.first, A), (&mut pair.b, &pair.world.second, B)] {
            let fresh = Side::open(&pair.world, adapter, Semantics::NDK, depths, base);
            let old = std::mem::replace(side, fresh);
            drop((old.pair.close(1), old.initiator.close(1), old.receiver.close(1)));
            drop((old.domain.close(1), old.open.close(1)));
        }
        // The listener belongs to the old open, which pends.
        drop(pair.listener.close(1));
        pair.world.run();
        pair.listener = pair.b.open.create_listener(B + 6, pair.world.consumer_object(B + 6)).unwrap();
        pair.listener.listen(SocketAddr::new(SECOND, 445), 0).unwrap();
        pair.connect();
    }
    let blocks = pair.world.counters.blocks.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(blocks, 13, "what two sides and a listener have");
    let _: Option<ConsumerObject> = None;
    pair.close();
}

/// What is asked for wrongly is no attempt; what the network refuses at once is one that failed.
#[test]
fn only_attempts_that_fail_are_counted_as_failures() {
    let mut pair = unconnected();
    let failures = |pair: &Pair| pair.world.first.counters().connect_failure;
    let unknown = SocketAddr::new("10.9.9.9".parse().unwrap(), 445);
    let own = |port| SocketAddr::new(FIRST, port);
    assert_eq!(connect_to(&mut pair, own(0), unknown), Err(ConnectError::HostUnreachable));
    assert_eq!(failures(&pair), 1);
    assert_eq!(connect_to(&mut pair, own(0), SocketAddr::new(SECOND, 1)), Err(ConnectError::Refused));
    assert_eq!(failures(&pair), 2);
    let long = [0; 57];
    let request = Connect {
        queue_pair: &pair.a.pair,
        source: Source::Address(own(0)),
        destination: SocketAddr::new(SECOND, 445),
        limits: ReadLimits { inbound: 1, outbound: 1 },
        private_data: &long,
        callback: 1,
    };
    assert_eq!(pair.a.connector.connect(request), Err(ConnectError::PrivateDataTooLong));
    pair.connect_request().unwrap();
    assert_eq!(pair.connect_request(), Err(ConnectError::AlreadyConnected));
    assert_eq!(failures(&pair), 2);
    pair.close();
}

/// What was connected once has no answer to take or give any more, whatever ended it.
#[test]
fn the_calls_of_an_attempt_do_not_fit_a_connection_that_is_over() {
    let mut pair = Pair::new();
    pair.world.second.set_addresses(&[]).unwrap();
    pair.world.run();
    assert_eq!(pair.a.connector.complete_connect(None, 1), Err(ConnectError::InvalidState));
    assert_eq!(pair.a.connector.reject(&[]), Err(ConnectError::InvalidState));
    assert_eq!(pair.b.connector.reject(&[]), Err(ConnectError::InvalidState));
    assert_eq!(pair.b.connector.complete_connect(None, 1), Err(ConnectError::InvalidState));
    let fresh = Side::beside(&pair.world, &pair.b, B);
    let accept = Accept {
        queue_pair: &fresh.pair,
        limits: ReadLimits::default(),
        private_data: &[],
        disconnect: None,
        callback: 1,
    };
    assert_eq!(pair.b.connector.accept(accept), Err(ConnectError::InvalidState));
    assert_eq!(pair.connect_request(), Err(ConnectError::InvalidState));
    pair.close_other_side(&fresh);
    pair.close();
}

/// A Disconnect needs a connection that was there; a Connect a queue pair that is as new.
#[test]
fn what_was_never_connected_cannot_be_disconnected_and_what_was_flushed_cannot_be_connected() {
    let mut pair = unconnected();
    assert_eq!(pair.a.connector.disconnect(1), Err(ConnectError::InvalidState));
    pair.connect_request().unwrap();
    assert_eq!(pair.a.connector.disconnect(1), Err(ConnectError::InvalidState));
    pair.world.run();
    pair.take_arrived();
    pair.accept().unwrap();
    pair.world.run();
    pair.a.connector.reject(&[]).unwrap();
    pair.world.run();
    assert_eq!(pair.a.connector.disconnect(1), Err(ConnectError::InvalidState));
    assert_eq!(pair.b.connector.disconnect(1), Err(ConnectError::InvalidState));
    let fresh = Side::beside(&pair.world, &pair.a, A);
    fresh.pair.flush();
    pair.world.run();
    let request = Connect {
        queue_pair: &fresh.pair,
        source: Source::Address(SocketAddr::new(FIRST, 0)),
        destination: SocketAddr::new(SECOND, 445),
        limits: ReadLimits::default(),
        private_data: &[],
        callback: 1,
    };
    assert_eq!(fresh.connector.connect(request), Err(ConnectError::AlreadyConnected));
    pair.close_other_side(&fresh);
    pair.close();
}

#[test]
fn endpoints_and_opens_are_counted_while_they_are_there() {
    let mut pair = unconnected();
    let count = |pair: &Pair| {
        let mut listed = Vec::new();
        pair.world.first.endpoints(&mut |entry| listed.push(entry.listener));
        (pair.world.first.opens(), listed)
    };
    assert_eq!(count(&pair), (1, vec![]));
    let open = pair.world.first.open(Semantics::NDK, pair.world.consumer_object(1)).unwrap();
    let endpoint = open.create_shared_endpoint(SocketAddr::new(FIRST, 77), pair.world.consumer_object(2)).unwrap();
    let listener = open.create_listener(1, pair.world.consumer_object(3)).unwrap();
    assert_eq!(count(&pair), (2, vec![false]));
    listener.listen(SocketAddr::new(FIRST, 78), 0).unwrap();
    assert_eq!(count(&pair), (2, vec![false, true]));
    let hold = endpoint.hold();
    assert!(matches!(endpoint.close(1), Close::Pending));
    assert_eq!(count(&pair), (2, vec![true]), "what is being closed is no endpoint of the consumer's");
    drop(hold);
    drop((listener.close(1), open.close(1)));
    pair.world.run();
    assert_eq!(count(&pair), (1, vec![]));
    pair.close();
}

/// No consumer reaches an adapter that was taken out, even when its objects still exist.
#[test]
fn a_removed_adapter_is_unreachable_and_its_connections_are_over() {
    let mut pair = unconnected();
    let gone = pair.world.fabric.add_adapter(AdapterSettings::default()).unwrap();
    let address = IpAddr::V6(Ipv6Addr::LOCALHOST);
    gone.set_addresses(&[address]).unwrap();
    pair.world.first.set_addresses(&[FIRST, IpAddr::V6(Ipv6Addr::UNSPECIFIED)]).unwrap();
    let open = gone.open(Semantics::NDK, pair.world.consumer_object(1)).unwrap();
    let listener = open.create_listener(1, pair.world.consumer_object(2)).unwrap();
    listener.listen(SocketAddr::new(address, 7), 0).unwrap();
    gone.remove();
    assert_eq!(listener.local_address(), None);
    assert!(gone.open(Semantics::NDK, pair.world.consumer_object(1)).is_err());
    gone.start();
    let from = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
    assert_eq!(connect_to(&mut pair, from, SocketAddr::new(address, 7)), Err(ConnectError::HostUnreachable));
    drop((listener.close(1), open.close(1)));
    pair.world.run();
    pair.close();
}

/// The listener has given up; the endpoint is in use as long as the connection it led to.
#[test]
fn a_listener_whose_address_went_takes_no_connection_when_it_comes_back() {
    let mut pair = Pair::new();
    pair.world.second.set_addresses(&[]).unwrap();
    pair.world.run();
    pair.world.second.set_addresses(&[SECOND]).unwrap();
    let fresh = Side::beside(&pair.world, &pair.a, A);
    let request = Connect {
        queue_pair: &fresh.pair,
        source: Source::Address(SocketAddr::new(FIRST, 0)),
        destination: SocketAddr::new(SECOND, 445),
        limits: ReadLimits::default(),
        private_data: &[],
        callback: 1,
    };
    let asked = fresh.connector.connect(request);
    assert_eq!(pair.world.answer(asked, 1), Err(ConnectError::Refused));
    pair.close_other_side(&fresh);
    pair.close();
}

/// No service pass runs between the attempt and its end: no consumer gets an event of either.
#[test]
fn an_attempt_that_is_given_up_before_a_pass_comes_is_not_announced() {
    let mut pair = unconnected();
    pair.connect_request().unwrap();
    drop(pair.a.connector.close(A + CLOSE));
    let events = pair.world.run();
    assert!(!events.contains(&Event::Requested(B + 6)), "{events:?}");
    pair.close();
}

/// The peer allows no reads: neither side reports that at once, the Read does.
#[test]
fn a_connection_without_reads_refuses_them() {
    let mut pair = unconnected();
    pair.connect_request().unwrap();
    pair.world.run();
    pair.take_arrived();
    let accept = Accept {
        queue_pair: &pair.b.pair,
        limits: ReadLimits { inbound: 0, outbound: 1 },
        private_data: &[],
        disconnect: None,
        callback: 1,
    };
    pair.b.connector.accept(accept).unwrap();
    pair.world.run();
    pair.a.connector.complete_connect(None, 1).unwrap();
    pair.world.run();
    pair.b.pair.read(1, NONE, std::iter::empty(), 0, softndk_engine::MemoryToken::NONE).unwrap();
    assert_eq!(outcomes(&pair.b.initiator), [(1, Outcome::Success)]);
    pair.a.pair.read(1, NONE, std::iter::empty(), 0, softndk_engine::MemoryToken::NONE).unwrap();
    assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::InvalidRequest)]);
    pair.close();
}

/// The refusal is there, and the consumer has not heard of it.
#[test]
#[cfg_attr(feature = "streams", ignore = "about messages that arrive at once")]
fn a_connect_that_is_not_completed_yet_does_not_begin_again() {
    let mut pair = unconnected();
    pair.connect_request().unwrap();
    pair.world.run();
    let arrived = pair.world.events.arrived.pop().unwrap();
    arrived.reject(&[]).unwrap();
    assert_eq!(pair.connect_request(), Err(ConnectError::InvalidState));
    assert_eq!(pair.world.run(), [Event::Completed(A + CONNECT, Err(ConnectError::Refused))]);
    drop(arrived.close(1));
    pair.connect();
    pair.close();
}
