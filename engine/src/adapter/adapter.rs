//! An adapter: limits, addresses, counters, and the registry of its objects.
//!
//! This is the engine's half of one miniport adapter. Consumers work through an [`OpenObject`](super::open::OpenObject); an
//! adapter may have several.
//!
//! Rules: a vanished address and a shut-down adapter end their listeners and connections and notify the consumers; the objects
//! stay until they are closed.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicBool, Ordering};

use softndk_cells::{Dispose, NoMemory, Shared};

use crate::adapter::timeouts::Timeouts;
use crate::counters::{Statistics, TrafficCounters};
use crate::error::CreateError;
use crate::limits::Limits;
use crate::object::header::{Antecedents, Core, Object};
use crate::object::registry::Registry;
use crate::object::scheduler::Scheduler;
use crate::object::snapshot::ObjectKind;
use crate::platform::{Lock, Platform};

/// Where the pages of a mapping are among its addresses.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LogicalPages {
    /// Page *i* is at the first address plus *i* pages: a scatter/gather element may run over neighbouring pages.
    #[default]
    Adjoining,
    /// The last page is at the first address, and so on down: no page is followed by the next one, as on a machine without an IOMMU,
    /// and an element that runs out of its page is refused.
    Scattered,
}

/// By what the adapters of a fabric reach their peers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Transport {
    /// By the memory of this machine: others are not reached.
    #[default]
    Loopback,
    /// Those of the same wire number on this machine by its memory, others by streams.
    Auto,
    /// All by streams.
    Stream,
}

/// Whether the frames of a stream are protected by a CRC (MPA).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum StreamCrc {
    #[default]
    Always,
    /// TCP's checksum is enough, unless the peer asks for one.
    IfAsked,
}

/// What an adapter is made with.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdapterSettings {
    pub limits: Limits,
    /// Adapters of one wire number reach one another.
    pub wire: u32,
    pub transport: Transport,
    pub stream_crc: StreamCrc,
    pub timeouts: Timeouts,
    pub logical_pages: LogicalPages,
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
    pub(crate) fn with_port(self, port: u16) -> SocketAddr {
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
    pub(crate) scheduler: Scheduler<P>,
    /// Distinguishes endpoints of different adapters.
    pub(crate) number: u32,
    pub(crate) limits: Limits,
    pub(crate) wire: u32,
    pub(crate) transport: Transport,
    pub(crate) stream_crc: StreamCrc,
    pub(crate) timeouts: Timeouts,
    pub(crate) logical_pages: LogicalPages,
    pub(crate) statistics: Statistics,
    pub(crate) traffic_counters: P::Lock<TrafficCounters>,
    pub(crate) registry: Shared<Registry<P>>,
    running: AtomicBool,
    addresses: P::Lock<Vec<AdapterAddress>>,
}

impl<P: Platform> Dispose for AdapterObject<P> {}

impl<P: Platform> AdapterObject<P> {
    pub(crate) fn try_new(scheduler: Scheduler<P>, number: u32, settings: AdapterSettings) -> Result<Self, NoMemory> {
        Ok(Self {
            scheduler,
            number,
            limits: settings.limits,
            wire: settings.wire,
            transport: settings.transport,
            stream_crc: settings.stream_crc,
            timeouts: settings.timeouts,
            logical_pages: settings.logical_pages,
            statistics: Statistics::default(),
            traffic_counters: P::Lock::new(TrafficCounters::new()),
            registry: Shared::try_new(Registry::new(settings.limits.objects))?,
            running: AtomicBool::new(true),
            addresses: P::Lock::new(Vec::new()),
        })
    }

    /// The core of a new object of this adapter, held by its consumer.
    pub(crate) fn core(
        &self,
        kind: ObjectKind,
        consumer_object: Option<P::ConsumerObject>,
        antecedents: Antecedents<P>,
    ) -> Core<P> {
        Core::new(kind, &self.scheduler, &self.registry, consumer_object, antecedents)
    }

    /// Publishes a complete object, see [`Registry::register`].
    pub(crate) fn register(&self, object: &Object<P>) -> Result<(), NoMemory> {
        self.registry.register(object)
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

    /// Looks at its addresses, until `look` says that it has seen enough.
    pub(crate) fn each_address(&self, mut look: impl FnMut(AdapterAddress) -> bool) {
        self.addresses.with(|addresses| _ = addresses.iter().all(|own| look(*own)));
    }

    /// One of this adapter's addresses as its consumers see it; `None` for any other. A link-local address may be given with
    /// the zone it has here or without one; other addresses have no zones.
    pub(crate) fn own_address(&self, address: SocketAddr) -> Option<SocketAddr> {
        let own = self.addresses.with(|addresses| addresses.iter().find(|own| own.ip == address.ip()).copied())?;
        let zone = scope_of(address);
        let fits = zone == 0 || own.scope_id == 0 || zone == own.scope_id;
        fits.then(|| own.with_port(address.port()))
    }

    /// Replaces the addresses; listeners and connections of vanished ones end.
    pub(crate) fn replace_addresses(
        &self,
        addresses: &(impl ExactSizeIterator<Item = AdapterAddress> + Clone),
    ) -> Result<(), NoMemory> {
        let mut fresh = Vec::new();
        fresh.try_reserve_exact(addresses.len())?;
        fresh.extend(addresses.clone());
        let old = self.addresses.with(|addresses| core::mem::replace(addresses, fresh));
        let gone = |ip: IpAddr| !addresses.clone().any(|address| address.ip == ip);
        if old.iter().any(|address| gone(address.ip)) {
            // A listener at every address continues.
            self.abort(|address| !address.is_unspecified() && gone(address));
        }
        self.registry.each(|object| object.addresses_come());
        Ok(())
    }

    /// Refuses new objects, or takes them again.
    pub(crate) fn run(&self, running: bool) {
        self.running.store(running, Ordering::Release);
    }

    /// Ends the listeners and connections whose local address `gone` names.
    pub(crate) fn abort(&self, gone: impl Fn(IpAddr) -> bool) {
        self.registry.each(|object| object.addresses_gone(&gone));
    }
}

/// The zone of an address.
pub(crate) fn scope_of(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}
