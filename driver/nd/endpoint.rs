//! Local addresses and ports that connectors and listeners of a process are bound to.
//!
//! A Bind reserves its endpoint at once, so that its port is known. Objects of one process may be bound to the same one: connectors
//! connect from there as long as their remote ends differ, and one listener listens there. The last of them gives it up.

use core::net::SocketAddr;

use ndkpi_sys::nt::{NTSTATUS, STATUS_INVALID_ADDRESS};
use softndk_cells::{Dispose, Shared};
use softndk_engine::{Open, SharedEndpoint};

use super::{object, socket, status::of_connect};
use crate::runtime::platform::{ConsumerObject, KernelPlatform};

/// A reserved endpoint.
pub struct Endpoint {
    pub engine: SharedEndpoint<KernelPlatform>,
    pub address: SocketAddr,
}

impl Dispose for Endpoint {}

impl Endpoint {
    /// A new one. `keeper` is what the engine keeps for it.
    pub fn reserve(
        open: &Open<KernelPlatform>,
        address: SocketAddr,
        keeper: ConsumerObject,
    ) -> Result<Shared<Self>, NTSTATUS> {
        let engine = open.reserve_endpoint(address, keeper);
        let engine = engine.map_err(|cause| of_connect(cause, STATUS_INVALID_ADDRESS))?;
        let address = engine.local_address();
        object::block(Self { engine, address })
    }

    pub fn is_at(&self, address: SocketAddr) -> bool {
        same(self.address, address)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        object::finish(self.engine.close(object::no_callback()));
    }
}

/// Whether two addresses are the same, as far as both name a zone.
fn same(one: SocketAddr, other: SocketAddr) -> bool {
    one.ip() == other.ip() && one.port() == other.port() && socket::zones_fit(socket::zone(one), socket::zone(other))
}
