//! A command ends quietly when the reader of its output has closed the pipe.

#![cfg(unix)]

use std::{
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
