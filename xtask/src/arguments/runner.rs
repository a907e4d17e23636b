//! Running one test with one argument distorted.

use super::{row::ArgumentRow, suite::BorderSuite};
use crate::{child, test_binary::TestBinary, workspace::Workspace};
use anyhow::{Context, Result};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

/// Longer than any test takes that is not caught in what was distorted.
const LIMIT: Duration = Duration::from_mins(3);
/// Of a whole suite, for the names that pass in each of its tests.
const SUITE_LIMIT: Duration = Duration::from_hours(2);

/// By which the kernel host is asked (`kernel_host::distortion`).
const DISTORTION: &str = "SOFTNDK_DISTORTION";
const BORDER_LOG: &str = "SOFTNDK_BORDER_LOG";

pub struct Runner<'a> {
    workspace: &'a Workspace,
    binaries: BTreeMap<BorderSuite, PathBuf>,
    green: BTreeMap<(BorderSuite, String), bool>,
}

impl<'a> Runner<'a> {
    pub fn new(workspace: &'a Workspace) -> Result<Self> {
        fs::create_dir_all(workspace.path("target/arguments"))?;
        Ok(Self { workspace, binaries: BTreeMap::new(), green: BTreeMap::new() })
    }

    fn command(&mut self, suite: BorderSuite) -> Result<Command> {
        let binary = if let Some(binary) = self.binaries.get(&suite) {
            binary.clone()
        } else {
            let (_, file) = suite.test_file();
            let built = TestBinary::build(self.workspace, file)?;
            self.binaries.entry(suite).or_insert(built).clone()
        };
        let mut run = Command::new(binary);
        run.current_dir(self.workspace.path(suite.package_folder()));
        run.env_remove(DISTORTION).env_remove(BORDER_LOG);
        Ok(run)
    }

    /// Whether the test passes. A name that the suite does not have never does.
    fn passes(&mut self, suite: BorderSuite, test: &str, distortion: Option<String>) -> Result<bool> {
        let mut run = self.command(suite)?;
        let (variable, name) = suite.child(test);
        run.env(variable, name).envs(distortion.map(|distortion| (DISTORTION, distortion)));
        run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        child::lead_a_group(&mut run);
        Ok(child::wait(&mut run.spawn()?, LIMIT)?.is_some_and(|status| status.success()))
    }

    /// Whether the test passes as it is; asked once.
    pub fn is_green(&mut self, suite: BorderSuite, test: &str) -> Result<bool> {
        let key = (suite, test.to_owned());
        if let Some(green) = self.green.get(&key) {
            return Ok(*green);
        }
        let green = self.passes(suite, test, None)?;
        self.green.insert(key, green);
        Ok(green)
    }

    /// Whether the test fails with the row's mistake.
    pub fn notices(&mut self, row: &ArgumentRow, suite: BorderSuite, test: &str) -> Result<bool> {
        Ok(!self.passes(suite, test, Some(format!("{}/{}", row.call, row.distortion)))?)
    }

    /// For each test of a suite the names that pass the border in it. Kept below `target/arguments` until that is removed.
    pub fn names(&mut self, suite: BorderSuite) -> Result<BTreeMap<String, BTreeSet<String>>> {
        let log = self.workspace.path(format!("target/arguments/{suite}.log"));
        if !log.exists() {
            let mut run = self.command(suite)?;
            run.env(BORDER_LOG, &log).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            child::lead_a_group(&mut run);
            child::wait(&mut run.spawn()?, SUITE_LIMIT)?.with_context(|| format!("{suite} did not end"))?;
        }
        let text = fs::read_to_string(&log).with_context(|| format!("{suite} noted nothing"))?;
        let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (test, name) in text.lines().filter_map(|line| line.split_once('\t')) {
            names.entry(BorderSuite::shown(test).to_owned()).or_default().insert(name.to_owned());
        }
        Ok(names)
    }
}
