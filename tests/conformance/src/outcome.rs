//! How a child process ended: well, in a panic of its own, or in a bugcheck with its report.
//!
//! Reads the machine-readable line of the kernel host's report and nothing else of the output; the output goes to the
//! reader of a failed trial unchanged.

use std::process::ExitStatus;

use kernel_host::bugcheck::{EXIT_CODE, REPORT_PREFIX};
use libtest_mimic::Failed;

/// A bugcheck as the kernel host reported it.
#[derive(Clone, Debug)]
pub struct Bugcheck {
    pub code: u32,
    pub name: String,
    /// The rule that was broken, in the host's words.
    pub rule: String,
    /// The first parameter: the sub-code, where the bugcheck has such.
    pub sub_code: Option<u64>,
}

/// The end of a child process.
#[derive(Debug)]
pub struct Outcome {
    status: ExitStatus,
    text: String,
    pub bugcheck: Option<Bugcheck>,
}

impl Outcome {
    pub fn new(status: ExitStatus, text: String) -> Self {
        let bugcheck = if status.code() == Some(EXIT_CODE) { text.lines().rev().find_map(parse) } else { None };
        Self { status, text, bugcheck }
    }

    /// The child's output.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The child completed and was not ended early.
    pub fn expect_success(&self) -> Result<(), Failed> {
        if self.status.success() { Ok(()) } else { Err(self.failure("the child failed")) }
    }

    /// The child failed by itself, without a bugcheck, and said so in these words.
    pub fn expect_failure(&self, words: &str) -> Result<(), Failed> {
        if self.status.success() || self.bugcheck.is_some() {
            return Err(self.failure("the child did not fail by itself"));
        }
        if self.text.contains(words) { Ok(()) } else { Err(self.failure(&format!("no word of \"{words}\""))) }
    }

    /// The child was ended from outside.
    pub fn was_killed(&self) -> bool {
        self.status.code().is_none()
    }

    /// The child ended in a bugcheck.
    pub fn expect_bugcheck(&self) -> Result<&Bugcheck, Failed> {
        self.bugcheck.as_ref().ok_or_else(|| self.failure("no bugcheck"))
    }

    pub fn failure(&self, what: &str) -> Failed {
        format!("{what} ({}); output:\n{}", self.status, self.text).into()
    }
}

fn parse(line: &str) -> Option<Bugcheck> {
    let report: serde_json::Value = serde_json::from_str(line.strip_prefix(REPORT_PREFIX)?).ok()?;
    Some(Bugcheck {
        code: u32::try_from(report.get("code")?.as_u64()?).ok()?,
        name: report.get("name")?.as_str()?.to_owned(),
        rule: report.get("rule")?.as_str()?.to_owned(),
        sub_code: report.get("parameters").and_then(|parameters| parameters.get(0)?.as_u64()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_line_is_read() {
        let line = format!(
            r#"{REPORT_PREFIX}{{"code":194,"name":"BAD_POOL_CALLER","rule":"freed twice","parameters":[7,1,2,3]}}"#
        );
        let bugcheck = parse(&line).expect("a report");
        assert_eq!((bugcheck.code, bugcheck.name.as_str()), (0xC2, "BAD_POOL_CALLER"));
        assert_eq!((bugcheck.rule.as_str(), bugcheck.sub_code), ("freed twice", Some(7)));
    }

    #[test]
    fn other_lines_are_not_reports() {
        assert!(parse("*** STOP: 0x000000C2 BAD_POOL_CALLER").is_none());
        assert!(parse(&format!("{REPORT_PREFIX}not json")).is_none());
    }
}
