//! The connector that a request makes at the passive end.

use core::net::SocketAddr;

use softndk_cells::{NoMemory, Reserved, Shared};

use super::machine::ConnectorMachine;
use super::state::ConnectorState;
use super::{ConnectorObject, ConnectorParts, LocalEndpoint, rules_of};
use crate::adapter::adapter::scope_of;
use crate::connection::loopback::LoopbackRoute;
use crate::connection::message::{ConnectionRequest, ReadLimits};
use crate::connection::peer::PeerConnector;
use crate::object::header::{Antecedents, Object};
use crate::object::snapshot::ObjectKind;
use crate::platform::{Lock, Platform};

/// An address as seen from `here`: link-local ones in the zone of `here`, others without one.
pub(super) fn in_zone_of(address: SocketAddr, here: SocketAddr) -> SocketAddr {
    let mut seen = address;
    if let SocketAddr::V6(seen) = &mut seen {
        seen.set_scope_id(if seen.ip().is_unicast_link_local() { scope_of(here) } else { 0 });
    }
    seen
}

/// Makes the connector of the passive end, complete and not yet visible.
pub(crate) fn arrive<P: Platform>(
    from: PeerConnector<P>,
    route: &LoopbackRoute<P>,
    request: &ConnectionRequest,
) -> Result<Shared<ConnectorObject<P>>, NoMemory> {
    let adapter = &route.listener.open.adapter;
    let place = Reserved::try_new()?;
    let parts = ConnectorParts::try_new(adapter)?;
    Ok(assemble(place, parts, from, route, request))
}

/// Puts it together in its place. The frame holds the whole object, so nothing below it may go deep: nothing fails here, and
/// nothing is dropped.
#[inline(never)]
fn assemble<P: Platform>(
    place: Reserved<ConnectorObject<P>>,
    parts: ConnectorParts<P>,
    from: PeerConnector<P>,
    route: &LoopbackRoute<P>,
    request: &ConnectionRequest,
) -> Shared<ConnectorObject<P>> {
    let listener = &route.listener;
    let adapter = &listener.open.adapter;
    let antecedents = Antecedents::none().with(Object::of(&listener.open)).with(Object::of(listener));
    let offer = ReadLimits { inbound: u32::MAX, outbound: u32::MAX }.capped(adapter).against(request.limits);
    let mut machine = ConnectorMachine::new(ConnectorState::Arrived { peer: from }, rules_of(&listener.open));
    machine.due.arrival = true;
    machine.endpoint = Some(LocalEndpoint { used: route.endpoint.used, shared: None });
    machine.local = Some(route.local);
    machine.peer_address = Some(in_zone_of(request.source, route.local));
    machine.limits = offer;
    machine.data = Some((request.data.clone(), request.capacity));
    place.fill(ConnectorObject {
        core: adapter.core(ObjectKind::Connector, None, antecedents),
        open: listener.open.clone(),
        network: listener.network.clone(),
        listener: Some(listener.clone()),
        timer: parts.timer,
        machine: P::Lock::new(machine),
    })
}
