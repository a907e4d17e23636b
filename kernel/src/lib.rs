//! Safe owners of the kernel primitives that our drivers use: pool blocks, spin locks, events, rundown references, DPCs, timers and
//! system threads.
//!
//! Each file wraps one primitive and keeps its rules: fixed address, IRQL, when it may be freed. Nothing here knows NDIS, NDK or the
//! driver it is part of; a driver passes the pool tags of its own list ([`pool_tags`]).
#![no_std]

pub mod dpc;
pub mod event;
#[cfg(own_guard_support)]
mod guard_support;
pub mod irql;
pub mod pool;
pub mod rundown;
pub mod spin_lock;
pub mod thread;
pub mod timer;
