//! Instructions of the kernel that trap in a process: reading and writing CR8, which is the level on x64; reading the page that
//! the kernel shares with user programs, whose address no process can map; and the fast-fail interrupt.
//!
//! The fault handler tries these first. A read is done in place. A write of CR8 may run DPCs, which a signal handler must not:
//! the interrupted code is sent through a routine that saves every volatile register and calls the host as an import does.

use std::arch::global_asm;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bugcheck::{BugCheck, bugcheck};
use crate::callback::host_function;
use crate::irql;
use crate::thread::Thread;
use crate::{dispatcher, kernel, status, timer};

/// `KI_USER_SHARED_DATA`.
const SHARED_PAGE: usize = 0xFFFF_F780_0000_0000;
const SHARED_PAGE_LENGTH: usize = 0x1000;
/// A tick: 1 / 64 s, in units of 100 ns.
const TICK: u64 = 156_250;

// In: the value at [rsp], the address behind the instruction at [rsp + 8]. Everything is as it was afterwards, the flags
// included, and both words are gone.
global_asm!(
    ".globl kernel_host_write_cr8",
    "kernel_host_write_cr8:",
    "pushfq",
    "push rax",
    "push rcx",
    "push rdx",
    "push r8",
    "push r9",
    "push r10",
    "push r11",
    "push rbx",
    "mov rbx, rsp",
    "mov rcx, [rsp + 0x48]",
    "sub rsp, 0x60",
    "and rsp, -16",
    "movups [rsp], xmm0",
    "movups [rsp + 0x10], xmm1",
    "movups [rsp + 0x20], xmm2",
    "movups [rsp + 0x30], xmm3",
    "movups [rsp + 0x40], xmm4",
    "movups [rsp + 0x50], xmm5",
    "sub rsp, 0x20",
    "mov rax, [rip + {write}]",
    "cld",
    "call rax",
    "add rsp, 0x20",
    "movups xmm0, [rsp]",
    "movups xmm1, [rsp + 0x10]",
    "movups xmm2, [rsp + 0x20]",
    "movups xmm3, [rsp + 0x30]",
    "movups xmm4, [rsp + 0x40]",
    "movups xmm5, [rsp + 0x50]",
    "mov rsp, rbx",
    "pop rbx",
    "pop r11",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdx",
    "pop rcx",
    "pop rax",
    "popfq",
    "lea rsp, [rsp + 8]",
    "ret",
    write = sym WRITE_LEVEL,
);

unsafe extern "sysv64" {
    fn kernel_host_write_cr8();
}

/// The stub through which the routine above reaches [`write_level`].
static WRITE_LEVEL: AtomicUsize = AtomicUsize::new(0);

/// Makes the stub, before the first image is loaded.
pub(crate) fn initialise() {
    WRITE_LEVEL.store(host_function(write_level as *const c_void, 1) as usize, Ordering::SeqCst);
}

unsafe extern "win64" fn write_level(level: u64) {
    let Ok(level) = irql::Irql::try_from(level) else { wrong_level(level) };
    if level > irql::HIGH {
        wrong_level(u64::from(level));
    }
    if level > irql::current() {
        irql::raise(level);
    } else {
        irql::lower(level);
    }
}

fn wrong_level(level: u64) -> ! {
    bugcheck(
        BugCheck::KMODE_EXCEPTION_NOT_HANDLED,
        [0xC000_0096, level, 0, 0],
        format!("{level} is written to CR8, which holds 0 to 15"),
    )
}

/// The registers in the order in which instructions number them.
pub(crate) const REGISTERS: [libc::c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// The longest instruction.
const LONGEST: usize = 15;

/// Does what the interrupted instruction of an image would have done; false when it is none of those here.
///
/// # Safety
///
/// `context` is that of a signal which an image's instruction caused, `fault` the address that the system reports.
pub(crate) unsafe fn emulate(context: &mut libc::ucontext_t, fault: usize) -> bool {
    let registers = &mut context.uc_mcontext.gregs;
    let place = registers[libc::REG_RIP as usize] as usize;
    let Some(image) = crate::image::containing(place) else { return false };
    let Some(section) = image.section(place) else { return false };
    let length = (section.address + section.length - place).min(LONGEST);
    // SAFETY: executable and so readable memory of an image, up to the end of its section.
    let code = unsafe { std::slice::from_raw_parts(place as *const u8, length) };
    match decode(code) {
        Some(Instruction::ReadLevel { register }) => {
            registers[REGISTERS[register] as usize] = i64::from(Thread::current().irql());
            registers[libc::REG_RIP as usize] += 4;
            true
        }
        Some(Instruction::WriteLevel { register }) => {
            let value = registers[REGISTERS[register] as usize];
            // SAFETY: the image's own stack, which has no red zone below its pointer.
            unsafe { send_through_write(registers, value) };
            true
        }
        Some(Instruction::FastFail) => fast_fail(registers[libc::REG_RCX as usize] as u32),
        Some(Instruction::Load(load)) if (SHARED_PAGE..SHARED_PAGE + SHARED_PAGE_LENGTH).contains(&fault) => {
            load_shared(registers, load, fault - SHARED_PAGE);
            true
        }
        _ => false,
    }
}

/// Continues the interrupted code in the routine that writes the level, which comes back behind the instruction.
///
/// # Safety
///
/// The stack pointer is the image's.
unsafe fn send_through_write(registers: &mut [libc::greg_t], value: i64) {
    let behind = registers[libc::REG_RIP as usize] + 4;
    let stack = registers[libc::REG_RSP as usize] - 16;
    // SAFETY: the caller's contract; a stack that is full faults and is reported as that.
    unsafe {
        (stack as *mut i64).write(value);
        (stack as *mut i64).add(1).write(behind);
    }
    registers[libc::REG_RSP as usize] = stack;
    registers[libc::REG_RIP as usize] = kernel_host_write_cr8 as *const () as i64;
}

fn fast_fail(code: u32) -> ! {
    let what = match code {
        2 => "the security cookie on the stack was overwritten",
        3 => "a list entry is corrupt",
        10 => "an indirect call goes where control flow guard does not allow it",
        _ => "the driver found itself corrupt",
    };
    bugcheck(
        BugCheck::KERNEL_SECURITY_CHECK_FAILURE,
        [u64::from(code), 0, 0, 0],
        format!("fast fail {code} ({}): {what}", status::fast_fail_name(code)),
    )
}

/// What is known of the page, as bytes.
fn shared_page() -> [u8; 0x340] {
    let mut page = [0; 0x340];
    let mut put = |offset: usize, bytes: &[u8]| page[offset..offset + bytes.len()].copy_from_slice(bytes);
    // KSYSTEM_TIME: low word, high word, high word again.
    let mut put_time = |offset: usize, time: u64| {
        put(offset, &time.to_le_bytes());
        put(offset + 8, &((time >> 32) as u32).to_le_bytes());
    };
    let now = dispatcher::now();
    put_time(0x08, now);
    put_time(0x14, timer::system_time());
    put_time(0x320, now / TICK);
    put(0x260, &kernel::build_number().to_le_bytes());
    put(0x26C, &10_u32.to_le_bytes());
    page
}

fn load_shared(registers: &mut [libc::greg_t], load: Load, offset: usize) {
    let page = shared_page();
    let byte = |index: usize| page.get(offset + index).copied().unwrap_or(0);
    let mut value = 0_u64;
    for index in 0..load.width {
        value |= u64::from(byte(index)) << (8 * index);
    }
    let register = &mut registers[REGISTERS[load.register] as usize];
    *register = match load.keeps {
        // Writing the low word of a register clears the high one; shorter parts leave the rest as it was.
        0 => value as i64,
        bits => (*register & !((1_i64 << bits) - 1)) | value as i64,
    };
    registers[libc::REG_RIP as usize] += load.length as i64;
}

/// An instruction that is emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instruction {
    ReadLevel { register: usize },
    WriteLevel { register: usize },
    FastFail,
    Load(Load),
}

/// A move from memory into a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    register: usize,
    /// Bytes read.
    width: usize,
    /// How many low bits of the register it writes, where it leaves the others alone.
    keeps: u32,
    length: usize,
}

fn decode(code: &[u8]) -> Option<Instruction> {
    match *code {
        [rex @ 0x44..=0x47, 0x0F, direction @ (0x20 | 0x22), modrm, ..] if modrm & 0xF8 == 0xC0 => {
            let register = usize::from(modrm & 7) | usize::from(rex & 1) << 3;
            Some(if direction == 0x20 {
                Instruction::ReadLevel { register }
            } else {
                Instruction::WriteLevel { register }
            })
        }
        [0xCD, 0x29, ..] => Some(Instruction::FastFail),
        _ => decode_load(code).map(Instruction::Load),
    }
}

fn decode_load(code: &[u8]) -> Option<Load> {
    let mut at = 0;
    let short = *code.first()? == 0x66;
    at += usize::from(short);
    let rex = code.get(at).copied().filter(|byte| byte & 0xF0 == 0x40).unwrap_or(0);
    at += usize::from(rex != 0);
    let width = if rex & 8 != 0 {
        8
    } else if short {
        2
    } else {
        4
    };
    let keeps = if short { 16 } else { 0 };
    let (width, keeps, opcode) = match (*code.get(at)?, code.get(at + 1).copied()) {
        (0x8B, _) => (width, keeps, 1),
        (0x8A, _) => (1, 8, 1),
        (0x0F, Some(0xB6)) => (1, keeps, 2),
        (0x0F, Some(0xB7)) => (2, 0, 2),
        // mov rax, [address]
        (0xA1, _) => return Some(Load { register: 0, width, keeps, length: at + 9 }),
        (0xA0, _) => return Some(Load { register: 0, width: 1, keeps: 8, length: at + 9 }),
        _ => return None,
    };
    at += opcode;
    let modrm = *code.get(at)?;
    let register = usize::from(modrm >> 3 & 7) | usize::from(rex & 4) << 1;
    // Without a REX prefix the byte registers 4 to 7 are the high halves of the first four.
    if keeps == 8 && rex == 0 && register >= 4 {
        return None;
    }
    Some(Load { register, width, keeps, length: at + 1 + operand_length(modrm, code.get(at + 1).copied())? })
}

/// Bytes behind the ModRM byte of an operand in memory.
fn operand_length(modrm: u8, sib: Option<u8>) -> Option<usize> {
    let (mode, base) = (modrm >> 6, modrm & 7);
    let index = usize::from(base == 4);
    let no_base = base == 4 && sib? & 7 == 5;
    match mode {
        0 if base == 5 || no_base => Some(index + 4),
        0 => Some(index),
        1 => Some(index + 1),
        2 => Some(index + 4),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_of_the_level_name_their_register() {
        assert_eq!(decode(&[0x44, 0x0F, 0x20, 0xC0]), Some(Instruction::ReadLevel { register: 0 }));
        assert_eq!(decode(&[0x45, 0x0F, 0x20, 0xC7]), Some(Instruction::ReadLevel { register: 15 }));
        assert_eq!(decode(&[0x44, 0x0F, 0x22, 0xC1]), Some(Instruction::WriteLevel { register: 1 }));
        // CR0 and a move to memory are not emulated.
        assert_eq!(decode(&[0x0F, 0x20, 0xC0, 0x90]), None);
        assert_eq!(decode(&[0x44, 0x0F, 0x20, 0x40]), None);
    }

    #[test]
    fn loads_of_every_width_and_form() {
        let load = |register, width, keeps, length| Some(Instruction::Load(Load { register, width, keeps, length }));
        // mov rax, [rax]; mov ecx, [rdx + 8]; mov r9d, [rbx + rcx * 4 + 0x100]
        assert_eq!(decode(&[0x48, 0x8B, 0x00]), load(0, 8, 0, 3));
        assert_eq!(decode(&[0x8B, 0x4A, 0x08]), load(1, 4, 0, 3));
        assert_eq!(decode(&[0x44, 0x8B, 0x8C, 0x8B, 0, 1, 0, 0]), load(9, 4, 0, 8));
        // mov ax, [rsi]; mov dl, [rdi]; movzx eax, byte [rax]; movzx r8d, word [r12]
        assert_eq!(decode(&[0x66, 0x8B, 0x06]), load(0, 2, 16, 3));
        assert_eq!(decode(&[0x8A, 0x17]), load(2, 1, 8, 2));
        assert_eq!(decode(&[0x0F, 0xB6, 0x00]), load(0, 1, 0, 3));
        assert_eq!(decode(&[0x45, 0x0F, 0xB7, 0x04, 0x24]), load(8, 2, 0, 5));
        // mov rax, [0xFFFFF78000000008]
        assert_eq!(decode(&[0x48, 0xA1, 8, 0, 0, 0, 0x80, 0xF7, 0xFF, 0xFF]), load(0, 8, 0, 10));
        // mov ah, [rax] and a store are not emulated.
        assert_eq!(decode(&[0x8A, 0x20]), None);
        assert_eq!(decode(&[0x48, 0x89, 0x00]), None);
    }
}
