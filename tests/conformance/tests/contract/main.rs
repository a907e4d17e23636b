//! The trials of the NDKPI contract, each in a process of its own.

// The C names of ndkpi.h, of which nearly every line here needs some.
#![allow(clippy::wildcard_imports)]

mod access;
mod adapter;
mod close_order;
mod completion_queue;
mod connection;
mod fault;
mod lock;
mod memory;
mod oid;
mod queue_pair;
mod race;
mod rules;
mod teardown;
mod transfer;

use conformance::trial::Case;

/// Every suite with its trials.
const SUITES: &[(&str, &[Case])] = &[
    ("adapter", adapter::CASES),
    ("oid", oid::CASES),
    ("completion_queue", completion_queue::CASES),
    ("queue_pair", queue_pair::CASES),
    ("memory", memory::CASES),
    ("transfer", transfer::CASES),
    ("access", access::CASES),
    ("connection", connection::CASES),
    ("close_order", close_order::CASES),
    ("lock", lock::CASES),
    ("race", race::CASES),
    ("teardown", teardown::CASES),
    ("fault", fault::CASES),
    ("rules", rules::CASES),
];

fn main() -> ! {
    conformance::trial::main(SUITES)
}
