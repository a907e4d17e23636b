//! `cargo xtask seeded-bugs`: shows that the tests of the rules can fail.
//!
//! Each file of `tests/seeded-bugs` is a plausible mistake, as a patch, with the tests that must fail with it. The command
//! copies the work tree below `target/`, makes sure that those tests pass there, applies one patch after the other, and runs
//! just the tests that the patch names. All of them have to fail. The work tree itself is never touched.

mod patch;
pub mod proof;
pub mod tree;

use crate::{progress, workspace::Workspace};
use anyhow::{Result, bail};
use patch::{DetectingTest, Patch, Place};
use proof::{Prover, TestOutcome};
use std::{collections::BTreeSet, time::Instant};
use tree::Tree;

/// Apply each seeded bug to a copy of the code and see the tests of its rules fail.
#[derive(clap::Args)]
pub struct SeededBugsArguments {
    /// Only the seeded bugs whose name contains one of these
    names: Vec<String>,

    /// Only tests that need no driver image
    #[arg(long)]
    quick: bool,

    /// Of each class of bugs the first break that needs no driver image: what the test run does
    #[arg(long, conflicts_with = "names")]
    sample: bool,

    /// Name the seeded bugs, their rules and their tests, and do nothing
    #[arg(long)]
    list: bool,
}

pub fn run(arguments: &SeededBugsArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let mut patches = patch::read_all(&workspace)?;
    patches.retain(|patch| {
        arguments.names.is_empty() || arguments.names.iter().any(|name| patch.name.contains(name.as_str()))
    });
    if arguments.quick || arguments.sample {
        for patch in &mut patches {
            patch.tests.retain(|test| !matches!(test.place, Place::Trial(_)));
        }
        patches.retain(|patch| !patch.tests.is_empty());
    }
    if arguments.sample {
        patches = sample(patches);
    }
    if patches.is_empty() {
        bail!("no seeded bug has such a name; `cargo xtask seeded-bugs --list` names them");
    }
    if arguments.list {
        patches.iter().for_each(list);
        return Ok(());
    }
    let tree = Tree::copy(&workspace, "seeded-bugs")?;
    let asked = patches.len();
    let (mut patches, stale) = patches.into_iter().partition::<Vec<_>, _>(|patch| tree.takes(&patch.change));
    let mut failed = stale.iter().map(|patch| patch.name.clone()).collect::<Vec<_>>();
    for Patch { name, .. } in &stale {
        println!(
            "{name}: STALE, the code has changed under it. `patch -p1 --dry-run < tests/seeded-bugs/{name}.patch`"
        );
        println!(
            "    shows where; make the mistake again in the tree; `git diff` is the new patch, `git checkout` undoes it"
        );
    }
    let mut prover = Prover::new(&workspace, &tree)?;
    let never_green = not_green(&mut prover, &patches)?;
    let (sound, unsound) =
        patches.into_iter().partition(|patch| patch.tests.iter().all(|test| !never_green.contains(test)));
    patches = sound;
    failed.extend(unsound.into_iter().map(|patch| patch.name));
    for patch in &patches {
        if !all_fail(&tree, &mut prover, patch) {
            failed.push(patch.name.clone());
        }
    }
    println!("{asked} seeded bugs, {} turned their tests red", asked - failed.len());
    if !failed.is_empty() {
        bail!(
            "{} seeded bugs do not apply, were not noticed, or have tests that fail without them: {}",
            failed.len(),
            failed.join(", ")
        );
    }
    Ok(())
}

/// The first break of each class of bugs (BUG-1 to BUG-10 in docs/rules.md).
fn sample(patches: Vec<Patch>) -> Vec<Patch> {
    let mut classes = BTreeSet::new();
    let mut is_new = |tag: &String| tag.starts_with("BUG-") && classes.insert(tag.clone());
    patches.into_iter().filter(|patch| patch.rules.iter().filter(|tag| is_new(tag)).count() > 0).collect()
}

fn list(patch: &Patch) {
    println!("{}: {} ({})", patch.name, patch.what, patch.rules.join(", "));
    patch.tests.iter().for_each(|test| println!("    {test}"));
}

/// The tests that fail in the unchanged tree: a test that fails without a seeded bug proves nothing with one.
fn not_green(prover: &mut Prover<'_>, patches: &[Patch]) -> Result<BTreeSet<DetectingTest>> {
    let tests = patches.iter().flat_map(|patch| &patch.tests).collect::<BTreeSet<_>>();
    let spinner = progress::spinner("the unchanged tree".to_owned())?;
    prover.build(tests.iter().copied())?;
    let mut red = BTreeSet::new();
    for test in tests {
        let outcome = prover.run(test)?;
        if outcome != TestOutcome::Passed {
            let why = prover.why().unwrap_or_default();
            spinner.suspend(|| println!("{test} fails without a seeded bug ({outcome})\n{why}"));
            red.insert(test.clone());
        }
    }
    spinner.finish_and_clear();
    Ok(red)
}

/// Applies one seeded bug, runs its tests, prints its line; true when every one of them failed.
fn all_fail(tree: &Tree, prover: &mut Prover<'_>, patch: &Patch) -> bool {
    let started = Instant::now();
    let verdict = progress::spinner(patch.name.clone()).and_then(|spinner| {
        let verdict = tree.with(&patch.change, || unnoticed(prover, patch));
        spinner.finish_and_clear();
        verdict
    });
    let seconds = started.elapsed().as_secs_f64();
    let (word, more) = match verdict {
        Ok(green) if green.is_empty() => ("red", format!("{} tests", patch.tests.len())),
        Ok(green) => ("GREEN", green.join("; ")),
        Err(error) => ("FAILED", format!("{error:#}")),
    };
    println!("{:<36} {:<24} {word:<6} {seconds:>5.1} s  {more}", patch.name, patch.rules.join(" "));
    word == "red"
}

/// The tests of a seeded bug that do not fail, with what they did instead.
fn unnoticed(prover: &mut Prover<'_>, patch: &Patch) -> Result<Vec<String>> {
    prover.build(patch.tests.iter())?;
    let mut green = Vec::new();
    for test in &patch.tests {
        let outcome = prover.run(test)?;
        if !matches!(outcome, TestOutcome::Failed | TestOutcome::Hung) {
            green.push(format!("{test}: {outcome}"));
        }
    }
    Ok(green)
}

#[cfg(test)]
mod tests {
    use super::{patch, sample};
    use crate::workspace::Workspace;
    use std::collections::BTreeSet;

    #[test]
    fn sample_has_each_class_of_bugs_once_as_far_as_it_can() {
        let all = patch::read_all(&Workspace::find().unwrap()).unwrap();
        let count = all.len();
        let sample = sample(all);
        let classes = sample.iter().flat_map(|patch| &patch.rules).filter(|tag| tag.starts_with("BUG-"));
        assert_eq!(classes.collect::<BTreeSet<_>>().len(), 10);
        assert!(sample.len() <= 10 && sample.len() < count);
    }
}
