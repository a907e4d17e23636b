//! What the provider may do one way or another: drawn by the seed of a schedule where there is one, otherwise at random.
//! A host that measures draws nothing, but for what a test has asked for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::{kernel, schedule};

static RANDOM: AtomicU64 = AtomicU64::new(0x5741_4C4B_5753_4B31);

/// Streams are cut and stall, also in a host that measures.
static STREAM_FAULTS: AtomicBool = AtomicBool::new(false);

pub(super) fn set_stream_faults(faults: bool) {
    STREAM_FAULTS.store(faults, Ordering::Relaxed);
}

/// Whether a stream stalls now: seldom, and only when a test has asked for it.
pub(super) fn stalls() -> bool {
    STREAM_FAULTS.load(Ordering::Relaxed) && below(200) == 0
}

/// Sends return late.
static SLOW_SENDS: AtomicBool = AtomicBool::new(false);

pub(super) fn set_slow_sends(slow: bool) {
    SLOW_SENDS.store(slow, Ordering::Relaxed);
}

/// At the end of a send, without a lock of the host.
pub(super) fn linger_behind_a_send() {
    if SLOW_SENDS.load(Ordering::Relaxed) {
        schedule::linger(Duration::from_millis(4));
    }
}

/// A number below another, which is not 0.
pub(crate) fn below(limit: usize) -> usize {
    let limit = limit.max(1) as u64;
    if schedule::is_on() {
        return schedule::draw_below(limit) as usize;
    }
    // A step of a Weyl sequence, mixed: no two threads get the same one.
    let mut value = RANDOM.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((value ^ (value >> 31)) % limit) as usize
}

/// True once in so many times, and never when measuring.
pub(crate) fn once_in(times: usize) -> bool {
    kernel::is_verifying() && below(times) == 0
}

/// All of a count, or now and then a part of it: 1 at least, if it is not 0.
pub(crate) fn cut(count: usize) -> usize {
    let cuts = || once_in(3) || STREAM_FAULTS.load(Ordering::Relaxed) && below(3) == 0;
    if count > 1 && cuts() { 1 + below(count) } else { count }
}
