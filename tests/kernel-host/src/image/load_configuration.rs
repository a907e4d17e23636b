//! The load configuration of an image: what the loader writes into it before its first instruction runs.
//!
//! The security cookie gets a random value where the compiler left the default one, and the two functions through which control
//! flow guard checks indirect calls become the host's, which have every loaded image's list of call targets.

use std::arch::global_asm;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bugcheck::{BugCheck, bugcheck};
use crate::callback::host_function;
use crate::thunk;

/// What the compiler puts where the loader is to put a random number.
const DEFAULT_COOKIE: u64 = 0x0000_2B99_2DDF_A232;
const COOKIE: usize = 0x58;
const GUARD_CHECK: usize = 0x70;
const GUARD_DISPATCH: usize = 0x78;
const GUARD_TABLE: usize = 0x80;
const GUARD_COUNT: usize = 0x88;
const GUARD_FLAGS: usize = 0x90;
const IMAGE_GUARD_CF_INSTRUMENTED: u32 = 0x100;
const IMAGE_GUARD_CF_FUNCTION_TABLE_PRESENT: u32 = 0x400;

/// Where an image's indirect calls may go to: offsets of functions, ascending. `None`: it was built without the guard.
pub(crate) type CallTargets = Option<Vec<u32>>;

/// An image's memory while it is made, at the address where it will run.
struct Memory<'image> {
    bytes: &'image mut [u8],
    base: usize,
}

impl Memory<'_> {
    fn word(&self, offset: usize) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes.get(offset..offset.checked_add(8)?)?.try_into().ok()?))
    }

    fn half(&self, offset: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes.get(offset..offset.checked_add(4)?)?.try_into().ok()?))
    }

    /// The word at an address that another word names; 0 names nothing.
    fn write_at(&mut self, address: u64, value: u64) {
        let Some(offset) = (address as usize).checked_sub(self.base).filter(|_| address != 0) else { return };
        if let Some(field) = self.bytes.get_mut(offset..offset + 8) {
            field.copy_from_slice(&value.to_le_bytes());
        }
    }
}

/// Writes what the configuration at `directory` requires and returns the image's call targets.
pub(crate) fn apply(bytes: &mut [u8], base: usize, directory: usize) -> CallTargets {
    let mut memory = Memory { bytes, base };
    let size = memory.half(directory)? as usize;
    // A structure that ends before a field does not have it.
    let field = |memory: &Memory<'_>, offset: usize| (offset + 8 <= size).then(|| memory.word(directory + offset))?;
    if let Some(cookie) = field(&memory, COOKIE)
        && memory.word((cookie as usize).wrapping_sub(base)) == Some(DEFAULT_COOKIE)
    {
        memory.write_at(cookie, random_cookie());
    }
    let flags = if size >= GUARD_FLAGS + 4 { memory.half(directory + GUARD_FLAGS)? } else { 0 };
    if flags & IMAGE_GUARD_CF_INSTRUMENTED == 0 {
        return None;
    }
    initialise_guard();
    let (check, dispatch) = (field(&memory, GUARD_CHECK)?, field(&memory, GUARD_DISPATCH)?);
    memory.write_at(check, kernel_host_guard_check as *const () as u64);
    memory.write_at(dispatch, kernel_host_guard_dispatch as *const () as u64);
    if flags & IMAGE_GUARD_CF_FUNCTION_TABLE_PRESENT == 0 {
        return None;
    }
    let (table, count) = (field(&memory, GUARD_TABLE)? as usize, field(&memory, GUARD_COUNT)? as usize);
    let step = 4 + (flags >> 28) as usize;
    let targets = (0..count).map_while(|index| memory.half(table.wrapping_sub(base) + index * step));
    let mut targets: Vec<u32> = targets.collect();
    targets.sort_unstable();
    Some(targets)
}

/// 48 random bits that are not the default: the check requires the upper 16 to be zero.
fn random_cookie() -> u64 {
    loop {
        let cookie = thunk::time_stamp_counter().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16;
        if cookie != 0 && cookie != DEFAULT_COOKIE {
            return cookie;
        }
    }
}

// The check takes the target in rcx and returns; the dispatch takes it in rax and jumps there. Both leave every register of
// the call alone. A wrong target goes on to a stub, as if the image had called an import there.
global_asm!(
    ".globl kernel_host_guard_dispatch",
    "kernel_host_guard_dispatch:",
    // Free at a call: r10, r11 and the flags.
    // The target's place, as `known_place`.
    "mov r11, rax",
    "mov r10, rax",
    "shr r11, 4",
    "shr r10, 17",
    "xor r11, r10",
    "and r11d, {last}",
    "lea r10, [rip + {known}]",
    "cmp rax, [r10 + r11 * 8]",
    "jne 6f",
    "jmp rax",
    "6:",
    "call 7f",
    "jne 8f",
    "jmp rax",
    ".globl kernel_host_guard_check",
    "kernel_host_guard_check:",
    "push rax",
    "mov rax, rcx",
    "call 7f",
    "pop rax",
    "jne 9f",
    "ret",
    "8:",
    "mov rcx, rax",
    "9:",
    "mov rax, [rip + {wrong}]",
    "jmp rax",
    // rax: the target. Sets the zero flag when it is good.
    "7:",
    "push rax",
    "push rcx",
    "push rdx",
    "push r8",
    "push r9",
    "push r10",
    "push r11",
    "push rdi",
    "push rsi",
    "push rbx",
    "mov rbx, rsp",
    "sub rsp, 0x100",
    "and rsp, -16",
    "movups [rsp], xmm0",
    "movups [rsp + 0x10], xmm1",
    "movups [rsp + 0x20], xmm2",
    "movups [rsp + 0x30], xmm3",
    "movups [rsp + 0x40], xmm4",
    "movups [rsp + 0x50], xmm5",
    "movups [rsp + 0x60], xmm6",
    "movups [rsp + 0x70], xmm7",
    "movups [rsp + 0x80], xmm8",
    "movups [rsp + 0x90], xmm9",
    "movups [rsp + 0xA0], xmm10",
    "movups [rsp + 0xB0], xmm11",
    "movups [rsp + 0xC0], xmm12",
    "movups [rsp + 0xD0], xmm13",
    "movups [rsp + 0xE0], xmm14",
    "movups [rsp + 0xF0], xmm15",
    "mov rdi, rax",
    "cld",
    "call {is_good}",
    "movups xmm0, [rsp]",
    "movups xmm1, [rsp + 0x10]",
    "movups xmm2, [rsp + 0x20]",
    "movups xmm3, [rsp + 0x30]",
    "movups xmm4, [rsp + 0x40]",
    "movups xmm5, [rsp + 0x50]",
    "movups xmm6, [rsp + 0x60]",
    "movups xmm7, [rsp + 0x70]",
    "movups xmm8, [rsp + 0x80]",
    "movups xmm9, [rsp + 0x90]",
    "movups xmm10, [rsp + 0xA0]",
    "movups xmm11, [rsp + 0xB0]",
    "movups xmm12, [rsp + 0xC0]",
    "movups xmm13, [rsp + 0xD0]",
    "movups xmm14, [rsp + 0xE0]",
    "movups xmm15, [rsp + 0xF0]",
    "cmp al, 1",
    "mov rsp, rbx",
    "pop rbx",
    "pop rsi",
    "pop rdi",
    "pop r11",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdx",
    "pop rcx",
    "pop rax",
    "ret",
    is_good = sym is_good_target,
    wrong = sym WRONG_TARGET,
    known = sym KNOWN_TARGETS,
    last = const KNOWN_MAX - 1,
);

/// Places for targets that were found good, by their address: most calls go where one went before.
const KNOWN_MAX: usize = 4096;
static KNOWN_TARGETS: [AtomicUsize; KNOWN_MAX] = [const { AtomicUsize::new(0) }; KNOWN_MAX];

/// Functions of two images may lie equally far from a multiple of all places; what lies above that tells them apart.
fn known_place(target: usize) -> usize {
    (target >> 4 ^ target >> 17) % KNOWN_MAX
}

/// An image is being unloaded: its targets are not good any more.
pub(super) fn forget_known_targets() {
    for place in &KNOWN_TARGETS {
        place.store(0, Ordering::SeqCst);
    }
}

unsafe extern "sysv64" {
    fn kernel_host_guard_check();
    fn kernel_host_guard_dispatch();
}

static WRONG_TARGET: AtomicUsize = AtomicUsize::new(0);

fn initialise_guard() {
    WRONG_TARGET.store(host_function(wrong_target as *const c_void, 1) as usize, Ordering::SeqCst);
}

/// Runs on the image's stack, so it is short.
extern "sysv64" fn is_good_target(target: usize) -> bool {
    let good = super::is_call_target(target).unwrap_or_else(|| thunk::is_stub(target));
    if good && let Some(place) = KNOWN_TARGETS.get(known_place(target)) {
        place.store(target, Ordering::Relaxed);
    }
    good
}

unsafe extern "win64" fn wrong_target(target: u64) {
    const FAST_FAIL_GUARD_ICALL_CHECK_FAILURE: u64 = 10;
    bugcheck(
        BugCheck::KERNEL_SECURITY_CHECK_FAILURE,
        [FAST_FAIL_GUARD_ICALL_CHECK_FAILURE, target, 0, 0],
        format!("control flow guard: an indirect call goes to {target:#x}, which is the start of no function"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: usize = 0x1_4000_0000;

    /// A configuration at 0x100, the cookie at 0x10, the guard's slots at 0x20 and 0x28, a table of two at 0x40.
    fn image(size: u32, flags: u32) -> Vec<u8> {
        let mut bytes = vec![0; 0x200];
        bytes[0x100..0x104].copy_from_slice(&size.to_le_bytes());
        let words = [(COOKIE, 0x10), (GUARD_CHECK, 0x20), (GUARD_DISPATCH, 0x28), (GUARD_TABLE, 0x40)];
        for (field, target) in words {
            bytes[0x100 + field..0x108 + field].copy_from_slice(&((BASE + target) as u64).to_le_bytes());
        }
        bytes[0x100 + GUARD_COUNT] = 2;
        bytes[0x100 + GUARD_FLAGS..0x104 + GUARD_FLAGS].copy_from_slice(&flags.to_le_bytes());
        bytes[0x10..0x18].copy_from_slice(&DEFAULT_COOKIE.to_le_bytes());
        // A stride of five: offset and a byte of flags.
        bytes[0x40..0x4A].copy_from_slice(&[0x90, 0, 0, 0, 1, 0x80, 0, 0, 0, 0]);
        bytes
    }

    fn word(bytes: &[u8], offset: usize) -> u64 {
        u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight"))
    }

    #[test]
    fn a_default_cookie_becomes_a_random_one_and_no_other() {
        let mut bytes = image(0x60, 0);
        assert_eq!(apply(&mut bytes, BASE, 0x100), None);
        let cookie = word(&bytes, 0x10);
        assert!(cookie != DEFAULT_COOKIE && cookie >> 48 == 0);
        assert_eq!(apply(&mut bytes, BASE, 0x100), None);
        assert_eq!(word(&bytes, 0x10), cookie, "a cookie that is set already stays");
    }

    #[test]
    fn a_guarded_image_names_its_call_targets_and_gets_the_hosts_functions() {
        let flags = 0x1000_0000 | IMAGE_GUARD_CF_INSTRUMENTED | IMAGE_GUARD_CF_FUNCTION_TABLE_PRESENT;
        let mut bytes = image(0xC0, flags);
        assert_eq!(apply(&mut bytes, BASE, 0x100), Some(vec![0x80, 0x90]));
        assert_eq!(word(&bytes, 0x20), kernel_host_guard_check as *const () as u64);
        assert_eq!(word(&bytes, 0x28), kernel_host_guard_dispatch as *const () as u64);
    }
}
