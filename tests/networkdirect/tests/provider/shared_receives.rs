//! Shared receive queues.

use super::calls;
use super::client::*;
use super::ends::*;
use networkdirect::machine::{Machine, address, pass, rest};
use networkdirect::{cases, cases::Case};

pub const CASES: &[Case] = cases![
    receives_go_to_the_queue_pair_that_is_sent_to,
    an_empty_queue_is_waited_for_without_end,
    a_queue_tells_when_it_runs_low,
    a_queue_grows_to_what_query_promises,
    queues_are_refused_by_position,
];

const AFFINITY: usize = 5;
const MODIFY: usize = 6;
const NOTIFY: usize = 7;
const RECEIVE_SHARED: usize = 8;
const SHARED_DEPTH: u64 = 8;

fn shared<'p>(end: &End<'p>, threshold: u64) -> Com<'p> {
    let arguments = [end.file, SHARED_DEPTH, 2, threshold, 0, 0];
    let made = end.adapter.makes(ADAPTER_SHARED_QUEUE, IND2_SHARED_RECEIVE_QUEUE, &arguments);
    made.expect("a shared receive queue")
}

/// Gives an end a queue pair that takes its receives from there.
fn share<'p>(end: &mut End<'p>, shared: &Com<'p>) {
    let arguments = [end.queue.this, end.queue.this, shared.this, 77, DEPTH, 2, 128];
    let made = end.adapter.makes(ADAPTER_QUEUE_PAIR_WITH_SHARED, IND2_QUEUE_PAIR, &arguments);
    end.pair = made.expect("a queue pair");
}

fn receive(end: &End<'_>, shared: &Com<'_>, context: u64, pieces: &[(u64, u32)]) -> u32 {
    shared.status(RECEIVE_SHARED, &[context, end.sges(pieces), pieces.len() as u64])
}

fn with_shared(threshold: u64, run: impl FnOnce(&Program, &End<'_>, &mut End<'_>, &Com<'_>)) {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let (active, mut passive) = (End::new(&program, 1), End::new(&program, 2));
    let queue = shared(&passive, threshold);
    share(&mut passive, &queue);
    connect(&active, &passive, address(2, 7500));
    run(&program, &active, &mut passive, &queue);
    drop((queue, active, passive));
    drop(program);
    machine.finish();
}

fn receives_go_to_the_queue_pair_that_is_sent_to() {
    with_shared(0, |program, active, passive, queue| {
        // A second connection with the same queue.
        let other = End::new(program, 1);
        let mut second = End::new(program, 2);
        let arguments = [passive.queue.this, passive.queue.this, queue.this, 78, DEPTH, 2, 128];
        let made = passive.adapter.makes(ADAPTER_QUEUE_PAIR_WITH_SHARED, IND2_QUEUE_PAIR, &arguments);
        second.pair = made.expect("a queue pair");
        second.connector =
            passive.adapter.makes(ADAPTER_CONNECTOR, IND2_CONNECTOR, &[passive.file]).expect("a connector");
        let listener = listen(passive, address(2, 7501));
        let connecting = request(&other, &second, &listener, address(2, 7501), b"");
        let accepting = program.overlapped();
        second.connector.expects(CONNECTOR_ACCEPT, &[second.pair.this, 8, 8, 0, 0, accepting.address], PENDING);
        assert_eq!(other.connector.finish(PENDING, &connecting), SUCCESS);
        complete(&other, &second, &accepting);
        assert_eq!(passive.receive(&[(0, 8)]), INVALID_DEVICE_REQUEST, "it has none of its own");
        active.fill(0, 64, 5);
        for context in 0..4 {
            assert_eq!(receive(passive, queue, context, &[(64 * context, 60)]), SUCCESS);
        }
        for (context, (end, pair)) in (0..).zip([(active, 77), (&other, 78), (&other, 78), (active, 77)]) {
            assert_eq!(end.post(SEND, &[(0, 60)], 0), SUCCESS);
            end.succeeds(1);
            let done = passive.succeeds(0);
            calls::completed(("IND2SharedReceiveQueue", RECEIVE_SHARED), done.status);
            assert_eq!((done.context, done.queue_pair, done.bytes), (context, pair, 60), "in the queue's order");
        }
        assert_eq!(passive.bytes(0, 60), active.bytes(0, 60));
        disconnect(active);
        disconnect(&other);
    });
}

fn an_empty_queue_is_waited_for_without_end() {
    with_shared(0, |_, active, passive, queue| {
        assert_eq!(active.post(SEND, &[(0, 8)], 0), SUCCESS);
        pass(60_000);
        assert_eq!((active.results(), passive.results()), (vec![], vec![]));
        assert_eq!(receive(passive, queue, 3, &[(0, 8)]), SUCCESS);
        active.succeeds(1);
        assert_eq!(passive.succeeds(0).context, 3);
        // What is posted and not used stays the queue's.
        assert_eq!(receive(passive, queue, 4, &[(0, 8)]), SUCCESS);
        disconnect(active);
        rest();
        assert_eq!(passive.results(), []);
    });
}

fn a_queue_tells_when_it_runs_low() {
    with_shared(2, |program, active, passive, queue| {
        let notify = || {
            let overlapped = program.overlapped();
            queue.expects(NOTIFY, &[overlapped.address], PENDING);
            rest();
            overlapped
        };
        for context in 0..3 {
            assert_eq!(receive(passive, queue, context, &[]), SUCCESS);
        }
        let waiting = [notify(), notify()];
        assert_eq!(active.post(SEND, &[], 0), SUCCESS);
        active.succeeds(1);
        assert!(waiting.iter().all(|overlapped| overlapped.status() == PENDING), "two are left");
        assert_eq!(active.post(SEND, &[], 0), SUCCESS);
        for overlapped in &waiting {
            assert_eq!(queue.finish(PENDING, overlapped), SUCCESS, "all of them");
        }
        queue.expects(MODIFY, &[0, 1], SUCCESS);
        let last = notify();
        assert_eq!(last.status(), PENDING, "one is left, which is not less");
        queue.expects(CANCEL, &[], SUCCESS);
        assert_eq!(last.status(), CANCELED);
        for context in 3..5 {
            assert_eq!(receive(passive, queue, context, &[]), SUCCESS);
        }
        queue.expects(MODIFY, &[2, 0], BUFFER_OVERFLOW);
        queue.expects(MODIFY, &[0xFFFF_FFFF, 0], INVALID_PARAMETER);
        for depth in [4, SHARED_DEPTH] {
            queue.expects(MODIFY, &[depth, 0], SUCCESS);
            let mut posted = 3;
            while receive(passive, queue, 9, &[]) == SUCCESS {
                posted += 1;
            }
            assert_eq!(posted, if depth == 4 { 4 } else { 7 }, "three were there, and then four");
            assert_eq!(receive(passive, queue, 0, &[]), NO_MORE_ENTRIES);
        }
        let released = program.overlapped();
        queue.expects(NOTIFY, &[released.address], PENDING);
    });
}

/// MaxSharedReceiveQueueDepth.
fn deepest(end: &End<'_>) -> u64 {
    let program = end.program;
    let (info, length) = (program.zeroed(96), program.bytes(&96_u32.to_le_bytes()));
    program.write(info, &2_u32.to_le_bytes());
    end.adapter.expects(ADAPTER_QUERY, &[info, length], SUCCESS);
    u64::from(program.u32_at(info + 68))
}

/// Far beyond the depth that it was made with, with receives that were there before.
fn a_queue_grows_to_what_query_promises() {
    with_shared(0, |_, active, passive, queue| {
        const GROWN: u64 = 5 * SHARED_DEPTH + 3;
        let most = deepest(passive);
        let post_until_full = |first: u64| {
            (first..=first + most).take_while(|context| receive(passive, queue, *context, &[]) == SUCCESS).count()
                as u64
        };
        assert_eq!(post_until_full(0), SHARED_DEPTH);
        queue.expects(MODIFY, &[GROWN, 0], SUCCESS);
        assert_eq!(post_until_full(SHARED_DEPTH), GROWN - SHARED_DEPTH);
        assert_eq!(receive(passive, queue, 0, &[]), NO_MORE_ENTRIES);
        queue.expects(MODIFY, &[most + 1, 0], INVALID_PARAMETER);
        queue.expects(MODIFY, &[most, 0], SUCCESS);
        assert_eq!(post_until_full(GROWN), most - GROWN);
        queue.expects(MODIFY, &[GROWN, 0], BUFFER_OVERFLOW);
        for context in 0..GROWN {
            assert_eq!(active.post(SEND, &[], 0), SUCCESS);
            active.succeeds(1);
            assert_eq!(passive.succeeds(0).context, context, "in the order in which they were posted");
        }
        queue.expects(MODIFY, &[most - GROWN, 0], SUCCESS);
    });
}

fn queues_are_refused_by_position() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let end = End::new(&program, 1);
    let make = |file: u64, depth: u64, sges: u64| {
        let arguments = [file, depth, sges, 0, 0, 0];
        end.adapter.makes(ADAPTER_SHARED_QUEUE, IND2_SHARED_RECEIVE_QUEUE, &arguments)
    };
    let huge = 0x10_0000;
    assert_eq!(make(0, 8, 1).err(), Some(INVALID_HANDLE));
    assert_eq!(make(end.file, huge, 1).err(), Some(invalid_parameter(3)));
    assert_eq!(make(end.file, 8, huge).err(), Some(invalid_parameter(4)));
    let queue = shared(&end, 0);
    let pair = |receives: u64, initiators: u64, shared: u64, limits: [u64; 3]| {
        let arguments = [&[receives, initiators, shared, 0], limits.as_slice()].concat();
        end.adapter.makes(ADAPTER_QUEUE_PAIR_WITH_SHARED, IND2_QUEUE_PAIR, &arguments).err()
    };
    let own = end.queue.this;
    assert_eq!(pair(end.region.this, own, queue.this, [1, 1, 0]), Some(invalid_parameter(2)));
    assert_eq!(pair(own, end.region.this, queue.this, [1, 1, 0]), Some(invalid_parameter(3)));
    assert_eq!(pair(own, own, own, [1, 1, 0]), Some(invalid_parameter(4)));
    assert_eq!(pair(own, own, queue.this, [huge, 1, 0]), Some(invalid_parameter(6)));
    assert_eq!(pair(own, own, queue.this, [1, huge, 0]), Some(invalid_parameter(7)));
    assert_eq!(pair(own, own, queue.this, [1, 1, huge]), Some(invalid_parameter(8)));
    let (group, mask) = (program.zeroed(2), program.zeroed(8));
    queue.expects(AFFINITY, &[group, mask], SUCCESS);
    assert_ne!(program.u64_at(mask), 0, "some processor tells");
    let many: Vec<(u64, u32)> = (0..40).map(|index| (8 * index, 8)).collect();
    assert_eq!(receive(&end, &queue, 1, &many), DATA_OVERRUN);
    assert_eq!(receive(&end, &queue, 1, &[(0, 0xFFFF_FFFF), (0, 0xFFFF_FFFF)]), BUFFER_OVERFLOW);
    queue.expects(RECEIVE_SHARED, &[1, 0, 1], INVALID_PARAMETER);
    queue.answers_for_itself();
    drop((queue, end));
    drop(program);
    machine.finish();
}
