//! User-mode NetworkDirect at the driver (docs/networkdirect.md), tested on the real driver image in the kernel host.

#![allow(clippy::wildcard_imports, reason = "each case uses many names of the ABI and of the program")]

mod connections;
mod endings;
mod faults;
mod files;
mod hostile;
mod hostile_requests;
mod hostile_rings;
mod large_rings;
mod limits;
mod memory;
mod notifications;
mod others;
mod program;
mod refused;
mod shared_receives;
mod together;
mod transfers;
mod values;
mod windows;

use networkdirect::cases::{self, Case};
use std::process::ExitCode;

const SUITES: &[&[Case]] = &[
    files::CASES,
    memory::CASES,
    transfers::CASES,
    values::CASES,
    connections::CASES,
    notifications::CASES,
    together::CASES,
    windows::CASES,
    shared_receives::CASES,
    hostile::CASES,
    hostile_requests::CASES,
    hostile_rings::CASES,
    large_rings::CASES,
    endings::CASES,
    others::CASES,
    limits::CASES,
    faults::CASES,
    refused::CASES,
];

pub fn main() -> ExitCode {
    cases::run(SUITES, || {}, Vec::new, |_| Ok(()))
}
