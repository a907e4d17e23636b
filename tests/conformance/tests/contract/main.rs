//! The trials of the NDKPI contract, each in a process of its own.

mod access;
mod adapter;
mod close_order;
mod completion_queue;
mod connection;
mod memory;
mod oid;
mod queue_pair;
mod race;
mod teardown;
mod transfer;

fn main() -> ! {
    conformance::trial::main(&[
        ("adapter", adapter::CASES),
        ("oid", oid::CASES),
        ("completion_queue", completion_queue::CASES),
        ("queue_pair", queue_pair::CASES),
        ("memory", memory::CASES),
        ("transfer", transfer::CASES),
        ("access", access::CASES),
        ("connection", connection::CASES),
        ("close_order", close_order::CASES),
        ("race", race::CASES),
        ("teardown", teardown::CASES),
    ])
}
