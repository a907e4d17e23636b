//! Waits of programs: in the host's virtual time, and over at once when the process is killed.

use super::process::ProcessState;
use crate::dispatcher::{self, Event, Time};
use crate::status::{self, NtStatus};

/// `INFINITE`.
const INFINITE: u32 = u32::MAX;

/// Units of 100 ns in a millisecond.
const MILLISECOND: u64 = 10_000;

/// Until when a wait of so many milliseconds lasts; `None` for ever.
pub(super) fn deadline_of(milliseconds: u32) -> Option<Time> {
    (milliseconds != INFINITE).then(|| dispatcher::now() + u64::from(milliseconds) * MILLISECOND)
}

/// Waits for one of several: its index, STATUS_TIMEOUT, or another status when the process was killed.
pub(super) fn wait_for_any(process: &ProcessState, events: &[&Event], deadline: Option<Time>) -> NtStatus {
    let interval = deadline.map(|deadline| -(deadline.saturating_sub(dispatcher::now()) as i64));
    let objects: Vec<_> = events.iter().map(|event| event.address() as usize).collect();
    let objects = [&objects[..], &[process.death.address() as usize]].concat();
    // SAFETY: the host's own events, which the callers' references keep.
    let answer = unsafe { dispatcher::wait("a wait of a user program", &objects, false, interval) };
    if answer == events.len() as NtStatus { status::STATUS_CANCELLED } else { answer }
}

/// Waits for an event: STATUS_SUCCESS, STATUS_TIMEOUT, or another status when the process was killed.
pub(super) fn wait(process: &ProcessState, event: &Event, deadline: Option<Time>) -> NtStatus {
    // 0 only checks.
    let interval = deadline.map(|deadline| -(deadline.saturating_sub(dispatcher::now()) as i64));
    let objects = [event.address() as usize, process.death.address() as usize];
    // SAFETY: both are the host's own events, which the callers' references keep.
    unsafe { dispatcher::wait("a wait of a user program", &objects, false, interval) }
}
