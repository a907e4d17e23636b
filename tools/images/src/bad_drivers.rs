//! The driver image of `tests/bad-drivers`, with which the kernel host is shown to fail.
//!
//! A package outside the workspace that needs neither the wdk crates nor headers, only the target's libraries and linker.

use crate::{
    arch::Arch,
    command, setup,
    toolchain::{self, Use},
    workspace::Workspace,
};
use anyhow::{Context, Result};
use std::{path::PathBuf, process::Command};

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
