//! Plain requests: Reads, Writes and Sends of one scatter/gather element, moved in one go.
//!
//! Most requests are of this kind: their bytes lie in one stretch at each end, and the other end's memory is at hand. They are
//! moved here, as many as there are, with what the ones before have found. Whatever else a request needs, and every refusal, is on
//! the long way in `requester.rs`; a request that cannot be moved here is left as it is.
//!
//! Rules: a place in a queue is free before the completion of its request can be polled; what was found is used inside one epoch
//! only, so that a revocation that waits for its readers waits for this.

use crate::completion::completion_queue::{Batch, Completion};
use crate::counters::Traffic;
use crate::error::Outcome;
use crate::flags::{Operation, RequestFlags, Rights};
use crate::limits::REQUEST_COST;
use crate::memory::finder::Finder;
use crate::platform::Platform;
use crate::queue_pair::pair::{Request, state};
use crate::queue_pair::requester::{RequestPhase, Requester};
use crate::queue_pair::responder;
use crate::queue_pair::transport::{AtHand, Near, Transport};

impl<P: Platform> Requester<P> {
    /// Moves plain requests from the front on, of `most` bytes together and as many as there are places for completions. Returns
    /// what they cost of a step, 0 without one.
    #[inline(never)]
    pub(super) fn run_plain(&mut self, near: Near<'_, P>, most: u64) -> u64 {
        let Self { requests, done, transport, outgoing, incoming, phase, deadline, .. } = self;
        // A message that has waited for its receive ends its wait on the long way.
        let (Some(there), RequestPhase::Fresh, None) = (transport.at_hand(), phase, deadline) else { return 0 };
        let mut ends = Ends::new(near, there);
        let (context, tag) = (near.pair.context, near.pair.tag());
        let first = requests.position();
        let available = requests.len().min(done.free());
        let (mut sent, mut received) = (Traffic::default(), Traffic::default());
        let mut used = 0_u64;
        let mut taken = 0_usize;
        while taken < available {
            let Some(request) = requests.peek(first.wrapping_add(taken)) else { break };
            let goes_on = near.pair.state() & (state::ENDED | state::NO_READS) == 0;
            let fits = request.length <= most.saturating_sub(used);
            if !request.is_plain || !fits || !goes_on || !ends.move_one(request) {
                break;
            }
            let reads = request.operation == Operation::Read;
            if reads { &mut received } else { &mut sent }.add(request.length);
            if !request.flags.contains(RequestFlags::SILENT_SUCCESS) {
                done.push(Completion {
                    context: request.context,
                    queue_pair_context: context,
                    outcome: Outcome::Success,
                    operation: request.operation,
                    tag,
                    ..Completion::default()
                });
            }
            taken = taken.wrapping_add(1);
            used = used.saturating_add(request.length.max(REQUEST_COST));
        }
        if taken > 0 {
            // Plain requests own nothing that would have to be dropped.
            requests.release(taken);
            outgoing.join(sent);
            incoming.join(received);
        }
        used
    }
}

/// Where the bytes of plain requests are, at both ends.
struct Ends<'g, P: Platform> {
    platform: &'g P,
    /// This end's scatter/gather elements.
    here: Finder<'g, P>,
    /// What requests name of the other end.
    named: Finder<'g, P>,
    there: AtHand<'g, P>,
    /// The memory of the other end's receives, once a message has asked for one.
    sinks: Option<Finder<'g, P>>,
    near: Near<'g, P>,
}

impl<'g, P: Platform> Ends<'g, P> {
    fn new(near: Near<'g, P>, there: AtHand<'g, P>) -> Self {
        Self {
            platform: near.pair.core.scheduler.platform(),
            here: Finder::local(near.memory()),
            named: Finder::remote(responder::memory(there.pair, near.inside)),
            there,
            sinks: None,
            near,
        }
    }

    /// Checks both ends of a request and moves it; false where it has to go the long way.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the one use, in the innermost loop of the data path")]
    fn move_one(&mut self, request: &Request<P>) -> bool {
        let (length, single) = (request.length, &request.single);
        let needed = if request.operation == Operation::Read { Rights::LOCAL_WRITE } else { Rights::empty() };
        let Some(local) = self.here.find(single.token, single.address, length, needed) else { return false };
        let needed = match request.operation {
            Operation::Read => Rights::REMOTE_READ,
            Operation::Write => Rights::REMOTE_WRITE,
            _ => return self.send(request, local),
        };
        let Some(remote) = self.named.find(request.token, request.address, length, needed) else { return false };
        let (to, from) = if needed == Rights::REMOTE_READ { (local, remote) } else { (remote, local) };
        self.platform.copy_message(to, from, length as usize);
        true
    }

    /// A message into the other end's next receive.
    #[inline(never)]
    fn send(&mut self, request: &Request<P>, from: (&P::Memory, u64)) -> bool {
        let AtHand { pair, filled, ahead, occupied } = &mut self.there;
        if pair.attachment.is_some() || filled.is_full() {
            return false;
        }
        let finder = self.sinks.get_or_insert_with(|| {
            **occupied |= pair.receiving.look_ahead(pair, filled.len(), ahead);
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
