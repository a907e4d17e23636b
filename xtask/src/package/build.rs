//! Which build a package is: version, commit, and the driver version that Windows ranks drivers by.

use crate::{command, inf::Date, workspace::Workspace};
use anyhow::{Context, Result, ensure};
use std::{
    fmt,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

/// The environment variable by which a build learns its commit. Only `package` sets it.
pub const VARIABLE: &str = "SOFTNDK_COMMIT";

pub struct Build {
    /// Of the workspace: three numbers.
    pub version: String,
    /// Twelve digits of its hash.
    pub commit: String,
    /// How many commits there are up to this one. The last number of the driver's version: it rises with each.
    pub count: u16,
    /// When it was committed, in seconds since 1970.
    pub time: u64,
}

impl Build {
    pub fn of(workspace: &Workspace, allow_modified: bool) -> Result<Self> {
        let git = |words: &[&str]| git(workspace, words);
        ensure!(
            git(&["rev-parse", "--is-shallow-repository"])? == "false",
            "a shallow clone does not know how many commits there are: `git fetch --unshallow`"
        );
        let modified = !git(&["status", "--porcelain"])?.is_empty();
        ensure!(
            allow_modified || !modified,
            "the work tree has changes, which no commit names: commit them, or say --allow-modified"
        );
        let suffix = if modified { "-modified" } else { "" };
        let count = git(&["rev-list", "--count", "HEAD"])?;
        let build = Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: git(&["rev-parse", "--short=12", "HEAD"])? + suffix,
            count: count.parse().with_context(|| format!("{count} commits do not fit a driver version"))?,
            time: git(&["log", "-1", "--format=%ct"])?.parse()?,
        };
        ensure!(
            build.date() <= today()?,
            "the commit is of {}, which is in the future: correct the clock of this machine, or the commit's date",
            build.date()
        );
        Ok(build)
    }

    pub fn date(&self) -> Date {
        Date::of(self.time)
    }

    pub fn driver_version(&self) -> String {
        format!("{}.{}", self.version, self.count)
    }

    /// The same as numbers.
    pub fn numbers(&self) -> [u16; 4] {
        let mut parts = self.version.split('.').map(|part| part.parse().unwrap_or_default());
        let mut next = || parts.next().unwrap_or_default();
        [next(), next(), next(), self.count]
    }
}

impl fmt::Display for Build {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} (commit {})", self.version, self.commit)
    }
}

/// The paths of the tracked files that a pattern names.
pub fn tracked(workspace: &Workspace, pattern: &str) -> Result<Vec<String>> {
    Ok(git(workspace, &["ls-files", pattern])?.lines().map(str::to_owned).collect())
}

pub fn today() -> Result<Date> {
    Ok(Date::of(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs()))
}

fn git(workspace: &Workspace, words: &[&str]) -> Result<String> {
    let said = command::output(Command::new("git").current_dir(workspace.root()).args(words))?;
    Ok(said.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::Build;

    #[test]
    fn driver_version_ends_with_the_count_of_commits() {
        let build = Build { version: "1.2.3".to_owned(), commit: "abc".to_owned(), count: 456, time: 86_400 };
        assert_eq!((build.driver_version().as_str(), build.numbers()), ("1.2.3.456", [1, 2, 3, 456]));
        assert_eq!(
            (build.to_string().as_str(), build.date().to_string().as_str()),
            ("1.2.3 (commit abc)", "01/02/1970")
        );
    }
}
