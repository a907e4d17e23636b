//! With what each kind of request completes.

use super::client::*;
use super::ends::*;
use super::transfers::with_connected;
use networkdirect::machine::{Machine, address, late, pass, rest};
use networkdirect::{cases, cases::Case};

pub const CASES: &[Case] = cases![
    a_send_without_a_receive_times_out,
    a_send_waits_as_long_as_the_adapter_says,
    local_memory_is_checked_by_completion,
    a_receive_into_forbidden_memory_fails_both_sides,
    requests_that_do_not_fit_their_object,
    reads_without_an_outbound_limit,
    everything_outstanding_is_cancelled_in_order,
    silent_requests_tell_of_their_failure,
    large_transfers_arrive,
    an_overrun_is_told,
];

/// Runs a case on connected ends, again and again: each failure ends a connection.
fn each<T: Copy>(wrong: impl IntoIterator<Item = T>, run: impl Fn(&End<'_>, &End<'_>, T)) {
    let machine = Machine::start();
    for (port, wrong) in (7400..).zip(wrong) {
        let program = Program::start(&machine);
        let (active, passive) = (End::new(&program, 1), End::new(&program, 2));
        connect(&active, &passive, address(2, port));
        run(&active, &passive, wrong);
    }
    machine.finish();
}

/// Not before two seconds and not after four; the peer sees nothing but the end.
fn a_send_without_a_receive_times_out() {
    with_connected(|active, passive| {
        assert_eq!(active.post(SEND, &[(0, 8)], 0), SUCCESS);
        assert_eq!(active.post(SEND, &[(0, 8)], 0), SUCCESS);
        pass(2_000);
        assert_eq!(active.results(), []);
        pass(2_000);
        let statuses: Vec<u32> = active.wait_for(2).iter().map(|done| done.status).collect();
        assert_eq!(statuses, [IO_TIMEOUT, CANCELED]);
        assert_eq!(passive.results(), []);
        assert_eq!(passive.receive(&[(0, 8)]), SUCCESS);
        assert_eq!(passive.one().status, CANCELED);
    });
}

/// For a debugger: without limit.
fn a_send_waits_as_long_as_the_adapter_says() {
    let machine = Machine::with(&[("ReceiverNotReadyMs", "0")]);
    {
        let program = Program::start(&machine);
        let (active, passive) = (End::new(&program, 1), End::new(&program, 2));
        connect(&active, &passive, address(2, 7399));
        assert_eq!(active.post(SEND, &[(0, 8)], 0), SUCCESS);
        pass(3_600_000);
        assert_eq!(active.results(), []);
        assert_eq!(passive.receive(&[(0, 8)]), SUCCESS);
        assert_eq!([active.one().status, passive.one().status], [SUCCESS; 2]);
    }
    machine.finish();
}

fn local_memory_is_checked_by_completion() {
    let wrongs = [SEND, READ, WRITE].into_iter().flat_map(|slot| (0..4).map(move |wrong| (slot, wrong)));
    each(wrongs.filter(|(slot, wrong)| *wrong != 3 || *slot == READ), |active, passive, (slot, wrong)| {
        let read_only = active.adapter.makes(ADAPTER_MEMORY_REGION, IND2_MEMORY_REGION, &[active.file]).unwrap();
        register(&read_only, active.buffer, BUFFER as u64, REMOTE_READ);
        let unwritable = read_only.call(REGION_LOCAL_TOKEN, &[]) as u32;
        let (at, length, token) = match wrong {
            0 => (active.buffer, 64_u32, active.token() as u32 ^ 0x40_0000),
            1 => (active.buffer + BUFFER as u64 - 63, 64, active.token() as u32),
            2 => (active.buffer - 1, 64, active.token() as u32),
            _ => (active.buffer, 64, unwritable),
        };
        let sge = [at.to_le_bytes().as_slice(), &length.to_le_bytes(), &token.to_le_bytes()].concat();
        let sge = active.program.bytes(&sge);
        assert_eq!(passive.receive(&[(0, 64)]), SUCCESS);
        let remote = [passive.buffer, passive.remote_token(), 0];
        let rest: &[u64] = if slot == SEND { &[0] } else { &remote };
        active.pair.expects(slot, &[[9, sge, 1].as_slice(), rest].concat(), SUCCESS);
        assert_eq!(active.one().status, ACCESS_VIOLATION, "slot {slot}, {wrong}");
        assert_eq!(passive.one().status, CANCELED, "the peer's receive");
    });
}

fn a_receive_into_forbidden_memory_fails_both_sides() {
    each([0, 1], |active, passive, wrong| {
        let region = passive.adapter.makes(ADAPTER_MEMORY_REGION, IND2_MEMORY_REGION, &[passive.file]).unwrap();
        register(&region, passive.buffer, 4096, REMOTE_READ);
        let token = if wrong == 0 { region.call(REGION_LOCAL_TOKEN, &[]) as u32 } else { 0x77 };
        let sge = [passive.buffer.to_le_bytes().as_slice(), &64_u32.to_le_bytes(), &token.to_le_bytes()].concat();
        passive.pair.expects(RECEIVE, &[9, passive.program.bytes(&sge), 1], SUCCESS);
        assert_eq!(active.post(SEND, &[(0, 64)], 0), SUCCESS);
        assert_eq!(active.one().status, late(REMOTE_ERROR, SUCCESS));
        assert_eq!(passive.one().status, ACCESS_VIOLATION);
    });
}

fn requests_that_do_not_fit_their_object() {
    each([BIND, INVALIDATE], |active, _, slot| {
        let window = active.adapter.makes(ADAPTER_MEMORY_WINDOW, IND2_MEMORY_WINDOW, &[]).expect("a window");
        let bind = [9, active.region.this, window.this, active.buffer, 64, ALLOW_READ];
        if slot == BIND {
            active.pair.expects(BIND, &bind, SUCCESS);
            active.one();
            active.pair.expects(BIND, &bind, SUCCESS);
        } else {
            active.pair.expects(INVALIDATE, &[9, window.this, 0], SUCCESS);
        }
        assert_eq!(active.one().status, INVALID_DEVICE_REQUEST, "bound already, or not at all");
        assert_eq!(active.post(SEND, &[(0, 8)], 0), SUCCESS);
        assert_eq!(active.one().status, CANCELED);
    });
}

fn reads_without_an_outbound_limit() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let (active, passive) = (End::new(&program, 1), End::new(&program, 2));
    let (listener, at) = (listen(&passive, address(2, 7000)), address(2, 7000));
    let connecting = request_with(&active, &passive, &listener, at, b"", (8, 0));
    let accepting = program.overlapped();
    passive.connector.expects(CONNECTOR_ACCEPT, &[passive.pair.this, 8, 8, 0, 0, accepting.address], PENDING);
    assert_eq!(active.connector.finish(PENDING, &connecting), SUCCESS);
    complete(&active, &passive, &accepting);
    let remote = (passive.buffer, passive.remote_token());
    assert_eq!(active.transfer(READ, &[(0, 64)], remote, 0), SUCCESS);
    assert_eq!(active.one().status, INVALID_DEVICE_REQUEST);
    drop((listener, connecting, accepting, active, passive));
    drop(program);
    machine.finish();
}

/// By Flush, by Disconnect, and by the end of the peer.
fn everything_outstanding_is_cancelled_in_order() {
    each([0, 1, 2], |active, passive, way| {
        let window = active.adapter.makes(ADAPTER_MEMORY_WINDOW, IND2_MEMORY_WINDOW, &[]).expect("a window");
        let remote = (passive.buffer, passive.remote_token());
        // The peer has no receive for the first one, so the others wait behind it.
        assert_eq!(active.receive(&[(0, 8)]), SUCCESS);
        assert_eq!(active.post(SEND, &[(0, 8)], 0), SUCCESS);
        assert_eq!(active.transfer(READ, &[(0, 8)], remote, FENCE), SUCCESS);
        assert_eq!(active.transfer(WRITE, &[(0, 8)], remote, 0), SUCCESS);
        active.pair.expects(BIND, &[4, active.region.this, window.this, active.buffer, 8, ALLOW_READ], SUCCESS);
        active.pair.expects(INVALIDATE, &[5, window.this, 0], SUCCESS);
        assert_eq!(active.results(), []);
        match way {
            0 => active.pair.expects(FLUSH, &[], SUCCESS),
            1 => disconnect(active),
            _ => drop(passive.connector.release()),
        }
        let done = active.wait_for(6);
        assert!(done.iter().all(|done| done.status == CANCELED), "{done:x?}");
        let kinds = done.iter().map(|done| done.kind).filter(|kind| *kind != 0).collect::<Vec<_>>();
        assert_eq!(kinds, [1, 4, 5, 2, 3], "in the order in which they were posted");
    });
}

fn silent_requests_tell_of_their_failure() {
    with_connected(|active, passive| {
        let remote = (passive.buffer, passive.remote_token());
        assert_eq!(active.transfer(WRITE, &[(0, 8)], remote, SILENT), SUCCESS);
        rest();
        assert_eq!(active.results(), []);
        assert_eq!(active.transfer(WRITE, &[(0, 8)], (passive.buffer, 0x1234), SILENT), SUCCESS);
        assert_eq!(active.one().status, ACCESS_VIOLATION);
        assert_eq!(active.post(SEND, &[], SILENT), SUCCESS);
        assert_eq!(active.one().status, CANCELED);
    });
}

/// A receive of 64 MiB in one piece, and 32 MiB at a time.
fn large_transfers_arrive() {
    const LENGTH: usize = 64 << 20;
    with_connected(|active, passive| {
        let ((here, own, _own_region), (there, peers, _peers_region)) =
            (big_region(active, LENGTH), big_region(passive, LENGTH));
        let sge = |buffer: u64, length: usize, token: u32| {
            let bytes =
                [buffer.to_le_bytes().as_slice(), &(length as u32).to_le_bytes(), &token.to_le_bytes()].concat();
            active.program.bytes(&bytes)
        };
        active.program.write(here + (32 << 20) - 8, &[0xA5; 16]);
        passive.pair.expects(RECEIVE, &[1, sge(there, LENGTH, peers), 1], SUCCESS);
        active.pair.expects(SEND, &[2, sge(here, LENGTH, own), 1, 0], SUCCESS);
        active.succeeds(1);
        assert_eq!(passive.succeeds(0).bytes, LENGTH as u32);
        assert_eq!(passive.program.read(there + (32 << 20) - 16, 32), [[0; 8], [0xA5; 8], [0xA5; 8], [0; 8]].concat());
        active.program.write(here, &[0x11; 8]);
        let remote = [there, u64::from(peers), 0];
        let length = 32 << 20;
        active.pair.expects(WRITE, &[[3, sge(here, length, own), 1].as_slice(), &remote].concat(), SUCCESS);
        active.succeeds(5);
        active.pair.expects(
            READ,
            &[[4, sge(here + length as u64, length, own), 1].as_slice(), &remote].concat(),
            SUCCESS,
        );
        active.succeeds(4);
        assert_eq!(active.program.read(here + length as u64, 8), [0x11; 8]);
        disconnect(active);
    });
}

/// Registered memory with its token.
fn big_region<'p>(end: &End<'p>, length: usize) -> (u64, u32, Com<'p>) {
    let region = end.adapter.makes(ADAPTER_MEMORY_REGION, IND2_MEMORY_REGION, &[end.file]).expect("a region");
    let buffer = end.program.zeroed(length);
    register(&region, buffer, length as u64, LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE);
    let token = region.call(REGION_LOCAL_TOKEN, &[]) as u32;
    (buffer, token, region)
}

/// More results than a queue takes that its program does not read.
fn an_overrun_is_told() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let (active, mut passive) = (End::new(&program, 1), End::new(&program, 2));
    let small = passive
        .adapter
        .makes(ADAPTER_COMPLETION_QUEUE, IND2_COMPLETION_QUEUE, &[passive.file, 2, 0, 0])
        .expect("a queue");
    passive.queue = small;
    passive.pair = pair_of(&passive.adapter, &passive.queue, 2);
    connect(&active, &passive, address(2, 7000));
    let errors = program.overlapped();
    passive.queue.expects(QUEUE_NOTIFY, &[0, errors.address], PENDING);
    for _ in 0..3 * DEPTH {
        assert_eq!(passive.receive(&[]), SUCCESS);
        let status = active.post(SEND, &[], 0);
        rest();
        active.results();
        if status != SUCCESS || errors.status() != PENDING {
            break;
        }
    }
    assert_eq!(passive.queue.finish(PENDING, &errors), BUFFER_OVERFLOW);
    let after = program.overlapped();
    let status = passive.queue.status(QUEUE_NOTIFY, &[1, after.address]);
    assert_eq!(passive.queue.finish(status, &after), BUFFER_OVERFLOW, "and from then on");
    assert_eq!(active.post(SEND, &[], 0), SUCCESS);
    assert!(active.wait_for(1)[0].status != SUCCESS, "its queue pairs have ended");
    drop((active, passive));
    drop(program);
    machine.finish();
}
