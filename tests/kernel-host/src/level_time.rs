//! How long threads are at DISPATCH_LEVEL at a stretch, from raising the level until it is lowered, by path (`stretches`).
//!
//! Deferred procedures that run when the level is lowered are not part of it; they are measured in [`crate::deferred_budget`]. The time
//! includes waits for locks. Levels that the twins of exports change are not seen: images that are loaded with their imports
//! counted have none.

use crate::callout::caller_address;
use crate::stretches::{PathTimes, Times};
use crate::thread::Thread;

static TIMES: Times = Times::new();

/// From now on times are kept, where imports are counted.
pub fn measure() {
    TIMES.begin();
}

/// Those since [`measure`].
pub fn times() -> Vec<PathTimes> {
    TIMES.end()
}

/// The thread has come to DISPATCH_LEVEL.
#[inline]
pub(crate) fn raised(thread: &Thread) {
    if TIMES.is_measured() {
        thread.stretch.begin(caller_address(thread));
    }
}

/// The thread is about to leave it.
#[inline]
pub(crate) fn lowered(thread: &Thread) {
    if thread.stretch.is_open() {
        thread.stretch.end(&TIMES, caller_address(thread));
    }
}
