//! User-mode NetworkDirect through softnd.dll, tested on the real driver image in the kernel host.

#![expect(clippy::wildcard_imports, reason = "slots, statuses and flags by the dozen")]

mod client;
mod connections;
mod ends;
mod kills;
mod notifications;
mod objects;
mod transfers;

use networkdirect::cases::{self, Case};
use softndk_images::{nd_program, workspace::Workspace};
use std::path::Path;
use std::process::ExitCode;

const SUITES: &[&[Case]] = &[objects::CASES, transfers::CASES, notifications::CASES, connections::CASES, kills::CASES];

pub fn main() -> ExitCode {
    cases::run(SUITES, || {
        let workspace = Workspace::at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
        nd_program::build(&workspace).unwrap_or_else(|error| panic!("{error:#}"));
    })
}
