//! softnd.dll: the NetworkDirect provider, versions 1 and 2, over `\\.\SoftNd` of softndk.sys.
//!
//! Clients load it by the Winsock catalog and get their objects from [`DllGetClassObject`]. `v2` and `v1` are the interfaces;
//! `resources` are the driver's objects as both use them; `ring` is the process's side of the queues that it shares with the
//! driver; `device`, `file` and `overlapped` are the three ways to send the driver a request.
//!
//! Rules kept:
//! - imports are those of `imports.txt`, there is no C run-time and no standard library;
//! - memory that is short is a status; no argument of a client leads to a panic;
//! - no lock is held while the driver is called;
//! - no thread of its own, no call into the client's code but QueryInterface of the objects that it passes.
//!
//! On other systems than Windows the crate is compiled with simulated imports, for its unit tests. For Windows on another processor or
//! with another run-time than `x86_64-pc-windows-msvc` it compiles with the standard library, so that a build of the workspace works
//! there; such a DLL is not shipped.
#![cfg_attr(all(windows, target_env = "msvc", target_arch = "x86_64", not(test)), no_std)]
#![cfg_attr(any(not(windows), test), allow(dead_code, reason = "only the DLL uses all of it"))]

extern crate alloc;

mod argument;
mod class_factory;
mod com;
mod device;
mod exports;
mod file;
mod handle;
mod heap;
mod imports;
mod overlapped;
mod resources;
mod ring;
#[cfg(all(windows, target_env = "msvc", target_arch = "x86_64", not(test)))]
mod run_time;
mod shared;
mod socket_address;
mod spin_lock;
#[cfg(all(test, not(windows)))]
mod tests;
mod v1;
mod v2;

#[cfg(all(windows, target_env = "msvc", target_arch = "x86_64", not(test)))]
#[path = "../../../kernel/src/guard_support.rs"]
mod guard_support;

/// For tools that ask which build the file is of: they look for it in the file. Exported, so that the linker keeps it.
#[cfg_attr(windows, unsafe(no_mangle))]
pub static SOFTND_BUILD: softndk_ioctl::BuildMark = softndk_ioctl::BuildMark::THIS;

pub use exports::{DllCanUnloadNow, DllGetClassObject, WSPStartup};
