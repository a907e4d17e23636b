//! The cross build: builds `softndk.sys` on a Linux machine without the driver kit.
//!
//! The published crates (wdk, wdk-sys, wdk-alloc, wdk-panic, wdk-build) are used as they are, with one exception:
//! wdk-build refuses hosts other than Windows, so a patched copy stands in for it ([`wdk_build`]). The copy enters the
//! build through a mirror of the work tree ([`mirror`]), so that neither the tree nor `Cargo.lock` ever changes. Headers
//! and import libraries, which the driver kit supplies on Windows, are our own ([`kit`]).
//!
//! On a Windows host none of this is used: `cargo build -p softndk` is the ordinary build there.

#[cfg(unix)]
pub mod mirror;
#[cfg(unix)]
pub mod wdk_build;

#[cfg(unix)]
pub use softndk_images::kit;
pub use softndk_images::toolchain;

#[cfg(unix)]
use crate::{arch::Arch, command, setup, workspace::Workspace};
#[cfg(unix)]
use anyhow::{Context, Result};
#[cfg(unix)]
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Makes a cargo command on the driver package run in the mirror, with our kit and the libraries that are there.
#[cfg(unix)]
pub fn prepare(cargo: &mut Command, workspace: &Workspace, arch: Arch) -> Result<()> {
    setup::ensure(&setup::driver_needs(arch))?;
    let mirror = mirror::refresh(workspace)?;
    prepare_in(cargo, workspace, arch, &mirror)
}

/// The same in another folder, which has the patched wdk-build as well.
#[cfg(unix)]
pub fn prepare_in(cargo: &mut Command, workspace: &Workspace, arch: Arch, folder: &Path) -> Result<()> {
    cargo.current_dir(folder);
    cargo.env("WDKContentRoot", kit::refresh(workspace, arch)?).env("Version_Number", kit::VERSION);
    cargo.env(arch.linker_variable(), toolchain::linker()?);
    toolchain::require(arch.triple())?.apply(cargo, toolchain::Use::Driver);
    Ok(())
}

/// What an image with counters has instead of LLVM's run-time (`xtask/counting-runtime.rs`), compiled.
#[cfg(unix)]
pub fn counting_object(workspace: &Workspace) -> Result<PathBuf> {
    let object = workspace.driver_target().join("counting-runtime.obj");
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition=2024", "--crate-type=lib", "--emit=obj", "-Cpanic=abort", "--target", Arch::X64.triple()]);
    rustc.arg("-o").arg(&object).arg(workspace.path("xtask/counting-runtime.rs"));
    command::output(&mut rustc).context("cannot compile the replacement of the counters' run-time")?;
    Ok(object)
}
