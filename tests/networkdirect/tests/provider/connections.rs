//! Connecting, refusing and ending.

use super::client::*;
use super::ends::*;
use networkdirect::machine::{Machine, address, rest};
use networkdirect::{cases, cases::Case};

pub const CASES: &[Case] = cases![
    private_data_and_limits_arrive,
    private_data_that_is_too_long_is_refused,
    reject_reaches_the_active_side,
    no_listener_refuses_promptly,
    second_bind_and_second_connect,
    released_connectors_refuse,
    disconnect_is_told_to_both,
];

pub fn with_ends(run: impl FnOnce(&End<'_>, &End<'_>)) {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let (active, passive) = (End::new(&program, 1), End::new(&program, 2));
    run(&active, &passive);
    drop((active, passive));
    drop(program);
    machine.finish();
}

pub fn private_data(connector: &Com<'_>) -> Vec<u8> {
    let program = connector.program;
    let length = program.zeroed(4);
    connector.expects(CONNECTOR_PRIVATE_DATA, &[0, length], BUFFER_OVERFLOW);
    let needed = program.u32_at(length);
    let buffer = program.zeroed(needed as usize);
    connector.expects(CONNECTOR_PRIVATE_DATA, &[buffer, length], SUCCESS);
    program.read(buffer, program.u32_at(length) as usize)
}

fn private_data_and_limits_arrive() {
    with_ends(|active, passive| {
        let listener = listen(passive, address(2, 7100));
        let connecting = request(active, passive, &listener, address(2, 7100), b"from the active side");
        assert_eq!(private_data(&passive.connector), b"from the active side");
        let limits = active.program.zeroed(8);
        passive.connector.expects(CONNECTOR_READ_LIMITS, &[limits, limits + 4], SUCCESS);
        assert_eq!((active.program.u32_at(limits), active.program.u32_at(limits + 4)), (8, 8));
        let accepting = passive.program.overlapped();
        let data = passive.program.bytes(b"from the passive one");
        passive.connector.expects(CONNECTOR_ACCEPT, &[passive.pair.this, 4, 4, data, 20, accepting.address], PENDING);
        assert_eq!(active.connector.finish(PENDING, &connecting), SUCCESS);
        assert_eq!(private_data(&active.connector), b"from the passive one");
        assert_eq!(accepting.status(), PENDING, "until the active side completes");
        complete(active, passive, &accepting);
        disconnect(active);
    });
}

fn private_data_that_is_too_long_is_refused() {
    with_ends(|active, passive| {
        let (info, length) = (active.program.zeroed(96), active.program.bytes(&96_u32.to_le_bytes()));
        active.program.write(info, &0x2_0000_u32.to_le_bytes());
        active.adapter.expects(ADAPTER_QUERY, &[info, length], SUCCESS);
        let most_asked = active.program.u32_at(info + 84) as usize;
        let most_answered = active.program.u32_at(info + 88) as usize;
        let at = address(2, 7101);
        let listener = listen(passive, at);
        let (own, own_length) = active.program.socket(address(1, 0));
        active.connector.expects(CONNECTOR_BIND, &[own, own_length], SUCCESS);
        let (socket, socket_length) = active.program.socket(at);
        let data = active.program.bytes(&vec![7; most_asked + 1]);
        let asked = passive.program.overlapped();
        listener.expects(LISTENER_REQUEST, &[passive.connector.this, asked.address], PENDING);
        let connect = |bytes: usize, overlapped: &Overlapped<'_>| {
            let arguments = [active.pair.this, socket, socket_length, 0, 0, data, bytes as u64, overlapped.address];
            active.connector.status(CONNECTOR_CONNECT, &arguments)
        };
        let connecting = active.program.overlapped();
        assert_eq!(connect(most_asked + 1, &connecting), INVALID_BUFFER_SIZE);
        assert_eq!(connect(most_asked, &connecting), PENDING, "the connector can still be used");
        assert_eq!(listener.finish(PENDING, &asked), SUCCESS);
        assert_eq!(private_data(&passive.connector), vec![7; most_asked]);
        let accepting = passive.program.overlapped();
        let data = passive.program.bytes(&vec![8; most_answered + 1]);
        let accept = |bytes: usize| {
            let arguments = [passive.pair.this, 0, 0, data, bytes as u64, accepting.address];
            passive.connector.status(CONNECTOR_ACCEPT, &arguments)
        };
        assert_eq!(accept(most_answered + 1), INVALID_BUFFER_SIZE);
        assert_eq!(accept(most_answered), PENDING, "a second Accept works");
        assert_eq!(active.connector.finish(PENDING, &connecting), SUCCESS);
        assert_eq!(private_data(&active.connector), vec![8; most_answered]);
        active.connector.release();
        assert_eq!(passive.connector.finish(PENDING, &accepting), CONNECTION_REFUSED, "the active side is gone");
    });
}

fn reject_reaches_the_active_side() {
    with_ends(|active, passive| {
        let listener = listen(passive, address(2, 7102));
        let connecting = request(active, passive, &listener, address(2, 7102), b"");
        let data = passive.program.bytes(b"no");
        passive.connector.expects(CONNECTOR_REJECT, &[data, 2], SUCCESS);
        assert_eq!(active.connector.finish(PENDING, &connecting), CONNECTION_REFUSED);
        assert_eq!(private_data(&active.connector), b"no");
    });
}

fn no_listener_refuses_promptly() {
    with_ends(|active, _| {
        let (own, own_length) = active.program.socket(address(1, 0));
        active.connector.expects(CONNECTOR_BIND, &[own, own_length], SUCCESS);
        let (socket, length) = active.program.socket(address(2, 7103));
        for _ in 0..2 {
            let overlapped = active.program.overlapped();
            let arguments = [active.pair.this, socket, length, 0, 0, 0, 0, overlapped.address];
            let status = active.connector.status(CONNECTOR_CONNECT, &arguments);
            assert_eq!(active.connector.finish(status, &overlapped), CONNECTION_REFUSED, "and again: it may retry");
        }
    });
}

fn second_bind_and_second_connect() {
    with_ends(|active, passive| {
        let listener = listen(passive, address(2, 7104));
        let (own, own_length) = passive.program.socket(address(2, 7105));
        listener.expects(LISTENER_BIND, &[own, own_length], ADDRESS_ALREADY_ASSOCIATED);
        let connecting = request(active, passive, &listener, address(2, 7104), b"");
        let (own, own_length) = active.program.socket(address(1, 0));
        active.connector.expects(CONNECTOR_BIND, &[own, own_length], ADDRESS_ALREADY_ASSOCIATED);
        let (socket, length) = active.program.socket(address(2, 7104));
        let second = active.program.overlapped();
        let arguments = [active.pair.this, socket, length, 0, 0, 0, 0, second.address];
        let status = active.connector.status(CONNECTOR_CONNECT, &arguments);
        assert_eq!(active.connector.finish(status, &second), CONNECTION_ACTIVE);
        passive.connector.expects(CONNECTOR_REJECT, &[0, 0], SUCCESS);
        assert_eq!(active.connector.finish(PENDING, &connecting), CONNECTION_REFUSED);
    });
}

fn released_connectors_refuse() {
    with_ends(|active, passive| {
        let listener = listen(passive, address(2, 7106));
        let _connecting = request(active, passive, &listener, address(2, 7106), b"");
        let accepting = passive.program.overlapped();
        passive.connector.expects(CONNECTOR_ACCEPT, &[passive.pair.this, 0, 0, 0, 0, accepting.address], PENDING);
        rest();
        assert_eq!(active.connector.release(), 0);
        assert_eq!(passive.connector.finish(PENDING, &accepting), CONNECTION_REFUSED);
    });
}

fn disconnect_is_told_to_both() {
    with_ends(|active, passive| {
        let never = active.program.overlapped();
        let status = active.connector.status(CONNECTOR_DISCONNECT, &[never.address]);
        assert_eq!(active.connector.finish(status, &never), CONNECTION_INVALID);
        connect(active, passive, address(2, 7107));
        let (near, far) = (active.program.overlapped(), passive.program.overlapped());
        active.connector.expects(CONNECTOR_NOTIFY, &[near.address], PENDING);
        passive.connector.expects(CONNECTOR_NOTIFY, &[far.address], PENDING);
        assert_eq!(passive.receive(&[(0, 8)]), SUCCESS);
        disconnect(active);
        assert_eq!(active.connector.finish(PENDING, &near), CONNECTION_DISCONNECTED);
        assert_eq!(passive.connector.finish(PENDING, &far), SUCCESS);
        assert_eq!(passive.one().status, CANCELED, "flushed at the passive side too");
        disconnect(passive);
    });
}
