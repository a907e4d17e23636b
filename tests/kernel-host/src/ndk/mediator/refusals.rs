//! The last NDK calls that a provider refused, inline, by completion or by a result: often the reason of a bugcheck.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::object::NdkObject;
use super::results::TakenResult;
use crate::callout;
use crate::dispatcher::{self, UNITS_PER_SECOND};
use crate::image::stack_trace;
use crate::status;
use crate::thread::Thread;

/// How many are kept.
const KEPT: usize = 256;
/// How many a report shows.
const SHOWN: usize = 16;

/// A refusal in the words of the interface, for a provider that has recorded more of it.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    /// The function that was refused; none when a result does not say of which request it is.
    pub call: Option<&'static str>,
    pub status: i32,
    pub way: RefusedWay,
}

/// How a consumer learns of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedWay {
    Return,
    Completion,
    Result,
}

/// Why a provider refused a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub sentence: String,
    /// The tag of the rule that the call broke, in the provider's list of rules.
    pub rule: Option<&'static str>,
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.sentence)?;
        self.rule.iter().try_for_each(|rule| write!(formatter, " [{rule}]"))
    }
}

/// Why a provider refused a call, if it knows. Called right after the refusal, at any level, by the thread that saw it.
pub type Explain = fn(&Refused) -> Option<Cause>;

static EXPLAIN: OnceLock<Explain> = OnceLock::new();

/// Refusals are recorded and traced with their cause from now on. Once a process.
pub fn explain_by(explain: Explain) {
    let _ = EXPLAIN.set(explain);
}

fn cause(call: Option<&'static str>, status: i32, way: RefusedWay) -> Option<Cause> {
    EXPLAIN.get().and_then(|explain| explain(&Refused { call, status, way }))
}

/// A call that was refused, as the consumer saw it.
#[derive(Clone, Debug)]
pub struct RefusedCall {
    /// The kernel's time, in units of 100 ns.
    pub time: u64,
    /// The function by which the consumer learned of it.
    pub call: &'static str,
    /// The object of that function.
    pub object: String,
    pub status: i32,
    /// "returned", "completed with", "gave a Write with …".
    pub how: String,
    /// Where in the consumer the call was, for calls that returned it.
    pub place: Option<String>,
    /// Why, in the provider's words.
    pub cause: Option<Cause>,
}

impl fmt::Display for RefusedCall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time, call, object, status, how, place, cause } = self;
        let (seconds, micros) = (time / UNITS_PER_SECOND, time % UNITS_PER_SECOND / 10);
        write!(formatter, "{seconds:4}.{micros:06} {call} of {object} {how} {}", status::text(*status))?;
        if let Some(cause) = cause {
            write!(formatter, ", because {cause}")?;
        }
        place.iter().try_for_each(|place| write!(formatter, "  by {place}"))
    }
}

struct Refusal {
    time: u64,
    call: &'static str,
    object: String,
    status: i32,
    how: Learned,
    cause: Option<Cause>,
}

enum Learned {
    /// The call returned it, to this place.
    Returned(u64),
    /// Its completion came with it.
    Completed,
    /// A result that the call took has it: of which request.
    Result(String),
}

#[derive(Default)]
struct Kept {
    last: VecDeque<Refusal>,
    total: u64,
}

static KEPT_REFUSALS: Mutex<Kept> = Mutex::new(Kept { last: VecDeque::new(), total: 0 });

fn record(refusal: Refusal) -> Option<Cause> {
    let cause = refusal.cause.clone();
    let mut kept = KEPT_REFUSALS.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.last.len() == KEPT {
        kept.last.pop_front();
    }
    kept.last.push_back(refusal);
    kept.total += 1;
    cause
}

fn refusal(call: &'static str, object: &NdkObject, status: i32, how: Learned, cause: Option<Cause>) -> Refusal {
    Refusal { time: dispatcher::now(), call, object: object.name(), status, how, cause }
}

fn caller() -> Learned {
    Learned::Returned(callout::caller_address(Thread::current()))
}

/// A call that returned a failure; returns its cause, as all of these do.
pub(super) fn returned(call: &'static str, object: &NdkObject, status: i32) -> Option<Cause> {
    let cause = cause(Some(call), status, RefusedWay::Return);
    record(refusal(call, object, status, caller(), cause))
}

/// A call that did not reach the provider, because [`crate::fault`] makes it fail.
pub(super) fn made_to_fail(call: &'static str, object: &NdkObject, status: i32) {
    let cause = Cause { sentence: "this run makes the call fail".to_owned(), rule: None };
    let _ = record(refusal(call, object, status, caller(), Some(cause)));
}

/// A call that pended and completed with a failure.
pub(super) fn completed(call: &'static str, object: &NdkObject, status: i32) -> Option<Cause> {
    let cause = cause(Some(call), status, RefusedWay::Completion);
    record(refusal(call, object, status, Learned::Completed, cause))
}

/// A result with a failure, which this call took out of its queue.
pub(super) fn result(call: &'static str, queue: &NdkObject, result: &TakenResult) -> Option<Cause> {
    let TakenResult { context, queue_pair_context, status, .. } = result;
    let request = format!("{} with RequestContext={context:#x}, QPContext={queue_pair_context:#x}:", result.request());
    let cause = cause(result.function(), *status, RefusedWay::Result);
    record(refusal(call, queue, *status, Learned::Result(request), cause))
}

impl Refusal {
    fn call(&self) -> RefusedCall {
        let (how, place) = match &self.how {
            Learned::Returned(caller) => {
                ("returned".to_owned(), stack_trace::name(&[*caller]).first().map(ToString::to_string))
            }
            Learned::Completed => ("completed with".to_owned(), None),
            Learned::Result(request) => (format!("gave {request}"), None),
        };
        let Self { time, call, object, status, cause, .. } = self;
        RefusedCall { time: *time, call, object: object.clone(), status: *status, how, place, cause: cause.clone() }
    }
}

/// The last ones, the last one last, and how many there were in all.
pub fn refused_calls() -> (Vec<RefusedCall>, u64) {
    let kept = KEPT_REFUSALS.lock().unwrap_or_else(PoisonError::into_inner);
    (kept.last.iter().map(Refusal::call).collect(), kept.total)
}

/// One line for each of the last, the last one last; nothing when the lock is held.
pub(super) fn describe() -> Vec<String> {
    let Ok(kept) = KEPT_REFUSALS.try_lock() else { return Vec::new() };
    let skipped = kept.last.len().saturating_sub(SHOWN);
    kept.last.iter().skip(skipped).map(|refusal| refusal.call().to_string()).collect()
}
