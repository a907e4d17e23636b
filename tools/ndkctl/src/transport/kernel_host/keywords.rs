//! The keywords of a command line: each has to be one that the driver reads, as a misspelt one changes nothing.

use crate::failure::{Failure, Kind};
use crate::nd::allow::SDDL_KEYWORD;
use kernel_host::inf::AdapterConfig;

/// How many names are offered in the place of an unknown one.
const OFFERED: usize = 3;

/// Refuses the first name that no adapter has.
pub(super) fn check(config: &AdapterConfig, given: &[(String, String)]) -> Result<(), Failure> {
    let declared = config.installation().keywords.iter().map(|keyword| keyword.name.as_str());
    // The INF leaves this one to administrators.
    let mut known: Vec<_> = declared.chain([SDDL_KEYWORD]).collect();
    let is_known = |name: &str| known.iter().any(|known| known.eq_ignore_ascii_case(name));
    let Some((name, _)) = given.iter().find(|(name, _)| !is_known(name)) else { return Ok(()) };
    known.sort_by_key(|known| distance(known, name));
    known.truncate(OFFERED);
    Err(Failure::new(
        Kind::Usage,
        format!("cannot set the keyword {name}"),
        "an adapter has no keyword of this name",
        format!("the nearest names are {}; docs/registry.md has them all", known.join(", ")),
    ))
}

/// How many letters one has to insert, remove or change to make one name of the other, whatever their case.
fn distance(one: &str, other: &str) -> usize {
    let other = other.to_ascii_lowercase().into_bytes();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.to_ascii_lowercase().bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (column, theirs) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *theirs);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::{check, distance};
    use crate::failure::Kind;
    use crate::transport::kernel_host::INX;
    use kernel_host::inf::{AdapterConfig, Inx};

    #[test]
    fn unknown_name_is_refused_with_the_nearest_ones() {
        let config = AdapterConfig::from_inx(&Inx::parse(INX).unwrap()).unwrap();
        let given = |name: &str| vec![("WireNumber".to_owned(), "7".to_owned()), (name.to_owned(), "2".to_owned())];
        for name in ["Transport", "transport", "*NetworkDirect", "UplinkPeers", "NetworkDirectSddl"] {
            assert_eq!(check(&config, &given(name)), Ok(()), "{name}");
        }
        for (name, nearest) in [("Transprot", "Transport"), ("UplinkPeer", "UplinkPeers"), ("wirenumbr", "WireNumber")]
        {
            let failure = check(&config, &given(name)).unwrap_err();
            assert_eq!(failure.kind, Kind::Usage);
            assert!(failure.next_step.starts_with(&format!("the nearest names are {nearest},")), "{failure}");
        }
    }

    #[test]
    fn distance_counts_letters() {
        for (one, other, letters) in [("", "", 0), ("", "ab", 2), ("abc", "ABC", 0), ("abc", "ac", 1), ("ab", "ba", 2)]
        {
            assert_eq!((distance(one, other), distance(other, one)), (letters, letters), "{one} {other}");
        }
    }
}
