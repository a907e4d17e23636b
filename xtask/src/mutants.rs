//! `cargo xtask mutants`: small changes of the code, one at a time, and whether a test notices.
//!
//! Those of the engine and the cells are cargo-mutants' from end to end. The driver's layers have no tests that run without the
//! image: cargo-mutants only thinks their mutants up, those of a layer are compiled into one image, and the trials that speak to the
//! changed file run until one of them fails. docs/mutants.md has the results.

mod driver;
mod libraries;

use crate::{cargo_tool::CargoTool, commit, workspace::Workspace};
use anyhow::Result;
use driver::described::Mutant;
use std::str::FromStr;

const CARGO_MUTANTS: CargoTool = CargoTool { name: "cargo-mutants", version: "27.1.0", features: None };

/// Change the code in small ways and see whether a test notices.
#[derive(clap::Args)]
pub struct MutantsArguments {
    /// What is changed
    #[arg(long, value_enum, default_value = "libraries")]
    package: Package,

    /// One part of the mutants: k/n, with k from 0; commit/n takes the part that the number of the commit says
    #[arg(long, default_value = "0/1")]
    shard: Shard,

    /// Only files whose path contains this
    #[arg(long)]
    file: Option<String>,

    /// Only mutants whose name contains one of these
    #[arg(long)]
    name: Vec<String>,

    /// Name the mutants and do nothing
    #[arg(long)]
    list: bool,
}

impl MutantsArguments {
    fn wants(&self, mutant: &Mutant) -> bool {
        let named = self.name.is_empty() || self.name.iter().any(|part| mutant.name.contains(part.as_str()));
        named && self.file.as_ref().is_none_or(|part| mutant.file.contains(part.as_str()))
    }
}

/// Code with mutants.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Package {
    /// The engine and the cells, by their own tests
    Libraries,
    /// What turns NDK calls into calls of the engine, through the loaded image
    Driver,
    /// The driver's side of user-mode NetworkDirect, through the loaded image
    Nd,
    /// The provider's DLL of user-mode NetworkDirect, through the loaded DLL
    Softnd,
}

/// Part `part` of `of` parts; without one, the commit chooses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Shard {
    part: Option<usize>,
    of: usize,
}

impl Shard {
    /// Which part it is in this work tree.
    fn chosen(self, workspace: &Workspace) -> Result<usize> {
        if let Some(part) = self.part {
            return Ok(part);
        }
        let commit = commit::checked_out(workspace)?;
        Ok(usize::from_str_radix(commit.trim_end_matches('+'), 16)? % self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<usize>().map_err(|error| format!("{text:?}: {error}"));
        let (part, of) = text.split_once('/').ok_or("a shard is k/n, for example 3/40, or commit/n")?;
        let shard = Self { part: if part == "commit" { None } else { Some(number(part)?) }, of: number(of)? };
        if shard.part.unwrap_or(0) < shard.of { Ok(shard) } else { Err(format!("{text} is not one of the parts")) }
    }
}

pub fn run(arguments: &MutantsArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let part = arguments.shard.chosen(&workspace)?;
    match arguments.package {
        Package::Libraries => libraries::run(&workspace, arguments, part),
        Package::Driver => driver::run(&workspace, &driver::layers::NDK, arguments, part),
        Package::Nd => driver::run(&workspace, &driver::layers::ND, arguments, part),
        Package::Softnd => driver::run(&workspace, &driver::layers::SOFTND, arguments, part),
    }
}

#[cfg(test)]
mod tests {
    use super::Shard;
    use crate::workspace::Workspace;

    #[test]
    fn shard_is_part_of_parts() {
        assert_eq!("3/40".parse(), Ok(Shard { part: Some(3), of: 40 }));
        assert_eq!("commit/40".parse(), Ok(Shard { part: None, of: 40 }));
        let wrong = ["3", "40/40", "0/0", "a/4", "-1/4", "commit/0", "commit"];
        assert!(wrong.into_iter().all(|text| text.parse::<Shard>().is_err()));
    }

    #[test]
    fn commit_chooses_the_same_part_every_time() {
        let workspace = Workspace::find().unwrap();
        let part = |text: &str| text.parse::<Shard>().unwrap().chosen(&workspace).unwrap();
        assert_eq!(part("3/40"), 3);
        assert_eq!((part("commit/1"), part("commit/40") < 40), (0, true));
        assert_eq!(part("commit/40"), part("commit/40"));
    }
}
