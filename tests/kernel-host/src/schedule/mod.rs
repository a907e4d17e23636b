//! Schedules by a seed: with one, a single thread of the host runs at a time. It holds the run token, and at every point (an
//! export, a spin lock taken or released, a routine of an image entered or left, a wait) a generator that the seed starts
//! decides whether it goes on or another thread that is ready does. Time goes by points, not by the machine's clock, and jumps
//! when no thread is ready. So the same seed gives the same order of events, and another seed another one.
//!
//! It is no model checker: orders are drawn, not enumerated, and a thread is interrupted at points only: a row of atomic
//! operations of image code between two of them is one step. Runs without a seed use real processors at once.
//!
//! Two things come from outside, and each is counted as a doubt, with which a run may not replay: a thread that registers after
//! its start, and one that keeps the run token without coming to a point (`watch`).

mod table;
mod watch;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::dispatcher::{self, Time};
use crate::interruption;
use crate::irql;
use crate::priority;
use crate::processor::{futex_wait, futex_wait_for};
use crate::thread::{self, Thread};
use table::{LockedTable, lock};

/// What points are for now: a bit for each of these. Nothing in most runs, in which a point is one load.
static POINTS: AtomicU8 = AtomicU8::new(0);
const BY_A_SEED: u8 = 1;
/// A thread is to be interrupted at one of its points.
const INTERRUPTING: u8 = 2;
/// Threads of a realtime priority have all processors.
const CROWDED: u8 = 4;

/// System threads of drivers are held at an export.
const HOLDING: u8 = 8;

/// Units of 100 ns: one for each point.
static TIME: AtomicU64 = AtomicU64::new(0);
/// No deadline is before this.
static EARLIEST: AtomicU64 = AtomicU64::new(u64::MAX);

/// A copy of so many bytes has a point in its middle, so that its memory can be removed meanwhile.
const LONG_COPY: usize = 512;

/// How long the clock waits, in real time, before it checks again whether any thread has moved.
const LOOK: Duration = Duration::from_millis(250);

/// A thread's place in the schedule. Its number is the order in which threads were announced.
pub(crate) struct Seat {
    number: usize,
    /// A futex word: the thread has been given the run token and has not taken it.
    turn: AtomicU32,
    /// The operating system's number of the thread, for the watch.
    task: AtomicI32,
    /// The thread has a realtime priority.
    realtime: AtomicBool,
    /// At its last point it was at DISPATCH_LEVEL, where its processor is its own.
    raised: AtomicBool,
}

thread_local! {
    static SEAT: Cell<Option<&'static Seat>> = const { Cell::new(None) };
}

/// Starts with the boot of the kernel, before any thread.
pub(crate) fn start(seed: Option<u64>) {
    let Some(seed) = seed else { return };
    lock().begin(seed);
    POINTS.store(BY_A_SEED, Ordering::Relaxed);
    watch::start();
}

/// Whether threads run by a seed.
#[inline]
pub fn is_on() -> bool {
    POINTS.load(Ordering::Relaxed) & BY_A_SEED != 0
}

/// A thread is to be interrupted from now on, or no longer. One at a time.
pub(crate) fn set_interrupting(interrupting: bool) {
    set_points(INTERRUPTING, interrupting);
}

/// System threads are held at an export from now on, or no longer.
pub(crate) fn set_holding(holding: bool) {
    set_points(HOLDING, holding);
}

/// Realtime threads have all processors from now on, or no longer.
pub(crate) fn set_crowded(crowded: bool) {
    set_points(CROWDED, crowded);
}

fn set_points(bit: u8, on: bool) {
    if on {
        POINTS.fetch_or(bit, Ordering::Relaxed);
    } else {
        POINTS.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// The thread of this seat has a realtime priority now, or none.
pub(crate) fn set_priority(seat: &Seat, realtime: bool) {
    seat.realtime.store(realtime, Ordering::Relaxed);
}

/// What goes by points, in the dispatcher's units.
pub(crate) fn time() -> Time {
    TIME.load(Ordering::Relaxed)
}

/// A point: another thread may go on instead of this one.
#[inline]
pub(crate) fn point(thread: &Thread, name: &&'static str) {
    if POINTS.load(Ordering::Relaxed) != 0 {
        at_point(thread, name);
    }
}

/// The end of a wait, which is no point of a schedule: the wait was.
#[inline]
pub(crate) fn wait_is_over(thread: &Thread) {
    if POINTS.load(Ordering::Relaxed) & CROWDED != 0 {
        priority::at_point(thread);
    }
}

// The Windows convention, as for every cold path of an export.
#[cold]
#[inline(never)]
extern "win64" fn at_point(thread: &Thread, name: &&'static str) {
    let points = POINTS.load(Ordering::Relaxed);
    if points & HOLDING != 0 {
        interruption::hold_at(thread, name);
    }
    if points & BY_A_SEED != 0 {
        by_the_seed(thread, name, false);
        return;
    }
    if points & INTERRUPTING != 0 {
        interruption::at_point(thread);
    }
    if points & CROWDED != 0 {
        priority::at_point(thread);
    }
}

fn by_the_seed(thread: &Thread, name: &'static str, leave: bool) {
    let Some(seat) = thread.seat else { return };
    seat.raised.store(thread.irql() >= irql::DISPATCH, Ordering::Relaxed);
    let mut table = arrive(seat, name);
    if !leave && table.goes_on() {
        return;
    }
    if leave {
        table.set_aside(seat);
    }
    let next = table.choose_by_priority();
    if let Some(held) = table.starving() {
        drop(table);
        let offenders: Vec<&Thread> =
            thread::all().into_iter().filter(|thread| is_realtime_and_ready(thread)).collect();
        priority::report(&held, &offenders);
    }
    pass_token(table, seat, next);
}

fn is_realtime_and_ready(thread: &Thread) -> bool {
    thread.seat.is_some_and(|seat| seat.realtime.load(Ordering::Relaxed)) && thread.runnable.load(Ordering::Relaxed)
}

/// A page that an image's own copy has touched: with a seed the thread is set aside, if another is ready.
pub(crate) fn inside_a_copy_of_the_image(thread: &Thread) {
    let points = POINTS.load(Ordering::Relaxed);
    if points & BY_A_SEED != 0 {
        by_the_seed(thread, "a copy of the image", true);
    } else if points & INTERRUPTING != 0 {
        interruption::at_point(thread);
    }
}

/// How much of a copy comes before the point in its middle: all of it without a schedule, or when it is short.
#[inline]
pub(crate) fn up_to_a_point(count: usize) -> usize {
    if count >= LONG_COPY && POINTS.load(Ordering::Relaxed) & !CROWDED != 0 { count / 2 } else { count }
}

/// The point in the middle of a copy.
#[cold]
#[inline(never)]
pub(crate) extern "win64" fn inside_a_copy() {
    if let Some(thread) = Thread::try_current() {
        at_point(thread, &"a copy");
    }
}

/// A point of a thread that cannot go on before another does something: another one is chosen if one is ready.
pub(crate) fn hand_over(thread: &Thread, name: &'static str) {
    let Some(seat) = thread.seat else { return };
    let mut table = arrive(seat, name);
    let next = table.choose(Some(seat.number)).or(Some(seat.number));
    pass_token(table, seat, next);
}

/// Counts a point; the thread has the run token afterwards. The watch may have taken it away before.
fn arrive(seat: &'static Seat, name: &'static str) -> LockedTable {
    let mut table = lock();
    if table.come_to(seat, name) {
        return table;
    }
    table.set_ready(seat, true);
    drop(table);
    wait_for_turn(seat);
    lock()
}

/// Tries until it succeeds, and lets the others go on in between. Only with a schedule.
pub(crate) fn until<T>(thread: &Thread, name: &'static str, mut attempt: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        hand_over(thread, name);
    }
}

/// One round of a loop of host code that checks for progress of another thread.
pub fn spin() {
    match Thread::try_current() {
        Some(thread) if is_on() => hand_over(thread, "a loop of the host"),
        _ => std::hint::spin_loop(),
    }
}

/// As [`spin`], where the operating system's scheduler lets others run.
pub fn let_others() {
    if is_on() { spin() } else { std::thread::yield_now() }
}

/// Gives others time, at any level: real time, or with a schedule a few hundred points of theirs.
pub fn linger(time: Duration) {
    match Thread::try_current() {
        Some(thread) if is_on() => (0..300).for_each(|_| hand_over(thread, "lingering")),
        _ => std::thread::sleep(time),
    }
}

/// Gives the run token to `next`, and waits for it unless that is the caller.
fn pass_token(mut table: LockedTable, seat: &'static Seat, next: Option<usize>) {
    if next == Some(seat.number) {
        table.holder = next;
        return;
    }
    table.give(next);
    drop(table);
    wait_for_turn(seat);
}

fn wait_for_turn(seat: &Seat) {
    while seat.turn.swap(0, Ordering::Acquire) == 0 {
        futex_wait(&seat.turn, 0);
    }
}

/// Waits while `word` has this value; the thread that changes it calls [`wake`] afterwards.
pub(crate) fn wait_while(thread: &Thread, word: &AtomicU32, value: u32, name: &'static str) {
    let Some(seat) = thread.seat else { return };
    while word.load(Ordering::Acquire) == value {
        let mut table = arrive(seat, name);
        // A change before this has found the thread ready, a change after this finds it waiting.
        if word.load(Ordering::Acquire) == value {
            table.set_ready(seat, false);
            let next = table.choose_or_clock();
            pass_token(table, seat, next);
        }
    }
}

/// A thread that waits may have what it waits for.
pub(crate) fn wake(thread: &Thread) {
    if let Some(seat) = thread.seat {
        lock().set_ready(seat, true);
    }
}

/// Runs something that blocks outside of the kernel while others go on. When it comes back is not the schedule's.
pub(crate) fn outside<T>(body: impl FnOnce() -> T) -> T {
    let Some(seat) = SEAT.get() else { return body() };
    let mut table = arrive(seat, "outside");
    table.doubt("a thread blocks outside of the kernel");
    table.set_ready(seat, false);
    let next = table.choose_or_clock();
    table.give(next);
    drop(table);
    let result = body();
    come_in(seat);
    result
}

/// Waits for the run token, or takes it when it is free.
fn come_in(seat: &'static Seat) {
    let mut table = lock();
    table.set_ready(seat, true);
    drop(table);
    wait_for_turn(seat);
}

/// A place for a thread that is about to be made.
#[derive(Clone, Copy)]
pub(crate) struct Place(Option<&'static Seat>);

/// Makes a place for a thread; from then on it can be chosen, and a chosen thread is waited for.
pub(crate) fn announce() -> Place {
    Place(is_on().then(|| {
        let mut table = lock();
        let seat = table.add_seat();
        table.set_ready(seat, true);
        seat
    }))
}

impl Place {
    /// The first step of the new thread.
    pub(crate) fn take(self) {
        let Some(seat) = self.0 else { return };
        sit(seat);
        wait_for_turn(seat);
    }

    /// As [`Self::take`], for the one that keeps the time.
    pub(crate) fn take_as_clock(self) {
        if let Some(seat) = self.0 {
            lock().clock = Some(seat.number);
        }
        self.take();
    }

    /// Waits for a thread outside of the kernel (`body` is a join), which with a schedule is about to end by then.
    pub(crate) fn join<T>(self, body: impl FnOnce() -> T) -> T {
        let (Some(other), Some(seat)) = (self.0, SEAT.get()) else { return dispatcher::while_blocked(body) };
        dispatcher::set_blocked(true);
        loop {
            let mut table = arrive(seat, "a join");
            if table.has_left(other) {
                break;
            }
            table.wait_for_end(seat, other);
            let next = table.choose_or_clock();
            pass_token(table, seat, next);
        }
        dispatcher::set_blocked(false);
        body()
    }
}

fn sit(seat: &'static Seat) {
    // SAFETY: asks for the caller's own number.
    seat.task.store(unsafe { libc::gettid() }, Ordering::Relaxed);
    SEAT.set(Some(seat));
}

/// The seat of the thread that attaches itself now. One that was not announced comes when the machine lets it.
pub(crate) fn seat_of_attaching() -> Option<&'static Seat> {
    if !is_on() || SEAT.get().is_some() {
        return SEAT.get();
    }
    let mut table = lock();
    let seat = table.add_seat();
    if seat.number > 0 {
        table.doubt("a thread came by itself");
    }
    drop(table);
    sit(seat);
    come_in(seat);
    Some(seat)
}

/// The thread is no kernel thread any more.
pub(crate) fn leave() {
    let Some(seat) = SEAT.take() else { return };
    let mut table = arrive(seat, "the end");
    table.leave(seat);
    let next = table.choose_or_clock();
    table.give(next);
}

/// A deadline was added.
pub(crate) fn deadline_added(due: Time) {
    EARLIEST.fetch_min(due, Ordering::Relaxed);
}

/// The clock's check has found this as the first deadline.
pub(crate) fn first_deadline(due: Option<Time>) {
    EARLIEST.store(due.unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// The clock's thread has nothing to do until a deadline has passed or no thread is ready. False when nothing at all has moved
/// for a while of real time.
pub(crate) fn clock_rests(thread: &Thread) -> bool {
    let Some(seat) = thread.seat else { return true };
    let mut table = lock();
    table.set_ready(seat, false);
    let next = table.choose(None);
    let chosen = next.is_some();
    table.give(next);
    drop(table);
    if !chosen {
        futex_wait_for(&seat.turn, 0, LOOK);
        let mut table = lock();
        if table.holder.is_none() {
            table.holder = Some(seat.number);
            return false;
        }
    }
    wait_for_turn(seat);
    true
}

/// Whether time goes on without the machine's: no thread is ready but the clock.
pub(crate) fn only_the_clock() -> bool {
    !is_on() || lock().choose(None).is_none()
}

/// A number that the seed gives, below another.
pub(crate) fn draw_below(below: u64) -> u64 {
    lock().draw(below.max(1))
}

/// A draw by the seed: true once in `of` times.
pub(crate) fn draw(of: u64) -> bool {
    lock().draw(of) == 0
}

/// What the schedule did so far; `None` without one. Writes the log that `KERNEL_HOST_SCHEDULE_LOG` names.
pub fn summary() -> Option<String> {
    is_on().then(|| lock().summary())
}
