//! The last NDK calls that a provider refused, inline or by completion: often the reason of a bugcheck.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::object::NdkObject;
use crate::callout;
use crate::dispatcher::{self, UNITS_PER_SECOND};
use crate::image::stack_trace;
use crate::status;
use crate::thread::Thread;

/// How many are kept.
const KEPT: usize = 16;

struct Refusal {
    time: u64,
    call: &'static str,
    object: String,
    status: i32,
    /// Where the call was made, or none: it failed by its completion.
    caller: Option<u64>,
}

static LAST: Mutex<VecDeque<Refusal>> = Mutex::new(VecDeque::new());

fn record(call: &'static str, object: &NdkObject, status: i32, caller: Option<u64>) {
    let refusal = Refusal { time: dispatcher::now(), call, object: object.name(), status, caller };
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.len() == KEPT {
        last.pop_front();
    }
    last.push_back(refusal);
}

/// A call that returned a failure.
pub(super) fn returned(call: &'static str, object: &NdkObject, status: i32) {
    record(call, object, status, Some(callout::caller_address(Thread::current())));
}

/// A call that pended and completed with a failure.
pub(super) fn completed(call: &'static str, object: &NdkObject, status: i32) {
    record(call, object, status, None);
}

/// One line for each, the last one last; nothing when the lock is held.
pub(super) fn describe() -> Vec<String> {
    let Ok(last) = LAST.try_lock() else { return Vec::new() };
    let describe = |refusal: &Refusal| {
        let Refusal { time, call, object, status, caller } = refusal;
        let (seconds, micros) = (time / UNITS_PER_SECOND, time % UNITS_PER_SECOND / 10);
        let verb = if caller.is_some() { "returned" } else { "completed with" };
        let frames = stack_trace::name(&[caller.unwrap_or(0)]);
        let place = caller.and(frames.first()).map_or_else(String::new, |frame| format!("  by {frame}"));
        format!("{seconds:4}.{micros:06} {call} of {object} {verb} {}{place}", status::text(*status))
    };
    last.iter().map(describe).collect()
}
