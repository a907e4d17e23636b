//! The trials as judges of one image after another: each in a process of its own, until one notices.
//!
//! A trial that has caught mutants of the same file goes first, then the quick ones: most mutants live for one or two trials.
//! A trial must pass without a mutant before it judges; one that took long to fail must fail again, and one that hung must hang again,
//! so that a busy machine catches nothing by itself.

use super::{Judged, layers::Layer, results::Verdict};
use crate::{
    arguments::BorderSuite, child, command, seeded_bugs::proof::TestOutcome, test_binary::TestBinary,
    workspace::Workspace,
};
use anyhow::{Context, Result};
use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    slice, thread,
    time::{Duration, Instant},
};

/// What a trial may take that has not passed yet.
const FIRST_TRIAL: Duration = Duration::from_mins(2);
/// What a trial may take beyond ten times what it took when it passed.
const SLACK: Duration = Duration::from_secs(6);
/// Between two looks at the trials that run.
const PAUSE: Duration = Duration::from_millis(20);

/// Trials that judge every mutant; what survives them is left for later.
const PROMISING: usize = 12;
/// Trials that run at the same time.
const AT_ONCE: usize = 2;
/// What takes longer to pass comes after all others.
const SLOW: Duration = Duration::from_secs(5);
/// What fails later may have failed for want of time.
const LONG: Duration = Duration::from_secs(10);

/// Trials of a machine whose driver polls, and how the child learns of it (`networkdirect::cases`).
const POLLED: &str = "polled::";
const PROCESSORS: (&str, &str) = ("SOFTNDK_NETWORKDIRECT_PROCESSORS", "4");

/// The places of the images.
const CLEAN: usize = 0;
const MUTANT: usize = 1;

/// The trials, and what is known of them.
pub struct Judge<'a> {
    workspace: &'a Workspace,
    /// The image without a mutant, and the one with.
    images: [PathBuf; 2],
    layer: &'static Layer,
    binaries: BTreeMap<BorderSuite, PathBuf>,
    names: Vec<String>,
    /// How long each took when it passed.
    times: BTreeMap<String, Duration>,
    /// How many mutants of a file a trial has caught.
    catches: BTreeMap<(String, String), usize>,
    /// Trials that were run without a mutant, and whether they passed.
    sound: BTreeMap<String, bool>,
}

impl<'a> Judge<'a> {
    pub fn new(workspace: &'a Workspace, layer: &'static Layer, clean: &Path, mutant: &Path) -> Result<Self> {
        let mut binaries = BTreeMap::new();
        let mut names = Vec::new();
        for suite in layer.suites {
            let (_, file) = suite.test_file();
            let binary = workspace.path("target/mutants").join(file);
            // A copy: the work tree's own may be built anew meanwhile.
            fs::copy(TestBinary::build(workspace, file)?, &binary)
                .with_context(|| format!("cannot write {}", binary.display()))?;
            names.extend(trials(&binary, &prefix(layer.suites, *suite))?);
            binaries.insert(*suite, binary);
        }
        Ok(Self {
            workspace,
            images: [clean.to_owned(), mutant.to_owned()],
            layer,
            binaries,
            names,
            times: BTreeMap::new(),
            catches: BTreeMap::new(),
            sound: BTreeMap::new(),
        })
    }

    /// What becomes of the mutant whose image is in place, with every trial that speaks to it or only the most promising ones.
    pub fn verdict(&mut self, judged: &Judged, every: bool) -> Result<Verdict> {
        let mut order = self.order(judged);
        order.truncate(if every { order.len() } else { PROMISING });
        self.try_without(&order)?;
        order.retain(|name| self.sound[name]);
        for names in order.chunks(AT_ONCE) {
            let mut left = names.to_vec();
            while !left.is_empty() {
                let ends = self.run_all(MUTANT, &left)?;
                left.retain(|name| ends.iter().all(|(ended, ..)| ended != name));
                for (name, end, time) in ends {
                    if end == TestOutcome::Passed
                        || ((end == TestOutcome::Hung || time > LONG) && !self.fails_again(&name, end)?)
                    {
                        continue;
                    }
                    *self.catches.entry((judged.mutant.file.clone(), name.clone())).or_insert(0) += 1;
                    return Ok(if end == TestOutcome::Hung { Verdict::Hung(name) } else { Verdict::Caught(name) });
                }
            }
        }
        Ok(Verdict::Missed)
    }

    /// Whether a trial that took long fails once more; one that hung has to hang again, and to pass without a mutant at such a time.
    fn fails_again(&mut self, name: &String, end: TestOutcome) -> Result<bool> {
        let name = slice::from_ref(name);
        Ok(self.run_all(MUTANT, name)?[0].1 != TestOutcome::Passed
            && (end == TestOutcome::Failed || self.run_all(CLEAN, name)?[0].1 == TestOutcome::Passed))
    }

    /// Runs each trial once without a mutant: it has to pass, and then it is known how long it takes.
    fn try_without(&mut self, names: &[String]) -> Result<()> {
        for name in names {
            if self.sound.contains_key(name) {
                continue;
            }
            let sound = self.run_all(CLEAN, slice::from_ref(name))?[0].1 == TestOutcome::Passed;
            if !sound {
                println!("{name} fails without a mutant and judges nothing");
            }
            self.sound.insert(name.clone(), sound);
        }
        Ok(())
    }

    /// Those first that caught mutants, then the first of each suite, then the second of each; what takes long comes last.
    fn order(&self, judged: &Judged) -> Vec<String> {
        let mut names = Vec::new();
        for suite in judged.suites.split(' ') {
            let is_of = |name: &&String| {
                suite.is_empty() || name.strip_prefix(suite).is_some_and(|rest| rest.starts_with("::"))
            };
            let of_suite = self.names.iter().filter(is_of);
            names.extend(of_suite.enumerate().map(|(place, name)| (place, name.clone())));
        }
        let caught = |name: &String| {
            let here = self.catches.get(&(judged.mutant.file.clone(), name.clone())).copied().unwrap_or(0);
            let anywhere = self.catches.iter().filter(|((_, other), _)| other == name).map(|(_, count)| count);
            Reverse((here, anywhere.sum::<usize>()))
        };
        let is_slow = |name: &String| self.times.get(name).is_some_and(|time| *time > SLOW);
        names.sort_by_cached_key(|(place, name)| (is_slow(name), caught(name), *place));
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// Runs trials at the same time, each in the child that the test binary would start for it: how each ended, and after what
    /// time. The first that does not pass ends the others, which are left out.
    fn run_all(&mut self, image: usize, names: &[String]) -> Result<Vec<(String, TestOutcome, Duration)>> {
        let started = Instant::now();
        let start = |name: &String| Ok((name.clone(), self.start(&self.images[image], name)?));
        let mut running = names.iter().map(start).collect::<Result<Vec<_>>>()?;
        let mut ends = Vec::new();
        while !running.is_empty() && ends.iter().all(|(_, end, _)| *end == TestOutcome::Passed) {
            thread::sleep(PAUSE);
            for (name, mut child) in std::mem::take(&mut running) {
                let limit = self.times.get(&name).map_or(FIRST_TRIAL, |time| SLACK + *time * 10);
                let (status, time) = (child.try_wait()?, started.elapsed());
                let end = match status {
                    Some(status) if status.success() => TestOutcome::Passed,
                    Some(_) => TestOutcome::Failed,
                    None if time < limit => {
                        running.push((name, child));
                        continue;
                    }
                    None => {
                        child::wait(&mut child, Duration::ZERO)?;
                        TestOutcome::Hung
                    }
                };
                if end == TestOutcome::Passed {
                    self.times.insert(name.clone(), time);
                }
                ends.push((name, end, time));
            }
        }
        for (_, mut child) in running {
            child::wait(&mut child, Duration::ZERO)?;
        }
        Ok(ends)
    }

    fn start(&self, image: &Path, name: &str) -> Result<Child> {
        // The last one whose prefix fits: that of the first suite is empty.
        let of = |suite: &BorderSuite| Some((*suite, name.strip_prefix(&prefix(self.layer.suites, *suite))?));
        let (suite, trial) = self.layer.suites.iter().rev().find_map(of).context("a trial of no suite")?;
        let mut child = Command::new(&self.binaries[&suite]);
        child.current_dir(self.workspace.path(suite.package_folder()));
        let plain = trial.strip_prefix(POLLED);
        child.envs(plain.map(|_| PROCESSORS));
        let (variable, case) = suite.child(plain.unwrap_or(trial));
        child.env(variable, case).env(self.layer.subject.variable(), image);
        child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        child::lead_a_group(&mut child);
        child.spawn().with_context(|| format!("cannot start {name}"))
    }
}

/// What the names of a suite's trials begin with here.
fn prefix(suites: &[BorderSuite], suite: BorderSuite) -> String {
    if suites.first() == Some(&suite) { String::new() } else { format!("{suite}::") }
}

/// Every trial of a suite.
fn trials(binary: &Path, prefix: &str) -> Result<Vec<String>> {
    let listed = command::output(Command::new(binary).arg("--list"))?;
    let listed = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(listed.map(|name| format!("{prefix}{name}")).collect())
}
