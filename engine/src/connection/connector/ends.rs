//! The ends that come from below: of the queue pair, of the address, of the adapter.
//!
//! `machine` has what each of them does in each state. The flush itself belongs to the queue pair.

use core::net::IpAddr;

use softndk_cells::Shared;

use super::ConnectorObject;
use super::effects::{carry_out, process, step};
use super::machine::ConnectorEvent;
use crate::error::DisconnectReason;
use crate::platform::{Lock, Platform};

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
