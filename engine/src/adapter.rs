//! An adapter: limits, addresses, counters, and the registry of its objects.
//!
//! This is the engine's half of one miniport adapter. Consumers work through an [`Open`]; an adapter may have several.
//!
//! Rules: a vanished address and a shut-down adapter end their listeners and connections and notify the consumers; the objects
//! stay until they are closed.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicBool, Ordering};

use softndk_cells::{NoMemory, Shared};

use crate::capacity::push_within_capacity;
use crate::error::CreateError;
use crate::fabric::Fabric;
use crate::limits::{Limits, REGISTRY_STEP};
use crate::object::Object;
use crate::open::Open;
use crate::platform::{Lock, Platform};
use crate::semantics::Semantics;
use crate::snapshot::ObjectKind;
use crate::snapshot::{ConnectionEntry, EndpointEntry, ObjectSnapshot};
use crate::statistics::{Counters, Statistics, TrafficCounters};
use crate::timeouts::Timeouts;

/// What an adapter is made with.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdapterSettings {
    pub limits: Limits,
    /// Adapters of one wire number reach one another.
    pub wire: u32,
    pub timeouts: Timeouts,
}

/// An address of an adapter's interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AdapterAddress {
    pub ip: IpAddr,
    /// The zone of a link-local IPv6 address, else 0.
    pub scope_id: u32,
}

impl AdapterAddress {
    /// The socket address of a port at this address.
    fn with_port(self, port: u16) -> SocketAddr {
        let mut address = SocketAddr::new(self.ip, port);
        if let SocketAddr::V6(address) = &mut address {
            address.set_scope_id(self.scope_id);
        }
        address
    }
}

impl From<IpAddr> for AdapterAddress {
    fn from(ip: IpAddr) -> Self {
        Self { ip, scope_id: 0 }
    }
}

pub(crate) struct AdapterObject<P: Platform> {
    pub(crate) fabric: Fabric<P>,
    /// Distinguishes endpoints of different adapters.
    pub(crate) number: u32,
    pub(crate) limits: Limits,
    pub(crate) wire: u32,
    pub(crate) timeouts: Timeouts,
    pub(crate) statistics: Statistics,
    pub(crate) traffic_counters: P::Lock<TrafficCounters>,
    running: AtomicBool,
    addresses: P::Lock<Vec<AdapterAddress>>,
    registry: P::Lock<Registry<P>>,
}

struct Registry<P: Platform> {
    objects: Vec<Option<Object<P>>>,
    free: Vec<u32>,
    /// Objects there are, by the number of their kind.
    counts: [u32; KINDS],
}

/// More than there are kinds of objects.
const KINDS: usize = 16;

impl<P: Platform> Registry<P> {
    /// The count of an object's kind, if a limit holds for it.
    fn count(&mut self, object: &Object<P>) -> Option<&mut u32> {
        match object.core()?.kind {
            ObjectKind::Open | ObjectKind::Listener | ObjectKind::Connector | ObjectKind::SharedEndpoint => None,
            kind => self.counts.get_mut(kind as usize),
        }
    }
}

impl<P: Platform> AdapterObject<P> {
    pub(crate) fn new(fabric: Fabric<P>, number: u32, settings: AdapterSettings) -> Self {
        Self {
            fabric,
            number,
            limits: settings.limits,
            wire: settings.wire,
            timeouts: settings.timeouts,
            statistics: Statistics::default(),
            traffic_counters: P::Lock::new(TrafficCounters::new()),
            running: AtomicBool::new(true),
            addresses: P::Lock::new(Vec::new()),
            registry: P::Lock::new(Registry { objects: Vec::new(), free: Vec::new(), counts: [0; KINDS] }),
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    /// `Ok` while the adapter is neither disabled nor going away.
    pub(crate) fn ready(&self) -> Result<(), CreateError> {
        if self.is_running() { Ok(()) } else { Err(CreateError::AdapterGone) }
    }

    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.with(|addresses| addresses.iter().any(|own| own.ip == address))
    }

    /// One of this adapter's addresses as its consumers see it; `None` for any other. A link-local address may be given with
    /// the zone it has here or without one; other addresses have no zones.
    pub(crate) fn own_address(&self, address: SocketAddr) -> Option<SocketAddr> {
        let own = self.addresses.with(|addresses| addresses.iter().find(|own| own.ip == address.ip()).copied())?;
        let zone = scope_of(address);
        let fits = zone == 0 || own.scope_id == 0 || zone == own.scope_id;
        fits.then(|| own.with_port(address.port()))
    }

    /// Publishes a complete object. More of its kind than the limits allow are refused as without memory.
    pub(crate) fn register(&self, object: &Object<P>) -> Result<(), NoMemory> {
        self.registry.with(|registry| {
            if registry.count(object).is_some_and(|count| *count >= self.limits.objects) {
                return Err(NoMemory);
            }
            let index = if let Some(index) = registry.free.pop() {
                index
            } else {
                let index = u32::try_from(registry.objects.len()).map_err(|_| NoMemory)?;
                registry.objects.try_reserve(1)?;
                // Capacity for every index at once, so that unregistering never allocates.
                let missing = registry.objects.capacity().saturating_sub(registry.free.len());
                registry.free.try_reserve(missing)?;
                push_within_capacity(&mut registry.objects, None).map_err(|_| NoMemory)?;
                index
            };
            if let Some(core) = object.core() {
                core.index.store(index, Ordering::Relaxed);
            }
            if let Some(place) = registry.objects.get_mut(index as usize) {
                *place = Some(object.clone());
            }
            if let Some(count) = registry.count(object) {
                *count += 1;
            }
            Ok(())
        })
    }

    /// Takes a finished object out. The registry's pointer is dropped outside the lock.
    pub(crate) fn forget(&self, index: u32) {
        let object = self.registry.with(|registry| {
            let object = registry.objects.get_mut(index as usize).and_then(Option::take);
            if object.is_some() {
                // `register` reserved capacity for every index.
                let kept = push_within_capacity(&mut registry.free, index);
                debug_assert!(kept.is_ok());
            }
            if let Some(count) = object.as_ref().and_then(|object| registry.count(object)) {
                *count = count.saturating_sub(1);
            }
            object
        });
        drop(object);
    }

    /// The first object at or behind a position of the registry, and its position.
    pub(crate) fn next_object(&self, mut position: usize) -> Option<(usize, Object<P>)> {
        loop {
            let (after, object) = self.look_from(position)?;
            if let Some(object) = object {
                return Some((after - 1, object));
            }
            position = after;
        }
    }

    /// As [`Self::next_object`] over a bounded number of places: the position to go on from, with the object before it if there
    /// was one; `None` behind the last place.
    pub(crate) fn look_from(&self, position: usize) -> Option<(usize, Option<Object<P>>)> {
        self.registry.with(|registry| {
            let places = registry.objects.get(position..).filter(|places| !places.is_empty())?;
            let looked = places.iter().take(REGISTRY_STEP);
            let mut objects =
                looked.clone().zip(position + 1..).filter_map(|(place, after)| Some((after, place.as_ref()?)));
            let found = objects.next().map(|(after, object)| (after, Some(object.clone())));
            Some(found.unwrap_or((position + looked.len(), None)))
        })
    }

    /// Calls `each` for every object that exists all the while, with no lock held.
    pub(crate) fn each(&self, mut each: impl FnMut(&Object<P>)) {
        let mut position = 0;
        while let Some((found, object)) = self.next_object(position) {
            each(&object);
            position = found + 1;
        }
    }

    /// Ends the listeners and connections whose local address `gone` names.
    fn abort(&self, gone: impl Fn(IpAddr) -> bool) {
        self.each(|object| object.addresses_gone(&gone));
    }
}

/// The zone of an address.
pub(crate) fn scope_of(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}

/// One miniport adapter.
pub struct Adapter<P: Platform>(pub(crate) Shared<AdapterObject<P>>);

impl<P: Platform> Clone for Adapter<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Platform> Adapter<P> {
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Replaces the addresses; listeners and connections of vanished ones end.
    pub fn set_addresses(&self, addresses: &[IpAddr]) -> Result<(), NoMemory> {
        self.replace_addresses(&addresses.iter().copied().map(AdapterAddress::from))
    }

    /// [`Self::set_addresses`] for addresses with zones.
    pub fn set_scoped_addresses(&self, addresses: &[AdapterAddress]) -> Result<(), NoMemory> {
        self.replace_addresses(&addresses.iter().copied())
    }

    fn replace_addresses(
        &self,
        addresses: &(impl ExactSizeIterator<Item = AdapterAddress> + Clone),
    ) -> Result<(), NoMemory> {
        let mut fresh = Vec::new();
        fresh.try_reserve_exact(addresses.len())?;
        fresh.extend(addresses.clone());
        let old = self.0.addresses.with(|addresses| core::mem::replace(addresses, fresh));
        let gone = |ip: IpAddr| !addresses.clone().any(|address| address.ip == ip);
        if old.iter().any(|address| gone(address.ip)) {
            // A listener at every address continues.
            self.0.abort(|address| !address.is_unspecified() && gone(address));
        }
        Ok(())
    }

    /// One NDK_ADAPTER (or one user-mode open). Refused with `AdapterGone` after [`Self::shut_down`].
    pub fn open(&self, semantics: Semantics, consumer_object: P::ConsumerObject) -> Result<Open<P>, CreateError> {
        self.0.ready()?;
        Open::create(&self.0, semantics, consumer_object)
    }

    /// Ends every listener and connection and refuses new objects: before halt and NDK-disable.
    pub fn shut_down(&self) {
        self.0.running.store(false, Ordering::Release);
        self.0.abort(|_| true);
    }

    /// Opens again after [`Self::shut_down`] (NDK enabled again).
    pub fn start(&self) {
        self.0.running.store(true, Ordering::Release);
    }

    /// Takes the adapter out of the fabric (halt), finally; opens must be closed before.
    pub fn remove(&self) {
        self.shut_down();
        self.0.fabric.remove_adapter(&self.0);
    }

    /// Opens not yet fully closed.
    pub fn opens(&self) -> usize {
        let mut count = 0;
        self.0.each(|object| count += usize::from(object.core().is_some_and(|core| core.kind == ObjectKind::Open)));
        count
    }

    pub fn counters(&self) -> Counters {
        self.0.traffic_counters.with(|traffic_counters| self.0.statistics.read(traffic_counters))
    }

    /// Calls `each` for every established connection; no lock of the engine is held meanwhile.
    pub fn connections(&self, each: &mut dyn FnMut(ConnectionEntry)) {
        self.0.each(|object| {
            if let Some(entry) = object.connection() {
                each(entry);
            }
        });
    }

    /// Calls `each` for every endpoint that is listened on or shared.
    pub fn endpoints(&self, each: &mut dyn FnMut(EndpointEntry)) {
        self.0.each(|object| {
            if let Some(entry) = object.endpoint() {
                each(entry);
            }
        });
    }

    /// Calls `each` for every live object of the adapter.
    pub fn objects(&self, each: &mut dyn FnMut(ObjectSnapshot)) {
        self.0.each(|object| {
            if let Some(snapshot) = ObjectSnapshot::of(object) {
                each(snapshot);
            }
        });
    }

    /// Lists live objects from a position of the registry on, until `each` returns false or there are no more: the position to
    /// go on from, or `None`. Listing in parts costs no more than listing at once.
    pub fn objects_from(&self, mut position: usize, each: &mut dyn FnMut(ObjectSnapshot) -> bool) -> Option<usize> {
        while let Some((found, object)) = self.0.next_object(position) {
            if ObjectSnapshot::of(&object).is_some_and(|snapshot| !each(snapshot)) {
                return Some(found);
            }
            position = found + 1;
        }
        None
    }
}
