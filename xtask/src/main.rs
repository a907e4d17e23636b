//! `cargo xtask`: every command a person runs. The commands themselves are in the library.

use clap::Parser;
use std::process::ExitCode;
use xtask::skipped::{self, Skipped};

fn main() -> ExitCode {
    // `cargo xtask seeded-bugs --list | head` ends quietly when `head` does.
    sigpipe::reset();
    #[cfg(target_os = "linux")]
    xtask::end_with_children_on_signals();
    xtask::fail_when_output_is_lost();
    let ended = xtask::run(&xtask::Arguments::parse());
    #[cfg(target_os = "linux")]
    xtask::wait_for_the_end_on_a_signal();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(reason) = error.downcast_ref::<Skipped>() {
                println!("{reason}");
                return ExitCode::from(skipped::EXIT_STATUS);
            }
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
