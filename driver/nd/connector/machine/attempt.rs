//! The steps to a connection: bind, arrive, connect, accept or reject, complete, and the ends of an attempt.

use ndkpi_sys::nt::{
    NTSTATUS, STATUS_CANCELLED, STATUS_CONNECTION_ACTIVE, STATUS_CONNECTION_INVALID, STATUS_INVALID_DEVICE_STATE,
    STATUS_SUCCESS,
};

use super::{
    super::{
        effects::{ConnectorEffects, EngineEffect, Proceed, QueuePairEffect},
        state::{ConnectorState, MachineTypes, PendedRequest},
    },
    AttemptRequest, ConnectorMachine,
};

impl<T: MachineTypes> AttemptRequest<T> {
    /// The request completes with this; its queue pair is for others.
    fn refused(self, status: NTSTATUS) -> ConnectorEffects<T> {
        ConnectorEffects {
            queue_pair: QueuePairEffect::Release(self.pair),
            request: Some((self.request, status)),
            ..ConnectorEffects::refused(status)
        }
    }
}

impl<T: MachineTypes> ConnectorMachine<T> {
    #[inline(never)]
    pub(super) fn on_bind(&mut self, endpoint: T::Endpoint) -> ConnectorEffects<T> {
        match self.may_bind() {
            Ok(()) => {
                self.endpoint = Some(endpoint);
                ConnectorEffects::none()
            }
            Err(status) => ConnectorEffects { endpoint: Some(endpoint), ..ConnectorEffects::refused(status) },
        }
    }

    #[inline(never)]
    pub(super) fn on_reserve(&mut self) -> ConnectorEffects<T> {
        match self.take() {
            ConnectorState::Idle { engine: None } => self.keep(ConnectorState::Reserved),
            other => {
                self.put(other);
                ConnectorEffects::refused(STATUS_CONNECTION_ACTIVE)
            }
        }
    }

    #[inline(never)]
    pub(super) fn on_unreserve(&mut self) -> ConnectorEffects<T> {
        match self.take() {
            ConnectorState::Reserved => self.keep(ConnectorState::Idle { engine: None }),
            other => self.keep(other),
        }
    }

    #[inline(never)]
    pub(super) fn on_arrive(&mut self, engine: T::Engine) -> ConnectorEffects<T> {
        match self.take() {
            ConnectorState::Reserved => self.keep(ConnectorState::Arrived { engine }),
            // Closed meanwhile.
            other => {
                self.put(other);
                ConnectorEffects { engine: EngineEffect::Close(engine), ..ConnectorEffects::none() }
            }
        }
    }

    #[inline(never)]
    pub(super) fn on_connect(&mut self, asked: AttemptRequest<T>) -> ConnectorEffects<T> {
        if let Err(status) = self.may_connect() {
            return asked.refused(status);
        }
        if asked.request.is_cancelled() {
            return asked.refused(STATUS_CANCELLED);
        }
        let AttemptRequest { number, pair, request } = asked;
        let engine = self.take().into_parts().engine;
        let answer = Ok(Proceed { engine: engine.clone(), number });
        self.put(match engine {
            Some(engine) => ConnectorState::Connecting { number, pair, request, engine },
            None => ConnectorState::Requesting { number, pair, request },
        });
        ConnectorEffects { answer, ..ConnectorEffects::none() }
    }

    #[inline(never)]
    pub(super) fn on_engine_made(&mut self, number: u64, engine: T::Engine) -> ConnectorEffects<T> {
        match self.take() {
            ConnectorState::Requesting { number: own, pair, request } if own == number => {
                self.keep(ConnectorState::Connecting { number, pair, request, engine })
            }
            // The attempt was given up meanwhile.
            other => {
                self.put(other);
                ConnectorEffects { engine: EngineEffect::Close(engine), ..ConnectorEffects::refused(STATUS_CANCELLED) }
            }
        }
    }

    #[inline(never)]
    pub(super) fn on_accept(&mut self, asked: AttemptRequest<T>) -> ConnectorEffects<T> {
        match self.take() {
            ConnectorState::Arrived { engine } if !asked.request.is_cancelled() => {
                let AttemptRequest { number, pair, request } = asked;
                let effects = ConnectorEffects::proceeds(engine.clone(), number);
                self.put(ConnectorState::Accepting { number, pair, request, engine });
                effects
            }
            other => {
                let status = match &other {
                    ConnectorState::Arrived { .. } | ConnectorState::Closed => STATUS_CANCELLED,
                    other if other.engine().is_some() => STATUS_CONNECTION_ACTIVE,
                    _ => STATUS_CONNECTION_INVALID,
                };
                self.put(other);
                asked.refused(status)
            }
        }
    }

    #[inline(never)]
    pub(super) fn on_succeeded(&mut self, number: u64) -> ConnectorEffects<T> {
        match self.take() {
            ConnectorState::Connecting { number: own, pair, request, engine } if own == number => {
                self.put(ConnectorState::Answered { number, pair, engine });
                ConnectorEffects::completes(request, STATUS_SUCCESS)
            }
            ConnectorState::Accepting { number: own, pair, request, engine } if own == number => {
                let queue_pair = QueuePairEffect::Publish(pair.clone());
                self.put(ConnectorState::Connected { number, pair, engine });
                ConnectorEffects { queue_pair, ..ConnectorEffects::completes(request, STATUS_SUCCESS) }
            }
            ConnectorState::Disconnecting { number: own, pair, request, engine } if own == number => {
                self.put(ConnectorState::Disconnected { pair, engine });
                ConnectorEffects::completes(request, STATUS_SUCCESS)
            }
            other => self.keep(other),
        }
    }

    /// The connector stays usable after a failed Connect, and so does the queue pair of either attempt.
    #[inline(never)]
    pub(super) fn on_failed(&mut self, number: u64, status: NTSTATUS) -> ConnectorEffects<T> {
        let (pair, request) = match self.take() {
            ConnectorState::Requesting { number: own, pair, request } if own == number => {
                self.put(ConnectorState::Idle { engine: None });
                (pair, request)
            }
            ConnectorState::Connecting { number: own, pair, request, engine } if own == number => {
                self.put(ConnectorState::Idle { engine: Some(engine) });
                (pair, request)
            }
            ConnectorState::Accepting { number: own, pair, request, engine } if own == number => {
                self.put(ConnectorState::Arrived { engine });
                (pair, request)
            }
            // Whatever the peer made of it, the connection is over.
            ConnectorState::Disconnecting { number: own, pair, request, engine } if own == number => {
                self.put(ConnectorState::Disconnected { pair, engine });
                return ConnectorEffects::completes(request, STATUS_SUCCESS);
            }
            other => return self.keep(other),
        };
        ConnectorEffects { queue_pair: QueuePairEffect::Release(pair), ..ConnectorEffects::completes(request, status) }
    }

    /// The next state comes before the call of the engine, because the end of the connection may come inside it.
    #[inline(never)]
    pub(super) fn on_complete_connect(&mut self) -> ConnectorEffects<T> {
        match self.take() {
            ConnectorState::Answered { number, pair, engine } => {
                let effects = ConnectorEffects::proceeds(engine.clone(), number);
                self.put(ConnectorState::Connected { number, pair, engine });
                effects
            }
            // The engine refuses it, and knows whether the peer has withdrawn the request.
            ConnectorState::Arrived { engine } => {
                let effects = ConnectorEffects::proceeds(engine.clone(), 0);
                self.put(ConnectorState::Arrived { engine });
                effects
            }
            other => {
                self.put(other);
                ConnectorEffects::refused(STATUS_CONNECTION_INVALID)
            }
        }
    }

    #[inline(never)]
    pub(super) fn on_complete_connect_failed(&mut self, number: u64) -> ConnectorEffects<T> {
        match self.take() {
            ConnectorState::Connected { number: own, pair, engine } if own == number => {
                self.keep(ConnectorState::Answered { number, pair, engine })
            }
            other => self.keep(other),
        }
    }

    /// Changes nothing before the engine has done it ([`Self::on_rejected`]).
    #[inline(never)]
    pub(super) fn on_reject(&mut self) -> ConnectorEffects<T> {
        match &self.state {
            ConnectorState::Answered { number, engine, .. } => ConnectorEffects::proceeds(engine.clone(), *number),
            ConnectorState::Arrived { engine } => ConnectorEffects::proceeds(engine.clone(), 0),
            other => ConnectorEffects::refused(match other.engine() {
                Some(_) => STATUS_INVALID_DEVICE_STATE,
                None => STATUS_CONNECTION_INVALID,
            }),
        }
    }

    #[inline(never)]
    pub(super) fn on_rejected(&mut self, number: u64) -> ConnectorEffects<T> {
        match self.take() {
            // A CompleteConnect that the engine has still to refuse may have come in between.
            ConnectorState::Answered { number: own, pair, engine }
            | ConnectorState::Connected { number: own, pair, engine }
                if own == number =>
            {
                self.put(ConnectorState::Idle { engine: Some(engine) });
                ConnectorEffects { queue_pair: QueuePairEffect::Release(pair), ..ConnectorEffects::none() }
            }
            other => self.keep(other),
        }
    }
}
