//! `cargo xtask oracle`: the model of the contract beside the engine, for a given number of operations.
//!
//! Builds and runs `tests/oracle`; what is compared, and how, is decided there.

use crate::{command, host_cargo, workspace::Workspace};
use anyhow::{Context, Result};
use std::ffi::OsString;

/// Compare the engine with a model of the contract, over random operations.
#[derive(clap::Args)]
pub struct OracleArguments {
    /// Passed to the oracle: `--operations N --seed S --column ndk|nd`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

pub fn run(arguments: &OracleArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let mut cargo = host_cargo::cargo(&workspace);
    cargo.args(["run", "--quiet", "--bin", "oracle", "--"]).args(&arguments.words);
    command::run(&mut cargo).context("model and engine differ")
}
