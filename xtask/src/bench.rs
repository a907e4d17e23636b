//! `cargo xtask bench`: the speed of the release images, as ratios within one run.
//!
//! Each round runs every program once, so that what slows the machine slows all of them. A row's ratio is that of value and baseline of
//! one round; the median of the rounds counts. The command fails when a bound is missed or a row was not measured.
//! `docs/performance.md` says what each row is.

mod affinity;
mod longest;
mod plan;
mod plot;
mod programs;
mod report;
mod reports;
mod rounds;
mod row;
mod ucx;

use crate::workspace::Workspace;
use anyhow::{Context, Result};
use indicatif::ProgressBar;
use programs::{Lengths, Programs};
use report::BenchReport;
use rounds::Rounds;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Measure the release images in the kernel host's fast mode, beside memcpy, UCX and each other
#[derive(clap::Args)]
pub struct BenchArguments {
    /// Write the results to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Draw latency and bandwidth over the size of a request, as SVG files in this folder
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,

    /// Three short rounds instead of nine, for a first look
    #[arg(long)]
    quick: bool,
}

pub fn run(arguments: &BenchArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let programs = programs::build(&workspace, if arguments.quick { Lengths::QUICK } else { Lengths::FULL })?;
    let report = BenchReport::of(rounds(&programs));
    print!("{}", report.text());
    if let Some(file) = &arguments.json {
        write(file, &format!("{:#}\n", report.json()))?;
    }
    if let Some(folder) = &arguments.svg {
        plot::draw(&programs, folder)?;
    }
    report.verdict()
}

fn rounds(programs: &Programs) -> Rounds {
    let mut rounds = Rounds::default();
    // Hidden where standard error is no terminal.
    let progress = ProgressBar::new(programs.lengths.rounds as u64).with_message("rounds");
    for _ in 0..programs.lengths.rounds {
        rounds.measure(programs);
        progress.inc(1);
    }
    rounds.count(programs);
    progress.finish_and_clear();
    rounds
}

fn write(file: &Path, text: &str) -> Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
