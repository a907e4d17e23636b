//! User mode: processes with memory and handles of their own, whose DLLs run beside the drivers and reach them through the
//! host's own I/O manager.
//!
//! A [`Process`] is what a test makes; a thread of the host is in it for the length of a [`EnterGuard`]. A DLL is mapped once
//! a process, runs on a user stack of its own, and calls the functions of `ntdll` and `kernel32` that are declared here as
//! drivers call those of the kernel. During such a call the thread is back on its kernel stack.
//!
//! There is no border between the address spaces: all processes and the kernel are one process of Linux. A driver that
//! touches a program's memory without locking it is not seen, nor is a program that touches another one's.

pub(crate) mod call;
mod completion_port;
mod dll;
mod dos_error;
mod event;
mod file;
mod handles;
pub mod imports;
pub mod kernel32;
mod memory;
pub mod ntdll;
mod overlapped;
mod process;
pub mod program;

pub(crate) use call::charge_system_calls;
pub use dll::{Dll, DllError};
pub use process::{EnterGuard, Process};
