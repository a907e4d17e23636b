//! All mutants in one image, of which a number behind a mark chooses one: building is what costs, so it is done once.
//!
//! How a file comes to hold all its mutants, and what becomes of those that do not compile, is `switched`'s and `settled`'s matter.

use super::subject::Subject;
use crate::{
    mutants::{
        described::Mutant,
        settled::{Crate, Settled},
    },
    seeded_bugs::{proof::ImageBuilder, tree::Tree},
};
use anyhow::{Context, Result};
use std::{
    fs,
    path::{Path, PathBuf},
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

/// The image, and what became of its mutants.
pub struct Together {
    image: Vec<u8>,
    pub settled: Settled,
}

impl Together {
    /// Builds the image in a copy of the tree, which is not fit for anything else afterwards.
    pub fn build(subject: Subject, tree: &Tree, images: &ImageBuilder, mutants: &[&Mutant]) -> Result<Self> {
        let into = Crate { tree, root: subject.root(), switch: SWITCH };
        let settled = into.settle(mutants, || subject.cargo(tree))?;
        Ok(Self { image: fs::read(subject.build(tree, images)?)?, settled })
    }

    /// Writes the image in which this mutant is chosen; 0 is none.
    pub fn choose(&self, number: u32, path: &Path) -> Result<PathBuf> {
        let mut image = self.image.clone();
        let found = image.windows(MARK.len()).position(|bytes| bytes == MARK).context("the image has no choice")?;
        let choice = image.get_mut(found + MARK.len()..found + MARK.len() + 4).context("a cut image")?;
        choice.copy_from_slice(&number.to_le_bytes());
        fs::create_dir_all(path.parent().context("a path without a folder")?)?;
        fs::write(path, image).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path.to_owned())
    }
}
