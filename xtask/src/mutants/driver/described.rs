//! Mutants as cargo-mutants describes them: which file, which function, which stretch of text, and what to put there.

use crate::{
    command,
    mutants::{CARGO_MUTANTS, MutantsArguments},
    workspace::Workspace,
};
use anyhow::{Context, Result};
use serde_json::Value;
use std::{ops::Range, process::Command};

/// Line and column, both from 1; columns count characters.
pub type Position = (usize, usize);

/// One change of the code.
#[derive(Clone)]
pub struct Mutant {
    pub name: String,
    pub file: String,
    /// The function around it; constants have none.
    pub function: Option<Range<Position>>,
    pub place: Range<Position>,
    pub replacement: String,
}

/// The mutants of a package that were asked for, of all shards.
pub fn list(workspace: &Workspace, arguments: &MutantsArguments, package: &str) -> Result<Vec<Mutant>> {
    let mut cargo = Command::new(CARGO_MUTANTS.require(workspace)?);
    // Without our settings, which name the files of the libraries.
    cargo.current_dir(workspace.root()).args(["mutants", "--list", "--json", "--no-config", "--package", package]);
    let described = serde_json::from_str::<Value>(&command::output(&mut cargo)?)?;
    let described = described.as_array().context("cargo-mutants lists something else than mutants")?;
    let mut mutants = described.iter().map(read).collect::<Result<Vec<_>>>()?;
    mutants.retain(|mutant| arguments.wants(mutant));
    Ok(mutants)
}

fn read(one: &Value) -> Result<Mutant> {
    let word = |key: &str| one[key].as_str().map(str::to_owned).with_context(|| format!("a mutant without {key}"));
    let function = &one["function"];
    Ok(Mutant {
        name: word("name")?,
        file: word("file")?,
        function: if function.is_null() { None } else { Some(range(&function["span"])?) },
        place: range(&one["span"])?,
        replacement: word("replacement")?,
    })
}

fn range(span: &Value) -> Result<Range<Position>> {
    let number = |value: &Value| value.as_u64().map(|number| number as usize).context("a mutant without a place");
    let position = |end: &Value| Ok::<_, anyhow::Error>((number(&end["line"])?, number(&end["column"])?));
    Ok(position(&span["start"])?..position(&span["end"])?)
}
