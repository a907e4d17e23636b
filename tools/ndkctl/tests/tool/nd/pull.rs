//! `nd pull` with both ends on one machine: sizes about a window and a request, and what it refuses.

use super::{failure, ndkctl, report, text};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A file of so many bytes, no two pages of which are alike; and a place for its copy.
fn files(size: usize) -> (TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (source, dest) = (folder.path().join("source"), folder.path().join("dest"));
    let mut bytes = vec![0; size];
    fastrand::Rng::with_seed(size as u64).fill(&mut bytes);
    fs::write(&source, bytes).unwrap();
    (folder, source, dest)
}

/// The words that pull one of these into the other.
fn words<'a>(source: &'a Path, dest: &'a Path, options: &'a str) -> Vec<&'a str> {
    let paths = ["pull", "--source", source.to_str().unwrap(), "--dest", dest.to_str().unwrap()];
    paths.into_iter().chain(options.split_whitespace()).collect()
}

#[test]
fn pulled_file_is_the_source_whatever_the_sizes() {
    for (size, options, reads) in [
        (0, "", 0),
        (1, "", 1),
        (65_536, "--notify", 1),
        ((5 << 20) + 3, "", 81),
        ((5 << 20) + 3, "--request-size 1M -t 1 --limits tiny", 6),
        (99_999, "--request-size 1000 --depth 7 --mode verify", 100),
        (70_001, "--completion-mode force-async --notify --family ipv6 --mode verify", 2),
    ] {
        let (_folder, source, dest) = files(size);
        let report = report(&words(&source, &dest, options));
        assert_eq!(fs::read(&dest).unwrap(), fs::read(&source).unwrap(), "{size} {options}");
        assert_eq!((&report["bytes"], &report["reads"]), (&size.into(), &reads.into()), "{size} {options}");
        assert_eq!(report["source_sha256"], report["dest_sha256"], "{size} {options}");
        assert_eq!(report["windows"].as_u64().unwrap() == 0, size == 0);
    }
}

#[test]
fn report_for_people_says_both_hashes() {
    let (_folder, source, dest) = files(5000);
    let shown = text(&ndkctl(&words(&source, &dest, "")).stdout);
    for wanted in ["5 000 bytes of", "by 1 RDMA reads in 1 windows, from 192.168.100.1", "SHA-256 copy", ": equal"] {
        assert!(shown.contains(wanted), "{wanted} is not in\n{shown}");
    }
}

#[test]
fn what_cannot_be_read_or_written_exits_6_and_leaves_the_destination() {
    let (folder, source, dest) = files(10);
    fs::write(&dest, "kept").unwrap();
    let missing = failure(&words(&folder.path().join("none"), &dest, ""), 6, "file");
    assert!(missing["what"].as_str().unwrap().contains("cannot read"), "{missing}");
    failure(&words(folder.path(), &dest, ""), 6, "file");
    failure(&words(&source, folder.path(), ""), 6, "file");
    // It says that it has no bytes, and has some: as a file that has grown since.
    let grown = failure(&words(Path::new("/proc/version"), &dest, ""), 6, "file");
    assert!(grown["cause"].as_str().unwrap().contains("longer"), "{grown}");
    assert_eq!(fs::read_to_string(&dest).unwrap(), "kept");
    let names = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names, 2, "no temporary file is left");
}
