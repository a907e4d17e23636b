//! Shared endpoints: a local address and port that several connectors connect from.
//!
//! This is the object behind NDK_SHARED_ENDPOINT: a count on an endpoint, held by the consumer and by each connector that
//! connects over it. Connections never arrive here.
//!
//! Rules (NDKPI: NDK_FN_CREATE_SHARED_ENDPOINT, NDK_FN_CONNECT_WITH_SHARED_ENDPOINT): different remotes are fine, the same one
//! twice is refused; the endpoint is free when the shared endpoint and its connectors are closed; the close completes after the
//! connectors'. A vanished address ends the connections, not the shared endpoint: it connects again when the address is back.

use core::net::SocketAddr;

use softndk_cells::Shared;

use crate::adapter::open::OpenObject;
use crate::connection::endpoint::{EndpointKey, EndpointUse};
use crate::connection::network::Network;
use crate::error::ConnectError;
use crate::object::event::Close;
use crate::object::header::{Antecedents, Core, Hold, Object, object};
use crate::object::snapshot::{EndpointEntry, ObjectKind};
use crate::platform::{Lock, Platform};

pub(crate) struct SharedEndpointObject<P: Platform> {
    pub(crate) core: Core<P>,
    pub(crate) open: Shared<OpenObject<P>>,
    network: Shared<Network<P>>,
    pub(crate) key: EndpointKey,
    pub(crate) address: SocketAddr,
}

/// A local address and port that several connectors connect from.
pub struct SharedEndpoint<P: Platform>(pub(crate) Shared<SharedEndpointObject<P>>);

impl<P: Platform> Clone for SharedEndpoint<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Platform> SharedEndpoint<P> {
    pub(crate) fn create(
        network: &Shared<Network<P>>,
        open: &Shared<OpenObject<P>>,
        address: SocketAddr,
        may_be_everywhere: bool,
        consumer_object: P::ConsumerObject,
    ) -> Result<Self, ConnectError> {
        let adapter = &open.adapter;
        if !adapter.is_running() {
            return Err(ConnectError::AdapterGone);
        }
        let everywhere = may_be_everywhere && address.ip().is_unspecified();
        let own = if everywhere { Some(address) } else { adapter.own_address(address) };
        let mut address = own.ok_or(ConnectError::InvalidAddress)?;
        let directory = &network.directory;
        let key = network.take_endpoint(EndpointKey::new(adapter.number, address), None)?;
        address.set_port(key.port());
        let endpoint = Shared::try_new(SharedEndpointObject {
            core: adapter.core(
                ObjectKind::SharedEndpoint,
                Some(consumer_object),
                Antecedents::none().with(Object::of(open)),
            ),
            open: open.clone(),
            network: network.clone(),
            key,
            address,
        });
        let registered = endpoint.and_then(|endpoint| {
            adapter.register(&Object::of(&endpoint))?;
            Ok(endpoint)
        });
        if registered.is_err() {
            directory.with(|directory| directory.release(&EndpointUse::at(key)));
        }
        Ok(Self(registered?))
    }

    pub fn local_address(&self) -> SocketAddr {
        self.0.address
    }

    /// Keeps the close from completing while the front end's own asynchronous work for it is under way.
    pub fn hold(&self) -> Hold<P> {
        Hold::new(Object::of(&self.0))
    }

    /// Closes it; connectors that connect over it keep the endpoint counted.
    pub fn close(&self, callback: P::CloseCallback) -> Close<P> {
        self.0.core.close(Some(callback), || {
            self.0.network.directory.with(|directory| directory.release(&EndpointUse::at(self.0.key)));
        })
    }
}

object!(SharedEndpointObject {
    fn is_limited(&self) -> bool {
        false
    }

    fn endpoint(&self) -> Option<EndpointEntry> {
        (!self.core.is_closing()).then_some(EndpointEntry { local: self.address, listener: false })
    }
});
