//! Doubly linked lists under a spin lock of the driver's: `ExInterlockedInsertHeadList` and its relatives.

use crate::irql;
use crate::nt::LIST_ENTRY;
use crate::spin_lock::{self, Manner};
use crate::thread::Thread;

crate::exports! {
    module "ntoskrnl.exe";

    /// Puts an entry in front; returns the entry that was first, or NULL.
    /// Checks: those of the spin lock
    /// Source: WDM: ExInterlockedInsertHeadList
    [UP_TO_DISPATCH] fn ExInterlockedInsertHeadList(
        head: *mut LIST_ENTRY, entry: *mut LIST_ENTRY, lock: *mut usize,
    ) -> *mut LIST_ENTRY {
        // SAFETY: the image's list, entry and lock.
        unsafe { locked(lock, || {
            let first = (*head).Flink;
            insert(entry, head, first);
            if first == head { std::ptr::null_mut() } else { first }
        }) }
    }

    /// Puts an entry at the end; returns the entry that was last, or NULL.
    /// Checks: those of the spin lock
    /// Source: WDM: ExInterlockedInsertTailList
    [UP_TO_DISPATCH] fn ExInterlockedInsertTailList(
        head: *mut LIST_ENTRY, entry: *mut LIST_ENTRY, lock: *mut usize,
    ) -> *mut LIST_ENTRY {
        // SAFETY: the image's list, entry and lock.
        unsafe { locked(lock, || {
            let last = (*head).Blink;
            insert(entry, last, head);
            if last == head { std::ptr::null_mut() } else { last }
        }) }
    }

    /// Takes the first entry out, or returns NULL.
    /// Checks: those of the spin lock
    /// Source: WDM: ExInterlockedRemoveHeadList
    [UP_TO_DISPATCH] fn ExInterlockedRemoveHeadList(head: *mut LIST_ENTRY, lock: *mut usize) -> *mut LIST_ENTRY {
        // SAFETY: the image's list and lock.
        unsafe { locked(lock, || {
            let first = (*head).Flink;
            if first == head {
                return std::ptr::null_mut();
            }
            (*head).Flink = (*first).Flink;
            (*(*first).Flink).Blink = head;
            first
        }) }
    }
}

/// # Safety
///
/// A list and its neighbours that the caller has locked.
unsafe fn insert(entry: *mut LIST_ENTRY, before: *mut LIST_ENTRY, after: *mut LIST_ENTRY) {
    // SAFETY: the caller's contract.
    unsafe {
        (*entry).Flink = after;
        (*entry).Blink = before;
        (*before).Flink = entry;
        (*after).Blink = entry;
    }
}

/// # Safety
///
/// An initialised spin lock.
unsafe fn locked<T>(lock: *mut usize, body: impl FnOnce() -> T) -> T {
    let level = irql::raise(irql::DISPATCH);
    // SAFETY: the caller's contract.
    unsafe { spin_lock::acquire(Thread::current(), lock, Manner::Plain) };
    let result = body();
    // SAFETY: acquired just now.
    unsafe { spin_lock::release(Thread::current(), lock, Manner::Plain) };
    irql::lower(level);
    result
}
