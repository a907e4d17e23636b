//! The requester: processes the initiator queue of a queue pair, by one context at a time.
//!
//! It joins the work to the way to the peer and runs the two in steps; what becomes of a request is up to the peer's kind.

use softndk_cells::Shared;

use crate::limits::STEP_REQUESTS;
use crate::object::header::Object;
use crate::platform::Platform;
use crate::queue_pair::pair::{QueuePairObject, update_end};
use crate::queue_pair::peer::Peer;
use crate::queue_pair::work::{RequesterContext, Stop, Work};

/// The processing state of a queue pair; see the module.
pub(crate) struct Requester<P: Platform> {
    pub(super) work: Work<P>,
    pub(super) peer: Peer<P>,
}

/// How much a step did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stepped {
    /// The step can do no more here, after this much (as for `More`): the queue is empty, another context will link the queue
    /// pair, or another context has the requester.
    Rest(u64),
    /// The bounds of a step were reached after this much, in bytes; a request costs at least [`REQUEST_COST`](crate::limits::REQUEST_COST).
    More(u64),
}

impl Stepped {
    pub(crate) const fn used(self) -> u64 {
        match self {
            Self::Rest(used) | Self::More(used) => used,
        }
    }
}

impl<P: Platform> Requester<P> {
    pub(super) const fn new(work: Work<P>) -> Self {
        Self { work, peer: Peer::None }
    }

    /// Takes the way to the peer, where the connection has been made.
    #[inline]
    pub(super) fn connect(&mut self, pair: &QueuePairObject<P>) {
        if matches!(self.peer, Peer::None) && pair.is_connected() {
            self.peer = Peer::of(pair);
        }
    }

    /// Brings requests forward; the cost, and why it stopped.
    fn run(&mut self, context: RequesterContext<'_, P>, most: u64) -> (u64, Stop) {
        self.connect(context.pair);
        match &mut self.peer {
            Peer::None => self.work.cancel(context.pair),
            Peer::Local(local) => local.run(&mut self.work, context, most),
            Peer::Stream(stream) => stream.run(&mut self.work, context, most),
        }
    }

    /// Nothing more is asked of the peer.
    fn release(&mut self) {
        match core::mem::replace(&mut self.peer, Peer::None) {
            Peer::None => {}
            Peer::Local(local) => local.release(),
            Peer::Stream(stream) => stream.release(),
        }
    }
}

/// Processes one piece of the initiator queue, unless another context does. What the step cannot do goes to the run queue of
/// `processor`, whose pass this is; without one to that of the current processor. At DISPATCH_LEVEL: a context that holds the
/// requester or is inside the epoch must not be preempted.
pub(super) fn step<P: Platform>(pair: &Shared<QueuePairObject<P>>, processor: Option<u32>, most: u64) -> Stepped {
    let scheduler = &pair.core.scheduler;
    let Some(mut held) = pair.work.raise() else { return Stepped::Rest(0) };
    let here = processor.unwrap_or_else(|| scheduler.platform().processor());
    let mut bytes = 0_u64;
    for _ in 0..STEP_REQUESTS {
        let Some(guard) = scheduler.enter(here) else { break };
        let (moved, stop) = held.run(RequesterContext::new(pair, &guard), most.saturating_sub(bytes));
        scheduler.leave(guard);
        if held.work.failed {
            held.work.report_failure(pair);
        }
        bytes = bytes.saturating_add(moved);
        match stop {
            Stop::Bounds => return Stepped::More(bytes),
            Stop::Epoch(stamp) if scheduler.epoch().passed(stamp) => continue,
            Stop::Epoch(stamp) => scheduler.park(&Object::of(pair), stamp),
            Stop::Empty if pair.is_ended() && pair.requests.is_claimed() => held.work.look_again(pair),
            // Of a poster that had not seen the end and gave its claim up just now.
            Stop::Empty if pair.is_ended() && !pair.requests.is_empty() => continue,
            Stop::Empty if pair.is_ended() => {
                held.work.stop_waiting(pair);
                held.release();
                update_end(pair);
            }
            Stop::Empty | Stop::Waiting => {}
        }
        match held.finish() {
            Some(again) => held = again,
            None => return Stepped::Rest(bytes),
        }
    }
    // Too many rounds, or too many contexts inside the epoch. The requester is released first: a context that finds it held
    // leaves.
    drop(held);
    scheduler.link_at(&Object::of(pair), processor);
    Stepped::Rest(bytes)
}
