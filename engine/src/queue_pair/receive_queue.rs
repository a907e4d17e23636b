//! The receive queue of a queue pair: where messages of the peer go.
//!
//! This is the consuming end of the receive ring behind a lock, with the mark that a message is being delivered into it. The
//! producing end is in `posting.rs`.
//!
//! Rules (NDKPI: NDK_FN_RECEIVE): receives complete in the order they were posted; a message that finds none waits and is woken
//! by the next post; a flush waits for the delivery under way, so each receive completes exactly once.

use alloc::vec::Vec;

use arrayvec::ArrayVec;
use softndk_cells::atomic::{AtomicBool, Ordering};
use softndk_cells::ring::{Receiver, Together};
use softndk_cells::{NoMemory, Shared};

use crate::capacity::push_within_capacity;
use crate::completion::completion_queue::{self, Completion};
use crate::error::Outcome;
use crate::flags::Operation;
use crate::limits::BATCH;
use crate::object::header::Object;
use crate::platform::{Lock, Platform};
use crate::queue_pair::pair::{End, QueuePairObject, state};
use crate::queue_pair::request::Receive;
use crate::queue_pair::shared_receive_queue::SrqAttachment;
use crate::token::Sge;

/// The next receives of a queue that have one SGE: their contexts and SGEs, as [`ReceiveQueue::prefetch`] found them.
pub(crate) struct PrefetchedReceives {
    receives: ArrayVec<(u64, Sge), BATCH>,
    next: usize,
}

impl PrefetchedReceives {
    pub(crate) const fn new() -> Self {
        Self { receives: ArrayVec::new_const(), next: 0 }
    }

    /// The next one, if it has been looked at.
    #[inline]
    pub(crate) fn peek(&self) -> Option<(u64, Sge)> {
        self.receives.get(self.next).copied()
    }

    /// A message has gone into it.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.next = self.next.wrapping_add(1);
    }

    pub(crate) fn clear(&mut self) {
        self.receives.clear();
        self.next = 0;
    }
}

pub(crate) struct ReceiveQueue<P: Platform> {
    inner: P::Lock<PostedReceives<P>>,
    /// A sender waits for a receive to be posted.
    awaited: AtomicBool,
}

struct PostedReceives<P: Platform> {
    receives: Receiver<Receive>,
    sges: Receiver<Sge, Together>,
    /// The peer fills receives at the front of the queue.
    delivering: bool,
    /// The one that a message is half delivered into, between two runs that deliver it. Its SGEs are in `scratch`.
    under_way: Option<Receive>,
    /// Scheduled when a receive is posted.
    waiter: Option<Object<P>>,
    /// For the SGEs of the receive that is being filled; with the run that fills it until that is committed.
    scratch: Vec<Sge>,
}

impl<P: Platform> ReceiveQueue<P> {
    /// A queue whose receives have at most so many SGEs, from wherever they come.
    pub(crate) fn try_new(
        receives: Receiver<Receive>,
        sges: Receiver<Sge, Together>,
        most_sges: u32,
    ) -> Result<Self, NoMemory> {
        let mut scratch = Vec::new();
        // The SGE of a receive that has one goes there too.
        scratch.try_reserve_exact(most_sges.max(1) as usize)?;
        let inner = PostedReceives { receives, sges, delivering: false, under_way: None, waiter: None, scratch };
        Ok(Self { inner: P::Lock::new(inner), awaited: AtomicBool::new(false) })
    }

    /// Gives the responder the receive after the `filled` ones it has filled already, and its SGEs; or records
    /// who waits.
    pub(crate) fn begin(
        &self,
        draining: bool,
        filled: usize,
        waiter: &Object<P>,
        sges: &mut Vec<Sge>,
    ) -> Option<Receive> {
        self.inner.with(|inner| {
            let position = inner.receives.position().wrapping_add(filled);
            if inner.receives.peek(position).is_none() || draining {
                if filled > 0 {
                    return None;
                }
                inner.waiter = Some(waiter.clone());
                self.awaited.store(true, Ordering::SeqCst);
                // Check again: a post that did not see the mark has published before.
                if draining || inner.receives.peek(position).is_none() {
                    return None;
                }
                inner.waiter = None;
                self.awaited.store(false, Ordering::SeqCst);
            }
            let receive = *inner.receives.peek(position)?;
            inner.lend_scratch(sges);
            sges.clear();
            if receive.count == 1 {
                push_within_capacity(sges, receive.single).ok()?;
            } else {
                for index in 0..usize::from(receive.count) {
                    push_within_capacity(sges, *inner.sges.peek(receive.first.wrapping_add(index))?).ok()?;
                }
            }
            inner.delivering = true;
            Some(receive)
        })
    }

    /// A queue pair that waits for its own receives, for a peer across a stream, waits no longer.
    pub(crate) fn stop_waiting(&self) {
        let waiter = self.inner.with(|inner| {
            self.awaited.store(false, Ordering::SeqCst);
            inner.waiter.take()
        });
        drop(waiter);
    }

    /// The receive that the last run has left half filled, and its SGEs.
    pub(crate) fn resume(&self, sges: &mut Vec<Sge>) -> Option<Receive> {
        self.inner.with(|inner| {
            let receive = inner.under_way.take()?;
            inner.lend_scratch(sges);
            Some(receive)
        })
    }

    /// Looks at the receives of one SGE that come after the `filled` ones: a message may go into each without asking again, until the
    /// delivery is ended by [`commit`]. Whether there are any; none where the queue pair drains.
    pub(crate) fn prefetch(
        &self,
        pair: &QueuePairObject<P>,
        filled: usize,
        prefetched: &mut PrefetchedReceives,
    ) -> bool {
        prefetched.clear();
        self.inner.with(|inner| {
            // Under the lock: a flush that finds nothing being delivered does not meet a delivery afterwards.
            let most = if pair.state() & state::DRAIN == 0 { BATCH } else { 0 };
            let first = inner.receives.position().wrapping_add(filled);
            for offset in 0..most {
                let receive = inner.receives.peek(first.wrapping_add(offset)).filter(|receive| receive.count == 1);
                let Some(receive) = receive else { break };
                if prefetched.receives.try_push((receive.context, receive.single)).is_err() {
                    break;
                }
            }
            inner.delivering |= !prefetched.receives.is_empty();
            !prefetched.receives.is_empty()
        })
    }

    /// Whether nothing is posted and nothing under way.
    pub(crate) fn is_drained(&self) -> bool {
        self.inner.with(|inner| inner.receives.is_empty() && !inner.delivering)
    }
}

/// As [`ReceiveQueue::begin`] for a queue pair that takes its receives from a shared queue.
pub(crate) fn begin_shared<P: Platform>(
    pair: &QueuePairObject<P>,
    attachment: &SrqAttachment<P>,
    filled: usize,
    waiter: &Object<P>,
    sges: &mut Vec<Sge>,
) -> Option<Receive> {
    let (receive, emptied) = pair.receiving.inner.with(|inner| {
        // Under the lock: a flush that finds nothing being delivered does not meet a delivery afterwards.
        if pair.state() & state::DRAIN != 0 {
            return (None, (None, None));
        }
        inner.lend_scratch(sges);
        let (receive, emptied) = attachment.take(waiter, filled == 0, sges);
        inner.delivering |= receive.is_some();
        (receive, emptied)
    });
    drop(emptied);
    receive
}

/// Ends a batch of deliveries: completes the filled receives in one go, and keeps the one that is half filled.
pub(crate) fn commit<P: Platform>(
    pair: &Shared<QueuePairObject<P>>,
    filled: &mut [Completion],
    under_way: Option<Receive>,
    sges: &mut Vec<Sge>,
) {
    let moving = under_way.is_some();
    let entered = pair.receiving.inner.with(|inner| {
        let tag = pair.tag();
        for completion in &mut *filled {
            completion.queue_pair_context = pair.context;
            completion.tag = tag;
        }
        if pair.attachment.is_none() {
            inner.release(filled.len());
        }
        inner.delivering = moving;
        inner.under_way = under_way;
        inner.take_scratch_back(sges);
        completion_queue::push_batch(&pair.receive_queue, filled)
    });
    if !entered {
        pair.defer_failure();
    }
    if !moving && pair.state() & state::DRAIN != 0 {
        pair.core.scheduler.link(&Object::of(pair));
    }
}

impl<P: Platform> PostedReceives<P> {
    /// Gives a run the place for SGEs, unless it has it.
    fn lend_scratch(&mut self, sges: &mut Vec<Sge>) {
        if sges.capacity() == 0 {
            core::mem::swap(sges, &mut self.scratch);
        }
    }

    /// The run that had it is over.
    fn take_scratch_back(&mut self, sges: &mut Vec<Sge>) {
        if sges.capacity() > 0 {
            core::mem::swap(sges, &mut self.scratch);
        }
    }

    /// Frees the places of the oldest receives. They leave last, as in `pop`.
    fn release(&mut self, receives: usize) {
        if !self.sges.is_empty() {
            self.release_sges(receives);
        }
        self.receives.release(receives);
    }

    /// Those of them that have a list.
    #[cold]
    fn release_sges(&mut self, receives: usize) {
        for offset in 0..receives {
            let position = self.receives.position().wrapping_add(offset);
            let sges = self.receives.peek(position).map_or(0, |receive| usize::from(receive.count));
            if sges > 1 {
                self.sges.skip(sges);
            }
        }
    }

    fn pop(&mut self) -> Option<Receive> {
        // The receive leaves last: a context that sees its place free finds places for its SGEs as well.
        let count = self.receives.peek(self.receives.position())?.count;
        if count > 1 {
            self.sges.skip(usize::from(count));
        }
        self.receives.pop()
    }
}

/// A receive was posted: wakes the peer that waits for it, or cancels it when the queue pair has ended.
pub(crate) fn posted<P: Platform>(pair: &Shared<QueuePairObject<P>>) {
    if pair.receiving.awaited.load(Ordering::SeqCst) {
        let waiter = pair.receiving.inner.with(|inner| {
            pair.receiving.awaited.store(false, Ordering::SeqCst);
            inner.waiter.take()
        });
        if let Some(waiter) = waiter {
            pair.core.scheduler.link(&waiter);
        }
    }
    if pair.state() & state::DRAIN != 0 {
        pair.core.scheduler.link(&Object::of(pair));
    }
}

/// Cancels a bounded number of receives; true when some are left.
#[inline(never)]
pub(crate) fn flush<P: Platform>(pair: &Shared<QueuePairObject<P>>) -> bool {
    if let Some(attachment) = &pair.attachment {
        attachment.leave();
    }
    let mut rounds = crate::limits::FLUSH_STEP / BATCH;
    let mut entered = true;
    let (more, waiter) = pair.receiving.inner.with(|inner| {
        let waiter = inner.waiter.take();
        // While a message is being delivered its receive is still in the queue; the delivering context links this queue pair
        // again.
        while !inner.delivering && !inner.receives.is_empty() {
            if rounds == 0 {
                return (true, waiter);
            }
            rounds -= 1;
            let mut batch = [Completion::default(); BATCH];
            let mut count = 0;
            for place in &mut batch {
                let Some(receive) = inner.pop() else { break };
                *place = Completion {
                    context: receive.context,
                    queue_pair_context: pair.context,
                    outcome: Outcome::Cancelled,
                    operation: Operation::Receive,
                    tag: pair.tag(),
                    ..Completion::default()
                };
                count += 1;
            }
            entered &= completion_queue::push_batch(&pair.receive_queue, batch.get(..count).unwrap_or_default());
        }
        (false, waiter)
    });
    drop(waiter);
    if !entered {
        pair.defer_failure();
    }
    more
}
