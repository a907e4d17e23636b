//! Spin locks of every kind, and the IRQL itself.

use crate::bugcheck::{BugCheck, bugcheck};
use crate::dispatcher;
use crate::exports;
use crate::fast;
use crate::irql::{self, Irql};
use crate::lock_order;
use crate::nt::KLOCK_QUEUE_HANDLE;
use crate::spin_lock::{self, Manner};
use crate::thread::Thread;

exports! {
    module "ntoskrnl.exe";

    /// The current level.
    /// Checks: not asked by a miniport's handler that gets it by a flag
    /// Source: WDM: KeGetCurrentIrql
    [ANY, fast = fast::KeGetCurrentIrql] fn KeGetCurrentIrql() -> Irql {
        if crate::kernel::is_verifying() {
            crate::ndis::data_path::check_level_not_told(Thread::current());
        }
        irql::current()
    }

    /// Raises the level; DISPATCH takes the processor.
    /// Checks: not downwards
    /// Source: WDM: KeRaiseIrql
    [ANY, fast = fast::KfRaiseIrql] fn KfRaiseIrql(new: Irql) -> Irql {
        irql::raise(new)
    }

    /// Raises to DISPATCH.
    /// Source: WDM: KeRaiseIrqlToDpcLevel
    [UP_TO_DISPATCH, fast = fast::KeRaiseIrqlToDpcLevel] fn KeRaiseIrqlToDpcLevel() -> Irql {
        irql::raise(irql::DISPATCH)
    }

    /// Lowers the level; below DISPATCH queued DPCs run and the processor is given up.
    /// Checks: not upwards; no spin lock held below DISPATCH; not inside a DPC
    /// Source: WDM: KeLowerIrql
    [ANY, fast = fast::KeLowerIrql] fn KeLowerIrql(new: Irql) {
        lower(new);
    }

    /// The same, by its old name.
    /// Source: WDM: KeLowerIrql
    [ANY, fast = fast::KfLowerIrql] fn KfLowerIrql(new: Irql) {
        lower(new);
    }

    /// Frees the lock word.
    /// Checks: not held; not in pageable memory
    /// Source: WDM: KeInitializeSpinLock
    [ANY] fn KeInitializeSpinLock(lock: *mut usize) {
        dispatcher::check_place(lock as usize, "KeInitializeSpinLock");
        spin_lock::check_not_in_use(lock, "KeInitializeSpinLock");
        lock_order::forget(&(lock as usize..lock as usize + 1));
        // SAFETY: the image's lock.
        unsafe { lock.write(0) };
    }

    /// Raises to DISPATCH and acquires.
    /// Checks: no recursion; an initialised lock
    /// Source: WDM: KeAcquireSpinLockRaiseToDpc
    [UP_TO_DISPATCH, fast = fast::KeAcquireSpinLockRaiseToDpc] fn KeAcquireSpinLockRaiseToDpc(lock: *mut usize) -> Irql {
        let old = irql::raise(irql::DISPATCH);
        // SAFETY: the image's lock.
        unsafe { spin_lock::acquire(Thread::current(), lock, Manner::Plain) };
        old
    }

    /// Releases and goes back to the level before.
    /// Checks: held by this thread, at DISPATCH
    /// Source: WDM: KeReleaseSpinLock
    [ANY, fast = fast::KeReleaseSpinLock] fn KeReleaseSpinLock(lock: *mut usize, new: Irql) {
        spin_lock::check_new_level(lock, new);
        // SAFETY: the image's lock.
        unsafe { spin_lock::release(Thread::current(), lock, Manner::Plain) };
        lower(new);
    }

    /// Acquires at DISPATCH.
    /// Checks: no recursion; an initialised lock
    /// Source: WDM: KeAcquireSpinLockAtDpcLevel
    [FROM_DISPATCH, fast = fast::KeAcquireSpinLockAtDpcLevel] fn KeAcquireSpinLockAtDpcLevel(lock: *mut usize) {
        // SAFETY: the image's lock.
        unsafe { spin_lock::acquire(Thread::current(), lock, Manner::Plain) };
    }

    /// Releases and stays at DISPATCH.
    /// Checks: held by this thread
    /// Source: WDM: KeReleaseSpinLockFromDpcLevel
    [ANY, fast = fast::KeReleaseSpinLockFromDpcLevel] fn KeReleaseSpinLockFromDpcLevel(lock: *mut usize) {
        // SAFETY: the image's lock.
        unsafe { spin_lock::release(Thread::current(), lock, Manner::Plain) };
    }

    /// Acquires at DISPATCH if the lock is free.
    /// Source: WDM: KeTryToAcquireSpinLockAtDpcLevel
    [FROM_DISPATCH] fn KeTryToAcquireSpinLockAtDpcLevel(lock: *mut usize) -> u8 {
        // SAFETY: the image's lock.
        u8::from(unsafe { spin_lock::try_acquire(Thread::current(), lock) })
    }

    /// Whether the lock is free.
    /// Source: WDM: KeTestSpinLock
    [ANY] fn KeTestSpinLock(lock: *mut usize) -> u8 {
        // SAFETY: the image's lock.
        u8::from(unsafe { std::sync::atomic::AtomicUsize::from_ptr(lock) }.load(std::sync::atomic::Ordering::Relaxed) == 0)
    }

    /// Raises to DISPATCH and acquires through a queue handle.
    /// Checks: as the plain kind; the handle stays where it is; never mixed with the plain kind
    /// Source: WDM: KeAcquireInStackQueuedSpinLock
    [UP_TO_DISPATCH, fast = fast::KeAcquireInStackQueuedSpinLock] fn KeAcquireInStackQueuedSpinLock(lock: *mut usize, handle: *mut KLOCK_QUEUE_HANDLE) {
        let old = irql::raise(irql::DISPATCH);
        // SAFETY: the image's lock and handle.
        unsafe { acquire_queued(lock, handle, old) };
    }

    /// Releases through the queue handle and goes back.
    /// Checks: held by this thread through this handle
    /// Source: WDM: KeReleaseInStackQueuedSpinLock
    [ANY, fast = fast::KeReleaseInStackQueuedSpinLock] fn KeReleaseInStackQueuedSpinLock(handle: *mut KLOCK_QUEUE_HANDLE) {
        // SAFETY: the image's handle.
        let old = unsafe { release_queued(handle) };
        lower(old);
    }

    /// Acquires through a queue handle at DISPATCH.
    /// Source: WDM: KeAcquireInStackQueuedSpinLockAtDpcLevel
    [FROM_DISPATCH] fn KeAcquireInStackQueuedSpinLockAtDpcLevel(lock: *mut usize, handle: *mut KLOCK_QUEUE_HANDLE) {
        // SAFETY: the image's lock and handle.
        unsafe { acquire_queued(lock, handle, irql::DISPATCH) };
    }

    /// Releases through the queue handle and stays at DISPATCH.
    /// Source: WDM: KeReleaseInStackQueuedSpinLockFromDpcLevel
    [ANY] fn KeReleaseInStackQueuedSpinLockFromDpcLevel(handle: *mut KLOCK_QUEUE_HANDLE) {
        // SAFETY: the image's handle.
        unsafe { release_queued(handle) };
    }

    /// Acquires through a queue handle in a DPC, threaded or not; this host runs both at DISPATCH.
    /// Source: WDM: KeAcquireInStackQueuedSpinLockForDpc
    [FROM_DISPATCH] fn KeAcquireInStackQueuedSpinLockForDpc(lock: *mut usize, handle: *mut KLOCK_QUEUE_HANDLE) {
        // SAFETY: the image's lock and handle.
        unsafe { acquire_queued(lock, handle, irql::DISPATCH) };
    }

    /// Releases it there.
    /// Source: WDM: KeReleaseInStackQueuedSpinLockForDpc
    [ANY] fn KeReleaseInStackQueuedSpinLockForDpc(handle: *mut KLOCK_QUEUE_HANDLE) {
        // SAFETY: the image's handle.
        unsafe { release_queued(handle) };
    }

    /// Acquires a reader-writer spin lock for reading.
    /// Checks: not held by this thread
    /// Source: WDM: ExAcquireSpinLockShared
    [UP_TO_DISPATCH] fn ExAcquireSpinLockShared(lock: *mut i32) -> Irql {
        let old = irql::raise(irql::DISPATCH);
        // SAFETY: the image's lock.
        unsafe { spin_lock::acquire_shared(Thread::current(), lock) };
        old
    }

    /// Releases it and goes back.
    /// Checks: held for reading
    /// Source: WDM: ExReleaseSpinLockShared
    [ANY] fn ExReleaseSpinLockShared(lock: *mut i32, old: Irql) {
        // SAFETY: the image's lock.
        unsafe { spin_lock::release_reader_writer(Thread::current(), lock, false) };
        lower(old);
    }

    /// Acquires a reader-writer spin lock for writing.
    /// Checks: not held by this thread
    /// Source: WDM: ExAcquireSpinLockExclusive
    [UP_TO_DISPATCH] fn ExAcquireSpinLockExclusive(lock: *mut i32) -> Irql {
        let old = irql::raise(irql::DISPATCH);
        // SAFETY: the image's lock.
        unsafe { spin_lock::acquire_exclusive(Thread::current(), lock) };
        old
    }

    /// Releases it and goes back.
    /// Checks: held for writing
    /// Source: WDM: ExReleaseSpinLockExclusive
    [ANY] fn ExReleaseSpinLockExclusive(lock: *mut i32, old: Irql) {
        // SAFETY: the image's lock.
        unsafe { spin_lock::release_reader_writer(Thread::current(), lock, true) };
        lower(old);
    }

    /// Acquires for reading at DISPATCH.
    /// Source: WDM: ExAcquireSpinLockSharedAtDpcLevel
    [FROM_DISPATCH] fn ExAcquireSpinLockSharedAtDpcLevel(lock: *mut i32) {
        // SAFETY: the image's lock.
        unsafe { spin_lock::acquire_shared(Thread::current(), lock) };
    }

    /// Releases a lock held for reading and stays at DISPATCH.
    /// Source: WDM: ExReleaseSpinLockSharedFromDpcLevel
    [ANY] fn ExReleaseSpinLockSharedFromDpcLevel(lock: *mut i32) {
        // SAFETY: the image's lock.
        unsafe { spin_lock::release_reader_writer(Thread::current(), lock, false) };
    }

    /// Acquires for writing at DISPATCH.
    /// Source: WDM: ExAcquireSpinLockExclusiveAtDpcLevel
    [FROM_DISPATCH] fn ExAcquireSpinLockExclusiveAtDpcLevel(lock: *mut i32) {
        // SAFETY: the image's lock.
        unsafe { spin_lock::acquire_exclusive(Thread::current(), lock) };
    }

    /// Releases a lock held for writing and stays at DISPATCH.
    /// Source: WDM: ExReleaseSpinLockExclusiveFromDpcLevel
    [ANY] fn ExReleaseSpinLockExclusiveFromDpcLevel(lock: *mut i32) {
        // SAFETY: the image's lock.
        unsafe { spin_lock::release_reader_writer(Thread::current(), lock, true) };
    }
}

/// KeLowerIrql with the rule that spin locks need DISPATCH.
#[inline]
fn lower(new: Irql) {
    let thread = Thread::current();
    if new < irql::DISPATCH && thread.spin_locks_held.load(std::sync::atomic::Ordering::Relaxed) != 0 {
        lowered_with_spin_lock(thread, new);
    }
    irql::lower(new);
}

#[cold]
#[inline(never)]
extern "win64" fn lowered_with_spin_lock(thread: &Thread, new: Irql) -> ! {
    let held = thread.spin_locks_held.load(std::sync::atomic::Ordering::Relaxed);
    bugcheck(
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        [0x1017, u64::from(new), u64::from(held), 0],
        format!("the IRQL is lowered to {} while {held} spin lock(s) are held", irql::name(new)),
    )
}

unsafe fn acquire_queued(lock: *mut usize, handle: *mut KLOCK_QUEUE_HANDLE, old: Irql) {
    // SAFETY: the caller's contract.
    unsafe {
        spin_lock::acquire(Thread::current(), lock, Manner::Queued);
        (*handle).Next = std::ptr::null_mut();
        (*handle).Lock = lock;
        (*handle).OldIrql = old;
    }
}

unsafe fn release_queued(handle: *mut KLOCK_QUEUE_HANDLE) -> Irql {
    // SAFETY: the caller's contract.
    unsafe {
        let lock = (*handle).Lock;
        if lock.is_null() {
            bugcheck(
                BugCheck::SPIN_LOCK_NOT_OWNED,
                [handle as u64, 0, 0, 0],
                "a queue handle is released that holds no lock (it was moved, or released before)",
            );
        }
        (*handle).Lock = std::ptr::null_mut();
        spin_lock::release(Thread::current(), lock, Manner::Queued);
        (*handle).OldIrql
    }
}
