//! Interruptions: one thread is stopped at a chosen point while another runs a whole operation. Points are those of a schedule:
//! the entry of an export, a spin lock taken or released, a routine of an image entered or left, the middle of a long copy. A
//! test that goes through all points of a call this way has met each of its windows, on real threads and without a seed. Where a
//! test asks for them, the holds of the host's own tables are points as well ([`interrupted_in_the_host`]).
//!
//! The stopped thread goes on when the other one has ended, or cannot go on without it: every other thread of the kernel waits,
//! or for a while of real time nothing has come to an end (it spins for a lock or a processor that the stopped one has).
//!
//! A thread can be preempted instead ([`preempted`]): at a point below DISPATCH_LEVEL, for a time of the kernel's, whatever the
//! others do meanwhile. Or it is suspended ([`suspended`]), as by a debugger: at the first point from a chosen one on at which the
//! kernel would deliver the suspension, which a critical region, a guarded region, an owned mutex and APC_LEVEL hold off. After
//! [`watch_copies`] the pages that an image's own copies touch are points as well.
//!
//! A driver's own threads can be held at an export ([`hold_system_threads`]), as threads are that get no processor, until the test lets go of the
//! hold.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::callout::ContextKind;
use crate::dispatcher::{self, Event};
use crate::irql;
use crate::schedule;
use crate::thread::{self, Thread};

/// How long the other thread may take while it does not wait.
const LONGEST: Duration = Duration::from_millis(50);
/// How often it is checked.
const LOOK: Duration = Duration::from_micros(200);

#[derive(Clone, Copy, PartialEq, Eq)]
enum MeetingState {
    /// The point has not been reached.
    Ready,
    /// It has: the other thread begins.
    Begins,
    Runs,
    Ended,
    /// The point was never reached.
    Off,
}

struct Meeting {
    state: Mutex<MeetingState>,
    changed: Condvar,
    stop: Stop,
}

/// How a thread is stopped.
#[derive(Clone, Copy)]
enum Stop {
    /// For as long as the other one takes.
    Interrupted,
    /// The same, with the holds of the host's tables as points, too.
    InterruptedInTheHost,
    /// Below DISPATCH_LEVEL, for so long.
    Preempted(Duration),
    /// Where its normal kernel APCs are delivered, for so long.
    Suspended(Duration),
}

impl Stop {
    /// Whether the thread can be stopped so where it is now.
    fn is_possible(self, thread: &Thread) -> bool {
        match self {
            Self::Interrupted | Self::InterruptedInTheHost => true,
            Self::Preempted(_) => thread.irql() < irql::DISPATCH,
            Self::Suspended(_) => thread.irql() < irql::APC && thread.masked_apcs() == 0,
        }
    }
}

thread_local! {
    /// What this thread is to be interrupted for, and before which of its points.
    static EXPECTED: Cell<(*const Meeting, u64)> = const { Cell::new((ptr::null(), 0)) };
    /// The point was reached, and the suspension is held off.
    static DUE: Cell<bool> = const { Cell::new(false) };
}

/// The pages that copies of images touch are points.
static WATCHING: AtomicBool = AtomicBool::new(false);

/// An interruption has asked for the holds of the host's tables.
static HOLDS: AtomicBool = AtomicBool::new(false);

/// Without a schedule: of each mapping of an MDL that is made from now on one page at a time has no access, and its first touch by
/// image code is a point.
pub fn watch_copies() {
    WATCHING.store(true, Ordering::Relaxed);
}

#[inline]
pub(crate) fn watches_copies() -> bool {
    WATCHING.load(Ordering::Relaxed)
}

impl Meeting {
    fn state(&self) -> MutexGuard<'_, MeetingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn become_(&self, state: MeetingState) {
        *self.state() = state;
        self.changed.notify_all();
    }

    /// On the thread that was stopped: the other one runs, however busy the machine is.
    fn has_begun(&self) {
        let waiting = self.changed.wait_while(self.state(), |state| *state == MeetingState::Begins);
        drop(waiting.unwrap_or_else(PoisonError::into_inner));
    }

    /// On the thread: the other one runs from here on. A thread that is stopped for a time sleeps it.
    fn stop_here(&self) {
        self.become_(MeetingState::Begins);
        if let Stop::Preempted(length) | Stop::Suspended(length) = self.stop {
            self.has_begun();
            dispatcher::delay(-i64::try_from(length.as_nanos() / 100).unwrap_or(i64::MAX));
        }
    }

    /// On the stopped thread: until the other one has ended, or cannot go on.
    fn until_it_ends(&self, thread: &Thread) {
        let mut since = Instant::now();
        let mut idle = 0;
        loop {
            std::thread::sleep(LOOK);
            let state = *self.state();
            if state == MeetingState::Begins {
                // A busy machine has not run it yet.
                since = Instant::now();
                continue;
            }
            // Twice: between the end of a wait and the next check a thread may begin that is not counted yet.
            idle = if dispatcher::all_others_wait(thread) { idle + 1 } else { 0 };
            if state == MeetingState::Ended || idle == 2 || since.elapsed() > LONGEST {
                return;
            }
        }
    }

    /// On the other thread: whether the point is reached.
    fn is_wanted(&self) -> bool {
        let waiting = self.changed.wait_while(self.state(), |state| *state == MeetingState::Ready);
        *waiting.unwrap_or_else(PoisonError::into_inner) == MeetingState::Begins
    }
}

/// Runs `body` and, on another thread at the point of `body` that has this number, `other`. Whether there was such a point: if not,
/// `other` has not run. At PASSIVE, and not with a schedule by a seed.
pub fn interrupted(at: u64, other: impl FnOnce() + Send, body: impl FnOnce()) -> bool {
    meet(at, Stop::Interrupted, other, body)
}

/// As [`interrupted`], with the holds of the host's tables as points: for the host's own look at what others change.
pub fn interrupted_in_the_host(at: u64, other: impl FnOnce() + Send, body: impl FnOnce()) -> bool {
    HOLDS.store(true, Ordering::Relaxed);
    meet(at, Stop::InterruptedInTheHost, other, body)
}

/// As [`interrupted`] at the points below DISPATCH_LEVEL only, as a thread is that the system preempts: it gets no processor for so
/// long, by the clock of the kernel.
pub fn preempted(at: u64, length: Duration, other: impl FnOnce() + Send, body: impl FnOnce()) -> bool {
    meet(at, Stop::Preempted(length), other, body)
}

/// As [`interrupted`], for a thread that another one suspends when it has come to the point, and resumes after so long by the clock
/// of the kernel. Where it is not to be stopped yet it is stopped later, at the end of `body` at the latest.
pub fn suspended(at: u64, length: Duration, other: impl FnOnce() + Send, body: impl FnOnce()) -> bool {
    meet(at, Stop::Suspended(length), other, body)
}

fn meet(at: u64, stop: Stop, other: impl FnOnce() + Send, body: impl FnOnce()) -> bool {
    assert!(!schedule::is_on(), "a schedule has its own interruptions");
    let meeting = Meeting { state: Mutex::new(MeetingState::Ready), changed: Condvar::new(), stop };
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            if meeting.is_wanted() {
                let attachment = thread::attach("interrupting");
                meeting.become_(MeetingState::Runs);
                other();
                drop(attachment);
                meeting.become_(MeetingState::Ended);
            }
        });
        EXPECTED.set((&raw const meeting, at));
        schedule::set_interrupting(true);
        body();
        schedule::set_interrupting(false);
        if DUE.take() {
            // Behind everything that held the suspension off.
            meeting.stop_here();
        }
        EXPECTED.set((ptr::null(), 0));
        let met = *meeting.state() != MeetingState::Ready;
        if !met {
            meeting.become_(MeetingState::Off);
        }
        if let Err(panic) = dispatcher::while_blocked(|| running.join()) {
            std::panic::resume_unwind(panic);
        }
        met
    })
}

/// A table of the host is about to be held.
#[inline]
pub(crate) fn before_a_hold() {
    if HOLDS.load(Ordering::Relaxed) {
        at_a_hold();
    }
}

#[cold]
fn at_a_hold() {
    let (meeting, _) = EXPECTED.get();
    // SAFETY: as in `at_point`.
    if unsafe { meeting.as_ref() }.is_some_and(|meeting| matches!(meeting.stop, Stop::InterruptedInTheHost))
        && let Some(thread) = Thread::try_current()
    {
        at_point(thread);
    }
}

/// A point of a thread while there is one to be interrupted.
pub(crate) fn at_point(thread: &Thread) {
    let (meeting, left) = EXPECTED.get();
    // SAFETY: set by `interrupted`, on this thread, for as long as the meeting exists.
    let Some(meeting) = (unsafe { meeting.as_ref() }) else { return };
    let is_possible = meeting.stop.is_possible(thread);
    // A suspension that is held off has reached its point; others look for one where they are possible.
    let counts = is_possible || matches!(meeting.stop, Stop::Suspended(_));
    if counts && left > 0 {
        EXPECTED.set((meeting, left - 1));
        return;
    }
    if !is_possible {
        DUE.set(counts);
        return;
    }
    DUE.set(false);
    EXPECTED.set((ptr::null(), 0));
    meeting.stop_here();
    if let Stop::Interrupted | Stop::InterruptedInTheHost = meeting.stop {
        meeting.until_it_ends(thread);
    }
}

/// Where system threads are held, and what they wait for there.
static HELD_AT: Mutex<Option<(&str, Arc<Event>)>> = Mutex::new(None);

/// Until it is dropped, a system thread of a driver waits below DISPATCH_LEVEL at its next entry of an export.
pub struct Hold(Arc<Event>);

/// Holds system threads at the export with this name. One hold at a time.
#[must_use]
pub fn hold_system_threads(export: &'static str) -> Hold {
    let event = Arc::new(Event::notification());
    *HELD_AT.lock().unwrap_or_else(PoisonError::into_inner) = Some((export, Arc::clone(&event)));
    schedule::set_holding(true);
    Hold(event)
}

impl Drop for Hold {
    fn drop(&mut self) {
        schedule::set_holding(false);
        *HELD_AT.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.0.set();
    }
}

/// An export is entered while there is a hold.
pub(crate) fn hold_at(thread: &Thread, export: &str) {
    if thread.irql() >= irql::DISPATCH || !thread.is_inside(ContextKind::SystemThread) {
        return;
    }
    let held = HELD_AT.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some((_, event)) = held.filter(|(name, _)| *name == export) {
        event.wait(None);
    }
}
