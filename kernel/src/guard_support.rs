//! What the driver kit's support library (BufferOverflowFastFailK) brings for control flow guard, where an image is built without
//! the kit: the slots through which compiled code makes its indirect calls, what is in them before the loader replaces it, and
//! the load configuration by which the loader finds slots and tables. The linker makes the tables.

use core::arch::global_asm;

// Before the loader has replaced them: no check, a plain jump. The dispatcher takes the target in rax (x64 only).
#[cfg(target_arch = "x86_64")]
global_asm!(".text", "softndk_guard_check:", "ret", "softndk_guard_dispatch:", "jmp rax");
#[cfg(target_arch = "aarch64")]
global_asm!(".text", ".p2align 2", "softndk_guard_check:", "ret", "softndk_guard_dispatch:", "br x9");

// Offsets are those of IMAGE_LOAD_CONFIG_DIRECTORY64.
global_asm!(
    ".section .00cfg,\"dr\"",
    ".p2align 3",
    ".globl __guard_check_icall_fptr",
    "__guard_check_icall_fptr:",
    ".quad softndk_guard_check",
    ".globl __guard_dispatch_icall_fptr",
    "__guard_dispatch_icall_fptr:",
    ".quad softndk_guard_dispatch",
    ".section .rdata,\"dr\"",
    ".p2align 4",
    ".globl _load_config_used",
    "_load_config_used:",
    ".long 0xC0",
    ".zero 0x6C",
    ".quad __guard_check_icall_fptr", // 0x70
    ".quad __guard_dispatch_icall_fptr",
    ".quad __guard_fids_table", // 0x80
    ".quad __guard_fids_count",
    ".long __guard_flags", // 0x90
    ".zero 0xC",
    ".quad __guard_iat_table", // 0xA0
    ".quad __guard_iat_count",
    ".quad __guard_longjmp_table",
    ".quad __guard_longjmp_count",
);
