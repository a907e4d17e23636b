//! One open of an adapter: the root of a consumer's objects (NDK_ADAPTER).

use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};

use softndk_cells::Shared;

use crate::adapter::{Adapter, AdapterObject};
use crate::completion_queue::CompletionQueue;
use crate::connector::Connector;
use crate::error::{ConnectError, CreateError, RegionError};
use crate::event::{Close, ServicePass};
use crate::listener::Listener;
use crate::mapping::{self, LogicalMapping, Releasing};
use crate::object::{Antecedents, AnyObject, Core, Hold, Object, objects};
use crate::platform::Platform;
use crate::protection_domain::ProtectionDomain;
use crate::semantics::Semantics;
use crate::shared_endpoint::SharedEndpoint;
use crate::snapshot::ObjectKind;
use crate::token::LogicalAddress;

pub(crate) struct OpenObject<P: Platform> {
    pub(crate) core: Core<P>,
    pub(crate) semantics: Semantics,
    /// The front end's name for its consumer, for listings.
    label: AtomicU64,
}

/// One open of an adapter: NDK_ADAPTER.
pub struct Open<P: Platform>(pub(crate) Shared<OpenObject<P>>);

impl<P: Platform> Clone for Open<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Platform> Open<P> {
    pub(crate) fn create(
        adapter: &Shared<AdapterObject<P>>,
        semantics: Semantics,
        consumer_object: P::ConsumerObject,
    ) -> Result<Self, CreateError> {
        let core = Core::new(ObjectKind::Open, adapter, Some(consumer_object), Antecedents::none());
        let open = Shared::try_new(OpenObject { core, semantics, label: AtomicU64::new(0) })?;
        adapter.register(&Object::of(&open))?;
        Ok(Self(open))
    }

    pub fn adapter(&self) -> Adapter<P> {
        Adapter(self.0.core.adapter.clone())
    }

    pub fn semantics(&self) -> &Semantics {
        &self.0.semantics
    }

    /// Labels the consumer, for [`ObjectSnapshot::label`](crate::ObjectSnapshot::label).
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
        consumer_object: P::ConsumerObject,
    ) -> Result<CompletionQueue<P>, CreateError> {
        CompletionQueue::create(&self.0, depth, notify, home, consumer_object)
    }

    /// Bytes that a completion queue of this depth takes, roughly; an error where it would be refused.
    pub fn completion_queue_size(&self, depth: u32) -> Result<u64, CreateError> {
        CompletionQueue::<P>::size(&self.0, depth)
    }

    pub fn create_protection_domain(
        &self,
        consumer_object: P::ConsumerObject,
    ) -> Result<ProtectionDomain<P>, CreateError> {
        ProtectionDomain::create(&self.0, consumer_object)
    }

    pub fn create_connector(&self, consumer_object: P::ConsumerObject) -> Result<Connector<P>, CreateError> {
        Connector::create(&self.0, consumer_object)
    }

    pub fn create_listener(
        &self,
        connect: P::ConnectCallback,
        consumer_object: P::ConsumerObject,
    ) -> Result<Listener<P>, CreateError> {
        Listener::create(&self.0, connect, consumer_object)
    }

    /// Reserves a local address and port that several connectors connect from; port 0 picks one.
    pub fn create_shared_endpoint(
        &self,
        address: SocketAddr,
        consumer_object: P::ConsumerObject,
    ) -> Result<SharedEndpoint<P>, ConnectError> {
        SharedEndpoint::create(&self.0, address, consumer_object)
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

    /// As [`Self::release_mapping`], for a front end that needs the memory back before it returns.
    pub fn begin_release(&self, address: LogicalAddress) -> Option<Releasing<P>> {
        mapping::release(&self.0, address)
    }

    /// Keeps the close from completing while the front end's own asynchronous work for it is under way.
    pub fn hold(&self) -> Hold<P> {
        Hold::new(Object::of(&self.0))
    }

    /// Closes the open and revokes its remaining mappings, which its consumer cannot release any more.
    pub fn close(&self, callback: P::CloseCallback) -> Close<P> {
        self.0.core.close(Some(callback), || mapping::release_all(&self.0))
    }
}

objects!(OpenObject);

impl<P: Platform> AnyObject<P> for Shared<OpenObject<P>> {
    fn core(&self) -> Option<&Core<P>> {
        Some(&self.core)
    }

    fn service(&self, pass: &mut ServicePass<'_, P>) {
        self.core.finish(pass);
    }

    fn label(&self) -> u64 {
        self.label.load(Ordering::Relaxed)
    }
}
