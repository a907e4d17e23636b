//! Disturbances of the chaos phase: NDK is switched off and on, adapters are paused, powered down, halted, started
//! again with other profiles, and memory is short for a while.
//!
//! They come after a number of operations, not after a time: on a machine that gives the run few processors, as many operations as on
//! an idle one are left alone between two of them, so that the share that succeeds is the same.

use crate::transport::Disturbances;
use fastrand::Rng;
use kernel_host::ndis::adapter::{self, Adapter};
use kernel_host::ndis::oid::OID_NDK_SET_STATE;
use kernel_host::{HaltAction, dispatcher, fault};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// A millisecond in the kernel's time.
const MILLISECOND: i64 = -10_000;

/// Operations before the first disturbance, and from one to the next at least and at most.
const BEFORE_THE_FIRST: u64 = 100;
const BETWEEN: Range<u64> = 1_000..3_000;

/// Operations while memory is short, at least and at most.
const WHILE_SHORT: Range<u64> = 250..1_000;

/// Out of so many allocations one fails while memory is short.
const SHORTAGE: u64 = 400;

/// Disturbs the adapters of a driver as an administrator, the system and a shortage of memory do.
#[derive(Clone, Copy, Debug)]
pub struct Disturber {
    /// The driver's object, by which its adapters are found.
    driver: usize,
}

impl Disturber {
    pub(super) const fn of(driver: usize) -> Self {
        Self { driver }
    }

    /// One disturbance after the other until all is over, by the number of operations that have ended; then all adapters run.
    pub fn disturb(self, seed: u64, is_over: &dyn Fn() -> bool, ended: &AtomicU64) -> Disturbances {
        disturb(self.driver, seed, &Pace { is_over, ended })
    }
}

/// What the disturbances follow.
struct Pace<'run> {
    is_over: &'run dyn Fn() -> bool,
    /// Operations that have ended, well or not.
    ended: &'run AtomicU64,
}

impl Pace<'_> {
    fn is_over(&self) -> bool {
        (self.is_over)()
    }

    /// Waits until so many more operations have ended, or all is over.
    fn let_pass(&self, operations: u64) {
        let enough = self.ended.load(Ordering::Relaxed).saturating_add(operations);
        while self.ended.load(Ordering::Relaxed) < enough && !self.is_over() {
            dispatcher::delay(MILLISECOND);
        }
    }
}

fn disturb(driver: usize, seed: u64, pace: &Pace<'_>) -> Disturbances {
    let mut random = Rng::with_seed(seed);
    let mut done = Disturbances::default();
    let failures = fault::failures();
    pace.let_pass(BEFORE_THE_FIRST);
    while !pace.is_over() {
        let adapters = adapter::of_driver(driver);
        let Some(chosen) = adapters.get(random.u64(..adapters.len() as u64) as usize) else { break };
        match random.u64(..5) {
            0 => {
                set_ndk(chosen, false);
                pause_for(&mut random, 5, 40);
                set_ndk(chosen, true);
                done.ndk_off += 1;
            }
            1 => {
                start_again(chosen);
                done.halts += 1;
            }
            2 => {
                chosen.set_keyword("CompletionMode", &random.u64(..3).to_string());
                chosen.set_keyword("LimitsProfile", &random.u64(..3).to_string());
                start_again(chosen);
                done.profiles += 1;
            }
            3 => {
                pause(chosen, &mut random);
                done.pauses += 1;
            }
            _ => {
                fault::fail_randomly(SHORTAGE, random.u64(..));
                pace.let_pass(random.u64(WHILE_SHORT));
                fault::stop();
            }
        }
        // Most operations are not disturbed, so that they can succeed.
        pace.let_pass(random.u64(BETWEEN));
    }
    done.failed_allocations = fault::failures() - failures;
    done
}

fn pause_for(random: &mut Rng, least: u64, most: u64) {
    let milliseconds = least + random.u64(..most - least);
    dispatcher::delay(MILLISECOND * milliseconds as i64);
}

/// The consumer closes what it has open when its connections end.
fn set_ndk(adapter: &Adapter, on: bool) {
    let answer = adapter.set_oid(OID_NDK_SET_STATE, &[u8::from(on)]);
    assert!(answer.is_ok_and(|answer| answer.status == 0), "OID_NDK_SET_STATE is refused");
}

fn start_again(adapter: &Adapter) {
    adapter.halt(HaltAction::InstanceDeInitialized).unwrap_or_else(|error| panic!("halting an adapter: {error}"));
    adapter.start().unwrap_or_else(|error| panic!("starting an adapter: {error}"));
}

fn pause(adapter: &Adapter, random: &mut Rng) {
    let ended = if random.u64(..2) == 0 {
        adapter.restart().map_err(|error| error.to_string())
    } else {
        let down = adapter.power_down().map_err(|error| error.to_string());
        pause_for(random, 5, 20);
        down.and_then(|()| adapter.power_up().map_err(|error| error.to_string()))
    };
    ended.unwrap_or_else(|error| panic!("pausing an adapter: {error}"));
}
