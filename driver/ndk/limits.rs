//! What the adapter says it can do, in the two structures that say it.

use ndkpi_sys::{
    ndis::NDIS_NDK_CAPABILITIES,
    ndkinfo::{NDK_ADAPTER_FLAGS, NDK_ADAPTER_INFO, NDK_VERSION},
};

use crate::{configuration::Configuration, version};

/// Objects of each kind per adapter, as reported; the true bound is memory.
const MAX_OBJECTS: u32 = 0x0001_0000;

/// NDIS_NDK_CAPABILITIES without header and pointer.
pub fn capabilities() -> NDIS_NDK_CAPABILITIES {
    let mut capabilities = NDIS_NDK_CAPABILITIES::zeroed();
    capabilities.MaxQpCount = MAX_OBJECTS;
    capabilities.MaxCqCount = MAX_OBJECTS;
    capabilities.MaxMrCount = MAX_OBJECTS;
    capabilities.MaxPdCount = MAX_OBJECTS;
    // 0: no limit for the adapter as a whole; the limits of a connection are in the information.
    capabilities.MaxInboundReadLimit = 0;
    capabilities.MaxOutboundReadLimit = 0;
    capabilities.MaxMwCount = 0;
    capabilities.MaxSrqCount = 0;
    // Every counter is kept.
    capabilities.MissingCounterMask = 0;
    capabilities
}

/// NDK_ADAPTER_INFO for an open with this version. Padding is zero.
pub fn adapter_information(version: NDK_VERSION, configuration: &Configuration) -> NDK_ADAPTER_INFO {
    let mut information = NDK_ADAPTER_INFO::zeroed();
    information.Version = version;
    information.VendorId = version::VENDOR_ID;
    information.DeviceId = version::DEVICE_ID;
    information.MaxRegistrationSize = 0xFFFF_F000;
    information.MaxWindowSize = 0;
    information.FRMRPageCount = 512;
    information.MaxInitiatorRequestSge = 32;
    information.MaxReceiveRequestSge = 32;
    information.MaxReadRequestSge = 32;
    information.MaxTransferLength = 1 << 30;
    information.MaxInlineDataSize = 256;
    information.MaxInboundReadLimit = 16;
    information.MaxOutboundReadLimit = 128;
    information.MaxReceiveQueueDepth = 16_351;
    information.MaxInitiatorQueueDepth = 16_351;
    information.MaxSrqDepth = 0;
    information.MaxCqDepth = 4_194_303;
    information.LargeRequestThreshold = 4096;
    information.MaxCallerData = 56;
    information.MaxCalleeData = 148;
    information.AdapterFlags = NDK_ADAPTER_FLAGS::IN_ORDER_DMA_SUPPORTED
        | NDK_ADAPTER_FLAGS::RDMA_READ_SINK_NOT_REQUIRED
        | NDK_ADAPTER_FLAGS::MULTI_ENGINE_SUPPORTED
        | NDK_ADAPTER_FLAGS::RDMA_READ_LOCAL_INVALIDATE_SUPPORTED
        | NDK_ADAPTER_FLAGS::LOOPBACK_CONNECTIONS_SUPPORTED;
    information.RdmaTechnology = configuration.technology;
    information
}
