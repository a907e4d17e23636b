//! docs/ndkctl.md and the command line have the same options.

use clap::CommandFactory;
use ndkctl::arguments::Arguments;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The long options of a command and all its sub-commands, aliases that are shown included.
fn options(command: &clap::Command, into: &mut BTreeSet<String>) {
    for argument in command.get_arguments() {
        into.extend(argument.get_long().map(str::to_owned));
        into.extend(argument.get_visible_aliases().unwrap_or_default().into_iter().map(str::to_owned));
    }
    command.get_subcommands().for_each(|command| options(command, into));
}

/// The long options that a page names as code.
fn named(page: &str) -> BTreeSet<String> {
    let word = |text: &str| -> String {
        text.chars().take_while(|character| character.is_ascii_alphanumeric() || *character == '-').collect()
    };
    let starts = page.match_indices("`--").map(|(at, start)| word(&page[at + start.len()..]));
    starts.filter(|name| !name.is_empty()).collect()
}

#[test]
fn every_option_is_described_and_every_described_option_exists() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ndkctl.md")).unwrap();
    let mut there = BTreeSet::new();
    options(&Arguments::command(), &mut there);
    there.extend(["help", "version"].map(str::to_owned));
    let named = named(&page);
    let unknown: Vec<_> = named.difference(&there).collect();
    assert!(unknown.is_empty(), "the page names options that do not exist: {unknown:?}");
    let missing: Vec<_> =
        there.difference(&named).filter(|name| !["help", "version"].contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "the page does not name {missing:?}");
}
