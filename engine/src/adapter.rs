//! An adapter: limits, addresses, counters, and the registry of its objects.
//!
//! What it is: the engine's half of one miniport adapter. What it is not: an open of it; consumers work through an
//! [`Opening`], of which there may be several.
//!
//! Rules: a vanished address and a shut-down adapter end their listeners and connections and tell the consumers; the objects
//! stay until they are closed.

use alloc::vec::Vec;
use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, Ordering};

use softndk_cells::{NoMemory, Shared};

use crate::cause::CreateError;
use crate::connector;
use crate::fabric::Fabric;
use crate::life::Object;
use crate::limits::Limits;
use crate::listener;
use crate::opening::Opening;
use crate::platform::{Lock, Platform};
use crate::room::push_in_room;
use crate::semantics::Semantics;
use crate::snapshot::{ConnectionEntry, EndpointEntry, ObjectKind, ObjectSnapshot};
use crate::statistics::{Counters, Meters, Statistics};

/// What an adapter is made with.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdapterSettings {
    pub limits: Limits,
    /// Adapters of one wire number reach one another.
    pub wire: u32,
}

pub(crate) struct AdapterObject<P: Platform> {
    pub(crate) fabric: Fabric<P>,
    /// Tells endpoints of different adapters apart.
    pub(crate) number: u32,
    pub(crate) limits: Limits,
    pub(crate) wire: u32,
    pub(crate) statistics: Statistics,
    pub(crate) meters: P::Lock<Meters>,
    running: AtomicBool,
    addresses: P::Lock<Vec<IpAddr>>,
    registry: P::Lock<Registry<P>>,
}

struct Registry<P: Platform> {
    objects: Vec<Option<Object<P>>>,
    free: Vec<u32>,
}

impl<P: Platform> AdapterObject<P> {
    pub(crate) fn new(fabric: Fabric<P>, number: u32, settings: AdapterSettings) -> Self {
        Self {
            fabric,
            number,
            limits: settings.limits,
            wire: settings.wire,
            statistics: Statistics::default(),
            meters: P::Lock::new(Meters::new()),
            running: AtomicBool::new(true),
            addresses: P::Lock::new(Vec::new()),
            registry: P::Lock::new(Registry { objects: Vec::new(), free: Vec::new() }),
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
        self.addresses.with(|addresses| addresses.contains(&address))
    }

    /// Publishes a complete object.
    pub(crate) fn register(&self, object: &Object<P>) -> Result<(), NoMemory> {
        self.registry.with(|registry| {
            let index = if let Some(index) = registry.free.pop() {
                index
            } else {
                let index = u32::try_from(registry.objects.len()).map_err(|_| NoMemory)?;
                registry.objects.try_reserve(1)?;
                // Room for every index at once, so that forgetting never allocates.
                let missing = registry.objects.capacity().saturating_sub(registry.free.len());
                registry.free.try_reserve(missing)?;
                push_in_room(&mut registry.objects, None).map_err(|_| NoMemory)?;
                index
            };
            object.core().index.store(index, Ordering::Relaxed);
            if let Some(place) = registry.objects.get_mut(index as usize) {
                *place = Some(object.clone());
            }
            Ok(())
        })
    }

    /// Takes a finished object out. The registry's pointer is dropped outside the lock.
    pub(crate) fn forget(&self, index: u32) {
        let object = self.registry.with(|registry| {
            let object = registry.objects.get_mut(index as usize).and_then(Option::take);
            if object.is_some() {
                // `register` made room for every index.
                let kept = push_in_room(&mut registry.free, index);
                debug_assert!(kept.is_ok());
            }
            object
        });
        drop(object);
    }

    /// Calls `each` for every object that exists all the while, with no lock held.
    pub(crate) fn each(&self, mut each: impl FnMut(&Object<P>)) {
        let mut index = 0;
        loop {
            let next = self.registry.with(|registry| {
                while let Some(place) = registry.objects.get(index) {
                    index += 1;
                    if place.is_some() {
                        return place.clone();
                    }
                }
                None
            });
            let Some(object) = next else { return };
            each(&object);
        }
    }

    /// Ends the listeners and connections whose local address `gone` names.
    fn sever(&self, gone: impl Fn(IpAddr) -> bool) {
        self.each(|object| match object {
            Object::Listener(listener) => listener::sever(listener, &gone),
            Object::Connector(connector) => connector::sever(connector, &gone),
            _ => {}
        });
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
        let mut fresh = Vec::new();
        fresh.try_reserve_exact(addresses.len())?;
        fresh.extend_from_slice(addresses);
        let old = self.0.addresses.with(|addresses| core::mem::replace(addresses, fresh));
        if old.iter().any(|address| !addresses.contains(address)) {
            self.0.sever(|address| !addresses.contains(&address));
        }
        Ok(())
    }

    /// One NDK_ADAPTER (or one user-mode open). Refused with `AdapterGone` after [`Self::shut_down`].
    pub fn open(&self, semantics: Semantics, block: P::Block) -> Result<Opening<P>, CreateError> {
        self.0.ready()?;
        Opening::create(&self.0, semantics, block)
    }

    /// Ends every listener and connection and refuses new objects: before halt and NDK-disable.
    pub fn shut_down(&self) {
        self.0.running.store(false, Ordering::Release);
        self.0.sever(|_| true);
    }

    /// Opens again after [`Self::shut_down`] (NDK enabled again).
    pub fn start(&self) {
        self.0.running.store(true, Ordering::Release);
    }

    /// Takes the adapter out of the fabric for good (halt); openings must be closed before.
    pub fn remove(&self) {
        self.shut_down();
        self.0.fabric.remove_adapter(&self.0);
    }

    /// Openings not yet fully closed.
    pub fn openings(&self) -> usize {
        let mut count = 0;
        self.0.each(|object| count += usize::from(matches!(object, Object::Opening(_))));
        count
    }

    pub fn counters(&self) -> Counters {
        self.0.meters.with(|meters| self.0.statistics.read(meters))
    }

    /// Calls `each` for every established connection; no lock of the engine is held meanwhile.
    pub fn connections(&self, each: &mut dyn FnMut(ConnectionEntry)) {
        self.0.each(|object| {
            if let Object::Connector(connector) = object
                && let Some(entry) = connector.established()
            {
                each(entry);
            }
        });
    }

    /// Calls `each` for every listening endpoint.
    pub fn endpoints(&self, each: &mut dyn FnMut(EndpointEntry)) {
        self.0.each(|object| {
            if let Object::Listener(listener) = object
                && let Some(local) = listener.local_address()
            {
                each(EndpointEntry { local });
            }
        });
    }

    /// Calls `each` for every live object of the adapter.
    pub fn objects(&self, each: &mut dyn FnMut(ObjectSnapshot)) {
        self.0.each(|object| {
            each(ObjectSnapshot {
                kind: ObjectKind::of(object),
                id: object.id(),
                holds: object.core().holds(),
                closing: object.core().is_closing(),
            });
        });
    }
}
