//! Plain requests: Reads and Writes of one scatter/gather element, moved in one go.
//!
//! Most requests are of this kind: their bytes lie in one stretch at each end, and the other end's memory is at hand. They are
//! moved here, as many as there are, with what the ones before have looked up. Whatever else a request needs, and every refusal, is on the
//! long way in `requester.rs`; a request that cannot be moved here is left as it is.
//!
//! Rules: a place in the queue is free before the completion of its request can be polled; what was looked up is used inside one
//! epoch only, so that a revocation that waits for its readers waits for this.

use crate::completion::completion_queue::Completion;
use crate::counters::Traffic;
use crate::error::Outcome;
use crate::flags::{Operation, RequestFlags, Rights};
use crate::limits::REQUEST_COST;
use crate::memory::finder::Finder;
use crate::platform::Platform;
use crate::queue_pair::pair::{Request, state};
use crate::queue_pair::requester::{RequestPhase, Requester};
use crate::queue_pair::responder;
use crate::queue_pair::transport::{Near, Transport};

impl<P: Platform> Requester<P> {
    /// Moves plain requests from the front on, of `most` bytes together and as many as there are places for completions. Returns
    /// what they cost of a step, 0 without one.
    pub(super) fn run_plain(&mut self, near: Near<'_, P>, most: u64) -> u64 {
        let Self { requests, done, transport, outgoing, incoming, phase, .. } = self;
        let (Some(peer), RequestPhase::Fresh) = (transport.peer(), phase) else { return 0 };
        let platform = near.pair.core.scheduler.platform();
        let mut here = Finder::local(near.memory());
        let mut there = Finder::remote(responder::memory(peer, near.inside));
        let (context, tag) = (near.pair.context, near.pair.tag());
        let first = requests.position();
        let available = requests.len().min(done.free());
        let (mut sent, mut received) = (Traffic::default(), Traffic::default());
        let mut used = 0_u64;
        let mut taken = 0_usize;
        while taken < available && used < most {
            let Some(request) = requests.peek(first.wrapping_add(taken)) else { break };
            let left = most.saturating_sub(used);
            let goes_on = near.pair.state() & (state::ENDED | state::NO_READS) == 0;
            if !request.is_plain || request.length > left || !goes_on || !move_one(platform, request, &mut here, &mut there) {
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
            // Plain requests own nothing.
            requests.release(taken);
            outgoing.join(sent);
            incoming.join(received);
        }
        used
    }
}

/// Checks both ends of a request and moves it; false where it has to go the long way.
#[inline(always)]
#[expect(clippy::inline_always, reason = "the one use, in the innermost loop of the data path")]
fn move_one<P: Platform>(
    platform: &P,
    request: &Request<P>,
    here: &mut Finder<'_, P>,
    there: &mut Finder<'_, P>,
) -> bool {
    let reads = request.operation == Operation::Read;
    let (needed_here, needed_there) =
        if reads { (Rights::LOCAL_WRITE, Rights::REMOTE_READ) } else { (Rights::empty(), Rights::REMOTE_WRITE) };
    let single = &request.single;
    let Some(local) = here.find(single.token, single.address, request.length, needed_here) else { return false };
    let Some(remote) = there.find(request.token, request.address, request.length, needed_there) else { return false };
    let (to, from) = if reads { (local, remote) } else { (remote, local) };
    platform.copy_message(to, from, request.length as usize);
    true
}
