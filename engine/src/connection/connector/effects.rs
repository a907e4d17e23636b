//! What an event leaves to do, and doing it.
//!
//! Counters, the timer and the link of the queue pair change under the connector's lock, so that they follow the order of the
//! events. Everything that reaches other objects or may drop the last pointer to one is done after it.

use core::sync::atomic::Ordering;

use softndk_cells::Shared;

use super::machine::{ConnectorEvent, ConnectorMachine};
use super::state::{MachineTypes, TiedQueuePair};
use super::{ConnectorObject, SharedUse, calls, timeouts};
use crate::change::{ConnectionCause, ConnectionChange, ConnectionRecord};
use crate::connection::message::{EndMessage, Message};
use crate::counters::{Statistics, count};
use crate::error::ConnectError;
use crate::object::header::Object;
use crate::platform::{Lock, Platform};
use crate::private_data::PrivateData;
use crate::queue_pair::pair::{End, QueuePairObject, state as pair_state};

/// What an event leaves to do.
#[expect(clippy::struct_excessive_bools, reason = "independent effects")]
pub(super) struct ConnectorEffects<T: MachineTypes> {
    /// What a call answers. Refused calls have no other effect than to give back what they brought.
    pub(super) answer: Result<(), ConnectError>,
    pub(super) count: Option<ConnectorCount>,
    /// For the front end's record; [`step`] fills it in.
    pub(super) change: Option<ConnectionChange>,
    /// The queue pair reaches that of the peer from now on.
    pub(super) reaches: bool,
    /// The initiator queue takes requests from now on.
    pub(super) opens: bool,
    /// A service pass has something to hand out.
    pub(super) is_due: bool,
    /// The completion that is held is handed out when queue pair and endpoint are free.
    pub(super) completes: bool,
    /// The local endpoint is in use no more.
    pub(super) frees_endpoint: bool,
    pub(super) peer: Option<PeerEffect<T>>,
    pub(super) queue_pair: QueuePairEffect<T>,
    // The rest is only dropped, outside the lock.
    pub(super) sender: Option<T::PeerHandle>,
    pub(super) data: Option<PrivateData>,
    pub(super) request: Option<T::RequestHandle>,
}

/// The peer gets a message, or is only dropped.
pub(super) struct PeerEffect<T: MachineTypes> {
    pub(super) peer: T::PeerHandle,
    pub(super) message: Option<Message>,
    /// What the peer reaches at this end, once it has the message.
    pub(super) pair: Option<T::QueuePairHandle>,
}

impl<T: MachineTypes> PeerEffect<T> {
    pub(super) const fn message(peer: T::PeerHandle, message: Message) -> Self {
        Self { peer, message: Some(message), pair: None }
    }

    /// The peer is left, with a message or without one.
    pub(super) fn end(peer: T::PeerHandle, message: Option<EndMessage>) -> Self {
        Self { peer, message: message.map(Message::from), pair: None }
    }
}

pub(super) enum QueuePairEffect<T: MachineTypes> {
    Nothing,
    /// Cancel everything.
    End(T::QueuePairHandle),
    /// Cancel initiator requests, and receives where the contract requires it.
    Cut(T::QueuePairHandle),
    /// The attempt failed: the queue pair may be used again.
    Free(TiedQueuePair<T>),
    /// Cancel everything, for a connector that is closed and depends on the queue pair from now on. `is_drain_awaited`: it still
    /// reports its drain to a disconnect under way, which unties the two then.
    Leave {
        tied: TiedQueuePair<T>,
        is_drain_awaited: bool,
    },
}

/// What the adapter counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ConnectorCount {
    /// CompleteConnect.
    Connected,
    /// The same at the passive end.
    Accepted,
    AttemptFailed,
    /// A connection, as at least one side wished.
    Ended,
    /// A connection, and no side wished it.
    Broken,
}

impl ConnectorCount {
    const fn change(self, cause: ConnectionCause) -> ConnectionChange {
        match self {
            Self::Connected => ConnectionChange::Connected,
            Self::Accepted => ConnectionChange::Accepted,
            Self::AttemptFailed => ConnectionChange::Failed(cause),
            Self::Ended | Self::Broken => ConnectionChange::Ended(cause),
        }
    }

    fn record(self, statistics: &Statistics) {
        let active = &statistics.active_connection;
        match self {
            Self::Connected | Self::Accepted => {
                count(if self == Self::Connected { &statistics.connect } else { &statistics.accept });
                count(active);
            }
            Self::AttemptFailed => count(&statistics.connect_failure),
            Self::Ended | Self::Broken => {
                active.fetch_sub(1, Ordering::Relaxed);
                if self == Self::Broken {
                    count(&statistics.connection_error);
                }
            }
        }
    }
}

impl<T: MachineTypes> ConnectorEffects<T> {
    pub(super) const fn none() -> Self {
        Self::parting(QueuePairEffect::Nothing, None)
    }

    /// Effects on queue pair and peer.
    pub(super) const fn parting(queue_pair: QueuePairEffect<T>, peer: Option<PeerEffect<T>>) -> Self {
        Self {
            answer: Ok(()),
            count: None,
            change: None,
            reaches: false,
            opens: false,
            is_due: false,
            completes: false,
            frees_endpoint: false,
            peer,
            queue_pair,
            sender: None,
            data: None,
            request: None,
        }
    }

    pub(super) fn refused(error: ConnectError) -> Self {
        Self { answer: Err(error), ..Self::none() }
    }
}

/// An event, for a caller that holds the connector's lock.
#[inline(never)]
pub(super) fn step<P: Platform>(
    connector: &Shared<ConnectorObject<P>>,
    machine: &mut ConnectorMachine<P>,
    event: ConnectorEvent<P>,
) -> ConnectorEffects<P> {
    let deadline = machine.state.deadline();
    let cause = event.cause();
    let mut effects = machine.on(event);
    timeouts::update(connector, deadline, machine.state.deadline());
    if let Some(count) = effects.count {
        // Under the lock, so that an end that follows at once is counted after the beginning.
        count.record(&connector.open.adapter.statistics);
        effects.change = Some(count.change(cause));
    }
    if let Some(pair) = machine.state.queue_pair() {
        if let Some(peer) = machine.state.peer().filter(|_| effects.reaches) {
            let peer = peer.queue_pair();
            pair.link.with(|link| link.peer = peer);
        }
        if effects.opens {
            pair.mark(pair_state::connected(machine.limits.outbound));
        }
    }
    effects.is_due = machine.due.is_any();
    effects
}

/// An event and its effects: what the call answers.
#[inline(never)]
pub(super) fn process<P: Platform>(
    connector: &Shared<ConnectorObject<P>>,
    event: ConnectorEvent<P>,
) -> Result<(), ConnectError> {
    // Its locks would raise and lower the level one by one.
    connector.core.scheduler.platform().raised(|_| {
        let effects = connector.machine.with(|machine| step(connector, machine, event));
        let answer = effects.answer;
        carry_out(connector, effects);
        answer
    })
}

/// Does outside the lock what an event left to do, and links the connector for what a service pass hands out.
#[inline(never)]
pub(super) fn carry_out<P: Platform>(connector: &Shared<ConnectorObject<P>>, mut effects: ConnectorEffects<P>) {
    if let Some(change) = effects.change {
        report(connector, change);
    }
    // A queue pair is free for another connection when the peer of this one does not count on it any more.
    if let QueuePairEffect::Free(_) = effects.queue_pair {
        send(connector, &mut effects);
    }
    match &effects.queue_pair {
        QueuePairEffect::Nothing => {}
        QueuePairEffect::End(pair) => pair.end(),
        QueuePairEffect::Cut(pair) => pair.cut(connector.open.semantics.flush_on_peer_end),
        QueuePairEffect::Free(tied) => calls::release_claim(&tied.pair),
        QueuePairEffect::Leave { tied, is_drain_awaited } => leave(connector, &tied.pair, *is_drain_awaited),
    }
    // What else it consists of is dropped at the end.
    let endpoint = if effects.frees_endpoint { free_endpoint(connector) } else { None };
    if effects.completes {
        connector.machine.with(|machine| machine.due.release());
    }
    send(connector, &mut effects);
    if effects.is_due {
        connector.core.scheduler.link(&Object::of(connector));
    }
    drop(endpoint);
}

/// The front end's record of what became of the connection. No lock is held.
#[inline(never)]
pub(super) fn report<P: Platform>(connector: &ConnectorObject<P>, change: ConnectionChange) {
    let (local, peer) = connector.machine.with(|machine| (machine.local, machine.peer_address));
    let record = ConnectionRecord { connector: connector.core.number, local, peer, change };
    connector.core.scheduler.platform().connection_changed(&record);
}

fn send<P: Platform>(connector: &Shared<ConnectorObject<P>>, effects: &mut ConnectorEffects<P>) {
    if let Some(PeerEffect { peer, message, pair }) = &mut effects.peer
        && let Some(message) = message.take()
    {
        peer.send(connector, message, pair.take());
    }
}

/// The endpoint is free; a new attempt begins only when the completion of this one is handed out.
#[inline(never)]
fn free_endpoint<P: Platform>(connector: &ConnectorObject<P>) -> Option<SharedUse<P>> {
    let endpoint = connector.machine.with(|machine| machine.endpoint.take())?;
    connector.network.directory.with(|directory| directory.release(&endpoint.used));
    endpoint.shared
}

/// A closed connector depends on its queue pair until it is finished.
#[inline(never)]
fn leave<P: Platform>(connector: &ConnectorObject<P>, pair: &Shared<QueuePairObject<P>>, is_drain_awaited: bool) {
    if !is_drain_awaited {
        // From here on the queue pair does not report to its connector.
        let connector = pair.link.with(|link| link.connector.take());
        drop(connector);
    }
    connector.core.depend_on(Object::of(pair));
    pair.end();
}
