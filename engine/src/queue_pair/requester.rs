//! The requester: processes each request of the initiator queue in order, to its one completion.
//!
//! This is the state of the request at the front and the steps that bring it forward, run by one context at a time. It takes no
//! lock while it copies, and reaches the other end through its [`Transport`] only. Requests that need no other end are in
//! `local_request.rs`.
//!
//! Rules: requests are processed and completed in the order they were posted, so a read fence is always satisfied; a request
//! that fails carries its error, ends the connection, and everything after it is cancelled; completions are entered in batches,
//! a sender's before the receiver's, so that an answer never overtakes them; a step stays inside the epoch for at most one
//! piece of copying; an invalidation completes only when no context inside can have seen the region.

use core::ops::Range;

use softndk_cells::ring::{Receiver, Together};
use softndk_cells::{NoMemory, Shared, Stamp};

use crate::completion::completion_queue::{self, Batch, Completion};
use crate::counters::Traffic;
use crate::error::{AccessFault, Outcome};
use crate::flags::{Operation, RequestFlags, Rights};
use crate::limits::{LOOK_AGAIN, REQUEST_COST, STEP_REQUESTS};
use crate::memory::transfer::{CHUNK, InlineBytes, List, LocalBytes, Queued, Sges};
use crate::object::header::Object;
use crate::object::scheduler::Scheduler;
use crate::platform::Platform;
use crate::queue_pair::pace::Pace;
use crate::queue_pair::pair::{self as queue_pair, End, QueuePairObject, Request, Subject, state, update_end};
use crate::queue_pair::plain::Stretches;
use crate::queue_pair::transport::{
    Answer, Begun, Failure, Filled, Near, NotSent, PeerTransport, Refused, RemoteBuffer, SendMessage, Transport,
};
use crate::token::Sge;

/// What is known about the request at the front.
pub(super) enum RequestPhase {
    /// Not begun.
    Fresh,
    /// Checked at this end; the other end has been asked for a receive.
    Beginning,
    /// Under way, and this many bytes moved.
    Moving(u64),
    /// Moved; the other end has been asked to revoke the access to a region or window.
    Revoking,
    /// Written; the other end is asked for a receive that the immediate data comes with.
    Announcing,
    /// The access to a region has been revoked and its readers have to leave.
    Leaving(Stamp),
}

/// The processing state of a queue pair; see the module.
pub(crate) struct Requester<P: Platform> {
    pub(super) requests: Receiver<Request<P>>,
    sges: Receiver<Sge, Together>,
    chunks: Receiver<[u8; CHUNK], Together>,
    pub(super) phase: RequestPhase,
    pub(super) transport: PeerTransport<P>,
    /// Until when the timer is set: for the message at the front, which waits for a receive, or to look for a post that met the end.
    pub(super) deadline: Option<u64>,
    /// A request has failed; the connection has not been ended yet.
    failed: bool,
    /// Its completion, if it has one: entered when the connection has ended.
    failure: Option<Completion>,
    pub(super) outgoing: Traffic,
    pub(super) incoming: Traffic,
    pub(super) stretches: Stretches<P>,
    pace: Pace,
}

/// What a run completes, at both ends, and [`Requester::commit`] enters.
pub(super) struct Gathered {
    /// Of this end's requests.
    pub(super) done: Batch,
    /// Of the other end's receives.
    pub(super) filled: Filled,
}

/// How much a step did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stepped {
    /// The step can do no more here, after this much (as for `More`): the queue is empty, another context will link the queue
    /// pair, or another context has the requester.
    Rest(u64),
    /// The bounds of a step were reached after this much, in bytes; a request costs at least [`REQUEST_COST`].
    More(u64),
}

impl Stepped {
    pub(crate) const fn used(self) -> u64 {
        match self {
            Self::Rest(used) | Self::More(used) => used,
        }
    }
}

/// Why a run stopped.
enum Stop {
    Bounds,
    Empty,
    /// Another context schedules the queue pair: with a receive, or with an answer.
    Waiting,
    Epoch(Stamp),
}

/// What happened to the request at the front.
pub(super) enum Progress {
    Completed,
    Moved(u64),
    /// The message found no receive; a patient peer's come whenever they come.
    NoReceive {
        patient: bool,
    },
    /// The other end answers later.
    Later,
    /// After this many bytes.
    Epoch(Stamp, u64),
}

impl<P: Platform> Requester<P> {
    pub(crate) fn try_new(
        scheduler: &Scheduler<P>,
        requests: Receiver<Request<P>>,
        sges: Receiver<Sge, Together>,
        chunks: Receiver<[u8; CHUNK], Together>,
    ) -> Result<Self, NoMemory> {
        Ok(Self {
            requests,
            sges,
            chunks,
            phase: RequestPhase::Fresh,
            transport: PeerTransport::try_new(scheduler)?,
            deadline: None,
            failed: false,
            failure: None,
            outgoing: Traffic::default(),
            incoming: Traffic::default(),
            stretches: Stretches::new(scheduler),
            pace: Pace::new(),
        })
    }

    /// Brings requests forward until a bound is reached or something has to be waited for. What it gathers is in its frame, which
    /// is gone when the connection ends.
    #[inline(never)]
    fn run(&mut self, near: Near<'_, P>, most: u64) -> (u64, Stop) {
        let connected = self.transport.connect(near.pair);
        let platform = near.pair.core.scheduler.platform();
        let first = self.requests.peek(self.requests.position()).map_or(0, |request| request.length);
        let piece = self.pace.begin(platform, most, first);
        let most = piece.most;
        let mut bytes = 0_u64;
        let mut stop = Stop::Bounds;
        let out = &mut Gathered { done: Batch::new(), filled: Filled::new() };
        for _ in 0..STEP_REQUESTS {
            if self.requests.is_empty() {
                stop = Stop::Empty;
                break;
            }
            if out.done.is_full() || self.transport.is_full(&out.filled) {
                self.commit(near.pair, out);
            }
            let left = most.saturating_sub(bytes).max(1);
            let plain = if connected && self.is_next_plain() { self.run_plain(near, out, left) } else { 0 };
            if plain > 0 {
                bytes = bytes.saturating_add(plain);
                if bytes >= most {
                    break;
                }
                continue;
            }
            match self.advance(near, out, connected, left) {
                Progress::Completed => bytes = bytes.saturating_add(REQUEST_COST),
                Progress::Moved(moved) => bytes = bytes.saturating_add(moved.max(REQUEST_COST)),
                // The filled receives are still in front of those that are free.
                Progress::NoReceive { .. } if self.transport.has_gathered(&out.filled) => self.commit(near.pair, out),
                Progress::NoReceive { patient } if !self.waits(near.pair, patient) => {
                    self.fail(near.pair, out, Outcome::NotReady);
                    bytes = bytes.saturating_add(REQUEST_COST);
                }
                Progress::NoReceive { .. } | Progress::Later => {
                    stop = Stop::Waiting;
                    break;
                }
                Progress::Epoch(stamp, moved) => {
                    bytes = bytes.saturating_add(moved);
                    stop = Stop::Epoch(stamp);
                    break;
                }
            }
            if bytes >= most || self.failed {
                break;
            }
        }
        self.commit(near.pair, out);
        self.pace.end(platform, piece, bytes);
        (bytes, stop)
    }

    /// Whether the request at the front may be moved in one go.
    #[inline]
    fn is_next_plain(&self) -> bool {
        self.requests.peek(self.requests.position()).is_some_and(|request| request.is_plain)
    }

    /// One step of the request at the front, in a frame of its own: plain requests do not need it.
    #[inline(never)]
    fn advance(&mut self, near: Near<'_, P>, out: &mut Gathered, connected: bool, most: u64) -> Progress {
        // A request whose access has been revoked already is finished; only its readers have to leave.
        let goes_on = matches!(self.phase, RequestPhase::Leaving(_)) || !near.pair.is_ended();
        if !goes_on || !connected {
            return self.complete(near.pair, out, Outcome::Cancelled);
        }
        if let RequestPhase::Leaving(stamp) = self.phase {
            return self.leave(near.pair, out, stamp);
        }
        let Some(request) = self.requests.front() else { return Progress::Completed };
        match request.operation {
            Operation::Read if near.pair.state() & state::NO_READS != 0 => {
                return self.fail(near.pair, out, Outcome::InvalidRequest);
            }
            Operation::Read | Operation::Write | Operation::WriteImmediate => {}
            Operation::Send | Operation::SendAndInvalidate | Operation::SendImmediate => {
                if let Some(progress) = self.begin_send(near, out) {
                    return progress;
                }
            }
            Operation::FastRegister => return self.fast_register(near.pair, out),
            Operation::Bind => return self.bind(near.pair, out),
            Operation::Invalidate => return self.invalidate(near, out),
            Operation::Receive
            | Operation::ReceiveAndInvalidate
            | Operation::ReceiveImmediate
            | Operation::ReceiveWriteImmediate => return self.complete(near.pair, out, Outcome::InvalidRequest),
        }
        self.transfer(near, out, most)
    }

    /// A message finds and checks everything it needs before its first byte moves; `None` when it has.
    fn begin_send(&mut self, near: Near<'_, P>, out: &mut Gathered) -> Option<Progress> {
        let request = self.requests.peek(self.requests.position())?;
        if let RequestPhase::Fresh = self.phase
            && request.length > 0
            && !request.flags.contains(RequestFlags::INLINE)
            && let Err(fault) = list(near, request, &self.sges).check()
        {
            return Some(self.fail(near.pair, out, Failure::of(Outcome::LocalAccess, fault)));
        }
        match self.phase {
            RequestPhase::Fresh | RequestPhase::Beginning => {}
            _ => return None,
        }
        self.phase = RequestPhase::Beginning;
        match self.transport.begin_send(near, SendMessage::of(request), &mut out.filled) {
            Answer::Later => Some(Progress::Later),
            Answer::Ready(Begun::Found) => {
                self.phase = RequestPhase::Moving(0);
                self.stop_waiting(near.pair);
                None
            }
            Answer::Ready(Begun::NoReceive { patient }) => {
                // Its memory may have changed by the time there is one.
                self.phase = RequestPhase::Fresh;
                Some(Progress::NoReceive { patient })
            }
            Answer::Ready(Begun::UnknownToken) => {
                Some(self.fail(near.pair, out, Failure::of(Outcome::RemoteError, AccessFault::NotInvalidated)))
            }
            Answer::Ready(Begun::Failed(failure)) => {
                Some(self.fail(near.pair, out, receiver_failed(near.pair, failure)))
            }
        }
    }

    /// A request that moves bytes: move a piece; after the last one invalidate what is to be invalidated, and complete.
    #[inline]
    fn transfer(&mut self, near: Near<'_, P>, out: &mut Gathered, most: u64) -> Progress {
        let Some(request) = self.requests.peek(self.requests.position()) else { return Progress::Completed };
        let (operation, length) = (request.operation, request.length);
        let invalidates_sink = request.flags.contains(RequestFlags::LOCAL_INVALIDATE);
        let mut moved = 0;
        if !matches!(self.phase, RequestPhase::Revoking | RequestPhase::Announcing) {
            let at = if let RequestPhase::Moving(at) = self.phase { at } else { 0 };
            moved = match self.move_piece(near, out, at, most) {
                Answer::Later => return Progress::Later,
                Answer::Ready(Err(failure)) => return self.fail(near.pair, out, failure),
                Answer::Ready(Ok(moved)) => moved,
            };
            if operation == Operation::Read {
                self.incoming.add(moved);
            } else {
                self.outgoing.add(moved);
            }
            let at = at.saturating_add(moved);
            if at < length {
                self.phase = RequestPhase::Moving(at);
                return Progress::Moved(moved);
            }
        }
        if invalidates_sink {
            return self.invalidate_sink(near, out, moved);
        }
        if operation == Operation::SendAndInvalidate {
            return self.invalidate_remote(near, out, moved);
        }
        if operation == Operation::WriteImmediate {
            return self.announce(near, out, moved);
        }
        if matches!(operation, Operation::Send | Operation::SendImmediate) {
            self.end_send(near.pair, out);
        }
        self.complete(near.pair, out, Outcome::Success);
        Progress::Moved(moved)
    }

    /// `WriteImmediate`: the bytes are in place, and a receive of the other end says so.
    fn announce(&mut self, near: Near<'_, P>, out: &mut Gathered, moved: u64) -> Progress {
        self.phase = RequestPhase::Announcing;
        let Some(message) = self.requests.peek(self.requests.position()).map(SendMessage::of) else {
            return Progress::Completed;
        };
        match self.transport.begin_send(near, message, &mut out.filled) {
            Answer::Later => Progress::Later,
            Answer::Ready(Begun::Found) => {
                self.stop_waiting(near.pair);
                self.end_send(near.pair, out);
                self.complete(near.pair, out, Outcome::Success);
                Progress::Moved(moved)
            }
            Answer::Ready(Begun::NoReceive { patient }) => Progress::NoReceive { patient },
            Answer::Ready(Begun::UnknownToken) => self.fail(near.pair, out, Outcome::RemoteError),
            Answer::Ready(Begun::Failed(outcome)) => self.fail(near.pair, out, receiver_failed(near.pair, outcome)),
        }
    }

    /// The message at the front has been delivered: its receive succeeds.
    fn end_send(&mut self, pair: &Shared<QueuePairObject<P>>, out: &mut Gathered) {
        if let Some(request) = self.requests.peek(self.requests.position()) {
            self.transport.end_send(pair, SendMessage::of(request), &mut out.filled);
        }
    }

    /// Moves the next piece of the request at the front; how many bytes. This end's memory is checked before the first of them.
    #[inline]
    fn move_piece(
        &mut self,
        near: Near<'_, P>,
        out: &mut Gathered,
        at: u64,
        most: u64,
    ) -> Answer<Result<u64, Failure>> {
        let Some(request) = self.requests.peek(self.requests.position()) else { return Answer::Ready(Ok(0)) };
        let length = request.length;
        if length == 0 {
            return Answer::Ready(Ok(0));
        }
        // Inline data is short and is moved in one piece.
        if request.flags.contains(RequestFlags::INLINE) {
            return move_inline((&mut self.transport, &mut out.filled), near, request, &self.chunks, at..length);
        }
        let mut local = list(near, request, &self.sges);
        if let RequestPhase::Fresh = self.phase {
            if let Err(fault) = local.check() {
                return Answer::Ready(Err(Failure::of(Outcome::LocalAccess, fault)));
            }
            // Before the first byte: the Read could not close such memory to its peers.
            if request.flags.contains(RequestFlags::LOCAL_INVALIDATE) && !is_first_fast(near, request, &self.sges) {
                return Answer::Ready(Err(Outcome::InvalidRequest.into()));
            }
            // Its answer may come later.
            self.phase = RequestPhase::Moving(0);
        }
        ask_to_move(
            (&mut self.transport, &mut out.filled),
            near,
            request,
            &mut local,
            at..length.min(at.saturating_add(most)),
        )
    }

    /// Whether the message at the front continues to wait for a receive.
    fn waits(&mut self, pair: &Shared<QueuePairObject<P>>, patient: bool) -> bool {
        let Some(patience) = pair.patience.filter(|_| !patient) else { return true };
        let now = pair.core.scheduler.platform().now();
        let deadline = *self.deadline.get_or_insert_with(|| now.saturating_add(patience));
        if now >= deadline {
            return false;
        }
        pair.timer.set(&Object::of(pair), deadline);
        true
    }

    /// The message at the front waits for no receive any more. The timer points to the queue pair while it is set.
    #[inline]
    fn stop_waiting(&mut self, pair: &QueuePairObject<P>) {
        if self.deadline.take().is_some() {
            pair.timer.clear();
        }
    }

    /// The queue is empty after the end, and a poster has its claim: it may not know of the end, and does not process what it adds.
    #[cold]
    fn look_again(&mut self, pair: &Shared<QueuePairObject<P>>) {
        let deadline = pair.core.scheduler.platform().now().saturating_add(LOOK_AGAIN);
        self.deadline = Some(deadline);
        pair.timer.set(&Object::of(pair), deadline);
    }

    /// Read with local invalidate: revokes the access to the first SGE's region before the completion.
    fn invalidate_sink(&mut self, near: Near<'_, P>, out: &mut Gathered, moved: u64) -> Progress {
        let request = self.requests.peek(self.requests.position());
        let first = request.and_then(|request| request.sges(&self.sges).sge(0));
        let fast = first.and_then(|sge| near.memory().fast(sge.token).ok());
        match fast.and_then(|fast| fast.buffers.withdraw()) {
            Some(stamp) => {
                self.phase = RequestPhase::Leaving(stamp);
                Progress::Epoch(stamp, moved)
            }
            None => self.fail(near.pair, out, Outcome::InvalidRequest),
        }
    }

    /// `SendAndInvalidate`: has the other end revoke the access before the completions.
    fn invalidate_remote(&mut self, near: Near<'_, P>, out: &mut Gathered, moved: u64) -> Progress {
        let Some(token) = self.requests.front().map(|request| request.token) else { return Progress::Completed };
        self.phase = RequestPhase::Revoking;
        match self.transport.invalidate(near, token) {
            Answer::Later => Progress::Later,
            Answer::Ready(Some(stamp)) => {
                self.phase = RequestPhase::Leaving(stamp);
                Progress::Epoch(stamp, moved)
            }
            Answer::Ready(None) => {
                self.fail(near.pair, out, Failure::of(Outcome::RemoteError, AccessFault::NotInvalidated))
            }
        }
    }

    /// Access was revoked; completes the request when every reader has left.
    fn leave(&mut self, pair: &Shared<QueuePairObject<P>>, out: &mut Gathered, stamp: Stamp) -> Progress {
        if !pair.core.scheduler.epoch().passed(stamp) {
            return Progress::Epoch(stamp, 0);
        }
        let Some(request) = self.requests.front() else { return Progress::Completed };
        match &request.subject {
            Subject::Fast(fast) => {
                fast.buffers.reclaim();
            }
            Subject::Window(window) => {
                window.binding.reclaim();
            }
            _ => {}
        }
        if request.operation == Operation::SendAndInvalidate {
            self.end_send(pair, out);
        }
        self.complete(pair, out, Outcome::Success)
    }

    /// Takes the request at the front with its error; the connection ends after the run, on a stack that is less deep.
    pub(super) fn fail(
        &mut self,
        pair: &Shared<QueuePairObject<P>>,
        out: &mut Gathered,
        failure: impl Into<Failure>,
    ) -> Progress {
        let Failure { outcome, fault } = failure.into();
        let completion = self.take_front(pair, out, outcome);
        self.failure = completion.map(|completion| Completion { fault, ..completion });
        self.failed = true;
        pair.end();
        Progress::Completed
    }

    /// Ends the connection of a request that has failed, and enters its completion after that: a consumer that sees it finds the
    /// connection ended.
    #[inline(never)]
    fn report_failure(&mut self, pair: &Shared<QueuePairObject<P>>) {
        self.failed = false;
        let failure = self.failure.take();
        queue_pair::end_connection(pair);
        if !completion_queue::push_batch(&pair.initiator_queue, failure.as_slice()) {
            pair.defer_failure();
        }
    }

    /// Records the completion of the request at the front, once, and takes it off the queue.
    pub(super) fn complete(
        &mut self,
        pair: &Shared<QueuePairObject<P>>,
        out: &mut Gathered,
        outcome: Outcome,
    ) -> Progress {
        if let Some(completion) = self.take_front(pair, out, outcome) {
            out.done.push(completion);
        }
        Progress::Completed
    }

    /// Takes the request at the front off the queue; its completion, if it has one.
    fn take_front(
        &mut self,
        pair: &Shared<QueuePairObject<P>>,
        out: &mut Gathered,
        outcome: Outcome,
    ) -> Option<Completion> {
        self.phase = RequestPhase::Fresh;
        self.stop_waiting(pair);
        self.transport.end_request(pair, &mut out.filled);
        let Self { requests, sges, chunks, .. } = self;
        let request = requests.front()?;
        if request.count > 1 {
            sges.skip(usize::from(request.count));
        }
        if request.flags.contains(RequestFlags::INLINE) {
            chunks.skip((request.length as usize).div_ceil(CHUNK));
        }
        request.subject.discard();
        let silent = outcome == Outcome::Success && request.flags.contains(RequestFlags::SILENT_SUCCESS);
        let completion = (!silent).then(|| Completion {
            context: request.context,
            queue_pair_context: pair.context,
            outcome,
            operation: request.operation.completes_as(),
            bytes: if outcome == Outcome::Success { request.bytes() } else { 0 },
            tag: pair.tag(),
            ..Completion::default()
        });
        // The request leaves last: a context that sees its place free finds places for SGEs and inline data as well.
        requests.drop_front();
        completion
    }

    /// Enters the gathered completions: this end's first, so that an answer of the peer never comes before them.
    fn commit(&mut self, pair: &Shared<QueuePairObject<P>>, out: &mut Gathered) {
        let entered = completion_queue::push_batch(&pair.initiator_queue, out.done.entries());
        out.done.clear();
        let (outgoing, incoming) = (core::mem::take(&mut self.outgoing), core::mem::take(&mut self.incoming));
        pair.traffic_counter.count_own(outgoing, incoming);
        self.transport.commit(pair, &mut out.filled, outgoing, incoming);
        if !entered {
            pair.defer_failure();
        }
    }
}

/// The memory of a request at this end.
#[inline]
fn list<'g, 'r, P: Platform>(
    near: Near<'g, P>,
    request: &Request<P>,
    sges: &'r Receiver<Sge, Together>,
) -> List<'g, P, Queued<'r>> {
    let needed = if request.operation == Operation::Read { Rights::LOCAL_WRITE } else { Rights::empty() };
    List::new(near.memory(), request.sges(sges), needed)
}

/// As [`ask_to_move`] for inline data, which few requests have.
#[inline(never)]
fn move_inline<P: Platform>(
    (transport, filled): (&mut PeerTransport<P>, &mut Filled),
    near: Near<'_, P>,
    request: &Request<P>,
    chunks: &Receiver<[u8; CHUNK], Together>,
    range: Range<u64>,
) -> Answer<Result<u64, Failure>> {
    ask_to_move((transport, filled), near, request, &mut InlineBytes(chunks, request.first()), range)
}

/// Has a piece of a request moved, and says what the request completes with when it cannot be.
#[inline]
fn ask_to_move<P: Platform>(
    (transport, filled): (&mut PeerTransport<P>, &mut Filled),
    near: Near<'_, P>,
    request: &Request<P>,
    local: &mut impl LocalBytes<P>,
    range: Range<u64>,
) -> Answer<Result<u64, Failure>> {
    let access = |refused| match refused {
        Refused::Local(fault) => Failure::of(Outcome::LocalAccess, fault),
        Refused::Remote(fault) => Failure::of(near.pair.domain.open.semantics.remote_access, fault),
    };
    match request.operation {
        Operation::Read => transport.read(near, RemoteBuffer::of(request), local, range).map_error(access),
        Operation::Write | Operation::WriteImmediate => {
            transport.write(near, local, RemoteBuffer::of(request), range).map_error(access)
        }
        _ => {
            transport.send(near, SendMessage::of(request), local, range, filled).map_error(|not_sent| match not_sent {
                NotSent::Local(fault) => Failure::of(Outcome::LocalAccess, fault),
                NotSent::Receiver(failure) => receiver_failed(near.pair, failure),
            })
        }
    }
}

/// Whether the first SGE is of memory that a Read can invalidate.
fn is_first_fast<P: Platform>(near: Near<'_, P>, request: &Request<P>, sges: &Receiver<Sge, Together>) -> bool {
    request.sges(sges).sge(0).is_some_and(|first| near.memory().fast(first.token).is_ok())
}

/// What a message completes with whose receive failed.
fn receiver_failed<P: Platform>(pair: &QueuePairObject<P>, failure: Failure) -> Failure {
    let outcome = match failure.outcome {
        Outcome::ReceiveTooSmall => pair.domain.open.semantics.receiver_too_small,
        _ => Outcome::RemoteError,
    };
    Failure { outcome, ..failure }
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
        let (moved, stop) = held.run(Near::new(pair, &guard), most.saturating_sub(bytes));
        scheduler.leave(guard);
        if held.failed {
            held.report_failure(pair);
        }
        bytes = bytes.saturating_add(moved);
        match stop {
            Stop::Bounds => return Stepped::More(bytes),
            Stop::Epoch(stamp) if scheduler.epoch().passed(stamp) => continue,
            Stop::Epoch(stamp) => scheduler.park(&Object::of(pair), stamp),
            Stop::Empty if pair.is_ended() && pair.requests.is_claimed() => held.look_again(pair),
            // Of a poster that had not seen the end and gave its claim up just now.
            Stop::Empty if pair.is_ended() && !pair.requests.is_empty() => continue,
            Stop::Empty if pair.is_ended() => {
                held.stop_waiting(pair);
                held.transport.release(pair);
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
