//! Schedules by a seed, tested with the probe image: locks are handed on, time jumps, hangs are still seen, and a thread that cannot
//! follow the schedule leaves it and is counted.

#![allow(clippy::multiple_unsafe_ops_per_block, reason = "one call into an image and its arguments belong together")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::probe::{Probe, in_child};
use kernel_host::callout::{Context, ContextKind};
use kernel_host::{KernelConfig, call_image, dispatcher, schedule};

const OTHER: Context = Context::new(ContextKind::Other, "a function of the probe");

fn scheduled() -> KernelConfig {
    KernelConfig { schedule: Some(11), hang_limit: Some(Duration::from_millis(300)), ..KernelConfig::default() }
}

fn summary() -> String {
    schedule::summary().expect("there is a schedule")
}

trial! {
    fn contended_locks_are_handed_on_and_no_addition_is_lost() {
        let probe = Probe::boot(scheduled());
        let add = probe.function("add_under_lock");
        let (lock, counter): (&AtomicUsize, &AtomicUsize) = (Box::leak(Box::default()), Box::leak(Box::default()));
        let threads: Vec<_> = (0..3)
            .map(|number| {
                probe.kernel.spawn(&format!("adds {number}"), move || {
                    // SAFETY: adds to a counter under a spin lock, which live as long as the process.
                    unsafe { call_image!(OTHER, add => (); lock.as_ptr(), counter.as_ptr(), 500_u64) };
                })
            })
            .collect();
        threads.into_iter().for_each(kernel_host::thread::JoinHandle::join);
        assert_eq!(counter.load(Ordering::SeqCst), 1_500);
        assert!(!summary().contains("may not replay"), "{}", summary());
        probe.finish();
    }
}

trial! {
    fn time_goes_by_points_and_jumps_when_no_context_is_ready() {
        let probe = Probe::boot(scheduled());
        let before = dispatcher::now();
        // SAFETY: an exported function that calls KeGetCurrentIrql so often.
        unsafe { call_image!(OTHER, probe.function("irql_calls") => u64; 1_000_u64) };
        let after = dispatcher::now();
        assert!((1_000..100_000).contains(&(after - before)), "{} units", after - before);
        probe.kernel.sleep(Duration::from_hours(1));
        assert!(dispatcher::now() - after >= 3_600 * dispatcher::UNITS_PER_SECOND);
        probe.finish();
    }
}

trial! {
    fn one_that_spins_between_points_loses_the_run_token_and_the_run_its_replay() {
        let probe = Probe::boot(scheduled());
        let (spinning, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (spins, ends) = (Arc::clone(&spinning), Arc::clone(&over));
        let thread = probe.kernel.spawn("spins", move || {
            spins.store(true, Ordering::SeqCst);
            while !ends.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
        });
        while !spinning.load(Ordering::SeqCst) {
            schedule::spin();
        }
        // Only one of the two can be running, and the other one does not come to a point.
        over.store(true, Ordering::SeqCst);
        thread.join();
        assert!(summary().contains("may not replay"), "{}", summary());
        probe.finish();
    }
}

#[test]
fn hang_is_seen_with_a_schedule_too() {
    let outcome = in_child("hang_is_seen_with_a_schedule_too", || {
        let probe = Probe::boot(scheduled());
        dispatcher::Event::notification().wait(None);
        probe.finish();
    });
    if let Some(outcome) = outcome {
        let report = outcome.expect_bugcheck();
        assert!(report["rule"].as_str().is_some_and(|rule| rule.contains("every kernel thread waits")), "{report}");
        outcome.expect_output("*** schedule 11: ");
    }
}
