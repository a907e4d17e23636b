//! Checks that `xtask/lists/unsafe.txt` says how much unsafe code each file has, so that none is added unseen.
//! `UNSAFE_BLESS=1 cargo test -p xtask --test unsafe_code` writes the list.

use crate::sources::sources;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::{collections::BTreeMap, env, fmt::Write as _, fs, ops::AddAssign};

const FOLDERS: [&str; 6] = ["driver", "kernel/src", "iwarp/src", "tools/ndktest/src", "tools/softnd/src", "cells/src"];
const LIST: &str = "xtask/lists/unsafe.txt";
const HEAD: &str = "\
# Unsafe code by file: blocks, `unsafe impl`, and `unsafe fn` with a body, those inside of macros once.
# A test of xtask fails when the code has another number; `UNSAFE_BLESS=1 cargo test -p xtask --test unsafe_code` writes the list.
# blocks impls functions
";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    blocks: u32,
    impls: u32,
    functions: u32,
}

impl Counts {
    fn of(source: &str) -> Self {
        let mut counts = Self::default();
        counts.count(source.parse().unwrap());
        counts
    }

    /// By tokens, because the body of a macro is nothing else.
    fn count(&mut self, tokens: TokenStream) {
        let tokens = tokens.into_iter().collect::<Vec<_>>();
        for (index, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.count(group.stream()),
                TokenTree::Ident(word) if word == "unsafe" => self.add(&tokens[index + 1..]),
                _ => {}
            }
        }
    }

    /// What follows `unsafe`: `{`, `impl`, `extern "C" { … }`, `fn NAME` with or without an ABI. A type is `fn (…)`, an
    /// attribute `(…)`, and neither is code.
    fn add(&mut self, rest: &[TokenTree]) {
        let is_word =
            |index: usize, word: &str| matches!(rest.get(index), Some(TokenTree::Ident(ident)) if ident == word);
        let function = match rest {
            [TokenTree::Ident(word), TokenTree::Literal(_), ..] if word == "extern" => 2,
            _ => usize::from(is_word(0, "extern")),
        };
        if matches!(rest.get(function), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace) {
            self.blocks += 1;
        } else if is_word(0, "impl") || is_word(0, "trait") {
            self.impls += 1;
        } else if is_word(function, "fn") && !matches!(rest.get(function + 1), Some(TokenTree::Group(_))) {
            self.functions += 1;
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.impls += other.impls;
        self.functions += other.functions;
    }
}

/// Files with unsafe code, and the sum of each folder with a slash at its end.
fn counted() -> BTreeMap<String, Counts> {
    let mut counted = BTreeMap::new();
    for folder in FOLDERS {
        let mut sum = Counts::default();
        for (file, source) in sources(folder) {
            let counts = Counts::of(&source);
            sum += counts;
            if counts != Counts::default() {
                counted.insert(format!("{folder}/{file}"), counts);
            }
        }
        counted.insert(format!("{folder}/"), sum);
    }
    counted
}

fn listed(text: &str) -> BTreeMap<String, Counts> {
    let entry = |line: &str| {
        let fields = line.split_whitespace().collect::<Vec<_>>();
        let [blocks, impls, functions, name] = fields[..] else { panic!("{LIST}: {line:?}") };
        let number = |field: &str| field.parse().unwrap();
        (name.to_owned(), Counts { blocks: number(blocks), impls: number(impls), functions: number(functions) })
    };
    text.lines().filter(|line| !line.starts_with('#')).map(entry).collect()
}

fn written(counted: &BTreeMap<String, Counts>) -> String {
    let mut text = HEAD.to_owned();
    for (name, Counts { blocks, impls, functions }) in counted {
        writeln!(text, "{blocks:>4} {impls:>3} {functions:>3} {name}").unwrap();
    }
    text
}

#[test]
fn unsafe_code_is_as_listed() {
    let path = crate::sources::workspace().join(LIST);
    let counted = counted();
    if env::var_os("UNSAFE_BLESS").is_some() {
        fs::write(&path, written(&counted)).unwrap();
    }
    let listed = listed(&fs::read_to_string(&path).unwrap());
    let names = counted.keys().chain(listed.keys()).collect::<std::collections::BTreeSet<_>>();
    let of = |list: &BTreeMap<String, Counts>, name: &str| list.get(name).copied().unwrap_or_default();
    let changed = names.into_iter().filter(|name| of(&counted, name) != of(&listed, name));
    let changed = changed.map(|name| format!("{name}: {:?}, {LIST} has {:?}", of(&counted, name), of(&listed, name)));
    let changed = changed.collect::<Vec<_>>();
    assert!(changed.is_empty(), "run this test with UNSAFE_BLESS=1:\n{}", changed.join("\n"));
}

#[test]
fn each_form_of_unsafe_code_is_counted() {
    let source = r#"
        #[unsafe(no_mangle)]
        static FUNCTION: unsafe extern "C" fn(u32) = call;
        unsafe extern "C" fn call(_: u32) { let _: unsafe fn(); unsafe { a(); unsafe { b() } } }
        unsafe extern "C" { fn imported(); }
        unsafe impl Send for A {}
        unsafe trait B { unsafe fn declared(); }
        macro_rules! c { () => { unsafe { d() } } }
        // unsafe { in a comment }
        const TEXT: &str = "unsafe { in a string }";
    "#;
    assert_eq!(Counts::of(source), Counts { blocks: 4, impls: 2, functions: 2 });
}
