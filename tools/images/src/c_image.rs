//! Images written in C, drivers and DLLs of user mode: clang compiles, the toolchain's own linker links, and import libraries
//! come from `.def` files, as those of the driver's kit do.
//!
//! The images are made as the driver kit makes drivers: with the security cookie (/GS), control flow guard and symbols.

use crate::{
    arch::Arch,
    command, kit, setup, toolchain,
    workspace::{Workspace, write_if_changed},
};
use anyhow::{Context, Result};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What an image is made of. Paths are relative to the work tree.
pub struct CImage<'image> {
    /// File name of the image; its folder below `target/c-images` is called the same without the extension. One that ends in
    /// `.dll` is a DLL of user mode with `DllMain`, others are drivers.
    pub name: &'image str,
    /// C files, or folders of them.
    pub sources: &'image [&'image str],
    pub include: &'image [&'image str],
    /// `.def` files of the modules that it imports from.
    pub imports: &'image [&'image str],
    /// The `.def` file of its own exports.
    pub exports: Option<&'image str>,
}

const COMPILER_FLAGS: &[&str] = &[
    "--target=x86_64-pc-windows-msvc",
    "-std=c11",
    "-O1",
    "-g",
    "-gcodeview",
    "-ffreestanding",
    "-fno-strict-aliasing",
    "-fms-extensions",
    "-fshort-wchar",
    // Freestanding code has none otherwise, and without them no stack can be read.
    "-fasynchronous-unwind-tables",
    "-fstack-protector-strong",
    "-Xclang",
    "-cfguard",
    "-Wall",
    "-Wextra",
    "-Wno-multichar",
    "-Wno-four-char-constants",
];

const DRIVER_FLAGS: &[&str] = &["-driver", "-subsystem:native", "-entry:DriverEntry"];
const DLL_FLAGS: &[&str] = &["-dll", "-noimplib", "-subsystem:windows", "-entry:DllMain"];

const LINKER_FLAGS: &[&str] = &["-nodefaultlib", "-debug", "-guard:cf", "-dynamicbase", "-nxcompat"];

/// Where the image is once it is built.
pub fn path(workspace: &Workspace, name: &str) -> PathBuf {
    folder(workspace, name).join(name)
}

fn folder(workspace: &Workspace, name: &str) -> PathBuf {
    let stem = Path::new(name).file_stem().unwrap_or_default();
    workspace.path("target/c-images").join(stem)
}

/// Whose sources are compiled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// This work tree's: a warning is an error.
    Tree,
    /// A user's: warnings are shown, and what the kit's support library brings is linked where the sources have none of it.
    User,
}

/// Builds the image and returns its path.
pub fn build(workspace: &Workspace, image: &CImage<'_>) -> Result<PathBuf> {
    build_in(workspace, image, &folder(workspace, image.name), Origin::Tree)
}

/// Builds the image in a folder and returns its path.
pub fn build_in(workspace: &Workspace, image: &CImage<'_>, folder: &Path, origin: Origin) -> Result<PathBuf> {
    setup::ensure(&[setup::Need::Clang])?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut linker = Command::new(toolchain::linker()?);
    let is_dll = Path::new(image.name).extension().is_some_and(|extension| extension == "dll");
    let kind = if is_dll { DLL_FLAGS } else { DRIVER_FLAGS };
    linker.current_dir(folder).args(["-flavor", "link"]).args(kind).args(LINKER_FLAGS);
    linker.arg(format!("-out:{}", image.name));
    for source in sources(workspace, image.sources)? {
        linker.arg(compile(workspace, image.include, folder, &source, origin)?);
    }
    if origin == Origin::User {
        linker.arg(support_library(workspace)?);
    }
    for definition in image.imports {
        linker.arg(import_library(workspace, folder, definition)?);
    }
    if let Some(exports) = image.exports {
        linker.arg(format!("-def:{}", workspace.path(exports).display()));
    }
    command::output(&mut linker).with_context(|| format!("{} does not link", image.name))?;
    Ok(folder.join(image.name))
}

/// The C files that these names stand for.
pub(crate) fn sources(workspace: &Workspace, names: &[&str]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for name in names {
        let path = workspace.path(name);
        if path.is_dir() {
            for entry in fs::read_dir(&path).with_context(|| format!("cannot read the folder {}", path.display()))? {
                files.push(entry?.path());
            }
        } else {
            files.push(path);
        }
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "c"));
    files.sort();
    Ok(files)
}

fn compile(workspace: &Workspace, include: &[&str], folder: &Path, source: &Path, origin: Origin) -> Result<PathBuf> {
    let object = folder.join(source.file_name().unwrap_or_default()).with_extension("obj");
    let mut clang = Command::new(setup::clang().context("there is no clang")?);
    clang.current_dir(workspace.root()).args(COMPILER_FLAGS);
    clang.args(include.iter().map(|folder| format!("-I{folder}")));
    // Relative, so that symbols name the same file on every machine.
    clang.arg("-c").arg(source.strip_prefix(workspace.root()).unwrap_or(source)).arg("-o").arg(&object);
    let compiled = match origin {
        Origin::Tree => command::output(clang.arg("-Werror")).map(|_| ()),
        Origin::User => command::run(&mut clang),
    };
    compiled.with_context(|| format!("{} does not compile", workspace.show(source)))?;
    Ok(object)
}

/// The stand-in for the kit's support library, of which the linker takes what an image has not defined itself: cookie, control
/// flow guard and load configuration, and two names that compiled Rust refers to.
pub fn support_library(workspace: &Workspace) -> Result<PathBuf> {
    const SOURCES: &[&str] = &["tests/c-consumer/src/support.c", "tools/images/support/rust.c"];
    setup::ensure(&[setup::Need::Clang])?;
    let folder = workspace.path("target/c-images/support");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let library = folder.join("support.lib");
    let mut librarian = Command::new(toolchain::linker()?);
    librarian.current_dir(&folder).args(["-flavor", "link", "-lib"]).arg(format!("-out:{}", library.display()));
    for source in sources(workspace, SOURCES)? {
        librarian.arg(compile(workspace, &[], &folder, &source, Origin::Tree)?);
    }
    command::output(&mut librarian).context("the support library cannot be made")?;
    Ok(library)
}

fn import_library(workspace: &Workspace, folder: &Path, definition: &str) -> Result<PathBuf> {
    let file = workspace.path(definition);
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {definition}"))?;
    let module = text.lines().find_map(|line| line.strip_prefix("LIBRARY ")).context("no line LIBRARY")?.trim();
    let names = kit::exported_names(&text, module).with_context(|| format!("{definition} is wrong"))?;
    let library = folder.join(file.file_stem().unwrap_or_default()).with_extension("lib");
    write_if_changed(&library, &kit::import_library(module, &names, Arch::X64)?)?;
    Ok(library)
}
