//! The last NDK calls that a provider refused, inline, by completion or by a result: often the reason of a bugcheck.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::object::NdkObject;
use super::results::TakenResult;
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
    way: Way,
}

/// How the consumer learned of it.
enum Way {
    /// The call returned it, to this place.
    Returned(u64),
    /// Its completion came with it.
    Completed,
    /// A result that the call took has it: of which request.
    Result(String),
}

static LAST: Mutex<VecDeque<Refusal>> = Mutex::new(VecDeque::new());

fn record(call: &'static str, object: &NdkObject, status: i32, way: Way) {
    let refusal = Refusal { time: dispatcher::now(), call, object: object.name(), status, way };
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.len() == KEPT {
        last.pop_front();
    }
    last.push_back(refusal);
}

/// A call that returned a failure.
pub(super) fn returned(call: &'static str, object: &NdkObject, status: i32) {
    record(call, object, status, Way::Returned(callout::caller_address(Thread::current())));
}

/// A call that pended and completed with a failure.
pub(super) fn completed(call: &'static str, object: &NdkObject, status: i32) {
    record(call, object, status, Way::Completed);
}

/// A result with a failure, which this call took out of its queue.
pub(super) fn result(call: &'static str, queue: &NdkObject, result: &TakenResult) {
    let TakenResult { context, queue_pair_context, .. } = result;
    let request = format!("{} with RequestContext={context:#x}, QPContext={queue_pair_context:#x}", result.request());
    record(call, queue, result.status, Way::Result(request));
}

/// One line for each, the last one last; nothing when the lock is held.
pub(super) fn describe() -> Vec<String> {
    let Ok(last) = LAST.try_lock() else { return Vec::new() };
    let describe = |refusal: &Refusal| {
        let Refusal { time, call, object, status, way } = refusal;
        let (seconds, micros) = (time / UNITS_PER_SECOND, time % UNITS_PER_SECOND / 10);
        let status = status::text(*status);
        let text = match way {
            Way::Returned(caller) => {
                let frames = stack_trace::name(&[*caller]);
                let place = frames.first().map_or_else(String::new, |frame| format!("  by {frame}"));
                format!("returned {status}{place}")
            }
            Way::Completed => format!("completed with {status}"),
            Way::Result(request) => format!("gave {request}: {status}"),
        };
        format!("{seconds:4}.{micros:06} {call} of {object} {text}")
    };
    last.iter().map(describe).collect()
}
