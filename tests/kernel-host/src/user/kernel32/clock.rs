//! Clocks: all are the kernel's, whose time goes on while nothing waits for it.

use crate::dispatcher;

/// 2025-01-01 in units of 100 ns since 1601: when every kernel of the host was booted.
const BOOTED: u64 = 133_801_632_000_000_000;

crate::exports! {
    module "kernel32.dll";

    /// Units of 100 ns of virtual time since the kernel was booted.
    /// Source: Win32: QueryPerformanceCounter
    [PASSIVE_ONLY] fn QueryPerformanceCounter(to: *mut u64) -> u32 {
        // SAFETY: the caller's out parameter.
        unsafe { to.write(dispatcher::now()) };
        1
    }

    /// Source: Win32: QueryPerformanceFrequency
    [PASSIVE_ONLY] fn QueryPerformanceFrequency(to: *mut u64) -> u32 {
        // SAFETY: the caller's out parameter.
        unsafe { to.write(dispatcher::UNITS_PER_SECOND) };
        1
    }

    /// Virtual time; every kernel is booted at the begin of 2025.
    /// Source: Win32: GetSystemTimeAsFileTime
    [PASSIVE_ONLY] fn GetSystemTimeAsFileTime(to: *mut u64) {
        // SAFETY: the caller's out parameter.
        unsafe { to.write(BOOTED + dispatcher::now()) };
    }

    /// As GetSystemTimeAsFileTime.
    /// Source: Win32: GetSystemTimePreciseAsFileTime
    [PASSIVE_ONLY] fn GetSystemTimePreciseAsFileTime(to: *mut u64) {
        // SAFETY: the caller's out parameter.
        unsafe { to.write(BOOTED + dispatcher::now()) };
    }
}
