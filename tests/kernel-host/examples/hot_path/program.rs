//! What the exports on a driver's hot path cost in fast mode: `hot_path IMAGE [CYCLES]`, where IMAGE is the probe image of this
//! crate's tests and CYCLES what a change of the level is charged. Prints nanoseconds a call.

// The measured calls belong together with their arguments.
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "one measurement is one call and what it is given")]

use std::process::ExitCode;
use std::time::Instant;

use kernel_host::callout::{Context, ContextKind};
use kernel_host::nt::KDPC;
use kernel_host::ntoskrnl::dpcs;
use kernel_host::{Kernel, KernelConfig, Mode, call_image};

const ROUNDS: u64 = 200_000;
/// The best of so many: other programs run on the machine as well.
const REPETITIONS: usize = 25;
const OTHER: Context = Context::new(ContextKind::Other, "a function of the probe");

pub fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: hot_path IMAGE [CYCLES]");
        return ExitCode::from(2);
    };
    let level_change = std::env::args().nth(2).and_then(|cycles| cycles.parse().ok()).unwrap_or(0);
    let kernel = Kernel::boot(KernelConfig { mode: Mode::Fast, level_change, ..KernelConfig::default() });
    let driver = match kernel.load_driver(&path, "probe") {
        Ok(driver) => driver,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let function = |name: &str| {
        let exports = &driver.image().exports;
        exports.iter().find(|(exported, _)| exported == name).map_or(0, |(_, address)| *address)
    };
    let mut lock = Box::new(0_usize);
    let mut counter = Box::new([0_u64; 2]);
    // SAFETY: an all-zero KDPC is a value; it is initialised below.
    let mut deferred: Box<KDPC> = Box::new(unsafe { std::mem::zeroed() });
    // SAFETY: our own DPC object and context, and functions of the probe with the arguments that they take.
    unsafe {
        dpcs::KeInitializeDpc(&raw mut *deferred, function("counting_routine") as *mut _, counter.as_mut_ptr().cast());
        report("KeGetCurrentIrql", || {
            call_image!(OTHER, function("irql_calls") => u64; ROUNDS);
        });
        report("KeAcquireSpinLockRaiseToDpc + KeReleaseSpinLock", || {
            call_image!(OTHER, function("spin_lock_pairs") => (); &raw mut *lock, ROUNDS);
        });
        report("KeInsertQueueDpc that runs at once", || {
            call_image!(OTHER, function("queue_calls") => u64; &raw mut *deferred, ROUNDS);
        });
        report("call of an image function", || {
            for _ in 0..ROUNDS {
                call_image!(OTHER, function("irql_calls") => u64; 0_u64);
            }
        });
    }
    driver.unload();
    ExitCode::SUCCESS
}

fn report(what: &str, mut body: impl FnMut()) {
    let mut best = u128::MAX;
    for _ in 0..REPETITIONS {
        let began = Instant::now();
        body();
        best = best.min(began.elapsed().as_nanos());
    }
    let tenths = best * 10 / u128::from(ROUNDS);
    println!("{what:<50} {:>5}.{} ns", tenths / 10, tenths % 10);
}
