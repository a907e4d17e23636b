//! `ndis.h` and `ntddndis.h`, 6.60 contract: what a virtual Ethernet miniport with an NDK provider needs.
//!
//! Not here: protocol and filter drivers, DMA, interrupts, offloads, SR-IOV, connection-oriented NDIS. Layouts and
//! revisions are those of a driver that declares NDIS 6.60 (Windows Server 2016) and runs on any later system. `Size`
//! fields are the `NDIS_SIZEOF_…` constants, never `size_of`.

mod attribute;
mod buffer;
mod configuration;
mod device;
mod event;
#[cfg(target_os = "windows")]
mod import;
mod indication;
mod lock;
mod media;
mod memory;
mod miniport;
mod ndk;
mod object;
mod oid;
mod power;
mod request;
mod rss;
mod statistics;
mod status;
mod timer;

pub use attribute::*;
pub use buffer::*;
pub use configuration::*;
pub use device::*;
pub use event::*;
#[cfg(target_os = "windows")]
pub use import::*;
pub use indication::*;
pub use lock::*;
pub use media::*;
pub use memory::*;
pub use miniport::*;
pub use ndk::*;
pub use object::*;
pub use oid::*;
pub use power::*;
pub use request::*;
pub use rss::*;
pub use statistics::*;
pub use status::*;
pub use timer::*;
