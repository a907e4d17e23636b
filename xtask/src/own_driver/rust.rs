//! A driver in Rust that uses the crates of windows-drivers-rs, built on Linux as our own is: in a mirror of its folder, whose
//! manifest names the patched wdk-build (`cross::mirror` says why), with our stand-in for the driver kit.

use crate::{
    arch::Arch,
    command,
    cross::{
        self,
        mirror::{PATCHED_CRATE, link_entries, patched_copy, without_source},
    },
    driver, setup,
    workspace::{Workspace, write_if_changed},
};
use anyhow::{Context, Result, bail};
use cargo_metadata::MetadataCommand;
use softndk_images::{c_image, own_driver};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use toml_edit::{DocumentMut, TableLike, value};

/// Tables of a manifest whose entries may have a path to another crate.
const DEPENDENCIES: [&str; 3] = ["dependencies", "build-dependencies", "dev-dependencies"];

/// Builds the crate in a folder and returns the path of its image.
pub fn build(workspace: &Workspace, path: &Path) -> Result<PathBuf> {
    let arch = Arch::X64;
    setup::ensure(&setup::driver_needs(arch))?;
    let home = path.canonicalize().with_context(|| format!("there is no {}", path.display()))?;
    let name = own_driver::name(path)?;
    let mirror = own_driver::folder(workspace, &name);
    refresh(workspace, &home, &mirror)?;
    let target = mirror.join("target");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--target", arch.triple()]).arg("--target-dir").arg(&target);
    // As our own driver: level 2 keeps frames below a page.
    cargo.env("CARGO_PROFILE_DEV_OPT_LEVEL", "2").env("RUSTFLAGS", flags(workspace)?);
    cross::prepare_in(&mut cargo, workspace, arch, &mirror)?;
    command::run(&mut cargo).with_context(|| format!("{} does not build", path.display()))?;

    let made = target.join(arch.triple()).join("debug").join(library_name(&mirror)?);
    let image = mirror.join(format!("{name}.sys"));
    driver::publish(&made.with_extension("dll"), &image)?;
    driver::publish(&made.with_extension("pdb"), &image.with_extension("pdb"))?;
    Ok(image)
}

/// Control flow guard, as the kit has it, and what its support library brings.
fn flags(workspace: &Workspace) -> Result<String> {
    let support = c_image::support_library(workspace)?;
    Ok(format!("-Ctarget-feature=+crt-static -Ccontrol-flow-guard -Clink-arg={}", support.display()))
}

/// Links to the crate's files, with a manifest and a lock file of its own.
fn refresh(workspace: &Workspace, home: &Path, mirror: &Path) -> Result<()> {
    fs::create_dir_all(mirror).with_context(|| format!("cannot create {}", mirror.display()))?;
    link_entries(home, mirror)?;
    let manifest = read_text(&home.join("Cargo.toml"))?;
    let manifest = adapted(&manifest, home, &patched_copy(workspace)?)
        .with_context(|| format!("{} cannot be used", home.join("Cargo.toml").display()))?;
    write_if_changed(&mirror.join("Cargo.toml"), manifest.as_bytes())?;
    let own = home.join("Cargo.lock");
    // Without one, the versions that this work tree is built with: they are there.
    let lock = read_text(&if own.is_file() { own } else { workspace.path("Cargo.lock") })?;
    write_if_changed(&mirror.join("Cargo.lock"), without_source(&lock, PATCHED_CRATE)?.as_bytes())
}

fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The manifest for another folder: a workspace of its own, with the patched crate, and paths to other crates made absolute.
fn adapted(manifest: &str, home: &Path, patched: &Path) -> Result<String> {
    let mut document: DocumentMut = manifest.parse().context("it is no manifest")?;
    if manifest.contains("workspace = true") {
        bail!(
            "it takes values from a workspace (workspace = true): write them out, since the crate is built by itself"
        );
    }
    let root = document.as_table_mut();
    make_absolute(root, home);
    for (_, target) in
        root.get_mut("target").and_then(|item| item.as_table_like_mut()).into_iter().flat_map(TableLike::iter_mut)
    {
        target.as_table_like_mut().into_iter().for_each(|target| make_absolute(target, home));
    }
    if !root.contains_key("workspace") {
        root.insert("workspace", toml_edit::table());
    }
    document["patch"]["crates-io"][PATCHED_CRATE]["path"] = value(patched.display().to_string());
    Ok(document.to_string())
}

fn make_absolute(table: &mut dyn TableLike, home: &Path) {
    for name in DEPENDENCIES {
        let Some(dependencies) = table.get_mut(name).and_then(|item| item.as_table_like_mut()) else { continue };
        for (_, dependency) in dependencies.iter_mut() {
            let path = dependency.as_table_like_mut().and_then(|dependency| dependency.get_mut("path"));
            if let Some(path) = path
                && let Some(relative) = path.as_str()
            {
                *path = value(home.join(relative).display().to_string());
            }
        }
    }
}

/// The file name of the crate's cdylib, without its extension.
fn library_name(mirror: &Path) -> Result<String> {
    let metadata =
        MetadataCommand::new().current_dir(mirror).no_deps().exec().context("cargo cannot read the crate")?;
    let targets = metadata.packages.iter().flat_map(|package| &package.targets);
    let is_driver = |kind: &cargo_metadata::TargetKind| *kind == cargo_metadata::TargetKind::CDyLib;
    let mut libraries = targets.filter(|target| target.kind.iter().any(is_driver));
    let library = libraries.next().context("the crate has no library of crate-type cdylib, which a driver is")?;
    Ok(library.name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::adapted;
    use std::path::Path;

    fn adapt(manifest: &str) -> anyhow::Result<String> {
        adapted(manifest, Path::new("/home/me/driver"), Path::new("/patched"))
    }

    #[test]
    fn paths_lead_where_they_led() {
        let manifest = "[package]\nname = \"a\"\n\n[dependencies]\nb = { path = \"../b\" }\nc = \"1\"\n\n\
                        [target.'cfg(windows)'.dependencies.d]\npath = \"d\"\n";
        let adapted = adapt(manifest).unwrap();
        for wanted in
            ["\"/home/me/driver/../b\"", "\"/home/me/driver/d\"", "c = \"1\"", "[workspace]", "path = \"/patched\""]
        {
            assert!(adapted.contains(wanted), "no {wanted} in {adapted}");
        }
    }

    #[test]
    fn values_of_a_workspace_are_refused_in_words() {
        let error = adapt("[package]\nname = \"a\"\nversion.workspace = true\n").unwrap_err().to_string();
        assert!(error.contains("write them out"), "{error}");
    }
}
