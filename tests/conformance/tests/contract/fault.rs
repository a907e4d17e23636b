//! Every allocation and every mapping on the way to a finished transfer made to fail once: the call that needed it
//! answers insufficient resources, everything built so far is closed again, and nothing is left behind.
//!
//! The sites are found by running the scenario once while the host records them; then each is failed at its first hit, and
//! what the failing path reaches for the first time is added, until nothing new appears.

use std::collections::{BTreeMap, BTreeSet};

use conformance::case;
use conformance::consumer::completion;
use conformance::machine::Setup;
use conformance::scenario::{Stop, TRANSFER, is_clean};
use conformance::trial::Case;
use kernel_host::Kernel;
use kernel_host::fault::{self, Site};

pub const CASES: &[Case] = &[
    case!(every_allocation_of_a_scenario_with_a_transfer_fails_once: "NDK-FAULT-1", "NDK-OPEN-7", "NDIS-LIFE-8", "BUG-2"),
    case!(one_allocation_in_twenty_fails_at_random: "NDK-FAULT-1"),
];

/// The stacks of the sites, named while the image that they lie in was loaded.
type Names = BTreeMap<Site, String>;

/// One scenario with a transfer in it.
fn scenario(kernel: &Kernel, setup: &Setup, names: &mut Names) -> Result<(), Stop> {
    TRANSFER.live(kernel, setup, || {
        for record in fault::sites() {
            names.entry(record.site).or_insert_with(|| {
                let frames = kernel_host::image::stack_trace::name(&record.stack);
                frames.iter().fold(String::new(), |text, frame| text + "\n    " + &frame.to_string())
            });
        }
    })
}

fn assert_nothing_left(kernel: &Kernel, what: &str) {
    completion::verify_all();
    let report = kernel.report();
    assert!(report.is_clean(), "{what}: {report}");
}

fn every_allocation_of_a_scenario_with_a_transfer_fails_once() {
    let setup = Setup::default();
    let kernel = Kernel::boot(setup.kernel.clone());
    fault::start_recording();
    let mut names = Names::new();
    assert_eq!(scenario(&kernel, &setup, &mut names), Ok(()), "the scenario without a fault");
    assert_nothing_left(&kernel, "the scenario without a fault");
    let mut known = fault::sites();
    let mut tried: BTreeSet<Site> = BTreeSet::new();
    let mut fired = 0;
    while let Some(record) = known.iter().find(|record| !tried.contains(&record.site)).cloned() {
        tried.insert(record.site);
        let before = fault::failures();
        // A bugcheck names its own stack; this line names the fault that led there.
        let stack = names.get(&record.site).cloned().unwrap_or_default();
        eprintln!("failing {} at{stack}", record.export);
        fault::fail(record.site, 1);
        let result = scenario(&kernel, &setup, &mut names);
        let failures = fault::failures() - before;
        fired += failures;
        let what = || format!("{} failed at{stack}\nand the scenario ended in {result:x?}", record.export);
        if let Err((place, status)) = result {
            assert!(failures > 0, "failed without a fault: {}", what());
            assert!(is_clean(place, status), "{}", what());
        }
        assert_nothing_left(&kernel, &what());
        known = fault::sites();
    }
    fault::stop();
    println!("{} sites, {fired} faults", tried.len());
    assert!(fired >= 20, "only {fired} faults of {} sites", tried.len());
    assert_eq!(scenario(&kernel, &setup, &mut names), Ok(()), "the scenario after all faults");
    assert_nothing_left(&kernel, "the scenario after all faults");
}

fn one_allocation_in_twenty_fails_at_random() {
    let setup = Setup::default();
    let kernel = Kernel::boot(setup.kernel.clone());
    let mut succeeded = 0;
    for seed in 1..=60 {
        // The later runs have fewer faults, so that some get far.
        fault::fail_randomly(20 + seed * 3, seed);
        let result = scenario(&kernel, &setup, &mut Names::new());
        fault::stop();
        succeeded += u32::from(result.is_ok());
        if let Err((place, status)) = result {
            assert!(is_clean(place, status), "seed {seed}: {place} answered {status:#010x}");
        }
        assert_nothing_left(&kernel, &format!("seed {seed}: {result:x?}"));
    }
    println!("{succeeded} of 60 scenarios completed");
}
