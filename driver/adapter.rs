//! One adapter: what InitializeEx builds and HaltEx takes apart. Its address is the miniport adapter context.
//!
//! Nothing here is locked as a whole; each part guards itself. References from outside go through `gate`.

use core::{
    ffi::c_void,
    sync::atomic::{AtomicBool, AtomicU32},
};

use ndkpi_sys::ndis::NDIS_NDK_CAPABILITIES;
use ndkpi_sys::ndkinfo::NDK_ADAPTER_INFO;
use softndk_kernel::{rundown::Rundown, spin_lock::SpinLock};

use crate::{
    address::Addresses,
    configuration::Configuration,
    miniport::{multicast::MulticastList, statistics::Statistics},
    ndk::provider::Provider,
    wire::Port,
};

/// An Ethernet address.
pub type MacAddress = [u8; 6];

/// "softndk" in eight bytes: a context that does not start with it is not one of this driver's adapters.
const MARK: u64 = u64::from_le_bytes(*b"softndkA");

/// NDIS's handle for this miniport instance.
#[derive(Clone, Copy)]
pub struct MiniportHandle(pub *mut c_void);

// SAFETY: the handle is a token; NDIS accepts it from every thread and processor.
unsafe impl Send for MiniportHandle {}
// SAFETY: as above.
unsafe impl Sync for MiniportHandle {}

pub struct Adapter {
    mark: u64,
    /// Index in the driver's adapter table; tools name the adapter by it.
    pub index: usize,
    pub miniport: MiniportHandle,
    pub interface_index: u32,
    pub net_luid: u64,
    pub configuration: Configuration,
    pub permanent_address: MacAddress,
    pub current_address: MacAddress,
    /// References of other adapters and of the control device.
    pub gate: Rundown,
    /// True from surprise removal on.
    pub removed: AtomicBool,
    pub packet_filter: AtomicU32,
    pub lookahead: AtomicU32,
    pub multicast: SpinLock<MulticastList>,
    pub statistics: Statistics,
    pub port: Port,
    pub addresses: Addresses,
    pub provider: Provider,
    /// What the NDK attributes point to; NDIS may keep the pointers while the adapter exists.
    pub ndk: NdkDescription,
}

/// The capabilities and the information they point to, kept together at a fixed address.
pub struct NdkDescription {
    pub capabilities: NDIS_NDK_CAPABILITIES,
    pub information: NDK_ADAPTER_INFO,
}

// SAFETY: written only while the adapter is built; the pointer inside points into the same block.
unsafe impl Send for NdkDescription {}
// SAFETY: as above: read only afterwards.
unsafe impl Sync for NdkDescription {}

impl Adapter {
    /// The adapter behind a miniport adapter context.
    ///
    /// # Safety
    /// `context` is what InitializeEx gave in the registration attributes, and HaltEx has not returned.
    pub unsafe fn from_context<'a>(context: *mut c_void) -> Option<&'a Self> {
        // SAFETY: null or a live adapter, by the caller's promise.
        let adapter = unsafe { context.cast::<Self>().as_ref() }?;
        (adapter.mark == MARK).then_some(adapter)
    }
}

/// The parts an adapter is made of; see [`Adapter`].
pub struct Parts {
    pub index: usize,
    pub miniport: MiniportHandle,
    pub interface_index: u32,
    pub net_luid: u64,
    pub configuration: Configuration,
    pub permanent_address: MacAddress,
    pub gate: Rundown,
    pub port: Port,
    pub addresses: Addresses,
    pub provider: Provider,
    pub ndk: NdkDescription,
}

impl From<Parts> for Adapter {
    fn from(parts: Parts) -> Self {
        Self {
            mark: MARK,
            index: parts.index,
            miniport: parts.miniport,
            interface_index: parts.interface_index,
            net_luid: parts.net_luid,
            current_address: parts.configuration.network_address.unwrap_or(parts.permanent_address),
            configuration: parts.configuration,
            permanent_address: parts.permanent_address,
            gate: parts.gate,
            removed: AtomicBool::new(false),
            packet_filter: AtomicU32::new(0),
            lookahead: AtomicU32::new(crate::miniport::MTU),
            multicast: SpinLock::new(MulticastList::new()),
            statistics: Statistics::default(),
            port: parts.port,
            addresses: parts.addresses,
            provider: parts.provider,
            ndk: parts.ndk,
        }
    }
}
