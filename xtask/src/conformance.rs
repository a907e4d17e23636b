//! `cargo xtask conformance`: the contract's trials against the loaded image, in every combination of profiles.
//!
//! An adapter has two keywords that a correct consumer may not notice or has to adapt to: which calls pend (`Promptness`) and
//! what the limits are (`LimitsProfile`). The environment names them to the trials' children; each combination is one run of
//! the trials' own test binary. A trial that needs more than a profile has says so in its declaration and is counted apart.

use crate::{
    arch::Arch,
    driver::{self, Profile},
    setup,
    workspace::Workspace,
};
use anyhow::{Context, Result, bail};
use cargo_metadata::Message;
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Run the contract's trials in every combination of asynchrony and limits.
#[derive(clap::Args, Default)]
pub struct Arguments {
    /// Only trials whose names contain this
    filter: Option<String>,

    /// Only these ways of answering: natural, force-pending, force-inline
    #[arg(long, value_delimiter = ',', value_parser = PROMPTNESS)]
    promptness: Vec<String>,

    /// Only these limits: connectx-like, generous, tiny
    #[arg(long, value_delimiter = ',', value_parser = LIMITS)]
    limits: Vec<String>,

    /// Each profile once, not every combination: what the test run does
    #[arg(long)]
    part: bool,

    /// Threads step aside at every export and spin lock, by this seed (docs/kernel-host.md says how far it replays)
    #[arg(long)]
    schedule: Option<u64>,

    /// Against the optimised image
    #[arg(long)]
    release: bool,

    /// One line of JSON for a program instead of the table
    #[arg(long)]
    json: bool,
}

pub(crate) const PROMPTNESS: [&str; 3] = ["natural", "force-pending", "force-inline"];
const LIMITS: [&str; 3] = ["connectx-like", "generous", "tiny"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Combination {
    promptness: &'static str,
    limits: &'static str,
}

/// How one combination went.
#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    failed: Vec<String>,
    /// Trials that say that they are not for these limits.
    not_for: usize,
    seconds: f64,
}

impl Tally {
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

pub fn run(arguments: &Arguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let combinations = combinations(arguments);
    if combinations.is_empty() {
        bail!("no combination of profiles is left");
    }
    setup::run(&setup::Arguments { quiet: true })?;
    let image = driver::build(&workspace, Arch::X64, Profile::of(arguments.release))?;
    let trials = build_test(&workspace, "contract")?;
    let mut tallies = Vec::new();
    for combination in combinations {
        let tally = run_one(&trials, &image, combination, arguments)?;
        tallies.push((combination, tally));
    }
    report(&tallies, arguments.json);
    let failed: usize = tallies.iter().map(|(_, tally)| tally.failed.len()).sum();
    if failed > 0 {
        bail!("{failed} trials failed");
    }
    Ok(())
}

fn combinations(arguments: &Arguments) -> Vec<Combination> {
    let chosen = |list: &[String], name: &str| list.is_empty() || list.iter().any(|wanted| wanted == name);
    let all = PROMPTNESS.into_iter().flat_map(|promptness| LIMITS.map(|limits| Combination { promptness, limits }));
    all.filter(|combination| {
        let whole = !arguments.part || combination.promptness == PROMPTNESS[0] || combination.limits == LIMITS[0];
        whole && chosen(&arguments.promptness, combination.promptness) && chosen(&arguments.limits, combination.limits)
    })
    .collect()
}

/// Every trial with the driver's defaults: how many passed.
pub(crate) fn run_plain(workspace: &Workspace, image: &Path) -> Result<usize> {
    let trials = build_test(workspace, "contract")?;
    let tally =
        run_one(&trials, image, Combination { promptness: PROMPTNESS[0], limits: LIMITS[0] }, &Arguments::default())?;
    if !tally.failed.is_empty() {
        bail!("{} trials failed: {}", tally.failed.len(), tally.failed.join(", "));
    }
    Ok(tally.passed)
}

/// Builds a test binary of the package `conformance` and says where it is.
pub(crate) fn build_test(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(workspace.root());
    cargo.args(["test", "--quiet", "--locked", "--package", "conformance", "--test", name, "--no-run"]);
    cargo.arg("--message-format=json-render-diagnostics").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = cargo.spawn().context("cannot start cargo")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let mut found = None;
    for message in Message::parse_stream(BufReader::new(output)) {
        if let Message::CompilerArtifact(artifact) = message?
            && artifact.target.name == name
        {
            found = artifact.executable;
        }
    }
    if !child.wait()?.success() {
        bail!("the test {name} does not build");
    }
    found.map(Into::into).context("cargo named no test binary")
}

fn run_one(trials: &Path, image: &Path, combination: Combination, arguments: &Arguments) -> Result<Tally> {
    let Combination { promptness, limits } = combination;
    let started = Instant::now();
    let bar = ProgressBar::new_spinner().with_message(format!("{promptness}, {limits}"));
    bar.set_style(ProgressStyle::with_template("{spinner} {elapsed:>4} {msg}")?);
    bar.enable_steady_tick(Duration::from_millis(120));
    let mut command = Command::new(trials);
    command.args(&arguments.filter).env("SOFTNDK_PROMPTNESS", promptness).env("SOFTNDK_LIMITS", limits);
    command.envs(arguments.schedule.map(|seed| ("SOFTNDK_SCHEDULE", seed.to_string())));
    command.env("SOFTNDK_IMAGE", image).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {}", trials.display()))?;
    let output = child.stdout.take().context("the trials have no output")?;
    let mut tally = Tally::default();
    for line in BufReader::new(output).lines() {
        let line = line?;
        match tally.read(&line) {
            Some(name) => {
                bar.set_message(format!("{promptness}, {limits}: {} done, {name}", tally.trials()));
            }
            // What a failed trial said comes after the list.
            None if !tally.failed.is_empty() => bar.suspend(|| eprintln!("{line}")),
            None => {}
        }
    }
    let status = child.wait()?;
    bar.finish_and_clear();
    tally.seconds = started.elapsed().as_secs_f64();
    // Beside the table, which comes when all are done; without a terminal the spinner says nothing.
    eprintln!("{promptness}, {limits}: {}", tally.line());
    if tally.trials() == 0 || status.success() != tally.failed.is_empty() {
        bail!("{promptness}, {limits}: the run ended with {status} after {} trials", tally.trials());
    }
    Ok(tally)
}

fn report(tallies: &[(Combination, Tally)], json: bool) {
    let sum = |each: fn(&Tally) -> usize| tallies.iter().map(|(_, tally)| each(tally)).sum::<usize>();
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
    println!("{:<14} {:<14} {:>7} {:>7} {:>9} {:>9}", "promptness", "limits", "passed", "failed", "not for", "seconds");
    for (combination, tally) in tallies {
        let Combination { promptness, limits } = combination;
        let (passed, failed, not_for) = (tally.passed, tally.failed.len(), tally.not_for);
        println!("{promptness:<14} {limits:<14} {passed:>7} {failed:>7} {not_for:>9} {:>9.1}", tally.seconds);
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

fn row((combination, tally): &(Combination, Tally)) -> serde_json::Value {
    serde_json::json!({
        "promptness": combination.promptness, "limits": combination.limits, "passed": tally.passed,
        "failed": tally.failed, "not_for_the_limits": tally.not_for, "seconds": tally.seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(part: bool, promptness: &[&str]) -> Arguments {
        let promptness = promptness.iter().map(ToString::to_string).collect();
        Arguments { promptness, part, ..Arguments::default() }
    }

    #[test]
    fn nine_combinations_or_each_profile_once() {
        assert_eq!(combinations(&arguments(false, &[])).len(), 9);
        assert_eq!(combinations(&arguments(true, &[])).len(), 5);
        assert_eq!(combinations(&arguments(true, &["force-pending"])).len(), 1);
    }

    #[test]
    fn lines_of_the_trials_are_counted() {
        let mut tally = Tally::default();
        let lines =
            ["running 3 tests", "test a::one   ... ok", "test a::two ... FAILED", "test b::three ... ignored", ""];
        let names: Vec<_> = lines.iter().filter_map(|line| tally.read(line)).collect();
        assert_eq!(names, ["a::one", "a::two", "b::three"]);
        assert_eq!(tally.line(), "1 passed, 1 failed, 1 not for the limits, 0.0 s");
        assert_eq!((tally.passed, tally.failed, tally.not_for), (1, vec!["a::two".to_owned()], 1));
    }
}
