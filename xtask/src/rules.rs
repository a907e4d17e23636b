//! `cargo xtask rules`: the tests of each rule of `docs/rules.md`.
//!
//! It reads the list and the sources of the tests; it runs none of them. It fails when a rule has no test, when a test names
//! a tag that is not in the list or more tags than a test can be about, and when what is marked as a test is not one.

mod list;
mod test;

use crate::{command, workspace::Workspace};
use anyhow::{Context, Result, bail};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

pub use list::Rule;
pub use test::RuleTest;

/// Most rules that one test may name.
const MOST_TAGS: usize = 5;

/// Show which tests stand for which rule of docs/rules.md, and fail when one has none.
#[derive(clap::Args)]
pub struct RulesArguments {
    /// Print only the rules without a test
    #[arg(long)]
    untested: bool,

    /// Print only rules whose tag begins with one of these
    prefixes: Vec<String>,
}

/// The list with the tests of each rule.
struct RuleFindings {
    rules: Vec<Rule>,
    /// By tag, the tests that name it.
    tests: BTreeMap<String, Vec<RuleTest>>,
    /// Defects other than missing tests, a sentence each.
    defects: Vec<String>,
    unknown: usize,
}

pub fn run(arguments: &RulesArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let text = fs::read_to_string(workspace.path("docs/rules.md")).context("cannot read docs/rules.md")?;
    let findings = compare(list::read(&text)?, tests(&workspace)?);
    if let Some(prefix) = stray(&arguments.prefixes, &findings.rules) {
        bail!("no rule of docs/rules.md has a tag that begins with {prefix:?}");
    }
    print(&findings, arguments);
    verdict(&findings)
}

/// The first of the prefixes that no rule has.
fn stray<'a>(prefixes: &'a [String], rules: &[Rule]) -> Option<&'a String> {
    prefixes.iter().find(|prefix| !rules.iter().any(|rule| rule.tag.starts_with(prefix.as_str())))
}

/// The tags of the list.
pub fn tags(workspace: &Workspace) -> Result<BTreeSet<String>> {
    let text = fs::read_to_string(workspace.path("docs/rules.md")).context("cannot read docs/rules.md")?;
    Ok(list::read(&text)?.into_iter().map(|rule| rule.tag).collect())
}

/// Every test of the work tree that names a rule.
pub fn tests(workspace: &Workspace) -> Result<Vec<RuleTest>> {
    let mut git = Command::new("git");
    git.current_dir(workspace.root()).args(["ls-files", "--cached", "--others", "--exclude-standard", "--", "*.rs"]);
    let names = command::output(&mut git)?;
    let mut sources = Vec::new();
    for name in names.lines() {
        // A file that git still lists may be gone from the tree.
        let Ok(text) = fs::read_to_string(workspace.path(name)) else { continue };
        sources.push((name.to_owned(), text));
    }
    Ok(sources.iter().flat_map(|(name, text)| test::read(name, text)).collect())
}

fn compare(rules: Vec<Rule>, found: Vec<RuleTest>) -> RuleFindings {
    let mut tests: BTreeMap<String, Vec<RuleTest>> = rules.iter().map(|rule| (rule.tag.clone(), Vec::new())).collect();
    let (mut defects, mut unknown) = (Vec::new(), 0);
    for test in found {
        if let Some(why) = &test.defect {
            defects.push(format!("{}: {why}", test.shown()));
        }
        if test.tags.len() > MOST_TAGS {
            defects.push(format!("{} names {} rules; {MOST_TAGS} is the most", test.shown(), test.tags.len()));
        }
        for tag in &test.tags {
            if let Some(named) = tests.get_mut(tag) {
                named.push(test.clone());
            } else {
                unknown += 1;
                defects.push(format!("{} names {tag}, which is not in docs/rules.md", test.shown()));
            }
        }
    }
    RuleFindings { rules, tests, defects, unknown }
}

impl RuleFindings {
    fn tests_of(&self, rule: &Rule) -> &[RuleTest] {
        self.tests.get(&rule.tag).map_or(&[], Vec::as_slice)
    }

    fn untested(&self) -> usize {
        self.rules.iter().filter(|rule| self.tests_of(rule).is_empty()).count()
    }
}

fn print(findings: &RuleFindings, arguments: &RulesArguments) {
    let wanted = |rule: &&Rule| {
        arguments.prefixes.is_empty() || arguments.prefixes.iter().any(|prefix| rule.tag.starts_with(prefix.as_str()))
    };
    for rule in findings.rules.iter().filter(wanted) {
        let tests = findings.tests_of(rule);
        if tests.is_empty() {
            println!("{:<14} NO TEST  {}", rule.tag, rule.sentence);
        } else if !arguments.untested {
            let names = tests.iter().map(RuleTest::shown).collect::<Vec<_>>();
            println!("{:<14} {}", rule.tag, names.join(", "));
        }
    }
    for defect in &findings.defects {
        println!("{defect}");
    }
    let total = findings.rules.len();
    println!("{total} rules, {} tested, {} unknown", total - findings.untested(), findings.unknown);
}

fn verdict(findings: &RuleFindings) -> Result<()> {
    match (findings.untested(), findings.defects.len()) {
        (0, 0) => Ok(()),
        (0, defects) => bail!("{defects} tests name rules in a way that does not stand"),
        (untested, _) => bail!("{untested} rules have no test; `cargo xtask rules --untested` names them"),
    }
}

#[cfg(test)]
mod tests {
    use super::{RuleTest, compare, list};

    const LIST: &str =
        "## A\n\n| tag | rule | source |\n|---|---|---|\n| NDK-A-1 | One. | X |\n| NDK-A-2 | Two. | Y |\n";

    fn named(tags: &[&str]) -> RuleTest {
        let tags = tags.iter().map(ToString::to_string).collect();
        RuleTest { name: "t".into(), file: "f.rs".into(), line: 1, tags, defect: None }
    }

    // Rule: TAGS-1
    #[test]
    fn rule_without_a_test_is_found() {
        let findings = compare(list::read(LIST).unwrap(), vec![named(&["NDK-A-2"])]);
        assert_eq!((findings.untested(), findings.unknown, findings.defects.len()), (1, 0, 0));
        assert!(super::verdict(&findings).is_err());
    }

    // Rule: TAGS-1
    #[test]
    fn unknown_tag_is_found() {
        let findings = compare(list::read(LIST).unwrap(), vec![named(&["NDK-A-1", "NDK-A-2"]), named(&["NDK-A-3"])]);
        assert_eq!((findings.untested(), findings.unknown, findings.defects.len()), (0, 1, 1));
        assert!(super::verdict(&findings).is_err());
    }

    #[test]
    fn prefix_without_a_rule_is_found() {
        let (rules, words) =
            (list::read(LIST).unwrap(), |words: &[&str]| words.iter().map(ToString::to_string).collect());
        let (good, bad): (Vec<String>, Vec<String>) = (words(&["NDK-A", "NDK-A-2"]), words(&["NDK-A", "NDKX"]));
        assert_eq!(super::stray(&good, &rules), None);
        assert_eq!(super::stray(&bad, &rules), Some(&"NDKX".to_owned()));
    }

    #[test]
    fn test_about_everything_is_found() {
        let six = named(&["NDK-A-1", "NDK-A-2", "NDK-A-1", "NDK-A-2", "NDK-A-1", "NDK-A-2"]);
        assert_eq!(compare(list::read(LIST).unwrap(), vec![six]).defects.len(), 1);
    }

    #[test]
    fn complete_list_stands() {
        let findings = compare(list::read(LIST).unwrap(), vec![named(&["NDK-A-1", "NDK-A-2"])]);
        super::verdict(&findings).unwrap();
    }
}
