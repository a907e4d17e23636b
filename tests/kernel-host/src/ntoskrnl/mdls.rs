//! Memory descriptor lists and mappings.

use std::ffi::c_void;

use crate::bugcheck::{BugCheck, bugcheck};
use crate::exports;
use crate::fault;
use crate::irql;
use crate::ledger;
use crate::memory::address_space::{self, Zone};
use crate::memory::{PAGE_SHIFT, PAGE_SIZE, mdl};
use crate::nt::{IRP, MDL};

const KERNEL_MODE: u8 = 0;
const MM_CACHED: u32 = 1;

exports! {
    module "ntoskrnl.exe";

    /// An MDL with space for the pages of a range.
    /// Checks: at most 4 GiB - PAGE_SIZE; can be made to fail
    /// Source: WDM: IoAllocateMdl
    [UP_TO_DISPATCH] fn IoAllocateMdl(
        address: usize, length: u32, secondary: u8, _charge_quota: u8, irp: *mut IRP,
    ) -> *mut MDL {
        if fault::should_fail("IoAllocateMdl") {
            return std::ptr::null_mut();
        }
        // SAFETY: the image frees it.
        let Some(made) = (unsafe { mdl::allocate(address, length as usize) }) else { return std::ptr::null_mut() };
        ledger::record(mdl::LEDGER_KIND, made as usize, "");
        if !irp.is_null() {
            // SAFETY: the image's IRP.
            unsafe { attach_to_irp(irp, made, secondary != 0) };
        }
        made
    }

    /// Frees an MDL; a partial one that was mapped is unmapped.
    /// Checks: made by IoAllocateMdl, not freed before, not mapped, pages not locked
    /// Source: WDM: IoFreeMdl
    [UP_TO_DISPATCH] fn IoFreeMdl(list: *mut MDL) {
        ledger::release(mdl::LEDGER_KIND, list as usize);
        // SAFETY: the image's MDL.
        unsafe { mdl::free(list) };
    }

    /// Describes a part of what another MDL describes; shares its mapping where it has one.
    /// Checks: inside the source; fits the target; the source's pages are locked
    /// Source: WDM: IoBuildPartialMdl
    [UP_TO_DISPATCH] fn IoBuildPartialMdl(source: *mut MDL, target: *mut MDL, address: usize, length: u32) {
        // SAFETY: the image's MDLs.
        unsafe { mdl::build_partial(source, target, address, length as usize) };
    }

    /// Fills in the frames of non-paged pool (or of an image's variables).
    /// Checks: the range is such memory, and no paged pool, user buffer, mapping or stack; the MDL describes nothing yet
    /// Source: WDM: MmBuildMdlForNonPagedPool
    [UP_TO_DISPATCH] fn MmBuildMdlForNonPagedPool(list: *mut MDL) {
        // SAFETY: the image's MDL.
        unsafe { mdl::build_for_nonpaged_pool(list) };
    }

    /// A real alias of the frames: read-only with MdlMappingNoWrite, never executable.
    /// Checks: KernelMode and MmCached; MdlMappingNoExecute; no BugCheckOnFailure; pages locked; not mapped; not over pool; can be made to fail
    /// Source: WDM: MmMapLockedPagesSpecifyCache
    [UP_TO_DISPATCH] fn MmMapLockedPagesSpecifyCache(
        list: *mut MDL, mode: u8, cache: u32, requested: usize, bugcheck_on_failure: u32, priority: u32,
    ) -> usize {
        if mode != KERNEL_MODE || cache != MM_CACHED || requested != 0 {
            bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                [0x1018, list as u64, u64::from(mode), u64::from(cache)],
                "MmMapLockedPagesSpecifyCache: only KernelMode, MmCached and no requested address are modelled");
        }
        if bugcheck_on_failure != 0 {
            bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                [0x82, list as u64, u64::from(bugcheck_on_failure), u64::from(priority)],
                "MmMapLockedPagesSpecifyCache is called with BugCheckOnFailure: a shortage would stop the machine");
        }
        if fault::should_fail("MmMapLockedPagesSpecifyCache") {
            return 0;
        }
        // SAFETY: the image's MDL.
        unsafe { mdl::map(list, priority) }.unwrap_or(0)
    }

    /// Takes the mapping away for real.
    /// Checks: mapped by this MDL at this address, with the frames it had; not over pool
    /// Source: WDM: MmUnmapLockedPages
    [UP_TO_DISPATCH] fn MmUnmapLockedPages(address: usize, list: *mut MDL) {
        // SAFETY: the image's MDL.
        unsafe { mdl::unmap(address, list) };
    }

    /// Locks the pages of a kernel or user address.
    /// Checks: not locked, built for pool, partial or mapped; <= APC for user buffers and paged pool; the exception that Windows raises for wrong memory is a bugcheck
    /// Source: WDM: MmProbeAndLockPages
    [UP_TO_DISPATCH] fn MmProbeAndLockPages(list: *mut MDL, _mode: u8, operation: u32) {
        // SAFETY: the image's MDL.
        unsafe {
            mdl::check_lockable(list);
            let start = (*list).StartVa as usize;
            let pageable = matches!(address_space::zone_of(start), Some(Zone::UserBuffers | Zone::PagedPool));
            if pageable && irql::current() > irql::APC {
                bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, [0x1019, list as u64, start as u64, 0],
                    "MmProbeAndLockPages is called for pageable memory at DISPATCH_LEVEL");
            }
            let Some(frames) = address_space::frames_at(start, mdl::page_count(list)) else {
                bugcheck(BugCheck::KMODE_EXCEPTION_NOT_HANDLED, [0xC000_0005, start as u64, 0, 0],
                    format!("MmProbeAndLockPages raises STATUS_ACCESS_VIOLATION for {start:#x}, which is not mapped; \
                        handlers (__try) are not modelled"));
            };
            let access = if operation == 0 { mdl::Access::Read } else { mdl::Access::Write };
            mdl::fill_locked(list, &frames, access);
        }
    }

    /// Unlocks the pages, and unmaps the MDL if it is mapped.
    /// Checks: locked; no other MDL still maps pages that have no lock any more
    /// Source: WDM: MmUnlockPages
    [UP_TO_DISPATCH] fn MmUnlockPages(list: *mut MDL) {
        // SAFETY: the image's MDL.
        unsafe { mdl::unlock(list) };
    }

    /// The size of an MDL for a range.
    /// Source: WDM: MmSizeOfMdl
    [ANY] fn MmSizeOfMdl(address: usize, length: usize) -> usize {
        size_of::<MDL>() + mdl::span(address, length) * 8
    }

    /// The "physical" address behind a mapped kernel address; 0 when there is none.
    /// Source: WDM: MmGetPhysicalAddress
    [ANY] fn MmGetPhysicalAddress(address: usize) -> u64 {
        let offset = (address & (PAGE_SIZE - 1)) as u64;
        address_space::frame_at(address).map_or(0, |frame| u64::from(frame) << PAGE_SHIFT | offset)
    }

    /// Whether an address is mapped now.
    /// Source: WDM: MmIsAddressValid
    [UP_TO_DISPATCH] fn MmIsAddressValid(address: *const c_void) -> u8 {
        u8::from(address_space::frame_at(address as usize).is_some())
    }
}

/// Puts an MDL into an IRP: first, or at the end of the chain.
unsafe fn attach_to_irp(irp: *mut IRP, made: *mut MDL, secondary: bool) {
    // SAFETY: the caller's contract.
    unsafe {
        if !secondary || (*irp).MdlAddress.is_null() {
            (*irp).MdlAddress = made;
            return;
        }
        let mut last = (*irp).MdlAddress;
        while !(*last).Next.is_null() {
            last = (*last).Next;
        }
        (*last).Next = made;
    }
}
