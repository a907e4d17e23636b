//! What another processor does between two steps of this one: after the n-th time that a thread lets go of its last lock.

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

/// Calls `round` with 1, 2, … until it says that the call had no such step.
pub fn at_every_step(mut round: impl FnMut(u32) -> bool) {
    let steps = (1..1000).take_while(|place| round(*place)).count();
    assert!((1..900).contains(&steps), "{steps} steps");
}
