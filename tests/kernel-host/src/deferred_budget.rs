//! How long one DPC may run. Windows ends a system whose DPC takes too long; a driver that comes near that has a loop
//! without a bound. Counted is what a busy machine cannot add to: the processor time of the thread that runs the DPC, and
//! the time that the DPC asked `KeStallExecutionProcessor` for. Kept when verifying only.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::bugcheck::{BugCheck, bugcheck};
use crate::processor_time;

/// Far more than a sound DPC needs, unoptimised, with guard pages and under the host's checks; far less than Windows' own
/// limit of 20 s in a system that is being debugged.
const BUDGET: Duration = Duration::from_secs(1);

/// What the running DPC of a processor has asked to be stalled, in microseconds.
pub(crate) struct Stalls(AtomicU64);

impl Stalls {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(crate) fn add(&self, microseconds: u32) {
        self.0.fetch_add(u64::from(microseconds), Ordering::Relaxed);
    }
}

/// The beginning of a DPC.
#[derive(Clone, Copy)]
pub(crate) struct Started(Duration);

/// Before a DPC runs; nothing when not verifying.
pub(crate) fn begin(stalls: &Stalls) -> Option<Started> {
    if !crate::kernel::is_verifying() {
        return None;
    }
    stalls.0.store(0, Ordering::Relaxed);
    Some(Started(processor_time::mine()))
}

/// After it returned.
pub(crate) fn end(started: Option<Started>, stalls: &Stalls, routine: usize) {
    let Some(Started(began)) = started else { return };
    let worked = processor_time::mine().saturating_sub(began);
    let stalled = Duration::from_micros(stalls.0.load(Ordering::Relaxed));
    if worked.max(stalled) > BUDGET {
        too_long(worked, stalled, routine);
    }
}

#[cold]
fn too_long(worked: Duration, stalled: Duration, routine: usize) -> ! {
    let name = crate::image::stack_trace::name(&[routine as u64 + 1]);
    let name = name.first().map_or_else(String::new, ToString::to_string);
    bugcheck(
        BugCheck::DPC_WATCHDOG_VIOLATION,
        [0, worked.max(stalled).as_millis() as u64, BUDGET.as_millis() as u64, routine as u64],
        format!(
            "the DPC {name} worked for {} ms and stalled for {} ms; a DPC has {} ms at the most",
            worked.as_millis(),
            stalled.as_millis(),
            BUDGET.as_millis()
        ),
    )
}
