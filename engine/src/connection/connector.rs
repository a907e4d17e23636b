//! Connectors: one end of a connection, from the request to the end.
//!
//! A connector is a state machine (`state`, `machine`) behind a lock, driven by the consumer's calls, the peer's messages, its
//! queue pair (`ends`), its time-outs (`timeouts`) and the end of its address; `effects` carries out what an event leaves to do.
//! `calls` has the consumer's calls, `arrival` the connector that a request makes, `service` what a service pass hands to the
//! consumer. Each end changes under its own lock and sends its message afterwards; messages may cross, and each state
//! defines what it does with each of them.

mod arrival;
mod calls;
mod effects;
mod ends;
mod machine;
mod service;
mod state;
mod timeouts;

use core::net::{IpAddr, SocketAddr};

use softndk_cells::{NoMemory, Shared};

use crate::adapter::adapter::AdapterObject;
use crate::adapter::open::OpenObject;
use crate::connection::endpoint::EndpointUse;
use crate::connection::listener::ListenerObject;
use crate::connection::message::{Message, ReadLimits};
use crate::connection::network::Network;
use crate::connection::peer::PeerConnector;
use crate::connection::shared_endpoint::SharedEndpointObject;
use crate::error::{ConnectError, CreateError};
use crate::object::event::ServicePass;
use crate::object::header::{Antecedents, Core, Hold, Object, object};
use crate::object::snapshot::{ConnectionEntry, ObjectKind, ObjectState};
use crate::object::timer::Timer;
use crate::platform::{Lock, Platform};
use crate::queue_pair::pair::QueuePairObject;

use effects::{carry_out, step};
use machine::{ConnectorEvent, ConnectorMachine, ConnectorRules};
use state::{ConnectorState, MachineTypes};

pub(crate) use arrival::arrive;
pub(crate) use calls::ConnectAttempt;
pub use calls::{Accept, Connect, Source};
pub(crate) use ends::abort_if_orphaned;
pub use service::{Arrival, ConnectEvent};

/// What the peer sent, beside the bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionData {
    pub limits: ReadLimits,
    /// Bytes a buffer needs (the contract's "required private data buffer size").
    pub required: u32,
    /// Bytes copied into the buffer.
    pub copied: u32,
}

/// A request of the consumer, and what keeps the connector until its callback has returned.
struct PendingRequest<P: Platform> {
    callback: P::RequestCallback,
    hold: Hold<P>,
}

impl<P: Platform> PendingRequest<P> {
    fn new(connector: &Shared<ConnectorObject<P>>, callback: P::RequestCallback) -> Self {
        Self { callback, hold: Hold::new(Object::of(connector)) }
    }
}

/// The shared endpoint that a connector connects over.
type SharedUse<P> = (Shared<SharedEndpointObject<P>>, Hold<P>);

/// What a connector has in use of the endpoint directory.
struct LocalEndpoint<P: Platform> {
    used: EndpointUse,
    shared: Option<SharedUse<P>>,
}

impl<P: Platform> MachineTypes for P {
    type PeerHandle = PeerConnector<P>;
    type QueuePairHandle = Shared<QueuePairObject<P>>;
    type QueuePairHold = Hold<P>;
    type RequestHandle = PendingRequest<P>;
    type DisconnectHandle = P::DisconnectCallback;
    type EndpointHandle = LocalEndpoint<P>;
}

pub(crate) struct ConnectorObject<P: Platform> {
    pub(crate) core: Core<P>,
    open: Shared<OpenObject<P>>,
    network: Shared<Network<P>>,
    /// Set for a connector that arrived.
    listener: Option<Shared<ListenerObject<P>>>,
    /// On an adapter that has time-outs.
    timer: Option<Timer<P>>,
    machine: P::Lock<ConnectorMachine<P>>,
}

/// What a connector is made of and may fail for.
struct ConnectorParts<P: Platform> {
    timer: Option<Timer<P>>,
}

impl<P: Platform> ConnectorParts<P> {
    fn try_new(adapter: &AdapterObject<P>) -> Result<Self, NoMemory> {
        Ok(Self { timer: timeouts::timer(adapter)? })
    }
}

fn rules_of<P: Platform>(open: &OpenObject<P>) -> ConnectorRules {
    ConnectorRules { semantics: open.semantics, callee_data: open.adapter.limits.callee_data }
}

/// A connector.
pub struct Connector<P: Platform>(pub(crate) Shared<ConnectorObject<P>>);

impl<P: Platform> Clone for Connector<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Platform> Connector<P> {
    pub(crate) fn create(
        network: &Shared<Network<P>>,
        open: &Shared<OpenObject<P>>,
        consumer_object: P::ConsumerObject,
    ) -> Result<Self, CreateError> {
        let adapter = &open.adapter;
        adapter.ready()?;
        let parts = ConnectorParts::try_new(adapter)?;
        let connector = Shared::try_new(ConnectorObject {
            core: adapter.core(
                ObjectKind::Connector,
                Some(consumer_object),
                Antecedents::none().with(Object::of(open)),
            ),
            open: open.clone(),
            network: network.clone(),
            listener: None,
            timer: parts.timer,
            machine: P::Lock::new(ConnectorMachine::new(ConnectorState::Idle, rules_of(open))),
        })?;
        adapter.register(&Object::of(&connector))?;
        Ok(Self(connector))
    }

    /// What the peer sent, copied into `buffer` as far as it goes. `InvalidState` before anything arrived.
    pub fn connection_data(&self, buffer: &mut [u8]) -> Result<ConnectionData, ConnectError> {
        let fixed = self.0.open.semantics.fixed_private_data;
        self.0.machine.with(|machine| {
            let (data, capacity) = machine.data.as_ref().ok_or(ConnectError::InvalidState)?;
            let required = if fixed { *capacity as usize } else { data.length() };
            let copied = required.min(buffer.len());
            if let (Some(to), Some(from)) = (buffer.get_mut(..copied), data.padded().get(..copied)) {
                to.copy_from_slice(from);
            }
            Ok(ConnectionData { limits: machine.limits, required: required as u32, copied: copied as u32 })
        })
    }

    pub fn local_address(&self) -> Option<SocketAddr> {
        self.0.machine.with(|machine| machine.local)
    }

    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.0.machine.with(|machine| machine.peer_address)
    }
}

impl<P: Platform> ConnectorObject<P> {
    pub(crate) fn adapter(&self) -> &AdapterObject<P> {
        &self.open.adapter
    }

    /// The stream to its peer.
    pub(crate) fn stream(&self) -> Option<Shared<crate::stream::StreamObject<P>>> {
        self.machine.with(|machine| match machine.state.peer() {
            Some(PeerConnector::Stream(stream)) => Some(stream.clone()),
            _ => None,
        })
    }

    pub(crate) fn network(&self) -> &Shared<Network<P>> {
        &self.network
    }

    pub(crate) fn established(&self) -> Option<ConnectionEntry> {
        self.machine.with(|machine| match (&machine.state, machine.local, machine.peer_address) {
            (ConnectorState::Connected { .. } | ConnectorState::Disconnecting { .. }, Some(local), Some(remote)) => {
                Some(ConnectionEntry { local, remote })
            }
            _ => None,
        })
    }

    pub(crate) fn listed_state(&self) -> ObjectState {
        self.machine.with(|machine| match machine.state {
            ConnectorState::Idle => ObjectState::Idle,
            ConnectorState::Requesting | ConnectorState::Connecting { .. } => ObjectState::Connecting,
            ConnectorState::Answered { .. } => ObjectState::Answered,
            ConnectorState::Arrived { .. } => ObjectState::Arrived,
            ConnectorState::Accepting { .. } => ObjectState::Accepting,
            // Listed as it is seen from outside: the connection is there until its end.
            ConnectorState::Connected { .. } | ConnectorState::Disconnecting { .. } => ObjectState::Connected,
            ConnectorState::Ended(_) => ObjectState::Ended,
        })
    }
}

object!(ConnectorObject {
    fn work(&self, pass: &mut ServicePass<'_, P>) {
        service::service(self, pass.sink);
    }

    fn is_limited(&self) -> bool {
        false
    }

    fn snapshot_state(&self) -> ObjectState {
        self.listed_state()
    }

    fn addresses_gone(&self, gone: &dyn Fn(IpAddr) -> bool) {
        ends::abort(self, gone);
    }

    fn connects_from(&self, stream: &Object<P>, port: u16) {
        self.machine.with(|machine| {
            let is_of_now = matches!(machine.state.peer(), Some(PeerConnector::Stream(own)) if Object::of(own).is(stream));
            // All connectors of a shared endpoint have its address, whatever ports TCP gives their connections.
            let is_shared = machine.endpoint.as_ref().is_some_and(|endpoint| endpoint.shared.is_some());
            if let Some(local) = machine.local.as_mut().filter(|_| is_of_now && !is_shared) {
                local.set_port(port);
            }
        });
    }

    fn tied_failed(&self) {
        ends::queue_pair_failed(self);
    }

    fn tied_drained(&self) -> bool {
        ends::queue_pair_drained(self)
    }

    fn connection(&self) -> Option<ConnectionEntry> {
        self.established()
    }
});

/// Delivers a message of a connector at the other end, unless it is late, from the end of an earlier attempt.
pub(crate) fn deliver<P: Platform>(connector: &Shared<ConnectorObject<P>>, from: PeerConnector<P>, message: Message) {
    // What has no effect stays here and is dropped outside the lock.
    let mut event = Some((from, message));
    let effects = connector.machine.with(|machine| {
        let (from, message) = event.take_if(|(from, _)| machine.state.peer().is_some_and(|peer| peer.is(from)))?;
        Some(step(connector, machine, ConnectorEvent::Message { from, message }))
    });
    if let Some(effects) = effects {
        carry_out(connector, effects);
    }
}
