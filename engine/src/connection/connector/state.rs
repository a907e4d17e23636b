//! The states of a connector, each with what exists only in it, and what a service pass has to hand to the consumer.
//!
//! The states are those of `docs/connections.md`. Their data is moved, never looked into, so the machine works on any types that
//! take the places of pointers and callbacks.

use core::fmt;

use crate::error::{ConnectError, DisconnectReason};

/// What a machine moves from state to state and into its effects.
pub(super) trait MachineTypes {
    /// The connector at the other end.
    type PeerHandle: Clone;
    /// The queue pair of this end.
    type QueuePairHandle: Clone;
    /// Keeps a queue pair from being closed.
    type QueuePairHold;
    /// A request of the consumer that its callback completes.
    type RequestHandle;
    /// How the consumer learns that the connection has ended.
    type DisconnectHandle: Copy;
    /// The local endpoint in use.
    type EndpointHandle;
}

/// The queue pair of this end, and what keeps it.
pub(super) struct TiedQueuePair<T: MachineTypes> {
    pub(super) pair: T::QueuePairHandle,
    #[expect(dead_code, reason = "keeps the queue pair until it is dropped")]
    pub(super) hold: T::QueuePairHold,
}

/// A request that waits for the other side.
pub(super) struct WaitingRequest<T: MachineTypes> {
    pub(super) request: T::RequestHandle,
    /// When it stops waiting; `None` = never.
    pub(super) deadline: Option<u64>,
}

/// The states of a connector.
pub(super) enum ConnectorState<T: MachineTypes> {
    Idle,
    /// Active end: inside the call of Connect, which has not sent its request yet. Listed as connecting.
    Requesting,
    /// Active end: the request is on its way.
    Connecting {
        peer: T::PeerHandle,
        tied: TiedQueuePair<T>,
        waiting: WaitingRequest<T>,
    },
    /// Active end: accepted, not yet completed.
    Answered {
        peer: T::PeerHandle,
        tied: TiedQueuePair<T>,
    },
    /// Passive end: not yet answered.
    Arrived {
        peer: T::PeerHandle,
    },
    /// Passive end: accepted, waits for the active end to complete.
    Accepting {
        peer: T::PeerHandle,
        tied: TiedQueuePair<T>,
        waiting: WaitingRequest<T>,
        disconnect: Option<T::DisconnectHandle>,
    },
    /// `noticed`: the peer has disconnected and waits for this side.
    Connected {
        peer: T::PeerHandle,
        tied: TiedQueuePair<T>,
        disconnect: Option<T::DisconnectHandle>,
        noticed: bool,
    },
    /// This side's Disconnect waits: for the peer's notice, then (`noticed`) for the drain of the queue pair.
    Disconnecting {
        peer: T::PeerHandle,
        tied: TiedQueuePair<T>,
        waiting: WaitingRequest<T>,
        noticed: bool,
    },
    Ended(EndedState<T>),
}

/// How a connector stands after the end.
pub(super) enum EndedState<T: MachineTypes> {
    /// It was never connected; with the error of the calls that would have gone on with the attempt.
    Failed(ConnectError),
    /// The connection ended without this side's Disconnect, which may still come.
    Broken(TiedQueuePair<T>),
    /// Disconnect waits for the drain of the queue pair, which is gone from here when the connector is closed.
    Draining { tied: Option<TiedQueuePair<T>>, request: T::RequestHandle, result: Result<(), ConnectError> },
    /// Disconnected, or closed after a connection.
    Over(Option<TiedQueuePair<T>>),
}

/// Names without data, for listings and tests.
impl<T: MachineTypes> fmt::Display for ConnectorState<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Idle => "Idle",
            Self::Requesting => "Requesting",
            Self::Connecting { .. } => "Connecting",
            Self::Answered { .. } => "Answered",
            Self::Arrived { .. } => "Arrived",
            Self::Accepting { .. } => "Accepting",
            Self::Connected { .. } => "Connected",
            Self::Disconnecting { .. } => "Disconnecting",
            Self::Ended(_) => "Ended",
        })
    }
}

impl<T: MachineTypes> ConnectorState<T> {
    /// Whether the state has nothing that is moved or dropped.
    pub(super) fn is_bare(&self) -> bool {
        matches!(self, Self::Idle | Self::Requesting | Self::Ended(EndedState::Failed(_)))
    }

    pub(super) fn peer(&self) -> Option<&T::PeerHandle> {
        match self {
            Self::Connecting { peer, .. }
            | Self::Answered { peer, .. }
            | Self::Arrived { peer, .. }
            | Self::Accepting { peer, .. }
            | Self::Connected { peer, .. }
            | Self::Disconnecting { peer, .. } => Some(peer),
            Self::Idle | Self::Requesting | Self::Ended(_) => None,
        }
    }

    /// The queue pair of an attempt or connection.
    pub(super) fn queue_pair(&self) -> Option<&T::QueuePairHandle> {
        match self {
            Self::Connecting { tied, .. }
            | Self::Answered { tied, .. }
            | Self::Accepting { tied, .. }
            | Self::Connected { tied, .. }
            | Self::Disconnecting { tied, .. } => Some(&tied.pair),
            Self::Idle | Self::Requesting | Self::Arrived { .. } | Self::Ended(_) => None,
        }
    }

    /// The queue pair of a connection whose end has been reported.
    pub(super) fn ending_queue_pair(&self) -> Option<&T::QueuePairHandle> {
        match self {
            Self::Ended(EndedState::Broken(tied)) => Some(&tied.pair),
            _ => self.queue_pair(),
        }
    }

    /// When the wait for the other side ends. A Disconnect that the peer has answered does not wait for it.
    pub(super) fn deadline(&self) -> Option<u64> {
        match self {
            Self::Connecting { waiting, .. }
            | Self::Accepting { waiting, .. }
            | Self::Disconnecting { waiting, noticed: false, .. } => waiting.deadline,
            _ => None,
        }
    }
}

/// The end of a request, for its callback.
pub(super) struct DueCompletion<T: MachineTypes> {
    pub(super) request: T::RequestHandle,
    pub(super) result: Result<(), ConnectError>,
    /// Its consumer may use queue pair and address again, so it is handed out after they are free.
    held: bool,
}

/// What a service pass has to hand to the consumer.
pub(super) struct DueEvents<T: MachineTypes> {
    /// An arrived connector that no service pass has handed out yet.
    pub(super) arrival: bool,
    completion: Option<DueCompletion<T>>,
    /// Completions that processors are handing out now.
    completing: u32,
    /// The disconnect event, with its reason.
    pub(super) event: Option<(T::DisconnectHandle, DisconnectReason)>,
}

impl<T: MachineTypes> DueEvents<T> {
    pub(super) const fn none() -> Self {
        Self { arrival: false, completion: None, completing: 0, event: None }
    }

    pub(super) fn is_any(&self) -> bool {
        self.arrival || self.completion.is_some() || self.event.is_some()
    }

    /// Whether a request has ended and its consumer has not got that yet.
    pub(super) fn has_completion(&self) -> bool {
        self.completion.is_some()
    }

    /// The request has ended.
    pub(super) fn complete(&mut self, request: T::RequestHandle, result: Result<(), ConnectError>) {
        debug_assert!(self.completion.is_none(), "a connector has one request at a time");
        self.completion = Some(DueCompletion { request, result, held: false });
    }

    /// The request has ended; it is handed out after [`Self::release`].
    pub(super) fn complete_later(&mut self, request: T::RequestHandle, result: Result<(), ConnectError>) {
        self.complete(request, result);
        if let Some(completion) = &mut self.completion {
            completion.held = true;
        }
    }

    pub(super) fn release(&mut self) {
        if let Some(completion) = &mut self.completion {
            completion.held = false;
        }
    }

    /// The end of a request for its callback, until [`Self::completion_returned`].
    pub(super) fn take_completion(&mut self) -> Option<DueCompletion<T>> {
        let completion = self.completion.take_if(|completion| !completion.held)?;
        self.completing += 1;
        Some(completion)
    }

    pub(super) fn completion_returned(&mut self) {
        self.completing -= 1;
    }

    /// The disconnect event. While another processor is inside a completion that comes before it, there is none; that processor
    /// looks again afterwards.
    pub(super) fn take_event(&mut self) -> Option<(T::DisconnectHandle, DisconnectReason)> {
        self.event.take_if(|_| self.completing == 0)
    }
}
