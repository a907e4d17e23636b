//! The commands behind `cargo xtask`, at the desk and in CI.
//!
//! One file a sub-command; what several commands share lives under the thing it is about (`cross` for the cross build of
//! the driver, `image_check` for the rules of the finished image). Commands are quiet when all is well: they print one
//! line for what they made, and on failure the cause and the next step.

pub mod arch;
pub mod bad_drivers;
pub mod clippy;
pub mod command;
pub mod cross;
pub mod demo;
pub mod driver;
pub mod image_check;
pub mod setup;
pub mod test;
pub mod tools;
pub mod workspace;

use clap::{Parser, Subcommand};

/// Build, check and run softndk.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Setup(setup::Arguments),
    Driver(driver::Arguments),
    CheckImage(image_check::Arguments),
    BadDrivers(bad_drivers::Arguments),
    Clippy(clippy::Arguments),
    Tools(tools::Arguments),
    Test(test::Arguments),
    Demo(demo::Arguments),
}

/// Runs the command that was asked for.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Command::Setup(arguments) => setup::run(arguments),
        Command::Driver(arguments) => driver::run(arguments),
        Command::CheckImage(arguments) => image_check::run(arguments),
        Command::BadDrivers(arguments) => bad_drivers::run(arguments),
        Command::Clippy(arguments) => clippy::run(arguments),
        Command::Tools(arguments) => tools::run(arguments),
        Command::Test(arguments) => test::run(arguments),
        Command::Demo(arguments) => demo::run(arguments),
    }
}
