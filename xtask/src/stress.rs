//! `cargo xtask stress`: many consumers at once on the loaded image, for minutes, while adapters go and come and memory is
//! short. What happens is `ndkctl stress`; here it gets the image and the kernel host's strict mode.

use crate::{
    arch::Arch,
    command,
    driver::{self, Profile},
    tools,
    workspace::Workspace,
};
use anyhow::{Context, Result};
use std::{ffi::OsString, process::Command};

/// Many consumers at once on the loaded image, with adapters that are removed and added and with short memory.
#[derive(clap::Args)]
pub struct StressArguments {
    /// Minutes of the whole run, half of them the steady phase
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    minutes: u64,

    /// Chooses all random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Passed to `ndkctl stress`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

pub fn run(arguments: &StressArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let image = driver::build(&workspace, Arch::X64, Profile::Release)?;
    let ndkctl = tools::build(&workspace)?;
    let mut stress = Command::new(ndkctl);
    stress.current_dir(workspace.root()).arg("--image").arg(image);
    stress.args(["--mode", "verify", "stress"]);
    stress.args(["--seconds", &(arguments.minutes * 60).to_string(), "--seed", &arguments.seed.to_string()]);
    stress.args(&arguments.words);
    command::run(&mut stress).context("the stress run failed")
}
