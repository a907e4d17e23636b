//! `cargo xtask setup`: installs what the other commands need and this machine lacks. They do it by themselves, too.

use crate::arch::Arch;
use anyhow::Result;
pub use softndk_images::setup::*;

/// Install what is missing: libraries for the Windows targets, libclang, the linker of the tools.
///
/// Uses rustup and apt, asks nothing, and does nothing when all is there.
#[derive(clap::Args)]
pub struct SetupArguments {
    /// Say only what is installed now
    #[arg(long)]
    pub quiet: bool,
}

pub fn run(arguments: &SetupArguments) -> Result<()> {
    let mut needs = Vec::new();
    needs.extend(driver_needs(Arch::X64));
    needs.extend(driver_needs(Arch::Arm64));
    needs.extend(TOOL_NEEDS);
    needs.extend(LINT_NEEDS);
    needs.extend(MIRI_NEEDS);
    needs.push(Need::Clang);
    needs.push(Need::CppCompiler);
    needs.push(Need::LlvmTools);
    ensure(&needs)?;
    if !arguments.quiet {
        println!("set up: everything the commands need is installed");
    }
    Ok(())
}
