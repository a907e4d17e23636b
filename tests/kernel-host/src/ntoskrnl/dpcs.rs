//! Deferred procedure calls.

use std::ffi::c_void;

use crate::bugcheck::{BugCheck, bugcheck};
use crate::dpc;
use crate::exports;
use crate::fast;
use crate::nt::{KDPC, PROCESSOR_NUMBER};
use crate::processor;
use crate::status::{NtStatus, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use crate::thread::Thread;

exports! {
    module "ntoskrnl.exe";

    /// Fills a KDPC.
    /// Source: WDM: KeInitializeDpc
    [ANY] fn KeInitializeDpc(deferred: *mut KDPC, routine: *mut c_void, context: *mut c_void) {
        // SAFETY: the image's DPC object.
        unsafe { dpc::initialise(deferred, routine, context, false) };
    }

    /// Fills a KDPC for a threaded DPC; the host runs it as an ordinary one, which the documentation allows.
    /// Source: WDM: KeInitializeThreadedDpc
    [ANY] fn KeInitializeThreadedDpc(deferred: *mut KDPC, routine: *mut c_void, context: *mut c_void) {
        // SAFETY: the image's DPC object.
        unsafe { dpc::initialise(deferred, routine, context, true) };
    }

    /// Queues the DPC; FALSE when it is queued. Below DISPATCH it runs at once on the current processor.
    /// Checks: an initialised DPC; its routine returns at DISPATCH without spin locks
    /// Source: WDM: KeInsertQueueDpc
    [ANY, fast = fast::KeInsertQueueDpc] fn KeInsertQueueDpc(deferred: *mut KDPC, first: *mut c_void, second: *mut c_void) -> u8 {
        // SAFETY: the image's DPC object.
        u8::from(unsafe { dpc::insert(Thread::current(), deferred, first, second) })
    }

    /// Takes the DPC out of its queue; FALSE when it was not queued (it may be running).
    /// Source: WDM: KeRemoveQueueDpc
    [ANY] fn KeRemoveQueueDpc(deferred: *mut KDPC) -> u8 {
        // SAFETY: the image's DPC object.
        u8::from(unsafe { dpc::remove(deferred) })
    }

    /// Returns when every DPC queued or running before has ended, on every processor.
    /// Source: WDM: KeFlushQueuedDpcs
    [PASSIVE_ONLY] fn KeFlushQueuedDpcs() {
        processor::visit_all(Thread::current());
    }

    /// Chooses the processor.
    /// Source: WDM: KeSetTargetProcessorDpcEx
    [ANY] fn KeSetTargetProcessorDpcEx(deferred: *mut KDPC, number: *const PROCESSOR_NUMBER) -> NtStatus {
        // SAFETY: the image's objects.
        unsafe {
            let number = number.read();
            if number.Group != 0 || usize::from(number.Number) >= processor::count() || number.Reserved != 0 {
                return STATUS_INVALID_PARAMETER;
            }
            dpc::set_target(deferred, usize::from(number.Number));
        }
        STATUS_SUCCESS
    }

    /// Chooses the processor of group 0.
    /// Checks: a processor that is there
    /// Source: WDM: KeSetTargetProcessorDpc
    [ANY] fn KeSetTargetProcessorDpc(deferred: *mut KDPC, number: u8) {
        if usize::from(number) >= processor::count() {
            bugcheck(BugCheck::TIMER_OR_DPC_INVALID, [3, deferred as u64, u64::from(number), processor::count() as u64],
                format!("KeSetTargetProcessorDpc is given processor {number}; there are {}", processor::count()));
        }
        // SAFETY: the image's DPC object.
        unsafe { dpc::set_target(deferred, usize::from(number)) };
    }

    /// High importance goes to the front of the queue.
    /// Source: WDM: KeSetImportanceDpc
    [ANY] fn KeSetImportanceDpc(deferred: *mut KDPC, importance: u32) {
        // SAFETY: the image's DPC object.
        unsafe { (*deferred).Importance = importance as u8 };
    }

    /// TRUE once the running DPC has used up its time.
    /// Source: WDM: KeShouldYieldProcessor
    [ANY, fast = fast::KeShouldYieldProcessor] fn KeShouldYieldProcessor() -> u32 {
        u32::from(dpc::should_yield(Thread::current()))
    }
}
