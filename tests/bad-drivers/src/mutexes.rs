//! Mutexes, fast mutexes, regions in which APCs are masked; locks that are released out of order or initialised while they
//! are in use; threads that end with one.

use core::cell::UnsafeCell;
use core::ffi::c_void;

use crate::Case::{self, Load};
use crate::kernel::{
    Dpc, Event, KeAcquireSpinLockAtDpcLevel, KeAcquireSpinLockRaiseToDpc, KeInitializeDpc, KeInitializeEvent,
    KeLowerIrql, KeReleaseSpinLock, KeReleaseSpinLockFromDpcLevel, KeSetEvent, KeWaitForSingleObject,
    ObReferenceObjectByHandle, ObfDereferenceObject, PASSIVE_LEVEL, PsCreateSystemThread, SpinLock, StartRoutine,
    ZwClose,
};
use crate::spin_lock::{Shared, run_dpc};

pub static CASES: &[(&str, Case)] = &[
    ("fast-mutex-released-at-passive", Load(fast_released_at_passive)),
    ("unsafe-fast-mutex-with-apcs", Load(unsafe_with_apcs)),
    ("unsafe-fast-mutex-released-with-apcs", Load(unsafe_released_with_apcs)),
    ("mutexes-out-of-order", Load(mutexes_out_of_order)),
    ("fast-mutexes-out-of-order", Load(fast_out_of_order)),
    ("mutex-and-fast-mutex-out-of-order", Load(mixed_out_of_order)),
    ("level-lowered-hand-over-hand", Load(level_lowered_hand_over_hand)),
    ("spin-lock-initialised-while-held", Load(spin_lock_initialised_again)),
    ("mutex-initialised-while-held", Load(mutex_initialised_again)),
    ("fast-mutex-initialised-while-held", Load(fast_initialised_again)),
    ("event-initialised-while-waited-for", Load(event_initialised_again)),
    ("thread-ends-with-mutex", Load(thread_ends_with_mutex)),
    ("thread-ends-with-fast-mutex", Load(thread_ends_with_fast_mutex)),
    ("critical-region-not-left", Load(critical_region_not_left)),
    ("guarded-region-not-left", Load(guarded_region_not_left)),
    ("critical-region-left-too-often", Load(critical_region_left_too_often)),
    ("guarded-region-left-too-often", Load(guarded_region_left_too_often)),
    ("dpc-returns-in-critical-region", Load(dpc_returns_in_region)),
    ("user-mode-wait-on-stack", Load(user_mode_wait)),
    ("dpc-on-absent-processor", Load(dpc_on_absent_processor)),
];

#[repr(C, align(8))]
pub struct Mutex([u8; 56]);

#[repr(C)]
pub struct FastMutex {
    count: i32,
    owner: *mut c_void,
    contention: u32,
    event: Event,
    level: u32,
}

#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    pub fn KeInitializeMutex(mutex: *mut Mutex, level: u32);
    pub fn KeReleaseMutex(mutex: *mut Mutex, wait: u8) -> i32;
    fn ExAcquireFastMutex(mutex: *mut FastMutex);
    fn ExReleaseFastMutex(mutex: *mut FastMutex);
    fn ExAcquireFastMutexUnsafe(mutex: *mut FastMutex);
    fn ExReleaseFastMutexUnsafe(mutex: *mut FastMutex);
    pub fn KeEnterCriticalRegion();
    pub fn KeLeaveCriticalRegion();
    pub fn KeEnterGuardedRegion();
    pub fn KeLeaveGuardedRegion();
    fn KeInitializeSpinLock(lock: *mut SpinLock);
    fn KeSetTargetProcessorDpc(dpc: *mut Dpc, number: i8);
}

const NO_FAST_MUTEX: FastMutex =
    FastMutex { count: 0, owner: core::ptr::null_mut(), contention: 0, event: Event([0; 24]), level: 0 };

static FIRST: Shared<Mutex> = Shared(UnsafeCell::new(Mutex([0; 56])));
static SECOND: Shared<Mutex> = Shared(UnsafeCell::new(Mutex([0; 56])));
static FAST: Shared<FastMutex> = Shared(UnsafeCell::new(NO_FAST_MUTEX));
static OTHER_FAST: Shared<FastMutex> = Shared(UnsafeCell::new(NO_FAST_MUTEX));
static LOCK: Shared<SpinLock> = Shared(UnsafeCell::new(0));
static OTHER_LOCK: Shared<SpinLock> = Shared(UnsafeCell::new(0));
static EVENT: Shared<Event> = Shared(UnsafeCell::new(Event([0; 24])));
static DPC: Shared<Dpc> = Shared(UnsafeCell::new(Dpc([0; 64])));

/// `ExInitializeFastMutex`, an inline function of the headers.
unsafe fn initialise_fast(mutex: *mut FastMutex) {
    (*mutex).count = 1;
    (*mutex).owner = core::ptr::null_mut();
    (*mutex).contention = 0;
    KeInitializeEvent(&raw mut (*mutex).event, 1, 0);
}

unsafe fn wait(object: *mut c_void) {
    KeWaitForSingleObject(object, 0, 0, 0, core::ptr::null());
}

unsafe fn fast_released_at_passive(good: bool) {
    let mutex = FAST.0.get();
    initialise_fast(mutex);
    ExAcquireFastMutex(mutex);
    if !good {
        KeLowerIrql(PASSIVE_LEVEL);
    }
    ExReleaseFastMutex(mutex);
}

unsafe fn unsafe_with_apcs(good: bool) {
    let mutex = FAST.0.get();
    initialise_fast(mutex);
    if good {
        KeEnterCriticalRegion();
    }
    ExAcquireFastMutexUnsafe(mutex);
    ExReleaseFastMutexUnsafe(mutex);
    if good {
        KeLeaveCriticalRegion();
    }
}

unsafe fn unsafe_released_with_apcs(good: bool) {
    let mutex = FAST.0.get();
    initialise_fast(mutex);
    KeEnterCriticalRegion();
    ExAcquireFastMutexUnsafe(mutex);
    if !good {
        KeLeaveCriticalRegion();
    }
    ExReleaseFastMutexUnsafe(mutex);
    if good {
        KeLeaveCriticalRegion();
    }
}

unsafe fn take_mutexes(outer: *mut Mutex, inner: *mut Mutex) {
    wait(outer.cast());
    wait(inner.cast());
    KeReleaseMutex(inner, 0);
    KeReleaseMutex(outer, 0);
}

/// One thread takes them both ways round: no thread ever waits.
unsafe fn mutexes_out_of_order(good: bool) {
    let (first, second) = (FIRST.0.get(), SECOND.0.get());
    KeInitializeMutex(first, 0);
    KeInitializeMutex(second, 0);
    take_mutexes(first, second);
    if good { take_mutexes(first, second) } else { take_mutexes(second, first) }
}

unsafe fn take_fast(outer: *mut FastMutex, inner: *mut FastMutex) {
    ExAcquireFastMutex(outer);
    ExAcquireFastMutex(inner);
    ExReleaseFastMutex(inner);
    ExReleaseFastMutex(outer);
}

unsafe fn fast_out_of_order(good: bool) {
    let (first, second) = (FAST.0.get(), OTHER_FAST.0.get());
    initialise_fast(first);
    initialise_fast(second);
    take_fast(first, second);
    if good { take_fast(first, second) } else { take_fast(second, first) }
}

unsafe fn mutex_outside() {
    wait(FIRST.0.get().cast());
    ExAcquireFastMutex(FAST.0.get());
    ExReleaseFastMutex(FAST.0.get());
    KeReleaseMutex(FIRST.0.get(), 0);
}

unsafe fn mixed_out_of_order(good: bool) {
    KeInitializeMutex(FIRST.0.get(), 0);
    initialise_fast(FAST.0.get());
    mutex_outside();
    if good {
        return mutex_outside();
    }
    ExAcquireFastMutex(FAST.0.get());
    wait(FIRST.0.get().cast());
    KeReleaseMutex(FIRST.0.get(), 0);
    ExReleaseFastMutex(FAST.0.get());
}

/// Locks hand over hand, which Windows accepts: the next lock is taken before the one before it is given back.
unsafe fn level_lowered_hand_over_hand(good: bool) {
    let (first, second) = (LOCK.0.get(), OTHER_LOCK.0.get());
    let before = KeAcquireSpinLockRaiseToDpc(first);
    KeAcquireSpinLockAtDpcLevel(second);
    if good {
        KeReleaseSpinLockFromDpcLevel(first);
        KeReleaseSpinLock(second, before);
    } else {
        KeReleaseSpinLock(first, before);
        KeReleaseSpinLockFromDpcLevel(second);
    }
}

unsafe fn spin_lock_initialised_again(good: bool) {
    let lock = LOCK.0.get();
    KeInitializeSpinLock(lock);
    let before = KeAcquireSpinLockRaiseToDpc(lock);
    if good {
        KeReleaseSpinLock(lock, before);
    }
    KeInitializeSpinLock(lock);
    if !good {
        KeReleaseSpinLock(lock, before);
    }
}

unsafe fn mutex_initialised_again(good: bool) {
    let mutex = FIRST.0.get();
    KeInitializeMutex(mutex, 0);
    wait(mutex.cast());
    if good {
        KeReleaseMutex(mutex, 0);
    }
    KeInitializeMutex(mutex, 0);
}

unsafe fn fast_initialised_again(good: bool) {
    let mutex = FAST.0.get();
    initialise_fast(mutex);
    ExAcquireFastMutex(mutex);
    if good {
        ExReleaseFastMutex(mutex);
    }
    initialise_fast(mutex);
}

/// Starts a system thread that ends by itself and waits for its end after `meanwhile`.
unsafe fn with_thread(routine: StartRoutine, context: bool, meanwhile: impl FnOnce()) {
    let none = core::ptr::null_mut();
    let (mut handle, mut thread) = (none, none);
    PsCreateSystemThread(&raw mut handle, 0x1F_FFFF, none, none, none, routine, usize::from(context) as *mut c_void);
    ObReferenceObjectByHandle(handle, 0x1F_FFFF, none, 0, &raw mut thread, none);
    ZwClose(handle);
    meanwhile();
    wait(thread);
    ObfDereferenceObject(thread);
}

unsafe extern "C" fn wait_for_event(_: *mut c_void) {
    wait(EVENT.0.get().cast());
}

unsafe fn event_initialised_again(good: bool) {
    KeInitializeEvent(EVENT.0.get(), 0, 0);
    with_thread(wait_for_event, false, || {
        let delay = -10_000;
        crate::kernel::KeDelayExecutionThread(0, 0, &raw const delay);
        if !good {
            KeInitializeEvent(EVENT.0.get(), 0, 0);
        }
        KeSetEvent(EVENT.0.get(), 0, 0);
    });
}

unsafe extern "C" fn keep_the_mutex(bad: *mut c_void) {
    wait(FIRST.0.get().cast());
    if bad.is_null() {
        KeReleaseMutex(FIRST.0.get(), 0);
    }
}

unsafe fn thread_ends_with_mutex(good: bool) {
    KeInitializeMutex(FIRST.0.get(), 0);
    with_thread(keep_the_mutex, !good, || {});
}

unsafe extern "C" fn keep_the_fast_mutex(bad: *mut c_void) {
    KeEnterCriticalRegion();
    ExAcquireFastMutexUnsafe(FAST.0.get());
    if bad.is_null() {
        ExReleaseFastMutexUnsafe(FAST.0.get());
    }
    KeLeaveCriticalRegion();
}

unsafe fn thread_ends_with_fast_mutex(good: bool) {
    initialise_fast(FAST.0.get());
    with_thread(keep_the_fast_mutex, !good, || {});
}

unsafe fn critical_region_not_left(good: bool) {
    KeEnterCriticalRegion();
    if good {
        KeLeaveCriticalRegion();
    }
}

unsafe fn guarded_region_not_left(good: bool) {
    KeEnterGuardedRegion();
    if good {
        KeLeaveGuardedRegion();
    }
}

unsafe fn critical_region_left_too_often(good: bool) {
    KeEnterCriticalRegion();
    KeLeaveCriticalRegion();
    if !good {
        KeLeaveCriticalRegion();
    }
}

unsafe fn guarded_region_left_too_often(good: bool) {
    KeEnterGuardedRegion();
    KeLeaveGuardedRegion();
    if !good {
        KeLeaveGuardedRegion();
    }
}

unsafe extern "C" fn leave_a_region(_: *mut Dpc, bad: *mut c_void, _: *mut c_void, _: *mut c_void) {
    // The functions are for <= APC_LEVEL, so a DPC can only do it with its level lowered: here it releases what the
    // interrupted thread owns.
    if !bad.is_null() {
        KeReleaseMutex(FIRST.0.get(), 0);
    }
}

/// The DPC runs in the context of this thread, whose mutex it releases.
unsafe fn dpc_returns_in_region(good: bool) {
    KeInitializeMutex(FIRST.0.get(), 0);
    wait(FIRST.0.get().cast());
    run_dpc(leave_a_region, good);
    if good {
        KeReleaseMutex(FIRST.0.get(), 0);
    }
}

unsafe fn user_mode_wait(good: bool) {
    let mut event = Event([0; 24]);
    KeInitializeEvent(&raw mut event, 0, 1);
    KeWaitForSingleObject((&raw mut event).cast(), 0, i8::from(!good), 0, core::ptr::null());
}

unsafe fn dpc_on_absent_processor(good: bool) {
    KeInitializeDpc(DPC.0.get(), leave_a_region, core::ptr::null_mut());
    KeSetTargetProcessorDpc(DPC.0.get(), if good { 0 } else { 100 });
}
