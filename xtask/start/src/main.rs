//! `cargo xtask`: says at once what takes long, then lets cargo build and run the commands.
//!
//! The program of the commands has a hundred libraries, which cargo builds in silence: its alias is quiet, for the many times when there is
//! nothing to build.

use std::{
    env,
    io::{IsTerminal, stderr},
    path::Path,
    process::{Command, ExitCode},
};
use xtask_start::{PROGRAM, UNWINDING, announcement};

fn main() -> ExitCode {
    // Built in xtask/start of the workspace.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let said = announcement(&root);
    if let Some(said) = said {
        eprintln!("cargo xtask: {said}");
    }
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.arg("run");
    // On a terminal cargo shows how far it is.
    if said.is_none() || !stderr().is_terminal() {
        cargo.arg("--quiet");
    }
    cargo.args(UNWINDING).args(PROGRAM).arg("--").args(env::args_os().skip(1));
    run(&mut cargo)
}

/// In the place of this program, so that a signal to it is one to the command.
#[cfg(unix)]
fn run(cargo: &mut Command) -> ExitCode {
    let error = std::os::unix::process::CommandExt::exec(cargo);
    eprintln!("error: cannot start cargo: {error}");
    ExitCode::FAILURE
}

#[cfg(not(unix))]
fn run(cargo: &mut Command) -> ExitCode {
    match cargo.status() {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            eprintln!("error: cannot start cargo: {error}");
            ExitCode::FAILURE
        }
    }
}
