//! The trials of the NDKPI contract, each in a process of its own.

// The C names of ndkpi.h, of which nearly every line here needs some.
#![allow(clippy::wildcard_imports)]

mod access;
mod adapter;
mod arguments;
mod asynchrony;
mod callback;
mod close_order;
mod completion_queue;
mod connection;
mod connection_end;
mod connection_state;
mod drain;
mod endpoint;
mod fault;
mod interruption;
mod limits;
mod lock;
mod memory;
mod moderation;
mod ndk_state;
mod oid;
mod opens;
mod patterns;
mod queue_pair;
mod race;
mod refusals;
mod registration;
mod removal;
mod resize;
mod rules;
mod second_access;
mod shared_receive;
mod sharing;
mod statistics;
mod teardown;
mod timeout;
mod transfer;
mod transport;
mod uplink;
mod values;
mod window;
mod wire;
mod work_request;

use conformance::trial::Case;

/// Every suite with its trials.
const SUITES: &[(&str, &[Case])] = &[
    ("adapter", adapter::CASES),
    ("arguments", arguments::CASES),
    ("values", values::CASES),
    ("asynchrony", asynchrony::CASES),
    ("oid", oid::CASES),
    ("opens", opens::CASES),
    ("ndk_state", ndk_state::CASES),
    ("statistics", statistics::CASES),
    ("completion_queue", completion_queue::CASES),
    ("moderation", moderation::CASES),
    ("resize", resize::CASES),
    ("shared_receive", shared_receive::CASES),
    ("queue_pair", queue_pair::CASES),
    ("sharing", sharing::CASES),
    ("work_request", work_request::CASES),
    ("memory", memory::CASES),
    ("registration", registration::CASES),
    ("transfer", transfer::CASES),
    ("access", access::CASES),
    ("second_access", second_access::CASES),
    ("window", window::CASES),
    ("connection", connection::CASES),
    ("connection_end", connection_end::CASES),
    ("connection_state", connection_state::CASES),
    ("timeout", timeout::CASES),
    ("transport", transport::CASES),
    ("endpoint", endpoint::CASES),
    ("close_order", close_order::CASES),
    ("callback", callback::CASES),
    ("patterns", drain::CASES),
    ("patterns", patterns::CASES),
    ("limits", limits::CASES),
    ("lock", lock::CASES),
    ("race", race::CASES),
    ("wire", wire::CASES),
    ("uplink", uplink::CASES),
    ("interruption", interruption::CASES),
    ("teardown", teardown::CASES),
    ("removal", removal::CASES),
    ("fault", fault::CASES),
    ("refusals", refusals::CASES),
    ("rules", rules::CASES),
];

pub fn main() -> ! {
    conformance::trial::main(SUITES)
}
