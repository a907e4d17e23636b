//! The lower bounds: `xtask/lists/coverage.txt`, a line a crate with the percentages of its lines and branches, and the commit that was measured.
//!
//! A point of tolerance, because scheduling is not the same in every run. Pages that show the numbers show those of the record.

use super::report::{CRATES, Report};
use crate::{commit, workspace::Workspace};
use anyhow::{Context, Result, bail, ensure};
use std::{fmt::Write as _, fs};

const FILE: &str = "xtask/lists/coverage.txt";

/// By how many percent a number may be lower.
const CAPACITY: f64 = 1.0;

const HEAD: &str = "# Percent of lines and branches that tests run through, by crate. A run that is more than a point lower fails.\n\
                    # Written by `cargo xtask coverage --bless`; docs/coverage.md says what is counted.\n";

/// Before the commit that was measured.
const COMMIT: &str = "# Commit: ";

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
    let text = write(&commit::checked_out(workspace)?, &levels(report));
    fs::write(workspace.path(FILE), text).with_context(|| format!("cannot write {FILE}"))
}

/// Says which commit the numbers are of. Fails when what they are about has changed since, or when a page shows others.
pub(super) fn show(workspace: &Workspace) -> Result<()> {
    let text = fs::read_to_string(workspace.path(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    let measured = measured(&text)?;
    println!("{FILE} is of commit {measured}");
    let stray = stray(workspace, &read(&text)?)?;
    if !stray.is_empty() {
        bail!("{}", stray.join("\n"));
    }
    let folders = CRATES.iter().flat_map(|(_, folders)| *folders).copied().collect::<Vec<_>>();
    let (commits, dirty) = commit::changes_since(workspace, measured.trim_end_matches('+'), &folders)?;
    if commits > 0 || dirty || measured.ends_with('+') {
        let beside = if dirty || measured.ends_with('+') { ", and files differ from their commit" } else { "" };
        bail!(
            "{commits} commits have changed what was measured since{beside}; `cargo xtask coverage --bless` measures anew"
        );
    }
    Ok(())
}

/// The commit of a record.
fn measured(text: &str) -> Result<&str> {
    text.lines().find_map(|line| line.strip_prefix(COMMIT)).with_context(|| format!("{FILE} names no commit"))
}

/// Numbers of pages that are not those of the record, a sentence each.
fn stray(workspace: &Workspace, levels: &[Level]) -> Result<Vec<String>> {
    let page = |name: &str| fs::read_to_string(workspace.path(name)).with_context(|| format!("cannot read {name}"));
    let (table, evidence) = (page("docs/coverage.md")?, page("docs/evidence.md")?);
    let row = |level: &Level| format!("| {} | {:.1} % | {:.1} % |", level.name, level.lines, level.branches);
    let missing = levels.iter().map(row).filter(|row| !table.contains(row.as_str()));
    let known = levels.iter().flat_map(|level| [level.lines, level.branches]).map(|number| format!("{number:.1}"));
    let known = known.collect::<Vec<_>>();
    let foreign = percentages(&evidence).filter(|number| !known.contains(number));
    let missing = missing.map(|row| format!("docs/coverage.md has no row {row}"));
    Ok(missing
        .chain(foreign.map(|number| format!("docs/evidence.md says {number} % of coverage, {FILE} does not")))
        .collect())
}

/// Percentages in the lines of a page that are about coverage: those that link to its page.
fn percentages(page: &str) -> impl Iterator<Item = String> {
    let lines = page.lines().filter(|line| line.contains("coverage.md"));
    let numbers = lines.flat_map(|line| line.split('%').filter_map(|before| before.split_whitespace().next_back()));
    numbers.filter(|word| word.parse::<f64>().is_ok()).map(str::to_owned)
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

fn write(commit: &str, levels: &[Level]) -> String {
    let mut text = format!("{HEAD}{COMMIT}{commit}\n");
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
    fn pages_show_the_numbers_of_the_record() {
        let workspace = Workspace::find().unwrap();
        let text = fs::read_to_string(workspace.path(FILE)).unwrap();
        assert!(measured(&text).is_ok());
        assert_eq!(stray(&workspace, &read(&text).unwrap()).unwrap(), [""; 0]);
        assert_eq!(
            stray(&workspace, &level(1.5, 2.5)).unwrap()[0],
            "docs/coverage.md has no row | engine | 1.5 % | 2.5 % |"
        );
    }

    #[test]
    fn percentages_are_those_of_lines_about_coverage() {
        let page =
            "90.7 % of each kind\n97.2 % of the lines and 83.1% of the branches ([docs/coverage.md](x)), 100% sure\n";
        assert_eq!(percentages(page).collect::<Vec<_>>(), ["97.2", "83.1", "100"]);
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
        let text = write("abc1234", &levels);
        assert_eq!((read(&text).unwrap(), measured(&text).unwrap()), (levels, "abc1234"));
        assert!(measured("engine 90 80").is_err());
        assert!(read("engine 90").is_err() && read("engine 90 80 70").is_err() && read("engine ninety 80").is_err());
    }
}
