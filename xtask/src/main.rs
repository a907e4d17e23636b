//! `cargo xtask`: every command a person runs, at the desk and in CI.
//!
//! One file a sub-command; what several commands share lives under the thing it is about (`cross` for the cross build of
//! the driver, `image_check` for the rules of the finished image). Commands are quiet when all is well: they print one
//! line for what they made, and on failure the cause and the next step.

mod arch;
mod command;
mod cross;
mod driver;
mod setup;
mod workspace;

use clap::{Parser, Subcommand};

/// Build, check and run softndk.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Setup(setup::Arguments),
    Driver(driver::Arguments),
}

fn main() -> std::process::ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        Command::Setup(arguments) => setup::run(&arguments),
        Command::Driver(arguments) => driver::run(&arguments),
    };
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
