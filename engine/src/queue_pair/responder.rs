//! The responder: what the peer's requests do to a queue pair.
//!
//! It finds the memory that the peer may access and the receive that a message goes into, and completes receives. The one
//! requester at the other end calls it when its peer is at hand, and the messages of a far one do; they move the bytes.
//!
//! Rules: remote accesses are checked against this end's tokens, domain and rights; a receive is taken in the order of its queue
//! and completes once; a receive that fails takes its queue pair with it.

use alloc::vec::Vec;

use softndk_cells::{Guard, Shared, Stamp};

use crate::completion::completion_queue::{Batch, Completion};
use crate::counters::Traffic;
use crate::error::{AccessFault, Outcome};
use crate::flags::{Operation, Rights};
use crate::memory::access::{Access, Accessor};
use crate::memory::memory_window;
use crate::memory::tables::Tables;
use crate::memory::transfer::{List, Remote};
use crate::object::header::Object;
use crate::object::snapshot::ObjectKind;
use crate::platform::Platform;
use crate::queue_pair::message::{Begun, Extra, Failure, RemoteBuffer, SendMessage};
use crate::queue_pair::pair::{End, QueuePairObject, state};
use crate::queue_pair::receive_queue::{self, PrefetchedReceives};
use crate::queue_pair::request::Receive;
use crate::token::{MemoryToken, Sge};

/// What one context delivers to a queue pair in one run, which ends with [`Delivery::commit`].
///
/// Between two runs of a long message its receive is with the queue pair that it belongs to.
pub(crate) struct Delivery {
    /// The receive that the message under way goes into, and its SGEs.
    receive: Option<Receive>,
    sges: Vec<Sge>,
    /// The queue pair's receives are marked as being filled.
    pub(super) occupied: bool,
    /// Receives that have been filled and not yet completed.
    pub(super) filled: Batch,
    /// Those that may be filled next.
    pub(super) prefetched: PrefetchedReceives,
}

impl Delivery {
    /// Without a receive. The queue pair has the place for SGEs: nothing is allocated.
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            receive: None,
            sges: Vec::new(),
            occupied: false,
            filled: Batch::new(),
            prefetched: PrefetchedReceives::new(),
        }
    }

    /// Goes on with the message that the last run has left half delivered, if there is one.
    pub(crate) fn resume<P: Platform>(&mut self, pair: &QueuePairObject<P>) {
        self.receive = pair.receiving.resume(&mut self.sges);
        self.occupied = self.receive.is_some();
    }

    /// Whether so many bytes go into the receive.
    pub(crate) fn fits(&self, length: u64) -> bool {
        self.receive.as_ref().is_some_and(|receive| length <= u64::from(receive.length))
    }

    /// The SGEs of the receive as the target of a message.
    #[inline]
    pub(crate) fn sink<'g, P: Platform>(
        &'g self,
        pair: &'g QueuePairObject<P>,
        epoch: EpochContext<'g, P>,
    ) -> List<'g, P, &'g [Sge]> {
        list(pair, epoch, &self.sges)
    }

    /// Takes the next receive and checks that the message can go into it; without one, `waiter` is scheduled when one is posted.
    pub(crate) fn begin<P: Platform>(
        &mut self,
        pair: &Shared<QueuePairObject<P>>,
        epoch: EpochContext<'_, P>,
        message: SendMessage,
        waiter: &Object<P>,
    ) -> Begun {
        let here = memory(pair, epoch);
        let known = |token| here.fast_of_peer(token).is_ok() || here.window_of_peer(token).is_ok();
        if message.invalidates().is_some_and(|token| !known(token)) {
            pair.end();
            refuse_peer(pair, Operation::SendAndInvalidate, AccessFault::NotInvalidated);
            return Begun::UnknownToken;
        }
        let receive = if let Some(attachment) = &pair.attachment {
            receive_queue::begin_shared(pair, attachment, self.filled.len(), waiter, &mut self.sges)
        } else {
            let draining = pair.state() & state::DRAIN != 0;
            pair.receiving.begin(draining, self.filled.len(), waiter, &mut self.sges)
        };
        let Some(receive) = receive else { return Begun::NoReceive { unlimited: pair.attachment.is_some() } };
        let length = message.received_length();
        let fits = length <= u64::from(receive.length);
        let allowed = if length == 0 { Ok(()) } else { list(pair, epoch, &self.sges).check() };
        self.receive = Some(receive);
        self.occupied = true;
        if !fits {
            let failure = Failure::of(Outcome::ReceiveTooSmall, AccessFault::ReceiveTooSmall);
            return Begun::Failed(self.fail_receive(pair, message, failure));
        }
        if let Err(fault) = allowed {
            return Begun::Failed(self.fail_receive(pair, message, Failure::of(Outcome::LocalAccess, fault)));
        }
        Begun::Found
    }

    /// The receive fails with this, and with it the queue pair.
    pub(crate) fn fail_receive<P: Platform>(
        &mut self,
        pair: &Shared<QueuePairObject<P>>,
        message: SendMessage,
        failure: Failure,
    ) -> Failure {
        self.fill(message, failure.outcome);
        if let Some(completion) = self.filled.entries().last_mut() {
            failure.describe(completion);
        }
        pair.end();
        failure
    }

    /// Gathers the completion of the receive that the message went into.
    pub(crate) fn fill(&mut self, message: SendMessage, outcome: Outcome) {
        let Some(receive) = self.receive.take() else { return };
        let success = outcome == Outcome::Success;
        let (operation, output) = match message.extra {
            Extra::Invalidates(token) if success => (Operation::ReceiveAndInvalidate, token.0),
            Extra::Immediate(data) if success => (Operation::ReceiveImmediate, data),
            Extra::WriteImmediate(data) if success => (Operation::ReceiveWriteImmediate, data),
            _ => (Operation::Receive, 0),
        };
        self.filled.push(Completion {
            context: receive.context,
            outcome,
            operation,
            solicited: message.solicited,
            bytes: if success { message.length as u32 } else { 0 },
            output,
            ..Completion::default()
        });
    }

    /// The request is over. A receive of the queue pair's own queue is still there; one out of a shared queue is nowhere else.
    #[inline]
    pub(crate) fn end_request(&mut self) {
        if let Some(receive) = self.receive.take().filter(|receive| receive.shared) {
            self.filled.push(Completion {
                context: receive.context,
                outcome: Outcome::Cancelled,
                operation: Operation::Receive,
                ..Completion::default()
            });
        }
    }

    /// Completes the filled receives and counts what the queue pair sent and received for the requester.
    #[inline]
    pub(crate) fn commit<P: Platform>(
        &mut self,
        pair: &Shared<QueuePairObject<P>>,
        (sent, received): (Traffic, Traffic),
    ) {
        if self.occupied || self.sges.capacity() > 0 {
            self.occupied = false;
            receive_queue::commit(pair, self.filled.entries(), self.receive.take(), &mut self.sges);
        }
        pair.traffic_counter.count_other(sent, received);
        self.filled.clear();
        self.prefetched.clear();
    }
}

/// The memory that a Read or Write of the peer names.
#[inline(always)]
#[expect(clippy::inline_always, reason = "measured: a call costs 4 of 90 ns of a small Read")]
pub(crate) fn remote<'g, P: Platform>(
    pair: &QueuePairObject<P>,
    epoch: EpochContext<'g, P>,
    buffer: RemoteBuffer,
    needed: Rights,
) -> Result<Remote<'g, P>, AccessFault> {
    let accessor = memory(pair, epoch);
    let view = accessor.remote(&Access { token: buffer.token, address: buffer.address, length: buffer.length, needed });
    let view = view.map_err(|fault| {
        let operation = if needed == Rights::REMOTE_READ { Operation::Read } else { Operation::Write };
        refuse_peer(pair, operation, fault)
    })?;
    Ok(Remote { accessor, view })
}

/// Revokes the access to a region or window for the peer; without one under the token the queue pair fails.
pub(crate) fn invalidate<P: Platform>(
    pair: &Shared<QueuePairObject<P>>,
    epoch: EpochContext<'_, P>,
    token: MemoryToken,
) -> Option<Stamp> {
    let here = memory(pair, epoch);
    let stamp = if let Ok(fast) = here.fast_of_peer(token) {
        fast.buffers.withdraw()
    } else {
        let window = here.window_of_peer(token).ok();
        window.and_then(|window| memory_window::unbind(window, |bound| bound.is(&pair.windows)))
    };
    if stamp.is_none() {
        pair.end();
        refuse_peer(pair, Operation::SendAndInvalidate, AccessFault::NotInvalidated);
    }
    stamp
}

/// Nothing more is asked of the queue pair: a place among the senders that wait for a receive is freed.
pub(crate) fn release<P: Platform>(pair: &QueuePairObject<P>) {
    if let Some(attachment) = &pair.attachment {
        attachment.leave();
    }
}

/// What a context inside the epoch finds memory with.
pub(crate) struct EpochContext<'g, P: Platform> {
    pub(crate) tables: &'g Tables<P>,
    pub(crate) guard: &'g Guard<'g>,
}

impl<P: Platform> Clone for EpochContext<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for EpochContext<'_, P> {}

/// The front end records what this end refused its peer: no completion here says so.
#[cold]
fn refuse_peer<P: Platform>(pair: &QueuePairObject<P>, operation: Operation, fault: AccessFault) -> AccessFault {
    let object = (ObjectKind::QueuePair, pair.core.number);
    pair.core.scheduler.platform().peer_refused(object, operation, fault);
    fault
}

/// Access to the memory of a queue pair's end for its peer.
#[inline]
pub(super) fn memory<'g, P: Platform>(pair: &QueuePairObject<P>, epoch: EpochContext<'g, P>) -> Accessor<'g, P> {
    Accessor { tables: epoch.tables, guard: epoch.guard, domain: pair.domain.number, pair: pair.windows.address() }
}

#[inline]
fn list<'g, P: Platform>(
    pair: &QueuePairObject<P>,
    epoch: EpochContext<'g, P>,
    sges: &'g [Sge],
) -> List<'g, P, &'g [Sge]> {
    List::new(memory(pair, epoch), sges, Rights::LOCAL_WRITE)
}
