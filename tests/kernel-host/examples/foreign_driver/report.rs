//! What the runs came to: as text, as JSON and as JUnit, and the exit code.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use kernel_host::bugcheck::EXIT_CODE;
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};
use serde_json::{Value, json};

use crate::children::Finished;
use crate::faults::Faults;
use crate::program::{Unusable, Words, case_words, is_bugcheck};

/// So many failed runs are shown with everything they wrote.
const SHOWN_WHOLE: usize = 3;
/// How a command is named that starts this program.
const COMMAND: &str = "FOREIGN_DRIVER_COMMAND";

/// All runs of a driver.
pub struct Results<'words> {
    words: &'words Words,
    runs: Vec<Finished>,
    pub faults: Option<Faults>,
}

impl<'words> Results<'words> {
    pub fn new(words: &'words Words, runs: Vec<Finished>) -> Self {
        Self { words, runs, faults: None }
    }

    fn failed(&self) -> impl Iterator<Item = &Finished> {
        let faults = self.faults.iter().flat_map(|faults| &faults.failed);
        self.runs.iter().filter(|run| !run.is_good()).chain(faults)
    }

    /// 0 if all is well, a bugcheck's own, or 1.
    pub fn exit_code(&self) -> u8 {
        if self.failed().any(is_bugcheck) {
            return u8::try_from(EXIT_CODE).unwrap_or(1);
        }
        u8::from(self.failed().next().is_some())
    }

    /// Writes everything that is asked for.
    pub fn write(&self) -> Result<(), Unusable> {
        if let Some(file) = &self.words.run.junit {
            self.write_junit(file)?;
        }
        if self.words.run.json {
            println!("{}", self.as_json());
        } else {
            self.print();
        }
        Ok(())
    }

    /// The command that repeats a run.
    fn command(&self, run: &Finished) -> String {
        let words =
            case_words(self.words, &run.case).into_iter().map(|word| quoted(&word)).collect::<Vec<_>>().join(" ");
        let Words { provider, inx, driver, .. } = self.words;
        let files = format!("foreign_driver {} {} {}", provider.display(), inx.display(), driver.display());
        format!("{} {words}", std::env::var(COMMAND).unwrap_or(files))
    }

    fn print(&self) {
        // A single run has been shown while it ran.
        let several = self.runs.len() > 1 || self.faults.is_some();
        for (index, run) in self.failed().enumerate() {
            if several {
                println!("--- {} failed:", run.case.label);
                if index < SHOWN_WHOLE {
                    print!("{}", run.output);
                }
            }
        }
        if several {
            self.print_refusals();
        }
        let width = self.runs.iter().map(|run| run.case.label.chars().count()).max().unwrap_or(0);
        for run in &self.runs {
            println!("{:width$}  {}", run.case.label, verdict(run));
        }
        if let Some(faults) = &self.faults {
            print_faults(faults);
        }
        for run in self.failed() {
            println!("repeat: {}", self.command(run));
        }
        let (all, failed) = (self.runs.len(), self.runs.iter().filter(|run| !run.is_good()).count());
        println!("{}: {all} runs, {failed} failed", self.words.driver_name());
    }

    /// What was refused in all runs without a fault: what is alike is one line.
    fn print_refusals(&self) {
        let kinds = self.refusals();
        if !kinds.is_empty() {
            println!("refused, and why:");
        }
        for (kind, Count { times, runs }) in kinds {
            println!("  {kind}: {times} times in {runs} of {} runs", self.runs.len());
        }
    }

    fn refusals(&self) -> BTreeMap<String, Count> {
        let mut kinds: BTreeMap<String, Count> = BTreeMap::new();
        for run in &self.runs {
            let mut of_run: BTreeMap<String, u64> = BTreeMap::new();
            for refused in run.record["refused"].as_array().into_iter().flatten() {
                *of_run.entry(kind_of(refused)).or_default() += 1;
            }
            for (kind, times) in of_run {
                let count = kinds.entry(kind).or_default();
                count.times += times;
                count.runs += 1;
            }
        }
        kinds
    }

    fn as_json(&self) -> Value {
        let run = |run: &Finished| {
            json!({
                "case": run.case.label, "result": if run.is_good() { "passed" } else { "failed" }, "reasons": run.reasons,
                "bugcheck": run.bugcheck, "refused": run.record["refused"], "command": self.command(run),
            })
        };
        let faults = self.faults.as_ref().map(|faults| {
            let sites = faults.sites.iter().map(|(site, seen)| {
                json!({ "site": format!("{:#018x}", site.0), "export": seen.export, "met": seen.met, "stack": seen.stack })
            });
            json!({
                "case": faults.label, "sites": sites.collect::<Vec<_>>(), "runs": faults.runs, "met": faults.met,
                "failed": faults.failed.iter().map(run).collect::<Vec<_>>(),
            })
        });
        json!({
            "driver": self.words.driver_name(), "runs": self.runs.iter().map(run).collect::<Vec<_>>(), "faults": faults,
            "failed": self.failed().count(),
        })
    }

    fn write_junit(&self, file: &Path) -> Result<(), Unusable> {
        let name = self.words.driver_name();
        let mut suite = TestSuite::new(&name);
        let good = self.runs.iter().filter(|run| run.is_good());
        for run in good.chain(self.failed()) {
            suite.add_test_case(self.test_case(run));
        }
        if let Some(faults) = self.faults.as_ref().filter(|faults| faults.failed.is_empty()) {
            let passed = format!("{} faults at {} call sites, {}", faults.met, faults.sites.len(), faults.label);
            suite.add_test_case(TestCase::new(passed, TestCaseStatus::success()));
        }
        let mut report = quick_junit::Report::new(name);
        report.add_test_suite(suite);
        let text = report.to_string()?;
        std::fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        Ok(())
    }

    fn test_case(&self, run: &Finished) -> TestCase {
        let mut status = TestCaseStatus::success();
        if !run.is_good() {
            status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(run.reasons.join("; ")).set_description(self.command(run));
        }
        let mut case = TestCase::new(&run.case.label, status);
        case.set_classname(self.words.driver_name());
        if !run.is_good() {
            case.set_system_out(&run.output);
        }
        case
    }
}

#[derive(Default)]
struct Count {
    times: u64,
    runs: usize,
}

/// A refusal without what differs between runs: numbers of objects and contexts.
fn kind_of(refused: &Value) -> String {
    let word = |name: &str| refused[name].as_str().unwrap_or_default();
    let object = word("object").split(['#', ' ']).next().unwrap_or_default();
    let how = word("how").split(" with RequestContext").next().unwrap_or_default();
    let mut text = format!("{} of {object} {how} {}", word("call"), word("status"));
    if let Some(cause) = refused["cause"].as_str() {
        let _ = write!(text, ", because {cause}");
    }
    if let Some(rule) = refused["rule"].as_str() {
        let _ = write!(text, " [{rule}]");
    }
    if let Some(place) = refused["place"].as_str() {
        let _ = write!(text, "  by {place}");
    }
    text
}

fn verdict(run: &Finished) -> String {
    if run.is_good() { "passed".to_owned() } else { format!("FAILED  {}", run.reasons.join("; ")) }
}

fn print_faults(faults: &Faults) {
    let Faults { label, sites, runs, met, failed } = faults;
    let missed = sites.values().filter(|seen| !seen.met).count();
    println!(
        "faults, {label}: {} call sites ({missed} not met again), {runs} runs, {met} with a fault, {} failed",
        sites.len(),
        failed.len()
    );
    for run in failed {
        println!("  {}  {}", run.case.label, verdict(run));
        let seen = run.case.fault.and_then(|fault| sites.get(&fault.site));
        seen.into_iter().flat_map(|seen| &seen.stack).for_each(|frame| println!("      {frame}"));
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=.:/,*%+@".contains(letter);
    if !word.is_empty() && word.chars().all(|letter| plain(letter) && letter != '*') {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
