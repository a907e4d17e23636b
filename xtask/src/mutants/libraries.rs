//! Mutants of the engine and the cells: cargo-mutants changes a copy of the tree, builds it and runs their tests, a mutant at a time.
//!
//! Which files, tests and profile those are says `.cargo/mutants.toml`, so that `cargo mutants` without this command does the same.

use super::{CARGO_MUTANTS, MutantsArguments};
use crate::{command, workspace::Workspace};
use anyhow::{Result, bail};
use serde_json::Value;
use std::{
    fs,
    process::{Command, Stdio},
};

/// What cargo-mutants ends with when it has judged all and some were missed, or hung: that is a result.
const JUDGED: [i32; 3] = [0, 2, 3];

pub(super) fn run(workspace: &Workspace, arguments: &MutantsArguments, part: usize) -> Result<()> {
    let folder = workspace.path("target/mutants/libraries");
    fs::create_dir_all(&folder)?;
    let mut cargo = Command::new(CARGO_MUTANTS.require(workspace)?);
    cargo.current_dir(workspace.root()).args(["mutants", "--package", "softndk-engine", "--package", "softndk-cells"]);
    // Every n-th, so that a part has something of every file.
    cargo.args(["--shard", &format!("{part}/{}", arguments.shard.of), "--sharding", "round-robin"]);
    if let Some(file) = &arguments.file {
        // Within the name of a file or a folder, and across both.
        cargo.args([format!("--file=**/*{file}*"), format!("--file=**/*{file}*/**")]);
    }
    cargo.args(arguments.name.iter().map(|name| format!("--re={}", literal(name))));
    if arguments.list {
        return command::run(cargo.arg("--list"));
    }
    cargo.args(["--no-times", "--colors", "never", "--output"]).arg(&folder).stdin(Stdio::null());
    let status = cargo.status()?;
    if !status.code().is_some_and(|code| JUDGED.contains(&code)) {
        bail!("cargo-mutants ended with {status}; its logs are in {}", workspace.show(&folder));
    }
    let mutants = fs::read_to_string(folder.join("mutants.out/mutants.json"))?;
    if serde_json::from_str::<Vec<Value>>(&mutants)?.is_empty() {
        bail!("there is no such mutant");
    }
    Ok(())
}

/// A regular expression that matches this text and nothing else.
fn literal(text: &str) -> String {
    let escaped = |letter: char| if r"\.+*?()|[]{}^$".contains(letter) { vec!['\\', letter] } else { vec![letter] };
    text.chars().flat_map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::literal;
    use crate::workspace::Workspace;
    use std::fs;

    #[test]
    fn profile_of_the_settings_is_one_of_the_workspace() {
        let workspace = Workspace::find().unwrap();
        let read = |name| fs::read_to_string(workspace.path(name)).unwrap();
        let settings = read(".cargo/mutants.toml");
        let profile = settings.lines().find_map(|line| line.strip_prefix("profile = \"")?.strip_suffix('"')).unwrap();
        assert!(read("Cargo.toml").contains(&format!("\n[profile.{profile}]\n")), "there is no {profile}");
    }

    #[test]
    fn name_is_taken_as_it_is_written() {
        assert_eq!(literal("timer.rs:213: a < (b)"), r"timer\.rs:213: a < \(b\)");
    }
}
