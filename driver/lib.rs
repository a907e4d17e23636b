//! softndk.sys: an NDIS virtual miniport that provides the NDK dispatch tables and moves bytes by copying memory.
//!
//! Thin by rule: it translates between NDIS, NDKPI and the control device on one side and `softndk-engine` on the other.
//! Unsafe code sits in the entry points and in `runtime`; each block names the contract it
//! relies on.
#![no_std]

extern crate alloc;

mod adapter;
mod control;
mod device;
mod driver;
mod entry;
mod link;
mod miniport;
mod nd;
mod ndk;
mod runtime;
mod tags;
mod version;

extern crate wdk_panic;

use softndk_kernel::pool::CountedAllocator;

/// For what the engine allocates; it does so fallibly, and never with an alignment that pool blocks do not have.
#[global_allocator]
static GLOBAL_ALLOCATOR: CountedAllocator = CountedAllocator::new(tags::ENGINE);
