//! `cargo xtask demo`: builds everything and runs a demonstration of the driver on this machine.
//!
//! Sets up what is missing, builds the release image and ndkctl, and lets ndkctl load the image in the kernel host and
//! show what it does. `ndkctl demo` decides what is shown.

use crate::{
    arch::Arch,
    command,
    driver::{self, Profile},
    tools,
    workspace::Workspace,
};
use anyhow::{Context, Result};
use std::{ffi::OsString, process::Command};

/// Build everything and run the demonstration.
#[derive(clap::Args)]
pub struct DemoArguments {
    /// Passed to `ndkctl demo`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

pub fn run(arguments: &DemoArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let image = driver::build(&workspace, Arch::X64, Profile::Release)?;
    let ndkctl = tools::build(&workspace)?;
    let mut demo = Command::new(ndkctl);
    demo.current_dir(workspace.root()).arg("--image").arg(image).arg("demo").args(&arguments.words);
    command::run(&mut demo).context("the demonstration failed")
}
