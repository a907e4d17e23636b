//! One adapter: what InitializeEx builds and HaltEx takes apart. Its address is the miniport adapter context.
//!
//! Nothing here is locked as a whole; each part guards itself. References from outside go through `gate`.

use core::ffi::c_void;

use ndkpi_sys::ndis::NDIS_NDK_CAPABILITIES;
use ndkpi_sys::ndkinfo::NDK_ADAPTER_INFO;
use softndk_kernel::{rundown::Rundown, work::Task};

use crate::{link::Station, ndk::provider::Provider};

/// "softndk" in eight bytes: a context that does not start with it is not one of this driver's adapters.
pub const MARK: u64 = u64::from_le_bytes(*b"softndkA");

pub struct Adapter {
    /// [`MARK`].
    pub mark: u64,
    /// Index in the driver's adapter table; tools name the adapter by it.
    pub index: usize,
    pub interface_index: u32,
    pub net_luid: u64,
    /// References of other adapters and of the control device.
    pub gate: Rundown,
    pub station: Task<Station>,
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
