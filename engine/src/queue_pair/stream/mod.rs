//! The requester of a queue pair whose peer is across a stream: several requests are under way, and the peer's are taken here, too.
//!
//! | request | sent as | complete when |
//! |---|---|---|
//! | Send, Send and invalidate | one Send | its last byte has been built |
//! | Write | one Write a piece | so is it |
//! | Read | one Read Request | the last byte of its response has been stored |
//! | bind, fast registration, invalidate | nothing | it is the oldest and has been done |
//!
//! Requests complete in their order, so what is under way begins with a Read. Whether the peer has taken a Write or a Send is never
//! said: what it refuses ends the stream, and the oldest request fails where the refusal can be of it.
//!
//! Rules: nothing is allocated. A request that needs no other end, and one with a read fence, waits until everything before it has
//! completed. One that cannot be sent fails when it is the oldest. A queue pair that has ended takes and sends nothing.

mod codes;
mod owner;

use softndk_cells::Shared;
use softndk_iwarp::outbound::Outgoing;
use softndk_iwarp::segment::SendKind;
use softndk_iwarp::stream::{End as StreamEnd, Event, Push};
use softndk_iwarp::terminate::{Code, Echo};

use crate::completion::completion_queue::Batch;
use crate::error::{DisconnectReason, Outcome};
use crate::flags::{Operation, RequestFlags};
use crate::limits::{REQUEST_COST, STEP_REQUESTS};
use crate::memory::transfer::{InlineBytes, LocalBytes};
use crate::object::header::Object;
use crate::platform::Platform;
use crate::platform::socket::{Arrived, Socket as _};
use crate::queue_pair::message::Failure;
use crate::queue_pair::pair::state;
use crate::queue_pair::request::Request;
use crate::queue_pair::responder;
use crate::queue_pair::work::{Look, RequestPhase, RequesterContext, Stop, Work, check_local};
use crate::stream::{News, Phase, Received, StreamObject, Wire, reason_of};

use owner::{Incoming, StreamOwner};

/// See the module.
pub(crate) struct StreamRequester<P: Platform> {
    stream: Shared<StreamObject<P>>,
    /// Bytes of the next request that have been sent.
    sent: u32,
    incoming: Incoming,
    /// Until when a Send of the peer waits for a receive.
    deadline: Option<u64>,
}

impl<P: Platform> StreamRequester<P> {
    pub(super) fn new(stream: Shared<StreamObject<P>>) -> Self {
        Self { stream, sent: 0, incoming: Incoming::default(), deadline: None }
    }

    /// Takes what has come and sends requests, until there is nothing to do or a bound is reached.
    // On a frame of its own: requests to a peer at hand pay nothing for it.
    #[inline(never)]
    pub(super) fn run(&mut self, work: &mut Work<P>, context: RequesterContext<'_, P>, most: u64) -> (u64, Stop) {
        let stream = self.stream.clone();
        let (mut bytes, mut stop) = (0_u64, Stop::Waiting);
        StreamObject::drive_for(&stream, &Object::of(context.pair), |wire| {
            // The failure is entered before what is cancelled behind it, when the run is over.
            if work.failed {
                return;
            }
            let (moved, why) = self.step(wire, work, context, most.saturating_sub(bytes));
            (bytes, stop) = (bytes.saturating_add(moved), why);
        });
        (bytes, stop)
    }

    /// Nothing more is asked of the peer; the stream goes on to its end by itself.
    pub(super) fn release(self) {
        drop(self);
    }

    fn step(
        &mut self,
        wire: &mut Wire<P>,
        work: &mut Work<P>,
        context: RequesterContext<'_, P>,
        most: u64,
    ) -> (u64, Stop) {
        let (mut bytes, mut stop) = (0_u64, Stop::Bounds);
        let mut done = Batch::new();
        for _ in 0..STEP_REQUESTS {
            if done.is_full() {
                work.commit(context.pair, &mut done);
            }
            match self.look(wire, work, context, &mut done) {
                Look::Done(moved) => bytes = bytes.saturating_add(moved.max(REQUEST_COST).max(wire.take_cost())),
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
        wire.is_idle = work.requests.is_empty() && !wire.stream.is_answering();
        (bytes, stop)
    }

    fn look(
        &mut self,
        wire: &mut Wire<P>,
        work: &mut Work<P>,
        context: RequesterContext<'_, P>,
        done: &mut Batch,
    ) -> Look {
        if let RequestPhase::Leaving(stamp) = work.phase {
            if !work.has_left(context.pair, stamp) {
                return Look::Stop(Stop::Epoch(stamp));
            }
            return work.complete(context.pair, done, Outcome::Success).into();
        }
        if context.pair.is_ended() {
            self.give_up(wire, work, context, done);
            if work.requests.is_empty() {
                return Look::Stop(Stop::Empty);
            }
            return work.complete(context.pair, done, Outcome::Cancelled).into();
        }
        owner::complete_sent(work, context.pair, done);
        if wire.phase == Phase::Open {
            if let Some(look) = self.take(wire, work, context, done) {
                return look;
            }
            if let Some(look) = self.send_next(wire, work, context, done) {
                return look;
            }
        }
        Look::Stop(if work.requests.is_empty() { Stop::Empty } else { Stop::Waiting })
    }

    /// Takes what the peer has sent, and answers its Reads; `None` when there was nothing.
    #[inline(never)]
    fn take(
        &mut self,
        wire: &mut Wire<P>,
        work: &mut Work<P>,
        context: RequesterContext<'_, P>,
        done: &mut Batch,
    ) -> Option<Look> {
        let leaving = self.incoming.leaving;
        if let Some(stamp) = leaving.filter(|stamp| !context.pair.core.scheduler.epoch().passed(*stamp)) {
            return Some(Look::Stop(Stop::Epoch(stamp)));
        }
        let mut owner = StreamOwner::new(context, work, done, &mut self.incoming);
        if leaving.is_some() {
            owner.end_message();
        }
        let received = wire.receive(&mut owner);
        let ended_by_answer = wire.stream.serve(&mut owner);
        wire.waits_for_space |= wire.stream.is_answering();
        owner.commit();
        let (pieces, bytes, not_stored, has_ended) = (owner.pieces, owner.bytes, owner.not_stored, owner.has_ended);
        let end = match received {
            Received::Event(Event::Ended(end)) => Some(end),
            _ => ended_by_answer,
        };
        if has_ended {
            wire.socket.abort();
            return Some(self.lose(wire, DisconnectReason::Closed));
        }
        if let Some(end) = end {
            return Some(self.ended(wire, work, context, end, not_stored));
        }
        match received {
            Received::Finished if wire.is_cut_short() => {
                return Some(self.lose(wire, DisconnectReason::StreamLost));
            }
            Received::Finished => wire.report_end(&self.stream, News::Notice),
            Received::Reset => return Some(self.lose(wire, DisconnectReason::Closed)),
            // The end lies behind what waits for a receive, unless that is only paused.
            Received::Event(Event::Held) if !self.is_paused(work) => match wire.end_behind_held() {
                Arrived::Finished => wire.report_end(&self.stream, News::Notice),
                Arrived::Reset => return Some(self.lose(wire, DisconnectReason::Closed)),
                Arrived::Bytes | Arrived::Nothing => {}
            },
            Received::Event(_) | Received::Nothing => {}
        }
        if let Some(look) = self.wait_for_receive(wire, work, context) {
            return Some(look);
        }
        let was_asked = matches!(received, Received::Event(Event::Asked | Event::More | Event::Ready));
        (pieces > 0 || was_asked || leaving.is_some()).then_some(Look::Done(bytes))
    }

    /// Whether something that is invalidated still has readers, behind which the stream goes on.
    const fn is_paused(&self, work: &Work<P>) -> bool {
        self.incoming.leaving.is_some() || matches!(work.phase, RequestPhase::Leaving(_))
    }

    /// Sends of the peer that find no receive wait as long as the contract has it.
    fn wait_for_receive(
        &mut self,
        wire: &mut Wire<P>,
        work: &mut Work<P>,
        context: RequesterContext<'_, P>,
    ) -> Option<Look> {
        let pair = context.pair;
        let limit = pair.receiver_not_ready.filter(|_| self.incoming.without_receive == Some(false));
        let Some(limit) = limit.filter(|_| wire.stream.is_holding()) else {
            self.stop_waiting(context);
            return None;
        };
        let now = pair.core.scheduler.platform().now();
        let deadline = *self.deadline.get_or_insert_with(|| now.saturating_add(limit));
        if now < deadline {
            pair.timer.set(&Object::of(pair), deadline);
            return None;
        }
        wire.stream.terminate(Code::NO_BUFFER, Echo::Nothing);
        Some(self.ended(wire, work, context, StreamEnd::Fault(Code::NO_BUFFER), None))
    }

    /// The timer points to the queue pair while it is set.
    fn stop_waiting(&mut self, context: RequesterContext<'_, P>) {
        if self.deadline.take().is_some() {
            context.pair.timer.clear();
        }
    }

    /// The stream has ended: the oldest request fails, where the end can be of it.
    fn ended(
        &self,
        wire: &mut Wire<P>,
        work: &mut Work<P>,
        context: RequesterContext<'_, P>,
        end: StreamEnd,
        not_stored: Option<Failure>,
    ) -> Look {
        let pair = context.pair;
        codes::record(pair, end);
        let failure = match end {
            StreamEnd::Fault(code) => not_stored.map(|failure| failure.by(code)),
            // One of which nothing has been sent is not meant.
            StreamEnd::Terminated(code) => work
                .front()
                .filter(|_| work.under_way() > 0 || self.sent > 0)
                .and_then(|request| codes::failure_of(pair, request.operation, code)),
            StreamEnd::Start(_) | StreamEnd::Rejected => None,
        };
        if let Some(failure) = failure {
            return work.fail(pair, failure).into();
        }
        self.lose(wire, reason_of(end))
    }

    /// The connector hears that the connection has ended, and this end has.
    fn lose(&self, wire: &mut Wire<P>, reason: DisconnectReason) -> Look {
        self.stream.end(wire);
        wire.end(self.stream.now());
        wire.report_end(&self.stream, News::Ended(reason));
        Look::Done(0)
    }

    /// The queue pair has ended: nothing is taken or sent any more.
    fn give_up(&mut self, wire: &mut Wire<P>, work: &mut Work<P>, context: RequesterContext<'_, P>, done: &mut Batch) {
        if self.incoming.is_inside_message() {
            StreamOwner::new(context, work, done, &mut self.incoming).abandon_message();
        }
        self.sent = 0;
        self.stop_waiting(context);
        context.pair.receiving.stop_waiting();
        responder::release(context.pair);
        if wire.phase != Phase::Over {
            self.stream.end(wire);
            // It still waits for the peer's end.
            context.pair.core.scheduler.link(&Object::of(&self.stream));
        }
    }

    /// Sends the next piece of a request; `None` where nothing can be sent now.
    #[inline(never)]
    fn send_next(
        &mut self,
        wire: &mut Wire<P>,
        work: &mut Work<P>,
        context: RequesterContext<'_, P>,
        done: &mut Batch,
    ) -> Option<Look> {
        let request = work.next()?;
        let (operation, flags, length) = (request.operation, request.flags, request.length);
        let is_oldest = work.under_way() == 0;
        match operation {
            Operation::FastRegister => return is_oldest.then(|| work.fast_register(context.pair, done).into()),
            Operation::Bind => return is_oldest.then(|| work.bind(context.pair, done).into()),
            Operation::Invalidate => return is_oldest.then(|| work.invalidate(context, done).into()),
            _ => {}
        }
        if flags.contains(RequestFlags::READ_FENCE) && !is_oldest || wire.has_finished() {
            return None;
        }
        if self.sent == 0
            && let Err(failure) = check(work, context, request)
        {
            return is_oldest.then(|| self.fail(wire, work, context, failure));
        }
        let pushed = Self::push(wire, work, context, request, length as u32, self.sent);
        let piece = match pushed {
            Push::Wait => {
                wire.waits_for_space = true;
                return None;
            }
            Push::Failed => return is_oldest.then(|| self.fail(wire, work, context, Outcome::LocalAccess.into())),
            Push::Sent(piece) => piece,
        };
        let moved = u64::from(piece.range.end.saturating_sub(piece.range.start));
        self.sent = if piece.is_last { 0 } else { piece.range.end };
        if piece.is_last {
            if operation != Operation::Read {
                work.count(operation, length);
            }
            work.sent();
        }
        Some(Look::Done(moved))
    }

    /// The next piece of a request goes out.
    fn push(
        wire: &mut Wire<P>,
        work: &Work<P>,
        context: RequesterContext<'_, P>,
        request: &Request<P>,
        length: u32,
        sent: u32,
    ) -> Push {
        let token = request.token.0;
        let message = match request.operation {
            Operation::Read => return wire.stream.read(length, token, request.address),
            Operation::Write => Outgoing::Write { stag: token, offset: request.address },
            _ => Outgoing::Send(SendKind {
                is_solicited: request.flags.contains(RequestFlags::SOLICIT),
                invalidates: (request.operation == Operation::SendAndInvalidate).then_some(token),
            }),
        };
        let platform = context.pair.core.scheduler.platform();
        wire.stream.push(&message, length, sent, |range, into| {
            let range = range.start.into()..range.end.into();
            let loaded = if request.flags.contains(RequestFlags::INLINE) {
                InlineBytes(&work.chunks, request.first()).load(platform, range, into)
            } else {
                Work::list(context, request, &work.sges).load(platform, range, into)
            };
            loaded.ok()
        })
    }

    fn fail(
        &mut self,
        wire: &mut Wire<P>,
        work: &mut Work<P>,
        context: RequesterContext<'_, P>,
        failure: Failure,
    ) -> Look {
        self.sent = 0;
        wire.stream.terminate(Code::LOCAL_CATASTROPHIC, Echo::Nothing);
        work.fail(context.pair, failure).into()
    }
}

/// Checks what can be known before the first byte of a request is sent.
fn check<P: Platform>(work: &Work<P>, context: RequesterContext<'_, P>, request: &Request<P>) -> Result<(), Failure> {
    let is_read = request.operation == Operation::Read;
    if is_read && context.pair.state() & state::NO_READS != 0 {
        return Err(Outcome::InvalidRequest.into());
    }
    // Immediate data is none of the messages that every peer knows.
    if matches!(request.operation, Operation::SendImmediate | Operation::WriteImmediate)
        || u32::try_from(request.length).is_err()
    {
        return Err(Outcome::InvalidRequest.into());
    }
    check_local(work, context, request)
}
