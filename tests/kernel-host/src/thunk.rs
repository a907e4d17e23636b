//! Crossing between the image's stack and the host's. Image code runs on a 24 KiB kernel stack; host functions need a stack of
//! ordinary size. Every import slot of an image points at a small stub, made here at load time, that switches to the host's
//! stack, copies the stack arguments, calls the host function and switches back; `callout::call_image` goes the other way. Both
//! nest to any depth: each crossing leaves the other side's stack pointer in the thread's block, which the gs base points at
//! (glibc uses fs, gs is free).
//!
//! A crossing into the host also stores the image's non-volatile registers, because a stack trace through image frames needs
//! them and the host's own frames cannot be unwound by Windows rules.

use std::arch::{asm, global_asm};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::thread::{HOST_STACK_OFFSET, KERNEL_STACK_OFFSET, TRANSITION_OFFSET};

/// Stack arguments that a stub can copy; exports with more do not exist.
const STACK_ARGUMENT_STEPS: [usize; 4] = [0, 4, 8, 16];

// One entry per number of stack arguments. In: rax = host function (rax is volatile and carries no argument in the
// Windows convention), rsp = image stack at the entry of the import.
//
// The transition block lies directly below the host stack pointer: image rsp, rbx, rbp, rsi, rdi, r12..r15.
macro_rules! import_entry {
    ($name:literal, $slots:literal) => {
        global_asm!(
            concat!(".globl ", $name),
            concat!($name, ":"),
            "mov r10, rsp",
            "mov r11, gs:[{host}]",
            "mov gs:[{kernel}], r10",
            "sub r11, 0x50",
            "mov gs:[{transition}], r11",
            "mov [r11], r10",
            "mov [r11 + 0x08], rbx",
            "mov [r11 + 0x10], rbp",
            "mov [r11 + 0x18], rsi",
            "mov [r11 + 0x20], rdi",
            "mov [r11 + 0x28], r12",
            "mov [r11 + 0x30], r13",
            "mov [r11 + 0x38], r14",
            "mov [r11 + 0x40], r15",
            concat!("lea rsp, [r11 - 0x20 - 8 * ", $slots, "]"),
            ".set .Lslot, 0",
            concat!(".rept ", $slots),
            "mov r11, [r10 + 0x28 + 8 * .Lslot]",
            "mov [rsp + 0x20 + 8 * .Lslot], r11",
            ".set .Lslot, .Lslot + 1",
            ".endr",
            "call rax",
            concat!("mov rsp, [rsp + 0x20 + 8 * ", $slots, "]"),
            "ret",
            host = const HOST_STACK_OFFSET,
            kernel = const KERNEL_STACK_OFFSET,
            transition = const TRANSITION_OFFSET,
        );
    };
}

import_entry!("kernel_host_import_entry_0", "0");
import_entry!("kernel_host_import_entry_4", "4");
import_entry!("kernel_host_import_entry_8", "8");
import_entry!("kernel_host_import_entry_16", "16");

// rdi = target, rsi = at least four argument words, rdx = number of stack argument words (even).
global_asm!(
    ".globl kernel_host_call_image",
    "kernel_host_call_image:",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov rax, gs:[{host}]",
    "push rax",
    "mov rax, gs:[{kernel}]",
    "push rax",
    "mov rax, gs:[{transition}]",
    "push rax",
    "mov gs:[{host}], rsp",
    "mov r10, gs:[{kernel}]",
    "and r10, -16",
    "lea rax, [rdx * 8 + 0x20]",
    "sub r10, rax",
    "mov rsp, r10",
    "xor eax, eax",
    "2:",
    "cmp rax, rdx",
    "jae 3f",
    "mov r11, [rsi + 0x20 + rax * 8]",
    "mov [rsp + 0x20 + rax * 8], r11",
    "inc rax",
    "jmp 2b",
    "3:",
    "mov rax, rdi",
    "mov rcx, [rsi]",
    "mov rdx, [rsi + 0x08]",
    "mov r8, [rsi + 0x10]",
    "mov r9, [rsi + 0x18]",
    "call rax",
    ".globl kernel_host_image_returned",
    "kernel_host_image_returned:",
    "mov rsp, gs:[{host}]",
    "pop r11",
    "mov gs:[{transition}], r11",
    "pop r11",
    "mov gs:[{kernel}], r11",
    "pop r11",
    "mov gs:[{host}], r11",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    // rdi = the host stack of the callout to leave, rsi = the value that it returns. Everything between is dropped.
    ".globl kernel_host_leave_image",
    "kernel_host_leave_image:",
    "mov gs:[{host}], rdi",
    "mov rax, rsi",
    "jmp kernel_host_image_returned",
    host = const HOST_STACK_OFFSET,
    kernel = const KERNEL_STACK_OFFSET,
    transition = const TRANSITION_OFFSET,
);

unsafe extern "sysv64" {
    fn kernel_host_import_entry_0();
    fn kernel_host_import_entry_4();
    fn kernel_host_import_entry_8();
    fn kernel_host_import_entry_16();
    fn kernel_host_call_image(target: usize, arguments: *const u64, stack_slots: usize) -> u64;
    fn kernel_host_image_returned();
    fn kernel_host_leave_image(host_stack: u64, value: u64) -> !;
}

/// The return address that image code sees at the bottom of a callout: where a stack trace ends.
pub fn image_return_address() -> u64 {
    kernel_host_image_returned as *const () as u64
}

/// Calls image code at `target` on the current thread's kernel stack.
///
/// # Safety
///
/// `target` is a function of a loaded image that takes `arguments` (integers and pointers only) by the Windows
/// convention, and the thread is attached.
pub(crate) unsafe fn call_image_raw(target: usize, arguments: &[u64]) -> u64 {
    if let Ok(words) = <&[u64; 4]>::try_from(arguments) {
        // SAFETY: the caller's contract; four words.
        return unsafe { kernel_host_call_image(target, words.as_ptr(), 0) };
    }
    let mut words = [0_u64; 4 + 16];
    let count = arguments.len();
    assert!(count <= words.len(), "an image function with {count} arguments");
    words[..count].copy_from_slice(arguments);
    let stack_slots = (count.saturating_sub(4) + 1) & !1;
    // SAFETY: the caller's contract; the word array outlives the call and holds 4 + stack_slots words.
    unsafe { kernel_host_call_image(target, words.as_ptr(), stack_slots) }
}

/// Leaves the callout whose host stack pointer is `host_stack`, with `value` as its result.
///
/// # Safety
///
/// `host_stack` was stored by a callout of this thread that has not returned; every host frame above it is abandoned
/// without running destructors.
pub(crate) unsafe fn leave_image(host_stack: u64, value: u64) -> ! {
    // SAFETY: the caller's contract.
    unsafe { kernel_host_leave_image(host_stack, value) }
}

/// Where a thread goes on that leaves a callout from a signal handler: rdi is the host stack, rsi the result.
pub(crate) fn leave_image_address() -> usize {
    kernel_host_leave_image as *const () as usize
}

/// Points the gs base of the calling thread at its block.
pub(crate) fn set_gs_base(address: u64) {
    const ARCH_SET_GS: libc::c_long = 0x1001;
    // SAFETY: sets this thread's gs base, which nothing else in the process uses.
    let result = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, address) };
    assert_eq!(result, 0, "arch_prctl(ARCH_SET_GS) failed");
}

/// Reads the time stamp counter; the finest clock there is.
#[inline]
pub fn time_stamp_counter() -> u64 {
    let low: u32;
    let high: u32;
    // SAFETY: rdtsc reads a counter and touches nothing else.
    unsafe { asm!("rdtsc", out("eax") low, out("edx") high, options(nomem, nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

/// The pages that stubs are written to.
struct StubPages {
    next: usize,
    end: usize,
    /// By the function and its stack arguments.
    made: BTreeMap<(usize, usize), usize>,
    /// Those that count, by the counter and where they go on.
    counting: BTreeMap<(usize, usize), usize>,
}

static STUBS: Mutex<StubPages> =
    Mutex::new(StubPages { next: 0, end: 0, made: BTreeMap::new(), counting: BTreeMap::new() });

fn stubs() -> MutexGuard<'static, StubPages> {
    STUBS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StubPages {
    /// Writes a stub to a place of its own.
    fn place(&mut self, code: &[u8]) -> usize {
        assert!(code.len() <= STUB_SIZE, "a stub of {} bytes", code.len());
        if self.next + STUB_SIZE > self.end {
            self.grow();
        }
        let stub = self.next;
        self.next += STUB_SIZE;
        // SAFETY: the stub lies in pages that are writable, at a place that was not handed out.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), stub as *mut u8, code.len()) };
        stub
    }

    fn grow(&mut self) {
        // SAFETY: a fresh anonymous mapping.
        let pages = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                STUB_PAGES,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(pages, libc::MAP_FAILED, "no memory for import stubs");
        STUB_RANGES.lock().unwrap_or_else(PoisonError::into_inner).push(pages as usize);
        self.next = pages as usize;
        self.end = pages as usize + STUB_PAGES;
    }
}

const STUB_SIZE: usize = 32;
const STUB_PAGES: usize = 64 * 1024;

/// Whether an address is a stub, or a routine of the host that images call without one.
pub fn is_stub(address: usize) -> bool {
    let pages = STUB_RANGES.lock().unwrap_or_else(PoisonError::into_inner);
    let stub = pages.iter().any(|start| (*start..*start + STUB_PAGES).contains(&address));
    stub && address.is_multiple_of(STUB_SIZE) || crate::export::is_direct(address)
}

/// Where the pages of stubs begin.
static STUB_RANGES: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// A stub through which image code may call the host function at `address` with `arguments` arguments. The same
/// function always has the same stub, so that an image that compares function addresses sees one.
pub fn stub_for(address: *const c_void, arguments: usize) -> usize {
    let mut stubs = stubs();
    let stack_arguments = arguments.saturating_sub(4);
    let slots = STACK_ARGUMENT_STEPS.into_iter().find(|step| *step >= stack_arguments);
    let Some(slots) = slots else { panic!("an export with {arguments} arguments") };
    if let Some(stub) = stubs.made.get(&(address as usize, slots)) {
        return *stub;
    }
    let entry = match slots {
        0 => kernel_host_import_entry_0 as *const (),
        4 => kernel_host_import_entry_4 as *const (),
        8 => kernel_host_import_entry_8 as *const (),
        _ => kernel_host_import_entry_16 as *const (),
    };
    // movabs rax, address; movabs r11, entry; jmp r11
    let mut code = [0_u8; 23];
    code[..2].copy_from_slice(&[0x48, 0xB8]);
    code[2..10].copy_from_slice(&(address as u64).to_le_bytes());
    code[10..12].copy_from_slice(&[0x49, 0xBB]);
    code[12..20].copy_from_slice(&(entry as u64).to_le_bytes());
    code[20..].copy_from_slice(&[0x41, 0xFF, 0xE3]);
    let stub = stubs.place(&code);
    stubs.made.insert((address as usize, slots), stub);
    stub
}

/// A stub that counts and goes on to `target`, with every register of a call unchanged.
pub(crate) fn counting_stub(target: usize, counter: &'static AtomicU64) -> usize {
    let mut stubs = stubs();
    let key = (counter.as_ptr() as usize, target);
    if let Some(stub) = stubs.counting.get(&key) {
        return *stub;
    }
    // movabs r11, counter; lock inc qword ptr [r11]; movabs r11, target; jmp r11
    let mut code = [0_u8; 27];
    code[..2].copy_from_slice(&[0x49, 0xBB]);
    code[2..10].copy_from_slice(&(key.0 as u64).to_le_bytes());
    code[10..14].copy_from_slice(&[0xF0, 0x49, 0xFF, 0x03]);
    code[14..16].copy_from_slice(&[0x49, 0xBB]);
    code[16..24].copy_from_slice(&(target as u64).to_le_bytes());
    code[24..].copy_from_slice(&[0x41, 0xFF, 0xE3]);
    let stub = stubs.place(&code);
    stubs.counting.insert(key, stub);
    stub
}

/// Where a stub that counts goes on; any other address is its own.
pub(crate) fn behind_counter(address: usize) -> usize {
    let stubs = stubs();
    stubs.counting.iter().find(|(_, stub)| **stub == address).map_or(address, |((_, target), _)| *target)
}
