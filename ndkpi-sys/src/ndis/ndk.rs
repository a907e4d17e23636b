//! NDK structures of `ntddndis.h`: capabilities, statistics, connection and endpoint lists, and their WMI and virtual
//! port forms.

use super::media::{NDIS_MAX_PHYS_ADDRESS_LENGTH, NET_IFINDEX};
use super::object::{NDIS_OBJECT_HEADER, NDIS_SWITCH_PORT_ID};
use crate::abi::{layout, zeroed};
use crate::ndkinfo::{NDK_ADAPTER_FLAGS, NDK_ADAPTER_INFO, NDK_RDMA_TECHNOLOGY, NDK_VERSION};
use crate::nt::{BOOLEAN, GUID, SOCKADDR_INET, UCHAR, UINT32, ULONG, ULONG64, ULONGLONG, USHORT};

/// Adapter-wide limits, part of the NDK attributes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_NDK_CAPABILITIES {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub MaxQpCount: ULONG,
    pub MaxCqCount: ULONG,
    pub MaxMrCount: ULONG,
    pub MaxPdCount: ULONG,
    /// 0: no adapter-wide limit.
    pub MaxInboundReadLimit: ULONG,
    /// 0: no adapter-wide limit.
    pub MaxOutboundReadLimit: ULONG,
    pub MaxMwCount: ULONG,
    /// 0: no shared receive queues.
    pub MaxSrqCount: ULONG,
    /// Bit `index` set: that counter of `NDIS_NDK_PERFORMANCE_COUNTERS` is not kept.
    pub MissingCounterMask: ULONG64,
    pub NdkInfo: *mut NDK_ADAPTER_INFO,
}
layout!(NDIS_NDK_CAPABILITIES, size 56, align 8, {
    Header: 0, Flags: 4, MaxQpCount: 8, MaxCqCount: 12, MaxMrCount: 16, MaxPdCount: 20, MaxInboundReadLimit: 24,
    MaxOutboundReadLimit: 28, MaxMwCount: 32, MaxSrqCount: 36, MissingCounterMask: 40, NdkInfo: 48,
});
pub const NDIS_NDK_CAPABILITIES_REVISION_1: UCHAR = 1;
pub const NDIS_SIZEOF_NDK_CAPABILITIES_REVISION_1: USHORT = 0x38;

/// Counters of the RDMA side; counter `index` is at `8 * index`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_NDK_PERFORMANCE_COUNTERS {
    /// Outbound connections established.
    pub Connect: ULONG64,
    /// Inbound connections established.
    pub Accept: ULONG64,
    /// Failed attempts in both directions.
    pub ConnectFailure: ULONG64,
    /// Established connections that died before the consumer disconnected.
    pub ConnectionError: ULONG64,
    /// Connections now.
    pub ActiveConnection: ULONG64,
    /// This and the next nineteen are 0.
    pub Reserved01: ULONG64,
    pub Reserved02: ULONG64,
    pub Reserved03: ULONG64,
    pub Reserved04: ULONG64,
    pub Reserved05: ULONG64,
    pub Reserved06: ULONG64,
    pub Reserved07: ULONG64,
    pub Reserved08: ULONG64,
    pub Reserved09: ULONG64,
    pub Reserved10: ULONG64,
    pub Reserved11: ULONG64,
    pub Reserved12: ULONG64,
    pub Reserved13: ULONG64,
    pub Reserved14: ULONG64,
    pub Reserved15: ULONG64,
    pub Reserved16: ULONG64,
    pub Reserved17: ULONG64,
    pub Reserved18: ULONG64,
    pub Reserved19: ULONG64,
    pub Reserved20: ULONG64,
    /// Completion queues that entered the error state.
    pub CQError: ULONG64,
    /// Incoming RDMA bytes, link layer included.
    pub RDMAInOctets: ULONG64,
    /// Outgoing RDMA bytes, link layer included.
    pub RDMAOutOctets: ULONG64,
    /// Incoming link layer frames of RDMA.
    pub RDMAInFrames: ULONG64,
    /// Outgoing link layer frames of RDMA.
    pub RDMAOutFrames: ULONG64,
}
layout!(NDIS_NDK_PERFORMANCE_COUNTERS, size 240, align 8, {
    Connect: 0, Accept: 8, ConnectFailure: 16, ConnectionError: 24, ActiveConnection: 32, Reserved01: 40,
    Reserved02: 48, Reserved03: 56, Reserved04: 64, Reserved05: 72, Reserved06: 80, Reserved07: 88, Reserved08: 96,
    Reserved09: 104, Reserved10: 112, Reserved11: 120, Reserved12: 128, Reserved13: 136, Reserved14: 144,
    Reserved15: 152, Reserved16: 160, Reserved17: 168, Reserved18: 176, Reserved19: 184, Reserved20: 192, CQError: 200,
    RDMAInOctets: 208, RDMAOutOctets: 216, RDMAInFrames: 224, RDMAOutFrames: 232,
});

/// Output of `OID_NDK_STATISTICS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_NDK_STATISTICS_INFO {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub CounterSet: NDIS_NDK_PERFORMANCE_COUNTERS,
}
layout!(NDIS_NDK_STATISTICS_INFO, size 248, align 8, { Header: 0, Flags: 4, CounterSet: 8 });
pub const NDIS_NDK_STATISTICS_INFO_REVISION_1: UCHAR = 1;
pub const NDIS_SIZEOF_NDK_STATISTICS_INFO_REVISION_1: USHORT = 0xF8;

/// One connection.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_NDK_CONNECTION_ENTRY {
    pub Local: SOCKADDR_INET,
    pub Remote: SOCKADDR_INET,
    /// TRUE for NDSPI, FALSE for NDKPI.
    pub UserModeOwner: BOOLEAN,
    /// Irrelevant without a user-mode owner.
    pub OwnerPid: ULONG,
}
layout!(NDIS_NDK_CONNECTION_ENTRY, size 64, align 4, { Local: 0, Remote: 28, UserModeOwner: 56, OwnerPid: 60 });

/// Output of `OID_NDK_CONNECTIONS`: `Count` entries. `Header.Size` is the whole size, at most 0xFFFF.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_NDK_CONNECTIONS {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub Count: ULONG,
    /// TRUE: entries come in pairs, RDMA address then TCP address.
    pub NDConnectionsMappedtoTCPConnections: BOOLEAN,
    pub Connections: [NDIS_NDK_CONNECTION_ENTRY; 1],
}
layout!(NDIS_NDK_CONNECTIONS, size 80, align 4, {
    Header: 0, Flags: 4, Count: 8, NDConnectionsMappedtoTCPConnections: 12, Connections: 16,
});
pub const NDIS_NDK_CONNECTIONS_REVISION_1: UCHAR = 1;

/// Bytes of [`NDIS_NDK_CONNECTIONS`] with `n` entries (`NDIS_SIZEOF_NDK_CONNECTIONS_REVISION_1`), or `None` if that is
/// no size.
#[must_use]
pub const fn NDIS_SIZEOF_NDK_CONNECTIONS_REVISION_1(n: usize) -> Option<usize> {
    match n.checked_mul(size_of::<NDIS_NDK_CONNECTION_ENTRY>()) {
        Some(entries) => entries.checked_add(core::mem::offset_of!(NDIS_NDK_CONNECTIONS, Connections)),
        None => None,
    }
}

/// One listener or shared endpoint.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_NDK_LOCAL_ENDPOINT_ENTRY {
    pub Local: SOCKADDR_INET,
    /// TRUE for NDSPI, FALSE for NDKPI.
    pub UserModeOwner: BOOLEAN,
    /// TRUE: listener, FALSE: shared endpoint.
    pub Listener: BOOLEAN,
    /// Irrelevant without a user-mode owner.
    pub OwnerPid: ULONG,
}
layout!(NDIS_NDK_LOCAL_ENDPOINT_ENTRY, size 36, align 4, { Local: 0, UserModeOwner: 28, Listener: 29, OwnerPid: 32 });

/// Output of `OID_NDK_LOCAL_ENDPOINTS`: `Count` entries. `Header.Size` is the whole size, at most 0xFFFF.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_NDK_LOCAL_ENDPOINTS {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub Count: ULONG,
    /// TRUE: entries come in pairs, RDMA address then TCP address.
    pub NDLocalEndpointsMappedtoTCPLocalEndpoints: BOOLEAN,
    pub LocalEndpoints: [NDIS_NDK_LOCAL_ENDPOINT_ENTRY; 1],
}
layout!(NDIS_NDK_LOCAL_ENDPOINTS, size 52, align 4, {
    Header: 0, Flags: 4, Count: 8, NDLocalEndpointsMappedtoTCPLocalEndpoints: 12, LocalEndpoints: 16,
});
pub const NDIS_NDK_LOCAL_ENDPOINTS_REVISION_1: UCHAR = 1;

/// Bytes of [`NDIS_NDK_LOCAL_ENDPOINTS`] with `n` entries (`NDIS_SIZEOF_NDK_LOCAL_ENDPOINTS_REVISION_1`), or `None` if
/// that is no size.
#[must_use]
pub const fn NDIS_SIZEOF_NDK_LOCAL_ENDPOINTS_REVISION_1(n: usize) -> Option<usize> {
    match n.checked_mul(size_of::<NDIS_NDK_LOCAL_ENDPOINT_ENTRY>()) {
        Some(entries) => entries.checked_add(core::mem::offset_of!(NDIS_NDK_LOCAL_ENDPOINTS, LocalEndpoints)),
        None => None,
    }
}

/// RDMA requested on a virtual port (NDIS 6.50).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_NDK_REQUEST_PARAMETERS {
    pub RdmaRequested: BOOLEAN,
    pub SwitchPortId: NDIS_SWITCH_PORT_ID,
    pub IfIndex: NET_IFINDEX,
    pub MacAddress: [UCHAR; NDIS_MAX_PHYS_ADDRESS_LENGTH],
    pub VlanId: UINT32,
    pub NdkReserved: NDIS_NDK_CAPABILITIES,
}
layout!(NDIS_NDK_REQUEST_PARAMETERS, size 104, align 8, {
    RdmaRequested: 0, SwitchPortId: 4, IfIndex: 8, MacAddress: 12, VlanId: 44, NdkReserved: 48,
});

/// RDMA given to a virtual port (NDIS 6.50).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_NDK_RESPONSE_PARAMETERS {
    pub CapabilitiesAvailable: BOOLEAN,
    pub ReceivedCapabilities: NDIS_NDK_CAPABILITIES,
}
layout!(NDIS_NDK_RESPONSE_PARAMETERS, size 64, align 8, { CapabilitiesAvailable: 0, ReceivedCapabilities: 8 });

/// RDMA part of the parameters of a virtual port (NDIS 6.50).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_NDK_PARAMETERS {
    pub NdkRequest: NDIS_NDK_REQUEST_PARAMETERS,
    pub NdkResponse: NDIS_NDK_RESPONSE_PARAMETERS,
}
layout!(NDIS_NDK_PARAMETERS, size 168, align 8, { NdkRequest: 0, NdkResponse: 104 });
/// Change flag of virtual port parameters: the RDMA part changed.
pub const NDIS_NIC_SWITCH_VPORT_PARAMS_NDK_PARAMS_CHANGED: ULONG = 0x0020_0000;

/// [`NDK_ADAPTER_INFO`] with sizes that do not depend on the pointer width.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDK_WMI_ADAPTER_INFO {
    pub Version: NDK_VERSION,
    pub VendorId: UINT32,
    pub DeviceId: UINT32,
    pub MaxRegistrationSize: ULONGLONG,
    pub MaxWindowSize: ULONGLONG,
    pub FRMRPageCount: ULONG,
    pub MaxInitiatorRequestSge: ULONG,
    pub MaxReceiveRequestSge: ULONG,
    pub MaxReadRequestSge: ULONG,
    pub MaxTransferLength: ULONG,
    pub MaxInlineDataSize: ULONG,
    pub MaxInboundReadLimit: ULONG,
    pub MaxOutboundReadLimit: ULONG,
    pub MaxReceiveQueueDepth: ULONG,
    pub MaxInitiatorQueueDepth: ULONG,
    pub MaxSrqDepth: ULONG,
    pub MaxCqDepth: ULONG,
    pub LargeRequestThreshold: ULONG,
    pub MaxCallerData: ULONG,
    pub MaxCalleeData: ULONG,
    pub AdapterFlags: NDK_ADAPTER_FLAGS,
    /// Revision 2 (NDIS 6.50).
    pub RdmaTechnology: NDK_RDMA_TECHNOLOGY,
}
layout!(NDK_WMI_ADAPTER_INFO, size 104, align 8, {
    Version: 0, VendorId: 4, DeviceId: 8, MaxRegistrationSize: 16, MaxWindowSize: 24, FRMRPageCount: 32,
    MaxInitiatorRequestSge: 36, MaxReceiveRequestSge: 40, MaxReadRequestSge: 44, MaxTransferLength: 48,
    MaxInlineDataSize: 52, MaxInboundReadLimit: 56, MaxOutboundReadLimit: 60, MaxReceiveQueueDepth: 64,
    MaxInitiatorQueueDepth: 68, MaxSrqDepth: 72, MaxCqDepth: 76, LargeRequestThreshold: 80, MaxCallerData: 84,
    MaxCalleeData: 88, AdapterFlags: 92, RdmaTechnology: 96,
});
pub const NDIS_SIZEOF_NDK_WMI_ADAPTER_INFO_REVISION_1: USHORT = 0x60;
pub const NDIS_SIZEOF_NDK_WMI_ADAPTER_INFO_REVISION_2: USHORT = 0x68;

/// Output of `GUID_NDIS_NDK_CAPABILITIES`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_WMI_NDK_CAPABILITIES {
    pub MaxQpCount: ULONG,
    pub MaxCqCount: ULONG,
    pub MaxMrCount: ULONG,
    pub MaxPdCount: ULONG,
    pub MaxInboundReadLimit: ULONG,
    pub MaxOutboundReadLimit: ULONG,
    pub MaxMwCount: ULONG,
    pub MaxSrqCount: ULONG,
    pub MissingCounterMask: ULONG64,
    pub NdkInfo: NDK_WMI_ADAPTER_INFO,
}
layout!(NDIS_WMI_NDK_CAPABILITIES, size 144, align 8, {
    MaxQpCount: 0, MaxCqCount: 4, MaxMrCount: 8, MaxPdCount: 12, MaxInboundReadLimit: 16, MaxOutboundReadLimit: 20,
    MaxMwCount: 24, MaxSrqCount: 28, MissingCounterMask: 32, NdkInfo: 40,
});
pub const NDIS_SIZEOF_NDK_WMI_CAPABILITIES_REVISION_1: USHORT = 0x88;
pub const NDIS_SIZEOF_NDK_WMI_CAPABILITIES_REVISION_2: USHORT = 0x90;

/// WMI query for the capabilities of an adapter; answered by NDIS.
pub const GUID_NDIS_NDK_CAPABILITIES: GUID = GUID::from_u128(0x7969ba4d_dd80_4bc7_b3e6_68043997e519);
/// WMI query and set of the NDK state of an adapter; answered by NDIS.
pub const GUID_NDIS_NDK_STATE: GUID = GUID::from_u128(0x530c69c9_2f51_49de_a1af_088d54ffa474);

zeroed!(
    NDIS_NDK_CAPABILITIES,
    NDIS_NDK_PERFORMANCE_COUNTERS,
    NDIS_NDK_STATISTICS_INFO,
    NDIS_NDK_CONNECTION_ENTRY,
    NDIS_NDK_CONNECTIONS,
    NDIS_NDK_LOCAL_ENDPOINT_ENTRY,
    NDIS_NDK_LOCAL_ENDPOINTS,
    NDIS_NDK_REQUEST_PARAMETERS,
    NDIS_NDK_RESPONSE_PARAMETERS,
    NDIS_NDK_PARAMETERS,
    NDK_WMI_ADAPTER_INFO,
    NDIS_WMI_NDK_CAPABILITIES,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_sizes_count_from_the_entries_and_never_wrap() {
        assert_eq!(NDIS_SIZEOF_NDK_CONNECTIONS_REVISION_1(0), Some(0x10));
        assert_eq!(NDIS_SIZEOF_NDK_CONNECTIONS_REVISION_1(3), Some(0x10 + 3 * 0x40));
        assert_eq!(NDIS_SIZEOF_NDK_CONNECTIONS_REVISION_1(usize::MAX / 0x40 + 1), None);
        assert_eq!(NDIS_SIZEOF_NDK_LOCAL_ENDPOINTS_REVISION_1(0), Some(0x10));
        assert_eq!(NDIS_SIZEOF_NDK_LOCAL_ENDPOINTS_REVISION_1(3), Some(0x10 + 3 * 0x24));
        assert_eq!(NDIS_SIZEOF_NDK_LOCAL_ENDPOINTS_REVISION_1(usize::MAX), None);
    }

    #[test]
    fn guid_fields_are_in_host_order_and_the_tail_is_in_text_order() {
        assert_eq!(GUID_NDIS_NDK_CAPABILITIES.Data1, 0x7969_ba4d);
        assert_eq!(GUID_NDIS_NDK_CAPABILITIES.Data2, 0xdd80);
        assert_eq!(GUID_NDIS_NDK_CAPABILITIES.Data3, 0x4bc7);
        assert_eq!(GUID_NDIS_NDK_CAPABILITIES.Data4, [0xb3, 0xe6, 0x68, 0x04, 0x39, 0x97, 0xe5, 0x19]);
    }
}
