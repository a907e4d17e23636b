//! `cargo xtask c-consumer`: the consumer in C, which the kernel host runs beside softndk.sys.

use crate::workspace::Workspace;
use anyhow::Result;
pub use softndk_images::c_consumer::build;

/// Build the consumer in C, which the kernel host runs beside softndk.sys.
#[derive(clap::Args)]
pub struct CConsumerArguments {}

pub fn run(_: &CConsumerArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    println!("{}", workspace.show(&build(&workspace)?));
    Ok(())
}
