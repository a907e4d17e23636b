//! The lower bounds: `docs/coverage.txt`, a line a crate with the percentages of its lines and branches.
//!
//! A point of tolerance, because scheduling is not the same in every run.

use super::report::Report;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use std::{fmt::Write as _, fs};

const FILE: &str = "docs/coverage.txt";

/// By how many percent a number may be lower.
const CAPACITY: f64 = 1.0;

const HEAD: &str = "# Percent of lines and branches that tests run through, by crate. A run that is more than a point lower fails.\n\
                    # Written by `cargo xtask coverage --bless`; docs/coverage.md says what is counted.\n";

/// Percentages of a crate.
#[derive(Clone, Debug, PartialEq)]
struct Level {
    name: String,
    lines: f64,
    branches: f64,
}

/// Fails when a crate is below its numbers.
pub(super) fn check(workspace: &Workspace, report: &Report) -> Result<()> {
    let path = workspace.path(FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {FILE}"))?;
    let lost = lost(&read(&text)?, &levels(report))?;
    if !lost.is_empty() {
        bail!("{}; `--json` names the lines that nothing ran, `--bless` takes the new numbers over", lost.join(", "));
    }
    Ok(())
}

/// Takes the numbers over.
pub(super) fn bless(workspace: &Workspace, report: &Report) -> Result<()> {
    fs::write(workspace.path(FILE), write(&levels(report))).with_context(|| format!("cannot write {FILE}"))
}

fn levels(report: &Report) -> Vec<Level> {
    let level = |(name, shares): (&str, super::report::Shares)| Level {
        name: name.to_owned(),
        lines: shares.lines.percent(),
        branches: shares.branches.percent(),
    };
    report.crates().map(level).collect()
}

/// What is lower than it was, in words.
fn lost(before: &[Level], now: &[Level]) -> Result<Vec<String>> {
    let mut lost = Vec::new();
    ensure!(before.len() == now.len(), "{FILE} has {} crates, the report {}", before.len(), now.len());
    for level in now {
        let name = &level.name;
        let old = before.iter().find(|old| old.name == *name).with_context(|| format!("{FILE} lacks {name}"))?;
        for (what, old, now) in [("lines", old.lines, level.lines), ("branches", old.branches, level.branches)] {
            if now < old - CAPACITY {
                lost.push(format!("{name}: {now:.1} % of the {what}, {old:.1} % before"));
            }
        }
    }
    Ok(lost)
}

fn read(text: &str) -> Result<Vec<Level>> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| level(line).with_context(|| format!("{FILE}: {line:?} is no crate with two numbers"))).collect()
}

fn level(line: &str) -> Option<Level> {
    let mut words = line.split_whitespace();
    let (name, lines, branches) = (words.next()?.to_owned(), words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    words.next().is_none().then_some(Level { name, lines, branches })
}

fn write(levels: &[Level]) -> String {
    let mut text = HEAD.to_owned();
    for Level { name, lines, branches } in levels {
        let _ = writeln!(text, "{name} {lines:.1} {branches:.1}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(lines: f64, branches: f64) -> Vec<Level> {
        vec![Level { name: "engine".to_owned(), lines, branches }]
    }

    #[test]
    fn numbers_may_be_a_point_lower_and_no_more() {
        let before = level(90.0, 80.0);
        assert!(lost(&before, &level(89.0, 79.0)).unwrap().is_empty());
        assert_eq!(lost(&before, &level(88.9, 99.0)).unwrap(), ["engine: 88.9 % of the lines, 90.0 % before"]);
        assert_eq!(lost(&before, &level(99.0, 78.9)).unwrap(), ["engine: 78.9 % of the branches, 80.0 % before"]);
    }

    #[test]
    fn crate_without_numbers_is_an_error() {
        assert!(lost(&[], &level(90.0, 80.0)).is_err());
        let other = vec![Level { name: "cells".to_owned(), lines: 1.0, branches: 1.0 }];
        assert!(lost(&other, &level(90.0, 80.0)).is_err());
    }

    #[test]
    fn what_was_written_is_read() {
        let levels = level(90.1, 80.0);
        assert_eq!(read(&write(&levels)).unwrap(), levels);
        assert!(read("engine 90").is_err() && read("engine 90 80 70").is_err() && read("engine ninety 80").is_err());
    }
}
