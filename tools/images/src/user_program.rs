//! Programs of user mode, built by mingw-w64 as others build theirs, and the run-time library that the kernel host gives to programs.

use crate::{command, setup, workspace::Workspace};
use anyhow::{Context, Result};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

/// Where the sources of the run-time library are.
const RUN_TIME: &str = "tests/kernel-host/run-time";

/// The library has no C run-time: it is one.
const RUN_TIME_FLAGS: [&str; 11] = [
    "-O1",
    "-g",
    "-std=gnu11",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-builtin-declaration-mismatch",
    "-ffreestanding",
    "-fno-builtin",
    "-D_CRTIMP=",
    "-DWINSOCK_API_LINKAGE=",
];

/// As a developer would.
const PROGRAM_FLAGS: [&str; 5] = ["-O1", "-g", "-Wall", "-Wextra", "-Werror"];

/// Which C run-time a program is linked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunTime {
    /// msvcrt.dll.
    Msvcrt,
    /// The universal one, through api-ms-win-crt-*.
    Universal,
}

/// Makes the run-time library, unless it is newer than its sources, and returns its path.
pub fn run_time(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.path("target/c-images/run-time");
    let image = folder.join("run-time.dll");
    let sources = files(&workspace.path(RUN_TIME))?;
    if is_newer(&image, &sources) {
        return Ok(image);
    }
    setup::ensure(&[setup::Need::ToolLinker])?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    // Whole or not there, whoever builds at the same time.
    let own = folder.join(format!("{}", std::process::id()));
    fs::create_dir_all(&own)?;
    let mut compiler = compiler(workspace);
    compiler
        .args(RUN_TIME_FLAGS)
        .args(["-shared", "-nostdlib", "-Wl,--entry,DllMain", "-o"])
        .arg(own.join("run-time.dll"));
    compiler.args(sources.iter().filter(|file| file.extension().is_some_and(|extension| extension == "c")));
    compiler.arg(workspace.path(RUN_TIME).join("run-time.def")).args(["-lmingwex", "-lgcc"]);
    for module in ["host", "synch"] {
        let library = own.join(format!("lib{module}.a"));
        let mut dlltool = Command::new("x86_64-w64-mingw32-dlltool");
        dlltool.arg("-d").arg(workspace.path(RUN_TIME).join(module).with_extension("def")).arg("-l").arg(&library);
        command::output(&mut dlltool)?;
        compiler.arg(library);
    }
    command::output(compiler.arg("-lkernel32")).context("the run-time library does not build")?;
    fs::rename(own.join("run-time.dll"), &image)?;
    fs::remove_dir_all(&own)?;
    Ok(image)
}

/// Builds a console program from C files of the work tree and returns its path.
pub fn build(workspace: &Workspace, name: &str, sources: &[&str], run_time: RunTime) -> Result<PathBuf> {
    let folder = workspace.path("target/c-images/programs").join(format!("{run_time:?}"));
    let image = folder.join(name);
    let sources: Vec<_> = sources.iter().map(|source| workspace.path(source)).collect();
    if is_newer(&image, &sources) {
        return Ok(image);
    }
    setup::ensure(&[setup::Need::ToolLinker])?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let own = folder.join(format!("{}-{name}", std::process::id()));
    let mut compiler = compiler(workspace);
    compiler.args(PROGRAM_FLAGS).arg("-o").arg(&own).args(&sources);
    if run_time == RunTime::Universal {
        // The default libraries with the other run-time.
        compiler.args([
            "-D_UCRT",
            "-nodefaultlibs",
            "-lws2_32",
            "-lmingw32",
            "-lgcc",
            "-lmingwex",
            "-lucrt",
            "-lkernel32",
        ]);
    } else {
        compiler.arg("-lws2_32");
    }
    command::output(&mut compiler).with_context(|| format!("{name} does not build"))?;
    fs::rename(&own, &image)?;
    Ok(image)
}

fn compiler(workspace: &Workspace) -> Command {
    let mut compiler = Command::new(setup::TOOL_LINKER);
    compiler.current_dir(workspace.root());
    compiler
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
    let mut files: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    Ok(files)
}

fn is_newer(image: &Path, sources: &[PathBuf]) -> bool {
    let changed = |file: &Path| -> Option<SystemTime> { fs::metadata(file).and_then(|data| data.modified()).ok() };
    let Some(built) = changed(image) else { return false };
    sources.iter().all(|source| changed(source).is_some_and(|source| source < built))
}
