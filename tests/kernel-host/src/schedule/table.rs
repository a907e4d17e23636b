//! The seats of the threads: which are ready, which one holds the run token and which one gets it next; and the trace of all
//! that. How a thread waits is in the parent module.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{EARLIEST, Seat, TIME};
use crate::dispatcher;
use crate::priority;
use crate::processor::{self, futex_wake};

/// How often a thread goes on at a point before another is chosen, on the average. A seed has one of them: some bugs show when
/// threads alternate, others when one gets far ahead.
const STRIDES: [u64; 6] = [2, 3, 5, 9, 17, 40];

/// Once in so many points a thread is set aside, for up to that many points of the others: a window that stays open.
const ASIDE_ONCE_IN: u64 = 200;
const ASIDE_FOR: u64 = 600;

struct SeatEntry {
    seat: &'static Seat,
    ready: bool,
    left: bool,
    /// It is not chosen before this point, if another can be.
    aside_until: u64,
    /// The thread whose end it waits for.
    waits_for: Option<usize>,
    /// Since when it has been ready and was not chosen because of its priority, in the dispatcher's units.
    held_since: Option<dispatcher::Time>,
}

pub(super) struct SeatTable {
    seed: u64,
    random: u64,
    stride: u64,
    places: Vec<SeatEntry>,
    pub(super) holder: Option<usize>,
    pub(super) clock: Option<usize>,
    pub(super) points: u64,
    pub(super) changes: u64,
    trace: u64,
    doubts: Vec<&'static str>,
    log: Option<Vec<(usize, &'static str)>>,
}

pub(super) type LockedTable = MutexGuard<'static, SeatTable>;

static TABLE: Mutex<SeatTable> = Mutex::new(SeatTable {
    seed: 0,
    random: 0,
    stride: 2,
    places: Vec::new(),
    holder: None,
    clock: None,
    points: 0,
    changes: 0,
    trace: 0,
    doubts: Vec::new(),
    log: None,
});

pub(super) fn lock() -> LockedTable {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Spreads every bit over all of them.
const fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// FNV-1a: the same in every process, as a name's address is not.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

impl SeatTable {
    pub(super) fn begin(&mut self, seed: u64) {
        self.seed = seed;
        self.random = mix(seed.wrapping_add(0x9E37_79B9_7F4A_7C15)) | 1;
        self.stride = STRIDES[(mix(seed) % STRIDES.len() as u64) as usize];
        self.log = std::env::var_os("KERNEL_HOST_SCHEDULE_LOG").map(|_| Vec::new());
    }

    pub(super) fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        mix(self.random) % below
    }

    pub(super) fn add_seat(&mut self) -> &'static Seat {
        let number = self.places.len();
        // Blocks of threads live as long as the process, and so do their seats.
        let seat: &Seat = Box::leak(Box::new(Seat {
            number,
            turn: AtomicU32::new(0),
            task: AtomicI32::new(0),
            realtime: AtomicBool::new(false),
            raised: AtomicBool::new(false),
        }));
        self.places.push(SeatEntry {
            seat,
            ready: false,
            left: false,
            aside_until: 0,
            waits_for: None,
            held_since: None,
        });
        seat
    }

    /// Counts and records a point; whether the thread holds the run token. If it does not, the watch has taken it away.
    pub(super) fn come_to(&mut self, seat: &Seat, name: &'static str) -> bool {
        self.points += 1;
        TIME.fetch_add(1, Ordering::Relaxed);
        self.trace = mix(self.trace ^ hash(name) ^ (seat.number as u64) << 56);
        if let Some(log) = &mut self.log {
            log.push((seat.number, name));
        }
        self.holder == Some(seat.number)
    }

    /// Whether the thread that has come to a point goes on; it may be set aside instead.
    pub(super) fn goes_on(&mut self) -> bool {
        if self.draw(ASIDE_ONCE_IN) == 0
            && let Some(holder) = self.holder
        {
            self.places[holder].aside_until = self.points + 1 + self.draw(ASIDE_FOR);
            return false;
        }
        self.draw(self.stride) != 0
    }

    /// The thread is not chosen for some points, if another can be; as often as not it may be chosen at once.
    pub(super) fn set_aside(&mut self, seat: &Seat) {
        if self.draw(2) == 0 {
            self.places[seat.number].aside_until = self.points + 1 + self.draw(ASIDE_FOR);
        }
    }

    /// One of those that can go on, except for one.
    pub(super) fn choose(&mut self, except: Option<usize>) -> Option<usize> {
        let time = dispatcher::now();
        let clock = self.clock.filter(|_| EARLIEST.load(Ordering::Relaxed) <= time);
        let can = |place: &SeatEntry| {
            let number = place.seat.number;
            (place.ready || Some(number) == clock) && Some(number) != except
        };
        let (points, random) = (self.points, self.draw(u64::MAX));
        let able =
            |aside: bool| self.places.iter().filter(move |place| can(place) && (aside || place.aside_until <= points));
        let aside = able(false).next().is_none();
        let count = able(aside).count().max(1) as u64;
        able(aside).nth((random % count) as usize).map(|place| place.seat.number)
    }

    /// As [`Self::choose`] for all, by their priorities: realtime threads that have all processors keep every other thread
    /// below DISPATCH_LEVEL from running.
    pub(super) fn choose_by_priority(&mut self) -> Option<usize> {
        let realtime = |place: &SeatEntry| place.seat.realtime.load(Ordering::Relaxed);
        let ready = self.places.iter().filter(|place| place.ready && realtime(place)).count();
        if ready == 0 || ready < processor::count() {
            self.places.iter_mut().for_each(|place| place.held_since = None);
            return self.choose(None);
        }
        let time = dispatcher::now();
        let clock = self.clock;
        let mut held = Vec::new();
        for (number, place) in self.places.iter_mut().enumerate() {
            let free = realtime(place) || place.seat.raised.load(Ordering::Relaxed) || Some(number) == clock;
            if place.ready && !free {
                place.held_since.get_or_insert(time);
                place.ready = false;
                held.push(number);
            } else {
                place.held_since = None;
            }
        }
        let next = self.choose(None);
        for number in held {
            self.places[number].ready = true;
        }
        next
    }

    /// A thread that its priority has kept from running for too long.
    pub(super) fn starving(&self) -> Option<String> {
        let time = dispatcher::now();
        let longest = priority::LONGEST.as_nanos() as dispatcher::Time / 100;
        let starves = |place: &&SeatEntry| place.held_since.is_some_and(|since| time.saturating_sub(since) > longest);
        self.places.iter().find(starves).map(|place| format!("number {} of the schedule", place.seat.number))
    }

    /// As [`Self::choose`]; when no thread can go on, the clock does, to let time jump.
    pub(super) fn choose_or_clock(&mut self) -> Option<usize> {
        self.choose(None).or(self.clock)
    }

    /// Gives the run token away.
    pub(super) fn give(&mut self, next: Option<usize>) {
        self.holder = next;
        if let Some(number) = next {
            self.changes += 1;
            self.places[number].ready = true;
            let seat = self.places[number].seat;
            seat.turn.store(1, Ordering::Release);
            futex_wake(&seat.turn, 1);
        }
    }

    pub(super) fn set_ready(&mut self, seat: &Seat, ready: bool) {
        self.places[seat.number].ready = ready;
        if ready && self.holder.is_none() {
            self.give(Some(seat.number));
        }
    }

    pub(super) fn wait_for_end(&mut self, seat: &Seat, of: &Seat) {
        let place = &mut self.places[seat.number];
        place.ready = false;
        place.waits_for = Some(of.number);
    }

    pub(super) fn has_left(&self, seat: &Seat) -> bool {
        self.places[seat.number].left
    }

    pub(super) fn leave(&mut self, seat: &Seat) {
        let place = &mut self.places[seat.number];
        place.ready = false;
        place.left = true;
        for other in &mut self.places {
            if other.waits_for == Some(seat.number) {
                other.waits_for = None;
                other.ready = true;
            }
        }
    }

    /// The run token goes to another, and this one comes back at its next point. No effect if no other thread is ready.
    pub(super) fn take_from(&mut self, number: usize, why: &'static str) {
        let Some(next) = self.choose(Some(number)) else { return };
        self.places[number].ready = false;
        self.doubt(why);
        self.give(Some(next));
    }

    pub(super) fn task_of(&self, number: usize) -> i32 {
        self.places[number].seat.task.load(Ordering::Relaxed)
    }

    pub(super) fn doubt(&mut self, why: &'static str) {
        self.doubts.push(why);
    }

    pub(super) fn summary(&self) -> String {
        let Self { seed, points, changes, trace, .. } = self;
        let mut text = format!("schedule {seed}: {points} points, {changes} changes, trace {trace:#018x}");
        if let Some(last) = self.doubts.last() {
            let _ = write!(text, "; this run may not replay: {} times something like \"{last}\"", self.doubts.len());
        }
        self.write_log();
        text
    }

    fn write_log(&self) {
        let (Some(log), Some(path)) = (&self.log, std::env::var_os("KERNEL_HOST_SCHEDULE_LOG")) else { return };
        let mut text = String::new();
        for (number, name) in log {
            let _ = writeln!(text, "{number} {name}");
        }
        if let Err(error) = std::fs::write(&path, text) {
            eprintln!("cannot write {}: {error}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(seed: u64, seats: usize) -> SeatTable {
        let mut table = SeatTable {
            seed: 0,
            random: 0,
            stride: 2,
            places: Vec::new(),
            holder: Some(0),
            clock: None,
            points: 0,
            changes: 0,
            trace: 0,
            doubts: Vec::new(),
            log: None,
        };
        table.begin(seed);
        for _ in 0..seats {
            let seat = table.add_seat();
            table.places[seat.number].ready = true;
        }
        table
    }

    fn choices(seed: u64) -> Vec<Option<usize>> {
        let mut table = table(seed, 4);
        (0..64).map(|_| table.choose(None)).collect()
    }

    #[test]
    fn choices_repeat_with_the_seed_and_differ_with_another() {
        assert_eq!(choices(7), choices(7));
        assert_ne!(choices(7), choices(8));
        assert!((0..4).all(|number| choices(7).contains(&Some(number))), "every thread is chosen");
    }

    #[test]
    fn no_context_is_chosen_who_is_not_ready_or_is_aside_while_another_is_ready() {
        let mut table = table(7, 3);
        table.places[0].ready = false;
        table.places[1].aside_until = 1_000;
        assert!((0..64).all(|_| table.choose(None) == Some(2)));
        assert!((0..64).all(|_| table.choose(Some(2)) == Some(1)), "aside is better than none");
        table.places[1].ready = false;
        assert_eq!(table.choose(Some(2)), None);
    }

    #[test]
    fn trace_shows_order_thread_and_place() {
        let trace = |steps: &[(usize, &'static str)]| {
            let mut table = table(7, 2);
            for (number, name) in steps {
                let seat = table.places[*number].seat;
                table.come_to(seat, name);
            }
            table.trace
        };
        let whole = trace(&[(0, "a"), (1, "b")]);
        assert_eq!(whole, trace(&[(0, "a"), (1, "b")]));
        for other in [[(1, "b"), (0, "a")], [(1, "a"), (0, "b")], [(0, "a"), (1, "a")]] {
            assert_ne!(whole, trace(&other));
        }
    }
}
