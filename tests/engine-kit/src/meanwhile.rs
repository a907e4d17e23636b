//! What another processor does between two steps of this one: after the n-th time that a thread lets go of its last lock, or before its
//! n-th access to an atomic outside of locks.

use crate::harness::on_another_processor;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};

/// Spares the threads of a bench the look at their own state.
static USED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static HELD: Cell<u32> = const { Cell::new(0) };
    static LEFT: Cell<u32> = const { Cell::new(0) };
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
    step();
}

fn step() {
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

/// As [`at_step`], where accesses to atomics outside of locks are steps, too, and `doing` is done by another processor.
pub fn at_point(place: u32, act: impl FnOnce(), doing: impl FnOnce() + 'static) -> bool {
    set_hook(Some(step));
    let done = at_step(place, act, move || on_another_processor(doing));
    set_hook(None);
    done
}

#[cfg(debug_assertions)]
fn set_hook(hook: Option<fn()>) {
    softndk_cells::points::set_hook(hook);
}

/// In builds without debug assertions there are no such points.
#[cfg(not(debug_assertions))]
fn set_hook(_: Option<fn()>) {}

/// Calls `round` with 1, 2, … until it says that the call had no such step.
pub fn at_every_step(mut round: impl FnMut(u32) -> bool) {
    let steps = (1..1000).take_while(|place| round(*place)).count();
    assert!((1..900).contains(&steps), "{steps} steps");
}
