//! Timers (`KTIMER`) and the clocks that images read.

use std::sync::atomic::Ordering;

use crate::bugcheck::{BugCheck, bugcheck};
use crate::dispatcher::{self, Deadline, DispatcherState, Time};
use crate::dpc;
use crate::image::stack_trace;
use crate::ledger;
use crate::nt::{KDPC, KTIMER, object_type};
use crate::thread::Thread;

/// A tick of the clock, as `KeQueryTimeIncrement` reports it: 1 ms.
pub(crate) const INCREMENT: u32 = 10_000;

/// The kind under which set timers are recorded.
pub const LEDGER_KIND: &str = "set timer";

/// System time at boot: 2025-01-01, so that runs do not depend on the day.
const SYSTEM_TIME_AT_BOOT: u64 = 133_801_632_000_000_000;

/// System time now: 100 ns units since 1601.
pub fn system_time() -> u64 {
    SYSTEM_TIME_AT_BOOT + dispatcher::now()
}

pub(crate) fn interrupt_time_of_system_time(system_time: i64) -> Time {
    (system_time as u64).saturating_sub(SYSTEM_TIME_AT_BOOT)
}

/// Fills a timer.
///
/// # Safety
///
/// `timer` is writable.
pub(crate) unsafe fn initialise(timer: *mut KTIMER, synchronization: bool) {
    dispatcher::check_place(timer as usize, "KeInitializeTimerEx");
    let kind = if synchronization { object_type::SYNCHRONIZATION_TIMER } else { object_type::NOTIFICATION_TIMER };
    let mut state = dispatcher::lock();
    if is_set(&state, timer as usize) {
        drop(state);
        bugcheck(
            BugCheck::TIMER_OR_DPC_INVALID,
            [1, timer as u64, 0, 0],
            "KeInitializeTimerEx is given a timer that is set",
        );
    }
    remove(&mut state, timer as usize);
    // SAFETY: the caller's contract.
    unsafe {
        dispatcher::initialise_header(timer.cast(), kind, size_of::<KTIMER>(), 0);
        (*timer).DueTime = 0;
        (*timer).Dpc = std::ptr::null_mut();
        (*timer).Processor = 0;
        (*timer).TimerType = 0;
        (*timer).Period = 0;
    }
}

fn is_set(state: &DispatcherState, address: usize) -> bool {
    state.deadlines.values().any(|deadline| *deadline == Deadline::Timer(address))
}

fn remove(state: &mut DispatcherState, address: usize) -> bool {
    let key = state.deadlines.iter().find(|(_, deadline)| **deadline == Deadline::Timer(address)).map(|(key, _)| *key);
    key.is_some_and(|key| state.deadlines.remove(&key).is_some())
}

/// Sets a timer; whether it was set before.
///
/// # Safety
///
/// `timer` is initialised and stays valid while set; `deferred` is null or an initialised DPC that stays valid.
pub(crate) unsafe fn set(timer: *mut KTIMER, due: i64, period: i32, deferred: *mut KDPC) -> bool {
    // SAFETY: the caller's contract.
    unsafe {
        let kind = (*timer).Header.Type.load(Ordering::Relaxed) & 0x7F;
        if kind != object_type::NOTIFICATION_TIMER && kind != object_type::SYNCHRONIZATION_TIMER {
            bugcheck(
                BugCheck::TIMER_OR_DPC_INVALID,
                [1, timer as u64, u64::from(kind), 0],
                "KeSetTimerEx is given a KTIMER that was never initialised",
            );
        }
        let was_set;
        {
            let mut state = dispatcher::lock();
            was_set = remove(&mut state, timer as usize);
            (*timer).Header.SignalState.store(0, Ordering::Relaxed);
            (*timer).Dpc = deferred;
            (*timer).Period = period.max(0) as u32;
            let due = dispatcher::deadline_of(due);
            (*timer).DueTime = due;
            state.add_deadline(due, Deadline::Timer(timer as usize));
            // Under the lock, as the release is: a timer whose deadline has passed already expires as soon as the lock is free.
            if !was_set {
                ledger::record(LEDGER_KIND, timer as usize, "");
            }
        }
        was_set
    }
}

/// Cancels a timer; whether it was set.
///
/// # Safety
///
/// `timer` is initialised.
pub(crate) unsafe fn cancel(timer: *mut KTIMER) -> bool {
    let mut state = dispatcher::lock();
    let was_set = remove(&mut state, timer as usize);
    if was_set {
        ledger::release(LEDGER_KIND, timer as usize);
    }
    was_set
}

/// Signals an expired timer and returns its DPC. Runs on the clock, under the dispatcher's lock.
pub(crate) fn expire(state: &mut DispatcherState, address: usize) -> Option<usize> {
    let timer = address as *mut KTIMER;
    // SAFETY: a set timer is valid; freeing its memory while it is set is caught by the pool.
    unsafe {
        (*timer).Header.SignalState.store(1, Ordering::Relaxed);
        state.signal(address);
        let period = u64::from((*timer).Period);
        if period == 0 {
            ledger::release(LEDGER_KIND, address);
        } else {
            let due = (*timer).DueTime + period * 10_000;
            let due = due.max(dispatcher::now().saturating_sub(period * 10_000));
            (*timer).DueTime = due;
            state.add_deadline(due, Deadline::Timer(address));
        }
        let deferred = (*timer).Dpc;
        (!deferred.is_null()).then_some(deferred as usize)
    }
}

/// Queues the DPC of an expired timer. On the clock, no lock held.
pub(crate) fn queue_deferred_call(address: usize) {
    // SAFETY: the timer's DPC, valid as long as the timer may expire.
    unsafe { dpc::insert_from_clock(Thread::current(), address as *mut KDPC) };
}

/// Whether a set timer fires again and again.
pub(crate) fn is_periodic(address: usize) -> bool {
    // SAFETY: a set timer is valid; freeing its memory while it is set is caught by the pool.
    unsafe { (*(address as *const KTIMER)).Period != 0 }
}

/// How often a set timer fires, and what it calls; for the report of a hang.
pub(crate) fn describe_period(address: usize) -> String {
    let timer = address as *const KTIMER;
    // SAFETY: as above; its DPC is valid as long as the timer may expire.
    unsafe {
        let period = format!("every {} ms", (*timer).Period);
        let Some(deferred) = (*timer).Dpc.as_ref() else { return period };
        let routine = stack_trace::name(&[deferred.DeferredRoutine as u64 + 1]);
        routine.first().map_or_else(|| period.clone(), |routine| format!("{period}; its DPC is {routine}"))
    }
}

/// Set timers inside an address range.
pub(crate) fn set_within(start: usize, end: usize) -> Option<usize> {
    dispatcher::lock().deadlines.values().find_map(|deadline| match deadline {
        Deadline::Timer(address) if (start..end).contains(address) => Some(*address),
        _ => None,
    })
}
