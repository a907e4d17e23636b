//! The OIDs through which Windows shows RDMA to people: statistics, connections, endpoints.

use ndkpi_sys::ndis::{
    NDIS_NDK_CONNECTIONS_REVISION_1, NDIS_NDK_LOCAL_ENDPOINTS_REVISION_1, NDIS_NDK_STATISTICS_INFO,
    NDIS_NDK_STATISTICS_INFO_REVISION_1, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT,
    NDIS_SIZEOF_NDK_STATISTICS_INFO_REVISION_1, NDIS_STATUS,
};

use softndk_engine::Counters;

use crate::{adapter::Adapter, miniport::oid::answer::Answer};

/// OID_NDK_STATISTICS.
pub fn statistics(counters: &Counters, answer: Answer<'_>) -> NDIS_STATUS {
    let mut information = NDIS_NDK_STATISTICS_INFO::zeroed();
    information.Header = NDIS_OBJECT_HEADER {
        Type: NDIS_OBJECT_TYPE_DEFAULT,
        Revision: NDIS_NDK_STATISTICS_INFO_REVISION_1,
        Size: NDIS_SIZEOF_NDK_STATISTICS_INFO_REVISION_1,
    };
    let set = &mut information.CounterSet;
    set.Connect = counters.connect;
    set.Accept = counters.accept;
    set.ConnectFailure = counters.connect_failure;
    set.ConnectionError = counters.connection_error;
    set.ActiveConnection = counters.active_connection;
    set.CQError = counters.completion_queue_error;
    set.RDMAInOctets = counters.octets_in;
    set.RDMAOutOctets = counters.octets_out;
    set.RDMAInFrames = counters.frames_in;
    set.RDMAOutFrames = counters.frames_out;
    // SAFETY: a header, one u32 and u64 counters: no padding.
    unsafe { answer.structure(&information, NDIS_SIZEOF_NDK_STATISTICS_INFO_REVISION_1) }
}

/// Bytes before the first entry of either list: header, flags, count, the mapped flag and its padding.
const LIST_PREFIX: usize = 0x10;

/// The start of either list: nothing in it is mapped onto TCP.
fn prefix(revision: u8, count: u32, total: usize) -> [u8; LIST_PREFIX] {
    let header = NDIS_OBJECT_HEADER {
        Type: NDIS_OBJECT_TYPE_DEFAULT,
        Revision: revision,
        // NDKPI: the 16-bit size saturates.
        Size: u16::try_from(total).unwrap_or(u16::MAX),
    };
    let mut bytes = [0; LIST_PREFIX];
    let [size_low, size_high] = header.Size.to_ne_bytes();
    let [count_0, count_1, count_2, count_3] = count.to_ne_bytes();
    bytes[..4].copy_from_slice(&[header.Type, header.Revision, size_low, size_high]);
    bytes[8..12].copy_from_slice(&[count_0, count_1, count_2, count_3]);
    bytes
}

/// OID_NDK_CONNECTIONS.
pub fn connections(_adapter: &Adapter, answer: Answer<'_>) -> NDIS_STATUS {
    answer.bytes(&prefix(NDIS_NDK_CONNECTIONS_REVISION_1, 0, LIST_PREFIX))
}

/// OID_NDK_LOCAL_ENDPOINTS.
pub fn local_endpoints(_adapter: &Adapter, answer: Answer<'_>) -> NDIS_STATUS {
    answer.bytes(&prefix(NDIS_NDK_LOCAL_ENDPOINTS_REVISION_1, 0, LIST_PREFIX))
}
