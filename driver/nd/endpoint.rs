//! Local addresses and ports that connectors and listeners of a process are bound to.
//!
//! A Bind reserves its endpoint at once, so that its port is known. Objects of one process may be bound to the same one: connectors
//! connect from there as long as their remote ends differ, and one listener listens there. The last of them gives it up.

use core::net::SocketAddr;

use ndkpi_sys::nt::{NTSTATUS, STATUS_INVALID_ADDRESS, STATUS_SHARING_VIOLATION};
use softndk_cells::{Dispose, Shared};
use softndk_engine::SharedEndpoint;

use super::{
    adapter::OpenedAdapter,
    object::{self, HandleObject, kept},
    request::Call,
    socket,
    status::of_connect,
};
use crate::platform::KernelPlatform;

/// A reserved endpoint.
pub struct Endpoint {
    pub engine: SharedEndpoint<KernelPlatform>,
    pub address: SocketAddr,
}

impl Dispose for Endpoint {}

impl Drop for Endpoint {
    fn drop(&mut self) {
        object::finish(self.engine.close(object::no_callback()));
    }
}

/// The endpoint of a Bind: one that the process has already, or a new one.
pub fn bind(
    call: &Call,
    adapter: &Shared<OpenedAdapter>,
    address: SocketAddr,
    listens: bool,
) -> Result<Shared<Endpoint>, NTSTATUS> {
    let mut found = None;
    let mut is_taken = false;
    if address.port() != 0 {
        call.context.each_object(&mut |object| {
            let (endpoint, is_listener) = match object {
                HandleObject::Connector(connector) => (connector.endpoint(), false),
                HandleObject::Listener(listener) => (listener.endpoint(), true),
                _ => return,
            };
            let same = |endpoint: &Shared<Endpoint>| same(endpoint.address, address) && object.adapter().is(adapter);
            if let Some(endpoint) = endpoint.filter(same) {
                is_taken |= is_listener && listens;
                found = Some(endpoint);
            }
        });
    }
    if is_taken {
        return Err(STATUS_SHARING_VIOLATION);
    }
    if let Some(endpoint) = found {
        return Ok(endpoint);
    }
    let reserved = adapter.open()?.reserve_endpoint(address, kept(adapter));
    let engine = reserved.map_err(|cause| of_connect(cause, STATUS_INVALID_ADDRESS))?;
    let address = engine.local_address();
    object::block(Endpoint { engine, address })
}

/// Whether two addresses are the same, as far as both name a zone.
fn same(one: SocketAddr, other: SocketAddr) -> bool {
    one.ip() == other.ip() && one.port() == other.port() && socket::zones_fit(socket::zone(one), socket::zone(other))
}
