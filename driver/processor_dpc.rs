//! Work of one processor that comes up again while it is done: the DPC that does it, and when a thread takes over.
//!
//! A DPC that queues itself runs again before every thread of its processor. So it does that [`ROUNDS`] times in a row and then
//! leaves the work to a thread, which keeps it until nothing is left. While the thread has it, new work queues no DPC.

use core::{
    ptr,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use softndk_kernel::{
    dpc::{Dpc, Routine},
    pool::OutOfMemory,
};

use crate::tags;

/// Times that a DPC queues itself again before the thread takes over.
const ROUNDS: u32 = 2;

pub struct ProcessorDpc {
    dpc: Dpc,
    /// Runs in a row that left work behind.
    rounds: AtomicU32,
    /// Handed to the thread.
    for_thread: AtomicBool,
}

impl ProcessorDpc {
    /// A DPC of `processor` that calls `routine` with its number in place of a context.
    ///
    /// # Safety
    /// `routine` must be sound for a number until [`ProcessorDpc::stop`] has returned.
    pub unsafe fn try_new(routine: Routine, processor: usize) -> Result<Self, OutOfMemory> {
        // SAFETY: the caller's promise.
        let dpc = unsafe { Dpc::try_new(tags::DPC, routine, ptr::without_provenance_mut(processor)) }?;
        dpc.target(processor as u32);
        Ok(Self { dpc, rounds: AtomicU32::new(0), for_thread: AtomicBool::new(false) })
    }

    /// Takes the DPC from the queue and waits until no run of it is in progress. PASSIVE_LEVEL.
    pub fn stop(&self) {
        self.dpc.stop();
    }

    /// Has the DPC run, unless the thread has the work. Any IRQL, also with a lock held. A caller that is not sure whether it is
    /// inside a run checks that before.
    pub fn queue(&self) {
        if !self.for_thread.load(Ordering::SeqCst) {
            self.dpc.queue();
        }
    }

    pub fn is_for_thread(&self) -> bool {
        self.for_thread.load(Ordering::SeqCst)
    }

    /// A run of the DPC ends, and has left work behind or not; true when the thread takes over and has to be woken.
    pub fn end_run(&self, more: bool) -> bool {
        if more && self.rounds.fetch_add(1, Ordering::Relaxed) < ROUNDS {
            self.dpc.queue();
            return false;
        }
        self.rounds.store(0, Ordering::Relaxed);
        if more {
            self.for_thread.store(true, Ordering::SeqCst);
        }
        more
    }

    /// The thread has nothing left and gives the work back. `more` finds out whether some has come up that has queued no DPC.
    pub fn give_back(&self, more: impl FnOnce() -> bool) {
        self.for_thread.store(false, Ordering::SeqCst);
        if more() {
            self.dpc.queue();
        }
    }
}
