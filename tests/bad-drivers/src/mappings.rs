//! Memory descriptor lists again: mappings that would be executable, locking what is locked, describing what is no non-paged
//! pool.

use core::ffi::c_void;

use crate::Case::{self, Load};
use crate::kernel::{
    ExAllocatePool2, IoAllocateMdl, IoFreeMdl, MAPPING_NO_EXECUTE, Mdl, MmBuildMdlForNonPagedPool,
    MmMapLockedPagesSpecifyCache, MmProbeAndLockPages, MmUnlockPages, MmUnmapLockedPages, NORMAL_PRIORITY, PAGE,
    POOL_FLAG_NON_PAGED, TAG, allocate, free,
};

pub static CASES: &[(&str, Case)] = &[
    ("mdl-mapped-executable", Load(mapped_executable)),
    ("mdl-map-stops-the-machine", Load(map_stops_the_machine)),
    ("mdl-locked-twice", Load(locked_twice)),
    ("mdl-of-pool-locked", Load(pool_locked)),
    ("mdl-over-paged-pool", Load(over_paged_pool)),
    ("mdl-over-mapping", Load(over_mapping)),
    ("mdl-over-stack", Load(over_stack)),
];

const POOL_FLAG_PAGED: u64 = 0x100;
const MODIFY: i32 = 2;

unsafe fn list(block: *mut u8, length: usize) -> *mut Mdl {
    IoAllocateMdl(block.cast(), length as u32, 0, 0, core::ptr::null_mut())
}

/// Locks the pages of a block, maps them and gives everything back.
unsafe fn map(priority: u32, bugcheck_on_failure: u32) {
    let block = allocate(PAGE);
    let mdl = list(block, PAGE);
    MmProbeAndLockPages(mdl, 0, MODIFY);
    let none: *mut c_void = core::ptr::null_mut();
    let view = MmMapLockedPagesSpecifyCache(mdl, 0, 1, none, bugcheck_on_failure, priority);
    MmUnmapLockedPages(view, mdl);
    MmUnlockPages(mdl);
    IoFreeMdl(mdl);
    free(block);
}

unsafe fn mapped_executable(good: bool) {
    map(NORMAL_PRIORITY | if good { MAPPING_NO_EXECUTE } else { 0 }, 0);
}

unsafe fn map_stops_the_machine(good: bool) {
    map(NORMAL_PRIORITY | MAPPING_NO_EXECUTE, u32::from(!good));
}

unsafe fn locked_twice(good: bool) {
    let block = allocate(PAGE);
    let mdl = list(block, PAGE);
    MmProbeAndLockPages(mdl, 0, MODIFY);
    if good {
        MmUnlockPages(mdl);
    }
    MmProbeAndLockPages(mdl, 0, MODIFY);
    MmUnlockPages(mdl);
    IoFreeMdl(mdl);
    free(block);
}

unsafe fn pool_locked(good: bool) {
    let block = allocate(PAGE);
    let mdl = list(block, PAGE);
    if !good {
        MmBuildMdlForNonPagedPool(mdl);
    }
    MmProbeAndLockPages(mdl, 0, MODIFY);
    MmUnlockPages(mdl);
    IoFreeMdl(mdl);
    free(block);
}

unsafe fn over_paged_pool(good: bool) {
    let block: *mut u8 = ExAllocatePool2(if good { POOL_FLAG_NON_PAGED } else { POOL_FLAG_PAGED }, PAGE, TAG).cast();
    let mdl = list(block, PAGE);
    MmBuildMdlForNonPagedPool(mdl);
    IoFreeMdl(mdl);
    free(block);
}

/// The mapping of locked pages is no pool, although what it maps is.
unsafe fn over_mapping(good: bool) {
    let block = allocate(PAGE);
    let mdl = list(block, PAGE);
    MmProbeAndLockPages(mdl, 0, MODIFY);
    let none: *mut c_void = core::ptr::null_mut();
    let view = MmMapLockedPagesSpecifyCache(mdl, 0, 1, none, 0, NORMAL_PRIORITY | MAPPING_NO_EXECUTE);
    let second = list(if good { block } else { view.cast() }, PAGE);
    MmBuildMdlForNonPagedPool(second);
    IoFreeMdl(second);
    MmUnmapLockedPages(view, mdl);
    MmUnlockPages(mdl);
    IoFreeMdl(mdl);
    free(block);
}

unsafe fn over_stack(good: bool) {
    let mut bytes = [0_u8; 64];
    let block = allocate(64);
    let mdl = list(if good { block } else { bytes.as_mut_ptr() }, 64);
    MmBuildMdlForNonPagedPool(mdl);
    IoFreeMdl(mdl);
    free(block);
}
