//! The NetworkDirect program in C, compiled and linked by mingw-w64 with its headers of Windows: as a DLL that a process of the
//! kernel host loads, and as a program that Windows starts.

use crate::{command, setup, workspace::Workspace};
use anyhow::{Context, Result};
use std::{fs, path::PathBuf, process::Command};

/// What both are made of.
const SOURCES: [&str; 5] = [
    "tests/networkdirect/program/program.c",
    "tests/networkdirect/program/transfers.c",
    "tests/networkdirect/program/connections.c",
    "tests/networkdirect/program/version1.c",
    "tests/networkdirect/program/clients.c",
];

/// No C run-time: the program calls kernel32 alone.
const FLAGS: [&str; 9] = [
    "-O1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffreestanding",
    "-fno-stack-protector",
    "-mno-stack-arg-probe",
    "-nostdlib",
    "-DCINTERFACE",
];

/// What is linked, and how.
struct Form {
    name: &'static str,
    sources: &'static [&'static str],
    flags: &'static [&'static str],
}

const LIBRARY: Form = Form {
    name: "nd-program.dll",
    sources: &["tests/networkdirect/program/calls.c", "tests/networkdirect/program/speed.c"],
    flags: &["-shared", "-Wl,--entry,0", "-DPROGRAM_IS_LIBRARY"],
};

const PROGRAM: Form = Form {
    name: "nd-program.exe",
    sources: &["tests/networkdirect/program/probe.c", "tests/networkdirect/program/main.c"],
    flags: &["-mconsole", "-Wl,--entry,program_main"],
};

/// Where the program is once it is built.
#[must_use]
pub fn path(workspace: &Workspace) -> PathBuf {
    place(workspace, &LIBRARY)
}

fn place(workspace: &Workspace, form: &Form) -> PathBuf {
    workspace.path("target/c-images/nd-program").join(form.name)
}

/// Builds the DLL and returns its path.
pub fn build(workspace: &Workspace) -> Result<PathBuf> {
    build_form(workspace, &LIBRARY)
}

/// Builds the program for Windows and returns its path.
pub fn build_program(workspace: &Workspace) -> Result<PathBuf> {
    build_form(workspace, &PROGRAM)
}

fn build_form(workspace: &Workspace, form: &Form) -> Result<PathBuf> {
    setup::ensure(&[setup::Need::ToolLinker])?;
    let image = place(workspace, form);
    let folder = image.parent().context("an image without a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut compiler = Command::new(setup::TOOL_LINKER);
    compiler.current_dir(workspace.root()).args(FLAGS).args(form.flags).arg("-o").arg(&image);
    compiler.args(SOURCES).args(form.sources).arg("-lkernel32");
    command::output(&mut compiler).with_context(|| format!("{} does not build", form.name))?;
    Ok(image)
}
