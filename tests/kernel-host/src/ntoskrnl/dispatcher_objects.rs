//! Events, semaphores, mutexes, fast mutexes, critical regions and waits.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::bugcheck::{BugCheck, bugcheck};
use crate::dispatcher;
use crate::exports;
use crate::irql;
use crate::lock_order;
use crate::mutex;
use crate::nt::{FAST_MUTEX, KEVENT, KMUTANT, KSEMAPHORE, object_type};
use crate::status::{NtStatus, STATUS_SUCCESS};
use crate::thread::Thread;

/// The longest list for KeWaitForMultipleObjects without wait blocks of the caller's, and with them.
const THREAD_WAIT_OBJECTS: u32 = 3;
const MAXIMUM_WAIT_OBJECTS: u32 = 64;

exports! {
    module "ntoskrnl.exe";

    /// Fills a KEVENT.
    /// Checks: no thread waits for it; not in pageable memory
    /// Source: WDM: KeInitializeEvent
    [ANY] fn KeInitializeEvent(event: *mut KEVENT, kind: u32, state: u8) {
        let kind = if kind == 0 { object_type::NOTIFICATION_EVENT } else { object_type::SYNCHRONIZATION_EVENT };
        dispatcher::check_initialisation(event as usize, "KeInitializeEvent");
        // SAFETY: the image's event.
        unsafe { dispatcher::initialise_header(event.cast(), kind, size_of::<KEVENT>(), i32::from(state != 0)) };
    }

    /// Signals the event and wakes whom it satisfies; returns the state before.
    /// Checks: an initialised event; PASSIVE or APC with Wait set
    /// Source: WDM: KeSetEvent
    [UP_TO_DISPATCH] fn KeSetEvent(event: *mut KEVENT, _increment: i32, _wait: u8) -> i32 {
        // SAFETY: the image's event.
        unsafe { dispatcher::set_event(event) }
    }

    /// Resets the event.
    /// Source: WDM: KeClearEvent
    [UP_TO_DISPATCH] fn KeClearEvent(event: *mut KEVENT) {
        // SAFETY: the image's event.
        unsafe { dispatcher::change(event.cast(), |_| 0) };
    }

    /// Resets the event and returns the state before.
    /// Source: WDM: KeResetEvent
    [UP_TO_DISPATCH] fn KeResetEvent(event: *mut KEVENT) -> i32 {
        // SAFETY: the image's event.
        unsafe { dispatcher::change(event.cast(), |_| 0) }
    }

    /// The event's state.
    /// Source: WDM: KeReadStateEvent
    [UP_TO_DISPATCH] fn KeReadStateEvent(event: *mut KEVENT) -> i32 {
        // SAFETY: the image's event.
        unsafe { (*event).Header.SignalState.load(Ordering::Relaxed) }
    }

    /// Waits for a dispatcher object, for ever, until a time-out, or not at all.
    /// Checks: no wait at DISPATCH unless the time-out is 0; an initialised object; not on a stack in UserMode
    /// Source: WDM: KeWaitForSingleObject
    [UP_TO_DISPATCH] fn KeWaitForSingleObject(
        object: usize, _reason: u32, mode: u8, _alertable: u8, timeout: *const i64,
    ) -> NtStatus {
        dispatcher::check_mode(&[object], mode, "KeWaitForSingleObject");
        // SAFETY: the image's object and time-out.
        unsafe {
            let timeout = (!timeout.is_null()).then(|| timeout.read());
            dispatcher::wait("KeWaitForSingleObject", &[object], false, timeout)
        }
    }

    /// Waits for one or all of several objects.
    /// Checks: as KeWaitForSingleObject; at most 3 objects without wait blocks, 64 with
    /// Source: WDM: KeWaitForMultipleObjects
    [UP_TO_DISPATCH] fn KeWaitForMultipleObjects(
        count: u32, objects: *const usize, wait_type: u32, _reason: u32, mode: u8, _alertable: u8, timeout: *const i64,
        blocks: *mut u8,
    ) -> NtStatus {
        let most = if blocks.is_null() { THREAD_WAIT_OBJECTS } else { MAXIMUM_WAIT_OBJECTS };
        if count == 0 || count > most {
            bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, [0x1013, u64::from(count), u64::from(most), 0],
                format!("KeWaitForMultipleObjects is given {count} objects; {most} is the most"));
        }
        // SAFETY: the image's array and time-out.
        unsafe {
            let objects = std::slice::from_raw_parts(objects, count as usize);
            dispatcher::check_mode(objects, mode, "KeWaitForMultipleObjects");
            let timeout = (!timeout.is_null()).then(|| timeout.read());
            dispatcher::wait("KeWaitForMultipleObjects", objects, wait_type == 0, timeout)
        }
    }

    /// Lets the thread sleep, when verifying until a tick of the clock, as on Windows; virtual time jumps when all threads do.
    /// Checks: never at DISPATCH
    /// Source: WDM: KeDelayExecutionThread
    [UP_TO_DISPATCH] fn KeDelayExecutionThread(_mode: u8, _alertable: u8, interval: *const i64) -> NtStatus {
        // SAFETY: the image's interval.
        dispatcher::delay_to_a_tick(unsafe { interval.read() });
        STATUS_SUCCESS
    }

    /// Fills a KSEMAPHORE.
    /// Checks: no thread waits for it; not in pageable memory
    /// Source: WDM: KeInitializeSemaphore
    [ANY] fn KeInitializeSemaphore(semaphore: *mut KSEMAPHORE, count: i32, limit: i32) {
        dispatcher::check_initialisation(semaphore as usize, "KeInitializeSemaphore");
        // SAFETY: the image's semaphore.
        unsafe {
            dispatcher::initialise_header(semaphore.cast(), object_type::SEMAPHORE, size_of::<KSEMAPHORE>(), count);
            (*semaphore).Limit = limit;
        }
    }

    /// Adds to the count and wakes waiters.
    /// Checks: the limit
    /// Source: WDM: KeReleaseSemaphore
    [UP_TO_DISPATCH] fn KeReleaseSemaphore(semaphore: *mut KSEMAPHORE, _increment: i32, adjustment: i32, _wait: u8) -> i32 {
        // SAFETY: the image's semaphore.
        unsafe {
            let limit = (*semaphore).Limit;
            dispatcher::change(semaphore.cast(), |count| {
                let sum = count.saturating_add(adjustment);
                if adjustment <= 0 || sum > limit {
                    bugcheck(BugCheck::KMODE_EXCEPTION_NOT_HANDLED, [0xC000_0047, semaphore as u64, sum as u64, limit as u64],
                        "KeReleaseSemaphore raises STATUS_SEMAPHORE_LIMIT_EXCEEDED");
                }
                sum
            })
        }
    }

    /// Fills a KMUTEX.
    /// Checks: not held; no thread waits for it; not in pageable memory
    /// Source: WDM: KeInitializeMutex
    [ANY] fn KeInitializeMutex(mutex: *mut KMUTANT, _level: u32) {
        dispatcher::check_initialisation(mutex as usize, "KeInitializeMutex");
        lock_order::forget(&(mutex as usize..mutex as usize + 1));
        // SAFETY: the image's mutex.
        unsafe {
            dispatcher::initialise_header(mutex.cast(), object_type::MUTANT, size_of::<KMUTANT>(), 1);
            (*mutex).OwnerThread = std::ptr::null_mut();
            (*mutex).ApcDisable = 1;
        }
    }

    /// Releases a mutex that the thread owns.
    /// Checks: the owner
    /// Source: WDM: KeReleaseMutex
    [UP_TO_DISPATCH] fn KeReleaseMutex(mutex: *mut KMUTANT, _wait: u8) -> i32 {
        // SAFETY: the image's mutex.
        unsafe {
            if (*mutex).OwnerThread != Thread::current().object() {
                bugcheck(BugCheck::KMODE_EXCEPTION_NOT_HANDLED, [0xC000_0046, mutex as u64, 0, 0],
                    "KeReleaseMutex raises STATUS_MUTANT_NOT_OWNED");
            }
            mutex::released(Thread::current(), mutex as usize, mutex::MutexKind::Mutex);
            dispatcher::change(mutex.cast(), |state| {
                if state == 0 {
                    (*mutex).OwnerThread = std::ptr::null_mut();
                }
                state + 1
            })
        }
    }

    /// Waits for a fast mutex and masks APCs (APC_LEVEL).
    /// Checks: no recursion
    /// Source: WDM: ExAcquireFastMutex
    [UP_TO_APC] fn ExAcquireFastMutex(mutex: *mut FAST_MUTEX) {
        // SAFETY: the image's mutex, filled by the inline ExInitializeFastMutex: count 1 and a synchronization event.
        unsafe {
            let old = irql::raise(irql::APC);
            acquire_fast_mutex(mutex, "ExAcquireFastMutex");
            (*mutex).OldIrql = u32::from(old);
        }
    }

    /// Takes a fast mutex if it is free.
    /// Source: WDM: ExTryToAcquireFastMutex
    [UP_TO_APC] fn ExTryToAcquireFastMutex(mutex: *mut FAST_MUTEX) -> u8 {
        let thread = Thread::current();
        // SAFETY: the image's mutex.
        unsafe {
            let count = std::sync::atomic::AtomicI32::from_ptr(&raw mut (*mutex).Count);
            if count.compare_exchange(1, 0, Ordering::Acquire, Ordering::Relaxed).is_err() {
                return 0;
            }
            (*mutex).OldIrql = u32::from(irql::raise(irql::APC));
            (*mutex).Owner = thread.object().cast();
            mutex::acquired(thread, mutex as usize, mutex::MutexKind::Fast);
            1
        }
    }

    /// Releases a fast mutex.
    /// Checks: the owner; at APC_LEVEL, as it was acquired
    /// Source: WDM: ExReleaseFastMutex
    [UP_TO_APC] fn ExReleaseFastMutex(mutex: *mut FAST_MUTEX) {
        if irql::current() != irql::APC {
            bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, [0x34, u64::from(irql::current()), mutex as u64, 0],
                format!("ExReleaseFastMutex is called at {}; a fast mutex is held at APC_LEVEL", irql::name(irql::current())));
        }
        // SAFETY: the image's mutex.
        unsafe {
            let old = (*mutex).OldIrql as u8;
            release_fast_mutex(mutex);
            irql::lower(old);
        }
    }

    /// Waits for a fast mutex in a critical region or at APC_LEVEL, which stays as it is.
    /// Checks: APCs are masked; no recursion
    /// Source: WDM: ExAcquireFastMutexUnsafe
    [UP_TO_APC] fn ExAcquireFastMutexUnsafe(mutex: *mut FAST_MUTEX) {
        check_apcs(0x39, mutex, "ExAcquireFastMutexUnsafe");
        // SAFETY: the image's mutex.
        unsafe { acquire_fast_mutex(mutex, "ExAcquireFastMutexUnsafe") };
    }

    /// Releases it and leaves the level alone.
    /// Checks: APCs are masked; the owner
    /// Source: WDM: ExReleaseFastMutexUnsafe
    [UP_TO_APC] fn ExReleaseFastMutexUnsafe(mutex: *mut FAST_MUTEX) {
        check_apcs(0x3A, mutex, "ExReleaseFastMutexUnsafe");
        // SAFETY: the image's mutex.
        unsafe { release_fast_mutex(mutex) };
    }

    /// Fills a guarded mutex, which has the layout of a fast one.
    /// Checks: not held; not in pageable memory
    /// Source: WDM: KeInitializeGuardedMutex
    [UP_TO_APC] fn KeInitializeGuardedMutex(mutex: *mut FAST_MUTEX) {
        // SAFETY: the image's mutex.
        unsafe {
            (*mutex).Count = 1;
            (*mutex).Owner = std::ptr::null_mut();
            KeInitializeEvent(&raw mut (*mutex).Event, 1, 0);
        }
    }

    /// Enters a guarded region and waits for the mutex.
    /// Checks: no recursion
    /// Source: WDM: KeAcquireGuardedMutex
    [UP_TO_APC] fn KeAcquireGuardedMutex(mutex: *mut FAST_MUTEX) {
        Thread::current().guarded_regions.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the image's mutex.
        unsafe { acquire_fast_mutex(mutex, "KeAcquireGuardedMutex") };
    }

    /// Releases it and leaves the guarded region.
    /// Checks: the owner
    /// Source: WDM: KeReleaseGuardedMutex
    [UP_TO_APC] fn KeReleaseGuardedMutex(mutex: *mut FAST_MUTEX) {
        // SAFETY: the image's mutex.
        unsafe { release_fast_mutex(mutex) };
        leave_region(&Thread::current().guarded_regions, 0x4_000E, "KeReleaseGuardedMutex");
    }

    /// Masks ordinary APCs for the thread.
    /// Source: WDM: KeEnterCriticalRegion
    [UP_TO_APC] fn KeEnterCriticalRegion() {
        Thread::current().critical_regions.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a critical region.
    /// Checks: one was entered
    /// Source: WDM: KeLeaveCriticalRegion
    [UP_TO_APC] fn KeLeaveCriticalRegion() {
        leave_region(&Thread::current().critical_regions, 0x1016, "KeLeaveCriticalRegion");
    }

    /// Masks all APCs for the thread.
    /// Source: WDM: KeEnterGuardedRegion
    [UP_TO_APC] fn KeEnterGuardedRegion() {
        Thread::current().guarded_regions.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a guarded region.
    /// Checks: one was entered
    /// Source: WDM: KeLeaveGuardedRegion
    [UP_TO_APC] fn KeLeaveGuardedRegion() {
        leave_region(&Thread::current().guarded_regions, 0x4_000E, "KeLeaveGuardedRegion");
    }

    /// Whether ordinary APCs are masked.
    /// Source: WDM: KeAreApcsDisabled
    [ANY] fn KeAreApcsDisabled() -> u8 {
        u8::from(Thread::current().masked_apcs() != 0)
    }
}

/// The unsafe forms of a fast mutex leave it to the caller to mask APCs.
fn check_apcs(subject: u64, mutex: *mut FAST_MUTEX, what: &str) {
    let thread = Thread::current();
    if thread.irql() < irql::APC && thread.masked_apcs() == 0 {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [subject, mutex as u64, 0, 0],
            format!("{what} is called with APCs enabled"),
        );
    }
}

/// # Safety
///
/// A mutex with its count, and a synchronization event.
unsafe fn acquire_fast_mutex(mutex: *mut FAST_MUTEX, what: &'static str) {
    let thread = Thread::current();
    dispatcher::check_place(mutex as usize, what);
    mutex::acquiring(thread, mutex as usize);
    // SAFETY: the caller's contract.
    unsafe {
        if (*mutex).Owner == thread.object().cast() {
            bugcheck(
                BugCheck::MUTEX_ALREADY_OWNED,
                [thread.object() as u64, mutex as u64, 0, 0],
                "a fast mutex is acquired by the thread that owns it",
            );
        }
        let count = std::sync::atomic::AtomicI32::from_ptr(&raw mut (*mutex).Count);
        if count.fetch_sub(1, Ordering::Acquire) != 1 {
            dispatcher::wait(what, &[&raw mut (*mutex).Event as usize], false, None);
        }
        (*mutex).Owner = thread.object().cast();
    }
    mutex::acquired(thread, mutex as usize, mutex::MutexKind::Fast);
}

/// # Safety
///
/// As above.
unsafe fn release_fast_mutex(mutex: *mut FAST_MUTEX) {
    // SAFETY: the caller's contract.
    unsafe {
        if (*mutex).Owner != Thread::current().object().cast() {
            bugcheck(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                [0x1015, mutex as u64, 0, 0],
                "a fast mutex is released by a thread that does not own it",
            );
        }
        mutex::released(Thread::current(), mutex as usize, mutex::MutexKind::Fast);
        (*mutex).Owner = std::ptr::null_mut();
        let count = std::sync::atomic::AtomicI32::from_ptr(&raw mut (*mutex).Count);
        if count.fetch_add(1, Ordering::Release) < 0 {
            dispatcher::set_event(&raw mut (*mutex).Event);
        }
    }
}

fn leave_region(regions: &AtomicU32, subject: u64, what: &str) {
    if regions.load(Ordering::Relaxed) == 0 {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [subject, 0, 0, 0],
            format!("{what} is called without the region having been entered"),
        );
    }
    regions.fetch_sub(1, Ordering::Relaxed);
}
