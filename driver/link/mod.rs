//! One adapter at the link layer: its address, its counters and its end of the virtual wire.
//!
//! Raw frames only; RDMA never comes here. A [`Station`] is a part of an adapter and knows nothing of the rest of it. NDIS's entry
//! points (`miniport`) set what the fields say and pass frames to [`wire`].

use core::sync::atomic::{AtomicBool, AtomicU32};

use ndkpi_sys::ndis::NDIS_STATUS;
use softndk_kernel::{pool::PoolBox, spin_lock::SpinLock, work::Processors};

pub mod address;
pub mod configuration;
pub mod handle;
pub mod multicast;
pub mod statistics;
pub mod uplink;
pub mod wire;

use handle::{MacAddress, MiniportHandle};
use multicast::MulticastList;
use statistics::Statistics;
use uplink::Uplink;
use wire::Port;

/// Payload of the longest frame there is, in bytes: an adapter with an uplink has less.
pub const MTU: u32 = 1500;
/// Bytes of an Ethernet header.
pub const HEADER_LENGTH: u32 = 14;
/// The longest frame, without check sequence.
pub const FRAME_MAX: u32 = MTU + HEADER_LENGTH;
/// The shortest frame a station may receive, without check sequence.
pub const FRAME_MIN: u32 = 60;

/// One end of the virtual wire. As a task it indicates the frames that it received.
pub struct Station {
    pub miniport: MiniportHandle,
    /// Stations with the same number are on one wire.
    pub wire_number: u32,
    pub permanent_address: MacAddress,
    pub current_address: MacAddress,
    /// True from surprise removal on.
    pub removed: AtomicBool,
    pub packet_filter: AtomicU32,
    pub lookahead: AtomicU32,
    pub multicast: SpinLock<MulticastList>,
    pub statistics: Statistics,
    pub port: Port,
    /// Payload of its longest frame, in bytes.
    pub mtu: u32,
    /// The way to stations of other machines.
    pub uplink: Option<PoolBox<Uplink>>,
    /// Where the task is queued.
    processors: &'static Processors,
}

/// What a station is called and where it is plugged in.
pub struct Plug {
    pub miniport: MiniportHandle,
    pub wire_number: u32,
    pub permanent_address: MacAddress,
    /// The address set by an administrator, in place of the permanent one.
    pub network_address: Option<MacAddress>,
    pub mtu: u32,
    pub uplink: Option<PoolBox<Uplink>>,
    pub processors: &'static Processors,
}

impl Station {
    /// PASSIVE_LEVEL.
    pub fn try_new(plug: Plug) -> Result<Self, NDIS_STATUS> {
        Ok(Self {
            miniport: plug.miniport,
            wire_number: plug.wire_number,
            permanent_address: plug.permanent_address,
            current_address: plug.network_address.unwrap_or(plug.permanent_address),
            removed: AtomicBool::new(false),
            packet_filter: AtomicU32::new(0),
            lookahead: AtomicU32::new(plug.mtu),
            multicast: SpinLock::new(MulticastList::new()),
            statistics: Statistics::default(),
            port: Port::try_new(plug.miniport)?,
            mtu: plug.mtu,
            uplink: plug.uplink,
            processors: plug.processors,
        })
    }

    /// Its longest frame, without check sequence.
    pub const fn frame_max(&self) -> u32 {
        self.mtu.saturating_add(HEADER_LENGTH)
    }
}
