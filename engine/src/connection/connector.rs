//! Connectors: one end of a connection, from the request to the end.
//!
//! A connector is the state machine of NDKPI's three-step connection (connect, accept, complete) and of its endings, driven by
//! the consumer's calls and by the peer's messages. This file has the states and what a change leaves to do; `establishing` has
//! the steps to a connection, `ending` every way out of it, `waiting` the time-outs, `delivering` the calls that a service pass
//! makes to the consumer. Each end changes under its own lock and sends its message afterwards; messages may cross, and each
//! state defines what it does with each of them.
//!
//! Rules (NDKPI: NDK_FN_CONNECT, NDK_FN_ACCEPT, NDK_FN_COMPLETE_CONNECT, NDK_FN_REJECT, NDK_FN_DISCONNECT): Connect completes
//! at Accept, Accept completes at CompleteConnect; a disconnect waits for the peer's answer, then flushes, then completes; the
//! peer gets at most one disconnect event, and none for what it ended itself; an incoming end does not flush receives (in the
//! NDK column).

mod delivering;
mod ending;
mod establishing;
mod waiting;

use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::Ordering;

use softndk_cells::Shared;

use crate::adapter::adapter::AdapterObject;
use crate::adapter::open::OpenObject;
use crate::connection::endpoint::Bound;
use crate::connection::listener::ListenerObject;
use crate::connection::message::{Message, MessageWire, PrivateData};
use crate::connection::network::Network;
use crate::connection::shared_endpoint::SharedEndpointObject;
use crate::error::{ConnectError, CreateError, DisconnectReason};
use crate::object::event::ServicePass;
use crate::object::header::{Antecedents, Core, Hold, Object, object};
use crate::object::snapshot::{ConnectionEntry, ObjectKind, ObjectState};
use crate::object::timer::Timer;
use crate::platform::{Lock, Platform};
use crate::queue_pair::loopback::Loopback;
use crate::queue_pair::pair::{End, QueuePairObject};

pub use delivering::{Arrival, ConnectEvent};
pub use establishing::{Accept, Connect, Source};

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

    /// What is left of these limits beside those of the peer: its outbound Reads are the inbound ones here.
    fn against(self, peer: Self) -> Self {
        Self { inbound: self.inbound.min(peer.outbound), outbound: self.outbound.min(peer.inbound) }
    }
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
    /// Over, with the error of further calls.
    Ended(ConnectError),
}

struct Pending<P: Platform> {
    callback: P::RequestCallback,
    result: Option<Result<(), ConnectError>>,
    hold: Hold<P>,
}

pub(crate) struct ConnectorObject<P: Platform> {
    pub(crate) core: Core<P>,
    open: Shared<OpenObject<P>>,
    network: Shared<Network<P>>,
    /// Set for a connector that arrived.
    listener: Option<Shared<ListenerObject<P>>>,
    /// On an adapter that has time-outs.
    timer: Option<Timer<P>>,
    state: P::Lock<State<P>>,
}

#[expect(clippy::struct_excessive_bools, reason = "independent facts, each changed by its own message")]
struct State<P: Platform> {
    phase: Phase,
    /// An arrived connector that no service pass has handed out yet.
    arriving: bool,
    /// It has been connected once; its queue pair is used up.
    was_connected: bool,
    /// This side's disconnect is under way, the peer's notice has arrived.
    disconnecting: bool,
    noticed: bool,
    /// The error of this side's disconnect once the queue pair has drained.
    cut_off: Option<ConnectError>,
    peer: Option<Shared<ConnectorObject<P>>>,
    pair: Option<(Shared<QueuePairObject<P>>, Hold<P>)>,
    peer_pair: Option<Shared<QueuePairObject<P>>>,
    endpoint: Option<Bound>,
    /// The shared endpoint it connects over.
    shared: Option<(Shared<SharedEndpointObject<P>>, Hold<P>)>,
    local: Option<SocketAddr>,
    peer_address: Option<SocketAddr>,
    limits: ReadLimits,
    data: Option<(PrivateData, u32)>,
    request: Option<Pending<P>>,
    /// When the request stops waiting for the other side.
    deadline: Option<u64>,
    disconnect: Option<P::DisconnectCallback>,
    /// Completions that processors are handing out now.
    completing: u32,
    event_due: bool,
    /// The reason in the disconnect event.
    reason: DisconnectReason,
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
            peer: None,
            pair: None,
            peer_pair: None,
            endpoint: None,
            shared: None,
            local: None,
            peer_address: None,
            limits: ReadLimits::default(),
            data: None,
            request: None,
            deadline: None,
            disconnect: None,
            completing: 0,
            event_due: false,
            reason: DisconnectReason::Disconnected,
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

/// A message to the peer over the only wire.
type MessageOf<P> = Message<Shared<QueuePairObject<P>>>;

/// What remains to be done outside the lock.
struct After<P: Platform> {
    /// How the pending request ended; its consumer may use queue pair and address again, so it is completed after they are
    /// free.
    result: Option<Result<(), ConnectError>>,
    tell: Option<(Shared<ConnectorObject<P>>, MessageOf<P>)>,
    pair: PairAfter<P>,
    /// Dropped outside the lock: pointers and holds.
    dropped: Dropped<P>,
}

enum PairAfter<P: Platform> {
    Nothing,
    /// Cancel everything.
    End(Shared<QueuePairObject<P>>),
    /// Cancel initiator requests, and receives where the contract requires it.
    Cut(Shared<QueuePairObject<P>>),
    /// The attempt failed: the queue pair may be used again.
    Free(Shared<QueuePairObject<P>>),
}

#[derive(Default)]
struct Dropped<P: Platform> {
    peer: Option<Shared<ConnectorObject<P>>>,
    peer_pair: Option<Shared<QueuePairObject<P>>>,
    pair: Option<(Shared<QueuePairObject<P>>, Hold<P>)>,
    endpoint: Option<Bound>,
    shared: Option<(Shared<SharedEndpointObject<P>>, Hold<P>)>,
}

impl<P: Platform> After<P> {
    fn nothing() -> Self {
        let dropped = Dropped { peer: None, peer_pair: None, pair: None, endpoint: None, shared: None };
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
    pub(crate) fn create(
        network: &Shared<Network<P>>,
        open: &Shared<OpenObject<P>>,
        consumer_object: P::ConsumerObject,
    ) -> Result<Self, CreateError> {
        let adapter = &open.adapter;
        adapter.ready()?;
        let connector = Shared::try_new(ConnectorObject {
            core: adapter.core(
                ObjectKind::Connector,
                Some(consumer_object),
                Antecedents::none().with(Object::of(open)),
            ),
            open: open.clone(),
            network: network.clone(),
            listener: None,
            timer: waiting::timer(adapter)?,
            state: P::Lock::new(State::new()),
        })?;
        adapter.register(&Object::of(&connector))?;
        Ok(Self(connector))
    }

    /// What the peer sent, copied into `buffer` as far as it goes. `InvalidState` before anything arrived.
    pub fn connection_data(&self, buffer: &mut [u8]) -> Result<ConnectionData, ConnectError> {
        let fixed = self.0.open.semantics.fixed_private_data;
        self.0.state.with(|state| {
            let (data, capacity) = state.data.as_ref().ok_or(ConnectError::InvalidState)?;
            let required = if fixed { *capacity as usize } else { data.length() };
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
        self.0.state.with(|state| state.peer_address)
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
    pub(crate) fn established(&self) -> Option<ConnectionEntry> {
        self.state.with(|state| match (state.phase, state.local, state.peer_address) {
            (Phase::Connected, Some(local), Some(remote)) => Some(ConnectionEntry { local, remote }),
            _ => None,
        })
    }

    pub(crate) fn listed_state(&self) -> ObjectState {
        self.state.with(|state| match state.phase {
            Phase::Idle => ObjectState::Idle,
            Phase::Connecting => ObjectState::Connecting,
            Phase::Answered => ObjectState::Answered,
            Phase::Arrived => ObjectState::Arrived,
            Phase::Accepting => ObjectState::Accepting,
            Phase::Connected => ObjectState::Connected,
            Phase::Ended(_) => ObjectState::Ended,
        })
    }

    fn count_end(&self) {
        self.open.adapter.statistics.active_connection.fetch_sub(1, Ordering::Relaxed);
    }
}

object!(ConnectorObject {
    fn work(&self, pass: &mut ServicePass<'_, P>) {
        delivering::service(self, pass.sink);
    }

    fn is_limited(&self) -> bool {
        false
    }

    fn snapshot_state(&self) -> ObjectState {
        self.listed_state()
    }

    fn addresses_gone(&self, gone: &dyn Fn(IpAddr) -> bool) {
        ending::abort(self, gone);
    }

    fn tied_failed(&self) {
        ending::queue_pair_failed(self);
    }

    fn tied_drained(&self) -> bool {
        ending::queue_pair_drained(self)
    }

    fn connection(&self) -> Option<ConnectionEntry> {
        self.established()
    }
});

/// Steps on the shared pointer, because they link the object.
trait Step<P: Platform> {
    fn pending(&self, callback: P::RequestCallback) -> Pending<P>;
    fn finish_after(&self, after: After<P>);
}

impl<P: Platform> Step<P> for Shared<ConnectorObject<P>> {
    fn pending(&self, callback: P::RequestCallback) -> Pending<P> {
        Pending { callback, result: None, hold: Hold::new(Object::of(self)) }
    }

    /// Does outside the lock what a change left to do, and links the connector for its events.
    fn finish_after(&self, mut after: After<P>) {
        // A queue pair is free for another connection when the peer of this one does not count on it any more.
        if let PairAfter::Free(_) = after.pair
            && let Some((peer, message)) = after.tell.take()
        {
            Loopback::tell(&peer, self, message);
        }
        match after.pair {
            PairAfter::Nothing => {}
            PairAfter::End(pair) => pair.end(),
            PairAfter::Cut(pair) => pair.cut(self.open.semantics.flush_on_peer_end),
            PairAfter::Free(pair) => establishing::release_claim(&pair),
        }
        if let Some(endpoint) = after.dropped.endpoint {
            self.network.directory.with(|directory| directory.release(&endpoint));
        }
        if let Some(result) = after.result {
            self.state.with(|state| state.resolve(result));
        }
        if let Some((peer, message)) = after.tell {
            Loopback::tell(&peer, self, message);
        }
        self.core.scheduler.link(&Object::of(self));
    }
}

/// A message of the other end.
pub(crate) fn on_message<P: Platform>(
    connector: &Shared<ConnectorObject<P>>,
    from: &Shared<ConnectorObject<P>>,
    message: MessageOf<P>,
) {
    match message {
        Message::Accepted { peer, limits, data } => {
            hear(connector, from, |state| connector.on_accepted(state, peer, limits, &data));
        }
        Message::Rejected { data } => {
            hear(connector, from, |state| connector.on_rejected(state, Some(&data), ConnectError::Refused));
        }
        Message::Ready => hear(connector, from, |state| connector.on_ready(state)),
        Message::Abandoned => hear(connector, from, |state| connector.on_abandoned(state)),
        Message::Notice => hear(connector, from, |state| connector.on_notice(state)),
        Message::Abort { reason } => hear(connector, from, |state| connector.on_abort(state, reason)),
    }
}

/// The effect of one message, unless it is late, from the end of an earlier attempt. Each has a frame of its own: inlined here,
/// they would add up to a large one.
#[inline(never)]
fn hear<P: Platform>(
    connector: &Shared<ConnectorObject<P>>,
    from: &Shared<ConnectorObject<P>>,
    effect: impl FnOnce(&mut State<P>) -> After<P>,
) {
    // What has no effect stays here and is dropped outside the lock.
    let mut effect = Some(effect);
    let after = connector.state.with(|state| {
        let expected = state.peer.as_ref().is_some_and(|peer| peer.is(from));
        effect.take_if(|_| expected).map(|effect| effect(state))
    });
    if let Some(after) = after {
        connector.finish_after(after);
    }
}
