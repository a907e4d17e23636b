//! How long threads are at DISPATCH_LEVEL at a stretch: the longest of all is kept, from raising the level until it is lowered.
//!
//! Deferred procedures that run when the level is lowered are not part of it; they are measured in [`crate::deferred_budget`]. The time
//! includes whatever keeps the processor from the thread meanwhile. Levels that the twins of exports change are not seen: images that
//! are loaded with their imports counted have none.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::deferred_budget;
use crate::thread::Thread;
use crate::thunk::time_stamp_counter;

static MEASURED: AtomicBool = AtomicBool::new(false);
/// In ticks of the processor's clock.
static LONGEST: AtomicU64 = AtomicU64::new(0);

/// From now on the longest time is kept.
pub fn measure() {
    LONGEST.store(0, Ordering::Relaxed);
    MEASURED.store(true, Ordering::Relaxed);
}

/// The longest time since [`measure`].
pub fn longest() -> Duration {
    MEASURED.store(false, Ordering::Relaxed);
    deferred_budget::duration_of(LONGEST.load(Ordering::Relaxed))
}

/// The thread has come to DISPATCH_LEVEL.
#[inline]
pub(crate) fn raised(thread: &Thread) {
    if MEASURED.load(Ordering::Relaxed) {
        thread.raised_at.store(time_stamp_counter(), Ordering::Relaxed);
    }
}

/// The thread is about to leave it.
#[inline]
pub(crate) fn lowered(thread: &Thread) {
    if MEASURED.load(Ordering::Relaxed) {
        let since = thread.raised_at.swap(0, Ordering::Relaxed);
        if since != 0 {
            LONGEST.fetch_max(time_stamp_counter().saturating_sub(since), Ordering::Relaxed);
        }
    }
}
