//! `cargo xtask networkdirect`: the suite of user-mode NetworkDirect, with the images that it loads.

use crate::{
    arch::Arch,
    command,
    driver::{self, Profile},
    softnd,
    workspace::Workspace,
};
use anyhow::{Context, Result};
use std::process::Command;

/// Build softndk.sys and softnd.dll and run the tests of user-mode NetworkDirect.
#[derive(clap::Args)]
pub struct NetworkdirectArguments {
    /// Only cases whose names contain one of these
    filters: Vec<String>,
}

pub fn run(arguments: &NetworkdirectArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    driver::build(&workspace, Arch::X64, Profile::Debug)?;
    softnd::build(&workspace, Profile::Release)?;
    let mut cargo = Command::new("cargo");
    cargo.current_dir(workspace.root()).args(["test", "--locked", "--package", "networkdirect", "--"]);
    cargo.args(&arguments.filters);
    command::run(&mut cargo).context("the suite of user-mode NetworkDirect fails")
}
