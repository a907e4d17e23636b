//! A queue pair as the owner of a stream: what a peer's messages do to its memory, its receives and its oldest Read.
//!
//! Rules: remote accesses are checked as those of a peer at hand are, piece by piece; a Send takes the oldest receive with its first
//! bytes and completes it with its last, after what it invalidates has no reader any more.

use softndk_cells::{Shared, Stamp};
use softndk_iwarp::hold::SendPart;
use softndk_iwarp::stream::{Owner, Taken};
use softndk_iwarp::terminate::Code;

use crate::completion::completion_queue::Batch;
use crate::counters::Traffic;
use crate::error::{AccessFault, Outcome};
use crate::flags::{Operation, RequestFlags, Rights};
use crate::memory::transfer::{self, Fault, LocalBytes};
use crate::object::header::Object;
use crate::platform::Platform;
use crate::queue_pair::message::{Begun, Extra, Failure, RemoteBuffer, SendMessage};
use crate::queue_pair::pair::QueuePairObject;
use crate::queue_pair::responder::{self, Delivery};
use crate::queue_pair::stream::codes;
use crate::queue_pair::work::{Progress, RequesterContext, Work};
use crate::token::MemoryToken;

/// What is under way from the peer, between two runs.
#[derive(Default)]
pub(super) struct Incoming {
    /// A Send has taken its receive.
    message: Option<SendMessage>,
    /// Its last byte is there, and what it invalidates still has readers.
    pub(super) leaving: Option<Stamp>,
    /// Bytes of a Write.
    written: u64,
    /// The oldest Send finds no receive; whether it may wait for one without limit.
    pub(super) without_receive: Option<bool>,
}

impl Incoming {
    pub(super) const fn is_inside_message(&self) -> bool {
        self.message.is_some()
    }
}

/// See the module.
pub(super) struct StreamOwner<'a, P: Platform> {
    pub(super) context: RequesterContext<'a, P>,
    pub(super) work: &'a mut Work<P>,
    pub(super) done: &'a mut Batch,
    pub(super) incoming: &'a mut Incoming,
    delivery: Delivery,
    sent: Traffic,
    received: Traffic,
    /// How much was done, in messages' pieces and in bytes.
    pub(super) pieces: u32,
    pub(super) bytes: u64,
    /// What was received cannot be stored for the oldest Read.
    pub(super) not_stored: Option<Failure>,
    /// An access has failed because this end has ended meanwhile, and closed what it had.
    pub(super) has_ended: bool,
}

impl<'a, P: Platform> StreamOwner<'a, P> {
    pub(super) fn new(
        context: RequesterContext<'a, P>,
        work: &'a mut Work<P>,
        done: &'a mut Batch,
        incoming: &'a mut Incoming,
    ) -> Self {
        let mut delivery = Delivery::new();
        if incoming.is_inside_message() {
            delivery.resume(context.pair);
        }
        Self {
            context,
            work,
            done,
            incoming,
            delivery,
            sent: Traffic::default(),
            received: Traffic::default(),
            pieces: 0,
            bytes: 0,
            not_stored: None,
            has_ended: false,
        }
    }

    /// Completes the receives that have been filled.
    pub(super) fn commit(&mut self) {
        let counted = (core::mem::take(&mut self.sent), core::mem::take(&mut self.received));
        self.delivery.commit(self.context.pair, counted);
    }

    /// The Send under way, of which every byte is there.
    pub(super) fn end_message(&mut self) {
        self.incoming.leaving = None;
        if let Some(message) = self.incoming.message.take() {
            self.received.add(message.length);
            self.delivery.fill(message, Outcome::Success);
        }
    }

    /// The Send under way does not end: its receive is given back.
    pub(super) fn abandon_message(&mut self) {
        *self.incoming = Incoming::default();
        self.delivery.end_request();
        self.commit();
    }

    /// An access of the peer fails.
    fn refused(&mut self, code: Code) -> Code {
        self.has_ended = self.context.pair.is_ended();
        code
    }

    fn took(&mut self, bytes: usize) {
        self.pieces = self.pieces.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// Takes a receive for a Send; false when there is none.
    fn begin(&mut self, message: SendMessage) -> Result<bool, Code> {
        if self.delivery.filled.is_full() {
            self.commit();
        }
        let RequesterContext { pair, epoch } = self.context;
        loop {
            match self.delivery.begin(pair, epoch, message, &Object::of(pair)) {
                Begun::Found => {
                    self.incoming.message = Some(message);
                    return Ok(true);
                }
                // The filled receives are still in front of those that are free.
                Begun::NoReceive { .. } if !self.delivery.filled.is_empty() => self.commit(),
                Begun::NoReceive { unlimited } => {
                    self.incoming.without_receive = Some(unlimited);
                    return Ok(false);
                }
                Begun::UnknownToken => return Err(Code::NOT_INVALIDATED),
                Begun::Failed(failure) => return Err(self.receive_failed(failure)),
            }
        }
    }

    /// The receive that has failed last gets the code with which the stream ends.
    fn receive_failed(&mut self, failure: Failure) -> Code {
        let code = codes::of_receive(failure);
        if let Some(completion) = self.delivery.filled.entries().last_mut() {
            failure.by(code).describe(completion);
        }
        code
    }

    /// Stores bytes of the Send under way.
    fn store(&mut self, message: SendMessage, part: &SendPart<'_>) -> Result<(), Failure> {
        let RequesterContext { pair, epoch } = self.context;
        let end = u64::from(part.offset).saturating_add(part.data.len() as u64);
        let stored = if self.delivery.fits(end) {
            let range = u64::from(part.offset)..end;
            let mut sink = self.delivery.sink(pair, epoch);
            let stored = transfer::store_bytes(pair.core.scheduler.platform(), part.data, &mut sink, range);
            stored.map_err(|fault| Failure::of(Outcome::LocalAccess, fault.what()))
        } else {
            Err(Failure::of(Outcome::ReceiveTooSmall, AccessFault::ReceiveTooSmall))
        };
        stored.map_err(|failure| {
            self.incoming.message = None;
            self.delivery.fail_receive(pair, message, failure)
        })
    }
}

impl<P: Platform> Owner for StreamOwner<'_, P> {
    fn write(&mut self, stag: u32, offset: u64, data: &[u8], is_last: bool) -> Result<(), Code> {
        self.took(data.len());
        let RequesterContext { pair, epoch } = self.context;
        let length = data.len() as u64;
        if length > 0 {
            let buffer = RemoteBuffer { token: MemoryToken(stag), address: offset, length };
            let platform = pair.core.scheduler.platform();
            responder::remote(pair, epoch, buffer, Rights::REMOTE_WRITE)
                .and_then(|mut memory| {
                    transfer::store_bytes(platform, data, &mut memory, 0..length).map_err(Fault::what)
                })
                .map_err(|fault| self.refused(codes::of_write(fault)))?;
        }
        self.incoming.written = self.incoming.written.saturating_add(length);
        if is_last {
            self.received.add(core::mem::take(&mut self.incoming.written));
        }
        Ok(())
    }

    fn send(&mut self, part: &SendPart<'_>) -> Result<Taken, Code> {
        if part.is_first {
            let message = SendMessage {
                length: part.data.len() as u64,
                solicited: part.kind.is_solicited,
                extra: part.kind.invalidates.map_or(Extra::Nothing, |token| Extra::Invalidates(MemoryToken(token))),
            };
            if !self.begin(message)? {
                return Ok(Taken::NoReceive);
            }
            self.incoming.without_receive = None;
        }
        self.took(part.data.len());
        let Some(message) = self.incoming.message else { return Err(Code::NO_BUFFER) };
        self.store(message, part).map_err(|failure| self.receive_failed(failure))?;
        if !part.is_last {
            return Ok(Taken::Done);
        }
        let length = u64::from(part.offset).saturating_add(part.data.len() as u64);
        self.incoming.message = Some(SendMessage { length, ..message });
        if let Some(token) = message.invalidates() {
            let RequesterContext { pair, epoch } = self.context;
            let stamp = responder::invalidate(pair, epoch, token).ok_or(Code::NOT_INVALIDATED)?;
            if !pair.core.scheduler.epoch().passed(stamp) {
                self.incoming.leaving = Some(stamp);
                return Ok(Taken::Pause);
            }
        }
        self.end_message();
        Ok(Taken::Done)
    }

    fn allow_read(&mut self, stag: u32, offset: u64, length: u32) -> Result<(), Code> {
        let RequesterContext { pair, epoch } = self.context;
        let buffer = RemoteBuffer { token: MemoryToken(stag), address: offset, length: length.into() };
        responder::remote(pair, epoch, buffer, Rights::REMOTE_READ)
            .map(|_| ())
            .map_err(|fault| self.refused(codes::of_read(fault)))
    }

    fn load(&mut self, stag: u32, offset: u64, into: &mut [u8]) -> Result<(), Code> {
        self.took(into.len());
        let RequesterContext { pair, epoch } = self.context;
        let length = into.len() as u64;
        let buffer = RemoteBuffer { token: MemoryToken(stag), address: offset, length };
        let platform = pair.core.scheduler.platform();
        responder::remote(pair, epoch, buffer, Rights::REMOTE_READ)
            .and_then(|mut memory| transfer::load(platform, &mut memory, 0..length, into).map_err(Fault::what))
            .map_err(|fault| self.refused(codes::of_read(fault)))
    }

    fn answered(&mut self, length: u32) {
        self.took(0);
        self.sent.add(length.into());
    }

    fn response(&mut self, offset: u32, data: &[u8], is_last: bool) -> Result<Taken, Code> {
        self.took(data.len());
        let pair = self.context.pair;
        let range = u64::from(offset)..u64::from(offset).saturating_add(data.len() as u64);
        let request = self.work.front().filter(|request| request.operation == Operation::Read);
        let Some(request) = request else { return Err(Code::TAGGED_INVALID_STAG) };
        let (length, flags) = (request.length, request.flags);
        let mut sink = Work::list(self.context, request, &self.work.sges);
        if let Err(fault) = sink.store(pair.core.scheduler.platform(), data, range) {
            self.not_stored = Some(Failure::of(Outcome::LocalAccess, fault.what()));
            return Err(Code::DDP_CATASTROPHIC);
        }
        if !is_last {
            return Ok(Taken::Done);
        }
        self.work.count(Operation::Read, length);
        if flags.contains(RequestFlags::LOCAL_INVALIDATE) {
            return Ok(match self.work.invalidate_sink(self.context, 0) {
                Progress::Epoch(..) => Taken::Pause,
                _ => Taken::Done,
            });
        }
        complete(self.work, pair, self.done);
        complete_sent(self.work, pair, self.done);
        Ok(Taken::Done)
    }
}

fn complete<P: Platform>(work: &mut Work<P>, pair: &Shared<QueuePairObject<P>>, done: &mut Batch) {
    if done.is_full() {
        work.commit(pair, done);
    }
    work.complete(pair, done, Outcome::Success);
}

/// What is under way in front of the next Read has been sent, and with that it has been done.
pub(super) fn complete_sent<P: Platform>(work: &mut Work<P>, pair: &Shared<QueuePairObject<P>>, done: &mut Batch) {
    while work.under_way() > 0 && work.front().is_some_and(|request| request.operation != Operation::Read) {
        complete(work, pair, done);
    }
}
