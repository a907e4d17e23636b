//! Tests of the commands: the binary, its output, its exit codes, the files it leaves. What needs the driver runs it in the
//! kernel host, and fails with a hint how to build one when there is no image.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The image under test: the debug one, whose arithmetic is checked, before the release one.
fn image() -> PathBuf {
    if let Some(path) = std::env::var_os("SOFTNDK_IMAGE") {
        return path.into();
    }
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/driver/x64");
    let found = ["debug", "release"].map(|profile| target.join(profile).join("softndk.sys"));
    found.into_iter().find(|path| path.exists()).expect("there is no driver image; `cargo xtask driver` builds one")
}

fn ndkctl(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ndkctl"))
        .args(words)
        .env_remove("SOFTNDK_IMAGE")
        .output()
        .expect("the binary starts")
}

/// Runs a command with the image and `--json`; its exit code and document.
fn with_image(image: &Path, words: &[&str]) -> (i32, Value) {
    let image = image.to_str().expect("a plain path");
    let output = ndkctl(&[&["--json", "--image", image], words].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let document = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {words:?}:\n{text}{errors}"));
    (output.status.code().unwrap_or_else(|| panic!("{words:?} was killed:\n{errors}")), document)
}

/// The report of a command that succeeds.
#[track_caller]
fn report(image: &Path, words: &[&str]) -> Value {
    let (code, document) = with_image(image, words);
    assert_eq!((code, &document["ok"]), (0, &Value::Bool(true)), "{words:?}: {document:#}");
    document["report"].clone()
}

#[test]
fn wrong_arguments_exit_2() {
    for words in [
        &[][..],
        &["fly"],
        &["ping", "--count", "0"],
        &["copy", "one"],
        &["info", "--keyword", "Transprot=2"],
        &["doctor", "--keyword", "Transprot=2"],
    ] {
        assert_eq!(ndkctl(words).status.code(), Some(2), "{words:?}");
    }
}

/// A device whose every write fails as on a full disk.
#[test]
fn report_that_cannot_be_written_exits_6() {
    let image = image();
    for words in [
        &["--json", "info"][..],
        &["info"],
        &["--json", "nd", "install", "--dry-run", "--dll", "softnd.dll"],
        &["demo", "--size", "1K", "--pings", "1", "--time", "1"],
        &["--help"],
        &["--version"],
        &["perf", "--help"],
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_ndkctl"))
            .args(words)
            .env("SOFTNDK_IMAGE", &image)
            .stdout(full)
            .output()
            .expect("the binary starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{words:?}: {errors}");
        assert!(errors.contains("cannot write to standard output"), "{words:?}: {errors}");
    }
}

#[test]
fn numbers_out_of_range_are_refused_in_words() {
    for words in [["ping", "--count", "0"], ["stress", "--seconds", "1"], ["refusals", "--last", "0"]] {
        let output = ndkctl(&words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(errors.contains("is too few: at least ") && !errors.contains("184467"), "{errors}");
    }
}

#[test]
fn an_image_that_is_not_there_exits_3_and_says_what_to_do() {
    let output = ndkctl(&["--image", "/no/such/softndk.sys", "info"]);
    assert_eq!(output.status.code(), Some(3));
    let errors = String::from_utf8_lossy(&output.stderr);
    for wanted in ["/no/such/softndk.sys", "cause:", "next:", "cargo xtask driver"] {
        assert!(errors.contains(wanted), "{wanted} is not in\n{errors}");
    }
    assert!(output.stdout.is_empty());
}

#[test]
fn a_trace_shows_every_call_of_the_consumer() {
    let image = image();
    let output = ndkctl(&["--image", image.to_str().unwrap(), "--trace", "ndk", "ping", "--count", "3"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    for wanted in ["WskOpenNdkAdapter", "NdkConnect", "NdkAccept", "NdkRegisterMr", "NdkRead", "WskCloseNdkAdapter"] {
        assert!(errors.contains(wanted), "{wanted} is not in\n{errors}");
    }
    let opened = errors.matches("WskOpenNdkAdapter").count();
    assert_eq!(opened, errors.matches("WskCloseNdkAdapter").count(), "{errors}");
}

#[test]
fn failures_are_json_too() {
    let (code, document) = with_image(Path::new("/no/such/softndk.sys"), &["ping"]);
    assert_eq!(code, 3);
    assert_eq!((&document["command"], &document["ok"]), (&"ping".into(), &false.into()));
    assert_eq!(document["error"]["exit_code"], 3);
    let failure = &document["error"]["failure"];
    assert_eq!(failure["kind"], "unreachable");
    for part in ["what", "cause", "next_step"] {
        assert!(failure[part].as_str().is_some_and(|text| !text.is_empty()), "{part}");
    }
}

#[test]
fn what_is_no_image_exits_3() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.sys");
    for contents in [&b""[..], b"MZ", b"this is no driver"] {
        fs::write(&path, contents).unwrap();
        assert_eq!(with_image(&path, &["info"]).0, 3);
    }
}

#[test]
fn info_shows_as_many_adapters_as_were_asked_for() {
    let image = image();
    for count in ["1", "2", "5"] {
        let report = report(&image, &["info", "--adapters", count, "--counters"]);
        assert_eq!(report["adapters"].as_array().unwrap().len().to_string(), count);
        assert_eq!(report["driver"]["ndkpi_version"], "2.1");
        assert_eq!(report["consumer"]["adapters"].to_string(), count);
        let objects = report["objects"].as_array().unwrap();
        let files = objects.iter().find(|object| object["name"] == "files").unwrap();
        assert_eq!(files["value"], 1);
    }
}

#[test]
fn refusals_of_a_script_say_why() {
    let image = image();
    assert_eq!(report(&image, &["refusals"])["refusals"].as_array().unwrap().len(), 0);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/refusals.ndk");
    let listed = report(&image, &["refusals", "--script", script.to_str().unwrap()]);
    let refusals = listed["refusals"].as_array().unwrap();
    let shown = refusals.iter().map(|refusal| {
        assert_eq!((&refusal["kind"], &refusal["way"]), (&"queue pair".into(), &"call".into()), "{refusal}");
        (refusal["call"].as_str().unwrap(), refusal["status"].as_str().unwrap())
    });
    let expected =
        [("NdkReceive", "STATUS_NO_MORE_ENTRIES (0x8000001A)"), ("NdkSend", "STATUS_CONNECTION_INVALID (0xC000023A)")];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
    assert!(refusals[1]["cause"].as_str().unwrap().contains("never connected"), "{listed}");
}

#[test]
fn events_tell_what_happened() {
    let image = image();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/refusals.ndk");
    let script = script.to_str().unwrap();
    let listed = report(&image, &["events", "--script", script]);
    let events = listed["events"].as_array().unwrap();
    let named = events.iter().map(|event| event["event"].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(named, ["driver loaded", "adapter started", "adapter started", "refused", "refused"]);
    assert_eq!((&events[4]["call"], &events[4]["rule"]), (&"NdkSend".into(), &"NDK-QP-2".into()));
    let newest = report(&image, &["events", "--script", script, "--last", "1"]);
    assert_eq!((&newest["events"][0]["number"], newest["events"].as_array().unwrap().len()), (&5.into(), 1));
}

/// One object a line, and nothing else.
#[test]
fn who_follows_events_gets_them_line_by_line() {
    let image = image();
    let words = ["--json", "--image", image.to_str().unwrap(), "events", "--follow", "--count", "3"];
    let output = ndkctl(&words);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>();
    let numbers = lines.iter().map(|event| event["number"].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!(ndkctl(&["events", "--count", "3"]).status.code(), Some(2), "--count needs --follow");
}

#[test]
fn objects_lists_a_pair_and_who_holds_what() {
    let image = image();
    assert_eq!(report(&image, &["objects"])["objects"].as_array().unwrap().len(), 0);
    let listed = report(&image, &["objects", "--example"]);
    let objects = listed["objects"].as_array().unwrap();
    assert_eq!(listed["counts"]["queue pair"], 2);
    for object in objects {
        assert_eq!(object["owner"], "foreign", "{object}");
        assert_eq!(object["held_by_consumer"], true);
    }
    let output = ndkctl(&["--image", image.to_str().unwrap(), "objects", "--example", "--tree", "--adapter", "1"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for wanted in ["adapter: open", "\n    #", "listener: listening", "connector: connected", "held by its consumer"] {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
}

#[test]
fn objects_of_an_adapter_that_is_not_there_exit_1() {
    let image = image();
    assert_eq!(report(&image, &["objects", "--adapter", "1"])["objects"].as_array().unwrap().len(), 0);
    let (code, document) = with_image(&image, &["objects", "--adapter", "9"]);
    assert_eq!((code, &document["error"]["failure"]["status"]), (1, &0xC000_00C0_u32.into()), "{document:#}");
}

#[test]
fn replay_of_nothing_exits_2() {
    let image = image();
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.ndk");
    fs::write(&empty, "# nothing\n\n").unwrap();
    let empty = empty.to_str().unwrap();
    for words in [&["replay", "-"][..], &["replay", empty], &["refusals", "--script", empty]] {
        let (code, document) = with_image(&image, words);
        assert_eq!((code, &document["error"]["failure"]["kind"]), (2, &"usage".into()), "{words:?}: {document:#}");
    }
}

#[test]
fn replay_says_where_a_script_differs() {
    let image = image();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts/transfers.ndk");
    for mode in ["fast", "measure", "verify"] {
        let report = report(&image, &["replay", script, "--mode", mode]);
        assert!(report["checks"].as_u64().unwrap() > 40, "{report}");
    }
    let folder = tempfile::tempdir().unwrap();
    let changed = folder.path().join("changed.ndk");
    let text = fs::read_to_string(script).unwrap();
    for (old, new, code) in [
        ("NOT_FOUND", "SUCCESS", 4),
        ("digest=0xdb", "digest=0xdc", 4),
        ("[Q1 20 receive SUCCESS 64]", "[Q1 20 receive SUCCESS 63]", 4),
        ("gone K1", "gone K0", 4),
        ("listen L0", "listen L1", 2),
        ("listen L0", "lisen L0", 2),
        ("adapter=1", "adapter=5", 1),
    ] {
        fs::write(&changed, text.replacen(old, new, 1)).unwrap();
        let (exit, document) = with_image(&image, &["replay", changed.to_str().unwrap()]);
        assert_eq!(exit, code, "{old} to {new}: {document:#}");
    }
    let (exit, document) = with_image(&image, &["replay", "/no/such.ndk"]);
    assert_eq!((exit, &document["error"]["failure"]["kind"]), (6, &"file".into()));
}

#[test]
fn send_read_and_write_with_every_option() {
    let image = image();
    for words in [
        "send -n 100 -s 0,1,64,100K --solicited --notify --verify",
        "send --memory fast --invalidate -n 7 --verify",
        "send --srq -n 100 -s 64,100K --deferred 4 --verify",
        "send --memory logical --inline -s 16 --silent 9 --deferred 3",
        "read --memory window -s 8,4K --silent 16 --deferred 4 --verify",
        "read --memory fast --local-invalidate -n 50 -s 100K --verify --sge 3",
        "read --memory logical --invalidate --fence",
        "write --memory window --invalidate --verify -s 1M -n 20",
        "write -I -s 64 --iters 500 -t 1 -e --moderation 20,4 --family ipv6",
        "write --all -n 3 --verify",
    ] {
        let words: Vec<&str> = words.split_whitespace().collect();
        let report = report(&image, &words);
        for row in report["rows"].as_array().unwrap() {
            assert!(row["requests"].as_u64().unwrap() > 0, "{words:?}: {row}");
            assert!(!words.contains(&"--verify") || row["size"] == 0 || row["verified"] != 0, "{words:?}: {row}");
        }
    }
    assert_eq!(with_image(&image, &["send", "--memory", "window"]).0, 2);
}

#[test]
fn connect_goes_through_every_case() {
    let image = image();
    for words in [&["connect", "-n", "5", "--family", "ipv6"][..], &["connect", "-n", "0", "--mode", "verify"]] {
        let report = report(&image, words);
        assert_eq!(report["cases"].as_array().unwrap().len(), 9, "{words:?}");
        assert_eq!(report["rate"].is_null(), words.contains(&"0"), "{words:?}");
    }
    let one = report(&image, &["connect", "--case", "reject,abort"]);
    assert_eq!((one["cases"].as_array().unwrap().len(), &one["rate"]["count"]), (2, &100.into()));
}

#[test]
fn info_is_the_same_in_verify_mode() {
    let image = image();
    let [fast, verify] = ["fast", "verify"].map(|mode| {
        let mut report = report(&image, &["info", "--mode", mode]);
        // Devices of two machines have different addresses.
        for adapter in report["adapters"].as_array_mut().expect("a list") {
            assert!(adapter["mac_address"].take().is_string());
        }
        report
    });
    assert_eq!(fast, verify);
}

#[test]
fn info_is_a_table_for_people() {
    let image = image();
    let output = ndkctl(&["--image", image.to_str().unwrap(), "info"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for wanted in ["softndk 0.", "192.168.100.1/24", "192.168.100.2/24", "MAC address", "iWARP"] {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
}

#[test]
fn ping_answers_every_request() {
    let image = image();
    for words in [
        &["ping"][..],
        &["ping", "-n", "2500", "-s", "0"],
        &["ping", "-n", "3", "-i", "1", "--operation", "write", "--registration", "fast"],
        &["ping", "--operation", "send", "--registration", "logical", "-s", "1M", "--notify"],
        &["ping", "--client", "1", "--server", "0", "--family", "ipv6"],
        &["ping", "--client", "1", "--server", "1"],
    ] {
        let report = report(&image, words);
        assert_eq!(report["sent"], report["received"], "{words:?}");
        let number = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name} in {report:#}"));
        assert!(
            number("min") <= number("median") && number("median") <= number("p99") && number("p99") <= number("max")
        );
    }
}

#[test]
fn ping_of_an_adapter_that_is_not_there_exits_1() {
    let image = image();
    let (code, document) = with_image(&image, &["ping", "--server", "7"]);
    assert_eq!(code, 1, "{document:#}");
    assert_eq!(document["error"]["failure"]["status"], 0xC000_00C0_u32);
    assert!(document["error"]["failure"]["what"].as_str().unwrap().contains("adapter 7"));
}

#[test]
fn number_beyond_a_limit_is_named_with_the_limit() {
    let image = image();
    for (words, named) in [
        ("send --depth 100000", "100000 requests outstanding are more than 16351, the client's MaxInitiatorQueueDepth"),
        ("read --sge 100", "100 scatter/gather elements of a request are more than 32, "),
        ("write -I -s 4K", "4096 bytes of inline data are more than 256, the client's MaxInlineDataSize"),
        ("ping -s 2G", "2147483648 bytes of a region are more than 67108864, "),
    ] {
        let (code, document) = with_image(&image, &words.split_whitespace().collect::<Vec<_>>());
        let failure = &document["error"]["failure"];
        assert_eq!((code, &failure["status"]), (1, &0xC000_000D_u32.into()), "{words}: {document:#}");
        let cause = failure["cause"].as_str().unwrap();
        assert!(cause.starts_with("STATUS_INVALID_PARAMETER") && cause.contains(named), "{words}: {cause}");
    }
}

/// A folder with a source of this length.
fn source(length: usize) -> (TempDir, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (source, dest) = (path("source"), path("dest"));
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(length as u64).fill(&mut bytes);
    fs::write(&source, bytes).unwrap();
    (folder, source, dest)
}

/// Names in a folder.
fn names(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// What one fast-register region of the adapter holds.
const WINDOW: usize = 512 * 4096;

#[test]
fn copies_are_equal_at_every_awkward_length() {
    let image = image();
    for length in [0, 1, 4095, 4096, 4097, (1 << 20) + 3, WINDOW - 1, WINDOW, WINDOW + 1, 3 * WINDOW] {
        let (folder, source, dest) = source(length);
        let report = report(&image, &["copy", &source, &dest]);
        assert_eq!(report["bytes"], length);
        assert_eq!(report["source_sha256"], report["dest_sha256"]);
        assert!(fs::read(&source).unwrap() == fs::read(&dest).unwrap(), "{length}");
        assert_eq!(names(&folder), ["dest", "source"], "no temporary file is left");
    }
}

#[test]
fn copies_in_small_windows_and_requests() {
    let image = image();
    let (_folder, source, dest) = source(100_003);
    for words in [
        &["--window", "4096"][..],
        &["--window", "4097", "--request-size", "1000", "--chain", "7"],
        &["--window", "10000", "--request-size", "1", "--chain", "128"],
        &["--notify", "--family", "ipv6"],
    ] {
        let report = report(&image, &[&["copy", &source, &dest], words].concat());
        assert_eq!(report["bytes"], 100_003, "{words:?}");
        assert!(fs::read(&source).unwrap() == fs::read(&dest).unwrap(), "{words:?}");
    }
}

#[test]
fn an_existing_destination_is_replaced() {
    let image = image();
    let (_folder, source, dest) = source(5000);
    fs::write(&dest, "longer than nothing").unwrap();
    report(&image, &["copy", &source, &dest]);
    assert!(fs::read(&source).unwrap() == fs::read(&dest).unwrap());
}

#[test]
fn a_failed_copy_leaves_what_was_there() {
    let image = image();
    let (folder, source, dest) = source(5000);
    fs::write(&dest, "as before").unwrap();
    let (code, _) = with_image(&image, &["copy", &source, &dest, "--server", "9"]);
    assert_eq!(code, 1);
    assert_eq!(fs::read(&dest).unwrap(), b"as before");
    assert_eq!(names(&folder), ["dest", "source"], "no temporary file is left");
}

#[test]
fn files_that_cannot_be_used_exit_6() {
    let image = image();
    let (folder, source, dest) = source(10);
    let folder = folder.path().to_str().unwrap();
    let missing = format!("{folder}/no/such");
    for words in
        [["copy", &missing, &dest], ["copy", folder, &dest], ["copy", &source, folder], ["copy", &source, &missing]]
    {
        let (code, document) = with_image(&image, &words);
        assert_eq!((code, &document["error"]["failure"]["kind"]), (6, &"file".into()), "{words:?}: {document:#}");
    }
    assert!(!Path::new(&dest).exists());
}

/// The source is a pipe: the copy waits for its end until it is interrupted.
#[test]
fn an_interrupted_copy_leaves_no_temporary_file() {
    let image = image();
    for (signal, word) in [("INT", "interrupt"), ("TERM", "end")] {
        let folder = tempfile::tempdir().unwrap();
        let (source, dest) = (folder.path().join("source"), folder.path().join("dest"));
        assert!(Command::new("mkfifo").arg(&source).status().unwrap().success());
        fs::write(&dest, "as before").unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_ndkctl"))
            .args(["--image", image.to_str().unwrap(), "copy"])
            .args([&source, &dest])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Opened when the copy has opened its end, and kept open.
        let writer = fs::OpenOptions::new().write(true).open(&source).unwrap();
        while names(&folder).len() < 3 {
            assert!(child.try_wait().unwrap().is_none(), "the copy has ended");
            std::thread::yield_now();
        }
        let kill = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        assert!(kill.success());
        assert_eq!(child.wait().unwrap().code(), Some(130), "{word}");
        drop(writer);
        assert_eq!(names(&folder), ["dest", "source"], "{word}");
        assert_eq!(fs::read_to_string(&dest).unwrap(), "as before");
    }
}

/// What a copy must not change beside the contents; `destination.rs` has the cases.
#[test]
fn a_copy_keeps_links_and_permissions() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    let image = image();
    let (folder, source, dest) = source(5000);
    let file = folder.path().join("file");
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).unwrap();
    symlink(&file, &dest).unwrap();
    report(&image, &["copy", &source, &dest]);
    assert!(fs::symlink_metadata(&dest).unwrap().is_symlink());
    assert!(fs::read(&source).unwrap() == fs::read(&file).unwrap());
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o604);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    let (code, document) = with_image(&image, &["copy", &source, &dest]);
    assert_eq!((code, &document["error"]["failure"]["cause"]), (6, &"it is read-only".into()), "{document:#}");
}

/// The rows of a `perf` with little to do.
fn perf(words: &[&str]) -> Vec<Value> {
    let report = report(&image(), &[&["perf", "--time", "6", "--rounds", "3"], words].concat());
    for name in ["longest_dispatch_ns", "imports_per_request"] {
        assert!(report.as_object().unwrap().contains_key(name), "{name}");
    }
    report["rows"].as_array().unwrap().clone()
}

fn positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number > 0.0)
}

#[test]
fn perf_measures_transfers_beside_memcpy() {
    let standard = perf(&[]);
    assert_eq!(standard.len(), 6);
    let write = ["--operation", "write", "--size", "64,64K", "--chain", "4", "--depth", "8", "--sge", "3"];
    let send = ["--operation", "send", "--size", "64", "--measure", "latency", "--notify"];
    let several =
        ["--operation", "read", "--size", "8", "--connections", "20", "--processors", "2", "--at", "dispatch"];
    let own = [perf(&write), perf(&send), perf(&several)];
    assert_eq!(own.each_ref().map(Vec::len), [2, 1, 1]);
    for row in standard.iter().chain(own.iter().flatten()) {
        for name in ["ns_per_request", "memcpy_ns", "ratio", "megabytes_per_second"] {
            assert!(positive(&row[name]), "{name} in {row:#}");
        }
        let rounds = row["rounds"].as_array().unwrap();
        assert_eq!(rounds.len(), 3);
        for name in ["ns", "memcpy_ns", "memcpy_again_ns"] {
            assert!(rounds.iter().all(|round| positive(&round[name])), "{name} in {row:#}");
        }
        assert_eq!((&row["completions_verified"], &row["bytes_verified"]), (&true.into(), &true.into()));
        let latency = row["measure"] == "latency";
        assert_eq!((positive(&row["p50_ns"]), positive(&row["p99_ns"])), (latency, latency), "{row:#}");
    }
    assert!(positive(&own[1][0]["notifications"]));
    assert_eq!(own[2][0]["per_processor_ns"].as_array().unwrap().len(), 2);
    assert_eq!(own[2][0]["at"], "dispatch");
}

#[test]
fn perf_measures_registrations_connections_and_notifications() {
    let run = &perf(&["--operation", "fast-register", "--pages", "16"])[0];
    let scattered = &perf(&["--operation", "fast-register", "--pages", "16", "--scattered"])[0];
    assert_eq!((&run["page_runs"], &scattered["page_runs"]), (&1.into(), &16.into()));
    let connect = &perf(&["--operation", "connect"])[0];
    assert!(connect["queue_pair_bytes"].as_u64().is_some_and(|bytes| (1_000..100_000).contains(&bytes)), "{connect:#}");
    let notify = &perf(&["--operation", "notify"])[0];
    assert!(positive(&notify["p50_ns"]) && positive(&notify["p99_ns"]), "{notify:#}");
    assert_eq!(notify["elsewhere"], 0);
    for row in [run, scattered, connect, notify] {
        assert!(positive(&row["ns_per_request"]), "{row:#}");
        assert_eq!(row["memcpy_ns"], Value::Null);
    }
    assert_eq!((&scattered["bytes_verified"], &connect["bytes_verified"]), (&true.into(), &Value::Null));
}

#[test]
fn a_sweep_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sweep.svg");
    let name = file.to_str().unwrap();
    let rows = perf(&["--operation", "read", "--measure", "latency", "--sweep", "--svg", name]);
    let sizes: Vec<u64> = rows.iter().map(|row| row["size"].as_u64().unwrap()).collect();
    assert_eq!((sizes.len(), sizes[0], sizes[17]), (18, 8, 1 << 20));
    let drawing = fs::read_to_string(&file).unwrap();
    for wanted in ["<svg", "Read, one at a time (", "kernel host", "memcpy", "size of a request", "</svg>"] {
        assert!(drawing.contains(wanted), "{wanted}");
    }
}

#[test]
fn a_picture_that_cannot_be_drawn_is_refused_before_the_run() {
    // Measured, the rows would take hours.
    let nowhere = ["perf", "--time", "600s", "--operation", "read", "--sweep", "--svg", "/no/such/folder/a.svg"];
    let (code, document) = with_image(&image(), &nowhere);
    assert_eq!((code, &document["error"]["failure"]["kind"]), (6, &"file".into()), "{document:#}");
}

#[test]
fn wire_list_names_a_value_that_is_no_list_of_peers() {
    let image = image();
    let listed = report(&image, &["wire", "list", "--adapters", "1", "--keyword", "UplinkPeers=192.0.2.2,here"]);
    assert_eq!((&listed["uplinks"], listed["invalid"].as_array().unwrap().len()), (&Value::Array(Vec::new()), 1));
    assert!(listed["invalid"][0]["cause"].as_str().unwrap().contains("\"192.0.2.2,here\""), "{listed:#}");
    let good = report(&image, &["wire", "list", "--adapters", "1", "--keyword", "UplinkPeers=192.0.2.2"]);
    assert_eq!((good["uplinks"].as_array().unwrap().len(), &good["invalid"]), (1, &Value::Array(Vec::new())));
}

#[test]
fn perf_refuses_what_makes_no_sense() {
    let image = image();
    let (code, document) = with_image(&image, &["perf", "--time", "1", "--mode", "verify"]);
    assert_eq!(code, 2, "{document:#}");
    assert!(document["error"]["failure"]["next_step"].as_str().unwrap().contains("--mode fast"));
    let (code, document) = with_image(&image, &["perf", "--operation", "connect", "--processors", "2"]);
    assert_eq!((code, &document["error"]["failure"]["kind"]), (2, &"usage".into()), "{document:#}");
    // What only the driver knows: the machine has two processors.
    let (code, document) = with_image(&image, &["perf", "--operation", "read", "--processors", "3"]);
    assert_eq!((code, &document["error"]["failure"]["kind"]), (1, &"refused".into()), "{document:#}");
}

#[test]
fn stress_ends_with_a_tally_that_balances() {
    let words = ["stress", "--steady", "--seconds", "4", "--consumers", "2", "--connections", "2", "--mode", "verify"];
    let steady = report(&image(), &words)["steady"].clone();
    let number = |name: &str| steady["requests"][name].as_u64().unwrap();
    assert!(number("silent") > 0 && number("compared") > 0, "{steady:#}");
    assert_eq!(number("posted"), number("completed") + number("silent") + number("failed"), "{steady:#}");
    for operation in ["open", "connect", "read", "write", "send", "close"] {
        assert!(steady["operations"][operation]["tried"].as_u64() > Some(0), "{operation}: {steady:#}");
    }
}

#[test]
fn stress_says_how_far_it_is() {
    let image = image();
    let image = image.to_str().unwrap();
    let errors = |words: &[&str]| {
        let output = ndkctl(&[&["--image", image, "stress", "--seconds", "2", "--consumers", "1"], words].concat());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let shown = errors(&[]);
    // How far it is at the first look is up to the machine.
    for phase in ["steady phase: ", "chaos phase: "] {
        let is_one =
            |line: &str| line.starts_with(phase) && line.contains(" of 1 s, ") && line.ends_with(" operations");
        assert!(shown.lines().any(is_one), "{phase} is missing: {shown}");
    }
    // On a busy machine the chaos phase may have shown nothing, which is an error and no progress.
    assert!(!errors(&["--quiet"]).contains(" phase: "));
}

#[test]
fn the_demonstration_ends_with_nothing_left() {
    let image = image();
    let output =
        ndkctl(&["--image", image.to_str().unwrap(), "demo", "--size", "3M", "--pings", "100", "--time", "10"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let last = text.lines().last().unwrap_or_default();
    assert_eq!(last, "Left behind: 0 pool blocks, 0 MDLs, 0 handles, 0 others.");
    let document = report(&image, &["demo", "--size", "3M", "--pings", "100", "--time", "10"]);
    assert_eq!(document["image"]["size"], fs::metadata(&image).unwrap().len());
    assert_eq!(document["left"]["pool_blocks"], 0);
    assert_eq!(document["transfers"]["copy"]["bytes"], 3 << 20);
    assert!(text.contains("have the same SHA-256"), "{text}");
    let refusal = &document["mistake"]["refusals"]["refusals"][0];
    assert_eq!((&refusal["call"], &refusal["code"]), (&"NdkRead".into(), &0xC000_013D_u32.into()), "{refusal}");
    assert!(text.contains(refusal["cause"].as_str().unwrap()), "{text}");
    assert!(document["mistake"]["objects"]["counts"]["queue pair"].as_u64() >= Some(2), "{document}");
    assert!(document["transfers"]["perf"]["rows"].as_array().is_some_and(|rows| rows.len() >= 6), "{document}");
    assert!(text.contains("Read 64 KiB"), "{text}");
}

/// As `cargo xtask` names it, which has built all parts.
#[test]
fn the_commit_that_is_given_is_that_of_parts_that_name_none() {
    let image = image();
    let mut info = Command::new(env!("CARGO_BIN_EXE_ndkctl"));
    let info = info.arg("--image").arg(image).arg("info").env("SOFTNDK_BUILT_FROM", "abc1234").output().unwrap();
    let text = String::from_utf8_lossy(&info.stdout);
    assert!(text.contains("commit abc1234") && !text.contains("commit unknown"), "{text}");
}
