//! Runs in processes of their own, since there is one kernel a process and a bugcheck ends it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use kernel_host::bugcheck::{EXIT_CODE, REPORT_PREFIX};
use serde_json::Value;

use crate::case::Case;
use crate::program::{Unusable, Words, case_words};

/// Set in a child; with this value it also records the driver's calls that may fail.
pub const CHILD: &str = "FOREIGN_DRIVER_CHILD";
pub const RECORD_SITES: &str = "sites";
/// How a child's line for its parent begins.
pub const RECORD_PREFIX: &str = "FOREIGN-DRIVER-RUN ";

/// Exit code of a child that could not begin.
const UNUSABLE: i32 = 2;

/// A case that has run.
#[derive(Clone, Debug)]
pub struct Finished {
    pub case: Case,
    /// Why it failed; empty when it was good.
    pub reasons: Vec<String>,
    /// The report of its bugcheck.
    pub bugcheck: Option<Value>,
    /// What the child said of itself; nothing after a bugcheck.
    pub record: Value,
    /// Everything that it wrote.
    pub output: String,
}

impl Finished {
    pub fn is_good(&self) -> bool {
        self.reasons.is_empty()
    }
}

/// Runs cases, as many at a time as there are processors; `live` shows what they write as they write it.
pub fn run_all(words: &Words, cases: &[Case], live: bool) -> Result<Vec<Finished>, Unusable> {
    let finished: Mutex<Vec<(usize, Result<Finished, Unusable>)>> = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(index) else { break };
            let result = run(words, case, live);
            finished.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((index, result));
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(cases.len());
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let mut finished = finished.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    finished.sort_by_key(|(index, _)| *index);
    finished.into_iter().map(|(_, result)| result).collect()
}

fn run(words: &Words, case: &Case, shows: bool) -> Result<Finished, Unusable> {
    // Not by its name: a build beside this run may replace the file of that name.
    let mut command = Command::new("/proc/self/exe");
    command.args([&words.provider, &words.inx, &words.driver]).arg("--in-process").args(case_words(words, case));
    let what = if words.run.faults { RECORD_SITES } else { "run" };
    command.env(CHILD, what).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let show = move |line: &str, is_error: bool| match (shows, is_error || words.run.json) {
        (false, _) => {}
        (true, false) => println!("{line}"),
        (true, true) => eprintln!("{line}"),
    };
    let mut record = Value::Null;
    let (mut text, errors) = std::thread::scope(|scope| {
        let errors = scope.spawn(move || errors.map_or_else(String::new, |pipe| read(pipe, |line| show(line, true))));
        let text = output.map_or_else(String::new, |pipe| {
            read(pipe, |line| match line.strip_prefix(RECORD_PREFIX) {
                Some(line) => record = serde_json::from_str(line).unwrap_or_default(),
                None => show(line, false),
            })
        });
        (text, errors.join().unwrap_or_default())
    });
    let status = child.wait()?;
    if status.code() == Some(UNUSABLE) {
        return Err(errors.trim().trim_start_matches("error: ").to_owned().into());
    }
    let bugcheck = errors.lines().find_map(|line| line.strip_prefix(REPORT_PREFIX));
    let bugcheck = bugcheck.and_then(|line| serde_json::from_str(line).ok());
    text = text
        .lines()
        .filter(|line| !line.starts_with(RECORD_PREFIX))
        .fold(String::new(), |text, line| text + line + "\n");
    let reasons = reasons(status, &record, bugcheck.as_ref());
    Ok(Finished { case: case.clone(), reasons, bugcheck, record, output: errors + &text })
}

/// Everything from a pipe, of which each line is shown as it comes.
fn read(pipe: impl Read, mut show: impl FnMut(&str)) -> String {
    let mut text = String::new();
    // What was read before an error is all there is.
    for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        show(&line);
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// A rule in a line: its first one, and what a hang most likely comes from.
fn shortened(rule: &str) -> String {
    let mut lines = rule.lines().map(str::trim);
    let first = lines.next().unwrap_or_default().trim_end_matches(':');
    let hint = lines.skip_while(|line| *line != "look here first:").nth(1);
    hint.map_or_else(|| first.to_owned(), |hint| format!("{first}: {hint}"))
}

/// Why a child's run is not good.
fn reasons(status: ExitStatus, record: &Value, bugcheck: Option<&Value>) -> Vec<String> {
    if let Some(bugcheck) = bugcheck {
        let word = |name: &str| bugcheck[name].as_str().unwrap_or_default();
        return vec![format!("bugcheck {}: {}", word("name"), shortened(word("rule")))];
    }
    let said = record["reasons"].as_array().cloned().unwrap_or_default();
    let said: Vec<String> = said.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if status.success() || !said.is_empty() {
        return said;
    }
    let how =
        if status.code() == Some(EXIT_CODE) { "in a bugcheck without a report".to_owned() } else { status.to_string() };
    vec![format!("its process ended early: {how}")]
}
