//! Every command line of ndkctl that a page shows in a block runs as it stands there, or stands here with the reason why not.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Lines that are not run, by how they begin.
const NOT_RUN: [(&str, &str); 6] = [
    ("adapter ", "Windows"),
    ("nd install", "Windows; tests/nd makes the entries"),
    ("nd nvme", "needs a target; `cargo xtask interop` runs it"),
    ("demo", "tests/commands.rs runs it, smaller"),
    ("stress ", "minutes; tests/commands.rs runs it, shorter"),
    ("perf", "minutes, on a quiet machine; tests/commands.rs runs each of its options"),
];

/// A server and its client, which run beside each other, and the network in which no other program has the same addresses.
const PAIRS: [(&str, &str); 1] = [("nd pull --machine 1 --server", "nd pull --machine 2 --client")];

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

/// Runs a server, and its client as soon as it listens.
fn run_pair(folder: &Path, server: &str, client: &str) {
    let network = (std::process::id() % 16_384).to_string();
    let with_network = |line: &str| {
        let mut command = command(folder, line);
        command.args(["--network", &network]);
        command
    };
    let mut child = with_network(server).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut said = String::new();
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
    errors.read_line(&mut said).expect("a line");
    let listens = said.starts_with("listens at ");
    let output = listens.then(|| with_network(client).output().expect("it starts"));
    if output.as_ref().is_none_or(|output| !output.status.success()) {
        child.kill().expect("it can be ended");
    }
    let ended = child.wait_with_output().expect("it ends");
    errors.read_to_string(&mut said).expect("its errors");
    let text = String::from_utf8_lossy(&ended.stdout).into_owned() + &said;
    assert!(ended.status.success(), "{server}: {text}\n{client}: {output:?}");
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
        let is_not_run = NOT_RUN.iter().any(|(start, _)| line.starts_with(start));
        if is_not_run || PAIRS.iter().any(|(server, client)| [server, client].iter().any(|end| line.starts_with(**end)))
        {
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
    for ends in PAIRS {
        let [server, client] = <[&str; 2]>::from(ends).map(|start| {
            let line = lines.iter().find(|line| line.starts_with(start));
            line.unwrap_or_else(|| panic!("{start} stands on no page"))
        });
        run_pair(folder.path(), server, client);
    }
    for (start, why) in NOT_RUN {
        assert!(lines.iter().any(|line| line.starts_with(start)), "{start} ({why}) stands on no page");
    }
}
