//! Spin locks: recursion, release by a stranger, release at the wrong level, held where nobody may hold one.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::kernel::{
    DISPATCH_LEVEL, Dpc, KeAcquireSpinLockAtDpcLevel, KeAcquireSpinLockRaiseToDpc, KeDelayExecutionThread,
    KeFlushQueuedDpcs, KeInitializeDpc, KeInsertQueueDpc, KeLowerIrql, KeReleaseSpinLock,
    KeReleaseSpinLockFromDpcLevel, KeSetTargetProcessorDpcEx, KfRaiseIrql, PASSIVE_LEVEL, ProcessorNumber, SpinLock,
};

pub struct Shared<T>(pub UnsafeCell<T>);
// SAFETY: each case runs once in its process, and what two threads share they order themselves.
unsafe impl<T> Sync for Shared<T> {}

static LOCK: Shared<SpinLock> = Shared(UnsafeCell::new(0));
static DPC: Shared<Dpc> = Shared(UnsafeCell::new(Dpc([0; 64])));
static DPC_RAN: AtomicBool = AtomicBool::new(false);

pub unsafe fn recursion(good: bool) {
    let lock = LOCK.0.get();
    let before = KeAcquireSpinLockRaiseToDpc(lock);
    if good {
        KeReleaseSpinLock(lock, before);
    }
    let again = KeAcquireSpinLockRaiseToDpc(lock);
    KeReleaseSpinLock(lock, again);
}

pub unsafe fn released_twice(good: bool) {
    let lock = LOCK.0.get();
    let before = KfRaiseIrql(DISPATCH_LEVEL);
    KeAcquireSpinLockAtDpcLevel(lock);
    KeReleaseSpinLockFromDpcLevel(lock);
    if !good {
        KeReleaseSpinLockFromDpcLevel(lock);
    }
    KeLowerIrql(before);
}

unsafe extern "C" fn release_for_another(_: *mut Dpc, bad: *mut c_void, _: *mut c_void, _: *mut c_void) {
    if !bad.is_null() {
        KeReleaseSpinLockFromDpcLevel(LOCK.0.get());
    }
    DPC_RAN.store(true, Ordering::Release);
}

/// A DPC on another processor releases the lock that this thread holds.
pub unsafe fn released_by_another(good: bool) {
    let lock = LOCK.0.get();
    let dpc = DPC.0.get();
    KeInitializeDpc(dpc, release_for_another, usize::from(!good) as *mut c_void);
    let mut other = ProcessorNumber { group: 0, number: 1, reserved: 0 };
    KeSetTargetProcessorDpcEx(dpc, &raw mut other);
    let before = KeAcquireSpinLockRaiseToDpc(lock);
    KeInsertQueueDpc(dpc, core::ptr::null_mut(), core::ptr::null_mut());
    while !DPC_RAN.load(Ordering::Acquire) {
        core::hint::spin_loop();
    }
    KeReleaseSpinLock(lock, before);
}

pub unsafe fn released_below_dispatch(good: bool) {
    let lock = LOCK.0.get();
    let before = KeAcquireSpinLockRaiseToDpc(lock);
    if !good {
        KeLowerIrql(PASSIVE_LEVEL);
    }
    KeReleaseSpinLock(lock, before);
}

pub unsafe fn acquired_below_dispatch(good: bool) {
    let lock = LOCK.0.get();
    let before = if good { KfRaiseIrql(DISPATCH_LEVEL) } else { PASSIVE_LEVEL };
    KeAcquireSpinLockAtDpcLevel(lock);
    KeReleaseSpinLockFromDpcLevel(lock);
    KeLowerIrql(before);
}

unsafe extern "C" fn keep_the_lock(_: *mut Dpc, bad: *mut c_void, _: *mut c_void, _: *mut c_void) {
    KeAcquireSpinLockAtDpcLevel(LOCK.0.get());
    if bad.is_null() {
        KeReleaseSpinLockFromDpcLevel(LOCK.0.get());
    }
}

unsafe extern "C" fn keep_the_level(_: *mut Dpc, bad: *mut c_void, _: *mut c_void, _: *mut c_void) {
    let before = KfRaiseIrql(crate::kernel::DEVICE_LEVEL);
    if bad.is_null() {
        KeLowerIrql(before);
    }
}

unsafe extern "C" fn wait_in_dpc(_: *mut Dpc, bad: *mut c_void, _: *mut c_void, _: *mut c_void) {
    let soon = -10_000;
    if !bad.is_null() {
        KeDelayExecutionThread(0, 0, &raw const soon);
    }
}

unsafe fn run_dpc(routine: crate::kernel::DpcRoutine, good: bool) {
    let dpc = DPC.0.get();
    KeInitializeDpc(dpc, routine, usize::from(!good) as *mut c_void);
    KeInsertQueueDpc(dpc, core::ptr::null_mut(), core::ptr::null_mut());
    KeFlushQueuedDpcs();
}

pub unsafe fn held_on_return_from_dpc(good: bool) {
    run_dpc(keep_the_lock, good);
}

pub unsafe fn dpc_returns_raised(good: bool) {
    run_dpc(keep_the_level, good);
}

pub unsafe fn dpc_waits(good: bool) {
    run_dpc(wait_in_dpc, good);
}
