//! Mutants of the engine and the cells, judged by their own tests.
//!
//! All of them are compiled into one copy of the package and chosen at run time (`switched`): a mutant costs a run of the tests
//! and no compilation. The few that cannot be chosen at run time come last, each with a compilation of its own.

use super::{
    Arguments,
    described::{self, Mutant},
    suite::{Suite, Verdict},
    switched::{Blame, SWITCH, changed, switch},
};
use crate::{
    breaks::tree::Tree,
    command,
    workspace::{Workspace, write_if_changed},
};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::Command,
    time::Instant,
};

/// A package with mutants, and the test binaries that judge it, the quickest first.
pub struct Library {
    pub package: &'static str,
    pub root: &'static str,
    pub tests: &'static [&'static [&'static str]],
    pub slow: &'static [&'static str],
}

/// A run goes through every n-th mutant, then those next to them: its picture is a fair one wherever it ends.
const STRIDE: usize = 40;

/// Mutants by their numbers.
type Numbers = BTreeSet<u32>;

pub fn run(workspace: &Workspace, arguments: &Arguments, library: &Library) -> Result<()> {
    let mutants = described::list(workspace, arguments, library.package)?;
    if arguments.list {
        for mutant in &mutants {
            println!("{}", mutant.name);
        }
        println!("{} mutants", mutants.len());
        return Ok(());
    }
    let target = workspace.path("target/mutants/target");
    let copy = Copy { tree: Tree::copy(workspace, "mutants")?, target, library };
    let folder = workspace.path("target/mutants/run");
    let suite = Suite { slow: library.slow, without_slow: arguments.quick, folder };
    let (unviable, alone) = copy.switch_all(&mutants)?;
    let binaries = library.tests.iter().map(|test| copy.build(test)).collect::<Result<Vec<_>>>()?;
    suite.require_green(&binaries)?;
    let mut results = Results::default();
    let order = (0..STRIDE).flat_map(|first| (first..mutants.len()).step_by(STRIDE));
    for (number, mutant) in order.filter_map(|index| Some((index as u32 + 1, mutants.get(index)?))) {
        if unviable.contains(&number) {
            results.add(mutant, &Verdict::Unviable);
        } else if !alone.contains(&number) {
            suite.choose(number)?;
            results.add(mutant, &suite.judge(&binaries)?);
        }
    }
    // The copy is as the work tree again.
    let copy = Copy { tree: Tree::copy(workspace, "mutants")?, ..copy };
    for mutant in alone.iter().filter_map(|number| mutants.get(*number as usize - 1)) {
        results.add(mutant, &copy.judge_alone(&suite, mutant)?);
    }
    let counts = results.counts.iter().map(|(word, count)| format!("{count} {word}")).collect::<Vec<_>>();
    println!("{} mutants: {}", mutants.len(), counts.join(", "));
    Ok(())
}

/// What has been seen so far.
struct Results {
    counts: BTreeMap<&'static str, usize>,
    since: Instant,
}

impl Default for Results {
    fn default() -> Self {
        Self { counts: BTreeMap::new(), since: Instant::now() }
    }
}

impl Results {
    /// Counts a mutant and prints its line.
    fn add(&mut self, mutant: &Mutant, verdict: &Verdict) {
        *self.counts.entry(verdict.word()).or_default() += 1;
        let seconds = self.since.elapsed().as_secs_f64();
        println!("{:<8} {seconds:>5.1} s  {}{}", verdict.word(), mutant.name, verdict.judge());
        self.since = Instant::now();
    }
}

/// The copy of the tree in which a library has all its mutants.
struct Copy<'a> {
    tree: Tree,
    target: PathBuf,
    library: &'a Library,
}

impl Copy<'_> {
    /// Writes the switched files, without those mutants that do not compile and those that cannot be switched.
    fn switch_all(&self, mutants: &[Mutant]) -> Result<(Numbers, Numbers)> {
        let numbered = (1..).zip(mutants).collect::<Vec<(u32, _)>>();
        let outside = numbered.iter().filter(|(_, mutant)| mutant.function.is_none());
        let mut alone = outside.map(|(number, _)| *number).collect::<BTreeSet<_>>();
        let mut unviable = BTreeSet::new();
        loop {
            // A file that has lost all its mutants is written too: as it was.
            let mut files = BTreeMap::from([(self.library.root, Vec::new())]);
            for (number, mutant) in &numbered {
                let mutants = files.entry(mutant.file.as_str()).or_default();
                if !unviable.contains(number) && !alone.contains(number) {
                    mutants.push((*number, *mutant));
                }
            }
            let (one, whole) = self.write(&files)?;
            if one.is_empty() && whole.is_empty() {
                return Ok((unviable, alone));
            }
            unviable.extend(one);
            alone.extend(whole);
        }
    }

    /// Writes and checks; the mutants that are to blame, alone or as those of a function.
    fn write(&self, files: &BTreeMap<&str, Vec<(u32, &Mutant)>>) -> Result<(Vec<u32>, Vec<u32>)> {
        let mut switched = BTreeMap::new();
        for (file, mutants) in files {
            let mut done = switch(&self.tree.original(file)?, mutants);
            if *file == self.library.root {
                done.text.push_str(SWITCH);
            }
            write_if_changed(&self.tree.root().join(file), done.text.as_bytes())?;
            switched.insert(*file, done);
        }
        let (mut one, mut whole) = (Vec::new(), Vec::new());
        for (file, line, message) in self.errors()? {
            match switched.get(&*file).map_or(&Blame::Nobody, |file| file.blamed(line)) {
                Blame::One(number) => one.push(*number),
                Blame::All(numbers) => whole.extend(numbers),
                Blame::Nobody => bail!("{file}:{line} of the copy does not compile, whatever the mutant: {message}"),
            }
        }
        Ok((one, whole))
    }

    fn cargo(&self, words: &[&str]) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(self.tree.root()).args(words).args([
            "--locked",
            "--profile",
            "mutants",
            "--message-format",
            "json",
        ]);
        // Operands that overflow are for the tests to find.
        cargo.env("RUSTFLAGS", "--cap-lints=warn").arg("--target-dir").arg(&self.target);
        cargo
    }

    /// What does not compile: files and lines of errors.
    fn errors(&self) -> Result<Vec<(String, usize, String)>> {
        let done = self.cargo(&["check", "--lib", "--package", self.library.package]).output()?;
        let messages = String::from_utf8_lossy(&done.stdout).into_owned();
        let mut errors = Vec::new();
        for message in json(&messages).filter(|message| message["message"]["level"] == "error") {
            let spans = message["message"]["spans"].as_array().into_iter().flatten();
            let words = message["message"]["message"].as_str().unwrap_or_default();
            for span in spans.filter(|span| span["is_primary"] == true) {
                let (file, line) = (span["file_name"].as_str(), span["line_start"].as_u64());
                let (Some(file), Some(line)) = (file, line) else { bail!("an error without a place: {words}") };
                errors.push((file.to_owned(), line as usize, words.to_owned()));
            }
        }
        if errors.is_empty() && !done.status.success() {
            bail!("the copy does not compile: {}", String::from_utf8_lossy(&done.stderr));
        }
        Ok(errors)
    }

    /// Builds one of the test binaries.
    fn build(&self, test: &[&str]) -> Result<PathBuf> {
        let messages = command::output(self.cargo(&["test", "--no-run"]).args(test))?;
        let found = json(&messages).find_map(|message| message["executable"].as_str().map(PathBuf::from));
        found.with_context(|| format!("cargo built no {}", test.join(" ")))
    }

    /// A mutant that cannot be chosen at run time has binaries of its own.
    fn judge_alone(&self, suite: &Suite, mutant: &Mutant) -> Result<Verdict> {
        let (source, file) = (self.tree.original(&mutant.file)?, self.tree.root().join(&mutant.file));
        write_if_changed(&file, changed(&source, mutant).as_bytes())?;
        let mut verdict = Verdict::Missed;
        for test in self.library.tests {
            verdict = match self.build(test) {
                Ok(binary) => suite.judge(&[binary])?,
                Err(_) => Verdict::Unviable,
            };
            if !matches!(verdict, Verdict::Missed) {
                break;
            }
        }
        write_if_changed(&file, source.as_bytes())?;
        Ok(verdict)
    }
}

fn json(lines: &str) -> impl Iterator<Item = Value> {
    lines.lines().filter_map(|line| serde_json::from_str(line).ok())
}
