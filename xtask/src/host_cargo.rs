//! Cargo, for what runs on this machine: every command builds the same libraries, once.
//!
//! Two things would make cargo build a library a second time. A driver's profile aborts at a panic, and a test has to unwind: here
//! programs unwind, too. And `--package` chooses the features of what it depends on anew: what a command wants is chosen by the name of
//! a test, an example or a program. The tests below check it.

use crate::{command, workspace::Workspace};
use anyhow::{Context, Result};
use std::{path::PathBuf, process::Command};
use xtask_start::UNWINDING;

/// Cargo in the root of the workspace.
pub(crate) fn cargo(workspace: &Workspace) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(workspace.root()).args(UNWINDING);
    cargo
}

/// An example as tests have it.
pub(crate) fn example(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    build(workspace, "--example", name)?;
    Ok(workspace.path("target/debug/examples").join(name))
}

/// A program as tests have it.
pub(crate) fn program(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    build(workspace, "--bin", name)?;
    Ok(workspace.path("target/debug").join(name))
}

fn build(workspace: &Workspace, kind: &str, name: &str) -> Result<()> {
    let mut cargo = cargo(workspace);
    command::run(cargo.args(["build", "--quiet", "--locked", kind, name]))
        .with_context(|| format!("{name} does not build"))
}

#[cfg(test)]
mod tests {
    use super::cargo;
    use crate::{command, soak, stages::Program, test, workspace::Workspace};
    use serde_json::Value;
    use std::collections::BTreeMap;
    use xtask_start::PROGRAM;

    /// What a cargo command would build: for each thing all that decides whether another command's will do, and its features.
    type Units = BTreeMap<String, (String, Value)>;

    /// Asks cargo, which says it only when told that it may be unstable.
    fn units(workspace: &Workspace, words: &[&str]) -> Units {
        let (words, own) = words.split_at(words.iter().position(|word| *word == "--").unwrap_or(words.len()));
        let mut cargo = cargo(workspace);
        cargo.env("RUSTC_BOOTSTRAP", "1").args(words).args(["--unit-graph", "-Zunstable-options"]).args(own);
        let graph: Value = serde_json::from_str(&command::output(&mut cargo).unwrap()).unwrap();
        let units = graph["units"].as_array().unwrap();
        let mut keys = vec![None; units.len()];
        (0..units.len()).map(|index| (key(units, &mut keys, index), named(&units[index]))).collect()
    }

    fn named(unit: &Value) -> (String, Value) {
        (unit["target"]["name"].to_string(), unit["features"].clone())
    }

    fn key(units: &[Value], keys: &mut Vec<Option<String>>, index: usize) -> String {
        if keys[index].is_none() {
            let unit = &units[index];
            let mut profile = unit["profile"].clone();
            // `test` and `dev` differ by their names only.
            profile.as_object_mut().unwrap().remove("name");
            let mut parts =
                vec![&unit["pkg_id"], &unit["target"], &unit["mode"], &unit["platform"], &profile, &unit["features"]]
                    .into_iter()
                    .map(Value::to_string)
                    .collect::<Vec<_>>();
            for dependency in unit["dependencies"].as_array().unwrap() {
                let index = usize::try_from(dependency["index"].as_u64().unwrap()).unwrap();
                parts.push(key(units, keys, index));
            }
            // Short, because each has those of all below it.
            keys[index] = Some(digest(&parts.join("\n")));
        }
        keys[index].clone().unwrap()
    }

    fn digest(text: &str) -> String {
        use sha2::{Digest, Sha256};
        format!("{:?}", Sha256::digest(text))
    }

    /// The names of what `words` build that `whole` does not have; of what has a feature of its own nothing is said.
    fn more(workspace: &Workspace, whole: &Units, words: &[&str]) -> Vec<String> {
        let own = |features: &Value| features.as_array().unwrap().iter().any(|feature| feature == "streams");
        let built = units(workspace, words);
        assert!(!built.is_empty());
        let new = built.into_iter().filter(|(key, (_, features))| !whole.contains_key(key) && !own(features));
        new.map(|(_, (name, _))| name).collect()
    }

    #[test]
    fn every_command_builds_what_cargo_test_builds() {
        let workspace = Workspace::find().unwrap();
        let whole = units(&workspace, &["test"]);
        assert!(whole.len() > 100);
        let cargo_stages = test::ladder()
            .map(|(_, stage)| stage)
            .chain(soak::STEPS)
            .filter(|stage| matches!(stage.program, Program::Cargo));
        // What has a folder or a profile of its own has other flags, too.
        let is_own = |word: &&str| ["--target-dir", "--profile"].contains(word);
        let shared = cargo_stages.filter(|stage| stage.words[0] == "test" && !stage.words.iter().any(is_own));
        let mut stages = 0;
        for stage in shared {
            assert_eq!(more(&workspace, &whole, stage.words), [""; 0], "{}", stage.name);
            stages += 1;
        }
        assert!(stages >= 6, "{stages} stages");
        for words in
            [["build", "--bin", "oracle"], ["build", "--example", "foreign_driver"], ["test", "--test", "contract"]]
        {
            assert_eq!(more(&workspace, &whole, &words), [""; 0], "{words:?}");
        }
        // What this is about.
        assert!(!more(&workspace, &whole, &["test", "--package", "conformance"]).is_empty());
    }

    #[test]
    fn the_commands_are_built_as_cargo_test_builds_them() {
        let workspace = Workspace::find().unwrap();
        let whole = units(&workspace, &["test"]);
        assert_eq!(more(&workspace, &whole, &[&["build"][..], &PROGRAM].concat()), [""; 0]);
    }
}
