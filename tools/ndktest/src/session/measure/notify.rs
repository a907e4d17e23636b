//! The loop that is notified: a post on one processor, the notification on another that has nothing to do.

use core::sync::atomic::Ordering;

use ndkpi_sys::ndkpi::{NDK_CQ_NOTIFY_ANY, NDK_OP_FLAGS, NDK_RESULT};
use softndk_ioctl::{MeasureRequest, MeasureResult, Status};
use softndk_kernel::{clock, thread::Bound};

use super::{TimedSpan, call_status::spin, interruption::Interruption, lane::Lane};
use crate::{driver::Driver, session::consumer::check};

/// The processor that posts; the completion queue prefers the next one.
const POSTING: u32 = 0;
/// Rounds before the time is taken.
const WARM_UP: u64 = 64;

/// The processor that the completion queue prefers.
pub fn home(processors: u32) -> u32 {
    (POSTING + 1) % processors.max(1)
}

/// So many Reads, one at a time. PASSIVE_LEVEL.
pub fn run(
    lane: &Lane<'_>,
    asked: &MeasureRequest,
    home: u32,
    interruption: &Interruption<'_>,
    result: &mut MeasureResult,
) -> Result<TimedSpan, Status> {
    let clock = &Driver::get().ok_or(Status::DEVICE_REMOVED)?.clock;
    let _bound = Bound::to(POSTING);
    for _ in 0..WARM_UP.min(asked.request_count) {
        round(lane, interruption)?;
    }
    let begun = clock.now();
    let mut ticks = 0_u64;
    for _ in 0..asked.request_count {
        interruption.check()?;
        let taken = round(lane, interruption)?;
        ticks = ticks.saturating_add(taken);
        result.latency.record(clock.nanoseconds(taken));
        result.elsewhere += u64::from(lane.client.signal.processor.load(Ordering::Relaxed) != home);
    }
    result.elapsed = clock.nanoseconds(ticks);
    result.posted = asked.request_count;
    result.completed = asked.request_count;
    result.notifications = asked.request_count;
    Ok(TimedSpan { begun, ended: clock.now() })
}

/// Ticks from just before the post to the first instruction of the notification.
fn round(lane: &Lane<'_>, interruption: &Interruption<'_>) -> Result<u64, Status> {
    let (queue, signal) = (lane.client.queue.handle(), &lane.client.signal);
    let before = signal.notifications.load(Ordering::Acquire);
    queue.arm(NDK_CQ_NOTIFY_ANY);
    let posted = clock::ticks();
    post(lane)?;
    let mut spins = 0;
    while signal.notifications.load(Ordering::Acquire) == before {
        if spin(&mut spins) {
            interruption.check()?;
        }
    }
    if signal.failed() {
        return Err(Status::IO_DEVICE_ERROR);
    }
    let mut results = [NDK_RESULT::zeroed(); 1];
    while queue.poll_first_form(&mut results) == 0 {
        if spin(&mut spins) {
            interruption.check()?;
        }
    }
    check(results[0].Status)?;
    // Counters of two processors may differ by a little.
    Ok(signal.ticks.load(Ordering::Relaxed).saturating_sub(posted))
}

fn post(lane: &Lane<'_>) -> Result<(), Status> {
    let target = lane.target(0).ok_or(Status::INVALID_PARAMETER)?;
    let slot = lane.slots.as_slice().first().ok_or(Status::INVALID_PARAMETER)?;
    let (context, token) = (core::ptr::null_mut(), lane.server_memory.remote_token);
    check(target.client.read(context, slot.sges(), slot.remote, token, NDK_OP_FLAGS::empty()))
}
