//! Memory with request rings, and how far the driver has got in it: what queue pairs and shared receive queues have in common.
//!
//! The memory is the process's and comes with a request that pends (`rings`). One context at a time takes entries, at PASSIVE_LEVEL,
//! holding a [`RingPass`]; counts of what was taken are the driver's own. An entry that makes no sense ends the taking for good.
//!
//! Threads of the process wait for each other. The poller waits for none of them: it asks, and the holder takes the entries.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ndkpi_sys::nt::{
    NTSTATUS, STATUS_CANCELLED, STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER, STATUS_PENDING, STATUS_SUCCESS,
};
use softndk_cells::{Shared, View};
use softndk_ioctl::nd::rings::QueuePairTaken;
use softndk_kernel::{
    event::{CriticalRegion, Event, Mutex},
    irp::Request,
    spin_lock::SpinLock,
};

use super::{
    object::{self, no_memory},
    request::Call,
    rings::Attached,
};
use crate::{runtime::platform::UserModeObject, tags};

pub struct RequestMemory {
    /// Held while entries are taken and posted.
    posting: Mutex<()>,
    state: SpinLock<MemoryState>,
    /// An entry made no sense: nothing is taken any more. Written by its holder.
    broken: AtomicBool,
    /// Entries taken, written by its holder.
    initiator_taken: AtomicU32,
    receive_taken: AtomicU32,
    /// The poller has the queue in its list.
    polled: AtomicBool,
    /// The poller has let go of the queue.
    unpolled: Event,
}

struct MemoryState {
    closed: bool,
    memory: Option<Shared<Attached>>,
    /// What the memory shows, so that it is written only where it changes: the process reads that line with each post.
    shown: Option<QueuePairTaken>,
}

/// The outcome of one pass over the rings.
pub struct PollOutcome {
    /// Producer counts of both rings when they were read last.
    pub produced: (u32, u32),
    /// More entries wait than could be taken in one pass.
    pub more: bool,
}

/// The right to take entries.
pub struct RingPass<'a> {
    of: &'a RequestMemory,
    pub memory: &'a Attached,
}

impl RingPass<'_> {
    pub fn initiator_taken(&self) -> u32 {
        self.of.initiator_taken.load(Ordering::Relaxed)
    }

    pub fn receive_taken(&self) -> u32 {
        self.of.receive_taken.load(Ordering::Relaxed)
    }

    /// One more entry of the initiator ring is taken. The holder alone writes the count.
    pub fn take_initiator(&self) {
        self.of.initiator_taken.store(self.initiator_taken().wrapping_add(1), Ordering::Relaxed);
    }

    pub fn take_receive(&self) {
        self.of.receive_taken.store(self.receive_taken().wrapping_add(1), Ordering::Relaxed);
    }

    /// An entry made no sense: nothing is taken any more.
    pub fn break_off(&self) -> NTSTATUS {
        self.of.broken.store(true, Ordering::Release);
        STATUS_INVALID_PARAMETER
    }
}

impl RequestMemory {
    /// No memory yet. PASSIVE_LEVEL.
    pub fn try_new() -> Result<Self, NTSTATUS> {
        Ok(Self {
            posting: Mutex::try_new(tags::EVENT, ()).map_err(no_memory)?,
            state: SpinLock::new(MemoryState { closed: false, memory: None, shown: None }),
            broken: AtomicBool::new(false),
            initiator_taken: AtomicU32::new(0),
            receive_taken: AtomicU32::new(0),
            polled: AtomicBool::new(false),
            unpolled: Event::try_synchronization(tags::EVENT, false).map_err(no_memory)?,
        })
    }

    /// Waits for the right to take entries, with which `act` runs, and as often as the poller asks meanwhile, `take`. INVALID_DEVICE_STATE without memory,
    /// or after an entry that made no sense. PASSIVE_LEVEL.
    pub fn with_pass<R, T>(
        &self,
        act: impl FnOnce(&RingPass<'_>) -> Result<R, NTSTATUS>,
        take: impl Fn(&RingPass<'_>) -> Result<T, NTSTATUS>,
    ) -> Result<R, NTSTATUS> {
        let (result, mut asked) = self.take_once(act);
        while asked {
            asked = self.take_once(&take).1;
        }
        result
    }

    /// One pass, and whether the poller has asked for another.
    fn take_once<R>(&self, act: impl FnOnce(&RingPass<'_>) -> Result<R, NTSTATUS>) -> (Result<R, NTSTATUS>, bool) {
        let posting = self.posting.lock();
        let memory = self.memory();
        let result = match &memory {
            Some(memory) => act(&RingPass { of: self, memory }),
            None => Err(STATUS_INVALID_DEVICE_STATE),
        };
        (result, posting.release())
    }

    /// The poller's pass over memory that it has; `None` where a thread of the process takes entries: it takes what is there now.
    /// INVALID_DEVICE_STATE, too, where the memory was taken away.
    pub fn with_pass_of<R>(
        &self,
        memory: &Attached,
        region: &CriticalRegion,
        act: impl FnOnce(&RingPass<'_>) -> Result<R, NTSTATUS>,
    ) -> Result<Option<R>, NTSTATUS> {
        let Some(_posting) = self.posting.lock_or_ask(region) else { return Ok(None) };
        // Counts begin anew with memory that comes after this, and not while entries are taken.
        if memory.is_revoked() || self.broken.load(Ordering::Acquire) {
            return Err(STATUS_INVALID_DEVICE_STATE);
        }
        act(&RingPass { of: self, memory }).map(Some)
    }

    /// The poller may have the queue from now on; false where it has it already.
    pub fn begin_polling(&self) -> bool {
        !self.polled.swap(true, Ordering::AcqRel)
    }

    /// The poller has let go of the queue and its memory. `IRQL <= DISPATCH_LEVEL`.
    pub fn end_polling(&self) {
        self.polled.store(false, Ordering::Release);
        self.unpolled.set();
    }

    /// Waits until the poller has let go of memory that was taken away. PASSIVE_LEVEL, no lock held.
    pub fn wait_for_poller(&self) {
        while self.polled.load(Ordering::Acquire) {
            self.unpolled.wait();
        }
        // For others that wait.
        self.unpolled.set();
    }

    /// The memory that entries are taken from.
    pub fn memory(&self) -> Option<Shared<Attached>> {
        let state = self.state.lock();
        state.memory.clone().filter(|_| !self.broken.load(Ordering::Acquire))
    }

    /// Whether initiator entries wait.
    pub fn has_initiator_entries(&self) -> bool {
        let state = self.state.lock();
        let taken = self.initiator_taken.load(Ordering::Relaxed);
        state.memory.as_ref().is_some_and(|memory| memory.initiator_producer() != taken)
    }

    /// Shows the process what is taken and what `free` adds to it. `IRQL <= DISPATCH_LEVEL`.
    pub fn publish(&self, free: impl FnOnce(QueuePairTaken) -> QueuePairTaken) {
        // Under the lock, so that a later snapshot is never written over by an earlier one.
        let mut state = self.state.lock();
        let MemoryState { memory: Some(memory), shown, .. } = &mut *state else { return };
        let taken = free(QueuePairTaken {
            initiator_taken: self.initiator_taken.load(Ordering::Relaxed),
            receive_taken: self.receive_taken.load(Ordering::Relaxed),
            ..QueuePairTaken::default()
        });
        if shown.as_ref() != Some(&taken) {
            memory.publish(&taken);
            *shown = Some(taken);
        }
    }

    /// Takes the memory away; its request ends with this status when no context uses it any more.
    pub fn detach(&self, status: NTSTATUS, fits: impl FnOnce(&Attached) -> bool) {
        self.take_away(status, fits);
    }

    /// As [`Self::detach`]; whether there was such memory.
    fn take_away(&self, status: NTSTATUS, fits: impl FnOnce(&Attached) -> bool) -> bool {
        let memory = self.state.lock().memory.take_if(|memory| fits(memory)).inspect(|memory| memory.revoke());
        if let Some(memory) = &memory {
            memory.lease.end_with(status);
        }
        memory.is_some()
    }

    /// No memory is taken any more. [`Self::close`] follows.
    pub fn shut(&self) {
        self.state.lock().closed = true;
    }

    /// The queue is closed: its memory is the process's again when this returns, unless a pass or a mapping of it lasts. PASSIVE_LEVEL.
    pub fn close(&self) {
        self.shut();
        self.detach(STATUS_SUCCESS, |_| true);
        self.wait_for_poller();
    }

    /// A file is closed: memory that came through it goes back. PASSIVE_LEVEL.
    pub fn end_file(&self, file: u64) {
        if self.take_away(STATUS_CANCELLED, |memory| memory.lease.is_of_file(file)) {
            self.wait_for_poller();
        }
    }

    /// ATTACH, of `length` bytes, for the object that this is part of. `take` as for [`Self::with_pass`].
    pub fn attach<T: View<As = dyn UserModeObject>>(
        &self,
        call: &Call,
        request: Request,
        length: usize,
        object: &Shared<T>,
        take: impl Fn(&RingPass<'_>) -> Result<PollOutcome, NTSTATUS>,
    ) -> Result<NTSTATUS, (Request, NTSTATUS)> {
        if self.state.lock().memory.is_some() {
            return Err((request, STATUS_INVALID_DEVICE_STATE));
        }
        let memory = Attached::try_new(call, request, length, object::owner(object))?;
        // A pass that is under way is of memory that is gone.
        let posting = self.posting.lock();
        if let Err(status) = self.keep(&memory) {
            memory.lease.end_with(status);
        }
        if posting.release() {
            let _taken = self.with_pass(&take, &take);
        }
        Ok(STATUS_PENDING)
    }

    fn keep(&self, memory: &Shared<Attached>) -> Result<(), NTSTATUS> {
        let mut state = self.state.lock();
        if state.closed || memory.lease.is_cancelled() {
            return Err(STATUS_CANCELLED);
        }
        if state.memory.is_some() {
            return Err(STATUS_INVALID_DEVICE_STATE);
        }
        // Counts begin anew with each memory.
        self.initiator_taken.store(0, Ordering::Relaxed);
        self.receive_taken.store(0, Ordering::Relaxed);
        memory.show_polling(false);
        state.shown = None;
        state.memory = Some(memory.clone());
        Ok(())
    }
}
