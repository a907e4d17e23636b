//! Every command line of ndkctl that a page shows in a block runs as it stands there, or stands here with the reason why not.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Lines that are not run, by how they begin.
const NOT_RUN: [(&str, &str); 5] = [
    ("adapter ", "Windows"),
    ("nd install", "Windows; tests/nd.rs makes the entries"),
    ("demo", "tests/commands.rs runs it, smaller"),
    ("stress ", "minutes; tests/commands.rs runs it, shorter"),
    ("perf", "minutes, on a quiet machine; tests/commands.rs runs each of its options"),
];

/// Lines without an end: they are ended once they have written a line.
const ENDLESS: [&str; 1] = ["events --follow"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pages() -> Vec<PathBuf> {
    let folder = fs::read_dir(workspace().join("docs")).expect("the pages");
    let pages = folder.map(|entry| entry.expect("a page").path());
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.chain([workspace().join("README.md")]).collect()
}

/// What follows `ndkctl` in the lines of blocks, without comments.
fn lines() -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        let mut is_code = false;
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                is_code = !is_code;
            } else if let (true, Some(command)) = (is_code, line.trim().strip_prefix("ndkctl ")) {
                let command = command.split(" #").next().unwrap_or_default().trim();
                lines.insert(command.to_owned());
            }
        }
    }
    lines
}

fn command(folder: &Path, words: &str) -> Command {
    let target = workspace().join("target").canonicalize().expect("there is a target folder");
    let image = ["debug", "release"].map(|profile| target.join("driver/x64").join(profile).join("softndk.sys"));
    let image = image.into_iter().find(|path| path.exists()).expect("`cargo xtask driver` builds the image");
    let image = std::env::var_os("SOFTNDK_IMAGE").map_or(image, PathBuf::from);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ndkctl"));
    command.args(words.split_whitespace()).current_dir(folder);
    command.env("SOFTNDK_IMAGE", image).env("SOFTNDK_DLL", target.join("softnd/x64/release/softnd.dll"));
    command
}

#[test]
fn every_line_of_a_page_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("big.iso"), vec![7; 1 << 20]).expect("the file that is copied");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/refusals.ndk");
    fs::copy(script, folder.path().join("case.ndk")).expect("the script that is replayed");
    let lines = lines();
    assert!(lines.len() > 12, "lines were found: {lines:?}");
    let mut ran = 0;
    for line in &lines {
        if NOT_RUN.iter().any(|(start, _)| line.starts_with(start)) {
            continue;
        }
        ran += 1;
        let mut command = command(folder.path(), line);
        if ENDLESS.contains(&line.as_str()) {
            let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
            let mut first = String::new();
            BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut first).expect("a line");
            child.kill().expect("it runs");
            child.wait().expect("it ends");
            assert!(first.contains("driver loaded"), "{line}: {first}");
            continue;
        }
        let output = command.output().expect("the binary starts");
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(output.status.success(), "{line}: {}\n{text}", output.status);
        assert!(!text.trim().is_empty(), "{line} says something");
    }
    assert!(ran > 7, "{ran} of {lines:?}");
    for (start, why) in NOT_RUN {
        assert!(lines.iter().any(|line| line.starts_with(start)), "{start} ({why}) stands on no page");
    }
}
