//! The paths of the work tree that more than one command needs, and writing of files only when they change.

use anyhow::{Context, Result};
use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// The work tree, by its root folder.
#[derive(Clone)]
pub struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// The work tree that holds the running program's package, or this one.
    ///
    /// Cargo names a package's folder at run time; the path of the compilation serves when a binary is started by hand.
    pub fn find() -> Result<Self> {
        let package =
            env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
        let root = package.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
        let root = root.with_context(|| format!("no folder above {} has a Cargo.lock", package.display()))?;
        Ok(Self::at(root))
    }

    /// The work tree with this root: a copy of it, or the one of a test, which runs in the folder of its crate.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path relative to the root.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    /// Everything that the cross build makes, finished images included.
    ///
    /// Always below the work tree, whatever `CARGO_TARGET_DIR` says: other commands and people look for images there.
    pub fn driver_target(&self) -> PathBuf {
        self.path("target/driver")
    }

    /// A path as people read it: relative to the root where it lies below.
    pub fn show<'path>(&self, path: &'path Path) -> std::path::Display<'path> {
        path.strip_prefix(&self.root).unwrap_or(path).display()
    }
}

/// Writes `contents` unless the file already holds them, so that time stamps, and with them cargo's freshness, stay.
pub fn write_if_changed(path: &Path, contents: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|present| present == contents) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    fs::write(path, contents).with_context(|| format!("cannot write {}", path.display()))
}
