//! What a connection attempt looks through: the adapters of a fabric and the endpoints in use.

use alloc::vec::Vec;

use softndk_cells::{Dispose, NoMemory, Shared};

use crate::adapter::adapter::AdapterObject;
use crate::capacity::push_within_capacity;
use crate::connection::endpoint::{Directory, EndpointError, EndpointKey, EndpointUse};
use crate::connection::listener::ListenerObject;
use crate::limits::{EPHEMERAL_FIRST, EPHEMERAL_LAST, PORT_STEP};
use crate::platform::{Lock, Platform};

pub(crate) struct Network<P: Platform> {
    pub(crate) directory: P::Lock<Directory<Shared<ListenerObject<P>>>>,
    adapters: P::Lock<Vec<Shared<AdapterObject<P>>>>,
}

impl<P: Platform> Dispose for Network<P> {}

impl<P: Platform> Network<P> {
    pub(crate) fn try_new() -> Result<Shared<Self>, NoMemory> {
        Shared::try_new(Self { directory: P::Lock::new(Directory::new()), adapters: P::Lock::new(Vec::new()) })
    }

    /// Takes an endpoint; returns its key with the port filled in.
    pub(crate) fn take_endpoint(
        &self,
        key: EndpointKey,
        listener: Option<&Shared<ListenerObject<P>>>,
    ) -> Result<EndpointKey, EndpointError> {
        let ports = usize::from(EPHEMERAL_LAST - EPHEMERAL_FIRST) + 1;
        let mut taken = self.directory.with(|directory| directory.take(key, None, listener));
        for _ in 1..ports.div_ceil(PORT_STEP) {
            let Err(EndpointError::PortsInUse { next }) = taken else { break };
            taken = self.directory.with(|directory| directory.take(key, Some(next), listener));
        }
        taken
    }

    pub(crate) fn add_adapter(&self, adapter: &Shared<AdapterObject<P>>) -> Result<(), NoMemory> {
        self.adapters.with(|adapters| {
            adapters.try_reserve(1)?;
            push_within_capacity(adapters, adapter.clone()).map_err(|_| NoMemory)
        })
    }

    pub(crate) fn remove_adapter(&self, adapter: &Shared<AdapterObject<P>>) {
        self.adapters.with(|adapters| adapters.retain(|other| !other.is(adapter)));
    }

    /// The first adapter that satisfies `wanted`.
    pub(crate) fn find_adapter(&self, wanted: impl Fn(&AdapterObject<P>) -> bool) -> Option<Shared<AdapterObject<P>>> {
        self.adapters.with(|adapters| adapters.iter().find(|adapter| wanted(adapter)).cloned())
    }
}

/// A count on an endpoint that is released unless it is kept.
pub(crate) struct EndpointGuard<P: Platform> {
    network: Shared<Network<P>>,
    pub(crate) used: EndpointUse,
    kept: bool,
}

impl<P: Platform> EndpointGuard<P> {
    pub(crate) fn new(network: &Shared<Network<P>>, used: EndpointUse) -> Self {
        Self { network: network.clone(), used, kept: false }
    }

    /// The count belongs to a connector now.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl<P: Platform> Drop for EndpointGuard<P> {
    fn drop(&mut self) {
        if !self.kept {
            self.network.directory.with(|directory| directory.release(&self.used));
        }
    }
}
