//! A type has a name of its own in its crate: one that stands in two modules says in neither what it is.
//!
//! Sources are read as tokens. Test modules do not count, nor do associated types and names that a macro puts together.

use crate::sources::sources;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::{collections::BTreeMap, str::FromStr};

/// The sources of one crate.
struct Crate {
    folder: &'static str,
    /// Names that stand more than once and are known. These lists only ever get shorter.
    known: &'static [&'static str],
}

const CRATES: [Crate; 15] = [
    Crate { folder: "cells/src", known: &[] },
    Crate { folder: "iwarp/src", known: &[] },
    Crate { folder: "vxlan/src", known: &[] },
    // One alias each, which a feature points at another transport.
    Crate { folder: "engine/src", known: &[] },
    Crate { folder: "tests/engine-kit/src", known: &[] },
    Crate { folder: "kernel/src", known: &[] },
    Crate { folder: "driver", known: &[] },
    Crate { folder: "tools/ndktest/src", known: &[] },
    Crate { folder: "tools/ioctl/src", known: &[] },
    Crate { folder: "tools/softnd/src", known: &[] },
    Crate { folder: "tools/softnd/interfaces/src", known: &[] },
    // Once for each system that the tool runs on.
    Crate { folder: "tools/ndkctl/src", known: &["Disturber", "Leftovers", "Machine"] },
    Crate { folder: "tests/conformance/src", known: &[] },
    Crate { folder: "xtask/src", known: &[] },
    Crate { folder: "tests/kernel-host/src", known: &[] },
];

/// Where a type is defined.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Defined {
    name: String,
    line: usize,
}

/// The types that a source defines, those in its functions included.
fn defined(source: &str) -> Vec<Defined> {
    let mut found = Vec::new();
    collect(TokenStream::from_str(source).unwrap(), false, &mut found);
    found
}

/// `associated`: inside an `impl` or a `trait`, where `type` names no type of the module.
fn collect(tokens: TokenStream, associated: bool, found: &mut Vec<Defined>) {
    let tokens = tokens.into_iter().collect::<Vec<_>>();
    // What the attributes and words before the next braces say of them.
    let (mut is_test, mut is_associated) = (false, false);
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                if !is_test {
                    collect(group.stream(), is_associated, found);
                }
                (is_test, is_associated) = (false, false);
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                is_test |= is_test_attribute(&group.stream());
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => (is_test, is_associated) = (false, false),
            TokenTree::Ident(word) => {
                let word = word.to_string();
                is_associated |= word == "impl" || word == "trait";
                let defines = ["struct", "enum", "union", "trait"].contains(&word.as_str());
                if let Some(TokenTree::Ident(name)) = tokens.get(at + 1)
                    && (defines || (word == "type" && !associated))
                    && !is_test
                {
                    found.push(Defined { name: name.to_string(), line: name.span().start().line });
                }
            }
            _ => {}
        }
    }
}

/// `cfg(test)` and `cfg(all(test, …))`.
fn is_test_attribute(attribute: &TokenStream) -> bool {
    let text = attribute.to_string().replace(' ', "");
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// The names that stand more than once in a crate, each with its places.
fn doubles(sources: &[(String, String)]) -> BTreeMap<String, Vec<String>> {
    let mut places = BTreeMap::<String, Vec<String>>::new();
    for (file, source) in sources {
        for Defined { name, line } in defined(source) {
            places.entry(name).or_default().push(format!("{file}:{line}"));
        }
    }
    places.retain(|_, places| places.len() > 1);
    places
}

#[test]
fn each_type_has_a_name_of_its_own_in_its_crate() {
    let mut wrong = Vec::new();
    for Crate { folder, known } in CRATES {
        let mut doubles = doubles(&sources(folder));
        for name in known {
            assert!(doubles.remove(*name).is_some(), "{folder}: {name} stands once now: take it off the list");
        }
        wrong.extend(doubles.into_iter().map(|(name, places)| format!("{folder}: {name}: {}", places.join(", "))));
    }
    assert!(wrong.is_empty(), "these names stand for more than one type of a crate:\n{}", wrong.join("\n"));
}

#[test]
fn a_name_that_stands_twice_is_found_with_its_lines() {
    let file = |name: &str, source: &str| (name.to_owned(), source.to_owned());
    for second in
        ["pub struct Entry;", "enum Entry<T> { A(T) }", "trait Entry {}", "type Entry = u8;", "union Entry {}"]
    {
        let sources = [file("one.rs", "\nstruct Entry(u8);"), file("two.rs", &format!("mod inner {{ {second} }}"))];
        let found = doubles(&sources);
        assert_eq!(
            found.get("Entry").map(Vec::as_slice),
            Some(&["one.rs:2".into(), "two.rs:1".into()][..]),
            "{second}"
        );
    }
}

#[test]
fn names_of_tests_associated_types_and_macros_do_not_count() {
    for source in [
        "#[cfg(test)] mod tests { struct Entry; }",
        "#[cfg(all(test, loom))] mod model { struct Entry; }",
        "impl Row for u8 { type Entry = u8; }",
        "trait Row { type Entry; fn row() -> Self::Entry; }",
        "macro_rules! entry { ($Entry:ident) => { struct $Entry; } }",
        "// struct Entry;\nconst TEXT: &str = \"struct Entry;\";",
    ] {
        assert!(defined(source).iter().all(|defined| defined.name != "Entry"), "{source}");
    }
    let after = "#[cfg(test)] use a::b;\nimpl A for u8 {}\ntype Entry = u8;";
    assert_eq!(defined(after), [Defined { name: "Entry".into(), line: 3 }]);
}
