//! `cargo xtask own-driver`: builds an NDK consumer of a user and runs it beside softndk.sys in the kernel host.

mod rust;

use crate::{
    arch::Arch,
    driver::{self, Profile},
    host_cargo,
    workspace::Workspace,
};
use anyhow::{Context, Result, bail};
use softndk_images::{driver_run::DriverRun, own_driver};
use std::{
    path::{Path, PathBuf},
    process::{self, Command},
};

/// Build an NDK consumer, in C or Rust, and run it beside softndk.sys in the kernel host.
///
/// It runs once for each value of CompletionMode and LimitsProfile, unless --keyword names one, each time in a kernel of its own: it is
/// loaded, lives for --seconds of the kernel's time, and is unloaded. See docs/own-driver.md.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes:
  0    every run was good
  1    a run failed: DriverEntry did, the driver printed a line that begins with TEST-FAILED, text of --expect did not come, or something was left
  2    wrong arguments, sources that do not build, or an image that cannot be loaded
  113  a run ended in a bugcheck

Examples:
  cargo xtask own-driver examples/c-consumer.c --expect 'read 4096 bytes'
  cargo xtask own-driver my-consumer --schedule 1..20 --faults --junit results.xml
  cargo xtask own-driver my-consumer --keyword CompletionMode=1 --keyword LimitsProfile=0 --trace ndk")]
pub struct OwnDriverArguments {
    /// A C file, a folder of C files, a crate that uses windows-drivers-rs, or a finished .sys
    path: PathBuf,

    #[command(flatten)]
    run: DriverRun,
}

/// Exit code when nothing was run.
const UNUSABLE: i32 = 2;

/// Ends the process with the exit code of the runs.
pub fn run(arguments: &OwnDriverArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let mut runner = match prepare(&workspace, &arguments.path) {
        Ok(runner) => runner,
        Err(error) => {
            eprintln!("error: {error:#}");
            process::exit(UNUSABLE);
        }
    };
    runner.args(arguments.run.words());
    runner.env("FOREIGN_DRIVER_COMMAND", format!("cargo xtask own-driver {}", arguments.path.display()));
    let status = runner.status().context("cannot start what runs the driver")?;
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => process::exit(code),
        None => bail!("what runs the driver ended early ({status})"),
    }
}

/// Builds everything; the command that runs the driver.
fn prepare(workspace: &Workspace, path: &Path) -> Result<Command> {
    let driver = build(workspace, path)?;
    let provider = driver::build_unchecked(workspace, Arch::X64, Profile::Debug)?;
    let mut runner = Command::new(host_cargo::example(workspace, "foreign_driver")?);
    runner.arg(provider).arg(workspace.path("inf/softndk.inx")).arg(driver);
    Ok(runner)
}

/// The image of a driver, built unless it is one.
fn build(workspace: &Workspace, path: &Path) -> Result<PathBuf> {
    let is = |wanted: &str| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(wanted));
    if !path.exists() {
        bail!("there is no {}", path.display());
    }
    if path.is_file() && is("sys") {
        return Ok(path.to_path_buf());
    }
    if path.join("Cargo.toml").is_file() {
        return rust::build(workspace, path);
    }
    if path.is_dir() || is("c") {
        return own_driver::build_c(workspace, path);
    }
    bail!("{} is no C file, no folder and no .sys", path.display())
}
