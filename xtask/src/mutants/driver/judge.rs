//! The trials as judges of one image after another: each in a process of its own, until one notices.
//!
//! A trial that has caught mutants of the same file goes first, then the quick ones: most mutants live for one or two trials.
//! A trial that catches its first mutant must pass without one, or it judges no more; one that took long to fail must fail again, so
//! that a busy machine catches nothing by itself.

use super::{Judged, results::Verdict};
use crate::{child, command, seeded_bugs::proof, workspace::Workspace};
use anyhow::{Context, Result};
use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    slice,
    time::{Duration, Instant},
};

/// What a trial may take that has not passed yet.
const PATIENCE: Duration = Duration::from_mins(2);
/// What a trial may take beyond ten times what it took when it passed.
const SLACK: Duration = Duration::from_secs(15);

/// Trials that judge every mutant; what survives them is left for later.
const PROMISING: usize = 12;
/// Trials that run at the same time.
const AT_ONCE: usize = 2;
/// What fails later may have failed for want of time.
const LONG: Duration = Duration::from_secs(10);

/// The places of the images.
const CLEAN: usize = 0;
const MUTANT: usize = 1;

/// A test binary whose trials run in children of their own.
struct Binary {
    package: &'static str,
    folder: &'static str,
    file: &'static str,
    /// What stands before the names that it lists.
    prefix: &'static str,
    /// Names the trial that a child runs.
    variable: &'static str,
}

const BINARIES: [Binary; 2] = [
    Binary {
        package: "conformance",
        folder: "tests/conformance",
        file: "contract",
        prefix: "",
        variable: "SOFTNDK_TRIAL",
    },
    Binary {
        package: "ndkctl",
        folder: "tools/ndkctl",
        file: "control_device",
        prefix: "control_device::",
        variable: "SOFTNDK_CONTROL_CASE",
    },
];

/// The trials, and what is known of them.
pub struct Judge<'a> {
    workspace: &'a Workspace,
    /// The image without a mutant, and the one with.
    images: [PathBuf; 2],
    binaries: [PathBuf; 2],
    names: Vec<String>,
    /// How long each took when it passed.
    times: BTreeMap<String, Duration>,
    /// How many mutants of a file a trial has caught.
    catches: BTreeMap<(String, String), usize>,
    /// Trials that were run without a mutant, and whether they passed.
    sound: BTreeMap<String, bool>,
}

/// How a trial ended.
#[derive(Clone, Copy, Eq, PartialEq)]
enum End {
    Passed,
    Failed,
    Hung,
}

impl<'a> Judge<'a> {
    pub fn new(workspace: &'a Workspace, clean: &Path, mutant: &Path) -> Result<Self> {
        let binaries = BINARIES.map(|binary| workspace.path("target/mutants").join(binary.file));
        for (binary, copy) in BINARIES.iter().zip(&binaries) {
            // A copy: the work tree's own may be built anew meanwhile.
            fs::copy(proof::test_binary(workspace, binary.package, binary.file)?, copy)
                .with_context(|| format!("cannot write {}", copy.display()))?;
        }
        let names = names(&binaries)?;
        let (times, catches, sound) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Ok(Self { workspace, images: [clean.to_owned(), mutant.to_owned()], binaries, names, times, catches, sound })
    }

    /// What becomes of the mutant whose image is in place, with every trial that speaks to it or only the most promising ones.
    pub fn verdict(&mut self, judged: &Judged, every: bool) -> Result<Verdict> {
        let mut order = self.order(judged);
        order.truncate(if every { order.len() } else { PROMISING });
        for names in order.chunks(AT_ONCE) {
            for (name, end, time) in self.run_all(MUTANT, names)? {
                let again = end == End::Failed && time > LONG;
                if end == End::Passed || (again && self.run_all(MUTANT, slice::from_ref(&name))?[0].1 == End::Passed) {
                    continue;
                }
                if !self.is_sound(&name)? {
                    continue;
                }
                *self.catches.entry((judged.mutant.file.clone(), name.clone())).or_insert(0) += 1;
                return Ok(if end == End::Hung { Verdict::Hung(name) } else { Verdict::Caught(name) });
            }
        }
        Ok(Verdict::Missed)
    }

    /// Whether a trial passes without a mutant.
    fn is_sound(&mut self, name: &str) -> Result<bool> {
        if let Some(sound) = self.sound.get(name) {
            return Ok(*sound);
        }
        let sound = self.run_all(CLEAN, &[name.to_owned()])?[0].1 == End::Passed;
        if !sound {
            println!("{name} fails without a mutant and judges no more");
            self.names.retain(|other| other != name);
        }
        self.sound.insert(name.to_owned(), sound);
        Ok(sound)
    }

    /// Those first that caught mutants, then the first of each suite, then the second of each.
    fn order(&self, judged: &Judged) -> Vec<String> {
        let mut names = Vec::new();
        for suite in judged.suites {
            let of_suite = self.names.iter().filter(|name| name.starts_with(suite));
            names.extend(of_suite.enumerate().map(|(place, name)| (place, name.clone())));
        }
        let caught = |name: &String| {
            let here = self.catches.get(&(judged.mutant.file.clone(), name.clone())).copied().unwrap_or(0);
            let anywhere = self.catches.iter().filter(|((_, other), _)| other == name).map(|(_, count)| count);
            Reverse((here, anywhere.sum::<usize>()))
        };
        names.sort_by_cached_key(|(place, name)| (caught(name), *place));
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// Runs trials at the same time, each in the child that the test binary would start for it: how each ended, and after what
    /// time.
    fn run_all(&mut self, image: usize, names: &[String]) -> Result<Vec<(String, End, Duration)>> {
        let started = Instant::now();
        let children = names.iter().map(|name| self.start(&self.images[image], name)).collect::<Result<Vec<_>>>()?;
        let mut ends = Vec::new();
        for (name, mut child) in names.iter().zip(children) {
            let limit = self.times.get(name).map_or(PATIENCE, |time| SLACK + *time * 10);
            let end = match child::wait(&mut child, limit)? {
                None => End::Hung,
                Some(status) if status.success() => End::Passed,
                Some(_) => End::Failed,
            };
            let time = started.elapsed();
            if end == End::Passed {
                self.times.insert(name.clone(), time);
            }
            ends.push((name.clone(), end, time));
        }
        Ok(ends)
    }

    fn start(&self, image: &Path, name: &str) -> Result<Child> {
        // The last one whose prefix fits: that of the conformance trials is empty.
        let of = BINARIES.iter().zip(&self.binaries).rev().find(|(binary, _)| name.starts_with(binary.prefix));
        let (binary, program) = of.context("a trial of no binary")?;
        let mut trial = Command::new(program);
        trial.current_dir(self.workspace.path(binary.folder));
        trial.env(binary.variable, name).env("SOFTNDK_IMAGE", image);
        trial.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        child::lead_a_group(&mut trial);
        trial.spawn().with_context(|| format!("cannot start {}", program.display()))
    }
}

/// Every trial there is.
fn names(binaries: &[PathBuf; 2]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for (binary, file) in BINARIES.iter().zip(binaries) {
        let listed = command::output(Command::new(file).arg("--list"))?;
        let listed = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        names.extend(listed.map(|name| format!("{}{name}", binary.prefix)));
    }
    Ok(names)
}
