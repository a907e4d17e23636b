//! The endings of a connection: graceful or abortive disconnect, close, failed request, vanished address.
//!
//! Each ending and its message to the peer is here. The flush itself belongs to the queue pair.

use core::net::IpAddr;

use softndk_cells::Shared;

use super::{After, Connector, ConnectorObject, MessageOf, PairAfter, Phase, State, Step, waiting};
use crate::connection::message::{Message, PrivateData};
use crate::counters::count;
use crate::error::{ConnectError, DisconnectReason, Requested};
use crate::object::event::Close;
use crate::object::header::{Hold, Object};
use crate::platform::{Lock, Platform};
use crate::queue_pair::pair::QueuePairObject;

impl<P: Platform> Connector<P> {
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
            waiting::begin(connector, state, connector.open.adapter.timeouts.disconnect);
            let mut after = After::nothing();
            if !over {
                after.tell = state.peer.clone().map(|peer| (peer, Message::Notice));
            }
            if over || state.noticed || connector.open.semantics.flush_on_disconnect {
                after.pair = state.pair.as_ref().map_or(PairAfter::Nothing, |(pair, _)| PairAfter::End(pair.clone()));
            }
            Ok(after)
        })?;
        connector.finish_after(after);
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
        connector.core.close(callback, || {
            let (after, pair, shared) = connector.state.with(|state| {
                waiting::end(connector, state);
                let message = match state.phase {
                    Phase::Connecting | Phase::Answered => Some(Message::Abandoned),
                    Phase::Arrived => Some(Message::Rejected { data: PrivateData::empty() }),
                    Phase::Accepting | Phase::Connected => Some(Message::Abort { reason: DisconnectReason::Closed }),
                    Phase::Idle | Phase::Ended(_) => None,
                };
                let was_open = state.phase == Phase::Connected;
                // The side that gives an attempt up has seen it fail.
                let attempt = message.is_some();
                let mut after = state.give_up(ConnectError::Aborted, message);
                // After the peer's end the receives were left to this side: a close is a disconnect without a completion.
                if let (false, true, Some((pair, _))) = (was_open, state.was_connected, &state.pair) {
                    after.pair = PairAfter::End(pair.clone());
                }
                if was_open {
                    connector.count_end();
                } else if attempt {
                    count(&connector.open.adapter.statistics.connect_failure);
                }
                after.dropped.endpoint = state.endpoint.take();
                let pair = state.pair.take().map(|pair| (pair, state.is_disconnect_pending()));
                (after, pair, state.shared.take())
            });
            if let Some(((pair, hold), disconnecting)) = pair {
                // The queue pair still reports its drain to a disconnect under way, which unties the two then.
                if !disconnecting {
                    untie(&pair);
                }
                connector.core.depend_on(pair.into());
                drop(hold);
            }
            if let Some((shared, hold)) = shared {
                connector.core.depend_on(shared.into());
                drop(hold);
            }
            connector.finish_after(after);
        })
    }
}

/// From here on a queue pair does not report to its connector.
fn untie<P: Platform>(pair: &QueuePairObject<P>) {
    let connector = pair.link.with(|link| link.connector.take());
    drop(connector);
}

impl<P: Platform> State<P> {
    /// Ends this end, whatever its phase: requests fail, the peer gets the message and is released.
    pub(super) fn give_up(&mut self, error: ConnectError, message: Option<MessageOf<P>>) -> After<P> {
        let mut after = After::nothing();
        let connected = self.phase == Phase::Connected;
        if self.is_disconnect_pending() {
            // It completes when the queue pair has drained; and with success when the peer has already answered it.
            self.cut_off = self.cut_off.or((connected && !self.noticed).then_some(error));
        } else {
            after.result = Some(Err(error));
        }
        let peer = self.peer.take();
        after.tell = peer.zip(message);
        after.dropped.peer_pair = self.peer_pair.take();
        self.event_due = false;
        self.arriving = false;
        if connected {
            if let Some((pair, _)) = &self.pair {
                after.pair = PairAfter::End(pair.clone());
            }
        } else if !self.was_connected {
            after.free(self.pair.take());
        }
        self.phase = Phase::Ended(error);
        after
    }
}

impl<P: Platform> ConnectorObject<P> {
    pub(super) fn on_notice(&self, state: &mut State<P>) -> After<P> {
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
            state.reason = DisconnectReason::Disconnected;
            if self.open.semantics.flush_on_peer_end {
                after.pair = PairAfter::End(pair.clone());
            }
        }
        after
    }

    pub(super) fn on_abort(&self, state: &mut State<P>, reason: DisconnectReason) -> After<P> {
        match state.phase {
            Phase::Connecting => self.on_rejected(state, None, ConnectError::Aborted),
            // Accepting: the other end has completed and ended at once; its Ready follows this, and finds this end over.
            Phase::Answered | Phase::Accepting => {
                count(&self.open.adapter.statistics.connect_failure);
                let late = reason == DisconnectReason::TimedOut;
                state.give_up(if late { ConnectError::TimedOut } else { ConnectError::Aborted }, None)
            }
            Phase::Connected => {
                let event = !state.disconnecting && !state.noticed;
                let on_message = state.event_due;
                let mut after = state.give_up(ConnectError::Aborted, None);
                state.event_due = event || on_message;
                self.count_end();
                if event {
                    state.reason = reason;
                    count(&self.open.adapter.statistics.connection_error);
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

/// A request of the queue pair failed: the connection ends with a message to the peer; this side's consumer has seen the
/// failure.
pub(super) fn queue_pair_failed<P: Platform>(connector: &Shared<ConnectorObject<P>>) {
    let after = connector.state.with(|state| {
        if state.phase != Phase::Connected {
            return After::nothing();
        }
        connector.count_end();
        count(&connector.open.adapter.statistics.connection_error);
        state.give_up(ConnectError::Aborted, Some(Message::Abort { reason: DisconnectReason::PeerFailed }))
    });
    connector.finish_after(after);
}

/// The queue pair has completed everything after its end: a disconnect that waited for that is done. True when the connector is
/// closed and tied to it no more.
pub(super) fn queue_pair_drained<P: Platform>(connector: &Shared<ConnectorObject<P>>) -> bool {
    let (after, closed) = connector.state.with(|state| {
        let mut after = After::nothing();
        let over = matches!(state.phase, Phase::Ended(_));
        if state.disconnecting && (state.noticed || over) {
            if state.phase == Phase::Connected {
                connector.count_end();
                state.phase = Phase::Ended(ConnectError::InvalidState);
                after.dropped.peer = state.peer.take();
            }
            let result = state.cut_off.take().map_or(Ok(()), Err);
            state.resolve(result);
        }
        // Closed connectors have released their queue pair.
        (after, over && state.pair.is_none())
    });
    connector.finish_after(after);
    closed
}

/// Ends a connector whose local address has gone, with a message to its consumer and the peer.
pub(super) fn abort<P: Platform>(connector: &Shared<ConnectorObject<P>>, gone: &dyn Fn(IpAddr) -> bool) {
    let (ours, theirs) = if connector.open.adapter.is_running() {
        (DisconnectReason::AddressGone, DisconnectReason::PeerAddressGone)
    } else {
        (DisconnectReason::AdapterGone, DisconnectReason::PeerAdapterGone)
    };
    let after = connector.state.with(|state| {
        if !state.local.is_some_and(|address| gone(address.ip())) {
            return None;
        }
        let message = match state.phase {
            Phase::Connecting | Phase::Answered => Message::Abandoned,
            Phase::Arrived => Message::Rejected { data: PrivateData::empty() },
            Phase::Accepting | Phase::Connected => Message::Abort { reason: theirs },
            Phase::Idle | Phase::Ended(_) => return None,
        };
        let connected = state.phase == Phase::Connected;
        let event = connected && !state.disconnecting && (!state.noticed || state.event_due);
        let arriving = state.arriving;
        let after = state.give_up(ConnectError::Aborted, Some(message));
        state.arriving = arriving;
        state.event_due = event;
        if event && !state.noticed {
            state.reason = ours;
        }
        if connected {
            connector.count_end();
            count(&connector.open.adapter.statistics.connection_error);
        } else {
            count(&connector.open.adapter.statistics.connect_failure);
        }
        Some(after)
    });
    // Connectors that stay are not even linked: an adapter may have many.
    if let Some(after) = after {
        connector.finish_after(after);
    }
}

/// Ends a connector whose adapter or address was removed while it was being made.
pub(super) fn abort_if_orphaned<P: Platform>(connector: &Shared<ConnectorObject<P>>) {
    let adapter = &connector.open.adapter;
    let running = adapter.is_running();
    abort(connector, &|address| !running || !adapter.has_address(address));
}
