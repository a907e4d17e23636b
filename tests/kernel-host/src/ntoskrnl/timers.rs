//! Timers and clocks.

use crate::bugcheck::{BugCheck, bugcheck};
use crate::dispatcher::{self, UNITS_PER_SECOND};
use crate::exports;
use crate::fast;
use crate::nt::{KDPC, KTIMER};
use crate::thread::Thread;
use crate::{processor, stretches, timer};
use std::time::Duration;

exports! {
    module "ntoskrnl.exe";

    /// Fills a KTIMER.
    /// Checks: not set
    /// Source: WDM: KeInitializeTimerEx
    [ANY] fn KeInitializeTimerEx(object: *mut KTIMER, kind: u32) {
        // SAFETY: the image's timer.
        unsafe { timer::initialise(object, kind != 0) };
    }

    /// Fills a notification timer.
    /// Checks: not set
    /// Source: WDM: KeInitializeTimer
    [ANY] fn KeInitializeTimer(object: *mut KTIMER) {
        // SAFETY: the image's timer.
        unsafe { timer::initialise(object, false) };
    }

    /// Sets the timer; TRUE when it was set before. Negative is relative.
    /// Checks: initialised; its memory is not freed while it is set
    /// Source: WDM: KeSetTimerEx
    [UP_TO_DISPATCH] fn KeSetTimerEx(object: *mut KTIMER, due: i64, period: i32, deferred: *mut KDPC) -> u8 {
        // SAFETY: the image's objects.
        u8::from(unsafe { timer::set(object, due, period, deferred) })
    }

    /// Sets a timer that may be late by so many milliseconds; it never is.
    /// Checks: as KeSetTimerEx
    /// Source: WDM: KeSetCoalescableTimer
    [UP_TO_DISPATCH] fn KeSetCoalescableTimer(
        object: *mut KTIMER, due: i64, period: u32, _late: u32, deferred: *mut KDPC,
    ) -> u8 {
        // SAFETY: the image's objects.
        u8::from(unsafe { timer::set(object, due, period as i32, deferred) })
    }

    /// Sets a timer that expires once.
    /// Checks: as KeSetTimerEx
    /// Source: WDM: KeSetTimer
    [UP_TO_DISPATCH] fn KeSetTimer(object: *mut KTIMER, due: i64, deferred: *mut KDPC) -> u8 {
        // SAFETY: the image's objects.
        u8::from(unsafe { timer::set(object, due, 0, deferred) })
    }

    /// Takes the timer back; TRUE when it was set. Its DPC may still be queued.
    /// Source: WDM: KeCancelTimer
    [UP_TO_DISPATCH] fn KeCancelTimer(object: *mut KTIMER) -> u8 {
        // SAFETY: the image's timer.
        u8::from(unsafe { timer::cancel(object) })
    }

    /// Whether the timer has expired.
    /// Source: WDM: KeReadStateTimer
    [UP_TO_DISPATCH] fn KeReadStateTimer(object: *mut KTIMER) -> u8 {
        // SAFETY: the image's timer.
        u8::from(unsafe { (*object).Header.SignalState.load(std::sync::atomic::Ordering::Relaxed) } != 0)
    }

    /// The performance counter: 10 MHz, as on current Windows; follows virtual time.
    /// Source: WDM: KeQueryPerformanceCounter
    [ANY, fast = fast::KeQueryPerformanceCounter] fn KeQueryPerformanceCounter(frequency: *mut i64) -> i64 {
        if !frequency.is_null() {
            // SAFETY: the image's output.
            unsafe { frequency.write(UNITS_PER_SECOND as i64) };
        }
        dispatcher::now() as i64
    }

    /// 100 ns units since boot.
    /// Source: WDM: KeQueryUnbiasedInterruptTime
    [ANY] fn KeQueryUnbiasedInterruptTime() -> u64 {
        dispatcher::now()
    }

    /// 100 ns units since boot, and the performance counter at that time.
    /// Source: WDM: KeQueryInterruptTimePrecise
    [ANY] fn KeQueryInterruptTimePrecise(counter: *mut u64) -> u64 {
        let now = dispatcher::now();
        // SAFETY: the image's output.
        unsafe { counter.write(now) };
        now
    }

    /// 100 ns units since 1601; begins on 2025-01-01.
    /// Source: WDM: KeQuerySystemTimePrecise
    [ANY] fn KeQuerySystemTimePrecise(time: *mut u64) {
        // SAFETY: the image's output.
        unsafe { time.write(timer::system_time()) };
    }

    /// 100 ns units between two timer interrupts.
    /// Source: WDM: KeQueryTimeIncrement
    [ANY] fn KeQueryTimeIncrement() -> u32 {
        timer::INCREMENT
    }

    /// Busy waiting.
    /// Checks: at most 50 µs when verifying, at most 1 s otherwise
    /// Source: WDM: KeStallExecutionProcessor
    [ANY] fn KeStallExecutionProcessor(microseconds: u32) {
        let most = if crate::kernel::is_verifying() { 50 } else { 1_000_000 };
        if microseconds > most {
            bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, [0x101E, u64::from(microseconds), 0, 0],
                format!("KeStallExecutionProcessor for {microseconds} µs; {most} are the most"));
        }
        processor::get(Thread::current().processor()).running.stall(microseconds);
        let time = Duration::from_micros(u64::from(microseconds));
        stretches::stalled(time);
        dispatcher::stall(time);
    }
}
