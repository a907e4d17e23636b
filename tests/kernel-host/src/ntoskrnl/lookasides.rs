//! Lookaside lists. The fast paths are inline in drivers: they pop and push the list's S-list and call the functions that
//! are put into the structure here.

use std::ffi::c_void;

use crate::bugcheck::{BugCheck, bugcheck};
use crate::call_image;
use crate::callback::host_function;
use crate::callout::{Context, ContextKind};
use crate::exports;
use crate::ledger;
use crate::memory::pool;
use crate::nt::SLIST_HEADER;
use crate::status::{NtStatus, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};

use super::pools;

/// The kind under which lookaside lists are recorded.
pub const LEDGER_KIND: &str = "lookaside list";

const PAGED: u32 = 1;
/// An entry of an S-list has to fit into a block.
const MINIMUM_SIZE: usize = 8;
/// Depths with which Windows begins and beyond which it does not go.
const DEPTH: u16 = 4;
const MAXIMUM_DEPTH: u16 = 256;

/// What all kinds begin with (`GENERAL_LOOKASIDE`).
#[repr(C)]
pub struct Lookaside {
    list: SLIST_HEADER,
    depth: u16,
    maximum_depth: u16,
    counters: [u32; 4],
    kind: u32,
    tag: u32,
    size: u32,
    allocate: usize,
    free: usize,
}

const _: () = assert!(std::mem::offset_of!(Lookaside, kind) == 36);
const _: () = assert!(std::mem::offset_of!(Lookaside, allocate) == 48);

exports! {
    module "ntoskrnl.exe";

    /// Fills a list of non-paged blocks; without functions of the driver's, pool by its tag.
    /// Checks: size and tag not 0; space for a link; not a list already
    /// Source: WDM: ExInitializeNPagedLookasideList
    [UP_TO_DISPATCH] fn ExInitializeNPagedLookasideList(
        list: *mut Lookaside, allocate: usize, free: usize, flags: u32, size: usize, tag: u32, _depth: u16,
    ) {
        // SAFETY: the image's list.
        unsafe { initialise(list, pair(allocate, free), flags & 0x200, size, tag) };
    }

    /// Frees what the list holds and ends it.
    /// Checks: an initialised list
    /// Source: WDM: ExDeleteNPagedLookasideList
    [UP_TO_DISPATCH] fn ExDeleteNPagedLookasideList(list: *mut Lookaside) {
        // SAFETY: the image's list.
        unsafe { delete(list, "ExDeleteNPagedLookasideList") };
    }

    /// The same for paged blocks.
    /// Checks: size and tag not 0; space for a link; not a list already
    /// Source: WDM: ExInitializePagedLookasideList
    [UP_TO_APC] fn ExInitializePagedLookasideList(
        list: *mut Lookaside, allocate: usize, free: usize, _flags: u32, size: usize, tag: u32, _depth: u16,
    ) {
        // SAFETY: the image's list.
        unsafe { initialise(list, pair(allocate, free), PAGED, size, tag) };
    }

    /// Frees what the list holds and ends it.
    /// Checks: an initialised list
    /// Source: WDM: ExDeletePagedLookasideList
    [UP_TO_APC] fn ExDeletePagedLookasideList(list: *mut Lookaside) {
        // SAFETY: the image's list.
        unsafe { delete(list, "ExDeletePagedLookasideList") };
    }

    /// Fills a list of either kind, whose functions get the list.
    /// Checks: size and tag not 0; space for a link; not a list already; no flags, as they are not modelled
    /// Source: WDM: ExInitializeLookasideListEx
    [UP_TO_DISPATCH] fn ExInitializeLookasideListEx(
        list: *mut Lookaside, allocate: usize, free: usize, kind: u32, flags: u32, size: usize, tag: u32, _depth: u16,
    ) -> NtStatus {
        if flags != 0 {
            return STATUS_INVALID_PARAMETER;
        }
        let allocate = if allocate == 0 { host_function(allocate_ex as *const c_void, 4) as usize } else { allocate };
        let free = if free == 0 { host_function(free_ex as *const c_void, 2) as usize } else { free };
        // SAFETY: the image's list.
        unsafe { initialise(list, (allocate, free), kind, size, tag) };
        STATUS_SUCCESS
    }

    /// Frees what the list holds and ends it.
    /// Checks: an initialised list
    /// Source: WDM: ExDeleteLookasideListEx
    [UP_TO_DISPATCH] fn ExDeleteLookasideListEx(list: *mut Lookaside) {
        // SAFETY: the image's list.
        unsafe { delete(list, "ExDeleteLookasideListEx") };
    }

    /// Frees what the list holds.
    /// Checks: an initialised list
    /// Source: WDM: ExFlushLookasideListEx
    [UP_TO_DISPATCH] fn ExFlushLookasideListEx(list: *mut Lookaside) {
        check(list, "ExFlushLookasideListEx");
        // SAFETY: the image's list.
        unsafe { flush(list) };
    }
}

/// The functions of a list without Ex: the driver's, or those of pool.
fn pair(allocate: usize, free: usize) -> (usize, usize) {
    let default = |address: *const c_void, arguments| host_function(address, arguments) as usize;
    (
        if allocate == 0 { default(pools::ExAllocatePoolWithTag as *const c_void, 3) } else { allocate },
        if free == 0 { default(pools::ExFreePool as *const c_void, 1) } else { free },
    )
}

unsafe extern "win64" fn allocate_ex(kind: u32, size: usize, tag: u32, _list: *mut Lookaside) -> *mut u8 {
    // SAFETY: as an image would call it.
    unsafe { pools::ExAllocatePoolWithTag(kind, size, tag) }
}

unsafe extern "win64" fn free_ex(block: *mut u8, _list: *mut Lookaside) {
    // SAFETY: as an image would call it.
    unsafe { pools::ExFreePool(block) };
}

unsafe fn initialise(list: *mut Lookaside, functions: (usize, usize), kind: u32, size: usize, tag: u32) {
    if size == 0 || tag == 0 {
        pool::refuse("a lookaside list", size, tag);
    }
    if size < MINIMUM_SIZE {
        let rule = format!("a lookaside list is made for blocks of {size} bytes; {MINIMUM_SIZE} is the least");
        broken([0xCD, list as u64, size as u64, MINIMUM_SIZE as u64], rule);
    }
    if ledger::holds(LEDGER_KIND, list as usize) {
        broken(
            [0xCA, list as u64, 0, 0],
            format!("the lookaside list at {list:p} is initialised again before it is deleted"),
        );
    }
    // SAFETY: the caller's contract.
    unsafe {
        list.write(Lookaside {
            list: SLIST_HEADER { Alignment: 0, Region: 0 },
            depth: DEPTH,
            maximum_depth: MAXIMUM_DEPTH,
            counters: [0; 4],
            kind,
            tag,
            size: size.max(16) as u32,
            allocate: functions.0,
            free: functions.1,
        });
    }
    ledger::record(LEDGER_KIND, list as usize, "");
}

fn broken(parameters: [u64; 4], rule: String) -> ! {
    bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, parameters, rule)
}

/// A list inside a range of addresses that was not deleted.
pub(crate) fn live_within(start: usize, end: usize) -> Option<usize> {
    ledger::within(LEDGER_KIND, start..end)
}

fn check(list: *mut Lookaside, function: &str) {
    if !ledger::holds(LEDGER_KIND, list as usize) {
        pool::not_a_list(function, list as usize);
    }
}

unsafe fn delete(list: *mut Lookaside, function: &str) {
    check(list, function);
    // SAFETY: the caller's contract.
    unsafe { flush(list) };
    ledger::release(LEDGER_KIND, list as usize);
}

unsafe fn flush(list: *mut Lookaside) {
    // SAFETY: the caller's contract: the entries are blocks of the list.
    unsafe {
        let free = (*list).free;
        loop {
            let entry = super::queues::ExpInterlockedPopEntrySList(&raw mut (*list).list);
            if entry.is_null() {
                return;
            }
            call_image!(Context::new(ContextKind::Other, "the free function of a lookaside list"), free => (); entry, list);
        }
    }
}
