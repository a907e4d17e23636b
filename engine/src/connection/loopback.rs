//! The loopback between connectors: a request finds the listener and makes the arrived connector inside the connecting call, and
//! messages are delivered inside the call that sends them.

use core::net::SocketAddr;

use softndk_cells::Shared;

use crate::adapter::adapter::AdapterObject;
use crate::connection::connector::{self, ConnectAttempt, ConnectorObject};
use crate::connection::endpoint::EndpointKey;
use crate::connection::listener::ListenerObject;
use crate::connection::message::ConnectionRequest;
use crate::connection::network::{EndpointGuard, Network};
use crate::connection::peer::PeerConnector;
use crate::error::ConnectError;
use crate::object::header::{Hold, Object};
use crate::platform::{Lock, Platform};

/// A listener that takes the request.
pub(crate) struct LoopbackRoute<P: Platform> {
    pub(crate) listener: Shared<ListenerObject<P>>,
    /// The destination as the other end sees it.
    pub(crate) local: SocketAddr,
    /// The listener's endpoint, counted for the connector that arrives.
    pub(crate) endpoint: EndpointGuard<P>,
    pub(crate) remote: EndpointKey,
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

    /// Makes the connector of the request, which `from` sent; it becomes visible by `publish`.
    pub(crate) fn arrive(
        self,
        from: PeerConnector<P>,
        request: &ConnectionRequest,
        publish: impl FnOnce(&Shared<ConnectorObject<P>>) -> Result<(), ConnectError>,
    ) -> Result<Shared<ConnectorObject<P>>, ConnectError> {
        let arrived = connector::arrive(from, &self, request)?;
        publish(&arrived)?;
        self.endpoint.keep();
        Ok(arrived)
    }
}

/// Makes the arrived connector of a request and hands it to the service pass of its listener.
///
/// It becomes visible under the lock of the connecting one: a context that ends it from then on sends the connecting end a message,
/// and waits there until that end is set up.
pub(crate) fn request<P: Platform>(
    route: LoopbackRoute<P>,
    attempt: ConnectAttempt<'_, P>,
) -> Result<(), ConnectError> {
    let from = PeerConnector::Local(attempt.connector.clone(), Some(attempt.pair().clone()));
    let request = attempt.request();
    let arrived = route.arrive(from, &request, |arrived| {
        let peer = PeerConnector::Local(arrived.clone(), None);
        attempt.begin(peer, || arrived.adapter().register(&Object::of(arrived)))
    })?;
    arrived.core.scheduler.link(&Object::of(&arrived));
    connector::abort_if_orphaned(&arrived);
    Ok(())
}
