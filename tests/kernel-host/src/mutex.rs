//! Which mutexes (KMUTEX, fast and guarded ones) are held, and by which thread: for the order of locks, for a second
//! initialisation, for memory that is freed and for threads that end. Kept when verifying only.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::bugcheck::{BugCheck, bugcheck};
use crate::lock_order::{self, HeldLock};
use crate::nt::{DISPATCHER_HEADER, FAST_MUTEX, KMUTANT, object_type};
use crate::processor;
use crate::thread::Thread;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MutexKind {
    /// A `KMUTEX`.
    Mutex,
    /// A `FAST_MUTEX` by any of its functions, or a guarded mutex.
    Fast,
}

impl MutexKind {
    fn length(self) -> usize {
        match self {
            Self::Mutex => size_of::<KMUTANT>(),
            Self::Fast => size_of::<FAST_MUTEX>(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Fast => "fast mutex",
        }
    }
}

/// Held mutexes by address.
static HELD: Mutex<BTreeMap<usize, MutexKind>> = Mutex::new(BTreeMap::new());

fn held() -> MutexGuard<'static, BTreeMap<usize, MutexKind>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now(thread: &Thread, mutex: usize) -> HeldLock {
    HeldLock { lock: mutex, from: crate::callout::caller_address(thread), sleeps: true }
}

/// The thread is about to wait for a mutex, for as long as that needs.
pub(crate) fn acquiring(thread: &Thread, mutex: usize) {
    if crate::kernel::is_verifying() && !processor::in_deferred_call(thread) {
        lock_order::taking(&thread.held_locks.borrow(), now(thread, mutex));
    }
}

/// The thread has a mutex.
pub(crate) fn acquired(thread: &Thread, mutex: usize, kind: MutexKind) {
    if kind == MutexKind::Mutex {
        thread.mutexes_owned.fetch_add(1, Ordering::Relaxed);
    }
    if crate::kernel::is_verifying() {
        thread.held_locks.borrow_mut().push(now(thread, mutex));
        held().insert(mutex, kind);
    }
}

/// The thread gives a mutex back; once for each time that it took it.
pub(crate) fn released(thread: &Thread, mutex: usize, kind: MutexKind) {
    if kind == MutexKind::Mutex {
        thread.mutexes_owned.fetch_sub(1, Ordering::Relaxed);
    }
    if crate::kernel::is_verifying() {
        lock_order::released(thread, mutex);
        if !thread.held_locks.borrow().iter().any(|held| held.lock == mutex) {
            held().remove(&mutex);
        }
    }
}

/// Those of a wait's objects that are mutexes, with their index.
///
/// # Safety
///
/// All are dispatcher objects.
pub(crate) unsafe fn among(objects: &[usize]) -> Vec<(usize, usize)> {
    // SAFETY: the caller's contract.
    let kind = |object: usize| unsafe { (*(object as *const DISPATCHER_HEADER)).Type.load(Ordering::Relaxed) } & 0x7F;
    objects.iter().copied().enumerate().filter(|(_, object)| kind(*object) == object_type::MUTANT).collect()
}

/// Ends a driver that initialises a mutex which is held, or something inside of it.
pub(crate) fn check_not_held(object: usize, function: &str) {
    if !crate::kernel::is_verifying() {
        return;
    }
    let found = held().range(..=object).next_back().map(|(at, kind)| (*at, *kind));
    if let Some((at, kind)) = found.filter(|(at, kind)| object < at + kind.length()) {
        let rule = format!("{function} initialises the {} at {at:#x}, which is held", kind.name());
        initialised_again(at, rule);
    }
}

/// A lock that is in use is initialised.
pub(crate) fn initialised_again(lock: usize, rule: String) -> ! {
    bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, [0x1032, lock as u64, 0, 0], rule)
}

/// A held mutex whose memory overlaps a range (which is about to be freed).
pub(crate) fn held_within(start: usize, end: usize) -> Option<usize> {
    held().range(start..end).next().map(|(at, _)| *at)
}

/// A system thread ends.
pub(crate) fn thread_ends(thread: &Thread) {
    let Some(last) = thread.held_locks.borrow().iter().rfind(|held| held.sleeps).copied() else { return };
    let kind = held().get(&last.lock).copied();
    let code = if kind == Some(MutexKind::Mutex) {
        BugCheck::THREAD_TERMINATE_HELD_MUTEX
    } else {
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION
    };
    let parameters = match kind {
        Some(MutexKind::Mutex) => [thread.object() as u64, last.lock as u64, 0, 0],
        _ => [0x1033, last.lock as u64, thread.object() as u64, 0],
    };
    let name = kind.map_or("lock", MutexKind::name);
    let taken = lock_order::place(last.from);
    bugcheck(
        code,
        parameters,
        format!("a system thread ends and holds the {name} at {:#x}, taken by {taken}", last.lock),
    );
}
