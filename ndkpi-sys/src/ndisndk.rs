//! `ndisndk.h`: how a miniport driver becomes an NDK provider, and the registry keywords of NDK.

use crate::abi::{abi_fn, flags, layout, zeroed};
use crate::ndis::{NDIS_HANDLE, NDIS_NIC_SWITCH_ID, NDIS_NIC_SWITCH_VPORT_ID, NDIS_OBJECT_HEADER, NDIS_STATUS};
use crate::ndkinfo::NDK_VERSION;
use crate::ndkpi::NDK_ADAPTER;
use crate::nt::{UCHAR, ULONG, USHORT};

/// A consumer's parameters when it opens an adapter. There is no header: the last two fields exist only if the running NDIS is
/// 6.50 or later.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_OPEN_NDK_ADAPTER_PARAMETERS {
    /// The lowest acceptable minor version of one major version.
    pub Version: NDK_VERSION,
    /// NDIS 6.50.
    pub SwitchId: NDIS_NIC_SWITCH_ID,
    /// NDIS 6.50.
    pub VPortId: NDIS_NIC_SWITCH_VPORT_ID,
}
layout!(NDIS_OPEN_NDK_ADAPTER_PARAMETERS, size 12, align 4, { Version: 0, SwitchId: 4, VPortId: 8 });

abi_fn! {
    /// Opens an NDK adapter on a miniport adapter, PASSIVE_LEVEL. Several may be open on one miniport adapter.
    ///
    /// - `NDIS_STATUS_SUCCESS`: `*ppNdkAdapter` is the adapter; it runs the provider's highest minor version of the
    ///   requested major version.
    /// - `NDIS_STATUS_BAD_VERSION`: that major version, or so high a minor version, is not offered.
    /// - `NDIS_STATUS_ADAPTER_NOT_READY`: NDK is disabled.
    /// - `NDIS_STATUS_RESOURCES`
    pub type OPEN_NDK_ADAPTER_HANDLER = fn(
        MiniportAdapterContext: NDIS_HANDLE,
        Parameters: *mut NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
        ppNdkAdapter: *mut *mut NDK_ADAPTER,
    ) -> NDIS_STATUS;

    /// Closes an NDK adapter, PASSIVE_LEVEL. Blocks until everything made from it is closed and every callback into the
    /// consumer has returned.
    pub type CLOSE_NDK_ADAPTER_HANDLER = fn(MiniportAdapterContext: NDIS_HANDLE, pNdkAdapter: *mut NDK_ADAPTER);
}

/// Argument of `NdisSetOptionalHandlers`, given from `MiniportSetOptions`. The driver fills the header. The handlers
/// are the driver's, not an adapter's; both are mandatory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_NDK_PROVIDER_CHARACTERISTICS {
    /// Type `NDIS_OBJECT_TYPE_NDK_PROVIDER_CHARACTERISTICS`.
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub OpenNDKAdapterHandler: Option<OPEN_NDK_ADAPTER_HANDLER>,
    pub CloseNDKAdapterHandler: Option<CLOSE_NDK_ADAPTER_HANDLER>,
}
layout!(NDIS_NDK_PROVIDER_CHARACTERISTICS, size 24, align 8, {
    Header: 0, Flags: 4, OpenNDKAdapterHandler: 8, CloseNDKAdapterHandler: 16,
});
pub const NDIS_NDK_PROVIDER_CHARACTERISTICS_REVISION_1: UCHAR = 1;
pub const NDIS_SIZEOF_NDK_PROVIDER_CHARACTERISTICS_REVISION_1: USHORT = 0x18;

zeroed!(NDIS_OPEN_NDK_ADAPTER_PARAMETERS, NDIS_NDK_PROVIDER_CHARACTERISTICS);

/// Keyword of an adapter: `0` NDK disabled, anything else enabled.
pub const NETWORK_DIRECT_KEYWORD: &str = "*NetworkDirect";
/// Keyword with [`NETWORK_DIRECT_GLOBAL_FLAGS`].
pub const NETWORK_DIRECT_GLOBAL_FLAGS_KEYWORD: &str = "*NetworkDirectGlobalFlags";

flags! {
    /// System-wide NDK settings.
    pub struct NETWORK_DIRECT_GLOBAL_FLAGS: ULONG {
        /// RDMA may leave the local IP subnet.
        ALLOW_REMOTE_IP_SUBNET / NETWORK_DIRECT_GLOBAL_FLAGS_ALLOW_REMOTE_IP_SUBNET = 0x0000_0001;
    }
}
