//! Connectors: one end of a connection, from the request to the end.
//!
//! What it is: the state machine of NDKPI's three-step connection (connect, accept, complete) and of its endings, driven by the
//! consumer's calls and by the messages of the other end. What it is not: a lock over both ends. Each end changes under its own
//! lock and tells the other afterwards; messages may cross, and each state says what it makes of each of them.
//!
//! Rules (NDKPI: NDK_FN_CONNECT, NDK_FN_ACCEPT, NDK_FN_COMPLETE_CONNECT, NDK_FN_REJECT, NDK_FN_DISCONNECT): Connect completes at
//! Accept, Accept completes at CompleteConnect; a disconnect waits for the peer's answer, then flushes, then completes; the peer
//! gets at most one disconnect event, and none for what it ended itself; an incoming end does not flush receives (in the NDK
//! column); nothing here times out, because people sit in debuggers.

use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::Ordering;

use softndk_cells::Shared;

use crate::adapter::AdapterObject;
use crate::cause::{ConnectError, CreateError, Requested};
use crate::endpoint::EndpointKey;
use crate::event::{Arrival, Close, ConnectEvent, DisconnectEvent, RequestCompletion, Sink};
use crate::life::{Antecedents, Core, Hold, Object};
use crate::listener::ListenerObject;
use crate::loopback::Loopback;
use crate::opening::OpeningObject;
use crate::platform::{Lock, Platform};
use crate::queue_pair::{End, QueuePair, QueuePairObject, state as pair_state};
use crate::snapshot::ConnectionEntry;
use crate::statistics::count;
use crate::wire::{Message, PrivateData, Wire};

/// Reads a side lets in and sends out at a time.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReadLimits {
    pub inbound: u32,
    pub outbound: u32,
}

impl ReadLimits {
    fn capped<P: Platform>(self, adapter: &AdapterObject<P>) -> Self {
        let limits = &adapter.limits;
        Self { inbound: self.inbound.min(limits.inbound_reads), outbound: self.outbound.min(limits.outbound_reads) }
    }

    /// What is left of these limits when the peer has `peer`: its outbound Reads are our inbound ones.
    fn against(self, peer: Self) -> Self {
        Self { inbound: self.inbound.min(peer.outbound), outbound: self.outbound.min(peer.inbound) }
    }
}

/// A connection request.
pub struct Connect<'a, P: Platform> {
    pub queue_pair: &'a QueuePair<P>,
    /// A local address; port 0 picks a port.
    pub source: SocketAddr,
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

/// What the peer sent, beside the bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionData {
    pub limits: ReadLimits,
    /// Bytes a buffer needs (the contract's "required private data buffer size").
    pub required: u32,
    /// Bytes copied into the buffer.
    pub copied: u32,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Idle,
    /// Active end: the request is on its way.
    Connecting,
    /// Active end: accepted, not yet completed.
    Answered,
    /// Passive end: not yet answered.
    Arrived,
    /// Passive end: accepted, waits for the active end to complete.
    Accepting,
    Connected,
    /// Over, and why a call that still comes fails.
    Ended(ConnectError),
}

struct Pending<P: Platform> {
    callback: P::RequestCallback,
    result: Option<Result<(), ConnectError>>,
    hold: Hold<P>,
}

pub(crate) struct ConnectorObject<P: Platform> {
    pub(crate) core: Core<P>,
    opening: Shared<OpeningObject<P>>,
    /// Set for a connector that arrived.
    listener: Option<Shared<ListenerObject<P>>>,
    state: P::Lock<State<P>>,
}

#[expect(clippy::struct_excessive_bools, reason = "independent facts, each changed by its own message")]
struct State<P: Platform> {
    phase: Phase,
    /// An arrived connector that no turn has handed out yet.
    arriving: bool,
    /// It has been connected once; its queue pair is used up.
    was_connected: bool,
    /// Our disconnect is under way, the peer's notice has come.
    disconnecting: bool,
    noticed: bool,
    /// Why our disconnect fails when the queue pair has come to rest.
    cut_off: Option<ConnectError>,
    far: Option<Shared<ConnectorObject<P>>>,
    pair: Option<(Shared<QueuePairObject<P>>, Hold<P>)>,
    far_pair: Option<Shared<QueuePairObject<P>>>,
    endpoint: Option<EndpointKey>,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    limits: ReadLimits,
    data: Option<(PrivateData, u32)>,
    request: Option<Pending<P>>,
    disconnect: Option<P::DisconnectCallback>,
    event_due: bool,
}

impl<P: Platform> State<P> {
    fn new() -> Self {
        Self {
            phase: Phase::Idle,
            arriving: false,
            was_connected: false,
            disconnecting: false,
            noticed: false,
            cut_off: None,
            far: None,
            pair: None,
            far_pair: None,
            endpoint: None,
            local: None,
            peer: None,
            limits: ReadLimits::default(),
            data: None,
            request: None,
            disconnect: None,
            event_due: false,
        }
    }

    /// Whether a disconnect waits for its end.
    fn is_disconnect_pending(&self) -> bool {
        self.disconnecting && self.request.as_ref().is_some_and(|request| request.result.is_none())
    }

    fn resolve(&mut self, result: Result<(), ConnectError>) {
        if let Some(request) = self.request.as_mut().filter(|request| request.result.is_none()) {
            request.result = Some(result);
        }
    }
}

/// What the other end is told over the one wire there is.
type Told<P> = Message<Shared<QueuePairObject<P>>>;

/// What remains to be done outside the lock.
struct After<P: Platform> {
    /// How the pending request ended; its consumer may use queue pair and address again, so it hears of it after they are free.
    result: Option<Result<(), ConnectError>>,
    tell: Option<(Shared<ConnectorObject<P>>, Told<P>)>,
    pair: PairAfter<P>,
    /// Dropped outside the lock: pointers and holds.
    dropped: Dropped<P>,
}

enum PairAfter<P: Platform> {
    Nothing,
    /// Cancel everything.
    End(Shared<QueuePairObject<P>>),
    /// Cancel initiator requests, and receives where the contract says so.
    Cut(Shared<QueuePairObject<P>>),
    /// The attempt came to nothing: the queue pair may be used again.
    Free(Shared<QueuePairObject<P>>),
}

#[derive(Default)]
struct Dropped<P: Platform> {
    far: Option<Shared<ConnectorObject<P>>>,
    far_pair: Option<Shared<QueuePairObject<P>>>,
    pair: Option<(Shared<QueuePairObject<P>>, Hold<P>)>,
    endpoint: Option<EndpointKey>,
}

impl<P: Platform> After<P> {
    fn nothing() -> Self {
        let dropped = Dropped { far: None, far_pair: None, pair: None, endpoint: None };
        Self { result: None, tell: None, pair: PairAfter::Nothing, dropped }
    }
}

/// A connector.
pub struct Connector<P: Platform>(pub(crate) Shared<ConnectorObject<P>>);

impl<P: Platform> Clone for Connector<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Platform> Connector<P> {
    pub(crate) fn create(opening: &Shared<OpeningObject<P>>, block: P::Block) -> Result<Self, CreateError> {
        let adapter = &opening.core.adapter;
        adapter.ready()?;
        let connector = Shared::try_new(ConnectorObject {
            core: Core::new(adapter, Some(block), Antecedents::none().with(Object::Opening(opening.clone()))),
            opening: opening.clone(),
            listener: None,
            state: P::Lock::new(State::new()),
        })?;
        adapter.register(&Object::Connector(connector.clone()))?;
        Ok(Self(connector))
    }

    /// Asks for a connection. Pending until the other side answers.
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
        if connected.is_err() {
            count(&connector.core.adapter.statistics.connect_failure);
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
        let far = connector.state.with(|state| {
            match state.phase {
                Phase::Answered => {}
                Phase::Ended(cause) if !state.was_connected => return Err(cause),
                _ => return Err(ConnectError::InvalidState),
            }
            state.phase = Phase::Connected;
            state.was_connected = true;
            state.disconnect = disconnect;
            if let Some((pair, _)) = &state.pair {
                let far_pair = state.far_pair.take();
                pair.bond.with(|bond| bond.far = far_pair);
                pair.mark(pair_state::CONNECTED);
            }
            // Under the lock, so that an end that comes at once is counted after it.
            let statistics = &connector.core.adapter.statistics;
            count(&statistics.connect);
            count(&statistics.active_connection);
            Ok(state.far.clone())
        })?;
        if let Some(far) = far {
            Loopback::tell(&far, connector, Message::Ready);
        }
        Ok(Requested::Done)
    }

    /// Answers an arrived request. Pending until the active end completes.
    #[expect(clippy::needless_pass_by_value, reason = "the request is used up by the call")]
    pub fn accept(&self, request: Accept<'_, P>) -> Result<Requested, ConnectError> {
        let connector = &self.0;
        let adapter = &connector.core.adapter;
        let data = PrivateData::new(request.private_data, adapter.limits.callee_data)?;
        let pair = claim(request.queue_pair, connector)?;
        let accepted = connector.state.with(|state| {
            match state.phase {
                Phase::Arrived => {}
                Phase::Ended(cause) if !state.was_connected => return Err(cause),
                _ => return Err(ConnectError::InvalidState),
            }
            state.phase = Phase::Accepting;
            state.limits = request.limits.capped(adapter).against(state.limits_of_peer());
            state.disconnect = request.disconnect;
            state.request = Some(connector.pending(request.callback));
            let far_pair = state.far_pair.take();
            pair.bond.with(|bond| bond.far = far_pair);
            state.pair = Some((pair.clone(), Hold::new(Object::QueuePair(pair.clone()))));
            Ok((state.far.clone(), state.limits))
        });
        let (far, limits) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                release_claim(&pair);
                return Err(error);
            }
        };
        if let Some(far) = far {
            Loopback::tell(&far, connector, Message::Accepted { far: pair, limits, data });
        }
        Ok(Requested::Pending)
    }

    /// Says no: to an arrived request, or (active end) to an answer.
    pub fn reject(&self, private_data: &[u8]) -> Result<(), ConnectError> {
        let connector = &self.0;
        let data = PrivateData::new(private_data, connector.core.adapter.limits.callee_data)?;
        let after = connector.state.with(|state| {
            let message = match state.phase {
                Phase::Arrived => Message::Rejected { data },
                Phase::Answered => Message::Abandoned,
                Phase::Ended(cause) if !state.was_connected => return Err(cause),
                _ => return Err(ConnectError::InvalidState),
            };
            Ok(state.give_up(ConnectError::InvalidState, Some(message)))
        })?;
        count(&connector.core.adapter.statistics.connect_failure);
        connector.finish_after(after);
        Ok(())
    }

    /// Ends the connection with grace: pending until the peer has answered and everything is flushed.
    pub fn disconnect(&self, callback: P::RequestCallback) -> Result<Requested, ConnectError> {
        let connector = &self.0;
        let after = connector.state.with(|state| {
            let over = matches!(state.phase, Phase::Ended(_));
            let open = state.phase == Phase::Connected || over && state.was_connected;
            if !open || state.disconnecting || state.request.is_some() {
                return Err(ConnectError::InvalidState);
            }
            state.disconnecting = true;
            state.event_due = false;
            state.request = Some(connector.pending(callback));
            let mut after = After::nothing();
            if !over {
                after.tell = state.far.clone().map(|far| (far, Message::Notice));
            }
            if over || state.noticed {
                after.pair = state.pair.as_ref().map_or(PairAfter::Nothing, |(pair, _)| PairAfter::End(pair.clone()));
            }
            Ok(after)
        })?;
        connector.finish_after(after);
        Ok(Requested::Pending)
    }

    /// What the peer sent, copied into `buffer` as far as it goes. `InvalidState` when there is nothing yet.
    pub fn connection_data(&self, buffer: &mut [u8]) -> Result<ConnectionData, ConnectError> {
        let fixed = self.0.opening.semantics.fixed_private_data;
        self.0.state.with(|state| {
            let (data, room) = state.data.as_ref().ok_or(ConnectError::InvalidState)?;
            let required = if fixed { *room as usize } else { data.length() };
            let copied = required.min(buffer.len());
            if let (Some(to), Some(from)) = (buffer.get_mut(..copied), data.padded().get(..copied)) {
                to.copy_from_slice(from);
            }
            Ok(ConnectionData { limits: state.limits, required: required as u32, copied: copied as u32 })
        })
    }

    pub fn local_address(&self) -> Option<SocketAddr> {
        self.0.state.with(|state| state.local)
    }

    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.0.state.with(|state| state.peer)
    }

    /// Closes the connector; what is still connected or on its way ends without grace.
    pub fn close(&self, callback: P::CloseCallback) -> Close<P> {
        self.close_with(Some(callback))
    }

    fn close_with(&self, callback: Option<P::CloseCallback>) -> Close<P> {
        let connector = &self.0;
        connector.core.close(callback, || {
            let (after, pair) = connector.state.with(|state| {
                let message = match state.phase {
                    Phase::Connecting | Phase::Answered => Some(Message::Abandoned),
                    Phase::Arrived => Some(Message::Rejected { data: PrivateData::empty() }),
                    Phase::Accepting | Phase::Connected => Some(Message::Abort),
                    Phase::Idle | Phase::Ended(_) => None,
                };
                let was_open = state.phase == Phase::Connected;
                let mut after = state.give_up(ConnectError::Aborted, message);
                if was_open {
                    connector.count_end();
                }
                after.dropped.endpoint = state.endpoint.take();
                (after, state.pair.take().map(|pair| (pair, state.is_disconnect_pending())))
            });
            if let Some(((pair, hold), disconnecting)) = pair {
                // A disconnect under way is told of the queue pair's rest first, and unties the two then.
                if !disconnecting {
                    untie(&pair);
                }
                connector.core.depend_on(Object::QueuePair(pair));
                drop(hold);
            }
            connector.finish_after(after);
        })
    }

    fn connect_reserved(&self, request: &Connect<'_, P>) -> Result<Requested, ConnectError> {
        let connector = &self.0;
        let adapter = &connector.core.adapter;
        let limits = request.limits.capped(adapter);
        let data = PrivateData::new(request.private_data, adapter.limits.caller_data)?;
        if !adapter.is_running() {
            return Err(ConnectError::AdapterGone);
        }
        if !adapter.has_address(request.source.ip()) || request.source.is_ipv4() != request.destination.is_ipv4() {
            return Err(ConnectError::InvalidAddress);
        }
        let pair = claim(request.queue_pair, connector)?;
        let attempt = Attempt { request, limits, data, pair: &pair };
        let arrived = self.attempt(&attempt);
        match arrived {
            Ok(arrived) => {
                arrived.core.fabric.link(&Object::Connector(arrived.clone()));
                // An address or adapter that went while we looked has not seen these two.
                sever_if_homeless(connector);
                sever_if_homeless(&arrived);
                Ok(Requested::Pending)
            }
            Err(error) => {
                release_claim(&pair);
                Err(error)
            }
        }
    }

    /// Finds the listener, takes the local endpoint, makes the other end; nothing is visible before all of it stands.
    // On a frame of its own, which is gone when the outcome is looked at.
    #[inline(never)]
    fn attempt(&self, attempt: &Attempt<'_, P>) -> Result<Shared<ConnectorObject<P>>, ConnectError> {
        let connector = &self.0;
        let adapter = &connector.core.adapter;
        let (fabric, request) = (&adapter.fabric, attempt.request);
        let destination = request.destination;
        let there = fabric
            .find_adapter(|other| {
                other.wire == adapter.wire && other.is_running() && other.has_address(destination.ip())
            })
            .ok_or(ConnectError::HostUnreachable)?;
        let far_key = EndpointKey { adapter: there.number, address: destination };
        // Under the directory's lock a listener that is found has not let its own hold go.
        let listener = fabric.0.directory.with(|directory| {
            let listener = directory.listener(&far_key).filter(|listener| listener.is_open())?.clone();
            let hold = Hold::new(Object::Listener(listener.clone()));
            directory.count(&far_key);
            Some((listener, hold))
        });
        let (listener, _hold) = listener.ok_or(ConnectError::Refused)?;
        let near_key = EndpointKey { adapter: adapter.number, address: request.source };
        let taken = fabric.0.directory.with(|directory| directory.take(near_key, None));
        let arrived = taken.map_err(ConnectError::from).and_then(|near_key| {
            let arrived = self.join(&listener, attempt, (near_key, far_key));
            if arrived.is_err() {
                fabric.0.directory.with(|directory| directory.release(&near_key));
            }
            arrived
        });
        if arrived.is_err() {
            fabric.0.directory.with(|directory| directory.release(&far_key));
        }
        arrived
    }

    /// Makes the other end and joins both. The other end becomes visible under this end's lock: whoever ends it from then on
    /// tells this end, and waits here until this end stands.
    fn join(
        &self,
        listener: &Shared<ListenerObject<P>>,
        attempt: &Attempt<'_, P>,
        keys: (EndpointKey, EndpointKey),
    ) -> Result<Shared<ConnectorObject<P>>, ConnectError> {
        let connector = &self.0;
        let arrived = arrive(connector, listener, attempt, keys)?;
        let (near_key, far_key) = keys;
        connector.state.with(|state| {
            if state.phase != Phase::Connecting {
                return Err(ConnectError::Aborted);
            }
            arrived.core.adapter.register(&Object::Connector(arrived.clone()))?;
            state.far = Some(arrived.clone());
            state.endpoint = Some(near_key);
            state.local = Some(near_key.address);
            state.peer = Some(far_key.address);
            state.limits = attempt.limits;
            state.data = None;
            state.pair = Some((attempt.pair.clone(), Hold::new(Object::QueuePair(attempt.pair.clone()))));
            state.request = Some(connector.pending(attempt.request.callback));
            Ok(())
        })?;
        Ok(arrived)
    }
}

/// A connection attempt whose arguments have been checked.
struct Attempt<'a, P: Platform> {
    request: &'a Connect<'a, P>,
    limits: ReadLimits,
    data: PrivateData,
    pair: &'a Shared<QueuePairObject<P>>,
}

/// Makes the connector of the passive end, complete and known to nobody.
fn arrive<P: Platform>(
    near: &Shared<ConnectorObject<P>>,
    listener: &Shared<ListenerObject<P>>,
    attempt: &Attempt<'_, P>,
    (near_key, far_key): (EndpointKey, EndpointKey),
) -> Result<Shared<ConnectorObject<P>>, ConnectError> {
    let adapter = &listener.core.adapter;
    let antecedents =
        Antecedents::none().with(Object::Opening(listener.opening.clone())).with(Object::Listener(listener.clone()));
    let offer = ReadLimits { inbound: u32::MAX, outbound: u32::MAX }.capped(adapter).against(attempt.limits);
    let state = State {
        phase: Phase::Arrived,
        arriving: true,
        far: Some(near.clone()),
        far_pair: Some(attempt.pair.clone()),
        endpoint: Some(far_key),
        local: Some(far_key.address),
        peer: Some(near_key.address),
        limits: offer,
        data: Some((attempt.data.clone(), near.core.adapter.limits.caller_data)),
        ..State::new()
    };
    let arrived = Shared::try_new(ConnectorObject {
        core: Core::new(adapter, None, antecedents),
        opening: listener.opening.clone(),
        listener: Some(listener.clone()),
        state: P::Lock::new(state),
    })?;
    Ok(arrived)
}

/// Ties a queue pair to a connector; only one connector ever succeeds with it.
fn claim<P: Platform>(
    pair: &QueuePair<P>,
    connector: &Shared<ConnectorObject<P>>,
) -> Result<Shared<QueuePairObject<P>>, ConnectError> {
    let pair = &pair.0;
    if !pair.domain.opening.is(&connector.opening) {
        return Err(ConnectError::Foreign);
    }
    if pair.state() & (pair_state::CONNECTED | pair_state::ENDED) != 0 {
        return Err(ConnectError::AlreadyConnected);
    }
    if pair.mark(pair_state::CLAIMED) & pair_state::CLAIMED != 0 {
        return Err(ConnectError::AlreadyConnected);
    }
    pair.bond.with(|bond| bond.connector = Some(connector.clone()));
    Ok(pair.clone())
}

/// A queue pair does not tell its connector anything any more.
fn untie<P: Platform>(pair: &QueuePairObject<P>) {
    let connector = pair.bond.with(|bond| bond.connector.take());
    drop(connector);
}

/// The attempt came to nothing: the queue pair is free for another.
fn release_claim<P: Platform>(pair: &Shared<QueuePairObject<P>>) {
    let (connector, far) = pair.bond.with(|bond| (bond.connector.take(), bond.far.take()));
    pair.unclaim();
    drop((connector, far));
}

impl<P: Platform> State<P> {
    /// On an arrived connector: what the peer offered, turned back into the peer's view.
    fn limits_of_peer(&self) -> ReadLimits {
        ReadLimits { inbound: self.limits.outbound, outbound: self.limits.inbound }
    }

    /// Ends this end, whatever its phase: requests fail, the other end is told and forgotten.
    fn give_up(&mut self, cause: ConnectError, message: Option<Told<P>>) -> After<P> {
        let mut after = After::nothing();
        let connected = self.phase == Phase::Connected;
        if self.is_disconnect_pending() {
            // It completes when the queue pair has come to rest; and with success when the peer has already answered it.
            self.cut_off = self.cut_off.or((connected && !self.noticed).then_some(cause));
        } else {
            after.result = Some(Err(cause));
        }
        let far = self.far.take();
        after.tell = far.zip(message);
        after.dropped.far_pair = self.far_pair.take();
        self.event_due = false;
        self.arriving = false;
        if connected {
            if let Some((pair, _)) = &self.pair {
                after.pair = PairAfter::End(pair.clone());
            }
        } else if !self.was_connected {
            after.free(self.pair.take());
        }
        self.phase = Phase::Ended(cause);
        after
    }
}

impl<P: Platform> After<P> {
    /// A queue pair that was only claimed is given back.
    fn free(&mut self, pair: Option<(Shared<QueuePairObject<P>>, Hold<P>)>) {
        if let Some((pair, hold)) = pair {
            self.pair = PairAfter::Free(pair.clone());
            self.dropped.pair = Some((pair, hold));
        }
    }
}

impl<P: Platform> ConnectorObject<P> {
    /// Takes an idle connector for a connection attempt.
    fn reserve(&self) -> Result<(), ConnectError> {
        self.state.with(|state| match state.phase {
            Phase::Idle if state.request.is_none() => {
                state.phase = Phase::Connecting;
                // An address of an earlier attempt is nobody's business any more.
                (state.local, state.peer) = (None, None);
                Ok(())
            }
            Phase::Connected => Err(ConnectError::AlreadyConnected),
            _ => Err(ConnectError::InvalidState),
        })
    }

    pub(crate) fn established(&self) -> Option<ConnectionEntry> {
        self.state.with(|state| match (state.phase, state.local, state.peer) {
            (Phase::Connected, Some(local), Some(remote)) => Some(ConnectionEntry { local, remote }),
            _ => None,
        })
    }

    fn count_end(&self) {
        self.core.adapter.statistics.active_connection.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Steps on the shared pointer, because they link the object.
trait Step<P: Platform> {
    fn pending(&self, callback: P::RequestCallback) -> Pending<P>;
    fn finish_after(&self, after: After<P>);
}

impl<P: Platform> Step<P> for Shared<ConnectorObject<P>> {
    fn pending(&self, callback: P::RequestCallback) -> Pending<P> {
        Pending { callback, result: None, hold: Hold::new(Object::Connector(self.clone())) }
    }

    /// Does outside the lock what a change left to do, and links the connector for its events.
    fn finish_after(&self, after: After<P>) {
        match after.pair {
            PairAfter::Nothing => {}
            PairAfter::End(pair) => pair.end(),
            PairAfter::Cut(pair) => pair.cut(self.opening.semantics.flush_on_peer_end),
            PairAfter::Free(pair) => release_claim(&pair),
        }
        if let Some(endpoint) = after.dropped.endpoint {
            self.core.fabric.0.directory.with(|directory| directory.release(&endpoint));
        }
        if let Some(result) = after.result {
            self.state.with(|state| state.resolve(result));
        }
        if let Some((far, message)) = after.tell {
            Loopback::tell(&far, self, message);
        }
        self.core.fabric.link(&Object::Connector(self.clone()));
    }
}

/// A message of the other end; one that comes late, from the end of an earlier attempt, is none.
pub(crate) fn told<P: Platform>(
    connector: &Shared<ConnectorObject<P>>,
    from: &Shared<ConnectorObject<P>>,
    message: Told<P>,
) {
    // A message that is none stays here and is dropped outside the lock.
    let mut message = Some(message);
    let after = connector.state.with(|state| {
        let expected = state.far.as_ref().is_some_and(|far| far.is(from));
        let message = message.take_if(|_| expected)?;
        Some(match message {
            Message::Accepted { far, limits, data } => connector.told_accepted(state, far, limits, &data),
            Message::Rejected { data } => connector.told_rejected(state, Some(&data), ConnectError::Refused),
            Message::Ready => connector.told_ready(state),
            Message::Abandoned => connector.told_abandoned(state),
            Message::Notice => connector.told_notice(state),
            Message::Abort => connector.told_abort(state),
        })
    });
    if let Some(after) = after {
        connector.finish_after(after);
    }
}

impl<P: Platform> ConnectorObject<P> {
    fn told_accepted(
        &self,
        state: &mut State<P>,
        far: Shared<QueuePairObject<P>>,
        limits: ReadLimits,
        data: &PrivateData,
    ) -> After<P> {
        let mut after = After::nothing();
        if state.phase == Phase::Connecting {
            state.phase = Phase::Answered;
            state.limits = state.limits.against(limits);
            state.far_pair = Some(far);
            state.data = Some((data.clone(), self.core.adapter.limits.callee_data));
            state.resolve(Ok(()));
        } else {
            // We gave up meanwhile and have said so.
            after.dropped.far_pair = Some(far);
        }
        after
    }

    /// The attempt failed; the connector can try again.
    fn told_rejected(&self, state: &mut State<P>, data: Option<&PrivateData>, cause: ConnectError) -> After<P> {
        let mut after = After::nothing();
        if state.phase != Phase::Connecting {
            return after;
        }
        state.phase = Phase::Idle;
        state.data = data.map(|data| (data.clone(), self.core.adapter.limits.callee_data));
        after.result = Some(Err(cause));
        after.dropped.far = state.far.take();
        after.dropped.endpoint = state.endpoint.take();
        after.free(state.pair.take());
        count(&self.core.adapter.statistics.connect_failure);
        after
    }

    fn told_ready(&self, state: &mut State<P>) -> After<P> {
        if state.phase == Phase::Accepting {
            state.phase = Phase::Connected;
            state.was_connected = true;
            if let Some((pair, _)) = &state.pair {
                pair.mark(pair_state::CONNECTED);
            }
            state.resolve(Ok(()));
            count(&self.core.adapter.statistics.accept);
            count(&self.core.adapter.statistics.active_connection);
        }
        After::nothing()
    }

    fn told_abandoned(&self, state: &mut State<P>) -> After<P> {
        let refused = self.opening.semantics.abandoned_is_refused;
        match state.phase {
            Phase::Arrived => {
                let arriving = state.arriving;
                let after = state.give_up(ConnectError::Aborted, None);
                state.arriving = arriving;
                after
            }
            Phase::Accepting => {
                count(&self.core.adapter.statistics.connect_failure);
                state.give_up(if refused { ConnectError::Refused } else { ConnectError::Aborted }, None)
            }
            _ => After::nothing(),
        }
    }

    fn told_notice(&self, state: &mut State<P>) -> After<P> {
        let mut after = After::nothing();
        if state.phase != Phase::Connected || state.noticed {
            return after;
        }
        state.noticed = true;
        let Some((pair, _)) = &state.pair else { return after };
        if state.disconnecting {
            after.pair = PairAfter::End(pair.clone());
        } else {
            state.event_due = true;
            if self.opening.semantics.flush_on_peer_end {
                after.pair = PairAfter::End(pair.clone());
            }
        }
        after
    }

    fn told_abort(&self, state: &mut State<P>) -> After<P> {
        match state.phase {
            Phase::Connecting => self.told_rejected(state, None, ConnectError::Aborted),
            Phase::Answered => state.give_up(ConnectError::Aborted, None),
            Phase::Accepting => {
                // The other end has completed and ended at once; its Ready is behind this, and finds us over.
                count(&self.core.adapter.statistics.connect_failure);
                state.give_up(ConnectError::Aborted, None)
            }
            Phase::Connected => {
                let event = !state.disconnecting && !state.noticed;
                let told = state.event_due;
                let mut after = state.give_up(ConnectError::Aborted, None);
                state.event_due = event || told;
                self.count_end();
                if event {
                    count(&self.core.adapter.statistics.connection_error);
                }
                if let (PairAfter::End(pair), false) = (&after.pair, state.disconnecting) {
                    after.pair = PairAfter::Cut(pair.clone());
                }
                after
            }
            _ => After::nothing(),
        }
    }
}

/// A request of the queue pair failed: the connection ends, the peer is told, this side knows already.
pub(crate) fn queue_pair_failed<P: Platform>(connector: &Shared<ConnectorObject<P>>) {
    let after = connector.state.with(|state| {
        if state.phase != Phase::Connected {
            return After::nothing();
        }
        connector.count_end();
        count(&connector.core.adapter.statistics.connection_error);
        state.give_up(ConnectError::Aborted, Some(Message::Abort))
    });
    connector.finish_after(after);
}

/// The queue pair has completed everything after its end: a disconnect that waited for that is done.
pub(crate) fn queue_pair_drained<P: Platform>(connector: &Shared<ConnectorObject<P>>, pair: &QueuePairObject<P>) {
    let (after, closed) = connector.state.with(|state| {
        let mut after = After::nothing();
        let over = matches!(state.phase, Phase::Ended(_));
        if state.disconnecting && (state.noticed || over) {
            if state.phase == Phase::Connected {
                connector.count_end();
                state.phase = Phase::Ended(ConnectError::InvalidState);
                after.dropped.far = state.far.take();
            }
            let result = state.cut_off.take().map_or(Ok(()), Err);
            state.resolve(result);
        }
        // Closed connectors have let go of their queue pair.
        (after, over && state.pair.is_none())
    });
    if closed {
        untie(pair);
    }
    connector.finish_after(after);
}

/// Ends a connector whose local address has gone; its consumer and the peer are told.
pub(crate) fn sever<P: Platform>(connector: &Shared<ConnectorObject<P>>, gone: &dyn Fn(IpAddr) -> bool) {
    let after = connector.state.with(|state| {
        if !state.local.is_some_and(|address| gone(address.ip())) {
            return After::nothing();
        }
        let message = match state.phase {
            Phase::Connecting | Phase::Answered => Message::Abandoned,
            Phase::Arrived => Message::Rejected { data: PrivateData::empty() },
            Phase::Accepting | Phase::Connected => Message::Abort,
            Phase::Idle | Phase::Ended(_) => return After::nothing(),
        };
        let connected = state.phase == Phase::Connected;
        let event = connected && !state.disconnecting && (!state.noticed || state.event_due);
        let arriving = state.arriving;
        let mut after = state.give_up(ConnectError::Aborted, Some(message));
        state.arriving = arriving;
        state.event_due = event;
        if connected {
            connector.count_end();
            count(&connector.core.adapter.statistics.connection_error);
        }
        after.dropped.endpoint = None;
        after
    });
    connector.finish_after(after);
}

/// Ends a connector whose adapter or address went while it was being made.
fn sever_if_homeless<P: Platform>(connector: &Shared<ConnectorObject<P>>) {
    let adapter = &connector.core.adapter;
    let running = adapter.is_running();
    sever(connector, &|address| !running || !adapter.has_address(address));
}

/// A turn's look at a connector: hands out its arrival, its request's end, its disconnect event, in this order.
pub(crate) fn look_at<P: Platform>(connector: &Shared<ConnectorObject<P>>, sink: &mut impl Sink<P>) {
    hand_out_arrival(connector, sink);
    let finished = connector.state.with(|state| state.request.take_if(|request| request.result.is_some()));
    if let Some(Pending { callback, result: Some(result), hold }) = finished {
        sink.request_completed(RequestCompletion { callback, result, hold });
    }
    let event = connector.state.with(|state| {
        let due = core::mem::take(&mut state.event_due);
        state.disconnect.filter(|_| due && !connector.core.is_closing()).map(|callback| {
            let hold = Hold::new(Object::Connector(connector.clone()));
            (callback, hold)
        })
    });
    if let Some((callback, hold)) = event {
        sink.disconnected(DisconnectEvent { callback, hold });
    }
}

fn hand_out_arrival<P: Platform>(connector: &Shared<ConnectorObject<P>>, sink: &mut impl Sink<P>) {
    let Some(listener) = &connector.listener else { return };
    let (arriving, waiting) = connector.state.with(|state| {
        let arriving = core::mem::take(&mut state.arriving);
        (arriving, state.phase == Phase::Arrived)
    });
    if !arriving {
        return;
    }
    let arrival = Arrival { connector: Connector(connector.clone()), adopted: false };
    if waiting && !listener.core.is_closing() {
        // The connector holds the listener, so another hold may be made.
        let hold = Hold::new(Object::Listener(listener.clone()));
        sink.connection_requested(ConnectEvent { callback: listener.connect, connector: arrival, hold });
    }
    // An arrival that is dropped here was abandoned before anybody saw it, or nobody listens any more: it refuses.
}

impl<P: Platform> Arrival<P> {
    /// The connector, to look at its addresses and data before it is adopted.
    pub fn connector(&self) -> &Connector<P> {
        &self.connector
    }

    /// Makes the connector the consumer's, with the front end's block; the close protocol applies from here on.
    pub fn adopt(mut self, block: P::Block) -> Connector<P> {
        self.connector.0.core.set_block(block);
        self.adopted = true;
        self.connector.clone()
    }
}

impl<P: Platform> Drop for Arrival<P> {
    fn drop(&mut self) {
        if !self.adopted {
            drop(self.connector.close_with(None));
        }
    }
}
