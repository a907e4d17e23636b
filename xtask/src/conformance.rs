//! `cargo xtask conformance`: the contract's trials against the loaded image, in every combination of profiles.
//!
//! An adapter has three keywords that a correct consumer may not notice or has to adapt to: which calls pend (`CompletionMode`),
//! what the limits are (`LimitsProfile`), and whether pages of a logical mapping adjoin (`LogicalPages`, scattered where calls are
//! forced to pend). The environment names them to the trials' children; each combination is one run of
//! the trials' own test binary. A trial that needs more than a profile has says so in its declaration and is counted apart.

use crate::{
    arch::Arch,
    driver::{self, Profile},
    progress, setup,
    test_binary::TestBinary,
    workspace::Workspace,
};
use anyhow::{Context, Result, bail};
use std::{
    io::{BufRead, BufReader},
    ops::RangeInclusive,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

/// Has every peer across a stream.
pub const ACROSS_STREAMS: (&str, &str) = ("SOFTNDK_TRANSPORT", "stream");

/// Run the contract's trials in every combination of asynchrony and limits.
#[derive(clap::Args, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "options of a command line")]
pub struct ConformanceArguments {
    /// Only trials whose names contain one of these
    filters: Vec<String>,

    /// Only these ways of answering: auto, force-async, force-inline
    #[arg(long, value_delimiter = ',', value_parser = COMPLETION_MODE)]
    completion_mode: Vec<String>,

    /// Only these limits: connectx-like, generous, tiny
    #[arg(long, value_delimiter = ',', value_parser = LIMITS)]
    limits: Vec<String>,

    /// Each profile once, not every combination, and without the trials that take longest: what `cargo xtask check` does
    #[arg(long)]
    part: bool,

    /// One thread at a time, in the order that a seed gives, or with each of some seeds: 7, or 1..500
    /// (docs/kernel-host.md says how far it replays)
    #[arg(long, value_parser = seeds)]
    schedule: Option<Seeds>,

    /// Against the optimised image
    #[arg(long)]
    release: bool,

    /// With adapters whose peers are all across streams: bytes of iWARP over TCP, in any cut, late
    #[arg(long)]
    streams: bool,

    /// One line of JSON for a program instead of the table
    #[arg(long)]
    json: bool,
}

/// Seeds of schedules, the last one included.
type Seeds = RangeInclusive<u64>;

/// One seed, or the first and the last of many.
fn seeds(text: &str) -> Result<Seeds> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let range = first.parse()?..=last.parse()?;
    if range.is_empty() {
        bail!("there is no seed from {first} to {last}");
    }
    Ok(range)
}

pub(crate) const COMPLETION_MODE: [&str; 3] = ["auto", "force-async", "force-inline"];
const LIMITS: [&str; 3] = ["connectx-like", "generous", "tiny"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Combination {
    completion_mode: &'static str,
    limits: &'static str,
}

impl Combination {
    /// The profile of a driver without registry values.
    const DEFAULTS: Self = Self { completion_mode: COMPLETION_MODE[0], limits: LIMITS[0] };

    /// One of the three that have each profile once, the defaults among them.
    fn diagonal(self) -> bool {
        COMPLETION_MODE
            .into_iter()
            .zip(LIMITS)
            .any(|(completion_mode, limits)| self == Self { completion_mode, limits })
    }

    /// `LogicalPages`: scattered where all calls pend, so that each run has both.
    fn logical_pages(self) -> &'static str {
        if self.completion_mode == "force-async" { "scattered" } else { "adjoining" }
    }

    fn name(self) -> String {
        format!("{}, {}", self.completion_mode, self.limits)
    }
}

/// How one combination went.
#[derive(Debug, Default)]
struct TrialTally {
    passed: usize,
    failed: Vec<String>,
    /// Trials that say that they are not for these limits.
    not_for: usize,
    seconds: f64,
}

impl TrialTally {
    fn trials(&self) -> usize {
        self.passed + self.failed.len() + self.not_for
    }

    /// How it went, in a line.
    fn line(&self) -> String {
        let Self { passed, failed, not_for, seconds } = self;
        format!("{passed} passed, {} failed, {not_for} not for the limits, {seconds:.1} s", failed.len())
    }

    /// Takes a line of the test binary: the name of the trial that it is about.
    fn read(&mut self, line: &str) -> Option<String> {
        let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
        let name = name.trim().to_owned();
        match verdict.trim() {
            "ok" => self.passed += 1,
            "ignored" => self.not_for += 1,
            _ => self.failed.push(name.clone()),
        }
        Some(name)
    }
}

pub fn run(arguments: &ConformanceArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let combinations = combinations(arguments);
    if combinations.is_empty() {
        bail!("no combination of profiles is left");
    }
    setup::run(&setup::SetupArguments { quiet: true })?;
    let image = driver::build(&workspace, Arch::X64, Profile::of(arguments.release))?;
    let trials = TestBinary::build(&workspace, "contract")?;
    if let Some(seeds) = arguments.many_seeds() {
        return search(&trials, &image, &combinations, arguments, seeds);
    }
    let mut tallies = Vec::new();
    for combination in combinations {
        let tally = run_one(&trials, &image, combination, arguments)?;
        // Beside the table, which comes when all are done; without a terminal the spinner says nothing.
        eprintln!("{}: {}", combination.name(), tally.line());
        tallies.push((combination, tally));
    }
    report(&tallies, arguments.json);
    let sum = |each: fn(&TrialTally) -> usize| tallies.iter().map(|(_, tally)| each(tally)).sum::<usize>();
    verdict(sum(|tally| tally.passed), sum(|tally| tally.failed.len()))
}

/// Trials that are all not for the limits have shown nothing.
fn verdict(passed: usize, failed: usize) -> Result<()> {
    match (passed, failed) {
        (0, 0) => bail!("no trial ran: those that were chosen are not for these limits"),
        (_, 0) => Ok(()),
        (_, failed) => bail!("{failed} trials failed"),
    }
}

impl ConformanceArguments {
    /// The seeds, if it is more than one.
    fn many_seeds(&self) -> Option<Seeds> {
        self.schedule.clone().filter(|seeds| seeds.start() != seeds.end())
    }

    /// No profile was named.
    fn any_profile(&self) -> bool {
        !self.part && self.completion_mode.is_empty() && self.limits.is_empty()
    }
}

/// Every seed, one after the other; says which of them a trial fails with.
fn search(
    trials: &Path,
    image: &Path,
    combinations: &[Combination],
    arguments: &ConformanceArguments,
    seeds: Seeds,
) -> Result<()> {
    let (mut passed, mut failed) = (0, Vec::new());
    let (first, last) = (*seeds.start(), *seeds.end());
    for seed in seeds {
        for combination in combinations {
            let arguments = ConformanceArguments { schedule: Some(seed..=seed), ..arguments.clone() };
            let tally = run_one(trials, image, *combination, &arguments)?;
            passed += tally.passed;
            for name in tally.failed {
                println!("seed {seed}, {}: FAILED {name}", combination.name());
                failed.push((seed, *combination, name));
            }
        }
    }
    println!("schedules {first} to {last}: {passed} passed, {} failed", failed.len());
    let Some((seed, Combination { completion_mode, limits }, name)) = failed.first() else { return verdict(passed, 0) };
    bail!(
        "{} failed; again: cargo xtask conformance --completion-mode {completion_mode} --limits {limits} --schedule {seed} {name}",
        failed.len()
    );
}

fn combinations(arguments: &ConformanceArguments) -> Vec<Combination> {
    let chosen = |list: &[String], name: &str| list.is_empty() || list.iter().any(|wanted| wanted == name);
    if arguments.many_seeds().is_some() && arguments.any_profile() {
        return vec![Combination::DEFAULTS];
    }
    let all = COMPLETION_MODE
        .into_iter()
        .flat_map(|completion_mode| LIMITS.map(|limits| Combination { completion_mode, limits }));
    all.filter(|combination| {
        (!arguments.part || combination.diagonal())
            && chosen(&arguments.completion_mode, combination.completion_mode)
            && chosen(&arguments.limits, combination.limits)
    })
    .collect()
}

/// Every trial with the driver's defaults: how many passed.
pub(crate) fn run_plain(workspace: &Workspace, image: &Path) -> Result<usize> {
    let trials = TestBinary::build(workspace, "contract")?;
    let tally = run_one(&trials, image, Combination::DEFAULTS, &ConformanceArguments::default())?;
    if !tally.failed.is_empty() {
        bail!("{} trials failed: {}", tally.failed.len(), tally.failed.join(", "));
    }
    Ok(tally.passed)
}

fn run_one(
    trials: &Path,
    image: &Path,
    combination: Combination,
    arguments: &ConformanceArguments,
) -> Result<TrialTally> {
    let mut tally = TrialTally::default();
    let started = Instant::now();
    let filters: Vec<Option<&str>> = match arguments.filters.as_slice() {
        [] => vec![None],
        filters => filters.iter().map(|filter| Some(filter.as_str())).collect(),
    };
    for filter in filters {
        run_filtered(trials, image, combination, filter, arguments, &mut tally)?;
    }
    tally.seconds = started.elapsed().as_secs_f64();
    Ok(tally)
}

/// Trials that take three fifths of the time of all. They run with the defaults in `cargo xtask test`; what only a forced mode would show
/// of them, `cargo xtask soak` looks for, in every combination.
const LONGEST: [&str; 8] = [
    "fault::",
    "interruption::",
    "limits::everything_at_once",
    "race::",
    "removal::a_hundred",
    "storm_",
    "teardown::a_hundred",
    "transfer::largest_transfer",
];

/// One run of the trials' binary, which takes one filter.
fn run_filtered(
    trials: &Path,
    image: &Path,
    combination: Combination,
    filter: Option<&str>,
    arguments: &ConformanceArguments,
    tally: &mut TrialTally,
) -> Result<()> {
    let Combination { completion_mode, limits } = combination;
    let before = (tally.trials(), tally.failed.len());
    let bar = progress::spinner(format!("{completion_mode}, {limits}"))?;
    let mut command = Command::new(trials);
    if arguments.part {
        command.args(LONGEST.iter().flat_map(|name| ["--skip", name]));
    }
    command.args(filter).env("SOFTNDK_COMPLETION_MODE", completion_mode).env("SOFTNDK_LIMITS", limits);
    command.env("SOFTNDK_LOGICAL_PAGES", combination.logical_pages());
    command.envs(arguments.schedule.as_ref().map(|seeds| ("SOFTNDK_SCHEDULE", seeds.start().to_string())));
    command.envs(arguments.streams.then_some(ACROSS_STREAMS));
    command.env("SOFTNDK_IMAGE", image).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {}", trials.display()))?;
    let output = child.stdout.take().context("the trials have no output")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        match tally.read(&line) {
            Some(name) => {
                bar.set_message(format!("{completion_mode}, {limits}: {} done, {name}", tally.trials()));
            }
            // What a failed trial said comes after the list.
            None if tally.failed.len() > before.1 => bar.suspend(|| eprintln!("{line}")),
            None => {}
        }
    }
    let status = child.wait()?;
    bar.finish_and_clear();
    if tally.trials() == before.0 || status.success() != (tally.failed.len() == before.1) {
        bail!("{completion_mode}, {limits}: the run ended with {status} after {} trials", tally.trials());
    }
    Ok(())
}

fn report(tallies: &[(Combination, TrialTally)], json: bool) {
    let sum = |each: fn(&TrialTally) -> usize| tallies.iter().map(|(_, tally)| each(tally)).sum::<usize>();
    let (passed, failed) = (sum(|tally| tally.passed), sum(|tally| tally.failed.len()));
    let not_for = sum(|tally| tally.not_for);
    let trials = tallies.iter().map(|(_, tally)| tally.trials()).max().unwrap_or(0);
    if json {
        let rows: Vec<_> = tallies.iter().map(row).collect();
        let all = serde_json::json!({
            "combinations": rows, "trials": trials, "passed": passed, "failed": failed, "not_for_the_limits": not_for,
        });
        println!("{all}");
        return;
    }
    println!(
        "{:<14} {:<14} {:>7} {:>7} {:>9} {:>9}",
        "completion mode", "limits", "passed", "failed", "not for", "seconds"
    );
    for (combination, tally) in tallies {
        let Combination { completion_mode, limits } = combination;
        let (passed, failed, not_for) = (tally.passed, tally.failed.len(), tally.not_for);
        println!("{completion_mode:<14} {limits:<14} {passed:>7} {failed:>7} {not_for:>9} {:>9.1}", tally.seconds);
        for name in &tally.failed {
            println!("    FAILED {name}");
        }
    }
    let count = tallies.len();
    println!(
        "conformance: {count} combinations, {trials} trials each, {passed} passed, {failed} failed, \
         {not_for} not for their limits"
    );
}

fn row((combination, tally): &(Combination, TrialTally)) -> serde_json::Value {
    serde_json::json!({
        "completion mode": combination.completion_mode, "limits": combination.limits, "passed": tally.passed,
        "failed": tally.failed, "not_for_the_limits": tally.not_for, "seconds": tally.seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::PathBuf};

    #[test]
    fn run_in_which_no_trial_ran_is_not_green() {
        assert!(verdict(0, 0).is_err() && verdict(5, 1).is_err() && verdict(0, 1).is_err());
        assert!(verdict(1, 0).is_ok());
    }

    fn arguments(part: bool, completion_mode: &[&str]) -> ConformanceArguments {
        let completion_mode = completion_mode.iter().map(ToString::to_string).collect();
        ConformanceArguments { completion_mode, part, ..ConformanceArguments::default() }
    }

    #[test]
    fn nine_combinations_or_each_profile_once() {
        assert_eq!(combinations(&arguments(false, &[])).len(), 9);
        assert_eq!(combinations(&arguments(true, &[])).len(), 3);
        assert_eq!(combinations(&arguments(true, &[]))[0], Combination::DEFAULTS);
        let pending = Combination { completion_mode: "force-async", limits: "generous" };
        assert_eq!(combinations(&arguments(true, &["force-async"])), [pending]);
    }

    #[test]
    fn many_seeds_run_with_the_defaults_unless_profiles_are_named() {
        let many = |part| ConformanceArguments { schedule: Some(1..=3), ..arguments(part, &[]) };
        assert_eq!(combinations(&many(false)), [Combination::DEFAULTS]);
        assert_eq!(combinations(&many(true)).len(), 3);
        let one = ConformanceArguments { schedule: Some(3..=3), ..arguments(false, &[]) };
        assert_eq!(combinations(&one).len(), 9);
    }

    #[test]
    fn seeds_are_one_or_a_range_with_its_end() {
        assert_eq!(seeds("7").unwrap(), 7..=7);
        assert_eq!(seeds("1..500").unwrap(), 1..=500);
        assert!(seeds("5..4").is_err() && seeds("1..").is_err() && seeds("x").is_err());
    }

    #[test]
    fn lines_of_the_trials_are_counted() {
        let mut tally = TrialTally::default();
        let lines =
            ["running 3 tests", "test a::one   ... ok", "test a::two ... FAILED", "test b::three ... ignored", ""];
        let names: Vec<_> = lines.iter().filter_map(|line| tally.read(line)).collect();
        assert_eq!(names, ["a::one", "a::two", "b::three"]);
        assert_eq!(tally.line(), "1 passed, 1 failed, 1 not for the limits, 0.0 s");
        assert_eq!((tally.passed, tally.failed, tally.not_for), (1, vec!["a::two".to_owned()], 1));
    }

    /// A filter that fits no trial skips nothing.
    #[test]
    fn the_longest_trials_are_there() {
        let folder = Workspace::find().unwrap().path("tests/conformance/tests/contract");
        for name in LONGEST {
            let (suite, trial) = name.split_once("::").unwrap_or(("", name));
            let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
            let fits = |file: &PathBuf| file.with_extension("").ends_with(suite) || suite.is_empty();
            let has = |file: PathBuf| fs::read_to_string(file).is_ok_and(|text| text.contains(&format!("fn {trial}")));
            assert!(files.filter(fits).any(has), "no trial has {name} in its name");
        }
    }
}
