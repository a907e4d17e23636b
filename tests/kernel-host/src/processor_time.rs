//! What threads have used of the machine's processors: time that does not go on while a busy machine runs other threads.

use std::time::Duration;

/// The clock of the calling thread, which other threads may read.
pub(crate) fn clock() -> libc::clockid_t {
    let mut clock = libc::CLOCK_THREAD_CPUTIME_ID;
    // SAFETY: the calling thread is there, and the number is a local.
    unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
    clock
}

/// What the thread of a clock has used; none when that thread has ended.
pub(crate) fn of(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the structure, which is a local.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) } != 0;
    (!failed).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// What the calling thread has used.
pub(crate) fn mine() -> Duration {
    of(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or_default()
}
