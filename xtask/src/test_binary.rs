//! Builds tests and says where their programs are.

use crate::{host_cargo, workspace::Workspace};
use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Message;
use std::{io::BufReader, path::PathBuf, process::Stdio};

pub(crate) struct TestBinary {
    /// The folder of its package and its own name.
    pub name: String,
    pub program: PathBuf,
    /// Where cargo would start it.
    pub folder: PathBuf,
}

impl TestBinary {
    /// The program of a test file.
    pub fn build(workspace: &Workspace, file: &str) -> Result<PathBuf> {
        let mut built = Self::build_all(workspace, &["--test", file])?;
        ensure!(built.len() == 1, "{} test files are called {file}", built.len());
        Ok(built.pop().with_context(|| format!("cargo built no {file}"))?.program)
    }

    /// Those that `cargo test` would run with these words, by name.
    pub fn build_all(workspace: &Workspace, words: &[&str]) -> Result<Vec<Self>> {
        let mut cargo = host_cargo::cargo(workspace);
        cargo.args(["test", "--quiet", "--locked", "--no-run", "--message-format=json-render-diagnostics"]).args(words);
        cargo.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = cargo.spawn().context("cannot start cargo")?;
        let output = child.stdout.take().context("cargo has no output")?;
        let mut built = Vec::new();
        for message in Message::parse_stream(BufReader::new(output)) {
            if let Message::CompilerArtifact(artifact) = message?
                && artifact.profile.test
                && let Some(program) = artifact.executable
            {
                let folder = artifact.manifest_path.parent().context("a package has a folder")?;
                let package = folder.file_name().unwrap_or_default();
                let name = format!("{package}/{}", artifact.target.name);
                built.push(Self { name, program: program.into(), folder: folder.into() });
            }
        }
        if !child.wait()?.success() {
            bail!("the tests do not build");
        }
        built.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(built)
    }
}
