//! Pool in all its spellings.

use std::ptr;

use crate::bugcheck::{BugCheck, bugcheck};
use crate::exports;
use crate::fault;
use crate::irql;
use crate::memory::pool::{self, PoolRequest};
use crate::processor;
use crate::thread::Thread;

const POOL_FLAG_USE_QUOTA: u64 = 0x1;
const POOL_FLAG_UNINITIALIZED: u64 = 0x2;
const POOL_FLAG_SESSION: u64 = 0x4;
const POOL_FLAG_CACHE_ALIGNED: u64 = 0x8;
const POOL_FLAG_RAISE_ON_FAILURE: u64 = 0x20;
const POOL_FLAG_NON_PAGED: u64 = 0x40;
const POOL_FLAG_NON_PAGED_EXECUTE: u64 = 0x80;
const POOL_FLAG_PAGED: u64 = 0x100;
/// Required flags live in the low half; an unknown one fails the call.
const POOL_FLAGS_REQUIRED: u64 = 0xFFFF_FFFF;
const POOL_FLAGS_KNOWN: u64 = POOL_FLAG_USE_QUOTA
    | POOL_FLAG_UNINITIALIZED
    | POOL_FLAG_SESSION
    | POOL_FLAG_CACHE_ALIGNED
    | POOL_FLAG_RAISE_ON_FAILURE
    | POOL_FLAG_NON_PAGED
    | POOL_FLAG_NON_PAGED_EXECUTE
    | POOL_FLAG_PAGED;

exports! {
    module "ntoskrnl.exe";

    /// Zeroed (unless UNINITIALIZED) memory, 16-byte aligned, page-aligned from a page up.
    /// Checks: tag and size not 0; exactly one kind of pool; never executable; paged pool below DISPATCH; can be made to fail
    /// Source: WDM: ExAllocatePool2
    [UP_TO_DISPATCH] fn ExAllocatePool2(flags: u64, size: usize, tag: u32) -> *mut u8 {
        allocate2("ExAllocatePool2", flags, size, tag)
    }

    /// As ExAllocatePool2; extended parameters are not modelled.
    /// Source: WDM: ExAllocatePool3
    [UP_TO_DISPATCH] fn ExAllocatePool3(flags: u64, size: usize, tag: u32, _parameters: *const u8, count: u32) -> *mut u8 {
        if count != 0 {
            return ptr::null_mut();
        }
        allocate2("ExAllocatePool3", flags, size, tag)
    }

    /// Uninitialised memory by pool type.
    /// Checks: tag and size not 0; not executable; paged pool below DISPATCH; can be made to fail
    /// Source: WDM: ExAllocatePoolWithTag
    [UP_TO_DISPATCH] fn ExAllocatePoolWithTag(kind: u32, size: usize, tag: u32) -> *mut u8 {
        allocate_by_type("ExAllocatePoolWithTag", kind, size, tag)
    }

    /// As ExAllocatePoolWithTag; the priority changes nothing.
    /// Source: WDM: ExAllocatePoolWithTagPriority
    [UP_TO_DISPATCH] fn ExAllocatePoolWithTagPriority(kind: u32, size: usize, tag: u32, _priority: u32) -> *mut u8 {
        allocate_by_type("ExAllocatePoolWithTagPriority", kind, size, tag)
    }

    /// As ExAllocatePoolWithTag, with the tag 'None' that Windows uses for it.
    /// Source: WDM: ExAllocatePool
    [UP_TO_DISPATCH] fn ExAllocatePool(kind: u32, size: usize) -> *mut u8 {
        allocate_by_type("ExAllocatePool", kind, size, u32::from_le_bytes(*b"None"))
    }

    /// As ExAllocatePoolWithTag, charged to the process; without memory it raises, unless the kind says otherwise.
    /// Checks: as ExAllocatePoolWithTag; not in a DPC
    /// Source: WDM: ExAllocatePoolWithQuotaTag
    [UP_TO_DISPATCH] fn ExAllocatePoolWithQuotaTag(kind: u32, size: usize, tag: u32) -> *mut u8 {
        const POOL_QUOTA_FAIL_INSTEAD_OF_RAISE: u32 = 8;
        if processor::in_deferred_call(Thread::current()) {
            bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, [0x10B, u64::from(kind), size as u64, u64::from(tag)],
                "ExAllocatePoolWithQuotaTag is called in a DPC, whose process is whichever was interrupted");
        }
        let block = allocate_by_type("ExAllocatePoolWithQuotaTag", kind, size, tag);
        if block.is_null() && kind & POOL_QUOTA_FAIL_INSTEAD_OF_RAISE == 0 {
            bugcheck(BugCheck::KMODE_EXCEPTION_NOT_HANDLED, [0xC000_009A, size as u64, u64::from(tag), 0],
                "ExAllocatePoolWithQuotaTag raises STATUS_INSUFFICIENT_RESOURCES; exceptions are not modelled");
        }
        block
    }

    /// Frees a block.
    /// Checks: a block's own address; its tag; not freed before; nothing overwritten around it; nothing in it in use; paged
    /// pool below DISPATCH
    /// Source: WDM: ExFreePoolWithTag
    [UP_TO_DISPATCH] fn ExFreePoolWithTag(block: *mut u8, tag: u32) {
        pool::free("ExFreePoolWithTag", block, Some(tag));
    }

    /// Frees a block of any tag.
    /// Checks: as ExFreePoolWithTag
    /// Source: WDM: ExFreePool
    [UP_TO_DISPATCH] fn ExFreePool(block: *mut u8) {
        pool::free("ExFreePool", block, None);
    }

    /// As ExFreePoolWithTag; extended parameters are not modelled.
    /// Source: WDM: ExFreePool2
    [UP_TO_DISPATCH] fn ExFreePool2(block: *mut u8, tag: u32, _parameters: *const u8, _count: u32) {
        pool::free("ExFreePool2", block, Some(tag));
    }
}

fn allocate2(what: &'static str, flags: u64, size: usize, tag: u32) -> *mut u8 {
    let kinds = flags & (POOL_FLAG_NON_PAGED | POOL_FLAG_NON_PAGED_EXECUTE | POOL_FLAG_PAGED);
    if flags & POOL_FLAGS_REQUIRED & !POOL_FLAGS_KNOWN != 0 || kinds.count_ones() != 1 {
        bugcheck(
            BugCheck::BAD_POOL_CALLER,
            [0x9D, flags, size as u64, u64::from(tag)],
            format!("{what} is given the flags {flags:#x}: one kind of pool and known flags are needed"),
        );
    }
    check_kind(what, kinds == POOL_FLAG_NON_PAGED_EXECUTE, kinds == POOL_FLAG_PAGED);
    let request = PoolRequest {
        size,
        tag,
        zeroed: flags & POOL_FLAG_UNINITIALIZED == 0,
        cache_aligned: flags & POOL_FLAG_CACHE_ALIGNED != 0,
        paged: kinds == POOL_FLAG_PAGED,
    };
    let block = allocate(what, request);
    if block.is_null() && flags & POOL_FLAG_RAISE_ON_FAILURE != 0 {
        bugcheck(
            BugCheck::KMODE_EXCEPTION_NOT_HANDLED,
            [0xC000_009A, size as u64, u64::from(tag), 0],
            format!("{what} raises STATUS_INSUFFICIENT_RESOURCES because the caller asked for that"),
        );
    }
    block
}

fn allocate_by_type(what: &'static str, kind: u32, size: usize, tag: u32) -> *mut u8 {
    // POOL_TYPE: bit 0 paged, bit 2 cache-aligned, bit 9 no-execute.
    let paged = kind & 1 != 0;
    check_kind(what, !paged && kind & 0x200 == 0, paged);
    allocate(what, PoolRequest { size, tag, zeroed: false, cache_aligned: kind & 4 != 0, paged })
}

fn check_kind(what: &str, executable: bool, paged: bool) {
    if executable {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [0x2000, 0, 0, 0],
            format!("{what} is asked for executable pool"),
        );
    }
    if paged && irql::current() > irql::APC {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [1, u64::from(irql::current()), 1, 0],
            format!("{what} is asked for paged pool at DISPATCH_LEVEL"),
        );
    }
}

fn allocate(what: &'static str, request: PoolRequest) -> *mut u8 {
    if request.tag != 0 && request.size != 0 && fault::should_fail(what) {
        return ptr::null_mut();
    }
    if request.zeroed && irql::current() >= irql::DISPATCH {
        pool::record_zeroing_at_dispatch(request.size);
    }
    pool::allocate(what, request).unwrap_or(ptr::null_mut())
}
