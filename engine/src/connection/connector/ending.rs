//! The calls that end a connection, and the ends that come from below: of the queue pair, of the address.
//!
//! `machine` has what each of them does in each state. The flush itself belongs to the queue pair.

use core::net::IpAddr;

use softndk_cells::Shared;

use super::effects::{carry_out, process, step};
use super::machine::ConnectorEvent;
use super::{Connector, ConnectorObject, waiting};
use crate::error::{ConnectError, DisconnectReason, Requested};
use crate::object::event::Close;
use crate::object::header::{Hold, Object};
use crate::platform::{Lock, Platform};

impl<P: Platform> Connector<P> {
    /// Ends the connection with grace: pending until the peer has answered and everything is flushed.
    pub fn disconnect(&self, callback: P::RequestCallback) -> Result<Requested, ConnectError> {
        let connector = &self.0;
        let waiting = waiting::request(connector, callback, connector.open.adapter.timeouts.disconnect);
        process(connector, ConnectorEvent::Disconnect { waiting })?;
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
        let tear_down = || {
            let shared = connector.machine.with(|machine| machine.endpoint.as_mut()?.shared.take());
            if let Some((shared, hold)) = shared {
                connector.core.depend_on(shared.into());
                drop(hold);
            }
            let _answer = process(connector, ConnectorEvent::Close);
        };
        connector.core.scheduler.platform().raised(|_| connector.core.close(callback, tear_down))
    }
}

/// A request of the queue pair failed: the connection ends with a message to the peer.
pub(super) fn queue_pair_failed<P: Platform>(connector: &Shared<ConnectorObject<P>>) {
    let _answer = process(connector, ConnectorEvent::QueuePairFailed);
}

/// The queue pair has completed everything after its end. True when the connector is closed and tied to it no more.
pub(super) fn queue_pair_drained<P: Platform>(connector: &Shared<ConnectorObject<P>>) -> bool {
    let (effects, untied) = connector.machine.with(|machine| {
        let effects = step(connector, machine, ConnectorEvent::QueuePairDrained);
        (effects, machine.is_untied())
    });
    carry_out(connector, effects);
    untied
}

/// Ends a connector whose local address has gone, with a message to its consumer and the peer.
pub(super) fn abort<P: Platform>(connector: &Shared<ConnectorObject<P>>, gone: &dyn Fn(IpAddr) -> bool) {
    let (here, there) = if connector.open.adapter.is_running() {
        (DisconnectReason::AddressGone, DisconnectReason::PeerAddressGone)
    } else {
        (DisconnectReason::AdapterGone, DisconnectReason::PeerAdapterGone)
    };
    let effects = connector.machine.with(|machine| {
        let is_gone = machine.local.is_some_and(|address| gone(address.ip()));
        is_gone.then(|| step(connector, machine, ConnectorEvent::AddressGone { here, there }))
    });
    if let Some(effects) = effects {
        carry_out(connector, effects);
    }
}

/// Ends a connector whose adapter or address was removed while it was being made.
pub(crate) fn abort_if_orphaned<P: Platform>(connector: &Shared<ConnectorObject<P>>) {
    let adapter = &connector.open.adapter;
    let running = adapter.is_running();
    abort(connector, &|address| !running || !adapter.has_address(address));
}
