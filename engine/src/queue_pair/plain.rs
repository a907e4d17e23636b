//! Plain requests: Reads, Writes and Sends of one scatter/gather element, moved in one go.
//!
//! Most requests are of this kind: their bytes lie in one stretch at each end, and the other end's memory is at hand. They are
//! moved here, as many as there are, with what the ones before have found; one that is posted alone is moved before it is in any
//! queue. Whatever else a request needs, and every refusal, is on the long way in `requester.rs`; a request that cannot be moved
//! here is left as it is.
//!
//! Rules: a place in a queue is free before the completion of its request can be polled; what was found is used inside one epoch
//! only, so that a revocation that waits for its readers waits for this.

use crate::completion::completion_queue::{self, Batch, Completion};
use crate::counters::Traffic;
use crate::error::Outcome;
use crate::flags::{Operation, RequestFlags, Rights};
use crate::limits::REQUEST_COST;
use crate::memory::finder::Finder;
use crate::platform::Platform;
use crate::queue_pair::pair::{End, QueuePairObject, Request, state};
use crate::queue_pair::posting::Fresh;
use crate::queue_pair::requester::{Gathered, RequestPhase, Requester};
use crate::queue_pair::responder;
use crate::queue_pair::transport::{AtHand, Filled, Near, Transport};

impl<P: Platform> Requester<P> {
    /// Moves plain requests from the front on, of `most` bytes together and as many as there are places for completions. Returns
    /// what they cost of a step, 0 without one.
    #[inline(never)]
    pub(super) fn run_plain(&mut self, near: Near<'_, P>, out: &mut Gathered, most: u64) -> u64 {
        let Gathered { done, filled } = out;
        let Self { requests, transport, outgoing, incoming, phase, deadline, .. } = self;
        // A message that has waited for its receive ends its wait on the long way.
        let (Some(there), RequestPhase::Fresh, None) = (transport.at_hand(), phase, deadline) else { return 0 };
        let mut ends = Ends::new(near, there, filled);
        let result = success(near, Operation::Read, 0);
        let most_requests = done.free();
        let (mut sent, mut received) = (Traffic::default(), Traffic::default());
        let mut used = 0_u64;
        let taken = requests.visit(most_requests, |request| {
            let goes_on = near.pair.state() & (state::ENDED | state::NO_READS) == 0;
            let fits = request.length <= most.saturating_sub(used);
            if !request.is_plain || !fits || !goes_on || !ends.move_one(request) {
                return false;
            }
            let reads = request.operation == Operation::Read;
            if reads { &mut received } else { &mut sent }.add(request.length);
            if !request.flags.contains(RequestFlags::SILENT_SUCCESS) {
                done.push(Completion { context: request.context, operation: request.operation, ..result });
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

impl<P: Platform> Requester<P> {
    /// Moves a Read or Write that is not in the queue, which is empty, and completes it: what it costs of a step. `None` where it has
    /// to be in the queue, and is then.
    #[inline(never)]
    pub(super) fn run_fresh(&mut self, near: Near<'_, P>, most: u64, fresh: &mut Option<Fresh<'_, P>>) -> Option<u64> {
        let moved = fresh.as_ref().and_then(|fresh| self.move_fresh(near, most, &fresh.request));
        let fresh = fresh.take()?;
        let Some(there) = moved else {
            fresh.enqueue();
            return None;
        };
        let Request { operation, length, context, flags, .. } = fresh.request;
        // Its place in the queue is free before the completion can be polled.
        drop(fresh);
        let (mut sent, mut received) = (Traffic::default(), Traffic::default());
        if operation == Operation::Read { &mut received } else { &mut sent }.add(length);
        near.pair.traffic_counter.count_own(sent, received);
        there.traffic_counter.count_other(received, sent);
        let done = success(near, operation, context);
        if !flags.contains(RequestFlags::SILENT_SUCCESS)
            && !completion_queue::push_batch(&near.pair.initiator_queue, &[done])
        {
            near.pair.defer_failure();
        }
        Some(length.max(REQUEST_COST))
    }

    /// Moves the bytes; the other end, if they could be moved.
    fn move_fresh<'s>(
        &'s mut self,
        near: Near<'_, P>,
        most: u64,
        request: &Request<P>,
    ) -> Option<&'s QueuePairObject<P>> {
        let goes_on = self.transport.connect(near.pair) && near.pair.state() & (state::ENDED | state::NO_READS) == 0;
        let (true, RequestPhase::Fresh) = (goes_on && request.length <= most, &self.phase) else { return None };
        let there = self.transport.at_hand()?.pair;
        let mut named = Finder::remote(responder::memory(there, near.inside));
        let platform = near.pair.core.scheduler.platform();
        move_bytes(platform, &mut Finder::local(near.memory()), &mut named, request).then_some(there)
    }
}

fn success<P: Platform>(near: Near<'_, P>, operation: Operation, context: u64) -> Completion {
    Completion {
        context,
        queue_pair_context: near.pair.context,
        outcome: Outcome::Success,
        operation,
        tag: near.pair.tag(),
        ..Completion::default()
    }
}

/// Checks both ends of a Read or Write and moves it; false where it has to go the long way.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the innermost loop of the data path")]
fn move_bytes<'g, P: Platform>(
    platform: &P,
    here: &mut Finder<'g, P>,
    named: &mut Finder<'g, P>,
    request: &Request<P>,
) -> bool {
    let (length, single) = (request.length, &request.single);
    let reads = request.operation == Operation::Read;
    let (here_needed, there_needed) =
        if reads { (Rights::LOCAL_WRITE, Rights::REMOTE_READ) } else { (Rights::empty(), Rights::REMOTE_WRITE) };
    let Some(local) = here.find(single.token, single.address, length, here_needed) else { return false };
    let Some(remote) = named.find(request.token, request.address, length, there_needed) else { return false };
    let (to, from) = if reads { (local, remote) } else { (remote, local) };
    platform.copy_message(to, from, length as usize);
    true
}

/// Where the bytes of plain requests are, at both ends.
struct Ends<'g, P: Platform> {
    platform: &'g P,
    /// This end's scatter/gather elements.
    here: Finder<'g, P>,
    /// What requests name of the other end.
    named: Finder<'g, P>,
    there: AtHand<'g, P>,
    filled: &'g mut Filled,
    /// The memory of the other end's receives, once a message has asked for one.
    sinks: Option<Finder<'g, P>>,
    near: Near<'g, P>,
}

impl<'g, P: Platform> Ends<'g, P> {
    fn new(near: Near<'g, P>, there: AtHand<'g, P>, filled: &'g mut Filled) -> Self {
        Self {
            platform: near.pair.core.scheduler.platform(),
            here: Finder::local(near.memory()),
            named: Finder::remote(responder::memory(there.pair, near.inside)),
            there,
            filled,
            sinks: None,
            near,
        }
    }

    /// Checks both ends of a request and moves it; false where it has to go the long way.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the one use, in the innermost loop of the data path")]
    fn move_one(&mut self, request: &Request<P>) -> bool {
        if request.operation == Operation::Send {
            return self.send(request);
        }
        move_bytes(self.platform, &mut self.here, &mut self.named, request)
    }

    /// A message into the other end's next receive.
    #[inline(never)]
    fn send(&mut self, request: &Request<P>) -> bool {
        let single = &request.single;
        let from = self.here.find(single.token, single.address, request.length, Rights::empty());
        let Some(from) = from else { return false };
        let AtHand { pair, occupied } = &mut self.there;
        let Filled { completions, ahead } = &mut *self.filled;
        if pair.attachment.is_some() || completions.is_full() {
            return false;
        }
        let finder = self.sinks.get_or_insert_with(|| {
            **occupied |= pair.receiving.look_ahead(pair, completions.len(), ahead);
            Finder::local(responder::memory(pair, self.near.inside))
        });
        let Some((context, sink)) = ahead.peek() else { return false };
        // The whole element has to be good, also where the message is shorter.
        let room = u64::from(sink.length);
        let Some(to) = finder.find(sink.token, sink.address, room, Rights::LOCAL_WRITE) else { return false };
        if request.length > room {
            return false;
        }
        self.platform.copy_message(to, from, request.length as usize);
        ahead.advance();
        fill(completions, context, request);
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
