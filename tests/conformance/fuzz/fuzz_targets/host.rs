//! One machine for all inputs of a process, and what must be the same before and after each.

use std::cell::OnceCell;
use std::time::{Duration, Instant};

use conformance::machine::{Machine, Setup};
use kernel_host::memory::{mdl, pool};
use kernel_host::{bugcheck, ledger};

/// The longest that the driver may take to free the objects that an input made.
const LIMIT: Duration = Duration::from_secs(20);

/// How often an input is run before growth in each run counts as a leak.
const TIMES: usize = 12;

thread_local! {
    static MACHINE: OnceCell<&'static Machine> = const { OnceCell::new() };
}

/// Booted with the first input: after the fuzzer has taken the signals, so that the host gets those it needs.
pub fn machine() -> &'static Machine {
    MACHINE.with(|machine| {
        *machine.get_or_init(|| {
            // A bugcheck's exit code is no crash to a fuzzer.
            bugcheck::end_by(|| std::process::abort());
            Box::leak(Box::new(Machine::start(&Setup::default())))
        })
    })
}

/// Runs an input, and fails when something of it is left: counts in `state` at once; pool blocks when they grow in every run.
/// Tables of the driver that have grown and threads that it keeps are not left behind: they are there for the next time.
pub fn leaves_nothing<T: PartialEq + std::fmt::Debug>(state: impl Fn() -> T, input: impl Fn()) {
    let before = (state(), mapped());
    for _ in 0..TIMES {
        let blocks = pool::blocks_of_images();
        input();
        expect_again(&before, || (state(), mapped()));
        if pool::blocks_of_images() <= blocks {
            return;
        }
    }
    panic!("each of {TIMES} times more pool blocks were left\n{}", machine().kernel.report());
}

/// MDLs and their mappings.
fn mapped() -> [usize; 2] {
    [ledger::count(mdl::LEDGER_KIND), ledger::count(mdl::LEDGER_KIND_MAPPING)]
}

/// Waits until the counts are as before.
fn expect_again<T: PartialEq + std::fmt::Debug>(before: &T, now: impl Fn() -> T) {
    let begun = Instant::now();
    loop {
        let seen = now();
        if seen == *before {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "left: {before:?} before, {seen:?} now\n{}", machine().kernel.report());
        machine().kernel.sleep(Duration::from_millis(10));
    }
}
