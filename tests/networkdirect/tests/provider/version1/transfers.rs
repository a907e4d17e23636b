//! Work requests of version 1.

use super::super::client::*;
use super::super::ends::{ALLOW_READ, ALLOW_WRITE, SILENT};
use super::ends::*;
use networkdirect::machine::{across_streams, late, pass, rest};
use networkdirect::{cases, cases::Case};

pub const CASES: &[Case] = cases![
    every_operation_moves_its_bytes,
    messages_invalidate_windows_of_the_peer,
    a_window_is_told_behind_its_receive,
    batches_wait_for_their_submission,
    posts_are_refused_by_their_statuses,
    failed_completions_end_the_connection,
    flush_cancels_receives,
];

fn every_operation_moves_its_bytes() {
    between(true, |active, passive| {
        active.fill(3);
        passive.fill(9);
        // Longer than what is copied, and not; both ends' results say how much.
        for length in [5000, active.inline_data, 0] {
            assert_eq!(passive.receive(&[(0, 3000), (8192, 5000)]), SUCCESS);
            let pieces: &[(u64, u64)] = if length == 0 { &[] } else { &[(100, length)] };
            assert_eq!(active.send(pieces, 0), SUCCESS);
            assert_eq!(active.succeeds().bytes, length, "from the post on");
            assert_eq!(passive.succeeds().bytes, length);
            let first = length.min(3000) as usize;
            assert_eq!(passive.bytes(0, first), active.bytes(100, first));
        }
        // Memory without a registration is copied.
        assert_eq!(passive.receive(&[(0, 64)]), SUCCESS);
        let sges = active.sges_of(0, &[(7, 8), (15, 8)]);
        active.endpoint.expects(SEND, &[active.result(SEND), sges, 2, 0], SUCCESS);
        active.succeeds();
        assert_eq!((passive.succeeds().bytes, passive.bytes(0, 16)), (16, active.bytes(7, 16)));
        // Remote memory is lent by windows alone.
        let window = passive.window(0);
        let descriptor = passive.program.zeroed(20);
        assert_eq!(passive.bind(&window, 4096, 8192, ALLOW_READ | ALLOW_WRITE, descriptor), SUCCESS);
        passive.succeeds();
        let base = passive.program.read(descriptor, 16);
        assert_eq!(base, [(passive.buffer + 4096).to_be_bytes(), 8192_u64.to_be_bytes()].concat(), "network order");
        assert_eq!(active.transfer(WRITE, &[(0, 4000)], descriptor, 96, 0), SUCCESS);
        active.succeeds();
        assert_eq!(passive.bytes(4096 + 96, 4000), active.bytes(0, 4000));
        assert_eq!(active.transfer(READ, &[(30_000, 8192)], descriptor, 0, 0), SUCCESS);
        assert_eq!(active.succeeds().bytes, 8192);
        assert_eq!(active.bytes(30_000, 8192), passive.bytes(4096, 8192));
        assert_eq!(active.transfer(WRITE, &[(0, 8)], descriptor, 0, SILENT), SUCCESS);
        // Is the peer there? Needs no window, and the silent Write is over by then: the other end's requests wait for none of these.
        assert_eq!(active.transfer(READ, &[], 0, 0, 0), SUCCESS);
        active.succeeds();
        assert_eq!(passive.invalidate(&window), SUCCESS);
        passive.succeeds();
        assert_eq!(active.transfer(READ, &[(0, 8)], descriptor, 0, 0), SUCCESS);
        assert_eq!(active.one().status, ACCESS_VIOLATION, "the window is no more");
    });
}

/// The program that made the window is told by the result that it gave, and the region may be deregistered.
fn messages_invalidate_windows_of_the_peer() {
    between(true, |active, passive| {
        let told = passive.program.bytes(&[0xFF; 16]);
        let (window, other) = (passive.window(told), passive.window(0));
        let (descriptor, second) = (passive.program.zeroed(20), passive.program.zeroed(20));
        for round in 0..3 {
            assert_eq!(passive.bind(&window, 0, 4096, ALLOW_READ, descriptor), SUCCESS);
            assert_eq!(passive.bind(&other, 0, 4096, ALLOW_READ, second), SUCCESS);
            passive.wait_for(2);
            let busy = passive.program.overlapped();
            passive.adapter.expects(ADAPTER_DEREGISTER, &[passive.region, busy.address], DEVICE_BUSY);
            assert_eq!(passive.receive(&[(0, 64)]), SUCCESS);
            assert_eq!(active.send_and_invalidate(&[(0, 40)], descriptor, 0), SUCCESS);
            assert_eq!(active.succeeds().bytes, 40);
            let results = passive.wait_for(2);
            assert_eq!((results[0].status, results[0].bytes), (SUCCESS, 40), "the receive, round {round}");
            assert_eq!((results[1].result, results[1].status), (told, SUCCESS), "the window");
            // One without a result is not told.
            assert_eq!(passive.receive(&[(0, 64)]), SUCCESS);
            assert_eq!(active.send_and_invalidate(&[(0, 4)], second, 0), SUCCESS);
            active.succeeds();
            assert_eq!(passive.succeeds().bytes, 4);
        }
        passive.deregister();
        // A window that is bound no more.
        assert_eq!(passive.receive(&[]), SUCCESS);
        assert_eq!(active.send_and_invalidate(&[], descriptor, 0), SUCCESS);
        assert_eq!(active.one().status, late(REMOTE_ERROR, SUCCESS));
        assert_eq!(passive.one().status, CANCELED);
    });
}

/// Also where there is room for one result only.
fn a_window_is_told_behind_its_receive() {
    between(true, |active, passive| {
        let told = passive.program.zeroed(16);
        let window = passive.window(told);
        let descriptor = passive.program.zeroed(20);
        assert_eq!(passive.bind(&window, 0, 64, ALLOW_WRITE, descriptor), SUCCESS);
        passive.succeeds();
        for _ in 0..2 {
            assert_eq!(passive.receive(&[(0, 8)]), SUCCESS);
        }
        assert_eq!(active.send_and_invalidate(&[(0, 8)], descriptor, 0), SUCCESS);
        assert_eq!(active.send(&[(0, 7)], 0), SUCCESS);
        active.wait_for(2);
        rest();
        assert_eq!(passive.take(1)[0].bytes, 8);
        assert_eq!(passive.take(1)[0].result, told);
        assert_eq!(passive.take(1)[0].bytes, 7);
        assert_eq!(passive.take(1), []);
        // Released before it is told.
        assert_eq!(passive.bind(&window, 0, 64, ALLOW_WRITE, descriptor), SUCCESS);
        passive.succeeds();
        assert_eq!(passive.receive(&[]), SUCCESS);
        assert_eq!(active.send_and_invalidate(&[], descriptor, 0), SUCCESS);
        active.succeeds();
        assert_eq!(passive.take(1).len(), 1);
        drop(window);
        assert_eq!(passive.take(64), []);
        disconnect(active);
    });
}

fn batches_wait_for_their_submission() {
    // A driver that polls the rings takes what is in them.
    between_with(&[("NetworkDirectPollUs", "0")], true, |active, passive| {
        for _ in 0..40 {
            assert_eq!(passive.receive(&[(0, 4)]), SUCCESS);
        }
        for (count, before) in [(5, 0), (1, 0), (20, 16)] {
            active.endpoint.call(START_BATCH, &[]);
            let calls = active.program.process.system_calls();
            for _ in 0..count {
                assert_eq!(active.send(&[(0, 4)], 0), SUCCESS);
            }
            assert_eq!(active.program.process.system_calls() - calls, count as u64 / 16, "a system call for sixteen");
            pass(20);
            assert_eq!(active.wait_for(before).len(), before, "of {count}");
            active.endpoint.call(SUBMIT_BATCH, &[]);
            assert!(active.wait_for(count - before).iter().all(|done| done.status == SUCCESS));
        }
        // What has to come after it sends it.
        active.endpoint.call(START_BATCH, &[]);
        assert_eq!(active.send(&[(0, 4)], 0), SUCCESS);
        disconnect(active);
        assert_eq!(active.one().status, SUCCESS, "it was sent before the end");
        active.endpoint.call(SUBMIT_BATCH, &[]);
    });
}

fn posts_are_refused_by_their_statuses() {
    between(false, |active, passive| {
        let window = active.window(0);
        let descriptor = active.program.zeroed(20);
        let nowhere = active.program.bytes(&[[0; 8], 64_u64.to_be_bytes()].concat().repeat(2));
        assert_eq!(active.send(&[(0, 8)], 0), CONNECTION_INVALID);
        assert_eq!(active.send_and_invalidate(&[(0, 8)], nowhere, 0), CONNECTION_INVALID);
        assert_eq!(active.bind(&window, 0, 8, ALLOW_READ, descriptor), CONNECTION_INVALID);
        assert_eq!(active.invalidate(&window), CONNECTION_INVALID);
        for slot in [READ, WRITE] {
            assert_eq!(active.transfer(slot, &[(0, 8)], nowhere, 0, 0), CONNECTION_INVALID);
        }
        connect(active, passive, 7301);
        let endpoint = &active.endpoint;
        let many: Vec<(u64, u64)> = (0..40).map(|index| (8 * index, 8)).collect();
        let list = active.sges(&[(0, 8)]);
        let result = || active.result(SEND);
        endpoint.expects(SEND, &[0, list, 1, 0], invalid_parameter(1));
        endpoint.expects(SEND, &[result(), 0, 1, 0], invalid_parameter(2));
        endpoint.expects(SEND, &[result(), list, 1, 0x40], invalid_parameter(4));
        endpoint.expects(SEND, &[result(), list, 1, 0x20], invalid_parameter(4));
        endpoint.expects(SEND_AND_INVALIDATE, &[result(), list, 1, 0, 0], invalid_parameter(4));
        endpoint.expects(SEND_AND_INVALIDATE, &[result(), list, 1, nowhere, 0x40], invalid_parameter(5));
        endpoint.expects(SEND_AND_INVALIDATE, &[0, list, 1, nowhere, 0], invalid_parameter(1));
        endpoint.expects(RECEIVE, &[0, list, 1], invalid_parameter(1));
        endpoint.expects(RECEIVE, &[result(), 0, 1], invalid_parameter(2));
        endpoint.expects(BIND, &[0, active.region, window.this, active.buffer, 8, 8, descriptor], invalid_parameter(1));
        endpoint.expects(BIND, &[result(), 0x66, window.this, active.buffer, 8, 8, descriptor], invalid_parameter(2));
        let no_window = [result(), active.region, active.queue.this, active.buffer, 8, 8, descriptor];
        endpoint.expects(BIND, &no_window, invalid_parameter(3));
        endpoint.expects(
            BIND,
            &[result(), active.region, window.this, active.buffer, 8, 4, descriptor],
            invalid_parameter(6),
        );
        endpoint.expects(BIND, &[result(), active.region, window.this, active.buffer, 8, 8, 0], invalid_parameter(7));
        let beyond = active.buffer + BUFFER as u64;
        endpoint.expects(BIND, &[result(), active.region, window.this, beyond, 8, 8, descriptor], ACCESS_VIOLATION);
        endpoint.expects(INVALIDATE, &[0, window.this, 0], invalid_parameter(1));
        endpoint.expects(INVALIDATE, &[result(), active.queue.this, 0], invalid_parameter(2));
        endpoint.expects(INVALIDATE, &[result(), window.this, 4], invalid_parameter(3));
        assert_eq!(active.receive(&many), DATA_OVERRUN);
        assert_eq!(active.send(&many, 0), DATA_OVERRUN);
        assert_eq!(active.send(&many[..15], 0), SUCCESS, "short enough to be copied");
        let long: Vec<(u64, u64)> = (0..20).map(|index| (800 * index, 800)).collect();
        assert_eq!(active.send(&long, 0), DATA_OVERRUN);
        let wide = active.program.bytes(&[[0; 8], (1_u64 << 50).to_be_bytes(), [0; 8]].concat());
        assert_eq!(active.send(&[(0, 1 << 40)], 0), BUFFER_OVERFLOW);
        assert_eq!(active.receive(&[(0, 1 << 40)]), BUFFER_OVERFLOW);
        let unregistered = active.sges_of(0, &[(0, 60_000)]);
        endpoint.expects(SEND, &[result(), unregistered, 1, 0], DATA_OVERRUN);
        for slot in [READ, WRITE] {
            endpoint.expects(slot, &[0, list, 1, nowhere, 0, 0], invalid_parameter(1));
            endpoint.expects(slot, &[result(), 0, 1, nowhere, 0, 0], invalid_parameter(2));
            endpoint.expects(slot, &[result(), list, 1, 0, 0, 0], invalid_parameter(4));
            endpoint.expects(slot, &[result(), list, 1, nowhere, 0, 0x40], invalid_parameter(6));
            assert_eq!(active.transfer(slot, &[(0, 8)], nowhere, 57, 0), REMOTE_ERROR, "beyond the window");
            assert_eq!(active.transfer(slot, &long, wide, 0, 0), DATA_OVERRUN);
            assert_eq!(active.transfer(slot, &[(0, 1 << 40)], wide, 0, 0), BUFFER_OVERFLOW);
        }
        // Across a stream no Send waits for its receive.
        if !across_streams() {
            refuse_when_full(active, &window, nowhere, descriptor);
        }
    });
}

fn refuse_when_full(end: &End<'_>, window: &Com<'_>, nowhere: u64, descriptor: u64) {
    // The one that was copied waits for a receive and keeps its slot, as those behind it do.
    let mut posted = 1;
    while end.send(&[(0, 8)], 0) == SUCCESS {
        posted += 1;
        assert!(posted <= DEPTH);
    }
    assert_eq!(posted, DEPTH);
    assert_eq!(end.send(&[(0, 8)], 0), NO_MORE_ENTRIES);
    assert_eq!(end.send_and_invalidate(&[(0, 8)], nowhere, 0), NO_MORE_ENTRIES);
    assert_eq!(end.bind(window, 0, 8, ALLOW_READ, descriptor), NO_MORE_ENTRIES);
    assert_eq!(end.invalidate(window), NO_MORE_ENTRIES);
    for slot in [READ, WRITE] {
        assert_eq!(end.transfer(slot, &[(0, 8)], nowhere, 0, 0), NO_MORE_ENTRIES);
    }
    let mut receives = 0;
    while end.receive(&[(0, 8)]) == SUCCESS {
        receives += 1;
    }
    assert_eq!((receives, end.receive(&[])), (DEPTH, NO_MORE_ENTRIES));
}

fn failed_completions_end_the_connection() {
    between(false, |active, passive| {
        for case in 0..6 {
            active.renew();
            passive.renew();
            connect(active, passive, 7310 + case);
            let window = passive.window(0);
            let descriptor = passive.program.zeroed(20);
            let bad_token = passive
                .program
                .bytes(&[passive.buffer.to_be_bytes().as_slice(), &64_u64.to_be_bytes(), &[1, 2, 3, 4]].concat());
            let (expected, peer) = match case {
                0 | 1 => {
                    let slot = [READ, WRITE][usize::from(case)];
                    assert_eq!(active.transfer(slot, &[(0, 8)], bad_token, 0, 0), SUCCESS);
                    (if slot == WRITE { late(ACCESS_VIOLATION, SUCCESS) } else { ACCESS_VIOLATION }, None)
                }
                2 => {
                    assert_eq!(passive.bind(&window, 0, 64, ALLOW_READ, descriptor), SUCCESS);
                    passive.succeeds();
                    assert_eq!(active.transfer(WRITE, &[(0, 8)], descriptor, 0, 0), SUCCESS, "without the right");
                    (late(ACCESS_VIOLATION, SUCCESS), None)
                }
                3 => {
                    // A region that was given up: its handle is no registration.
                    let sges = active.sges_of(0x0000_0007_0000_00F0, &[(0, 60_000)]);
                    active.endpoint.expects(SEND, &[active.result(SEND), sges, 1, 0], SUCCESS);
                    (ACCESS_VIOLATION, None)
                }
                4 => {
                    assert_eq!(passive.receive(&[(0, 8)]), SUCCESS);
                    assert_eq!(active.send(&[(0, 9)], 0), SUCCESS);
                    (SUCCESS, Some(DATA_OVERRUN))
                }
                _ => {
                    // The peer takes none for as long as a Send waits.
                    assert_eq!(active.send(&[(0, 9)], 0), SUCCESS);
                    pass(5_000);
                    (late(IO_TIMEOUT, SUCCESS), None)
                }
            };
            assert_eq!(active.one().status, expected, "case {case}");
            if let Some(status) = peer {
                assert_eq!(passive.one().status, status);
            }
            assert_eq!(active.send(&[(0, 8)], 0), SUCCESS, "posts after the end are taken");
            assert_eq!(active.one().status, CANCELED);
            drop(window);
        }
    });
}

fn flush_cancels_receives() {
    between(false, |active, _| {
        for _ in 0..3 {
            assert_eq!(active.receive(&[(0, 8)]), SUCCESS);
        }
        active.endpoint.expects(FLUSH, &[], SUCCESS);
        assert!(active.wait_for(3).iter().all(|done| done.status == CANCELED));
    });
}
