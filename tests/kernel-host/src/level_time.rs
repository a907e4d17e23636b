//! How long threads are at DISPATCH_LEVEL at a stretch: the longest of all is kept, from raising the level until it is lowered.
//!
//! Deferred procedures that run when the level is lowered are not part of it; they are measured in [`crate::deferred_budget`]. The time
//! includes waits for locks; one in which the system gave the processor to something else does not count, because at
//! DISPATCH_LEVEL Windows does not. Levels that the twins of exports change are not seen: images that are loaded with their imports
//! counted have none.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::longest::{Longest, context_switches};
use crate::thread::Thread;
use crate::thunk::time_stamp_counter;

static TIMES: Longest = Longest::new();

/// From now on the longest time is kept, if every change of the level is seen.
pub fn measure() {
    if crate::import_counts::is_on() {
        TIMES.begin();
    }
}

/// The longest time since [`measure`].
pub fn longest() -> Duration {
    TIMES.end()
}

/// The thread has come to DISPATCH_LEVEL.
#[inline]
pub(crate) fn raised(thread: &Thread) {
    if TIMES.is_measured() {
        thread.switches.store(context_switches(), Ordering::Relaxed);
        thread.raised_at.store(time_stamp_counter(), Ordering::Relaxed);
    }
}

/// The thread is about to leave it.
#[inline]
pub(crate) fn lowered(thread: &Thread) {
    if TIMES.is_measured() {
        let since = thread.raised_at.swap(0, Ordering::Relaxed);
        if since != 0 && context_switches() == thread.switches.load(Ordering::Relaxed) {
            TIMES.note(since);
        }
    }
}
