//! The work of a queue pair: its initiator queue, as a requester takes requests from it and completes them.
//!
//! A requester decides how a request reaches the other end (`local`, or `far` in tests) and ends it by what is here only, so that
//! posting knows no requester. One context at a time has the work.
//!
//! Rules: requests complete in the order they were posted; one that fails carries its error, ends the connection, and everything
//! after it is cancelled; completions are entered in batches.

use softndk_cells::ring::{Receiver, Together};
use softndk_cells::{Guard, Shared, Stamp};

use crate::completion::completion_queue::{self, Batch, Completion};
use crate::counters::Traffic;
use crate::error::Outcome;
use crate::flags::{Operation, RequestFlags, Rights};
use crate::limits::{LOOK_AGAIN, REQUEST_COST, STEP_REQUESTS};
use crate::memory::access::Accessor;
use crate::memory::transfer::{CHUNK, List, Queued, Sges};
use crate::object::header::Object;
use crate::platform::Platform;
use crate::queue_pair::message::Failure;
use crate::queue_pair::pair::{self as queue_pair, End, QueuePairObject};
use crate::queue_pair::request::{Request, Subject};
use crate::queue_pair::responder::EpochContext;
use crate::token::Sge;

/// The end that asks: its queue pair, and the epoch that the context is in.
pub(crate) struct RequesterContext<'a, P: Platform> {
    pub(crate) pair: &'a Shared<QueuePairObject<P>>,
    pub(crate) epoch: EpochContext<'a, P>,
}

impl<P: Platform> Clone for RequesterContext<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for RequesterContext<'_, P> {}

impl<'a, P: Platform> RequesterContext<'a, P> {
    pub(crate) fn new(pair: &'a Shared<QueuePairObject<P>>, guard: &'a Guard<'a>) -> Self {
        Self { pair, epoch: EpochContext { tables: &pair.domain.tables, guard } }
    }

    /// Access to this end's memory.
    #[inline]
    pub(crate) fn memory(self) -> Accessor<'a, P> {
        let EpochContext { tables, guard } = self.epoch;
        Accessor { tables, guard, domain: self.pair.domain.number, pair: 0 }
    }
}

/// What is known about the request at the front.
pub(super) enum RequestPhase {
    /// Not begun.
    Fresh,
    /// Under way, and this many bytes moved.
    Moving(u64),
    /// Written; the other end has no receive yet that the immediate data comes with.
    Announcing,
    /// The access to a region has been revoked and its readers have to leave.
    Leaving(Stamp),
}

/// What happened to the request at the front.
pub(super) enum Progress {
    Completed,
    Moved(u64),
    /// The message found no receive. `unlimited`: the receives are shared, and the message waits without limit.
    NoReceive {
        unlimited: bool,
    },
    /// After this many bytes.
    Epoch(Stamp, u64),
}

/// Why a run of a requester stopped.
pub(super) enum Stop {
    Bounds,
    Empty,
    /// Another context schedules the queue pair: with a receive, or with an answer.
    Waiting,
    Epoch(Stamp),
}

/// What became of one look at the work.
pub(super) enum Look {
    /// Something was done, which moved so many bytes.
    Done(u64),
    Stop(Stop),
}

impl From<Progress> for Look {
    fn from(progress: Progress) -> Self {
        match progress {
            Progress::Completed => Self::Done(0),
            Progress::Moved(bytes) => Self::Done(bytes),
            Progress::NoReceive { .. } => Self::Stop(Stop::Waiting),
            Progress::Epoch(stamp, _) => Self::Stop(Stop::Epoch(stamp)),
        }
    }
}

/// See the module.
pub(crate) struct Work<P: Platform> {
    pub(super) requests: Receiver<Request<P>>,
    pub(super) sges: Receiver<Sge, Together>,
    pub(super) chunks: Receiver<[u8; CHUNK], Together>,
    pub(super) phase: RequestPhase,
    /// Requests from the front on that have been sent and wait for their answers; a peer at hand has none.
    under_way: usize,
    /// Until when the timer is set: for the message at the front, which waits for a receive, or to look for a post that met the end.
    pub(super) deadline: Option<u64>,
    /// A request has failed; the connection has not been ended yet.
    pub(super) failed: bool,
    /// Its completion, if it has one: entered when the connection has ended.
    failure: Option<Completion>,
    pub(super) outgoing: Traffic,
    pub(super) incoming: Traffic,
}

impl<P: Platform> Work<P> {
    pub(super) fn new(
        requests: Receiver<Request<P>>,
        sges: Receiver<Sge, Together>,
        chunks: Receiver<[u8; CHUNK], Together>,
    ) -> Self {
        Self {
            requests,
            sges,
            chunks,
            phase: RequestPhase::Fresh,
            under_way: 0,
            deadline: None,
            failed: false,
            failure: None,
            outgoing: Traffic::default(),
            incoming: Traffic::default(),
        }
    }

    /// The oldest request.
    #[inline]
    pub(super) fn front(&self) -> Option<&Request<P>> {
        self.requests.peek(self.requests.position())
    }

    /// The oldest request that has not been sent.
    pub(super) fn next(&self) -> Option<&Request<P>> {
        self.requests.peek(self.requests.position().wrapping_add(self.under_way))
    }

    /// The request of [`Self::next`] has been sent as a whole.
    pub(super) fn sent(&mut self) {
        self.under_way = self.under_way.saturating_add(1);
    }

    pub(super) const fn under_way(&self) -> usize {
        self.under_way
    }

    /// The memory of a request at this end.
    #[inline]
    pub(super) fn list<'g, 'r>(
        context: RequesterContext<'g, P>,
        request: &Request<P>,
        sges: &'r Receiver<Sge, Together>,
    ) -> List<'g, P, Queued<'r>> {
        let needed = if request.operation == Operation::Read { Rights::LOCAL_WRITE } else { Rights::empty() };
        List::new(context.memory(), request.sges(sges), needed)
    }

    /// Whether the first SGE is of memory that a Read can invalidate.
    pub(super) fn is_first_fast(
        context: RequesterContext<'_, P>,
        request: &Request<P>,
        sges: &Receiver<Sge, Together>,
    ) -> bool {
        request.sges(sges).sge(0).is_some_and(|first| context.memory().fast(first.token).is_ok())
    }

    /// Counts bytes that a request has moved.
    #[inline]
    pub(super) fn count(&mut self, operation: Operation, moved: u64) {
        if operation == Operation::Read {
            self.incoming.add(moved);
        } else {
            self.outgoing.add(moved);
        }
    }

    /// Read with local invalidate, with every byte in place: revokes the access to the first SGE's region before the completion.
    pub(super) fn invalidate_sink(&mut self, context: RequesterContext<'_, P>, moved: u64) -> Progress {
        let first = self.front().and_then(|request| request.sges(&self.sges).sge(0));
        let fast = first.and_then(|sge| context.memory().fast(sge.token).ok());
        match fast.and_then(|fast| fast.buffers.withdraw()) {
            Some(stamp) => {
                self.phase = RequestPhase::Leaving(stamp);
                Progress::Epoch(stamp, moved)
            }
            None => self.fail(context.pair, Outcome::InvalidRequest),
        }
    }

    /// Access was revoked: what it was given for is free when every reader has left. Whether they have.
    pub(super) fn has_left(&mut self, pair: &QueuePairObject<P>, stamp: Stamp) -> bool {
        if !pair.core.scheduler.epoch().passed(stamp) {
            return false;
        }
        match self.front().map(|request| &request.subject) {
            Some(Subject::Fast(fast)) => {
                fast.buffers.reclaim();
            }
            Some(Subject::Window(window)) => {
                window.binding.reclaim();
            }
            _ => {}
        }
        true
    }

    /// Whether the message at the front continues to wait for a receive.
    pub(super) fn waits(&mut self, pair: &Shared<QueuePairObject<P>>, unlimited: bool) -> bool {
        let Some(most) = pair.receiver_not_ready.filter(|_| !unlimited) else { return true };
        let now = pair.core.scheduler.platform().now();
        let deadline = *self.deadline.get_or_insert_with(|| now.saturating_add(most));
        if now >= deadline {
            return false;
        }
        pair.timer.set(&Object::of(pair), deadline);
        true
    }

    /// The message at the front waits for no receive any more. The timer points to the queue pair while it is set.
    #[inline]
    pub(super) fn stop_waiting(&mut self, pair: &QueuePairObject<P>) {
        if self.deadline.take().is_some() {
            pair.timer.clear();
        }
    }

    /// The queue is empty after the end, and a poster has its claim: it may not know of the end, and does not process what it adds.
    #[cold]
    pub(super) fn look_again(&mut self, pair: &Shared<QueuePairObject<P>>) {
        let deadline = pair.core.scheduler.platform().now().saturating_add(LOOK_AGAIN);
        self.deadline = Some(deadline);
        pair.timer.set(&Object::of(pair), deadline);
    }

    /// Takes the request at the front with its error; the connection ends after the run, on a stack that is less deep.
    pub(super) fn fail(&mut self, pair: &Shared<QueuePairObject<P>>, failure: impl Into<Failure>) -> Progress {
        let failure = failure.into();
        self.failure = self.take_front(pair, failure.outcome);
        if let Some(completion) = &mut self.failure {
            failure.describe(completion);
        }
        self.failed = true;
        pair.end();
        Progress::Completed
    }

    /// Ends the connection of a request that has failed, and enters its completion after that: a consumer that sees it finds the
    /// connection ended.
    #[inline(never)]
    pub(super) fn report_failure(&mut self, pair: &Shared<QueuePairObject<P>>) {
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
        done: &mut Batch,
        outcome: Outcome,
    ) -> Progress {
        if let Some(completion) = self.take_front(pair, outcome) {
            done.push(completion);
        }
        Progress::Completed
    }

    /// Takes the request at the front off the queue; its completion, if it has one.
    fn take_front(&mut self, pair: &Shared<QueuePairObject<P>>, outcome: Outcome) -> Option<Completion> {
        self.phase = RequestPhase::Fresh;
        self.stop_waiting(pair);
        self.under_way = self.under_way.saturating_sub(1);
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

    /// Enters the gathered completions and counts what has been moved; what was counted since the last time.
    #[inline]
    pub(super) fn commit(&mut self, pair: &Shared<QueuePairObject<P>>, done: &mut Batch) -> (Traffic, Traffic) {
        let entered = completion_queue::push_batch(&pair.initiator_queue, done.entries());
        done.clear();
        let (outgoing, incoming) = (core::mem::take(&mut self.outgoing), core::mem::take(&mut self.incoming));
        pair.traffic_counter.count_own(outgoing, incoming);
        if !entered {
            pair.defer_failure();
        }
        (outgoing, incoming)
    }

    /// Cancels what is posted, as much as a step may.
    #[inline(never)]
    pub(super) fn cancel(&mut self, pair: &Shared<QueuePairObject<P>>) -> (u64, Stop) {
        let (mut cost, mut stop) = (0_u64, Stop::Bounds);
        let mut done = Batch::new();
        for _ in 0..STEP_REQUESTS {
            if self.requests.is_empty() {
                stop = Stop::Empty;
                break;
            }
            if done.is_full() {
                self.commit(pair, &mut done);
            }
            self.complete(pair, &mut done, Outcome::Cancelled);
            cost = cost.saturating_add(REQUEST_COST);
        }
        self.commit(pair, &mut done);
        (cost, stop)
    }
}

/// What a message completes with whose receive failed.
pub(super) fn receiver_failed<P: Platform>(pair: &QueuePairObject<P>, failure: Failure) -> Failure {
    let outcome = match failure.outcome {
        Outcome::ReceiveTooSmall => pair.domain.open.semantics.receiver_too_small,
        _ => Outcome::RemoteError,
    };
    Failure { outcome, ..failure }
}

/// Checks this end's memory before the first byte of a request is sent.
pub(super) fn check_local<P: Platform>(
    work: &Work<P>,
    context: RequesterContext<'_, P>,
    request: &Request<P>,
) -> Result<(), Failure> {
    if request.length == 0 || request.flags.contains(RequestFlags::INLINE) {
        return Ok(());
    }
    let checked = Work::list(context, request, &work.sges).check();
    checked.map_err(|fault| Failure::of(Outcome::LocalAccess, fault))?;
    // Before the first byte: the Read could not close such memory to its peers.
    let invalidates = request.flags.contains(RequestFlags::LOCAL_INVALIDATE);
    if invalidates && !Work::is_first_fast(context, request, &work.sges) {
        return Err(Outcome::InvalidRequest.into());
    }
    Ok(())
}
