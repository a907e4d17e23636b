//! Pageable memory when verifying: paged pool, and the sections of images whose names begin with `PAGE`.
//!
//! As Driver Verifier's forced IRQL checking does, everything pageable is trimmed whenever a thread goes to DISPATCH_LEVEL: its
//! pages lose all access. A touch below DISPATCH_LEVEL brings the range back in, a touch at DISPATCH_LEVEL is the bugcheck. What
//! it costs: nothing while nothing pageable is resident; else one change of protection a range at the next rise, and one
//! signal for the next touch. What it cannot see: a touch at DISPATCH_LEVEL while another processor, below it, has just
//! brought the same range in.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::bugcheck::BugCheck;
use crate::irql::{self, Irql};
use crate::memory::address_space::{self, Protection};

/// A range of pages that may be paged out.
struct Pageable {
    length: usize,
    /// The access that it has while it is resident.
    protection: Protection,
    /// What it is, for reports.
    what: String,
    resident: bool,
    /// How many MDLs keep it in memory.
    locks: usize,
}

type Ranges = BTreeMap<usize, Pageable>;

static RANGES: Mutex<Ranges> = Mutex::new(BTreeMap::new());
/// Whether there is anything to trim.
static RESIDENT: AtomicBool = AtomicBool::new(false);

/// Never held while pageable memory is touched: the fault handler takes it.
fn ranges() -> MutexGuard<'static, Ranges> {
    RANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn holding(ranges: &mut Ranges, address: usize) -> Option<(usize, &mut Pageable)> {
    let (start, range) = ranges.range_mut(..=address).next_back()?;
    (address < start + range.length).then_some((*start, range))
}

/// Makes a range of mapped pages pageable; resident until the next rise to DISPATCH_LEVEL.
///
/// # Safety
///
/// The pages lie in one live reservation until [`remove`] is called.
pub(crate) unsafe fn add(address: usize, length: usize, protection: Protection, what: String) {
    ranges().insert(address, Pageable { length, protection, what, resident: true, locks: 0 });
    RESIDENT.store(true, Ordering::Relaxed);
}

/// Removes a range, which is resident afterwards.
pub(crate) fn remove(address: usize) {
    let mut ranges = ranges();
    let Some(range) = ranges.remove(&address) else { return };
    // SAFETY: the reservation is still live.
    unsafe { address_space::protect(address, range.length, range.protection) };
}

/// Whether an address may be paged out.
pub(crate) fn is_pageable(address: usize) -> bool {
    holding(&mut ranges(), address).is_some()
}

/// Keeps the range at an address in memory, as pages locked by an MDL are.
pub(crate) fn lock(address: usize) {
    if let Some((start, range)) = holding(&mut ranges(), address) {
        range.locks += 1;
        range.resident = true;
        // SAFETY: the reservation is live, as the range is known.
        unsafe { address_space::protect(start, range.length, range.protection) };
    }
}

/// Undoes one [`lock`].
pub(crate) fn unlock(address: usize) {
    if let Some((_, range)) = holding(&mut ranges(), address) {
        range.locks = range.locks.saturating_sub(1);
        RESIDENT.store(true, Ordering::Relaxed);
    }
}

/// The current thread has gone to DISPATCH_LEVEL.
#[inline]
pub(crate) fn trim() {
    if RESIDENT.load(Ordering::Relaxed) {
        trim_all();
    }
}

#[cold]
#[inline(never)]
extern "win64" fn trim_all() {
    let mut ranges = ranges();
    RESIDENT.store(false, Ordering::Relaxed);
    for (start, range) in ranges.iter_mut().filter(|(_, range)| range.resident && range.locks == 0) {
        range.resident = false;
        // SAFETY: the reservation is live, as the range is known.
        unsafe { address_space::protect(*start, range.length, Protection::None) };
    }
}

/// What a fault in pageable memory is.
pub(crate) enum PageFault {
    /// Not pageable, or an access that is refused in memory, too.
    Other,
    /// The range is resident now: the access can be made again.
    BroughtIn,
    TooHigh(BugCheck, String),
}

/// Judges a fault by a thread at a level.
pub(crate) fn fault(address: usize, level: Irql, writes: bool, executes: bool) -> PageFault {
    let mut ranges = ranges();
    let Some((start, range)) = holding(&mut ranges, address) else { return PageFault::Other };
    let allowed = match range.protection {
        Protection::None => false,
        Protection::ReadOnly => !writes && !executes,
        Protection::ReadWrite => !executes,
        Protection::ReadExecute => !writes,
        Protection::ReadWriteExecute => true,
    };
    if !allowed {
        return PageFault::Other;
    }
    if level >= irql::DISPATCH && range.locks == 0 {
        let (code, verb) = match (executes, writes) {
            (true, _) => (BugCheck::DRIVER_PORTION_MUST_BE_NONPAGED, "executes"),
            (false, true) => (BugCheck::DRIVER_IRQL_NOT_LESS_OR_EQUAL, "writes"),
            (false, false) => (BugCheck::DRIVER_IRQL_NOT_LESS_OR_EQUAL, "reads"),
        };
        let what = &range.what;
        return PageFault::TooHigh(code, format!("the driver {verb} {address:#x} at {}: {what}", irql::name(level)));
    }
    range.resident = true;
    // SAFETY: the reservation is live, as the range is known.
    unsafe { address_space::protect(start, range.length, range.protection) };
    RESIDENT.store(true, Ordering::Relaxed);
    PageFault::BroughtIn
}
