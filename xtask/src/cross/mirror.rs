//! A mirror of the work tree in which the driver is built: links to every folder and file of the tree, and two files of
//! its own, a `Cargo.toml` with the patch section for wdk-build and a `Cargo.lock` in which wdk-build has no source.
//!
//! Why not build in the tree: a patch section changes `Cargo.lock`, and wdk-sys runs `cargo metadata` in the middle of
//! the build, which would change it back. In the mirror both agree, `--locked` holds every other crate to the tree's own
//! lock file, and the tree stays untouched even when a build is killed.

use super::wdk_build;
use crate::workspace::{Workspace, write_if_changed};
use anyhow::{Context, Result, ensure};
use cargo_metadata::MetadataCommand;
use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

pub const PATCHED_CRATE: &str = "wdk-build";

/// Never linked: the mirror has its own of these, or must not see them.
const NOT_LINKED: &[&str] = &["Cargo.toml", "Cargo.lock", "target", ".git"];

/// Brings the mirror up to date and returns its folder.
pub fn refresh(workspace: &Workspace) -> Result<PathBuf> {
    let mirror = workspace.driver_target().join("mirror");
    fs::create_dir_all(&mirror).with_context(|| format!("cannot create {}", mirror.display()))?;
    link_entries(workspace.root(), &mirror)?;

    let copy = patched_copy(workspace)?;
    let manifest = read_text(&workspace.path("Cargo.toml"))?;
    let patch = format!("\n[patch.crates-io.{PATCHED_CRATE}]\npath = {:?}\n", copy.display().to_string());
    write_if_changed(&mirror.join("Cargo.toml"), (manifest + &patch).as_bytes())?;

    let lock = without_source(&read_text(&workspace.path("Cargo.lock"))?, PATCHED_CRATE)?;
    write_if_changed(&mirror.join("Cargo.lock"), lock.as_bytes())?;
    Ok(mirror)
}

/// The patched crate, up to date.
pub fn patched_copy(workspace: &Workspace) -> Result<PathBuf> {
    let original = locate_original(workspace)?;
    let copy = workspace.driver_target().join(PATCHED_CRATE);
    wdk_build::write_copy(&original, &copy)?;
    Ok(copy)
}

/// The folder of the exact locked version in cargo's cache; cargo downloads it when it is not there yet.
fn locate_original(workspace: &Workspace) -> Result<PathBuf> {
    let metadata = MetadataCommand::new()
        .manifest_path(workspace.path("Cargo.toml"))
        .other_options(vec!["--locked".to_owned()])
        .exec()
        .context("cargo cannot resolve the workspace; a `cargo check` shows why")?;
    let package = metadata
        .packages
        .iter()
        .find(|package| package.name == PATCHED_CRATE)
        .with_context(|| format!("{PATCHED_CRATE} is not among the dependencies of the workspace"))?;
    let folder = package.manifest_path.parent().context("a manifest without a folder")?;
    Ok(folder.as_std_path().to_path_buf())
}

/// Links to everything in a folder except what a mirror has of its own.
pub fn link_entries(root: &Path, mirror: &Path) -> Result<()> {
    for entry in fs::read_dir(mirror)? {
        let link = entry?.path();
        if link.is_symlink() && !link.exists() {
            fs::remove_file(&link)?;
        }
    }
    for entry in fs::read_dir(root)? {
        let name = entry?.file_name();
        if NOT_LINKED.iter().any(|kept| name == *kept) {
            continue;
        }
        let link = mirror.join(&name);
        if fs::read_link(&link).is_ok_and(|target| target == root.join(&name)) {
            continue;
        }
        match symlink(root.join(&name), &link) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&link)?;
                symlink(root.join(&name), &link)?;
            }
            other => other.with_context(|| format!("cannot link {}", link.display()))?,
        }
    }
    Ok(())
}

/// The lock file as cargo itself would write it for a package that comes from a folder.
pub fn without_source(lock: &str, package: &str) -> Result<String> {
    let header = format!("name = \"{package}\"");
    let mut kept = Vec::new();
    let mut inside = false;
    let mut dropped = 0;
    for line in lock.lines() {
        if line == header {
            inside = true;
        } else if line.is_empty() {
            inside = false;
        }
        if inside && (line.starts_with("source = ") || line.starts_with("checksum = ")) {
            dropped += 1;
        } else {
            kept.push(line);
        }
    }
    ensure!(dropped == 2, "Cargo.lock names {dropped} of source and checksum for {package}, expected both once");
    Ok(kept.join("\n") + "\n")
}

fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::without_source;

    const LOCK: &str = "[[package]]\nname = \"a\"\nsource = \"r\"\nchecksum = \"1\"\n\n[[package]]\nname = \"b\"\nsource = \"r\"\nchecksum = \"2\"\ndependencies = [\n \"a\",\n]\n";

    #[test]
    fn only_the_named_package_loses_its_source() {
        let lock = without_source(LOCK, "b").unwrap();
        assert_eq!(
            lock,
            "[[package]]\nname = \"a\"\nsource = \"r\"\nchecksum = \"1\"\n\n[[package]]\nname = \"b\"\ndependencies = [\n \"a\",\n]\n"
        );
    }

    #[test]
    fn a_missing_package_is_an_error() {
        assert!(without_source(LOCK, "c").is_err());
    }
}
