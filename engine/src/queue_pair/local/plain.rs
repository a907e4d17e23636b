//! Plain requests: Reads, Writes and Sends of one scatter/gather element, moved in one go.
//!
//! Most requests are of this kind: their bytes lie in one stretch at each end, and the other end's memory is at hand. They are
//! moved here, as many as there are, with what the ones before have found. Whatever else a request needs, and every refusal, is on the
//! long way in `long.rs`; a request that cannot be moved here is left as it is. One that is posted alone is in `alone.rs`.
//!
//! Rules: a place in a queue is free before the completion of its request can be polled; what was found is used inside one epoch
//! only, so that a revocation that waits for its readers waits for this.

use softndk_cells::Shared;

use crate::completion::completion_queue::{Batch, Completion};
use crate::counters::Traffic;
use crate::error::Outcome;
use crate::flags::{Operation, RequestFlags, Rights};
use crate::limits::REQUEST_COST;
use crate::memory::access::Side;
use crate::memory::cached::{CachedAccessor, CachedGrant};
use crate::object::scheduler::Scheduler;
use crate::platform::Platform;
use crate::queue_pair::local::{Gathered, Local};
use crate::queue_pair::pair::{QueuePairObject, state};
use crate::queue_pair::request::Request;
use crate::queue_pair::responder::{self, Delivery};
use crate::queue_pair::work::{RequestPhase, RequesterContext, Work};
use crate::token::{MemoryToken, Sge};

impl<P: Platform> Local<P> {
    /// Moves plain requests from the front on, of `most` bytes together and as many as there are places for completions. Returns
    /// what they cost of a step, 0 without one.
    #[inline(never)]
    pub(super) fn run_plain(
        &mut self,
        work: &mut Work<P>,
        context: RequesterContext<'_, P>,
        out: &mut Gathered,
        most: u64,
    ) -> u64 {
        let Gathered { done, delivery } = out;
        let Work { requests, outgoing, incoming, phase, deadline, .. } = work;
        // A message that has waited for its receive ends its wait on the long way.
        let (RequestPhase::Fresh, None) = (phase, deadline) else { return 0 };
        let mut ends = Ends::new(context, &self.peer, delivery, &mut self.stretches);
        let result = success(context.pair, Operation::Read, 0, 0);
        let most_requests = done.free();
        let (mut sent, mut received) = (Traffic::default(), Traffic::default());
        let mut used = 0_u64;
        let taken = requests.visit(most_requests, |request| {
            let goes_on = context.pair.state() & (state::ENDED | state::NO_READS) == 0;
            let fits = request.length <= most.saturating_sub(used);
            if !request.is_plain || !fits || !goes_on || !ends.move_one(request) {
                return false;
            }
            let reads = request.operation == Operation::Read;
            if reads { &mut received } else { &mut sent }.add(request.length);
            if !request.flags.contains(RequestFlags::SILENT_SUCCESS) {
                let Request { context, operation, .. } = *request;
                done.push(Completion { context, operation, bytes: request.bytes(), ..result });
            }
            used = used.saturating_add(request.length.max(REQUEST_COST));
            true
        });
        if taken > 0 {
            // Plain requests own nothing that would have to be dropped.
            requests.release(taken);
            outgoing.join(sent);
            incoming.join(received);
        }
        used
    }
}

/// The stretches of memory that a requester's plain requests named last.
pub(in crate::queue_pair) struct Stretches<P: Platform> {
    /// Of this end's scatter/gather elements.
    pub(super) here: CachedGrant<P>,
    /// What requests named of the other end.
    pub(super) named: CachedGrant<P>,
    /// Of the other end's receives.
    pub(super) sinks: CachedGrant<P>,
}

impl<P: Platform> Stretches<P> {
    pub(super) fn new(scheduler: &Scheduler<P>) -> Self {
        let new = || CachedGrant::new(scheduler);
        Self { here: new(), named: new(), sinks: new() }
    }
}

/// The completion of a plain request.
#[inline]
pub(super) fn success<P: Platform>(
    pair: &QueuePairObject<P>,
    operation: Operation,
    bytes: u32,
    context: u64,
) -> Completion {
    Completion {
        context,
        queue_pair_context: pair.context,
        outcome: Outcome::Success,
        operation,
        bytes,
        tag: pair.tag(),
        ..Completion::default()
    }
}

/// What a Read or Write of one element moves.
pub(in crate::queue_pair) struct Move {
    pub(in crate::queue_pair) operation: Operation,
    pub(in crate::queue_pair) single: Sge,
    pub(in crate::queue_pair) address: u64,
    pub(in crate::queue_pair) token: MemoryToken,
}

impl Move {
    /// Checks both ends and moves the bytes; false where the request has to go the long way.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the innermost loop of the data path")]
    pub(super) fn run<'g, P: Platform>(
        &self,
        platform: &P,
        here: &mut CachedAccessor<'g, P>,
        named: &mut CachedAccessor<'g, P>,
    ) -> bool {
        let (single, length) = (self.single, u64::from(self.single.length));
        let reads = self.operation == Operation::Read;
        let (here_needed, there_needed) =
            if reads { (Rights::LOCAL_WRITE, Rights::REMOTE_READ) } else { (Rights::empty(), Rights::REMOTE_WRITE) };
        let Some(local) = here.find(single.token, single.address, length, here_needed) else { return false };
        let Some(remote) = named.find(self.token, self.address, length, there_needed) else { return false };
        let (to, from) = if reads { (local, remote) } else { (remote, local) };
        platform.copy_message(to, from, single.length as usize);
        true
    }
}

/// Where the bytes of plain requests are, at both ends.
struct Ends<'g, P: Platform> {
    platform: &'g P,
    /// This end's scatter/gather elements.
    here: CachedAccessor<'g, P>,
    /// What requests name of the other end.
    named: CachedAccessor<'g, P>,
    peer: &'g Shared<QueuePairObject<P>>,
    delivery: &'g mut Delivery,
    /// The memory of the other end's receives.
    sinks: CachedAccessor<'g, P>,
    /// The other end's receives have been looked at.
    has_prefetched: bool,
}

impl<'g, P: Platform> Ends<'g, P> {
    fn new(
        context: RequesterContext<'g, P>,
        peer: &'g Shared<QueuePairObject<P>>,
        delivery: &'g mut Delivery,
        stretches: &'g mut Stretches<P>,
    ) -> Self {
        let Stretches { here, named, sinks } = stretches;
        Self {
            platform: context.pair.core.scheduler.platform(),
            here: CachedAccessor::new(context.memory(), Side::Local, here),
            named: CachedAccessor::new(responder::memory(peer, context.epoch), Side::Remote, named),
            sinks: CachedAccessor::new(responder::memory(peer, context.epoch), Side::Local, sinks),
            peer,
            delivery,
            has_prefetched: false,
        }
    }

    /// Checks both ends of a request and moves it; false where it has to go the long way.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the one use, in the innermost loop of the data path")]
    fn move_one(&mut self, request: &Request<P>) -> bool {
        if request.operation == Operation::Send {
            return self.send(request);
        }
        let Request { operation, single, address, token, .. } = *request;
        Move { operation, single, address, token }.run(self.platform, &mut self.here, &mut self.named)
    }

    /// A message into the other end's next receive.
    #[inline(never)]
    fn send(&mut self, request: &Request<P>) -> bool {
        let single = &request.single;
        let from = self.here.find(single.token, single.address, request.length, Rights::empty());
        let Some(from) = from else { return false };
        let peer = self.peer;
        let Delivery { filled, prefetched, occupied, .. } = &mut *self.delivery;
        if peer.attachment.is_some() || filled.is_full() {
            return false;
        }
        if !self.has_prefetched {
            self.has_prefetched = true;
            *occupied |= peer.receiving.prefetch(peer, filled.len(), prefetched);
        }
        let Some((context, sink)) = prefetched.peek() else { return false };
        // The whole element has to be good, also where the message is shorter.
        let capacity = u64::from(sink.length);
        let Some(to) = self.sinks.find(sink.token, sink.address, capacity, Rights::LOCAL_WRITE) else { return false };
        if request.length > capacity {
            return false;
        }
        self.platform.copy_message(to, from, request.length as usize);
        prefetched.advance();
        fill(filled, context, request);
        true
    }
}

/// Gathers the completion of a receive; what its queue pair adds comes when it is entered.
fn fill<P: Platform>(filled: &mut Batch, context: u64, request: &Request<P>) {
    filled.push(Completion {
        context,
        outcome: Outcome::Success,
        operation: Operation::Receive,
        solicited: request.flags.contains(RequestFlags::SOLICIT),
        bytes: request.length as u32,
        ..Completion::default()
    });
}
