//! What `ndkctl doctor` prints.

use super::facts::Facts;
use super::finding::{Finding, Found, Severity};
use super::judge::judge;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// The findings, and the facts that they were made from.
#[derive(Clone, Debug, Serialize)]
pub struct DoctorReport {
    /// The worst first.
    pub findings: Vec<Found>,
    pub errors: usize,
    pub warnings: usize,
    pub notes: usize,
    /// Checks whose facts this system does not have.
    pub not_checked: BTreeSet<Finding>,
    pub facts: Facts,
}

impl DoctorReport {
    #[must_use]
    pub fn of(facts: Facts) -> Self {
        let (findings, not_checked) = judge(&facts);
        let count = |severity| findings.iter().filter(|found| found.severity == severity).count();
        let [errors, warnings, notes] = [Severity::Error, Severity::Warning, Severity::Note].map(count);
        Self { findings, errors, warnings, notes, not_checked, facts }
    }

    /// `None` without findings.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|found| found.severity).max()
    }
}

impl fmt::Display for DoctorReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for found in &self.findings {
            let severity = match found.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
                Severity::Note => "note",
            };
            writeln!(formatter, "{severity}: {}: {}\n  next:  {}", found.subject, found.cause, found.next_step)?;
        }
        if !self.not_checked.is_empty() {
            let names: Vec<_> = self.not_checked.iter().map(|finding| finding.checked()).collect();
            writeln!(formatter, "not checked, because this system does not say: {}", names.join("; "))?;
        }
        let made = Finding::ALL.len() - self.not_checked.len();
        write!(
            formatter,
            "{made} checks: {}, {}, {}",
            counted(self.errors, "error"),
            counted(self.warnings, "warning"),
            counted(self.notes, "note")
        )
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
