//! The processes that a process has started, with all that those started: what they have used of the processors, and how they are ended
//! together.
//!
//! A process group does not have all of them, because test runners and compilers begin groups of their own. Read from proc(5); where the
//! system has none, a process counts as one without children.

#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, thread, time::Duration};

/// One line of the table of processes.
struct Process {
    number: u32,
    parent: u32,
    /// It has ended, and was not waited for.
    has_ended: bool,
    /// Of itself, and of its children that have ended.
    seconds: f64,
}

impl Process {
    fn read(number: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        // The second field, in parentheses, may have spaces. Behind it: the state, the parent; from the 14th field of all on four times in
        // hundredths of a second.
        let fields: Vec<_> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let parent = fields.get(1)?.parse().ok()?;
        let seconds = fields.iter().skip(11).take(4).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0;
        Some(Self { number, parent, has_ended: fields[0] == "Z", seconds })
    }

    fn runs(number: u32) -> bool {
        Self::read(number).is_some_and(|process| !process.has_ended)
    }

    fn all() -> Vec<Self> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| Self::read(entry.file_name().to_str()?.parse().ok()?)).collect()
    }
}

/// What runs below a process.
fn below(root: u32) -> Vec<Process> {
    let (mut found, mut rest) = (Vec::new(), Process::all());
    let mut parents = vec![root];
    while !parents.is_empty() {
        let (children, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|one| parents.contains(&one.parent));
        parents = children.iter().map(|child| child.number).collect();
        (found, rest) = (found.into_iter().chain(children).collect(), others);
    }
    found
}

/// Seconds of the processors of a process, and of its children that have ended.
pub(crate) fn seconds_of(process: u32) -> f64 {
    Process::read(process).map_or(0.0, |process| process.seconds)
}

/// Seconds of the processors: of a process, of what runs below it, and of what has ended there.
pub(crate) fn seconds(root: u32) -> f64 {
    seconds_of(root) + below(root).iter().map(|process| process.seconds).sum::<f64>()
}

/// Ends a process of this one and all below it.
pub(crate) fn end(root: u32) {
    end_all(|| below(root).into_iter().map(|process| process.number).chain([root]).collect(), 1);
}

/// Ends all that this process has started, on a signal too; then this process, which has no time to begin anything else.
#[cfg(target_os = "linux")]
pub fn end_with_children_on_signals() {
    // What loses its parent becomes a child of this process, and so stays below it.
    let _ = nix::sys::prctl::set_child_subreaper(true);
    let end = || {
        ENDING.store(true, Ordering::SeqCst);
        let own = std::process::id();
        // The main thread may be about to begin the next one.
        end_all(|| below(own).into_iter().map(|process| process.number).collect(), 3);
        std::process::exit(INTERRUPTED);
    };
    ctrlc::set_handler(end).expect("the only handler of this program");
}

#[cfg(target_os = "linux")]
static ENDING: AtomicBool = AtomicBool::new(false);

/// Never returns when a signal has come: what this thread has seen since is the end of its children, and no result.
#[cfg(target_os = "linux")]
pub fn wait_for_the_end_on_a_signal() {
    while ENDING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// As shells say it of a program that an interruption has ended.
#[cfg(target_os = "linux")]
const INTERRUPTED: i32 = 130;

/// Kills what is listed until so many lists in a row have nothing that runs.
fn end_all(list: impl Fn() -> Vec<u32>, empty_lists: u32) {
    let mut empty = 0;
    while empty < empty_lists {
        let running: Vec<_> = list().into_iter().filter(|number| Process::runs(*number)).collect();
        empty = if running.is_empty() { empty + 1 } else { 0 };
        running.into_iter().for_each(kill);
        thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(target_os = "linux")]
fn kill(number: u32) {
    use nix::{
        sys::signal::{self, Signal},
        unistd::Pid,
    };
    if let Ok(number) = i32::try_from(number) {
        // It may have ended meanwhile.
        let _ = signal::kill(Pid::from_raw(number), Signal::SIGKILL);
    }
}

#[cfg(not(target_os = "linux"))]
fn kill(_: u32) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::{
        io::{BufRead, BufReader},
        process::{Child, Command, Stdio},
    };

    /// Begins a shell; what it says in its first line.
    fn shell(script: &str) -> (Child, Vec<u32>) {
        let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (child, line.split_whitespace().map(|word| word.parse().unwrap()).collect())
    }

    #[test]
    fn child_in_a_group_and_session_of_its_own_ends_with_the_others() {
        let (mut child, started) =
            shell("sleep 600 >/dev/null & one=$!; setsid sleep 600 >/dev/null & echo $one $!; wait");
        assert_eq!(started.len(), 2);
        assert!(started.iter().all(|number| Process::runs(*number)));
        end(child.id());
        assert!(!started.iter().any(|number| Process::runs(*number)));
        assert!(!child.wait().unwrap().success());
    }

    /// What it used is known until it is waited for.
    #[test]
    fn seconds_of_one_that_has_ended_are_there() {
        let (mut child, _) = shell("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo 1");
        while Process::runs(child.id()) {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(seconds_of(child.id()) > 0.0);
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn seconds_are_those_of_the_running_and_of_the_ended() {
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        // The shell's child has ended; in the other the shell's child runs on.
        for script in [format!("sh -c '{busy}'; echo 1; sleep 600"), format!("sh -c '{busy}; echo 1; sleep 600'; :")] {
            let (mut child, _) = shell(&script);
            assert!(seconds(child.id()) > 0.0, "{script}");
            end(child.id());
            child.wait().unwrap();
        }
    }
}
