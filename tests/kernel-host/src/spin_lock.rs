//! Spin locks. The lock word holds its owner, so recursion, a release by another thread and a release of a free lock are seen
//! in both modes at no cost; which locks a thread holds is only listed when verifying.
//!
//! Word of a `KSPIN_LOCK`: 0 is free, else the owning thread's address with `HELD`, and `QUEUED` when it was taken through a
//! queue handle. Word of an `EX_SPIN_LOCK`: the number of readers, or `WRITER`.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use crate::bugcheck::{BugCheck, bugcheck};
use crate::deadlock::SpinWait;
use crate::irql;
use crate::lock_order::{self, HeldLock};
use crate::thread::Thread;

pub(crate) const HELD: usize = 1;
pub(crate) const QUEUED: usize = 2;
const WRITER: i32 = i32::MIN;

/// Rounds of waiting between checks for a deadlock.
const BETWEEN_LOOKS: u32 = 4096;

/// How a lock was taken; the two ways must not be mixed on one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Manner {
    Plain,
    Queued,
}

impl Manner {
    fn bits(self) -> usize {
        match self {
            Self::Plain => HELD,
            Self::Queued => HELD | QUEUED,
        }
    }
}

#[inline]
unsafe fn word<'a>(lock: *mut usize) -> &'a AtomicUsize {
    // SAFETY: an image hands over the address of its lock; a wrong one faults and is reported.
    unsafe { AtomicUsize::from_ptr(lock) }
}

fn owner_word(thread: &Thread, manner: Manner) -> usize {
    std::ptr::from_ref(thread) as usize | manner.bits()
}

/// Acquires a lock; the thread is at DISPATCH or above.
///
/// # Safety
///
/// `lock` is an initialised spin lock.
#[inline]
pub unsafe fn acquire(thread: &'static Thread, lock: *mut usize, manner: Manner) {
    acquiring(thread, lock as usize);
    // SAFETY: the caller's contract.
    let word = unsafe { word(lock) };
    if word.compare_exchange(0, owner_word(thread, manner), Ordering::Acquire, Ordering::Relaxed).is_err() {
        acquire_contended(thread, word, manner);
    }
    acquired(thread, lock as usize);
    crate::schedule::point(thread, &"a spin lock is taken");
}

#[cold]
#[inline(never)]
extern "win64" fn acquire_contended(thread: &'static Thread, word: &AtomicUsize, manner: Manner) {
    let me = std::ptr::from_ref(thread) as usize;
    let mut wait = SpinWait::default();
    let mut rounds = 0_u32;
    loop {
        let seen = word.load(Ordering::Relaxed);
        if seen & !(HELD | QUEUED) == me {
            bugcheck(
                BugCheck::SPIN_LOCK_ALREADY_OWNED,
                [word.as_ptr() as u64, 0, 0, 0],
                "a spin lock is acquired by the thread that holds it; spin locks are not recursive",
            );
        }
        if seen != 0 && seen & HELD == 0 {
            bugcheck(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                [0x1008, word.as_ptr() as u64, seen as u64, 0],
                format!("a spin lock holds {seen:#x}: it was never initialised, or it was overwritten"),
            );
        }
        if seen == 0
            && word.compare_exchange_weak(0, owner_word(thread, manner), Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            return;
        }
        if crate::schedule::is_on() {
            crate::schedule::hand_over(thread, "a spin lock is held");
        }
        rounds += 1;
        if rounds.is_multiple_of(256) {
            // The owner's operating-system thread may wait for this very processor.
            std::thread::yield_now();
        }
        if seen == 0 {
            wait = SpinWait::default();
        } else if rounds.is_multiple_of(BETWEEN_LOOKS) {
            let hopeless = wait.is_hopeless(Some(seen & !(HELD | QUEUED)));
            // A lock that was released meanwhile has no holder to report.
            if hopeless && word.load(Ordering::Relaxed) == seen {
                bugcheck(
                    BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                    [0x1009, word.as_ptr() as u64, seen as u64, 0],
                    "a spin lock is not released, however long its holder runs: a deadlock",
                );
            }
        }
        std::hint::spin_loop();
    }
}

/// Acquires a lock if it is free.
///
/// # Safety
///
/// As [`acquire`].
pub unsafe fn try_acquire(thread: &'static Thread, lock: *mut usize) -> bool {
    // SAFETY: the caller's contract.
    let word = unsafe { word(lock) };
    let taken =
        word.compare_exchange(0, owner_word(thread, Manner::Plain), Ordering::Acquire, Ordering::Relaxed).is_ok();
    if taken {
        acquired(thread, lock as usize);
    }
    taken
}

/// Before a lock is taken that may have to be waited for.
#[inline]
fn acquiring(thread: &Thread, lock: usize) {
    if crate::kernel::is_verifying() {
        check_order(thread, lock);
    }
}

#[inline(never)]
extern "win64" fn check_order(thread: &Thread, lock: usize) {
    let from = crate::callout::caller_address(thread);
    let held = thread.held_locks.borrow();
    let second = HeldLock { lock, from, sleeps: false };
    if held.iter().any(|held| held.sleeps) && crate::processor::in_deferred_call(thread) {
        let own: Vec<HeldLock> = held.iter().filter(|held| !held.sleeps).copied().collect();
        return lock_order::taking(&own, second);
    }
    lock_order::taking(&held, second);
}

#[inline]
fn acquired(thread: &Thread, lock: usize) {
    thread.spin_locks_held.store(thread.spin_locks_held.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    if crate::kernel::is_verifying() {
        list(thread, lock);
    }
}

#[inline]
fn released(thread: &Thread, lock: usize) {
    let held = thread.spin_locks_held.load(Ordering::Relaxed);
    thread.spin_locks_held.store(held.saturating_sub(1), Ordering::Relaxed);
    if crate::kernel::is_verifying() {
        strike(thread, lock);
    }
}

#[inline(never)]
extern "win64" fn list(thread: &Thread, lock: usize) {
    let from = crate::callout::caller_address(thread);
    thread.held_locks.borrow_mut().push(HeldLock { lock, from, sleeps: false });
}

#[inline(never)]
extern "win64" fn strike(thread: &Thread, lock: usize) {
    crate::io::irp::before_lock_release();
    lock_order::released(thread, lock);
}

/// Releases a lock; the thread is still at DISPATCH or above.
///
/// # Safety
///
/// As [`acquire`].
#[inline]
pub unsafe fn release(thread: &'static Thread, lock: *mut usize, manner: Manner) {
    // SAFETY: the caller's contract.
    let word = unsafe { word(lock) };
    let seen = word.load(Ordering::Relaxed);
    if seen != owner_word(thread, manner) || thread.irql() < irql::DISPATCH {
        released_wrongly(thread, lock, seen, manner);
    }
    released(thread, lock as usize);
    word.store(0, Ordering::Release);
    crate::schedule::point(thread, &"a spin lock is released");
}

#[cold]
#[inline(never)]
extern "win64" fn released_wrongly(thread: &Thread, lock: *mut usize, seen: usize, manner: Manner) -> ! {
    let me = std::ptr::from_ref(thread) as usize;
    let parameters = [lock as u64, seen as u64, u64::from(thread.irql()), 0];
    if seen == 0 {
        bugcheck(BugCheck::SPIN_LOCK_NOT_OWNED, parameters, "a spin lock without an owner is released");
    }
    if seen & !(HELD | QUEUED) != me {
        bugcheck(
            BugCheck::SPIN_LOCK_NOT_OWNED,
            parameters,
            "a spin lock is released by a thread that does not hold it",
        );
    }
    if thread.irql() < irql::DISPATCH {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [0x1014, parameters[0], parameters[1], parameters[2]],
            "a spin lock is released below DISPATCH_LEVEL: the IRQL was lowered while it was held",
        );
    }
    bugcheck(
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        [0x100A, parameters[0], parameters[1], manner.bits() as u64],
        "a spin lock is taken one way (plain or queued) and released the other",
    )
}

/// Checks the level to which a release lowers.
#[inline]
pub fn check_new_level(lock: *mut usize, new: irql::Irql) {
    if new > irql::DISPATCH {
        impossible_level(lock, new);
    }
}

#[cold]
#[inline(never)]
extern "win64" fn impossible_level(lock: *mut usize, new: irql::Irql) -> ! {
    bugcheck(
        BugCheck::IRQL_NOT_LESS_OR_EQUAL,
        [lock as u64, u64::from(new), 0, 0],
        "KeReleaseSpinLock gets a level that was not the one before the acquisition",
    )
}

/// Ends a driver that initialises a lock which a thread holds. Memory that was never written to rarely names a thread.
pub(crate) fn check_not_in_use(lock: *mut usize, function: &str) {
    if !crate::kernel::is_verifying() {
        return;
    }
    // SAFETY: an image hands over the address of its lock; a wrong one faults and is reported.
    let seen = unsafe { word(lock) }.load(Ordering::Relaxed);
    let owner = seen & !(HELD | QUEUED);
    let held =
        seen & HELD != 0 && crate::thread::all().iter().any(|thread| std::ptr::from_ref(*thread) as usize == owner);
    if held {
        crate::mutex::initialised_again(
            lock as usize,
            format!("{function} initialises the spin lock at {lock:p}, which is held"),
        );
    }
}

/// Whether the address of a held lock lies in a range (which is about to be freed).
pub(crate) fn held_within(start: usize, end: usize) -> Option<usize> {
    let held = Thread::try_current()?.held_locks.borrow();
    held.iter().filter(|held| !held.sleeps).map(|held| held.lock).find(|lock| (start..end).contains(lock))
}

/// Acquires a reader-writer spin lock for writing.
///
/// # Safety
///
/// `lock` is an initialised `EX_SPIN_LOCK`.
pub unsafe fn acquire_exclusive(thread: &'static Thread, lock: *mut i32) {
    // SAFETY: the caller's contract.
    let word = unsafe { AtomicI32::from_ptr(lock) };
    check_not_held(thread, lock as usize);
    acquiring(thread, lock as usize);
    spin_until(thread, lock as u64, || {
        word.compare_exchange_weak(0, WRITER, Ordering::Acquire, Ordering::Relaxed).is_ok()
    });
    acquired(thread, lock as usize);
    crate::schedule::point(thread, &"a spin lock is taken");
}

/// Acquires it for reading.
///
/// # Safety
///
/// As [`acquire_exclusive`].
pub unsafe fn acquire_shared(thread: &'static Thread, lock: *mut i32) {
    // SAFETY: the caller's contract.
    let word = unsafe { AtomicI32::from_ptr(lock) };
    check_not_held(thread, lock as usize);
    acquiring(thread, lock as usize);
    spin_until(thread, lock as u64, || {
        let readers = word.load(Ordering::Relaxed);
        readers >= 0 && word.compare_exchange_weak(readers, readers + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    });
    acquired(thread, lock as usize);
    crate::schedule::point(thread, &"a spin lock is taken");
}

fn check_not_held(thread: &Thread, lock: usize) {
    if crate::kernel::is_verifying() && thread.held_locks.borrow().iter().any(|held| held.lock == lock) {
        bugcheck(
            BugCheck::SPIN_LOCK_ALREADY_OWNED,
            [lock as u64, 0, 0, 0],
            "a reader-writer spin lock is acquired by the thread that holds it",
        );
    }
}

fn spin_until(thread: &Thread, lock: u64, mut attempt: impl FnMut() -> bool) {
    let mut wait = SpinWait::default();
    let mut rounds = 0_u32;
    while !attempt() {
        if crate::schedule::is_on() {
            crate::schedule::hand_over(thread, "a reader-writer lock is held");
        }
        rounds += 1;
        if rounds.is_multiple_of(256) {
            std::thread::yield_now();
            // The word has the number of holders, not the holders.
            if rounds.is_multiple_of(BETWEEN_LOOKS) && wait.is_hopeless(None) {
                bugcheck(
                    BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                    [0x1009, lock, 0, 0],
                    "a reader-writer spin lock has not been released for a long time: a deadlock",
                );
            }
        }
        std::hint::spin_loop();
    }
}

/// Releases a reader-writer spin lock.
///
/// # Safety
///
/// As [`acquire_exclusive`].
pub unsafe fn release_reader_writer(thread: &'static Thread, lock: *mut i32, exclusive: bool) {
    // SAFETY: the caller's contract.
    let word = unsafe { AtomicI32::from_ptr(lock) };
    let seen = word.load(Ordering::Relaxed);
    let held_so = if exclusive { seen == WRITER } else { seen > 0 };
    if !held_so || thread.irql() < irql::DISPATCH {
        bugcheck(
            BugCheck::SPIN_LOCK_NOT_OWNED,
            [lock as u64, seen as u64, u64::from(thread.irql()), 0],
            "a reader-writer spin lock is released that is not held that way, or below DISPATCH_LEVEL",
        );
    }
    released(thread, lock as usize);
    if exclusive {
        word.store(0, Ordering::Release);
    } else {
        word.fetch_sub(1, Ordering::Release);
    }
    crate::schedule::point(thread, &"a spin lock is released");
}
