//! How a command ends: quietly when the reader of its output has closed the pipe, with an error when its output is lost, and with all
//! that it started on a signal.

#![cfg(unix)]

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    process::{Command, Stdio},
    time::Duration,
};

/// The signal of a pipe without a reader.
const SIGPIPE: i32 = 13;

#[test]
fn a_command_ends_without_a_word_when_no_context_reads() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let mut list = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let ended = list.args(["seeded-bugs", "--list"]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(ended.status.signal(), Some(SIGPIPE), "{ended:?}");
    assert!(ended.stderr.is_empty(), "{ended:?}");
}

/// Every write to this device fails as on a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_command_whose_output_is_lost_fails_with_the_cause() {
    for words in [&["rules", "NDK-CQ"][..], &["test", "--list"], &["arguments", "--list"]] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        let ended = command.args(words).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{words:?}: {errors}");
        assert!(errors.starts_with("error: cannot write to standard output: "), "{words:?}: {errors}");
    }
}

/// What was chosen and is not there is an error before anything is built.
#[test]
fn a_choice_that_chooses_nothing_fails() {
    for words in [
        &["rules", "NDKX"][..],
        &["rules", "NDK-CQ", "NDKX"],
        &["arguments", "--list", "no-such-argument"],
        &["verify", "--scenario", "nosuch"],
        &["verify", "--completion-mode", "banana"],
        &["conformance", "--limits", "banana"],
        &["seeded-bugs", "--list", "no-such-bug"],
        &["fuzz", "nosuch"],
        &["fuzz", "--seconds", "0"],
        &["stress", "--minutes", "0"],
        &["repeat", "--times", "0"],
        &["test", "nosuch"],
        &["soak", "nosuch"],
    ] {
        let ended = Command::new(env!("CARGO_BIN_EXE_xtask")).args(words).output().unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert!(matches!(ended.status.code(), Some(1 | 2)), "{words:?}: {errors}");
        // Nothing of a compiler before it.
        assert!(errors.starts_with("error: "), "{words:?}: {errors}");
    }
}

/// Cargo is a script here, which starts what a build starts: children in its group and in groups of their own.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_ends_what_a_stage_has_started() {
    let folder = std::env::temp_dir().join(format!("softndk-signal-{}", std::process::id()));
    let (cargo, started) = (folder.join("cargo"), folder.join("started"));
    fs::create_dir_all(&folder).unwrap();
    let script = format!(
        "#!/bin/sh\nsleep 600 & one=$!\nsetsid sleep 600 & echo $$ $one $! >{0}.new\nmv {0}.new {0}\nwait\n",
        started.display()
    );
    fs::write(&cargo, script).unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut stage = Command::new(env!("CARGO_BIN_EXE_xtask"));
    // `clippy` is a command of this program that starts cargo: two levels.
    let mut stage = stage.args(["check", "clippy"]).env("PATH", path).stdout(Stdio::null()).spawn().unwrap();
    while !started.exists() {
        assert_eq!(stage.try_wait().unwrap(), None, "the stage ends before it has begun anything");
        std::thread::sleep(Duration::from_millis(10));
    }
    let numbers = fs::read_to_string(&started).unwrap();
    let runs = |number: &str| {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    };
    assert!(numbers.split_whitespace().count() == 3 && numbers.split_whitespace().all(runs), "{numbers}");
    assert!(Command::new("kill").args(["-TERM", &stage.id().to_string()]).status().unwrap().success());
    assert_eq!(stage.wait().unwrap().code(), Some(130));
    assert!(!numbers.split_whitespace().any(runs), "{numbers}");
    fs::remove_dir_all(folder).unwrap();
}
