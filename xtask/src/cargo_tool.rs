//! Cargo's sub-commands of others that a command needs: installed below the target folder, in the version that is meant.

use crate::{command, workspace::Workspace};
use anyhow::{Context, Result};
use std::{path::PathBuf, process::Command};

/// A program like cargo-fuzz.
pub(crate) struct CargoTool {
    pub name: &'static str,
    pub version: &'static str,
}

impl CargoTool {
    /// The program's path, after it has been installed if it was not there.
    pub fn require(&self, workspace: &Workspace) -> Result<PathBuf> {
        let Self { name, version } = self;
        let root = workspace.path("target/tools");
        let program = root.join("bin").join(name);
        // Started as cargo starts it: not every one has options of its own.
        let sub_command = name.strip_prefix("cargo-").unwrap_or(name);
        let there = command::output(Command::new(&program).args([sub_command, "--version"]));
        if !there.is_ok_and(|said| said.trim_end().ends_with(version)) {
            eprintln!("setup: installing {name} {version}");
            let mut install = Command::new("cargo");
            install.args(["install", "--quiet", "--locked", name, "--version", version, "--root"]).arg(&root);
            command::output(&mut install).with_context(|| format!("{name} cannot be installed"))?;
        }
        Ok(program)
    }
}
