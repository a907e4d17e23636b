//! Cargo's sub-commands of others that a command needs: installed below the target folder, in the version that is meant.

use crate::{command, workspace::Workspace};
use anyhow::{Context, Result};
use std::{path::PathBuf, process::Command};

/// A program like cargo-fuzz.
pub(crate) struct CargoTool {
    pub name: &'static str,
    pub version: &'static str,
    /// The only features that are built; else the default ones.
    pub features: Option<&'static str>,
}

impl CargoTool {
    /// The program's path, after it has been installed if it was not there.
    pub fn require(&self, workspace: &Workspace) -> Result<PathBuf> {
        let Self { name, version, features } = self;
        let root = workspace.path("target/tools");
        let program = root.join("bin").join(name);
        // A sub-command is started as cargo starts it: not every one has options of its own.
        let there = command::output(Command::new(&program).args(name.strip_prefix("cargo-")).arg("--version"));
        if !there.is_ok_and(|said| said.trim_end().ends_with(version)) {
            eprintln!("setup: installing {name} {version}");
            let mut install = Command::new("cargo");
            install.args(["install", "--quiet", "--locked", name, "--version", version, "--root"]).arg(&root);
            if let Some(features) = features {
                install.args(["--no-default-features", "--features", features]);
            }
            command::output(&mut install).with_context(|| format!("{name} cannot be installed"))?;
        }
        Ok(program)
    }
}
