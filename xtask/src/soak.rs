//! `cargo xtask soak`: the long runs, which `cargo xtask test` has no time for, and their last results.
//!
//! What repeats the contract stands here: every combination of profiles, orders of threads, coverage, faults on the optimised image,
//! random runs in large numbers, mutants. Each step is a command of its own. Its result goes to `target/soak/results.json`, with
//! the commit and the date, as soon as it is there; `--record` puts what is in that file into the table of `docs/evidence.md`.

use crate::{
    arch::Arch,
    command, commit,
    driver::{self, Profile},
    setup,
    stages::{self, Program, Stage, StageEnd, StageOutcome, StageRunner},
    test::FORCED_FAULTS,
    test_log::{Totals, totals},
    workspace::{Workspace, write_if_changed},
};
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Run what takes hours, and keep the results.
#[derive(clap::Args)]
pub struct SoakArguments {
    /// Run only these steps
    steps: Vec<String>,

    /// Name the steps and do nothing
    #[arg(long)]
    list: bool,

    /// Run nothing: write the last results into the table of docs/evidence.md
    #[arg(long, conflicts_with_all = ["steps", "list"])]
    record: bool,
}

/// Makes cases of user-mode NetworkDirect that pass say their totals.
const SHOW_CASES: (&str, &str) = ("SOFTNDK_NETWORKDIRECT_SHOW", "1");

pub(crate) const STEPS: &[Stage] = &[
    Stage {
        name: "coverage",
        shows: "tests run through as many lines and branches of driver and engine as before",
        program: Program::Xtask,
        words: &["coverage"],
        environment: &[],
        processor_seconds: 1800,
    },
    Stage {
        name: "release-control",
        shows: "the control device's cases hold for the optimised image",
        program: Program::Cargo,
        words: &["test", "--locked", "--test", "control_device"],
        environment: &[("SOFTNDK_IMAGE", "target/driver/x64/release/softndk.sys")],
        processor_seconds: 1200,
    },
    Stage {
        name: "forced-control",
        shows: "the control device's faults hold where every call pends, where none does, and across streams",
        program: Program::Cargo,
        words: &["test", "--locked", "--test", "control_device", FORCED_FAULTS],
        environment: &[],
        processor_seconds: 1200,
    },
    Stage {
        name: "conformance",
        shows: "the contract holds for the optimised image in all nine combinations of asynchrony and limits",
        program: Program::Xtask,
        words: &["conformance", "--release"],
        environment: &[],
        processor_seconds: 3600,
    },
    Stage {
        name: "far",
        shows: "it holds in all nine when only messages reach the other end of each connection, late",
        program: Program::Xtask,
        words: &["conformance", "--streams"],
        environment: &[],
        processor_seconds: 3600,
    },
    Stage {
        name: "schedules",
        shows: "the trials with threads at once hold in the orders of twenty seeds",
        program: Program::Xtask,
        words: &[
            "conformance",
            "--schedule",
            "1..20",
            "race::",
            "callback::",
            "close_order::",
            "completion_queue::",
            "resize::",
            "sharing::",
        ],
        environment: &[],
        processor_seconds: 3600,
    },
    Stage {
        name: "verify",
        shows: "every allocation fails once, twice and last, in every scenario and completion mode, and nothing is left",
        program: Program::Xtask,
        words: &["verify", "--release"],
        environment: &[],
        processor_seconds: 3600,
    },
    Stage {
        name: "stress",
        shows: "ten minutes of many consumers at once, while adapters go and come and memory is short",
        program: Program::Xtask,
        words: &["stress", "--minutes", "10"],
        environment: &[],
        processor_seconds: 1800,
    },
    Stage {
        name: "stress-streams",
        shows: "the same across streams, where a shortage breaks connections and success is no arrival",
        program: Program::Xtask,
        words: &["stress", "--minutes", "10", "--", "--keyword", "Transport=2"],
        environment: &[],
        processor_seconds: 1800,
    },
    Stage {
        name: "wine",
        shows: "softnd.dll loads and answers without a driver, and ndkctl.exe runs, in Wine",
        program: Program::Xtask,
        words: &["wine"],
        environment: &[],
        processor_seconds: 600,
    },
    Stage {
        name: "nd-rings",
        shows: "ten million changes of the rings of hostile user-mode processes, most while the driver takes entries, end their own queue pairs only",
        program: Program::Xtask,
        words: &["networkdirect", "hostile_rings::"],
        environment: &[("SOFTNDK_RING_MUTATIONS", "10000000"), SHOW_CASES],
        processor_seconds: 1800,
    },
    Stage {
        name: "nd-requests",
        shows: "three hundred thousand requests of hostile user-mode processes leave others and the driver alone",
        program: Program::Xtask,
        words: &["networkdirect", "hostile_requests::"],
        environment: &[("SOFTNDK_REQUESTS", "300000"), SHOW_CASES],
        processor_seconds: 1800,
    },
    Stage {
        name: "nd-kills",
        shows: "a thousand user-mode processes killed at any point leave nothing",
        program: Program::Xtask,
        words: &["networkdirect", "kills::"],
        environment: &[("SOFTNDK_KILLS", "1000"), SHOW_CASES],
        processor_seconds: 1800,
    },
    Stage {
        name: "nd-faults",
        shows: "every allocation of two user-mode programs fails at its first and its last hit, and nothing is left",
        program: Program::Xtask,
        words: &["networkdirect", "faults::"],
        environment: &[("SOFTNDK_ALL_FAULTS", "1"), SHOW_CASES],
        processor_seconds: 1800,
    },
    Stage {
        name: "nd-far",
        shows: "the cases of user-mode NetworkDirect hold when only messages reach the other end of each connection, late",
        program: Program::Xtask,
        words: &["networkdirect", "--streams"],
        environment: &[],
        processor_seconds: 1800,
    },
    Stage {
        name: "machines",
        shows: "a billion bytes between two kernel hosts, each compared, while sockets cut and stall and one call in a hundred fails",
        program: Program::Cargo,
        words: &["test", "--locked", "--test", "machines", "bytes_are_moved_while_calls_fail"],
        environment: &[("SOFTNDK_BYTES", "1000000000")],
        processor_seconds: 900,
    },
    Stage {
        name: "interop",
        shows: "connections with siw of Linux carry equal bytes; Wireshark finds no fault",
        program: Program::Xtask,
        words: &["interop"],
        environment: &[],
        processor_seconds: 1800,
    },
    Stage {
        name: "fuzz",
        shows: "two minutes of libFuzzer on each thing that takes bytes from outside, from the seeds on",
        program: Program::Xtask,
        words: &["fuzz", "--seconds", "120"],
        environment: &[],
        processor_seconds: 1800,
    },
    Stage {
        name: "oracle",
        shows: "fifty million operations on the engine beside the model",
        program: Program::Xtask,
        words: &["oracle", "--operations", "50000000", "--seed", "22", "--column", "ndk"],
        environment: &[],
        processor_seconds: 3600,
    },
    Stage {
        name: "seeded-bugs",
        shows: "every seeded bug turns its tests red",
        program: Program::Xtask,
        words: &["seeded-bugs"],
        environment: &[],
        processor_seconds: 7200,
    },
    Stage {
        name: "mutants",
        shows: "an eightieth of the small changes of engine and cells, chosen by the commit, is noticed by a test",
        program: Program::Xtask,
        words: &["mutants", "--shard", "commit/80"],
        environment: &[],
        processor_seconds: 9000,
    },
    Stage {
        name: "driver-mutants",
        shows: "so is a sixteenth of those of the driver's layer, by the trials through the image",
        program: Program::Xtask,
        words: &["mutants", "--package", "driver", "--shard", "commit/16"],
        environment: &[],
        processor_seconds: 9000,
    },
    Stage {
        name: "nd-mutants",
        shows: "so is a thirty-second of those of the driver's side of user-mode NetworkDirect",
        program: Program::Xtask,
        words: &["mutants", "--package", "nd", "--shard", "commit/32"],
        environment: &[],
        processor_seconds: 9000,
    },
    Stage {
        name: "repeat",
        shows: "every suite passes beside a busy machine, as it does in `cargo xtask test` on the machine as it is",
        program: Program::Xtask,
        words: &["repeat", "--times", "1", "--load", "busy"],
        environment: &[],
        processor_seconds: 9000,
    },
];

/// Steps that are one command of cargo's: what came out are the totals of its test binaries.
const TESTS: &[&str] = &["release-control", "forced-control"];

/// How the lines of a step's output begin that say what came out; the last of each counts. Of other steps it is the last of all.
const RESULTS: &[(&str, &[&str])] = &[
    ("coverage", &["all "]),
    ("conformance", &["conformance: "]),
    ("far", &["conformance: "]),
    ("schedules", &["schedules "]),
    ("verify", &["verify: "]),
    ("stress", &["steady: ", "chaos: ", "NDK switched off "]),
    ("stress-streams", &["steady: ", "chaos: ", "NDK switched off "]),
    ("nd-rings", &["rings: "]),
    ("nd-requests", &["requests: "]),
    ("nd-kills", &["kills: "]),
    ("nd-faults", &["faults: "]),
    ("nd-far", &["networkdirect: "]),
    ("machines", &["moved: "]),
    ("interop", &["interop: "]),
    ("fuzz", &["fuzz: "]),
    ("oracle", &["oracle: "]),
    ("repeat", &["repeat: "]),
];

pub fn run(arguments: &SoakArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    if arguments.record {
        return record(&workspace);
    }
    let mut runner = StageRunner::new(&workspace, "target/soak")?;
    let all: Vec<_> = STEPS.iter().collect();
    if arguments.list {
        stages::list(&all, &runner);
        return Ok(());
    }
    let steps = stages::chosen(&all, &arguments.steps, "soak")?;
    setup::run(&setup::SetupArguments { quiet: true })?;
    let commit = commit::checked_out(&workspace)?;
    // The other commands build what they load.
    if steps.iter().any(|step| matches!(step.program, Program::Cargo)) {
        for profile in [Profile::Debug, Profile::Release] {
            driver::build(&workspace, Arch::X64, profile)?;
        }
    }
    let mut failed = Vec::new();
    runner.run(&steps, &[], |step, outcome| {
        let said = String::from_utf8_lossy(&fs::read(&outcome.log)?).into_owned();
        let ended = match &outcome.end {
            StageEnd::Passed { .. } => result(step.name, &said),
            StageEnd::Failed(why) => Err(why.clone()),
            StageEnd::Skipped(why) => Err(format!("skipped: {why}")),
        };
        let (passed, line) = (ended.is_ok(), ended.unwrap_or_else(|why| why));
        failed.extend((!passed).then_some(step.name));
        println!("                 {}{line}", if passed { "" } else { "FAILED: " });
        keep(&workspace, step.name, &row(&commit, outcome, passed, &line)?)
    })?;
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn results(workspace: &Workspace) -> PathBuf {
    workspace.path("target/soak/results.json")
}

fn row(commit: &str, outcome: &StageOutcome, passed: bool, line: &str) -> Result<Value> {
    let date = command::output(Command::new("date").args(["-u", "+%Y-%m-%d"]))?;
    Ok(json!({
        "commit": commit, "date": date.trim_end(), "passed": passed, "result": line,
        "seconds": outcome.cost.elapsed.round(), "processor_seconds": outcome.cost.processor.round(),
    }))
}

/// Puts one step's result in the place of its last one.
fn keep(workspace: &Workspace, step: &str, row: &Value) -> Result<()> {
    let path = results(workspace);
    let mut rows = read(&path)?;
    rows.insert(step.to_owned(), row.clone());
    write_if_changed(&path, format!("{:#}\n", Value::Object(rows)).as_bytes())
}

fn read(path: &Path) -> Result<Map<String, Value>> {
    if !path.exists() {
        return Ok(Map::new());
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no results; remove it", path.display()))
}

/// The lines that say what came out, as one, with single spaces. A step that ended well and says nothing, or counts nothing, is no
/// result: the error says so.
fn result(step: &str, said: &str) -> Result<String, String> {
    if TESTS.contains(&step) {
        let Totals { binaries, passed, failed, ignored } = totals(said).unwrap_or_default();
        let line = format!("{passed} passed, {failed} failed, {ignored} ignored in {binaries} suites");
        return if passed > 0 { Ok(line) } else { Err(format!("no test ran: {line}")) };
    }
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let wanted = match RESULTS.iter().find(|(name, _)| *name == step) {
        Some((_, starts)) => {
            let last = |start: &'static str| lines.clone().rfind(|line| line.starts_with(start)).ok_or(start);
            let found = starts.iter().copied().map(last).collect::<Result<Vec<_>, _>>();
            found.map_err(|start| format!("it does not say its result: no line begins with {start:?}"))?
        }
        None => vec![lines.next_back().ok_or("it says nothing")?],
    };
    let line = wanted.iter().map(|line| single_spaced(line)).collect::<Vec<_>>().join("; ");
    if first_number(&line) == Some(0) { Err(format!("it counts nothing: {line}")) } else { Ok(line) }
}

/// What a step counted comes first in its result.
fn first_number(line: &str) -> Option<u64> {
    line.split(|letter: char| !letter.is_ascii_digit()).find(|digits| !digits.is_empty())?.parse().ok()
}

fn single_spaced(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

const BEGIN: &str = "<!-- cargo xtask soak --record writes this table -->";
const END: &str = "<!-- end of the table -->";

fn record(workspace: &Workspace) -> Result<()> {
    let path = workspace.path("docs/evidence.md");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let rows = read(&results(workspace))?;
    if rows.is_empty() {
        bail!("there are no results yet; `cargo xtask soak` makes them");
    }
    write_if_changed(&path, with_table(&text, &rows)?.as_bytes())?;
    println!("{}: {} results", workspace.show(&path), rows.len());
    Ok(())
}

/// The page with a table in which these results replace older ones; those of other steps stay.
fn with_table(page: &str, rows: &Map<String, Value>) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).with_context(|| format!("the page has no {BEGIN:?}"))?;
    let (old, after) = rest.split_once(END).with_context(|| format!("the page has no {END:?}"))?;
    let mut table = "| step | what it shows | result | commit | date | took |\n|---|---|---|---|---|---|\n".to_owned();
    for step in STEPS {
        // A result is of the step as it was: one that shows something else now has none.
        let head = format!("| `{}` | {} |", step.name, step.shows);
        let line = match rows.get(step.name) {
            Some(row) => format!("{head} {}", cells(row)),
            None => match old.lines().find(|line| line.starts_with(&head)) {
                Some(line) => line.to_owned(),
                None => format!("{head} not run yet | | | |"),
            },
        };
        table.push_str(&line);
        table.push('\n');
    }
    Ok(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

fn cells(row: &Value) -> String {
    let word = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default().replace('|', "\\|");
    let verdict = if row.get("passed") == Some(&Value::Bool(true)) { "" } else { "**failed**: " };
    let minutes = row.get("seconds").and_then(Value::as_f64).unwrap_or(0.0) / 60.0;
    format!("{verdict}{} | `{}` | {} | {minutes:.0} min |", word("result"), word("commit"), word("date"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(step: &str, passed: bool) -> Map<String, Value> {
        let row =
            json!({ "commit": "abc1234", "date": "2026-01-02", "passed": passed, "result": "9 | 0", "seconds": 90 });
        Map::from_iter([(step.to_owned(), row)])
    }

    #[test]
    fn table_keeps_the_rows_of_steps_that_did_not_run() {
        let page = format!("before\n{BEGIN}\nanything\n{END}\nafter\n");
        let first = with_table(&page, &rows("verify", true)).unwrap();
        assert!(first.starts_with("before\n") && first.ends_with(&format!("{END}\nafter\n")));
        assert!(first.contains("9 \\| 0 | `abc1234` | 2026-01-02 | 2 min |\n") && !first.contains("anything"));
        assert_eq!(first.matches("not run yet").count(), STEPS.len() - 1);
        let second = with_table(&first, &rows("stress", false)).unwrap();
        assert_eq!(second.matches("not run yet").count(), STEPS.len() - 2);
        assert!(second.contains("| **failed**: 9") && second.contains("| 9 "), "{second}");
        assert!(with_table("no table", &rows("verify", true)).is_err());
    }

    #[test]
    fn page_has_its_table_and_every_step_a_row() {
        let page = fs::read_to_string(Workspace::find().unwrap().path("docs/evidence.md")).unwrap();
        let written = with_table(&page, &Map::new()).unwrap();
        assert_eq!(written, page, "`cargo xtask soak --record` writes it anew");
    }

    #[test]
    fn result_is_the_line_that_says_it() {
        let says = |step, said, line: &str| assert_eq!(result(step, said), Ok(line.to_owned()));
        says(
            "oracle",
            "1 operations\noracle: 5 operations,  0 differences\nend\n",
            "oracle: 5 operations, 0 differences",
        );
        says(
            "seeded-bugs",
            "a\n7 seeded bugs, 7 turned their tests red\n\n",
            "7 seeded bugs, 7 turned their tests red",
        );
        says(
            "stress",
            "steady: 5 requests\nchaos: 7  requests\nNDK switched off 2 times, 3 halts\n",
            "steady: 5 requests; chaos: 7 requests; NDK switched off 2 times, 3 halts",
        );
        let test = "test result: ok. 108 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 4.00s\n";
        let documentation =
            "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        says("release-control", &[test, documentation].concat(), "108 passed, 0 failed, 2 ignored in 1 suites");
    }

    #[test]
    fn step_that_counts_nothing_is_no_result() {
        let nothing = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        for (step, said) in [
            ("release-control", nothing),
            ("release-control", ""),
            ("nd-far", nothing),
            ("nd-far", "networkdirect: 0 cases passed in 0 suites, 0 ignored\n"),
            ("oracle", "oracle: 0 operations, 0 differences\n"),
            ("stress", "steady: 5 requests\n"),
            ("verify", "all is well\n"),
            ("seeded-bugs", ""),
            ("seeded-bugs", "0 seeded bugs, 0 turned their tests red"),
        ] {
            assert!(result(step, said).is_err(), "{step}: {said}");
        }
    }

    #[test]
    fn page_has_no_result_without_a_test() {
        let page = fs::read_to_string(Workspace::find().unwrap().path("docs/evidence.md")).unwrap();
        assert!(!page.contains("ok. 0 passed"));
    }

    #[test]
    fn step_names_are_unique() {
        let names = STEPS.iter().map(|step| step.name).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(names.len(), STEPS.len());
        assert!(RESULTS.iter().all(|(name, _)| names.contains(name)) && TESTS.iter().all(|name| names.contains(name)));
    }

    #[test]
    fn results_of_steps_are_kept_beside_each_other() {
        let root = Workspace::find().unwrap().path("target/soak-test");
        let _ = fs::remove_dir_all(&root);
        let workspace = Workspace::at(&root);
        keep(&workspace, "verify", &json!({ "passed": true })).unwrap();
        keep(&workspace, "stress", &json!({ "passed": true })).unwrap();
        keep(&workspace, "verify", &json!({ "passed": false })).unwrap();
        let rows = read(&results(&workspace)).unwrap();
        assert_eq!((rows.len(), &rows["verify"]["passed"]), (2, &Value::Bool(false)));
        fs::remove_dir_all(root).unwrap();
    }
}
