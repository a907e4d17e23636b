//! Listeners: the objects behind NDK_LISTENER.
//!
//! An arriving request is a connector that a service pass hands out; the listener itself queues nothing.
//!
//! Rules (NDKPI: NDK_FN_LISTEN, NDK_FN_CLOSE_OBJECT): from the call of its close a listener refuses; the close is complete when
//! every connector it produced is closed; a paused listener behaves as if none were there; one at the unspecified address
//! listens at each address of its adapter, and what arrives has the specific one.

use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicBool, Ordering};

use softndk_cells::Shared;

use crate::adapter::open::OpenObject;
use crate::connection::endpoint::{EndpointError, EndpointKey, EndpointUse};
use crate::connection::network::Network;
use crate::connection::shared_endpoint::SharedEndpoint;
use crate::error::{ConnectError, CreateError};
use crate::object::event::Close;
use crate::object::header::{Antecedents, AnyObject, Core, Hold, Object, object};
use crate::object::snapshot::{EndpointEntry, ObjectKind, ObjectState};
use crate::platform::{Lock, Platform};

pub(crate) struct ListenerObject<P: Platform> {
    pub(crate) core: Core<P>,
    pub(crate) open: Shared<OpenObject<P>>,
    pub(super) network: Shared<Network<P>>,
    pub(crate) connect: P::ConnectCallback,
    paused: AtomicBool,
    state: P::Lock<Listening>,
}

#[derive(Clone, Copy)]
struct Listening {
    endpoint: Option<(EndpointKey, SocketAddr)>,
    /// The endpoint is lost or given up; there is no second one.
    over: bool,
}

/// A listener.
pub struct Listener<P: Platform>(pub(crate) Shared<ListenerObject<P>>);

impl<P: Platform> Clone for Listener<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl From<EndpointError> for ConnectError {
    fn from(error: EndpointError) -> Self {
        match error {
            EndpointError::InUse => Self::AddressInUse,
            EndpointError::TupleInUse => Self::TupleInUse,
            EndpointError::PortsInUse { .. } => Self::NoPorts,
            EndpointError::NoMemory => Self::NoResources,
        }
    }
}

impl<P: Platform> Listener<P> {
    pub(crate) fn create(
        network: &Shared<Network<P>>,
        open: &Shared<OpenObject<P>>,
        connect: P::ConnectCallback,
        consumer_object: P::ConsumerObject,
    ) -> Result<Self, CreateError> {
        let adapter = &open.adapter;
        adapter.ready()?;
        let listener = Shared::try_new(ListenerObject {
            core: adapter.core(ObjectKind::Listener, Some(consumer_object), Antecedents::none().with(Object::of(open))),
            open: open.clone(),
            network: network.clone(),
            connect,
            paused: AtomicBool::new(false),
            state: P::Lock::new(Listening { endpoint: None, over: false }),
        })?;
        adapter.register(&Object::of(&listener))?;
        Ok(Self(listener))
    }

    /// Begins to listen at an address and port that are reserved: the shared endpoint's. `AddressInUse` where another listens.
    /// Never pends.
    pub fn listen_at(&self, endpoint: &SharedEndpoint<P>) -> Result<(), ConnectError> {
        let listener = &self.0;
        let (adapter, endpoint) = (&listener.open.adapter, &endpoint.0);
        if !endpoint.open.adapter.is(adapter) {
            return Err(ConnectError::Foreign);
        }
        if !adapter.is_running() {
            return Err(ConnectError::AdapterGone);
        }
        let address = endpoint.address;
        self.begin(address, || {
            listener.network.directory.with(|directory| directory.attend(&endpoint.key, listener))?;
            Ok(endpoint.key)
        })
    }

    /// Begins to listen; port 0 picks one. The unspecified address stands for every address that the adapter has, now or in the
    /// future. Never pends.
    pub fn listen(&self, address: SocketAddr) -> Result<(), ConnectError> {
        let listener = &self.0;
        let adapter = &listener.open.adapter;
        if !adapter.is_running() {
            return Err(ConnectError::AdapterGone);
        }
        let everywhere = address.ip().is_unspecified();
        let own =
            if everywhere { Some(SocketAddr::new(address.ip(), address.port())) } else { adapter.own_address(address) };
        let address = own.ok_or(ConnectError::InvalidAddress)?;
        let key = EndpointKey::new(adapter.number, address);
        self.begin(address, || Ok(listener.network.take_endpoint(key, Some(listener))?))
    }

    /// Takes the endpoint, once.
    fn begin(
        &self,
        mut address: SocketAddr,
        take: impl FnOnce() -> Result<EndpointKey, ConnectError>,
    ) -> Result<(), ConnectError> {
        let listener = &self.0;
        let adapter = &listener.open.adapter;
        listener.state.with(|state| {
            if state.endpoint.is_some() || state.over {
                return Err(ConnectError::InvalidState);
            }
            let key = take()?;
            address.set_port(key.port());
            state.endpoint = Some((key, address));
            Ok(())
        })?;
        let everywhere = address.ip().is_unspecified();
        // An adapter or address that was removed meanwhile has not ended this listener.
        let running = adapter.is_running();
        listener.addresses_gone(&|address| !running || !everywhere && !adapter.has_address(address));
        Ok(())
    }

    pub fn local_address(&self) -> Option<SocketAddr> {
        self.0.local_address()
    }

    /// True: behave as if no listener were there.
    pub fn pause(&self, pause: bool) {
        self.0.paused.store(pause, Ordering::Release);
    }

    /// Keeps the close from completing while something of the front end's own is under way.
    pub fn hold(&self) -> Hold<P> {
        Hold::new(Object::of(&self.0))
    }

    pub fn close(&self, callback: P::CloseCallback) -> Close<P> {
        self.0.core.close(Some(callback), || self.0.stop())
    }
}

impl<P: Platform> ListenerObject<P> {
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        self.state.with(|state| state.endpoint.map(|(_, address)| address))
    }

    pub(crate) fn listed_state(&self) -> ObjectState {
        self.state.with(|state| match (state.endpoint, state.over) {
            (_, true) => ObjectState::Silent,
            (Some(_), false) => ObjectState::Listening,
            (None, false) => ObjectState::Idle,
        })
    }

    /// Whether a new connection is taken.
    pub(crate) fn is_open(&self) -> bool {
        !self.paused.load(Ordering::Acquire) && !self.core.is_closing()
    }

    /// Gives the endpoint up; connectors accepted over it keep it counted.
    fn stop(&self) {
        let endpoint = self.state.with(|state| {
            state.over = true;
            state.endpoint.take()
        });
        let Some((key, _)) = endpoint else { return };
        let this = self.network.directory.with(|directory| {
            let this = directory.deafen(&key);
            directory.release(&EndpointUse::at(key));
            this
        });
        drop(this);
    }
}

object!(ListenerObject {
    fn is_limited(&self) -> bool {
        false
    }

    fn snapshot_state(&self) -> ObjectState {
        self.listed_state()
    }

    fn addresses_gone(&self, gone: &dyn Fn(IpAddr) -> bool) {
        if self.local_address().is_some_and(|address| gone(address.ip())) {
            self.stop();
        }
    }

    fn endpoint(&self) -> Option<EndpointEntry> {
        self.local_address().map(|local| EndpointEntry { local, listener: true })
    }
});
