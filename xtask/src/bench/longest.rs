//! The longest time that the driver spends on a path, told from what the machine does to it.
//!
//! A hypervisor takes processors away without telling, so the longest of many times is the machine's, and so is the longest of the
//! shortest runs when there are enough programs. But what the driver does on a path takes as long every time: a path is slow if it
//! is slow again and again. One that is taken once a run is seen; one that was taken a few times in all runs together says nothing,
//! because a machine that interferes makes paths of its own: a lock that is waited for, a DPC that comes late.

use serde_json::Value;
use std::collections::BTreeMap;

/// How many of a path's times took so many nanoseconds, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Paths(BTreeMap<String, BTreeMap<u64, u64>>);

/// Of each path this many of its longest times do not count, and one of so many: more often the machine does not interfere.
const NOT_COUNTED: u64 = 2;
const ONE_OF: u64 = 100;
/// A path that was taken less often, in all runs together, is not judged.
const SEEN: u64 = 4;

impl Paths {
    /// As `ndkctl perf` prints them; none where it says nothing.
    pub(super) fn read(value: Option<&Value>) -> Self {
        let paths = value.and_then(Value::as_object).into_iter().flatten();
        let times = |times: &Value| {
            let times = times.as_object().into_iter().flatten();
            times.filter_map(|(time, count)| Some((time.parse().ok()?, count.as_u64()?))).collect()
        };
        Self(paths.map(|(path, found)| (path.clone(), times(found))).collect())
    }

    /// Adds what another run found.
    pub(super) fn add(&mut self, other: Self) {
        for (path, times) in other.0 {
            let all = self.0.entry(path).or_default();
            for (time, count) in times {
                *all.entry(time).or_default() += count;
            }
        }
    }

    /// The path that takes longest, and its time.
    pub(super) fn longest(&self) -> Option<(&str, u64)> {
        let times = self.0.iter().filter_map(|(path, times)| Some((path.as_str(), takes(times)?)));
        times.max_by_key(|(_, time)| *time)
    }
}

/// How long a path takes: its longest time without those that do not count.
fn takes(times: &BTreeMap<u64, u64>) -> Option<u64> {
    let count: u64 = times.values().sum();
    if count < SEEN {
        return None;
    }
    let mut left_out = NOT_COUNTED + count / ONE_OF;
    for (time, count) in times.iter().rev() {
        match left_out.checked_sub(*count) {
            Some(less) => left_out = less,
            None => return Some(*time),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn paths(found: &[(&str, &[(u64, u64)])]) -> Paths {
        let path = |(path, times): &(&str, &[(u64, u64)])| ((*path).to_owned(), times.iter().copied().collect());
        Paths(found.iter().map(path).collect())
    }

    #[test]
    fn a_machine_that_interferes_is_not_the_driver() {
        let found = paths(&[("post", &[(800, 90_000), (900, 9_500), (40_000, 300), (1_700_000, 12)])]);
        assert_eq!(found.longest(), Some(("post", 900)));
        let seldom = paths(&[("close", &[(3_000, 5), (400_000, 2)])]);
        assert_eq!(seldom.longest(), Some(("close", 3_000)));
    }

    #[test]
    fn a_path_that_is_slow_once_a_run_is_found_among_many_that_are_not() {
        let fast = paths(&[("post", &[(800, 90_000)]), ("poll", &[(900, 90_000), (1_000_000, 9)])]);
        let mut all = Paths::default();
        for run in 0..7 {
            all.add(fast.clone());
            all.add(paths(&[("grow", &[(60_000 + run, 1)])]));
        }
        assert_eq!(all.longest(), Some(("grow", 60_004)), "the two longest of seven do not count");
    }

    #[test]
    fn a_path_that_is_slow_more_often_than_a_machine_interferes_is_slow() {
        let found = paths(&[("post", &[(800, 9_800), (70_000, 200)])]);
        assert_eq!(found.longest(), Some(("post", 70_000)));
    }

    #[test]
    fn a_path_that_was_hardly_seen_is_not_judged() {
        assert_eq!(paths(&[("open", &[(70_000, 3)])]).longest(), None);
        assert_eq!(paths(&[("open", &[(70_000, 4)])]).longest(), Some(("open", 70_000)));
        assert_eq!(paths(&[("open", &[])]).longest(), None);
    }

    #[test]
    fn paths_are_read_and_added_by_name() {
        let mut all = Paths::read(Some(&json!({"a": {"10": 2}, "b": {"7": 1}})));
        all.add(Paths::read(Some(&json!({"a": {"10": 1, "20": 5}}))));
        assert_eq!(all, paths(&[("a", &[(10, 3), (20, 5)]), ("b", &[(7, 1)])]));
        assert_eq!(Paths::read(Some(&Value::Null)), Paths::default());
    }
}
