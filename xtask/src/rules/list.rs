//! The list of rules: the tables of `docs/rules.md`.

use anyhow::{Result, bail};
use std::collections::BTreeSet;

/// One row of the list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    pub tag: String,
    /// The rule itself, in our words.
    pub sentence: String,
    /// Its source.
    pub source: String,
}

/// The rules in the order of the list. A tag that comes twice, a rule without a sentence or a source is a mistake in it.
pub fn read(text: &str) -> Result<Vec<Rule>> {
    let rules = text.lines().filter_map(row).collect::<Vec<_>>();
    let mut tags = BTreeSet::new();
    for rule in &rules {
        if !tags.insert(&rule.tag) {
            bail!("docs/rules.md has {} twice", rule.tag);
        }
        if rule.sentence.is_empty() || rule.source.is_empty() {
            bail!("docs/rules.md: {} needs a sentence and a source", rule.tag);
        }
    }
    if rules.is_empty() {
        bail!("docs/rules.md has no rules");
    }
    Ok(rules)
}

fn row(line: &str) -> Option<Rule> {
    let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
    let tag = cells.next().filter(|cell| is_tag(cell))?;
    let (sentence, source) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
    Some(Rule { tag: tag.into(), sentence: sentence.into(), source: source.into() })
}

/// Capital words and a number, joined by hyphens: `NDK-CQ-4`.
pub fn is_tag(word: &str) -> bool {
    let Some((area, number)) = word.rsplit_once('-') else { return false };
    let word_of_area = |part: &str| !part.is_empty() && part.bytes().all(|letter| letter.is_ascii_uppercase());
    area.split('-').all(word_of_area) && !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::{is_tag, read};

    #[test]
    fn rows_are_rules_and_heads_are_not() {
        let rules = read("| tag | rule | source |\n|---|---|---|\n| A-1 | Says. | Who |\n").unwrap();
        assert_eq!(rules.len(), 1);
        assert_eq!((&*rules[0].tag, &*rules[0].sentence, &*rules[0].source), ("A-1", "Says.", "Who"));
    }

    #[test]
    fn same_tag_twice_is_refused() {
        assert!(read("| A-1 | x | y |\n| A-1 | z | y |\n").is_err());
    }

    #[test]
    fn rule_without_a_source_is_refused() {
        assert!(read("| A-1 | x | |\n").is_err());
    }

    #[test]
    fn tags_are_capitals_and_a_number() {
        assert!(["NDK-CQ-4", "TAGS-1", "NDIS-OID-12"].into_iter().all(is_tag));
        assert!(["tag", "NDK-CQ", "NDK-4x", "-4", "ndk-4", "NDK--4"].into_iter().all(|word| !is_tag(word)));
    }
}
