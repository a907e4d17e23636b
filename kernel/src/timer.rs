//! Timers: a DPC at a moment.
//!
//! A KTIMER must not move and must not be freed while it is set; [`Timer::stop`] is what an owner calls before it lets go.

use core::{cell::UnsafeCell, ffi::c_void};

use wdk_sys::{
    KTIMER, LARGE_INTEGER,
    ntddk::{KeCancelTimer, KeInitializeTimer, KeQueryTimeIncrement, KeSetTimer},
};

use crate::{
    dpc::{Dpc, DpcRoutine},
    pool::{NoMemory, PoolBox, Tag},
};

/// A timer that runs its DPC once each time it is set.
pub struct Timer {
    timer: PoolBox<UnsafeCell<KTIMER>>,
    dpc: Dpc,
}

// SAFETY: the kernel serialises the operations on a KTIMER.
unsafe impl Send for Timer {}
// SAFETY: as above.
unsafe impl Sync for Timer {}

impl Timer {
    /// A timer that calls `routine(context)` at DISPATCH_LEVEL on `processor`.
    ///
    /// # Safety
    /// `routine` must be sound for `context` whenever it runs, until the owner stopped the timer.
    pub unsafe fn try_new(
        tag: Tag,
        routine: DpcRoutine,
        context: *mut c_void,
        processor: u32,
    ) -> Result<Self, NoMemory> {
        let timer = PoolBox::try_new(tag, UnsafeCell::new(KTIMER::default()))?;
        // SAFETY: the block is non-paged and not in use.
        unsafe { KeInitializeTimer(timer.get()) };
        // SAFETY: the caller's promise.
        let dpc = unsafe { Dpc::try_new(tag, routine, context) }?;
        dpc.target(processor);
        Ok(Self { timer, dpc })
    }

    /// Runs the DPC in this many nanoseconds, perhaps up to [`resolution`] sooner or later; an earlier wish is forgotten.
    /// `IRQL <= DISPATCH_LEVEL`.
    pub fn set(&self, nanoseconds: u64) {
        let units = i64::try_from(nanoseconds.div_ceil(100)).unwrap_or(i64::MAX);
        // Negative is relative to now.
        let due = LARGE_INTEGER { QuadPart: units.saturating_neg() };
        // SAFETY: both are initialised and stay where they are; `stop` comes before they go.
        let _was_set = unsafe { KeSetTimer(self.timer.get(), due, self.dpc.as_ptr()) };
    }

    /// Forgets the wish and waits until no run of the DPC is in progress. PASSIVE_LEVEL; no caller sets the timer any more.
    pub fn stop(&self) {
        // SAFETY: initialised by `try_new`.
        let _was_set = unsafe { KeCancelTimer(self.timer.get()) };
        self.dpc.stop();
    }
}

/// Nanoseconds between two ticks of the system's clock, by which timers may be off. Any IRQL.
pub fn resolution() -> u64 {
    // SAFETY: may be called at any IRQL.
    u64::from(unsafe { KeQueryTimeIncrement() }) * 100
}
