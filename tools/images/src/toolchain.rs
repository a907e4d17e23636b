//! Which compiler builds for Windows here, with which standard library and which linker.
//!
//! Two ways, in this order:
//! 1. the installed toolchain has the target's libraries (`rustup target add`);
//! 2. Debian's `rustc-web` compiles them from `rust-web-src` as part of the build: for machines on which rustup cannot
//!    reach its server. Cargo stays the installed one.
//!
//! The linker is the toolchain's own `rust-lld` in both.

use crate::command;
use anyhow::{Context, Result, bail};
use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// What a target's libraries are needed for: it decides what is compiled where they come from source.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// `core` and `alloc` only.
    Driver,
    /// `std`, for the tools.
    Program,
}

/// Where a target's libraries come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetLibraries {
    /// Compiled, beside the installed compiler.
    Installed,
    /// From source, by this compiler.
    Source { rustc: PathBuf, library: PathBuf },
}

/// The Debian packages of the second way.
pub const SOURCE_PACKAGES: [&str; 2] = ["rustc-web", "rust-web-src"];

/// Whether the second way is asked for although the first may be there: `SOFTNDK_TARGET_LIBRARIES=source`.
pub fn from_source() -> bool {
    env::var_os("SOFTNDK_TARGET_LIBRARIES").is_some_and(|way| way == "source")
}

/// The way for `triple` on this machine, or none when neither is there yet.
pub fn find(triple: &str) -> Result<Option<TargetLibraries>> {
    if !from_source() && installed(triple)? {
        return Ok(Some(TargetLibraries::Installed));
    }
    Ok(debian_source())
}

/// The way for `triple`, or an error that says what to do.
pub fn require(triple: &str) -> Result<TargetLibraries> {
    match find(triple)? {
        Some(libraries) => Ok(libraries),
        None => bail!(
            "no libraries for {triple}: neither `rustup target add {triple}` nor the Debian packages rustc-web and \
             rust-web-src are installed; `cargo xtask setup` installs one of them"
        ),
    }
}

impl TargetLibraries {
    /// Makes a cargo command use them.
    pub fn apply(&self, cargo: &mut Command, purpose: Use) {
        let Self::Source { rustc, library } = self else { return };
        cargo.env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1").env("__CARGO_TESTS_ONLY_SRC_ROOT", library);
        match purpose {
            // memcpy and its like come with the library here; ntoskrnl.exe exports them as well, and either will do.
            Use::Driver => {
                cargo.arg("-Zbuild-std=core,alloc,compiler_builtins").arg("-Zbuild-std-features=compiler-builtins-mem")
            }
            Use::Program => cargo.arg("-Zbuild-std=std,panic_abort"),
        };
    }
}

/// Where the toolchain has programs of LLVM.
fn programs() -> Result<PathBuf> {
    Ok(sysroot()?.join("lib/rustlib").join(rustc_line("host: ")?).join("bin"))
}

/// A program of the toolchain's component `llvm-tools`: of the very LLVM that the compiler is built on.
pub fn llvm_tool(name: &str) -> Result<PathBuf> {
    let tool = programs()?.join(name);
    if !tool.is_file() {
        bail!("the toolchain has no {}; `rustup component add llvm-tools` brings it", tool.display());
    }
    Ok(tool)
}

/// The toolchain's own linker.
pub fn linker() -> Result<PathBuf> {
    let linker = programs()?.join("rust-lld");
    if !linker.is_file() {
        bail!("the toolchain has no {}; install a toolchain of rustup, which brings it", linker.display());
    }
    Ok(linker)
}

fn installed(triple: &str) -> Result<bool> {
    Ok(sysroot()?.join("lib/rustlib").join(triple).join("lib").is_dir())
}

/// Whether the compiler is the release that the workspace names as its `rust-version`, with which the lists of the image
/// check are made.
pub fn is_the_lists_own() -> Result<bool> {
    let wanted = env!("CARGO_PKG_RUST_VERSION");
    let release = rustc_line("release: ")?;
    Ok(release == wanted || release.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.')))
}

fn sysroot() -> Result<PathBuf> {
    let path = command::output(rustc().args(["--print", "sysroot"]))?;
    Ok(PathBuf::from(path.trim_end()))
}

fn rustc_line(prefix: &str) -> Result<String> {
    let version = command::output(rustc().arg("-vV"))?;
    let line = version.lines().find_map(|line| line.strip_prefix(prefix)).map(str::to_owned);
    line.with_context(|| format!("`rustc -vV` has no line {prefix:?}"))
}

fn rustc() -> Command {
    Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
}

/// Debian's compiler and the sources of its library, where both packages are installed.
fn debian_source() -> Option<TargetLibraries> {
    let rustc = package_files("rustc-web")?.into_iter().find(|path| path.ends_with("bin/rustc"))?;
    let library = package_files("rust-web-src")?.into_iter().find(|path| path.ends_with("library"))?;
    Some(TargetLibraries::Source { rustc, library })
}

fn package_files(package: &str) -> Option<Vec<PathBuf>> {
    let files = command::output(Command::new("dpkg").args(["-L", package])).ok()?;
    Some(files.lines().map(|line| Path::new(line).to_path_buf()).collect())
}
