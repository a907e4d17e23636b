//! `target/mutants/driver.txt` and `nd.txt`: what became of each mutant of a layer, a line each. It stays between runs, so that a run that was ended goes
//! on where it was, and new trials are tried on the survivors only. To begin anew, remove it.

use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::{
    collections::BTreeSet,
    fmt,
    fs::{self, File, OpenOptions},
    io::Write,
    path::PathBuf,
};

/// What became of a mutant.
pub enum Verdict {
    /// This trial failed.
    Caught(String),
    /// This trial did not end.
    Hung(String),
    Missed,
    /// There is no image.
    Unviable,
}

impl Verdict {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Caught(_) => "caught",
            Self::Hung(_) => "hung",
            Self::Missed => "MISSED",
            Self::Unviable => "unviable",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught(trial) | Self::Hung(trial) => write!(out, "{} {trial}", self.word()),
            Self::Missed | Self::Unviable => out.write_str(self.word()),
        }
    }
}

pub struct Results {
    pub path: PathBuf,
    file: File,
    settled: BTreeSet<String>,
}

impl Results {
    /// What earlier runs found.
    pub fn read(workspace: &Workspace, layer: &str) -> Result<Self> {
        let path = workspace.path(format!("target/mutants/{layer}.txt"));
        let before = if path.exists() { fs::read_to_string(&path)? } else { String::new() };
        let settled = before.lines().filter_map(settled).map(str::to_owned).collect();
        fs::create_dir_all(workspace.path("target/mutants"))?;
        let file = OpenOptions::new().create(true).append(true).open(&path);
        Ok(Self { file: file.with_context(|| format!("cannot write {}", path.display()))?, path, settled })
    }

    /// Whether an earlier run has judged this mutant for good.
    pub fn is_settled(&self, name: &str) -> bool {
        self.settled.contains(name)
    }

    pub fn add(&mut self, verdict: &Verdict, name: &str) -> Result<()> {
        writeln!(self.file, "{verdict}\t{name}").with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// The mutant of a line, if it need not be judged again.
fn settled(line: &str) -> Option<&str> {
    let (verdict, name) = line.split_once('\t')?;
    (!verdict.starts_with("MISSED")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::{Verdict, settled};

    #[test]
    fn only_survivors_are_judged_again() {
        let verdicts =
            [Verdict::Caught("a::b".into()), Verdict::Hung("a::b".into()), Verdict::Missed, Verdict::Unviable];
        let again = verdicts.map(|verdict| settled(&format!("{verdict}\tx.rs:1:2: replace a with b")).is_none());
        assert_eq!(again, [false, false, true, false]);
    }
}
