//! `cargo xtask bench`: the speed of the release images, as ratios within one run.
//!
//! Each round runs every program once, so that what slows the machine slows all of them; the median of the rounds counts. A row has a
//! baseline of the same run and a bound; the command fails when a bound is missed. A row whose baseline differs between the rounds by
//! more than half of what the bound allows is void: it says nothing about the driver.

mod row;

use crate::{
    arch::Arch,
    command,
    driver::{self, Profile},
    softnd, tools,
    workspace::Workspace,
};
use anyhow::{Context, Result, bail};
use row::{BenchRow, Series};
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Measure the release images in the kernel host's fast mode, beside memcpy and beside each other
#[derive(clap::Args)]
pub struct BenchArguments {
    /// Write the results to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Three short rounds instead of nine, for a first look
    #[arg(long)]
    quick: bool,
}

/// The programs that measure.
struct Programs {
    ndkctl: PathBuf,
    /// Reads through softnd.dll.
    speed: PathBuf,
    driver: PathBuf,
}

/// What was measured, by name, a value a round. Times are of one request, in nanoseconds.
type Measured = BTreeMap<&'static str, Series>;

pub fn run(arguments: &BenchArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let programs = build(&workspace)?;
    let (rounds, milliseconds) = if arguments.quick { (3, 100) } else { (9, 300) };
    let mut measured = Measured::new();
    for _ in 0..rounds {
        programs.measure(milliseconds, &mut measured)?;
    }
    let rows = rows(&measured)?;
    print!("{}", row::table(&rows));
    if let Some(file) = &arguments.json {
        let results: Map<String, Value> = rows.iter().map(|row| (row.key.to_owned(), row.json())).collect();
        let calibration: Map<String, Value> =
            measured.iter().map(|(name, series)| ((*name).to_owned(), json!(series.median()))).collect();
        let document = json!({ "calibration": calibration, "results": results });
        fs::write(file, format!("{document:#}\n")).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let missed: Vec<&str> = rows.iter().filter(|row| row.is_missed()).map(|row| row.key).collect();
    if missed.is_empty() {
        return Ok(());
    }
    bail!("these bounds are missed: {}", missed.join(", "))
}

fn build(workspace: &Workspace) -> Result<Programs> {
    let driver = driver::build(workspace, Arch::X64, Profile::Release)?;
    softnd::build(workspace, Profile::Release)?;
    softndk_images::nd_program::build(workspace)?;
    let mut cargo = Command::new("cargo");
    cargo.current_dir(workspace.root()).args(["build", "--locked", "--release", "--quiet"]);
    cargo.args(["--package", "networkdirect", "--example", "speed"]);
    command::run(&mut cargo).context("the program that reads through softnd.dll does not build")?;
    Ok(Programs { ndkctl: tools::build(workspace)?, speed: workspace.path("target/release/examples/speed"), driver })
}

impl Programs {
    /// One round.
    fn measure(&self, milliseconds: u64, into: &mut Measured) -> Result<()> {
        let mut kernel = |key, words: &[&str]| -> Result<()> {
            let time = milliseconds.to_string();
            let words = [&["perf", "--quiet", "--json", "--time", &time][..], words].concat();
            let document = document(self.command(&self.ndkctl).args(words))?;
            let row = document.pointer("/report/rows/0").context("ndkctl perf printed no row")?;
            into.entry(key).or_default().push(number(row, "ns_per_request")?);
            Ok(())
        };
        kernel("kernel_read_8_chain16", &["--operation", "read", "--size", "8", "--chain", "16", "--depth", "16"])?;
        let mut user = |key, memcpy, calls, words: [&str; 3]| -> Result<()> {
            let row = document(self.command(&self.speed).args(words))?;
            into.entry(key).or_default().push(number(&row, "nanoseconds")?);
            into.entry(memcpy).or_default().push(number(&row, "memcpy")?);
            into.entry(calls).or_default().push(number(&row, "system_calls")?);
            Ok(())
        };
        user("nd_read_8_chain16", "memcpy_8", "nd_calls_polled", ["8", "16", POLLED])?;
        user("nd_read_64k", "memcpy_64k", "nd_calls_polled_64k", ["65536", "16", POLLED])?;
        user("nd_read_8_unpolled", "memcpy_8", "nd_calls_unpolled", ["8", "16", "0"])
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("SOFTNDK_IMAGE", &self.driver);
        command
    }
}

/// How long the driver polls after the last request, in microseconds.
const POLLED: &str = "1000";

fn document(command: &mut Command) -> Result<Value> {
    let text = command::output(command)?;
    serde_json::from_str(&text).with_context(|| format!("this is no JSON: {text}"))
}

fn number(row: &Value, name: &str) -> Result<f64> {
    row.get(name).and_then(Value::as_f64).with_context(|| format!("no number {name} in {row}"))
}

fn rows(measured: &Measured) -> Result<Vec<BenchRow>> {
    let series = |name: &'static str| measured.get(name).with_context(|| format!("{name} was not measured"));
    let ratio = |key, baseline, bound| -> Result<BenchRow> {
        Ok(BenchRow::ratio(key, series(key)?, baseline, series(baseline)?, bound))
    };
    Ok(vec![
        ratio("nd_read_8_chain16", "kernel_read_8_chain16", 2.0)?,
        ratio("nd_read_64k", "memcpy_64k", 1.06)?,
        BenchRow::count("nd_calls_polled", series("nd_calls_polled")?, 0.01),
        BenchRow::count("nd_calls_polled_64k", series("nd_calls_polled_64k")?, 0.01),
    ])
}
