//! `xtask/lists/arguments.txt`: for each row the test that stands for it.

use super::{row::ArgumentRow, suite::BorderSuite};
use crate::workspace::{Workspace, write_if_changed};
use anyhow::{Context, Result};
use std::{collections::BTreeMap, fmt::Write, fs};

pub const FILE: &str = "xtask/lists/arguments.txt";

const HEAD: &str = "\
# Every argument, field and flag that crosses a border, a mistake with it, and the test that fails with that mistake.
# Written by `cargo xtask arguments --find`; proved by `cargo xtask arguments`. `unit` names a test that runs without an image: it is
# claimed by its author and not proved by the command.
";

/// A test: its suite, or `None` for a unit test, and its name.
pub type NamedTest = (Option<BorderSuite>, String);

/// Argument and mistake.
pub type Key = (String, String);

pub fn key(row: &ArgumentRow) -> Key {
    (row.argument.clone(), row.mistake.clone())
}

pub fn read(workspace: &Workspace) -> Result<BTreeMap<Key, NamedTest>> {
    let text = fs::read_to_string(workspace.path(FILE)).unwrap_or_default();
    parse(&text)
}

fn parse(text: &str) -> Result<BTreeMap<Key, NamedTest>> {
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let columns = line.split(" | ").map(str::trim).collect::<Vec<_>>();
        let [argument, mistake, named] = columns[..] else { anyhow::bail!("{FILE}: `{line}` is no row") };
        let (suite, name) = named.split_once(' ').with_context(|| format!("{FILE}: `{line}` names no test"))?;
        let suite = if suite == "unit" {
            None
        } else {
            Some(BorderSuite::named(suite).with_context(|| format!("{FILE}: {suite} is no suite"))?)
        };
        rows.insert((argument.to_owned(), mistake.to_owned()), (suite, name.to_owned()));
    }
    Ok(rows)
}

/// Writes the rows that have a test, in the order of the definitions.
pub fn write(workspace: &Workspace, rows: &[ArgumentRow], tests: &BTreeMap<Key, NamedTest>) -> Result<()> {
    write_if_changed(&workspace.path(FILE), format(rows, tests)?.as_bytes())
}

fn format(rows: &[ArgumentRow], tests: &BTreeMap<Key, NamedTest>) -> Result<String> {
    let mut text = HEAD.to_owned();
    for row in rows {
        if let Some((suite, name)) = tests.get(&key(row)) {
            let suite = suite.map_or_else(|| "unit".to_owned(), |suite| suite.to_string());
            writeln!(text, "{} | {} | {suite} {name}", row.argument, row.mistake)?;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::{ArgumentRow, BorderSuite, format, parse};

    #[test]
    fn what_is_written_is_read_again() {
        let row = |argument: &str| ArgumentRow {
            argument: argument.into(),
            mistake: "<-> B".into(),
            suite: BorderSuite::Driver,
            call: "X".into(),
            distortion: "0/forgotten".into(),
        };
        let list = "A.x | <-> B | driver windows::bind\nA.y | <-> B | unit ndkctl info::tests::shows\n";
        let tests = parse(list).unwrap();
        let text = format(&[row("A.x"), row("A.y"), row("A.z")], &tests).unwrap();
        assert!(text.ends_with(list), "{text}");
        assert!(parse("A | b").is_err() && parse("A | b | other x").is_err());
    }
}
