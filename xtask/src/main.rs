//! `cargo xtask`: every command a person runs. The commands themselves are in the library.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    // `cargo xtask seeded-bugs --list | head` ends quietly when `head` does.
    sigpipe::reset();
    xtask::fail_when_output_is_lost();
    match xtask::run(&xtask::Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
