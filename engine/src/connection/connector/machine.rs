//! The machine of a connector: a state, an event, the next state and its effects.
//!
//! Events are the calls of the consumer, the messages of the peer, the time-out, what the queue pair reports, and the end of the
//! address. The caller holds the connector's lock; nothing here takes a lock or calls out. `effects` carries out what is left to
//! do. `xtask/lists/connector-machine.md` has the tables, and the tests here compare the machine with them.
//!
//! Rules (NDKPI: NDK_FN_CONNECT, NDK_FN_ACCEPT, NDK_FN_COMPLETE_CONNECT, NDK_FN_REJECT, NDK_FN_DISCONNECT): Connect completes
//! at Accept, Accept completes at CompleteConnect; a disconnect waits for the peer's answer, then flushes, then completes; the
//! peer gets at most one disconnect event, and none for what it ended itself; an incoming end does not flush receives (in the
//! NDK column).

mod attempt;
mod end;
#[cfg(test)]
mod tests;

use core::mem;
use core::net::SocketAddr;

use super::effects::ConnectorEffects;
use super::state::{ConnectorState, DueEvents, EndedState, MachineTypes, TiedQueuePair, WaitingRequest};
use crate::change::ConnectionCause;
use crate::connection::message::{Message, ReadLimits};
use crate::error::{ConnectError, DisconnectReason};
use crate::private_data::PrivateData;
use crate::semantics::Semantics;

/// What happens to a connector.
pub(super) enum ConnectorEvent<T: MachineTypes> {
    /// Connect begins.
    Connect,
    /// Connect has sent its request.
    Requested {
        peer: T::PeerHandle,
        tied: TiedQueuePair<T>,
        waiting: WaitingRequest<T>,
    },
    /// Connect fails.
    ConnectFailed,
    CompleteConnect {
        disconnect: Option<T::DisconnectHandle>,
    },
    Accept(AcceptedRequest<T>),
    Reject {
        data: PrivateData,
    },
    Disconnect {
        waiting: WaitingRequest<T>,
    },
    Close,
    /// Of the present peer, which names itself by a handle of now.
    Message {
        from: T::PeerHandle,
        message: Message,
    },
    /// The deadline of the state has passed.
    TimedOut,
    /// A request of the queue pair has failed.
    QueuePairFailed,
    /// The queue pair has completed everything after its end.
    QueuePairDrained,
    /// The local address or the adapter has gone: the reasons for this side and for the other.
    AddressGone {
        here: DisconnectReason,
        there: DisconnectReason,
    },
}

impl<T: MachineTypes> ConnectorEvent<T> {
    /// What the event is to an attempt or a connection that it ends.
    pub(super) const fn cause(&self) -> ConnectionCause {
        match self {
            Self::Disconnect { .. } | Self::QueuePairDrained => ConnectionCause::Disconnected,
            Self::Close => ConnectionCause::Closed,
            Self::Reject { .. } => ConnectionCause::Rejected,
            Self::QueuePairFailed => ConnectionCause::RequestFailed,
            Self::TimedOut => ConnectionCause::TimedOut,
            Self::AddressGone { here, .. } => ConnectionCause::Reason(*here),
            Self::Message { message: Message::Rejected { .. }, .. } => ConnectionCause::PeerRejected,
            Self::Message { message: Message::Refused { error }, .. } => ConnectionCause::Refused(*error),
            Self::Message { message: Message::Abandoned, .. } => ConnectionCause::PeerGaveUp,
            Self::Message { message: Message::Notice, .. } => ConnectionCause::Reason(DisconnectReason::Disconnected),
            Self::Message { message: Message::Abort { reason }, .. } => ConnectionCause::Reason(*reason),
            // These end nothing.
            Self::Connect
            | Self::Requested { .. }
            | Self::ConnectFailed
            | Self::CompleteConnect { .. }
            | Self::Accept(_)
            | Self::Message { message: Message::Accepted { .. } | Message::Ready, .. } => {
                ConnectionCause::Call(ConnectError::InvalidState)
            }
        }
    }
}

/// What Accept brings.
pub(super) struct AcceptedRequest<T: MachineTypes> {
    pub(super) tied: TiedQueuePair<T>,
    pub(super) limits: ReadLimits,
    pub(super) data: PrivateData,
    pub(super) disconnect: Option<T::DisconnectHandle>,
    pub(super) waiting: WaitingRequest<T>,
}

/// What the machine obeys.
#[derive(Clone, Copy)]
pub(super) struct ConnectorRules {
    pub(super) semantics: Semantics,
    /// Bytes of private data in an answer.
    pub(super) callee_data: u32,
}

/// The machine of a connector. Beside the state is what outlives it.
pub(super) struct ConnectorMachine<T: MachineTypes> {
    pub(super) state: ConnectorState<T>,
    pub(super) due: DueEvents<T>,
    pub(super) endpoint: Option<T::EndpointHandle>,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer_address: Option<SocketAddr>,
    pub(super) limits: ReadLimits,
    /// What the peer sent, and how much it could have sent.
    pub(super) data: Option<(PrivateData, u32)>,
    pub(super) rules: ConnectorRules,
}

impl<T: MachineTypes> ConnectorMachine<T> {
    pub(super) const fn new(state: ConnectorState<T>, rules: ConnectorRules) -> Self {
        Self {
            state,
            due: DueEvents::none(),
            endpoint: None,
            local: None,
            peer_address: None,
            limits: ReadLimits { inbound: 0, outbound: 0 },
            data: None,
            rules,
        }
    }

    /// The next state and what is left to do. Each event has a frame of its own: inlined here, they would add up to a large one.
    #[inline(never)]
    pub(super) fn on(&mut self, event: ConnectorEvent<T>) -> ConnectorEffects<T> {
        match event {
            ConnectorEvent::Connect => self.on_connect(),
            ConnectorEvent::Requested { peer, tied, waiting } => self.on_requested(peer, tied, waiting),
            ConnectorEvent::ConnectFailed => self.on_connect_failed(),
            ConnectorEvent::CompleteConnect { disconnect } => self.on_complete_connect(disconnect),
            ConnectorEvent::Accept(accept) => self.on_accept(accept),
            ConnectorEvent::Reject { data } => self.on_reject(data),
            ConnectorEvent::Disconnect { waiting } => self.on_disconnect(waiting),
            ConnectorEvent::Close => self.on_close(),
            ConnectorEvent::Message { from, message } => self.on_message(from, message),
            ConnectorEvent::TimedOut => self.on_timed_out(),
            ConnectorEvent::QueuePairFailed => self.on_queue_pair_failed(),
            ConnectorEvent::QueuePairDrained => self.on_queue_pair_drained(),
            ConnectorEvent::AddressGone { here, there } => self.on_address_gone(here, there),
        }
    }

    fn on_message(&mut self, from: T::PeerHandle, message: Message) -> ConnectorEffects<T> {
        let effects = match message {
            Message::Accepted { limits, data } => return self.on_accepted(from, limits, data),
            Message::Rejected { data } => self.on_rejected(data),
            Message::Refused { error } => self.on_refused(error),
            Message::Ready => self.on_ready(),
            Message::Abandoned => self.on_abandoned(),
            Message::Notice => self.on_notice(),
            Message::Abort { reason } => self.on_abort(reason),
        };
        ConnectorEffects { sender: Some(from), ..effects }
    }

    /// Takes the state out, until [`Self::put`].
    fn take(&mut self) -> ConnectorState<T> {
        mem::replace(&mut self.state, ConnectorState::Idle)
    }

    /// Puts the next state in the place of one without data; nothing is dropped under the lock.
    fn put(&mut self, state: ConnectorState<T>) {
        debug_assert!(self.state.is_bare(), "{} has data", self.state);
        mem::forget(mem::replace(&mut self.state, state));
    }

    /// The error of a call that does not fit the state.
    fn refusal(&self) -> ConnectError {
        match self.state {
            ConnectorState::Ended(EndedState::Failed(error)) => error,
            _ => ConnectError::InvalidState,
        }
    }

    /// Whether the connector is over and has no queue pair that could report to it: it is closed.
    pub(super) fn is_untied(&self) -> bool {
        matches!(
            self.state,
            ConnectorState::Ended(
                EndedState::Failed(_) | EndedState::Over(None) | EndedState::Draining { tied: None, .. }
            )
        )
    }
}
