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

    /// With the driver in which the other end of each connection answers late
    #[arg(long)]
    delayed: bool,
}

pub fn run(arguments: &NetworkdirectArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let image = if arguments.delayed {
        driver::build_delayed(&workspace)?
    } else {
        driver::build(&workspace, Arch::X64, Profile::Debug)?
    };
    softnd::build(&workspace, Profile::Release)?;
    // The harness takes one filter.
    let filters = arguments.filters.iter().map(|filter| Some(filter.as_str()));
    let runs = if arguments.filters.is_empty() { vec![None] } else { filters.collect() };
    for filter in runs {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(workspace.root()).args([
            "test",
            "--locked",
            "--no-fail-fast",
            "--package",
            "networkdirect",
            "--",
        ]);
        cargo.args(filter).env("SOFTNDK_IMAGE", &image);
        command::run(&mut cargo).context("the suite of user-mode NetworkDirect fails")?;
    }
    Ok(())
}
