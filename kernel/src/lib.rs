//! Safe owners of the kernel primitives that our drivers use: pool blocks, spin locks, events, rundown references, DPCs, timers,
//! system threads and IRPs, with the clock and the copy routine of our data paths, UTF-16 names and socket addresses; and on top of them
//! the queues of work ([`work`]) and the sockets of Winsock Kernel ([`winsock`]).
//!
//! Each file wraps one primitive and keeps its rules: fixed address, IRQL, when it may be freed. Nothing here knows NDIS, NDK or the
//! driver it is part of; a driver passes the pool tags of its own list ([`pool_tags`]).
#![no_std]

pub mod address;
pub mod clock;
pub mod copy;
pub mod dpc;
pub mod event;
#[cfg(own_guard_support)]
mod guard_support;
pub mod irp;
pub mod irql;
pub mod pool;
pub mod pool_queue;
pub mod published;
pub mod random;
pub mod rundown;
pub mod spin_lock;
pub mod thread;
pub mod timer;
pub mod unicode;
pub mod winsock;
pub mod work;
