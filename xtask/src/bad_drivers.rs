//! `cargo xtask bad-drivers`: the driver image with which the kernel host is shown to fail.

use crate::workspace::Workspace;
use anyhow::Result;
pub use softndk_images::bad_drivers::{build, image};

/// Build the drivers that break one rule each, for the tests of the kernel host.
#[derive(clap::Args)]
pub struct BadDriversArguments {}

pub fn run(_: &BadDriversArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    println!("{}", workspace.show(&build(&workspace)?));
    Ok(())
}
