//! User-mode NetworkDirect through softnd.dll, tested on the real driver image in the kernel host.

#![expect(clippy::wildcard_imports, reason = "slots, statuses and flags by the dozen")]

mod border;
mod calls;
mod client;
mod completions;
mod connections;
mod ends;
mod habits;
mod immediate;
mod kills;
mod methods;
mod notifications;
mod objects;
mod phases;
mod polling;
mod program;
mod regions;
mod shared_receives;
mod transfers;
mod values;
mod version1;

use networkdirect::cases::{self, Case};
use softndk_images::{nd_program, workspace::Workspace};
use std::path::Path;
use std::process::ExitCode;

const SUITES: &[&[Case]] = &[
    objects::CASES,
    transfers::CASES,
    values::CASES,
    notifications::CASES,
    connections::CASES,
    kills::CASES,
    phases::CASES,
    polling::CASES,
    completions::CASES,
    regions::CASES,
    program::CASES,
    habits::CASES,
    immediate::CASES,
    shared_receives::CASES,
    version1::SUITES[0],
    version1::SUITES[1],
    version1::SUITES[2],
    version1::SUITES[3],
];

pub fn main() -> ExitCode {
    let prepare = || {
        let workspace = Workspace::at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
        nd_program::build(&workspace).unwrap_or_else(|error| panic!("{error:#}"));
    };
    cases::run(SUITES, prepare, calls::lines, methods::compare)
}
