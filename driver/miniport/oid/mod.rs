//! OID requests: which exist, how they are dispatched, and the rules that hold for all of them.
//!
//! No request pends: each is answered in the handler, so there is never anything to cancel.

pub mod answer;
mod ndk;
mod query;
mod set;

use core::{ffi::c_void, sync::atomic::Ordering};

use ndkpi_sys::ndis::{
    NDIS_HANDLE, NDIS_OID, NDIS_OID_REQUEST, NDIS_STATUS, NDIS_STATUS_FAILURE, NDIS_STATUS_NOT_ACCEPTED,
    NDIS_STATUS_NOT_SUPPORTED, NdisRequestQueryInformation, NdisRequestQueryStatistics, NdisRequestSetInformation,
    OID_802_3_CURRENT_ADDRESS, OID_802_3_MAXIMUM_LIST_SIZE, OID_802_3_MULTICAST_LIST, OID_802_3_PERMANENT_ADDRESS,
    OID_802_3_RCV_ERROR_ALIGNMENT, OID_802_3_XMIT_MORE_COLLISIONS, OID_802_3_XMIT_ONE_COLLISION,
    OID_GEN_CURRENT_LOOKAHEAD, OID_GEN_CURRENT_PACKET_FILTER, OID_GEN_INTERRUPT_MODERATION, OID_GEN_LINK_PARAMETERS,
    OID_GEN_MAXIMUM_TOTAL_SIZE, OID_GEN_RCV_OK, OID_GEN_RECEIVE_BLOCK_SIZE, OID_GEN_RECEIVE_BUFFER_SPACE,
    OID_GEN_STATISTICS, OID_GEN_TRANSMIT_BLOCK_SIZE, OID_GEN_TRANSMIT_BUFFER_SPACE, OID_GEN_VENDOR_DESCRIPTION,
    OID_GEN_VENDOR_DRIVER_VERSION, OID_GEN_VENDOR_ID, OID_GEN_XMIT_OK, OID_PNP_QUERY_POWER, OID_PNP_SET_POWER,
};
use ndkpi_sys::ndis::{OID_NDK_CONNECTIONS, OID_NDK_LOCAL_ENDPOINTS, OID_NDK_SET_STATE, OID_NDK_STATISTICS};

use self::answer::{OidAnswer, OidInput};
use crate::adapter::Adapter;

/// Every OID this miniport supports (general attributes, SupportedOidList).
pub static SUPPORTED: [NDIS_OID; 28] = [
    OID_GEN_CURRENT_LOOKAHEAD,
    OID_GEN_CURRENT_PACKET_FILTER,
    OID_GEN_INTERRUPT_MODERATION,
    OID_GEN_LINK_PARAMETERS,
    OID_GEN_MAXIMUM_TOTAL_SIZE,
    OID_GEN_RCV_OK,
    OID_GEN_RECEIVE_BLOCK_SIZE,
    OID_GEN_RECEIVE_BUFFER_SPACE,
    OID_GEN_STATISTICS,
    OID_GEN_TRANSMIT_BLOCK_SIZE,
    OID_GEN_TRANSMIT_BUFFER_SPACE,
    OID_GEN_VENDOR_DESCRIPTION,
    OID_GEN_VENDOR_DRIVER_VERSION,
    OID_GEN_VENDOR_ID,
    OID_GEN_XMIT_OK,
    OID_802_3_PERMANENT_ADDRESS,
    OID_802_3_CURRENT_ADDRESS,
    OID_802_3_MULTICAST_LIST,
    OID_802_3_MAXIMUM_LIST_SIZE,
    OID_802_3_RCV_ERROR_ALIGNMENT,
    OID_802_3_XMIT_ONE_COLLISION,
    OID_802_3_XMIT_MORE_COLLISIONS,
    OID_PNP_SET_POWER,
    OID_PNP_QUERY_POWER,
    OID_NDK_SET_STATE,
    OID_NDK_STATISTICS,
    OID_NDK_CONNECTIONS,
    OID_NDK_LOCAL_ENDPOINTS,
];

/// NDIS: MiniportOidRequest. PASSIVE_LEVEL, one at a time.
///
/// # Safety
/// NDIS passes the context of a live adapter and a complete request that belongs to the driver until the return.
pub unsafe extern "C" fn request(context: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    // SAFETY: NDIS passes the driver's context while the adapter is initialised.
    let Some(adapter) = (unsafe { Adapter::from_context(context) }) else { return NDIS_STATUS_FAILURE };
    // SAFETY: the request belongs to the driver until the return.
    let Some(request) = (unsafe { request.as_mut() }) else { return NDIS_STATUS_FAILURE };
    if adapter.station.removed.load(Ordering::Relaxed) {
        return NDIS_STATUS_NOT_ACCEPTED;
    }
    dispatch(adapter, request, query::regular, set::regular)
}

/// NDIS: MiniportDirectOidRequest. `IRQL <= DISPATCH_LEVEL`, several at once.
///
/// # Safety
/// As [`request`].
pub unsafe extern "C" fn direct_request(context: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    // SAFETY: NDIS passes the driver's context while the adapter is initialised.
    let Some(adapter) = (unsafe { Adapter::from_context(context) }) else { return NDIS_STATUS_FAILURE };
    // SAFETY: the request belongs to the driver until the return.
    let Some(request) = (unsafe { request.as_mut() }) else { return NDIS_STATUS_FAILURE };
    dispatch(adapter, request, query::direct, |_, _, _| NDIS_STATUS_NOT_SUPPORTED)
}

/// NDIS: MiniportCancelOidRequest and MiniportCancelDirectOidRequest. Nothing ever pends.
///
/// # Safety
/// Reads neither argument.
pub unsafe extern "C" fn cancel(_context: NDIS_HANDLE, _request_id: *mut c_void) {}

#[allow(non_upper_case_globals, reason = "the patterns are Microsoft's names")]
fn dispatch(
    adapter: &Adapter,
    request: &mut NDIS_OID_REQUEST,
    query: fn(&Adapter, u32, OidAnswer<'_>) -> NDIS_STATUS,
    set: fn(&Adapter, u32, OidInput<'_>) -> NDIS_STATUS,
) -> NDIS_STATUS {
    match request.RequestType {
        NdisRequestQueryInformation | NdisRequestQueryStatistics => {
            // SAFETY: the request type says which form the union has, and every bit pattern of it is valid.
            let data = unsafe { &mut request.DATA.QUERY_INFORMATION };
            data.BytesWritten = 0;
            data.BytesNeeded = 0;
            let answer = OidAnswer {
                buffer: data.InformationBuffer,
                length: data.InformationBufferLength,
                written: &mut data.BytesWritten,
                needed: &mut data.BytesNeeded,
            };
            query(adapter, data.Oid, answer)
        }
        NdisRequestSetInformation => {
            // SAFETY: the request type says which form the union has, and every bit pattern of it is valid.
            let data = unsafe { &mut request.DATA.SET_INFORMATION };
            data.BytesRead = 0;
            data.BytesNeeded = 0;
            let input = OidInput {
                buffer: data.InformationBuffer,
                length: data.InformationBufferLength,
                read: &mut data.BytesRead,
                needed: &mut data.BytesNeeded,
            };
            set(adapter, data.Oid, input)
        }
        _ => NDIS_STATUS_NOT_SUPPORTED,
    }
}
