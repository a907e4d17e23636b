//! What another processor does between two steps of this one: after the n-th time that a thread lets go of its last lock, or before its
//! n-th access to an atomic or lock.

use crate::harness::on_another_processor;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// Spares the threads of a bench the look at their own state.
static USED: AtomicBool = AtomicBool::new(false);
static WATCHED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static HELD: Cell<u32> = const { Cell::new(0) };
    static LEFT: Cell<u32> = const { Cell::new(0) };
    /// Of [`at_point`]: how many points are left, on the first thread, and on both where they meet.
    static POINTS: Cell<u32> = const { Cell::new(0) };
    static MEETING: RefCell<Option<Meeting>> = const { RefCell::new(None) };
    static DOING: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

pub(crate) fn taken() -> bool {
    let watched = USED.load(Ordering::Relaxed);
    if watched {
        HELD.with(|held| held.set(held.get() + 1));
    }
    watched
}

pub(crate) fn let_go() {
    HELD.with(|held| held.set(held.get() - 1));
    if HELD.with(Cell::get) > 0 {
        return;
    }
    let left = LEFT.with(|left| left.replace(left.get().saturating_sub(1)));
    let doing = (left == 1).then(|| DOING.with(|doing| doing.borrow_mut().take())).flatten();
    if let Some(doing) = doing {
        doing();
    }
}

/// Does `act`, and `doing` after its `place`-th step (from 1). False when `act` has fewer; then `doing` is not done.
pub fn at_step(place: u32, act: impl FnOnce(), doing: impl FnOnce() + 'static) -> bool {
    USED.store(true, Ordering::Relaxed);
    DOING.with(|place| *place.borrow_mut() = Some(Box::new(doing)));
    LEFT.with(|left| left.set(place));
    act();
    LEFT.with(|left| left.set(0));
    DOING.with(|place| place.borrow_mut().take()).is_none()
}

/// As [`at_step`], where accesses to atomics are steps, too, also while a lock is held. Another thread, which plays the other processor,
/// does `doing`; the first goes on when that is done, or needs a lock that the first one has.
pub fn at_point(place: u32, act: impl FnOnce(), doing: impl FnOnce() + Send) -> bool {
    at_point_beside(place, act, || {
        if meet() {
            doing();
        }
    })
}

/// As [`at_point`], where the other thread begins at once, and waits for the point in [`meet`].
pub fn at_point_beside(place: u32, act: impl FnOnce(), beside: impl FnOnce() + Send) -> bool {
    let meeting = Meeting::default();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            MEETING.with(|other| *other.borrow_mut() = Some(meeting.clone()));
            let _over = Over(&meeting);
            on_another_processor(beside);
        });
        POINTS.set(place);
        MEETING.with(|first| *first.borrow_mut() = Some(meeting.clone()));
        let off = Off(&meeting);
        set_hook(Some(point));
        act();
        set_hook(None);
        POINTS.set(0);
        MEETING.with(|first| *first.borrow_mut() = None);
        let done = meeting.state() != MeetingState::Ready;
        drop(off);
        if let Err(panic) = other.join() {
            std::panic::resume_unwind(panic);
        }
        done
    })
}

/// On the other thread: waits for the point; whether there was one.
pub fn meet() -> bool {
    let meeting = MEETING.with(|other| other.borrow().clone());
    meeting.is_some_and(|meeting| meeting.wait_while(MeetingState::Ready) == MeetingState::Begun)
}

/// A point of the first thread.
fn point() {
    let left = POINTS.replace(POINTS.get().saturating_sub(1));
    let meeting = if left == 1 { MEETING.with(|first| first.borrow().clone()) } else { None };
    if let Some(meeting) = meeting {
        meeting.become_(MeetingState::Begun);
        meeting.wait_while(MeetingState::Begun);
    }
}

/// Before a lock is taken and after it has been let go.
pub(crate) fn point_of_a_lock() {
    if WATCHED.load(Ordering::Relaxed) {
        point();
    }
}

/// This thread waits for a lock: the one that it was to meet goes on.
pub(crate) fn waits_for_a_lock() {
    if WATCHED.load(Ordering::Relaxed)
        && let Some(meeting) = MEETING.with(|other| other.borrow().clone())
    {
        meeting.waits();
    }
}

#[cfg(debug_assertions)]
fn set_hook(hook: Option<fn()>) {
    WATCHED.store(true, Ordering::Relaxed);
    softndk_cells::points::set_hook(hook);
}

/// In builds without debug assertions there are no such points.
#[cfg(not(debug_assertions))]
fn set_hook(_: Option<fn()>) {}

#[derive(Clone, Copy, PartialEq)]
enum MeetingState {
    /// The point has not been reached.
    Ready,
    /// It has: the other thread acts.
    Begun,
    /// It needs a lock that the first one may have.
    Waits,
    Over,
    /// The point was never reached.
    Off,
}

/// The first thread reaches no point any more, by a panic too.
struct Off<'a>(&'a Meeting);

impl Drop for Off<'_> {
    fn drop(&mut self) {
        if self.0.state() == MeetingState::Ready {
            self.0.become_(MeetingState::Off);
        }
    }
}

/// The other thread ends, by a panic too.
struct Over<'a>(&'a Meeting);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        if self.0.state() != MeetingState::Ready {
            self.0.become_(MeetingState::Over);
        }
    }
}

#[derive(Clone)]
struct Meeting(Arc<(Mutex<MeetingState>, Condvar)>);

impl Default for Meeting {
    fn default() -> Self {
        Self(Arc::new((Mutex::new(MeetingState::Ready), Condvar::new())))
    }
}

impl Meeting {
    fn state(&self) -> MeetingState {
        *self.0.0.lock().unwrap()
    }

    fn become_(&self, state: MeetingState) {
        *self.0.0.lock().unwrap() = state;
        self.0.1.notify_all();
    }

    /// The other thread waits for a lock of the first, where they have met.
    fn waits(&self) {
        let mut state = self.0.0.lock().unwrap();
        if *state == MeetingState::Begun {
            *state = MeetingState::Waits;
        }
        drop(state);
        self.0.1.notify_all();
    }

    fn wait_while(&self, state: MeetingState) -> MeetingState {
        *self.0.1.wait_while(self.0.0.lock().unwrap(), |now| *now == state).unwrap()
    }
}

/// Calls `round` with 1, 2, … until it says that the call had no such step.
pub fn at_every_step(mut round: impl FnMut(u32) -> bool) {
    let steps = (1..1000).take_while(|place| round(*place)).count();
    assert!((1..900).contains(&steps), "{steps} steps");
}
