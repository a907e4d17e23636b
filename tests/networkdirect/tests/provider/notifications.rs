//! Notify, and the packets of completion ports.

use super::client::*;
use super::ends::*;
use super::transfers::with_connected;
use networkdirect::machine::{Machine, address, pass};
use networkdirect::{cases, cases::Case};

pub const CASES: &[Case] = cases![
    one_completion_triggers_all_that_wait,
    seen_completions_do_not_trigger_again,
    solicited_ones_wait_for_their_kind,
    wishes_for_errors_wait_for_the_queue_itself,
    cancelled_requests_come_in_order,
    regions_outlive_the_thread_that_registered_them,
    what_comes_between_looking_and_waiting_tells,
    any_takes_solicited_ones_along,
    flushed_receives_are_all_there_when_it_tells,
    waits_end_with_their_queue,
];

const ERRORS: u64 = 0;
const ANY: u64 = 1;
const SOLICITED: u64 = 2;

fn notify<'p>(end: &End<'p>, kind: u64) -> Overlapped<'p> {
    let overlapped = end.program.overlapped();
    end.queue.expects(QUEUE_NOTIFY, &[kind, overlapped.address], PENDING);
    overlapped
}

fn still_waits(overlapped: &Overlapped<'_>) {
    pass(50);
    assert_eq!(overlapped.status(), PENDING);
}

fn one_completion_triggers_all_that_wait() {
    with_connected(|active, passive| {
        let waiting = [notify(passive, ANY), notify(passive, ANY)];
        waiting.iter().for_each(still_waits);
        assert_eq!(passive.receive(&[(0, 8)]), SUCCESS);
        assert_eq!(active.post(SEND, &[(0, 8)], 0), SUCCESS);
        active.one();
        for overlapped in &waiting {
            overlapped.wait();
            assert_eq!(overlapped.status(), SUCCESS);
        }
        passive.one();
        disconnect(active);
    });
}

/// The results of a connection that has ended are no failure of their queue.
fn wishes_for_errors_wait_for_the_queue_itself() {
    with_connected(|active, passive| {
        assert_eq!(passive.receive(&[(0, 8)]), SUCCESS);
        let errors = notify(passive, ERRORS);
        disconnect(active);
        assert_eq!(passive.one().status, CANCELED);
        still_waits(&errors);
        passive.queue.expects(CANCEL, &[], SUCCESS);
        assert_eq!(errors.status(), CANCELED);
    });
}

fn seen_completions_do_not_trigger_again() {
    with_connected(|active, passive| {
        for _ in 0..2 {
            assert_eq!(passive.receive(&[(0, 8)]), SUCCESS);
        }
        assert_eq!(active.post(SEND, &[(0, 8)], 0), SUCCESS);
        active.one();
        let first = notify(passive, ANY);
        first.wait();
        // Not taken out, and no reason for another one.
        let second = notify(passive, ANY);
        still_waits(&second);
        assert_eq!(active.post(SEND, &[(0, 8)], 0), SUCCESS);
        active.one();
        second.wait();
        assert_eq!(passive.wait_for(2).len(), 2);
        disconnect(active);
    });
}

fn solicited_ones_wait_for_their_kind() {
    with_connected(|active, passive| {
        for _ in 0..3 {
            assert_eq!(passive.receive(&[(0, 8)]), SUCCESS);
        }
        let solicited = notify(passive, SOLICITED);
        assert_eq!(active.post(SEND, &[(0, 8)], 0), SUCCESS);
        active.one();
        still_waits(&solicited);
        assert_eq!(active.post(SEND, &[(0, 8)], SOLICIT), SUCCESS);
        active.one();
        solicited.wait();
        // A failure satisfies the wish for solicited ones as well.
        let again = notify(passive, SOLICITED);
        still_waits(&again);
        disconnect(active);
        again.wait();
        assert_eq!(again.status(), SUCCESS);
    });
}

fn cancelled_requests_come_in_order() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let end = End::new(&program, 1);
    let port = program.export("make_port", &[end.file]);
    let other = end
        .adapter
        .makes(ADAPTER_COMPLETION_QUEUE, IND2_COMPLETION_QUEUE, &[end.file, 4, 0, 0])
        .expect("another queue");
    let next = || program.export("next_packet", &[port, 0]);
    for round in 0..100 {
        let (one, two) = (program.overlapped(), program.overlapped());
        let queues = if round % 3 == 2 { [&end.queue, &end.queue] } else { [&end.queue, &other] };
        queues[0].expects(QUEUE_NOTIFY, &[ANY, one.address], PENDING);
        queues[1].expects(QUEUE_NOTIFY, &[ANY, two.address], PENDING);
        assert_eq!(next(), 0);
        let order = if round % 3 == 1 { [1, 0] } else { [0, 1] };
        for index in order {
            queues[index].expects(CANCEL, &[], SUCCESS);
        }
        let expected = [one.address, two.address];
        for index in order {
            assert_eq!(next(), expected[index], "round {round}");
        }
        assert_eq!((one.status(), two.status(), next()), (CANCELED, CANCELED, 0));
    }
    program.export("close_handle", &[port]);
    drop((other, end));
    drop(program);
    machine.finish();
}

/// The registration is a request that pends: of the provider's, and not of the thread that asked for it.
fn regions_outlive_the_thread_that_registered_them() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let (active, passive) = (End::new(&program, 1), End::new(&program, 2));
    connect(&active, &passive, address(2, 7000));
    let visit = program.process.enter();
    let region = passive.adapter.makes(ADAPTER_MEMORY_REGION, IND2_MEMORY_REGION, &[passive.file]).expect("a region");
    let buffer = program.zeroed(8192);
    register(&region, buffer, 8192, LOCAL_WRITE | REMOTE_READ);
    visit.exit_thread();
    program.write(buffer, &[0x5A; 8192]);
    let token = region.call(REGION_REMOTE_TOKEN, &[]) & 0xFFFF_FFFF;
    assert_eq!(active.transfer(READ, &[(0, 8192)], (buffer, token), 0), SUCCESS);
    assert_eq!(active.one().status, SUCCESS);
    assert_eq!(active.bytes(0, 8192), [0x5A; 8192]);
    disconnect(&active);
    drop((region, active, passive));
    drop(program);
    machine.finish();
}

/// Added after GetResults had found less than it was asked for, and before Notify.
fn what_comes_between_looking_and_waiting_tells() {
    with_connected(|active, passive| {
        for taken in [true, false] {
            for _ in 0..2 {
                assert_eq!(passive.receive(&[(0, 8)]), SUCCESS);
                assert_eq!(active.post(SEND, &[(0, 8)], 0), SUCCESS);
                active.one();
                if taken {
                    assert_eq!(passive.wait_for(1).len(), 1);
                }
            }
            let waiting = notify(passive, ANY);
            if taken {
                still_waits(&waiting);
                passive.queue.expects(CANCEL, &[], SUCCESS);
                assert_eq!(waiting.status(), CANCELED);
            } else {
                assert_eq!(passive.queue.finish(PENDING, &waiting), SUCCESS, "it is there already");
            }
        }
        assert_eq!(passive.wait_for(2).len(), 2);
        disconnect(active);
    });
}

fn any_takes_solicited_ones_along() {
    with_connected(|active, passive| {
        let (solicited, any) = (notify(passive, SOLICITED), notify(passive, ANY));
        let errors = notify(passive, ERRORS);
        assert_eq!(passive.receive(&[(0, 8)]), SUCCESS);
        assert_eq!(active.post(SEND, &[(0, 8)], 0), SUCCESS);
        for told in [&solicited, &any, &errors] {
            assert_eq!(passive.queue.finish(PENDING, told), SUCCESS, "one trigger for all");
        }
        passive.queue.expects(QUEUE_NOTIFY, &[3, passive.program.overlapped().address], INVALID_PARAMETER);
        disconnect(active);
    });
}

/// Of a queue pair that was never connected.
fn flushed_receives_are_all_there_when_it_tells() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let end = End::new(&program, 1);
    for _ in 0..DEPTH {
        assert_eq!(end.receive(&[(0, 8)]), SUCCESS);
    }
    let waiting = notify(&end, ANY);
    still_waits(&waiting);
    end.pair.expects(FLUSH, &[], SUCCESS);
    waiting.wait();
    let done = end.results();
    assert_eq!(done.len() as u64, DEPTH);
    assert!(done.iter().all(|done| done.status == CANCELED));
    assert_eq!(end.receive(&[(0, 8)]), SUCCESS);
    drop(end);
    drop(program);
    machine.finish();
}

fn waits_end_with_their_queue() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    let end = End::new(&program, 1);
    let queue =
        end.adapter.makes(ADAPTER_COMPLETION_QUEUE, IND2_COMPLETION_QUEUE, &[end.file, 4, 0, 0]).expect("a queue");
    let waiting = program.overlapped();
    queue.expects(QUEUE_NOTIFY, &[ANY, waiting.address], PENDING);
    queue.release();
    assert_eq!(waiting.status(), CANCELED);
    drop((queue, end));
    drop(program);
    machine.finish();
}
