//! How NDIS and Ethernet name one miniport.

use core::ffi::c_void;

/// An Ethernet address.
pub type MacAddress = [u8; 6];

/// NDIS's handle for this miniport instance.
#[derive(Clone, Copy)]
pub struct MiniportHandle(pub *mut c_void);

// SAFETY: the handle is a token; NDIS accepts it from every thread and processor.
unsafe impl Send for MiniportHandle {}
// SAFETY: as above.
unsafe impl Sync for MiniportHandle {}
