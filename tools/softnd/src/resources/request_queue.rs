//! Requests on their way to the driver: the memory of a queue pair or a shared receive queue, and when its doorbell rings.
//!
//! A post tells the driver at once: a doorbell is a system call, but a peer may wait for the request although its client does nothing
//! more. Only the posts of a batch (version 1) are put off: to the batch's end, the 16th request, or what has to come after them (Flush,
//! Bind, Invalidate, Connect, Accept, Disconnect). A driver that polls is told nothing.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use softnd_interfaces::Status;
use softndk_ioctl::nd::rings::{QueuePairState, QueueSizes};
use zerocopy::{Immutable, IntoBytes};

use super::adapter::Adapter;
use crate::{
    ring::{Payload, Put, QueueMemory, RequestRing},
    shared::Shared,
};

/// Requests of a batch that wait at most before the driver is told.
const BATCH: u32 = 16;

/// Which of the two rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Initiator,
    Receive,
}

pub struct RequestQueue {
    adapter: Shared<Adapter>,
    handle: u64,
    memory: QueueMemory,
    /// Requests that the driver was not told of.
    waiting: AtomicU32,
    /// Until [`RequestQueue::submit_batch`], posts wait.
    batching: AtomicBool,
    /// Once connected, this is all that a post looks at.
    connected: AtomicBool,
    /// The driver's object is gone: a connector may know the queue longer than its owner.
    closed: AtomicBool,
}

impl RequestQueue {
    /// Makes the memory of a queue that the driver has just made, and gives it to the driver.
    pub fn new(adapter: &Shared<Adapter>, handle: u64, sizes: QueueSizes) -> Result<Shared<Self>, Status> {
        let memory = QueueMemory::new(sizes)?;
        memory.attach(adapter.device(), handle)?;
        Shared::new(Self {
            adapter: adapter.clone(),
            handle,
            memory,
            waiting: AtomicU32::new(0),
            batching: AtomicBool::new(false),
            connected: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        })
    }

    fn ring(&self, side: Side) -> &RequestRing {
        match side {
            Side::Initiator => &self.memory.initiator,
            Side::Receive => &self.memory.receive,
        }
    }

    /// Whether requests of the initiator are taken: it is or was connected.
    ///
    /// The state may be older than a connection of which the client knows already; a doorbell brings it up to date.
    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed) || self.look_for_connection()
    }

    #[cold]
    fn look_for_connection(&self) -> bool {
        let shown = || self.memory.state().contains(QueuePairState::CONNECTED);
        let connected = shown() || {
            self.adapter.device().ring(self.handle);
            shown()
        };
        self.connected.store(connected, Ordering::Relaxed);
        connected
    }

    /// A Bind has taken a slot, without an entry in the ring.
    pub fn after_bind(&self) {
        self.memory.look_at_initiator();
    }

    /// Posts a request whose arguments are good. NO_MORE_ENTRIES when the queue is full.
    pub fn post(&self, side: Side, head: &(impl IntoBytes + Immutable), payload: &impl Payload) -> Result<(), Status> {
        let put = || self.memory.put(self.ring(side), head, payload);
        let mut outcome = put();
        if outcome == Put::NoRoom {
            // What the driver has not taken or retired yet may be so now.
            self.submit_always();
            outcome = put();
        }
        match outcome {
            Put::NoRoom => return Err(Status::NO_MORE_ENTRIES),
            // It looks at what others put in before, too.
            Put::Polled if self.waiting.load(Ordering::Relaxed) == 0 => {}
            Put::Polled => self.waiting.store(0, Ordering::SeqCst),
            Put::Unseen => {
                let waiting = self.waiting.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
                if !self.batching.load(Ordering::Relaxed) || waiting >= BATCH {
                    self.submit();
                }
            }
        }
        Ok(())
    }

    /// Tells the driver of what waits, if anything does.
    pub fn submit(&self) {
        if self.waiting.swap(0, Ordering::SeqCst) > 0 && !self.closed.load(Ordering::SeqCst) {
            self.adapter.device().ring(self.handle);
        }
    }

    fn submit_always(&self) {
        self.waiting.store(0, Ordering::SeqCst);
        self.adapter.device().ring(self.handle);
    }

    /// From here on posts wait for [`RequestQueue::submit_batch`], or for the sixteenth.
    pub fn start_batch(&self) {
        self.batching.store(true, Ordering::Relaxed);
    }

    pub fn submit_batch(&self) {
        self.batching.store(false, Ordering::Relaxed);
        self.submit();
    }

    /// Receives that are posted and not used.
    pub fn outstanding_receives(&self) -> u32 {
        self.memory.outstanding(&self.memory.receive)
    }

    pub fn set_receive_depth(&self, depth: u32) {
        self.memory.receive.set_depth(depth);
    }

    /// Nothing is told any more. Before the driver's object is freed.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    #[cfg(test)]
    pub fn memory(&self) -> &QueueMemory {
        &self.memory
    }
}
