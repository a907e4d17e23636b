//! `cargo xtask tools`: ndkctl, for this machine or for Windows; and whether the tests compile there.

use crate::{
    arch::Arch,
    command,
    cross::toolchain::{self, Use},
    setup::{self, TOOLS_TRIPLE},
    workspace::Workspace,
};
use anyhow::{Context, Result};
use std::{
    fs,
    io::{IsTerminal, stderr},
    path::{Path, PathBuf},
    process::Command,
};

/// Build ndkctl.
#[derive(clap::Args)]
pub struct ToolsArguments {
    /// For Windows (x64), linked by mingw-w64; appears as target/tools/x64/ndkctl.exe
    #[arg(long)]
    windows: bool,

    /// Only look whether everything but the driver compiles for Windows (x86_64-pc-windows-msvc), tests and examples included
    #[arg(long, requires = "windows")]
    check: bool,
}

pub fn run(arguments: &ToolsArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    if arguments.check {
        return check_for_windows(&workspace);
    }
    let program = if arguments.windows { build_for_windows(&workspace)? } else { build(&workspace)? };
    println!("{}", workspace.show(&program));
    Ok(())
}

/// The program for this machine, optimised.
pub fn build(workspace: &Workspace) -> Result<PathBuf> {
    let target = folder(workspace);
    command::run(&mut cargo(workspace, &target)).context("ndkctl does not build")?;
    Ok(target.join("release/ndkctl"))
}

fn build_for_windows(workspace: &Workspace) -> Result<PathBuf> {
    setup::ensure(&setup::TOOL_NEEDS)?;
    let target = folder(workspace);
    let mut cargo = cargo(workspace, &target);
    cargo.args(["--target", TOOLS_TRIPLE]).env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER", setup::TOOL_LINKER);
    toolchain::require(TOOLS_TRIPLE)?.apply(&mut cargo, Use::Program);
    command::run(&mut cargo).context("ndkctl.exe does not build")?;

    let program = workspace.path("target/tools/x64/ndkctl.exe");
    fs::create_dir_all(workspace.path("target/tools/x64"))?;
    fs::copy(target.join(TOOLS_TRIPLE).join("release/ndkctl.exe"), &program)
        .with_context(|| format!("cannot write {}", program.display()))?;
    Ok(program)
}

/// What `cargo test` would build on Windows, up to the linker. In the ordinary target folder, where the build scripts and macros are.
fn check_for_windows(workspace: &Workspace) -> Result<()> {
    let triple = Arch::X64.triple();
    setup::ensure(&setup::driver_needs(Arch::X64))?;
    let mut cargo = Command::new("cargo");
    // The default members: all but the drivers and what only they use.
    cargo.current_dir(workspace.root()).args(["check", "--locked", "--all-targets", "--target", triple]);
    if !stderr().is_terminal() {
        cargo.arg("--quiet");
    }
    toolchain::require(triple)?.apply(&mut cargo, Use::Program);
    command::run(&mut cargo).context("the tests do not compile for Windows")
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.path("target/tools/build")
}

fn cargo(workspace: &Workspace, target: &Path) -> Command {
    let mut cargo = Command::new("cargo");
    // The release profile is made for the driver, which is small; the tools would link for minutes by it.
    for (name, value) in [("LTO", "off"), ("CODEGEN_UNITS", "16"), ("DEBUG", "line-tables-only")] {
        cargo.env(format!("CARGO_PROFILE_RELEASE_{name}"), value);
    }
    cargo
        .current_dir(workspace.root())
        .args(["build", "--locked", "--release", "--package", "ndkctl", "--target-dir"])
        .arg(target);
    if !stderr().is_terminal() {
        cargo.arg("--quiet");
    }
    cargo
}
