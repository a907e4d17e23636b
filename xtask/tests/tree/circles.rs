//! Files that name each other in a circle are read together: a handful in one, and all in one folder.
//!
//! What a file names is taken from its `use` lines and from the paths in its text, as `crate::`, `super::` and `$crate::` begin them.

use crate::sources::sources;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::{
    collections::{BTreeMap, BTreeSet},
    str::FromStr,
};

/// Files of one circle, by folder. These numbers only ever get smaller.
const MOST: [(&str, usize); 2] = [("driver", 7), ("engine/src", 8)];

/// Modules by their path, each with those that it names.
type Graph = BTreeMap<Vec<String>, BTreeSet<Vec<String>>>;

fn module_of(file: &str) -> Vec<String> {
    let path = file.strip_suffix(".rs").unwrap();
    let path = path.strip_suffix("/mod").unwrap_or(path);
    path.split('/').map(str::to_owned).collect()
}

/// Every path from the root of the crate that tokens name, in `use` lines or not; `from` is the module around them.
fn paths(tokens: TokenStream, from: &[String], found: &mut Vec<Vec<String>>) {
    let tokens = tokens.into_iter().collect::<Vec<_>>();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token {
            TokenTree::Ident(ident) if *ident == "crate" => at = rest(&tokens, at + 1, Vec::new(), found),
            TokenTree::Ident(ident) if *ident == "super" => {
                let parent = from.split_last().map_or(from, |(_, parent)| parent);
                at = rest(&tokens, at + 1, parent.to_vec(), found);
            }
            TokenTree::Group(group) => {
                let is_module = at >= 2 && is(&tokens[at - 2], "mod") && group.delimiter() == Delimiter::Brace;
                let inner = [from, &["(inner)".to_owned()]].concat();
                paths(group.stream(), if is_module { &inner } else { from }, found);
                at += 1;
            }
            _ => at += 1,
        }
    }
}

fn is(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if *ident == word)
}

/// What follows the beginning of a path: `::a::{b, c::d}`. The place behind it.
fn rest(tokens: &[TokenTree], mut at: usize, mut path: Vec<String>, found: &mut Vec<Vec<String>>) -> usize {
    let is_colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    while is_colon(at) && is_colon(at + 1) {
        match tokens.get(at + 2) {
            Some(TokenTree::Ident(ident)) if *ident == "super" => drop(path.pop()),
            Some(TokenTree::Ident(ident)) => path.push(ident.to_string()),
            Some(TokenTree::Group(group)) => {
                let inner = group.stream().into_iter().collect::<Vec<_>>();
                for part in inner.split(|token| matches!(token, TokenTree::Punct(comma) if comma.as_char() == ',')) {
                    if let Some(TokenTree::Ident(first)) = part.first() {
                        let mut path = path.clone();
                        if *first != "self" {
                            path.push(first.to_string());
                        }
                        rest(part, 1, path, found);
                    }
                }
                return at + 3;
            }
            _ => break,
        }
        at += 3;
    }
    found.push(path);
    at
}

fn graph(sources: &[(String, String)]) -> Graph {
    let modules = sources.iter().map(|(file, _)| module_of(file)).collect::<BTreeSet<_>>();
    let named = |path: Vec<String>| {
        (1..=path.len()).rev().map(|length| path[..length].to_vec()).find(|path| modules.contains(path))
    };
    let each = |(file, source): &(String, String)| {
        let module = module_of(file);
        let mut found = Vec::new();
        paths(TokenStream::from_str(source).unwrap(), &module, &mut found);
        let others = found.into_iter().filter_map(named).filter(|other| *other != module).collect();
        (module, others)
    };
    sources.iter().filter(|(file, _)| file != "lib.rs").map(each).collect()
}

/// The largest circles first.
fn circles(graph: &Graph) -> Vec<BTreeSet<Vec<String>>> {
    let reached = |from: &Vec<String>| {
        let mut all = BTreeSet::new();
        let mut next = graph.get(from).into_iter().flatten().collect::<Vec<_>>();
        while let Some(module) = next.pop() {
            if all.insert(module.clone()) {
                next.extend(graph.get(module).into_iter().flatten());
            }
        }
        all
    };
    let reached = graph.keys().map(|module| (module.clone(), reached(module))).collect::<BTreeMap<_, _>>();
    let circle = |module: &Vec<String>| {
        let back = |other: &&Vec<String>| reached.get(*other).is_some_and(|others| others.contains(module));
        reached[module].iter().filter(back).cloned().collect::<BTreeSet<_>>()
    };
    let mut found = graph.keys().map(circle).filter(|circle| circle.len() > 1).collect::<Vec<_>>();
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found.dedup();
    found
}

fn too_large(folder: &str, most: usize) -> Vec<String> {
    let show = |circle: &BTreeSet<Vec<String>>| circle.iter().map(|path| path.join("/")).collect::<Vec<_>>().join(" ");
    let is_wrong = |circle: &BTreeSet<Vec<String>>| {
        let folders = circle.iter().map(|path| &path[0]).collect::<BTreeSet<_>>();
        circle.len() > most || folders.len() > 1
    };
    circles(&graph(&sources(folder))).iter().filter(|circle| is_wrong(circle)).map(show).collect()
}

#[test]
fn circles_of_files_are_small() {
    for (folder, most) in MOST {
        let circles = too_large(folder, most);
        assert!(circles.is_empty(), "{folder}: more than {most} files, or of two folders:\n{}", circles.join("\n"));
    }
}

#[test]
fn a_circle_is_found_in_every_form_of_a_path() {
    let file = |name: &str, source: &str| (name.to_owned(), source.to_owned());
    for back in [
        "use crate::a::one::Thing;",
        "use super::one::Thing;",
        "use super::{one::{self, Thing}, three};",
        "fn f() { crate::a::one::make() }",
        "mod tests { use super::super::one; }",
        "macro_rules! m { () => { $crate::a::one::make() } }",
    ] {
        let sources = [
            file("a/mod.rs", "pub mod one; pub mod two; pub mod three;"),
            file("a/one.rs", "use super::two;"),
            file("a/two.rs", back),
            file("a/three.rs", "use crate::a::one;"),
        ];
        let found = circles(&graph(&sources));
        let names = found.first().map(|circle| circle.iter().map(|path| path.join("/")).collect::<Vec<_>>());
        let expected = if back.contains("three") { vec!["a/one", "a/three", "a/two"] } else { vec!["a/one", "a/two"] };
        assert_eq!(names.unwrap_or_default(), expected, "{back}");
    }
}
