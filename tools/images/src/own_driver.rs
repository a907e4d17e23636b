//! A user's NDK consumer, built from its sources in C without the driver kit.
//!
//! It is compiled with the headers of `tests/c-consumer/include`, which have every NDK function, and linked with everything that
//! the kernel host exports, so that a call of anything else fails to link with its name.

use crate::{
    c_image::{self, CImage, Origin},
    workspace::Workspace,
};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

const INCLUDE: &str = "tests/c-consumer/include";
const EXPORTS: &[&str] = &[
    "tools/images/exports/ntoskrnl.def",
    "tools/images/exports/netio.def",
    "tools/images/exports/ndis.def",
    "tools/images/exports/cng.def",
];

/// Where the images of users are.
pub fn folder(workspace: &Workspace, name: &str) -> PathBuf {
    workspace.path("target/own-drivers").join(name)
}

/// What a driver is called that is built from these sources: as its file or folder, and not `src`.
pub fn name(path: &Path) -> Result<String> {
    let path = path.canonicalize().with_context(|| format!("there is no {}", path.display()))?;
    let named = if path.file_name().is_some_and(|name| name == "src") { path.parent().unwrap_or(&path) } else { &path };
    let stem = if named.is_dir() { named.file_name() } else { named.file_stem() };
    Ok(stem.context("a driver without a name")?.to_string_lossy().into_owned())
}

/// Builds a C file, or a folder with C files (or with a folder `src` of them), and returns the path of the image.
pub fn build_c(workspace: &Workspace, path: &Path) -> Result<PathBuf> {
    let given = path.canonicalize().with_context(|| format!("there is no {}", path.display()))?;
    let beside = |file: &Path| file.parent().unwrap_or(file).to_path_buf();
    let home = if given.is_dir() { given.clone() } else { beside(&given) };
    let text = |path: PathBuf| path.to_str().map(str::to_owned).context("the path is no text");
    let mut sources = text(given.clone())?;
    if given.is_dir() && c_image::sources(workspace, &[&sources])?.is_empty() {
        sources = text(given.join("src"))?;
        ensure!(Path::new(&sources).is_dir(), "{} has neither C files nor a Cargo.toml", path.display());
    }
    ensure!(!c_image::sources(workspace, &[&sources])?.is_empty(), "{} has no C files", path.display());
    let include = [text(home.join("include"))?, text(home)?];
    let name = name(path)?;
    let image = CImage {
        name: &format!("{name}.sys"),
        sources: &[&sources],
        include: &[&include[0], &include[1], INCLUDE],
        imports: EXPORTS,
        exports: None,
    };
    c_image::build_in(workspace, &image, &folder(workspace, &name), Origin::User)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    fn read(path: &str) -> String {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
    }

    /// Function type and slot of each entry of the dispatch tables, in their order.
    fn slots(text: &str, split: impl Fn(&str) -> Option<(String, String)>) -> Vec<(String, String)> {
        let mut slots: Vec<_> = text.lines().filter_map(|line| split(line.trim())).collect();
        slots.sort();
        slots
    }

    #[test]
    fn every_slot_of_the_headers_dispatch_tables_has_its_type() {
        let header = read("tests/c-consumer/include/ndkpi.h");
        let in_c = slots(&header, |line| {
            let (function, slot) = line.strip_suffix(';')?.split_once(' ')?;
            (function.starts_with("NDK_FN_") && slot.starts_with("Ndk")).then(|| (function.to_owned(), slot.to_owned()))
        });
        let in_rust = slots(&read("ndkpi-sys/src/ndkpi/dispatch.rs"), |line| {
            let (slot, rest) = line.split_once(": ")?;
            let (function, _) = rest.split_once(" @ ")?;
            slot.starts_with("Ndk").then(|| (function.to_owned(), slot.to_owned()))
        });
        assert_eq!(in_rust.len(), 70, "the tables of NDKPI 2.1");
        assert_eq!(in_c, in_rust);
        let untyped: Vec<_> = header
            .lines()
            .filter(|line| line.trim().starts_with("PVOID Ndk") && !line.contains("NdkReserved"))
            .collect();
        assert_eq!(untyped, Vec::<&str>::new());
    }
}
