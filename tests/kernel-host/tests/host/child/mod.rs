//! Trials in child processes, since there is one kernel per process and a bugcheck ends it.

use std::process::{Command, Output};
use std::sync::OnceLock;

use kernel_host::bugcheck::{EXIT_CODE, REPORT_PREFIX};

const CHILD: &str = "KERNEL_HOST_TRIAL";

/// How a trial ended.
pub struct Outcome {
    output: Output,
}

/// Runs the body in a child process: the test starts its own binary again for this one test. What it needs is made first,
/// by the parent.
pub fn in_child(test: &str, make: impl FnOnce(), body: impl FnOnce()) -> Option<Outcome> {
    static STARTED: OnceLock<()> = OnceLock::new();
    if std::env::var(CHILD).is_ok_and(|name| name == test) {
        assert!(STARTED.set(()).is_ok(), "one trial a process");
        body();
        return None;
    }
    make();
    Some(run(test, &[]))
}

/// Runs the body in a child process, where it has to end well.
pub fn passes_in_child(test: &str, body: fn()) {
    if let Some(outcome) = in_child(test, || {}, body) {
        outcome.expect_success();
    }
}

/// Runs a test again in a child with a value in its environment.
pub fn in_child_with(test: &str, environment: &[(&str, &str)]) -> Outcome {
    run(test, environment)
}

/// The name of a test with its modules, which the test does not know.
fn full_name(test: &str) -> String {
    static ALL: OnceLock<String> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let program = std::env::current_exe().expect("a test binary has a path");
        let list = Command::new(program).arg("--list").output().expect("a test binary starts");
        String::from_utf8(list.stdout).expect("names are text")
    });
    let names = all.lines().filter_map(|line| line.strip_suffix(": test"));
    let is_it =
        |name: &&str| name.strip_suffix(test).is_some_and(|modules| modules.is_empty() || modules.ends_with("::"));
    let mut found = names.filter(is_it);
    let name = found.next().unwrap_or_else(|| panic!("no test has the name {test}"));
    assert_eq!(found.next(), None, "two tests have the name {test}");
    name.to_owned()
}

fn run(test: &str, environment: &[(&str, &str)]) -> Outcome {
    let program = std::env::current_exe().expect("a test binary has a path");
    let output = Command::new(program)
        .args(["--exact", &full_name(test), "--nocapture", "--test-threads=1"])
        .env(CHILD, test)
        .envs(environment.iter().copied())
        .output()
        .expect("a test binary starts");
    Outcome { output }
}

impl Outcome {
    pub fn text(&self) -> String {
        format!("{}{}", String::from_utf8_lossy(&self.output.stdout), String::from_utf8_lossy(&self.output.stderr))
    }

    pub fn expect_success(&self) {
        assert!(self.output.status.success(), "{}", self.text());
    }

    /// The child failed with these words.
    pub fn expect_failure(&self, words: &str) {
        assert!(!self.output.status.success(), "it ended well");
        self.expect_output(words);
    }

    /// The report of the bugcheck that ended the child.
    pub fn expect_bugcheck(&self) -> serde_json::Value {
        let text = self.text();
        assert_eq!(self.output.status.code(), Some(EXIT_CODE), "{text}");
        let line = text.lines().find_map(|line| line.strip_prefix(REPORT_PREFIX));
        serde_json::from_str(line.expect("a report")).expect("the report is JSON")
    }

    /// How many lines of the output have all of these words.
    pub fn lines_with(&self, wanted: &[&str]) -> usize {
        self.text().lines().filter(|line| wanted.iter().all(|words| line.contains(words))).count()
    }

    pub fn expect_output(&self, wanted: &str) {
        let text = self.text();
        assert!(text.contains(wanted), "no {wanted:?} in:\n{text}");
    }
}
