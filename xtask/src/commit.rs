//! Which commit a result is of.

use crate::{command, workspace::Workspace};
use anyhow::Result;
use std::process::Command;

/// Names the commit to an ndkctl whose parts were all built now: an ordinary build does not name it in its images.
pub(crate) const BUILT_FROM: &str = "SOFTNDK_BUILT_FROM";

/// The commit that is checked out; with a `+` where files differ from it.
pub(crate) fn checked_out(workspace: &Workspace) -> Result<String> {
    let dirty = !git(workspace, &["status", "--porcelain"])?.is_empty();
    Ok(git(workspace, &["rev-parse", "--short=7", "HEAD"])?.trim_end().to_owned() + if dirty { "+" } else { "" })
}

/// How many commits after this one, and whether uncommitted changes, touch these folders.
pub(crate) fn changes_since(workspace: &Workspace, commit: &str, folders: &[&str]) -> Result<(usize, bool)> {
    let range = format!("{commit}..HEAD");
    let commits = git(workspace, &[&["log", "--format=%h", &range, "--"], folders].concat())?;
    let dirty = git(workspace, &[&["status", "--porcelain", "--"], folders].concat())?;
    Ok((commits.lines().count(), !dirty.is_empty()))
}

fn git(workspace: &Workspace, words: &[&str]) -> Result<String> {
    command::output(Command::new("git").current_dir(workspace.root()).args(words))
}

#[cfg(test)]
mod tests {
    use super::{changes_since, checked_out};
    use crate::workspace::Workspace;

    #[test]
    fn changes_are_counted_from_a_commit_and_below_a_folder() {
        let workspace = Workspace::find().unwrap();
        let head = checked_out(&workspace).unwrap();
        assert_eq!(changes_since(&workspace, head.trim_end_matches('+'), &["engine"]).unwrap().0, 0);
        assert_eq!(changes_since(&workspace, "HEAD", &["no-such-folder"]).unwrap(), (0, false));
        assert!(changes_since(&workspace, "no-such-commit", &["engine"]).is_err());
    }
}
