//! The heap and pages.

use super::fails;
use crate::bugcheck::{BugCheck, bugcheck};
use crate::memory::address_space::Protection;
use crate::user::call::system_call;
use crate::user::dos_error;
use crate::user::process::ProcessState;

/// What `GetProcessHeap` gives: no address of anything.
const HEAP: usize = 0x4845_4150_0000;
const HEAP_ZERO_MEMORY: u32 = 8;
const MEM_COMMIT: u32 = 0x1000;
const MEM_RELEASE: u32 = 0x8000;

/// Page protections and their numbers.
const PROTECTIONS: &[(Protection, u32)] = &[
    (Protection::None, 0x01),
    (Protection::ReadOnly, 0x02),
    (Protection::ReadWrite, 0x04),
    (Protection::ReadExecute, 0x20),
    (Protection::ReadWriteExecute, 0x40),
];

#[repr(C)]
pub struct MEMORY_BASIC_INFORMATION {
    BaseAddress: usize,
    AllocationBase: usize,
    AllocationProtect: u32,
    PartitionId: u32,
    RegionSize: usize,
    State: u32,
    Protect: u32,
    Type: u32,
}

const _: () = assert!(size_of::<MEMORY_BASIC_INFORMATION>() == 48);

const MEM_PRIVATE: u32 = 0x2_0000;

fn protection_of(number: u32) -> Option<Protection> {
    PROTECTIONS.iter().find(|(_, known)| *known == number).map(|(protection, _)| *protection)
}

fn number_of(protection: Protection) -> u32 {
    PROTECTIONS.iter().find(|(known, _)| *known == protection).map_or(0, |(_, number)| *number)
}

/// Ends a program that gives the heap what is not the heap's; in a process of the host's own tests, the host.
fn not_of_the_heap(function: &str, process: &ProcessState, block: usize) -> usize {
    let rule =
        format!("{function} of a user program is given {block:#x}, which is no block of its heap, or was freed before");
    if process.program.is_contained() {
        process.fails(&rule);
        return 0;
    }
    let parameters = [0x1070, block as u64, u64::from(process.number), 0];
    bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, parameters, rule)
}

crate::exports! {
    module "kernel32.dll";

    /// The one heap of the process.
    /// Source: Win32: GetProcessHeap
    [PASSIVE_ONLY] fn GetProcessHeap() -> usize {
        HEAP
    }

    /// A block of pages of its own, at their end.
    /// Source: Win32: HeapAlloc
    [PASSIVE_ONLY] fn HeapAlloc(heap: usize, flags: u32, bytes: usize) -> usize {
        system_call(|process| if heap == HEAP { process.memory.heap_allocate(bytes, flags & HEAP_ZERO_MEMORY != 0) } else { 0 })
    }

    /// A block of another size with the contents of one that goes.
    /// Checks: a block of the heap
    /// Source: Win32: HeapReAlloc
    [PASSIVE_ONLY] fn HeapReAlloc(_heap: usize, flags: u32, block: usize, bytes: usize) -> usize {
        system_call(|process| {
            let Some(before) = process.memory.heap_size(block) else { return not_of_the_heap("HeapReAlloc", process, block) };
            let new = process.memory.heap_allocate(bytes, flags & HEAP_ZERO_MEMORY != 0);
            // SAFETY: two live blocks of these sizes.
            unsafe { std::ptr::copy_nonoverlapping(block as *const u8, new as *mut u8, before.min(bytes)) };
            process.memory.heap_free(block);
            new
        })
    }

    /// The size that a block was made with.
    /// Checks: a block of the heap
    /// Source: Win32: HeapSize
    [PASSIVE_ONLY] fn HeapSize(_heap: usize, _flags: u32, block: usize) -> usize {
        system_call(|process| match process.memory.heap_size(block) {
            Some(size) => size,
            None => not_of_the_heap("HeapSize", process, block),
        })
    }

    /// What is at an address: the pages with the same protection from there on.
    /// Source: Win32: VirtualQuery
    [PASSIVE_ONLY] fn VirtualQuery(address: usize, to: *mut MEMORY_BASIC_INFORMATION, length: usize) -> usize {
        system_call(|process| {
            let Some((base, pages, protection)) = process.memory.query(address) else {
                return fails(dos_error::ERROR_INVALID_PARAMETER) as usize;
            };
            if length < size_of::<MEMORY_BASIC_INFORMATION>() {
                return fails(dos_error::ERROR_INVALID_PARAMETER) as usize;
            }
            let filled = MEMORY_BASIC_INFORMATION {
                BaseAddress: pages.start,
                AllocationBase: base,
                AllocationProtect: number_of(protection),
                PartitionId: 0,
                RegionSize: pages.len(),
                State: MEM_COMMIT,
                Protect: number_of(protection),
                Type: MEM_PRIVATE,
            };
            // SAFETY: the caller's out parameter.
            unsafe { to.write(filled) };
            size_of::<MEMORY_BASIC_INFORMATION>()
        })
    }

    /// Frees a block; NULL is none.
    /// Checks: a block of the heap, freed once
    /// Source: Win32: HeapFree
    [PASSIVE_ONLY] fn HeapFree(_heap: usize, _flags: u32, block: usize) -> u32 {
        system_call(|process| {
            if block != 0 && !process.memory.heap_free(block) {
                not_of_the_heap("HeapFree", process, block);
            }
            1
        })
    }

    /// Zeroed pages, reserved and committed at once, wherever the host wants.
    /// Source: Win32: VirtualAlloc
    [PASSIVE_ONLY] fn VirtualAlloc(address: usize, bytes: usize, kind: u32, protection: u32) -> usize {
        system_call(|process| match protection_of(protection) {
            Some(protection) if address == 0 && bytes != 0 && kind & MEM_COMMIT != 0 => process.memory.allocate(bytes, protection),
            _ => fails(dos_error::ERROR_INVALID_PARAMETER) as usize,
        })
    }

    /// Gives pages of VirtualAlloc back, all at once (MEM_RELEASE). Those that a driver has locked have no access from then on and
    /// go with the last lock.
    /// Source: Win32: VirtualFree
    [PASSIVE_ONLY] fn VirtualFree(address: usize, bytes: usize, kind: u32) -> u32 {
        system_call(|process| {
            let freed = bytes == 0 && kind == MEM_RELEASE && process.memory.free(address);
            if freed { 1 } else { fails(dos_error::ERROR_INVALID_PARAMETER) }
        })
    }

    /// Changes the protection of pages.
    /// Source: Win32: VirtualProtect
    [PASSIVE_ONLY] fn VirtualProtect(address: usize, bytes: usize, protection: u32, old: *mut u32) -> u32 {
        system_call(|process| {
            let before = protection_of(protection).and_then(|protection| process.memory.protect(address, bytes, protection));
            let Some(before) = before else { return fails(dos_error::ERROR_INVALID_ADDRESS) };
            // SAFETY: the caller's out parameter.
            unsafe { old.write(number_of(before)) };
            1
        })
    }
}
