//! `cargo xtask c-consumer`: the consumer in C, which the kernel host runs beside softndk.sys.

use crate::workspace::Workspace;
use anyhow::Result;
pub use softndk_images::c_consumer::build;

/// Build the consumer in C, which the kernel host runs beside softndk.sys.
#[derive(clap::Args)]
pub struct Arguments {}

pub fn run(_: &Arguments) -> Result<()> {
    let workspace = Workspace::find()?;
    println!("{}", workspace.show(&build(&workspace)?));
    Ok(())
}
