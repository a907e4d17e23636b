//! The stack depths that the driver reached in a case; `xtask/lists/stack-marks.txt` has the largest ones.

use kernel_host::Report;
use std::env;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;

/// What x64 Windows gives a kernel thread is 24 KiB; a third of it is left for the callers and callees of the driver.
pub const LIMIT: usize = 16 << 10;

/// Names a file to which each case appends its marks, a line for each kind of callout.
const FILE: &str = "SOFTNDK_STACK_MARKS";

/// Appends the marks, if they are asked for.
pub fn write_down(report: &Report) {
    let Some(path) = env::var_os(FILE) else { return };
    let lines = report.stack_marks.iter().fold(String::new(), |mut text, (kind, bytes)| {
        writeln!(text, "{bytes:5} {kind:?}").expect("a string takes it");
        text
    });
    // Cases run beside each other: one write for the whole text keeps their lines whole.
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(lines.as_bytes())).expect("the marks are written");
}
