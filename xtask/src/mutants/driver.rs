//! Mutants of the driver's layers and of the provider's DLL, judged by the trials through the loaded image.
//!
//! A mutant whose image does not build is unviable; one at which a trial fails, hangs or bugchecks is caught. They come in an
//! order of their own, so that a run that is ended early is a fair sample.

pub mod described;
mod image;
mod judge;
pub mod layers;
mod results;
mod subject;
mod switched;

use super::MutantsArguments;
use crate::{
    seeded_bugs::tree::Tree,
    workspace::{Workspace, write_if_changed},
};
use anyhow::{Result, bail};
use described::Mutant;
use image::SwitchedImage;
use judge::Judge;
use layers::Layer;
use results::{Results, Verdict};
use std::{
    collections::BTreeMap,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
};
use switched::changed;

/// A mutant, and the trials that speak to it.
struct Judged {
    mutant: Mutant,
    /// Their modules, with a space between them.
    suites: &'static str,
}

pub(super) fn run(
    workspace: &Workspace,
    layer: &'static Layer,
    arguments: &MutantsArguments,
    part: usize,
) -> Result<()> {
    let mutants = list(workspace, layer, arguments, part)?;
    if mutants.is_empty() {
        bail!("there is no such mutant");
    }
    if arguments.list {
        for judged in &mutants {
            println!("{}", judged.mutant.name);
        }
        println!("{} mutants", mutants.len());
        return Ok(());
    }
    let mut results = Results::read(workspace, layer.name)?;
    let open = mutants.iter().filter(|judged| !results.is_settled(&judged.mutant.name)).collect::<Vec<_>>();
    println!("{} mutants, {} to be judged", mutants.len(), open.len());
    if open.is_empty() {
        return Ok(());
    }
    let described = open.iter().map(|judged| &judged.mutant).collect::<Vec<_>>();
    let switched = SwitchedImage::build(layer.subject, &Tree::copy(workspace, "mutants")?, &described)?;
    let SwitchedImage { unviable, alone, .. } = &switched;
    let numbered = (1..).zip(open).collect::<BTreeMap<u32, _>>();
    let mut left = numbered.keys().copied().filter(|number| switched.has(*number)).collect::<Vec<_>>();
    println!("{} in one image, {} alone, {} unviable", left.len(), alone.len(), unviable.len());
    let place = |folder: &str| workspace.path("target/mutants").join(folder).join(layer.subject.file());
    let (clean, image) = (place("clean"), place("changed"));
    switched.choose(0, &clean)?;
    let mut judge = Judge::new(workspace, layer, &clean, &image)?;
    let mut counts = BTreeMap::new();
    let mut add = |verdict: Verdict, judged: &Judged| {
        *counts.entry(verdict.word()).or_insert(0_u32) += 1;
        results.add(&verdict, &judged.mutant.name)
    };
    for number in unviable {
        add(Verdict::Unviable, numbered[number])?;
    }
    for every in [false, true] {
        for number in std::mem::take(&mut left) {
            switched.choose(number, &image)?;
            match judge.verdict(numbered[&number], every)? {
                Verdict::Missed if !every => left.push(number),
                verdict => add(verdict, numbered[&number])?,
            }
        }
    }
    let tree = Tree::copy(workspace, "mutants")?;
    for judged in alone.iter().map(|number| numbered[number]) {
        let (source, file) = (tree.original(&judged.mutant.file)?, tree.root().join(&judged.mutant.file));
        write_if_changed(&file, changed(&source, &judged.mutant).as_bytes())?;
        let verdict = match layer.subject.build(&tree) {
            Ok(built) => {
                fs::copy(built, &image)?;
                judge.verdict(judged, true)?
            }
            Err(_) => Verdict::Unviable,
        };
        write_if_changed(&file, source.as_bytes())?;
        add(verdict, judged)?;
    }
    println!("{counts:?}; {}", workspace.show(&results.path));
    Ok(())
}

fn list(
    workspace: &Workspace,
    layer: &'static Layer,
    arguments: &MutantsArguments,
    part: usize,
) -> Result<Vec<Judged>> {
    let described = described::list(workspace, arguments, layer.subject.package())?;
    let suites = |file: &str| layer.files.iter().find(|(name, _)| file.starts_with(name)).map(|(_, suites)| *suites);
    let judged = described.into_iter().filter_map(|mutant| Some(Judged { suites: suites(&mutant.file)?, mutant }));
    let mut judged = judged.collect::<Vec<_>>();
    judged.sort_by_cached_key(|judged| scattered(&judged.mutant.name));
    Ok(judged.into_iter().skip(part).step_by(arguments.shard.of).collect())
}

/// A number that has nothing to do with where the mutant is, and is the same in every run.
fn scattered(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}
