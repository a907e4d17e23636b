//! softndk.sys: an NDIS virtual miniport that provides the NDK dispatch tables and moves bytes by copying memory.
//!
//! Thin by rule: it translates between NDIS, NDKPI and the control device on one side and `softndk-engine` on the other.
//! Unsafe code sits in the entry points, in `kernel/`, `memory.rs` and `platform.rs`; each block names the contract it
//! relies on.
#![no_std]
#![allow(unused)]

extern crate alloc;

mod kernel;

#[cfg(not(test))]
extern crate wdk_panic;

use wdk_alloc::WdkAllocator;

/// For what the engine allocates; it does so fallibly, and never with an alignment that pool blocks do not have.
#[global_allocator]
static GLOBAL_ALLOCATOR: WdkAllocator = WdkAllocator;
#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "system" fn driver_entry(
    driver_object: &mut wdk_sys::DRIVER_OBJECT,
    registry_path: wdk_sys::PCUNICODE_STRING,
) -> wdk_sys::NTSTATUS { 0 }
