//! The border behind which the other end of a connected queue pair lives.
//!
//! A requester reaches its peer through a [`Transport`] only: it checks its own memory, then has bytes moved piece by piece, and
//! completes the request with what the transport answers. What happens at the other end (access checks, receives, their
//! completions) belongs to the transport. The messages of connectors have a border of their own, in `connection`.
//!
//! Rules: one request at a time is under way. An operation whose answer comes later leaves the requester free; the transport
//! schedules the queue pair when the answer is there, and the same call then returns it. What the other end has to complete is
//! gathered, and entered after the results of this end, so that an answer never overtakes them.

use core::ops::Range;

use softndk_cells::{Guard, NoMemory, Shared, Stamp};

use crate::completion::completion_queue::Batch;
use crate::counters::Traffic;
use crate::error::{AccessFault, Outcome};
use crate::flags::{Operation, RequestFlags};
use crate::memory::access::Accessor;
use crate::memory::transfer::LocalBytes;
use crate::object::scheduler::Scheduler;
use crate::platform::Platform;
use crate::queue_pair::pair::{QueuePairObject, Request};
use crate::queue_pair::receive_queue::Ahead;
use crate::queue_pair::responder::Inside;
use crate::token::MemoryToken;

/// The transport that requesters use.
#[cfg(not(feature = "delayed-transport"))]
pub(crate) type PeerTransport<P> = crate::queue_pair::loopback::Loopback<P>;
#[cfg(feature = "delayed-transport")]
pub(crate) type PeerTransport<P> = crate::queue_pair::delayed::Delayed<P>;

/// The end that asks: its queue pair, and the epoch that the context is in.
pub(crate) struct Near<'a, P: Platform> {
    pub(crate) pair: &'a Shared<QueuePairObject<P>>,
    pub(crate) inside: Inside<'a, P>,
}

impl<P: Platform> Clone for Near<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for Near<'_, P> {}

impl<'a, P: Platform> Near<'a, P> {
    pub(crate) fn new(pair: &'a Shared<QueuePairObject<P>>, guard: &'a Guard<'a>) -> Self {
        Self { pair, inside: Inside { tables: &pair.domain.tables, guard } }
    }

    /// Access to this end's memory.
    #[inline]
    pub(crate) fn memory(self) -> Accessor<'a, P> {
        let Inside { tables, guard } = self.inside;
        Accessor { tables, guard, domain: self.pair.domain.number, pair: 0 }
    }
}

/// What an operation at the other end came to.
pub(crate) enum Answer<T> {
    Ready(T),
    /// The other end answers later.
    Later,
}

impl<T, E> Answer<Result<T, E>> {
    #[inline]
    pub(crate) fn map_error<F>(self, name: impl FnOnce(E) -> F) -> Answer<Result<T, F>> {
        match self {
            Self::Ready(answer) => Answer::Ready(answer.map_err(name)),
            Self::Later => Answer::Later,
        }
    }
}

/// How a request or a receive fails: its outcome, and what was wrong where that has a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Failure {
    pub(crate) outcome: Outcome,
    pub(crate) fault: Option<AccessFault>,
}

impl Failure {
    pub(crate) const fn of(outcome: Outcome, fault: AccessFault) -> Self {
        Self { outcome, fault: Some(fault) }
    }
}

impl From<Outcome> for Failure {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, fault: None }
    }
}

/// Which side refused an access, and what was wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refused {
    Local(AccessFault),
    Remote(AccessFault),
}

/// The peer's memory that a Read or Write names.
#[derive(Clone, Copy)]
pub(crate) struct RemoteBuffer {
    pub(crate) token: MemoryToken,
    pub(crate) address: u64,
    pub(crate) length: u64,
}

impl RemoteBuffer {
    pub(crate) fn of<P: Platform>(request: &Request<P>) -> Self {
        Self { token: request.token, address: request.address, length: request.length }
    }
}

/// What a message brings beside its bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Extra {
    Nothing,
    /// The peer's token that it invalidates.
    Invalidates(MemoryToken),
    /// Immediate data.
    Immediate(u32),
    /// Immediate data of a Write, which has put its bytes elsewhere.
    WriteImmediate(u32),
}

/// A message, as the other end has to know it.
#[derive(Clone, Copy)]
pub(crate) struct SendMessage {
    pub(crate) length: u64,
    pub(crate) solicited: bool,
    pub(crate) extra: Extra,
}

impl SendMessage {
    pub(crate) fn of<P: Platform>(request: &Request<P>) -> Self {
        Self {
            length: request.length,
            solicited: request.flags.contains(RequestFlags::SOLICIT),
            extra: match request.operation {
                Operation::SendAndInvalidate => Extra::Invalidates(request.token),
                Operation::SendImmediate => Extra::Immediate(request.immediate),
                Operation::WriteImmediate => Extra::WriteImmediate(request.immediate),
                _ => Extra::Nothing,
            },
        }
    }

    /// The peer's token that it invalidates.
    pub(crate) fn invalidates(&self) -> Option<MemoryToken> {
        if let Extra::Invalidates(token) = self.extra { Some(token) } else { None }
    }

    /// Bytes that go into the receive.
    pub(crate) fn received_length(&self) -> u64 {
        if let Extra::WriteImmediate(_) = self.extra { 0 } else { self.length }
    }
}

/// How a message found the other end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Begun {
    /// It has its receive.
    Found,
    /// The queue pair is scheduled when there is one. A patient peer's receives are shared: the message waits without limit.
    NoReceive { patient: bool },
    /// The token to invalidate is not in use; no receive was touched, and the other end has failed.
    UnknownToken,
    /// The receive fails with this, and with it the other end.
    Failed(Failure),
}

/// Why a piece of a message was not moved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NotSent {
    /// This end's memory cannot be read.
    Local(AccessFault),
    /// The receive failed with this, and with it the other end.
    Receiver(Failure),
}

/// The other end of a connection, in the same machine.
pub(crate) struct AtHand<'t, P: Platform> {
    pub(crate) pair: &'t Shared<QueuePairObject<P>>,
    /// Its receives are marked as being filled, which the next [`Transport::commit`] ends.
    pub(crate) occupied: &'t mut bool,
}

/// Receives of the other end in one run of a requester, which ends with a [`Transport::commit`].
pub(crate) struct Filled {
    /// Filled, and not yet completed.
    pub(crate) completions: Batch,
    /// Those that may be filled next.
    pub(crate) ahead: Ahead,
}

impl Filled {
    pub(crate) const fn new() -> Self {
        Self { completions: Batch::new(), ahead: Ahead::new() }
    }
}

/// How the requester of a queue pair reaches the other end; see the module.
pub(crate) trait Transport<P: Platform>: Sized {
    /// A transport without another end.
    fn try_new(scheduler: &Scheduler<P>) -> Result<Self, NoMemory>;

    /// Finds the other end, if it does not have it and there is one; whether it has.
    fn connect(&mut self, pair: &QueuePairObject<P>) -> bool;

    /// Moves a piece of a Read, at most this range, from the peer's memory; how many bytes.
    fn read(
        &mut self,
        near: Near<'_, P>,
        source: RemoteBuffer,
        sink: &mut impl LocalBytes<P>,
        range: Range<u64>,
    ) -> Answer<Result<u64, Refused>>;

    /// Moves a piece of a Write, at most this range, into the peer's memory; how many bytes.
    fn write(
        &mut self,
        near: Near<'_, P>,
        source: &mut impl LocalBytes<P>,
        sink: RemoteBuffer,
        range: Range<u64>,
    ) -> Answer<Result<u64, Refused>>;

    /// The other end, where its memory is at hand in the call: plain requests are moved without the transport.
    fn at_hand(&mut self) -> Option<AtHand<'_, P>>;

    /// Finds the peer's next receive and checks that the message can go into it.
    fn begin_send(&mut self, near: Near<'_, P>, message: SendMessage, filled: &mut Filled) -> Answer<Begun>;

    /// Moves a piece of a message, at most this range, into its receive; how many bytes.
    fn send(
        &mut self,
        near: Near<'_, P>,
        message: SendMessage,
        source: &mut impl LocalBytes<P>,
        range: Range<u64>,
        filled: &mut Filled,
    ) -> Answer<Result<u64, NotSent>>;

    /// Revokes the access to one of the peer's regions or windows; `None` when it has none under the token: then the other end
    /// has failed.
    fn invalidate(&mut self, near: Near<'_, P>, token: MemoryToken) -> Answer<Option<Stamp>>;

    /// The request has been moved as a whole: the receive of a message succeeds.
    fn end_send(&mut self, pair: &Shared<QueuePairObject<P>>, message: SendMessage, filled: &mut Filled);

    /// The request is over. A receive that it had taken and not completed is cancelled where it has no queue to stay in.
    fn end_request(&mut self, pair: &Shared<QueuePairObject<P>>, filled: &mut Filled);

    /// Whether completions of the other end are gathered, and whether more may be.
    fn has_gathered(&self, filled: &Filled) -> bool;
    fn is_full(&self, filled: &Filled) -> bool;

    /// Completes the gathered receives at the other end and counts what was sent to it and received from it.
    fn commit(&mut self, pair: &Shared<QueuePairObject<P>>, filled: &mut Filled, outgoing: Traffic, incoming: Traffic);

    /// Nothing more is asked: the other end is released.
    fn release(&mut self, pair: &Shared<QueuePairObject<P>>);
}
