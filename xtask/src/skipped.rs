//! A command that could not do its work for a reason outside this project: neither success nor failure.
//!
//! An archive that lacks a package today is such a reason. The command says `skipped: REASON` and ends with [`EXIT_STATUS`], from which
//! the stages of `cargo xtask test` know it. `cargo xtask soak` counts it as a failure.

use anyhow::Error;
use std::{error, fmt};

/// What test runners of other projects take for "skipped", too.
pub const EXIT_STATUS: u8 = 77;

const PREFIX: &str = "skipped: ";

/// An error that is a reason to skip.
#[derive(Debug)]
pub struct Skipped(pub String);

impl Skipped {
    /// For an error of the world outside: its whole chain becomes the reason.
    #[expect(clippy::needless_pass_by_value, reason = "for map_err")]
    pub fn because(error: Error) -> Error {
        Error::new(Self(format!("{error:#}")))
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line, because the reason stands in a summary.
        let words = self.0.split_whitespace().collect::<Vec<_>>().join(" ");
        write!(out, "{PREFIX}{words}")
    }
}

impl error::Error for Skipped {}

/// The reason that a skipped command's output ends with.
pub fn reason(output: &str) -> Option<&str> {
    output.lines().rev().find_map(|line| line.strip_prefix(PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn reason_is_one_line_and_read_back() {
        let said = Skipped::because(anyhow!("no such\npackage").context("apt failed")).to_string();
        assert_eq!(said, "skipped: apt failed: no such package");
        assert_eq!(reason(&format!("begun\n{said}\n")), Some("apt failed: no such package"));
        assert_eq!(reason("error: skipped it\n"), None);
    }
}
