//! The current IRQL and the current processor.

use core::ptr;

use wdk_sys::{
    DISPATCH_LEVEL, KIRQL, PROCESSOR_NUMBER,
    ntddk::{
        KeGetCurrentIrql, KeGetCurrentProcessorNumberEx, KeGetProcessorIndexFromNumber, KeGetProcessorNumberFromIndex,
        KeLowerIrql, KeQueryActiveProcessorCountEx, KeStallExecutionProcessor, KfRaiseIrql,
    },
};

/// `ALL_PROCESSOR_GROUPS`.
const ALL_PROCESSOR_GROUPS: u16 = 0xFFFF;
/// `INVALID_PROCESSOR_INDEX`.
const INVALID_PROCESSOR_INDEX: u32 = 0xFFFF_FFFF;

pub fn current() -> KIRQL {
    // SAFETY: no preconditions.
    unsafe { KeGetCurrentIrql() }
}

pub fn at_dispatch() -> bool {
    current() >= DISPATCH_LEVEL as KIRQL
}

/// Runs `work` at DISPATCH_LEVEL, which learns whether the caller was there already. `IRQL <= DISPATCH_LEVEL`; the work is short and
/// ends at the level it began at.
pub fn raised<R>(work: impl FnOnce(bool) -> R) -> R {
    // SAFETY: the caller is at DISPATCH_LEVEL at most; raising to the present level changes nothing.
    let before = unsafe { KfRaiseIrql(DISPATCH_LEVEL as KIRQL) };
    let was_there = before >= DISPATCH_LEVEL as KIRQL;
    let result = work(was_there);
    if !was_there {
        // SAFETY: the level that was raised from, restored on the same thread.
        unsafe { KeLowerIrql(before) };
    }
    result
}

/// Waits a microsecond without letting the processor go: for what another processor finishes within a few of them. Any IRQL.
pub fn stall() {
    // SAFETY: no preconditions; far below the 50 microseconds that the contract recommends as the most.
    unsafe { KeStallExecutionProcessor(1) };
}

/// Index of the processor this code runs on, over all groups.
pub fn processor() -> u32 {
    // SAFETY: the processor number is optional and not asked for.
    unsafe { KeGetCurrentProcessorNumberEx(ptr::null_mut()) }
}

/// Index over all groups of a processor of one group, if there is such a processor. Groups need not be full: only the system
/// knows where each begins.
pub fn processor_index(group: u16, number: u8) -> Option<u32> {
    let mut place = PROCESSOR_NUMBER { Group: group, Number: number, Reserved: 0 };
    // SAFETY: a complete processor number; any IRQL.
    let index = unsafe { KeGetProcessorIndexFromNumber(&raw mut place) };
    (index != INVALID_PROCESSOR_INDEX).then_some(index)
}

/// The mask and the group that stand for a processor alone, by its index over all groups, if there is such a processor.
pub fn affinity(processor: u32) -> Option<(u64, u16)> {
    let mut number = PROCESSOR_NUMBER::default();
    // SAFETY: a valid place for the answer; any IRQL.
    let status = unsafe { KeGetProcessorNumberFromIndex(processor, &raw mut number) };
    let mask = 1_u64.checked_shl(u32::from(number.Number))?;
    (status >= 0).then_some((mask, number.Group))
}

pub fn processor_count() -> u32 {
    // SAFETY: no preconditions.
    unsafe { KeQueryActiveProcessorCountEx(ALL_PROCESSOR_GROUPS) }
}
