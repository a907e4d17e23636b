//! Deferred procedure calls: queueing, removing and running them. A DPC that is queued below DISPATCH to the processor
//! one is on runs at once, in a context of its own, as the software interrupt would make it.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::bugcheck::{BugCheck, bugcheck};
use crate::callout::{Context, ContextKind, call_image};
use crate::deferred_budget;
use crate::irql;
use crate::nt::KDPC;
use crate::processor::{self, Processor};
use crate::thread::Thread;

/// `DpcObject` and `ThreadedDpcObject` of `KOBJECTS`.
pub(crate) const TYPE_DPC: u8 = 19;
const TYPE_THREADED_DPC: u8 = 24;

const IMPORTANCE_HIGH: u8 = 2;
pub(crate) const IMPORTANCE_MEDIUM_HIGH: u8 = 3;

/// See [`for_the_next_tick`].
static FOR_THE_NEXT_TICK: AtomicU64 = AtomicU64::new(0);

/// `Number` of a DPC that has a target: this plus the processor's index.
const TARGETED: u16 = 0x800;

/// A DPC may run this long before it is asked to yield, in time stamp ticks (about 50 µs).
pub(crate) const YIELD_AFTER: u64 = 150_000;

/// `deferred_call_started` of a DPC that has not called it yet.
const RUNNING: u64 = 1;

/// Fills a DPC object.
///
/// # Safety
///
/// `deferred` is writable.
pub(crate) unsafe fn initialise(deferred: *mut KDPC, routine: *mut c_void, context: *mut c_void, threaded: bool) {
    // SAFETY: the caller's contract.
    unsafe {
        deferred.write(KDPC {
            Type: if threaded { TYPE_THREADED_DPC } else { TYPE_DPC },
            Importance: 1,
            Number: 0,
            DpcListEntry: ptr::null_mut(),
            ProcessorHistory: 0,
            DeferredRoutine: routine,
            DeferredContext: context,
            SystemArgument1: ptr::null_mut(),
            SystemArgument2: ptr::null_mut(),
            DpcData: ptr::null_mut(),
        });
    }
}

unsafe fn check(deferred: *mut KDPC, what: &str) {
    // SAFETY: an image hands over the address of a DPC; a wrong one faults and is reported.
    let kind = unsafe { (*deferred).Type };
    if kind != TYPE_DPC && kind != TYPE_THREADED_DPC {
        bugcheck(
            BugCheck::TIMER_OR_DPC_INVALID,
            [0, deferred as u64, u64::from(kind), 0],
            format!("{what} is given a KDPC that was never initialised"),
        );
    }
}

/// Chooses the processor on which the DPC will run.
///
/// # Safety
///
/// `deferred` is an initialised DPC.
pub(crate) unsafe fn set_target(deferred: *mut KDPC, processor: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        check(deferred, "KeSetTargetProcessorDpcEx");
        (*deferred).Number = TARGETED + processor as u16;
    }
}

/// DPCs queued to another processor so far that Windows does not interrupt it for: it runs them when its queue has grown or at
/// its next clock tick, because their importance is medium or low. Here they run at once.
pub fn for_the_next_tick() -> u64 {
    FOR_THE_NEXT_TICK.load(Ordering::Relaxed)
}

unsafe fn queued_mark<'a>(deferred: *mut KDPC) -> &'a AtomicPtr<c_void> {
    // SAFETY: `DpcData` is a naturally aligned pointer inside a live DPC.
    unsafe { AtomicPtr::from_ptr(&raw mut (*deferred).DpcData) }
}

/// Queues a DPC; false when it is queued already.
///
/// # Safety
///
/// `deferred` is an initialised DPC that stays valid until it has run.
pub(crate) unsafe fn insert(
    thread: &'static Thread,
    deferred: *mut KDPC,
    argument1: *mut c_void,
    argument2: *mut c_void,
) -> bool {
    // SAFETY: the caller's contract.
    unsafe {
        let here = thread.processor();
        let Some(target) = enqueue(deferred, here, argument1, argument2) else { return false };
        let level = thread.irql();
        if target != here {
            if !matches!((*deferred).Importance, IMPORTANCE_HIGH | IMPORTANCE_MEDIUM_HIGH) {
                FOR_THE_NEXT_TICK.fetch_add(1, Ordering::Relaxed);
            }
            processor::wake(target);
        } else if level < irql::DISPATCH {
            processor::acquire_here(thread);
            thread.set_irql(irql::DISPATCH);
            processor::release(thread, level);
        }
    }
    true
}

/// Queues a timer's DPC from the clock, which runs on no processor: the processor's own thread runs it.
///
/// # Safety
///
/// As [`insert`].
pub(crate) unsafe fn insert_from_clock(thread: &'static Thread, deferred: *mut KDPC) {
    let null = ptr::null_mut();
    // SAFETY: the caller's contract.
    if let Some(target) = unsafe { enqueue(deferred, thread.processor(), null, null) } {
        processor::wake(target);
    }
}

/// Puts a DPC into its processor's queue; `None` when it is queued already.
unsafe fn enqueue(deferred: *mut KDPC, here: usize, argument1: *mut c_void, argument2: *mut c_void) -> Option<usize> {
    // SAFETY: the caller's contract.
    unsafe {
        check(deferred, "KeInsertQueueDpc");
        let number = (*deferred).Number;
        let target = if number >= TARGETED { usize::from(number - TARGETED) } else { here };
        let processor = processor::get(target);
        let mark = ptr::from_ref(processor).cast_mut().cast::<c_void>();
        if queued_mark(deferred).compare_exchange(ptr::null_mut(), mark, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return None;
        }
        (*deferred).SystemArgument1 = argument1;
        (*deferred).SystemArgument2 = argument2;
        processor.queue.push(deferred, (*deferred).Importance == IMPORTANCE_HIGH);
        Some(target)
    }
}

/// Takes a DPC out of its queue; false when it was not queued.
///
/// # Safety
///
/// `deferred` is an initialised DPC.
pub(crate) unsafe fn remove(deferred: *mut KDPC) -> bool {
    // SAFETY: the caller's contract.
    unsafe {
        check(deferred, "KeRemoveQueueDpc");
        let mark = queued_mark(deferred).load(Ordering::Acquire);
        if mark.is_null() {
            return false;
        }
        // The mark is the processor that it is queued to.
        let processor = &*mark.cast::<Processor>();
        processor.queue.remove(deferred)
    }
}

/// Whether a DPC is queued anywhere inside an address range.
pub(crate) fn queued_within(start: usize, end: usize) -> Option<usize> {
    (0..processor::count())
        .flat_map(|index| processor::get(index).queue.addresses())
        .find(|address| (start..end).contains(address))
}

/// DPCs whose routines lie in a range of addresses: where each is queued, or on which processor it runs.
pub(crate) fn left_within(code: &Range<usize>) -> Vec<String> {
    let mut left = Vec::new();
    for index in 0..processor::count() {
        let processor = processor::get(index);
        if processor.running.routine().is_some_and(|routine| code.contains(&routine)) {
            left.push(format!("that runs on processor {index}"));
        }
        let queued = processor.queue.calls().into_iter().filter(|(_, routine)| code.contains(routine));
        left.extend(queued.map(|(address, _)| format!("at {address:#x}, queued to processor {index}")));
    }
    left
}

/// Every DPC that is queued now.
pub(crate) fn queued() -> Vec<usize> {
    (0..processor::count()).flat_map(|index| processor::get(index).queue.addresses()).collect()
}

/// Runs the DPCs of a processor until its queue is empty. The thread owns the processor.
#[inline(never)]
pub(crate) extern "win64" fn run_queue(thread: &'static Thread, processor: &'static Processor) {
    let level = thread.irql();
    thread.set_irql(irql::DISPATCH);
    crate::memory::paged::trim();
    while processor.queue.length() != 0 {
        // SAFETY: a queued DPC is valid; its arguments are copied before it can be queued again.
        let taken = processor.queue.pop(|deferred| unsafe {
            let call = (
                (*deferred).DeferredRoutine as usize,
                [
                    deferred as u64,
                    (*deferred).DeferredContext as u64,
                    (*deferred).SystemArgument1 as u64,
                    (*deferred).SystemArgument2 as u64,
                ],
            );
            queued_mark(deferred).store(ptr::null_mut(), Ordering::Release);
            call
        });
        let Some((routine, arguments)) = taken else { break };
        processor.deferred_call_started.store(RUNNING, Ordering::Relaxed);
        let kept = deferred_budget::begin(&processor.running, thread, routine);
        let context = Context::new(ContextKind::DeferredProcedureCall, "a DPC routine");
        processor::on_deferred_call_stack(thread, processor, || {
            if crate::callback::is_kernel_routine(routine) {
                // SAFETY: a routine of the host's own, with the signature of a deferred routine.
                unsafe { crate::callback::call_kernel_routine(routine, arguments) };
            } else {
                // SAFETY: the routine that the driver named for this DPC, with the documented arguments.
                unsafe { call_image(context, routine, &arguments) };
            }
        });
        processor.deferred_call_started.store(0, Ordering::Relaxed);
        deferred_budget::end(&processor.running, thread, kept);
    }
    thread.set_irql(level);
}

/// The result of `KeShouldYieldProcessor`: the running DPC has used its time. The time counts from the first call, since
/// reading the clock for every DPC would cost more than most of them do.
pub(crate) fn should_yield(thread: &Thread) -> bool {
    if crate::schedule::is_on() {
        return crate::schedule::draw(16);
    }
    let started = &processor::get(thread.processor()).deferred_call_started;
    match started.load(Ordering::Relaxed) {
        0 => false,
        RUNNING => {
            started.store(crate::thunk::time_stamp_counter().max(RUNNING + 1), Ordering::Relaxed);
            false
        }
        began => crate::thunk::time_stamp_counter().wrapping_sub(began) > YIELD_AFTER,
    }
}
