//! Immediate data: the interfaces of the public `mana_ndspi.h`, which MsQuic asks for.

use super::calls;
use super::client::*;
use super::ends::*;
use networkdirect::machine::{Machine, address, pass, rest};
use networkdirect::{cases, cases::Case};

pub const CASES: &[Case] = cases![
    extended_interfaces_are_those_of_their_bases,
    messages_bring_immediate_data,
    writes_with_immediate_data_ring_a_bell,
    shared_receives_are_taken_by_writes_with_immediate_data,
    requests_with_immediate_data_are_refused_as_others,
    a_write_with_immediate_data_through_a_window,
    both_ways_of_asking_go_together,
    each_flag_alone,
];

pub const MANA_COMPLETION_QUEUE: &str = "28925856-4FCC-4479-915C-034426A50B9E";
pub const MANA_QUEUE_PAIR: &str = "8B1811D5-52DD-4084-8119-15C11AB32FB9";

const MANA_RESULTS: usize = 9;
const SEND_WITH_IMMEDIATE: usize = 10;
const WRITE_WITH_IMMEDIATE: usize = 11;

/// ND2_MANA_REQUEST_TYPE.
const SENT: u32 = 0;
const BOUND: u32 = 1;
const HAS_READ: u32 = 3;
const WRITTEN: u32 = 4;
const RECEIVED: u32 = 128;
const RECEIVED_WITH_IMMEDIATE: u32 = 130;
const RECEIVED_RDMA_WITH_IMMEDIATE: u32 = 131;

/// ND2_MANA_RESULT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ManaDone {
    status: u32,
    bytes: u32,
    queue_pair: u64,
    context: u64,
    kind: u32,
    value: u32,
}

/// An end whose queue and queue pair are asked for by their extended interfaces, as MsQuic does.
struct ManaEnd<'p> {
    end: End<'p>,
    results: u64,
}

impl<'p> ManaEnd<'p> {
    fn new(program: &'p Program, host: u8) -> Self {
        let mut end = End::new(program, host);
        let arguments = [end.file, 4 * DEPTH, 0, 0];
        let queue = end.adapter.makes(ADAPTER_COMPLETION_QUEUE, MANA_COMPLETION_QUEUE, &arguments).expect("a queue");
        let arguments = [queue.this, queue.this, u64::from(host), DEPTH, DEPTH, 2, 2, 128];
        end.pair = end.adapter.makes(ADAPTER_QUEUE_PAIR, MANA_QUEUE_PAIR, &arguments).expect("a queue pair");
        end.queue = queue;
        Self { end, results: program.bytes(&[0xCC; 32 * 16]) }
    }

    fn results(&self) -> Vec<ManaDone> {
        let count = self.end.queue.call(MANA_RESULTS, &[self.results, 16]) as u32;
        (0..u64::from(count))
            .map(|index| self.results + 32 * index)
            .map(|at| ManaDone {
                status: self.end.program.u32_at(at),
                bytes: self.end.program.u32_at(at + 4),
                queue_pair: self.end.program.u64_at(at + 8),
                context: self.end.program.u64_at(at + 16),
                kind: self.end.program.u32_at(at + 24),
                value: self.end.program.u32_at(at + 28),
            })
            .inspect(|done| {
                let slot = match done.kind {
                    SENT => SEND_WITH_IMMEDIATE,
                    WRITTEN => WRITE_WITH_IMMEDIATE,
                    _ => return,
                };
                calls::completed(("IND2ManaQueuePair", slot), done.status);
            })
            .collect()
    }

    #[track_caller]
    fn one(&self) -> ManaDone {
        for _ in 0..10_000 {
            let results = self.results();
            if !results.is_empty() {
                assert_eq!(results.len(), 1, "{results:x?}");
                return results[0];
            }
            pass(1);
        }
        panic!("no result comes");
    }

    /// Posts a message; its context.
    fn send(&self, pieces: &[(u64, u32)], flags: u64, immediate: u64) -> (u64, u32) {
        let (sges, context) = (self.end.sges(pieces), self.end.next_context());
        let arguments = [context, sges, pieces.len() as u64, flags, immediate];
        (context, self.end.pair.status(SEND_WITH_IMMEDIATE, &arguments))
    }

    fn write(&self, pieces: &[(u64, u32)], (remote, token): (u64, u64), flags: u64, immediate: u64) -> (u64, u32) {
        let (sges, context) = (self.end.sges(pieces), self.end.next_context());
        let arguments = [context, sges, pieces.len() as u64, remote, token, flags, immediate];
        (context, self.end.pair.status(WRITE_WITH_IMMEDIATE, &arguments))
    }
}

fn with_ends(run: impl FnOnce(&ManaEnd<'_>, &ManaEnd<'_>)) {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let (active, passive) = (ManaEnd::new(&program, 1), ManaEnd::new(&program, 2));
    connect(&active.end, &passive.end, address(2, 7400));
    run(&active, &passive);
    drop((active, passive));
    drop(program);
    machine.finish();
}

/// One object answers to all of its identifiers by one pointer; a client that knows the base alone uses its slots.
fn extended_interfaces_are_those_of_their_bases() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let (plain, extended) = (End::new(&program, 1), ManaEnd::new(&program, 1));
    for (object, iids) in [
        (&plain.queue, [MANA_COMPLETION_QUEUE, IND2_COMPLETION_QUEUE]),
        (&extended.end.queue, [IND2_COMPLETION_QUEUE, MANA_COMPLETION_QUEUE]),
        (&plain.pair, [MANA_QUEUE_PAIR, IND2_QUEUE_PAIR]),
        (&extended.end.pair, [IND2_QUEUE_PAIR, MANA_QUEUE_PAIR]),
    ] {
        object.answers_for_itself();
        for iid in iids {
            let same = program.made(|out| object.call(0, &[program.guid(iid), out])).expect("its own interface");
            assert_eq!(same.this, object.this);
        }
    }
    let wrong = plain.adapter.makes(ADAPTER_COMPLETION_QUEUE, MANA_QUEUE_PAIR, &[plain.file, 4, 0, 0]).err();
    assert_eq!(wrong, Some(0x8000_4002), "a queue pair's identifier is none of a queue");
    drop((plain, extended));
    drop(program);
    machine.finish();
}

fn messages_bring_immediate_data() {
    with_ends(|active, passive| {
        active.end.fill(0, 4096, 3);
        assert_eq!(passive.end.receive(&[(0, 4096)]), SUCCESS);
        let (context, status) = active.send(&[(0, 1000), (1000, 100)], SOLICIT, 0x8123_4567);
        assert_eq!(status, SUCCESS);
        let sent = active.one();
        assert_eq!((sent.status, sent.kind, sent.context, sent.queue_pair, sent.value), (SUCCESS, SENT, context, 1, 0));
        let done = passive.one();
        assert_eq!((done.status, done.kind, done.bytes), (SUCCESS, RECEIVED_WITH_IMMEDIATE, 1100));
        assert_eq!((done.value, done.queue_pair), (0x8123_4567, 2));
        assert_eq!(passive.end.bytes(0, 1100), active.end.bytes(0, 1100));
        // Inline, and none: 0 is immediate data, too. One without it keeps nothing of the one before.
        for (pieces, flags, immediate) in [(&[(0, 8)][..], INLINE, 0x11), (&[], 0, 0)] {
            assert_eq!(passive.end.receive(&[(0, 64)]), SUCCESS);
            assert_eq!(active.send(pieces, flags, immediate).1, SUCCESS);
            assert_eq!(active.one().kind, SENT);
            let done = passive.one();
            assert_eq!((done.kind, u64::from(done.value)), (RECEIVED_WITH_IMMEDIATE, immediate));
        }
        assert_eq!(passive.end.receive(&[(0, 64)]), SUCCESS);
        assert_eq!(active.end.post(SEND, &[(0, 8)], 0), SUCCESS);
        assert_eq!(active.one().kind, SENT);
        let done = passive.one();
        assert_eq!((done.kind, done.value, done.bytes), (RECEIVED, 0, 8));
        // A client that asks by GetResults finds a receive.
        assert_eq!(passive.end.receive(&[(0, 64)]), SUCCESS);
        assert_eq!(active.send(&[(0, 8)], SILENT, 5).1, SUCCESS);
        assert_eq!(passive.end.succeeds(0).bytes, 8);
        assert_eq!(active.results(), [], "silent");
        disconnect(&active.end);
    });
}

fn writes_with_immediate_data_ring_a_bell() {
    with_ends(|active, passive| {
        let remote = (passive.end.buffer + 8192, passive.end.remote_token());
        for (length, flags) in [(0, 0), (1, INLINE), (100, INLINE | FENCE), (70_000, 0)] {
            active.end.fill(0, length as usize, length as u8 | 1);
            let (context, status) = active.write(&[(0, length)], remote, flags, u64::from(length) + 0xF000_0000);
            assert_eq!(status, SUCCESS);
            pass(1);
            assert_eq!(active.results(), [], "it waits for a receive");
            assert_eq!(passive.end.receive(&[]), SUCCESS);
            let written = active.one();
            assert_eq!((written.status, written.kind, written.context), (SUCCESS, WRITTEN, context));
            let done = passive.one();
            assert_eq!((done.status, done.kind), (SUCCESS, RECEIVED_RDMA_WITH_IMMEDIATE));
            assert_eq!((done.value, done.bytes), (length + 0xF000_0000, length), "the bytes of the Write");
            assert_eq!(passive.end.bytes(8192, length as usize), active.end.bytes(0, length as usize));
        }
        // A solicited one satisfies such a wish, another one does not.
        for _ in 0..2 {
            assert_eq!(passive.end.receive(&[]), SUCCESS);
        }
        let overlapped = passive.end.program.overlapped();
        passive.end.queue.expects(QUEUE_NOTIFY, &[2, overlapped.address], PENDING);
        assert_eq!(active.write(&[(0, 8)], remote, 0, 1).1, SUCCESS);
        active.one();
        pass(50);
        assert_eq!(overlapped.status(), PENDING);
        assert_eq!(active.write(&[(0, 8)], remote, SOLICIT, 2).1, SUCCESS);
        active.one();
        overlapped.wait();
        let values: Vec<u32> = passive.results().iter().map(|done| done.value).collect();
        assert_eq!(values, [1, 2]);
        disconnect(&active.end);
    });
}

fn shared_receives_are_taken_by_writes_with_immediate_data() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let (active, mut passive) = (ManaEnd::new(&program, 1), ManaEnd::new(&program, 2));
    let adapter = &passive.end.adapter;
    let arguments = [passive.end.file, 8, 1, 0, 0, 0];
    let shared = adapter.makes(ADAPTER_SHARED_QUEUE, IND2_SHARED_RECEIVE_QUEUE, &arguments).expect("a queue");
    let queue = passive.end.queue.this;
    let arguments = [queue, queue, shared.this, 2, DEPTH, 2, 128];
    let pair = adapter.makes(ADAPTER_QUEUE_PAIR_WITH_SHARED, MANA_QUEUE_PAIR, &arguments).expect("a queue pair");
    passive.end.pair = pair;
    connect(&active.end, &passive.end, address(2, 7401));
    for context in 50..52 {
        shared.expects(8, &[context, passive.end.sges(&[(0, 64)]), 1], SUCCESS);
    }
    let remote = (passive.end.buffer + 8192, passive.end.remote_token());
    assert_eq!(active.write(&[(0, 32)], remote, 0, 0x77).1, SUCCESS);
    assert_eq!(active.one().status, SUCCESS);
    assert_eq!(active.send(&[(0, 16)], 0, 0x88).1, SUCCESS);
    assert_eq!(active.one().status, SUCCESS);
    let results = passive.results();
    let done: Vec<_> = results.iter().map(|done| (done.context, done.kind, done.value, done.bytes)).collect();
    let expected = [(50, RECEIVED_RDMA_WITH_IMMEDIATE, 0x77, 32), (51, RECEIVED_WITH_IMMEDIATE, 0x88, 16)];
    assert_eq!(done, expected);
    disconnect(&active.end);
    drop((shared, active, passive));
    drop(program);
    machine.finish();
}

fn requests_with_immediate_data_are_refused_as_others() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let (active, passive) = (ManaEnd::new(&program, 1), ManaEnd::new(&program, 2));
    let remote = (passive.end.buffer, passive.end.remote_token());
    assert_eq!(active.send(&[(0, 8)], 0, 1).1, CONNECTION_INVALID);
    assert_eq!(active.write(&[(0, 8)], remote, 0, 1).1, CONNECTION_INVALID);
    connect(&active.end, &passive.end, address(2, 7402));
    let too_many: Vec<(u64, u32)> = (0..40).map(|index| (8 * index, 8)).collect();
    assert_eq!(active.send(&[(0, 8)], 0x40, 1).1, invalid_parameter(4));
    assert_eq!(active.write(&[(0, 8)], remote, 0x8, 1).1, invalid_parameter(6));
    assert_eq!(active.send(&too_many, 0, 1).1, DATA_OVERRUN);
    assert_eq!(active.write(&too_many, remote, 0, 1).1, DATA_OVERRUN);
    assert_eq!(active.send(&[(0, 0xFFFF_FFFF)], 0, 1).1, BUFFER_OVERFLOW);
    assert_eq!(active.write(&[(0, 0xFFFF_FFFF), (0, 0xFFFF_FFFF)], remote, 0, 1).1, BUFFER_OVERFLOW);
    for index in 0..=DEPTH {
        let expected = if index < DEPTH { SUCCESS } else { NO_MORE_ENTRIES };
        assert_eq!(active.send(&[(0, 8)], 0, 1).1, expected, "{index}");
    }
    assert_eq!(active.write(&[(0, 8)], remote, 0, 1).1, NO_MORE_ENTRIES);
    drop((active, passive));
    drop(program);
    machine.finish();
}

/// MsQuic lends its ring by a window, and the peer's Write with immediate data goes through it, again and again; an access beyond ends
/// the connection and brings nothing.
fn a_write_with_immediate_data_through_a_window() {
    with_ends(|active, passive| {
        let passive_end = &passive.end;
        let window = passive_end.adapter.makes(ADAPTER_MEMORY_WINDOW, IND2_MEMORY_WINDOW, &[]).expect("a window");
        let ring = passive_end.buffer + 4096;
        let arguments = [1, passive_end.region.this, window.this, ring, 4096, ALLOW_WRITE];
        passive_end.pair.expects(BIND, &arguments, SUCCESS);
        let token = window.call(3, &[]) & 0xFFFF_FFFF;
        assert_eq!(passive.one().kind, BOUND);
        for round in 0..3 {
            active.end.fill(0, 512, round);
            assert_eq!(passive_end.receive(&[]), SUCCESS);
            assert_eq!(active.write(&[(0, 512)], (ring + 512 * u64::from(round), token), 0, round.into()).1, SUCCESS);
            assert_eq!(active.one().status, SUCCESS);
            assert_eq!(passive.one().value, u32::from(round));
            assert_eq!(passive_end.bytes(4096 + 512 * u64::from(round), 512), active.end.bytes(0, 512));
        }
        let own = (active.end.buffer, active.end.remote_token());
        assert_eq!(passive_end.transfer(READ, &[(0, 8)], own, 0), SUCCESS);
        assert_eq!(passive.one().kind, HAS_READ);
        assert_eq!(passive_end.receive(&[]), SUCCESS);
        assert_eq!(active.write(&[(0, 512)], (ring + 4096 - 511, token), 0, 9).1, SUCCESS);
        assert_eq!(active.one().status, ACCESS_VIOLATION);
        let done = passive.one();
        assert_eq!((done.status, done.kind, done.value), (CANCELED, RECEIVED, 0));
    });
}

/// In their order, by whichever method.
fn both_ways_of_asking_go_together() {
    with_ends(|active, passive| {
        for _ in 0..4 {
            assert_eq!(passive.end.receive(&[(0, 64)]), SUCCESS);
        }
        for immediate in 0..4_u64 {
            assert_eq!(active.send(&[(0, 8)], 0, immediate).1, SUCCESS);
            active.one();
        }
        let results = passive.results;
        assert_eq!(passive.end.queue.call(QUEUE_RESULTS, &[results, 1]) as u32, 1);
        assert_eq!(passive.end.program.u32_at(results + 24), 0, "ND2_REQUEST_TYPE");
        let values: Vec<u32> = passive.results().iter().map(|done| done.value).collect();
        assert_eq!(values, [1, 2, 3]);
        assert_eq!(passive.end.queue.call(MANA_RESULTS, &[0, 4]) as u32, 0, "no place, no results");
        disconnect(&active.end);
    });
}

/// A silent request has no result, a solicited one satisfies a wish for such, and an inline one takes bytes that no region has and that
/// are others as soon as the call has returned.
// Rule: VALUES-1
fn each_flag_alone() {
    with_ends(|active, passive| {
        let program = active.end.program;
        let remote = [passive.end.buffer + 512, passive.end.remote_token()];
        for (slot, at) in [(SEND_WITH_IMMEDIATE, 0), (WRITE_WITH_IMMEDIATE, 512)] {
            let post = |sges: u64, flags: u64, immediate: u64| {
                let (request, rest) = ([active.end.next_context(), sges, 1], [flags, immediate]);
                let place = if slot == WRITE_WITH_IMMEDIATE { &remote[..] } else { &[] };
                assert_eq!(passive.end.receive(&[(0, 64)]), SUCCESS);
                active.end.pair.expects(slot, &[&request, place, &rest].concat(), SUCCESS);
            };
            let own = active.end.sges(&[(0, 8)]);
            post(own, SILENT, 0x51DE_0001);
            rest();
            assert_eq!((passive.one().value, active.results()), (0x51DE_0001, vec![]));
            for (flags, told) in [(0, false), (SOLICIT, true)] {
                let notified = program.overlapped();
                passive.end.queue.expects(QUEUE_NOTIFY, &[2, notified.address], PENDING);
                post(own, flags, 0x51DE_0002 + flags);
                active.one();
                rest();
                assert_eq!(notified.status() != PENDING, told, "{flags}");
                assert_eq!(u64::from(passive.one().value), 0x51DE_0002 + flags);
                if !told {
                    passive.end.queue.expects(CANCEL, &[], SUCCESS);
                }
            }
            let bytes = format!("inline {slot}");
            let place = program.bytes(bytes.as_bytes());
            post(
                program.bytes(&[place.to_le_bytes(), (bytes.len() as u64).to_le_bytes()].concat()),
                INLINE,
                0x51DE_0003,
            );
            program.write(place, b"others");
            assert_eq!((active.one().status, passive.one().value), (SUCCESS, 0x51DE_0003));
            assert_eq!(passive.end.bytes(at, bytes.len()), bytes.as_bytes());
        }
    });
}
