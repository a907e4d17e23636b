//! The NDK provider: what consumers reach through the dispatch tables, one file per object.
//!
//! Thin by rule: an entry point checks its arguments, finds the object, calls the engine and kicks the work list. Statuses
//! are made in `status.rs`, memory is mapped in `memory.rs`.

pub mod adapter;
pub mod enumeration;
pub mod limits;
pub mod open;
pub mod provider;
