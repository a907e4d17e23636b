//! The control device's contract (docs/ioctl.md), tested on the real driver image in the kernel host: each documented status is
//! provoked, and each good request beside it succeeds.
//!
//! A process has one kernel and a bugcheck ends it, so each case runs in a process of its own: this binary again, with the
//! case's name in the environment. Without an image every case fails and says how to build one.

mod cancels;
mod consumer;
mod endings;
mod events;
mod faults;
mod handles;
mod inputs;
mod listing;
mod machine;
mod measurements;
mod pairs;
mod replay;
mod stack_marks;
mod transfers;
mod values;

use libtest_mimic::{Arguments, Failed, Trial};
use std::env;
use std::ffi::OsStr;
use std::process::{Command, ExitCode};

/// Names the case that a child process runs.
const CASE: &str = "SOFTNDK_CONTROL_CASE";

/// A case: what it shows, and how.
type Case = (&'static str, fn());

/// Lists functions as cases under their own names.
macro_rules! cases {
    ($($function:ident),+ $(,)?) => {
        &[$((concat!(module_path!(), "::", stringify!($function)), $function as fn())),+]
    };
}
pub(crate) use cases;

fn all() -> impl Iterator<Item = Case> {
    let suites: [&'static [Case]; 12] = [
        inputs::CASES,
        listing::CASES,
        pairs::CASES,
        transfers::CASES,
        endings::CASES,
        events::CASES,
        cancels::CASES,
        faults::CASES,
        replay::CASES,
        consumer::CASES,
        measurements::CASES,
        values::CASES,
    ];
    suites.into_iter().flatten().copied()
}

pub fn main() -> ExitCode {
    if let Ok(wanted) = env::var(CASE) {
        let (_, run) = all().find(|(name, _)| *name == wanted).unwrap_or_else(|| panic!("no case is called {wanted}"));
        run();
        return ExitCode::SUCCESS;
    }
    let trials = all().map(|(name, _)| {
        let shown = name.trim_start_matches("control_device::trials::");
        Trial::test(shown, move || in_child(name))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn in_child(name: &str) -> Result<(), Failed> {
    let output = Command::new(env::current_exe()?).env(CASE, OsStr::new(name)).output()?;
    if output.status.success() {
        return Ok(());
    }
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(format!("{}\n{text}{errors}", output.status).into())
}
