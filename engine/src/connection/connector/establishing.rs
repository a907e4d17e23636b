//! The steps to a connection: connect, arrive, accept or reject, complete.
//!
//! Here are the calls of both sides and the reactions to the peer's messages until both are connected. A failed attempt leaves
//! queue pair and connector as they were. `ending` has the ends of a connection.

use softndk_cells::{NoMemory, Reserved, Shared};

use super::ending::abort_if_orphaned;
use super::{After, Connector, ConnectorObject, Phase, ReadLimits, State, Step, waiting};
use crate::adapter::adapter::scope_of;
use crate::connection::endpoint::{Bound, EndpointKey};
use crate::connection::listener::ListenerObject;
use crate::connection::message::{Message, MessageWire, PrivateData};
use crate::connection::shared_endpoint::SharedEndpoint;
use crate::counters::count;
use crate::error::{ConnectError, Requested};
use crate::object::header::{Antecedents, Hold, Object};
use crate::object::snapshot::ObjectKind;
use crate::object::timer::Timer;
use crate::platform::{Lock, Platform};
use crate::queue_pair::loopback::Loopback;
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
        let connected = connector.reserve().and_then(|()| {
            let connected = self.connect_reserved(&request);
            if connected.is_err() {
                connector.state.with(|state| {
                    if state.phase == Phase::Connecting {
                        state.phase = Phase::Idle;
                    }
                });
            }
            connected
        });
        // An invalid request does not count as a failed attempt.
        let usage = |error: &ConnectError| {
            use ConnectError::{AlreadyConnected, Foreign, InvalidState, PrivateDataTooLong};
            matches!(error, AlreadyConnected | Foreign | InvalidState | PrivateDataTooLong)
        };
        if connected.as_ref().is_err_and(|error| !usage(error)) {
            count(&connector.open.adapter.statistics.connect_failure);
        }
        connected
    }

    /// The active end takes the answer: both sides are connected when this returns.
    pub fn complete_connect(
        &self,
        disconnect: Option<P::DisconnectCallback>,
        _callback: P::RequestCallback,
    ) -> Result<Requested, ConnectError> {
        let connector = &self.0;
        let peer = connector.state.with(|state| {
            match state.phase {
                Phase::Answered => {}
                Phase::Ended(error) if !state.was_connected => return Err(error),
                _ => return Err(ConnectError::InvalidState),
            }
            state.phase = Phase::Connected;
            state.was_connected = true;
            state.disconnect = disconnect;
            if let Some((pair, _)) = &state.pair {
                let peer_pair = state.peer_pair.take();
                pair.link.with(|link| link.peer = peer_pair);
                pair.mark(pair_state::connected(state.limits.outbound));
            }
            // Under the lock, so that an end that follows at once is counted after it.
            let statistics = &connector.open.adapter.statistics;
            count(&statistics.connect);
            count(&statistics.active_connection);
            Ok(state.peer.clone())
        })?;
        if let Some(peer) = peer {
            Loopback::tell(&peer, connector, Message::Ready);
        }
        Ok(Requested::Done)
    }

    /// Answers an arrived request. Pending until the active end completes.
    #[expect(clippy::needless_pass_by_value, reason = "the request is used up by the call")]
    pub fn accept(&self, request: Accept<'_, P>) -> Result<Requested, ConnectError> {
        let connector = &self.0;
        let adapter = &connector.open.adapter;
        let data = PrivateData::new(request.private_data, adapter.limits.callee_data)?;
        let pair = claim(request.queue_pair, connector)?;
        let accepted = connector.state.with(|state| {
            match state.phase {
                Phase::Arrived => {}
                Phase::Ended(error) if !state.was_connected => return Err(error),
                _ => return Err(ConnectError::InvalidState),
            }
            state.phase = Phase::Accepting;
            state.limits = request.limits.capped(adapter).against(state.limits_of_peer());
            state.disconnect = request.disconnect;
            state.request = Some(connector.pending(request.callback));
            waiting::begin(connector, state, adapter.timeouts.accept);
            let peer_pair = state.peer_pair.take();
            pair.link.with(|link| link.peer = peer_pair);
            state.pair = Some((pair.clone(), Hold::new(Object::of(&pair))));
            Ok((state.peer.clone(), state.limits))
        });
        let (peer, limits) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                release_claim(&pair);
                return Err(error);
            }
        };
        if let Some(peer) = peer {
            Loopback::tell(&peer, connector, Message::Accepted { peer: pair, limits, data });
        }
        Ok(Requested::Pending)
    }

    /// Rejects an arrived request, or (active end) an answer.
    pub fn reject(&self, private_data: &[u8]) -> Result<(), ConnectError> {
        let connector = &self.0;
        let data = PrivateData::new(private_data, connector.open.adapter.limits.callee_data)?;
        let after = connector.state.with(|state| {
            let message = match state.phase {
                Phase::Arrived => Message::Rejected { data },
                Phase::Answered => Message::Abandoned,
                Phase::Ended(error) if !state.was_connected => return Err(error),
                _ => return Err(ConnectError::InvalidState),
            };
            Ok(state.give_up(ConnectError::InvalidState, Some(message)))
        })?;
        count(&connector.open.adapter.statistics.connect_failure);
        connector.finish_after(after);
        Ok(())
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
        let attempt = Attempt { request, source, limits, data, pair: &pair };
        let arrived = self.attempt(&attempt);
        match arrived {
            Ok(arrived) => {
                arrived.core.scheduler.link(&Object::of(&arrived));
                // An address or adapter that went while we looked has not seen these two.
                abort_if_orphaned(connector);
                abort_if_orphaned(&arrived);
                Ok(Requested::Pending)
            }
            Err(error) => {
                release_claim(&pair);
                Err(error)
            }
        }
    }

    /// Finds the listener, takes the local endpoint, makes the other end; nothing is visible before all of it is complete.
    // On a frame of its own, which is gone when the outcome is handled.
    #[inline(never)]
    fn attempt(&self, attempt: &Attempt<'_, P>) -> Result<Shared<ConnectorObject<P>>, ConnectError> {
        let connector = &self.0;
        let adapter = &connector.open.adapter;
        let (network, request) = (&connector.network, attempt.request);
        let destination = request.destination;
        let there = network
            .find_adapter(|other| {
                other.wire == adapter.wire && other.is_running() && other.has_address(destination.ip())
            })
            .ok_or(ConnectError::HostUnreachable)?;
        // As the other end sees its own address.
        let local = there.own_address(SocketAddr::new(destination.ip(), destination.port()));
        let local = local.ok_or(ConnectError::HostUnreachable)?;
        let remote = EndpointKey::new(there.number, destination);
        // Under the directory's lock a listener that is found has not released its own hold.
        let found = network.directory.with(|directory| {
            let (key, listener) = directory.listener(&remote).filter(|(_, listener)| listener.is_open())?;
            let listener = listener.clone();
            let hold = Hold::new(Object::of(&listener));
            directory.count(&key);
            Some((Bound::at(key), listener, hold))
        });
        let (peer, listener, _hold) = found.ok_or(ConnectError::Refused)?;
        let taken = network.directory.with(|directory| match request.source {
            Source::Address(_) => directory.take(EndpointKey::new(adapter.number, attempt.source), None).map(Bound::at),
            Source::Shared(shared) => directory.meet(shared.0.key, remote),
        });
        let arrived = taken.map_err(ConnectError::from).and_then(|near| {
            let mut source = attempt.source;
            source.set_port(near.key.port());
            let ends = Ends { near, peer, source, local };
            let arrived = self.join(&listener, attempt, &ends);
            if arrived.is_err() {
                network.directory.with(|directory| directory.release(&near));
            }
            arrived
        });
        if arrived.is_err() {
            network.directory.with(|directory| directory.release(&peer));
        }
        arrived
    }

    /// Makes the peer's end and joins both. The peer's end becomes visible under this end's lock: a context that ends it from
    /// then on sends this end a message, and waits here until this end is set up.
    fn join(
        &self,
        listener: &Shared<ListenerObject<P>>,
        attempt: &Attempt<'_, P>,
        ends: &Ends,
    ) -> Result<Shared<ConnectorObject<P>>, ConnectError> {
        let connector = &self.0;
        let arrived = arrive(connector, listener, attempt, ends)?;
        connector.state.with(|state| {
            if state.phase != Phase::Connecting {
                return Err(ConnectError::Aborted);
            }
            arrived.open.adapter.register(&Object::of(&arrived))?;
            state.peer = Some(arrived.clone());
            state.endpoint = Some(ends.near);
            if let Source::Shared(shared) = attempt.request.source {
                state.shared = Some((shared.0.clone(), Hold::new(Object::of(&shared.0))));
            }
            state.local = Some(ends.source);
            state.peer_address = Some(in_zone_of(ends.local, ends.source));
            state.limits = attempt.limits;
            state.data = None;
            state.pair = Some((attempt.pair.clone(), Hold::new(Object::of(attempt.pair))));
            state.request = Some(connector.pending(attempt.request.callback));
            waiting::begin(connector, state, connector.open.adapter.timeouts.connect);
            Ok(())
        })?;
        Ok(arrived)
    }
}

/// A connection attempt whose arguments have been checked.
struct Attempt<'a, P: Platform> {
    request: &'a Connect<'a, P>,
    /// The local address; its port may still be 0.
    source: SocketAddr,
    limits: ReadLimits,
    data: PrivateData,
    pair: &'a Shared<QueuePairObject<P>>,
}

/// Both ends of a connection to be: what is counted for them, and what each calls itself.
struct Ends {
    near: Bound,
    peer: Bound,
    source: SocketAddr,
    local: SocketAddr,
}

/// An address as seen from `here`: link-local ones in the zone of `here`, others without one.
fn in_zone_of(address: SocketAddr, here: SocketAddr) -> SocketAddr {
    let mut seen = address;
    if let SocketAddr::V6(seen) = &mut seen {
        seen.set_scope_id(if seen.ip().is_unicast_link_local() { scope_of(here) } else { 0 });
    }
    seen
}

/// Makes the connector of the passive end, complete and not yet visible.
fn arrive<P: Platform>(
    near: &Shared<ConnectorObject<P>>,
    listener: &Shared<ListenerObject<P>>,
    attempt: &Attempt<'_, P>,
    ends: &Ends,
) -> Result<Shared<ConnectorObject<P>>, NoMemory> {
    let place = Reserved::try_new()?;
    let timer = waiting::timer(&listener.open.adapter)?;
    Ok(assemble(place, timer, (near, listener), attempt, ends))
}

/// Puts it together in its place. The frame holds the whole object, so nothing below it may go deep: nothing fails here, and
/// nothing is dropped.
#[inline(never)]
fn assemble<P: Platform>(
    place: Reserved<ConnectorObject<P>>,
    timer: Option<Timer<P>>,
    (near, listener): (&Shared<ConnectorObject<P>>, &Shared<ListenerObject<P>>),
    attempt: &Attempt<'_, P>,
    ends: &Ends,
) -> Shared<ConnectorObject<P>> {
    let adapter = &listener.open.adapter;
    let antecedents = Antecedents::none().with(Object::of(&listener.open)).with(Object::of(listener));
    let offer = ReadLimits { inbound: u32::MAX, outbound: u32::MAX }.capped(adapter).against(attempt.limits);
    let state = State {
        phase: Phase::Arrived,
        arriving: true,
        peer: Some(near.clone()),
        peer_pair: Some(attempt.pair.clone()),
        endpoint: Some(ends.peer),
        local: Some(ends.local),
        peer_address: Some(in_zone_of(ends.source, ends.local)),
        limits: offer,
        data: Some((attempt.data.clone(), near.open.adapter.limits.caller_data)),
        ..State::new()
    };
    place.fill(ConnectorObject {
        core: adapter.core(ObjectKind::Connector, None, antecedents),
        open: listener.open.clone(),
        network: near.network.clone(),
        listener: Some(listener.clone()),
        timer,
        state: P::Lock::new(state),
    })
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

impl<P: Platform> State<P> {
    /// On an arrived connector: what the peer offered, turned back into the peer's view.
    fn limits_of_peer(&self) -> ReadLimits {
        ReadLimits { inbound: self.limits.outbound, outbound: self.limits.inbound }
    }
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

    /// Takes an idle connector for a connection attempt.
    fn reserve(&self) -> Result<(), ConnectError> {
        self.state.with(|state| match state.phase {
            Phase::Idle if state.request.is_none() => {
                state.phase = Phase::Connecting;
                // An address of an earlier attempt is not reported any more.
                (state.local, state.peer_address) = (None, None);
                Ok(())
            }
            Phase::Idle | Phase::Ended(_) => Err(ConnectError::InvalidState),
            _ => Err(ConnectError::AlreadyConnected),
        })
    }

    pub(super) fn on_accepted(
        &self,
        state: &mut State<P>,
        peer: Shared<QueuePairObject<P>>,
        limits: ReadLimits,
        data: &PrivateData,
    ) -> After<P> {
        let mut after = After::nothing();
        if state.phase == Phase::Connecting {
            state.phase = Phase::Answered;
            state.limits = state.limits.against(limits);
            state.peer_pair = Some(peer);
            state.data = Some((data.clone(), self.open.adapter.limits.callee_data));
            state.resolve(Ok(()));
        } else {
            // This end gave up meanwhile and has sent that.
            after.dropped.peer_pair = Some(peer);
        }
        after
    }

    /// The attempt failed; the connector can try again.
    pub(super) fn on_rejected(
        &self,
        state: &mut State<P>,
        data: Option<&PrivateData>,
        error: ConnectError,
    ) -> After<P> {
        let mut after = After::nothing();
        if state.phase != Phase::Connecting {
            return after;
        }
        state.phase = Phase::Idle;
        state.data = data.map(|data| (data.clone(), self.open.adapter.limits.callee_data));
        after.result = Some(Err(error));
        after.dropped.peer = state.peer.take();
        after.dropped.endpoint = state.endpoint.take();
        after.dropped.shared = state.shared.take();
        after.free(state.pair.take());
        count(&self.open.adapter.statistics.connect_failure);
        after
    }

    pub(super) fn on_ready(&self, state: &mut State<P>) -> After<P> {
        if state.phase == Phase::Accepting {
            state.phase = Phase::Connected;
            state.was_connected = true;
            if let Some((pair, _)) = &state.pair {
                pair.mark(pair_state::connected(state.limits.outbound));
            }
            state.resolve(Ok(()));
            count(&self.open.adapter.statistics.accept);
            count(&self.open.adapter.statistics.active_connection);
        }
        After::nothing()
    }

    pub(super) fn on_abandoned(&self, state: &mut State<P>) -> After<P> {
        let refused = self.open.semantics.abandoned_is_refused;
        match state.phase {
            Phase::Arrived => {
                let arriving = state.arriving;
                count(&self.open.adapter.statistics.connect_failure);
                let after = state.give_up(ConnectError::Aborted, None);
                state.arriving = arriving;
                after
            }
            Phase::Accepting => {
                count(&self.open.adapter.statistics.connect_failure);
                state.give_up(if refused { ConnectError::Refused } else { ConnectError::Aborted }, None)
            }
            _ => After::nothing(),
        }
    }
}
