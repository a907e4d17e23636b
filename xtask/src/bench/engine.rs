//! The engine alone, measured by criterion.

use super::{affinity, affinity::Processors};
use crate::{command, workspace::Workspace};
use anyhow::{Context, Result};
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::Path, process::Command};

pub(super) fn build(workspace: &Workspace) -> Result<()> {
    let mut build = cargo(workspace);
    build.arg("--no-run");
    command::output(&mut build).map(drop).context("the benches of the engine do not build")
}

/// Runs the benches of the engine, which are built; the median of each in nanoseconds.
pub(super) fn measure(workspace: &Workspace, quick: bool) -> Result<BTreeMap<String, f64>> {
    let results = workspace.path("target/bench/engine");
    // What an earlier run left is not what this one measured.
    if results.exists() {
        fs::remove_dir_all(&results).with_context(|| format!("cannot remove {}", results.display()))?;
    }
    let mut bench = cargo(workspace);
    bench.env("CRITERION_HOME", &results);
    bench.args(["--", "--noplot"]);
    bench.args(if quick { QUICK } else { FULL });
    affinity::on(Processors::One, || command::output(&mut bench)).context("the benches of the engine fail")?;
    medians(&results)
}

const FULL: &[&str] = &["--warm-up-time", "0.5", "--measurement-time", "3"];
const QUICK: &[&str] = &["--warm-up-time", "0.1", "--measurement-time", "0.2", "--sample-size", "10"];

fn cargo(workspace: &Workspace) -> Command {
    let mut command = Command::new("cargo");
    // The whole of criterion, linked as the driver is, takes minutes. The engine is inlined into the bench all the same: it is generic.
    for (name, value) in [("LTO", "thin"), ("DEBUG", "line-tables-only")] {
        command.env(format!("CARGO_PROFILE_BENCH_{name}"), value);
    }
    command.current_dir(workspace.root()).args(["bench", "--locked", "--quiet", "--package", "softndk-engine"]);
    command.args(["--bench", "data_path", "--bench", "objects"]);
    command
}

/// Each bench has a folder of its name.
fn medians(results: &Path) -> Result<BTreeMap<String, f64>> {
    let mut medians = BTreeMap::new();
    let folders = fs::read_dir(results).with_context(|| format!("no results in {}", results.display()))?;
    for folder in folders {
        let folder = folder?;
        let Ok(text) = fs::read_to_string(folder.path().join("new/estimates.json")) else { continue };
        let estimates: Value = serde_json::from_str(&text)?;
        let median = estimates.pointer("/median/point_estimate").and_then(Value::as_f64);
        let name = folder.file_name().to_string_lossy().into_owned();
        medians.insert(name, median.context("an estimate without a median")?);
    }
    Ok(medians)
}
