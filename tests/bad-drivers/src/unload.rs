//! What is still queued when the unload routine returns: a DPC on another processor, an executive work item.

use core::cell::UnsafeCell;
use core::ffi::c_void;

use crate::kernel::{
    Dpc, Event, ExQueueWorkItem, KeFlushQueuedDpcs, KeInitializeDpc, KeInitializeEvent, KeInsertQueueDpc, KeSetEvent,
    KeSetTargetProcessorDpcEx, KeStallExecutionProcessor, KeWaitForSingleObject, ProcessorNumber, WorkQueueItem,
};
use crate::spin_lock::Shared;

static BUSY: Shared<Dpc> = Shared(UnsafeCell::new(Dpc([0; 64])));
static QUEUED: Shared<Dpc> = Shared(UnsafeCell::new(Dpc([0; 64])));

const NONE: *mut c_void = core::ptr::null_mut();

unsafe extern "C" fn stall(_: *mut Dpc, _: *mut c_void, _: *mut c_void, _: *mut c_void) {
    for _ in 0..6_000 {
        KeStallExecutionProcessor(50);
    }
}

unsafe extern "C" fn nothing(_: *mut Dpc, _: *mut c_void, _: *mut c_void, _: *mut c_void) {}

pub unsafe fn ready(_good: bool) {
    let mut other = ProcessorNumber { group: 0, number: 1, reserved: 0 };
    KeInitializeDpc(BUSY.0.get(), stall, NONE);
    KeInitializeDpc(QUEUED.0.get(), nothing, NONE);
    KeSetTargetProcessorDpcEx(BUSY.0.get(), &raw mut other);
    KeSetTargetProcessorDpcEx(QUEUED.0.get(), &raw mut other);
}

/// The other processor has something to do, and one DPC waits behind it.
pub unsafe fn queue_call(good: bool) {
    KeInsertQueueDpc(BUSY.0.get(), NONE, NONE);
    KeInsertQueueDpc(QUEUED.0.get(), NONE, NONE);
    if good {
        KeFlushQueuedDpcs();
    }
}

static ITEM: Shared<WorkQueueItem> =
    Shared(UnsafeCell::new(WorkQueueItem { link: [0; 2], routine: None, parameter: NONE }));
static DONE: Shared<Event> = Shared(UnsafeCell::new(Event([0; 24])));

unsafe extern "C" fn work(_: *mut c_void) {
    let soon = -10_000_000;
    KeWaitForSingleObject(STOP.0.get().cast(), 0, 0, 0, &raw const soon);
    KeSetEvent(DONE.0.get(), 0, 0);
}

static STOP: Shared<Event> = Shared(UnsafeCell::new(Event([0; 24])));

pub unsafe fn queue_work(_good: bool) {
    KeInitializeEvent(STOP.0.get(), 0, 0);
    KeInitializeEvent(DONE.0.get(), 0, 0);
    *ITEM.0.get() = WorkQueueItem { link: [0; 2], routine: Some(work), parameter: NONE };
    ExQueueWorkItem(ITEM.0.get(), 1);
}

/// The routine takes a second; the good twin waits for it.
pub unsafe fn leave_work(good: bool) {
    if good {
        KeWaitForSingleObject(DONE.0.get().cast(), 0, 0, 0, core::ptr::null());
    }
}
