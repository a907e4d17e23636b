//! The times of stretches of work that tools ask about: a thread at DISPATCH_LEVEL, a DPC. They are kept by path, because one time says
//! nothing: a machine that others use takes the processor away without telling, and the longest of many times is its.
//!
//! A path is where the stretch begins and ends and which places of the image call the kernel meanwhile, how often by powers of
//! two. What the driver does on a path takes as long every time; what the machine does comes to any path, and seldom. The reader of
//! the times judges by that.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::image::stack_trace;
use crate::thunk::time_stamp_counter;

/// The clock that is counted instead of read, in nanoseconds; 0 where the machine's counter is read.
static COUNTED: AtomicU64 = AtomicU64::new(0);

/// From now on a stretch is as long as its stalls say, whatever else the machine does. For tests.
pub fn count_stalls() {
    COUNTED.store(1, Ordering::Relaxed);
}

/// A thread has stalled for so long.
pub(crate) fn stalled(time: Duration) {
    if COUNTED.load(Ordering::Relaxed) != 0 {
        COUNTED.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

/// The clock of stretches, in ticks of [`rate`].
fn clock() -> u64 {
    match COUNTED.load(Ordering::Relaxed) {
        0 => time_stamp_counter(),
        counted => counted,
    }
}

/// The times of one path: how many took so many nanoseconds, an eighth more at the most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTimes {
    pub path: String,
    pub times: BTreeMap<u64, u64>,
}

/// Where an open stretch has come by; of its own thread.
pub(crate) struct Stretch {
    /// When it began, in ticks; 0 while none is open.
    since: AtomicU64,
    /// How often the system had taken the thread's processor then.
    switches: AtomicU64,
    began: AtomicU64,
    calls: AtomicU32,
    /// A bit for each place that called the kernel; places far apart may have the same.
    places: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Path {
    began: u64,
    ended: u64,
    places: u64,
    /// Bits of the number of calls.
    calls: u32,
}

impl Stretch {
    pub(crate) const fn new() -> Self {
        Self {
            since: AtomicU64::new(0),
            switches: AtomicU64::new(0),
            began: AtomicU64::new(0),
            calls: AtomicU32::new(0),
            places: AtomicU64::new(0),
        }
    }

    /// It begins at a place of an image.
    pub(crate) fn begin(&self, place: u64) {
        self.began.store(place, Ordering::Relaxed);
        self.calls.store(0, Ordering::Relaxed);
        self.places.store(0, Ordering::Relaxed);
        self.switches.store(context_switches(), Ordering::Relaxed);
        self.since.store(clock(), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.since.load(Ordering::Relaxed) != 0
    }

    /// A place calls the kernel.
    #[cold]
    pub(crate) fn call(&self, place: u64) {
        self.calls.store(self.calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.places.store(self.places.load(Ordering::Relaxed) | bit(place), Ordering::Relaxed);
    }

    /// Does what the host alone has to do: its time is none of the stretch's.
    pub(crate) fn leave_out<R>(&self, work: impl FnOnce() -> R) -> R {
        let began = clock();
        let result = work();
        if self.is_open() {
            let passed = clock().saturating_sub(began);
            self.since.store(self.since.load(Ordering::Relaxed) + passed, Ordering::Relaxed);
        }
        result
    }

    /// It ends at a place; its time is kept unless the system gave the processor to something else, which Windows does not do then.
    pub(crate) fn end(&self, times: &Times, place: u64) {
        let now = clock();
        let since = self.since.swap(0, Ordering::Relaxed);
        if since == 0 || context_switches() != self.switches.load(Ordering::Relaxed) {
            return;
        }
        let path = Path {
            began: self.began.load(Ordering::Relaxed),
            ended: place,
            places: self.places.load(Ordering::Relaxed),
            calls: u32::BITS - self.calls.load(Ordering::Relaxed).leading_zeros(),
        };
        times.note(path, now.saturating_sub(since));
    }
}

/// The same wherever the image lies: images lie at pages.
fn bit(place: u64) -> u64 {
    let within = place & 0xFFF;
    1 << ((within ^ within >> 6) & 63)
}

/// Of a path, how many took so many ticks.
type Counts = BTreeMap<u64, u64>;

/// See the module.
pub(crate) struct Times {
    measured: AtomicBool,
    paths: Mutex<BTreeMap<Path, Counts>>,
}

impl Times {
    pub(crate) const fn new() -> Self {
        Self { measured: AtomicBool::new(false), paths: Mutex::new(BTreeMap::new()) }
    }

    fn paths(&self) -> MutexGuard<'_, BTreeMap<Path, Counts>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on times are kept, where imports are counted: elsewhere fast twins change levels unseen, and asking for the time would
    /// cost as much as a short stretch does.
    pub(crate) fn begin(&self) {
        self.paths().clear();
        self.measured.store(crate::import_counts::is_on(), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_measured(&self) -> bool {
        self.measured.load(Ordering::Relaxed)
    }

    fn note(&self, path: Path, ticks: u64) {
        *self.paths().entry(path).or_default().entry(rounded_up(ticks)).or_default() += 1;
    }

    /// What was kept since [`Self::begin`]; no more is.
    pub(crate) fn end(&self) -> Vec<PathTimes> {
        self.measured.store(false, Ordering::Relaxed);
        let paths = std::mem::take(&mut *self.paths());
        let (passed, time) = rate();
        let in_nanoseconds = |(ticks, count)| ((u128::from(ticks) * time / passed) as u64, count);
        let times = |counts: Counts| counts.into_iter().map(in_nanoseconds).collect();
        paths.into_iter().map(|(path, counts)| PathTimes { path: path.text(), times: times(counts) }).collect()
    }
}

/// To the next number with four significant bits.
fn rounded_up(ticks: u64) -> u64 {
    let step = 1 << ticks.max(1).ilog2().saturating_sub(3);
    ticks.next_multiple_of(step)
}

/// So many ticks are so many nanoseconds.
fn rate() -> (u128, u128) {
    if COUNTED.load(Ordering::Relaxed) != 0 {
        return (1, 1);
    }
    let (began, clock) = (time_stamp_counter(), Instant::now());
    std::thread::sleep(Duration::from_millis(20));
    let (passed, time) = (time_stamp_counter() - began, clock.elapsed());
    (u128::from(passed.max(1)), time.as_nanos())
}

impl Path {
    fn text(self) -> String {
        let (began, ended, least) = (place_text(self.began), place_text(self.ended), 1_u64 << self.calls >> 1);
        format!("{began} to {ended}, {least} calls and more, {:016x}", self.places)
    }
}

/// The function that a return address lies in, after inlining, and where.
fn place_text(place: u64) -> String {
    let frames = stack_trace::name(&[place]);
    let Some(frame) = frames.last().filter(|_| place != 0) else { return "the kernel".to_owned() };
    let function = frame.location.as_ref().map_or("?", |location| without_types(&location.function));
    format!("{function} ({}+{:#x})", frame.image, frame.offset)
}

/// A function's name without its arguments, those of its type included.
fn without_types(function: &str) -> &str {
    function.split(['<', '(']).next().unwrap_or(function)
}

/// How often the system has taken the processor from the calling thread; a counted clock does not go on meanwhile.
fn context_switches() -> u64 {
    if COUNTED.load(Ordering::Relaxed) != 0 {
        return 0;
    }
    // SAFETY: a zeroed structure is one to fill in.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: fills in the structure.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nivcsw.cast_unsigned().wrapping_add(usage.ru_nvcsw.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_rounded_up_by_an_eighth_at_the_most() {
        for ticks in (0..2_000).chain([65_535, 65_536, 65_537, 1 << 40]) {
            let rounded = rounded_up(ticks);
            assert!((ticks..=ticks + ticks / 8).contains(&rounded), "{ticks} is {rounded}");
            assert_eq!(rounded_up(rounded), rounded);
        }
    }

    #[test]
    fn a_place_has_the_same_bit_wherever_its_image_lies() {
        assert_eq!(bit(0x7F00_0000_1234), bit(0x5500_0000_0234));
        assert_ne!(bit(0x1234), bit(0x1235));
    }

    #[test]
    fn what_the_host_does_for_itself_is_left_out() {
        count_stalls();
        let stretch = Stretch::new();
        assert_eq!(stretch.leave_out(|| 7), 7);
        assert!(!stretch.is_open());
        stretch.begin(1);
        let began = stretch.since.load(Ordering::Relaxed);
        stretch.leave_out(|| stalled(Duration::from_millis(2)));
        assert_eq!(stretch.since.load(Ordering::Relaxed) - began, 2_000_000);
    }

    #[test]
    fn times_are_kept_by_path() {
        let (times, stretch) = (Times::new(), Stretch::new());
        for calls in [0, 2, 3, 0] {
            stretch.begin(1);
            (0..calls).for_each(|_| stretch.call(5));
            // A stretch from which the system takes the processor is left out: try again.
            stretch.end(&times, 9);
            assert!(!stretch.is_open());
        }
        stretch.end(&times, 9);
        let paths = times.paths();
        let seen: Vec<(u32, u64)> = paths.keys().map(|path| (path.calls, path.places)).collect();
        assert!(seen.iter().all(|path| [(0, 0), (2, bit(5))].contains(path)), "{seen:?}");
        assert!(paths.values().flat_map(BTreeMap::values).sum::<u64>() <= 4);
    }
}
