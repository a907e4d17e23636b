//! The NDK provider: what consumers reach through the dispatch tables, one file per object.
//!
//! Thin by rule: a dispatch function checks its arguments, which `entry.rs` makes of the raw ones, finds the object, and calls the
//! engine. What differs between the kinds of objects is in `kind.rs`. What it stands on is in `runtime`.

pub mod adapter;
pub mod completion_queue;
pub mod connector;
pub mod consumer_object;
pub mod entry;
pub mod extension;
pub mod kind;
pub mod limits;
pub mod listener;
pub mod logical_mapping;
pub mod memory_region;
pub mod memory_window;
pub mod open;
pub mod protection_domain;
pub mod provider;
pub mod queue_pair;
pub mod shared_endpoint;
pub mod shared_receive_queue;
pub mod socket;
