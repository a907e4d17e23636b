//! The loopback between connectors: a request finds the listener and makes the arrived connector inside the connecting call, and
//! messages are delivered inside the call that sends them.

use core::net::SocketAddr;

#[cfg(not(feature = "delayed-messages"))]
use softndk_cells::NoMemory;
use softndk_cells::Shared;

use crate::adapter::adapter::AdapterObject;
#[cfg(not(feature = "delayed-messages"))]
use crate::connection::connector::ConnectAttempt;
use crate::connection::connector::{self, ConnectorObject};
use crate::connection::endpoint::EndpointKey;
use crate::connection::listener::ListenerObject;
use crate::connection::message::ConnectionRequest;
#[cfg(not(feature = "delayed-messages"))]
use crate::connection::message::{Asked, MessageOf, MessageWire};
use crate::connection::network::{EndpointGuard, Network};
use crate::error::ConnectError;
use crate::object::header::{Hold, Object};
use crate::platform::{Lock, Platform};

/// See the module.
#[cfg(not(feature = "delayed-messages"))]
pub(crate) struct LoopbackWire;

/// A listener that takes the request.
pub(crate) struct LoopbackRoute<P: Platform> {
    pub(crate) listener: Shared<ListenerObject<P>>,
    /// The destination as the other end sees it.
    pub(crate) local: SocketAddr,
    /// The listener's endpoint, counted for the connector that arrives.
    pub(crate) endpoint: EndpointGuard<P>,
    #[cfg_attr(feature = "delayed-messages", expect(dead_code, reason = "known before the request arrives"))]
    remote: EndpointKey,
    #[expect(dead_code, reason = "keeps the listener until the arrived connector does")]
    hold: Hold<P>,
}

impl<P: Platform> LoopbackRoute<P> {
    /// Looks for a listener on the wire of an adapter.
    pub(crate) fn find(
        network: &Shared<Network<P>>,
        adapter: &AdapterObject<P>,
        destination: SocketAddr,
    ) -> Result<Self, ConnectError> {
        let there = network
            .find_adapter(|other| {
                other.wire == adapter.wire && other.is_running() && other.has_address(destination.ip())
            })
            .ok_or(ConnectError::HostUnreachable)?;
        let local = there.own_address(SocketAddr::new(destination.ip(), destination.port()));
        let local = local.ok_or(ConnectError::HostUnreachable)?;
        let remote = EndpointKey::new(there.number, destination);
        // Under the directory's lock a listener that is found has not released its own hold.
        let found = network.directory.with(|directory| {
            let (key, listener) = directory.listener(&remote).filter(|(_, listener)| listener.is_open())?;
            let listener = listener.clone();
            let hold = Hold::new(Object::of(&listener));
            Some((directory.count(&key), listener, hold))
        });
        let (used, listener, hold) = found.ok_or(ConnectError::Refused)?;
        let endpoint = EndpointGuard::new(network, used);
        Ok(Self { listener, local, endpoint, remote, hold })
    }

    /// Makes the connector of the request, which `near` sent; it becomes visible by `publish`.
    pub(crate) fn arrive(
        self,
        near: &Shared<ConnectorObject<P>>,
        request: &ConnectionRequest<P>,
        publish: impl FnOnce(&Shared<ConnectorObject<P>>) -> Result<(), ConnectError>,
    ) -> Result<Shared<ConnectorObject<P>>, ConnectError> {
        let arrived = connector::arrive(near, &self, request)?;
        publish(&arrived)?;
        self.endpoint.keep();
        Ok(arrived)
    }
}

#[cfg(not(feature = "delayed-messages"))]
impl<P: Platform> MessageWire<P> for LoopbackWire {
    type PeerConnector = Shared<ConnectorObject<P>>;
    type Route = LoopbackRoute<P>;
    type Part = ();

    fn part(_adapter: &AdapterObject<P>) -> Result<(), NoMemory> {
        Ok(())
    }

    fn peer(connector: &Shared<ConnectorObject<P>>) -> Self::PeerConnector {
        connector.clone()
    }

    fn is_peer(peer: &Self::PeerConnector, from: &Shared<ConnectorObject<P>>) -> bool {
        peer.is(from)
    }

    fn route(from: &ConnectorObject<P>, destination: SocketAddr) -> Result<Self::Route, ConnectError> {
        LoopbackRoute::find(from.network(), from.adapter(), destination)
    }

    fn remote(route: &Self::Route) -> EndpointKey {
        route.remote
    }

    /// The arrived connector becomes visible under the lock of the connecting one: a context that ends it from then on sends the
    /// connecting end a message, and waits there until that end is set up.
    fn request(route: Self::Route, attempt: ConnectAttempt<'_, P>) -> Result<Asked<P>, ConnectError> {
        let (near, request) = (attempt.connector, attempt.request());
        let arrived = route.arrive(near, &request, |arrived| {
            attempt.begin(arrived.clone(), || arrived.adapter().register(&Object::of(arrived)))
        })?;
        arrived.core.scheduler.link(&Object::of(&arrived));
        Ok(Asked::Arrived(arrived))
    }

    fn send(to: &Self::PeerConnector, from: &Shared<ConnectorObject<P>>, message: MessageOf<P>) {
        connector::deliver(to, |peer| Self::is_peer(peer, from), message);
    }

    fn service(_connector: &Shared<ConnectorObject<P>>) {}
}
