//! Time in nanoseconds, by the performance counter.

use core::{num::NonZeroU64, ptr};

use wdk_sys::{LARGE_INTEGER, ntddk::KeQueryPerformanceCounter};

pub struct Clock {
    /// Ticks in a second.
    frequency: NonZeroU64,
}

impl Clock {
    /// Any IRQL.
    pub fn new() -> Self {
        let mut frequency = LARGE_INTEGER::default();
        // SAFETY: a valid place for the frequency; any IRQL.
        let _now = unsafe { KeQueryPerformanceCounter(&raw mut frequency) };
        // SAFETY: every bit pattern of the union is a number.
        let frequency = unsafe { frequency.QuadPart };
        Self { frequency: NonZeroU64::new(frequency.cast_unsigned()).unwrap_or(NonZeroU64::MIN) }
    }

    /// Nanoseconds since some moment before the system started. Any IRQL.
    pub fn now(&self) -> u64 {
        self.nanoseconds(ticks())
    }

    /// What so many ticks take.
    pub fn nanoseconds(&self, ticks: u64) -> u64 {
        let (seconds, rest) = (ticks / self.frequency, ticks % self.frequency);
        // The rest is smaller than the frequency, and both are far below 2^34.
        seconds.wrapping_mul(1_000_000_000).wrapping_add(rest.wrapping_mul(1_000_000_000) / self.frequency)
    }
}

/// The counter itself: the same for all processors. Any IRQL.
pub fn ticks() -> u64 {
    // SAFETY: the frequency is not asked for; any IRQL.
    let ticks = unsafe { KeQueryPerformanceCounter(ptr::null_mut()) };
    // SAFETY: every bit pattern of the union is a number.
    unsafe { ticks.QuadPart }.cast_unsigned()
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
