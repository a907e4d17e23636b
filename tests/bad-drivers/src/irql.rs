//! Interrupt levels: waiting where one must not, leaving them changed, calling at the wrong one.

use crate::kernel::{
    DEVICE_LEVEL, DISPATCH_LEVEL, Event, ExAllocatePool2, KeDelayExecutionThread, KeFlushQueuedDpcs, KeInitializeEvent,
    KeLowerIrql, KeWaitForSingleObject, KfRaiseIrql, PASSIVE_LEVEL, POOL_FLAG_NON_PAGED, TAG, free,
};

/// Raised for both twins; the good one lowers before `operation`, the bad one after it.
unsafe fn at_level(good: bool, level: u8, operation: impl FnOnce()) {
    let before = KfRaiseIrql(level);
    if good {
        KeLowerIrql(before);
    }
    operation();
    if !good {
        KeLowerIrql(before);
    }
}

pub unsafe fn wait_at_dispatch(good: bool) {
    let mut event = Event([0; 24]);
    KeInitializeEvent(&raw mut event, 0, 1);
    let soon = -10_000;
    at_level(good, DISPATCH_LEVEL, || {
        KeWaitForSingleObject((&raw mut event).cast(), 0, 0, 0, &raw const soon);
    });
}

pub unsafe fn delay_at_dispatch(good: bool) {
    let soon = -10_000;
    at_level(good, DISPATCH_LEVEL, || {
        KeDelayExecutionThread(0, 0, &raw const soon);
    });
}

pub unsafe fn passive_call_at_dispatch(good: bool) {
    at_level(good, DISPATCH_LEVEL, || KeFlushQueuedDpcs());
}

pub unsafe fn pool_at_device_level(good: bool) {
    let mut block = core::ptr::null_mut();
    at_level(good, DEVICE_LEVEL, || block = ExAllocatePool2(POOL_FLAG_NON_PAGED, 64, TAG));
    free(block.cast());
}

pub unsafe fn returns_raised(good: bool) {
    let before = KfRaiseIrql(DISPATCH_LEVEL);
    if good {
        KeLowerIrql(before);
    }
}

pub unsafe fn lower_above_current(good: bool) {
    let before = KfRaiseIrql(DISPATCH_LEVEL);
    KeLowerIrql(if good { DISPATCH_LEVEL } else { DEVICE_LEVEL });
    KeLowerIrql(before);
}

pub unsafe fn raise_below_current(good: bool) {
    let before = KfRaiseIrql(DISPATCH_LEVEL);
    KfRaiseIrql(if good { DISPATCH_LEVEL } else { PASSIVE_LEVEL });
    KeLowerIrql(before);
}
