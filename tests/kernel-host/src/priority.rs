//! Priorities of threads, as far as they can stop a machine: what a thread of priority 16 or more (WDM: LOW_REALTIME_PRIORITY)
//! keeps from running never runs, because the system does not lift others above it. Below that it does, so nothing starves.
//!
//! As many such threads as there are processors, none of which waits, have the machine to themselves. When verifying, every
//! other thread below DISPATCH_LEVEL is held at its next point, or at the end of its wait, until one of them waits; if none
//! does for a second of its own processor time, that is reported. A schedule by a seed holds by choosing, and counts virtual
//! time.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::bugcheck::{BugCheck, bugcheck_with_stack};
use crate::dispatcher;
use crate::image::stack_trace;
use crate::irql;
use crate::processor;
use crate::processor_time;
use crate::schedule;
use crate::thread::{self, Thread};

/// The priority of a thread that was given no other.
pub const NORMAL: i32 = 8;
/// From here on the system changes nothing by itself.
pub const LOW_REALTIME: i32 = 16;
/// For threads that stand for the machine itself.
const HIGHEST: i32 = 31;

/// How long one thread may keep another from running.
pub(crate) const LONGEST: Duration = Duration::from_secs(1);
/// A thread that uses nothing for so long is not what keeps others waiting: the machine is busy, or it blocks outside of the kernel.
const STILL: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_micros(200);

/// Realtime threads that do not wait. Changed under the dispatcher's lock.
static READY: AtomicUsize = AtomicUsize::new(0);

fn is_realtime(priority: i32) -> bool {
    (LOW_REALTIME..HIGHEST).contains(&priority)
}

/// Gives a thread another priority and returns the one before.
pub(crate) fn set(thread: &Thread, priority: i32) -> i32 {
    let _state = dispatcher::lock();
    let before = thread.priority.swap(priority, Ordering::Relaxed);
    if thread.runnable.load(Ordering::Relaxed) {
        count(is_realtime(before), false);
        count(is_realtime(priority), true);
    }
    if let Some(seat) = thread.seat {
        schedule::set_priority(seat, is_realtime(priority));
    }
    before
}

/// The thread is the host's own and stands for the machine.
pub(crate) fn set_highest(thread: &Thread) {
    thread.priority.store(HIGHEST, Ordering::Relaxed);
}

/// A thread begins or ends a wait, or ends itself. Under the dispatcher's lock.
pub(crate) fn ready_changed(thread: &Thread, ready: bool) {
    count(is_realtime(thread.priority.load(Ordering::Relaxed)), ready);
}

fn count(realtime: bool, more: bool) {
    if !realtime {
        return;
    }
    let now = if more { READY.fetch_add(1, Ordering::Relaxed) + 1 } else { READY.fetch_sub(1, Ordering::Relaxed) - 1 };
    schedule::set_crowded(now >= processor::count() && crate::kernel::is_verifying() && !schedule::is_on());
}

fn is_crowded() -> bool {
    READY.load(Ordering::Relaxed) >= processor::count()
}

/// A point of a thread while realtime threads have all processors.
#[cold]
pub(crate) fn at_point(thread: &Thread) {
    if thread.priority.load(Ordering::Relaxed) < LOW_REALTIME && thread.irql() < irql::DISPATCH {
        keep_waiting(thread);
    }
}

/// A realtime thread as it was seen when another began to be held.
struct ThreadSample {
    thread: &'static Thread,
    waits: u64,
    used: Duration,
}

fn sights() -> Vec<ThreadSample> {
    let ready = |thread: &&'static Thread| {
        is_realtime(thread.priority.load(Ordering::Relaxed)) && thread.runnable.load(Ordering::Relaxed)
    };
    let see = |thread: &'static Thread| {
        let used = processor_time::of(thread.clock)?;
        Some(ThreadSample { thread, waits: thread.waits.load(Ordering::Relaxed), used })
    };
    thread::all().into_iter().filter(ready).filter_map(see).collect()
}

impl ThreadSample {
    /// What it has used since, if it has not waited.
    fn used_since(&self) -> Option<Duration> {
        let same =
            self.thread.waits.load(Ordering::Relaxed) == self.waits && self.thread.runnable.load(Ordering::Relaxed);
        let now = if same { processor_time::of(self.thread.clock) } else { None };
        now.map(|now| now.saturating_sub(self.used))
    }
}

fn keep_waiting(thread: &Thread) {
    let mut seen = sights();
    let (mut most, mut changed) = (Duration::ZERO, Instant::now());
    while is_crowded() {
        std::thread::sleep(LOOK);
        let busy: Vec<(&ThreadSample, Duration)> =
            seen.iter().filter_map(|sight| Some((sight, sight.used_since()?))).collect();
        if busy.len() < processor::count() {
            (seen, most, changed) = (sights(), Duration::ZERO, Instant::now());
            continue;
        }
        // The one that has used least: all of them have had as much.
        let least = busy.iter().map(|(_, used)| *used).min().unwrap_or_default();
        if least > most {
            (most, changed) = (least, Instant::now());
        }
        if least > LONGEST {
            let offenders: Vec<&Thread> = busy.iter().map(|(sight, _)| sight.thread).collect();
            report(&thread.name(), &offenders);
        }
        if changed.elapsed() > STILL {
            return;
        }
    }
}

/// A thread was kept from running for too long.
pub(crate) fn report(held: &str, offenders: &[&Thread]) -> ! {
    let mut rule = format!(
        "the thread \"{held}\" is ready and gets no processor for {} s, because no thread of a realtime priority waits:",
        LONGEST.as_secs()
    );
    for thread in offenders {
        let entered = thread.contexts.try_borrow().ok().and_then(|contexts| contexts.first().map(|first| first.target));
        let entered = entered.map(|target| stack_trace::name(&[target as u64 + 1]));
        let routine = entered.as_deref().and_then(<[_]>::first).map_or_else(String::new, ToString::to_string);
        let priority = thread.priority.load(Ordering::Relaxed);
        let _ = write!(rule, "\n***   thread {} of priority {priority}: {routine}", thread.identifier());
    }
    let first = offenders.first();
    let parameters = [
        0x1060,
        first.map_or(0, |thread| thread.object() as u64),
        first.map_or(0, |thread| thread.priority.load(Ordering::Relaxed) as u64),
        LONGEST.as_millis() as u64,
    ];
    bugcheck_with_stack(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, parameters, &rule, &[])
}
