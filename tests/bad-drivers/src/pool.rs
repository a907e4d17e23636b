//! Pool: tags, double free, use after free, both kinds of overrun, leaks.

use core::hint::black_box;

use crate::kernel::{
    DEVICE_LEVEL, DISPATCH_LEVEL, ExAllocatePool2, ExFreePoolWithTag, KeCancelTimer, KeInitializeTimerEx, KeLowerIrql,
    KeSetTimerEx, KfRaiseIrql, OTHER_TAG, POOL_FLAG_NON_PAGED, TAG, Timer, allocate, free,
};

pub unsafe fn double_free(good: bool) {
    let block = allocate(100);
    free(block);
    if !good {
        free(block);
    }
}

pub unsafe fn wrong_tag(good: bool) {
    let block = allocate(100);
    ExFreePoolWithTag(block.cast(), if good { TAG } else { OTHER_TAG });
}

pub unsafe fn tag_zero(good: bool) {
    let tag = if good { TAG } else { 0 };
    let block = ExAllocatePool2(POOL_FLAG_NON_PAGED, 100, tag);
    if !block.is_null() {
        ExFreePoolWithTag(block, tag);
    }
}

pub unsafe fn size_zero(good: bool) {
    let block = ExAllocatePool2(POOL_FLAG_NON_PAGED, usize::from(good), TAG);
    if !block.is_null() {
        free(block.cast());
    }
}

pub unsafe fn freed_at_device_level(good: bool) {
    let block = allocate(100);
    let before = KfRaiseIrql(if good { DISPATCH_LEVEL } else { DEVICE_LEVEL });
    free(block);
    KeLowerIrql(before);
}

/// A timer in a block of pool that is freed while it is set.
pub unsafe fn freed_with_timer(good: bool) {
    let timer = allocate(64).cast::<Timer>();
    KeInitializeTimerEx(timer, 0);
    KeSetTimerEx(timer, -36_000_000_000, 0, core::ptr::null_mut());
    if good {
        KeCancelTimer(timer);
    }
    free(timer.cast());
}

pub unsafe fn free_inside_block(good: bool) {
    let block = allocate(100);
    free(if good { block } else { block.add(16) });
}

pub unsafe fn use_after_free(good: bool) {
    let block = allocate(100);
    if good {
        black_box(block.read_volatile());
    }
    free(block);
    if !good {
        black_box(block.read_volatile());
    }
}

/// One byte past the end: inside the rounding to 16 bytes, found when the block is freed.
pub unsafe fn overrun_by_one(good: bool) {
    let block = allocate(100);
    block.add(if good { 99 } else { 100 }).write_volatile(0x5A);
    free(block);
}

/// Past the rounding as well: found at once.
pub unsafe fn overrun_by_sixteen(good: bool) {
    let block = allocate(4096);
    block.add(if good { 4095 } else { 4096 + 16 }).write_volatile(0x5A);
    free(block);
}

pub unsafe fn underrun(good: bool) {
    let block = allocate(4096);
    if good {
        block.write_volatile(0x5A);
    } else {
        block.sub(1).write_volatile(0x5A);
    }
    free(block);
}

pub unsafe fn leak(good: bool) {
    let block = allocate(100);
    if good {
        free(block);
    }
}

pub unsafe fn wild_read(good: bool) {
    let byte = 0x5A_u8;
    let address = if good { &raw const byte } else { 0x10 as *const u8 };
    black_box(black_box(address).read_volatile());
}
