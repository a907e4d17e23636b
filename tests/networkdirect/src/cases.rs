//! Cases, each in a process of its own: a process has one kernel, and a bugcheck ends it. The child is the same binary again, with the
//! case's name in the environment. Without an image every case fails and says how to build one.

use crate::machine::{PROCESSORS, across_streams};
use libtest_mimic::{Arguments, Failed, Trial};
use std::env;
use std::ffi::OsStr;
use std::process::{Command, ExitCode};
use std::sync::Mutex;

/// Makes a case that passes say what it has to say.
const SHOW: &str = "SOFTNDK_NETWORKDIRECT_SHOW";

/// Suites that are long and have nothing to do with doorbells.
const UNPOLLED: [&str; 2] = ["faults::", "hostile_requests::"];

const WAITS: &str = "no Send waits for its receive";

/// What a peer across a stream cannot keep, and why.
const NOT_ACROSS_STREAMS: &[(&str, &str)] = &[
    ("completions::a_send_waits_as_long_as_the_adapter_says", WAITS),
    ("completions::a_send_without_a_receive_times_out", WAITS),
    ("completions::everything_outstanding_is_cancelled_in_order", WAITS),
    ("completions::silent_requests_tell_of_their_failure", "a Write that is refused has succeeded before"),
    ("immediate::", "no message that every peer knows brings immediate data"),
    ("limits::connectors_of_loopback_are_charged_without", "makes them across streams"),
    ("shared_receives::an_empty_queue_is_waited_for_without_end", WAITS),
    ("shared_receives::receives_of_a_shared_queue_go_to_its_queue_pairs", WAITS),
    ("together::an_answer_comes_after_the_send_that_it_answers", "looks inside the call that posts"),
    ("values::a_queue_pair_with_shared_receives_has_each_number_in_its_place", WAITS),
    ("values::each_flag_of_a_request_alone", "brings immediate data"),
    ("values::every_number_of_a_queue_pair_is_that_of_its_name", WAITS),
    ("values::receives_and_requests_have_a_completion_queue_each", WAITS),
    ("version1::transfers::batches_wait_for_their_submission", "what comes from the peer has a queue pair look"),
];

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

/// What a case notes for the end of the suite: its name and a line.
pub type Note = (&'static str, String);

/// Before each note in the output of a child.
const NOTE: &str = "note\t";

static NOTES: Mutex<Vec<Note>> = Mutex::new(Vec::new());

/// Runs the cases that the command line asks for, or the one that the environment names. `prepare` is called once, before any child;
/// `notes` gives the lines that a case has noted; `conclude` gets those of all cases, in the order of the suites, when all have passed.
pub fn run(
    suites: &'static [&'static [Case]],
    prepare: impl FnOnce(),
    notes: impl FnOnce() -> Vec<String>,
    conclude: impl FnOnce(&[Note]) -> Result<(), String>,
) -> ExitCode {
    let all = || suites.iter().copied().flatten().copied();
    if let Ok(wanted) = env::var(CASE) {
        let (_, run) = all().find(|(name, _)| *name == wanted).unwrap_or_else(|| panic!("no case is called {wanted}"));
        run();
        for line in notes() {
            println!("{NOTE}{line}");
        }
        return ExitCode::SUCCESS;
    }
    prepare();
    let is_out = |name: &'static str| {
        across_streams() && NOT_ACROSS_STREAMS.iter().any(|(listed, _reason)| shown(name).starts_with(listed))
    };
    let plain =
        all().map(|(name, _)| Trial::test(shown(name), move || in_child(name, false)).with_ignored_flag(is_out(name)));
    let polled = all().filter(|(name, _)| !UNPOLLED.iter().any(|suite| shown(name).starts_with(suite)));
    let polled = polled.map(|(name, _)| {
        let trial = Trial::test(format!("polled::{}", shown(name)), move || in_child(name, true));
        trial.with_ignored_flag(is_out(name))
    });
    let trials: Vec<_> = plain.chain(polled).collect();
    let count = trials.len() as u64;
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    if conclusion.num_passed < count {
        return conclusion.exit_code();
    }
    let mut of_all = std::mem::take(&mut *NOTES.lock().expect("no case panics with it"));
    of_all.sort_by_key(|(name, _)| all().position(|(other, _)| shown(other) == *name));
    match conclude(&of_all) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// A case's name without the modules that all cases of a suite are in.
fn shown(name: &'static str) -> &'static str {
    name.split_once("::trials::").map_or(name, |(_, shown)| shown)
}

/// `polled`: on a machine whose driver polls the rings. What such a case notes is that of the same case without.
fn in_child(name: &'static str, polled: bool) -> Result<(), Failed> {
    let mut child = Command::new(env::current_exe()?);
    child.env(CASE, OsStr::new(name));
    if polled {
        child.env(PROCESSORS, "4");
    }
    let output = child.output()?;
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() {
        let lines = text.lines().filter_map(|line| line.strip_prefix(NOTE)).filter(|_| !polled);
        NOTES.lock().expect("as above").extend(lines.map(|line| (shown(name), line.to_owned())));
        if env::var_os(SHOW).is_some() {
            print!("{text}");
        }
        return Ok(());
    }
    Err(format!("{}\n{text}{errors}", output.status).into())
}
