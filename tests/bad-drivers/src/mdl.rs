//! Memory descriptor lists: mapping what is not locked, unmapping twice, freeing while mapped, touching what is gone.

use core::ffi::c_void;
use core::hint::black_box;

use crate::kernel::{
    IoAllocateMdl, IoFreeMdl, MAPPING_NO_EXECUTE, MAPPING_NO_WRITE, MDL_PAGES_LOCKED, Mdl, MmBuildMdlForNonPagedPool,
    MmMapLockedPagesSpecifyCache, MmProbeAndLockPages, MmUnlockPages, MmUnmapLockedPages, NORMAL_PRIORITY, PAGE,
    allocate, free,
};

/// A pool block, the list that describes it, and a private list of the same pages that may be mapped by itself.
struct Pages {
    block: *mut u8,
    source: *mut Mdl,
    private: *mut Mdl,
}

impl Pages {
    unsafe fn new() -> Self {
        let block = allocate(2 * PAGE);
        let source = list(block);
        MmBuildMdlForNonPagedPool(source);
        let private = list(block);
        let frames = source.add(1).cast::<u64>();
        core::ptr::copy_nonoverlapping(frames, private.add(1).cast::<u64>(), 2);
        (*private).flags |= MDL_PAGES_LOCKED;
        Self { block, source, private }
    }

    unsafe fn free(self) {
        (*self.private).flags &= !MDL_PAGES_LOCKED;
        self.free_as_it_is();
    }

    unsafe fn free_as_it_is(self) {
        IoFreeMdl(self.private);
        IoFreeMdl(self.source);
        free(self.block);
    }
}

unsafe fn list(block: *mut u8) -> *mut Mdl {
    IoAllocateMdl(block.cast(), 2 * PAGE as u32, 0, 0, core::ptr::null_mut())
}

unsafe fn map(mdl: *mut Mdl, flags: u32) -> *mut u8 {
    let none: *mut c_void = core::ptr::null_mut();
    MmMapLockedPagesSpecifyCache(mdl, 0, 1, none, 0, NORMAL_PRIORITY | MAPPING_NO_EXECUTE | flags).cast()
}

pub unsafe fn access_after_unmap(good: bool) {
    let pages = Pages::new();
    let view = map(pages.private, 0);
    if good {
        black_box(view.read_volatile());
    }
    MmUnmapLockedPages(view.cast(), pages.private);
    if !good {
        black_box(view.read_volatile());
    }
    pages.free();
}

pub unsafe fn freed_while_mapped(good: bool) {
    let pages = Pages::new();
    let view = map(pages.private, 0);
    if good {
        MmUnmapLockedPages(view.cast(), pages.private);
    }
    pages.free();
}

pub unsafe fn unmapped_twice(good: bool) {
    let pages = Pages::new();
    let view = map(pages.private, 0);
    MmUnmapLockedPages(view.cast(), pages.private);
    if !good {
        MmUnmapLockedPages(view.cast(), pages.private);
    }
    pages.free();
}

pub unsafe fn mapped_unlocked(good: bool) {
    let pages = Pages::new();
    if !good {
        (*pages.private).flags &= !MDL_PAGES_LOCKED;
    }
    let view = map(pages.private, 0);
    MmUnmapLockedPages(view.cast(), pages.private);
    pages.free();
}

/// A list over a pool block whose pages are locked, as those of a user's buffer would be.
unsafe fn locked(block: *mut u8) -> *mut Mdl {
    const MODIFY: i32 = 2;
    let mdl = list(block);
    MmProbeAndLockPages(mdl, 0, MODIFY);
    mdl
}

/// Unlocking the pages takes the mapping away.
pub unsafe fn access_after_unlock(good: bool) {
    let block = allocate(2 * PAGE);
    let mdl = locked(block);
    let view = map(mdl, 0);
    if good {
        black_box(view.read_volatile());
    }
    MmUnlockPages(mdl);
    if !good {
        black_box(view.read_volatile());
    }
    IoFreeMdl(mdl);
    free(block);
}

/// A list that was filled from locked pages and is used when they are unlocked.
pub unsafe fn mapped_after_unlock(good: bool) {
    let block = allocate(2 * PAGE);
    let mdl = locked(block);
    if good {
        MmUnmapLockedPages(map(mdl, 0).cast(), mdl);
    }
    MmUnlockPages(mdl);
    if !good {
        MmUnmapLockedPages(map(mdl, 0).cast(), mdl);
    }
    IoFreeMdl(mdl);
    free(block);
}

/// Another list of the same pages still maps them when the last lock goes.
pub unsafe fn unlocked_while_mapped(good: bool) {
    let block = allocate(2 * PAGE);
    let mdl = locked(block);
    let other = list(block);
    core::ptr::copy_nonoverlapping(mdl.add(1).cast::<u64>(), other.add(1).cast::<u64>(), 2);
    (*other).flags |= MDL_PAGES_LOCKED;
    let view = map(other, 0);
    if good {
        MmUnmapLockedPages(view.cast(), other);
    }
    MmUnlockPages(mdl);
    (*other).flags &= !MDL_PAGES_LOCKED;
    IoFreeMdl(other);
    IoFreeMdl(mdl);
    free(block);
}

pub unsafe fn unlocked_twice(good: bool) {
    let block = allocate(2 * PAGE);
    let mdl = locked(block);
    MmUnlockPages(mdl);
    if !good {
        MmUnlockPages(mdl);
    }
    IoFreeMdl(mdl);
    free(block);
}

pub unsafe fn freed_while_locked(good: bool) {
    let block = allocate(2 * PAGE);
    let mdl = locked(block);
    if good {
        MmUnlockPages(mdl);
    }
    IoFreeMdl(mdl);
    free(block);
}

pub unsafe fn freed_marked_locked(good: bool) {
    let pages = Pages::new();
    if good {
        pages.free();
    } else {
        pages.free_as_it_is();
    }
}

pub unsafe fn mapped_pool(good: bool) {
    let pages = Pages::new();
    let mdl = if good { pages.private } else { pages.source };
    let view = map(mdl, 0);
    MmUnmapLockedPages(view.cast(), mdl);
    pages.free();
}

pub unsafe fn write_to_read_only(good: bool) {
    let pages = Pages::new();
    let view = map(pages.private, if good { 0 } else { MAPPING_NO_WRITE });
    view.write_volatile(0x5A);
    MmUnmapLockedPages(view.cast(), pages.private);
    pages.free();
}

pub unsafe fn leak(good: bool) {
    let pages = Pages::new();
    if good {
        pages.free();
    } else {
        IoFreeMdl(pages.source);
        free(pages.block);
    }
}
