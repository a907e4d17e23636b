//! Memory with request rings, and how far the driver has got in it: what queue pairs and shared receive queues have in common.
//!
//! The memory is the process's and comes with a request that pends (`rings`). One context at a time takes entries, at PASSIVE_LEVEL,
//! holding a [`Turn`]; counts of what was taken are the driver's own. An entry that makes no sense ends the taking for good.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ndkpi_sys::nt::{
    NTSTATUS, STATUS_CANCELLED, STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER, STATUS_PENDING, STATUS_SUCCESS,
};
use softndk_cells::{Shared, View};
use softndk_ioctl::nd::rings::QueuePairTaken;
use softndk_kernel::{
    event::{CriticalRegion, Mutex},
    irp::Request,
    spin_lock::SpinLock,
};

use super::{
    object::{self, no_memory},
    request::Call,
    rings::Attached,
};
use crate::{platform::UserModeObject, tags};

pub struct RequestMemory {
    /// Held while entries are taken and posted.
    posting: Mutex<()>,
    state: SpinLock<MemoryState>,
    /// An entry made no sense: nothing is taken any more. Written by the holder of the turn.
    broken: AtomicBool,
    /// Entries taken, written by the holder of the turn.
    initiator_taken: AtomicU32,
    receive_taken: AtomicU32,
    /// The poller has the queue in its list.
    pub polled: AtomicBool,
}

struct MemoryState {
    closed: bool,
    memory: Option<Shared<Attached>>,
    /// What the memory shows, so that it is written only where it changes: the process reads that line with each post.
    shown: Option<QueuePairTaken>,
}

/// What a turn has seen.
pub struct Looked {
    /// Producer counts of both rings when they were read last.
    pub produced: (u32, u32),
    /// More entries wait than could be taken in one turn.
    pub more: bool,
}

/// The right to take entries.
pub struct Turn<'a> {
    of: &'a RequestMemory,
    pub memory: &'a Attached,
}

impl Turn<'_> {
    pub fn initiator_taken(&self) -> u32 {
        self.of.initiator_taken.load(Ordering::Relaxed)
    }

    pub fn receive_taken(&self) -> u32 {
        self.of.receive_taken.load(Ordering::Relaxed)
    }

    /// One more entry of the initiator ring is taken. The taker alone writes the count.
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
        })
    }

    /// Waits for the turn; INVALID_DEVICE_STATE without memory, or after an entry that made no sense. PASSIVE_LEVEL.
    pub fn turn<R>(&self, act: impl FnOnce(&Turn<'_>) -> Result<R, NTSTATUS>) -> Result<R, NTSTATUS> {
        let _posting = self.posting.lock();
        let memory = self.memory().ok_or(STATUS_INVALID_DEVICE_STATE)?;
        act(&Turn { of: self, memory: &memory })
    }

    /// The same for a thread in a critical region that has the memory already; INVALID_DEVICE_STATE, too, where it was taken away.
    pub fn turn_of<R>(
        &self,
        memory: &Attached,
        region: &CriticalRegion,
        act: impl FnOnce(&Turn<'_>) -> Result<R, NTSTATUS>,
    ) -> Result<R, NTSTATUS> {
        let _posting = self.posting.lock_in(region);
        // Counts begin anew with memory that comes after this, and not while the turn lasts.
        if memory.is_revoked() || self.broken.load(Ordering::Acquire) {
            return Err(STATUS_INVALID_DEVICE_STATE);
        }
        act(&Turn { of: self, memory })
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
        let memory = self.state.lock().memory.take_if(|memory| fits(memory)).inspect(|memory| memory.revoke());
        if let Some(memory) = memory {
            memory.lease.end_with(status);
        }
    }

    /// No memory is taken any more. [`Self::close`] follows.
    pub fn shut(&self) {
        self.state.lock().closed = true;
    }

    /// The queue is closed.
    pub fn close(&self) {
        self.shut();
        self.detach(STATUS_SUCCESS, |_| true);
    }

    /// ATTACH, of `length` bytes, for the object that this is part of.
    pub fn attach<T: View<As = dyn UserModeObject>>(
        &self,
        call: &Call,
        request: Request,
        length: usize,
        object: &Shared<T>,
    ) -> Result<NTSTATUS, (Request, NTSTATUS)> {
        if self.state.lock().memory.is_some() {
            return Err((request, STATUS_INVALID_DEVICE_STATE));
        }
        let memory = Attached::try_new(call, request, length, object::owner(object))?;
        if let Err(status) = self.keep(&memory) {
            memory.lease.end_with(status);
        }
        Ok(STATUS_PENDING)
    }

    fn keep(&self, memory: &Shared<Attached>) -> Result<(), NTSTATUS> {
        // A turn that is under way is of memory that is gone.
        let _posting = self.posting.lock();
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
