//! The miniport's one completion queue: no results, but a notification whenever it is armed, and the ways to get that wrong.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt;

use crate::kernel::{
    DEVICE_LEVEL, Dpc, KeAcquireSpinLockAtDpcLevel, KeInitializeDpc, KeInsertQueueDpc, KeLowerIrql,
    KeReleaseSpinLockFromDpcLevel, KeSetTargetProcessorDpcEx, KfRaiseIrql, NtStatus, ProcessorNumber, STATUS_SUCCESS,
    SpinLock,
};
use crate::miniport::{Fault, faulty, object_header, refuse};
use crate::spin_lock::Shared;

static QUEUE: Shared<MaybeUninit<NDK_CQ>> = Shared(UnsafeCell::new(MaybeUninit::zeroed()));
static NOTIFY: Shared<Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>> = Shared(UnsafeCell::new(None));
static CONTEXT: Shared<*mut c_void> = Shared(UnsafeCell::new(core::ptr::null_mut()));
static DPCS: [Shared<Dpc>; 2] = [const { Shared(UnsafeCell::new(Dpc([0; 64]))) }; 2];
static LOCK: Shared<SpinLock> = Shared(UnsafeCell::new(0));
/// A notification runs; another one has been asked for meanwhile.
static RUNNING: AtomicBool = AtomicBool::new(false);
static AGAIN: AtomicBool = AtomicBool::new(false);
/// The second notification of the bad twin is over.
static SECOND: AtomicBool = AtomicBool::new(false);

static TABLE: NDK_CQ_DISPATCH = NDK_CQ_DISPATCH {
    NdkCloseCq: close,
    NdkQueryExtension: refuse(),
    NdkResizeCq: refuse(),
    NdkArmCq: arm,
    NdkGetCqResults: no_results,
    NdkControlCqInterruptModeration: refuse(),
    NdkGetCqResultsEx: no_results_ex,
};

pub unsafe extern "C" fn create(
    _adapter: *mut NDK_ADAPTER,
    _depth: u32,
    notify: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
    context: nt::PVOID,
    _affinity: *mut nt::GROUP_AFFINITY,
    _completion: Option<NDK_FN_CREATE_COMPLETION>,
    _request: nt::PVOID,
    out: *mut *mut NDK_CQ,
) -> NtStatus {
    let queue = QUEUE.0.get().cast::<NDK_CQ>();
    (*queue).Header = object_header(NdkObjectTypeCq);
    (*queue).Dispatch = &raw const TABLE;
    *NOTIFY.0.get() = notify;
    *CONTEXT.0.get() = context;
    KeInitializeDpc(DPCS[0].0.get(), first, core::ptr::null_mut());
    KeInitializeDpc(DPCS[1].0.get(), second, core::ptr::null_mut());
    let mut other = ProcessorNumber { group: 0, number: 1, reserved: 0 };
    KeSetTargetProcessorDpcEx(DPCS[1].0.get(), &raw mut other);
    let mut this = ProcessorNumber { group: 0, number: 0, reserved: 0 };
    KeSetTargetProcessorDpcEx(DPCS[0].0.get(), &raw mut this);
    *out = queue;
    STATUS_SUCCESS
}

unsafe fn queue_dpc(dpc: &Shared<Dpc>) {
    KeInsertQueueDpc(dpc.0.get(), core::ptr::null_mut(), core::ptr::null_mut());
}

unsafe extern "C" fn arm(_queue: *mut NDK_CQ, _kind: u32) {
    if !RUNNING.load(Ordering::Acquire) {
        return queue_dpc(&DPCS[0]);
    }
    if !faulty(Fault::NotificationsAtOnce) {
        return AGAIN.store(true, Ordering::Release);
    }
    // The other processor notifies while the first notification is in this call.
    queue_dpc(&DPCS[1]);
    while !SECOND.load(Ordering::Acquire) {
        core::hint::spin_loop();
    }
}

unsafe fn notify() {
    if let Some(callback) = *NOTIFY.0.get() {
        callback(*CONTEXT.0.get(), STATUS_SUCCESS);
    }
}

unsafe extern "C" fn first(_: *mut Dpc, _: *mut c_void, _: *mut c_void, _: *mut c_void) {
    RUNNING.store(true, Ordering::Release);
    if faulty(Fault::DispatchOverwritten) {
        (*QUEUE.0.get().cast::<NDK_CQ>()).Dispatch = &raw const TABLE;
    }
    if faulty(Fault::NotificationLocked) {
        KeAcquireSpinLockAtDpcLevel(LOCK.0.get());
    }
    let before = if faulty(Fault::NotificationRaised) { KfRaiseIrql(DEVICE_LEVEL) } else { 2 };
    notify();
    KeLowerIrql(before);
    if faulty(Fault::NotificationLocked) {
        KeReleaseSpinLockFromDpcLevel(LOCK.0.get());
    }
    RUNNING.store(false, Ordering::Release);
    if AGAIN.swap(false, Ordering::AcqRel) {
        queue_dpc(&DPCS[0]);
    }
}

unsafe extern "C" fn second(_: *mut Dpc, _: *mut c_void, _: *mut c_void, _: *mut c_void) {
    notify();
    SECOND.store(true, Ordering::Release);
}

unsafe extern "C" fn no_results(_: *mut NDK_CQ, _: *mut NDK_RESULT, _: u32) -> u32 {
    0
}

unsafe extern "C" fn no_results_ex(_: *mut NDK_CQ, _: *mut NDK_RESULT_EX, _: u32) -> u32 {
    0
}

unsafe extern "C" fn close(
    _object: *mut NDK_OBJECT_HEADER,
    _completion: Option<NDK_FN_CLOSE_COMPLETION>,
    _context: nt::PVOID,
) -> NtStatus {
    STATUS_SUCCESS
}

/// Before the adapter's close returns, when the queue is long closed.
pub unsafe fn adapter_closes() {
    if faulty(Fault::NotificationAfterClose) {
        queue_dpc(&DPCS[0]);
    }
}
