//! The tags of the trials against `docs/rules.md`: none unknown, none without a trial.

use std::collections::BTreeMap;

use conformance::case;
use conformance::machine::workspace;
use conformance::trial::Case;

pub const CASES: &[Case] = &[case!(every_tag_is_a_rule_and_every_rule_has_a_trial: "TAGS-1")];

fn every_tag_is_a_rule_and_every_rule_has_a_trial() {
    let text = std::fs::read_to_string(workspace().join("docs/rules.md")).expect("docs/rules.md");
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let (tag, _rule, _source) = (cells.next()?, cells.next()?, cells.next()?);
        let elsewhere = cells.next()?;
        let is_tag = tag.contains('-') && tag.ends_with(|last: char| last.is_ascii_digit());
        is_tag.then_some((tag, !elsewhere.is_empty()))
    });
    let mut rules: BTreeMap<&str, (bool, usize)> = rows.map(|(tag, elsewhere)| (tag, (elsewhere, 0))).collect();
    let trials = super::SUITES.iter().flat_map(|(_, cases)| cases.iter());
    for (name, tag) in trials.flat_map(|case| case.rules.iter().map(|tag| (case.name, *tag))) {
        let rule =
            rules.get_mut(tag).unwrap_or_else(|| panic!("{name} names {tag}, which docs/rules.md does not have"));
        rule.1 += 1;
    }
    let untested: Vec<&&str> =
        rules.iter().filter(|(_, (elsewhere, trials))| !elsewhere && *trials == 0).map(|(tag, _)| tag).collect();
    assert!(untested.is_empty(), "rules without a trial: {untested:?}");
}
