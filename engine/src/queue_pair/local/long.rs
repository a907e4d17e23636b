//! The long way of a request: piece by piece, for every kind of memory, and with the cause of every refusal.
//!
//! Rules: this end's memory is checked before the first byte moves; a message finds and checks everything it needs at the other end
//! before its first byte moves; an invalidation completes only when no context inside the epoch can have seen the region.

use core::ops::Range;

use softndk_cells::Stamp;

use crate::error::{AccessFault, Outcome};
use crate::flags::{Operation, RequestFlags, Rights};
use crate::memory::transfer::{Fault, InlineBytes, LocalBytes};
use crate::object::header::Object;
use crate::platform::Platform;
use crate::queue_pair::local::{Gathered, Local};
use crate::queue_pair::message::{Begun, Failure, Refused, RemoteBuffer, SendMessage};
use crate::queue_pair::pair::{QueuePairObject, state};
use crate::queue_pair::request::Request;
use crate::queue_pair::responder::{self, Delivery};
use crate::queue_pair::work::{Progress, RequestPhase, RequesterContext, Work, receiver_failed};

impl<P: Platform> Local<P> {
    /// One step of the request at the front, in a frame of its own: plain requests do not need it.
    #[inline(never)]
    pub(super) fn advance(
        &self,
        work: &mut Work<P>,
        context: RequesterContext<'_, P>,
        out: &mut Gathered,
        most: u64,
    ) -> Progress {
        if let RequestPhase::Leaving(stamp) = work.phase {
            // A request whose access has been revoked already is finished; only its readers have to leave.
            return leave(work, context, out, stamp);
        }
        if context.pair.is_ended() {
            return complete(work, context, out, Outcome::Cancelled);
        }
        let Some(request) = work.front() else { return Progress::Completed };
        match request.operation {
            Operation::Read if context.pair.state() & state::NO_READS != 0 => {
                return fail(work, context, out, Outcome::InvalidRequest);
            }
            Operation::Read | Operation::Write | Operation::WriteImmediate => {}
            Operation::Send | Operation::SendAndInvalidate | Operation::SendImmediate => {
                if let Some(progress) = self.begin_send(work, context, out) {
                    return progress;
                }
            }
            Operation::FastRegister => return work.fast_register(context.pair, &mut out.done),
            Operation::Bind => return work.bind(context.pair, &mut out.done),
            Operation::Invalidate => return work.invalidate(context, &mut out.done),
            Operation::Receive
            | Operation::ReceiveAndInvalidate
            | Operation::ReceiveImmediate
            | Operation::ReceiveWriteImmediate => return complete(work, context, out, Outcome::InvalidRequest),
        }
        self.transfer(work, context, out, most)
    }

    /// A message finds and checks everything it needs before its first byte moves; `None` when it has.
    fn begin_send(&self, work: &mut Work<P>, context: RequesterContext<'_, P>, out: &mut Gathered) -> Option<Progress> {
        let RequestPhase::Fresh = work.phase else { return None };
        let request = work.front()?;
        if request.length > 0
            && !request.flags.contains(RequestFlags::INLINE)
            && let Err(fault) = Work::list(context, request, &work.sges).check()
        {
            return Some(fail(work, context, out, Failure::of(Outcome::LocalAccess, fault)));
        }
        match out.delivery.begin(&self.peer, context.epoch, SendMessage::of(request), &Object::of(context.pair)) {
            Begun::Found => {
                work.phase = RequestPhase::Moving(0);
                work.stop_waiting(context.pair);
                None
            }
            // Its memory may have changed by the time there is one.
            Begun::NoReceive { unlimited } => Some(Progress::NoReceive { unlimited }),
            Begun::UnknownToken => {
                Some(fail(work, context, out, Failure::of(Outcome::RemoteError, AccessFault::NotInvalidated)))
            }
            Begun::Failed(failure) => Some(fail(work, context, out, receiver_failed(context.pair, failure))),
        }
    }

    /// A request that moves bytes: move a piece; after the last one invalidate what is to be invalidated, and complete.
    #[inline]
    fn transfer(
        &self,
        work: &mut Work<P>,
        context: RequesterContext<'_, P>,
        out: &mut Gathered,
        most: u64,
    ) -> Progress {
        let Some(request) = work.front() else { return Progress::Completed };
        let (operation, length) = (request.operation, request.length);
        let invalidates_sink = request.flags.contains(RequestFlags::LOCAL_INVALIDATE);
        let mut moved = 0;
        if !matches!(work.phase, RequestPhase::Announcing) {
            let at = if let RequestPhase::Moving(at) = work.phase { at } else { 0 };
            moved = match self.move_piece(work, context, out, at, most) {
                Err(failure) => return fail(work, context, out, failure),
                Ok(moved) => moved,
            };
            work.count(operation, moved);
            let at = at.saturating_add(moved);
            if at < length {
                work.phase = RequestPhase::Moving(at);
                return Progress::Moved(moved);
            }
        }
        if invalidates_sink {
            return work.invalidate_sink(context, moved);
        }
        if operation == Operation::SendAndInvalidate {
            return self.invalidate_remote(work, context, out, moved);
        }
        if operation == Operation::WriteImmediate {
            return self.announce(work, context, out, moved);
        }
        if matches!(operation, Operation::Send | Operation::SendImmediate) {
            end_send(work, out);
        }
        complete(work, context, out, Outcome::Success);
        Progress::Moved(moved)
    }

    /// `WriteImmediate`: the bytes are in place, and a receive of the other end says so.
    fn announce(
        &self,
        work: &mut Work<P>,
        context: RequesterContext<'_, P>,
        out: &mut Gathered,
        moved: u64,
    ) -> Progress {
        work.phase = RequestPhase::Announcing;
        let Some(message) = work.front().map(SendMessage::of) else { return Progress::Completed };
        match out.delivery.begin(&self.peer, context.epoch, message, &Object::of(context.pair)) {
            Begun::Found => {
                work.stop_waiting(context.pair);
                end_send(work, out);
                complete(work, context, out, Outcome::Success);
                Progress::Moved(moved)
            }
            Begun::NoReceive { unlimited } => Progress::NoReceive { unlimited },
            Begun::UnknownToken => fail(work, context, out, Outcome::RemoteError),
            Begun::Failed(outcome) => fail(work, context, out, receiver_failed(context.pair, outcome)),
        }
    }

    /// Moves the next piece of the request at the front; how many bytes. This end's memory is checked before the first of them.
    #[inline]
    fn move_piece(
        &self,
        work: &mut Work<P>,
        context: RequesterContext<'_, P>,
        out: &mut Gathered,
        at: u64,
        most: u64,
    ) -> Result<u64, Failure> {
        let Some(request) = work.front() else { return Ok(0) };
        let length = request.length;
        if length == 0 {
            return Ok(0);
        }
        // Inline data is short and is moved in one piece.
        if request.flags.contains(RequestFlags::INLINE) {
            return self.move_inline(work, context, out, at..length);
        }
        let mut local = Work::list(context, request, &work.sges);
        if let RequestPhase::Fresh = work.phase {
            local.check().map_err(|fault| Failure::of(Outcome::LocalAccess, fault))?;
            // Before the first byte: the Read could not close such memory to its peers.
            if request.flags.contains(RequestFlags::LOCAL_INVALIDATE)
                && !Work::is_first_fast(context, request, &work.sges)
            {
                return Err(Outcome::InvalidRequest.into());
            }
        }
        let range = at..length.min(at.saturating_add(most));
        move_bytes((context, &self.peer), request, &mut local, range, &mut out.delivery)
    }

    /// As [`move_bytes`] for inline data, which few requests have.
    #[inline(never)]
    fn move_inline(
        &self,
        work: &Work<P>,
        context: RequesterContext<'_, P>,
        out: &mut Gathered,
        range: Range<u64>,
    ) -> Result<u64, Failure> {
        let Some(request) = work.front() else { return Ok(0) };
        let mut local = InlineBytes(&work.chunks, request.first());
        move_bytes((context, &self.peer), request, &mut local, range, &mut out.delivery)
    }

    /// `SendAndInvalidate`: has the other end revoke the access before the completions.
    fn invalidate_remote(
        &self,
        work: &mut Work<P>,
        context: RequesterContext<'_, P>,
        out: &mut Gathered,
        moved: u64,
    ) -> Progress {
        let Some(token) = work.front().map(|request| request.token) else { return Progress::Completed };
        match responder::invalidate(&self.peer, context.epoch, token) {
            Some(stamp) => {
                work.phase = RequestPhase::Leaving(stamp);
                Progress::Epoch(stamp, moved)
            }
            None => fail(work, context, out, Failure::of(Outcome::RemoteError, AccessFault::NotInvalidated)),
        }
    }
}

/// Access was revoked; completes the request when every reader has left.
fn leave<P: Platform>(
    work: &mut Work<P>,
    context: RequesterContext<'_, P>,
    out: &mut Gathered,
    stamp: Stamp,
) -> Progress {
    if !work.has_left(context.pair, stamp) {
        return Progress::Epoch(stamp, 0);
    }
    if work.front().is_some_and(|request| request.operation == Operation::SendAndInvalidate) {
        end_send(work, out);
    }
    complete(work, context, out, Outcome::Success)
}

/// The message at the front has been delivered: its receive succeeds.
fn end_send<P: Platform>(work: &Work<P>, out: &mut Gathered) {
    if let Some(request) = work.front() {
        out.delivery.fill(SendMessage::of(request), Outcome::Success);
    }
}

fn complete<P: Platform>(
    work: &mut Work<P>,
    context: RequesterContext<'_, P>,
    out: &mut Gathered,
    outcome: Outcome,
) -> Progress {
    out.delivery.end_request();
    work.complete(context.pair, &mut out.done, outcome)
}

fn fail<P: Platform>(
    work: &mut Work<P>,
    context: RequesterContext<'_, P>,
    out: &mut Gathered,
    failure: impl Into<Failure>,
) -> Progress {
    out.delivery.end_request();
    work.fail(context.pair, failure)
}

/// Moves a range of a request's bytes, and says what the request completes with when it cannot be moved.
#[inline]
fn move_bytes<P: Platform>(
    (context, peer): (RequesterContext<'_, P>, &softndk_cells::Shared<QueuePairObject<P>>),
    request: &Request<P>,
    local: &mut impl LocalBytes<P>,
    range: Range<u64>,
    delivery: &mut Delivery,
) -> Result<u64, Failure> {
    let moved = range.end.saturating_sub(range.start);
    let platform = context.pair.core.scheduler.platform();
    let refused = |refused| match refused {
        Refused::Local(fault) => Failure::of(Outcome::LocalAccess, fault),
        Refused::Remote(fault) => Failure::of(context.pair.domain.open.semantics.remote_access, fault),
    };
    let buffer = RemoteBuffer::of(request);
    match request.operation {
        Operation::Read => {
            let remote = responder::remote(peer, context.epoch, buffer, Rights::REMOTE_READ).map_err(Refused::Remote);
            let copied = remote.and_then(|mut source| {
                local.copy_from(platform, &mut source, range, buffer.length).map_err(|fault| match fault {
                    Fault::Source(fault) => Refused::Remote(fault),
                    Fault::Sink(fault) => Refused::Local(fault),
                })
            });
            copied.map_err(refused)?;
        }
        Operation::Write | Operation::WriteImmediate => {
            let remote = responder::remote(peer, context.epoch, buffer, Rights::REMOTE_WRITE).map_err(Refused::Remote);
            let copied = remote.and_then(|mut sink| {
                local.copy_to(platform, &mut sink, range, buffer.length).map_err(|fault| match fault {
                    Fault::Source(fault) => Refused::Local(fault),
                    Fault::Sink(fault) => Refused::Remote(fault),
                })
            });
            copied.map_err(refused)?;
        }
        _ => {
            let copied = local.copy_to(platform, &mut delivery.sink(peer, context.epoch), range, request.length);
            copied.map_err(|fault| match fault {
                Fault::Source(fault) => Failure::of(Outcome::LocalAccess, fault),
                Fault::Sink(fault) => {
                    let failure = Failure::of(Outcome::LocalAccess, fault);
                    let failure = delivery.fail_receive(peer, SendMessage::of(request), failure);
                    receiver_failed(context.pair, failure)
                }
            })?;
        }
    }
    Ok(moved)
}
