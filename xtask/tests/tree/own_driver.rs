//! `cargo xtask own-driver` as a user calls it: on the examples, on consumers with a mistake, and as `docs/own-driver.md` has it.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// How a command ended.
struct Ended {
    code: Option<i32>,
    output: String,
    errors: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), output: text(&output.stdout), errors: text(&output.stderr) }
    }
}

impl Ended {
    fn expect(&self, code: i32, words: &[&str]) {
        let all = format!("{}{}", self.output, self.errors);
        assert_eq!(self.code, Some(code), "{all}");
        for word in words {
            assert!(all.contains(word), "no {word:?} in:\n{all}");
        }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.output).unwrap_or_else(|error| panic!("{error}: {}{}", self.output, self.errors))
    }
}

fn own_driver(words: &[&str]) -> Ended {
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    xtask.current_dir(root()).arg("own-driver").args(words).output().expect("xtask starts").into()
}

/// The blocks of a page in a language.
fn blocks<'page>(page: &'page str, language: &str) -> Vec<&'page str> {
    let begin = format!("```{language}\n");
    page.split(begin.as_str()).skip(1).map(|rest| rest.split("\n```").next().expect("a block ends")).collect()
}

const PAGE: &str = "docs/own-driver.md";

/// A line may end in `# exit code N`. Commands run from the first to the last, as a reader would paste them.
#[test]
fn every_command_of_the_page_does_what_it_says() {
    let page = read(PAGE);
    let lines: Vec<&str> = blocks(&page, "sh").into_iter().flat_map(str::lines).collect();
    assert!(lines.len() > 5, "{PAGE} has commands: {lines:?}");
    for line in lines {
        let (command, code) = line.split_once("# exit code ").unwrap_or((line, "0"));
        let command = command.replace("cargo xtask", concat!("'", env!("CARGO_BIN_EXE_xtask"), "'"));
        let ended =
            Ended::from(Command::new("sh").args(["-c", &command]).current_dir(root()).output().expect("sh starts"));
        assert_eq!(
            ended.code,
            Some(code.trim().parse().expect("a number")),
            "{line}\n{}{}",
            ended.output,
            ended.errors
        );
    }
}

/// The book has each example from its source file; beside the block a link leads there.
#[test]
fn the_page_includes_the_examples() {
    let page = read(PAGE);
    for (language, file) in [
        ("c", "examples/c-consumer.c"),
        ("toml", "examples/rust-consumer/Cargo.toml"),
        ("rust", "examples/rust-consumer/src/lib.rs"),
    ] {
        assert!(!read(file).is_empty(), "{file}");
        assert_eq!(blocks(&page, language), [format!("{{{{#include ../{file}}}}}")], "{PAGE}: block of {language}");
        assert!(page.contains(&format!("](../{file})")), "{PAGE} has no link to {file}");
    }
}

#[test]
fn a_consumer_in_c_works_in_every_mode_and_profile() {
    let ended = own_driver(&["examples/c-consumer.c", "--expect", "read 4096 bytes", "--json"]);
    ended.expect(0, &[]);
    let report = ended.json();
    assert_eq!(report["runs"].as_array().map(Vec::len), Some(9), "{report}");
    assert_eq!(report["failed"], 0, "{report}");
}

#[test]
fn a_consumer_in_rust_works_in_every_mode_and_profile() {
    let ended = own_driver(&["examples/rust-consumer", "--expect", "read 4096 bytes", "--json"]);
    ended.expect(0, &[]);
    let report = ended.json();
    assert_eq!((report["runs"].as_array().map(Vec::len), report["failed"].as_u64()), (Some(9), Some(0)), "{report}");
}

/// Each call that may lack memory fails, and nothing is left behind.
#[test]
fn consumers_survive_each_of_their_faults() {
    for driver in ["examples/c-consumer.c", "examples/rust-consumer"] {
        let pinned = ["--keyword", "CompletionMode=1", "--keyword", "LimitsProfile=0"];
        let ended = own_driver(&[&[driver], &pinned[..], &["--faults", "--json"]].concat());
        ended.expect(0, &[]);
        let report = ended.json();
        let exports: Vec<&str> = report["faults"]["sites"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|site| site["export"].as_str())
            .collect();
        for wanted in
            ["ExAllocatePool2", "IoAllocateMdl", "WskRegister", "NdkCreateQp", "NdkRegisterMr", "NdkConnect", "NdkRead"]
        {
            assert!(exports.contains(&wanted), "{driver}: no {wanted} in {exports:?}");
        }
        assert!(report["faults"]["met"].as_u64().is_some_and(|met| met >= exports.len() as u64), "{driver}: {report}");
    }
}

#[test]
fn a_wrong_close_order_is_named() {
    let pinned = ["--keyword", "CompletionMode=0", "--keyword", "LimitsProfile=0"];
    let ended = own_driver(&[&["tests/own-drivers/wrong-close-order.c"], &pinned[..]].concat());
    let words = [
        "the close of ProtectionDomain#1 waits for the close of QueuePair#1, which the consumer has not called",
        "wrong-close-order.sys!Run",
        "wrong-close-order.sys: 1 runs, 1 failed",
    ];
    ended.expect(113, &words);
}

/// What was refused is said at the end of good runs, too: call, object, status, cause, rule and place.
#[test]
fn a_consumer_that_retries_is_told_what_was_refused() {
    let ended = own_driver(&["tests/own-drivers/retries.c", "--json"]);
    ended.expect(0, &[]);
    let report = ended.json();
    let refused: Vec<&Value> = report["runs"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|run| run["refused"].as_array().into_iter().flatten())
        .collect();
    for (call, rule, place) in [
        ("NdkCreateCq", "NDK-CQ-1", "retries.sys!CreateQueue"),
        ("NdkCreateQp", "NDK-QP-1", "retries.sys!CreatePair"),
        ("NdkReceive", "NDK-QP-4", "retries.sys!FillAndFlush"),
    ] {
        let found = refused.iter().find(|refused| refused["call"] == call && refused["rule"] == rule);
        let found = found.unwrap_or_else(|| panic!("no {call} with {rule}: {report}"));
        assert!(found["object"].as_str().is_some_and(|object| object.contains('#')), "{found}");
        assert!(found["cause"].as_str().is_some_and(|cause| !cause.is_empty()), "{found}");
        // A call that pended has no place to return to.
        assert!(
            found["place"].is_null() || found["place"].as_str().is_some_and(|found| found.contains(place)),
            "{found}"
        );
    }
    let text = own_driver(&["tests/own-drivers/retries.c"]);
    text.expect(0, &["refused, and why:", "a number is over the adapter's limit [NDK-CQ-1]", "9 runs, 0 failed"]);
}

/// The cause stands in the line of the call.
#[test]
fn a_trace_has_the_cause_in_its_line() {
    let pinned = ["--keyword", "CompletionMode=0", "--keyword", "LimitsProfile=2"];
    let ended = own_driver(&[&["tests/own-drivers/retries.c"], &pinned[..], &["--trace", "ndk"]].concat());
    ended.expect(0, &[]);
    let line =
        ended.errors.lines().find(|line| line.starts_with("ndk") && line.contains("NdkCreateQp(")).expect("a line");
    assert!(line.contains("because a number is over the adapter's limit [NDK-QP-1]"), "{line}");
}

/// A copy of an example with a text replaced, in a folder of its own.
fn changed(name: &str, old: &str, new: &str) -> PathBuf {
    let folder = root().join("target/own-driver-tests");
    fs::create_dir_all(&folder).unwrap();
    let text = read("examples/c-consumer.c");
    assert_eq!(text.matches(old).count(), 1, "{old}");
    let path = folder.join(format!("{name}.c"));
    fs::write(&path, text.replace(old, new)).unwrap();
    path
}

const ONE: [&str; 4] = ["--keyword", "CompletionMode=0", "--keyword", "LimitsProfile=0"];

fn run_changed(path: &Path, words: &[&str]) -> Ended {
    own_driver(&[&[path.to_str().unwrap()], &ONE[..], words].concat())
}

#[test]
fn a_driver_that_says_so_fails_its_run() {
    let path = changed(
        "says-so",
        "DbgPrint(\"read %u bytes from the other adapter\\n\", BYTES);",
        "DbgPrint(\"TEST-FAILED: a sum is wrong\\n\");",
    );
    run_changed(&path, &[]).expect(1, &["the driver says: TEST-FAILED: a sum is wrong", "1 runs, 1 failed"]);
}

#[test]
fn a_driver_whose_entry_fails_fails_its_run() {
    let path = changed("entry", "First.Active.Interface = 11;", "First.Active.Interface = 99;");
    run_changed(&path, &[]).expect(1, &["DriverEntry returned 0xC0000225", "TEST-FAILED: WskOpenNdkAdapter"]);
}

#[test]
fn memory_that_is_left_fails_its_run() {
    let path = changed("leaks", "        IoFreeMdl(Side->Mdl);\n", "");
    let ended = run_changed(&path, &[]);
    // The check at the unload comes first: a driver is reported by name.
    ended.expect(113, &["DRIVER_VERIFIER_DETECTED_VIOLATION", "leaks.sys"]);
}

#[test]
fn text_that_does_not_come_fails_its_run() {
    let ended = own_driver(&[&["examples/c-consumer.c"], &ONE[..], &["--expect", "wrote 4096 bytes"]].concat());
    ended.expect(1, &["has no \"wrote 4096 bytes\""]);
}

#[test]
fn unknown_keywords_and_values_are_errors_with_a_sentence() {
    for (keyword, words) in [
        (
            "CompletionMode=banana",
            "\"banana\" is no value of the keyword CompletionMode, which takes 0 (Auto), 1 (Force async), 2",
        ),
        ("LimitsProfile=9", "\"9\" is no value of the keyword LimitsProfile, which takes 0 ("),
        ("ConnectTimeoutMs=-1", "which takes a number from 0 to 86400000"),
        ("CompletionMod=1", "the INF declares no keyword CompletionMod; it declares "),
    ] {
        own_driver(&["examples/c-consumer.c", "--keyword", keyword]).expect(2, &[words]);
    }
}

#[test]
fn what_cannot_be_built_or_loaded_is_an_error() {
    own_driver(&["nosuch.c"]).expect(2, &["there is no nosuch.c"]);
    own_driver(&["docs"]).expect(2, &["neither C files nor a Cargo.toml"]);
    let path = changed("does-not-compile", "#define BYTES 4096u", "#define BYTES");
    run_changed(&path, &[]).expect(2, &["does-not-compile.c does not compile", "error:"]);
    let path = changed("does-not-link", "KeReadStateEvent(&First.Arrived) == 0", "Nowhere() == 0");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("#define TAG", "NTKERNELAPI int Nowhere(void);\n#define TAG")).unwrap();
    run_changed(&path, &[]).expect(2, &["does not link", "Nowhere"]);
}

#[test]
fn junit_has_a_case_for_each_run() {
    let file = root().join("target/own-driver-tests/results.xml");
    let path = changed(
        "junit",
        "return memcmp(Active->Memory, Passive->Memory, BYTES) == 0",
        "return memcmp(Active->Memory, Passive->Memory, BYTES) != 0",
    );
    let ended =
        own_driver(&[path.to_str().unwrap(), "--keyword", "CompletionMode=0", "--junit", file.to_str().unwrap()]);
    ended.expect(1, &["3 runs, 3 failed"]);
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.matches("<testcase ").count(), 3, "{text}");
    assert_eq!(text.matches("<failure ").count(), 3, "{text}");
    assert!(text.contains("TEST-FAILED: the bytes"), "{text}");
}

/// The same seed gives the same order.
#[test]
fn a_schedule_is_a_case_for_each_seed() {
    let ended = own_driver(&[&["examples/c-consumer.c"], &ONE[..], &["--schedule", "3..5", "--json"]].concat());
    ended.expect(0, &[]);
    let report = ended.json();
    let cases: Vec<&str> =
        report["runs"].as_array().into_iter().flatten().filter_map(|run| run["case"].as_str()).collect();
    assert_eq!(cases.len(), 3, "{cases:?}");
    assert!(cases.iter().all(|case| case.contains("schedule")), "{cases:?}");
}
