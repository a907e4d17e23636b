//! Sockets of Winsock Kernel to a machine on the wire of an adapter: TCP in frames of the real driver image.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::link::{FAR, FAR_V6, Link, MINUTE, NEAR, NEAR_V6, in_child, losing_one_in, pattern};
use crate::wsk_client::{Client, ClientSocket};
use kernel_host::stack::{StackConfig, StackError, StackPort, StackStream};
use kernel_host::{HaltAction, KernelConfig, Mode, dispatcher, status};

fn at(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address, port)
}

fn receive_exact(socket: &ClientSocket, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < count {
        let more = socket.receive(count - bytes.len()).expect("a connection");
        assert!(!more.is_empty(), "the end after {} bytes", bytes.len());
        bytes.extend(more);
    }
    bytes
}

/// Sends each way, ends each direction by itself, and closes.
fn converse(link: &Link, socket: ClientSocket, far: StackStream, count: usize) {
    let (to_far, to_near) = (pattern(count, 1), pattern(count, 2));
    let (expected, sent) = (to_far.clone(), to_near.clone());
    let peer = link.kernel.spawn("peer", move || {
        assert!(far.receive_exact(expected.len(), MINUTE) == Ok(expected));
        far.send(&sent, MINUTE).expect("it is taken");
        assert_eq!(far.receive(1, MINUTE), Ok(Vec::new()));
        far.finish();
        far
    });
    assert_eq!(socket.send(&to_far), 0);
    assert!(receive_exact(&socket, count) == to_near);
    assert_eq!(socket.disconnect(), 0);
    assert_eq!(socket.receive(1), Ok(Vec::new()));
    socket.close();
    drop(peer.join());
}

fn connects_and_accepts(link: &Link, count: usize) {
    let client = Client::register();
    for (near, far) in [(NEAR, FAR), (NEAR_V6, FAR_V6)] {
        let port = link.there.tcp_listen(at(far, 7000)).expect("a free port");
        let socket = client.connection(at(near, 0));
        assert_eq!(socket.connect(at(far, 7000)).end().0, 0);
        let accepted = port.accept(MINUTE).expect("a connection");
        assert_eq!(accepted.addresses().map(|(_, remote)| remote.ip()), Some(near));
        converse(link, socket, accepted, count);

        let listener = client.listener(at(near, 8000));
        let connected = link.there.tcp_connect(at(near, 8000), MINUTE).expect("a listener");
        converse(link, listener.accept(), connected, count);
        listener.close();
        let refused = link.there.tcp_connect(at(near, 8000), MINUTE);
        assert_eq!(refused.err(), Some(StackError::Refused), "nothing listens any more");
    }
    client.end();
}

#[test]
fn sockets_connect_and_accept_in_frames() {
    in_child("sockets_connect_and_accept_in_frames", || {
        let link = Link::boot(KernelConfig::default());
        connects_and_accepts(&link, 200_000);
        link.end();
    });
}

#[test]
fn sockets_connect_and_accept_in_frames_in_fast_mode() {
    in_child("sockets_connect_and_accept_in_frames_in_fast_mode", || {
        let link = Link::boot(KernelConfig { mode: Mode::Fast, ..KernelConfig::default() });
        connects_and_accepts(&link, 1 << 20);
        link.end();
    });
}

#[test]
fn sockets_connect_and_accept_in_other_orders() {
    const TEST: &str = "sockets_connect_and_accept_in_other_orders";
    const SEED: &str = "STACK_SEED";
    if let Ok(seed) = std::env::var(SEED) {
        let link = Link::boot(KernelConfig { schedule: seed.parse().ok(), ..KernelConfig::default() });
        connects_and_accepts(&link, 20_000);
        return link.end();
    }
    for seed in 1..=4 {
        crate::child::in_child_with(TEST, &[(SEED, &seed.to_string())]).expect_success();
    }
}

#[test]
fn sockets_survive_the_loss_of_frames() {
    in_child("sockets_survive_the_loss_of_frames", || {
        let link = Link::boot(KernelConfig::default());
        link.there.set_filter(Some(losing_one_in(10)));
        connects_and_accepts(&link, 100_000);
        link.end();
    });
}

#[test]
fn connects_in_frames_are_refused_or_time_out() {
    in_child("connects_in_frames_are_refused_or_time_out", || {
        let link = Link::boot(KernelConfig::default());
        let client = Client::register();
        let socket = client.connection(at(NEAR, 0));
        assert_eq!(socket.connect(at(FAR, 7001)).end().0, status::STATUS_CONNECTION_REFUSED);
        let before = dispatcher::now();
        let absent = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 9));
        assert_eq!(socket.connect(at(absent, 7001)).end().0, status::STATUS_IO_TIMEOUT);
        assert!(dispatcher::now() - before > 10 * dispatcher::UNITS_PER_SECOND, "after retransmissions");
        let elsewhere = IpAddr::V4(Ipv4Addr::new(10, 78, 0, 1));
        assert_eq!(socket.connect(at(elsewhere, 7001)).end().0, status::STATUS_HOST_UNREACHABLE);
        let waits = socket.connect(at(absent, 7001));
        assert!(!waits.is_completed());
        socket.close();
        assert_eq!(waits.end().0, status::STATUS_CANCELLED);
        client.end();
        link.end();
    });
}

/// A connection of a new socket to the machine over there: both ends.
fn connected(client: &Client, port: &StackPort) -> (ClientSocket, StackStream) {
    let socket = client.connection(at(NEAR, 0));
    assert_eq!(socket.connect(at(FAR, 7000)).end().0, 0);
    (socket, port.accept(MINUTE).expect("a connection"))
}

fn expect_reset(socket: ClientSocket) {
    assert_eq!(socket.receive(1), Err(status::STATUS_CONNECTION_RESET));
    socket.close();
}

#[test]
fn connections_in_frames_break_with_their_peer() {
    in_child("connections_in_frames_break_with_their_peer", || {
        let link = Link::boot(KernelConfig::default());
        let client = Client::register();
        let port = link.there.tcp_listen(at(FAR, 7000)).expect("a free port");
        // It resets.
        let (socket, far) = connected(&client, &port);
        drop(far);
        expect_reset(socket);
        // The own end does.
        let (socket, far) = connected(&client, &port);
        socket.close();
        assert_eq!(far.receive(1, MINUTE), Err(StackError::Broken));
        // It is silent.
        let (socket, far) = connected(&client, &port);
        link.there.set_filter(Some(Box::new(|_, _| false)));
        assert_eq!(socket.send(&[1; 100]), 0);
        expect_reset(socket);
        drop((far, port));
        client.end();
        link.end();
    });
}

#[test]
fn connections_in_frames_break_with_their_stack_and_their_address() {
    in_child("connections_in_frames_break_with_their_stack_and_their_address", || {
        let link = Link::boot(KernelConfig::default());
        let client = Client::register();
        let port = link.there.tcp_listen(at(FAR, 7000)).expect("a free port");
        let (socket, far) = connected(&client, &port);
        let dialling = client.connection(at(NEAR, 0));
        let waits = dialling.connect(at(IpAddr::V4(Ipv4Addr::new(10, 77, 0, 9)), 7000));
        link.near.unbind_stack().expect("it runs");
        expect_reset(socket);
        assert_eq!(waits.end().0, status::STATUS_HOST_UNREACHABLE);
        link.near.bind_stack(StackConfig::default()).expect("it runs");
        assert_eq!(dialling.connect(at(FAR, 7000)).end().0, 0, "over the new stack");
        assert!(link.near.remove_address(NEAR));
        expect_reset(dialling);
        client.end();
        drop((port, far));
        link.end();
    });
}

#[test]
fn sockets_listen_under_an_adapter_that_comes_back() {
    in_child("sockets_listen_under_an_adapter_that_comes_back", || {
        let link = Link::boot(KernelConfig::default());
        let client = Client::register();
        let port = link.there.tcp_listen(at(FAR, 7000)).expect("a free port");
        let listener = client.listener(at("0.0.0.0".parse().expect("an address"), 8000));
        let (socket, far) = connected(&client, &port);
        link.near.halt(HaltAction::DeviceDisabled).expect("halts");
        expect_reset(socket);
        link.near.start().expect("starts");
        let peer = link.there.tcp_connect(at(NEAR, 8000), MINUTE).expect("a listener");
        let accepted = listener.accept();
        assert_eq!(accepted.send(b"back"), 0);
        assert_eq!(peer.receive_exact(4, MINUTE), Ok(b"back".to_vec()));
        accepted.close();
        listener.close();
        client.end();
        drop((port, far, peer));
        link.end();
    });
}
