//! `cargo xtask networkdirect`: the suite of user-mode NetworkDirect, with the images that it loads.

use crate::{
    arch::Arch,
    driver::{self, Profile},
    host_cargo, softnd,
    test_log::{Totals, totals},
    workspace::Workspace,
};
use anyhow::{Context, Result, bail};
use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

/// Build softndk.sys and softnd.dll and run the tests of user-mode NetworkDirect.
#[derive(clap::Args)]
pub struct NetworkdirectArguments {
    /// Only cases whose names contain one of these
    filters: Vec<String>,

    /// With adapters whose peers are all across streams: bytes of iWARP over TCP, in any cut, late
    #[arg(long)]
    streams: bool,
}

pub fn run(arguments: &NetworkdirectArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let image = driver::build(&workspace, Arch::X64, Profile::Debug)?;
    softnd::build(&workspace, Profile::Release)?;
    // The harness takes one filter.
    let filters = arguments.filters.iter().map(|filter| Some(filter.as_str()));
    let runs = if arguments.filters.is_empty() { vec![None] } else { filters.collect() };
    let mut all = Totals::default();
    for filter in runs {
        let mut cargo = host_cargo::cargo(&workspace);
        cargo.args(["test", "--locked", "--no-fail-fast"]);
        for suite in fs::read_dir(workspace.path("tests/networkdirect/tests"))? {
            cargo.arg("--test").arg(suite?.file_name());
        }
        cargo.arg("--");
        cargo.args(filter).env("SOFTNDK_IMAGE", &image);
        cargo.envs(arguments.streams.then_some(("SOFTNDK_TRANSPORT", "stream")));
        let said = shown(&mut cargo).context("the suite of user-mode NetworkDirect fails")?;
        let totals = totals(&said).unwrap_or_default();
        if totals.passed == 0 {
            bail!("no case of user-mode NetworkDirect ran: {}", filter.unwrap_or("cargo ran no test binary"));
        }
        all.passed += totals.passed;
        all.ignored += totals.ignored;
        all.binaries = all.binaries.max(totals.binaries);
    }
    println!("networkdirect: {} cases passed in {} suites, {} ignored", all.passed, all.binaries, all.ignored);
    Ok(())
}

/// Runs a command whose output goes to the person line by line, and returns what it wrote to standard output.
fn shown(command: &mut Command) -> Result<String> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let mut said = String::new();
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        said.push_str(&line);
        said.push('\n');
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("cargo test ended with {status}");
    }
    Ok(said)
}
