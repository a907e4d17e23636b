//! What the engine hands out, collected in its order.

use crate::harness::{Harness, HarnessCounters};
use softndk_engine::{
    CloseCompletion, ConnectError, ConnectEvent, Connector, DisconnectEvent, DisconnectReason, Notification,
    QueueFailure, RequestCompletion, Retired, Sink,
};

/// What came out of the engine, in order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    Notified(u64, Result<(), QueueFailure>),
    Completed(u64, Result<(), ConnectError>),
    Requested(u64),
    Disconnected(u64),
    Closed(u64, u64),
    Retired(Option<u64>),
}

/// What a test does inside a callback.
pub type Inside = Box<dyn FnMut(&Event) + Send>;

/// Collects events; arrived connectors are adopted and kept.
pub struct Events {
    pub seen: Vec<Event>,
    pub arrived: Vec<Connector<Harness>>,
    /// What the disconnect events said.
    pub reasons: Vec<DisconnectReason>,
    pub refuse: bool,
    pub harness: HarnessCounters,
    /// Called inside each callback.
    pub inside: Option<Inside>,
}

impl Events {
    pub fn new(harness: HarnessCounters) -> Self {
        Self { seen: Vec::new(), arrived: Vec::new(), reasons: Vec::new(), refuse: false, harness, inside: None }
    }

    fn note(&mut self, event: Event) {
        if let Some(inside) = &mut self.inside {
            inside(&event);
        }
        self.seen.push(event);
    }
}

impl Sink<Harness> for Events {
    fn notify(&mut self, event: Notification<Harness>) {
        self.note(Event::Notified(event.callback, event.status));
    }

    fn request_completed(&mut self, event: RequestCompletion<Harness>) {
        self.note(Event::Completed(event.callback, event.result));
    }

    fn connection_requested(&mut self, event: ConnectEvent<Harness>) {
        self.note(Event::Requested(event.callback));
        if !self.refuse {
            self.arrived.push(event.connector.adopt(self.harness.consumer_object(900)));
        }
    }

    fn disconnected(&mut self, event: DisconnectEvent<Harness>) {
        self.reasons.push(event.reason);
        self.note(Event::Disconnected(event.callback));
    }

    fn closed(&mut self, event: CloseCompletion<Harness>) {
        let consumer_object = event.object.consumer_object.as_ref().map_or(0, |consumer_object| consumer_object.id);
        self.note(Event::Closed(event.callback, consumer_object));
    }

    fn retired(&mut self, event: Retired<Harness>) {
        self.note(Event::Retired(event.callback));
    }
}
