//! Schedules by a seed: with one, every export and every spin lock that is taken or released is a point at which the thread
//! may step aside, for nothing, for the others that are ready, or for a while. Races whose window is a few instructions wide
//! on an idle machine are met this way.
//!
//! How far a seed replays: what each thread does at its n-th point follows from the seed and from the thread's place in the
//! order of creation. Which thread comes to its next point first stays the machine's: its processors run side by side, its
//! clock goes on, it wakes sleepers when it likes. A seed therefore gives runs that resemble each other (a trial without a race
//! comes to as many points and steps aside as often), not the same run; [`summary`] has a trace of the order by which two
//! runs can be compared.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::thread::Thread;

static ON: AtomicBool = AtomicBool::new(false);
static SEED: AtomicU64 = AtomicU64::new(0);
static POINTS: AtomicU64 = AtomicU64::new(0);
static STEPS_ASIDE: AtomicU64 = AtomicU64::new(0);
/// A sum over the order in which threads came to points.
static TRACE: AtomicU64 = AtomicU64::new(0);

/// The random numbers of one thread; 0 before its first point.
pub(crate) struct Dice(Cell<u64>);

impl Dice {
    pub(crate) const fn new() -> Self {
        Self(Cell::new(0))
    }

    fn throw(&self, thread: u64) -> u64 {
        let mut state = self.0.get();
        if state == 0 {
            state = mix(SEED.load(Ordering::Relaxed) ^ mix(thread)) | 1;
        }
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.0.set(state);
        mix(state)
    }
}

/// Spreads every bit over all of them.
const fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// What a thread does at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    GoOn,
    LetOthers,
    Sleep(Duration),
}

impl Step {
    fn of(number: u64) -> Self {
        match number % 32 {
            0 => Self::Sleep(Duration::from_micros(1 + (number >> 8) % 60)),
            1..=5 => Self::LetOthers,
            _ => Self::GoOn,
        }
    }
}

/// Starts with the boot of the kernel, before any other thread.
pub(crate) fn start(seed: Option<u64>) {
    let Some(seed) = seed else { return };
    SEED.store(seed, Ordering::Relaxed);
    ON.store(true, Ordering::Relaxed);
}

/// A point.
#[inline]
pub(crate) fn point(thread: &Thread) {
    if ON.load(Ordering::Relaxed) {
        at_point(thread);
    }
}

#[cold]
#[inline(never)]
extern "win64" fn at_point(thread: &Thread) {
    let number = POINTS.fetch_add(1, Ordering::Relaxed);
    TRACE.fetch_add(mix(number ^ mix(thread.identifier())), Ordering::Relaxed);
    let step = Step::of(thread.dice.throw(thread.identifier()));
    if step != Step::GoOn {
        STEPS_ASIDE.fetch_add(1, Ordering::Relaxed);
    }
    match step {
        Step::GoOn => {}
        Step::LetOthers => std::thread::yield_now(),
        Step::Sleep(time) => std::thread::sleep(time),
    }
}

/// What the schedule did so far; nothing without one.
pub fn summary() -> Option<String> {
    ON.load(Ordering::Relaxed).then(|| {
        format!(
            "schedule {}: {} points, {} steps aside, trace {:#018x}",
            SEED.load(Ordering::Relaxed),
            POINTS.load(Ordering::Relaxed),
            STEPS_ASIDE.load(Ordering::Relaxed),
            TRACE.load(Ordering::Relaxed)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dice_of_a_thread_repeat_and_differ_from_those_of_another() {
        let throws = |thread| {
            let dice = Dice::new();
            (0..64).map(|_| dice.throw(thread)).collect::<Vec<_>>()
        };
        assert_eq!(throws(4), throws(4));
        assert_ne!(throws(4), throws(8));
    }

    #[test]
    fn every_kind_of_step_comes_and_going_on_is_the_rule() {
        let dice = Dice::new();
        let steps: Vec<_> = (0..3_200).map(|_| Step::of(dice.throw(4))).collect();
        let count = |wanted: fn(&Step) -> bool| steps.iter().filter(|step| wanted(step)).count();
        let sleeps = count(|step| matches!(step, Step::Sleep(_)));
        let yields = count(|step| *step == Step::LetOthers);
        assert!((50..200).contains(&sleeps), "{sleeps} sleeps");
        assert!((350..650).contains(&yields), "{yields} times the others");
    }
}
