//! Endpoints: shared ones and connections over them, listeners on every address, addresses and ports in use and free
//! again, addresses that are removed and added again, zones of link-local addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use conformance::case;
use conformance::consumer::{Adapter, Connector, End, Listener, Offer, QueuePairShape, SharedEndpoint, Started};
use conformance::machine::{AdapterSetup, Machine, Setup, wait_until_idle, with_machine, with_two_adapters};
use conformance::peers;
use conformance::trial::Case;
use kernel_host::Mode;
use kernel_host::netio::address_table::DetectionState;
use ndkpi_sys::ndis::OID_NDK_LOCAL_ENDPOINTS;
use ndkpi_sys::ndkpi::NDK_OP_FLAGS;
use ndkpi_sys::nt::{
    STATUS_ADDRESS_ALREADY_EXISTS, STATUS_CONNECTION_REFUSED, STATUS_HOST_UNREACHABLE, STATUS_INVALID_ADDRESS,
    STATUS_NETWORK_UNREACHABLE, STATUS_PENDING, STATUS_SHARING_VIOLATION, STATUS_TOO_MANY_ADDRESSES,
};

pub const CASES: &[Case] = &[
    case!(connectors_share_an_endpoint_to_different_remotes: "NDK-EP-8", "NDK-EP-9", "NDK-EP-6"),
    case!(second_connection_between_the_same_ends_is_refused: "NDK-EP-9", "NDK-CM-37"),
    case!(shared_endpoint_is_refused_where_it_cannot_be: "NDK-EP-4", "NDK-EP-5"),
    case!(shared_endpoint_is_in_use_until_its_connectors_are_closed: "NDK-EP-3", "NDK-CLOSE-12"),
    case!(failed_connect_lets_the_shared_endpoint_go: "NDK-EP-9", "NDK-CM-36"),
    case!(listening_address_is_in_use_until_accepted_connectors_are_closed: "NDK-EP-1", "NDK-CM-2"),
    case!(connecting_address_is_in_use_until_the_connector_is_closed: "NDK-EP-2", "NDK-CM-52"),
    case!(ephemeral_ports_run_out_and_come_back: "NDK-CM-13", "NDK-EP-7"),
    case!(connect_from_a_wrong_address_is_refused: "NDK-CM-52"),
    case!(wildcard_listener_takes_connections_to_every_address: "NDK-CM-42", "NDK-CM-43", "NDK-CM-9"),
    case!(wildcard_and_specific_listener_exclude_each_other: "NDK-CM-44"),
    case!(wildcard_listener_on_port_zero_has_a_free_port_everywhere: "NDK-CM-44", "NDK-CM-3"),
    case!(addresses_may_come_and_go_under_a_wildcard_listener: "NDK-CM-42", "NDK-CM-45", "NDK-CM-46"),
    case!(vanished_address_stops_its_shared_endpoint_until_it_is_back: "NDK-CM-45", "NDK-CM-46"),
    case!(address_that_comes_back_is_listened_on_and_connected_to: "NDK-CM-46"),
    case!(address_is_used_only_when_duplicate_address_detection_has_cleared_it: "NDK-CM-56", "NDK-CM-45", "NDK-CM-46"),
    case!(link_local_addresses_carry_the_zone_of_their_interface: "NDK-CM-9", "NDK-CM-50"),
    case!(shared_endpoints_are_listed_as_such: "NDIS-OID-20"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
const EVERYWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

fn at(adapter: &Adapter, port: u16) -> SocketAddr {
    SocketAddr::new(adapter.address().ip(), port)
}

/// A listener that has been asked to listen, and the answer.
fn listen(adapter: &Adapter, address: SocketAddr) -> (Listener, i32) {
    let listener = Listener::new(adapter).expect("a listener");
    let status = listener.listen(address);
    (listener, status)
}

fn listener(adapter: &Adapter, address: SocketAddr) -> Listener {
    let (listener, status) = listen(adapter, address);
    assert_eq!(status, 0, "listening at {address}");
    listener
}

fn shared(adapter: &Adapter, address: SocketAddr) -> SharedEndpoint {
    SharedEndpoint::new(adapter, address).expect("a shared endpoint")
}

/// The status of a connect from `from` to `to` without an Accept.
fn connect_status(adapter: &Adapter, from: SocketAddr, to: SocketAddr) -> i32 {
    let end = End::new(adapter, QueuePairShape::default());
    let connector = Connector::new(adapter).expect("a connector");
    connector.begin_connect(&end.queue_pair, from, to, &Offer::default()).wait()
}

/// Takes a started connect through its other steps; the connectors of both ends.
fn finish(connector: Connector, connecting: Started, listener: &Listener, passive: &End<'_>) -> (Connector, Connector) {
    assert_eq!(connecting.inline(), STATUS_PENDING);
    let arrived = listener.next();
    let accepting = arrived.begin_accept(&passive.queue_pair, &Offer::default());
    assert_eq!(connecting.wait(), 0);
    assert_eq!(connector.begin_complete_connect().wait(), 0);
    assert_eq!(accepting.wait(), 0);
    (connector, arrived)
}

/// Connects `active` over a shared endpoint to a listener.
fn connect_over(
    endpoint: &SharedEndpoint,
    active: &End<'_>,
    listener: &Listener,
    passive: &End<'_>,
) -> (Connector, Connector) {
    let connector = Connector::new(active.adapter).expect("a connector");
    let to = listener.local_address();
    let connecting = connector.begin_connect_shared(&active.queue_pair, endpoint, to, &Offer::default());
    finish(connector, connecting, listener, passive)
}

/// What a connect over a shared endpoint answers when it cannot succeed.
fn shared_status(endpoint: &SharedEndpoint, adapter: &Adapter, to: SocketAddr) -> i32 {
    let end = End::new(adapter, QueuePairShape::default());
    let connector = Connector::new(adapter).expect("a connector");
    connector.begin_connect_shared(&end.queue_pair, endpoint, to, &Offer::default()).wait()
}

fn carries(active: &End<'_>, passive: &End<'_>) {
    assert_eq!(passive.queue_pair.receive(1, &[]), 0);
    assert_eq!(active.queue_pair.send(1, &[], NONE), 0);
    assert_eq!(active.initiator.wait_for_one().Status, 0);
    assert_eq!(passive.receive.wait_for_one().Status, 0);
}

fn ends<'a>(first: &'a Adapter, second: &'a Adapter) -> (End<'a>, End<'a>) {
    (End::new(first, QueuePairShape::default()), End::new(second, QueuePairShape::default()))
}

fn connectors_share_an_endpoint_to_different_remotes() {
    with_two_adapters(|first, second| {
        let endpoint = shared(first, at(first, 0));
        let local = endpoint.local_address();
        assert_eq!(local.ip(), first.address().ip());
        assert!(local.port() >= 49_152, "{local}");
        let mut open = Vec::new();
        for port in [0, 0, 0] {
            let listener = listener(second, at(second, port));
            let (active, passive) = ends(first, second);
            let (near, peer) = connect_over(&endpoint, &active, &listener, &passive);
            assert_eq!(
                (near.local_address(), peers::without_port(peer.peer_address())),
                (local, peers::without_port(local))
            );
            carries(&active, &passive);
            open.push((near, peer, active, passive, listener));
        }
    });
}

fn second_connection_between_the_same_ends_is_refused() {
    with_two_adapters(|first, second| {
        let endpoint = shared(first, at(first, 6000));
        let listener = listener(second, at(second, 6001));
        let (active, passive) = ends(first, second);
        let (near, peer) = connect_over(&endpoint, &active, &listener, &passive);
        assert_eq!(shared_status(&endpoint, first, at(second, 6001)), STATUS_ADDRESS_ALREADY_EXISTS);
        // Also while the first is still being made, and again when it is closed.
        near.close();
        peer.close();
        let (active, passive) = ends(first, second);
        let connector = Connector::new(first).expect("a connector");
        let to = listener.local_address();
        let connecting = connector.begin_connect_shared(&active.queue_pair, &endpoint, to, &Offer::default());
        assert_eq!(shared_status(&endpoint, first, to), STATUS_ADDRESS_ALREADY_EXISTS);
        let (near, _peer) = finish(connector, connecting, &listener, &passive);
        carries(&active, &passive);
        near.close();
    });
}

fn shared_endpoint_is_refused_where_it_cannot_be() {
    with_two_adapters(|first, second| {
        let create = |address| SharedEndpoint::new(first, address).err();
        assert_eq!(create(second.address()), Some(STATUS_INVALID_ADDRESS), "the other adapter's address");
        assert_eq!(create(SocketAddr::new(EVERYWHERE, 7000)), Some(STATUS_INVALID_ADDRESS), "no address at all");
        let endpoint = shared(first, at(first, 7000));
        assert_eq!(create(at(first, 7000)), Some(STATUS_SHARING_VIOLATION));
        assert_eq!(listen(first, at(first, 7000)).1, STATUS_SHARING_VIOLATION);
        let there = listener(second, at(second, 7000));
        assert_eq!(connect_status(first, at(first, 7000), there.local_address()), STATUS_SHARING_VIOLATION);
        endpoint.close();
        let listening = listener(first, at(first, 7000));
        assert_eq!(create(at(first, 7000)), Some(STATUS_SHARING_VIOLATION));
        listening.close();
        shared(first, at(first, 7000)).close();
    });
}

fn shared_endpoint_is_in_use_until_its_connectors_are_closed() {
    with_two_adapters(|first, second| {
        let endpoint = shared(first, at(first, 7100));
        let listener_there = listener(second, at(second, 7101));
        let (active, passive) = ends(first, second);
        let (near, _peer) = connect_over(&endpoint, &active, &listener_there, &passive);
        let closing = endpoint.object().begin_close();
        wait_until_idle();
        assert!(!closing.is_done(), "the shared endpoint's close completed while a connector is connected over it");
        assert_eq!(listen(first, at(first, 7100)).1, STATUS_SHARING_VIOLATION);
        carries(&active, &passive);
        peers::speak(&passive);
        let last = near.object().begin_close();
        closing.wait();
        last.wait();
        assert!(last.may_precede(&closing), "the connector is closed before what it connected over");
        listener(first, at(first, 7100)).close();
    });
}

fn failed_connect_lets_the_shared_endpoint_go() {
    with_two_adapters(|first, second| {
        let endpoint = shared(first, at(first, 0));
        let listener = listener(second, at(second, 0));
        let (active, passive) = ends(first, second);
        let connector = Connector::new(first).expect("a connector");
        let to = listener.local_address();
        let connect = |to| connector.begin_connect_shared(&active.queue_pair, &endpoint, to, &Offer::default());
        assert_eq!(connect(at(second, 9)).wait(), STATUS_CONNECTION_REFUSED);
        let rejected = connect(to);
        assert_eq!(listener.next().reject(&[]), 0);
        assert_eq!(rejected.wait(), STATUS_CONNECTION_REFUSED);
        // The same connector, queue pair and remote once more.
        let connecting = connect(to);
        let (near, _peer) = finish(connector, connecting, &listener, &passive);
        carries(&active, &passive);
        near.close();
    });
}

fn listening_address_is_in_use_until_accepted_connectors_are_closed() {
    with_two_adapters(|first, second| {
        let here = at(second, 7200);
        let listening = listener(second, here);
        let (active, passive) = ends(first, second);
        let connector = Connector::new(first).expect("a connector");
        let connecting = connector.begin_connect(&active.queue_pair, at(first, 0), here, &Offer::default());
        let (near, peer) = finish(connector, connecting, &listening, &passive);
        let closing = listening.object().begin_close();
        assert_eq!(listen(second, here).1, STATUS_SHARING_VIOLATION, "the accepted connector counts");
        near.close();
        assert!(peer.wait_for_disconnect());
        assert_eq!(listen(second, here).1, STATUS_SHARING_VIOLATION, "until it is closed, whatever its state");
        peer.close();
        closing.wait();
        listener(second, here).close();
    });
}

fn connecting_address_is_in_use_until_the_connector_is_closed() {
    with_two_adapters(|first, second| {
        let (from, listening) = (at(first, 7300), listener(second, at(second, 0)));
        let other = listener(second, at(second, 0));
        let (active, passive) = ends(first, second);
        let connector = Connector::new(first).expect("a connector");
        let to = listening.local_address();
        let connecting = connector.begin_connect(&active.queue_pair, from, to, &Offer::default());
        assert_eq!(connect_status(first, from, other.local_address()), STATUS_SHARING_VIOLATION, "while connecting");
        let (near, peer) = finish(connector, connecting, &listening, &passive);
        for to in [to, other.local_address()] {
            assert_eq!(connect_status(first, from, to), STATUS_SHARING_VIOLATION, "while connected");
        }
        assert_eq!(listen(first, from).1, STATUS_SHARING_VIOLATION);
        peer.close();
        assert!(near.wait_for_disconnect());
        assert_eq!(listen(first, from).1, STATUS_SHARING_VIOLATION, "ended and not closed");
        near.close();
        listener(first, from).close();
        // A refused connect does not keep the address.
        assert_eq!(connect_status(first, from, at(second, 9)), STATUS_CONNECTION_REFUSED);
        listener(first, from).close();
    });
}

fn ephemeral_ports_run_out_and_come_back() {
    // So many objects are too many for a guard page each.
    let mut setup = Setup::default();
    setup.kernel.mode = Mode::Fast;
    with_machine(&setup, |machine| {
        let (first, second) = (&machine.open(0), &machine.open(1));
        let mut all: Vec<SharedEndpoint> = (0..16_384).map(|_| shared(first, at(first, 0))).collect();
        assert_eq!(SharedEndpoint::new(first, at(first, 0)).err(), Some(STATUS_TOO_MANY_ADDRESSES));
        assert_eq!(listen(first, at(first, 0)).1, STATUS_TOO_MANY_ADDRESSES);
        let there = listener(second, at(second, 0));
        assert_eq!(connect_status(first, at(first, 0), there.local_address()), STATUS_TOO_MANY_ADDRESSES);
        // Other ports, the other family and the other adapter are not concerned.
        shared(first, at(first, 80)).close();
        shared(first, SocketAddr::new(first.address_v6().ip(), 0)).close();
        let freed = all.swap_remove(9000);
        let port = freed.local_address().port();
        freed.close();
        let again = listener(first, at(first, 0));
        assert_eq!(again.local_address().port(), port);
    });
}

fn connect_from_a_wrong_address_is_refused() {
    with_two_adapters(|first, second| {
        let there = listener(second, at(second, 0));
        for from in [at(second, 0), SocketAddr::new(EVERYWHERE, 0), SocketAddr::from(([192, 0, 2, 1], 0))] {
            assert_eq!(connect_status(first, from, there.local_address()), STATUS_INVALID_ADDRESS, "from {from}");
        }
        let other_family = SocketAddr::new(first.address_v6().ip(), 0);
        assert_eq!(connect_status(first, other_family, there.local_address()), STATUS_INVALID_ADDRESS);
    });
}

/// Two adapters, the second with two addresses of each family.
fn with_addresses(trial: impl FnOnce(&Machine, &Adapter, &Adapter)) {
    let mut setup = Setup::default();
    setup.adapters[1].addresses.push(Ipv4Addr::new(10, 0, 0, 22).into());
    setup.adapters[1].addresses.push(Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, 22).into());
    with_machine(&setup, |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        trial(machine, &first, &second);
    });
}

/// Connects to `to` and checks what both ends call themselves.
fn connect_to(first: &Adapter, second: &Adapter, listener: &Listener, to: SocketAddr) {
    let (active, passive) = ends(first, second);
    let connector = Connector::new(first).expect("a connector");
    let from = if to.is_ipv4() { first.address() } else { first.address_v6() };
    let connecting = connector.begin_connect(&active.queue_pair, from, to, &Offer::default());
    let (near, peer) = finish(connector, connecting, listener, &passive);
    assert_eq!((near.peer_address(), peer.local_address()), (to, to));
    carries(&active, &passive);
}

fn wildcard_listener_takes_connections_to_every_address() {
    with_addresses(|_, first, second| {
        let everywhere: [(IpAddr, [IpAddr; 2]); 2] = [
            (EVERYWHERE, [Ipv4Addr::new(10, 0, 0, 2).into(), Ipv4Addr::new(10, 0, 0, 22).into()]),
            (Ipv6Addr::UNSPECIFIED.into(), [2, 22].map(|last| Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, last).into())),
        ];
        for (wildcard, addresses) in everywhere {
            let listening = listener(second, SocketAddr::new(wildcard, 5445));
            assert_eq!(listening.local_address(), SocketAddr::new(wildcard, 5445));
            for ip in addresses {
                connect_to(first, second, &listening, SocketAddr::new(ip, 5445));
            }
            // The other adapter's addresses are not its own.
            let own = if wildcard.is_ipv4() { first.address() } else { first.address_v6() };
            let own = SocketAddr::new(own.ip(), 5445);
            let from = SocketAddr::new(own.ip(), 0);
            assert_eq!(connect_status(first, from, own), STATUS_CONNECTION_REFUSED);
            listening.close();
        }
    });
}

fn wildcard_and_specific_listener_exclude_each_other() {
    with_two_adapters(|first, second| {
        let wildcard = SocketAddr::new(EVERYWHERE, 5445);
        let specific = listener(first, at(first, 5445));
        assert_eq!(listen(first, wildcard).1, STATUS_SHARING_VIOLATION);
        specific.close();
        let everywhere = listener(first, wildcard);
        assert_eq!(listen(first, at(first, 5445)).1, STATUS_SHARING_VIOLATION);
        assert_eq!(listen(first, wildcard).1, STATUS_SHARING_VIOLATION);
        assert_eq!(SharedEndpoint::new(first, at(first, 5445)).err(), Some(STATUS_SHARING_VIOLATION));
        // Another port, the other family and the other adapter are free.
        for (adapter, address) in
            [(first, at(first, 5446)), (first, SocketAddr::new(first.address_v6().ip(), 5445)), (second, wildcard)]
        {
            listener(adapter, address).close();
        }
        let there = listener(second, at(second, 0));
        assert_eq!(connect_status(first, at(first, 5445), there.local_address()), STATUS_SHARING_VIOLATION);
        everywhere.close();
        listener(first, at(first, 5445)).close();
    });
}

fn wildcard_listener_on_port_zero_has_a_free_port_everywhere() {
    with_two_adapters(|first, _| {
        let everywhere = listener(first, SocketAddr::new(EVERYWHERE, 0));
        let port = everywhere.local_address().port();
        assert!(port >= 49_152, "{port}");
        assert_eq!(listen(first, at(first, port)).1, STATUS_SHARING_VIOLATION);
    });
}

fn addresses_may_come_and_go_under_a_wildcard_listener() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let listening = listener(&second, SocketAddr::new(EVERYWHERE, 5445));
        let later = SocketAddr::from(([10, 0, 0, 200], 5445));
        let from = SocketAddr::new(first.address().ip(), 0);
        assert_eq!(connect_status(&first, from, later), STATUS_HOST_UNREACHABLE);
        machine.add_address(1, later.ip());
        connect_to(&first, &second, &listening, later);
        machine.remove_address(1, later.ip());
        assert_eq!(connect_status(&first, from, later), STATUS_HOST_UNREACHABLE);
        machine.remove_address(1, second.address().ip());
        machine.add_address(1, second.address().ip());
        connect_to(&first, &second, &listening, at(&second, 5445));
    });
}

fn vanished_address_stops_its_shared_endpoint_until_it_is_back() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let endpoint = shared(&first, at(&first, 7400));
        let listening = listener(&second, at(&second, 7401));
        let (active, passive) = ends(&first, &second);
        let (near, peer) = connect_over(&endpoint, &active, &listening, &passive);
        machine.remove_address(0, first.address().ip());
        assert!(near.wait_for_disconnect() && peer.wait_for_disconnect(), "both ends of the connection get an event");
        assert_eq!(shared_status(&endpoint, &first, at(&second, 7401)), STATUS_NETWORK_UNREACHABLE);
        near.close();
        peer.close();
        machine.add_address(0, first.address().ip());
        let (active, passive) = ends(&first, &second);
        let (_near, _peer) = connect_over(&endpoint, &active, &listening, &passive);
        carries(&active, &passive);
    });
}

fn address_that_comes_back_is_listened_on_and_connected_to() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let here = at(&second, 7500);
        let lost = listener(&second, here);
        machine.remove_address(1, here.ip());
        machine.add_address(1, here.ip());
        // The listener ended with its address; its port is free for another one.
        assert_eq!(connect_status(&first, at(&first, 0), here), STATUS_CONNECTION_REFUSED);
        let again = listener(&second, here);
        connect_to(&first, &second, &again, here);
        lost.close();
        connect_to(&first, &second, &again, here);
    });
}

fn address_is_used_only_when_duplicate_address_detection_has_cleared_it() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let interface = &machine.adapters[1];
        let everywhere = listener(&second, SocketAddr::new(EVERYWHERE, 7700));
        let other = SocketAddr::new(second.address().ip(), 7702);
        let there = listener(&first, at(&first, 7701));
        for ip in [IpAddr::from([10, 0, 0, 77]), Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, 77).into()] {
            let (address, prefix) = (SocketAddr::new(ip, 7702), if ip.is_ipv4() { 24 } else { 64 });
            let becomes = |detection| {
                assert!(interface.set_address_detection(ip, detection), "the interface has {ip}");
                wait_until_idle();
            };
            let check_unused = |why| {
                assert_eq!(listen(&second, address).1, STATUS_INVALID_ADDRESS, "{why}: listened on");
                assert_eq!(SharedEndpoint::new(&second, address).err(), Some(STATUS_INVALID_ADDRESS), "{why}: shared");
                let from = if ip.is_ipv4() { first.address() } else { first.address_v6() };
                let from = SocketAddr::new(from.ip(), 0);
                let called = connect_status(&first, from, SocketAddr::new(ip, 7700));
                assert_eq!(called, STATUS_HOST_UNREACHABLE, "{why}: called");
                if ip.is_ipv4() {
                    let status = connect_status(&second, SocketAddr::new(ip, 0), there.local_address());
                    assert_eq!(status, STATUS_INVALID_ADDRESS, "{why}: connected from");
                }
            };
            assert!(
                interface.add_address_in(ip, prefix, DetectionState::Tentative),
                "the interface does not have {ip}"
            );
            wait_until_idle();
            check_unused("not cleared yet");
            becomes(DetectionState::Preferred);
            let listening = listener(&second, address);
            connect_to(&first, &second, &listening, address);
            if ip.is_ipv4() {
                connect_to(&first, &second, &everywhere, SocketAddr::new(ip, 7700));
            }
            becomes(DetectionState::Deprecated);
            connect_to(&first, &second, &listening, address);
            for lost in [DetectionState::Duplicate, DetectionState::Invalid] {
                becomes(lost);
                check_unused("another station has it");
            }
            listening.close();
            listener(&second, other).close();
        }
    });
}

fn link_local_addresses_carry_the_zone_of_their_interface() {
    let near = Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 1);
    let peer = Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 2);
    let adapters = [near, peer].map(|ip| AdapterSetup { addresses: vec![ip.into()], keywords: Vec::new() }).to_vec();
    let setup = Setup { adapters, ..Setup::default() };
    with_machine(&setup, |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let [zone, other_zone] = [0, 1].map(|index| machine.adapters[index].if_index());
        let address = |ip, port, zone| SocketAddr::V6(SocketAddrV6::new(ip, port, 0, zone));
        assert_eq!(listen(&second, address(peer, 80, zone)).1, STATUS_INVALID_ADDRESS, "a zone of another interface");
        let listening = listener(&second, address(peer, 80, 0));
        assert_eq!(listening.local_address(), address(peer, 80, other_zone));
        assert_eq!(listen(&second, address(peer, 80, other_zone)).1, STATUS_SHARING_VIOLATION);
        let (active, passive) = ends(&first, &second);
        let connector = Connector::new(&first).expect("a connector");
        let (from, to) = (address(near, 90, zone), address(peer, 80, zone));
        let connecting = connector.begin_connect(&active.queue_pair, from, to, &Offer::default());
        let (near_end, peer_end) = finish(connector, connecting, &listening, &passive);
        assert_eq!((near_end.local_address(), near_end.peer_address()), (from, to));
        assert_eq!(peer_end.local_address(), address(peer, 80, other_zone));
        assert_eq!(peer_end.peer_address(), address(near, 90, other_zone));
    });
}

fn shared_endpoints_are_listed_as_such() {
    with_machine(&Setup::default(), |machine| {
        let first = machine.open(0);
        let endpoint = shared(&first, at(&first, 7600));
        let listening = listener(&first, at(&first, 7601));
        let list = || {
            let answer = machine.adapters[0].query_oid(OID_NDK_LOCAL_ENDPOINTS, 4096).expect("a started adapter");
            let mut seen: Vec<(u16, u8)> = answer.data[0x10..]
                .chunks_exact(0x24)
                .map(|entry| (u16::from_be_bytes([entry[2], entry[3]]), entry[0x1D]))
                .collect();
            seen.sort_unstable();
            // Across streams each has a second entry.
            seen.dedup();
            seen
        };
        assert_eq!(list(), [(7600, 0), (7601, 1)], "port and whether it is a listener");
        endpoint.close();
        assert_eq!(list(), [(7601, 1)]);
        listening.close();
        assert_eq!(list(), []);
    });
}
