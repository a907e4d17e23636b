//! The current IRQL and the current processor.

use core::ptr;

use wdk_sys::{
    DISPATCH_LEVEL, KIRQL,
    ntddk::{KeGetCurrentIrql, KeGetCurrentProcessorNumberEx, KeQueryActiveProcessorCountEx},
};

/// `ALL_PROCESSOR_GROUPS`.
const ALL_PROCESSOR_GROUPS: u16 = 0xFFFF;

pub fn current() -> KIRQL {
    // SAFETY: no preconditions.
    unsafe { KeGetCurrentIrql() }
}

pub fn at_dispatch() -> bool {
    current() >= DISPATCH_LEVEL as KIRQL
}

/// Index of the processor this code runs on, over all groups.
pub fn processor() -> u32 {
    // SAFETY: the processor number is optional and not asked for.
    unsafe { KeGetCurrentProcessorNumberEx(ptr::null_mut()) }
}

pub fn processor_count() -> u32 {
    // SAFETY: no preconditions.
    unsafe { KeQueryActiveProcessorCountEx(ALL_PROCESSOR_GROUPS) }
}
