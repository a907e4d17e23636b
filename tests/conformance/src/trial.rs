//! Trials: each runs in a child process, because a bugcheck ends the process it happens in.
//!
//! The parent lists and filters like any test binary; for each trial it starts itself again with the trial's name in
//! the environment, waits with a limit, and judges by exit code and output. The child runs the one function and nothing
//! else. This module does not depend on the kernel host; `outcome` parses bugcheck reports.

use std::env;
use std::ffi::OsStr;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};

use crate::outcome::Outcome;
use crate::peers;

/// Names the trial that a child process runs.
pub(crate) const CHILD: &str = "SOFTNDK_TRIAL";

/// Names the profile of limits that adapters have in this run.
const LIMITS: &str = "SOFTNDK_LIMITS";

/// Names where pages of logical mappings are: `scattered`.
const LOGICAL_PAGES: &str = "SOFTNDK_LOGICAL_PAGES";

/// Real time after which a child is killed. Time in the kernel host is virtual, so a sound trial takes seconds,
/// on a busy machine minutes; a kernel in which nothing can happen any more ends itself before.
const LIMIT: Duration = Duration::from_mins(10);

/// One trial: a name that says what and when, the rules it checks (tags of `docs/rules.md`), and what the child does.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub rules: &'static [&'static str],
    /// The profiles of limits that are too small for the trial and the order of logical pages in which they do not adjoin, by the
    /// names of `docs/registry.md`, and the peers with which what it looks at is not there.
    pub not_in: &'static [&'static str],
    pub run: fn(),
}

impl Case {
    /// Whether the trial is for the limits, the pages and the peers that the environment names.
    fn applies(&self) -> bool {
        let named = |variable, profile| env::var(variable).as_deref() == Ok(profile);
        let variables = [LIMITS, LOGICAL_PAGES, peers::VARIABLE];
        self.not_in.iter().all(|profile| variables.iter().all(|variable| !named(variable, profile)))
    }
}

/// Declares a [`Case`] from a function and the tags of the rules it checks; `; not in tiny` after them says which limits are
/// too narrow for it, `; not in scattered` that it merges pages, `; not in stream` that a peer across a stream cannot keep it.
#[macro_export]
macro_rules! case {
    ($function:ident: $($rule:literal),+ $(,)?) => {
        $crate::trial::Case { name: stringify!($function), rules: &[$($rule),+], not_in: &[], run: $function }
    };
    ($function:ident: $($rule:literal),+; not in $($profile:ident),+ $(,)?) => {
        $crate::trial::Case {
            name: stringify!($function),
            rules: &[$($rule),+],
            not_in: &[$(stringify!($profile)),+],
            run: $function,
        }
    };
}

/// What the environment calls the trial of this process, if it is a child.
pub fn child_name() -> Option<String> {
    env::var(CHILD).ok()
}

/// Runs the child named in the environment, if this process is one; else returns.
pub fn become_child(find: impl FnOnce(&str) -> Option<fn()>) {
    let Some(name) = child_name() else { return };
    let run = find(&name).unwrap_or_else(|| panic!("no trial is called {name}"));
    run();
    std::process::exit(0);
}

/// Starts this binary again as the child of one trial and waits for it.
pub fn in_child(name: &str, environment: &[(&str, &OsStr)]) -> Result<Outcome, Failed> {
    let mut command = Command::new(env::current_exe()?);
    command.env(CHILD, name).envs(environment.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let output = collect(child.stdout.take());
    let errors = collect(child.stderr.take());
    let status = wait(&mut child);
    let mut text = output.join().unwrap_or_default();
    text.push_str(&errors.join().unwrap_or_default());
    match status? {
        Some(status) => Ok(Outcome::new(status, text)),
        None => Err(format!("no end after {} s; output so far:\n{text}", LIMIT.as_secs()).into()),
    }
}

/// Reads a pipe to its end beside the wait, so that a child with much output never blocks.
pub(crate) fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before an error is all there is to report.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait(child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
    wait_or_kill(child, || false)
}

/// Waits for a child's end, or kills the child on request; `None` after the limit.
pub(crate) fn wait_or_kill(child: &mut Child, is_wanted: impl Fn() -> bool) -> std::io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if is_wanted() {
            child.kill()?;
            return child.wait().map(Some);
        }
        if start.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The whole of a test binary made of plain cases: each must end with exit code 0 in its child.
pub fn main(suites: &[(&'static str, &'static [Case])]) -> ! {
    let all = || {
        suites
            .iter()
            .flat_map(|(suite, cases)| cases.iter().map(move |case| (format!("{suite}::{}", case.name), *case)))
    };
    become_child(|name| all().find_map(|(full, case)| (full == name).then_some(case.run)));
    let trials = all()
        .map(|(name, case)| {
            let child = name.clone();
            Trial::test(name, move || in_child(&child, &[])?.expect_success()).with_ignored_flag(!case.applies())
        })
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit()
}
