//! Traps of the processor: the kind, the instruction, and what about the instruction caused it. A general protection fault
//! carries no address, so the address is computed from the operands.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Formatter as _, Instruction, InstructionInfoFactory, MasmFormatter,
    Mnemonic, OpAccess, OpKind, Register,
};

use crate::bugcheck::BugCheck;
use crate::memory::address_space;
use crate::status;

/// The longest instruction.
const LONGEST: usize = 15;

const BREAKPOINT: u64 = 3;
const DIVIDE_ERROR: u64 = 0;
const DEBUG: u64 = 1;
const INVALID_OPCODE: u64 = 6;
const STACK_FAULT: u64 = 12;
const GENERAL_PROTECTION: u64 = 13;
pub(crate) const PAGE_FAULT: u64 = 14;
const X87_ERROR: u64 = 16;
const ALIGNMENT_CHECK: u64 = 17;
const SIMD_ERROR: u64 = 19;

/// The sixteen registers in the order in which instructions number them.
pub(crate) const NAMES: [&str; 16] =
    ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];

/// A trap as the processor delivered it.
pub(crate) struct Trap {
    pub number: u64,
    /// The error code that the processor pushed.
    pub error: u64,
    /// The instruction pointer that it saved.
    pub pointer: u64,
    /// By [`NAMES`].
    pub registers: [u64; 16],
    /// Bytes at the instruction: of a breakpoint those of the `int 3` before the saved pointer.
    pub code: Vec<u8>,
}

/// The text of a report about a trap.
pub(crate) struct Described {
    pub code: BugCheck,
    pub parameters: [u64; 4],
    pub rule: String,
}

/// The name of a trap.
pub(crate) fn name(number: u64) -> &'static str {
    match number {
        DIVIDE_ERROR => "divide error",
        DEBUG => "debug",
        BREAKPOINT => "breakpoint",
        4 => "overflow",
        5 => "bound range exceeded",
        INVALID_OPCODE => "invalid opcode",
        7 => "device not available",
        8 => "double fault",
        10 => "invalid TSS",
        11 => "segment not present",
        STACK_FAULT => "stack segment",
        GENERAL_PROTECTION => "general protection",
        PAGE_FAULT => "page fault",
        X87_ERROR => "x87 floating point",
        ALIGNMENT_CHECK => "alignment check",
        18 => "machine check",
        SIMD_ERROR => "SIMD floating point",
        _ => "unknown",
    }
}

/// How far the saved pointer lies behind the instruction: a breakpoint is reported after it has run.
pub(crate) fn bytes_behind(number: u64) -> u64 {
    u64::from(number == BREAKPOINT)
}

impl Trap {
    /// "trap 13 (general protection)".
    pub(crate) fn title(&self) -> String {
        format!("trap {} ({})", self.number, name(self.number))
    }

    /// The address of the instruction.
    pub(crate) fn address(&self) -> u64 {
        self.pointer - bytes_behind(self.number)
    }

    fn decoded(&self) -> Option<Instruction> {
        let mut decoder = Decoder::with_ip(64, &self.code, self.address(), DecoderOptions::NONE);
        let instruction = decoder.decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// The instruction as text, where there is one.
    pub(crate) fn instruction(&self) -> Option<String> {
        self.decoded().map(|instruction| text(&instruction))
    }

    /// The values of the registers that the instruction reads, as text.
    pub(crate) fn operands(&self) -> String {
        let Some(instruction) = self.decoded() else { return String::new() };
        let mut factory = InstructionInfoFactory::new();
        let mut found: Vec<usize> = Vec::new();
        for used in factory.info(&instruction).used_registers() {
            if let Some(index) = index_of(used.register())
                && matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite)
                && !found.contains(&index)
            {
                found.push(index);
            }
        }
        let values = found.into_iter().map(|index| format!("{} = {:#x}", NAMES[index], self.registers[index]));
        values.collect::<Vec<_>>().join(", ")
    }

    /// Everything but a page fault. `who` names the owner of the code that trapped.
    pub(crate) fn describe(&self, who: &str) -> Described {
        let (status, cause, information) = self.cause(who);
        let code = BugCheck::KMODE_EXCEPTION_NOT_HANDLED;
        let parameters = [u64::from(status as u32), self.address(), information[0], information[1]];
        Described { code, parameters, rule: format!("{}: {cause} ({})", self.title(), status::text(status)) }
    }

    fn cause(&self, who: &str) -> (i32, String, [u64; 2]) {
        let instruction = self.decoded();
        let shown = instruction.as_ref().map_or_else(|| "bytes that are no instruction".to_owned(), quoted);
        match self.number {
            DIVIDE_ERROR => {
                let zero = instruction.as_ref().is_some_and(|instruction| self.divides_by_zero(instruction));
                let what = if zero { "a division by 0" } else { "a quotient that does not fit, or a division by 0" };
                (status::STATUS_INTEGER_DIVIDE_BY_ZERO, format!("{shown} is {what}"), [0; 2])
            }
            BREAKPOINT => {
                let text = format!("{shown}, a breakpoint (DbgBreakPoint, __debugbreak) without a debugger");
                (status::STATUS_BREAKPOINT, text, [0; 2])
            }
            DEBUG => (status::STATUS_SINGLE_STEP, format!("{shown}: {who} set the trap flag or runs icebp"), [0; 2]),
            INVALID_OPCODE => {
                let ud2 = instruction.as_ref().is_some_and(|instruction| instruction.mnemonic() == Mnemonic::Ud2);
                let why = if ud2 {
                    "which compilers put where a program must not get to (an abort, a failed check)"
                } else {
                    "which this processor does not run"
                };
                (status::STATUS_ILLEGAL_INSTRUCTION, format!("{shown}, {why}"), [0; 2])
            }
            X87_ERROR | SIMD_ERROR => (
                status::STATUS_FLOAT_MULTIPLE_TRAPS,
                format!("{shown}: a floating-point exception that {who} has unmasked"),
                [0; 2],
            ),
            ALIGNMENT_CHECK => (status::STATUS_DATATYPE_MISALIGNMENT, format!("{shown}: misaligned"), [0; 2]),
            _ => self.protection(who, instruction.as_ref(), &shown),
        }
    }

    /// General protection, and the stack segment's fault, which is the same through rsp or rbp.
    fn protection(&self, who: &str, instruction: Option<&Instruction>, shown: &str) -> (i32, String, [u64; 2]) {
        const NO_ADDRESS: [u64; 2] = [0, u64::MAX];
        if let Some(vector) = self.software_interrupt(instruction) {
            return interrupt(vector, shown);
        }
        let Some(instruction) = instruction else {
            return (status::STATUS_ACCESS_VIOLATION, format!("{who} executes {shown}"), NO_ADDRESS);
        };
        if instruction.is_privileged() {
            let text = format!(
                "{shown} is privileged. Windows runs drivers at ring 0; the kernel host does not, and of privileged \
                 instructions it emulates moves of CR8 only"
            );
            return (status::STATUS_PRIVILEGED_INSTRUCTION, text, [0; 2]);
        }
        for (address, length, writes) in self.memory_of(instruction) {
            let verb = if writes { "writes" } else { "reads" };
            if !is_canonical(address) {
                let text = format!(
                    "{shown} {verb} {address:#x}, which is not canonical: no address at all, so {who} uses something \
                     else as a pointer"
                );
                return (status::STATUS_ACCESS_VIOLATION, text, [u64::from(writes), u64::MAX]);
            }
            let boundary = alignment(length);
            if instruction.mnemonic() != Mnemonic::Movups && !address.is_multiple_of(boundary) {
                let text = format!(
                    "{shown} {verb} {address:#x}, which is not a multiple of {boundary}, as this instruction needs"
                );
                return (status::STATUS_ACCESS_VIOLATION, text, [u64::from(writes), u64::MAX]);
            }
        }
        if let Some(target) = self.target_of(instruction).filter(|target| !is_canonical(*target)) {
            let text = if instruction.flow_control() == FlowControl::Return {
                format!("{shown} returns to {target:#x}, which is not canonical: the stack was overwritten")
            } else {
                format!("{shown} goes to {target:#x}, which is not canonical: no function pointer")
            };
            return (status::STATUS_ACCESS_VIOLATION, text, NO_ADDRESS);
        }
        (status::STATUS_ACCESS_VIOLATION, format!("{who} may not execute {shown}"), NO_ADDRESS)
    }

    /// The vector of an `int n` that no process may raise: the error code names the gate.
    fn software_interrupt(&self, instruction: Option<&Instruction>) -> Option<u8> {
        let instruction = instruction.filter(|instruction| instruction.code() == Code::Int_imm8)?;
        (self.error == u64::from(instruction.immediate8()) * 8 + 2).then(|| instruction.immediate8())
    }

    /// The places in memory that an instruction touches: address, length, whether it writes.
    fn memory_of(&self, instruction: &Instruction) -> Vec<(u64, usize, bool)> {
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(instruction);
        let places = info.used_memory().iter().filter_map(|memory| {
            let address = memory.virtual_address(0, |register, _, _| match register {
                // The bases of flat segments; those of fs and gs are not a driver's.
                Register::ES | Register::CS | Register::SS | Register::DS => Some(0),
                register => self.value_of(register),
            })?;
            let writes = matches!(memory.access(), OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite);
            Some((address, memory.memory_size().size(), writes))
        });
        places.collect()
    }

    /// Where an indirect call or jump, or a return, goes.
    fn target_of(&self, instruction: &Instruction) -> Option<u64> {
        let from_memory = |address: u64| {
            // SAFETY: memory of the kernel that is mapped and readable, as the address space says.
            address_space::frame_at(address as usize).map(|_| unsafe { (address as *const u64).read_unaligned() })
        };
        match instruction.flow_control() {
            FlowControl::Return => from_memory(self.registers[4]),
            FlowControl::IndirectCall | FlowControl::IndirectBranch => match instruction.op0_kind() {
                OpKind::Register => self.value_of(instruction.op0_register()),
                OpKind::Memory => self.memory_of(instruction).first().and_then(|place| from_memory(place.0)),
                _ => None,
            },
            _ => None,
        }
    }

    fn divides_by_zero(&self, instruction: &Instruction) -> bool {
        instruction.op0_kind() == OpKind::Register && self.value_of(instruction.op0_register()) == Some(0)
    }

    /// The value of a general register or a part of one.
    fn value_of(&self, register: Register) -> Option<u64> {
        if register == Register::RIP {
            return Some(self.address());
        }
        let whole = self.registers[index_of(register)?];
        Some(match register.size() {
            8 => whole,
            4 => whole & 0xFFFF_FFFF,
            2 => whole & 0xFFFF,
            _ if matches!(register, Register::AH | Register::BH | Register::CH | Register::DH) => whole >> 8 & 0xFF,
            _ => whole & 0xFF,
        })
    }
}

/// A gate that Windows has and a process has not.
fn interrupt(vector: u8, shown: &str) -> (i32, String, [u64; 2]) {
    match vector {
        0x2C => {
            let text = format!("{shown}, an assertion of the driver that failed (NT_ASSERT)");
            (status::STATUS_ASSERTION_FAILURE, text, [0; 2])
        }
        0x2D => (status::STATUS_BREAKPOINT, format!("{shown}, a call of a debugger that is not there"), [0; 2]),
        _ => (status::STATUS_ACCESS_VIOLATION, format!("{shown}, an interrupt that Windows has no use for"), [0; 2]),
    }
}

fn index_of(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register().number())
}

fn text(instruction: &Instruction) -> String {
    let mut formatter = MasmFormatter::new();
    formatter.options_mut().set_space_after_operand_separator(true);
    formatter.options_mut().set_rip_relative_addresses(true);
    let mut text = String::new();
    formatter.format(instruction, &mut text);
    text
}

fn quoted(instruction: &Instruction) -> String {
    format!("`{}`", text(instruction))
}

/// The boundary that instructions without an unaligned form need for memory of a length.
fn alignment(length: usize) -> u64 {
    match length {
        16 | 32 | 64 => length as u64,
        0..16 => 1,
        _ => 16,
    }
}

/// Bits 47 to 63 are equal.
fn is_canonical(address: u64) -> bool {
    matches!(address as i64 >> 47, 0 | -1)
}

/// The instruction at an address of executable memory, at most up to `end`: as much of it as can be read. A page of pageable
/// code is inaccessible at raised levels; the kernel of Linux reads the bytes, which fails without a second fault.
pub(crate) fn code_at(address: usize, end: usize) -> Vec<u8> {
    let mut code = vec![0u8; end.saturating_sub(address).min(LONGEST)];
    let local = libc::iovec { iov_base: code.as_mut_ptr().cast(), iov_len: code.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: code.len() };
    // SAFETY: writes at most `code.len()` bytes to `code`; what is not readable at `address` is an error or a short count.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    code.truncate(usize::try_from(read).unwrap_or(0));
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trap(number: u64, error: u64, code: &[u8], registers: &[(usize, u64)]) -> Trap {
        let mut all = [0x1000; 16];
        for (index, value) in registers {
            all[*index] = *value;
        }
        Trap { number, error, pointer: 0x40_0000, registers: all, code: code.to_vec() }
    }

    #[track_caller]
    fn says(trap: &Trap, status: u32, words: &[&str]) {
        let described = trap.describe("the driver");
        assert_eq!(described.parameters[0], u64::from(status), "{}", described.rule);
        for word in words {
            assert!(described.rule.contains(word), "no {word:?} in {}", described.rule);
        }
    }

    #[test]
    fn interrupts_are_told_from_addresses() {
        says(&trap(13, 0x162, &[0xCD, 0x2C], &[]), 0xC000_0420, &["trap 13", "`int 2Ch`", "NT_ASSERT"]);
        says(&trap(13, 0x16A, &[0xCD, 0x2D], &[]), 0x8000_0003, &["`int 2Dh`"]);
        let mut three = trap(3, 0, &[0xCC], &[]);
        three.pointer += 1;
        says(&three, 0x8000_0003, &["trap 3 (breakpoint)", "`int 3`"]);
        assert_eq!(three.describe("").parameters[1], 0x40_0000);
    }

    #[test]
    fn addresses_come_from_the_operands() {
        // mov rax, [rcx + 8]
        let wild = trap(13, 0, &[0x48, 0x8B, 0x41, 0x08], &[(1, 0x4141_4141_4141_4141)]);
        says(&wild, 0xC000_0005, &["reads 0x4141414141414149", "not canonical", "`mov rax, [rcx+8]`"]);
        assert_eq!(wild.operands(), "rcx = 0x4141414141414141");
        // mov [rbp], rax: the stack segment
        let stack = trap(12, 0, &[0x48, 0x89, 0x45, 0x00], &[(5, 0x8000_0000_0000)]);
        says(&stack, 0xC000_0005, &["trap 12 (stack segment)", "writes 0x800000000000", "not canonical"]);
        // call rax
        let call = trap(13, 0, &[0xFF, 0xD0], &[(0, 0x8000_0000_0000)]);
        says(&call, 0xC000_0005, &["goes to 0x800000000000", "no function pointer"]);
    }

    #[test]
    fn alignment_and_privilege() {
        // movaps [rsp + 8], xmm0
        let moved = trap(13, 0, &[0x0F, 0x29, 0x44, 0x24, 0x08], &[(4, 0x2000)]);
        says(&moved, 0xC000_0005, &["writes 0x2008", "not a multiple of 16", "`movaps"]);
        says(&trap(13, 0, &[0xF4], &[]), 0xC000_0096, &["`hlt` is privileged"]);
        says(&trap(13, 0, &[0xFA], &[]), 0xC000_0096, &["`cli` is privileged"]);
        // mov cr3, rax
        says(&trap(13, 0, &[0x0F, 0x22, 0xD8], &[]), 0xC000_0096, &["`mov cr3, rax` is privileged"]);
    }

    #[test]
    fn other_traps_have_their_own_status() {
        // idiv ecx, ud2
        says(&trap(0, 0, &[0xF7, 0xF9], &[(1, 0)]), 0xC000_0094, &["trap 0 (divide error)", "a division by 0"]);
        says(&trap(6, 0, &[0x0F, 0x0B], &[]), 0xC000_001D, &["trap 6 (invalid opcode)", "`ud2`", "must not get to"]);
    }
}
