//! The NDKPI contract as tests, through the dispatch tables of the loaded softndk.sys.
//!
//! Here are the parts that the trials share: [`trial`] runs each in a process of its own, [`outcome`] reads how it
//! ended, [`machine`] boots the kernel host with the driver and its adapters, and [`consumer`] plays a kernel consumer
//! that uses only the provider's tables; [`scenario`] has the scenarios in which allocations fail; [`two_machines`] has machines in
//! two processes, [`iwarp_peer`] an iWARP peer of bytes. The trials are in `tests/contract`, the bad drivers in `tests/bad_drivers`, the faults in `tests/faults`.
//!
//! A trial fails by panicking; the process it runs in is its own, so nothing needs to be put right afterwards.

// The kernel host runs nowhere else.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
// A call through a dispatch table is one act with one contract, though the macro that makes it counts as several
// operations: it reads the slot, turns the arguments into words and calls.
#![allow(clippy::multiple_unsafe_ops_per_block)]
// The C names of ndkpi.h, of which nearly every line here needs some.
#![allow(clippy::wildcard_imports)]

pub mod consumer;
pub mod iwarp_peer;
pub mod machine;
pub mod outcome;
pub mod peers;
pub mod scenario;
pub mod trial;
pub mod two_machines;
