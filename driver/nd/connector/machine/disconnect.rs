//! The ends: of a connection by either side, of a request by its cancellation, of the connector.

use ndkpi_sys::nt::{NTSTATUS, STATUS_CANCELLED, STATUS_CONNECTION_DISCONNECTED, STATUS_SUCCESS};

use super::{
    super::{
        effects::{ConnectorEffects, EngineEffect, QueuePairEffect},
        state::{ConnectorState, MachineTypes, PendedRequest, StateParts},
    },
    ConnectorMachine,
};

impl<T: MachineTypes> ConnectorMachine<T> {
    #[inline(never)]
    pub(super) fn on_disconnect(&mut self, number: u64, request: Option<T::Request>) -> ConnectorEffects<T> {
        match self.take() {
            ConnectorState::Connected { pair, engine, .. } => self.disconnect(number, pair, engine, request),
            // This driver has answered the peer's end.
            ConnectorState::PeerGone { pair, engine } => {
                self.put(ConnectorState::Disconnected { pair, engine });
                let request = request.map(|request| (request, STATUS_SUCCESS));
                ConnectorEffects { request, ..ConnectorEffects::none() }
            }
            other => {
                self.put(other);
                let status = self.may_disconnect().err().unwrap_or(STATUS_CANCELLED);
                let request = request.map(|request| (request, status));
                ConnectorEffects { request, ..ConnectorEffects::refused(status) }
            }
        }
    }

    /// A connection ends by this side. Nothing waits for that where the request is not there or is cancelled already.
    fn disconnect(
        &mut self,
        number: u64,
        pair: T::QueuePair,
        engine: T::Engine,
        request: Option<T::Request>,
    ) -> ConnectorEffects<T> {
        let notified = Some(STATUS_CONNECTION_DISCONNECTED);
        match request {
            Some(request) if !request.is_cancelled() => {
                let effects = ConnectorEffects::proceeds(engine.clone(), number);
                self.put(ConnectorState::Disconnecting { number, pair, request, engine });
                ConnectorEffects { notified, ..effects }
            }
            unwanted => {
                let queue_pair = QueuePairEffect::Publish(pair.clone());
                let ends = EngineEffect::Disconnect(engine.clone());
                self.put(ConnectorState::Disconnected { pair, engine });
                let request = unwanted.map(|request| (request, STATUS_CANCELLED));
                ConnectorEffects { engine: ends, queue_pair, request, notified, ..ConnectorEffects::none() }
            }
        }
    }

    /// The driver answers in the process's place, so that the peer does not wait for it.
    #[inline(never)]
    pub(super) fn on_peer_ended(&mut self, number: u64) -> ConnectorEffects<T> {
        match self.take() {
            ConnectorState::Connected { number: own, pair, engine } if own == number => self.lose_peer(pair, engine),
            other => self.keep(other),
        }
    }

    /// An attempt is given up; a connection ends as if the peer had ended it.
    #[inline(never)]
    pub(super) fn on_memory_leaves(&mut self) -> ConnectorEffects<T> {
        match self.take() {
            ConnectorState::Connected { pair, engine, .. } => self.lose_peer(pair, engine),
            other => self.give_up(other),
        }
    }

    fn lose_peer(&mut self, pair: T::QueuePair, engine: T::Engine) -> ConnectorEffects<T> {
        let queue_pair = QueuePairEffect::Publish(pair.clone());
        let ends = EngineEffect::Disconnect(engine.clone());
        self.put(ConnectorState::PeerGone { pair, engine });
        ConnectorEffects { engine: ends, queue_pair, notified: Some(STATUS_SUCCESS), ..ConnectorEffects::none() }
    }

    #[inline(never)]
    pub(super) fn on_cancel(&mut self) -> ConnectorEffects<T> {
        match self.take() {
            // The connection ends all the same.
            ConnectorState::Disconnecting { pair, request, engine, .. } => {
                self.put(ConnectorState::Disconnected { pair, engine });
                ConnectorEffects::completes(request, STATUS_CANCELLED)
            }
            other => self.give_up(other),
        }
    }

    /// An attempt whose request waits is given up, and takes the engine's connector along: the next one gets a new one.
    fn give_up(&mut self, state: ConnectorState<T>) -> ConnectorEffects<T> {
        match state {
            ConnectorState::Requesting { .. }
            | ConnectorState::Connecting { .. }
            | ConnectorState::Accepting { .. } => {
                let parts = state.into_parts();
                self.put(ConnectorState::Idle { engine: None });
                parted(parts, STATUS_CANCELLED)
            }
            other => self.keep(other),
        }
    }

    #[inline(never)]
    pub(super) fn on_close(&mut self, status: NTSTATUS) -> ConnectorEffects<T> {
        let parts = self.take().into_parts();
        let endpoint = self.endpoint.take();
        ConnectorEffects { endpoint, notified: Some(status), ..parted(parts, status) }
    }
}

/// Everything that a state had is given up, and its request completes with this.
fn parted<T: MachineTypes>(parts: StateParts<T>, status: NTSTATUS) -> ConnectorEffects<T> {
    let StateParts { engine, pair, request } = parts;
    ConnectorEffects {
        engine: engine.map_or(EngineEffect::Nothing, EngineEffect::Close),
        queue_pair: QueuePairEffect::release(pair),
        request: request.map(|request| (request, status)),
        ..ConnectorEffects::none()
    }
}
