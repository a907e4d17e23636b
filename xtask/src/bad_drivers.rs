//! `cargo xtask bad-drivers`: the driver image of `tests/bad-drivers`, with which the kernel host is shown to fail.
//!
//! A package outside the workspace that needs neither the wdk crates nor headers, only the target's libraries and linker.

use crate::{
    arch::Arch,
    command,
    cross::toolchain::{self, Use},
    setup,
    workspace::Workspace,
};
use anyhow::{Context, Result};
use std::{path::PathBuf, process::Command};

/// Build the drivers that break one rule each, for the tests of the kernel host.
#[derive(clap::Args)]
pub struct Arguments {}

pub fn run(_: &Arguments) -> Result<()> {
    let workspace = Workspace::find()?;
    println!("{}", workspace.show(&build(&workspace)?));
    Ok(())
}

/// Builds the image and returns its path.
pub fn build(workspace: &Workspace) -> Result<PathBuf> {
    let arch = Arch::X64;
    setup::ensure(&[setup::Need::DriverLibraries(arch)])?;
    let mut cargo = Command::new("cargo");
    cargo.current_dir(workspace.path("tests/bad-drivers")).args(["build", "--quiet", "--locked", "--release"]);
    cargo.args(["--target", arch.triple()]).arg("--target-dir").arg(folder(workspace));
    cargo.env(arch.linker_variable(), toolchain::linker()?);
    toolchain::require(arch.triple())?.apply(&mut cargo, Use::Driver);
    command::run(&mut cargo).context("the bad drivers do not build")?;
    Ok(image(workspace))
}

/// Where the image is once it is built.
pub fn image(workspace: &Workspace) -> PathBuf {
    folder(workspace).join(Arch::X64.triple()).join("release/bad_drivers.dll")
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.path("target/bad-drivers")
}
