//! The copy of the work tree in which things are broken: `target/breaks/tree` and its like.
//!
//! It stays between runs, and only files that differ are written, so that cargo builds what a break changes and no more.

use crate::{
    command,
    workspace::{Workspace, write_if_changed},
};
use anyhow::{Context, Result};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A change of the tree: a unified diff in a file of its own.
pub struct Change {
    pub diff: PathBuf,
    /// The files it changes, relative to the root.
    pub files: Vec<String>,
}

/// The copy, and where it comes from.
pub struct Tree {
    origin: Workspace,
    root: PathBuf,
}

impl Tree {
    /// Copies what git knows of the work tree, changes that are not committed included.
    ///
    /// `name` tells copies apart that are in use at the same time.
    pub fn copy(origin: &Workspace, name: &str) -> Result<Self> {
        let tree = Self { origin: origin.clone(), root: origin.path("target").join(name).join("tree") };
        let mut git = Command::new("git");
        git.current_dir(origin.root()).args(["ls-files", "--cached", "--others", "--exclude-standard"]);
        for name in command::output(&mut git)?.lines() {
            // A file that git still lists may be gone.
            if origin.path(name).is_file() {
                tree.restore(name)?;
            }
        }
        Ok(tree)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A file as it is in the work tree.
    pub fn original(&self, name: &str) -> Result<String> {
        fs::read_to_string(self.origin.path(name)).with_context(|| format!("cannot read {name}"))
    }

    /// Puts a file back as it is in the work tree.
    fn restore(&self, name: &str) -> Result<()> {
        let contents = fs::read(self.origin.path(name)).with_context(|| format!("cannot read {name}"))?;
        write_if_changed(&self.root.join(name), &contents)
    }

    /// Whether a change applies as it is.
    pub fn takes(&self, change: &Change) -> bool {
        self.apply(change, true).is_ok()
    }

    /// Does something while a change is applied. Afterwards the copy is as before, whatever became of the work tree meanwhile.
    pub fn with<T>(&self, change: &Change, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let places = change.files.iter().map(|file| self.root.join(file)).collect::<Vec<_>>();
        let before = places.iter().map(fs::read).collect::<Result<Vec<_>, _>>()?;
        self.apply(change, false)?;
        let done = work();
        for (place, contents) in places.iter().zip(&before) {
            write_if_changed(place, contents)?;
        }
        done
    }

    fn apply(&self, change: &Change, only_check: bool) -> Result<()> {
        let mut git = Command::new("git");
        // The copy lies inside a repository of which it is no part.
        git.current_dir(&self.root).env("GIT_CEILING_DIRECTORIES", self.root.parent().unwrap_or(&self.root));
        git.args(["apply", "--whitespace=nowarn"]).args(only_check.then_some("--check")).arg(&change.diff);
        command::output(&mut git).map(drop)
    }
}
