//! What compilers call: memory routines and stack probes. They run on the image's own stack.

use std::arch::global_asm;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bugcheck::{BugCheck, bugcheck};
use crate::callback::host_function;
use crate::export::DataExport;
use crate::exports;

// Touches every page down to the new stack pointer, like the Windows routine; rax holds the size and is kept, as are
// all argument registers.
global_asm!(
    ".globl kernel_host_chkstk",
    "kernel_host_chkstk:",
    "push rcx",
    "push rax",
    "cmp rax, 0x1000",
    "lea rcx, [rsp + 24]",
    "jb 3f",
    "2:",
    "sub rcx, 0x1000",
    "test [rcx], rcx",
    "sub rax, 0x1000",
    "cmp rax, 0x1000",
    "ja 2b",
    "3:",
    "sub rcx, rax",
    "test [rcx], rcx",
    "pop rax",
    "pop rcx",
    "ret",
);

unsafe extern "sysv64" {
    fn kernel_host_chkstk();
}

/// `__chkstk` takes its argument in rax, so it is bound as an address and not through a stub.
pub static DATA_EXPORTS: &[DataExport] = &[DataExport {
    module: "ntoskrnl.exe",
    name: "__chkstk",
    documentation: &[" Touches the pages of a large stack frame in order.", " Source: C: __chkstk"],
    address: kernel_host_chkstk as *const c_void,
}];

/// The stub through which `memcpy`, which runs on the image's stack, reaches [`copied_inside_itself`].
static COPIED_INSIDE_ITSELF: AtomicUsize = AtomicUsize::new(0);

/// Makes the stub, before the first image is loaded.
pub(crate) fn initialise() {
    COPIED_INSIDE_ITSELF.store(host_function(copied_inside_itself as *const c_void, 3) as usize, Ordering::SeqCst);
}

unsafe extern "win64" fn copied_inside_itself(destination: *mut u8, source: *const u8, count: usize) {
    bugcheck(
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        [0xF0, destination as u64, source as u64, count as u64],
        format!("memcpy of {count} bytes from {source:p} to {destination:p}, which overlap"),
    )
}

/// Whether two ranges share bytes. Compilers copy values onto themselves, which is harmless.
fn overlap(destination: usize, source: usize, count: usize) -> bool {
    destination != source && destination.abs_diff(source) < count
}

exports! {
    module "ntoskrnl.exe";

    /// Copies bytes.
    /// Checks: the ranges do not overlap, unless they are the same
    /// Source: C: memcpy
    [ANY; direct] fn memcpy(destination: *mut u8, source: *const u8, count: usize) -> *mut u8 {
        if crate::kernel::is_verifying() && overlap(destination as usize, source as usize, count) {
            // SAFETY: the stub of `copied_inside_itself`, made when the kernel was booted; image code runs.
            unsafe {
                let stub = COPIED_INSIDE_ITSELF.load(Ordering::Relaxed);
                std::mem::transmute::<usize, unsafe extern "win64" fn(*mut u8, *const u8, usize)>(stub)(destination, source, count);
            }
        }
        let first = crate::schedule::up_to_a_point(count);
        // SAFETY: the image's memory.
        unsafe { std::ptr::copy_nonoverlapping(source, destination, first) };
        if first < count {
            crate::schedule::inside_a_copy();
            // SAFETY: the image's memory.
            unsafe { std::ptr::copy_nonoverlapping(source.add(first), destination.add(first), count - first) };
        }
        destination
    }

    /// Source: C: memmove
    [ANY; direct] fn memmove(destination: *mut u8, source: *const u8, count: usize) -> *mut u8 {
        // SAFETY: the image's memory.
        unsafe { std::ptr::copy(source, destination, count) };
        destination
    }

    /// Source: C: memset
    [ANY; direct] fn memset(destination: *mut u8, value: i32, count: usize) -> *mut u8 {
        // SAFETY: the image's memory.
        unsafe { std::ptr::write_bytes(destination, value as u8, count) };
        destination
    }

    /// Source: C: memcmp
    [ANY; direct] fn memcmp(first: *const u8, second: *const u8, count: usize) -> i32 {
        for index in 0..count {
            // SAFETY: the image's memory.
            let (left, right) = unsafe { (first.add(index).read(), second.add(index).read()) };
            if left != right {
                return i32::from(left) - i32::from(right);
            }
        }
        0
    }

    /// How many bytes are equal from the start.
    /// Source: WDM: RtlCompareMemory
    [ANY; direct] fn RtlCompareMemory(first: *const u8, second: *const u8, count: usize) -> usize {
        for index in 0..count {
            // SAFETY: the image's memory.
            if unsafe { first.add(index).read() != second.add(index).read() } {
                return index;
            }
        }
        count
    }

    /// Exceptions are not modelled: the language handler must never be reached.
    /// Source: C: structured exception handling
    [ANY] fn __C_specific_handler(_record: *mut u8, _frame: *mut u8, _context: *mut u8, _dispatch: *mut u8) -> i32 {
        bugcheck(BugCheck::KMODE_EXCEPTION_NOT_HANDLED, [0; 4], "an exception reached a handler; the host raises none")
    }
}
