//! Engine and driver are trees of layers, and a layer names only those below it. The order here is the one of `docs/architecture.md`;
//! each layer of the engine says in its `mod.rs` what it is for.
//!
//! Every file is read as tokens, so that paths in expressions, macros and tests count as those in `use` do, and comments do not.

use crate::sources::{sources, workspace};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::{fmt, fs, str::FromStr};

/// Sources whose modules are in layers.
struct LayeredTree {
    folder: &'static str,
    /// From the top to the bottom, with the modules in the root of the crate that belong to each.
    layers: &'static [(&'static str, &'static [&'static str])],
    /// Arrows that point backwards and are known: the file and what it names. This list only ever gets shorter.
    exceptions: &'static [(&'static str, &'static str)],
}

const ENGINE: LayeredTree = LayeredTree {
    folder: "engine/src",
    layers: &[
        ("fabric", &["fabric"]),
        ("connection", &["connection"]),
        ("queue_pair", &["queue_pair"]),
        ("stream", &["stream"]),
        ("completion", &["completion"]),
        ("memory", &["memory"]),
        ("adapter", &["adapter"]),
        ("object", &["object"]),
        // Files that every layer may use. They name one another only.
        (
            "ground",
            &[
                "blocks",
                "capacity",
                "change",
                "counters",
                "error",
                "flags",
                "limits",
                "platform",
                "private_data",
                "semantics",
                "token",
            ],
        ),
    ],
    exceptions: &[],
};

const DRIVER: LayeredTree = LayeredTree {
    folder: "driver",
    layers: &[
        ("entry", &["entry"]),
        ("miniport", &["miniport"]),
        ("control", &["control"]),
        ("nd", &["nd"]),
        // What exists once, and what is made of the layers below.
        ("driver", &["driver"]),
        ("adapter", &["adapter"]),
        ("ndk", &["ndk"]),
        ("runtime", &["runtime"]),
        ("link", &["link"]),
        ("ground", &["device", "tags", "version"]),
    ],
    exceptions: &[],
};

impl LayeredTree {
    /// The place and the layer of a module; `None` for one that is in none.
    fn layer_of(&self, module: &str) -> Option<(usize, &'static str)> {
        let mut layers = self.layers.iter().enumerate();
        layers.find(|(_, (_, modules))| modules.contains(&module)).map(|(place, (layer, _))| (place, *layer))
    }
}

/// One arrow that points the wrong way.
#[derive(Debug, Eq, PartialEq)]
struct Backwards {
    folder: &'static str,
    file: String,
    line: usize,
    from: &'static str,
    to: String,
}

impl fmt::Display for Backwards {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}:{}: {} -> {}", self.folder, self.file, self.line, self.from, self.to)
    }
}

/// A name that is looked up in the root of the crate, and its line.
struct FromRoot {
    name: String,
    line: usize,
}

/// Finds what a module names from the root of its crate; `depth` is the number of modules that it is inside of.
fn names_from_root(tokens: TokenStream, depth: usize, found: &mut Vec<FromRoot>) {
    let tokens = tokens.into_iter().collect::<Vec<_>>();
    let ident = |at: usize| match tokens.get(at) {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        _ => None,
    };
    let colons = |at: usize| {
        let colon = |at| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
        colon(at) && colon(at + 1)
    };
    for (at, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(group) = token {
            let module = at >= 2 && ident(at - 2).as_deref() == Some("mod") && group.delimiter() == Delimiter::Brace;
            names_from_root(group.stream(), depth + usize::from(module), found);
            continue;
        }
        let supers =
            (at..).step_by(3).take_while(|at| ident(*at).as_deref() == Some("super") && colons(at + 1)).count();
        let after = match ident(at).as_deref() {
            Some("crate") if colons(at + 1) => at + 3,
            // The first of a chain; the others are part of it.
            Some("super") if supers >= depth && !(at >= 3 && ident(at - 3).as_deref() == Some("super")) => {
                at + 3 * depth
            }
            _ => continue,
        };
        match tokens.get(after) {
            Some(TokenTree::Ident(name)) => {
                found.push(FromRoot { name: name.to_string(), line: name.span().start().line });
            }
            Some(TokenTree::Group(group)) => {
                let mut first = true;
                for token in group.stream() {
                    match token {
                        TokenTree::Ident(name) if first => {
                            found.push(FromRoot { name: name.to_string(), line: name.span().start().line });
                            first = false;
                        }
                        TokenTree::Punct(punct) if punct.as_char() == ',' => first = true,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

/// The arrows of one file that point backwards; `file` is relative to the folder of the sources.
fn backwards(tree: &LayeredTree, file: &str, source: &str) -> Vec<Backwards> {
    let path = file.strip_suffix(".rs").unwrap();
    let path = path.strip_suffix("/mod").unwrap_or(path).split('/').collect::<Vec<_>>();
    let (place, from) = tree.layer_of(path[0]).unwrap_or_else(|| panic!("{}/{file} is in no layer", tree.folder));
    let mut named = Vec::new();
    names_from_root(TokenStream::from_str(source).unwrap(), path.len(), &mut named);
    let wrong = |name: &str| tree.layer_of(name).is_none_or(|(other, _)| other < place);
    let named = named.into_iter().filter(|named| wrong(&named.name));
    let arrow =
        |FromRoot { name, line }| Backwards { folder: tree.folder, file: file.to_owned(), line, from, to: name };
    named.map(arrow).collect()
}

/// All arrows of a tree that point backwards and are not known.
fn unknown_arrows(tree: &LayeredTree) -> Vec<String> {
    let sources = sources(tree.folder);
    for (layer, modules) in tree.layers {
        assert!(*layer == "ground" || *modules == [*layer], "layer {layer} is more than its folder or its file");
        for module in *modules {
            let is_there = |file: &str| file == format!("{module}/mod.rs") || file == format!("{module}.rs");
            assert!(sources.iter().any(|(file, _)| is_there(file)), "layer {layer} has no module {module}");
        }
    }
    let arrows = sources.iter().filter(|(file, _)| file != "lib.rs");
    let mut arrows = arrows.flat_map(|(file, source)| backwards(tree, file, source)).collect::<Vec<_>>();
    for (file, to) in tree.exceptions {
        let before = arrows.len();
        arrows.retain(|arrow| (arrow.file.as_str(), arrow.to.as_str()) != (*file, *to));
        assert!(arrows.len() < before, "{file} does not name {to} any more: take it off the list");
    }
    arrows.iter().map(Backwards::to_string).collect()
}

#[test]
fn layers_of_the_engine_name_only_those_below_them() {
    let arrows = unknown_arrows(&ENGINE);
    assert!(arrows.is_empty(), "these point backwards:\n{}", arrows.join("\n"));
}

#[test]
fn layers_of_the_driver_name_only_those_below_them() {
    let arrows = unknown_arrows(&DRIVER);
    assert!(arrows.is_empty(), "these point backwards:\n{}", arrows.join("\n"));
}

/// Every layer says what it is for and what it may use.
#[test]
fn each_layer_says_what_it_is_for() {
    for (layer, _) in ENGINE.layers.iter().filter(|(layer, _)| *layer != "ground") {
        let header = workspace().join("engine/src").join(layer).join("mod.rs");
        let header = fs::read_to_string(header).unwrap();
        let says = header.lines().take_while(|line| line.starts_with("//!")).collect::<Vec<_>>().join("\n");
        assert!(says.contains("May use "), "{layer}/mod.rs does not say what it may use");
    }
}

#[test]
fn every_way_to_name_a_layer_above_is_found_with_its_line() {
    for source in [
        "\nuse crate::fabric::Fabric;",
        "\nuse crate::{limits, fabric::{self, Fabric}};",
        "\nfn call() { crate::fabric::make(); }",
        "\nmacro_rules! made { () => { $crate::fabric::make() } }",
        "\nfn call(it: &crate::Fabric<u8>) {}",
        "\nmod tests { use super::super::super::fabric::Fabric; }",
        "use super::header::Core;\nuse super::super::fabric::Fabric;",
    ] {
        let found = backwards(&ENGINE, "object/timer.rs", source);
        let found = found.iter().map(ToString::to_string).collect::<Vec<_>>();
        let expected = if source.contains("crate::Fabric") { "Fabric" } else { "fabric" };
        assert_eq!(found, [format!("engine/src/object/timer.rs:2: object -> {expected}")], "{source}");
    }
    let ground =
        backwards(&ENGINE, "token.rs", "use crate::object::header::Object;\nuse crate::limits;\nuse super::object;");
    assert_eq!(ground.iter().map(|arrow| arrow.line).collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn names_of_the_same_layer_of_those_below_and_in_comments_are_fine() {
    for (file, source) in [
        ("connection/connector/ends.rs", "use super::timeouts; use super::super::endpoint; use crate::object::header;"),
        (
            "connection/mod.rs",
            "//! [`Fabric`](crate::fabric::Fabric)\npub(crate) mod network; use super::queue_pair::pair;",
        ),
        ("fabric/open.rs", "use crate::connection::network; pub(super) fn make() { super::make() }"),
        ("limits.rs", "mod tests { use super::PAGE; use crate::token::Sge; }"),
        ("object/header.rs", "/// `crate::fabric::Fabric`\nconst TEXT: &str = \"crate::fabric\";"),
    ] {
        assert_eq!(backwards(&ENGINE, file, source), [], "{file}");
    }
}
