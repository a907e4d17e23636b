//! Mutants of the driver's translation layer, judged by the trials through the loaded image.
//!
//! A mutant whose image does not build is unviable; one at which a trial fails, hangs or bugchecks is caught. They come in an
//! order of their own, so that a run that is ended early is a fair sample.

mod judge;
mod results;
mod together;

use super::{Arguments, Shard};
use crate::{
    breaks::{
        proof::{self, ImageBuilder},
        tree::{Change, Tree},
    },
    command,
    workspace::{Workspace, write_if_changed},
};
use anyhow::{Context, Result};
use judge::Judge;
use results::{Results, Verdict};
use std::{
    collections::BTreeMap,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    process::Command,
};
use together::Together;

/// The files of the layer, and which trials speak to each: the first part of their names.
const LAYER: &[(&str, &[&str])] = &[
    ("driver/ndk/adapter.rs", &["adapter::", "callback::", "completion_queue::", "endpoint::"]),
    ("driver/ndk/block.rs", &["asynchrony::", "close_order::", "callback::", "memory::", "fault::"]),
    (
        "driver/ndk/completion_queue.rs",
        &["completion_queue::", "moderation::", "resize::", "work_request::", "window::"],
    ),
    ("driver/ndk/connector.rs", &["connection::", "connection_state::", "connection_end::", "endpoint::"]),
    ("driver/ndk/enumeration.rs", &["oid::", "statistics::"]),
    ("driver/ndk/later.rs", &["asynchrony::", "callback::", "close_order::", "resize::"]),
    ("driver/ndk/limits.rs", &["adapter::", "limits::", "oid::"]),
    ("driver/ndk/listener.rs", &["connection::", "endpoint::"]),
    ("driver/ndk/logical_mapping.rs", &["memory::", "asynchrony::", "race::", "fault::", "control_device::endings"]),
    ("driver/ndk/memory_region.rs", &["memory::", "registration::", "access::", "asynchrony::", "callback::"]),
    ("driver/ndk/memory_window.rs", &["window::", "adapter::"]),
    ("driver/ndk/open.rs", &["adapter::", "ndk_state::", "callback::", "fault::", "control_device::listing"]),
    ("driver/ndk/protection_domain.rs", &["adapter::", "queue_pair::", "shared_receive::", "asynchrony::", "memory::"]),
    (
        "driver/ndk/provider.rs",
        &[
            "adapter::",
            "ndk_state::",
            "statistics::",
            "removal::",
            "control_device::endings",
            "control_device::listing",
            "control_device::pairs",
            "control_device::replay",
        ],
    ),
    ("driver/ndk/queue_pair.rs", &["queue_pair::", "work_request::", "window::", "registration::", "memory::"]),
    ("driver/ndk/shared_endpoint.rs", &["endpoint::", "adapter::"]),
    ("driver/ndk/shared_receive_queue.rs", &["shared_receive::", "adapter::", "asynchrony::"]),
    ("driver/ndk/socket.rs", &["connection::", "endpoint::", "statistics::"]),
    (
        "driver/status.rs",
        &[
            "queue_pair::",
            "memory::",
            "connection",
            "access::",
            "adapter::",
            "completion_queue::",
            "moderation::",
            "resize::",
        ],
    ),
    ("driver/version.rs", &["adapter::"]),
];

/// A mutant as cargo-mutants describes it.
struct Mutant {
    name: String,
    file: &'static str,
    /// First and last place of the function it is in: line and column, from 1.
    function: [(usize, usize); 2],
    change: Change,
    suites: &'static [&'static str],
}

pub fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let mutants = list(workspace, arguments)?;
    if arguments.list {
        for mutant in &mutants {
            println!("{}", mutant.name);
        }
        println!("{} mutants", mutants.len());
        return Ok(());
    }
    let mut results = Results::read(workspace)?;
    let open = mutants.iter().filter(|mutant| !results.is_settled(&mutant.name)).collect::<Vec<_>>();
    println!("{} mutants, {} to be judged", mutants.len(), open.len());
    if open.is_empty() {
        return Ok(());
    }
    let together = Together::build(&Tree::copy(workspace, "mutants")?, &open)?;
    println!(
        "{} in one image, {} alone, {} unviable",
        together.inside.len(),
        together.alone.len(),
        together.unviable.len()
    );
    let (clean, image) = (workspace.path("target/mutants/clean.sys"), workspace.path("target/mutants/softndk.sys"));
    together.choose(None, &clean)?;
    let mut judge = Judge::new(workspace, &clean, &image)?;
    let mut counts = BTreeMap::new();
    let mut add = |verdict: Verdict, mutant: &Mutant| {
        *counts.entry(verdict.word()).or_insert(0_u32) += 1;
        results.add(&verdict, &mutant.name)
    };
    for number in &together.unviable {
        add(Verdict::Unviable, open[*number])?;
    }
    let mut left = together.inside.clone();
    for every in [false, true] {
        for number in std::mem::take(&mut left) {
            together.choose(Some(number), &image)?;
            match judge.verdict(open[number], every)? {
                Verdict::Missed if !every => drop(left.insert(number)),
                verdict => add(verdict, open[number])?,
            }
        }
    }
    let tree = Tree::copy(workspace, "mutants")?;
    let images = ImageBuilder::new()?;
    for mutant in together.alone.iter().map(|number| open[*number]) {
        let verdict = tree.with(&mutant.change, || match images.build(&tree) {
            Ok(()) => {
                fs::copy(proof::image(&tree), &image)?;
                judge.verdict(mutant, true)
            }
            Err(_) => Ok(Verdict::Unviable),
        })?;
        add(verdict, mutant)?;
    }
    println!("{counts:?}; {}", workspace.show(&results.path));
    Ok(())
}

fn list(workspace: &Workspace, arguments: &Arguments) -> Result<Vec<Mutant>> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(workspace.root());
    // Without our settings, which name the files of the libraries.
    cargo.args(["mutants", "--no-config", "--list", "--json", "--diff", "--package", "softndk"]);
    let described = serde_json::from_str::<serde_json::Value>(&command::output(&mut cargo)?)?;
    let Shard { part, of } = arguments.shard;
    let mut mutants = Vec::new();
    for one in described.as_array().context("cargo-mutants lists something else than mutants")? {
        let word = |key: &str| one[key].as_str().with_context(|| format!("a mutant without {key}"));
        let file = word("file")?;
        let Some((file, suites)) = LAYER.iter().find(|(name, _)| *name == file) else { continue };
        if arguments.file.as_ref().is_some_and(|wanted| !file.contains(wanted.as_str())) {
            continue;
        }
        let diff = workspace.path("target/mutants/driver").join(format!("{}.diff", mutants.len()));
        write_if_changed(&diff, unified(file, word("diff")?)?.as_bytes())?;
        let change = Change { diff, files: vec![(*file).to_owned()] };
        let function = [place(&one["function"]["span"]["start"])?, place(&one["function"]["span"]["end"])?];
        mutants.push(Mutant { name: word("name")?.to_owned(), file, function, change, suites });
    }
    mutants.sort_by_cached_key(|mutant| scattered(&mutant.name));
    Ok(mutants.into_iter().skip(part).step_by(of).collect())
}

/// A line and a column.
fn place(place: &serde_json::Value) -> Result<(usize, usize)> {
    let number = |key: &str| place[key].as_u64().and_then(|number| usize::try_from(number).ok());
    number("line").zip(number("column")).context("a mutant outside of functions")
}

/// A number that has nothing to do with where the mutant is, and is the same in every run.
fn scattered(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// The diff with a head that git understands.
fn unified(file: &str, diff: &str) -> Result<String> {
    let body = diff.find("@@").and_then(|start| diff.get(start..)).context("a mutant without a diff")?;
    Ok(format!("--- a/{file}\n+++ b/{file}\n{body}"))
}

#[cfg(test)]
mod tests {
    use super::unified;

    #[test]
    fn head_names_the_file_twice() {
        let diff = unified("driver/x.rs", "--- driver/x.rs\n+++ replace a with b\n@@ -1 +1 @@\n-a\n+b\n").unwrap();
        assert_eq!(diff, "--- a/driver/x.rs\n+++ b/driver/x.rs\n@@ -1 +1 @@\n-a\n+b\n");
    }
}
