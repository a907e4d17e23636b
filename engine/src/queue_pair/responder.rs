//! The responder: what a requester's operations do at the other end.
//!
//! It finds the memory that a peer may access and the receive that a message goes into, and completes receives. A transport
//! calls it for one requester; the bytes themselves are the transport's.
//!
//! Rules: remote accesses are checked against this end's tokens, domain and rights; a receive is taken in the order of its queue
//! and completes once; a receive that fails takes its queue pair with it.

use alloc::vec::Vec;

use softndk_cells::{Guard, Shared, Stamp};

use crate::completion::completion_queue::{Batch, Completion};
use crate::counters::Traffic;
use crate::error::{AccessFault, Outcome};
use crate::flags::{Operation, Rights};
use crate::memory::access::Accessor;
use crate::memory::memory_window;
use crate::memory::tables::Tables;
use crate::memory::transfer::{List, Remote};
use crate::object::header::Object;
use crate::object::snapshot::ObjectKind;
use crate::platform::Platform;
use crate::queue_pair::pair::{End, QueuePairObject, state};
use crate::queue_pair::receive_queue::{self, Receive};
use crate::queue_pair::transport::{AtHand, Begun, Extra, Failure, RemoteBuffer, SendMessage};
use crate::token::{MemoryToken, Sge};

/// The other end of one requester; see the module.
pub(crate) struct Responder<P: Platform> {
    pair: Option<Shared<QueuePairObject<P>>>,
    /// The receive that the message under way goes into, and its SGEs.
    receive: Option<Receive>,
    sges: Vec<Sge>,
    /// The queue pair's receives are marked as being filled.
    occupied: bool,
}

impl<P: Platform> Responder<P> {
    /// Without another end. Its queue pair brings the place for SGEs: nothing is allocated for a connection.
    pub(crate) const fn new() -> Self {
        Self { pair: None, receive: None, sges: Vec::new(), occupied: false }
    }

    /// The queue pair at this end.
    pub(crate) fn pair(&self) -> Option<&Shared<QueuePairObject<P>>> {
        self.pair.as_ref()
    }

    /// The queue pair, unless a message is on its way into one of its receives.
    #[inline]
    pub(crate) fn at_hand(&mut self) -> Option<AtHand<'_, P>> {
        let Self { pair: Some(pair), receive: None, occupied, .. } = self else { return None };
        Some(AtHand { pair, occupied })
    }

    pub(crate) fn attach(&mut self, pair: Option<Shared<QueuePairObject<P>>>) {
        self.pair = pair;
    }

    /// The memory that a Read or Write names.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a call costs 4 of 90 ns of a small Read")]
    pub(crate) fn remote<'g>(
        &self,
        inside: Inside<'g, P>,
        buffer: RemoteBuffer,
        needed: Rights,
    ) -> Result<Remote<'g, P>, AccessFault> {
        let pair = self.pair.as_ref().ok_or(AccessFault::NotInUse)?;
        let accessor = memory(pair, inside);
        let view = accessor.remote(buffer.token, buffer.address, buffer.length, needed);
        let view = view.map_err(|fault| {
            let operation = if needed == Rights::REMOTE_READ { Operation::Read } else { Operation::Write };
            refuse_peer(pair, operation, fault)
        })?;
        Ok(Remote { accessor, view })
    }

    /// The SGEs of the receive as the target of a message.
    #[inline]
    pub(crate) fn sink<'g>(&'g self, inside: Inside<'g, P>) -> Result<List<'g, P, &'g [Sge]>, AccessFault> {
        Ok(list(self.pair.as_ref().ok_or(AccessFault::NotInUse)?, inside, &self.sges))
    }

    /// Takes the next receive and checks that the message can go into it; without one, `waiter` is scheduled when one is posted.
    pub(crate) fn begin(
        &mut self,
        inside: Inside<'_, P>,
        message: SendMessage,
        waiter: &Object<P>,
        filled: &mut Batch,
    ) -> Begun {
        let Some(pair) = &self.pair else { return Begun::NoReceive { patient: true } };
        let here = memory(pair, inside);
        let known = |token| here.fast_of_peer(token).is_ok() || here.window_of_peer(token).is_ok();
        if message.invalidates().is_some_and(|token| !known(token)) {
            pair.end();
            refuse_peer(pair, Operation::SendAndInvalidate, AccessFault::NotInvalidated);
            return Begun::UnknownToken;
        }
        let receive = if let Some(attachment) = &pair.attachment {
            receive_queue::begin_shared(pair, attachment, filled.len(), waiter, &mut self.sges)
        } else {
            let draining = pair.state() & state::DRAIN != 0;
            pair.receiving.begin(draining, filled.len(), waiter, &mut self.sges)
        };
        let Some(receive) = receive else { return Begun::NoReceive { patient: pair.attachment.is_some() } };
        let length = message.received_length();
        let fits = length <= u64::from(receive.length);
        let allowed = if length == 0 { Ok(()) } else { list(pair, inside, &self.sges).check() };
        self.receive = Some(receive);
        self.occupied = true;
        if !fits {
            let failure = Failure::of(Outcome::ReceiveTooSmall, AccessFault::ReceiveTooSmall);
            return Begun::Failed(self.fail_receive(message, failure, filled));
        }
        if let Err(fault) = allowed {
            let failure = Failure::of(Outcome::LocalAccess, fault);
            return Begun::Failed(self.fail_receive(message, failure, filled));
        }
        Begun::Found
    }

    /// The receive fails with this, and with it the queue pair.
    pub(crate) fn fail_receive(&mut self, message: SendMessage, failure: Failure, filled: &mut Batch) -> Failure {
        self.fill(message, failure.outcome, filled);
        if let Some(completion) = filled.entries().last_mut() {
            completion.fault = failure.fault;
        }
        if let Some(pair) = &self.pair {
            pair.end();
        }
        failure
    }

    /// Revokes the access to a region or window of this end; without one under the token the queue pair fails.
    pub(crate) fn invalidate(&self, inside: Inside<'_, P>, token: MemoryToken) -> Option<Stamp> {
        let pair = self.pair.as_ref()?;
        let here = memory(pair, inside);
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

    /// Gathers the completion of the receive that the message went into.
    pub(crate) fn fill(&mut self, message: SendMessage, outcome: Outcome, filled: &mut Batch) {
        let Some(receive) = self.receive.take() else { return };
        let success = outcome == Outcome::Success;
        let (operation, output) = match message.extra {
            Extra::Invalidates(token) if success => (Operation::ReceiveAndInvalidate, token.0),
            Extra::Immediate(data) if success => (Operation::ReceiveImmediate, data),
            Extra::WriteImmediate(data) if success => (Operation::ReceiveWriteImmediate, data),
            _ => (Operation::Receive, 0),
        };
        filled.push(Completion {
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
    pub(crate) fn end_request(&mut self, filled: &mut Batch) {
        if let Some(receive) = self.receive.take().filter(|receive| receive.shared) {
            filled.push(Completion {
                context: receive.context,
                outcome: Outcome::Cancelled,
                operation: Operation::Receive,
                ..Completion::default()
            });
        }
    }

    /// Completes the gathered receives and counts what this end sent and received for the requester.
    pub(crate) fn commit(&mut self, filled: &mut Batch, sent: Traffic, received: Traffic) {
        if let Some(pair) = &self.pair {
            if self.occupied {
                self.occupied = self.receive.is_some();
                receive_queue::commit(pair, filled.entries(), self.occupied);
            }
            pair.traffic_counter.count_other(sent, received);
        }
        filled.clear();
    }

    /// Nothing more is asked: a place among the senders that wait for a receive is freed. The caller drops the queue pair.
    pub(crate) fn release(&mut self) -> Option<Shared<QueuePairObject<P>>> {
        let pair = self.pair.take()?;
        if let Some(attachment) = &pair.attachment {
            attachment.leave();
        }
        Some(pair)
    }
}

/// What a context inside the epoch finds memory with.
pub(crate) struct Inside<'g, P: Platform> {
    pub(crate) tables: &'g Tables<P>,
    pub(crate) guard: &'g Guard<'g>,
}

impl<P: Platform> Clone for Inside<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for Inside<'_, P> {}

/// The front end records what this end refused its peer: no completion here says so.
#[cold]
fn refuse_peer<P: Platform>(pair: &QueuePairObject<P>, operation: Operation, fault: AccessFault) -> AccessFault {
    let object = (ObjectKind::QueuePair, pair.core.number);
    pair.core.scheduler.platform().peer_refused(object, operation, fault);
    fault
}

/// Access to the memory of a queue pair's end for its peer.
#[inline]
pub(super) fn memory<'g, P: Platform>(pair: &QueuePairObject<P>, inside: Inside<'g, P>) -> Accessor<'g, P> {
    Accessor { tables: inside.tables, guard: inside.guard, domain: pair.domain.number, pair: pair.windows.address() }
}

#[inline]
fn list<'g, P: Platform>(pair: &QueuePairObject<P>, inside: Inside<'g, P>, sges: &'g [Sge]) -> List<'g, P, &'g [Sge]> {
    List::new(memory(pair, inside), sges, Rights::LOCAL_WRITE)
}
