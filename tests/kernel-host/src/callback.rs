//! Host functions that image code calls through pointers the host gave it: the completion callbacks of a consumer that
//! is a Rust test, the NDIS-side handlers. Each is wrapped in a stub that switches stacks, as imports are.

use std::collections::HashSet;
use std::ffi::c_void;
use std::sync::Mutex;

use crate::bugcheck::{BugCheck, bugcheck};
use crate::callout::ContextKind;
use crate::irql::{self, IrqlRange};
use crate::thread::Thread;
use crate::thunk;

static FUNCTIONS: Mutex<Option<HashSet<usize>>> = Mutex::new(None);

/// A pointer that image code may call, which runs the `extern "win64"` host function at `address`.
pub fn host_function(address: *const c_void, arguments: usize) -> *const c_void {
    let stub = thunk::stub_for(address, arguments);
    let mut functions = FUNCTIONS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    functions.get_or_insert_with(HashSet::new).insert(stub);
    stub as *const c_void
}

/// Whether the address is a stub made by [`host_function`].
pub fn is_host_function(address: usize) -> bool {
    let functions = FUNCTIONS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    functions.as_ref().is_some_and(|functions| functions.contains(&address))
}

/// What a consumer callback checks when a provider calls it: the level, and that no dispatch function of the provider
/// is below it on the stack. Call it first in every consumer callback.
pub fn enter_consumer_callback(name: &str, range: IrqlRange) {
    let thread = Thread::current();
    let level = thread.irql();
    if !range.contains(level) {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [0x1004, u64::from(level), 0, 0],
            format!("{name} is called at {}; it may be called at {}", irql::name(level), range.describe()),
        );
    }
    let kinds = thread.context_kinds();
    let dispatch = kinds.iter().rposition(|kind| *kind == ContextKind::DispatchFunction);
    let deferred = kinds.iter().rposition(|kind| *kind == ContextKind::DeferredProcedureCall);
    // A DPC that interrupted the dispatch function is a context of its own.
    if dispatch.is_some() && deferred < dispatch {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [0x1005, 0, 0, 0],
            format!("{name} is called in the call stack of a dispatch function of the provider"),
        );
    }
    if thread.spin_locks_held.load(std::sync::atomic::Ordering::Relaxed) != locks_of_consumer(thread) {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [0x1006, 0, 0, 0],
            format!("{name} is called with a spin lock of the provider held"),
        );
    }
}

/// Spin locks held by the code that the running context interrupted; a DPC starts with none of its own.
fn locks_of_consumer(thread: &Thread) -> u32 {
    thread.locks_at_context_entry()
}

/// A deferred routine of the host's own (NDIS timers run through one): plain Rust, runs on the host's stack.
pub type KernelRoutine = unsafe fn([u64; 4]);

/// Names a host routine in a DPC object. Returns the address to put into the object.
pub fn kernel_routine(routine: KernelRoutine) -> *mut c_void {
    routine as usize as *mut c_void
}

/// Whether a routine's address is the host's own code: images lie in the kernel's address space, the host does not.
pub(crate) fn is_kernel_routine(address: usize) -> bool {
    crate::memory::address_space::zone_of(address).is_none() && host_code().contains(&address)
}

fn host_code() -> std::ops::Range<usize> {
    unsafe extern "C" {
        static __executable_start: u8;
        static etext: u8;
    }
    // The linker defines both; only their addresses are taken.
    (&raw const __executable_start) as usize..(&raw const etext) as usize
}

/// # Safety
///
/// `address` came from [`kernel_routine`].
pub(crate) unsafe fn call_kernel_routine(address: usize, arguments: [u64; 4]) {
    // SAFETY: the caller's contract.
    unsafe { std::mem::transmute::<usize, KernelRoutine>(address)(arguments) };
}
