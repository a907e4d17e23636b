//! `ndkinfo.h`: what an NDK adapter reports about itself.

use crate::abi::{flags, layout, open_enum, zeroed};
use crate::nt::{SIZE_T, UINT32, ULONG, USHORT};

/// An NDKPI version. Versions in use: 1.1, 1.2, 2.0, 2.1.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NDK_VERSION {
    pub Major: USHORT,
    pub Minor: USHORT,
}
layout!(NDK_VERSION, size 4, align 2, { Major: 0, Minor: 2 });

open_enum! {
    /// The transport below the RDMA adapter (NDKPI 2.0).
    pub enum NDK_RDMA_TECHNOLOGY {
        NdkUndefined = 0,
        NdkiWarp = 1,
        NdkInfiniBand = 2,
        NdkRoCE = 3,
        NdkRoCEv2 = 4,
        NdkMaxTechnology = 5,
    }
}

flags! {
    /// `NDK_ADAPTER_INFO.AdapterFlags`.
    pub struct NDK_ADAPTER_FLAGS: ULONG {
        /// Incoming data lands in the consumer's buffer in ascending order; the last byte never before an earlier one.
        IN_ORDER_DMA_SUPPORTED / NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED = 0x0000_0001;
        /// The sink of a Read needs no special right: the privileged token and logical addresses will do.
        RDMA_READ_SINK_NOT_REQUIRED / NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED = 0x0000_0002;
        /// `NdkControlCqInterruptModeration` works.
        CQ_INTERRUPT_MODERATION_SUPPORTED / NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED = 0x0000_0004;
        /// Several connections run in parallel engines.
        MULTI_ENGINE_SUPPORTED / NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED = 0x0000_0008;
        /// `NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE` is honoured (NDKPI 1.2).
        RDMA_READ_LOCAL_INVALIDATE_SUPPORTED / NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED = 0x0000_0010;
        /// `NdkResizeCq` works; without it consumers must not call it.
        CQ_RESIZE_SUPPORTED / NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED = 0x0000_0100;
        /// A local address can connect to the same local address.
        LOOPBACK_CONNECTIONS_SUPPORTED / NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED = 0x0001_0000;
    }
}

/// Limits and abilities of an adapter.
///
/// The size depends on the negotiated version: see [`NDK_ADAPTER_INFO_SIZE_1`] and [`NDK_ADAPTER_INFO_SIZE_2`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDK_ADAPTER_INFO {
    /// The version that the provider runs for this open.
    pub Version: NDK_VERSION,
    /// Organizationally unique identifier.
    pub VendorId: UINT32,
    /// Vendor-defined.
    pub DeviceId: UINT32,
    /// Bytes of one registration.
    pub MaxRegistrationSize: SIZE_T,
    /// Bytes of one memory window.
    pub MaxWindowSize: SIZE_T,
    /// Pages of a fast-register region at which the number of regions is greatest; at least 16.
    pub FRMRPageCount: ULONG,
    pub MaxInitiatorRequestSge: ULONG,
    pub MaxReceiveRequestSge: ULONG,
    /// For Read instead of `MaxInitiatorRequestSge`.
    pub MaxReadRequestSge: ULONG,
    /// Bytes over all elements of one request.
    pub MaxTransferLength: ULONG,
    pub MaxInlineDataSize: ULONG,
    /// Incoming Reads in progress on one queue pair.
    pub MaxInboundReadLimit: ULONG,
    /// Outgoing Reads in progress on one queue pair.
    pub MaxOutboundReadLimit: ULONG,
    pub MaxReceiveQueueDepth: ULONG,
    pub MaxInitiatorQueueDepth: ULONG,
    /// 0: no shared receive queues.
    pub MaxSrqDepth: ULONG,
    pub MaxCqDepth: ULONG,
    /// A hint: above it Read and Write beat Send and Receive.
    pub LargeRequestThreshold: ULONG,
    /// Bytes of private data with a connect.
    pub MaxCallerData: ULONG,
    /// Bytes of private data with an accept or reject.
    pub MaxCalleeData: ULONG,
    pub AdapterFlags: NDK_ADAPTER_FLAGS,
    /// NDKPI 2.0; absent in the 1.x layout.
    pub RdmaTechnology: NDK_RDMA_TECHNOLOGY,
}
layout!(NDK_ADAPTER_INFO, size 104, align 8, {
    Version: 0, VendorId: 4, DeviceId: 8, MaxRegistrationSize: 16, MaxWindowSize: 24, FRMRPageCount: 32,
    MaxInitiatorRequestSge: 36, MaxReceiveRequestSge: 40, MaxReadRequestSge: 44, MaxTransferLength: 48,
    MaxInlineDataSize: 52, MaxInboundReadLimit: 56, MaxOutboundReadLimit: 60, MaxReceiveQueueDepth: 64,
    MaxInitiatorQueueDepth: 68, MaxSrqDepth: 72, MaxCqDepth: 76, LargeRequestThreshold: 80, MaxCallerData: 84,
    MaxCalleeData: 88, AdapterFlags: 92, RdmaTechnology: 96,
});
zeroed!(NDK_ADAPTER_INFO);

/// Bytes of [`NDK_ADAPTER_INFO`] for an adapter opened with major version 1.
pub const NDK_ADAPTER_INFO_SIZE_1: usize = core::mem::offset_of!(NDK_ADAPTER_INFO, RdmaTechnology);
/// Bytes of [`NDK_ADAPTER_INFO`] for an adapter opened with major version 2.
pub const NDK_ADAPTER_INFO_SIZE_2: usize = size_of::<NDK_ADAPTER_INFO>();

const _: () = assert!(NDK_ADAPTER_INFO_SIZE_1 == 0x60);
