//! Requests on their way to the driver: the memory of a queue pair or a shared receive queue, and when the driver is told of it.
//!
//! A post tells the driver at once: a doorbell is a system call, but a peer may wait for the request although its client does nothing
//! more. Only the posts of a batch (version 1) are put off: what waits is told with the batch's end, the 16th request, or when the client next asks a
//! completion queue of the queue for results or a notification, or flushes, binds or disconnects. A driver that polls is told nothing.
//!
//! Putting off and asking race: the post links the queue to its completion queues and then looks whether one is armed; a Notify arms
//! and then tells for what is linked. One of the two sees the other.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use softnd_interfaces::Status;
use softndk_ioctl::nd::rings::{QueuePairState, QueueSizes};
use zerocopy::{Immutable, IntoBytes};

use super::{adapter::Adapter, completion_queue::CompletionQueue};
use crate::{
    ring::{Payload, QueueMemory, RequestRing},
    shared::Shared,
    spin_lock::SpinLock,
};

/// Requests that wait at most before the driver is told.
const BATCH: u32 = 16;

/// Which of the two rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Initiator,
    Receive,
}

/// Completion queues that are asked for the results of one queue: two of a queue pair; of a shared receive queue there may be
/// more, and then nothing is put off.
const ATTACHED: usize = 2;

pub struct RequestQueue {
    adapter: Shared<Adapter>,
    handle: u64,
    memory: QueueMemory,
    /// Requests that the driver was not told of.
    waiting: AtomicU32,
    /// Emptied when the queue is closed: a linked queue and its completion queues keep each other until then.
    attached: SpinLock<[Option<Shared<CompletionQueue>>; ATTACHED]>,
    /// Whether it is linked to the completion queue at this place of `attached`.
    linked: [AtomicBool; ATTACHED],
    /// Nothing is put off: more completion queues than are remembered, or no memory to remember it.
    prompt: AtomicBool,
    /// Until [`RequestQueue::submit_batch`], posts wait whatever is armed.
    batching: AtomicBool,
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
            attached: SpinLock::new([const { None }; ATTACHED]),
            linked: [const { AtomicBool::new(false) }; ATTACHED],
            prompt: AtomicBool::new(false),
            batching: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        })
    }

    /// Tells it of a completion queue that gets its results. NO_MEMORY.
    pub fn attach(&self, queue: &Shared<CompletionQueue>) -> Result<(), Status> {
        let is_known = |attached: &[Option<Shared<CompletionQueue>>; ATTACHED]| {
            attached.iter().flatten().any(|known| known.is(queue))
        };
        if is_known(&self.attached.lock()) {
            return Ok(());
        }
        queue.expect_link()?;
        let mut attached = self.attached.lock();
        match attached.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(queue.clone()),
            None => self.prompt.store(true, Ordering::Relaxed),
        }
        Ok(())
    }

    /// Says whether it is linked to the completion queue at a place; whether that is new. Called with the links locked.
    pub fn set_linked(&self, place: usize, linked: bool) -> bool {
        self.linked.get(place).is_some_and(|known| known.swap(linked, Ordering::SeqCst) != linked)
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
        let connected = || self.memory.state().contains(QueuePairState::CONNECTED);
        connected() || {
            self.adapter.device().ring(self.handle);
            connected()
        }
    }

    /// Posts a request whose arguments are good. NO_MORE_ENTRIES when the queue is full.
    pub fn post(
        this: &Shared<Self>,
        side: Side,
        head: &(impl IntoBytes + Immutable),
        payload: &impl Payload,
    ) -> Result<(), Status> {
        let put = || this.memory.put(this.ring(side), head, payload);
        let fits = put() || {
            // What the driver has not taken or retired yet may be so now.
            this.submit_always();
            put()
        };
        if !fits {
            return Err(Status::NO_MORE_ENTRIES);
        }
        let waiting = this.waiting.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        if this.memory.is_polled() {
            this.waiting.store(0, Ordering::SeqCst);
        } else if !this.may_wait() || waiting >= BATCH || Self::link(this) {
            this.submit();
        }
        Ok(())
    }

    /// Only what the client posts as a batch is put off: the driver does not look at rings by itself, and a peer may wait for what a
    /// client has posted before it does anything else.
    fn may_wait(&self) -> bool {
        self.batching.load(Ordering::Relaxed) && !self.prompt.load(Ordering::Relaxed)
    }

    /// Links the queue to its completion queues; whether the driver is to be told now: one of them has a notification outstanding,
    /// or cannot remember the link.
    fn link(this: &Shared<Self>) -> bool {
        let attached = this.attached.lock();
        let mut now = false;
        for (place, (queue, linked)) in (0..ATTACHED).zip(attached.iter().zip(&this.linked)) {
            let Some(queue) = queue else { continue };
            now |= !linked.load(Ordering::SeqCst) && !queue.link(this, place);
            fence(Ordering::SeqCst);
            now |= queue.is_armed();
        }
        now && !this.batching.load(Ordering::Relaxed)
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

    /// Ends the putting off, before the driver's object is freed.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let attached = core::mem::take(&mut *self.attached.lock());
        for queue in attached.into_iter().flatten() {
            queue.unlink(self);
        }
    }

    #[cfg(test)]
    pub fn memory(&self) -> &QueueMemory {
        &self.memory
    }
}
