//! The longest of many times that are taken while a tool measures.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::thunk::time_stamp_counter;

/// See the module. In ticks of the processor's clock until it is asked for.
pub(crate) struct Longest {
    measured: AtomicBool,
    ticks: AtomicU64,
}

impl Longest {
    pub(crate) const fn new() -> Self {
        Self { measured: AtomicBool::new(false), ticks: AtomicU64::new(0) }
    }

    /// From now on times are taken.
    pub(crate) fn begin(&self) {
        self.ticks.store(0, Ordering::Relaxed);
        self.measured.store(true, Ordering::Relaxed);
    }

    /// The longest since [`Self::begin`]; no more are taken.
    pub(crate) fn end(&self) -> Duration {
        self.measured.store(false, Ordering::Relaxed);
        let (began, clock) = (time_stamp_counter(), Instant::now());
        std::thread::sleep(Duration::from_millis(20));
        let (passed, time) = (time_stamp_counter() - began, clock.elapsed());
        let nanoseconds = u128::from(self.ticks.load(Ordering::Relaxed)) * time.as_nanos() / u128::from(passed.max(1));
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Whether times are taken.
    #[inline]
    pub(crate) fn is_measured(&self) -> bool {
        self.measured.load(Ordering::Relaxed)
    }

    /// A time has been taken: it began at `since`, by the processor's clock.
    pub(crate) fn note(&self, since: u64) {
        let ticks = time_stamp_counter().saturating_sub(since);
        if ticks > self.ticks.load(Ordering::Relaxed) {
            self.ticks.fetch_max(ticks, Ordering::Relaxed);
        }
    }
}

/// How often the system has taken the processor from the calling thread.
pub(crate) fn context_switches() -> u64 {
    // SAFETY: a zeroed structure is one to fill in.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: fills in the structure.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nivcsw.cast_unsigned().wrapping_add(usage.ru_nvcsw.cast_unsigned())
}
