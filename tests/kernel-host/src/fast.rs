//! Fast twins of exports. In fast mode an import slot of a frequent leaf routine (levels, spin locks, the processor's number,
//! the clock, rundown protection) names code of a few instructions that runs on the image's own stack, as the routine does on Windows. It does the common
//! case only; for all else (contention, a level that the routine does not allow, a DPC to run, a processor that has to be
//! waited for) it jumps to the export's ordinary stub and has changed nothing by then, so that what is checked and reported is
//! what the export checks and reports.
//!
//! A twin keeps what the export keeps: the lock word holds its owner, the level and the number of held locks are those of the
//! thread, and a level of DISPATCH owns the processor, by the way of [`crate::processor`]'s favourites. It does not record itself as the
//! thread's last export.
//!
//! The thread's block is at the gs base. Twins use the volatile registers rax, rcx, rdx and r8 to r11 only, and the arguments
//! are unchanged when they jump to label 9.

#![allow(non_upper_case_globals, reason = "a twin carries the name of its export")]

use std::arch::naked_asm;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::dispatcher;
use crate::dpc::{TYPE_DPC, YIELD_AFTER};
use crate::export::{self, ExportDeclaration};
use crate::level_charge::SLED;
use crate::machine_clock;
use crate::nt::{KDPC, KLOCK_QUEUE_HANDLE};
use crate::spin_lock::{HELD, QUEUED};
use crate::{processor, thread};

/// The twin of one export.
#[repr(C)]
pub struct FastTwin {
    /// The export's ordinary stub.
    ordinary: AtomicUsize,
    entry: unsafe extern "win64" fn(),
}

impl FastTwin {
    /// Where image code enters it.
    pub fn entry(&self) -> usize {
        self.entry as usize
    }

    /// Whether an address lies in its code.
    fn contains(&self, address: usize) -> bool {
        let entry = self.entry();
        (entry..entry + LONGEST).contains(&address) && address < self.end()
    }

    /// Behind its last instruction, `jmp [rip + distance]` through the word that names the stub.
    fn end(&self) -> usize {
        const JUMP: usize = 6;
        let stub = &raw const self.ordinary as usize;
        let is_last = |at: &usize| {
            // SAFETY: the twin's code, which ends with the instruction that is looked for.
            let (opcode, distance) =
                unsafe { (*(*at as *const [u8; 2]), (*at as *const i32).byte_add(2).read_unaligned()) };
            opcode == [0xFF, 0x25] && (at + JUMP).wrapping_add_signed(distance as isize) == stub
        };
        let entry = self.entry();
        (entry..entry + LONGEST).find(is_last).map_or(entry, |at| at + JUMP)
    }

    /// The entry, for an import slot; `ordinary` is where it goes in all but the common case.
    pub(crate) fn bind(&self, ordinary: usize) -> usize {
        self.ordinary.store(ordinary, Ordering::Relaxed);
        self.entry()
    }
}

/// More bytes than a twin has.
const LONGEST: usize = 512;

/// The export whose twin an address lies in.
pub(crate) fn twin_at(address: usize) -> Option<&'static ExportDeclaration> {
    let mut exports = export::TABLES.iter().copied().flatten();
    exports.find(|export| export.fast.is_some_and(|twin| twin.contains(address)))
}

/// Whether images get twins: fast mode, without a schedule, whose points lie in the exports, and without counts, which want every call.
pub(crate) fn is_on() -> bool {
    !crate::kernel::is_verifying() && !crate::schedule::is_on() && !crate::import_counts::is_on()
}

/// A twin: its instructions, which end in `ret` or a jump to 9, where the ordinary stub is.
macro_rules! twin {
    ($name:ident: $($line:expr),+ $(,)?) => {
        pub static $name: FastTwin = {
            #[unsafe(naked)]
            unsafe extern "win64" fn entry() {
                naked_asm!(
                    $($line,)+
                    "9:",
                    "jmp qword ptr [rip + {ordinary}]",
                    // Every twin has every operand; a comment uses those that it does not.
                    "/* {this} {irql} {locks} {processor} {at_favourite} {charged} {favourite} {queue} {deferred} {sled} */",
                    "/* {index} {held} {queued} {lock} {old} {dpc} {dpc_mark} {yield_after} */",
                    "/* {scale} {ticks} {units} {shift} {skipped} {frequency} */",
                    ordinary = sym $name,
                    this = const thread::SELF_OFFSET,
                    irql = const thread::IRQL_OFFSET,
                    locks = const thread::SPIN_LOCKS_OFFSET,
                    processor = const thread::PROCESSOR_BLOCK_OFFSET,
                    at_favourite = const thread::AT_FAVOURITE_OFFSET,
                    charged = const thread::CHARGED_OFFSET,
                    index = const thread::PROCESSOR_INDEX_OFFSET,
                    favourite = const processor::FAVOURITE_OFFSET,
                    queue = const processor::QUEUE_LENGTH_OFFSET,
                    deferred = const processor::DEFERRED_CALL_OFFSET,
                    sled = sym SLED,
                    held = const HELD,
                    queued = const HELD | QUEUED,
                    lock = const std::mem::offset_of!(KLOCK_QUEUE_HANDLE, Lock),
                    old = const std::mem::offset_of!(KLOCK_QUEUE_HANDLE, OldIrql),
                    dpc = const TYPE_DPC,
                    dpc_mark = const std::mem::offset_of!(KDPC, DpcData),
                    yield_after = const YIELD_AFTER,
                    scale = sym machine_clock::SCALE,
                    ticks = sym machine_clock::TICKS,
                    units = sym machine_clock::UNITS,
                    shift = const machine_clock::SHIFT,
                    skipped = sym dispatcher::SKIPPED,
                    frequency = const dispatcher::UNITS_PER_SECOND,
                )
            }
            FastTwin { ordinary: AtomicUsize::new(0), entry }
        };
    };
}

/// Begins to take the processor: r9 becomes the thread and r10 the processor, whose favourite the thread has to be. As
/// `processor::acquire_as_favourite`; `processor_is_ours` ends it.
macro_rules! take_processor {
    () => {
        "mov r9, gs:[{this}]
        mov r10, gs:[{processor}]
        cmp [r10 + {favourite}], r9
        jne 9f
        mov byte ptr gs:[{at_favourite}], 1"
    };
}

/// Jumps to 6, to `give_processor_back`, when the favour was taken away meanwhile.
macro_rules! processor_is_ours {
    () => {
        "cmp [r10 + {favourite}], r9
        jne 6f"
    };
}

macro_rules! give_processor_back {
    () => {
        "6:
        mov byte ptr gs:[{at_favourite}], 0"
    };
}

/// Jumps to 9 unless the processor can be left without more ado: its favourite leaves, no DPC runs and none is queued. As
/// `processor::release`.
macro_rules! can_leave_processor {
    () => {
        "cmp byte ptr gs:[{at_favourite}], 0
        je 9f
        mov r10, gs:[{processor}]
        cmp qword ptr [r10 + {deferred}], 0
        jne 9f
        cmp dword ptr [r10 + {queue}], 0
        jne 9f"
    };
}

/// What a change of the level costs, see `level_charge`. Uses r11, which is 0 after it.
macro_rules! charge {
    () => {
        "cmp qword ptr [rip + {sled}], 0
        je 8f
        mov r11, gs:[{charged}]
        call qword ptr [rip + {sled}]
        mov gs:[{charged}], r11
        add rsp, r11
        8:"
    };
}

/// Takes the free lock at rcx for the thread in r9, or jumps to `$busy`. Uses rax and r11.
macro_rules! take_lock {
    ($bits:literal, $busy:literal) => {
        concat!("lea r11, [r9 + ", $bits, "]\nxor eax, eax\nlock cmpxchg [rcx], r11\njne ", $busy)
    };
}

/// Jumps to 9 unless the thread holds the lock at rcx and is at DISPATCH. Uses r9 and r11.
macro_rules! holds_lock {
    ($bits:literal) => {
        concat!(
            "mov r9, gs:[{this}]\nlea r11, [r9 + ",
            $bits,
            "]\ncmp [rcx], r11\njne 9f\ncmp byte ptr gs:[{irql}], 2\njne 9f"
        )
    };
}

twin! {
    KeGetCurrentIrql:
    "movzx eax, byte ptr gs:[{irql}]",
    "ret",
}

twin! {
    KfRaiseIrql:
    "movzx eax, byte ptr gs:[{irql}]",
    "cmp cl, al",
    "jb 9f",
    "je 4f",
    "cmp al, 2",
    "jae 3f",
    "cmp cl, 2",
    "jb 3f",
    take_processor!(),
    processor_is_ours!(),
    "3:",
    charge!(),
    "mov byte ptr gs:[{irql}], cl",
    "4:",
    "ret",
    give_processor_back!(),
}

twin! {
    KeRaiseIrqlToDpcLevel:
    "movzx eax, byte ptr gs:[{irql}]",
    "cmp al, 2",
    "ja 9f",
    "je 4f",
    take_processor!(),
    processor_is_ours!(),
    charge!(),
    "mov byte ptr gs:[{irql}], 2",
    "4:",
    "ret",
    give_processor_back!(),
}

macro_rules! lower_twin {
    ($name:ident) => {
        twin! {
            $name:
            "movzx eax, byte ptr gs:[{irql}]",
            "cmp cl, al",
            "ja 9f",
            "je 4f",
            "cmp cl, 2",
            "jae 3f",
            "cmp al, 2",
            "jb 3f",
            "cmp dword ptr gs:[{locks}], 0",
            "jne 9f",
            can_leave_processor!(),
            charge!(),
            "mov byte ptr gs:[{at_favourite}], 0",
            "mov byte ptr gs:[{irql}], cl",
            "ret",
            "3:",
            charge!(),
            "mov byte ptr gs:[{irql}], cl",
            "4:",
            "ret",
        }
    };
}

lower_twin!(KeLowerIrql);
lower_twin!(KfLowerIrql);

// The lock is taken before the thread is sure of its processor; if it is not, it gives the lock back and begins again in the
// export. Until then others find the lock held for a moment, as they would find it held by the export.
twin! {
    KeAcquireSpinLockRaiseToDpc:
    "movzx r8d, byte ptr gs:[{irql}]",
    "cmp r8b, 2",
    "jae 3f",
    take_processor!(),
    take_lock!("{held}", "6f"),
    "cmp [r10 + {favourite}], r9",
    "jne 5f",
    charge!(),
    "mov byte ptr gs:[{irql}], 2",
    "inc dword ptr gs:[{locks}]",
    "mov eax, r8d",
    "ret",
    "3:",
    "ja 9f",
    "mov r9, gs:[{this}]",
    take_lock!("{held}", "9f"),
    "inc dword ptr gs:[{locks}]",
    "mov eax, 2",
    "ret",
    "5:",
    "mov qword ptr [rcx], 0",
    give_processor_back!(),
}

twin! {
    KeReleaseSpinLock:
    holds_lock!("{held}"),
    "cmp dl, 2",
    "jae 3f",
    "cmp dword ptr gs:[{locks}], 1",
    "jne 9f",
    can_leave_processor!(),
    "mov dword ptr gs:[{locks}], 0",
    "mov qword ptr [rcx], 0",
    charge!(),
    "mov byte ptr gs:[{at_favourite}], 0",
    "mov byte ptr gs:[{irql}], dl",
    "ret",
    "3:",
    "ja 9f",
    "dec dword ptr gs:[{locks}]",
    "mov qword ptr [rcx], 0",
    "ret",
}

twin! {
    KeAcquireSpinLockAtDpcLevel:
    "cmp byte ptr gs:[{irql}], 2",
    "jb 9f",
    "mov r9, gs:[{this}]",
    take_lock!("{held}", "9f"),
    "inc dword ptr gs:[{locks}]",
    "ret",
}

twin! {
    KeReleaseSpinLockFromDpcLevel:
    holds_lock!("{held}"),
    "dec dword ptr gs:[{locks}]",
    "mov qword ptr [rcx], 0",
    "ret",
}

twin! {
    KeAcquireInStackQueuedSpinLock:
    "movzx r8d, byte ptr gs:[{irql}]",
    "cmp r8b, 2",
    "jae 3f",
    take_processor!(),
    take_lock!("{queued}", "6f"),
    "cmp [r10 + {favourite}], r9",
    "jne 5f",
    charge!(),
    "mov byte ptr gs:[{irql}], 2",
    "2:",
    "inc dword ptr gs:[{locks}]",
    "mov qword ptr [rdx], 0",
    "mov [rdx + {lock}], rcx",
    "mov [rdx + {old}], r8b",
    "ret",
    "3:",
    "ja 9f",
    "mov r9, gs:[{this}]",
    take_lock!("{queued}", "9f"),
    "jmp 2b",
    "5:",
    "mov qword ptr [rcx], 0",
    give_processor_back!(),
}

twin! {
    KeReleaseInStackQueuedSpinLock:
    "mov rdx, rcx",
    "mov rcx, [rdx + {lock}]",
    "mov r8b, [rdx + {old}]",
    "test rcx, rcx",
    "jz 4f",
    "mov r9, gs:[{this}]",
    "lea r11, [r9 + {queued}]",
    "cmp [rcx], r11",
    "jne 4f",
    "cmp byte ptr gs:[{irql}], 2",
    "jne 4f",
    "cmp r8b, 2",
    "je 3f",
    "ja 4f",
    "cmp dword ptr gs:[{locks}], 1",
    "jne 4f",
    "cmp byte ptr gs:[{at_favourite}], 0",
    "je 4f",
    "mov r10, gs:[{processor}]",
    "cmp qword ptr [r10 + {deferred}], 0",
    "jne 4f",
    "cmp dword ptr [r10 + {queue}], 0",
    "jne 4f",
    "mov qword ptr [rdx + {lock}], 0",
    "mov dword ptr gs:[{locks}], 0",
    "mov qword ptr [rcx], 0",
    charge!(),
    "mov byte ptr gs:[{at_favourite}], 0",
    "mov byte ptr gs:[{irql}], r8b",
    "ret",
    "3:",
    "mov qword ptr [rdx + {lock}], 0",
    "dec dword ptr gs:[{locks}]",
    "mov qword ptr [rcx], 0",
    "ret",
    "4:",
    "mov rcx, rdx",
}

twin! {
    KeGetCurrentProcessorNumberEx:
    "mov eax, dword ptr gs:[{index}]",
    "test rcx, rcx",
    "jz 3f",
    // Group 0, the number in the third byte.
    "mov edx, eax",
    "shl edx, 16",
    "mov [rcx], edx",
    "3:",
    "ret",
}

// The word counts users by two; its lowest bit says that rundown has begun.
twin! {
    ExAcquireRundownProtection:
    "cmp byte ptr gs:[{irql}], 2",
    "ja 9f",
    "mov rax, [rcx]",
    "3:",
    "test al, 1",
    "jnz 9f",
    "lea rdx, [rax + 2]",
    "lock cmpxchg [rcx], rdx",
    "jne 3b",
    "mov eax, 1",
    "ret",
}

twin! {
    ExReleaseRundownProtection:
    "cmp byte ptr gs:[{irql}], 2",
    "ja 9f",
    "mov rax, [rcx]",
    "3:",
    "test al, 1",
    "jnz 9f",
    "cmp rax, 2",
    "jb 9f",
    "lea rdx, [rax - 2]",
    "lock cmpxchg [rcx], rdx",
    "jne 3b",
    "ret",
}

// FALSE for a DPC that is queued. What the caller wrote before is there for the DPC, as behind the export's exchange: the
// locked operation is a barrier.
twin! {
    KeInsertQueueDpc:
    "cmp byte ptr [rcx], {dpc}",
    "jne 9f",
    "cmp qword ptr [rcx + {dpc_mark}], 0",
    "je 9f",
    "lock or dword ptr [rsp], 0",
    "cmp qword ptr [rcx + {dpc_mark}], 0",
    "je 9f",
    "xor eax, eax",
    "ret",
}

// A DPC that asks for the first time notes when.
twin! {
    KeShouldYieldProcessor:
    "mov r10, gs:[{processor}]",
    "mov r11, [r10 + {deferred}]",
    "xor eax, eax",
    "test r11, r11",
    "jz 3f",
    "rdtsc",
    "shl rdx, 32",
    "or rax, rdx",
    "cmp r11, 1",
    "je 4f",
    "sub rax, r11",
    "cmp rax, {yield_after}",
    "seta al",
    "movzx eax, al",
    "3:",
    "ret",
    "4:",
    "mov [r10 + {deferred}], rax",
    "xor eax, eax",
    "ret",
}

// As `machine_clock::now`.
twin! {
    KeQueryPerformanceCounter:
    "mov r8, [rip + {scale}]",
    "test r8, r8",
    "jz 9f",
    "test rcx, rcx",
    "jz 3f",
    "mov qword ptr [rcx], {frequency}",
    "3:",
    "rdtsc",
    "shl rdx, 32",
    "or rax, rdx",
    "sub rax, [rip + {ticks}]",
    "mul r8",
    "shrd rax, rdx, {shift}",
    "add rax, [rip + {units}]",
    "add rax, [rip + {skipped}]",
    "ret",
}
