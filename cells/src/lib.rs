//! The shared cells of softndk: small concurrent building blocks with a safe interface.
//!
//! Everything in the engine that needs `unsafe` to be shared between processors is here: a fallible shared pointer
//! ([`Shared`]) to a value that decides what becomes of it in the end ([`Dispose`]), an intrusive list that links each object once
//! ([`List`]), a single-producer ring ([`ring`]), a flag that gives work to one context at a time ([`Serialized`]), reclamation by
//! epoch ([`Epoch`]), a value that is set once ([`Once`]), a slot table whose keys carry generations ([`SlotTable`]), a cache of where a
//! value of one was ([`Cached`]) and a pair of buffers of which readers see the current one ([`DoubleBuffer`]). Beside them are the
//! positions of a ring of bytes ([`ByteRing`]).
//!
//! Nothing here depends on RDMA, the kernel or locks, waits or spins, and after creation nothing allocates (a slot table grows
//! by a block when it is full).
//!
//! Rules: no allocation is infallible; every unsafe block has its own argument; the model checker (loom, `--cfg loom`) runs
//! over every cell with the same source that the driver uses.
#![no_std]

extern crate alloc;
#[cfg(any(test, loom, all(feature = "points", debug_assertions)))]
extern crate std;

mod byte_ring;
mod cached;
mod double_buffer;
mod epoch;
mod erased;
mod last;
pub mod last_look;
mod list;
mod once;
#[cfg(all(feature = "points", debug_assertions, not(loom)))]
pub mod points;
pub mod ring;
mod serialized;
mod shared;
mod slot_table;
mod sync;

/// The atomics that cells are made of, for hand-shakes beside them.
pub mod atomic {
    pub use crate::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
}

pub use byte_ring::ByteRing;
pub use cached::Cached;
pub use double_buffer::{DoubleBuffer, Draft, Ready};
pub use epoch::{Epoch, Guard, Stamp};
pub use erased::{Erased, View};
pub use last::{Dispose, ErasedLast, Last};
pub use list::{Linked, List};
pub use once::Once;
pub use serialized::{Held, Serialized};
pub use shared::{Counted, NoMemory, Reserved, Shared};
pub use slot_table::{Removed, SlotKey, SlotTable, Vacant};
