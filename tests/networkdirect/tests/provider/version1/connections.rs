//! Connections of version 1.

use super::super::client::*;
use super::ends::*;
use networkdirect::machine::{address, pass, rest};
use networkdirect::{cases, cases::Case};

pub const CASES: &[Case] = cases![
    private_data_and_limits_arrive,
    private_data_that_is_too_long_overflows,
    a_rejection_brings_its_data,
    unanswered_connects_time_out,
    addresses_are_told,
    both_sides_learn_of_the_end,
    calls_that_do_not_fit_the_state_are_refused,
    pending_calls_are_cancelled,
];

fn private_data(connector: &Com<'_>) -> Vec<u8> {
    let program = connector.program;
    let length = program.zeroed(8);
    connector.expects(CONNECTION_DATA, &[0, 0, 0, length], BUFFER_OVERFLOW);
    let buffer = program.zeroed(program.u64_at(length) as usize);
    connector.expects(CONNECTION_DATA, &[0, 0, buffer, length], SUCCESS);
    program.read(buffer, program.u64_at(length) as usize)
}

fn private_data_and_limits_arrive() {
    between(false, |active, passive| {
        let listener = listen(passive, 7320);
        let connecting = request(active, passive, &listener, address(2, 7320));
        assert_eq!(private_data(&passive.connector), b"hello");
        let program = passive.program;
        let (limits, part) = (program.zeroed(16), program.zeroed(16));
        let length = program.bytes(&3_u64.to_le_bytes());
        passive.connector.expects(CONNECTION_DATA, &[limits, limits + 8, part, length], BUFFER_OVERFLOW);
        assert_eq!((program.u64_at(length), program.read(part, 4)), (5, b"hel\0".to_vec()), "what fits of it");
        assert_eq!((program.u64_at(limits), program.u64_at(limits + 8)), (8, 8));
        passive.connector.expects(CONNECTION_DATA, &[limits, 0, 0, 0], SUCCESS);
        let accepting = program.overlapped();
        assert_eq!(accept(passive, b"back", &accepting), PENDING);
        assert_eq!(active.connector.finish1(PENDING, &connecting), SUCCESS);
        assert_eq!(private_data(&active.connector), b"back");
        active.connector.release();
        assert_eq!(passive.connector.finish1(PENDING, &accepting), CONNECTION_REFUSED);
    });
}

fn private_data_that_is_too_long_overflows() {
    between(false, |active, passive| {
        let program = active.program;
        let (info, length) = (program.zeroed(128), program.bytes(&128_u64.to_le_bytes()));
        active.adapter.expects(ADAPTER_QUERY, &[1, info, length], SUCCESS);
        let asked = vec![5; program.u64_at(info + 112) as usize + 1];
        let answered = vec![6; program.u64_at(info + 120) as usize + 1];
        let listener = listen(passive, 7321);
        let (connecting, accepting, arriving) = (program.overlapped(), program.overlapped(), program.overlapped());
        let to = address(2, 7321);
        assert_eq!(connect_to(active, to, &asked, &connecting), BUFFER_OVERFLOW);
        assert_eq!(connect_to(active, to, &asked[1..], &connecting), PENDING, "it can still be used");
        let status = listener.status(CONNECTION_REQUEST, &[passive.connector.this, arriving.address]);
        assert_eq!(listener.finish1(status, &arriving), SUCCESS);
        assert_eq!(private_data(&passive.connector), asked[1..]);
        assert_eq!(accept(passive, &answered, &accepting), BUFFER_OVERFLOW);
        let place = program.bytes(&answered);
        passive.connector.expects(REJECT, &[place, answered.len() as u64], BUFFER_OVERFLOW);
        passive.connector.expects(REJECT, &[place, answered.len() as u64 - 1], SUCCESS);
        assert_eq!(active.connector.finish1(PENDING, &connecting), CONNECTION_REFUSED);
        assert_eq!(private_data(&active.connector), answered[1..]);
    });
}

/// By the passive side of a request, and by the active one of an answer.
fn a_rejection_brings_its_data() {
    between(false, |active, passive| {
        let listener = listen(passive, 7322);
        let to = address(2, 7322);
        let connecting = request(active, passive, &listener, to);
        let no = active.program.bytes(b"no");
        passive.connector.expects(REJECT, &[no, 2], SUCCESS);
        assert_eq!(active.connector.finish1(PENDING, &connecting), CONNECTION_REFUSED);
        assert_eq!(private_data(&active.connector), b"no");
        // The same connector and endpoint try again.
        passive.renew();
        let connecting = request(active, passive, &listener, to);
        let accepting = passive.program.overlapped();
        assert_eq!(accept(passive, b"", &accepting), PENDING);
        assert_eq!(active.connector.finish1(PENDING, &connecting), SUCCESS);
        active.connector.expects(REJECT, &[0, 0], SUCCESS);
        assert_eq!(passive.connector.finish1(PENDING, &accepting), CONNECTION_REFUSED);
        // No listener.
        drop(listener);
        active.renew();
        let connecting = active.program.overlapped();
        for _ in 0..2 {
            let status = connect_to(active, to, b"", &connecting);
            assert_eq!(active.connector.finish1(status, &connecting), CONNECTION_REFUSED);
        }
    });
}

/// TIMEOUT counts as success for SUCCEEDED, and the connector may try again.
fn unanswered_connects_time_out() {
    between(false, |active, passive| {
        let listener = listen(passive, 7323);
        let connecting = active.program.overlapped();
        let to = address(2, 7323);
        assert_eq!(connect_to(active, to, b"", &connecting), PENDING);
        pass(60_000);
        assert_eq!(active.connector.finish1(PENDING, &connecting), TIMEOUT);
        // The request that was given up is still in the backlog.
        let (arriving, accepting) = (passive.program.overlapped(), passive.program.overlapped());
        let status = listener.status(CONNECTION_REQUEST, &[passive.connector.this, arriving.address]);
        assert_eq!(listener.finish1(status, &arriving), SUCCESS);
        let status = accept(passive, b"", &accepting);
        assert_eq!(passive.connector.finish1(status, &accepting), CONNECTION_ABORTED);
        passive.renew();
        let connecting = request(active, passive, &listener, to);
        assert_eq!(accept(passive, b"", &accepting), PENDING);
        assert_eq!(active.connector.finish1(PENDING, &connecting), SUCCESS);
        let completing = active.program.overlapped();
        let status = active.connector.status(COMPLETE, &[completing.address]);
        assert_eq!(active.connector.finish1(status, &completing), SUCCESS);
        assert_eq!(passive.connector.finish1(PENDING, &accepting), SUCCESS);
    });
}

fn addresses_are_told() {
    between(true, |active, passive| {
        let program = active.program;
        let (place, length) = (program.zeroed(28), program.zeroed(8));
        let told = |connector: &Com<'_>, slot: usize| {
            program.write(length, &0_u64.to_le_bytes());
            connector.expects(slot, &[place, length], BUFFER_OVERFLOW);
            assert_eq!(program.u64_at(length), 16);
            connector.expects(slot, &[place, length], SUCCESS);
            program.read(place, 8)
        };
        assert_eq!(told(&active.connector, LOCAL_ADDRESS), told(&passive.connector, PEER_ADDRESS));
        assert_eq!(told(&active.connector, PEER_ADDRESS), told(&passive.connector, LOCAL_ADDRESS));
        let alone = connector(&active.adapter);
        for slot in [LOCAL_ADDRESS, PEER_ADDRESS] {
            alone.expects(slot, &[place, length], CONNECTION_INVALID);
        }
        disconnect(active);
    });
}

fn both_sides_learn_of_the_end() {
    between(true, |active, passive| {
        let program = active.program;
        let (near, far, after) = (program.overlapped(), program.overlapped(), program.overlapped());
        active.connector.expects(NOTIFY_DISCONNECT, &[near.address], PENDING);
        passive.connector.expects(NOTIFY_DISCONNECT, &[far.address], PENDING);
        assert_eq!(passive.receive(&[(0, 8)]), SUCCESS);
        disconnect(active);
        assert_eq!(active.connector.finish1(PENDING, &near), CANCELED, "this side has ended it");
        assert_eq!(passive.connector.finish1(PENDING, &far), SUCCESS);
        assert_eq!(passive.one().status, CANCELED);
        active.connector.expects(DISCONNECT, &[after.address], INVALID_DEVICE_STATE);
        disconnect(passive);
        passive.connector.expects(DISCONNECT, &[after.address], INVALID_DEVICE_STATE);
    });
}

fn calls_that_do_not_fit_the_state_are_refused() {
    between(false, |active, passive| {
        let program = active.program;
        let overlapped = program.overlapped();
        let alone = &active.connector;
        alone.expects(COMPLETE, &[overlapped.address], CONNECTION_INVALID);
        alone.expects(NOTIFY_DISCONNECT, &[overlapped.address], CONNECTION_INVALID);
        alone.expects(DISCONNECT, &[overlapped.address], CONNECTION_INVALID);
        alone.expects(REJECT, &[0, 0], CONNECTION_INVALID);
        alone.expects(CONNECTION_DATA, &[0, 0, 0, 0], CONNECTION_INVALID);
        assert_eq!(accept(active, b"", &overlapped), CONNECTION_INVALID);
        let (socket, length) = program.socket(address(2, 7324));
        alone.expects(
            CONNECT,
            &[active.queue.this, socket, length, 0, 0, 0, 0, overlapped.address],
            invalid_parameter(1),
        );
        alone.expects(ACCEPT, &[active.queue.this, 0, 0, overlapped.address], invalid_parameter(1));
        let nowhere = connect_to(active, "0.0.0.0:7324".parse().unwrap(), b"", &overlapped);
        assert_eq!(alone.finish1(nowhere, &overlapped), BAD_NETWORK_NAME);
        let listener = listen(passive, 7324);
        let _connecting = request(active, passive, &listener, address(2, 7324));
        let second = connect_to(active, address(2, 7324), b"", &overlapped);
        assert_eq!(alone.finish1(second, &overlapped), CONNECTION_ACTIVE);
        alone.expects(COMPLETE, &[overlapped.address], CONNECTION_INVALID);
        // The peer gives up before it is accepted.
        active.connector.release();
        rest();
        let status = accept(passive, b"", &overlapped);
        assert_eq!(passive.connector.finish1(status, &overlapped), CONNECTION_ABORTED);
    });
}

fn pending_calls_are_cancelled() {
    between(false, |active, passive| {
        let listener = listen(passive, 7325);
        let program = passive.program;
        let (arriving, connecting) = (program.overlapped(), program.overlapped());
        listener.expects(CONNECTION_REQUEST, &[passive.connector.this, arriving.address], PENDING);
        listener.expects(CANCEL, &[], SUCCESS);
        assert_eq!(arriving.status(), CANCELED);
        assert_eq!(connect_to(active, address(2, 7325), b"", &connecting), PENDING);
        rest();
        active.connector.expects(CANCEL, &[], SUCCESS);
        assert_eq!(active.connector.finish1(PENDING, &connecting), CANCELED);
        let notify = program.overlapped();
        passive.queue.expects(QUEUE_NOTIFY, &[1, notify.address], PENDING);
        passive.queue.expects(CANCEL, &[], SUCCESS);
        assert_eq!(passive.queue.finish1(PENDING, &notify), CANCELED);
        // The withdrawn request is aborted when it is accepted.
        let status = listener.status(CONNECTION_REQUEST, &[passive.connector.this, arriving.address]);
        assert_eq!(listener.finish1(status, &arriving), SUCCESS);
        rest();
        passive.connector.expects(REJECT, &[0, 0], CONNECTION_ABORTED);
    });
}
