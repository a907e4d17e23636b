//! Turns faults into bugchecks. An access that faults, in image code or in an export that followed an image's pointer, is
//! identified: freed pool, guard page, unmapped MDL, guard page of a kernel stack, or none of these.
//!
//! The handler runs on a signal stack of its own per thread and never returns, so it may do what a signal handler otherwise may
//! not; it only tries locks that the interrupted code may hold.

use std::io::{Cursor, Write};
use std::ptr;

use framehop::x86_64::{Reg, UnwindRegsX86_64};

use crate::bugcheck::{self, BugCheck, Fault, bugcheck_of_fault};
use crate::deferred_budget;
use crate::emulation;
use crate::export;
use crate::fast;
use crate::image::stack_trace::{self, Registers};
use crate::irql;
use crate::memory::address_space::{self, Zone};
use crate::memory::{first_touch, mdl, paged, pool};
use crate::processor;
use crate::step;
use crate::thread::Thread;
use crate::thunk;
use crate::trap::{self, Described, Trap};
use crate::user;

const SIGNAL_STACK: usize = 1 << 20;

/// In the error code of a page fault: the access was a write.
const WRITE_FAULT: i64 = 1 << 1;

/// Installs the handler for the process.
pub(crate) fn install() {
    // SAFETY: a zeroed sigaction is a valid one to fill in.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP] {
        // SAFETY: installs a handler of the right signature.
        let result = unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
        assert_eq!(result, 0, "sigaction failed");
    }
}

/// The signal by which a thread is asked for its stack.
fn interrupt_signal() -> libc::c_int {
    libc::SIGRTMIN() + 1
}

/// Installs the handler of [`interrupt`].
pub(crate) fn install_interrupt() {
    install_restarting(interrupt_signal(), be_interrupted);
}

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Installs the handler of a signal after which a system call goes on.
fn install_restarting(signal: libc::c_int, handler: Handler) {
    // SAFETY: a zeroed sigaction is a valid one to fill in.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: installs a handler of the right signature.
    let result = unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    assert_eq!(result, 0, "sigaction failed");
}

/// Interrupts a thread, by its number, to have it check the DPC that it runs. Nothing happens in the host's code, which may
/// hold what a report needs.
pub(crate) fn interrupt(task: libc::pid_t) {
    // SAFETY: a signal to a thread of this process, or to none any more; its handler is installed.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), task, interrupt_signal()) };
}

extern "C" fn be_interrupted(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands over the context of this thread, which is this handler's to change.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let registers = registers(context);
    let image = crate::image::containing(registers.instruction as usize);
    if let Some(host_stack) = image.filter(|image| image.kind.is_user()).and_then(|_| user::leaves_from()) {
        user::record_interrupted(stack_trace::addresses_of_fault(registers));
        leave_image(context, host_stack);
        return;
    }
    if let Some(thread) = Thread::try_current()
        && crate::image::containing(registers.instruction as usize).is_some()
    {
        deferred_budget::interrupted(thread, || stack_trace::of_fault(registers));
    }
}

/// The signal by which a thread begins to trap after each instruction.
fn step_signal() -> libc::c_int {
    libc::SIGRTMIN() + 2
}

/// Installs the handler of [`request_steps`].
pub(crate) fn install_steps() {
    install_restarting(step_signal(), begin_steps);
}

/// Has a thread, by its number, step from now on; false when it has ended.
pub(crate) fn request_steps(task: libc::pid_t) -> bool {
    // SAFETY: a signal to a thread of this process, or to none any more; its handler is installed.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), task, step_signal()) == 0 }
}

extern "C" fn begin_steps(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands over the context of this thread, which is this handler's to change.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    step::begin(&mut context.uc_mcontext.gregs[libc::REG_EFL as usize]);
}

/// Gives the calling thread a stack for signals.
pub(crate) fn install_signal_stack() {
    // SAFETY: a fresh anonymous mapping, kept as long as the thread (and the process).
    let memory = unsafe {
        libc::mmap(
            ptr::null_mut(),
            SIGNAL_STACK,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return;
    }
    let stack = libc::stack_t { ss_sp: memory, ss_flags: 0, ss_size: SIGNAL_STACK };
    // SAFETY: the memory is the thread's own.
    unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) };
}

/// Gives the thread's signal stack back.
pub(crate) fn remove_signal_stack() {
    let off = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
    // SAFETY: a zeroed stack_t is a valid one to fill in.
    let mut old: libc::stack_t = unsafe { std::mem::zeroed() };
    // SAFETY: switches the thread's signal stack off; the old one is unused from then on.
    unsafe {
        if libc::sigaltstack(&raw const off, &raw mut old) == 0 && !old.ss_sp.is_null() && old.ss_size == SIGNAL_STACK {
            libc::munmap(old.ss_sp, SIGNAL_STACK);
        }
    }
}

extern "C" fn handle(signal: libc::c_int, information: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands over both structures.
    let (place, instruction, writes, trap) = unsafe {
        let registers = &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let writes = registers[libc::REG_ERR as usize] & WRITE_FAULT != 0;
        let trap = registers[libc::REG_TRAPNO as usize];
        ((*information).si_addr() as usize, registers[libc::REG_RIP as usize] as usize, writes, trap)
    };
    // SAFETY: the kernel hands over the context of this thread, which is this handler's to change.
    let flags = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_EFL as usize] };
    if step::stepped(signal, trap, instruction, flags) {
        return;
    }
    if signal == libc::SIGSEGV
        && first_touch::is_on()
        && first_touch::touched(place, writes, crate::image::containing(instruction).is_some())
    {
        return;
    }
    // SAFETY: as above.
    let too_high = match unsafe { pageable(signal, &*information, &*context.cast::<libc::ucontext_t>()) } {
        paged::PageFault::BroughtIn => return,
        paged::PageFault::TooHigh(code, rule) => Some((code, rule)),
        paged::PageFault::Other => None,
    };
    // SAFETY: the kernel hands over both structures, and the context is this thread's to change.
    let emulated = signal == libc::SIGSEGV
        && too_high.is_none()
        && Thread::try_current().is_some()
        && unsafe { emulation::emulate(&mut *context.cast::<libc::ucontext_t>(), (*information).si_addr() as usize) };
    if emulated {
        return;
    }
    let mutable_context = context.cast::<libc::ucontext_t>();
    // SAFETY: as above.
    let (address, sent, context) = unsafe {
        ((*information).si_addr() as usize, (*information).si_code <= 0, &*context.cast::<libc::ucontext_t>())
    };
    let registers = registers(context);
    let in_image = crate::image::containing(registers.instruction as usize).is_some();
    if sent || Thread::try_current().is_none() || (!in_image && !fault_of_export(signal)) {
        // A defect of the host or of the test, not of an image: say what it is, and let the default action end the process.
        // SAFETY: the kernel hands over the structure.
        say_defect(signal, unsafe { (*information).si_code }, trap, instruction, address);
        // SAFETY: restores the default; the instruction faults again on return.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    let frames = stack_trace::of_fault(registers);
    let trap = trap_of(context);
    let of_host = !in_image && is_host_code(registers.instruction as usize);
    let runs_code = in_image || of_host;
    let who = who(of_host, registers);
    let described = if let Some((code, rule)) = too_high {
        let writes = u64::from(trap.error & 2 != 0);
        Described { code, parameters: [address as u64, writes, trap.pointer, 0], rule }
    } else if trap.number == trap::PAGE_FAULT {
        explain(address, trap.error & 2 != 0, trap.error & 16 != 0, &trap, &who)
    } else {
        trap.describe(&who)
    };
    if user::is_contained() {
        user::faulted(&trap.title(), &described.rule, &frames);
        if let Some(host_stack) = user::leaves_from() {
            // SAFETY: the kernel hands over the context of this thread, which is this handler's to change.
            leave_image(unsafe { &mut *mutable_context }, host_stack);
            return;
        }
    }
    let fault = Fault {
        trap: trap.title(),
        number: trap.number,
        instruction: if runs_code { trap.instruction() } else { None },
        operands: if runs_code { trap.operands() } else { String::new() },
        registers: trap::NAMES.into_iter().zip(trap.registers).chain([("rip", trap.pointer)]).collect(),
        of_image: !of_host,
    };
    bugcheck_of_fault(described.code, described.parameters, &described.rule, &frames, &fault)
}

/// Allocates nothing: the interrupted code may be inside the allocator.
fn say_defect(signal: libc::c_int, reason: libc::c_int, trap: i64, instruction: usize, address: usize) {
    let mut line = Cursor::new([0_u8; 160]);
    let _ = writeln!(
        line,
        "the host itself: signal {signal}, code {reason}, trap {trap} at {instruction:#x}, address {address:#x}"
    );
    let length = line.position() as usize;
    bugcheck::write_to_standard_error(&line.get_ref()[..length]);
}

/// Has the thread go on where the callout ends whose host stack this is, instead of where it was interrupted.
fn leave_image(context: &mut libc::ucontext_t, host_stack: u64) {
    const DIRECTION_FLAG: i64 = 1 << 10;
    let registers = &mut context.uc_mcontext.gregs;
    registers[libc::REG_RIP as usize] = thunk::leave_image_address() as i64;
    registers[libc::REG_RDI as usize] = host_stack as i64;
    registers[libc::REG_RSI as usize] = 0;
    registers[libc::REG_EFL as usize] &= !DIRECTION_FLAG;
}

/// The owner of the instruction: the driver, or an export that followed a pointer of the driver.
fn who(of_host: bool, registers: Registers) -> String {
    let image = crate::image::containing(registers.instruction as usize);
    if let Some(program) = image.filter(|image| image.kind.is_user()) {
        return format!("the user program in {}", program.name);
    }
    if !of_host {
        return "the driver".to_owned();
    }
    let thread = Thread::try_current();
    // An export that runs on the driver's stack is not recorded when it is entered; its call is.
    let twin = fast::twin_at(registers.instruction as usize).map(|export| export.name);
    let name = match thread.and_then(|thread| stack_trace::called_directly(thread, registers)) {
        _ if twin.is_some() => twin,
        Some(target) => export::direct_name(thunk::behind_counter(target)),
        None => thread.and_then(Thread::last_export).map(|export| export.name),
    };
    let caller = if user::call::runs_program() { "the user program" } else { "the driver" };
    name.map_or_else(|| "the host".to_owned(), |name| format!("{name}, which is given a pointer by {caller},"))
}

/// The trap, with the bytes of its instruction as far as they can be read.
fn trap_of(context: &libc::ucontext_t) -> Trap {
    let register = |index: libc::c_int| context.uc_mcontext.gregs[index as usize] as u64;
    let (number, pointer) = (register(libc::REG_TRAPNO), register(libc::REG_RIP));
    let at = (pointer - trap::bytes_behind(number).min(pointer)) as usize;
    let end = crate::image::containing(at)
        .and_then(|image| image.section(at).map(|section| section.address + section.length))
        .or_else(|| is_host_code(at).then(|| at.saturating_add(16)));
    let code = end.map_or_else(Vec::new, |end| trap::code_at(at, end));
    Trap { number, error: register(libc::REG_ERR), pointer, registers: emulation::REGISTERS.map(register), code }
}

/// Whether an address lies in the program itself or in its libraries: nothing that an image could have made up.
fn is_host_code(address: usize) -> bool {
    // SAFETY: a zeroed structure is one to fill in.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: looks an address up in the list of loaded objects.
    unsafe { libc::dladdr(address as *const libc::c_void, &raw mut found) != 0 }
}

/// Brings pageable memory in, or reports that the access may not be made at this level.
fn pageable(signal: libc::c_int, information: &libc::siginfo_t, context: &libc::ucontext_t) -> paged::PageFault {
    if signal != libc::SIGSEGV {
        return paged::PageFault::Other;
    }
    let error = context.uc_mcontext.gregs[libc::REG_ERR as usize];
    let level = Thread::try_current().map_or(irql::PASSIVE, Thread::irql);
    // SAFETY: a fault of memory has an address.
    let address = unsafe { information.si_addr() } as usize;
    paged::fault(address, level, error & 2 != 0, error & 16 != 0)
}

/// An access by host code counts against the image while an export or a callout of this thread is running.
fn fault_of_export(signal: libc::c_int) -> bool {
    let inside = Thread::try_current()
        .is_some_and(|thread| !thread.transition.get().is_null() || !thread.context_kinds().is_empty());
    inside && signal != libc::SIGILL
}

fn registers(context: &libc::ucontext_t) -> Registers {
    let register = |index: libc::c_int| context.uc_mcontext.gregs[index as usize] as u64;
    let instruction = register(libc::REG_RIP);
    let mut values = UnwindRegsX86_64::new(instruction, register(libc::REG_RSP), register(libc::REG_RBP));
    values.set(Reg::RAX, register(libc::REG_RAX));
    values.set(Reg::RBX, register(libc::REG_RBX));
    values.set(Reg::RCX, register(libc::REG_RCX));
    values.set(Reg::RDX, register(libc::REG_RDX));
    values.set(Reg::RSI, register(libc::REG_RSI));
    values.set(Reg::RDI, register(libc::REG_RDI));
    values.set(Reg::R8, register(libc::REG_R8));
    values.set(Reg::R9, register(libc::REG_R9));
    values.set(Reg::R10, register(libc::REG_R10));
    values.set(Reg::R11, register(libc::REG_R11));
    values.set(Reg::R12, register(libc::REG_R12));
    values.set(Reg::R13, register(libc::REG_R13));
    values.set(Reg::R14, register(libc::REG_R14));
    values.set(Reg::R15, register(libc::REG_R15));
    Registers { instruction, values }
}

/// A page fault: what there is, or was, at its address.
fn explain(address: usize, writes: bool, executes: bool, trap: &Trap, who: &str) -> Described {
    let verb = if executes {
        "executes"
    } else if writes {
        "writes"
    } else {
        "reads"
    };
    let level = Thread::try_current().map_or(irql::PASSIVE, Thread::irql);
    let wild = if level >= irql::DISPATCH {
        BugCheck::DRIVER_IRQL_NOT_LESS_OR_EQUAL
    } else {
        BugCheck::PAGE_FAULT_IN_NONPAGED_AREA
    };
    let (code, place) = match address_space::zone_of(address) {
        Some(Zone::Pool | Zone::PagedPool) => pool::describe(address),
        Some(Zone::Mappings) => (wild, mdl::describe(address)),
        Some(Zone::Stacks) if is_stack_guard(address) => (
            BugCheck::UNEXPECTED_KERNEL_MODE_TRAP,
            "the guard page of a kernel stack: a stack overflow (double fault)".to_owned(),
        ),
        Some(Zone::Stacks) => (wild, "a kernel stack that is gone".to_owned()),
        Some(Zone::Images) => explain_image(address, writes, executes),
        Some(Zone::UserBuffers) if address_space::frame_at(address).is_some() => {
            (wild, "memory of a user program without that access".to_owned())
        }
        Some(Zone::UserBuffers) => (wild, "a user buffer that is gone, or the page behind one".to_owned()),
        None => (wild, "no memory at all".to_owned()),
    };
    let code = match (code, address_space::frame_at(address)) {
        (_, Some(_)) if executes => BugCheck::ATTEMPTED_EXECUTE_OF_NOEXECUTE_MEMORY,
        (_, Some(_)) if writes => BugCheck::ATTEMPTED_WRITE_TO_READONLY_MEMORY,
        (code, _) => code,
    };
    let parameters = match code {
        // Address, level, kind of access, instruction.
        BugCheck::DRIVER_IRQL_NOT_LESS_OR_EQUAL => {
            let access = if executes { 8 } else { u64::from(writes) };
            [address as u64, u64::from(level), access, trap.pointer]
        }
        _ => [address as u64, u64::from(writes), trap.pointer, 0],
    };
    let closed = crate::ndk::mediator::describe_closed(address);
    let closed = closed.map_or_else(String::new, |what| format!("\n***   there was the NDK object {what}"));
    Described { code, parameters, rule: format!("{who} {verb} {address:#x}: {place}{closed}") }
}

fn explain_image(address: usize, writes: bool, executes: bool) -> (BugCheck, String) {
    let Some(image) = crate::image::containing(address) else {
        let code = BugCheck::DRIVER_UNLOADED_WITHOUT_CANCELLING_PENDING_OPERATIONS;
        return (code, "an image that was unloaded".to_owned());
    };
    let section = image.section(address).map_or("no section", |section| section.name.as_str());
    let place = format!("section {section} of {}", image.name);
    let code = if executes {
        BugCheck::ATTEMPTED_EXECUTE_OF_NOEXECUTE_MEMORY
    } else if writes {
        BugCheck::ATTEMPTED_WRITE_TO_READONLY_MEMORY
    } else {
        BugCheck::PAGE_FAULT_IN_NONPAGED_AREA
    };
    (code, place)
}

fn is_stack_guard(address: usize) -> bool {
    let own = Thread::try_current().is_some_and(|thread| {
        thread
            .stack
            .try_borrow()
            .ok()
            .and_then(|stack| stack.as_ref().map(|stack| stack.is_guard(address)))
            .unwrap_or(false)
    });
    own || processor::is_deferred_call_stack_guard(address)
}
