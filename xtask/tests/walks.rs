//! docs/walks.md names files and functions; this sees that they are there. The test that records the page needs images.

use std::{fs, path::Path};

/// The names in backticks of one cell.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// What a row names that the work tree does not have.
fn missing(root: &Path, row: &str) -> Vec<String> {
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let [_, _, file, functions, ..] = cells.as_slice() else { return Vec::new() };
    let [file] = names(file)[..] else { return Vec::new() };
    let Ok(text) = fs::read_to_string(root.join(file)) else { return vec![file.to_owned()] };
    let is_there = |name: &str| text.contains(&format!("fn {name}(")) || text.contains(&format!("fn {name}<"));
    names(functions).into_iter().filter(|name| !is_there(name)).map(|name| format!("{file}: {name}")).collect()
}

#[test]
fn walks_name_what_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("docs/walks.md")).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).collect();
    assert!(rows.len() > 30, "the page has only {} rows", rows.len());
    let missing: Vec<String> = rows.into_iter().flat_map(|row| missing(&root, row)).collect();
    assert!(missing.is_empty(), "docs/walks.md names what is not there: {missing:#?}");
}

#[test]
fn a_file_or_function_that_is_gone_is_found() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let row = "| 1 | `tests/walks.rs` | `missing`, `no_such_function` | some words |";
    assert_eq!(missing(root, row), ["tests/walks.rs: no_such_function"]);
    assert_eq!(missing(root, "| 2 | `tests/no_such.rs` | `names` | |"), ["tests/no_such.rs"]);
}
