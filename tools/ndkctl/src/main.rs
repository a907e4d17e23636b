//! The binary: arguments, one command, an exit code.

use clap::Parser;
use ndkctl::arguments::Arguments;
use std::process::ExitCode;

fn main() -> ExitCode {
    ndkctl::run::run(&Arguments::parse())
}
