//! The NetworkDirect program in C, as a DLL that a process loads: compiled and linked by mingw-w64, with its headers of Windows.

use crate::{command, setup, workspace::Workspace};
use anyhow::{Context, Result};
use std::{fs, path::PathBuf, process::Command};

const SOURCES: [&str; 5] = [
    "tests/networkdirect/program/program.c",
    "tests/networkdirect/program/transfers.c",
    "tests/networkdirect/program/connections.c",
    "tests/networkdirect/program/version1.c",
    "tests/networkdirect/program/calls.c",
];

/// No C run-time: the program calls kernel32 alone.
const FLAGS: [&str; 11] = [
    "-O1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffreestanding",
    "-fno-stack-protector",
    "-mno-stack-arg-probe",
    "-nostdlib",
    "-shared",
    "-Wl,--entry,0",
    "-DCINTERFACE",
];

/// Where the program is once it is built.
#[must_use]
pub fn path(workspace: &Workspace) -> PathBuf {
    workspace.path("target/c-images/nd-program/nd-program.dll")
}

/// Builds the program and returns its path.
pub fn build(workspace: &Workspace) -> Result<PathBuf> {
    setup::ensure(&[setup::Need::ToolLinker])?;
    let image = path(workspace);
    let folder = image.parent().context("an image without a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut compiler = Command::new(setup::TOOL_LINKER);
    compiler.current_dir(workspace.root()).args(FLAGS).arg("-o").arg(&image).args(SOURCES).arg("-lkernel32");
    command::output(&mut compiler).context("the NetworkDirect program does not build")?;
    Ok(image)
}
