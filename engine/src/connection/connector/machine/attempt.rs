//! The steps to a connection: connect, accept or reject, complete, and the ends of an attempt.

use super::{AcceptedRequest, ConnectorMachine};
use crate::connection::connector::ReadLimits;
use crate::connection::connector::effects::{ConnectorCount, ConnectorEffects, PeerEffect, QueuePairEffect};
use crate::connection::connector::state::{ConnectorState, EndedState, MachineTypes, TiedQueuePair, WaitingRequest};
use crate::connection::message::{EndMessage, Message};
use crate::error::ConnectError;
use crate::private_data::PrivateData;

impl<T: MachineTypes> ConnectorMachine<T> {
    pub(super) fn on_connect(&mut self) -> ConnectorEffects<T> {
        match self.state {
            ConnectorState::Idle if !self.due.has_completion() => {
                self.put(ConnectorState::Requesting);
                // An address of an earlier attempt is not reported any more.
                (self.local, self.peer_address) = (None, None);
                ConnectorEffects::none()
            }
            ConnectorState::Idle | ConnectorState::Ended(_) => ConnectorEffects::refused(ConnectError::InvalidState),
            _ => ConnectorEffects::refused(ConnectError::AlreadyConnected),
        }
    }

    #[inline(never)]
    pub(super) fn on_requested(
        &mut self,
        peer: T::PeerHandle,
        tied: TiedQueuePair<T>,
        waiting: WaitingRequest<T>,
    ) -> ConnectorEffects<T> {
        if let ConnectorState::Requesting = self.state {
            self.put(ConnectorState::Connecting { peer, tied, waiting });
            self.data = None;
            return ConnectorEffects::none();
        }
        // Closed meanwhile.
        let mut effects = ConnectorEffects::refused(ConnectError::Aborted);
        effects.sender = Some(peer);
        effects.queue_pair = QueuePairEffect::Free(tied);
        effects.request = Some(waiting.request);
        effects
    }

    pub(super) fn on_connect_failed(&mut self) -> ConnectorEffects<T> {
        if let ConnectorState::Requesting = self.state {
            self.put(ConnectorState::Idle);
        }
        ConnectorEffects::none()
    }

    #[inline(never)]
    pub(super) fn on_complete_connect(&mut self, disconnect: Option<T::DisconnectHandle>) -> ConnectorEffects<T> {
        match self.take() {
            ConnectorState::Answered { peer, tied } => {
                let mut effects = ConnectorEffects::none();
                effects.peer = Some(PeerEffect::message(peer.clone(), Message::Ready));
                effects.reaches = true;
                effects.opens = true;
                effects.count = Some(ConnectorCount::Connected);
                self.put(ConnectorState::Connected { peer, tied, disconnect, noticed: false });
                effects
            }
            other => {
                self.put(other);
                ConnectorEffects::refused(self.refusal())
            }
        }
    }

    #[inline(never)]
    pub(super) fn on_accept(&mut self, accept: AcceptedRequest<T>) -> ConnectorEffects<T> {
        let AcceptedRequest { tied, limits, data, disconnect, waiting } = accept;
        match self.take() {
            ConnectorState::Arrived { peer } => {
                let mut effects = ConnectorEffects::none();
                self.limits = limits.against(self.limits.of_peer());
                let answer = Message::Accepted { limits: self.limits, data };
                let pair = Some(tied.pair.clone());
                effects.peer = Some(PeerEffect { peer: peer.clone(), message: Some(answer), pair });
                effects.reaches = true;
                self.put(ConnectorState::Accepting { peer, tied, waiting, disconnect });
                effects
            }
            other => {
                self.put(other);
                let mut effects = ConnectorEffects::refused(self.refusal());
                effects.queue_pair = QueuePairEffect::Free(tied);
                effects.data = Some(data);
                effects.request = Some(waiting.request);
                effects
            }
        }
    }

    #[inline(never)]
    pub(super) fn on_reject(&mut self, data: PrivateData) -> ConnectorEffects<T> {
        match self.state {
            ConnectorState::Arrived { .. } => {
                self.fail_attempt(ConnectError::InvalidState, Some(EndMessage::Rejected { data }))
            }
            ConnectorState::Answered { .. } => {
                let mut effects = self.fail_attempt(ConnectError::InvalidState, Some(EndMessage::Abandoned));
                effects.data = Some(data);
                effects
            }
            _ => {
                let mut effects = ConnectorEffects::refused(self.refusal());
                effects.data = Some(data);
                effects
            }
        }
    }

    #[inline(never)]
    pub(super) fn on_accepted(
        &mut self,
        from: T::PeerHandle,
        limits: ReadLimits,
        data: PrivateData,
    ) -> ConnectorEffects<T> {
        let mut effects = ConnectorEffects::none();
        match self.take() {
            ConnectorState::Connecting { peer, tied, waiting } => {
                self.limits = self.limits.against(limits);
                self.data = Some((data, self.rules.callee_data));
                self.due.complete(waiting.request, Ok(()));
                // The handle of now reaches the peer's queue pair.
                self.put(ConnectorState::Answered { peer: from, tied });
                effects.sender = Some(peer);
            }
            other => {
                // This end gave up meanwhile and has sent that.
                self.put(other);
                effects.sender = Some(from);
                effects.data = Some(data);
            }
        }
        effects
    }

    #[inline(never)]
    pub(super) fn on_rejected(&mut self, data: PrivateData) -> ConnectorEffects<T> {
        if let ConnectorState::Connecting { .. } = self.state {
            return self.refuse_attempt(Some(data), ConnectError::Refused, None);
        }
        let mut effects = ConnectorEffects::none();
        effects.data = Some(data);
        effects
    }

    #[inline(never)]
    pub(super) fn on_refused(&mut self, error: ConnectError) -> ConnectorEffects<T> {
        self.refuse_attempt(None, error, None)
    }

    #[inline(never)]
    pub(super) fn on_ready(&mut self) -> ConnectorEffects<T> {
        let mut effects = ConnectorEffects::none();
        match self.take() {
            ConnectorState::Accepting { peer, tied, waiting, disconnect } => {
                effects.opens = true;
                effects.count = Some(ConnectorCount::Accepted);
                self.due.complete(waiting.request, Ok(()));
                self.put(ConnectorState::Connected { peer, tied, disconnect, noticed: false });
            }
            other => self.put(other),
        }
        effects
    }

    #[inline(never)]
    pub(super) fn on_abandoned(&mut self) -> ConnectorEffects<T> {
        match self.state {
            ConnectorState::Accepting { .. } if self.rules.semantics.abandoned_is_refused => {
                self.fail_attempt(ConnectError::Refused, None)
            }
            ConnectorState::Arrived { .. } | ConnectorState::Accepting { .. } => {
                self.fail_attempt(ConnectError::Aborted, None)
            }
            _ => ConnectorEffects::none(),
        }
    }

    /// The attempt of a connecting end failed; the connector can try again.
    #[inline(never)]
    pub(super) fn refuse_attempt(
        &mut self,
        data: Option<PrivateData>,
        error: ConnectError,
        message: Option<EndMessage>,
    ) -> ConnectorEffects<T> {
        match self.take() {
            ConnectorState::Connecting { peer, tied, waiting } => {
                self.data = data.map(|data| (data, self.rules.callee_data));
                self.due.complete_later(waiting.request, Err(error));
                let peer = Some(PeerEffect::end(peer, message));
                let effects = ConnectorEffects::parting(QueuePairEffect::Free(tied), peer);
                let count = Some(ConnectorCount::AttemptFailed);
                ConnectorEffects { count, completes: true, frees_endpoint: true, ..effects }
            }
            other => {
                self.put(other);
                ConnectorEffects::none()
            }
        }
    }

    /// The attempt is over for this end, which gets no other: a request fails, the peer gets the message and is released.
    #[inline(never)]
    pub(super) fn fail_attempt(&mut self, error: ConnectError, message: Option<EndMessage>) -> ConnectorEffects<T> {
        let part = |peer| Some(PeerEffect::end(peer, message));
        let state = self.take();
        self.put(ConnectorState::Ended(EndedState::Failed(error)));
        let completes = matches!(state, ConnectorState::Connecting { .. } | ConnectorState::Accepting { .. });
        let effects = match state {
            ConnectorState::Connecting { peer, tied, waiting }
            | ConnectorState::Accepting { peer, tied, waiting, .. } => {
                self.due.complete_later(waiting.request, Err(error));
                ConnectorEffects::parting(QueuePairEffect::Free(tied), part(peer))
            }
            ConnectorState::Answered { peer, tied } => {
                ConnectorEffects::parting(QueuePairEffect::Free(tied), part(peer))
            }
            ConnectorState::Arrived { peer } => ConnectorEffects::parting(QueuePairEffect::Nothing, part(peer)),
            // The call of Connect finds its connector closed.
            ConnectorState::Requesting => ConnectorEffects::none(),
            other => {
                debug_assert!(false, "{other} is no attempt");
                self.put(other);
                return ConnectorEffects::none();
            }
        };
        ConnectorEffects { count: Some(ConnectorCount::AttemptFailed), completes, ..effects }
    }
}
