//! Schedules by a seed, tested on the loaded image: three threads post to one queue pair and take from one completion queue,
//! and the schedule decides the order of the results. The same seed gives the same order of results and the same trace of
//! everything before them; other seeds give others.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::process::ExitCode;
use std::sync::Mutex;

use conformance::consumer::{Pair, QueuePairShape};
use conformance::machine::{Setup, concurrently, with_machine};
use conformance::trial::{become_child, in_child};
use kernel_host::schedule;
use libtest_mimic::{Arguments, Failed, Trial};
use ndkpi_sys::ndkpi::NDK_OP_FLAGS;

const CHILD: &str = "order_of_results";
/// How the child's line about the results begins; that of the host follows it.
const ORDER: &str = "order ";
const POSTS: u64 = 40;
const SEEDS: [&str; 5] = ["1", "2", "3", "4", "5"];

pub fn main() -> ExitCode {
    become_child(|name| (name == CHILD).then_some(order_of_results));
    let trials = vec![
        Trial::test("same_seed_gives_the_same_order_of_events", same_seed),
        Trial::test("every_other_seed_gives_another_order", other_seeds),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// What the child prints.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Printed {
    results: String,
    /// The host's summary: the number of points, of changes, and the trace.
    schedule: String,
}

fn play(seed: &str) -> Result<Printed, Failed> {
    let outcome = in_child(CHILD, &[("SOFTNDK_SCHEDULE", OsStr::new(seed))])?;
    outcome.expect_success()?;
    let line = |start: &str| {
        let found = outcome.text().lines().find(|line| line.starts_with(start));
        found.map(str::to_owned).ok_or_else(|| outcome.failure(&format!("no line begins with \"{start}\"")))
    };
    let printed = Printed { results: line(ORDER)?, schedule: line("schedule ")? };
    if printed.schedule.contains("may not replay") {
        return Err(outcome.failure("the host has its doubts"));
    }
    Ok(printed)
}

fn same_seed() -> Result<(), Failed> {
    for seed in &SEEDS[..3] {
        let (first, second) = (play(seed)?, play(seed)?);
        if first != second {
            return Err(format!("seed {seed}: {first:#?}\nand then {second:#?}").into());
        }
    }
    Ok(())
}

fn other_seeds() -> Result<(), Failed> {
    let printed = SEEDS.iter().map(|seed| play(seed)).collect::<Result<Vec<_>, _>>()?;
    let traces: BTreeSet<_> =
        printed.iter().map(|printed| printed.schedule.rsplit_once("trace ").map(|(_, trace)| trace)).collect();
    let orders: BTreeSet<_> = printed.iter().map(|printed| &printed.results).collect();
    if traces.len() < SEEDS.len() || orders.len() < 3 {
        return Err(format!(
            "{} traces and {} orders of {} seeds: {printed:#?}",
            traces.len(),
            orders.len(),
            SEEDS.len()
        )
        .into());
    }
    Ok(())
}

/// The child. Each result is written down under the name of the thread that takes it: one of the two that post, or the trial's own.
fn order_of_results() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let shape = QueuePairShape { initiator_depth: 128, receive_depth: 128, ..QueuePairShape::default() };
        let pair = Pair::connect_with(&first, &second, shape);
        for request in 0..2 * POSTS {
            assert_eq!(pair.passive.queue_pair.receive(request, &[]), 0);
        }
        let order = Mutex::new(Vec::new());
        let take = |taker: char| {
            for result in pair.active.initiator.take(4) {
                assert_eq!(result.Status, 0);
                let mut order = order.lock().expect("no thread panics with the lock held");
                order.push(format!("{taker}{}", result.RequestContext.addr()));
            }
        };
        let consume = |taker: char, base: u64| {
            for request in base..base + POSTS {
                assert_eq!(pair.active.queue_pair.send(request, &[], NDK_OP_FLAGS::empty()), 0);
                take(taker);
            }
        };
        concurrently(machine, || consume('a', 0), || consume('b', 100));
        while order.lock().expect("no thread panics with the lock held").len() < 2 * POSTS as usize {
            take('c');
            schedule::spin();
        }
        println!("{ORDER}{}", order.into_inner().expect("no thread panicked with the lock held").join(" "));
    });
}
