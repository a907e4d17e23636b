//! Objects that outlive their driver or their owner: timers, threads, handles, rundown protection, the stack.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::hint::black_box;

use crate::kernel::{
    Dpc, Event, ExAcquireRundownProtection, ExInitializeRundownProtection, ExReleaseRundownProtection,
    ExWaitForRundownProtectionRelease, KeCancelTimer, KeInitializeDpc, KeInitializeEvent, KeInitializeTimerEx,
    KeSetEvent, KeSetTimerEx, KeWaitForSingleObject, ObReferenceObjectByHandle, ObfDereferenceObject,
    PsCreateSystemThread, Rundown, Timer, ZwClose,
};
use crate::spin_lock::Shared;

static TIMER: Shared<Timer> = Shared(UnsafeCell::new(Timer([0; 64])));
static TIMER_DPC: Shared<Dpc> = Shared(UnsafeCell::new(Dpc([0; 64])));
static STOP: Shared<Event> = Shared(UnsafeCell::new(Event([0; 24])));
static THREAD: Shared<*mut c_void> = Shared(UnsafeCell::new(core::ptr::null_mut()));
static RUNDOWN: Shared<Rundown> = Shared(UnsafeCell::new(Rundown([0; 8])));

const ONE_HOUR: i64 = -36_000_000_000;

unsafe extern "C" fn tick(_: *mut Dpc, _: *mut c_void, _: *mut c_void, _: *mut c_void) {}

pub unsafe fn start_timer(_good: bool) {
    KeInitializeTimerEx(TIMER.0.get(), 0);
    KeInitializeDpc(TIMER_DPC.0.get(), tick, core::ptr::null_mut());
    KeSetTimerEx(TIMER.0.get(), ONE_HOUR, 0, TIMER_DPC.0.get());
}

pub unsafe fn stop_timer(good: bool) {
    if good {
        KeCancelTimer(TIMER.0.get());
    }
}

unsafe extern "C" fn wait_for_stop(_: *mut c_void) {
    KeWaitForSingleObject(STOP.0.get().cast(), 0, 0, 0, core::ptr::null());
}

/// Starts the thread that both twins of the thread and handle cases have.
unsafe fn start() -> *mut c_void {
    KeInitializeEvent(STOP.0.get(), 0, 0);
    let mut handle = core::ptr::null_mut();
    let none = core::ptr::null_mut();
    PsCreateSystemThread(&raw mut handle, 0x1F_FFFF, none, none, none, wait_for_stop, none);
    ObReferenceObjectByHandle(handle, 0x1F_FFFF, none, 0, THREAD.0.get(), none);
    handle
}

unsafe fn join() {
    KeSetEvent(STOP.0.get(), 0, 0);
    KeWaitForSingleObject(*THREAD.0.get(), 0, 0, 0, core::ptr::null());
}

pub unsafe fn start_thread(_good: bool) {
    ZwClose(start());
}

pub unsafe fn stop_thread(good: bool) {
    if good {
        join();
    }
    ObfDereferenceObject(*THREAD.0.get());
}

pub unsafe fn handle_leak(good: bool) {
    let handle = start();
    if good {
        ZwClose(handle);
    }
    join();
    ObfDereferenceObject(*THREAD.0.get());
}

pub unsafe fn handle_closed_twice(good: bool) {
    let handle = start();
    ZwClose(handle);
    if !good {
        ZwClose(handle);
    }
    join();
    ObfDereferenceObject(*THREAD.0.get());
}

pub unsafe fn rundown_released_too_often(good: bool) {
    ExInitializeRundownProtection(RUNDOWN.0.get());
    ExAcquireRundownProtection(RUNDOWN.0.get());
    ExReleaseRundownProtection(RUNDOWN.0.get());
    if !good {
        ExReleaseRundownProtection(RUNDOWN.0.get());
    }
    ExWaitForRundownProtectionRelease(RUNDOWN.0.get());
}

#[inline(never)]
fn descend(depth: usize) -> usize {
    let mut frame = [0_u8; 1024];
    black_box(&mut frame);
    if depth == 0 { frame.len() } else { descend(depth - 1) + usize::from(black_box(&frame)[0]) }
}

pub unsafe fn stack_overflow(good: bool) {
    black_box(descend(if good { 4 } else { 64 }));
}
