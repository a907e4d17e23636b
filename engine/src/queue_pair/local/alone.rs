//! A plain Read or Write that is posted alone: its post moves it, past the queue.
//!
//! The queue is empty, so the request is the next one: nothing is gained by putting it in and taking it out. Its poster takes the
//! requester, moves the bytes and completes the request. Where that cannot be done in one go, and for every refusal, nothing has been
//! done and the request is posted as any other.
//!
//! Rules: what has been posted before is done before; the requester is held until the completion has been entered, so that the results
//! of requests come in their order; at DISPATCH_LEVEL a post moves no more than the processor's allowance lets it.

use softndk_cells::Shared;

use crate::completion::completion_queue;
use crate::counters::{Traffic, TrafficCounter};
use crate::flags::{Operation, RequestFlags};
use crate::limits::{PIECE_FIRST, REQUEST_COST};
use crate::memory::access::Side;
use crate::memory::cached::CachedAccessor;
use crate::object::allowance::Allowance;
use crate::platform::Platform;
use crate::queue_pair::local::Local;
use crate::queue_pair::local::plain::{Move, success};
use crate::queue_pair::pair::{End, QueuePairObject, state};
use crate::queue_pair::peer::Peer;
use crate::queue_pair::requester::Requester;
use crate::queue_pair::responder;
use crate::queue_pair::work::{RequestPhase, RequesterContext};

/// A Read or Write of one element.
pub(in crate::queue_pair) struct Alone {
    pub(in crate::queue_pair) bytes: Move,
    pub(in crate::queue_pair) flags: RequestFlags,
    pub(in crate::queue_pair) context: u64,
}

/// What became of it.
#[derive(Clone, Copy)]
pub(in crate::queue_pair) struct Tried {
    /// It is complete; else nothing has been done.
    pub(in crate::queue_pair) moved: bool,
    /// Another context has left work for the requester meanwhile, which the caller has to process.
    pub(in crate::queue_pair) raised: bool,
}

impl Alone {
    const NOT_TRIED: Tried = Tried { moved: false, raised: false };

    /// Moves it at DISPATCH_LEVEL, where the caller was before or not.
    #[inline]
    pub(in crate::queue_pair) fn try_move<P: Platform>(
        &self,
        pair: &Shared<QueuePairObject<P>>,
        was_there: bool,
    ) -> Tried {
        let scheduler = &pair.core.scheduler;
        let processor = scheduler.platform().processor();
        let allowance = scheduler.allowance_of(processor);
        let length = u64::from(self.bytes.single.length);
        if length > most(allowance, was_there) {
            return Self::NOT_TRIED;
        }
        let Some(mut requester) = pair.work.raise() else { return Self::NOT_TRIED };
        let moved = requester.move_alone(pair, processor, self);
        if let Some(allowance) = allowance.filter(|_| was_there && moved) {
            allowance.charge(length.max(REQUEST_COST));
        }
        Tried { moved, raised: requester.finish().is_some() }
    }
}

/// Bytes that a post may move in one go.
#[inline]
fn most(allowance: Option<&Allowance>, at_dispatch: bool) -> u64 {
    match allowance {
        Some(allowance) if at_dispatch => allowance.in_place(),
        None if at_dispatch => 0,
        allowance => {
            if let Some(allowance) = allowance {
                allowance.renew();
            }
            PIECE_FIRST
        }
    }
}

impl<P: Platform> Requester<P> {
    #[inline]
    fn move_alone(&mut self, pair: &Shared<QueuePairObject<P>>, processor: u32, request: &Alone) -> bool {
        let is_next = matches!(self.work.phase, RequestPhase::Fresh) && self.work.requests.is_empty();
        let goes_on = pair.state() & (state::ENDED | state::NO_READS) == 0;
        if !(is_next && goes_on) {
            return false;
        }
        self.connect(pair);
        if let Peer::Local(local) = &mut self.peer { local.move_alone(pair, processor, request) } else { false }
    }
}

impl<P: Platform> Local<P> {
    #[inline]
    fn move_alone(&mut self, pair: &Shared<QueuePairObject<P>>, processor: u32, request: &Alone) -> bool {
        let Self { peer: there, stretches, .. } = self;
        let scheduler = &pair.core.scheduler;
        let Some(guard) = scheduler.enter(processor) else { return false };
        let context = RequesterContext::new(pair, &guard);
        let mut here = CachedAccessor::new(context.memory(), Side::Local, &mut stretches.here);
        let mut named =
            CachedAccessor::new(responder::memory(there, context.epoch), Side::Remote, &mut stretches.named);
        let moved = request.bytes.run(scheduler.platform(), &mut here, &mut named);
        scheduler.leave(guard);
        if moved {
            complete(pair, there, request);
        }
        moved
    }
}

/// Counts what was moved, and enters the completion if there is to be one.
#[inline]
fn complete<P: Platform>(pair: &Shared<QueuePairObject<P>>, there: &QueuePairObject<P>, request: &Alone) {
    let Alone { bytes: Move { operation, single, .. }, flags, context } = request;
    let is_read = *operation == Operation::Read;
    let traffic = Traffic::of(u64::from(single.length));
    TrafficCounter::count_message([&pair.traffic_counter, &there.traffic_counter], is_read, traffic);
    let is_silent = flags.contains(RequestFlags::SILENT_SUCCESS);
    let done = || success(pair, *operation, single.length, *context);
    if !is_silent && !completion_queue::push_success(&pair.initiator_queue, done) {
        pair.defer_failure();
    }
}
