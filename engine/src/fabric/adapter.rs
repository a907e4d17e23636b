//! The handle of an adapter: what a front end does with one miniport adapter.

use core::net::IpAddr;

use softndk_cells::{NoMemory, Shared};

use crate::adapter::adapter::{AdapterAddress, AdapterObject, Transport};
use crate::adapter::open::OpenObject;
use crate::counters::Counters;
use crate::error::CreateError;
use crate::fabric::Fabric;
use crate::fabric::open::Open;
use crate::limits::Limits;
use crate::object::snapshot::{ConnectionEntry, EndpointEntry, ObjectKind, ObjectSnapshot};
use crate::platform::{Lock, Platform};
use crate::semantics::Semantics;

/// One miniport adapter.
pub struct Adapter<P: Platform> {
    fabric: Fabric<P>,
    adapter: Shared<AdapterObject<P>>,
}

impl<P: Platform> Clone for Adapter<P> {
    fn clone(&self) -> Self {
        Self::new(self.fabric.clone(), self.adapter.clone())
    }
}

impl<P: Platform> Adapter<P> {
    pub(super) fn new(fabric: Fabric<P>, adapter: Shared<AdapterObject<P>>) -> Self {
        Self { fabric, adapter }
    }

    pub fn limits(&self) -> &Limits {
        &self.adapter.limits
    }

    /// Whether its connections may go over streams.
    pub fn may_use_streams(&self) -> bool {
        self.adapter.transport != Transport::Loopback
    }

    /// Replaces the addresses; listeners and connections of vanished ones end.
    pub fn set_addresses(&self, addresses: &[IpAddr]) -> Result<(), NoMemory> {
        self.adapter.replace_addresses(&addresses.iter().copied().map(AdapterAddress::from))
    }

    /// [`Self::set_addresses`] for addresses with zones.
    pub fn set_scoped_addresses(&self, addresses: &[AdapterAddress]) -> Result<(), NoMemory> {
        self.adapter.replace_addresses(&addresses.iter().copied())
    }

    /// One NDK_ADAPTER (or one user-mode open). Refused with `AdapterGone` after [`Self::shut_down`].
    pub fn open(&self, semantics: Semantics, consumer_object: P::ConsumerObject) -> Result<Open<P>, CreateError> {
        let open = OpenObject::create(&self.adapter, semantics, consumer_object)?;
        Ok(Open::new(self.fabric.clone(), open))
    }

    /// Ends every listener and connection and refuses new objects: before halt and NDK-disable.
    pub fn shut_down(&self) {
        self.adapter.run(false);
        self.adapter.abort(|_| true);
    }

    /// Opens again after [`Self::shut_down`] (NDK enabled again).
    pub fn start(&self) {
        self.adapter.run(true);
    }

    /// Takes the adapter out of the fabric (halt), finally; opens must be closed before.
    pub fn remove(&self) {
        self.shut_down();
        self.fabric.0.network.remove_adapter(&self.adapter);
    }

    /// Opens not yet fully closed.
    pub fn opens(&self) -> usize {
        let mut count = 0;
        let is_open = |kind| usize::from(kind == ObjectKind::Open);
        self.adapter.registry.each(|object| count += object.core().map_or(0, |core| is_open(core.kind)));
        count
    }

    pub fn counters(&self) -> Counters {
        self.adapter.statistics.read(|read| self.adapter.traffic_counters.with(|counters| read(counters)))
    }

    /// Calls `each` for every established connection; no lock of the engine is held meanwhile.
    pub fn connections(&self, each: &mut dyn FnMut(ConnectionEntry)) {
        self.adapter.registry.each(|object| {
            if let Some(entry) = object.connection() {
                each(entry);
            }
        });
    }

    /// Calls `each` for every endpoint that is listened on or shared.
    pub fn endpoints(&self, each: &mut dyn FnMut(EndpointEntry)) {
        self.adapter.registry.each(|object| {
            if let Some(entry) = object.endpoint() {
                each(entry);
            }
        });
    }

    /// Calls `each` for every live object of the adapter.
    pub fn objects(&self, each: &mut dyn FnMut(ObjectSnapshot)) {
        self.adapter.registry.each(|object| {
            if let Some(snapshot) = ObjectSnapshot::of(object) {
                each(snapshot);
            }
        });
    }

    /// Lists live objects from a position of the registry on, until `each` returns false or there are no more: the position to
    /// go on from, or `None`. Listing in parts costs no more than listing at once.
    pub fn objects_from(&self, mut position: usize, each: &mut dyn FnMut(ObjectSnapshot) -> bool) -> Option<usize> {
        while let Some((found, object)) = self.adapter.registry.next_object(position) {
            if ObjectSnapshot::of(&object).is_some_and(|snapshot| !each(snapshot)) {
                return Some(found);
            }
            position = found.saturating_add(1);
        }
        None
    }
}
