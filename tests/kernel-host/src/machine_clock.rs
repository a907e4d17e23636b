//! The machine's time since boot, in the kernel's units of 100 ns: by the system's clock, and in fast mode by the time stamp counter as
//! soon as its rate is known, which costs what `KeQueryPerformanceCounter` costs on Windows. The system's own clock has to be
//! the counter: then it has the same rate on every processor and never stops.
//!
//! The rate is what the counter does while the system's clock goes on by 20 ms; the first caller after that finds it.
//! Both clocks are read close to each other, the counter first, so the change from one to the other is no step back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::thunk::time_stamp_counter;

/// The units that a tick is, shifted left by [`SHIFT`]; 0 while it is not known.
pub(crate) static SCALE: AtomicU64 = AtomicU64::new(0);
/// A reading of the counter and the time of it.
pub(crate) static TICKS: AtomicU64 = AtomicU64::new(0);
pub(crate) static UNITS: AtomicU64 = AtomicU64::new(0);
/// The fast twin of `KeQueryPerformanceCounter` shifts by it, too.
pub(crate) const SHIFT: u32 = 32;

const LONG_ENOUGH: Duration = Duration::from_millis(20);

/// The boot, by both clocks; the counter's only where it is to be used.
struct Boot {
    time: Instant,
    ticks: Option<u64>,
}

static BOOT: OnceLock<Boot> = OnceLock::new();
/// Held while the rate is found.
static FINDING: Mutex<()> = Mutex::new(());

/// Time begins. `fast`: the counter may be used.
pub(crate) fn start(fast: bool) {
    let (ticks, time) = both();
    let _ = BOOT.set(Boot { time, ticks: (fast && system_uses_the_counter()).then_some(ticks) });
}

fn system_uses_the_counter() -> bool {
    std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .is_ok_and(|name| name.trim() == "tsc")
}

/// The counter and right after it the clock: the closest pair of several.
fn both() -> (u64, Instant) {
    let pair = |_| {
        let (ticks, time) = (time_stamp_counter(), Instant::now());
        (time_stamp_counter().wrapping_sub(ticks), (ticks, time))
    };
    let closest = (0..8).map(pair).min_by_key(|(distance, _)| *distance);
    closest.map_or_else(|| (time_stamp_counter(), Instant::now()), |(_, pair)| pair)
}

/// Units of 100 ns since boot.
#[inline]
pub fn now() -> u64 {
    let scale = SCALE.load(Ordering::Acquire);
    if scale == 0 {
        return by_the_system();
    }
    let passed = time_stamp_counter().wrapping_sub(TICKS.load(Ordering::Relaxed));
    UNITS.load(Ordering::Relaxed) + ((u128::from(passed) * u128::from(scale)) >> SHIFT) as u64
}

#[cold]
fn by_the_system() -> u64 {
    let Some(boot) = BOOT.get() else { return 0 };
    let passed = boot.time.elapsed();
    if let Some(ticks) = boot.ticks
        && passed > LONG_ENOUGH
    {
        find_rate(ticks, boot.time);
    }
    units(passed)
}

fn units(time: Duration) -> u64 {
    (time.as_nanos() / 100) as u64
}

fn find_rate(ticks_at_boot: u64, boot: Instant) {
    let _finding = FINDING.lock().unwrap_or_else(PoisonError::into_inner);
    if SCALE.load(Ordering::Relaxed) != 0 {
        return;
    }
    let (ticks, time) = both();
    let passed = time.duration_since(boot);
    TICKS.store(ticks, Ordering::Relaxed);
    UNITS.store(units(passed), Ordering::Relaxed);
    SCALE.store(scale(passed, ticks.wrapping_sub(ticks_at_boot)), Ordering::Release);
}

/// The units of a tick when so many passed in a time; 0 for a counter that stands.
fn scale(time: Duration, ticks: u64) -> u64 {
    let scaled = (time.as_nanos() << SHIFT).checked_div(u128::from(ticks) * 100);
    scaled.map_or(0, |scale| scale as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_of_a_counter_is_its_share_of_a_unit() {
        assert_eq!(scale(Duration::from_secs(1), 10_000_000), 1 << SHIFT);
        assert_eq!(scale(Duration::from_secs(1), 40_000_000), 1 << (SHIFT - 2));
        assert_eq!(scale(Duration::from_secs(1), 0), 0);
    }

    #[test]
    fn the_counter_goes_with_the_systems_clock_and_never_back() {
        start(true);
        let mut before = 0;
        let mut read = || {
            let time = now();
            assert!(time >= before, "{time} after {before}");
            before = time;
            time
        };
        // The system's clock before, ours, the system's after: ours lies between, whenever the machine takes the processor away.
        let boot = BOOT.get().unwrap().time;
        for _ in 0..200_000 {
            let (least, ours, most) = (units(boot.elapsed()), read(), units(boot.elapsed()));
            // The rate is found within 20 ms, so it is as exact as that is long.
            let inexact = most / 100;
            assert!(
                least - least.min(inexact) <= ours && ours <= most + inexact,
                "{ours} is not from {least} to {most}"
            );
        }
        assert!(SCALE.load(Ordering::Relaxed) != 0 || !system_uses_the_counter() || before < units(LONG_ENOUGH));
    }
}
