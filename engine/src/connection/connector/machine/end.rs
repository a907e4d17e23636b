//! The ends of a connection: graceful or abortive disconnect, close, failed request, vanished address, time-out.

use super::ConnectorMachine;
use crate::connection::connector::effects::{ConnectorCount, ConnectorEffects, PeerEffect, QueuePairEffect};
use crate::connection::connector::state::{ConnectorState, EndedState, MachineTypes, TiedQueuePair, WaitingRequest};
use crate::connection::message::{EndMessage, Message};
use crate::error::{ConnectError, DisconnectReason};
use crate::private_data::PrivateData;

impl<T: MachineTypes> ConnectorMachine<T> {
    #[inline(never)]
    pub(super) fn on_disconnect(&mut self, waiting: WaitingRequest<T>) -> ConnectorEffects<T> {
        let mut effects = ConnectorEffects::none();
        match self.take() {
            ConnectorState::Connected { peer, tied, noticed, .. } if !self.due.has_completion() => {
                effects.peer = Some(PeerEffect::message(peer.clone(), Message::Notice));
                if noticed || self.rules.semantics.flush_on_disconnect {
                    effects.queue_pair = QueuePairEffect::End(tied.pair.clone());
                }
                self.put(ConnectorState::Disconnecting { peer, tied, waiting, noticed });
            }
            ConnectorState::Ended(EndedState::Broken(tied)) if !self.due.has_completion() => {
                effects.queue_pair = QueuePairEffect::End(tied.pair.clone());
                self.put(draining(Some(tied), waiting.request, Ok(())));
            }
            other => {
                self.put(other);
                effects = ConnectorEffects::refused(ConnectError::InvalidState);
                effects.request = Some(waiting.request);
                return effects;
            }
        }
        self.due.event = None;
        effects
    }

    /// What is still connected or on its way ends abortively.
    #[inline(never)]
    pub(super) fn on_close(&mut self) -> ConnectorEffects<T> {
        let abort = EndMessage::Abort { reason: DisconnectReason::Closed };
        let mut effects = match self.state {
            ConnectorState::Idle | ConnectorState::Ended(EndedState::Failed(_)) => {
                self.put(ConnectorState::Ended(EndedState::Failed(ConnectError::Aborted)));
                ConnectorEffects::none()
            }
            ConnectorState::Requesting | ConnectorState::Connecting { .. } | ConnectorState::Answered { .. } => {
                self.fail_attempt(ConnectError::Aborted, Some(EndMessage::Abandoned))
            }
            ConnectorState::Arrived { .. } => {
                self.fail_attempt(ConnectError::Aborted, Some(EndMessage::Rejected { data: PrivateData::empty() }))
            }
            ConnectorState::Accepting { .. } => self.fail_attempt(ConnectError::Aborted, Some(abort)),
            ConnectorState::Connected { .. } | ConnectorState::Disconnecting { .. } => {
                self.end_connection(ConnectError::Aborted, Some(abort), ConnectorCount::Ended)
            }
            ConnectorState::Ended(_) => ConnectorEffects::none(),
        };
        self.due.event = None;
        self.due.arrival = false;
        effects.frees_endpoint = true;
        self.leave_queue_pair(&mut effects);
        effects
    }

    /// After the peer's end the receives were left to this side: a close is a disconnect without a completion.
    fn leave_queue_pair(&mut self, effects: &mut ConnectorEffects<T>) {
        let (left, is_drain_awaited) = match self.take() {
            ConnectorState::Ended(EndedState::Broken(tied)) => {
                self.put(ConnectorState::Ended(EndedState::Over(None)));
                (Some(tied), false)
            }
            ConnectorState::Ended(EndedState::Over(tied)) => {
                self.put(ConnectorState::Ended(EndedState::Over(None)));
                (tied, false)
            }
            ConnectorState::Ended(EndedState::Draining { tied, request, result }) => {
                self.put(draining(None, request, result));
                (tied, true)
            }
            other => {
                self.put(other);
                (None, false)
            }
        };
        if let Some(tied) = left {
            effects.queue_pair = QueuePairEffect::Leave { tied, is_drain_awaited };
        }
    }

    #[inline(never)]
    pub(super) fn on_notice(&mut self) -> ConnectorEffects<T> {
        let mut effects = ConnectorEffects::none();
        match &mut self.state {
            ConnectorState::Connected { tied, noticed: noticed @ false, disconnect, .. } => {
                *noticed = true;
                self.due.event = disconnect.map(|callback| (callback, DisconnectReason::Disconnected));
                // With an event, the flush comes after it (`delivering`).
                if self.rules.semantics.flush_on_peer_end && self.due.event.is_none() {
                    effects.queue_pair = QueuePairEffect::End(tied.pair.clone());
                }
            }
            ConnectorState::Disconnecting { tied, noticed: noticed @ false, .. } => {
                *noticed = true;
                effects.queue_pair = QueuePairEffect::End(tied.pair.clone());
            }
            _ => {}
        }
        effects
    }

    #[inline(never)]
    pub(super) fn on_abort(&mut self, reason: DisconnectReason) -> ConnectorEffects<T> {
        match self.state {
            ConnectorState::Connecting { .. } => self.refuse_attempt(None, ConnectError::Aborted, None),
            // Accepting: the other end has completed and ended at once; its Ready follows this, and finds this end over.
            ConnectorState::Answered { .. } | ConnectorState::Accepting { .. } => {
                let is_late = reason == DisconnectReason::TimedOut;
                self.fail_attempt(if is_late { ConnectError::TimedOut } else { ConnectError::Aborted }, None)
            }
            ConnectorState::Connected { noticed, .. } => {
                let event = self.event(reason);
                let count = if noticed { ConnectorCount::Ended } else { ConnectorCount::Broken };
                let mut effects = self.end_connection(ConnectError::Aborted, None, count);
                self.due.event = event;
                effects.queue_pair = match effects.queue_pair {
                    // The flush comes after the event (`delivering`).
                    QueuePairEffect::End(_) if self.due.event.is_some() && self.rules.semantics.flush_on_peer_end => {
                        QueuePairEffect::Nothing
                    }
                    QueuePairEffect::End(pair) => QueuePairEffect::Cut(pair),
                    other => other,
                };
                effects
            }
            ConnectorState::Disconnecting { .. } => {
                self.end_connection(ConnectError::Aborted, None, ConnectorCount::Ended)
            }
            _ => ConnectorEffects::none(),
        }
    }

    #[inline(never)]
    pub(super) fn on_timed_out(&mut self) -> ConnectorEffects<T> {
        let abort = EndMessage::Abort { reason: DisconnectReason::TimedOut };
        match self.state {
            ConnectorState::Connecting { .. } => {
                self.refuse_attempt(None, ConnectError::TimedOut, Some(EndMessage::Abandoned))
            }
            ConnectorState::Accepting { .. } => self.fail_attempt(ConnectError::TimedOut, Some(abort)),
            ConnectorState::Disconnecting { noticed: false, .. } => {
                self.end_connection(ConnectError::TimedOut, Some(abort), ConnectorCount::Ended)
            }
            _ => ConnectorEffects::none(),
        }
    }

    /// This side's consumer has seen the failure of its request and gets no event.
    #[inline(never)]
    pub(super) fn on_queue_pair_failed(&mut self) -> ConnectorEffects<T> {
        match self.state {
            ConnectorState::Connected { .. } | ConnectorState::Disconnecting { .. } => {
                let abort = EndMessage::Abort { reason: DisconnectReason::PeerFailed };
                self.end_connection(ConnectError::Aborted, Some(abort), ConnectorCount::Broken)
            }
            _ => ConnectorEffects::none(),
        }
    }

    /// A disconnect that waited for the drain is done. Before the peer's answer the drain is that of a flush.
    #[inline(never)]
    pub(super) fn on_queue_pair_drained(&mut self) -> ConnectorEffects<T> {
        let mut effects = ConnectorEffects::none();
        match self.take() {
            ConnectorState::Disconnecting { peer, tied, waiting, noticed: true } => {
                effects.count = Some(ConnectorCount::Ended);
                effects.sender = Some(peer);
                self.due.complete(waiting.request, Ok(()));
                self.put(ConnectorState::Ended(EndedState::Over(Some(tied))));
            }
            ConnectorState::Ended(EndedState::Draining { tied, request, result }) => {
                self.due.complete(request, result);
                self.put(ConnectorState::Ended(EndedState::Over(tied)));
            }
            other => self.put(other),
        }
        effects
    }

    #[inline(never)]
    pub(super) fn on_address_gone(&mut self, here: DisconnectReason, there: DisconnectReason) -> ConnectorEffects<T> {
        let abort = EndMessage::Abort { reason: there };
        match self.state {
            ConnectorState::Connecting { .. } | ConnectorState::Answered { .. } => {
                self.fail_attempt(ConnectError::Aborted, Some(EndMessage::Abandoned))
            }
            ConnectorState::Arrived { .. } => {
                self.fail_attempt(ConnectError::Aborted, Some(EndMessage::Rejected { data: PrivateData::empty() }))
            }
            ConnectorState::Accepting { .. } => self.fail_attempt(ConnectError::Aborted, Some(abort)),
            ConnectorState::Connected { .. } | ConnectorState::Disconnecting { .. } => {
                let event = self.event(here);
                let effects = self.end_connection(ConnectError::Aborted, Some(abort), ConnectorCount::Broken);
                self.due.event = event;
                effects
            }
            ConnectorState::Idle | ConnectorState::Requesting | ConnectorState::Ended(_) => ConnectorEffects::none(),
        }
    }

    /// The disconnect event of a connection that ends for a reason: that of an earlier notice stays as it is, and a consumer
    /// that disconnects gets none.
    fn event(&self, reason: DisconnectReason) -> Option<(T::DisconnectHandle, DisconnectReason)> {
        match self.state {
            ConnectorState::Connected { noticed: false, disconnect, .. } => {
                disconnect.map(|callback| (callback, reason))
            }
            ConnectorState::Connected { noticed: true, .. } => self.due.event,
            _ => None,
        }
    }

    /// The connection is over for this end: the peer gets the message and is released, the queue pair is flushed.
    #[inline(never)]
    fn end_connection(
        &mut self,
        error: ConnectError,
        message: Option<EndMessage>,
        count: ConnectorCount,
    ) -> ConnectorEffects<T> {
        self.due.event = None;
        let (peer, pair) = match self.take() {
            ConnectorState::Connected { peer, tied, .. } => {
                let pair = tied.pair.clone();
                self.put(ConnectorState::Ended(EndedState::Broken(tied)));
                (peer, pair)
            }
            ConnectorState::Disconnecting { peer, tied, waiting, noticed } => {
                let pair = tied.pair.clone();
                // It completes when the queue pair has drained; and with success when the peer has already answered it.
                self.put(draining(Some(tied), waiting.request, if noticed { Ok(()) } else { Err(error) }));
                (peer, pair)
            }
            other => {
                debug_assert!(false, "{other} is no connection");
                self.put(other);
                return ConnectorEffects::none();
            }
        };
        let peer = Some(PeerEffect::end(peer, message));
        let effects = ConnectorEffects::parting(QueuePairEffect::End(pair), peer);
        ConnectorEffects { count: Some(count), ..effects }
    }
}

fn draining<T: MachineTypes>(
    tied: Option<TiedQueuePair<T>>,
    request: T::RequestHandle,
    result: Result<(), ConnectError>,
) -> ConnectorState<T> {
    ConnectorState::Ended(EndedState::Draining { tied, request, result })
}
