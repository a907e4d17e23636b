//! Endpoints: which local addresses and ports are in use, and who listens there.
//!
//! What it is: one sorted directory for all adapters. An endpoint is counted: a listener and each connector accepted over it,
//! or the one connector that connects from it. What it is not: the address table; adapters know their own addresses.
//!
//! Rules (NDKPI: endpoint reference counting): while an endpoint is counted, nobody else listens or connects at its address;
//! port 0 picks a free port between 49152 and 65535.

use alloc::vec::Vec;
use core::net::SocketAddr;

use softndk_cells::{NoMemory, Shared};

use crate::limits::{EPHEMERAL_FIRST, EPHEMERAL_LAST};
use crate::listener::ListenerObject;
use crate::platform::Platform;

/// An address of one adapter.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct EndpointKey {
    pub(crate) adapter: u32,
    pub(crate) address: SocketAddr,
}

struct Endpoint<P: Platform> {
    key: EndpointKey,
    count: u32,
    listener: Option<Shared<ListenerObject<P>>>,
}

/// Why an endpoint could not be had.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum EndpointError {
    InUse,
    NoPorts,
    NoMemory,
}

impl From<NoMemory> for EndpointError {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

/// All endpoints in use, sorted.
pub(crate) struct Directory<P: Platform> {
    endpoints: Vec<Endpoint<P>>,
    next_port: u16,
}

impl<P: Platform> Directory<P> {
    pub(crate) const fn new() -> Self {
        Self { endpoints: Vec::new(), next_port: EPHEMERAL_FIRST }
    }

    fn search(&self, key: &EndpointKey) -> Result<usize, usize> {
        self.endpoints.binary_search_by(|endpoint| endpoint.key.cmp(key))
    }

    /// Takes an endpoint; answers its address with the port filled in.
    pub(crate) fn take(
        &mut self,
        mut key: EndpointKey,
        listener: Option<&Shared<ListenerObject<P>>>,
    ) -> Result<EndpointKey, EndpointError> {
        let place = if key.address.port() == 0 {
            let (port, place) = self.free_port(key)?;
            key.address.set_port(port);
            place
        } else {
            self.search(&key).err().ok_or(EndpointError::InUse)?
        };
        self.endpoints.try_reserve(1).map_err(NoMemory::from)?;
        self.endpoints.insert(place, Endpoint { key, count: 1, listener: listener.cloned() });
        Ok(key)
    }

    fn free_port(&mut self, mut key: EndpointKey) -> Result<(u16, usize), EndpointError> {
        for _ in EPHEMERAL_FIRST..=EPHEMERAL_LAST {
            let port = self.next_port;
            self.next_port = if port == EPHEMERAL_LAST { EPHEMERAL_FIRST } else { port + 1 };
            key.address.set_port(port);
            if let Err(place) = self.search(&key) {
                return Ok((port, place));
            }
        }
        Err(EndpointError::NoPorts)
    }

    /// Who listens at an address.
    pub(crate) fn listener(&self, key: &EndpointKey) -> Option<&Shared<ListenerObject<P>>> {
        self.endpoints.get(self.search(key).ok()?)?.listener.as_ref()
    }

    /// Counts a connector accepted over an endpoint.
    pub(crate) fn count(&mut self, key: &EndpointKey) {
        if let Ok(place) = self.search(key)
            && let Some(endpoint) = self.endpoints.get_mut(place)
        {
            endpoint.count += 1;
        }
    }

    /// Nobody listens there any more; connectors may still be counted. The listener is dropped by the caller.
    pub(crate) fn deafen(&mut self, key: &EndpointKey) -> Option<Shared<ListenerObject<P>>> {
        let place = self.search(key).ok()?;
        self.endpoints.get_mut(place)?.listener.take()
    }

    /// Lets one count go, and the endpoint with the last.
    pub(crate) fn release(&mut self, key: &EndpointKey) {
        let Ok(place) = self.search(key) else { return };
        let Some(endpoint) = self.endpoints.get_mut(place) else { return };
        endpoint.count -= 1;
        if endpoint.count == 0 {
            self.endpoints.remove(place);
        }
    }
}
