//! `cargo xtask bench`: the speed of the release images, as ratios within one run.
//!
//! Each round runs every program once, so that what slows the machine slows all of them, and measures the machine itself before and
//! after each program. A row's ratio is that of value and baseline of one round; the median of the rounds counts. The command fails when
//! a bound is missed or a row was not measured. `docs/performance.md` says what each row is, and when one is void.

mod affinity;
mod engine;
mod longest;
mod plan;
mod plot;
mod programs;
mod report;
mod reports;
mod row;
mod session;
mod ucx;

use crate::workspace::Workspace;
use anyhow::{Context, Result};
use indicatif::ProgressBar;
use programs::{Lengths, Programs};
use report::BenchReport;
use session::Session;
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

    /// Install the peers that are measured beside: UCX, by the system's packages
    #[arg(long)]
    peers: bool,
}

pub fn run(arguments: &BenchArguments) -> Result<()> {
    if arguments.peers {
        ucx::install()?;
    }
    let workspace = Workspace::find()?;
    let programs = programs::build(&workspace, if arguments.quick { Lengths::QUICK } else { Lengths::FULL })?;
    engine::build(&workspace)?;
    let mut report = BenchReport::of(rounds(&programs)?, programs.has_ucx);
    report.transport = programs.has_ucx.then(ucx::transport).transpose()?;
    report.engine = engine::measure(&workspace, arguments.quick)?;
    print!("{}", report.text());
    if let Some(file) = &arguments.json {
        write(file, &format!("{:#}\n", report.json()))?;
    }
    if let Some(folder) = &arguments.svg {
        plot::draw(&programs, folder)?;
    }
    report.verdict()
}

fn rounds(programs: &Programs) -> Result<Session> {
    let mut session = Session::default();
    // Hidden where standard error is no terminal.
    let progress = ProgressBar::new(programs.lengths.rounds as u64).with_message("rounds");
    for _ in 0..programs.lengths.rounds {
        session.round(programs)?;
        progress.inc(1);
    }
    session.count(programs);
    progress.finish_and_clear();
    Ok(session)
}

fn write(file: &Path, text: &str) -> Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
