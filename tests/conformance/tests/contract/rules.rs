//! The tags of the trials against `docs/rules.md`: none unknown, no trial with more than five.
//! Whether every rule has a test, here or elsewhere, is checked by `cargo xtask rules`.

use std::collections::BTreeSet;

use conformance::case;
use conformance::machine::workspace;
use conformance::trial::Case;

/// Most rules that one trial may name.
const MOST_TAGS: usize = 5;

pub const CASES: &[Case] = &[case!(every_tag_is_a_rule: "TAGS-1")];

fn every_tag_is_a_rule() {
    let text = std::fs::read_to_string(workspace().join("docs/rules.md")).expect("docs/rules.md");
    let rules: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix('|')?.split('|').map(str::trim).next())
        .filter(|tag| tag.contains('-') && tag.ends_with(|last: char| last.is_ascii_digit()))
        .collect();
    for case in super::SUITES.iter().flat_map(|(_, cases)| cases.iter()) {
        assert!(case.rules.len() <= MOST_TAGS, "{} names {} rules", case.name, case.rules.len());
        for tag in case.rules {
            assert!(rules.contains(tag), "{} names {tag}, which docs/rules.md does not have", case.name);
        }
    }
}
