//! The binary: arguments, one command, an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    ndkctl::run::from_command_line()
}
