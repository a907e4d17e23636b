//! The handle of an open: a consumer's objects of one adapter are made here.

use core::net::SocketAddr;

use softndk_cells::Shared;

use crate::adapter::open::OpenObject;
use crate::completion::completion_queue::CompletionQueue;
use crate::connection::connector::Connector;
use crate::connection::listener::Listener;
use crate::connection::shared_endpoint::SharedEndpoint;
use crate::error::{ConnectError, CreateError, RegionError};
use crate::fabric::Fabric;
use crate::fabric::adapter::Adapter;
use crate::memory::mapping::{self, LogicalMapping, Releasing};
use crate::memory::protection_domain::ProtectionDomain;
use crate::object::event::Close;
use crate::object::header::{Hold, Object};
use crate::platform::Platform;
use crate::semantics::Semantics;
use crate::token::LogicalAddress;

/// One open of an adapter: NDK_ADAPTER.
pub struct Open<P: Platform> {
    fabric: Fabric<P>,
    open: Shared<OpenObject<P>>,
}

impl<P: Platform> Clone for Open<P> {
    fn clone(&self) -> Self {
        Self::new(self.fabric.clone(), self.open.clone())
    }
}

impl<P: Platform> Open<P> {
    pub(super) fn new(fabric: Fabric<P>, open: Shared<OpenObject<P>>) -> Self {
        Self { fabric, open }
    }

    pub fn adapter(&self) -> Adapter<P> {
        Adapter::new(self.fabric.clone(), self.open.adapter.clone())
    }

    pub fn semantics(&self) -> &Semantics {
        &self.open.semantics
    }

    /// Labels the consumer, for [`ObjectSnapshot::label`](crate::ObjectSnapshot::label).
    pub fn set_label(&self, label: u64) {
        self.open.set_label(label);
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
        CompletionQueue::create(&self.open, depth, notify, home, consumer_object)
    }

    /// Bytes that a completion queue of this depth takes, roughly; an error where it would be refused.
    pub fn completion_queue_size(&self, depth: u32) -> Result<u64, CreateError> {
        CompletionQueue::<P>::size(&self.open, depth)
    }

    pub fn create_protection_domain(
        &self,
        consumer_object: P::ConsumerObject,
    ) -> Result<ProtectionDomain<P>, CreateError> {
        ProtectionDomain::create(&self.fabric.0.tables, &self.open, consumer_object)
    }

    pub fn create_connector(&self, consumer_object: P::ConsumerObject) -> Result<Connector<P>, CreateError> {
        Connector::create(&self.fabric.0.network, &self.open, consumer_object)
    }

    pub fn create_listener(
        &self,
        connect: P::ConnectCallback,
        consumer_object: P::ConsumerObject,
    ) -> Result<Listener<P>, CreateError> {
        Listener::create(&self.fabric.0.network, &self.open, connect, consumer_object)
    }

    /// Reserves a local address and port that several connectors connect from; port 0 picks one.
    pub fn create_shared_endpoint(
        &self,
        address: SocketAddr,
        consumer_object: P::ConsumerObject,
    ) -> Result<SharedEndpoint<P>, ConnectError> {
        SharedEndpoint::create(&self.fabric.0.network, &self.open, address, false, consumer_object)
    }

    /// As [`Self::create_shared_endpoint`], for an address that is to be listened at as well
    /// ([`Listener::listen_at`](crate::Listener::listen_at)): the unspecified one stands for every address of the adapter, and no
    /// connector connects from there.
    pub fn reserve_endpoint(
        &self,
        address: SocketAddr,
        consumer_object: P::ConsumerObject,
    ) -> Result<SharedEndpoint<P>, ConnectError> {
        SharedEndpoint::create(&self.fabric.0.network, &self.open, address, true, consumer_object)
    }

    /// Publishes mapped memory as logical addresses: offset 0 of the memory is the first byte of the first page, so memory
    /// that begins inside a page begins with the bytes before it, and the front end reports the offset as FBO.
    pub fn build_mapping(&self, memory: P::Memory) -> Result<LogicalMapping, (RegionError, P::Memory)> {
        mapping::build(&self.fabric.0.tables, &self.open, memory)
    }

    /// Revokes a mapping by any of its addresses; false when the adapter has no such mapping. The memory comes back by
    /// [`Sink::retired`](crate::Sink::retired).
    pub fn release_mapping(&self, address: LogicalAddress) -> bool {
        self.begin_release(address).is_some()
    }

    /// As [`Self::release_mapping`], for a front end that needs the memory back before it returns.
    pub fn begin_release(&self, address: LogicalAddress) -> Option<Releasing<P>> {
        mapping::release(&self.fabric.0.tables, &self.open, address)
    }

    /// Keeps the close from completing while the front end's own asynchronous work for it is under way.
    pub fn hold(&self) -> Hold<P> {
        Hold::new(Object::of(&self.open))
    }

    /// Closes the open and revokes its remaining mappings, which its consumer cannot release any more.
    pub fn close(&self, callback: P::CloseCallback) -> Close<P> {
        self.open.core.close(Some(callback), || mapping::release_all(&self.fabric.0.tables, &self.open))
    }
}
