//! What a compiler expects of a run-time library: copying of memory, the entry point, the end after a panic.
//!
//! The functions are assembly so that they are not exported, and so that no compiler makes a call to themselves of them. They use
//! volatile registers and no stack, as functions without unwind information must.

use core::{
    arch::{asm, global_asm},
    ffi::c_void,
    panic::PanicInfo,
};

use crate::heap::ProcessHeap;

#[global_allocator]
static HEAP: ProcessHeap = ProcessHeap;

global_asm!(
    ".text",
    ".globl memcpy",
    ".globl memmove",
    "memcpy:",
    "memmove:",
    "mov rax, rcx",
    "mov r9, rcx",
    "sub r9, rdx",
    "cmp r9, r8",
    "jb 5f",
    "cmp r8, 8",
    "jb 3f",
    "2:",
    "mov r10, [rdx]",
    "mov [rcx], r10",
    "add rdx, 8",
    "add rcx, 8",
    "sub r8, 8",
    "cmp r8, 8",
    "jae 2b",
    "3:",
    "test r8, r8",
    "je 6f",
    "4:",
    "mov r10b, [rdx]",
    "mov [rcx], r10b",
    "inc rdx",
    "inc rcx",
    "dec r8",
    "jne 4b",
    "6:",
    "ret",
    // The destination begins inside the source: from the end.
    "5:",
    "test r8, r8",
    "je 6b",
    "mov r10b, [rdx + r8 - 1]",
    "mov [rcx + r8 - 1], r10b",
    "dec r8",
    "jmp 5b",
    ".globl memset",
    "memset:",
    "mov rax, rcx",
    "2:",
    "test r8, r8",
    "je 3f",
    "mov [rcx], dl",
    "inc rcx",
    "dec r8",
    "jmp 2b",
    "3:",
    "ret",
    ".globl memcmp",
    ".globl bcmp",
    "memcmp:",
    "bcmp:",
    "2:",
    "test r8, r8",
    "je 3f",
    "movzx eax, byte ptr [rcx]",
    "movzx r9d, byte ptr [rdx]",
    "sub eax, r9d",
    "jne 4f",
    "inc rcx",
    "inc rdx",
    "dec r8",
    "jmp 2b",
    "3:",
    "xor eax, eax",
    "4:",
    "ret",
    // Referred to by a part of the alloc library that is not used.
    ".globl strlen",
    "strlen:",
    "xor eax, eax",
    "2:",
    "cmp byte ptr [rcx + rax], 0",
    "je 3f",
    "inc rax",
    "jmp 2b",
    "3:",
    "ret",
    // The precompiled core library's unwind tables refer to it; nothing unwinds here.
    ".globl __CxxFrameHandler3",
    "__CxxFrameHandler3:",
    "xor eax, eax",
    "ret",
    ".globl softnd_entry",
    "softnd_entry:",
    "jmp {main}",
    ".section .rdata,\"dr\"",
    ".globl _fltused",
    "_fltused:",
    ".long 0x9875",
    main = sym dll_main,
);

/// DllMain: there is nothing to prepare and nothing to take down.
extern "system" fn dll_main(_module: *mut c_void, _reason: u32, _reserved: *mut c_void) -> i32 {
    1
}

/// A panic is a defect of this crate: the process ends as on a failed check (FAST_FAIL_FATAL_APP_EXIT).
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: the fast-fail interrupt ends the process and touches nothing of it.
    unsafe { asm!("int 0x29", in("ecx") 7, options(noreturn, nostack)) }
}
