//! Connectors and listeners.

use super::program::*;
use networkdirect::machine::{Machine, address, pass, rest};
use networkdirect::{cases, cases::Case};
use softndk_ioctl::Status;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::rings::OperationFlags;

pub const CASES: &[Case] = cases![
    private_data_and_read_limits_cross,
    private_data_is_limited_and_the_connector_stays_usable,
    a_rejection_brings_its_data_and_the_connector_tries_again,
    the_connecting_side_may_reject_the_answer,
    calls_that_do_not_fit_the_state_are_refused,
    addresses_are_known_from_bind_on,
    a_port_is_shared_within_a_process_only,
    a_cancelled_connect_is_withdrawn,
    a_withdrawn_request_is_aborted_when_it_is_accepted,
    both_sides_learn_of_the_end,
    the_end_of_a_process_is_a_disconnect,
    a_backlog_is_as_long_as_it_says,
    requests_for_connections_end_in_their_order,
];

fn private_data_and_read_limits_cross() {
    let machine = Machine::start();
    let (server, client) = (Program::start(100, 1), Program::start(200, 2));
    let info = server.nd.query(server.adapter);
    let (asked, answered) = (vec![0xA5; info.max_caller_data as usize], vec![0x5A; info.max_callee_data as usize]);
    let listener = server.listen(5000, 0);
    let (theirs, ours) = (server.connector(), client.connector());
    let arriving = server.get_request(listener, theirs);
    assert_eq!(client.bind(CONNECTOR_BIND, ours, address(2, 0)), Status::SUCCESS);
    let connecting = client.connect(ours, address(1, 5000), &asked);
    assert_eq!(status(&arriving), Status::SUCCESS);
    assert_eq!(server.private_data(theirs, 300), (asked.len() as u32, asked.clone()));
    assert_eq!(server.private_data(theirs, 3), (asked.len() as u32, asked[..3].to_vec()));
    let plain = send(&server.nd.file, CONNECTOR_GET_PRIVATE_DATA, zerocopy::IntoBytes::as_bytes(&handle(theirs)), 5);
    assert_eq!(plain, (BUFFER_OVERFLOW, asked[..5].to_vec()));
    let limits: ReadLimits = server.nd.ask(CONNECTOR_GET_READ_LIMITS, &handle(theirs));
    assert_eq!((limits.inbound, limits.outbound), (8, 4), "as the other side offers them");
    let accepting = server.accept(theirs, &answered);
    assert_eq!(status(&connecting), Status::SUCCESS);
    assert_eq!(client.private_data(ours, 300), (answered.len() as u32, answered));
    let limits: ReadLimits = client.nd.ask(CONNECTOR_GET_READ_LIMITS, &handle(ours));
    assert_eq!((limits.inbound, limits.outbound), (3, 6));
    assert!(!accepting.is_completed());
    // A program may take its time.
    pass(20_000);
    assert!(!accepting.is_completed());
    assert_eq!(status(&client.nd.begin(CONNECTOR_COMPLETE_CONNECT, &handle(ours))), Status::SUCCESS);
    assert_eq!(status(&accepting), Status::SUCCESS);
    let peer = client.address_of(CONNECTOR_GET_ADDRESS, ours).unwrap();
    assert_eq!(server.address_of(CONNECTOR_GET_PEER_ADDRESS, theirs), Ok(peer));
    assert_eq!(client.address_of(CONNECTOR_GET_PEER_ADDRESS, ours), Ok(address(1, 5000)));
    drop(server.close());
    drop(client.close());
    machine.finish();
}

fn private_data_is_limited_and_the_connector_stays_usable() {
    let machine = Machine::start();
    let (server, client) = (Program::start(100, 1), Program::start(200, 2));
    let info = server.nd.query(server.adapter);
    let listener = server.listen(5000, 0);
    let (theirs, ours) = (server.connector(), client.connector());
    assert_eq!(client.bind(CONNECTOR_BIND, ours, address(2, 0)), Status::SUCCESS);
    let long = vec![1; info.max_caller_data as usize + 1];
    assert_eq!(status_now(&client.connect(ours, address(1, 5000), &long)), INVALID_BUFFER_SIZE);
    let arriving = server.get_request(listener, theirs);
    let connecting = client.connect(ours, address(1, 5000), &long[1..]);
    assert_eq!(status(&arriving), Status::SUCCESS);
    let long = vec![1; info.max_callee_data as usize + 1];
    assert_eq!(status_now(&server.accept(theirs, &long)), INVALID_BUFFER_SIZE);
    assert_eq!(server.reject(theirs, &long), INVALID_BUFFER_SIZE);
    let accepting = server.accept(theirs, &long[1..]);
    assert_eq!(status(&connecting), Status::SUCCESS);
    assert_eq!(client.nd.call(CONNECTOR_COMPLETE_CONNECT, &handle(ours)), Status::SUCCESS);
    assert_eq!(status(&accepting), Status::SUCCESS);
    drop(server.close());
    drop(client.close());
    machine.finish();
}

fn a_rejection_brings_its_data_and_the_connector_tries_again() {
    let machine = Machine::start();
    let (server, client) = (Program::start(100, 1), Program::start(200, 2));
    let ours = client.connector();
    assert_eq!(client.bind(CONNECTOR_BIND, ours, address(2, 0)), Status::SUCCESS);
    assert_eq!(status(&client.connect(ours, address(1, 5000), b"")), CONNECTION_REFUSED, "no listener");
    assert_eq!(status(&client.connect(ours, address(9, 5000), b"")), HOST_UNREACHABLE);
    let listener = server.listen(5000, 0);
    let theirs = server.connector();
    let arriving = server.get_request(listener, theirs);
    let connecting = client.connect(ours, address(1, 5000), b"please");
    assert_eq!(status(&arriving), Status::SUCCESS);
    assert_eq!(server.reject(theirs, b"no"), Status::SUCCESS);
    assert_eq!(status(&connecting), CONNECTION_REFUSED);
    assert_eq!(client.private_data(ours, 300), (2, b"no".to_vec()));
    assert_eq!(status(&server.accept(theirs, b"")), CONNECTION_ACTIVE);
    let again = server.connector();
    let arriving = server.get_request(listener, again);
    let connecting = client.connect(ours, address(1, 5000), b"please");
    assert_eq!(status(&arriving), Status::SUCCESS);
    let accepting = server.accept(again, b"");
    assert_eq!(status(&connecting), Status::SUCCESS);
    assert_eq!(client.nd.call(CONNECTOR_COMPLETE_CONNECT, &handle(ours)), Status::SUCCESS);
    assert_eq!(status(&accepting), Status::SUCCESS);
    drop(server.close());
    drop(client.close());
    machine.finish();
}

fn the_connecting_side_may_reject_the_answer() {
    let machine = Machine::start();
    for by_free in [false, true] {
        let (server, client) = (Program::start(100, 1), Program::start(200, 2));
        let listener = server.listen(5000, 0);
        let (theirs, ours) = (server.connector(), client.connector());
        assert_eq!(client.bind(CONNECTOR_BIND, ours, address(2, 0)), Status::SUCCESS);
        let arriving = server.get_request(listener, theirs);
        let connecting = client.connect(ours, address(1, 5000), b"");
        assert_eq!(status(&arriving), Status::SUCCESS);
        let accepting = server.accept(theirs, b"");
        assert_eq!(status(&connecting), Status::SUCCESS);
        if by_free {
            assert_eq!(client.nd.free(CONNECTOR_FREE, ours), Status::SUCCESS);
        } else {
            assert_eq!(client.reject(ours, b""), Status::SUCCESS);
        }
        assert_eq!(status(&accepting), CONNECTION_REFUSED);
        drop(server.close());
        drop(client.close());
    }
    machine.finish();
}

fn calls_that_do_not_fit_the_state_are_refused() {
    let machine = Machine::start();
    let (server, client) = (Program::start(100, 1), Program::start(200, 2));
    let ours = client.connector();
    let call = |code| client.nd.call(code, &handle(ours));
    assert_eq!(status(&client.connect(ours, address(1, 5000), b"")), ADDRESS_NOT_ASSOCIATED);
    assert_eq!(call(CONNECTOR_COMPLETE_CONNECT), CONNECTION_INVALID);
    assert_eq!(call(CONNECTOR_NOTIFY_DISCONNECT), CONNECTION_INVALID);
    assert_eq!(call(CONNECTOR_DISCONNECT), CONNECTION_INVALID);
    assert_eq!(status(&client.accept(ours, b"")), CONNECTION_INVALID);
    assert_eq!(client.reject(ours, b""), CONNECTION_INVALID);
    assert_eq!(client.address_of(CONNECTOR_GET_ADDRESS, ours), Err(CONNECTION_INVALID));
    assert_eq!(client.address_of(CONNECTOR_GET_PEER_ADDRESS, ours), Err(CONNECTION_INVALID));
    assert_eq!(client.bind(CONNECTOR_BIND, ours, address(1, 0)), INVALID_ADDRESS, "of the other adapter");
    assert_eq!(client.bind(CONNECTOR_BIND, ours, address(2, 0)), Status::SUCCESS);
    assert_eq!(client.bind(CONNECTOR_BIND, ours, address(2, 0)), ADDRESS_ALREADY_ASSOCIATED);
    let nowhere = std::net::SocketAddr::from(([0, 0, 0, 0], 5000));
    assert_eq!(status(&client.connect(ours, nowhere, b"")), BAD_NETWORK_NAME);
    let listener = server.listen(5000, 0);
    let listen = |backlog| server.nd.call(LISTENER_LISTEN, &Listen { version: 1, backlog, listener });
    assert_eq!(listen(0), INVALID_DEVICE_STATE, "a second time");
    assert_eq!(server.bind(LISTENER_BIND, listener, address(1, 0)), ADDRESS_ALREADY_ASSOCIATED);
    let unbound = server.nd.create(LISTENER_CREATE, server.adapter);
    let asked = Listen { version: 1, backlog: 0, listener: unbound };
    assert_eq!(server.nd.call(LISTENER_LISTEN, &asked), ADDRESS_NOT_ASSOCIATED);
    assert_eq!(status(&server.get_request(unbound, server.connector())), INVALID_DEVICE_STATE);
    let connecting = client.connect(ours, address(1, 5000), b"");
    assert_eq!(status(&client.connect(ours, address(1, 5000), b"")), CONNECTION_ACTIVE);
    assert!(!connecting.is_completed());
    // The queue pair is that of the attempt.
    let other = client.connector();
    assert_eq!(client.bind(CONNECTOR_BIND, other, address(2, 0)), Status::SUCCESS);
    assert_eq!(status(&client.connect(other, address(1, 5000), b"")), CONNECTION_ACTIVE);
    assert!(!connecting.is_completed());
    drop(server.close());
    assert_eq!(status(&connecting), CONNECTION_REFUSED, "its listener has gone");
    drop(connecting);
    drop(client.close());
    machine.finish();
}

fn addresses_are_known_from_bind_on() {
    let machine = Machine::start();
    let program = Program::start(7, 1);
    let connector = program.connector();
    assert_eq!(program.bind(CONNECTOR_BIND, connector, address(1, 0)), Status::SUCCESS);
    let bound = program.address_of(CONNECTOR_GET_ADDRESS, connector).unwrap();
    assert!(bound.ip() == address(1, 0).ip() && bound.port() >= 49152);
    let listener = program.nd.create(LISTENER_CREATE, program.adapter);
    assert_eq!(program.address_of(LISTENER_GET_ADDRESS, listener), Err(INVALID_DEVICE_STATE));
    assert_eq!(program.bind(LISTENER_BIND, listener, ([0, 0, 0, 0], 0).into()), Status::SUCCESS);
    let everywhere = program.address_of(LISTENER_GET_ADDRESS, listener).unwrap();
    assert!(everywhere.ip().is_unspecified() && everywhere.port() >= 49152);
    let asked = Listen { version: 1, backlog: 0, listener };
    assert_eq!(program.nd.call(LISTENER_LISTEN, &asked), Status::SUCCESS);
    // What arrives has the specific address.
    let client = Program::start(8, 2);
    let (theirs, ours) = (program.connector(), client.connector());
    let arriving = program.get_request(listener, theirs);
    assert_eq!(client.bind(CONNECTOR_BIND, ours, address(2, 0)), Status::SUCCESS);
    let connecting = client.connect(ours, address(1, everywhere.port()), b"");
    assert_eq!(status(&arriving), Status::SUCCESS);
    assert_eq!(program.address_of(CONNECTOR_GET_ADDRESS, theirs), Ok(address(1, everywhere.port())));
    drop(program.close());
    assert_eq!(status(&connecting), CONNECTION_REFUSED);
    drop(client.close());
    machine.finish();
}

fn a_port_is_shared_within_a_process_only() {
    let machine = Machine::start();
    let (server, client) = (Program::start(100, 1), Program::start(200, 2));
    let listener = server.listen(5000, 0);
    let own = client.listen(6000, 0);
    // Two connectors at the listener's own address, to one remote end: the second is one too many.
    let (first, second) = (client.connector(), client.connector());
    for connector in [first, second] {
        assert_eq!(client.bind(CONNECTOR_BIND, connector, address(2, 6000)), Status::SUCCESS);
        assert_eq!(client.address_of(CONNECTOR_GET_ADDRESS, connector), Ok(address(2, 6000)));
    }
    let connecting = client.connect(first, address(1, 5000), b"");
    assert!(!connecting.is_completed());
    let spare = new_pair(&client.nd, client.domain, (client.queue.handle, client.queue.handle), SIZES);
    let client = Program { pair: spare, ..client };
    assert_eq!(status(&client.connect(second, address(1, 5000), b"")), ADDRESS_ALREADY_EXISTS);
    // Another listener of the process, and anything of another process.
    let other = client.nd.create(LISTENER_CREATE, client.adapter);
    assert_eq!(client.bind(LISTENER_BIND, other, address(2, 6000)), SHARING_VIOLATION);
    let other_client = Program::start(300, 2);
    assert_eq!(other_client.bind(CONNECTOR_BIND, other_client.connector(), address(2, 6000)), SHARING_VIOLATION);
    // Free with the last of its users.
    assert_eq!(client.nd.free(LISTENER_FREE, own), Status::SUCCESS);
    assert_eq!(other_client.bind(CONNECTOR_BIND, other_client.connector(), address(2, 6000)), SHARING_VIOLATION);
    for connector in [first, second] {
        assert_eq!(client.nd.free(CONNECTOR_FREE, connector), Status::SUCCESS);
    }
    rest();
    assert_eq!(other_client.bind(CONNECTOR_BIND, other_client.connector(), address(2, 6000)), Status::SUCCESS);
    assert_eq!(status(&connecting), Status::CANCELLED);
    assert_eq!(server.nd.free(LISTENER_FREE, listener), Status::SUCCESS);
    drop((server.close(), client.close(), other_client.close()));
    machine.finish();
}

fn a_cancelled_connect_is_withdrawn() {
    let machine = Machine::start();
    let (server, client) = (Program::start(100, 1), Program::start(200, 2));
    let listener = server.listen(5000, 0);
    let ours = client.connector();
    assert_eq!(client.bind(CONNECTOR_BIND, ours, address(2, 0)), Status::SUCCESS);
    for by_code in [true, false, true] {
        let connecting = client.connect(ours, address(1, 5000), b"");
        assert!(!connecting.is_completed());
        // Across a stream, requests take their time, and so does their end.
        pass(20);
        if by_code {
            assert_eq!(client.nd.call(CONNECTOR_CANCEL_IO, &handle(ours)), Status::SUCCESS);
        } else {
            assert!(connecting.cancel());
        }
        assert_eq!(status_now(&connecting), Status::CANCELLED);
    }
    pass(20);
    // The withdrawn ones are still in the backlog, and the next one behind them.
    let connecting = client.connect(ours, address(1, 5000), b"fourth");
    for _ in 0..3 {
        let theirs = server.connector();
        assert_eq!(status(&server.get_request(listener, theirs)), Status::SUCCESS);
        assert_eq!(status(&server.accept(theirs, b"")), CONNECTION_ABORTED);
    }
    let theirs = server.connector();
    assert_eq!(status(&server.get_request(listener, theirs)), Status::SUCCESS);
    assert_eq!(server.private_data(theirs, 100).1, b"fourth");
    let accepting = server.accept(theirs, b"");
    assert_eq!(status(&connecting), Status::SUCCESS);
    assert_eq!(server.nd.call(CONNECTOR_CANCEL_IO, &handle(theirs)), Status::SUCCESS);
    assert_eq!(status_now(&accepting), Status::CANCELLED);
    rest();
    assert_eq!(client.nd.call(CONNECTOR_COMPLETE_CONNECT, &handle(ours)), CONNECTION_ABORTED);
    drop((server.close(), client.close()));
    machine.finish();
}

fn a_withdrawn_request_is_aborted_when_it_is_accepted() {
    let machine = Machine::start();
    let (server, client) = (Program::start(100, 1), Program::start(200, 2));
    let listener = server.listen(5000, 0);
    let (theirs, ours) = (server.connector(), client.connector());
    assert_eq!(client.bind(CONNECTOR_BIND, ours, address(2, 0)), Status::SUCCESS);
    let arriving = server.get_request(listener, theirs);
    let connecting = client.connect(ours, address(1, 5000), b"");
    assert_eq!(status(&arriving), Status::SUCCESS);
    drop(client.close());
    assert_eq!(status(&connecting), Status::CANCELLED);
    assert_eq!(status(&server.accept(theirs, b"")), CONNECTION_ABORTED);
    drop(server.close());
    machine.finish();
}

fn both_sides_learn_of_the_end() {
    let machine = Machine::start();
    for early in [true, false] {
        let (server, client, theirs, ours) = pair_of_programs();
        let notify = |program: &Program, connector| program.nd.begin(CONNECTOR_NOTIFY_DISCONNECT, &handle(connector));
        let told = early.then(|| (notify(&server, theirs), notify(&client, ours)));
        let disconnecting = client.nd.begin(CONNECTOR_DISCONNECT, &handle(ours));
        assert_eq!(status(&disconnecting), Status::SUCCESS, "without the other program");
        rest();
        let (there, here) = told.unwrap_or_else(|| (notify(&server, theirs), notify(&client, ours)));
        assert_eq!(status(&there), Status::SUCCESS);
        assert_eq!(status(&here), CONNECTION_DISCONNECTED);
        assert_eq!(client.nd.call(CONNECTOR_DISCONNECT, &handle(ours)), INVALID_DEVICE_STATE);
        assert_eq!(status(&server.nd.begin(CONNECTOR_DISCONNECT, &handle(theirs))), Status::SUCCESS);
        assert_eq!(server.nd.call(CONNECTOR_DISCONNECT, &handle(theirs)), INVALID_DEVICE_STATE);
        drop((server.close(), client.close()));
    }
    machine.finish();
}

fn the_end_of_a_process_is_a_disconnect() {
    let machine = Machine::start();
    let (server, client, theirs, _) = pair_of_programs();
    server.pair.receive(&server.nd, 1, &[server.region.sge(0, 64)]);
    let told = server.nd.begin(CONNECTOR_NOTIFY_DISCONNECT, &handle(theirs));
    drop(client.close());
    assert_eq!(status(&told), Status::SUCCESS);
    assert_eq!(Status(server.queue.wait(1)[0].status), Status::CANCELLED);
    server.pair.send(&server.nd, 2, OperationFlags::empty(), &[server.region.sge(0, 64)]);
    assert_eq!(Status(server.queue.wait(1)[0].status), Status::CANCELLED);
    drop(server.close());
    machine.finish();
}

fn a_backlog_is_as_long_as_it_says() {
    let machine = Machine::start();
    let (server, client) = (Program::start(100, 1), Program::start(200, 2));
    let listener = server.listen(5000, 2);
    let mut attempts = Vec::new();
    let mut client = client;
    let mut pairs = Vec::new();
    for number in 0..4_u8 {
        let connector = client.connector();
        assert_eq!(client.bind(CONNECTOR_BIND, connector, address(2, 0)), Status::SUCCESS);
        attempts.push((client.connect(connector, address(1, 5000), &[number]), connector));
        rest();
        let spare = new_pair(&client.nd, client.domain, (client.queue.handle, client.queue.handle), SIZES);
        pairs.push(std::mem::replace(&mut client.pair, spare));
    }
    assert_eq!(attempts.iter().filter(|(attempt, _)| attempt.is_completed()).count(), 2);
    for (attempt, _) in &attempts[2..] {
        assert_eq!(status_now(attempt), CONNECTION_REFUSED);
    }
    for number in 0..2_u8 {
        let theirs = server.connector();
        assert_eq!(status(&server.get_request(listener, theirs)), Status::SUCCESS);
        assert_eq!(server.private_data(theirs, 10).1, [number], "in the order of arrival");
    }
    let (server_left, client_left) = (server.close(), client.close());
    drop(attempts);
    drop((server_left, client_left, pairs));
    machine.finish();
}

fn requests_for_connections_end_in_their_order() {
    let machine = Machine::start();
    let server = Program::start(100, 1);
    let listener = server.listen(5000, 0);
    let connectors = [(); 4].map(|()| server.connector());
    let waiting = connectors.map(|connector| server.get_request(listener, connector));
    assert_eq!(status(&server.get_request(listener, connectors[0])), CONNECTION_ACTIVE, "it waits already");
    assert!(waiting[1].cancel());
    assert_eq!(status_now(&waiting[1]), Status::CANCELLED);
    let again = server.get_request(listener, connectors[1]);
    assert_eq!(server.nd.call(LISTENER_CANCEL_IO, &handle(listener)), Status::SUCCESS);
    for request in waiting.iter().chain([&again]) {
        assert_eq!(status_now(request), Status::CANCELLED);
    }
    let last = server.get_request(listener, connectors[2]);
    assert_eq!(server.nd.free(LISTENER_FREE, listener), Status::SUCCESS);
    assert_eq!(status_now(&last), Status::CANCELLED);
    drop(server.close());
    machine.finish();
}
