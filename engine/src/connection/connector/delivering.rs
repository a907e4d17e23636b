//! What a service pass hands to the consumer: an arrival, the end of a request, a disconnect event.
//!
//! Nothing here changes the connection; what is due was decided before.

use softndk_cells::Shared;

use super::{Connector, ConnectorObject, Pending, Phase, waiting};
use crate::object::event::{ArrivalEvent, DisconnectEvent, RequestCompletion, Sink};
use crate::object::header::{Hold, Object};
use crate::platform::{Lock, Platform};

/// Services a connector: hands out its arrival, its request's end, its disconnect event, in this order.
#[inline(never)]
pub(crate) fn service<P: Platform>(connector: &Shared<ConnectorObject<P>>, sink: &mut dyn Sink<P>) {
    hand_out_arrival(connector, sink);
    waiting::expire(connector);
    let finished = connector.state.with(|state| {
        let finished = state.request.take_if(|request| request.result.is_some())?;
        waiting::end(connector, state);
        state.completing += 1;
        Some(finished)
    });
    if let Some(Pending { callback, result, hold }) = finished {
        if let Some(result) = result {
            sink.request_completed(RequestCompletion { callback, result, hold });
        }
        connector.state.with(|state| state.completing -= 1);
    }
    let event = connector.state.with(|state| {
        // Another processor is inside a completion that comes before the event; it services the connector again afterwards.
        if state.completing > 0 {
            return None;
        }
        let due = core::mem::take(&mut state.event_due);
        state.disconnect.filter(|_| due && !connector.core.is_closing()).map(|callback| {
            let hold = Hold::new(Object::of(connector));
            (callback, state.reason, hold)
        })
    });
    if let Some((callback, reason, hold)) = event {
        sink.disconnected(DisconnectEvent { callback, reason, hold });
    }
}

fn hand_out_arrival<P: Platform>(connector: &Shared<ConnectorObject<P>>, sink: &mut dyn Sink<P>) {
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
        let hold = Hold::new(Object::of(listener));
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
