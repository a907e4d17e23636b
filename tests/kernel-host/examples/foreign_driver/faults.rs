//! Faults by call site of the driver: each of its calls that may lack memory fails at its first, second and last time, one a run,
//! until no site is left that was not tried; what a failing path reaches for the first time is tried as well.
//!
//! A run is good when nothing is left behind and no rule is broken: a driver may fail, and say so, for lack of memory. Runs have a
//! seed, so that a call is met again that was met before.

use std::collections::{BTreeMap, BTreeSet};

use kernel_host::fault::Site;
use serde_json::Value;

use crate::case::{Case, Fault};
use crate::children::{self, Finished};
use crate::program::{Unusable, Words};

/// The seed of runs with a fault, unless another is asked for.
const SEED: u64 = 1;

/// What came of all faults.
pub struct Faults {
    /// The case in which they were tried.
    pub label: String,
    pub sites: BTreeMap<Site, Seen>,
    pub runs: usize,
    /// Runs in which the call was made, and failed.
    pub met: usize,
    pub failed: Vec<Finished>,
}

/// A call of the driver that may fail.
pub struct Seen {
    pub export: String,
    pub hits: u64,
    pub stack: Vec<String>,
    pub met: bool,
}

impl Seen {
    fn hits(&self) -> BTreeSet<u64> {
        [1, 2, self.hits].into_iter().filter(|hit| *hit <= self.hits).collect()
    }
}

/// Fails each call of the driver in the first case.
pub fn run_all(words: &Words, cases: &[Case]) -> Result<Faults, Unusable> {
    let Some(first) = cases.first() else { return Err("there is no case".into()) };
    let mut case = first.clone();
    if case.seed.is_none() {
        case.seed = Some(SEED);
        case.label = format!("{}, schedule {SEED}", case.label);
    }
    let mut faults = Faults { label: case.label.clone(), sites: BTreeMap::new(), runs: 0, met: 0, failed: Vec::new() };
    for finished in children::run_all(words, std::slice::from_ref(&case), false)? {
        faults.learn(&finished);
        if !finished.is_good() {
            faults.failed.push(finished);
            return Ok(faults);
        }
    }
    let mut tried = BTreeSet::new();
    loop {
        let next = faults.untried(&case, &mut tried);
        if next.is_empty() {
            return Ok(faults);
        }
        for finished in children::run_all(words, &next, false)? {
            faults.add(finished);
        }
    }
}

impl Faults {
    /// The sites of a run that were not known.
    fn learn(&mut self, finished: &Finished) {
        for site in finished.record["sites"].as_array().into_iter().flatten() {
            let Some((number, seen)) = read(site) else { continue };
            self.sites.entry(number).or_insert(seen);
        }
    }

    fn add(&mut self, finished: Finished) {
        self.learn(&finished);
        self.runs += 1;
        // A bugcheck says nothing of it, but would not have come otherwise.
        if finished.record["fault_met"] == true || finished.bugcheck.is_some() {
            self.met += 1;
            if let Some(seen) = finished.case.fault.and_then(|fault| self.sites.get_mut(&fault.site)) {
                seen.met = true;
            }
        }
        if !finished.is_good() {
            self.failed.push(finished);
        }
    }

    /// Cases for the faults that were not tried.
    fn untried(&self, case: &Case, tried: &mut BTreeSet<Fault>) -> Vec<Case> {
        let all = self.sites.iter().flat_map(|(site, seen)| seen.hits().into_iter().map(move |hit| (*site, hit, seen)));
        let new = all.filter(|(site, hit, _)| tried.insert(Fault { site: *site, hit: *hit }));
        new.map(|(site, hit, seen)| case.with_fault(Fault { site, hit }, &seen.export)).collect()
    }
}

fn read(site: &Value) -> Option<(Site, Seen)> {
    let number = u64::from_str_radix(site["site"].as_str()?.trim_start_matches("0x"), 16).ok()?;
    let stack = site["stack"].as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let seen = Seen { export: site["export"].as_str()?.to_owned(), hits: site["hits"].as_u64()?, stack, met: false };
    Some((Site(number), seen))
}
