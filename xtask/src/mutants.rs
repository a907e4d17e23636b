//! `cargo xtask mutants`: small changes of the code, one at a time, and whether a test notices.
//!
//! cargo-mutants thinks them up. Those of the engine and the cells are judged by their own tests. The driver's
//! translation layer has no tests that run without its image: its mutants are compiled into one image, and the trials that
//! speak to the changed file run until one of them fails. docs/mutants.md has the results.

mod described;
mod driver;
mod library;
mod settled;
mod suite;
mod switched;

use crate::{command, workspace::Workspace};
use anyhow::{Context, Result};
use described::Mutant;
use library::Library;
use std::{process::Command, str::FromStr};

/// Change the code in small ways and see whether a test notices.
#[derive(clap::Args)]
pub struct Arguments {
    /// What is changed
    #[arg(long, value_enum, default_value = "engine")]
    package: Package,

    /// Every n-th mutant only, from the k-th on: k/n, with k from 0
    #[arg(long, default_value = "0/1")]
    shard: Shard,

    /// Only files whose path contains this
    #[arg(long)]
    file: Option<String>,

    /// Only mutants whose name contains one of these
    #[arg(long)]
    name: Vec<String>,

    /// Without the few tests that take most of the time: for a first look at the engine or the cells
    #[arg(long)]
    quick: bool,

    /// Name the mutants and do nothing
    #[arg(long)]
    list: bool,
}

impl Arguments {
    fn wants(&self, mutant: &Mutant) -> bool {
        let named = self.name.is_empty() || self.name.iter().any(|part| mutant.name.contains(part.as_str()));
        named && self.file.as_ref().is_none_or(|part| mutant.file.contains(part.as_str()))
    }
}

/// Code with mutants.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Package {
    Engine,
    Cells,
    /// What turns NDK calls into calls of the engine, through the loaded image
    Driver,
}

/// Part `part` of `of` parts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Shard {
    part: usize,
    of: usize,
}

impl Shard {
    /// Its part of a list.
    fn part<T>(self, list: Vec<T>) -> Vec<T> {
        list.into_iter().skip(self.part).step_by(self.of).collect()
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<usize>().map_err(|error| format!("{text:?}: {error}"));
        let (part, of) = text.split_once('/').ok_or("a shard is k/n, for example 3/40")?;
        let shard = Self { part: number(part)?, of: number(of)? };
        if shard.part < shard.of { Ok(shard) } else { Err(format!("{text} is not one of the parts")) }
    }
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let workspace = Workspace::find()?;
    command::output(Command::new("cargo").args(["mutants", "--version"]))
        .context("cargo-mutants is missing: cargo install cargo-mutants --locked")?;
    match arguments.package {
        Package::Engine => library::run(&workspace, arguments, &ENGINE),
        Package::Cells => library::run(&workspace, arguments, &CELLS),
        Package::Driver => driver::run(&workspace, arguments),
    }
}

const ENGINE: Library = Library {
    package: "softndk-engine",
    root: "engine/src/lib.rs",
    tests: &[&["--package", "softndk-engine", "--lib"], SCENARIOS],
    slow: SLOW,
};

/// What the cells' own tests leave open, those of the engine settle.
const CELLS: Library = Library {
    package: "softndk-cells",
    root: "cells/src/lib.rs",
    tests: &[&["--package", "softndk-cells", "--lib"], SCENARIOS],
    slow: SLOW,
};

const SCENARIOS: &[&str] = &["--package", "softndk-engine", "--test", "scenarios"];

/// Most of the time of the scenarios.
const SLOW: &[&str] = &[
    "no_byte_moves_after_an_invalidation_has_completed",
    "receives_posted_and_taken_at_the_same_time_go_to_one_receiver_each",
    "every_accepted_request_completes_exactly_once_however_the_end_comes",
    "ephemeral_ports_run_out_and_come_back",
    "every_order_of_closing_a_connected_side",
    "ports_in_use_at_one_address_are_not_chosen_for_every_address",
    "what_exceeds_the_bound_of_a_post_is_finished_by_turns_piece_by_piece",
    "many_that_gave_up_do_not_hold_up_the_one_behind_them",
    "connects_that_meet_closes_leave_nothing",
    "tables_change_under_readers_and_everything_comes_back",
];

#[cfg(test)]
mod tests {
    use super::Shard;

    #[test]
    fn shard_is_part_of_parts() {
        assert_eq!("3/40".parse(), Ok(Shard { part: 3, of: 40 }));
        assert_eq!(Shard { part: 1, of: 3 }.part(vec![0, 1, 2, 3, 4]), [1, 4]);
        assert!(["3", "40/40", "0/0", "a/4", "-1/4"].into_iter().all(|text| text.parse::<Shard>().is_err()));
    }
}
