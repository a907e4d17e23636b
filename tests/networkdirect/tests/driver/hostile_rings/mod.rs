//! Rings in which a hostile process changes entries and counts while the driver takes them: at most the queue pair ends to which they belong.
//!
//! Each round has a queue pair of its own with a seed of its own. It shares its process with a neighbour, and in most rounds its completion
//! queue; two other processes have traffic beside it. Between the doorbells its rings get changes that the seed chooses; while the
//! driver takes entries, a thread goes on changing them. SOFTNDK_RING_MUTATIONS is how many changes there are in all, SOFTNDK_RING_SEED the
//! seed of the first round: a failing round, whose seed is in the output, comes first in another run.

mod flipper;
mod guarded;
mod mutation;
mod neighbours;
mod round;
mod temptation;

use super::program::*;
use guarded::Guarded;
use kernel_host::dispatcher::Event;
use networkdirect::machine::{Machine, across_streams};
use networkdirect::{cases, cases::Case};
use round::Scene;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use temptation::flags_that_change_while_an_entry_is_taken_send_no_other_memory;

pub const CASES: &[Case] = cases![
    mutated_rings_end_their_own_queue_pair_only,
    flags_that_change_while_an_entry_is_taken_send_no_other_memory,
];

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect(name))
}

fn mutated_rings_end_their_own_queue_pair_only() {
    let wanted = number("SOFTNDK_RING_MUTATIONS", 100_000);
    let seed = number("SOFTNDK_RING_SEED", 1);
    let machine = Machine::start();
    let guilty = Program::with(100, 1, round::SIZES, round::OWN_DEPTH);
    let (mut near, private) = neighbours::start(&guilty);
    let shared = near.shared_queue();
    let (stop, others) = (Arc::new(AtomicBool::new(false)), Arc::new(Event::synchronization()));
    let (ends, told) = (Arc::clone(&stop), Arc::clone(&others));
    let traffic = kernel_host::thread::spawn("neighbours", move || {
        near.talk_until(&ends, &told);
        near
    });
    let mut scene = Scene::new(guilty, shared, &private, Arc::clone(&others));
    let mut number = seed;
    while scene.totals.mutations + scene.flipper.mutations() < wanted {
        eprintln!("round {number}");
        scene.round(number);
        private.iter().for_each(Guarded::assert_untouched);
        number += 1;
    }
    stop.store(true, Ordering::SeqCst);
    others.set();
    let near = traffic.join();
    println!(
        "rings: {} mutations in {} rounds, {} of them while entries were taken; {}; {} messages of neighbours",
        scene.totals.mutations + scene.flipper.mutations(),
        number - seed,
        scene.flipper.mutations(),
        scene.totals,
        near.messages()
    );
    scene.totals.assert_reaches_both_ends();
    // Each message waits for its answer.
    let least = if across_streams() { 4 } else { 4 * (number - seed).min(20) };
    assert!(near.messages() >= least, "the neighbours hardly talked");
    let left = (scene.close(), near.close());
    drop((private, left));
    machine.finish();
}
