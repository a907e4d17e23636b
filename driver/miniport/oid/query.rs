//! Query OIDs, regular and direct.

use core::sync::atomic::Ordering;

use ndkpi_sys::ndis::{
    NDIS_INTERRUPT_MODERATION_PARAMETERS, NDIS_INTERRUPT_MODERATION_PARAMETERS_REVISION_1, NDIS_OBJECT_HEADER,
    NDIS_OBJECT_TYPE_DEFAULT, NDIS_SIZEOF_INTERRUPT_MODERATION_PARAMETERS_REVISION_1,
    NDIS_SIZEOF_STATISTICS_INFO_REVISION_1, NDIS_STATUS, NDIS_STATUS_NOT_ACCEPTED, NDIS_STATUS_NOT_SUPPORTED,
    NDIS_STATUS_SUCCESS, NdisInterruptModerationNotSupported, OID_802_3_CURRENT_ADDRESS, OID_802_3_MAXIMUM_LIST_SIZE,
    OID_802_3_PERMANENT_ADDRESS, OID_802_3_RCV_ERROR_ALIGNMENT, OID_802_3_XMIT_MORE_COLLISIONS,
    OID_802_3_XMIT_ONE_COLLISION, OID_GEN_CURRENT_LOOKAHEAD, OID_GEN_CURRENT_PACKET_FILTER,
    OID_GEN_INTERRUPT_MODERATION, OID_GEN_MAXIMUM_TOTAL_SIZE, OID_GEN_RCV_OK, OID_GEN_RECEIVE_BLOCK_SIZE,
    OID_GEN_RECEIVE_BUFFER_SPACE, OID_GEN_STATISTICS, OID_GEN_TRANSMIT_BLOCK_SIZE, OID_GEN_TRANSMIT_BUFFER_SPACE,
    OID_GEN_VENDOR_DESCRIPTION, OID_GEN_VENDOR_DRIVER_VERSION, OID_GEN_VENDOR_ID, OID_GEN_XMIT_OK, OID_PNP_QUERY_POWER,
};
use ndkpi_sys::ndis::{OID_NDK_CONNECTIONS, OID_NDK_LOCAL_ENDPOINTS, OID_NDK_STATISTICS};

use super::{answer::OidAnswer, ndk};
use crate::{
    adapter::Adapter,
    link::{multicast::MULTICAST_MAX, statistics, wire::FRAME_COUNT},
    version,
};

/// Answers a query that NDIS serialises. PASSIVE_LEVEL.
pub fn regular(adapter: &Adapter, oid: u32, answer: OidAnswer<'_>) -> NDIS_STATUS {
    match oid {
        OID_GEN_VENDOR_ID => answer.u32(version::VENDOR_ID),
        OID_GEN_VENDOR_DESCRIPTION => answer.bytes(version::VENDOR_DESCRIPTION),
        OID_GEN_VENDOR_DRIVER_VERSION => answer.u32(u32::from(version::DRIVER.0) << 16 | u32::from(version::DRIVER.1)),
        OID_GEN_MAXIMUM_TOTAL_SIZE | OID_GEN_RECEIVE_BLOCK_SIZE | OID_GEN_TRANSMIT_BLOCK_SIZE => {
            answer.u32(adapter.station.frame_max())
        }
        OID_GEN_RECEIVE_BUFFER_SPACE | OID_GEN_TRANSMIT_BUFFER_SPACE => {
            answer.u32(adapter.station.frame_max().saturating_mul(FRAME_COUNT as u32))
        }
        OID_GEN_CURRENT_PACKET_FILTER => answer.u32(adapter.station.packet_filter.load(Ordering::Relaxed)),
        OID_GEN_CURRENT_LOOKAHEAD => answer.u32(adapter.station.lookahead.load(Ordering::Relaxed)),
        OID_GEN_INTERRUPT_MODERATION => interrupt_moderation(answer),
        OID_802_3_PERMANENT_ADDRESS => answer.bytes(&adapter.station.permanent_address),
        OID_802_3_CURRENT_ADDRESS => answer.bytes(&adapter.station.current_address),
        OID_802_3_MAXIMUM_LIST_SIZE => answer.u32(MULTICAST_MAX as u32),
        OID_802_3_RCV_ERROR_ALIGNMENT | OID_802_3_XMIT_ONE_COLLISION | OID_802_3_XMIT_MORE_COLLISIONS => answer.u32(0),
        OID_PNP_QUERY_POWER => NDIS_STATUS_SUCCESS,
        OID_NDK_CONNECTIONS => ndk::connections(adapter, answer),
        OID_NDK_LOCAL_ENDPOINTS => ndk::local_endpoints(adapter, answer),
        _ => counters(adapter, oid, answer),
    }
}

/// Answers a query that may come on any processor at any time. `IRQL <= DISPATCH_LEVEL`.
pub fn direct(adapter: &Adapter, oid: u32, answer: OidAnswer<'_>) -> NDIS_STATUS {
    if adapter.station.removed.load(Ordering::Relaxed) {
        return NDIS_STATUS_NOT_ACCEPTED;
    }
    counters(adapter, oid, answer)
}

/// The OIDs that are served on both paths.
fn counters(adapter: &Adapter, oid: u32, answer: OidAnswer<'_>) -> NDIS_STATUS {
    let rdma = adapter.provider.counters();
    let mut received = adapter.station.statistics.received.read();
    received.add_unicast(rdma.frames_in, rdma.octets_in);
    let mut sent = adapter.station.statistics.sent.read();
    sent.add_unicast(rdma.frames_out, rdma.octets_out);
    match oid {
        OID_GEN_RCV_OK => answer.counter(received.frame_sum()),
        OID_GEN_XMIT_OK => answer.counter(sent.frame_sum()),
        OID_GEN_STATISTICS => {
            let information = statistics::information(&received, &sent);
            // SAFETY: the structure is a header, one u32 and u64 counters: no padding.
            unsafe { answer.structure(&information, NDIS_SIZEOF_STATISTICS_INFO_REVISION_1) }
        }
        OID_NDK_STATISTICS => ndk::statistics(&rdma, answer),
        _ => NDIS_STATUS_NOT_SUPPORTED,
    }
}

/// NDIS: a miniport without interrupt moderation reports that.
fn interrupt_moderation(answer: OidAnswer<'_>) -> NDIS_STATUS {
    let parameters = NDIS_INTERRUPT_MODERATION_PARAMETERS {
        Header: NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_DEFAULT,
            Revision: NDIS_INTERRUPT_MODERATION_PARAMETERS_REVISION_1,
            Size: NDIS_SIZEOF_INTERRUPT_MODERATION_PARAMETERS_REVISION_1,
        },
        Flags: 0,
        InterruptModeration: NdisInterruptModerationNotSupported,
    };
    // SAFETY: a header and two 32-bit members: no padding.
    unsafe { answer.structure(&parameters, NDIS_SIZEOF_INTERRUPT_MODERATION_PARAMETERS_REVISION_1) }
}
