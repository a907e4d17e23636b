//! `xtask/lists/arguments.txt` against the interface definitions: every argument, field and flag that crosses a border has a test there, every
//! test is in the sources, and no row is about something that is gone.
//!
//! That the tests do fail is shown by `cargo xtask arguments`.

use crate::sources::{sources, workspace};
use std::collections::BTreeSet;
use xtask::{
    arguments::{BorderSuite, all, list},
    workspace::Workspace,
};

fn work_tree() -> Workspace {
    Workspace::at(&workspace())
}

// Rule: VALUES-1
#[test]
fn every_argument_has_a_test() {
    let tests = list::read(&work_tree()).unwrap();
    let rows = all(&work_tree()).unwrap();
    assert!(rows.len() > 600, "the definitions were not understood: {} rows", rows.len());
    let untested = rows.iter().filter(|row| !tests.contains_key(&list::key(row)));
    let untested = untested.map(|row| format!("{} | {}", row.argument, row.mistake)).collect::<Vec<_>>();
    assert!(
        untested.is_empty(),
        "{} without a test; `cargo xtask arguments --find`:\n{}",
        untested.len(),
        untested.join("\n")
    );
}

#[test]
fn every_row_is_about_an_argument_that_exists() {
    let rows = all(&work_tree()).unwrap().iter().map(list::key).collect::<BTreeSet<_>>();
    let gone = list::read(&work_tree()).unwrap().into_keys().filter(|row| !rows.contains(row)).collect::<Vec<_>>();
    assert!(gone.is_empty(), "{} has rows that the definitions have no more: {gone:?}", list::FILE);
}

/// A test that was renamed stands for nothing any more.
#[test]
fn every_test_is_in_the_sources() {
    let of_suite = |suite: BorderSuite| sources(suite.folder().to_str().unwrap());
    let suites = BorderSuite::ALL.map(|suite| (suite, of_suite(suite)));
    let units = ["tools/ndkctl/src", "tools/softnd/src", "tools/ioctl/src"].map(sources).concat();
    let has = |files: &[(String, String)], name: &str| {
        let function = format!("fn {}(", name.rsplit("::").next().unwrap_or(name));
        files.iter().any(|(_, text)| text.contains(&function))
    };
    for ((argument, mistake), (suite, name)) in list::read(&work_tree()).unwrap() {
        let files = match suite {
            None => &units,
            Some(wanted) => &suites.iter().find(|(suite, _)| *suite == wanted).unwrap().1,
        };
        assert!(has(files, &name), "{argument} {mistake}: there is no test {name}");
    }
}
