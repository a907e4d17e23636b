//! The states of a connector, each with what exists only in it.
//!
//! The data is moved, never looked into, so the machine works on any types that take the places of pointers and requests. Whether
//! the engine's connector still connects, accepts or rejects is for the engine to say (`docs/connections.md`). The states here say
//! what this driver has to complete, release and close.

use core::fmt;

/// What a machine moves from state to state and into its effects.
pub trait MachineTypes {
    /// The engine's connector.
    type Engine: Clone;
    /// The queue pair of an attempt or connection.
    type QueuePair: Clone;
    /// The bound address.
    type Endpoint: Clone;
    /// A request that pends.
    type Request: PendedRequest;
}

/// A request that pends until it is completed.
pub trait PendedRequest {
    /// Whether it was cancelled before the machine got it. A cancellation that comes later finds it in the state.
    fn is_cancelled(&self) -> bool;
}

/// The states of a connector. `number` is that of the request that began the attempt, or of the Disconnect.
pub enum ConnectorState<T: MachineTypes> {
    /// No attempt. `engine`: of an attempt that has failed, with which the next Connect goes on.
    Idle {
        engine: Option<T::Engine>,
    },
    /// Active end: inside the call of Connect, which makes the engine's connector.
    Requesting {
        number: u64,
        pair: T::QueuePair,
        request: T::Request,
    },
    /// Active end: Connect waits for the answer.
    Connecting {
        number: u64,
        pair: T::QueuePair,
        request: T::Request,
        engine: T::Engine,
    },
    /// Active end: accepted, not yet completed.
    Answered {
        number: u64,
        pair: T::QueuePair,
        engine: T::Engine,
    },
    /// Passive end: a request of a listener waits for a connection for it.
    Reserved,
    /// Passive end: not yet accepted. A connection that is over stays here, and the engine refuses what is asked of it.
    Arrived {
        engine: T::Engine,
    },
    /// Passive end: Accept waits for the active end to complete.
    Accepting {
        number: u64,
        pair: T::QueuePair,
        request: T::Request,
        engine: T::Engine,
    },
    Connected {
        number: u64,
        pair: T::QueuePair,
        engine: T::Engine,
    },
    /// The connection has ended without this side's Disconnect, which may still come.
    PeerGone {
        pair: T::QueuePair,
        engine: T::Engine,
    },
    /// This side's Disconnect waits.
    Disconnecting {
        number: u64,
        pair: T::QueuePair,
        request: T::Request,
        engine: T::Engine,
    },
    Disconnected {
        pair: T::QueuePair,
        engine: T::Engine,
    },
    Closed,
}

/// What a state consists of.
pub struct StateParts<T: MachineTypes> {
    pub engine: Option<T::Engine>,
    pub pair: Option<T::QueuePair>,
    pub request: Option<T::Request>,
}

/// Names without data, for messages and tests.
impl<T: MachineTypes> fmt::Display for ConnectorState<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Idle { .. } => "Idle",
            Self::Requesting { .. } => "Requesting",
            Self::Connecting { .. } => "Connecting",
            Self::Answered { .. } => "Answered",
            Self::Reserved => "Reserved",
            Self::Arrived { .. } => "Arrived",
            Self::Accepting { .. } => "Accepting",
            Self::Connected { .. } => "Connected",
            Self::PeerGone { .. } => "PeerGone",
            Self::Disconnecting { .. } => "Disconnecting",
            Self::Disconnected { .. } => "Disconnected",
            Self::Closed => "Closed",
        })
    }
}

impl<T: MachineTypes> ConnectorState<T> {
    /// The engine's connector.
    pub fn engine(&self) -> Option<&T::Engine> {
        match self {
            Self::Idle { engine } => engine.as_ref(),
            Self::Connecting { engine, .. }
            | Self::Answered { engine, .. }
            | Self::Arrived { engine }
            | Self::Accepting { engine, .. }
            | Self::Connected { engine, .. }
            | Self::PeerGone { engine, .. }
            | Self::Disconnecting { engine, .. }
            | Self::Disconnected { engine, .. } => Some(engine),
            Self::Requesting { .. } | Self::Reserved | Self::Closed => None,
        }
    }

    /// The queue pair of an attempt or connection, also of one that has ended.
    pub fn queue_pair(&self) -> Option<&T::QueuePair> {
        match self {
            Self::Requesting { pair, .. }
            | Self::Connecting { pair, .. }
            | Self::Answered { pair, .. }
            | Self::Accepting { pair, .. }
            | Self::Connected { pair, .. }
            | Self::PeerGone { pair, .. }
            | Self::Disconnecting { pair, .. }
            | Self::Disconnected { pair, .. } => Some(pair),
            Self::Idle { .. } | Self::Reserved | Self::Arrived { .. } | Self::Closed => None,
        }
    }

    /// The request that waits: Connect, Accept or Disconnect.
    pub fn request(&self) -> Option<&T::Request> {
        match self {
            Self::Requesting { request, .. }
            | Self::Connecting { request, .. }
            | Self::Accepting { request, .. }
            | Self::Disconnecting { request, .. } => Some(request),
            _ => None,
        }
    }

    pub fn into_parts(self) -> StateParts<T> {
        let (engine, pair, request) = match self {
            Self::Idle { engine } => (engine, None, None),
            Self::Reserved | Self::Closed => (None, None, None),
            Self::Arrived { engine } => (Some(engine), None, None),
            Self::Requesting { pair, request, .. } => (None, Some(pair), Some(request)),
            Self::Answered { pair, engine, .. }
            | Self::Connected { pair, engine, .. }
            | Self::PeerGone { pair, engine }
            | Self::Disconnected { pair, engine } => (Some(engine), Some(pair), None),
            Self::Connecting { pair, request, engine, .. }
            | Self::Accepting { pair, request, engine, .. }
            | Self::Disconnecting { pair, request, engine, .. } => (Some(engine), Some(pair), Some(request)),
        };
        StateParts { engine, pair, request }
    }
}
