//! Rundown protection (`EX_RUNDOWN_REF`): a count of users in steps of two, with the low bit for "running down".

use std::sync::atomic::{AtomicU64, Ordering};

use crate::bugcheck::{BugCheck, bugcheck};
use crate::dispatcher::Event;

const ACTIVE: u64 = 1;
const STEP: u64 = 2;

/// Which waiters wait for which reference. Waiters are few.
static WAITERS: std::sync::Mutex<Vec<(usize, std::sync::Arc<Event>)>> = std::sync::Mutex::new(Vec::new());

unsafe fn word<'a>(reference: *mut u64) -> &'a AtomicU64 {
    // SAFETY: an image hands over the address of its reference; a wrong one faults and is reported.
    unsafe { AtomicU64::from_ptr(reference) }
}

/// # Safety
///
/// `reference` is writable, like that of the functions below.
pub(crate) unsafe fn initialise(reference: *mut u64) {
    // SAFETY: the caller's contract.
    unsafe { word(reference) }.store(0, Ordering::Release);
}

pub(crate) unsafe fn acquire(reference: *mut u64) -> bool {
    // SAFETY: the caller's contract.
    let word = unsafe { word(reference) };
    word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |seen| (seen & ACTIVE == 0).then(|| seen + STEP)).is_ok()
}

pub(crate) unsafe fn release(reference: *mut u64) {
    // SAFETY: the caller's contract.
    let word = unsafe { word(reference) };
    let before = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |seen| seen.checked_sub(STEP));
    match before {
        Ok(seen) if seen & !ACTIVE == STEP && seen & ACTIVE != 0 => {
            // The last user left while a thread waits.
            let waiters = WAITERS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            waiters.iter().filter(|(address, _)| *address == reference as usize).for_each(|(_, event)| event.set());
        }
        Ok(_) => {}
        Err(seen) => bugcheck(
            BugCheck::REFERENCE_BY_POINTER,
            [0, reference as u64, seen, 0],
            "rundown protection is released more often than it was acquired",
        ),
    }
}

pub(crate) unsafe fn wait(reference: *mut u64) {
    // SAFETY: the caller's contract.
    let word = unsafe { word(reference) };
    let event = std::sync::Arc::new(Event::notification());
    WAITERS
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .push((reference as usize, std::sync::Arc::clone(&event)));
    let before = word.fetch_or(ACTIVE, Ordering::AcqRel);
    if before & !ACTIVE != 0 {
        event.wait(None);
    }
    WAITERS
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .retain(|(_, other)| !std::sync::Arc::ptr_eq(other, &event));
}

pub(crate) unsafe fn completed(reference: *mut u64) {
    // SAFETY: the caller's contract.
    unsafe { word(reference) }.store(ACTIVE, Ordering::Release);
}

pub(crate) unsafe fn reinitialise(reference: *mut u64) {
    // SAFETY: the caller's contract.
    let word = unsafe { word(reference) };
    let seen = word.load(Ordering::Acquire);
    if seen != ACTIVE {
        bugcheck(
            BugCheck::REFERENCE_BY_POINTER,
            [1, reference as u64, seen, 0],
            "rundown protection is reinitialised that has not been run down",
        );
    }
    word.store(0, Ordering::Release);
}
