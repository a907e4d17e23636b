//! The consumer's calls: connect, accept or reject, complete, disconnect, close.
//!
//! `machine` has what they and the peer's messages do. A failed attempt leaves queue pair and connector as they were.

use softndk_cells::{NoMemory, Shared};

use super::arrival::in_zone_of;
use super::effects::{process, report, step};
use super::ends::abort_if_orphaned;
use super::machine::{AcceptedRequest, ConnectorEvent};
use super::state::{ConnectorState, TiedQueuePair};
use super::{Connector, ConnectorObject, LocalEndpoint, timeouts};
use crate::change::{ConnectionCause, ConnectionChange};
use crate::connection::endpoint::{EndpointKey, EndpointUse};
use crate::connection::message::{ConnectionRequest, ReadLimits};
use crate::connection::network::EndpointGuard;
use crate::connection::peer::{PeerConnector, Route};
use crate::connection::shared_endpoint::SharedEndpoint;
use crate::counters::count;
use crate::error::{ConnectError, Requested};
use crate::object::event::Close;
use crate::object::header::{Hold, Object};
use crate::platform::{Lock, Platform};
use crate::private_data::PrivateData;
use crate::queue_pair::pair::{QueuePair, QueuePairObject, state as pair_state};
use core::net::SocketAddr;

/// Where a connector connects from.
pub enum Source<'a, P: Platform> {
    /// A local address of its own; port 0 picks a port.
    Address(SocketAddr),
    /// An address that it shares with others.
    Shared(&'a SharedEndpoint<P>),
}

/// A connection request.
pub struct Connect<'a, P: Platform> {
    pub queue_pair: &'a QueuePair<P>,
    pub source: Source<'a, P>,
    pub destination: SocketAddr,
    pub limits: ReadLimits,
    pub private_data: &'a [u8],
    pub callback: P::RequestCallback,
}

/// The answer to an arrived request.
pub struct Accept<'a, P: Platform> {
    pub queue_pair: &'a QueuePair<P>,
    pub limits: ReadLimits,
    pub private_data: &'a [u8],
    pub disconnect: Option<P::DisconnectCallback>,
    pub callback: P::RequestCallback,
}

impl<P: Platform> Connector<P> {
    /// Requests a connection. Pending until the other side answers.
    #[expect(clippy::needless_pass_by_value, reason = "the request is used up by the call")]
    pub fn connect(&self, request: Connect<'_, P>) -> Result<Requested, ConnectError> {
        let connector = &self.0;
        let connected = process(connector, ConnectorEvent::Connect).and_then(|()| {
            let connected = self.connect_reserved(&request);
            if connected.is_err() {
                let _answer = process(connector, ConnectorEvent::ConnectFailed);
            }
            connected
        });
        // An invalid request does not count as a failed attempt.
        let usage = |error: &ConnectError| {
            use ConnectError::{AlreadyConnected, Foreign, InvalidState, PrivateDataTooLong};
            matches!(error, AlreadyConnected | Foreign | InvalidState | PrivateDataTooLong)
        };
        if let Err(error) = connected
            && !usage(&error)
        {
            count(&connector.open.adapter.statistics.connect_failure);
            report(connector, ConnectionChange::Failed(ConnectionCause::Call(error)));
        }
        connected
    }

    /// The active end takes the answer: both sides are connected when this returns.
    pub fn complete_connect(
        &self,
        disconnect: Option<P::DisconnectCallback>,
        _callback: P::RequestCallback,
    ) -> Result<Requested, ConnectError> {
        process(&self.0, ConnectorEvent::CompleteConnect { disconnect })?;
        Ok(Requested::Done)
    }

    /// Answers an arrived request. Pending until the active end completes.
    #[expect(clippy::needless_pass_by_value, reason = "the request is used up by the call")]
    pub fn accept(&self, request: Accept<'_, P>) -> Result<Requested, ConnectError> {
        let connector = &self.0;
        let adapter = &connector.open.adapter;
        let data = PrivateData::new(request.private_data, adapter.limits.callee_data)?;
        prepare_stream(connector)?;
        let pair = claim(request.queue_pair, connector)?;
        let accepted = AcceptedRequest {
            tied: tied(pair),
            limits: request.limits.capped(adapter),
            data,
            disconnect: request.disconnect,
            waiting: timeouts::request(connector, request.callback, adapter.timeouts.accept),
        };
        process(connector, ConnectorEvent::Accept(accepted))?;
        Ok(Requested::Pending)
    }

    /// Rejects an arrived request, or (active end) an answer.
    pub fn reject(&self, private_data: &[u8]) -> Result<(), ConnectError> {
        let connector = &self.0;
        let data = PrivateData::new(private_data, connector.open.adapter.limits.callee_data)?;
        process(connector, ConnectorEvent::Reject { data })
    }

    fn connect_reserved(&self, request: &Connect<'_, P>) -> Result<Requested, ConnectError> {
        let connector = &self.0;
        let adapter = &connector.open.adapter;
        let limits = request.limits.capped(adapter);
        let data = PrivateData::new(request.private_data, adapter.limits.caller_data)?;
        if !adapter.is_running() {
            return Err(ConnectError::AdapterGone);
        }
        let source = connector.source(&request.source)?;
        if source.is_ipv4() != request.destination.is_ipv4() {
            return Err(ConnectError::InvalidAddress);
        }
        let pair = claim(request.queue_pair, connector)?;
        let checked = CheckedConnect { connect: request, source, limits, data, pair: &pair };
        match self.ask(&checked) {
            Ok(()) => {
                // An address or adapter that went while we looked has not seen this.
                abort_if_orphaned(connector);
                Ok(Requested::Pending)
            }
            Err(error) => {
                release_claim(&pair);
                Err(error)
            }
        }
    }

    /// Finds the way, takes the local endpoint, sends the request; nothing is visible before all of it is complete.
    // On a frame of its own, which is gone when the outcome is handled.
    #[inline(never)]
    fn ask(&self, checked: &CheckedConnect<'_, P>) -> Result<(), ConnectError> {
        let connector = &self.0;
        let network = &connector.network;
        let route = Route::find(connector, checked.connect.destination)?;
        let used = match checked.connect.source {
            Source::Address(_) => {
                let key = EndpointKey::new(connector.open.adapter.number, checked.source);
                network.take_endpoint(key, None).map(EndpointUse::at)
            }
            Source::Shared(shared) => network.directory.with(|directory| directory.meet(shared.0.key, route.remote())),
        }?;
        let endpoint = EndpointGuard::new(network, used);
        let mut source = checked.source;
        source.set_port(used.key.port());
        route.request(ConnectAttempt { connector, checked, endpoint, source })
    }

    /// Ends the connection with grace: pending until the peer has answered and everything is flushed.
    pub fn disconnect(&self, callback: P::RequestCallback) -> Result<Requested, ConnectError> {
        let connector = &self.0;
        let waiting = timeouts::request(connector, callback, connector.open.adapter.timeouts.disconnect);
        process(connector, ConnectorEvent::Disconnect { waiting })?;
        Ok(Requested::Pending)
    }

    /// Keeps the close from completing while something of the front end's own is under way.
    pub fn hold(&self) -> Hold<P> {
        Hold::new(Object::of(&self.0))
    }

    /// Closes the connector; what is still connected or on its way ends abortively.
    pub fn close(&self, callback: P::CloseCallback) -> Close<P> {
        self.close_with(Some(callback))
    }

    pub(super) fn close_with(&self, callback: Option<P::CloseCallback>) -> Close<P> {
        let connector = &self.0;
        let tear_down = || {
            let shared = connector.machine.with(|machine| machine.endpoint.as_mut()?.shared.take());
            if let Some((shared, hold)) = shared {
                connector.core.depend_on(shared.into());
                drop(hold);
            }
            let _answer = process(connector, ConnectorEvent::Close);
        };
        connector.core.scheduler.platform().raised(|_| connector.core.close(callback, tear_down))
    }
}

/// A Connect whose arguments have been checked.
struct CheckedConnect<'a, P: Platform> {
    connect: &'a Connect<'a, P>,
    /// The local address; its port may still be 0.
    source: SocketAddr,
    limits: ReadLimits,
    data: PrivateData,
    pair: &'a Shared<QueuePairObject<P>>,
}

/// A connection attempt that its route begins.
pub(crate) struct ConnectAttempt<'a, P: Platform> {
    pub(crate) connector: &'a Shared<ConnectorObject<P>>,
    checked: &'a CheckedConnect<'a, P>,
    endpoint: EndpointGuard<P>,
    source: SocketAddr,
}

impl<P: Platform> ConnectAttempt<'_, P> {
    /// The queue pair that is to be connected.
    pub(crate) const fn pair(&self) -> &Shared<QueuePairObject<P>> {
        self.checked.pair
    }

    /// What the other end gets.
    pub(crate) fn request(&self) -> ConnectionRequest {
        ConnectionRequest {
            source: self.source,
            limits: self.checked.limits,
            data: self.checked.data.clone(),
            capacity: self.connector.open.adapter.limits.caller_data,
        }
    }

    /// Sets this end up, towards a peer that becomes visible by `publish`: under this end's lock.
    pub(crate) fn begin(
        self,
        peer: PeerConnector<P>,
        publish: impl FnOnce() -> Result<(), NoMemory>,
    ) -> Result<(), ConnectError> {
        let Self { connector, checked, endpoint, source } = self;
        let shared = match checked.connect.source {
            Source::Shared(shared) => Some((shared.0.clone(), Hold::new(Object::of(&shared.0)))),
            Source::Address(_) => None,
        };
        let mut local_endpoint = Some(LocalEndpoint { used: endpoint.used, shared });
        let timeout = connector.open.adapter.timeouts.connect;
        let mut requested = Some(ConnectorEvent::Requested {
            peer,
            tied: tied(checked.pair.clone()),
            waiting: timeouts::request(connector, checked.connect.callback, timeout),
        });
        let destination = checked.connect.destination;
        connector.machine.with(|machine| {
            if !matches!(machine.state, ConnectorState::Requesting) {
                return Err(ConnectError::Aborted);
            }
            publish()?;
            machine.endpoint = local_endpoint.take();
            machine.local = Some(source);
            machine.peer_address = Some(in_zone_of(SocketAddr::new(destination.ip(), destination.port()), source));
            machine.limits = checked.limits;
            requested.take().map_or(Ok(()), |requested| step(connector, machine, requested).answer)
        })?;
        endpoint.keep();
        report(connector, ConnectionChange::Requested);
        Ok(())
    }
}

/// Ties a queue pair to a connector; only one connector ever succeeds with it.
fn claim<P: Platform>(
    pair: &QueuePair<P>,
    connector: &Shared<ConnectorObject<P>>,
) -> Result<Shared<QueuePairObject<P>>, ConnectError> {
    let pair = &pair.0;
    if !pair.domain.open.adapter.is(&connector.open.adapter) {
        return Err(ConnectError::Foreign);
    }
    if pair.state() & (pair_state::CONNECTED | pair_state::ENDED) != 0 {
        return Err(ConnectError::AlreadyConnected);
    }
    if pair.mark(pair_state::CLAIMED) & pair_state::CLAIMED != 0 {
        return Err(ConnectError::AlreadyConnected);
    }
    pair.link.with(|link| link.connector = Some(Object::of(connector)));
    Ok(pair.clone())
}

/// The attempt failed: the queue pair is free for another.
pub(super) fn release_claim<P: Platform>(pair: &Shared<QueuePairObject<P>>) {
    let (connector, peer) = pair.link.with(|link| (link.connector.take(), link.peer.take()));
    pair.unclaim();
    drop((connector, peer));
}

/// A queue pair that is claimed, with a hold.
fn tied<P: Platform>(pair: Shared<QueuePairObject<P>>) -> TiedQueuePair<P> {
    let hold = Hold::new(Object::of(&pair));
    TiedQueuePair { pair, hold }
}

impl<P: Platform> ConnectorObject<P> {
    /// The local address of an attempt; its port may be 0.
    fn source(&self, source: &Source<'_, P>) -> Result<SocketAddr, ConnectError> {
        let adapter = &self.open.adapter;
        match source {
            Source::Address(address) => adapter.own_address(*address).ok_or(ConnectError::InvalidAddress),
            Source::Shared(shared) if !shared.0.open.adapter.is(adapter) => Err(ConnectError::Foreign),
            Source::Shared(shared) => adapter.own_address(shared.0.address).ok_or(ConnectError::NetworkUnreachable),
        }
    }
}

/// A stream that has come is given what an open one needs.
fn prepare_stream<P: Platform>(connector: &ConnectorObject<P>) -> Result<(), NoMemory> {
    let stream = connector.machine.with(|machine| match &machine.state {
        ConnectorState::Arrived { peer: PeerConnector::Stream(stream) } => Some(stream.clone()),
        _ => None,
    });
    stream.map_or(Ok(()), |stream| stream.prepare(connector.adapter()))
}
