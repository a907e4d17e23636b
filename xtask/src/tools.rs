//! `cargo xtask tools`: ndkctl, for this machine or for Windows; and whether the tests compile there.

use crate::{
    arch::Arch,
    command,
    cross::toolchain::{self, Use},
    driver::publish,
    import_list,
    setup::{self, TOOLS_TRIPLE},
    workspace::Workspace,
};
use anyhow::{Context, Result};
use softndk_images::nd_program;
use std::{
    io::{IsTerminal, stderr},
    path::{Path, PathBuf},
    process::Command,
};

/// What the programs for Windows import.
const NDKCTL_IMPORTS: &str = "tools/ndkctl/imports.txt";
const ND_PROGRAM_IMPORTS: &str = "tests/networkdirect/program/imports.txt";

/// Build ndkctl.
#[derive(clap::Args)]
pub struct ToolsArguments {
    /// For Windows (x64), linked by mingw-w64; appears as target/tools/x64/ndkctl.exe, with the NetworkDirect program in C beside it
    #[arg(long)]
    windows: bool,

    /// Rewrite the lists of what the programs for Windows import
    #[arg(long, requires = "windows", conflicts_with = "check")]
    bless: bool,

    /// Only look whether everything but the driver compiles for Windows (x86_64-pc-windows-msvc), tests and examples included
    #[arg(long, requires = "windows")]
    check: bool,
}

pub fn run(arguments: &ToolsArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    if arguments.check {
        return check_for_windows(&workspace);
    }
    let programs = if arguments.windows {
        WindowsPrograms::build(&workspace, arguments.bless)?.all()
    } else {
        vec![build(&workspace)?]
    };
    for program in programs {
        println!("{}", workspace.show(&program));
    }
    Ok(())
}

/// The program for this machine, optimised.
pub fn build(workspace: &Workspace) -> Result<PathBuf> {
    let target = folder(workspace);
    command::run(&mut cargo(workspace, &target)).context("ndkctl does not build")?;
    Ok(target.join("release/ndkctl"))
}

/// What runs on Windows, built and checked.
pub struct WindowsPrograms {
    pub ndkctl: PathBuf,
    /// The NetworkDirect program in C.
    pub nd_program: PathBuf,
}

impl WindowsPrograms {
    pub fn build(workspace: &Workspace, bless: bool) -> Result<Self> {
        let place = |name: &str| workspace.path("target/tools/x64").join(name);
        let programs = Self { ndkctl: place("ndkctl.exe"), nd_program: place("nd-program.exe") };
        publish(&build_ndkctl_for_windows(workspace)?, &programs.ndkctl)?;
        publish(&nd_program::build_program(workspace)?, &programs.nd_program)?;
        import_list::check_program(workspace, &programs.ndkctl, NDKCTL_IMPORTS, bless)?;
        import_list::check_program(workspace, &programs.nd_program, ND_PROGRAM_IMPORTS, bless)?;
        Ok(programs)
    }

    fn all(self) -> Vec<PathBuf> {
        vec![self.ndkctl, self.nd_program]
    }
}

fn build_ndkctl_for_windows(workspace: &Workspace) -> Result<PathBuf> {
    setup::ensure(&setup::TOOL_NEEDS)?;
    let target = folder(workspace);
    let mut cargo = cargo(workspace, &target);
    cargo.args(["--target", TOOLS_TRIPLE]).env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER", setup::TOOL_LINKER);
    toolchain::require(TOOLS_TRIPLE)?.apply(&mut cargo, Use::Program);
    command::run(&mut cargo).context("ndkctl.exe does not build")?;
    Ok(target.join(TOOLS_TRIPLE).join("release/ndkctl.exe"))
}

/// What `cargo test` would build on Windows, up to the linker. In the ordinary target folder, where the build scripts and macros are.
fn check_for_windows(workspace: &Workspace) -> Result<()> {
    let triple = Arch::X64.triple();
    setup::ensure(&setup::driver_needs(Arch::X64))?;
    // As a person there has it: the profile of softnd.dll, which is among the default members, does not unwind.
    let mut cargo = Command::new("cargo");
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

/// An optimised example of a package.
pub fn build_example(workspace: &Workspace, package: &str, name: &str) -> Result<PathBuf> {
    let target = folder(workspace);
    let mut cargo = optimised(workspace, &target);
    cargo.args(["--package", package, "--example", name]);
    command::run(&mut cargo).with_context(|| format!("the example {name} of {package} does not build"))?;
    Ok(target.join("release/examples").join(name))
}

fn cargo(workspace: &Workspace, target: &Path) -> Command {
    let mut cargo = optimised(workspace, target);
    cargo.args(["--package", "ndkctl"]);
    cargo
}

fn optimised(workspace: &Workspace, target: &Path) -> Command {
    let mut cargo = Command::new("cargo");
    // The release profile is made for the driver, which is small; the tools would link for minutes by it. One codegen unit a crate: the
    // kernel host asks for the current thread at every import, which is a call through a pointer where it is split.
    for (name, value) in [("LTO", "off"), ("CODEGEN_UNITS", "1"), ("DEBUG", "line-tables-only")] {
        cargo.env(format!("CARGO_PROFILE_RELEASE_{name}"), value);
    }
    cargo.current_dir(workspace.root()).args(["build", "--locked", "--release", "--target-dir"]).arg(target);
    if !stderr().is_terminal() {
        cargo.arg("--quiet");
    }
    cargo
}
