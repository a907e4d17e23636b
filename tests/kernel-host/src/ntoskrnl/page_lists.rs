//! Pages without an address: allocated as an MDL, mapped where a driver reads them.

use crate::bugcheck::{BugCheck, bugcheck};
use crate::exports;
use crate::fault;
use crate::ledger;
use crate::memory::pool::{self, PoolRequest};
use crate::memory::{PAGE_SIZE, frames, mdl};
use crate::nt::MDL;

/// The kind under which such pages are recorded.
pub const LEDGER_KIND: &str = "pages of an MDL";

const TAG: u32 = u32::from_le_bytes(*b"MmPg");
const MM_DONT_ZERO_ALLOCATION: u32 = 1;

exports! {
    module "ntoskrnl.exe";

    /// Pages in the order of the machine's memory, zeroed, described by an MDL that the caller frees with ExFreePool. All or
    /// none of them; the range of physical addresses is not modelled.
    /// Checks: not 0 bytes; can be made to fail
    /// Source: WDM: MmAllocatePagesForMdlEx
    [UP_TO_DISPATCH] fn MmAllocatePagesForMdlEx(
        _low: u64, _high: u64, _skip: u64, bytes: usize, _cache: u32, flags: u32,
    ) -> *mut MDL {
        if bytes == 0 || fault::should_fail("MmAllocatePagesForMdlEx") {
            return std::ptr::null_mut();
        }
        // SAFETY: the list is the caller's from here on.
        unsafe { allocate(bytes.div_ceil(PAGE_SIZE), flags & MM_DONT_ZERO_ALLOCATION == 0) }
    }

    /// Frees the pages; the MDL is left to ExFreePool.
    /// Checks: pages of MmAllocatePagesForMdlEx, freed once, not mapped
    /// Source: WDM: MmFreePagesFromMdl
    [UP_TO_APC] fn MmFreePagesFromMdl(list: *mut MDL) {
        // SAFETY: the image's MDL.
        unsafe { free(list, "MmFreePagesFromMdl") };
    }

    /// The same; flags change nothing.
    /// Checks: as MmFreePagesFromMdl
    /// Source: WDM: MmFreePagesFromMdlEx
    [UP_TO_APC] fn MmFreePagesFromMdlEx(list: *mut MDL, _flags: u32) {
        // SAFETY: the image's MDL.
        unsafe { free(list, "MmFreePagesFromMdlEx") };
    }
}

unsafe fn allocate(pages: usize, zeroed: bool) -> *mut MDL {
    let size = size_of::<MDL>() + pages * size_of::<u64>();
    let request = PoolRequest { size, tag: TAG, zeroed: true, ..PoolRequest::default() };
    let Some(block) = pool::allocate("MmAllocatePagesForMdlEx", request) else { return std::ptr::null_mut() };
    let list = block.cast::<MDL>();
    let Some(frames) = frames::allocate(pages) else {
        pool::free("MmAllocatePagesForMdlEx", block, Some(TAG));
        return std::ptr::null_mut();
    };
    // SAFETY: fresh zeroed memory for the structure and its frames.
    unsafe {
        (*list).Size = size as i16;
        (*list).ByteCount = (pages * PAGE_SIZE) as u32;
        mdl::fill_locked(list, &frames, mdl::Access::Write);
        if zeroed && let Some(address) = mdl::map(list, mdl::MDL_MAPPING_NO_EXECUTE) {
            std::ptr::write_bytes(address as *mut u8, 0, pages * PAGE_SIZE);
            mdl::unmap(address, list);
        }
    }
    ledger::record(LEDGER_KIND, list as usize, format!("({pages})"));
    list
}

unsafe fn free(list: *mut MDL, function: &str) {
    if ledger::release(LEDGER_KIND, list as usize).is_none() {
        wrong(
            list,
            format!("{function} is given an MDL whose pages MmAllocatePagesForMdlEx did not make, or that were freed"),
        );
    }
    // SAFETY: an MDL of `allocate`.
    unsafe {
        if (*list).MdlFlags & mdl::MDL_MAPPED_TO_SYSTEM_VA != 0 {
            wrong(list, format!("{function} is given an MDL whose pages are mapped"));
        }
        let frames = mdl::frames_of(list, function);
        mdl::unlock(list);
        frames::free(&frames);
    }
}

fn wrong(list: *mut MDL, rule: String) -> ! {
    bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, [0x1025, list as u64, 0, 0], rule)
}
