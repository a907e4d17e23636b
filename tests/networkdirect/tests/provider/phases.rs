//! The phases of a connection: what each call answers in each, and what becomes of the other side when one goes.

use super::client::*;
use super::connections::{private_data, with_ends};
use super::ends::*;
use networkdirect::machine::{Machine, address, pass, rest};
use networkdirect::{cases, cases::Case};

pub const CASES: &[Case] = cases![
    calls_before_a_connection,
    calls_during_an_attempt,
    calls_on_listeners,
    released_actives_in_each_phase,
    released_passives_in_each_phase,
    killed_processes_in_each_phase,
    closed_listeners_refuse,
    the_active_side_may_reject,
    rejections_have_limits_too,
    unanswered_connects_time_out,
    the_end_is_told_before_the_flush,
    ends_come_once,
    notifications_may_come_first,
    a_connection_with_itself,
];

const LOCAL_ADDRESS: usize = 12;
const PEER_ADDRESS: usize = 13;
const LISTENER_ADDRESS: usize = 7;

/// Starts an overlapped call and says how it ends.
fn ended(object: &Com<'_>, slot: usize, before: &[u64]) -> u32 {
    let overlapped = object.program.overlapped();
    let status = object.status(slot, &[before, &[overlapped.address]].concat());
    object.finish(status, &overlapped)
}

fn connect_to(end: &End<'_>, to: &str) -> u32 {
    let (socket, length) = end.program.socket(to.parse().expect("an address"));
    ended(&end.connector, CONNECTOR_CONNECT, &[end.pair.this, socket, length, 8, 8, 0, 0])
}

fn bind(end: &End<'_>, host: u8) -> u32 {
    let (own, length) = end.program.socket(address(host, 0));
    end.connector.status(CONNECTOR_BIND, &[own, length])
}

fn accept<'p>(end: &End<'p>) -> Overlapped<'p> {
    let overlapped = end.program.overlapped();
    end.connector.expects(CONNECTOR_ACCEPT, &[end.pair.this, 8, 8, 0, 0, overlapped.address], PENDING);
    overlapped
}

fn accepted(end: &End<'_>) -> u32 {
    ended(&end.connector, CONNECTOR_ACCEPT, &[end.pair.this, 8, 8, 0, 0])
}

fn calls_before_a_connection() {
    with_ends(|active, _| {
        let (connector, program) = (&active.connector, active.program);
        let (place, length) = (program.zeroed(28), program.zeroed(4));
        assert_eq!(connect_to(active, "10.0.0.2:7700"), ADDRESS_NOT_ASSOCIATED);
        for slot in [CONNECTOR_COMPLETE, CONNECTOR_NOTIFY, CONNECTOR_DISCONNECT] {
            assert_eq!(ended(connector, slot, &[]), CONNECTION_INVALID);
        }
        assert_eq!(accepted(active), CONNECTION_INVALID);
        connector.expects(CONNECTOR_REJECT, &[0, 0], CONNECTION_INVALID);
        connector.expects(CONNECTOR_READ_LIMITS, &[place, place + 4], CONNECTION_INVALID);
        connector.expects(CONNECTOR_PRIVATE_DATA, &[place, length], CONNECTION_INVALID);
        connector.expects(LOCAL_ADDRESS, &[place, length], CONNECTION_INVALID);
        connector.expects(PEER_ADDRESS, &[place, length], CONNECTION_INVALID);
        let (unusual, bytes) = program.socket("[::1]:0".parse().unwrap());
        assert_ne!(connector.status(CONNECTOR_BIND, &[unusual, bytes]), SUCCESS, "no address of the adapter's");
        assert_eq!(bind(active, 2), INVALID_ADDRESS, "the other adapter's");
        assert_eq!(bind(active, 1), SUCCESS);
        assert_eq!(bind(active, 1), ADDRESS_ALREADY_ASSOCIATED);
        program.write(length, &15_u32.to_le_bytes());
        connector.expects(LOCAL_ADDRESS, &[place, length], BUFFER_OVERFLOW);
        assert_eq!((program.u32_at(length), program.read(place, 16)), (16, vec![0; 16]), "as it was");
        connector.expects(LOCAL_ADDRESS, &[place, length], SUCCESS);
        assert!(u16::from_be_bytes(program.read(place + 2, 2).try_into().unwrap()) >= 49152, "from Bind on");
        let (socket, socket_length) = program.socket(address(2, 7700));
        let wrong = [active.queue.this, socket, socket_length, 8, 8, 0, 0];
        assert_eq!(ended(connector, CONNECTOR_CONNECT, &wrong), invalid_parameter(1));
        let no_data = [active.pair.this, socket, socket_length, 8, 8, 0, 5];
        assert_eq!(ended(connector, CONNECTOR_CONNECT, &no_data), ACCESS_VIOLATION);
        assert_eq!(connect_to(active, "0.0.0.0:7700"), BAD_NETWORK_NAME);
        assert_eq!(connect_to(active, "10.0.0.9:7700"), HOST_UNREACHABLE);
        assert_eq!(connect_to(active, "10.0.0.2:7700"), CONNECTION_REFUSED, "and after all that it can be used");
    });
}

fn calls_during_an_attempt() {
    with_ends(|active, passive| {
        let listener = listen(passive, address(2, 7701));
        let connecting = request(active, passive, &listener, address(2, 7701), b"data");
        assert_eq!(bind(active, 1), ADDRESS_ALREADY_ASSOCIATED);
        assert_eq!(bind(passive, 2), ADDRESS_ALREADY_ASSOCIATED);
        assert_eq!(connect_to(active, "10.0.0.2:7701"), CONNECTION_ACTIVE);
        assert_eq!(connect_to(passive, "10.0.0.1:7701"), CONNECTION_ACTIVE);
        assert_eq!(accepted(active), CONNECTION_ACTIVE);
        active.connector.expects(CONNECTOR_REJECT, &[0, 0], INVALID_DEVICE_STATE);
        for connector in [&active.connector, &passive.connector] {
            assert_eq!(ended(connector, CONNECTOR_COMPLETE, &[]), CONNECTION_INVALID);
            assert_eq!(ended(connector, CONNECTOR_DISCONNECT, &[]), CONNECTION_INVALID);
        }
        let program = passive.program;
        let (place, length) = (program.zeroed(28), program.bytes(&28_u32.to_le_bytes()));
        passive.connector.expects(PEER_ADDRESS, &[place, length], SUCCESS);
        let peer = program.read(place, 16);
        active.connector.expects(LOCAL_ADDRESS, &[place, length], SUCCESS);
        assert_eq!(program.read(place, 16), peer);
        // A pointer to nothing has no bytes, whatever the length says.
        let garbage = program.bytes(&[0xEE; 4]);
        passive.connector.expects(CONNECTOR_PRIVATE_DATA, &[0, garbage], BUFFER_OVERFLOW);
        assert_eq!(program.u32_at(garbage), 4);
        // What fits of it.
        program.write(garbage, &2_u32.to_le_bytes());
        let part = program.bytes(&[0xEE; 4]);
        passive.connector.expects(CONNECTOR_PRIVATE_DATA, &[part, garbage], BUFFER_OVERFLOW);
        assert_eq!((program.u32_at(garbage), program.read(part, 4)), (4, b"da\xEE\xEE".to_vec()));
        passive.connector.expects(CONNECTOR_READ_LIMITS, &[0, 0], SUCCESS);
        let accepting = accept(passive);
        assert_eq!(active.connector.finish(PENDING, &connecting), SUCCESS);
        assert_eq!(accepted(passive), CONNECTION_ACTIVE, "once");
        assert_eq!(connect_to(active, "10.0.0.2:7701"), CONNECTION_ACTIVE);
        // A process may take its time between the answer and its completion.
        pass(6_000);
        complete(active, passive, &accepting);
        for end in [active, passive] {
            assert_eq!(connect_to(end, "10.0.0.2:7701"), CONNECTION_ACTIVE);
            assert_eq!(ended(&end.connector, CONNECTOR_COMPLETE, &[]), CONNECTION_INVALID);
            assert_eq!(accepted(end), CONNECTION_ACTIVE);
            assert_ne!(end.connector.status(CONNECTOR_REJECT, &[0, 0]), SUCCESS);
        }
        disconnect(active);
    });
}

fn calls_on_listeners() {
    with_ends(|_, passive| {
        let program = passive.program;
        let make = || passive.adapter.makes(ADAPTER_LISTENER, IND2_LISTENER, &[passive.file]).expect("a listener");
        let (listener, other) = (make(), make());
        let (place, length) = (program.zeroed(28), program.bytes(&28_u32.to_le_bytes()));
        listener.expects(LISTENER_ADDRESS, &[place, length], INVALID_DEVICE_STATE);
        listener.expects(LISTENER_LISTEN, &[0], ADDRESS_NOT_ASSOCIATED);
        assert_eq!(ended(&listener, LISTENER_REQUEST, &[passive.connector.this]), INVALID_DEVICE_STATE);
        let (any, any_length) = program.socket(address(2, 0));
        listener.expects(LISTENER_BIND, &[any, any_length], SUCCESS);
        listener.expects(LISTENER_BIND, &[any, any_length], ADDRESS_ALREADY_ASSOCIATED);
        program.write(length, &3_u32.to_le_bytes());
        listener.expects(LISTENER_ADDRESS, &[place, length], BUFFER_OVERFLOW);
        listener.expects(LISTENER_ADDRESS, &[place, length], SUCCESS);
        other.expects(LISTENER_BIND, &[place, 16], SHARING_VIOLATION);
        other.expects(LISTENER_BIND, &[program.zeroed(16), 16], INVALID_ADDRESS);
        listener.expects(LISTENER_LISTEN, &[2], SUCCESS);
        listener.expects(LISTENER_LISTEN, &[2], INVALID_DEVICE_STATE);
        assert_eq!(ended(&listener, LISTENER_REQUEST, &[passive.queue.this]), invalid_parameter(1));
        let waiting = [program.overlapped(), program.overlapped()];
        listener.expects(LISTENER_REQUEST, &[passive.connector.this, waiting[0].address], PENDING);
        assert_eq!(
            ended(&listener, LISTENER_REQUEST, &[passive.connector.this]),
            CONNECTION_ACTIVE,
            "it waits already"
        );
        listener.expects(CANCEL, &[], SUCCESS);
        assert_eq!(listener.finish(PENDING, &waiting[0]), CANCELED);
        listener.expects(LISTENER_REQUEST, &[passive.connector.this, waiting[1].address], PENDING);
        drop(listener);
        assert_eq!(waiting[1].status(), CANCELED, "with the listener");
        other.expects(LISTENER_BIND, &[place, 16], SUCCESS);
    });
}

fn released_actives_in_each_phase() {
    let machine = Machine::start();
    for phase in 0..4 {
        let program = Program::start(&machine);
        let (active, passive) = (End::new(&program, 1), End::new(&program, 2));
        let at = address(2, 7710 + phase);
        let listener = listen(&passive, at);
        if phase == 0 {
            // In the backlog: the request is found there, and aborted when it is accepted.
            assert_eq!(bind(&active, 1), SUCCESS);
            let (socket, length) = program.socket(at);
            let connecting = program.overlapped();
            let arguments = [active.pair.this, socket, length, 8, 8, 0, 0, connecting.address];
            active.connector.expects(CONNECTOR_CONNECT, &arguments, PENDING);
            rest();
            assert_eq!(active.connector.release(), 0);
            assert_eq!(connecting.status(), CANCELED);
            rest();
            assert_eq!(ended(&listener, LISTENER_REQUEST, &[passive.connector.this]), SUCCESS);
            assert_eq!(accepted(&passive), CONNECTION_ABORTED);
        } else {
            let connecting = request(&active, &passive, &listener, at, b"");
            if phase == 1 {
                assert_eq!(active.connector.release(), 0);
                assert_eq!(connecting.status(), CANCELED);
                rest();
                assert_eq!(accepted(&passive), CONNECTION_ABORTED);
                passive.connector.expects(CONNECTOR_REJECT, &[0, 0], CONNECTION_ABORTED);
            } else {
                let accepting = accept(&passive);
                assert_eq!(active.connector.finish(PENDING, &connecting), SUCCESS);
                if phase == 2 {
                    assert_eq!(active.connector.release(), 0);
                    assert_eq!(passive.connector.finish(PENDING, &accepting), CONNECTION_REFUSED);
                } else {
                    complete(&active, &passive, &accepting);
                    assert_eq!(active.connector.release(), 0);
                    assert_eq!(ended(&passive.connector, CONNECTOR_NOTIFY, &[]), SUCCESS, "a disconnect");
                }
            }
        }
    }
    machine.finish();
}

fn released_passives_in_each_phase() {
    let machine = Machine::start();
    for phase in 0..3 {
        let program = Program::start(&machine);
        let (active, passive) = (End::new(&program, 1), End::new(&program, 2));
        let at = address(2, 7720 + phase);
        let listener = listen(&passive, at);
        let connecting = request(&active, &passive, &listener, at, b"");
        if phase == 0 {
            assert_eq!(passive.connector.release(), 0);
            assert_eq!(active.connector.finish(PENDING, &connecting), CONNECTION_REFUSED);
            assert_eq!(connect_to_released(&active, &listener, at), CONNECTION_REFUSED, "it may try again");
            continue;
        }
        let accepting = accept(&passive);
        assert_eq!(active.connector.finish(PENDING, &connecting), SUCCESS);
        if phase == 1 {
            assert_eq!(passive.connector.release(), 0);
            assert_eq!(accepting.status(), CANCELED);
            rest();
            assert_eq!(ended(&active.connector, CONNECTOR_COMPLETE, &[]), CONNECTION_ABORTED);
        } else {
            complete(&active, &passive, &accepting);
            let told = program.overlapped();
            active.connector.expects(CONNECTOR_NOTIFY, &[told.address], PENDING);
            assert_eq!(passive.connector.release(), 0);
            assert_eq!(active.connector.finish(PENDING, &told), SUCCESS);
            disconnect(&active);
        }
    }
    machine.finish();
}

fn connect_to_released(active: &End<'_>, listener: &Com<'_>, at: std::net::SocketAddr) -> u32 {
    listener.release();
    connect_to(active, &at.to_string())
}

fn killed_processes_in_each_phase() {
    let machine = Machine::start();
    for phase in 0..8_u16 {
        let (dies_active, step) = (phase % 2 == 0, phase / 2);
        let (left, right) = (Program::start(&machine), Program::start(&machine));
        let (active, passive) = (End::new(&left, 1), End::new(&right, 2));
        let at = address(2, 7730 + phase);
        let listener = listen(&passive, at);
        let connecting = request(&active, &passive, &listener, at, b"");
        let (victim, survivor) = if dies_active { (&left, &passive.connector) } else { (&right, &active.connector) };
        match step {
            0 => {
                victim.process.kill();
                rest();
                if dies_active {
                    assert_eq!(accepted(&passive), CONNECTION_ABORTED);
                } else {
                    assert_eq!(survivor.finish(PENDING, &connecting), CONNECTION_REFUSED);
                }
            }
            1 => {
                let accepting = accept(&passive);
                assert_eq!(active.connector.finish(PENDING, &connecting), SUCCESS);
                victim.process.kill();
                rest();
                if dies_active {
                    assert_eq!(survivor.finish(PENDING, &accepting), CONNECTION_REFUSED);
                } else {
                    assert_eq!(ended(survivor, CONNECTOR_COMPLETE, &[]), CONNECTION_ABORTED);
                }
            }
            _ => {
                let accepting = accept(&passive);
                assert_eq!(active.connector.finish(PENDING, &connecting), SUCCESS);
                complete(&active, &passive, &accepting);
                let told = survivor.program.overlapped();
                survivor.expects(CONNECTOR_NOTIFY, &[told.address], PENDING);
                let end = if dies_active { &passive } else { &active };
                if step == 3 {
                    assert_eq!(end.receive(&[(0, 8)]), SUCCESS);
                }
                victim.process.kill();
                assert_eq!(survivor.finish(PENDING, &told), SUCCESS);
                if step == 3 {
                    assert_eq!(end.one().status, CANCELED);
                }
                assert_eq!(ended(survivor, CONNECTOR_DISCONNECT, &[]), SUCCESS);
            }
        }
        drop((active, passive, listener));
    }
    machine.finish();
}

fn closed_listeners_refuse() {
    with_ends(|active, passive| {
        let at = address(2, 7740);
        let listener = listen(passive, at);
        assert_eq!(bind(active, 1), SUCCESS);
        let (socket, length) = active.program.socket(at);
        let connecting = active.program.overlapped();
        let arguments = [active.pair.this, socket, length, 8, 8, 0, 0, connecting.address];
        active.connector.expects(CONNECTOR_CONNECT, &arguments, PENDING);
        pass(10_000);
        assert_eq!(connecting.status(), PENDING, "no Accept is no reason to fail");
        listener.release();
        assert_eq!(active.connector.finish(PENDING, &connecting), CONNECTION_REFUSED, "what waited there");
        assert_eq!(connect_to(active, &at.to_string()), CONNECTION_REFUSED);
    });
}

fn the_active_side_may_reject() {
    with_ends(|active, passive| {
        let listener = listen(passive, address(2, 7741));
        let connecting = request(active, passive, &listener, address(2, 7741), b"");
        let accepting = accept(passive);
        assert_eq!(active.connector.finish(PENDING, &connecting), SUCCESS);
        let data = active.program.bytes(b"not you");
        active.connector.expects(CONNECTOR_REJECT, &[data, 7], SUCCESS);
        assert_eq!(passive.connector.finish(PENDING, &accepting), CONNECTION_REFUSED);
    });
}

fn rejections_have_limits_too() {
    with_ends(|active, passive| {
        let program = active.program;
        let (info, length) = (
            program.bytes(&[&0x2_0000_u32.to_le_bytes(), [0_u8; 92].as_slice()].concat()),
            program.bytes(&96_u32.to_le_bytes()),
        );
        active.adapter.expects(ADAPTER_QUERY, &[info, length], SUCCESS);
        let most = u64::from(program.u32_at(info + 88));
        let listener = listen(passive, address(2, 7742));
        let connecting = request(active, passive, &listener, address(2, 7742), b"");
        let data = passive.program.bytes(&vec![9; most as usize + 1]);
        passive.connector.expects(CONNECTOR_REJECT, &[data, most + 1], INVALID_BUFFER_SIZE);
        passive.connector.expects(CONNECTOR_REJECT, &[0, 1], ACCESS_VIOLATION);
        passive.connector.expects(CONNECTOR_REJECT, &[data, most], SUCCESS);
        assert_eq!(active.connector.finish(PENDING, &connecting), CONNECTION_REFUSED);
        assert_eq!(private_data(&active.connector), vec![9; most as usize]);
    });
}

/// The connector and the queue pair may try again.
fn unanswered_connects_time_out() {
    with_ends(|active, passive| {
        let at = address(2, 7743);
        let listener = listen(passive, at);
        let connecting = request(active, passive, &listener, at, b"");
        pass(60_000);
        assert_eq!(active.connector.finish(PENDING, &connecting), IO_TIMEOUT);
        assert_eq!(accepted(passive), CONNECTION_ABORTED);
        let again = active.program.overlapped();
        let (socket, length) = active.program.socket(at);
        let arguments = [active.pair.this, socket, length, 8, 8, 0, 0, again.address];
        active.connector.expects(CONNECTOR_CONNECT, &arguments, PENDING);
        active.connector.expects(CANCEL, &[], SUCCESS);
        assert_eq!(active.connector.finish(PENDING, &again), CANCELED);
    });
}

/// At the side that did not end it: NotifyDisconnect, then what the flush completes.
fn the_end_is_told_before_the_flush() {
    let machine = Machine::start();
    for way in 0..3 {
        let (left, right) = (Program::start(&machine), Program::start(&machine));
        let (active, passive) = (End::new(&left, 1), End::new(&right, 2));
        connect(&active, &passive, address(2, 7750 + way));
        let port = right.export("make_port", &[passive.file]);
        let (told, flushed) = (right.overlapped(), right.overlapped());
        passive.queue.expects(QUEUE_NOTIFY, &[1, flushed.address], PENDING);
        passive.connector.expects(CONNECTOR_NOTIFY, &[told.address], PENDING);
        assert_eq!(passive.receive(&[(0, 8)]), SUCCESS);
        match way {
            0 => disconnect(&active),
            1 => assert_eq!(active.connector.release(), 0),
            _ => left.process.kill(),
        }
        rest();
        let packets = [(); 3].map(|()| right.export("next_packet", &[port, 0]));
        assert_eq!(packets, [told.address, flushed.address, 0], "way {way}");
        assert_eq!((told.status(), passive.one().status), (SUCCESS, CANCELED));
        right.export("close_handle", &[port]);
        drop((active, passive));
    }
    machine.finish();
}

fn ends_come_once() {
    with_ends(|active, passive| {
        connect(active, passive, address(2, 7744));
        disconnect(active);
        assert_eq!(ended(&active.connector, CONNECTOR_DISCONNECT, &[]), INVALID_DEVICE_STATE);
        assert_eq!(ended(&active.connector, CONNECTOR_NOTIFY, &[]), CONNECTION_DISCONNECTED);
        rest();
        assert_eq!(ended(&passive.connector, CONNECTOR_NOTIFY, &[]), SUCCESS);
        disconnect(passive);
        assert_eq!(ended(&passive.connector, CONNECTOR_DISCONNECT, &[]), INVALID_DEVICE_STATE);
        assert_eq!(connect_to(active, "10.0.0.2:7744"), INVALID_DEVICE_STATE, "the queue pair is used up");
        // Posts are taken and cancelled.
        for end in [active, passive] {
            assert_eq!(end.receive(&[]), SUCCESS);
            assert_eq!(end.post(SEND, &[], SILENT), SUCCESS);
            assert!(end.wait_for(2).iter().all(|done| done.status == CANCELED));
        }
    });
}

/// Some clients wait for the end as soon as they have asked for the completion; and a wait is cancelled.
fn notifications_may_come_first() {
    with_ends(|active, passive| {
        let listener = listen(passive, address(2, 7745));
        let connecting = request(active, passive, &listener, address(2, 7745), b"");
        let accepting = accept(passive);
        assert_eq!(active.connector.finish(PENDING, &connecting), SUCCESS);
        let (early, completing) = (active.program.overlapped(), active.program.overlapped());
        active.connector.expects(CONNECTOR_NOTIFY, &[early.address], PENDING);
        active.connector.expects(CONNECTOR_COMPLETE, &[completing.address], PENDING);
        assert_eq!(passive.connector.finish(PENDING, &accepting), SUCCESS);
        assert_eq!(early.status(), PENDING);
        active.connector.expects(CANCEL, &[], SUCCESS);
        assert_eq!(active.connector.finish(PENDING, &early), CANCELED);
        assert_eq!(active.connector.finish(PENDING, &completing), SUCCESS);
        let again = active.program.overlapped();
        active.connector.expects(CONNECTOR_NOTIFY, &[again.address], PENDING);
        disconnect(passive);
        assert_eq!(active.connector.finish(PENDING, &again), SUCCESS);
    });
}

/// Both ends on one adapter, by 127.0.0.1.
fn a_connection_with_itself() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let (active, passive) = (End::new(&program, 1), End::new(&program, 1));
    let listener = listen(&passive, address(1, 7746));
    let connecting = request(&active, &passive, &listener, "127.0.0.1:7746".parse().unwrap(), b"");
    let accepting = accept(&passive);
    assert_eq!(active.connector.finish(PENDING, &connecting), SUCCESS);
    complete(&active, &passive, &accepting);
    active.fill(0, 64, 7);
    assert_eq!(passive.receive(&[(0, 64)]), SUCCESS);
    assert_eq!(active.post(SEND, &[(0, 64)], 0), SUCCESS);
    active.succeeds(1);
    passive.succeeds(0);
    assert_eq!(passive.bytes(0, 64), active.bytes(0, 64));
    disconnect(&passive);
    drop((listener, connecting, accepting, active, passive));
    drop(program);
    machine.finish();
}
