//! One open of an adapter: the root of a consumer's objects (NDK_ADAPTER).

use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};

use softndk_cells::Shared;

use crate::adapter::{Adapter, AdapterObject};
use crate::cause::{ConnectError, CreateError, RegionError};
use crate::completion_queue::CompletionQueue;
use crate::connector::Connector;
use crate::event::Close;
use crate::life::{Antecedents, Core, Hold, Object};
use crate::listener::Listener;
use crate::mapping::{self, LogicalMapping, Releasing};
use crate::platform::Platform;
use crate::protection_domain::ProtectionDomain;
use crate::semantics::Semantics;
use crate::shared_endpoint::SharedEndpoint;
use crate::token::LogicalAddress;

pub(crate) struct OpeningObject<P: Platform> {
    pub(crate) core: Core<P>,
    pub(crate) semantics: Semantics,
    /// The front end's name for its consumer, for listings.
    label: AtomicU64,
}

impl<P: Platform> OpeningObject<P> {
    pub(crate) fn label(&self) -> u64 {
        self.label.load(Ordering::Relaxed)
    }
}

/// One open of an adapter: NDK_ADAPTER.
pub struct Opening<P: Platform>(pub(crate) Shared<OpeningObject<P>>);

impl<P: Platform> Clone for Opening<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Platform> Opening<P> {
    pub(crate) fn create(
        adapter: &Shared<AdapterObject<P>>,
        semantics: Semantics,
        block: P::Block,
    ) -> Result<Self, CreateError> {
        let core = Core::new(adapter, Some(block), Antecedents::none());
        let opening = Shared::try_new(OpeningObject { core, semantics, label: AtomicU64::new(0) })?;
        adapter.register(&Object::Opening(opening.clone()))?;
        Ok(Self(opening))
    }

    pub fn adapter(&self) -> Adapter<P> {
        Adapter(self.0.core.adapter.clone())
    }

    pub fn semantics(&self) -> &Semantics {
        &self.0.semantics
    }

    /// Says who the consumer is, for [`ObjectSnapshot::label`](crate::ObjectSnapshot::label).
    pub fn set_label(&self, label: u64) {
        self.0.label.store(label, Ordering::Relaxed);
    }

    /// `home` is the processor to run notifications on; without one they run where the completion was entered. A queue without
    /// `notify` can be armed and never notifies.
    pub fn create_completion_queue(
        &self,
        depth: u32,
        notify: Option<P::NotifyCallback>,
        home: Option<u32>,
        block: P::Block,
    ) -> Result<CompletionQueue<P>, CreateError> {
        CompletionQueue::create(&self.0, depth, notify, home, block)
    }

    /// Bytes that a completion queue of this depth takes, roughly; an error where it would be refused.
    pub fn completion_queue_size(&self, depth: u32) -> Result<u64, CreateError> {
        CompletionQueue::<P>::size(&self.0, depth)
    }

    pub fn create_protection_domain(&self, block: P::Block) -> Result<ProtectionDomain<P>, CreateError> {
        ProtectionDomain::create(&self.0, block)
    }

    pub fn create_connector(&self, block: P::Block) -> Result<Connector<P>, CreateError> {
        Connector::create(&self.0, block)
    }

    pub fn create_listener(&self, connect: P::ConnectCallback, block: P::Block) -> Result<Listener<P>, CreateError> {
        Listener::create(&self.0, connect, block)
    }

    /// Takes a local address and port that several connectors connect from; port 0 picks one.
    pub fn create_shared_endpoint(
        &self,
        address: SocketAddr,
        block: P::Block,
    ) -> Result<SharedEndpoint<P>, ConnectError> {
        SharedEndpoint::create(&self.0, address, block)
    }

    /// Publishes mapped memory as logical addresses: offset 0 of the memory is the first byte of the first page, so memory
    /// that begins inside a page begins with the bytes before it, and the front end reports the offset as FBO.
    pub fn build_mapping(&self, memory: P::Memory) -> Result<LogicalMapping, (RegionError, P::Memory)> {
        mapping::build(&self.0, memory)
    }

    /// Revokes a mapping by any of its addresses; false when the adapter has no such mapping. The memory comes back by
    /// [`Sink::retired`](crate::Sink::retired).
    pub fn release_mapping(&self, address: LogicalAddress) -> bool {
        self.begin_release(address).is_some()
    }

    /// As [`Self::release_mapping`], for a front end that wants the memory back before it returns.
    pub fn begin_release(&self, address: LogicalAddress) -> Option<Releasing<P>> {
        mapping::release(&self.0, address)
    }

    /// Keeps the close from completing while the front end's own asynchronous work for it is under way.
    pub fn hold(&self) -> Hold<P> {
        Hold::new(Object::Opening(self.0.clone()))
    }

    /// Closes the opening and revokes the mappings that are left: nobody could release them any more.
    pub fn close(&self, callback: P::CloseCallback) -> Close<P> {
        self.0.core.close(Some(callback), || mapping::release_all(&self.0))
    }
}
