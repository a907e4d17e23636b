//! `cargo xtask clippy`: the lints of every crate, the driver included.
//!
//! The driver is linted in the cross build of [`crate::driver`], the user-mode provider as it stands and for Windows; everything else as
//! it stands. Warnings are errors.

use crate::{arch::Arch, command, driver, host_cargo, setup, softnd, workspace::Workspace};
use anyhow::{Context, Result};

/// Run clippy on the workspace and on the driver.
#[derive(clap::Args)]
pub struct ClippyArguments {}

pub fn run(_: &ClippyArguments) -> Result<()> {
    setup::ensure(&setup::LINT_NEEDS)?;
    let workspace = Workspace::find()?;
    let mut cargo = host_cargo::cargo(&workspace);
    cargo.args(["clippy", "--quiet", "--locked", "--all-targets", "--", "-D", "warnings"]);
    command::run(&mut cargo).context("clippy has something to say about the workspace")?;
    let mut cargo = softnd::cargo(&workspace, "clippy")?;
    cargo.args(["--", "-D", "warnings"]);
    command::run(&mut cargo).context("clippy has something to say about softnd.dll")?;
    let mut cargo = driver::cargo(&workspace, "clippy", Arch::X64)?;
    cargo.args(["--package", "softndk-kernel", "--package", "ndktest", "--lib", "--examples", "--no-deps"]);
    cargo.args(["--", "-D", "warnings"]);
    command::run(&mut cargo).context("clippy has something to say about the driver")
}
