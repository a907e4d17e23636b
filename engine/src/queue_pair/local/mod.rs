//! The peer at hand: a queue pair of the same fabric, whose memory is copied to and from directly.
//!
//! Which request goes which way:
//!
//! | request | way | why |
//! |---|---|---|
//! | a Read or Write of one element, posted while the queue is empty, not deferred, no longer than a piece | `alone` | its post moves it: nothing is gained by putting it into the queue and taking it out |
//! | a Read, Write or Send of one element that invalidates nothing, in the queue | `plain` | many in one go, with the memory and the receives that the ones before have found |
//! | any other that moves bytes; one that a way above could not move, and each that is refused | `long` | piece by piece, every kind of memory, and the cause of a refusal |
//! | a fast registration, Bind or Invalidate | `registration` (one level up) | it needs no other end |
//!
//! A way that cannot move a request leaves it as it is, and the next one in the table looks at it.
//!
//! Rules: one request is under way at a time, so a read fence is always satisfied; no lock is held while bytes are copied; a run
//! stays inside the epoch for at most one piece of copying; a sender's completions are entered before the receiver's, so that an
//! answer never overtakes them.

pub(super) mod alone;
mod long;
mod pace;
pub(super) mod plain;

use softndk_cells::Shared;

use crate::completion::completion_queue::Batch;
use crate::error::Outcome;
use crate::limits::{REQUEST_COST, STEP_REQUESTS};
use crate::object::scheduler::Scheduler;
use crate::platform::Platform;
use crate::queue_pair::pair::QueuePairObject;
use crate::queue_pair::responder::{self, Delivery};
use crate::queue_pair::work::{Progress, RequestPhase, RequesterContext, Stop, Work};

use pace::Pace;
use plain::Stretches;

/// The requester of a queue pair whose peer is at hand; see the module.
pub(crate) struct Local<P: Platform> {
    /// The queue pair at the other end.
    peer: Shared<QueuePairObject<P>>,
    stretches: Stretches<P>,
    pace: Pace,
}

/// What a run completes, at both ends, and [`Local::commit`] enters.
struct Gathered {
    /// Of this end's requests.
    done: Batch,
    /// Of the other end's receives.
    delivery: Delivery,
}

impl<P: Platform> Local<P> {
    pub(super) fn new(peer: Shared<QueuePairObject<P>>, scheduler: &Scheduler<P>) -> Self {
        Self { peer, stretches: Stretches::new(scheduler), pace: Pace::new() }
    }

    /// Nothing more is asked of the peer.
    pub(super) fn release(self) {
        responder::release(&self.peer);
    }

    /// Brings requests forward until a bound is reached or something has to be waited for. What it gathers is in its frame, which
    /// is gone when the connection ends.
    #[inline(never)]
    pub(super) fn run(&mut self, work: &mut Work<P>, context: RequesterContext<'_, P>, most: u64) -> (u64, Stop) {
        let platform = context.pair.core.scheduler.platform();
        let first = work.front().map_or(0, |request| request.length);
        let piece = self.pace.begin(platform, most, first);
        let most = piece.most;
        let mut bytes = 0_u64;
        let mut stop = Stop::Bounds;
        let out = &mut Gathered { done: Batch::new(), delivery: Delivery::new() };
        if !matches!(work.phase, RequestPhase::Fresh) {
            out.delivery.resume(&self.peer);
        }
        for _ in 0..STEP_REQUESTS {
            if work.requests.is_empty() {
                stop = Stop::Empty;
                break;
            }
            if out.done.is_full() || out.delivery.filled.is_full() {
                self.commit(work, context, out);
            }
            let left = most.saturating_sub(bytes).max(1);
            let is_next_plain = work.front().is_some_and(|request| request.is_plain);
            let plain = if is_next_plain { self.run_plain(work, context, out, left) } else { 0 };
            if plain > 0 {
                bytes = bytes.saturating_add(plain);
                if bytes >= most {
                    break;
                }
                continue;
            }
            match self.advance(work, context, out, left) {
                Progress::Completed => bytes = bytes.saturating_add(REQUEST_COST),
                Progress::Moved(moved) => bytes = bytes.saturating_add(moved.max(REQUEST_COST)),
                // The filled receives are still in front of those that are free.
                Progress::NoReceive { .. } if !out.delivery.filled.is_empty() => self.commit(work, context, out),
                Progress::NoReceive { unlimited } if !work.waits(context.pair, unlimited) => {
                    work.fail(context.pair, Outcome::NotReady);
                    bytes = bytes.saturating_add(REQUEST_COST);
                }
                Progress::NoReceive { .. } => {
                    stop = Stop::Waiting;
                    break;
                }
                Progress::Epoch(stamp, moved) => {
                    bytes = bytes.saturating_add(moved);
                    stop = Stop::Epoch(stamp);
                    break;
                }
            }
            if bytes >= most || work.failed {
                break;
            }
        }
        self.commit(work, context, out);
        self.pace.end(platform, piece, bytes);
        (bytes, stop)
    }

    /// Enters the gathered completions: this end's first, so that an answer of the peer never comes before them.
    fn commit(&self, work: &mut Work<P>, context: RequesterContext<'_, P>, out: &mut Gathered) {
        let (outgoing, incoming) = work.commit(context.pair, &mut out.done);
        out.delivery.commit(&self.peer, (incoming, outgoing));
    }
}
