//! Work requests: bytes, order, and what each call and each completion answers.

use super::client::*;
use super::ends::*;
use networkdirect::machine::{Machine, across_streams, address, late};
use networkdirect::{cases, cases::Case};

pub const CASES: &[Case] = cases![
    every_operation_moves_its_bytes,
    posts_are_refused_by_their_statuses,
    failed_completions_end_the_connection,
    silent_requests_free_their_slots,
    flush_cancels_everything,
];

const SENT: u32 = 1;
const BOUND: u32 = 2;
const INVALIDATED: u32 = 3;
const HAS_READ: u32 = 4;
const WRITTEN: u32 = 5;

/// Runs a case between two connected ends of one process.
pub fn with_connected(run: impl FnOnce(&End<'_>, &End<'_>)) {
    let machine = Machine::start();
    between_connected(&machine, run);
    machine.finish();
}

fn between_connected(machine: &Machine, run: impl FnOnce(&End<'_>, &End<'_>)) {
    let program = Program::start(machine);
    let (active, passive) = (End::new(&program, 1), End::new(&program, 2));
    connect(&active, &passive, address(2, 7000));
    run(&active, &passive);
}

fn every_operation_moves_its_bytes() {
    with_connected(|active, passive| {
        active.fill(0, 4096, 3);
        assert_eq!(passive.receive(&[(0, 1000), (8192, 4000)]), SUCCESS);
        assert_eq!(active.post(SEND, &[(0, 2000), (2000, 100)], 0), SUCCESS);
        assert_eq!(active.succeeds(SENT).bytes, 2100);
        let done = passive.succeeds(0);
        assert_eq!((done.bytes, done.queue_pair), (2100, 2));
        assert_eq!(passive.bytes(0, 1000), active.bytes(0, 1000));
        assert_eq!(passive.bytes(8192, 1100), active.bytes(1000, 1100));
        // Inline, beyond the SGEs that the queue pair has, without any token.
        assert_eq!(passive.receive(&[(0, 128)]), SUCCESS);
        assert_eq!(active.post(SEND, &[(0, 8), (8, 8), (16, 8), (24, 104)], INLINE), SUCCESS);
        assert_eq!(active.succeeds(SENT).bytes, 128);
        assert_eq!(passive.succeeds(0).bytes, 128);
        assert_eq!(passive.bytes(0, 128), active.bytes(0, 128));
        passive.fill(0, 65536, 9);
        let remote = (passive.buffer, passive.remote_token());
        assert_eq!(active.transfer(READ, &[(4096, 65536)], remote, 0), SUCCESS);
        assert_eq!(active.succeeds(HAS_READ).bytes, 65536);
        assert_eq!(active.bytes(4096, 65536), passive.bytes(0, 65536));
        active.fill(0, 100_000, 77);
        assert_eq!(active.transfer(WRITE, &[(0, 100_000)], remote, FENCE), SUCCESS);
        assert_eq!(active.succeeds(WRITTEN).bytes, 100_000);
        assert_eq!(active.bytes(0, 100_000), passive.bytes(0, 100_000));
        // Nothing at all, four ways.
        assert_eq!(passive.receive(&[]), SUCCESS);
        assert_eq!(active.post(SEND, &[], 0), SUCCESS);
        assert_eq!(passive.succeeds(0).bytes, 0);
        assert_eq!(active.transfer(READ, &[], (0, 0), 0), SUCCESS);
        assert_eq!(active.transfer(WRITE, &[(0, 0)], (0, 0), 0), SUCCESS);
        let kinds: Vec<u32> = active.wait_for(3).iter().map(|done| done.kind).collect();
        assert_eq!(kinds, [SENT, HAS_READ, WRITTEN], "in the order in which they were posted");
        // A window.
        let window = passive.adapter.makes(ADAPTER_MEMORY_WINDOW, IND2_MEMORY_WINDOW, &[]).expect("a window");
        let arguments = [1, passive.region.this, window.this, passive.buffer + 512, 1024, ALLOW_READ | ALLOW_WRITE];
        passive.pair.expects(BIND, &arguments, SUCCESS);
        let token = window.call(3, &[]) & 0xFFFF_FFFF;
        assert_eq!(passive.succeeds(BOUND).bytes, 0);
        assert_eq!(active.transfer(WRITE, &[(0, 1024)], (passive.buffer + 512, token), 0), SUCCESS);
        active.succeeds(WRITTEN);
        assert_eq!(passive.bytes(512, 1024), active.bytes(0, 1024));
        passive.region.expects(REGION_DEREGISTER, &[passive.program.overlapped().address], DEVICE_BUSY);
        passive.pair.expects(INVALIDATE, &[2, window.this, 0], SUCCESS);
        passive.succeeds(INVALIDATED);
        disconnect(active);
    });
}

fn posts_are_refused_by_their_statuses() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let (active, passive) = (End::new(&program, 1), End::new(&program, 2));
    let nowhere = (passive.buffer, passive.remote_token());
    assert_eq!(active.post(SEND, &[(0, 8)], 0), CONNECTION_INVALID);
    assert_eq!(active.transfer(READ, &[(0, 8)], nowhere, 0), CONNECTION_INVALID);
    assert_eq!(active.transfer(WRITE, &[(0, 8)], nowhere, 0), CONNECTION_INVALID);
    let window = active.adapter.makes(ADAPTER_MEMORY_WINDOW, IND2_MEMORY_WINDOW, &[]).expect("a window");
    active.pair.expects(BIND, &[1, active.region.this, window.this, active.buffer, 8, ALLOW_READ], CONNECTION_INVALID);
    active.pair.expects(INVALIDATE, &[1, window.this, 0], CONNECTION_INVALID);
    // More than an adapter has; a queue pair may have more than was asked for.
    let too_many: Vec<(u64, u32)> = (0..40).map(|index| (8 * index, 8)).collect();
    assert_eq!(active.receive(&too_many), DATA_OVERRUN);
    connect(&active, &passive, address(2, 7000));
    for slot in [READ, WRITE] {
        assert_eq!(active.transfer(slot, &too_many, nowhere, 0), DATA_OVERRUN);
    }
    assert_eq!(active.post(SEND, &too_many, 0), DATA_OVERRUN);
    assert_eq!(active.post(SEND, &[(0, 8)], 0x40), invalid_parameter(4));
    assert_eq!(active.transfer(WRITE, &[(0, 8)], nowhere, 0x8), invalid_parameter(6));
    for slot in [READ, WRITE] {
        assert_eq!(active.transfer(slot, &[(0, 0xFFFF_FFFF), (0, 0xFFFF_FFFF)], nowhere, 0), BUFFER_OVERFLOW);
    }
    assert_eq!(active.post(SEND, &[(0, 0xFFFF_FFFF)], 0), BUFFER_OVERFLOW);
    let mut receives = 0;
    while passive.receive(&[(0, 8)]) == SUCCESS {
        receives += 1;
        assert!(receives <= 4 * DEPTH, "a queue without end");
    }
    assert_eq!(receives, DEPTH);
    assert_eq!(passive.receive(&[(0, 8)]), NO_MORE_ENTRIES);
    // A Send that finds no receive keeps its slot, and those behind it theirs; across a stream none waits.
    let waiting = if across_streams() { 0 } else { DEPTH };
    for _ in 0..waiting {
        assert_eq!(passive.post(SEND, &[(0, 8)], 0), SUCCESS);
    }
    let other = passive.adapter.makes(ADAPTER_MEMORY_WINDOW, IND2_MEMORY_WINDOW, &[]).expect("a window");
    if waiting > 0 {
        assert_eq!(passive.post(SEND, &[(0, 8)], 0), NO_MORE_ENTRIES);
        assert_eq!(passive.transfer(READ, &[(0, 8)], nowhere, 0), NO_MORE_ENTRIES);
        assert_eq!(passive.transfer(WRITE, &[(0, 8)], nowhere, 0), NO_MORE_ENTRIES);
        passive.pair.expects(INVALIDATE, &[1, other.this, 0], NO_MORE_ENTRIES);
    }
    drop((window, other, active, passive));
    drop(program);
    machine.finish();
}

fn failed_completions_end_the_connection() {
    let machine = Machine::start();
    for case in 0..5 {
        between_connected(&machine, |active, passive| {
            let good = (passive.buffer, passive.remote_token());
            let (status, expected) = match case {
                0 => (active.transfer(READ, &[(0, 64)], (passive.buffer + BUFFER as u64, good.1), 0), ACCESS_VIOLATION),
                1 => {
                    let status = active.transfer(WRITE, &[(0, 64)], (passive.buffer, 0x1234), 0);
                    (status, late(ACCESS_VIOLATION, SUCCESS))
                }
                2 => (active.transfer(READ, &[(BUFFER as u64 - 8, 64)], good, 0), ACCESS_VIOLATION),
                3 => {
                    let sge = active.program.bytes(&[active.buffer.to_le_bytes(), [8, 0, 0, 0, 9, 9, 9, 9]].concat());
                    assert_eq!(passive.receive(&[(0, 8)]), SUCCESS);
                    (active.pair.status(SEND, &[1, sge, 1, 0]), ACCESS_VIOLATION)
                }
                _ => {
                    assert_eq!(passive.receive(&[(0, 8)]), SUCCESS);
                    (active.post(SEND, &[(0, 64)], 0), SUCCESS)
                }
            };
            assert_eq!(status, SUCCESS, "the post itself");
            let done = active.one();
            assert_eq!(done.status, expected, "case {case}: {done:x?}");
            match case {
                3 => assert_eq!(passive.one().status, CANCELED),
                4 => assert_eq!(passive.one().status, DATA_OVERRUN, "a receive that is too short"),
                _ => {}
            }
            assert_eq!(active.transfer(READ, &[(0, 64)], good, 0), SUCCESS, "posts after the end are taken");
            assert_eq!(active.one().status, CANCELED);
        });
    }
    machine.finish();
}

fn silent_requests_free_their_slots() {
    with_connected(|active, passive| {
        let remote = (passive.buffer, passive.remote_token());
        let mut refused = 0;
        for round in 0..10 * DEPTH {
            while active.transfer(WRITE, &[(0, 64)], remote, SILENT) == NO_MORE_ENTRIES {
                refused += 1;
                assert!(refused < 10_000, "a silent request keeps its slot, round {round}");
                networkdirect::machine::pass(1);
            }
        }
        assert_eq!(active.transfer(WRITE, &[(0, 64)], remote, 0), SUCCESS);
        assert_eq!(active.one().status, SUCCESS, "the only result");
        disconnect(active);
    });
}

fn flush_cancels_everything() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let end = End::new(&program, 1);
    for _ in 0..3 {
        assert_eq!(end.receive(&[(0, 8)]), SUCCESS);
    }
    end.pair.expects(FLUSH, &[], SUCCESS);
    let done = end.wait_for(3);
    assert!(done.iter().all(|done| done.status == CANCELED), "{done:x?}");
    assert_eq!(done.iter().map(|done| done.context).collect::<Vec<_>>(), [1, 2, 3]);
    drop(end);
    drop(program);
    machine.finish();
}
