//! The copy of the work tree to which patches are applied: `target/seeded-bugs/tree` and its like.
//!
//! It stays between runs, and only files that differ are written, so that cargo builds what a seeded bug changes and no more.

use crate::{
    command,
    workspace::{Workspace, write_if_changed},
};
use anyhow::{Context, Result};
use std::{
    collections::BTreeSet,
    fs,
    io::ErrorKind,
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
    /// `name` distinguishes copies that are in use at the same time.
    pub fn copy(origin: &Workspace, name: &str) -> Result<Self> {
        let tree = Self { origin: origin.clone(), root: origin.path("target").join(name).join("tree") };
        let mut git = Command::new("git");
        git.current_dir(origin.root()).args(["ls-files", "--cached", "--others", "--exclude-standard"]);
        let listed = command::output(&mut git)?;
        // A file that git still lists may be gone.
        let names = listed.lines().filter(|name| origin.path(name).is_file()).collect::<BTreeSet<_>>();
        tree.remove_all_but(&names)?;
        for name in &names {
            tree.restore(name)?;
        }
        Ok(tree)
    }

    /// Takes away what an earlier copy brought and the work tree has no more: cargo would build a test that is gone.
    fn remove_all_but(&self, names: &BTreeSet<&str>) -> Result<()> {
        let list = self.root.with_file_name("files.txt");
        for gone in fs::read_to_string(&list).unwrap_or_default().lines().filter(|name| !names.contains(name)) {
            match fs::remove_file(self.root.join(gone)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot remove {gone} from the copy"));
                }
                _ => {}
            }
        }
        write_if_changed(&list, names.iter().copied().collect::<Vec<_>>().join("\n").as_bytes())
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

    /// Does something while a change is applied. Afterwards the copy is as before, even if the work tree changes meanwhile.
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

#[cfg(test)]
mod tests {
    use super::Tree;
    use crate::{command, workspace::Workspace};
    use std::{fs, process::Command};

    #[test]
    fn a_file_that_the_work_tree_has_no_more_leaves_the_copy() {
        let root = Workspace::at("..".as_ref()).path("target/tree-test");
        fs::create_dir_all(&root).unwrap();
        command::output(Command::new("git").current_dir(&root).arg("init")).unwrap();
        fs::write(root.join(".gitignore"), "target").unwrap();
        let written = |name: &str| fs::write(root.join(name), name).unwrap();
        let work_tree = Workspace::at(&root);
        written("kept.rs");
        written("gone.rs");
        let copy = Tree::copy(&work_tree, "copy").unwrap();
        let built = copy.root().join("built.o");
        fs::write(&built, "by cargo").unwrap();
        fs::remove_file(root.join("gone.rs")).unwrap();
        let copy = Tree::copy(&work_tree, "copy").unwrap();
        assert!(copy.root().join("kept.rs").is_file() && built.is_file());
        assert!(!copy.root().join("gone.rs").exists());
        fs::remove_dir_all(&root).unwrap();
    }
}
