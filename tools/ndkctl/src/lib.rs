//! ndkctl: lists softndk's adapters and moves bytes through them.
//!
//! A library with one thin binary, so that tests reach every part. Each command is one module: arguments in, a report out; a
//! report prints itself for people and serialises for programs. How requests reach the driver is behind
//! [`transport::Device`]: the control device on Windows, the kernel host with the real driver image elsewhere.
//!
//! The crate does not use NDK: the driver does the RDMA, on requests through the IOCTLs of `softndk-ioctl`.

// Times and rates are shown to three digits: what a 64-bit float rounds away does not show.
#![allow(clippy::cast_precision_loss)]

pub mod adapter;
pub mod arguments;
pub mod client;
pub mod connect;
pub mod copy;
#[cfg(not(windows))]
pub mod demo;
pub mod destination;
pub mod doctor;
pub mod events;
pub mod failure;
pub mod identity;
pub mod info;
pub mod limits;
pub mod nd;
pub mod objects;
mod output;
pub mod pair;
pub mod perf;
pub mod ping;
pub mod progress;
pub mod refusals;
pub mod replay;
pub mod run;
pub mod script;
pub mod stream;
pub mod stress;
pub mod transport;
pub mod units;
#[cfg(windows)]
mod windows_text;
pub mod wire;
