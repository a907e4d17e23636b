//! No test depends on how long something takes by the machine's clock: it has to pass beside whatever else the machine does.
//!
//! Sources are read as tokens: whole files of the folders that are tests, and the test modules of all others. What a test waits for it
//! counts (looks, rounds, service passes), or it reads the kernel host's virtual time; what is measured is a bench.

use crate::sources::sources;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::str::FromStr;

/// Folders all of whose sources are tests.
const TESTS: [&str; 12] = [
    "engine/tests",
    "ndkpi-sys/tests",
    "tests/conformance/src",
    "tests/conformance/tests",
    "tests/engine-kit/src",
    "tests/kernel-host/tests",
    "tests/networkdirect/src",
    "tests/networkdirect/tests",
    "tests/oracle/tests",
    "tools/ioctl/tests",
    "tools/ndkctl/tests",
    "xtask/tests",
];

/// Folders with test modules.
const WITH_TEST_MODULES: [&str; 13] = [
    "cells/src",
    "driver",
    "engine/src",
    "kernel/src",
    "ndkpi-sys/src",
    "tests/kernel-host/src",
    "tests/oracle/src",
    "tools/images/src",
    "tools/ioctl/src",
    "tools/ndkctl/src",
    "tools/ndktest/src",
    "tools/softnd/src",
    "xtask/src",
];

/// Where the machine's clock is read all the same, and why no busy machine fails there. This list only ever gets shorter.
const KNOWN: [(&str, &str); 3] = [
    ("tests/conformance/src/trial.rs", "the watchdog ends a child that hangs; it judges nothing"),
    ("tests/kernel-host/src/machine_clock.rs", "the clock itself, read between two readings of the system's"),
    ("tools/ndkctl/src/stress.rs", "an end that is over, and one that is an hour away"),
];

/// The lines that read the machine's clock.
fn readings(source: &str, whole: bool) -> Vec<usize> {
    let mut found = Vec::new();
    collect(TokenStream::from_str(source).unwrap(), whole, &mut found);
    found.dedup();
    found
}

/// `counts`: inside a test.
fn collect(tokens: TokenStream, counts: bool, found: &mut Vec<usize>) {
    let mut is_test = false;
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                collect(group.stream(), counts || is_test, found);
                is_test = false;
            }
            TokenTree::Group(group) => {
                is_test |= group.delimiter() == Delimiter::Bracket && is_test_attribute(&group.stream());
                collect(group.stream(), counts, found);
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => is_test = false,
            TokenTree::Ident(word) if counts => {
                let is_called = matches!(tokens.peek(), Some(TokenTree::Group(group)) if group.stream().is_empty());
                if word == "Instant" || word == "SystemTime" || (word == "elapsed" && is_called) {
                    found.push(word.span().start().line);
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

#[test]
fn no_test_depends_on_the_machines_clock() {
    let (mut wrong, mut unused) = (Vec::new(), KNOWN.map(|(file, _)| file).to_vec());
    let folders = TESTS.map(|folder| (folder, true)).into_iter().chain(WITH_TEST_MODULES.map(|folder| (folder, false)));
    for (folder, whole) in folders {
        for (file, source) in sources(folder) {
            let file = format!("{folder}/{file}");
            // A file of unit tests beside its module.
            let lines = readings(&source, whole || file.ends_with("/tests.rs"));
            if KNOWN.iter().any(|(known, _)| *known == file) {
                unused.retain(|known| lines.is_empty() || *known != file);
            } else {
                wrong.extend(lines.into_iter().map(|line| format!("{file}:{line}")));
            }
        }
    }
    assert!(wrong.is_empty(), "tests read the machine's clock; count, or use virtual time:\n{}", wrong.join("\n"));
    assert!(unused.is_empty(), "these read no clock any more: take them off the list: {unused:?}");
}

#[test]
fn readings_are_found_in_tests_only() {
    let inside = "fn f() {}\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn g() { assert!(a(b.elapsed())); }\n}";
    assert_eq!(readings(inside, false), [5]);
    assert_eq!(readings("fn f() { Instant::now(); }", false), [0_usize; 0]);
    assert_eq!(readings("fn f() {\n Instant::now(); }", true), [2]);
    assert_eq!(readings("#[cfg(test)]\nuse a::b;\nmod c { fn d() { e.elapsed() } }", false), [0_usize; 0]);
    assert_eq!(readings("let a = b.elapsed; c { elapsed: 1 }", true), [0_usize; 0]);
    assert_eq!(readings("// Instant::now()\nconst A: &str = \"elapsed\";", true), [0_usize; 0]);
}
