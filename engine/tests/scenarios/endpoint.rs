//! Endpoints: shared ones, listeners on every address, zones, addresses that go and come back, ports that clash.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use softndk_engine::{
    AdapterAddress, Close, Connect, ConnectError, Connector, EndpointEntry, Listener, QueuePair, ReadLimits, Requested,
    Semantics, SharedEndpoint, Source,
};
use softndk_engine_kit::{A, B, CONNECT, Depths, Event, FIRST, Harness, Pair, SECOND, Side, World};

const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 77));
const EVERYWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

fn unconnected() -> Pair {
    Pair::unconnected(World::new(), Semantics::NDK, Depths::default())
}

fn connect(
    connector: &Connector<Harness>,
    queue_pair: &QueuePair<Harness>,
    source: Source<'_, Harness>,
    destination: SocketAddr,
) -> Result<Requested, ConnectError> {
    connector.connect(Connect {
        queue_pair,
        source,
        destination,
        limits: ReadLimits::default(),
        private_data: &[],
        callback: A + CONNECT,
    })
}

fn over(side: &Side, shared: &SharedEndpoint<Harness>, port: u16) -> Result<Requested, ConnectError> {
    connect(&side.connector, &side.pair, Source::Shared(shared), SocketAddr::new(SECOND, port))
}

fn listener(side: &Side, world: &World, address: SocketAddr) -> Result<Listener<Harness>, ConnectError> {
    let listener = side.open.create_listener(B + 6, world.consumer_object(7)).unwrap();
    match listener.listen(address, 0) {
        Ok(_) => Ok(listener),
        Err(error) => {
            drop(listener.close(0));
            Err(error)
        }
    }
}

fn closes_at_once(close: &Close<Harness>) -> bool {
    matches!(close, Close::Done(_))
}

#[test]
fn connectors_share_an_endpoint_to_different_remotes_and_meet_each_once() {
    let mut pair = unconnected();
    let elsewhere = listener(&pair.b, &pair.world, SocketAddr::new(SECOND, 446)).unwrap();
    let shared = pair.a.open.create_shared_endpoint(SocketAddr::new(FIRST, 0), pair.world.consumer_object(1)).unwrap();
    let port = shared.local_address().port();
    assert!(port >= 49152);
    let more: Vec<_> =
        (0..2).map(|_| Side::open(&pair.world, &pair.world.first, Semantics::NDK, Depths::default(), 300)).collect();
    let others: Vec<_> =
        more.iter().map(|_| pair.a.open.create_connector(pair.world.consumer_object(2)).unwrap()).collect();
    let domain = &pair.a.domain;
    let queue_pairs: Vec<_> = others
        .iter()
        .map(|_| {
            let settings = softndk_engine::QueuePairSettings {
                receive_queue: &pair.a.receiver,
                initiator_queue: &pair.a.initiator,
                context: 0,
                receive_depth: 1,
                initiator_depth: 1,
                receive_sges: 1,
                initiator_sges: 1,
                inline_data: 0,
                shared: None,
            };
            QueuePair::create(domain, settings, pair.world.consumer_object(3)).unwrap()
        })
        .collect();
    assert_eq!(over(&pair.a, &shared, 445), Ok(Requested::Pending));
    let to = |place: usize, port: u16| {
        connect(&others[place], &queue_pairs[place], Source::Shared(&shared), SocketAddr::new(SECOND, port))
    };
    assert_eq!(to(0, 445), Err(ConnectError::TupleInUse));
    assert_eq!(to(0, 446), Ok(Requested::Pending));
    assert_eq!(to(1, 446), Err(ConnectError::TupleInUse));
    assert_eq!(others[0].local_address(), Some(SocketAddr::new(FIRST, port)));
    // An endpoint of another open is as good as one's own; one of another adapter is not.
    assert_eq!(over(&more[0], &shared, 446), Err(ConnectError::TupleInUse));
    assert_eq!(over(&pair.b, &shared, 446), Err(ConnectError::Foreign));
    pair.world.run();
    assert_eq!(pair.world.events.arrived.len(), 2);
    for arrived in pair.world.events.arrived.drain(..) {
        assert_eq!(arrived.peer_address(), Some(SocketAddr::new(FIRST, port)));
        drop(arrived.close(1));
    }
    // Both were refused: the remotes are free again.
    pair.world.run();
    assert_eq!(to(1, 446), Ok(Requested::Pending));
    drop(elsewhere.close(1));
    for (connector, queue_pair) in others.iter().zip(&queue_pairs) {
        drop((connector.close(1), queue_pair.close(1)));
    }
    for side in &more {
        drop((side.connector.close(1), side.pair.close(1), side.initiator.close(1), side.receiver.close(1)));
        drop((side.domain.close(1), side.open.close(1)));
    }
    drop(shared.close(1));
    for arrived in pair.world.events.arrived.drain(..) {
        drop(arrived.close(1));
    }
    pair.world.run();
    for arrived in std::mem::take(&mut pair.world.events.arrived) {
        drop(arrived.close(1));
    }
    pair.close();
}

#[test]
fn a_shared_endpoint_is_in_use_until_it_and_its_connectors_are_closed() {
    let mut pair = unconnected();
    let address = SocketAddr::new(FIRST, 700);
    let shared = pair.a.open.create_shared_endpoint(address, pair.world.consumer_object(1)).unwrap();
    assert_eq!(listener(&pair.a, &pair.world, address).err(), Some(ConnectError::AddressInUse));
    let again = pair.a.open.create_shared_endpoint(address, pair.world.consumer_object(1));
    assert_eq!(again.err(), Some(ConnectError::AddressInUse));
    over(&pair.a, &shared, 445).unwrap();
    let mut listed = Vec::new();
    pair.world.first.endpoints(&mut |endpoint| listed.push(endpoint));
    assert_eq!(listed, [EndpointEntry { local: address, listener: false }]);
    assert!(!closes_at_once(&shared.close(9)), "a connector connects over it");
    assert_eq!(listener(&pair.a, &pair.world, address).err(), Some(ConnectError::AddressInUse));
    pair.world.run();
    drop(pair.a.connector.close(8));
    let events = pair.world.run();
    let closed: Vec<_> = events.iter().filter(|event| matches!(event, Event::Closed(8 | 9, _))).collect();
    assert_eq!(
        closed,
        [&Event::Closed(8, A + 5), &Event::Closed(9, 1)],
        "the shared endpoint closes after its connector"
    );
    let free = listener(&pair.a, &pair.world, address).unwrap();
    drop(free.close(1));
    drop(pair.world.events.arrived.pop().unwrap().close(1));
    pair.close();
}

#[test]
fn a_failed_connect_lets_the_shared_endpoint_go() {
    let mut pair = unconnected();
    let shared = pair.a.open.create_shared_endpoint(SocketAddr::new(FIRST, 0), pair.world.consumer_object(1)).unwrap();
    let asked = over(&pair.a, &shared, 9);
    assert_eq!(pair.world.answer(asked, A + CONNECT), Err(ConnectError::Refused));
    over(&pair.a, &shared, 445).unwrap();
    pair.world.run();
    let arrived = pair.world.events.arrived.pop().unwrap();
    arrived.reject(&[]).unwrap();
    assert_eq!(pair.world.run(), [Event::Completed(A + CONNECT, Err(ConnectError::Refused))]);
    assert!(closes_at_once(&shared.close(1)));
    drop(arrived.close(1));
    pair.close();
}

#[test]
fn a_shared_endpoint_needs_an_address_of_its_adapter() {
    let pair = unconnected();
    let create = |ip| pair.a.open.create_shared_endpoint(SocketAddr::new(ip, 1), pair.world.consumer_object(1)).err();
    assert_eq!(create(SECOND), Some(ConnectError::InvalidAddress));
    assert_eq!(create(EVERYWHERE), Some(ConnectError::InvalidAddress));
    pair.world.first.shut_down();
    assert_eq!(create(FIRST), Some(ConnectError::AdapterGone));
    pair.close();
}

#[test]
fn a_shared_endpoint_connects_again_when_its_address_is_back() {
    let mut pair = unconnected();
    let shared = pair.a.open.create_shared_endpoint(SocketAddr::new(FIRST, 0), pair.world.consumer_object(1)).unwrap();
    pair.world.first.set_addresses(&[OTHER]).unwrap();
    assert_eq!(over(&pair.a, &shared, 445), Err(ConnectError::NetworkUnreachable));
    pair.world.first.set_addresses(&[FIRST]).unwrap();
    assert_eq!(over(&pair.a, &shared, 445), Ok(Requested::Pending));
    pair.world.run();
    drop(pair.world.events.arrived.pop().unwrap().close(1));
    drop(shared.close(1));
    pair.close();
}

#[test]
fn a_listener_everywhere_takes_what_is_sent_to_any_address_and_says_which() {
    let mut pair = unconnected();
    let everywhere = listener(&pair.b, &pair.world, SocketAddr::new(EVERYWHERE, 500)).unwrap();
    assert_eq!(everywhere.local_address(), Some(SocketAddr::new(EVERYWHERE, 500)));
    let source = || Source::Address(SocketAddr::new(FIRST, 0));
    pair.world.harness().network.set_hosts(Vec::new());
    let to = |pair: &Pair, ip| connect(&pair.a.connector, &pair.a.pair, source(), SocketAddr::new(ip, 500));
    let asked = to(&pair, OTHER);
    assert_eq!(pair.world.answer(asked, A + CONNECT), Err(ConnectError::HostUnreachable));
    // An address that is added afterwards works, one that goes does not end the listener.
    for ip in [SECOND, OTHER] {
        pair.world.second.set_addresses(&[ip]).unwrap();
        assert_eq!(to(&pair, ip), Ok(Requested::Pending));
        pair.world.run();
        let arrived = pair.world.events.arrived.pop().unwrap();
        assert_eq!(arrived.local_address(), Some(SocketAddr::new(ip, 500)));
        assert_eq!(pair.a.connector.peer_address(), Some(SocketAddr::new(ip, 500)));
        drop(arrived.close(1));
        pair.world.run();
    }
    let asked = to(&pair, SECOND);
    assert_eq!(pair.world.answer(asked, A + CONNECT), Err(ConnectError::HostUnreachable));
    // The other family has its own ports.
    let v6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let other_family = listener(&pair.b, &pair.world, SocketAddr::new(v6, 500)).unwrap();
    drop((other_family.close(1), everywhere.close(1)));
    pair.close();
}

#[test]
fn a_listener_everywhere_and_any_holder_of_its_port_exclude_each_other() {
    let pair = unconnected();
    let at = |ip, port| listener(&pair.b, &pair.world, SocketAddr::new(ip, port));
    assert_eq!(at(EVERYWHERE, 445).err(), Some(ConnectError::AddressInUse));
    let shared =
        pair.b.open.create_shared_endpoint(SocketAddr::new(SECOND, 501), pair.world.consumer_object(1)).unwrap();
    assert_eq!(at(EVERYWHERE, 501).err(), Some(ConnectError::AddressInUse));
    drop(shared.close(1));
    let everywhere = at(EVERYWHERE, 501).unwrap();
    assert_eq!(at(EVERYWHERE, 501).err(), Some(ConnectError::AddressInUse));
    assert_eq!(at(SECOND, 501).err(), Some(ConnectError::AddressInUse));
    let shared = pair.b.open.create_shared_endpoint(SocketAddr::new(SECOND, 501), pair.world.consumer_object(1));
    assert_eq!(shared.err(), Some(ConnectError::AddressInUse));
    let source = Source::Address(SocketAddr::new(SECOND, 501));
    let from = connect(&pair.b.connector, &pair.b.pair, source, SocketAddr::new(SECOND, 445));
    assert_eq!(from, Err(ConnectError::AddressInUse));
    // Its neighbours, another adapter and higher ports are free; a port of its own choice is free everywhere.
    let neighbours = [at(SECOND, 500).unwrap(), at(SECOND, 502).unwrap()];
    let there = listener(&pair.a, &pair.world, SocketAddr::new(FIRST, 501)).unwrap();
    let chosen = at(EVERYWHERE, 0).unwrap();
    assert!(chosen.local_address().unwrap().port() >= 49152);
    for listener in neighbours.iter().chain([&there, &chosen, &everywhere]) {
        drop(listener.close(1));
    }
    drop(at(SECOND, 501).unwrap().close(1));
    pair.close();
}

#[test]
fn ports_in_use_at_one_address_are_not_chosen_for_every_address() {
    let world = World::new();
    let open = world.first.open(Semantics::NDK, world.consumer_object(1)).unwrap();
    let listen = |ip| {
        let listener = open.create_listener(0, world.consumer_object(2)).unwrap();
        let answer = listener.listen(SocketAddr::new(ip, 0), 0);
        (listener, answer)
    };
    let mut all: Vec<_> = (0..16384).map(|_| listen(FIRST)).collect();
    assert!(all.iter().all(|(_, answer)| answer.is_ok()));
    let (refused, answer) = listen(EVERYWHERE);
    assert_eq!(answer, Err(ConnectError::NoPorts));
    let shared = open.create_shared_endpoint(SocketAddr::new(FIRST, 0), world.consumer_object(3));
    assert_eq!(shared.err(), Some(ConnectError::NoPorts));
    let (freed, _) = all.swap_remove(5000);
    let port = freed.local_address().unwrap().port();
    drop(freed.close(1));
    assert_eq!(refused.listen(SocketAddr::new(EVERYWHERE, 0), 0), Ok(Requested::Done));
    assert_eq!(refused.local_address().unwrap().port(), port);
    drop(refused.close(1));
    for (listener, _) in all {
        drop(listener.close(1));
    }
    drop(open.close(1));
    let mut world = world;
    world.assert_empty();
}

fn in_zone(ip: Ipv6Addr, port: u16, zone: u32) -> SocketAddr {
    SocketAddr::V6(SocketAddrV6::new(ip, port, 0, zone))
}

#[test]
fn link_local_addresses_carry_the_zone_of_the_viewer() {
    let mut pair = unconnected();
    let (near, peer): (Ipv6Addr, Ipv6Addr) = ("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap());
    let scoped = |ip, scope_id| AdapterAddress { ip: IpAddr::V6(ip), scope_id };
    pair.world.first.set_scoped_addresses(&[scoped(near, 11)]).unwrap();
    pair.world.second.set_scoped_addresses(&[AdapterAddress::from(SECOND), scoped(peer, 12)]).unwrap();
    assert_eq!(listener(&pair.b, &pair.world, in_zone(peer, 80, 11)).err(), Some(ConnectError::InvalidAddress));
    let listening = listener(&pair.b, &pair.world, in_zone(peer, 80, 0)).unwrap();
    assert_eq!(listening.local_address(), Some(in_zone(peer, 80, 12)));
    // The same address, whether its zone is named or not.
    assert_eq!(listener(&pair.b, &pair.world, in_zone(peer, 80, 12)).err(), Some(ConnectError::AddressInUse));
    let source = Source::Address(in_zone(near, 90, 11));
    connect(&pair.a.connector, &pair.a.pair, source, in_zone(peer, 80, 11)).unwrap();
    assert_eq!(pair.a.connector.local_address(), Some(in_zone(near, 90, 11)));
    assert_eq!(pair.a.connector.peer_address(), Some(in_zone(peer, 80, 11)));
    pair.world.run();
    let arrived = pair.world.events.arrived.pop().unwrap();
    assert_eq!(arrived.local_address(), Some(in_zone(peer, 80, 12)));
    assert_eq!(arrived.peer_address(), Some(in_zone(near, 90, 12)));
    drop((arrived.close(1), listening.close(1)));
    pair.close();
}

/// What user-mode NetworkDirect binds to: a port that is known before it is listened on, and connected from by others.
#[test]
fn a_listener_takes_a_reserved_endpoint_that_connectors_share() {
    let mut pair = unconnected();
    for address in [FIRST, EVERYWHERE] {
        let address = SocketAddr::new(address, 0);
        let reserved = pair.a.open.reserve_endpoint(address, pair.world.consumer_object(1)).unwrap();
        let port = reserved.local_address().port();
        let listeners = [1, 2].map(|id| pair.a.open.create_listener(A + id, pair.world.consumer_object(id)).unwrap());
        assert_eq!(listeners[0].listen_at(&reserved, 0), Ok(Requested::Done));
        assert_eq!(listeners[0].local_address(), Some(reserved.local_address()));
        assert_eq!(listeners[0].listen_at(&reserved, 0), Err(ConnectError::InvalidState), "a second time");
        assert_eq!(listeners[1].listen_at(&reserved, 0), Err(ConnectError::AddressInUse));
        let foreign = pair.b.open.create_listener(B + 3, pair.world.consumer_object(3)).unwrap();
        assert_eq!(foreign.listen_at(&reserved, 0), Err(ConnectError::Foreign));
        let connected = connect(
            &pair.b.connector,
            &pair.b.pair,
            Source::Address(SocketAddr::new(SECOND, 0)),
            SocketAddr::new(FIRST, port),
        );
        assert_eq!(connected, Ok(Requested::Pending));
        pair.world.run();
        let arrived = pair.world.events.arrived.pop().expect("it listens");
        assert_eq!(arrived.local_address(), Some(SocketAddr::new(FIRST, port)));
        drop(arrived.close(1));
        pair.world.run();
        // From everywhere no connector connects.
        let out = over(&pair.a, &reserved, 445);
        assert_eq!(out.is_ok(), address.ip() == FIRST, "{out:?}");
        if out.is_ok() {
            pair.world.run();
            for arrived in pair.world.events.arrived.drain(..) {
                assert_eq!(arrived.peer_address(), Some(SocketAddr::new(FIRST, port)));
                drop(arrived.close(1));
            }
            pair.world.run();
        }
        // The endpoint outlives its listener, and is free with the last of both.
        for closed in [&listeners[0], &listeners[1], &foreign] {
            drop(closed.close(1));
        }
        pair.world.run();
        let again = |side: &Side, world: &World| listener(side, world, SocketAddr::new(FIRST, port)).err();
        assert_eq!(again(&pair.a, &pair.world), Some(ConnectError::AddressInUse));
        drop(reserved.close(1));
        pair.world.run();
        let free = listener(&pair.a, &pair.world, SocketAddr::new(FIRST, port)).unwrap();
        drop(free.close(1));
    }
    assert_eq!(
        pair.a.open.create_shared_endpoint(SocketAddr::new(EVERYWHERE, 0), pair.world.consumer_object(1)).err(),
        Some(ConnectError::InvalidAddress)
    );
    pair.close();
}
