//! The adapter's capabilities and limits, in the two structures that report them.

use ndkpi_sys::{
    ndis::NDIS_NDK_CAPABILITIES,
    ndkinfo::{NDK_ADAPTER_FLAGS, NDK_ADAPTER_INFO, NDK_VERSION},
};

use softndk_engine::{Limits, Transport};

use crate::{
    link::configuration::{Configuration, LimitsProfile},
    version,
};

/// From here on a Read or Write beats a Send, in bytes.
const LARGE_REQUEST: u32 = 4096;

/// The engine's limits for an adapter.
pub fn of(configuration: &Configuration) -> Limits {
    let limits = match configuration.limits {
        LimitsProfile::ConnectxLike => Limits::CONNECTX_LIKE,
        LimitsProfile::Generous => Limits::GENEROUS,
        LimitsProfile::Tiny => Limits::TINY,
    };
    if configuration.transport == Transport::Loopback { limits } else { limits.across_streams() }
}

/// NDIS_NDK_CAPABILITIES without header and pointer.
pub fn capabilities(configuration: &Configuration) -> NDIS_NDK_CAPABILITIES {
    let objects = of(configuration).objects;
    let mut capabilities = NDIS_NDK_CAPABILITIES::zeroed();
    capabilities.MaxQpCount = objects;
    capabilities.MaxCqCount = objects;
    capabilities.MaxMrCount = objects;
    capabilities.MaxPdCount = objects;
    // 0: no limit for the adapter as a whole; the limits of a connection are in the information.
    capabilities.MaxInboundReadLimit = 0;
    capabilities.MaxOutboundReadLimit = 0;
    capabilities.MaxMwCount = objects;
    capabilities.MaxSrqCount = objects;
    // Every counter is kept.
    capabilities.MissingCounterMask = 0;
    capabilities
}

/// NDK_ADAPTER_INFO for an open with this version. Padding is zero.
pub fn adapter_information(version: NDK_VERSION, configuration: &Configuration) -> NDK_ADAPTER_INFO {
    let limits = of(configuration);
    let mut information = NDK_ADAPTER_INFO::zeroed();
    information.Version = version;
    information.VendorId = version::VENDOR_ID;
    information.DeviceId = version::DEVICE_ID;
    information.MaxRegistrationSize = limits.registration_size as usize;
    // A window lies inside a region.
    information.MaxWindowSize = limits.registration_size as usize;
    information.FRMRPageCount = limits.fast_register_pages;
    information.MaxInitiatorRequestSge = limits.initiator_sges;
    information.MaxReceiveRequestSge = limits.receive_sges;
    information.MaxReadRequestSge = limits.read_sges;
    information.MaxTransferLength = limits.transfer_length;
    information.MaxInlineDataSize = limits.inline_data;
    information.MaxInboundReadLimit = limits.inbound_reads;
    information.MaxOutboundReadLimit = limits.outbound_reads;
    information.MaxReceiveQueueDepth = limits.receive_depth;
    information.MaxInitiatorQueueDepth = limits.initiator_depth;
    information.MaxSrqDepth = limits.shared_depth;
    information.MaxCqDepth = limits.completion_depth;
    information.LargeRequestThreshold = LARGE_REQUEST;
    information.MaxCallerData = limits.caller_data;
    information.MaxCalleeData = limits.callee_data;
    information.AdapterFlags = NDK_ADAPTER_FLAGS::IN_ORDER_DMA_SUPPORTED
        | NDK_ADAPTER_FLAGS::RDMA_READ_SINK_NOT_REQUIRED
        | NDK_ADAPTER_FLAGS::MULTI_ENGINE_SUPPORTED
        | NDK_ADAPTER_FLAGS::CQ_RESIZE_SUPPORTED
        | NDK_ADAPTER_FLAGS::CQ_INTERRUPT_MODERATION_SUPPORTED
        | NDK_ADAPTER_FLAGS::RDMA_READ_LOCAL_INVALIDATE_SUPPORTED
        | NDK_ADAPTER_FLAGS::LOOPBACK_CONNECTIONS_SUPPORTED;
    information.RdmaTechnology = configuration.technology;
    information
}
