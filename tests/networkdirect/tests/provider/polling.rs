//! Doorbells: which posts make a system call, with the driver's poller and without.

use super::client::*;
use super::ends::*;
use networkdirect::machine::{Machine, MachineSetup, across_streams, address, pass};
use networkdirect::{cases, cases::Case};

pub const CASES: &[Case] = cases![
    every_post_tells_where_the_driver_does_not_poll,
    polled_posts_make_no_system_call,
    two_processors_are_too_few_to_poll,
    an_idle_queue_is_let_go,
    a_long_shift_ends,
    posts_beside_the_last_look_are_done,
    more_than_a_turn_is_taken,
    what_was_posted_comes_before_a_disconnect,
];

const LONG: (&str, &str) = ("NetworkDirectPollUs", "1000000");
const NEVER: (&str, &str) = ("NetworkDirectPollUs", "0");
const HAS_READ: u32 = 4;

/// Runs a case between two connected ends of one process.
fn with(processors: usize, keyword: (&str, &str), run: impl FnOnce(&End<'_>, &End<'_>)) {
    let machine = Machine::of(&MachineSetup { processors, keywords: &[keyword], ..MachineSetup::default() });
    let program = Program::start(&machine);
    let (active, passive) = (End::new(&program, 1), End::new(&program, 2));
    connect(&active, &passive, address(2, 7000));
    run(&active, &passive);
    drop((active, passive));
    drop(program);
    machine.finish();
}

/// Reads 8 bytes and takes the result, without sleeping; the system calls that it took.
fn read_one(active: &End<'_>, passive: &End<'_>, number: u8) -> u64 {
    passive.fill(64, 8, number);
    let remote = (passive.buffer + 64, passive.remote_token());
    let sges = active.sges(&[(0, 8)]);
    let calls = active.program.process.system_calls();
    let context = active.next_context();
    active.pair.expects(READ, &[context, sges, 1, remote.0, remote.1, 0], SUCCESS);
    let done = (0..10_000_000).find_map(|_| active.results().first().copied()).expect("the request is done");
    assert_eq!((done.status, done.kind, done.context), (SUCCESS, HAS_READ, context));
    assert_eq!(active.bytes(0, 8), passive.bytes(64, 8));
    active.program.process.system_calls() - calls
}

/// Reads until so many in a row made no system call.
fn until_polled(active: &End<'_>, passive: &End<'_>, wanted: u32) {
    let mut without = 0;
    for number in 0..100_000_u32 {
        without = if read_one(active, passive, number as u8) == 0 { without + 1 } else { 0 };
        if without == wanted {
            return;
        }
    }
    panic!("the driver does not poll");
}

fn every_post_tells_where_the_driver_does_not_poll() {
    with(4, NEVER, |active, passive| {
        for number in 0..100 {
            assert_eq!(read_one(active, passive, number), 1);
        }
    });
}

fn two_processors_are_too_few_to_poll() {
    with(2, LONG, |active, passive| {
        for number in 0..100 {
            assert_eq!(read_one(active, passive, number), 1);
        }
    });
}

fn polled_posts_make_no_system_call() {
    with(4, LONG, |active, passive| {
        until_polled(active, passive, 1000);
        // The other end's rings are not polled: it has not rung.
        assert_eq!(read_one(passive, active, 1), 1);
        until_polled(passive, active, 100);
        // Both are now, for as long as the thread's shift lasts.
        until_polled(active, passive, 1);
    });
}

fn an_idle_queue_is_let_go() {
    // Longer than a busy machine leaves one of the two alone.
    with(4, ("NetworkDirectPollUs", "200000"), |active, passive| {
        until_polled(active, passive, 10);
        pass(10_000);
        assert_eq!(read_one(active, passive, 1), 1, "nothing came for longer than a fifth of a second");
        until_polled(active, passive, 10);
    });
}

fn a_long_shift_ends() {
    with(4, LONG, |active, passive| {
        until_polled(active, passive, 10);
        // A quarter of a second of work at a stretch, of a window of a second.
        pass(300);
        let calls: u64 = (0..100).map(|number| read_one(active, passive, number)).sum();
        assert!(calls >= 1, "the thread never lets its processor go");
        until_polled(active, passive, 10);
    });
}

fn posts_beside_the_last_look_are_done() {
    with(4, ("NetworkDirectPollUs", "50"), |active, passive| {
        let mut random = fastrand::Rng::with_seed(11);
        let mut rang = 0;
        for number in 0..2_000_u32 {
            rang += read_one(active, passive, number as u8);
            // About as long as the thread looks before it leaves.
            for _ in 0..random.u32(0..8_000) {
                std::hint::spin_loop();
            }
        }
        assert!(rang > 0, "the thread never leaves");
    });
}

/// Receives of which the thread takes 32 in a round, each found by a message later.
fn more_than_a_turn_is_taken() {
    with(4, LONG, |active, passive| {
        until_polled(passive, active, 10);
        let buffers: Vec<u64> = (0..DEPTH).collect();
        for round in 0..20 {
            for index in &buffers {
                assert_eq!(passive.receive(&[(index * 64, 64)]), SUCCESS, "round {round}");
            }
            for index in &buffers {
                assert_eq!(active.post(SEND, &[(index * 64, 64)], 0), SUCCESS);
            }
            assert!(active.wait_for(buffers.len()).iter().all(|done| done.status == SUCCESS));
            assert!(passive.wait_for(buffers.len()).iter().all(|done| done.status == SUCCESS));
        }
    });
}

/// The ring is polled, so the driver hears of no post. What comes across a stream may come too late.
fn what_was_posted_comes_before_a_disconnect() {
    with(4, LONG, |active, passive| {
        until_polled(active, passive, 100);
        let remote = (passive.buffer, passive.remote_token());
        for _ in 0..16 {
            assert_eq!(active.transfer(WRITE, &[(0, 4096)], remote, 0), SUCCESS);
        }
        disconnect(active);
        let may_be = |status| status == SUCCESS || status == CANCELED && across_streams();
        assert!(active.wait_for(16).iter().all(|done| may_be(done.status)), "posted before the end");
    });
}
