//! `cargo xtask own-program`: runs programs of others on a machine with the driver, in the kernel host.

use crate::{
    arch::Arch,
    driver::{self, Profile},
    host_cargo, softnd,
    workspace::Workspace,
};
use anyhow::{Context, Result, bail};
use softndk_images::user_program;
use std::process::Command;

/// Run NetworkDirect programs for Windows beside the driver: PROGRAM.exe [ARGUMENT…] [--second [--after TEXT] OTHER.exe [ARGUMENT…]]…
///
/// Before the first program: --seconds N (how long they may run, in the kernel's time), --fast (without checks), --keyword NAME=VALUE (a
/// registry keyword of both adapters). The adapters have the addresses 10.0.0.1 and 10.0.0.2. A second program starts
/// 200 ms later, or when the one before it has written TEXT. See docs/own-program.md.
#[derive(clap::Args)]
pub struct OwnProgramArguments {
    /// Options, the program, its arguments, and others after --second
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    words: Vec<String>,
}

pub fn run(arguments: &OwnProgramArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let image = driver::build_unchecked(&workspace, Arch::X64, Profile::Debug)?;
    let provider = softnd::build(&workspace, Profile::Release)?;
    let run_time = user_program::run_time(&workspace)?;
    let mut example = Command::new(host_cargo::example(&workspace, "own_program")?);
    example.arg(run_time).arg(provider).args(&arguments.words).env("SOFTNDK_IMAGE", image);
    let status = example.status().context("cannot start what runs the programs")?;
    if !status.success() {
        bail!("not every program ended with exit code 0 ({status})");
    }
    Ok(())
}
