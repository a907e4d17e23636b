//! A peer for tests that only messages reach: several requests are under way, and their answers come late.
//!
//! It proves the border at which a network can stand: nothing of the other end is at hand, and posting, work and connectors do not
//! know which peer they have. Requests are sent in pieces ([`FarOperation`]), as many as the path has slots for, and complete in
//! their order when the answer of their last piece has arrived. Those of two queue pairs overtake one another.
//!
//! Rules: nothing is allocated once the queue pair is made. A request that needs no other end, and one with a read fence, waits
//! until everything before it has completed. No more Reads are under way than the connection allows. A request that cannot be sent
//! fails when it is the oldest. A queue pair that ends does not wait for answers.

mod path;

use core::ops::Range;

use softndk_cells::Shared;

use crate::completion::completion_queue::Batch;
use crate::error::{AccessFault, Outcome};
use crate::flags::{Operation, RequestFlags};
use crate::limits::{REQUEST_COST, STEP_REQUESTS};
use crate::memory::transfer::{InlineBytes, LocalBytes};
use crate::platform::{Lock, Platform};
use crate::queue_pair::message::{Failure, RemoteBuffer, SendMessage};
use crate::queue_pair::pair::{QueuePairObject, state};
use crate::queue_pair::request::Request;
use crate::queue_pair::work::{Progress, RequestPhase, RequesterContext, Stop, Work, receiver_failed};

use path::{Answer, FarOperation, PIECE};

pub(crate) use path::Path;

/// The requester of a queue pair whose peer is far; see the module.
pub(crate) struct Far<P: Platform> {
    path: Shared<Path<P>>,
    /// Bytes of the next request that have been sent.
    sent: u64,
    reads_under_way: u32,
    outbound_reads: u32,
}

/// What became of one look at the work.
enum Look {
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

impl<P: Platform> Far<P> {
    pub(super) fn new(pair: &QueuePairObject<P>, peer: Shared<QueuePairObject<P>>) -> Self {
        let path = pair.far.clone();
        path.attach(peer);
        let outbound_reads = pair.link.with(|link| link.outbound_reads);
        Self { path, sent: 0, reads_under_way: 0, outbound_reads }
    }

    /// Nothing more is asked of the peer.
    pub(super) fn release(self) {
        self.path.release();
    }

    /// Takes answers and sends requests, until there is nothing to do or a bound is reached.
    pub(super) fn run(&mut self, work: &mut Work<P>, context: RequesterContext<'_, P>, most: u64) -> (u64, Stop) {
        let (mut bytes, mut stop) = (0_u64, Stop::Bounds);
        let mut done = Batch::new();
        for _ in 0..STEP_REQUESTS {
            if done.is_full() {
                work.commit(context.pair, &mut done);
            }
            match self.look(work, context, &mut done) {
                Look::Done(moved) => bytes = bytes.saturating_add(moved.max(REQUEST_COST)),
                Look::Stop(why) => {
                    stop = why;
                    break;
                }
            }
            if bytes >= most || work.failed {
                break;
            }
        }
        work.commit(context.pair, &mut done);
        (bytes, stop)
    }

    fn look(&mut self, work: &mut Work<P>, context: RequesterContext<'_, P>, done: &mut Batch) -> Look {
        if let RequestPhase::Leaving(stamp) = work.phase {
            if !work.has_left(context.pair, stamp) {
                return Look::Stop(Stop::Epoch(stamp));
            }
            return work.complete(context.pair, done, Outcome::Success).into();
        }
        if context.pair.is_ended() {
            self.abandon();
            if work.requests.is_empty() {
                return Look::Stop(Stop::Empty);
            }
            return work.complete(context.pair, done, Outcome::Cancelled).into();
        }
        if let Some(look) = self.take_answer(work, context, done) {
            return look;
        }
        if let Some(look) = self.send_next(work, context, done) {
            return look;
        }
        Look::Stop(if work.requests.is_empty() { Stop::Empty } else { Stop::Waiting })
    }

    /// The answer to the oldest piece, if it has arrived, or the end of its wait for a receive.
    fn take_answer(&mut self, work: &mut Work<P>, context: RequesterContext<'_, P>, done: &mut Batch) -> Option<Look> {
        let platform = context.pair.core.scheduler.platform();
        let now = platform.now();
        let (operation, answer) = Path::take_answer(&self.path, now, |operation, bytes| {
            let (Some(request), FarOperation::Read { range, .. }) = (work.front(), operation) else { return Ok(()) };
            Work::list(context, request, &work.sges).store(platform, bytes, range.clone()).map_err(|fault| fault.what())
        })?;
        if let FarOperation::Read { is_last: true, .. } = operation {
            self.reads_under_way = self.reads_under_way.saturating_sub(1);
        }
        let semantics = context.pair.domain.open.semantics;
        Some(match answer {
            Answer::Done => self.end_piece(work, context, done, &operation),
            Answer::NoReceive { unlimited } => {
                if work.waits(context.pair, unlimited) {
                    return None;
                }
                self.fail(work, context, Outcome::NotReady)
            }
            Answer::Refused(fault) => self.fail(work, context, Failure::of(semantics.remote_access, fault)),
            Answer::NotPlaced(fault) => self.fail(work, context, Failure::of(Outcome::LocalAccess, fault)),
            Answer::ReceiverFailed(failure) => self.fail(work, context, receiver_failed(context.pair, failure)),
            Answer::UnknownToken => {
                self.fail(work, context, Failure::of(Outcome::RemoteError, AccessFault::NotInvalidated))
            }
        })
    }

    /// A piece of the oldest request has been moved.
    fn end_piece(
        &self,
        work: &mut Work<P>,
        context: RequesterContext<'_, P>,
        done: &mut Batch,
        operation: &FarOperation,
    ) -> Look {
        work.stop_waiting(context.pair);
        let (moved, is_last) = operation.extent();
        let Some(request) = work.front() else { return Look::Done(0) };
        let invalidates_sink = request.flags.contains(RequestFlags::LOCAL_INVALIDATE);
        if !is_last {
            return Look::Done(moved);
        }
        work.count(request.operation, request.length);
        if invalidates_sink {
            return work.invalidate_sink(context, moved).into();
        }
        work.complete(context.pair, done, Outcome::Success).into()
    }

    /// Sends the next piece; `None` where nothing can be sent now.
    fn send_next(&mut self, work: &mut Work<P>, context: RequesterContext<'_, P>, done: &mut Batch) -> Option<Look> {
        let request = work.next()?;
        let (operation, flags, length) = (request.operation, request.flags, request.length);
        let is_oldest = work.under_way() == 0;
        if let Operation::FastRegister | Operation::Bind | Operation::Invalidate = operation {
            return is_oldest.then(|| match operation {
                Operation::FastRegister => work.fast_register(context.pair, done).into(),
                Operation::Bind => work.bind(context.pair, done).into(),
                _ => work.invalidate(context, done).into(),
            });
        }
        let is_read = operation == Operation::Read;
        if flags.contains(RequestFlags::READ_FENCE) && !is_oldest
            || is_read && self.sent == 0 && self.reads_under_way >= self.outbound_reads.max(1)
        {
            return None;
        }
        if is_read && context.pair.state() & state::NO_READS != 0 {
            return is_oldest.then(|| self.fail(work, context, Outcome::InvalidRequest));
        }
        if self.sent == 0
            && let Err(failure) = check(work, context, request)
        {
            return is_oldest.then(|| self.fail(work, context, failure));
        }
        let range = self.sent..length.min(self.sent.saturating_add(PIECE));
        let piece = Self::piece(request, range.clone());
        let platform = context.pair.core.scheduler.platform();
        let load = |into: &mut [u8]| match (&piece, request.flags.contains(RequestFlags::INLINE)) {
            (FarOperation::Read { .. }, _) => Ok(()),
            (_, true) => InlineBytes(&work.chunks, request.first()).load(platform, range.clone(), into),
            (_, false) => Work::list(context, request, &work.sges).load(platform, range.clone(), into),
        };
        let (_, is_last) = piece.extent();
        match Path::send(&self.path, context.pair, piece.clone(), load) {
            None => return None,
            Some(Err(fault)) => {
                let failure = Failure::of(Outcome::LocalAccess, fault.what());
                return is_oldest.then(|| self.fail(work, context, failure));
            }
            Some(Ok(())) => {}
        }
        self.reads_under_way = self.reads_under_way.saturating_add(u32::from(is_read && is_last));
        if is_last {
            work.sent();
            self.sent = 0;
        } else {
            self.sent = range.end;
        }
        Some(Look::Done(range.end.saturating_sub(range.start)))
    }

    /// What travels for a range of a request.
    fn piece(request: &Request<P>, range: Range<u64>) -> FarOperation {
        let is_last = range.end == request.length;
        let buffer = RemoteBuffer::of(request);
        match request.operation {
            Operation::Read => FarOperation::Read { buffer, range, is_last },
            Operation::Write => FarOperation::Write { buffer, range, announces: None, is_last },
            Operation::WriteImmediate => {
                let announces = is_last.then(|| SendMessage::of(request));
                FarOperation::Write { buffer, range, announces, is_last }
            }
            _ => FarOperation::Send { message: SendMessage::of(request), range, is_last },
        }
    }

    fn fail(&mut self, work: &mut Work<P>, context: RequesterContext<'_, P>, failure: impl Into<Failure>) -> Look {
        self.abandon();
        work.fail(context.pair, failure).into()
    }

    fn abandon(&mut self) {
        self.path.abandon();
        (self.sent, self.reads_under_way) = (0, 0);
    }
}

/// Checks this end's memory before the first byte of a request is sent.
fn check<P: Platform>(work: &Work<P>, context: RequesterContext<'_, P>, request: &Request<P>) -> Result<(), Failure> {
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
