//! Cases, each in a process of its own: a process has one kernel, and a bugcheck ends it. The child is the same binary again, with the
//! case's name in the environment. Without an image every case fails and says how to build one.

use libtest_mimic::{Arguments, Failed, Trial};
use std::env;
use std::ffi::OsStr;
use std::process::{Command, ExitCode};

/// Makes a case that passes say what it has to say.
const SHOW: &str = "SOFTNDK_NETWORKDIRECT_SHOW";

/// Names the case that a child process runs.
const CASE: &str = "SOFTNDK_NETWORKDIRECT_CASE";

/// A case: what it shows, and how.
pub type Case = (&'static str, fn());

/// Lists functions as cases under their own names.
#[macro_export]
macro_rules! cases {
    ($($function:ident),+ $(,)?) => {
        &[$((concat!(module_path!(), "::", stringify!($function)), $function as fn())),+]
    };
}

/// Runs the cases that the command line asks for, or the one that the environment names. `prepare` is called once, before any child.
pub fn run(suites: &'static [&'static [Case]], prepare: impl FnOnce()) -> ExitCode {
    let all = || suites.iter().copied().flatten().copied();
    if let Ok(wanted) = env::var(CASE) {
        let (_, run) = all().find(|(name, _)| *name == wanted).unwrap_or_else(|| panic!("no case is called {wanted}"));
        run();
        return ExitCode::SUCCESS;
    }
    prepare();
    let trials = all().map(|(name, _)| Trial::test(shown(name), move || in_child(name)));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// A case's name without the modules that all cases of a suite are in.
fn shown(name: &str) -> &str {
    name.split_once("::trials::").map_or(name, |(_, shown)| shown)
}

fn in_child(name: &str) -> Result<(), Failed> {
    let output = Command::new(env::current_exe()?).env(CASE, OsStr::new(name)).output()?;
    if output.status.success() {
        if env::var_os(SHOW).is_some() {
            print!("{}", String::from_utf8_lossy(&output.stdout));
        }
        return Ok(());
    }
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(format!("{}\n{text}{errors}", output.status).into())
}
