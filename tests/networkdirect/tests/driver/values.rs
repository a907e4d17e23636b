//! Values unlike their neighbours, so that a field that is forgotten or taken for another shows (docs/arguments.txt).

use super::program::*;
use networkdirect::machine::{Machine, rest};
use networkdirect::{cases, cases::Case};
use softndk_ioctl::Status;
use softndk_ioctl::nd::VERSION;
use softndk_ioctl::nd::control::*;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

pub const CASES: &[Case] = cases![zones_cross_the_border];

// Rule: VALUES-1
/// Link-local addresses mean something with the zone of their interface only; zone 0 is any.
fn zones_cross_the_border() {
    let machine = Machine::start();
    let [near, far] = [1, 2].map(|host| Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, host));
    for (adapter, ip) in machine.adapters.iter().zip([near, far]) {
        assert!(adapter.add_address(ip.into(), 64));
    }
    rest();
    let [zone, other] = [0, 1].map(|index| machine.adapters[index].if_index());
    let address = |ip, port, zone| SocketAddr::V6(SocketAddrV6::new(ip, port, 0, zone));
    let (server, client) = (Program::start(100, 1), Program::start(200, 2));

    let listener = server.nd.create(LISTENER_CREATE, server.adapter);
    assert_eq!(server.bind(LISTENER_BIND, listener, address(near, 0x1234, other)), INVALID_ADDRESS);
    assert_eq!(server.bind(LISTENER_BIND, listener, address(near, 0x1234, zone)), Status::SUCCESS);
    assert_eq!(server.nd.call(LISTENER_LISTEN, &Listen { version: VERSION, backlog: 0, listener }), Status::SUCCESS);
    assert_eq!(server.address_of(LISTENER_GET_ADDRESS, listener), Ok(address(near, 0x1234, zone)));
    let theirs = server.connector();
    let wrong = server.bind(CONNECTOR_BIND, theirs, address(near, 0x1234, other));
    assert_eq!(wrong, INVALID_ADDRESS, "the process has the port, and not in this zone");

    let arriving = server.get_request(listener, theirs);
    let ours = client.connector();
    assert_eq!(client.bind(CONNECTOR_BIND, ours, address(far, 0x2345, zone)), INVALID_ADDRESS);
    assert_eq!(client.bind(CONNECTOR_BIND, ours, address(far, 0x2345, other)), Status::SUCCESS);
    let connecting = client.connect(ours, address(near, 0x1234, other), b"x");
    assert_eq!(status(&arriving), Status::SUCCESS);
    let accepting = server.accept(theirs, b"y");
    assert_eq!(status(&connecting), Status::SUCCESS);
    assert_eq!(client.nd.call(CONNECTOR_COMPLETE_CONNECT, &handle(ours)), Status::SUCCESS);
    assert_eq!(status(&accepting), Status::SUCCESS);
    assert_eq!(client.address_of(CONNECTOR_GET_ADDRESS, ours), Ok(address(far, 0x2345, other)));
    assert_eq!(client.address_of(CONNECTOR_GET_PEER_ADDRESS, ours), Ok(address(near, 0x1234, other)));
    assert_eq!(server.address_of(CONNECTOR_GET_ADDRESS, theirs), Ok(address(near, 0x1234, zone)));
    assert_eq!(server.address_of(CONNECTOR_GET_PEER_ADDRESS, theirs), Ok(address(far, 0x2345, zone)));

    let resolve = |ip, zone| {
        let asked = ResolveAddress { version: VERSION, reserved: 0, address: socket(address(ip, 7, zone)) };
        server.nd.try_ask::<u64>(PROVIDER_RESOLVE_ADDRESS, &asked)
    };
    let first = resolve(near, zone).expect("an adapter");
    assert_eq!((resolve(near, 0), resolve(near, other)), (Ok(first), Err(INVALID_ADDRESS)));
    assert!(resolve(far, other).is_ok_and(|second| second != first));
    drop(server.close());
    drop(client.close());
    machine.finish();
}
