//! Mutants of the engine and the cells: cargo-mutants changes a copy of the tree, builds it and runs their tests, a mutant at a time.
//!
//! Which files, tests and profile those are says `.cargo/mutants.toml`, so that `cargo mutants` without this command does the same.

use super::{CARGO_MUTANTS, MutantsArguments};
use crate::{command, workspace::Workspace};
use anyhow::{Result, bail};
use std::{
    fs,
    io::ErrorKind,
    path::Path,
    process::{Command, Stdio},
};

/// What cargo-mutants ends with when it has judged all and some were missed, or hung: that is a result.
const JUDGED: [i32; 3] = [0, 2, 3];

/// Lists of verdicts that cargo-mutants writes, a mutant a line.
const VERDICTS: [&str; 4] = ["caught", "timeout", "missed", "unviable"];

pub(super) fn run(workspace: &Workspace, arguments: &MutantsArguments, part: usize) -> Result<()> {
    let folder = workspace.path("target/mutants/libraries");
    fs::create_dir_all(&folder)?;
    let mut cargo = Command::new(CARGO_MUTANTS.require(workspace)?);
    cargo.current_dir(workspace.root()).args(["mutants", "--package", "softndk-engine", "--package", "softndk-cells"]);
    // Every n-th, so that a part has something of every file.
    cargo.args(["--shard", &format!("{part}/{}", arguments.shard.of), "--sharding", "round-robin"]);
    cargo.args(arguments.file.iter().map(|file| format!("--file=*{file}*")));
    cargo.args(arguments.name.iter().map(|name| format!("--re={}", literal(name))));
    if arguments.list {
        return command::run(cargo.arg("--list"));
    }
    cargo.args(["--no-times", "--colors", "never", "--output"]).arg(&folder).stdin(Stdio::null());
    let status = cargo.status()?;
    if !status.code().is_some_and(|code| JUDGED.contains(&code)) {
        bail!("cargo-mutants ended with {status}; its logs are in {}", workspace.show(&folder));
    }
    let counts = counts(&folder.join("mutants.out"))?;
    if counts.iter().sum::<usize>() == 0 {
        bail!("there is no such mutant");
    }
    println!("{}", line(part, arguments.shard.of, counts));
    Ok(())
}

/// How many lines each list has; one that has none may not be there.
fn counts(folder: &Path) -> Result<[usize; 4]> {
    let mut counts = [0; 4];
    for (verdict, count) in VERDICTS.iter().zip(&mut counts) {
        match fs::read_to_string(folder.join(verdict).with_extension("txt")) {
            Ok(list) => *count = list.lines().count(),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(counts)
}

fn line(part: usize, of: usize, [caught, hung, missed, unviable]: [usize; 4]) -> String {
    let noticed = (caught + hung) * 1000 / (caught + hung + missed).max(1);
    let (whole, tenth) = (noticed / 10, noticed % 10);
    format!(
        "mutants: part {part} of {of}: {caught} caught, {hung} hung, {missed} missed, {unviable} do not compile; \
         {whole}.{tenth} % noticed"
    )
}

/// A regular expression that matches this text and nothing else.
fn literal(text: &str) -> String {
    let escaped = |letter: char| if r"\.+*?()|[]{}^$".contains(letter) { vec!['\\', letter] } else { vec![letter] };
    text.chars().flat_map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::{counts, line, literal};
    use crate::workspace::Workspace;
    use std::fs;

    #[test]
    fn lists_are_counted_and_one_that_is_not_there_is_empty() {
        let folder = Workspace::find().unwrap().path("target/mutants-test");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("caught.txt"), "a\nb\n").unwrap();
        fs::write(folder.join("missed.txt"), "c\n").unwrap();
        assert_eq!(counts(&folder).unwrap(), [2, 0, 1, 0]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn unviable_mutants_are_no_part_of_the_share() {
        assert!(line(3, 40, [2, 1, 1, 9]).ends_with("2 caught, 1 hung, 1 missed, 9 do not compile; 75.0 % noticed"));
        assert!(line(0, 1, [0; 4]).ends_with("0.0 % noticed"));
    }

    #[test]
    fn name_is_taken_as_it_is_written() {
        assert_eq!(literal("timer.rs:213: a < (b)"), r"timer\.rs:213: a < \(b\)");
    }
}
