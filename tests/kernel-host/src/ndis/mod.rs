//! NDIS: registration of miniport drivers, the life cycle of their adapters, OID requests, status indications, the data path,
//! configuration, work items, timers, control devices and PnP events.
//!
//! It is the side above a miniport and checks what the real one checks, more strictly: a structure of the wrong type, revision
//! or size, a call in the wrong state or order, or an object left behind ends the run with `BUGCODE_NDIS_DRIVER` and the
//! sentence of the rule; where NDIS returns a status, this one does.

pub mod adapter;
pub mod attributes;
pub mod configuration;
pub mod data_path;
pub mod device;
pub mod driver_object;
pub mod gate;
pub mod handle;
pub mod leak;
pub mod life_cycle;
pub mod loan;
pub mod log;
pub mod miniport;
pub mod net_buffer;
pub mod oid;
pub mod oid_request;
pub mod pnp_event;
pub mod registration;
pub mod rendezvous;
pub mod rule;
pub mod status;
pub mod status_indication;
pub mod timer;
pub mod work_item;

use std::sync::LazyLock;

pub use status::NdisStatus;

use handle::HandleTable;

/// Every object that NDIS has given a handle for.
pub struct Ndis {
    pub drivers: HandleTable<registration::MiniportDriver>,
    pub miniports: HandleTable<miniport::Miniport>,
    pub pools: HandleTable<net_buffer::NetBufferPool>,
    pub work_items: HandleTable<work_item::NdisWorkItem>,
    pub timers: HandleTable<timer::Timer>,
    pub configurations: HandleTable<configuration::Configuration>,
    pub devices: HandleTable<device::ControlDevice>,
}

static NDIS: LazyLock<Ndis> = LazyLock::new(|| Ndis {
    drivers: HandleTable::new(1),
    miniports: HandleTable::new(2),
    pools: HandleTable::new(3),
    work_items: HandleTable::new(4),
    timers: HandleTable::new(5),
    configurations: HandleTable::new(6),
    devices: HandleTable::new(7),
});

/// The one NDIS of the process.
#[must_use]
pub fn ndis() -> &'static Ndis {
    &NDIS
}

/// The owner of an object that a miniport or a driver allocates: the handle that it passes.
#[must_use]
pub fn is_owner(handle: *mut std::ffi::c_void) -> bool {
    ndis().miniports.get(handle).is_ok() || ndis().drivers.get(handle).is_ok()
}
