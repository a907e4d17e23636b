//! Faults by call site: every call of the driver that allocates, maps or starts something is made to fail, at its first,
//! its second and its last hit in a scenario (`conformance::scenario`), until no site is left that was not tried. A site is the
//! stack of return addresses, so the same routine called from two places is two sites, and what a failing path reaches for
//! the first time is tried as well.
//!
//! Each scenario is a process of its own. A run is good when the scenario completed or stopped with a status that says that
//! memory is short, with nothing left behind and no bugcheck. The child writes a line before and after each run, which
//! `cargo xtask verify` reads; environment variables choose single faults and leave out those that are done.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use conformance::consumer::completion;
use conformance::machine::Setup;
use conformance::scenario::{SCENARIOS, Scenario, is_clean};
use conformance::trial::{become_child, in_child};
use kernel_host::Kernel;
use kernel_host::fault::{self, Site};
use libtest_mimic::{Arguments, Trial};

/// Only this site, in hexadecimal.
const SITE: &str = "SOFTNDK_FAULT_SITE";
/// Only this hit of it.
const HIT: &str = "SOFTNDK_FAULT_HIT";
/// Faults that are done: `SITE:HIT`, with commas between.
const DONE: &str = "SOFTNDK_FAULT_DONE";

/// How the lines for programs begin: before a run, after it, and at the end.
const BEGINS: &str = "FAULT-BEGINS ";
const ENDED: &str = "FAULT-ENDED ";
const TALLY: &str = "FAULT-TALLY ";

pub fn main() -> ExitCode {
    become_child(|name| SCENARIOS.iter().any(|scenario| scenario.name == name).then_some(fail_all));
    let trials = SCENARIOS
        .iter()
        .map(|scenario| Trial::test(scenario.name, move || in_child(scenario.name, &[])?.expect_success()));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// One call to fail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Fault {
    site: Site,
    hit: u64,
}

/// What the environment asks for.
struct Wanted {
    site: Option<Site>,
    hit: Option<u64>,
    done: BTreeSet<Fault>,
}

impl Wanted {
    fn from_environment() -> Self {
        let variable = |name| std::env::var(name).ok();
        let done = variable(DONE).unwrap_or_default();
        let done = done.split(',').filter(|fault| !fault.is_empty()).map(|fault| {
            let (site, hit) = fault.split_once(':').expect("SITE:HIT");
            Fault { site: read_site(site), hit: hit.parse().expect("the number of a hit") }
        });
        Self {
            site: variable(SITE).map(|site| read_site(&site)),
            hit: variable(HIT).map(|hit| hit.parse().expect("the number of a hit")),
            done: done.collect(),
        }
    }

    fn includes(&self, fault: Fault) -> bool {
        self.site.is_none_or(|site| site == fault.site)
            && self.hit.is_none_or(|hit| hit == fault.hit)
            && !self.done.contains(&fault)
    }
}

fn read_site(text: &str) -> Site {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    Site(u64::from_str_radix(digits, 16).expect("the hexadecimal number of a site"))
}

/// A site that a scenario reached.
struct Seen {
    export: &'static str,
    /// How often, in the run in which it was seen first.
    hits: u64,
    /// Its stack by name; taken while the image is loaded.
    stack: Vec<String>,
}

impl Seen {
    /// The hits to fail: first, second, last.
    fn hits(&self) -> BTreeSet<u64> {
        [1, 2, self.hits].into_iter().filter(|hit| *hit <= self.hits).collect()
    }
}

type Sites = BTreeMap<Site, Seen>;

/// Adds the sites that this run met for the first time.
fn record_new_sites(sites: &mut Sites) {
    for record in fault::sites().into_iter().filter(|record| record.hits != 0) {
        sites.entry(record.site).or_insert_with(|| {
            let frames = kernel_host::image::stack_trace::name(&record.stack);
            let stack = frames.iter().map(ToString::to_string).collect();
            Seen { export: record.export, hits: record.hits, stack }
        });
    }
}

/// The child: one scenario, again and again.
fn fail_all() {
    let name = conformance::trial::child_name().expect("the name of a scenario");
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name).expect("a scenario of that name");
    let wanted = Wanted::from_environment();
    let setup = Setup::default();
    let kernel = Kernel::boot(setup.kernel.clone());
    let mut sites = Sites::new();
    fault::start_recording();
    let result = scenario.live(&kernel, &setup, || record_new_sites(&mut sites));
    assert_eq!(result, Ok(()), "{} without a fault", scenario.name);
    assert_nothing_left(&kernel, "the scenario without a fault");
    let (mut tried, mut failed) = (BTreeSet::new(), BTreeSet::new());
    let mut runs = 0_u64;
    loop {
        let faults =
            sites.iter().flat_map(|(site, seen)| seen.hits().into_iter().map(|hit| Fault { site: *site, hit }));
        let Some(next) = faults.into_iter().find(|fault| !tried.contains(fault)) else { break };
        tried.insert(next);
        if wanted.includes(next) {
            runs += 1;
            if run(scenario, next, &kernel, &setup, &mut sites) {
                failed.insert(next.site);
            }
        }
    }
    fault::stop();
    let tally = serde_json::json!({ "sites": sites.len(), "failed": failed.len(), "runs": runs });
    println!("{TALLY}{tally}");
    let everything = wanted.site.is_none() && wanted.done.is_empty();
    assert!(!everything || failed.len() * 10 >= sites.len() * 9, "too few of the sites were met: {tally}");
}

/// Runs the scenario once with one call failing; returns whether it failed.
fn run(scenario: &Scenario, fault: Fault, kernel: &Kernel, setup: &Setup, sites: &mut Sites) -> bool {
    let seen = &sites[&fault.site];
    let site = format!("{:#018x}", fault.site.0);
    let begin = serde_json::json!({
        "site": site, "hit": fault.hit, "export": seen.export, "stack": seen.stack, "sites": sites.len()
    });
    println!("{BEGINS}{begin}");
    let before = fault::failures();
    fault::fail(fault.site, fault.hit);
    let result = scenario.live(kernel, setup, || record_new_sites(sites));
    let fired = fault::failures() > before;
    let what = format!("hit {} of site {site} failed, {}: {result:x?}", fault.hit, scenario.name);
    if let Err((place, status)) = result {
        assert!(fired, "stopped without a fault: {what}");
        assert!(is_clean(place, status), "no status for lack of memory: {what}");
    }
    assert_nothing_left(kernel, &what);
    let end = serde_json::json!({ "site": site, "hit": fault.hit, "fired": fired, "stopped": result.is_err() });
    println!("{ENDED}{end}");
    fired
}

fn assert_nothing_left(kernel: &Kernel, what: &str) {
    completion::verify_all();
    let report = kernel.report();
    assert!(report.is_clean(), "{what}: {report}");
}
