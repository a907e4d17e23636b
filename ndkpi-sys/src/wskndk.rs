//! `wskndk.h`: how a kernel consumer opens an NDK adapter. `WskControlClient` with
//! [`WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH`], no input and an output buffer of exactly the table gives the table.

use crate::abi::{abi_fn, layout};
use crate::ndis::NET_IFINDEX;
use crate::ndkinfo::NDK_VERSION;
use crate::ndkpi::NDK_ADAPTER;
use crate::nt::{NTSTATUS, ULONG};
use crate::wsk::WSK_CLIENT;

/// Control code: the characters `NDKD`.
pub const WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH: ULONG = u32::from_be_bytes(*b"NDKD");

abi_fn! {
    /// Opens the NDK adapter of an interface, PASSIVE_LEVEL. `NdkVersion` is the lowest acceptable minor version of one
    /// major version. The provider's status comes back unchanged.
    ///
    /// - `STATUS_SUCCESS`
    /// - `NDIS_STATUS_BAD_VERSION`: that major version, or so high a minor version, is not offered.
    /// - `NDIS_STATUS_ADAPTER_NOT_READY`: NDK is disabled.
    /// - `NDIS_STATUS_RESOURCES`
    pub type PFN_WSK_NDK_OPEN_ADAPTER = fn(
        Client: *mut WSK_CLIENT,
        NdkVersion: NDK_VERSION,
        IfIndex: NET_IFINDEX,
        ppNdkAdapter: *mut *mut NDK_ADAPTER,
    ) -> NTSTATUS;

    /// Closes it, PASSIVE_LEVEL. Blocks until everything made from the adapter is closed and no callback runs.
    pub type PFN_WSK_NDK_CLOSE_ADAPTER = fn(Client: *mut WSK_CLIENT, pNdkAdapter: *mut NDK_ADAPTER);
}

/// The two functions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WSK_PROVIDER_NDK_DISPATCH {
    pub WskOpenNdkAdapter: PFN_WSK_NDK_OPEN_ADAPTER,
    pub WskCloseNdkAdapter: PFN_WSK_NDK_CLOSE_ADAPTER,
}
layout!(WSK_PROVIDER_NDK_DISPATCH, size 16, align 8, { WskOpenNdkAdapter: 0, WskCloseNdkAdapter: 8 });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_code_is_the_msvc_value_of_the_character_constant() {
        assert_eq!(WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH, 0x4E44_4B44);
    }
}
