//! What a service pass hands to the consumer: an arrival, the end of a request, a disconnect event.
//!
//! Nothing here changes the connection; what is due was decided before.

use softndk_cells::Shared;

use super::effects::report;
use super::state::{ConnectorState, DueCompletion};
use super::{Connector, ConnectorObject, PendingRequest, timeouts};
use crate::change::ConnectionChange;
use crate::object::event::{ArrivalEvent, DisconnectEvent, RequestCompletion, Sink};
use crate::object::header::{Hold, Object};
use crate::platform::{Lock, Platform};
use crate::queue_pair::pair::End;

/// Services a connector: hands out its arrival, its request's end, its disconnect event, in this order.
#[inline(never)]
pub(crate) fn service<P: Platform>(connector: &Shared<ConnectorObject<P>>, sink: &mut dyn Sink<P>) {
    crate::connection::stream::service(connector);
    hand_out_arrival(connector, sink);
    timeouts::expire(connector);
    let completion = connector.machine.with(|machine| machine.due.take_completion());
    if let Some(DueCompletion { request: PendingRequest { callback, hold }, result, .. }) = completion {
        sink.request_completed(RequestCompletion { callback, result, hold });
        connector.machine.with(|machine| machine.due.completion_returned());
    }
    let event = connector.machine.with(|machine| {
        let event = machine.due.take_event().filter(|_| !connector.core.is_closing());
        // A close that begins now waits for the lock before it releases the consumer's hold.
        event.map(|(callback, reason)| DisconnectEvent { callback, reason, hold: Hold::new(Object::of(connector)) })
    });
    if let Some(event) = event {
        sink.disconnected(event);
        flush_after_event(connector);
    }
}

/// Where the contract has the peer's end flush: the consumer hears of the end before it sees a cancelled request.
fn flush_after_event<P: Platform>(connector: &Shared<ConnectorObject<P>>) {
    if connector.open.semantics.flush_on_peer_end {
        let pair = connector.machine.with(|machine| machine.state.ending_queue_pair().cloned());
        if let Some(pair) = pair {
            pair.end();
        }
    }
}

fn hand_out_arrival<P: Platform>(connector: &Shared<ConnectorObject<P>>, sink: &mut dyn Sink<P>) {
    let Some(listener) = &connector.listener else { return };
    let (arriving, waiting) = connector.machine.with(|machine| {
        let arriving = core::mem::take(&mut machine.due.arrival);
        (arriving, matches!(machine.state, ConnectorState::Arrived { .. }))
    });
    if !arriving {
        return;
    }
    let arrival = Arrival { connector: Connector(connector.clone()), adopted: false };
    if waiting && !listener.core.is_closing() {
        // The connector holds the listener, so another hold may be made.
        let hold = Hold::new(Object::of(listener));
        report(connector, ConnectionChange::Arrived);
        sink.connection_requested(ConnectEvent { callback: listener.connect, connector: arrival, hold });
    }
    // An arrival that is dropped here was abandoned before the consumer saw it, or its listener is closed: it refuses.
}

/// A connection request. The front end makes its consumer-visible object, calls [`Arrival::adopt`] and hands the connector to
/// the consumer; dropping the connector without adopting it refuses the connection.
pub struct ConnectEvent<P: Platform> {
    pub callback: P::ConnectCallback,
    pub connector: Arrival<P>,
    #[expect(dead_code, reason = "keeps the object until it is dropped")]
    hold: Hold<P>,
}

impl<P: Platform> ArrivalEvent for P {
    type ConnectEvent = ConnectEvent<P>;
}

/// A connector without an owner.
pub struct Arrival<P: Platform> {
    connector: Connector<P>,
    adopted: bool,
}

impl<P: Platform> Arrival<P> {
    /// The connector, to read its addresses and data before it is adopted.
    pub fn connector(&self) -> &Connector<P> {
        &self.connector
    }

    /// Makes the connector the consumer's, with the front end's block; the close protocol applies from here on.
    pub fn adopt(mut self, consumer_object: P::ConsumerObject) -> Connector<P> {
        self.connector.0.core.set_consumer_object(consumer_object);
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
