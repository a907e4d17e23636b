//! Installing what a command needs and this machine lacks.
//!
//! Nothing is installed twice and nothing that is there is touched; the checks take milliseconds when all is there. Libraries for a Windows target come from rustup where it reaches its server, else
//! from source through Debian packages. Where neither works, the error names what is missing.

use crate::{arch::Arch, command, toolchain};
use anyhow::{Result, anyhow, bail};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The target of the tools that run on Windows.
pub const TOOLS_TRIPLE: &str = "x86_64-pc-windows-gnu";

/// Something a command cannot work without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The compiled core library of a driver target, or what compiles it.
    DriverLibraries(Arch),
    /// The library that reads C headers (bindgen loads it).
    Libclang,
    /// The compiler of the images that are written in C.
    Clang,
    /// The standard library of the tools' target, or what compiles it.
    ToolLibraries,
    /// The linker of the tools' target.
    ToolLinker,
    /// What compiles libFuzzer.
    CppCompiler,
    /// A component of the toolchain: `clippy`, `rustfmt`.
    Component(&'static str),
    /// The programs that read what instrumented code counted.
    LlvmTools,
    /// A nightly toolchain with the interpreter that sees undefined behaviour.
    Miri,
    /// What runs programs for Windows.
    Wine,
    /// The peer that `cargo xtask bench` compares with.
    Ucx,
    /// What signs images.
    Osslsigncode,
}

/// What building the driver for `arch` needs.
pub fn driver_needs(arch: Arch) -> [Need; 2] {
    [Need::DriverLibraries(arch), Need::Libclang]
}

/// What building the tools for Windows needs.
pub const TOOL_NEEDS: [Need; 2] = [Need::ToolLibraries, Need::ToolLinker];

/// What running the cells in miri needs.
pub const MIRI_NEEDS: [Need; 1] = [Need::Miri];

/// What the lints need.
pub const LINT_NEEDS: [Need; 2] = [Need::Component("clippy"), Need::Component("rustfmt")];

/// Installs those of `needs` that are missing, and says so.
pub fn ensure(needs: &[Need]) -> Result<()> {
    for need in needs {
        if !is_met(*need)? {
            eprintln!("setup: installing {}", describe(*need));
            install(*need)?;
            if !is_met(*need)? {
                bail!("{} is still missing after its installation; install it by hand and try again", describe(*need));
            }
        }
    }
    Ok(())
}

fn describe(need: Need) -> String {
    match need {
        Need::DriverLibraries(arch) => format!("the Rust libraries for {}", arch.triple()),
        Need::ToolLibraries => format!("the Rust libraries for {TOOLS_TRIPLE}"),
        Need::Libclang => "libclang, which bindgen reads the kernel headers with".to_owned(),
        Need::Clang => "clang, which compiles the images in C".to_owned(),
        Need::CppCompiler => "a C++ compiler for the fuzzers".to_owned(),
        Need::ToolLinker => "the mingw-w64 linker for the Windows tools".to_owned(),
        Need::Component(name) => format!("the toolchain component {name}"),
        Need::LlvmTools => "the toolchain component llvm-tools, which reads what was counted".to_owned(),
        Need::Wine => "Wine, which runs programs for Windows".to_owned(),
        Need::Ucx => "UCX's ucx_perftest, which the driver is measured beside".to_owned(),
        Need::Osslsigncode => "osslsigncode, which signs images".to_owned(),
        Need::Miri => "miri and the library sources it runs, for a nightly toolchain".to_owned(),
    }
}

fn is_met(need: Need) -> Result<bool> {
    Ok(match need {
        Need::DriverLibraries(arch) => toolchain::find(arch.triple())?.is_some(),
        Need::ToolLibraries => toolchain::find(TOOLS_TRIPLE)?.is_some(),
        Need::Libclang => libclang().is_some(),
        Need::Clang => clang().is_some(),
        Need::CppCompiler => on_path("c++").is_some(),
        Need::ToolLinker => on_path(TOOL_LINKER).is_some(),
        Need::Component(name) => on_path(&format!("cargo-{}", if name == "rustfmt" { "fmt" } else { name })).is_some(),
        Need::LlvmTools => ["llvm-cov", "llvm-profdata"].into_iter().all(|tool| toolchain::llvm_tool(tool).is_ok()),
        Need::Miri => has_nightly() && nightly_has_miri()?,
        Need::Wine => wine().is_some(),
        Need::Ucx => ucx().is_some(),
        Need::Osslsigncode => on_path("osslsigncode").is_some(),
    })
}

/// The program that links the tools.
pub const TOOL_LINKER: &str = "x86_64-w64-mingw32-gcc";

fn install(need: Need) -> Result<()> {
    match need {
        Need::DriverLibraries(arch) => install_libraries(arch.triple()),
        Need::ToolLibraries => install_libraries(TOOLS_TRIPLE),
        Need::Libclang => apt(&["libclang1-14"]),
        Need::Clang => apt(&["clang-14"]),
        Need::CppCompiler => apt(&["g++"]),
        Need::ToolLinker => apt(&["gcc-mingw-w64-x86-64"]),
        Need::Component(name) => rustup(&["component", "add", name]),
        Need::LlvmTools => rustup(&["component", "add", "llvm-tools"]),
        Need::Wine => apt(&["wine64"]),
        Need::Ucx => apt(&["ucx-utils"]),
        Need::Osslsigncode => apt(&["osslsigncode"]),
        Need::Miri => {
            if !has_nightly() {
                rustup(&["toolchain", "install", "nightly", "--profile", "minimal"])?;
            }
            rustup(&["component", "add", "--toolchain", "nightly", "miri", "rust-src"])
        }
    }
}

fn has_nightly() -> bool {
    command::output(Command::new("rustc").args(["+nightly", "--version"])).is_ok()
}

/// Asked of rustup, because the names of toolchains come before those of programs on the path.
fn nightly_has_miri() -> Result<bool> {
    let installed =
        command::output(Command::new("rustup").args(["component", "list", "--installed", "--toolchain", "nightly"]))?;
    let has = |name| installed.lines().any(|line| line.starts_with(name));
    Ok(has("miri") && has("rust-src"))
}

fn install_libraries(triple: &str) -> Result<()> {
    let way = if toolchain::from_source() { Err(anyhow!("not asked")) } else { rustup(&["target", "add", triple]) };
    let Err(rustup_error) = way else { return Ok(()) };
    eprintln!("setup: rustup cannot supply them; installing a compiler that builds them from source");
    apt(&toolchain::SOURCE_PACKAGES).map_err(|apt_error| {
        anyhow!(
            "no libraries for {triple}. Either `rustup target add {triple}` has to work:\n{rustup_error:#}\n\
             or the Debian packages {} have to be installable:\n{apt_error:#}",
            toolchain::SOURCE_PACKAGES.join(" and ")
        )
    })
}

fn rustup(words: &[&str]) -> Result<()> {
    command::output(Command::new("rustup").args(words)).map(drop)
}

/// Installs Debian packages; the package lists are fetched only when the first attempt fails.
fn apt(packages: &[&str]) -> Result<()> {
    let install = |packages: &[&str]| {
        let mut words = vec!["install", "--yes", "--quiet", "--no-install-recommends"];
        words.extend(packages);
        apt_get(&words)
    };
    if install(packages).is_ok() {
        return Ok(());
    }
    // A failing update (one list of many out of reach) matters only if the packages cannot be installed after it.
    let updated = apt_get(&["update", "--quiet"]);
    install(packages).map_err(|error| {
        let reason = updated.err().map_or_else(String::new, |update| format!("\n{update:#}"));
        anyhow!("cannot install the package {}; install it by hand\n{error:#}{reason}", packages.join(", "))
    })
}

fn apt_get(words: &[&str]) -> Result<()> {
    let mut command = if is_root() {
        Command::new("apt-get")
    } else {
        let mut sudo = Command::new("sudo");
        sudo.args(["--non-interactive", "--preserve-env=DEBIAN_FRONTEND", "apt-get"]);
        sudo
    };
    command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
    command::output(&mut command).map(drop)
}

fn is_root() -> bool {
    command::output(Command::new("id").arg("--user")).is_ok_and(|id| id.trim_end() == "0")
}

/// The newest libclang of this machine: `LIBCLANG_PATH`, the linker's folders, or LLVM's own folders.
fn libclang() -> Option<PathBuf> {
    let mut folders = std::env::var_os("LIBCLANG_PATH").map(PathBuf::from).into_iter().collect::<Vec<_>>();
    folders.extend(
        ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"]
            .map(PathBuf::from),
    );
    folders.extend(
        entries("/usr/lib").into_iter().filter(|path| name_starts_with(path, "llvm-")).map(|path| path.join("lib")),
    );
    folders.iter().flat_map(entries).find(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        !name.contains("clang-cpp")
            && (name.starts_with("libclang.so") || (name.starts_with("libclang-") && name.contains(".so")))
    })
}

/// The newest clang of this machine.
pub fn clang() -> Option<PathBuf> {
    let numbered = (14..=30).rev().map(|version| format!("clang-{version}"));
    std::iter::once("clang".to_owned()).chain(numbered).find_map(|name| on_path(&name))
}

/// Wine for x64: on the path, or where Debian's package without the wrapper has it.
pub fn wine() -> Option<PathBuf> {
    let packaged = PathBuf::from("/usr/lib/wine/wine64");
    on_path("wine64").or_else(|| packaged.is_file().then_some(packaged))
}

/// UCX's program that measures it.
pub fn ucx() -> Option<PathBuf> {
    on_path("ucx_perftest")
}

fn entries(folder: impl AsRef<Path>) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path())).collect::<Vec<_>>();
    paths.sort();
    paths
}

fn name_starts_with(path: &Path, prefix: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}
