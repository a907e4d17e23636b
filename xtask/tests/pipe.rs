//! A command ends quietly when the reader of its output has closed the pipe, and with an error when its output is lost.

#![cfg(unix)]

use std::{
    fs::OpenOptions,
    io,
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
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
