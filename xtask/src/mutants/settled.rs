//! A copy of a crate with all its mutants compiled in (`switched`): those that the compiler refuses are taken out until it refuses
//! nothing. A mutant that does not compile is unviable; one that cannot be chosen at run time is left to be tried alone.

use super::{
    described::Mutant,
    switched::{Blame, switch},
};
use crate::{seeded_bugs::tree::Tree, workspace::write_if_changed};
use anyhow::{Result, bail};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

/// Mutants by their numbers, which begin with 1.
pub type Numbers = BTreeSet<u32>;

/// The crate: its copy, the file of its root, and what `crate::mutant()` is there.
pub struct Crate<'a> {
    pub tree: &'a Tree,
    pub root: &'static str,
    pub switch: &'static str,
}

/// What became of its mutants; all others are compiled in.
pub struct Settled {
    pub unviable: Numbers,
    pub alone: Numbers,
}

impl Settled {
    pub fn is_inside(&self, number: u32) -> bool {
        !self.unviable.contains(&number) && !self.alone.contains(&number)
    }
}

impl Crate<'_> {
    /// Writes the files until they compile, which `compile` asks cargo for.
    pub fn settle(&self, mutants: &[&Mutant], compile: impl Fn() -> Result<Command>) -> Result<Settled> {
        let numbered = (1..).zip(mutants).collect::<Vec<(u32, _)>>();
        let outside = numbered.iter().filter(|(_, mutant)| mutant.function.is_none());
        let alone = outside.map(|(number, _)| *number).collect();
        let mut settled = Settled { unviable: Numbers::new(), alone };
        loop {
            // A file that has lost all its mutants is written too: as it was.
            let mut files = BTreeMap::from([(self.root, Vec::new())]);
            for (number, mutant) in &numbered {
                let mutants = files.entry(mutant.file.as_str()).or_default();
                if settled.is_inside(*number) {
                    mutants.push((*number, **mutant));
                }
            }
            let refused = self.write(&files, compile()?)?;
            if refused.unviable.is_empty() && refused.alone.is_empty() {
                return Ok(settled);
            }
            settled.unviable.extend(refused.unviable);
            settled.alone.extend(refused.alone);
        }
    }

    /// The mutants of constant functions with this name.
    fn mutants_of(&self, files: &BTreeMap<&str, Vec<(u32, &Mutant)>>, name: &str) -> Result<Numbers> {
        let mut numbers = Numbers::new();
        for (file, mutants) in files {
            let source = self.tree.original(file)?;
            let is_of = |mutant: &Mutant| {
                let first = mutant.function.as_ref().map_or(0, |function| function.start.0);
                let mut lines = source.lines().skip(first.saturating_sub(1));
                lines.find(|line| line.contains("fn ")).is_some_and(|line| line.contains(&format!("const fn {name}")))
            };
            numbers.extend(mutants.iter().filter(|(_, mutant)| is_of(mutant)).map(|(number, _)| *number));
        }
        Ok(numbers)
    }

    /// Writes and compiles; the mutants that are to blame, by themselves or as those of a function.
    fn write(&self, files: &BTreeMap<&str, Vec<(u32, &Mutant)>>, compile: Command) -> Result<Settled> {
        let mut switched = BTreeMap::new();
        for (file, mutants) in files {
            let mut done = switch(&self.tree.original(file)?, mutants);
            if *file == self.root {
                done.text.push_str(self.switch);
            }
            write_if_changed(&self.tree.root().join(file), done.text.as_bytes())?;
            switched.insert(*file, done);
        }
        let mut refused = Settled { unviable: Numbers::new(), alone: Numbers::new() };
        let mut blameless = None;
        for (file, line, message) in errors(compile)? {
            match switched.get(&*file).map_or(&Blame::NoMutant, |file| file.blamed(line)) {
                Blame::One(number) => drop(refused.unviable.insert(*number)),
                Blame::All(numbers) => refused.alone.extend(numbers),
                Blame::NoMutant => {
                    let of_constant =
                        constant_function(&message).map(|name| self.mutants_of(files, name)).transpose()?;
                    match of_constant.filter(|numbers| !numbers.is_empty()) {
                        Some(numbers) => refused.alone.extend(numbers),
                        None => blameless = Some(format!("{file}:{line}: {message}")),
                    }
                }
            }
        }
        // It may have come of a mutant elsewhere, and goes with it.
        if let Some(error) = blameless.filter(|_| refused.unviable.is_empty() && refused.alone.is_empty()) {
            bail!("the copy does not compile, whatever the mutant: {error}");
        }
        Ok(refused)
    }
}

/// The function that a constant needs and that asks for its mutant, which constants cannot.
fn constant_function(message: &str) -> Option<&str> {
    let path = message.strip_prefix("cannot call non-const ")?.split('`').nth(1)?;
    path.rsplit("::").next()
}

/// What does not compile: files and lines of errors.
fn errors(mut compile: Command) -> Result<Vec<(String, usize, String)>> {
    let done = compile.args(["--message-format", "json"]).output()?;
    let messages = String::from_utf8_lossy(&done.stdout).into_owned();
    let mut errors = Vec::new();
    for message in json(&messages).filter(|message| message["message"]["level"] == "error") {
        let spans = message["message"]["spans"].as_array().into_iter().flatten();
        let words = message["message"]["message"].as_str().unwrap_or_default();
        for span in spans.filter(|span| span["is_primary"] == true) {
            let (file, line) = (span["file_name"].as_str(), span["line_start"].as_u64());
            let (Some(file), Some(line)) = (file, line) else { bail!("an error without a place: {words}") };
            errors.push((file.to_owned(), line as usize, words.to_owned()));
        }
    }
    if errors.is_empty() && !done.status.success() {
        bail!("the copy does not compile: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(errors)
}

/// The messages of cargo, a line each.
fn json(lines: &str) -> impl Iterator<Item = Value> {
    lines.lines().filter_map(|line| serde_json::from_str(line).ok())
}

#[cfg(test)]
mod tests {
    use super::constant_function;

    #[test]
    fn a_constant_names_the_function_that_it_needs() {
        assert_eq!(constant_function("cannot call non-const function `v1::class` in constants"), Some("class"));
        assert_eq!(constant_function("cannot call non-const associated function `A::of` in statics"), Some("of"));
        assert_eq!(constant_function("mismatched types: `a` and `b`"), None);
    }
}
