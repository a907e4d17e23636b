//! User mode: processes with memory and handles of their own, whose DLLs run beside the drivers and reach them through the
//! host's own I/O manager.
//!
//! A [`Process`] is what a test makes; a thread of the host is in it for the length of a [`EnterGuard`]. A DLL is mapped once
//! a process, runs on a user stack of its own, and calls the functions of `ntdll` and `kernel32` that are declared here as
//! drivers call those of the kernel. During such a call the thread is back on its kernel stack.
//!
//! There is no border between the address spaces: all processes and the kernel are one process of Linux. A driver that
//! touches a program's memory without locking it is not seen, nor is a program that touches another one's.

use std::fmt::Write as _;

mod address_waits;
pub(crate) mod call;
mod completion_port;
mod dll;
mod dos_error;
mod event;
mod file;
mod handles;
pub mod imports;
pub mod kernel32;
mod libraries;
mod memory;
pub mod ntdll;
mod overlapped;
mod process;
pub mod program;
mod program_state;
mod start;
mod thread_storage;
mod threads;
mod user_mutex;

pub(crate) use call::{charge_system_calls, leaves_from};
pub use dll::{Dll, DllError};
pub use process::{EnterGuard, Process};
pub use program_state::ProgramEnd;
pub use start::{CatalogEntry, ProgramSetup, RunningProgram, ShowLine};

/// Whether the thread runs a program whose faults end its process, and not the host.
pub(crate) fn is_contained() -> bool {
    call::contained().is_some()
}

/// The thread's program has faulted: its process ends.
pub(crate) fn faulted(trap: &str, rule: &str, frames: &[crate::image::stack_trace::StackFrame]) {
    let mut report = format!("{trap}: {rule}");
    for frame in frames {
        let _ = write!(report, "\n  {frame}");
    }
    if let Some(process) = call::contained() {
        process.ends(ProgramEnd::Failed(report));
    }
}

/// A thread of a dead process was interrupted with this stack.
pub(crate) fn record_interrupted(stack: Vec<u64>) {
    if let Some(user_thread) = call::current() {
        threads::record_interrupted(&user_thread.process, stack);
    }
}
