//! `ndkctl doctor`: looks for what keeps softndk from working, and says the cause and the next step of each finding.
//!
//! Facts are collected from the system: on Windows from services, devices, registry, PowerShell's own cmdlets and the control devices;
//! elsewhere from the kernel host's machine with the real images. What they mean is decided by pure functions in `judge`, the same on
//! every system. A fact that a system does not have is `None`, and the checks that need it are named as not made.

mod collect;
mod facts;
mod finding;
mod judge;
mod keyword;
mod report;

pub use facts::{AdapterFacts, DeviceState, DriverFacts, Facts, ProviderEntry, Service, SystemFacts};
pub use finding::{Finding, Found, Severity};
pub use judge::judge;
pub use report::DoctorReport;

use crate::arguments::MachineArguments;
use crate::failure::Failure;
use crate::output::Printed;
use crate::run::printed;

/// Exit codes of a report: the worst finding decides. Notes change nothing.
pub const WARNINGS: i32 = 8;
pub const ERRORS: i32 = 9;

/// Collects, judges, and gives back the machine.
pub(crate) fn run(arguments: &MachineArguments) -> Result<Printed, Failure> {
    let facts = collect::facts(arguments)?;
    let report = DoctorReport::of(facts);
    let exit_code = match report.worst() {
        Some(Severity::Error) => ERRORS,
        Some(Severity::Warning) => WARNINGS,
        Some(Severity::Note) | None => 0,
    };
    Ok(printed(report)?.with_exit_code(exit_code))
}
