//! A small, strict Windows kernel in one Linux process: it loads real driver images, gives them the exports of
//! ntoskrnl, hal, ndis and netio with the Windows calling convention, and ends the process with a named bugcheck when
//! a driver breaks a rule. It has no code for the driver under test and runs any NDIS or NDK image.
//!
//! The whole crate is a border between two calling conventions and two sets of memory rules, so nearly every function
//! in it is handed raw pointers by an image. What keeps it sound is stated per module; the rules that hold everywhere:
//!
//! - host code never holds one of its own locks while image code runs ([`callout`]);
//! - every export checks its IRQL in one common path before it reads an argument ([`export`]);
//! - a pointer that an image hands over is taken as readable, and when it is not, the fault handler turns the
//!   access into the bugcheck that Windows would show ([`fault_handler`]).

// x86-64 Linux only by nature: the images are x86-64 and the memory file, the signal stacks and the gs base are Linux.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
// An export body is a walk over structures that an image owns: one operation a block would double every line without any
// information for the reader; each block still states its rule.
#![allow(clippy::multiple_unsafe_ops_per_block)]
// Exports are `unsafe fn` because an image calls them with raw pointers; their contract is Windows's documentation,
// which each declaration names.
#![allow(clippy::missing_safety_doc)]
// Windows's own names, so that a stack trace and a reader meet the name that the documentation uses.
#![allow(non_snake_case, non_camel_case_types)]
// The arguments of an export are those of Windows.
#![allow(clippy::too_many_arguments)]
// Structures of an image are reached by documented byte offsets; alignment follows from the structure's own.
#![allow(clippy::cast_ptr_alignment)]
// Exports take `self`-like pointers that are only compared or recorded; marking each would hide the few that matter.
#![allow(clippy::not_unsafe_ptr_arg_deref)]

pub mod bugcheck;
pub mod bugcheck_names;
pub mod callback;
pub mod callout;
mod capture;
mod cng;
mod deadlock;
pub mod deferred_budget;
pub mod dispatcher;
pub mod distortion;
pub mod documentation;
pub mod dpc;
mod emulation;
pub mod event_tracing;
pub mod export;
pub mod fast;
pub mod fault;
pub mod fault_handler;
mod host_lock;
pub mod image;
pub mod import_counts;
pub mod inf;
pub mod interruption;
pub mod io;
pub mod irql;
pub mod kernel;
pub mod ledger;
mod level_charge;
pub mod level_time;
mod lock_order;
pub mod machine_clock;
pub mod memory;
mod mutex;
pub mod ndis;
pub mod ndk;
pub mod netio;
pub mod nt;
pub mod ntoskrnl;
pub mod object_table;
pub mod priority;
pub mod processor;
mod processor_time;
pub mod registry;
pub mod rundown;
pub mod schedule;
mod short_lock;
pub mod spin_lock;
pub mod stack;
pub mod status;
pub mod step;
pub mod stretches;
pub mod thread;
pub mod thunk;
pub mod timer;
mod trap;
pub mod user;
pub mod worker;
pub mod wsk;

pub use kernel::{Driver, FrameOrder, Kernel, KernelConfig, LoadError, Mode, NdkConsumers, Report};
pub use ndis::adapter::Adapter;
pub use ndis::life_cycle::HaltAction;
pub use user::{CatalogEntry, Process, ProgramEnd, ProgramSetup, RunningProgram, ShowLine};
