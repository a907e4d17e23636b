//! Connections: each step and its events, every way to be refused, private data, read limits, both kinds of
//! address, disconnecting from either side, giving up half-way.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use conformance::case;
use conformance::consumer::{
    Adapter, Buffer, Connector, End, Listener, Offer, Pair, QueuePair, QueuePairShape, Window, WindowKind, establish,
};
use conformance::machine::{Setup, wait_until, wait_until_idle, with_machine, with_two_adapters};
use conformance::peers;
use conformance::trial::Case;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{
    STATUS_BUFFER_TOO_SMALL, STATUS_CANCELLED, STATUS_CONNECTION_ABORTED, STATUS_CONNECTION_ACTIVE,
    STATUS_CONNECTION_INVALID, STATUS_CONNECTION_REFUSED, STATUS_HOST_UNREACHABLE, STATUS_INVALID_ADDRESS,
    STATUS_INVALID_BUFFER_SIZE, STATUS_SHARING_VIOLATION,
};

pub const CASES: &[Case] = &[
    case!(steps_complete_in_their_order: "NDK-CM-1", "NDK-CM-12", "NDK-CM-32"),
    case!(ipv4_and_ipv6_connect: "NDK-CM-9"),
    case!(addresses_are_those_of_the_connection: "NDK-CM-9", "NDK-CM-3"),
    case!(listen_on_port_zero_gives_an_ephemeral_port: "NDK-CM-3"),
    case!(listen_on_a_foreign_address_is_refused: "NDK-CM-2"),
    case!(listen_twice_on_an_address_is_refused: "NDK-CM-2"),
    case!(listening_address_is_free_after_close: "NDK-CM-2", "NDK-CM-10"),
    case!(connect_without_a_listener_is_refused: "NDK-CM-4"),
    case!(connect_to_a_paused_listener_is_refused: "NDK-CM-4", "NDK-CM-15"),
    case!(connect_to_an_address_no_context_has_is_unreachable: "NDK-CM-14"),
    case!(connect_to_another_wire_is_unreachable: "NDK-CM-14"),
    case!(reject_refuses_and_carries_data: "NDK-CM-4", "NDK-CM-16"),
    case!(closing_the_offered_connector_rejects: "NDK-CM-17"),
    case!(failed_connect_leaves_the_queue_pair_usable: "NDK-CM-36"),
    case!(private_data_follows_its_size_protocol: "NDK-CM-5", "NDK-CM-19"),
    case!(too_much_private_data_is_refused: "NDK-CM-18"),
    case!(read_limits_are_capped_by_both_sides: "NDK-CM-6", "NDK-CM-21"),
    case!(connected_queue_pair_cannot_connect_again: "NDK-CM-34"),
    case!(connector_that_gives_up_aborts_the_accept: "NDK-CM-11", "NDK-CM-30"),
    case!(accept_after_the_peer_gave_up_is_aborted: "NDK-CM-29"),
    case!(disconnect_waits_for_the_peer: "NDK-CM-7", "NDK-CM-22", "NDK-CM-25", "NDK-QP-14"),
    case!(disconnect_from_the_passive_side: "NDK-CM-7", "NDK-CM-22", "NDK-CM-25"),
    case!(disconnect_from_both_sides_at_once: "NDK-CM-26"),
    case!(disconnect_does_not_flush_the_peer: "NDK-CM-23", "NDK-CM-24"),
    case!(closing_a_connector_is_an_abort: "NDK-CM-8", "NDK-CM-23", "NDK-QP-14"),
    case!(closed_listener_refuses_at_once_and_waits_for_its_connectors: "NDK-CM-10", "NDK-CLOSE-11", "NDK-CLOSE-16"),
    case!(many_connections_over_one_listener: "NDK-CM-54"),
    case!(private_data_of_every_length_is_reported_alike: "NDK-CM-20", "NDK-CM-5", "NDK-CM-16"),
    case!(one_address_connects_to_itself_and_to_its_neighbours: "NDK-CM-51"),
    case!(address_and_port_do_not_connect_to_themselves: "NDK-CM-51", "NDK-CM-52"),
    case!(listener_that_does_not_listen_delivers_nothing: "NDK-CM-53", "NDK-CM-50"),
    case!(connect_event_may_answer_at_once: "NDK-CM-31", "NDK-CM-54"),
    case!(arrived_connector_outlives_the_listeners_close: "NDK-CM-10", "NDK-CM-31", "NDK-CLOSE-16"),
    case!(queue_pairs_closed_under_a_connect_go_with_their_connectors: "NDK-CM-11", "NDK-CLOSE-2"),
    case!(pausing_refuses_what_comes_and_keeps_what_has_come: "NDK-CM-15"),
    case!(attempts_end_when_an_address_goes: "NDK-CM-45", "NDK-CM-29"),
    case!(vanished_address_ends_its_listeners_and_connections: "NDK-CM-45"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();

fn port_zero(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), 0)
}

fn listener(adapter: &Adapter) -> Listener {
    let listener = Listener::new(adapter).expect("a listener");
    assert_eq!(listener.listen(port_zero(adapter.address())), 0);
    listener
}

fn steps_complete_in_their_order() {
    with_two_adapters(|first, second| {
        let active = End::new(first, QueuePairShape::default());
        let passive = End::new(second, QueuePairShape::default());
        let listener = listener(second);
        let connector = Connector::new(first).expect("a connector");
        let offer = Offer::default();
        let connecting =
            connector.begin_connect(&active.queue_pair, port_zero(first.address()), listener.local_address(), &offer);
        let accepted = listener.next();
        wait_until_idle();
        assert!(!connecting.is_done(), "Connect completed before the peer accepted");
        let accepting = accepted.begin_accept(&passive.queue_pair, &offer);
        assert_eq!(connecting.wait(), 0);
        wait_until_idle();
        assert!(!accepting.is_done(), "Accept completed before the peer completed the connect");
        assert_eq!(active.queue_pair.send(1, &[], NONE), STATUS_CONNECTION_INVALID, "posting before CompleteConnect");
        assert_eq!(connector.begin_complete_connect().wait(), 0);
        assert_eq!(accepting.wait(), 0);
        assert_eq!(passive.queue_pair.receive(1, &[]), 0);
        assert_eq!(active.queue_pair.send(1, &[], NONE), 0);
        assert_eq!(active.initiator.wait_for_one().Status, 0);
        wait_until_idle();
        assert_eq!((connector.disconnect_events(), accepted.disconnect_events()), (0, 0));
    });
}

fn ipv4_and_ipv6_connect() {
    with_two_adapters(|first, second| {
        let pairs = [(first.address(), second.address()), (first.address_v6(), second.address_v6())];
        for (from, to) in pairs {
            let active = End::new(first, QueuePairShape::default());
            let passive = End::new(second, QueuePairShape::default());
            let pair = Pair::join(active, passive, from, to);
            assert_eq!(pair.passive.queue_pair.receive(1, &[]), 0);
            assert_eq!(pair.active.queue_pair.send(1, &[], NONE), 0);
            assert_eq!(pair.active.initiator.wait_for_one().Status, 0, "{from} to {to}");
        }
    });
}

fn addresses_are_those_of_the_connection() {
    with_two_adapters(|first, second| {
        for (from, to) in [(first.address(), second.address()), (first.address_v6(), second.address_v6())] {
            let active = End::new(first, QueuePairShape::default());
            let passive = End::new(second, QueuePairShape::default());
            let pair = Pair::join(active, passive, from, to);
            let (near, peer) = (pair.active.connector(), pair.passive.connector());
            assert_eq!(near.local_address().ip(), from.ip());
            assert_eq!(near.peer_address(), pair.listener.local_address());
            assert_eq!(peer.local_address(), pair.listener.local_address());
            assert_eq!(peer.peer_address(), near.local_address());
            assert!(near.local_address().port() >= 49_152, "{}", near.local_address());
        }
    });
}

fn listen_on_port_zero_gives_an_ephemeral_port() {
    with_two_adapters(|first, _| {
        let listeners: Vec<Listener> = (0..20).map(|_| listener(first)).collect();
        let mut ports: Vec<u16> = listeners.iter().map(|listener| listener.local_address().port()).collect();
        assert!(ports.iter().all(|port| *port >= 49_152), "{ports:?}");
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 20, "a port was given twice");
    });
}

fn listen_on_a_foreign_address_is_refused() {
    with_two_adapters(|first, second| {
        let listener = Listener::new(first).expect("a listener");
        assert_eq!(listener.listen(second.address()), STATUS_INVALID_ADDRESS, "the other adapter's address");
        let unassigned = SocketAddr::from(([192, 0, 2, 1], 4000));
        assert_eq!(listener.listen(unassigned), STATUS_INVALID_ADDRESS);
    });
}

fn listen_twice_on_an_address_is_refused() {
    with_two_adapters(|first, _| {
        let one = Listener::new(first).expect("a listener");
        assert_eq!(one.listen(SocketAddr::new(first.address().ip(), 5445)), 0);
        let other = Listener::new(first).expect("a listener");
        assert_eq!(other.listen(SocketAddr::new(first.address().ip(), 5445)), STATUS_SHARING_VIOLATION);
        // Another address family is another endpoint.
        assert_eq!(other.listen(SocketAddr::new(first.address_v6().ip(), 5445)), 0);
    });
}

fn listening_address_is_free_after_close() {
    with_two_adapters(|first, second| {
        let address = SocketAddr::new(second.address().ip(), 5445);
        for _ in 0..3 {
            let listener = Listener::new(second).expect("a listener");
            assert_eq!(listener.listen(address), 0);
            let active = End::new(first, QueuePairShape::default());
            let passive = End::new(second, QueuePairShape::default());
            let from = (first, &active.queue_pair, port_zero(first.address()));
            let (near, peer) =
                establish(from, (&listener, &passive.queue_pair), &Offer::default()).expect("a connection");
            near.close();
            peer.close();
            listener.close();
        }
    });
}

/// The status with which a connect to `to` ends.
fn connect_status(first: &Adapter, to: SocketAddr) -> i32 {
    let end = End::new(first, QueuePairShape::default());
    let connector = Connector::new(first).expect("a connector");
    let from = if to.is_ipv4() { first.address() } else { first.address_v6() };
    connector.begin_connect(&end.queue_pair, port_zero(from), to, &Offer::default()).wait()
}

fn connect_without_a_listener_is_refused() {
    with_two_adapters(|first, second| {
        for address in [second.address(), second.address_v6()] {
            assert_eq!(connect_status(first, SocketAddr::new(address.ip(), 9)), STATUS_CONNECTION_REFUSED);
        }
    });
}

fn connect_to_a_paused_listener_is_refused() {
    with_two_adapters(|first, second| {
        let listener = listener(second);
        listener.pause_events(true);
        assert_eq!(connect_status(first, listener.local_address()), STATUS_CONNECTION_REFUSED);
        wait_until_idle();
        assert_eq!(listener.waiting(), 0);
        listener.pause_events(false);
        let active = End::new(first, QueuePairShape::default());
        let passive = End::new(second, QueuePairShape::default());
        let from = (first, &active.queue_pair, port_zero(first.address()));
        establish(from, (&listener, &passive.queue_pair), &Offer::default()).expect("a connection after resuming");
    });
}

fn connect_to_an_address_no_context_has_is_unreachable() {
    with_two_adapters(|first, _| {
        assert_eq!(connect_status(first, SocketAddr::from(([192, 0, 2, 1], 4000))), STATUS_HOST_UNREACHABLE);
    });
}

fn connect_to_another_wire_is_unreachable() {
    let mut setup = Setup::default();
    setup.adapters[1].keywords.push(("WireNumber", "7"));
    with_machine(&setup, |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let listener = listener(&second);
        assert_eq!(connect_status(&first, listener.local_address()), STATUS_HOST_UNREACHABLE);
        drop(listener);
    });
}

fn reject_refuses_and_carries_data() {
    with_two_adapters(|first, second| {
        let end = End::new(first, QueuePairShape::default());
        let listener = listener(second);
        let connector = Connector::new(first).expect("a connector");
        let from = port_zero(first.address());
        let connecting = connector.begin_connect(&end.queue_pair, from, listener.local_address(), &Offer::default());
        let offered = listener.next();
        assert_eq!(offered.reject(b"not today"), 0);
        assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
        assert!(connector.data().private_data.starts_with(b"not today"));
    });
}

fn closing_the_offered_connector_rejects() {
    with_two_adapters(|first, second| {
        let end = End::new(first, QueuePairShape::default());
        let listener = listener(second);
        let connector = Connector::new(first).expect("a connector");
        let from = port_zero(first.address());
        let connecting = connector.begin_connect(&end.queue_pair, from, listener.local_address(), &Offer::default());
        listener.next().close();
        assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
    });
}

fn failed_connect_leaves_the_queue_pair_usable() {
    with_two_adapters(|first, second| {
        let active = End::new(first, QueuePairShape::default());
        let passive = End::new(second, QueuePairShape::default());
        let connector = Connector::new(first).expect("a connector");
        let unused = SocketAddr::new(second.address().ip(), 9);
        let from = port_zero(first.address());
        let failed = connector.begin_connect(&active.queue_pair, from, unused, &Offer::default()).wait();
        assert_eq!(failed, STATUS_CONNECTION_REFUSED);
        connector.close();
        let pair = Pair::join(active, passive, first.address(), second.address());
        assert_eq!(pair.passive.queue_pair.receive(1, &[]), 0);
        assert_eq!(pair.active.queue_pair.send(1, &[], NONE), 0);
        assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
    });
}

fn private_data_follows_its_size_protocol() {
    with_two_adapters(|first, second| {
        let active = End::new(first, QueuePairShape::default());
        let passive = End::new(second, QueuePairShape::default());
        let listener = listener(second);
        let connector = Connector::new(first).expect("a connector");
        let caller = Offer { private_data: b"caller", ..Offer::default() };
        let from = port_zero(first.address());
        let connecting = connector.begin_connect(&active.queue_pair, from, listener.local_address(), &caller);
        let offered = listener.next();
        check_private_data(&offered, b"caller");
        let answer = Offer { private_data: b"callee!", ..Offer::default() };
        let accepting = offered.begin_accept(&passive.queue_pair, &answer);
        assert_eq!(connecting.wait(), 0);
        check_private_data(&connector, b"callee!");
        assert_eq!(connector.begin_complete_connect().wait(), 0);
        assert_eq!(accepting.wait(), 0);
        // Microsoft's sample asks for the limits after the connection is complete.
        connector.data();
    });
}

/// The table of NDK_FN_GET_CONNECTION_DATA: the required size is fixed, not what the peer sent.
fn check_private_data(connector: &Connector, sent: &[u8]) {
    let mut length = 0;
    assert_eq!(connector.connection_data(None, &mut length).0, 0, "a size query");
    let required = length as usize;
    assert!(required >= sent.len(), "{required} bytes required, {} sent", sent.len());
    let mut exact = vec![0xAA; required];
    assert_eq!(connector.connection_data(Some(&mut exact), &mut length).0, 0);
    assert_eq!(length as usize, required);
    assert!(exact.starts_with(sent));
    let mut large = vec![0xAA; required + 8];
    length = large.len() as u32;
    assert_eq!(connector.connection_data(Some(&mut large), &mut length).0, 0);
    assert_eq!(length as usize, required);
    assert_eq!(large[..required], exact[..]);
    assert_eq!(large[required..], [0xAA; 8], "bytes past the required size were written");
    let mut short = [0xAA; 4];
    length = 3;
    assert_eq!(connector.connection_data(Some(&mut short), &mut length).0, STATUS_BUFFER_TOO_SMALL);
    assert_eq!(length as usize, required);
    assert_eq!(short[..3], exact[..3], "as much as fits is copied");
    assert_eq!(short[3], 0xAA, "a byte past the buffer was written");
}

fn too_much_private_data_is_refused() {
    with_two_adapters(|first, second| {
        let info = first.info();
        let active = End::new(first, QueuePairShape::default());
        let passive = End::new(second, QueuePairShape::default());
        let listener = listener(second);
        let connector = Connector::new(first).expect("a connector");
        let (from, to) = (port_zero(first.address()), listener.local_address());
        let long = vec![1; info.MaxCallerData as usize + 1];
        let over = Offer { private_data: &long, ..Offer::default() };
        assert_eq!(connector.begin_connect(&active.queue_pair, from, to, &over).wait(), STATUS_INVALID_BUFFER_SIZE);
        let most = Offer { private_data: &long[1..], ..Offer::default() };
        let connecting = connector.begin_connect(&active.queue_pair, from, to, &most);
        let offered = listener.next();
        let long = vec![2; info.MaxCalleeData as usize + 1];
        let over = Offer { private_data: &long, ..Offer::default() };
        assert_eq!(offered.begin_accept(&passive.queue_pair, &over).wait(), STATUS_INVALID_BUFFER_SIZE);
        assert_eq!(offered.reject(&long), STATUS_INVALID_BUFFER_SIZE);
        let most = Offer { private_data: &long[1..], ..Offer::default() };
        let accepting = offered.begin_accept(&passive.queue_pair, &most);
        assert_eq!(connecting.wait(), 0);
        assert_eq!(connector.begin_complete_connect().wait(), 0);
        assert_eq!(accepting.wait(), 0);
    });
}

fn read_limits_are_capped_by_both_sides() {
    with_two_adapters(|first, second| {
        let info = first.info();
        let (most_in, most_out) = (info.MaxInboundReadLimit, info.MaxOutboundReadLimit);
        // Active in/out offer, passive in/out offer.
        let table = [
            ((4, 8), (6, 2)),
            ((0, 0), (4, 4)),
            ((16, 16), (0, 0)),
            ((u32::MAX, u32::MAX), (u32::MAX, u32::MAX)),
            ((1, 100), (100, 1)),
        ];
        for ((active_in, active_out), (passive_in, passive_out)) in table {
            let active = End::new(first, QueuePairShape::default());
            let passive = End::new(second, QueuePairShape::default());
            let listener = listener(second);
            let connector = Connector::new(first).expect("a connector");
            let offer = Offer { inbound_reads: active_in, outbound_reads: active_out, private_data: &[] };
            let from = port_zero(first.address());
            let connecting = connector.begin_connect(&active.queue_pair, from, listener.local_address(), &offer);
            let offered = listener.next();
            let data = offered.data();
            // A first frame may be a Read, so a stream offers one at least.
            let least = u32::from(peers::across_streams());
            let (near_in, near_out) = (active_in.min(most_in), active_out.min(most_out));
            assert_eq!(data.inbound_reads, most_in.min(near_out.max(least)), "what the passive side is offered in");
            assert_eq!(data.outbound_reads, most_out.min(near_in.max(least)), "what the passive side is offered out");
            let answer = Offer { inbound_reads: passive_in, outbound_reads: passive_out, private_data: &[] };
            let accepting = offered.begin_accept(&passive.queue_pair, &answer);
            assert_eq!(connecting.wait(), 0);
            let data = connector.data();
            let (peer_in, peer_out) = (passive_in.min(most_in), passive_out.min(most_out));
            assert_eq!(data.inbound_reads, near_in.min(peer_out), "effective inbound of {offer:?} and {answer:?}");
            assert_eq!(data.outbound_reads, near_out.min(peer_in), "effective outbound of {offer:?} and {answer:?}");
            assert_eq!(connector.begin_complete_connect().wait(), 0);
            assert_eq!(accepting.wait(), 0);
        }
    });
}

fn connected_queue_pair_cannot_connect_again() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let connector = Connector::new(first).expect("a connector");
        let (from, to) = (port_zero(first.address()), pair.listener.local_address());
        let again = connector.begin_connect(&pair.active.queue_pair, from, to, &Offer::default()).wait();
        assert_eq!(again, STATUS_CONNECTION_ACTIVE);
    });
}

fn connector_that_gives_up_aborts_the_accept() {
    with_two_adapters(|first, second| {
        for reject in [false, true] {
            let active = End::new(first, QueuePairShape::default());
            let passive = End::new(second, QueuePairShape::default());
            let listener = listener(second);
            let connector = Connector::new(first).expect("a connector");
            let from = port_zero(first.address());
            let connecting =
                connector.begin_connect(&active.queue_pair, from, listener.local_address(), &Offer::default());
            let accepting = listener.next();
            let accepting = (accepting.begin_accept(&passive.queue_pair, &Offer::default()), accepting);
            assert_eq!(connecting.wait(), 0);
            if reject {
                assert_eq!(connector.reject(&[]), 0);
            } else {
                connector.close();
            }
            assert_eq!(accepting.0.wait(), STATUS_CONNECTION_ABORTED, "reject: {reject}");
            wait_until_idle();
            assert_eq!(accepting.1.disconnect_events(), 0, "the passive side gets the failed Accept and no event");
        }
    });
}

fn accept_after_the_peer_gave_up_is_aborted() {
    with_two_adapters(|first, second| {
        let active = End::new(first, QueuePairShape::default());
        let passive = End::new(second, QueuePairShape::default());
        let listener = listener(second);
        let connector = Connector::new(first).expect("a connector");
        let from = port_zero(first.address());
        let connecting = connector.begin_connect(&active.queue_pair, from, listener.local_address(), &Offer::default());
        let offered = listener.next();
        connector.close();
        assert!(connecting.wait() < 0, "a connect whose connector was closed");
        assert_eq!(offered.begin_accept(&passive.queue_pair, &Offer::default()).wait(), STATUS_CONNECTION_ABORTED);
    });
}

/// One side disconnects, the other gets one event and answers.
fn disconnect(near: &End<'_>, peer: &End<'_>) {
    let leaving = near.connector().begin_disconnect();
    assert!(peer.connector().wait_for_disconnect(), "the peer gets a disconnect event");
    wait_until_idle();
    assert!(!leaving.is_done(), "Disconnect completed before the peer answered");
    assert_eq!(peer.connector().begin_disconnect().wait(), 0, "the answer to a disconnect");
    assert_eq!(leaving.wait(), 0);
    wait_until_idle();
    assert_eq!(peer.connector().disconnect_events(), 1);
    assert_eq!(near.connector().disconnect_events(), 0, "the disconnecting side gets no event");
    assert_eq!(near.queue_pair.send(1, &[], NONE), 0, "a post on an ended connection");
    assert_eq!(near.initiator.wait_for_one().Status, STATUS_CANCELLED);
}

fn disconnect_waits_for_the_peer() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        disconnect(&pair.active, &pair.passive);
    });
}

fn disconnect_from_the_passive_side() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        disconnect(&pair.passive, &pair.active);
    });
}

fn disconnect_from_both_sides_at_once() {
    with_two_adapters(|first, second| {
        for _ in 0..20 {
            let pair = Pair::connect(first, second);
            let near = pair.active.connector().begin_disconnect();
            let peer = pair.passive.connector().begin_disconnect();
            assert_eq!((near.wait(), peer.wait()), (0, 0));
            // The event may race with the own Disconnect, but comes at most once; the callback checks that.
        }
    });
}

fn disconnect_does_not_flush_the_peer() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let buffer = Window::open(&pair.passive, Buffer::scattered(64), WindowKind::Registered);
        assert_eq!(pair.passive.queue_pair.receive(1, &[buffer.sge(0..64)]), 0);
        let near = Window::open(&pair.active, Buffer::scattered(64), WindowKind::Registered);
        assert_eq!(pair.active.queue_pair.receive(2, &[near.sge(0..64)]), 0);
        let leaving = pair.active.connector().begin_disconnect();
        assert!(pair.passive.connector().wait_for_disconnect());
        wait_until_idle();
        assert!(pair.passive.receive.take(4).is_empty(), "an incoming disconnect flushed a receive");
        assert_eq!(pair.passive.connector().begin_disconnect().wait(), 0);
        assert_eq!(leaving.wait(), 0);
        // The own Disconnect flushes, on both sides by now.
        assert_eq!(pair.passive.receive.wait_for_one().Status, STATUS_CANCELLED);
        assert_eq!(pair.active.receive.wait_for_one().Status, STATUS_CANCELLED);
    });
}

fn closing_a_connector_is_an_abort() {
    with_two_adapters(|first, second| {
        for passive in [false, true] {
            let pair = Pair::connect(first, second);
            peers::speak(&pair.passive);
            let (near, peer) = if passive { (&pair.passive, &pair.active) } else { (&pair.active, &pair.passive) };
            assert_eq!(peer.queue_pair.receive(7, &[]), 0);
            near.connector().close();
            assert!(peer.connector().wait_for_disconnect(), "the peer of a closed connector gets an event");
            wait_until_idle();
            assert!(peer.receive.take(4).is_empty(), "the peer's end flushed a receive");
            assert_eq!(peer.connector().disconnect_events(), 1);
            assert_eq!(near.connector().disconnect_events(), 0);
            assert_eq!(peer.queue_pair.send(1, &[], NONE), 0);
            assert_eq!(peer.initiator.wait_for_one().Status, STATUS_CANCELLED);
        }
    });
}

fn closed_listener_refuses_at_once_and_waits_for_its_connectors() {
    with_two_adapters(|first, second| {
        let pair = Pair::connect(first, second);
        let address = pair.listener.local_address();
        let closing = pair.listener.object().begin_close();
        assert_eq!(connect_status(first, address), STATUS_CONNECTION_REFUSED);
        wait_until_idle();
        assert!(!closing.is_done(), "the listener's close completed while its connector is open");
        assert_eq!(pair.passive.queue_pair.receive(1, &[]), 0);
        assert_eq!(pair.active.queue_pair.send(1, &[], NONE), 0, "its connections go on");
        assert_eq!(pair.active.initiator.wait_for_one().Status, 0);
        pair.passive.connector().close();
        closing.wait();
    });
}

fn many_connections_over_one_listener() {
    with_two_adapters(|first, second| {
        let listener = listener(second);
        let mut open = Vec::new();
        for _ in 0..50 {
            let active = End::new(first, QueuePairShape::default());
            let passive = End::new(second, QueuePairShape::default());
            let from = (first, &active.queue_pair, port_zero(first.address()));
            let connection = establish(from, (&listener, &passive.queue_pair), &Offer::default());
            let (near, peer) = connection.expect("a connection");
            assert_eq!(passive.queue_pair.receive(1, &[]), 0);
            assert_eq!(active.queue_pair.send(1, &[], NONE), 0);
            assert_eq!(active.initiator.wait_for_one().Status, 0);
            open.push((near, peer, active, passive));
        }
    });
}

fn vanished_address_ends_its_listeners_and_connections() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let pair = Pair::connect(&first, &second);
        let (lost, listening) = (second.address(), pair.listener.local_address());
        machine.remove_address(1, lost.ip());
        assert!(pair.active.connector().wait_for_disconnect(), "the peer of the lost address gets an event");
        assert_eq!(connect_status(&first, listening), STATUS_HOST_UNREACHABLE);
        let again = Listener::new(&second).expect("a listener");
        assert_eq!(again.listen(SocketAddr::new(lost.ip(), 0)), STATUS_INVALID_ADDRESS);
    });
}

/// Private data of no, one and the most bytes: the size is the connection's, the rest is zero.
fn check_data_of(connector: &Connector, sent: &[u8], most: u32) {
    let data = connector.data().private_data;
    assert_eq!(data.len(), most as usize, "{} bytes were sent", sent.len());
    let (bytes, rest) = data.split_at(sent.len());
    assert_eq!(bytes, sent);
    assert!(rest.iter().all(|byte| *byte == 0), "bytes that were not sent");
}

fn private_data_of_every_length_is_reported_alike() {
    with_two_adapters(|first, second| {
        let info = first.info();
        let (most, most_back) = (info.MaxCallerData, info.MaxCalleeData);
        let (active, passive) =
            (End::new(first, QueuePairShape::default()), End::new(second, QueuePairShape::default()));
        let listener = listener(second);
        let from = port_zero(first.address());
        for (ask, answer) in [(0, 0), (1, 1), (most, most_back), (0, most_back), (most, 0)] {
            let asked: Vec<u8> = (0..ask).map(|byte| byte as u8 | 0x80).collect();
            let answered: Vec<u8> = (0..answer).map(|byte| byte as u8 | 0x40).collect();
            let connector = Connector::new(first).expect("a connector");
            let question = Offer { private_data: &asked, ..Offer::default() };
            let answer = Offer { private_data: &answered, ..Offer::default() };
            let to = listener.local_address();
            let connecting = connector.begin_connect(&active.queue_pair, from, to, &question);
            let offered = listener.next();
            check_data_of(&offered, &asked, most);
            assert_eq!(offered.reject(&answered), 0);
            assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
            check_data_of(&connector, &answered, most_back);
            let connecting = connector.begin_connect(&active.queue_pair, from, to, &question);
            let offered = listener.next();
            let accepting = offered.begin_accept(&passive.queue_pair, &answer);
            assert_eq!(connecting.wait(), 0);
            check_data_of(&connector, &answered, most_back);
            assert_eq!(connector.reject(&answered), 0);
            assert_eq!(accepting.wait(), STATUS_CONNECTION_ABORTED);
        }
    });
}

fn one_address_connects_to_itself_and_to_its_neighbours() {
    let mut setup = Setup::default();
    setup.adapters[0].addresses.push([10, 0, 0, 11].into());
    with_machine(&setup, |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let other = SocketAddr::from(([10, 0, 0, 11], 0));
        let ways = [
            (&first, first.address(), first.address()),
            (&first, first.address_v6(), first.address_v6()),
            (&first, first.address(), other),
            (&first, other, first.address()),
            (&second, first.address(), second.address()),
            (&second, other, second.address()),
        ];
        for (passive, from, to) in ways {
            let active = End::new(&first, QueuePairShape::default());
            let passive = End::new(passive, QueuePairShape::default());
            let pair = Pair::join(active, passive, from, to);
            assert_eq!(pair.passive.queue_pair.receive(1, &[]), 0);
            assert_eq!(pair.active.queue_pair.send(1, &[], NONE), 0);
            assert_eq!(pair.active.initiator.wait_for_one().Status, 0, "{from} to {to}");
        }
    });
}

fn address_and_port_do_not_connect_to_themselves() {
    with_two_adapters(|first, _| {
        let end = End::new(first, QueuePairShape::default());
        let listener = listener(first);
        let connector = Connector::new(first).expect("a connector");
        let here = listener.local_address();
        let connecting = connector.begin_connect(&end.queue_pair, here, here, &Offer::default());
        assert_eq!(connecting.wait(), STATUS_SHARING_VIOLATION);
        wait_until_idle();
        assert_eq!(listener.waiting(), 0);
    });
}

fn listener_that_does_not_listen_delivers_nothing() {
    with_two_adapters(|first, second| {
        let idle = Listener::new(second).expect("a listener");
        for port in [5445, 49_152, 65_535] {
            let to = SocketAddr::new(second.address().ip(), port);
            assert_eq!(connect_status(first, to), STATUS_CONNECTION_REFUSED);
        }
        wait_until_idle();
        assert_eq!(idle.waiting(), 0);
        idle.close();
    });
}

fn connect_event_may_answer_at_once() {
    with_two_adapters(|first, second| {
        // Reject, close, accept: each inside the callback.
        let listener = listener(second);
        let to = listener.local_address();
        listener.on_connect(|connector| {
            assert_eq!(connector.peer_address().ip().to_string(), "10.0.0.1");
            assert!(connector.data().private_data.len() >= 5);
            assert_eq!(connector.reject(b"full"), 0);
            connector.object().begin_close();
        });
        assert_eq!(connect_status(first, to), STATUS_CONNECTION_REFUSED);
        listener.on_connect(|connector| {
            connector.object().begin_close();
        });
        assert_eq!(connect_status(first, to), STATUS_CONNECTION_REFUSED);
        let passive = End::new(second, QueuePairShape::default());
        let kept = Arc::new(Mutex::new(None));
        let (keep, pair) = (kept.clone(), std::ptr::from_ref(&passive.queue_pair) as usize);
        listener.on_connect(move |connector| {
            // SAFETY: the queue pair stays where it is until the trial ends, which is after the event.
            let pair = unsafe { &*(pair as *const QueuePair) };
            let accepting = connector.begin_accept(pair, &Offer::default());
            *keep.lock().expect("one event at a time") = Some((connector, accepting));
        });
        let active = End::new(first, QueuePairShape::default());
        let connector = Connector::new(first).expect("a connector");
        let from = port_zero(first.address());
        assert_eq!(connector.begin_connect(&active.queue_pair, from, to, &Offer::default()).wait(), 0);
        assert_eq!(connector.begin_complete_connect().wait(), 0);
        // The callback goes on behind the Accept that this end has seen.
        wait_until("the callback has kept its connector", || kept.lock().expect("one event at a time").is_some());
        let (accepted, accepting) = kept.lock().expect("one event at a time").take().expect("an event");
        assert_eq!(accepting.wait(), 0);
        accepted.close();
        connector.close();
    });
}

fn arrived_connector_outlives_the_listeners_close() {
    with_two_adapters(|first, second| {
        let (active, passive) =
            (End::new(first, QueuePairShape::default()), End::new(second, QueuePairShape::default()));
        let listener = listener(second);
        let connector = Connector::new(first).expect("a connector");
        let (from, to) = (port_zero(first.address()), listener.local_address());
        let connecting = connector.begin_connect(&active.queue_pair, from, to, &Offer::default());
        let offered = listener.next();
        let closing = listener.object().begin_close();
        assert_eq!(connect_status(first, to), STATUS_CONNECTION_REFUSED);
        let accepting = offered.begin_accept(&passive.queue_pair, &Offer::default());
        assert_eq!(connecting.wait(), 0);
        assert_eq!(connector.begin_complete_connect().wait(), 0);
        assert_eq!(accepting.wait(), 0);
        assert_eq!(passive.queue_pair.receive(1, &[]), 0);
        assert_eq!(active.queue_pair.send(1, &[], NONE), 0);
        assert_eq!(active.initiator.wait_for_one().Status, 0);
        assert!(!closing.is_done(), "the listener's close waits for the connectors it produced");
        offered.close();
        closing.wait();
    });
}

fn queue_pairs_closed_under_a_connect_go_with_their_connectors() {
    with_two_adapters(|first, second| {
        // Before the answer, after it, and on the accepting side.
        for step in 0..3 {
            let (active, passive) =
                (End::new(first, QueuePairShape::default()), End::new(second, QueuePairShape::default()));
            let listener = listener(second);
            let connector = Connector::new(first).expect("a connector");
            let (from, to) = (port_zero(first.address()), listener.local_address());
            let connecting = connector.begin_connect(&active.queue_pair, from, to, &Offer::default());
            let offered = listener.next();
            let accepting = (step > 0).then(|| offered.begin_accept(&passive.queue_pair, &Offer::default()));
            if accepting.is_some() {
                assert_eq!(connecting.wait(), 0);
            }
            let (pair, own, other) = if step < 2 {
                (&active.queue_pair, &connector, &offered)
            } else {
                (&passive.queue_pair, &offered, &connector)
            };
            let closing = pair.object().begin_close();
            wait_until_idle();
            assert!(!closing.is_done(), "a queue pair's close waits for its connector, step {step}");
            own.close();
            closing.wait();
            // The other end has heard of it.
            wait_until_idle();
            if step == 0 {
                assert!(connecting.wait() < 0, "a Connect whose connector was closed");
                assert_eq!(other.reject(&[]), STATUS_CONNECTION_ABORTED);
            } else if step == 1 {
                assert_eq!(accepting.map(|started| started.wait()), Some(STATUS_CONNECTION_ABORTED));
            } else {
                assert_eq!(other.begin_complete_connect().wait(), STATUS_CONNECTION_ABORTED);
            }
            other.close();
        }
    });
}

fn pausing_refuses_what_comes_and_keeps_what_has_come() {
    with_two_adapters(|first, second| {
        let (active, passive) =
            (End::new(first, QueuePairShape::default()), End::new(second, QueuePairShape::default()));
        let listener = listener(second);
        let connector = Connector::new(first).expect("a connector");
        let (from, to) = (port_zero(first.address()), listener.local_address());
        let connecting = connector.begin_connect(&active.queue_pair, from, to, &Offer::default());
        let offered = listener.next();
        for pause in [true, true, false, true] {
            listener.pause_events(pause);
        }
        assert_eq!(connect_status(first, to), STATUS_CONNECTION_REFUSED);
        let accepting = offered.begin_accept(&passive.queue_pair, &Offer::default());
        assert_eq!(connecting.wait(), 0);
        assert_eq!(connector.begin_complete_connect().wait(), 0);
        assert_eq!(accepting.wait(), 0);
        assert_eq!(listener.local_address(), to, "a paused listener keeps its address");
        assert_eq!(Listener::new(second).expect("a listener").listen(to), STATUS_SHARING_VIOLATION);
    });
}

fn attempts_end_when_an_address_goes() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        for (index, accepts) in [(0, false), (1, false), (0, true), (1, true)] {
            let lost = if index == 0 { first.address().ip() } else { second.address().ip() };
            let (active, passive) =
                (End::new(&first, QueuePairShape::default()), End::new(&second, QueuePairShape::default()));
            let listener = listener(&second);
            let connector = Connector::new(&first).expect("a connector");
            let (from, to) = (port_zero(first.address()), listener.local_address());
            let connecting = connector.begin_connect(&active.queue_pair, from, to, &Offer::default());
            let offered = listener.next();
            let accepting = accepts.then(|| offered.begin_accept(&passive.queue_pair, &Offer::default()));
            if accepts {
                assert_eq!(connecting.wait(), 0);
            }
            machine.remove_address(index, lost);
            if let Some(accepting) = accepting {
                assert_eq!(accepting.wait(), STATUS_CONNECTION_ABORTED);
                assert_eq!(connector.begin_complete_connect().wait(), STATUS_CONNECTION_ABORTED);
            } else {
                let refused = connecting.wait();
                assert!([STATUS_CONNECTION_ABORTED, STATUS_CONNECTION_REFUSED].contains(&refused), "{refused:#010x}");
                assert_eq!(offered.reject(&[]), STATUS_CONNECTION_ABORTED);
            }
            wait_until_idle();
            assert_eq!((connector.disconnect_events(), offered.disconnect_events()), (0, 0));
            machine.add_address(index, lost);
            connector.close();
            offered.close();
        }
    });
}
