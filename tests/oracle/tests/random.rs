//! Random sequences in every test run: the engine beside the model, in both columns.

use std::fs;
use std::path::Path;

use oracle::account;
use oracle::generate::Features;
use oracle::hostile;
use oracle::model::Column;
use oracle::search::{Search, find};

fn search(column: Column, operations: u64, length: usize, seed: u64) {
    let search = Search { operations, seed, column, length, features: Features::ALL };
    let found = find(&search, &mut |_| {});
    if let Some(difference) = found.difference {
        panic!("after {} operations, sequence {:#x}:\n{difference}", found.operations, found.episode);
    }
}

#[test]
fn the_engine_keeps_the_kernel_column() {
    search(Column::Ndk, 600_000, 150, 1);
}

#[test]
fn the_engine_keeps_the_user_mode_column() {
    search(Column::Nd, 300_000, 150, 2);
}

#[test]
fn the_engine_keeps_it_over_long_sequences() {
    search(Column::Ndk, 100_000, 600, 3);
}

/// Partial service passes between the lines: each result and callback comes once and in order.
#[test]
fn the_engine_completes_everything_when_it_is_behind() {
    for (column, seed) in [(Column::Ndk, 4), (Column::Nd, 5)] {
        let search = Search { operations: 100_000, seed, column, length: 150, features: Features::ALL };
        if let Some(difference) = account::find(&search).difference {
            panic!("{column:?}:\n{difference}");
        }
    }
}

/// What the fuzzer has found reaches most of what it can, and is kept (docs/fuzzing.md).
#[test]
fn the_engine_keeps_the_inputs_that_the_fuzzer_found() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/engine");
    let mut engines = hostile::engines();
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let found = hostile::run(&fs::read(&path).unwrap(), &mut engines);
        assert_eq!(found, Ok(()), "{}", path.display());
        count += 1;
    }
    assert!(count >= 5, "{count} inputs");
}
