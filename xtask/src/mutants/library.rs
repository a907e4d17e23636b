//! Mutants of the engine and the cells, judged by their own tests.
//!
//! All of them are compiled into one copy of the package and chosen at run time (`settled`): a mutant costs a run of the tests
//! and no compilation. The few that cannot be chosen at run time come last, each with a compilation of its own.

use super::{
    Arguments,
    described::{self, Mutant},
    settled::{Crate, json},
    suite::{Suite, Verdict},
    switched::changed,
};
use crate::{
    breaks::tree::Tree,
    command,
    workspace::{Workspace, write_if_changed},
};
use anyhow::{Context, Result};
use std::{collections::BTreeMap, path::PathBuf, process::Command, time::Instant};

/// A package with mutants, and the test binaries that judge it, the quickest first.
pub struct Library {
    pub package: &'static str,
    pub root: &'static str,
    pub tests: &'static [&'static [&'static str]],
    pub slow: &'static [&'static str],
}

/// A run goes through every n-th mutant, then those next to them: its picture is a fair one wherever it ends.
const STRIDE: usize = 40;

/// What `crate::mutant()` is. It reads the number from a file in the current folder, because that needs no memory, of which some
/// tests have none left.
const SWITCH: &str = r#"
extern crate std as system;
static MUTANT: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(u32::MAX);
pub(crate) fn mutant() -> u32 {
    match MUTANT.load(core::sync::atomic::Ordering::Relaxed) {
        u32::MAX => ask(),
        number => number,
    }
}
#[cold]
fn ask() -> u32 {
    let mut text = [0_u8; 16];
    let length = system::fs::File::open("mutant").and_then(|mut file| system::io::Read::read(&mut file, &mut text)).unwrap_or(0);
    let number = text.iter().take(length).fold(0, |sum, digit| sum * 10 + u32::from(*digit - b'0'));
    MUTANT.store(number, core::sync::atomic::Ordering::Relaxed);
    number
}
"#;

pub fn run(workspace: &Workspace, arguments: &Arguments, library: &Library) -> Result<()> {
    let mutants = arguments.shard.part(described::list(workspace, arguments, library.package, &[])?);
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
    let into = Crate { tree: &copy.tree, root: library.root, switch: SWITCH };
    let settled = into.settle(&mutants.iter().collect::<Vec<_>>(), || Ok(copy.check()))?;
    let binaries = library.tests.iter().map(|test| copy.build(test)).collect::<Result<Vec<_>>>()?;
    suite.require_green(&binaries)?;
    let mut results = Results::default();
    let order = (0..STRIDE).flat_map(|first| (first..mutants.len()).step_by(STRIDE));
    for (number, mutant) in order.filter_map(|index| Some((index as u32 + 1, mutants.get(index)?))) {
        if settled.unviable.contains(&number) {
            results.add(mutant, &Verdict::Unviable);
        } else if settled.is_inside(number) {
            suite.choose(number)?;
            results.add(mutant, &suite.judge(&binaries)?);
        }
    }
    // The copy is as the work tree again.
    let copy = Copy { tree: Tree::copy(workspace, "mutants")?, ..copy };
    for mutant in settled.alone.iter().filter_map(|number| mutants.get(*number as usize - 1)) {
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
    fn cargo(&self, words: &[&str]) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(self.tree.root()).args(words).args(["--locked", "--profile", "mutants"]);
        // Operands that overflow are for the tests to find.
        cargo.env("RUSTFLAGS", "--cap-lints=warn").arg("--target-dir").arg(&self.target);
        cargo
    }

    /// What says which mutants compile.
    fn check(&self) -> Command {
        self.cargo(&["check", "--lib", "--package", self.library.package])
    }

    /// Builds one of the test binaries.
    fn build(&self, test: &[&str]) -> Result<PathBuf> {
        let messages = command::output(self.cargo(&["test", "--no-run", "--message-format", "json"]).args(test))?;
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
