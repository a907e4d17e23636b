//! Tests of `ndkctl nd`: the binary, its output, its exit codes. The provider is the real DLL in processes of the kernel host, over the
//! real driver; without these images the tests fail and say how to build them.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod capture;
mod endings;
mod machines;
mod pull;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn target(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").join(path)
}

/// The first of these that is there; the debug driver, whose arithmetic is checked, before the release one.
fn built(variable: &str, paths: [&str; 2], command: &str) -> PathBuf {
    let wanted = std::env::var_os(variable).map(PathBuf::from);
    let found = wanted.or_else(|| paths.iter().map(|path| target(path)).find(|path| path.exists()));
    found.unwrap_or_else(|| panic!("an image is not there; `{command}` builds it"))
}

/// `ndkctl nd` with the images under test.
fn command(words: &[&str]) -> Command {
    let driver = built(
        "SOFTNDK_IMAGE",
        ["driver/x64/debug/softndk.sys", "driver/x64/release/softndk.sys"],
        "cargo xtask driver",
    );
    let dll = built(
        "SOFTNDK_DLL",
        ["softnd/x64/release/softnd.dll", "softnd/x64/debug/softnd.dll"],
        "cargo xtask softnd --release",
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_ndkctl"));
    command.arg("nd").args(words).env("SOFTNDK_IMAGE", driver).env("SOFTNDK_DLL", dll);
    command
}

fn ndkctl(words: &[&str]) -> Output {
    command(words).output().expect("the binary starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The document of a command and its exit code.
fn document(words: &[&str]) -> (i32, Value) {
    read_document(words, &ndkctl(&[words, &["--json"]].concat()))
}

fn read_document(words: &[&str], output: &Output) -> (i32, Value) {
    let (standard, errors) = (text(&output.stdout), text(&output.stderr));
    let document =
        serde_json::from_str(&standard).unwrap_or_else(|error| panic!("{error} in {words:?}:\n{standard}{errors}"));
    (output.status.code().unwrap_or_else(|| panic!("{words:?} was killed:\n{errors}")), document)
}

/// The report of a command that succeeds.
#[track_caller]
fn report(words: &[&str]) -> Value {
    report_of(words, document(words))
}

#[track_caller]
fn report_of(words: &[&str], (code, document): (i32, Value)) -> Value {
    assert_eq!((code, &document["ok"]), (0, &Value::Bool(true)), "{words:?}: {document:#}");
    assert_eq!(document["command"], format!("nd {}", words[0]));
    document["report"].clone()
}

/// The failure of a command that fails with this exit code.
#[track_caller]
fn failure(words: &[&str], code: i32, kind: &str) -> Value {
    failure_of(words, document(words), (code, kind))
}

#[track_caller]
fn failure_of(words: &[&str], (exit, document): (i32, Value), (code, kind): (i32, &str)) -> Value {
    let failure = document["error"]["failure"].clone();
    assert_eq!((exit, &failure["kind"]), (code, &kind.into()), "{words:?}: {document:#}");
    for part in ["what", "cause", "next_step"] {
        assert!(failure[part].as_str().is_some_and(|text| !text.is_empty()), "{part} of {document:#}");
    }
    failure
}

#[test]
fn info_shows_what_the_provider_says_of_each_adapter() {
    let report = report(&["info", "--adapters", "3"]);
    let adapters = report["adapters"].as_array().unwrap();
    assert_eq!(adapters.len(), 3);
    for (index, adapter) in adapters.iter().enumerate() {
        assert_eq!(adapter["addresses"][0], format!("192.168.100.{}", index + 1));
        assert_eq!(adapter["addresses"].as_array().unwrap().len(), 2);
        let limits = adapter["limits"].as_array().unwrap();
        let limit = |name: &str| limits.iter().find(|limit| limit["name"] == name).unwrap()["value"].as_u64().unwrap();
        assert_eq!((limits.len(), limit("max_initiator_sge"), limit("max_caller_data")), (17, 32, 56));
        let flags = ["IN_ORDER_DMA_SUPPORTED", "CQ_RESIZE_SUPPORTED", "LOOPBACK_CONNECTIONS_SUPPORTED"];
        assert_eq!(adapter["flags"], Value::from(flags.to_vec()));
    }
    let output = ndkctl(&["info"]);
    let shown = text(&output.stdout);
    for wanted in ["192.168.100.2", "max completion queue depth", "LOOPBACK_CONNECTIONS_SUPPORTED"] {
        assert!(shown.contains(wanted), "{wanted} is not in\n{shown}");
    }
}

#[test]
fn every_ping_comes_back_with_its_bytes() {
    for (words, size, ends) in [
        ("-n 300", 64, "192.168.100.1 to 192.168.100.2"),
        ("-n 50 --notify", 64, "192.168.100.1 to 192.168.100.2"),
        ("-n 50 --family ipv6 -s 0", 0, "fd00:736f:6674:6e64::1 to fd00:736f:6674:6e64::2"),
        ("-n 10 -s 5M --events", 5 << 20, "192.168.100.1 to 192.168.100.2"),
        ("-n 50 --from 192.168.100.2 --to 192.168.100.2", 64, "192.168.100.2 to 192.168.100.2"),
        ("-n 50 -s 333 --mode verify", 333, "192.168.100.1 to 192.168.100.2"),
        ("-n 50 --mode verify --completion-mode force-async --notify", 64, "192.168.100.1 to 192.168.100.2"),
        ("-n 50 --limits tiny -s 100K", 100 << 10, "192.168.100.1 to 192.168.100.2"),
    ] {
        let report = report(&[&["ping"], &words.split(' ').collect::<Vec<_>>()[..]].concat());
        let count = report["count"].as_u64().unwrap();
        assert_eq!((&report["ends"], &report["size"]), (&ends.into(), &size.into()), "{words}");
        assert_eq!(report["bytes_compared"], 2 * count * size, "{words}");
        let time = |name: &str| report["latency"][name].as_u64().unwrap();
        assert!(
            time("min") <= time("median") && time("median") <= time("p99") && time("p99") <= time("max"),
            "{report}"
        );
        for end in ["client", "server"] {
            let requests = report["ioctls"][end].as_u64().unwrap();
            assert!(requests <= 4 * count, "{words}: {requests} requests of the {end} for {count} messages");
        }
        assert_eq!(report["notify"], words.contains("--notify") || words.contains("--events"));
    }
    let shown = text(&ndkctl(&["ping", "-n", "20"]).stdout);
    for wanted in ["20 messages of 64 B from 192.168.100.1", "2 560 bytes compared", "round trip: min", "of the server"]
    {
        assert!(shown.contains(wanted), "{wanted} is not in\n{shown}");
    }
}

#[test]
fn perf_has_a_row_for_each_operation_size_and_depth() {
    let all = report(&["perf", "-n", "60", "--size", "1,4K,300K", "--depth", "1,7"]);
    let rows = all["rows"].as_array().unwrap();
    let named: Vec<_> =
        rows.iter().map(|row| (row["operation"].as_str().unwrap(), row["size"].as_u64().unwrap())).collect();
    assert_eq!(rows.len(), 18);
    assert_eq!((named[0], named[2], named[17]), (("read", 1), ("read", 4096), ("send", 300 << 10)));
    for row in rows {
        let (size, depth) = (row["size"].as_u64().unwrap(), row["depth"].as_u64().unwrap());
        assert_eq!(row["requests"], 60);
        assert_eq!(row["bytes_compared"], size * depth, "the memory of every request under way: {row}");
        assert!(row["elapsed"].as_u64().unwrap() > 0 && row["rate"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["latency"]["median"].as_u64().unwrap() > 0, "{row}");
        let server = row["ioctls"]["server"].as_u64().unwrap();
        assert!(row["operation"] == "send" || server == 0, "Reads and Writes are the client's work alone: {row}");
    }
    let shown = text(&ndkctl(&["perf", "-n", "10", "--op", "write", "-s", "8", "-t", "2", "--notify"]).stdout);
    for wanted in ["Write", "8 B", "MB/s", "IOCTLs each"] {
        assert!(shown.contains(wanted), "{wanted} is not in\n{shown}");
    }
}

#[test]
fn refusals_name_the_status_and_the_next_step() {
    let unknown = failure(&["ping", "--from", "10.9.9.9"], 1, "refused");
    assert_eq!(unknown["status"], 0xC000_0141_u32);
    assert!(unknown["next_step"].as_str().unwrap().contains("nd info"));
    // The server's end fails, and the client stops by it.
    failure(&["ping", "--to", "10.9.9.9"], 1, "refused");
    let deep = failure(&["perf", "--depth", "60000", "--op", "read"], 1, "refused");
    assert_eq!(deep["status"], 0xC000_00F1_u32);
    failure(&["perf", "--size", "5M", "--op", "read", "--limits", "tiny"], 1, "refused");
}

#[test]
fn what_cannot_be_loaded_exits_3() {
    let missing = failure(&["info", "--dll", "/no/such/softnd.dll"], 3, "unreachable");
    assert!(missing["what"].as_str().unwrap().contains("/no/such/softnd.dll"));
    assert!(missing["next_step"].as_str().unwrap().contains("cargo xtask softnd"));
    let driver = target("driver/x64/debug/softndk.sys");
    failure(&["ping", "--dll", driver.to_str().unwrap()], 3, "unreachable");
}

#[test]
fn roles_and_measurements_that_mean_nothing_here_exit_2() {
    for role in ["--server", "--client"] {
        let only = failure(&["ping", role, "192.168.100.1"], 2, "usage");
        let next = only["next_step"].as_str().unwrap();
        assert!(next.contains("both ends") && next.contains("--machine 1"), "{only}");
    }
    failure(&["perf", "--mode", "verify"], 2, "usage");
    for words in [&["fly"][..], &["ping", "-n", "0"], &["perf", "--op", "fly"], &[]] {
        assert_eq!(ndkctl(words).status.code(), Some(2), "{words:?}");
    }
}

#[test]
fn the_catalogue_is_windows_own_and_a_dry_run_shows_what_would_be_written() {
    for words in [&["install"][..], &["remove"], &["list"]] {
        let failure = failure(words, 3, "unreachable");
        assert!(failure["cause"].as_str().unwrap().contains("Windows"), "{failure}");
    }
    let report = report(&["install", "--dry-run", "--dll", r"D:\nd\softnd.dll"]);
    let entries = report["entries"].as_array().unwrap();
    assert_eq!((entries.len(), &entries[0]["generation"]), (2, &"version2".into()));
    for entry in entries {
        assert_eq!((&entry["state"], &entry["path"]), (&"not_written".into(), &r"D:\nd\softnd.dll".into()));
        let info = entry["info"].as_str().unwrap();
        assert_eq!((info.len(), &info[..8], &info[32..40]), (1256, "8e000000", "14000000"));
    }
    assert_ne!(entries[0]["provider_id"], entries[1]["provider_id"]);
    let shown = text(&ndkctl(&["install", "--dry-run"]).stdout);
    assert!(shown.contains(r"%SystemRoot%\System32\softnd.dll") && shown.contains("iVersion: 0x20000"), "{shown}");
}
