//! Processors: how many, which one, and staying on one.

use std::sync::atomic::Ordering;

use crate::exports;
use crate::fast;
use crate::nt::{GROUP_AFFINITY, PROCESSOR_NUMBER};
use crate::processor;
use crate::status::{NtStatus, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use crate::thread::Thread;

const ALL_PROCESSOR_GROUPS: u16 = 0xFFFF;
const INVALID_PROCESSOR_INDEX: u32 = 0xFFFF_FFFF;

exports! {
    module "ntoskrnl.exe";

    /// The processor the thread is on; stable at DISPATCH.
    /// Source: WDM: KeGetCurrentProcessorNumberEx
    [ANY, fast = fast::KeGetCurrentProcessorNumberEx] fn KeGetCurrentProcessorNumberEx(number: *mut PROCESSOR_NUMBER) -> u32 {
        let index = Thread::current().processor();
        if !number.is_null() {
            // SAFETY: the image's output.
            unsafe { number.write(PROCESSOR_NUMBER { Group: 0, Number: index as u8, Reserved: 0 }) };
        }
        index as u32
    }

    /// Processors of a group, or of all.
    /// Source: WDM: KeQueryActiveProcessorCountEx
    [ANY] fn KeQueryActiveProcessorCountEx(group: u16) -> u32 {
        if group == 0 || group == ALL_PROCESSOR_GROUPS { processor::count() as u32 } else { 0 }
    }

    /// Processors of group 0.
    /// Source: WDM: KeQueryActiveProcessorCount
    [ANY] fn KeQueryActiveProcessorCount(active: *mut u64) -> u32 {
        if !active.is_null() {
            // SAFETY: the image's output.
            unsafe { active.write((1_u64 << processor::count()).wrapping_sub(1)) };
        }
        processor::count() as u32
    }

    /// The most processors there will ever be.
    /// Source: WDM: KeQueryMaximumProcessorCountEx
    [ANY] fn KeQueryMaximumProcessorCountEx(group: u16) -> u32 {
        if group == 0 || group == ALL_PROCESSOR_GROUPS { processor::count() as u32 } else { 0 }
    }

    /// Group and number of a processor's index.
    /// Source: WDM: KeGetProcessorNumberFromIndex
    [ANY] fn KeGetProcessorNumberFromIndex(index: u32, number: *mut PROCESSOR_NUMBER) -> NtStatus {
        if index as usize >= processor::count() {
            return STATUS_INVALID_PARAMETER;
        }
        // SAFETY: the image's output.
        unsafe { number.write(PROCESSOR_NUMBER { Group: 0, Number: index as u8, Reserved: 0 }) };
        STATUS_SUCCESS
    }

    /// The index of a group and number.
    /// Source: WDM: KeGetProcessorIndexFromNumber
    [ANY] fn KeGetProcessorIndexFromNumber(number: *const PROCESSOR_NUMBER) -> u32 {
        // SAFETY: the image's input.
        let number = unsafe { number.read() };
        let valid = number.Group == 0 && usize::from(number.Number) < processor::count();
        if valid { u32::from(number.Number) } else { INVALID_PROCESSOR_INDEX }
    }

    /// Restricts the thread to some processors.
    /// Source: WDM: KeSetSystemGroupAffinityThread
    [UP_TO_APC] fn KeSetSystemGroupAffinityThread(affinity: *const GROUP_AFFINITY, previous: *mut GROUP_AFFINITY) {
        // SAFETY: the image's structures.
        unsafe {
            let old = set_affinity((*affinity).Mask);
            if !previous.is_null() {
                previous.write(GROUP_AFFINITY { Mask: old, Group: 0, Reserved: [0; 3] });
            }
        }
    }

    /// Goes back to the processors before.
    /// Source: WDM: KeRevertToUserGroupAffinityThread
    [UP_TO_APC] fn KeRevertToUserGroupAffinityThread(previous: *const GROUP_AFFINITY) {
        // SAFETY: the image's structure.
        let mask = unsafe { (*previous).Mask };
        set_affinity(if mask == 0 { u64::MAX } else { mask });
    }
}

fn set_affinity(mask: u64) -> u64 {
    let thread = Thread::current();
    let possible = mask & (1_u64 << processor::count()).wrapping_sub(1);
    let old = thread.affinity.load(Ordering::Relaxed);
    if possible != 0 {
        thread.affinity.store(possible, Ordering::Relaxed);
        if possible >> thread.processor() & 1 == 0 {
            thread.set_processor(possible.trailing_zeros() as usize);
        }
    }
    old
}
