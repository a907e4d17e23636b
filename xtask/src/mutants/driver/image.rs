//! All mutants in one image, of which a number behind a mark chooses one: building is what costs, so it is done once.
//!
//! The files of a copy of the crate hold all their mutants (`switched`); those that the compiler refuses are taken out until it refuses
//! nothing. A mutant that does not compile is unviable; one that cannot be chosen at run time is left to be tried alone.

use super::{
    described::Mutant,
    subject::Subject,
    switched::{Blame, is_switchable, switch},
};
use crate::{seeded_bugs::tree::Tree, workspace::write_if_changed};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

const MARK: &[u8; 16] = b"chosen mutant is";

/// What `crate::mutant()` is in the image.
const SWITCH: &str = r#"
#[repr(C)]
struct ChosenMutant([u8; 16], u32);
#[used]
static CHOSEN_MUTANT: ChosenMutant = ChosenMutant(*b"chosen mutant is", 0);
#[inline(never)]
pub(crate) fn mutant() -> u32 {
    // Volatile: the number is changed in the image.
    unsafe { (&raw const CHOSEN_MUTANT.1).read_volatile() }
}
"#;

/// Mutants by their numbers, which begin with 1.
type Numbers = BTreeSet<u32>;

/// The mutants of each file.
type MutantsOfFiles<'m> = BTreeMap<&'m str, Vec<(u32, &'m Mutant)>>;

/// The image, and what became of the mutants that are not in it.
pub struct SwitchedImage {
    bytes: Vec<u8>,
    pub unviable: Numbers,
    pub alone: Numbers,
}

impl SwitchedImage {
    /// Builds the image in a copy of the tree, which is not fit for anything else afterwards.
    pub fn build(subject: Subject, tree: &Tree, mutants: &[&Mutant]) -> Result<Self> {
        let mut image = Self { bytes: Vec::new(), unviable: Numbers::new(), alone: Numbers::new() };
        for (number, mutant) in (1..).zip(mutants) {
            if !is_switchable(&tree.original(&mutant.file)?, mutant) {
                image.alone.insert(number);
            }
        }
        loop {
            // A file that has lost all its mutants is written too: as it was.
            let mut files = MutantsOfFiles::from([(subject.root(), Vec::new())]);
            for (number, mutant) in (1..).zip(mutants) {
                let of_file = files.entry(&mutant.file).or_default();
                of_file.extend(image.has(number).then_some((number, *mutant)));
            }
            if !image.refuse(subject, tree, &files)? {
                image.bytes = fs::read(subject.build(tree)?)?;
                return Ok(image);
            }
        }
    }

    pub fn has(&self, number: u32) -> bool {
        !self.unviable.contains(&number) && !self.alone.contains(&number)
    }

    /// Writes the image in which this mutant is chosen; 0 is none.
    pub fn choose(&self, number: u32, path: &Path) -> Result<()> {
        let mut image = self.bytes.clone();
        let found = image.windows(MARK.len()).position(|bytes| bytes == MARK).context("the image has no choice")?;
        let choice = image.get_mut(found + MARK.len()..found + MARK.len() + 4).context("a cut image")?;
        choice.copy_from_slice(&number.to_le_bytes());
        fs::create_dir_all(path.parent().context("a path without a folder")?)?;
        fs::write(path, image).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Writes the files and compiles them: takes out the mutants that are to blame, by themselves or as those of a function. False if
    /// everything compiles.
    fn refuse(&mut self, subject: Subject, tree: &Tree, files: &MutantsOfFiles) -> Result<bool> {
        let mut switched = BTreeMap::new();
        for (file, mutants) in files {
            let mut done = switch(&tree.original(file)?, mutants);
            if *file == subject.root() {
                done.text.push_str(SWITCH);
            }
            write_if_changed(&tree.root().join(file), done.text.as_bytes())?;
            switched.insert(*file, done);
        }
        let (mut refused, mut blameless) = (false, None);
        for (file, line, message) in errors(subject.cargo(tree)?)? {
            match switched.get(&*file).map_or(&Blame::NoMutant, |file| file.blamed(line)) {
                Blame::One(number) => drop(self.unviable.insert(*number)),
                Blame::All(numbers) => self.alone.extend(numbers),
                Blame::NoMutant => {
                    // It may have come of a mutant elsewhere, and goes with it.
                    blameless = Some(format!("{file}:{line}: {message}"));
                    continue;
                }
            }
            refused = true;
        }
        match blameless {
            Some(error) if !refused => bail!("the copy does not compile, whatever the mutant: {error}"),
            _ => Ok(refused),
        }
    }
}

/// What does not compile: files and lines of errors.
fn errors(mut compile: Command) -> Result<Vec<(String, usize, String)>> {
    let done = compile.args(["--message-format", "json"]).output()?;
    let messages = String::from_utf8_lossy(&done.stdout).into_owned();
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut errors = Vec::new();
    for message in messages.filter(|message| message["message"]["level"] == "error") {
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
