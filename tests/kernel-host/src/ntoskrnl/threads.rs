//! System threads.

use std::ffi::c_void;

use crate::bugcheck::{BugCheck, bugcheck};
use crate::callout::{self, Context, ContextKind, call_image_until_terminated};
use crate::exports;
use crate::fault;
use crate::irql;
use crate::ledger;
use crate::mutex;
use crate::nt::{KTHREAD, OBJECT_ATTRIBUTES};
use crate::object_table;
use crate::priority;
use crate::status::{NtStatus, STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS};
use crate::thread::{self, Thread};

const OBJ_KERNEL_HANDLE: u32 = 0x200;

/// The kind under which running system threads are recorded, by start routine.
pub const LEDGER_KIND: &str = "system thread";

exports! {
    module "ntoskrnl.exe";

    /// Starts a system thread on a 24 KiB stack of its own.
    /// Checks: a kernel handle is asked for; no region entered and no mutex held at its end; can be made to fail
    /// Source: WDM: PsCreateSystemThread
    [PASSIVE_ONLY] fn PsCreateSystemThread(
        handle: *mut usize, _access: u32, attributes: *const OBJECT_ATTRIBUTES, _process: usize, _client: *mut c_void,
        routine: usize, context: u64,
    ) -> NtStatus {
        // SAFETY: the image's attributes.
        let kernel_handle = unsafe { attributes.is_null() || (*attributes).Attributes & OBJ_KERNEL_HANDLE != 0 };
        if !kernel_handle {
            bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, [0x101A, 0, 0, 0],
                "PsCreateSystemThread is called without OBJ_KERNEL_HANDLE: a user program could use the handle");
        }
        if fault::should_fail("PsCreateSystemThread") {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let object = start(routine, context);
        let Some(opened) = object_table::open(object) else { return STATUS_INSUFFICIENT_RESOURCES };
        // The start's own reference, which kept the object until the handle did.
        object_table::dereference(object, "PsCreateSystemThread");
        ledger::record(object_table::LEDGER_KIND, opened, "to a thread");
        // SAFETY: the image's output.
        unsafe { handle.write(opened) };
        STATUS_SUCCESS
    }

    /// Ends the current system thread.
    /// Checks: it is one; no spin lock held
    /// Source: WDM: PsTerminateSystemThread
    [UP_TO_APC] fn PsTerminateSystemThread(_status: NtStatus) -> NtStatus {
        let current = Thread::current();
        if !current.is_inside(ContextKind::SystemThread) {
            bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, [0x101B, 0, 0, 0],
                "PsTerminateSystemThread is called on a thread that the driver did not create");
        }
        current.set_irql(irql::PASSIVE);
        callout::terminate_current(current)
    }

    /// The current thread's object.
    /// Source: WDM: PsGetCurrentThread
    [ANY] fn PsGetCurrentThread() -> *mut KTHREAD {
        Thread::current().object()
    }

    /// The same by its other name.
    /// Source: WDM: KeGetCurrentThread
    [ANY] fn KeGetCurrentThread() -> *mut KTHREAD {
        Thread::current().object()
    }

    /// The current thread's number.
    /// Source: WDM: PsGetCurrentThreadId
    [ANY] fn PsGetCurrentThreadId() -> u64 {
        Thread::current().identifier()
    }

    /// The current process: the host has one, whose address means nothing.
    /// Source: WDM: PsGetCurrentProcess
    [ANY] fn PsGetCurrentProcess() -> u64 {
        0xFFFF_8000_0000_1000
    }

    /// The current process by its other name.
    /// Source: WDM: IoGetCurrentProcess
    [ANY] fn IoGetCurrentProcess() -> u64 {
        0xFFFF_8000_0000_1000
    }

    /// The number of the current process.
    /// Source: WDM: PsGetCurrentProcessId
    [ANY] fn PsGetCurrentProcessId() -> u64 {
        4
    }

    /// Gives a thread a priority and returns the one before. From 16 on a thread keeps all lower ones from running.
    /// Checks: 1 to 31; no thread that is ready gets no processor for a second because of it
    /// Source: WDM: KeSetPriorityThread
    [PASSIVE_ONLY] fn KeSetPriorityThread(thread: *mut KTHREAD, priority: i32) -> i32 {
        if !(1..=31).contains(&priority) {
            bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, [0x101C, priority as u64, 0, 0],
                format!("KeSetPriorityThread is asked for priority {priority}"));
        }
        let named = thread::all().into_iter().find(|other| other.object() == thread);
        // One that has ended has none any more.
        named.map_or(priority::NORMAL, |thread| priority::set(thread, priority))
    }
}

/// Starts the thread and returns its object with a reference for the caller.
fn start(routine: usize, context: u64) -> usize {
    let (sender, receiver) = std::sync::mpsc::channel();
    let stack = crate::image::stack_trace::addresses();
    let image = crate::image::containing(routine).or_else(callout::caller_image);
    let body = move || {
        let current = Thread::current();
        let object = current.object() as usize;
        object_table::reference(object);
        ledger::record_for(LEDGER_KIND, object, "still running", image.as_ref(), stack);
        let _ = sender.send(object);
        let entry = Context::new(ContextKind::SystemThread, "a system thread's start routine");
        // SAFETY: the routine that the driver named, with its context; the frames between hold nothing.
        unsafe { call_image_until_terminated(entry, routine, &[context]) };
        mutex::thread_ends(current);
        if current.masked_apcs() != 0 {
            bugcheck(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                [0x101D, 0, 0, 0],
                "a system thread ends inside a critical or guarded region",
            );
        }
        ledger::release(LEDGER_KIND, object);
    };
    drop(thread::spawn("system thread", body));
    if crate::schedule::is_on() {
        return crate::schedule::until(Thread::current(), "a thread starts", || receiver.try_recv().ok());
    }
    receiver.recv().unwrap_or_else(|error| panic!("the system thread did not start: {error}"))
}
