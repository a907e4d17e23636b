//! Bugchecks: a broken rule ends the process with a report that names the code, its four parameters, the rule and the stack,
//! once as text and once as a line of JSON for tests, and a distinctive exit code.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::image::stack_trace::{self, StackFrame};
use crate::thread::Thread;
use crate::{irql, status};

/// The exit code of a process that ended in a bugcheck.
pub const EXIT_CODE: i32 = 113;

/// How the machine-readable line begins.
pub const REPORT_PREFIX: &str = "KERNEL-HOST-BUGCHECK ";

macro_rules! bug_checks {
    ($($name:ident = $value:literal;)*) => {
        /// Bugcheck codes, with Windows's numbers and names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum BugCheck {
            $($name = $value,)*
        }

        impl BugCheck {
            /// Every code that the host uses.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }

        /// The documented name of a code that an image passes to KeBugCheckEx.
        pub fn name_of_code(code: u32) -> &'static str {
            match code {
                $($value => stringify!($name),)*
                0x5250_4E43 => "panic of a Rust driver",
                other => crate::bugcheck_names::name(other).unwrap_or("code of the driver's own"),
            }
        }
    };
}

bug_checks! {
    IRQL_NOT_GREATER_OR_EQUAL = 0x09;
    IRQL_NOT_LESS_OR_EQUAL = 0x0A;
    SPIN_LOCK_ALREADY_OWNED = 0x0F;
    SPIN_LOCK_NOT_OWNED = 0x10;
    BAD_POOL_HEADER = 0x19;
    REFERENCE_BY_POINTER = 0x18;
    INVALID_PROCESS_DETACH_ATTEMPT = 0x06;
    MULTIPLE_IRP_COMPLETE_REQUESTS = 0x44;
    CANCEL_STATE_IN_COMPLETED_IRP = 0x48;
    PAGE_FAULT_IN_NONPAGED_AREA = 0x50;
    KERNEL_STACK_INPAGE_ERROR = 0x77;
    BUGCODE_NDIS_DRIVER = 0x7C;
    UNEXPECTED_KERNEL_MODE_TRAP = 0x7F;
    KMODE_EXCEPTION_NOT_HANDLED = 0x1E;
    INVALID_KERNEL_HANDLE = 0x93;
    KERNEL_THREAD_PRIORITY_FLOOR_VIOLATION = 0x157;
    ATTEMPTED_SWITCH_FROM_DPC = 0xB8;
    ATTEMPTED_WRITE_TO_READONLY_MEMORY = 0xBE;
    MUTEX_ALREADY_OWNED = 0xBF;
    BAD_POOL_CALLER = 0xC2;
    DRIVER_VERIFIER_DETECTED_VIOLATION = 0xC4;
    TIMER_OR_DPC_INVALID = 0xC7;
    IRQL_UNEXPECTED_VALUE = 0xC8;
    DRIVER_VERIFIER_IOMANAGER_VIOLATION = 0xC9;
    DRIVER_LEFT_LOCKED_PAGES_IN_PROCESS = 0xCB;
    PAGE_FAULT_IN_FREED_SPECIAL_POOL = 0xCC;
    PAGE_FAULT_BEYOND_END_OF_ALLOCATION = 0xCD;
    DRIVER_UNLOADED_WITHOUT_CANCELLING_PENDING_OPERATIONS = 0xCE;
    DRIVER_IRQL_NOT_LESS_OR_EQUAL = 0xD1;
    DRIVER_PORTION_MUST_BE_NONPAGED = 0xD3;
    SYSTEM_SCAN_AT_RAISED_IRQL_CAUGHT_IMPROPER_DRIVER_UNLOAD = 0xD4;
    DRIVER_PAGE_FAULT_BEYOND_END_OF_ALLOCATION = 0xD6;
    DRIVER_VERIFIER_DMA_VIOLATION = 0xE6;
    DRIVER_OVERRAN_STACK_BUFFER = 0xF7;
    KERNEL_SECURITY_CHECK_FAILURE = 0x139;
    ATTEMPTED_EXECUTE_OF_NOEXECUTE_MEMORY = 0xFC;
    THREAD_TERMINATE_HELD_MUTEX = 0x4000_008A;
    DPC_WATCHDOG_VIOLATION = 0x133;
    KERNEL_AUTO_BOOST_INVALID_LOCK_RELEASE = 0x162;
    WORKER_INVALID = 0xE4;
    MANUALLY_INITIATED_CRASH = 0xE2;
    HAL_INITIALIZATION_FAILED = 0x5C;
    SYSTEM_THREAD_EXCEPTION_NOT_HANDLED = 0x7E;
    PROCESS_HAS_LOCKED_PAGES = 0x76;
    PFN_LIST_CORRUPT = 0x4E;
    NO_MORE_SYSTEM_PTES = 0x3F;
    NO_PAGES_AVAILABLE = 0x4D;
    UNMOUNTABLE_HANG = 0x4B48_0001;
}

static HAPPENED: AtomicBool = AtomicBool::new(false);

/// What the process does after the report instead of ending.
static LAST_ACT: OnceLock<fn() -> !> = OnceLock::new();

/// Has a bugcheck end the process in another way than by its exit code: for a fuzzer, which has to see a crash. The first call
/// counts.
pub fn end_by(act: fn() -> !) {
    let _ = LAST_ACT.set(act);
}

/// A part that a test adds to reports: a title and the lines below it. It reads memory of images and enters none.
pub type ReportPart = fn() -> (String, Vec<String>);

static PARTS: Mutex<Vec<ReportPart>> = Mutex::new(Vec::new());

/// Adds a part to every report from now on. It is left out when it has no lines.
pub fn add_part(part: ReportPart) {
    PARTS.lock().unwrap_or_else(PoisonError::into_inner).push(part);
}

/// What a fault adds to a report.
pub(crate) struct Fault {
    /// "trap 13 (general protection)".
    pub trap: String,
    pub number: u64,
    /// The instruction, where it could be read.
    pub instruction: Option<String>,
    /// The registers that it reads, with their values.
    pub operands: String,
    /// Every register.
    pub registers: Vec<(&'static str, u64)>,
    /// It was the driver's own instruction, not the host's.
    pub of_image: bool,
}

/// Ends the process with a bugcheck. `rule` is a sentence with the broken rule and the names and numbers that a reader needs.
#[cold]
pub fn bugcheck(code: BugCheck, parameters: [u64; 4], rule: impl AsRef<str>) -> ! {
    let frames = stack_trace::of_current_thread();
    report(code as u32, code.name(), parameters, rule.as_ref(), &frames, None)
}

/// As [`bugcheck`], for a code that an image chose itself.
#[cold]
pub fn bugcheck_of_image(code: u32, parameters: [u64; 4]) -> ! {
    const WITH_STATUS: [u32; 4] = [0x1E, 0x7E, 0x8E, 0x3B];
    let frames = stack_trace::of_current_thread();
    let status = WITH_STATUS.contains(&code).then(|| format!(" ({})", status::text(parameters[0] as i32)));
    let rule = format!("the image called KeBugCheckEx{}", status.unwrap_or_default());
    report(code, name_of_code(code), parameters, &rule, &frames, None)
}

/// As [`bugcheck`], with a stack that was collected before.
#[cold]
pub(crate) fn bugcheck_with_stack(code: BugCheck, parameters: [u64; 4], rule: &str, frames: &[StackFrame]) -> ! {
    report(code as u32, code.name(), parameters, rule, frames, None)
}

/// As [`bugcheck`], of a fault.
#[cold]
pub(crate) fn bugcheck_of_fault(
    code: BugCheck,
    parameters: [u64; 4],
    rule: &str,
    frames: &[StackFrame],
    fault: &Fault,
) -> ! {
    report(code as u32, code.name(), parameters, rule, frames, Some(fault))
}

/// Where the thread is: in a function of the kernel that a driver called, or in a driver's code.
fn place(thread: &Thread, fault: Option<&Fault>) -> String {
    let export = thread.last_export().map(|export| export.name);
    if fault.is_some_and(|fault| fault.of_image) {
        let last = export.map_or_else(|| "none since its routine was entered".to_owned(), str::to_owned);
        return format!("in the driver's code; last export called: {last}");
    }
    export.map_or_else(|| "in no export".to_owned(), |export| format!("in {export}"))
}

/// The routines of images that the thread is inside of, outermost first.
fn routines(thread: &Thread) -> Vec<&'static str> {
    let contexts = thread.contexts.try_borrow();
    contexts.map_or_else(|_| Vec::new(), |contexts| contexts.iter().map(|active| active.name).collect())
}

fn write_fault(text: &mut String, fault: &Fault) {
    let instruction = fault.instruction.as_deref().unwrap_or("bytes that are no instruction");
    let operands = if fault.operands.is_empty() { String::new() } else { format!(" with {}", fault.operands) };
    let _ = writeln!(text, "*** {} at `{instruction}`{operands}", fault.trap);
    for row in fault.registers.chunks(4) {
        let values: Vec<String> = row.iter().map(|(name, value)| format!("{name:>3}={value:016x}")).collect();
        let _ = writeln!(text, "***   {}", values.join(" "));
    }
}

fn report(code: u32, name: &str, parameters: [u64; 4], rule: &str, frames: &[StackFrame], fault: Option<&Fault>) -> ! {
    if HAPPENED.swap(true, Ordering::SeqCst) {
        // Another thread is reporting, or the report itself failed; the first one ends the process.
        loop {
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
    }
    crate::ndk::mediator::trace::flush();
    let mut text = String::new();
    let _ = writeln!(text, "\n*** STOP: {code:#010X} {name}");
    let [first, second, third, fourth] = parameters;
    let _ = writeln!(text, "*** parameters: {first:#x}, {second:#x}, {third:#x}, {fourth:#x}");
    let _ = writeln!(text, "*** {rule}");
    if let Some(fault) = fault {
        write_fault(&mut text, fault);
    }
    let thread = Thread::try_current();
    let callbacks = crate::ndk::mediator::describe_callbacks();
    if let Some(thread) = thread {
        let _ = writeln!(
            text,
            "*** thread {} at {}, processor {}, {}",
            thread.identifier(),
            irql::name(thread.irql()),
            thread.processor(),
            place(thread, fault),
        );
        let routines = routines(thread);
        if !routines.is_empty() {
            let _ = writeln!(text, "*** routines entered: {}", routines.join(" > "));
        }
        for callback in &callbacks {
            let _ = writeln!(text, "*** {callback}");
        }
    }
    for (index, frame) in frames.iter().enumerate() {
        let _ = writeln!(text, "    {index:2} {frame}");
    }
    let refusals = crate::ndk::mediator::describe_refusals();
    if !refusals.is_empty() {
        let _ = writeln!(text, "*** NDK calls that were refused, the last one last:");
        for refusal in &refusals {
            let _ = writeln!(text, "***   {refusal}");
        }
    }
    let parts: Vec<ReportPart> = PARTS.try_lock().map_or_else(|_| Vec::new(), |parts| parts.clone());
    for (title, lines) in parts.iter().map(|part| part()).filter(|(_, lines)| !lines.is_empty()) {
        let _ = writeln!(text, "*** {title}:");
        for line in lines {
            let _ = writeln!(text, "***   {line}");
        }
    }
    if let Some(schedule) = crate::schedule::summary() {
        let _ = writeln!(text, "*** {schedule}");
    }
    let line = serde_json::json!({
        "code": code,
        "name": name,
        "parameters": parameters,
        "rule": rule,
        "place": thread.map(|thread| place(thread, fault)),
        "export": thread.and_then(Thread::last_export).map(|export| export.name),
        "routines": thread.map(routines),
        "callbacks": callbacks,
        "trap": fault.map(|fault| fault.number),
        "refusals": refusals,
        "instruction": fault.and_then(|fault| fault.instruction.as_deref()),
        "irql": thread.map(Thread::irql),
        "stack": frames.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    let _ = writeln!(text, "{REPORT_PREFIX}{line}");
    write_to_standard_error(text.as_bytes());
    if let Some(act) = LAST_ACT.get() {
        act();
    }
    // SAFETY: ends the process without running destructors: the state that they would touch is what the bugcheck
    // says is broken.
    unsafe { libc::_exit(EXIT_CODE) }
}

/// Writes past Rust's own lock of the stream, which the failing thread may hold.
pub(crate) fn write_to_standard_error(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: the slice is readable for its length.
        let written = unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len()) };
        if written <= 0 {
            return;
        }
        bytes = bytes.get(written as usize..).unwrap_or_default();
    }
}
