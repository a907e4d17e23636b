//! `--capture`: what two ends in one kernel host say across a stream is in the file. Its format has tests in the kernel host.

use super::{failure, report};
use std::fs;
use std::path::PathBuf;

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("ndkctl-{name}-{}.pcapng", std::process::id()))
}

/// How often these bytes are in others.
fn count(within: &[u8], wanted: &[u8]) -> usize {
    within.windows(wanted.len()).filter(|window| *window == wanted).count()
}

#[test]
fn capture_has_what_a_connection_carries() {
    let path = file("ping");
    let words = ["ping", "-n", "3", "--keyword", "Transport=2", "--capture", path.to_str().unwrap()];
    report(&words);
    let bytes = fs::read(&path).expect("the capture");
    fs::remove_file(&path).expect("it is there");
    assert!(bytes.starts_with(&[0x0A, 0x0D, 0x0D, 0x0A]), "a section of pcapng");
    assert_eq!([b"MPA ID Req Frame", b"MPA ID Rep Frame"].map(|start| count(&bytes, start)), [1, 1]);
    // DDP and RDMAP of a Send on queue 0: one of each side for each message at least.
    assert!(count(&bytes, &[0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0]) >= 6, "Sends");
}

#[test]
fn capture_that_cannot_be_written_exits_6() {
    let failure = failure(&["ping", "--capture", "/nowhere/file.pcapng"], 6, "file");
    assert!(failure["what"].as_str().unwrap().contains("/nowhere/file.pcapng"), "{failure}");
}
