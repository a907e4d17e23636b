//! Spin locks: recursion, release by another thread, release at the wrong level, held where no lock may be held, out of order;
//! and what a DPC may not do.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::size_of;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::kernel::{
    DISPATCH_LEVEL, Dpc, KeAcquireSpinLockAtDpcLevel, KeAcquireSpinLockRaiseToDpc, KeDelayExecutionThread,
    KeFlushQueuedDpcs, KeInitializeDpc, KeInsertQueueDpc, KeLowerIrql, KeReleaseSpinLock,
    KeReleaseSpinLockFromDpcLevel, KeSetTargetProcessorDpcEx, KeStallExecutionProcessor, KfRaiseIrql, PASSIVE_LEVEL,
    ProcessorNumber, SpinLock,
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

pub unsafe fn run_dpc(routine: crate::kernel::DpcRoutine, good: bool) {
    let dpc = DPC.0.get();
    KeInitializeDpc(dpc, routine, usize::from(!good) as *mut c_void);
    KeInsertQueueDpc(dpc, core::ptr::null_mut(), core::ptr::null_mut());
    KeFlushQueuedDpcs();
}

pub unsafe fn held_on_return_from_dpc(good: bool) {
    run_dpc(keep_the_lock, good);
}

static SECOND_LOCK: Shared<SpinLock> = Shared(UnsafeCell::new(0));
static THIRD_LOCK: Shared<SpinLock> = Shared(UnsafeCell::new(0));

/// Takes one lock inside another and gives both back.
unsafe fn take_inside(outer: &Shared<SpinLock>, inner: &Shared<SpinLock>) {
    let before = KeAcquireSpinLockRaiseToDpc(outer.0.get());
    KeAcquireSpinLockAtDpcLevel(inner.0.get());
    KeReleaseSpinLockFromDpcLevel(inner.0.get());
    KeReleaseSpinLock(outer.0.get(), before);
}

/// No thread spins here: one thread takes the locks both ways round.
pub unsafe fn out_of_order(good: bool) {
    take_inside(&LOCK, &SECOND_LOCK);
    if good { take_inside(&LOCK, &SECOND_LOCK) } else { take_inside(&SECOND_LOCK, &LOCK) }
}

pub unsafe fn out_of_order_by_a_third(good: bool) {
    take_inside(&LOCK, &SECOND_LOCK);
    take_inside(&SECOND_LOCK, &THIRD_LOCK);
    if good { take_inside(&LOCK, &THIRD_LOCK) } else { take_inside(&THIRD_LOCK, &LOCK) }
}

pub unsafe fn held_over_a_wait(good: bool) {
    let soon = -10_000;
    let before = KeAcquireSpinLockRaiseToDpc(LOCK.0.get());
    if !good {
        KeDelayExecutionThread(0, 0, &raw const soon);
    }
    KeReleaseSpinLock(LOCK.0.get(), before);
    if good {
        KeDelayExecutionThread(0, 0, &raw const soon);
    }
}

static HELD: AtomicBool = AtomicBool::new(false);
static SAID: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn wait_with_the_lock(_: *mut Dpc, bad: *mut c_void, _: *mut c_void, _: *mut c_void) {
    KeAcquireSpinLockAtDpcLevel(LOCK.0.get());
    HELD.store(true, Ordering::Release);
    while !bad.is_null() && !SAID.load(Ordering::Acquire) {
        core::hint::spin_loop();
    }
    KeReleaseSpinLockFromDpcLevel(LOCK.0.get());
}

/// A DPC on another processor keeps the lock until this thread sets a flag, which waits for the lock.
pub unsafe fn never_released(good: bool) {
    let dpc = DPC.0.get();
    KeInitializeDpc(dpc, wait_with_the_lock, usize::from(!good) as *mut c_void);
    let mut other = ProcessorNumber { group: 0, number: 1, reserved: 0 };
    KeSetTargetProcessorDpcEx(dpc, &raw mut other);
    KeInsertQueueDpc(dpc, core::ptr::null_mut(), core::ptr::null_mut());
    while !HELD.load(Ordering::Acquire) {
        core::hint::spin_loop();
    }
    let before = KeAcquireSpinLockRaiseToDpc(LOCK.0.get());
    SAID.store(true, Ordering::Release);
    KeReleaseSpinLock(LOCK.0.get(), before);
    KeFlushQueuedDpcs();
}

/// The lock is in a block of pool that is freed while it is held.
pub unsafe fn freed_while_held(good: bool) {
    let lock: *mut SpinLock = crate::kernel::allocate(size_of::<SpinLock>()).cast();
    lock.write(0);
    let before = KeAcquireSpinLockRaiseToDpc(lock);
    if good {
        KeReleaseSpinLock(lock, before);
    }
    crate::kernel::free(lock.cast());
}

unsafe extern "C" fn stall(_: *mut Dpc, bad: *mut c_void, _: *mut c_void, _: *mut c_void) {
    // Half a second in stalls of 50 microseconds, the most that one call may ask for; three of that are more than a DPC has.
    let times = if bad.is_null() { 10_000 } else { 30_000 };
    for _ in 0..times {
        KeStallExecutionProcessor(50);
    }
}

pub unsafe fn dpc_too_long(good: bool) {
    run_dpc(stall, good);
}

unsafe extern "C" fn go_on(_: *mut Dpc, bad: *mut c_void, _: *mut c_void, _: *mut c_void) {
    while !bad.is_null() {
        core::hint::spin_loop();
    }
}

pub unsafe fn dpc_without_end(good: bool) {
    run_dpc(go_on, good);
}

pub unsafe fn dpc_returns_raised(good: bool) {
    run_dpc(keep_the_level, good);
}

pub unsafe fn dpc_waits(good: bool) {
    run_dpc(wait_in_dpc, good);
}
