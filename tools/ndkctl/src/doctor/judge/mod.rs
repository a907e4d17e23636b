//! What the facts mean. Pure functions: facts in, findings out.

mod adapters;
mod drivers;
mod system;
#[cfg(test)]
mod tests;
mod uplinks;
mod user_mode;

use super::facts::Facts;
use super::finding::{Finding, Found};
use std::collections::BTreeSet;

/// The findings, the worst first; and what could not be checked, because this system does not say.
#[must_use]
pub fn judge(facts: &Facts) -> (Vec<Found>, BTreeSet<Finding>) {
    let mut verdict = Verdict { found: Vec::new(), not_checked: BTreeSet::new() };
    drivers::judge(facts, &mut verdict);
    system::judge(facts, &mut verdict);
    adapters::judge(facts, &mut verdict);
    uplinks::judge(facts, &mut verdict);
    user_mode::judge(facts, &mut verdict);
    // Stable: findings of one severity stay in the order of the layers, the lowest first.
    verdict.found.sort_by_key(|found| std::cmp::Reverse(found.severity));
    (verdict.found, verdict.not_checked)
}

/// What was found so far.
struct Verdict {
    found: Vec<Found>,
    not_checked: BTreeSet<Finding>,
}

impl Verdict {
    fn add(&mut self, found: Found) {
        self.found.push(found);
    }

    /// A fact; where there is none, these checks are not made.
    fn known<T>(&mut self, fact: Option<T>, checks: &[Finding]) -> Option<T> {
        if fact.is_none() {
            self.not_checked.extend(checks);
        }
        fact
    }
}
