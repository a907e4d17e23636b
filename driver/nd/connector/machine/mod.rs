//! The machine of a connector: a state, an event, the next state and its effects.
//!
//! Events are the calls of the process, the arrivals of a listener, the ends that the engine reports, and cancellations. The caller
//! holds the connector's lock; nothing here takes a lock, calls out or drops what it was given. `xtask/lists/nd-connector-machine.md` has the
//! tables, and `tests/networkdirect/tests/connector_machine` compares the machine with them.
//!
//! Rules: an event that comes late has the number of its attempt, and one of an older attempt changes nothing; what a refused or
//! late event brings goes back with its effects; a request that a state has lost is in the effects.

mod attempt;
mod disconnect;

use core::mem;

use ndkpi_sys::nt::{
    NTSTATUS, STATUS_ADDRESS_ALREADY_ASSOCIATED, STATUS_ADDRESS_NOT_ASSOCIATED, STATUS_CANCELLED,
    STATUS_CONNECTION_ACTIVE, STATUS_CONNECTION_DISCONNECTED, STATUS_CONNECTION_INVALID, STATUS_INVALID_DEVICE_STATE,
    STATUS_SUCCESS,
};

use super::{
    effects::ConnectorEffects,
    state::{ConnectorState, MachineTypes},
};

/// What happens to a connector.
pub enum ConnectorEvent<T: MachineTypes> {
    /// Bind has reserved an address.
    Bind {
        endpoint: T::Endpoint,
    },
    /// A request of a listener waits for a connection for it.
    Reserve,
    /// That request has ended without one.
    Unreserve,
    /// A connection for it.
    Arrive {
        engine: T::Engine,
    },
    Connect(AttemptRequest<T>),
    /// The engine's connector of a Connect has been made.
    EngineMade {
        number: u64,
        engine: T::Engine,
    },
    Accept(AttemptRequest<T>),
    /// The engine has done what a request asked for.
    Succeeded {
        number: u64,
    },
    /// The engine has refused a request, or failed to do it.
    Failed {
        number: u64,
        status: NTSTATUS,
    },
    CompleteConnect,
    /// The engine has refused CompleteConnect.
    CompleteConnectFailed {
        number: u64,
    },
    Reject,
    /// The engine has rejected.
    Rejected {
        number: u64,
    },
    /// `None`: there was no memory for a request that pends.
    Disconnect {
        number: u64,
        request: Option<T::Request>,
    },
    /// The connection has ended, and not by this side.
    PeerEnded {
        number: u64,
    },
    /// Memory that the peer may access is about to go.
    MemoryLeaves,
    /// The request that waits is cancelled.
    Cancel,
    /// What waits ends with this.
    Close {
        status: NTSTATUS,
    },
}

/// What Connect and Accept bring.
pub struct AttemptRequest<T: MachineTypes> {
    pub number: u64,
    pub pair: T::QueuePair,
    pub request: T::Request,
}

/// The machine of a connector. Beside the state is what outlives it.
pub struct ConnectorMachine<T: MachineTypes> {
    state: ConnectorState<T>,
    endpoint: Option<T::Endpoint>,
    /// Numbers given to requests so far.
    numbers: u64,
}

impl<T: MachineTypes> ConnectorMachine<T> {
    pub const fn new(state: ConnectorState<T>, endpoint: Option<T::Endpoint>) -> Self {
        Self { state, endpoint, numbers: 0 }
    }

    /// The next state and what is left to do. Each event has a frame of its own: inlined here, they would add up to a large one.
    #[inline(never)]
    pub fn on(&mut self, event: ConnectorEvent<T>) -> ConnectorEffects<T> {
        match event {
            ConnectorEvent::Bind { endpoint } => self.on_bind(endpoint),
            ConnectorEvent::Reserve => self.on_reserve(),
            ConnectorEvent::Unreserve => self.on_unreserve(),
            ConnectorEvent::Arrive { engine } => self.on_arrive(engine),
            ConnectorEvent::Connect(request) => self.on_connect(request),
            ConnectorEvent::EngineMade { number, engine } => self.on_engine_made(number, engine),
            ConnectorEvent::Accept(request) => self.on_accept(request),
            ConnectorEvent::Succeeded { number } => self.on_succeeded(number),
            ConnectorEvent::Failed { number, status } => self.on_failed(number, status),
            ConnectorEvent::CompleteConnect => self.on_complete_connect(),
            ConnectorEvent::CompleteConnectFailed { number } => self.on_complete_connect_failed(number),
            ConnectorEvent::Reject => self.on_reject(),
            ConnectorEvent::Rejected { number } => self.on_rejected(number),
            ConnectorEvent::Disconnect { number, request } => self.on_disconnect(number, request),
            ConnectorEvent::PeerEnded { number } => self.on_peer_ended(number),
            ConnectorEvent::MemoryLeaves => self.on_memory_leaves(),
            ConnectorEvent::Cancel => self.on_cancel(),
            ConnectorEvent::Close { status } => self.on_close(status),
        }
    }

    /// The number of the next request. The first is 1.
    pub fn next_number(&mut self) -> u64 {
        self.numbers = self.numbers.wrapping_add(1);
        self.numbers
    }

    pub fn state(&self) -> &ConnectorState<T> {
        &self.state
    }

    pub fn endpoint(&self) -> Option<&T::Endpoint> {
        self.endpoint.as_ref()
    }

    pub fn is_reserved(&self) -> bool {
        matches!(self.state, ConnectorState::Reserved)
    }

    /// Whether Bind finds neither an address nor what would have one.
    pub fn may_bind(&self) -> Result<(), NTSTATUS> {
        match (&self.state, &self.endpoint) {
            (ConnectorState::Idle { engine: None }, None) => Ok(()),
            _ => Err(STATUS_ADDRESS_ALREADY_ASSOCIATED),
        }
    }

    /// From where a Connect would connect now.
    pub fn may_connect(&self) -> Result<&T::Endpoint, NTSTATUS> {
        match &self.state {
            ConnectorState::Idle { .. } => self.endpoint.as_ref().ok_or(STATUS_ADDRESS_NOT_ASSOCIATED),
            ConnectorState::Disconnecting { .. } | ConnectorState::Disconnected { .. } => {
                Err(STATUS_INVALID_DEVICE_STATE)
            }
            ConnectorState::Closed => Err(STATUS_CANCELLED),
            _ => Err(STATUS_CONNECTION_ACTIVE),
        }
    }

    /// Whether there is a connection that a Disconnect would end, or whose end it would acknowledge.
    pub fn may_disconnect(&self) -> Result<(), NTSTATUS> {
        match &self.state {
            ConnectorState::Connected { .. } | ConnectorState::PeerGone { .. } => Ok(()),
            ConnectorState::Disconnecting { .. } | ConnectorState::Disconnected { .. } => {
                Err(STATUS_INVALID_DEVICE_STATE)
            }
            _ => Err(STATUS_CONNECTION_INVALID),
        }
    }

    /// With which a NotifyDisconnect completes now; `None`: it waits for the end, also while an attempt is under way.
    pub fn end_of_connection(&self) -> Result<Option<NTSTATUS>, NTSTATUS> {
        match &self.state {
            ConnectorState::Requesting { .. }
            | ConnectorState::Connecting { .. }
            | ConnectorState::Answered { .. }
            | ConnectorState::Accepting { .. }
            | ConnectorState::Connected { .. } => Ok(None),
            ConnectorState::PeerGone { .. } => Ok(Some(STATUS_SUCCESS)),
            ConnectorState::Disconnecting { .. } | ConnectorState::Disconnected { .. } => {
                Ok(Some(STATUS_CONNECTION_DISCONNECTED))
            }
            ConnectorState::Idle { .. } | ConnectorState::Reserved | ConnectorState::Arrived { .. } => {
                Err(STATUS_CONNECTION_INVALID)
            }
            ConnectorState::Closed => Err(STATUS_CANCELLED),
        }
    }

    /// Takes the state out, until [`Self::put`].
    fn take(&mut self) -> ConnectorState<T> {
        mem::replace(&mut self.state, ConnectorState::Closed)
    }

    /// Puts the next state in the place of the one that was taken; nothing is dropped under the lock.
    fn put(&mut self, state: ConnectorState<T>) {
        debug_assert!(matches!(self.state, ConnectorState::Closed), "{} has not been taken", self.state);
        mem::forget(mem::replace(&mut self.state, state));
    }

    /// A state that the event does not change.
    fn keep(&mut self, state: ConnectorState<T>) -> ConnectorEffects<T> {
        self.put(state);
        ConnectorEffects::none()
    }
}
