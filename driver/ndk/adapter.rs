//! The dispatch table of an open adapter.

use core::mem::size_of;

use ndkpi_sys::{
    ndkinfo::{NDK_ADAPTER_INFO, NDK_VERSION},
    ndkpi::{
        NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NDK_CONNECTOR, NDK_CQ, NDK_EXTENSION_INTERFACE,
        NDK_FN_CONNECT_EVENT_CALLBACK, NDK_FN_CQ_NOTIFICATION_CALLBACK, NDK_FN_CREATE_COMPLETION,
        NDK_FN_REQUEST_COMPLETION, NDK_LISTENER, NDK_LOGICAL_ADDRESS_MAPPING, NDK_OBJECT_HEADER, NDK_PD,
        NDK_SHARED_ENDPOINT,
    },
    nt::{
        GROUP_AFFINITY, GUID, MDL, NTSTATUS, PVOID, SIZE_T, SOCKADDR, STATUS_BUFFER_TOO_SMALL,
        STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED, STATUS_SUCCESS, ULONG,
    },
};

use super::{limits, open::OpenAdapter};

/// The table every open adapter points to.
pub static DISPATCH: NDK_ADAPTER_DISPATCH = NDK_ADAPTER_DISPATCH {
    NdkQueryExtension: query_extension,
    NdkQueryAdapterInfo: query_adapter_info,
    NdkCreateCq: create_cq,
    NdkCreatePd: create_pd,
    NdkCreateSharedEndpoint: create_shared_endpoint,
    NdkCreateConnector: create_connector,
    NdkCreateListener: create_listener,
    NdkBuildLAM: build_lam,
    NdkReleaseLAM: release_lam,
};

/// NDKPI: NDK_FN_QUERY_EXTENSION_INTERFACE, for every object type. No extension is offered.
pub unsafe extern "C" fn query_extension(
    _object: *mut NDK_OBJECT_HEADER,
    _id: *mut GUID,
    _version: NDK_VERSION,
    _interface: *mut NDK_EXTENSION_INTERFACE,
) -> NTSTATUS {
    STATUS_NOT_SUPPORTED
}

/// NDKPI: NDK_FN_QUERY_ADAPTER_INFO. PASSIVE_LEVEL.
unsafe extern "C" fn query_adapter_info(
    adapter: *mut NDK_ADAPTER,
    information: *mut NDK_ADAPTER_INFO,
    size: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer passes an adapter that it opened.
    let Some(open) = (unsafe { OpenAdapter::from_object(adapter) }) else { return STATUS_INVALID_PARAMETER };
    // SAFETY: the consumer passes a place that holds its buffer's size.
    let Some(size) = (unsafe { size.as_mut() }) else { return STATUS_INVALID_PARAMETER };
    let needed = information_size(open.version);
    let room = core::mem::replace(size, needed as ULONG) as usize;
    if information.is_null() || room < needed {
        return STATUS_BUFFER_TOO_SMALL;
    }
    let answer = limits::adapter_information(open.version, &open.adapter().configuration);
    let answer: *const NDK_ADAPTER_INFO = &raw const answer;
    // SAFETY: the consumer's buffer holds `room >= needed` bytes, and `needed` is at most the size of the structure.
    unsafe { information.cast::<u8>().copy_from_nonoverlapping(answer.cast(), needed) };
    STATUS_SUCCESS
}

/// The 1.x layout ends before `RdmaTechnology`.
fn information_size(version: NDK_VERSION) -> usize {
    if version.Major < 2 { ndkpi_sys::ndkinfo::NDK_ADAPTER_INFO_SIZE_1 } else { size_of::<NDK_ADAPTER_INFO>() }
}

unsafe extern "C" fn create_cq(
    _adapter: *mut NDK_ADAPTER,
    _depth: ULONG,
    _notification: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
    _notification_context: PVOID,
    _affinity: *mut GROUP_AFFINITY,
    _completion: Option<NDK_FN_CREATE_COMPLETION>,
    _context: PVOID,
    _result: *mut *mut NDK_CQ,
) -> NTSTATUS {
    STATUS_NOT_SUPPORTED
}

unsafe extern "C" fn create_pd(
    _adapter: *mut NDK_ADAPTER,
    _completion: Option<NDK_FN_CREATE_COMPLETION>,
    _context: PVOID,
    _result: *mut *mut NDK_PD,
) -> NTSTATUS {
    STATUS_NOT_SUPPORTED
}

unsafe extern "C" fn create_shared_endpoint(
    _adapter: *mut NDK_ADAPTER,
    _address: *const SOCKADDR,
    _address_length: ULONG,
    _completion: Option<NDK_FN_CREATE_COMPLETION>,
    _context: PVOID,
    _result: *mut *mut NDK_SHARED_ENDPOINT,
) -> NTSTATUS {
    STATUS_NOT_SUPPORTED
}

unsafe extern "C" fn create_connector(
    _adapter: *mut NDK_ADAPTER,
    _completion: Option<NDK_FN_CREATE_COMPLETION>,
    _context: PVOID,
    _result: *mut *mut NDK_CONNECTOR,
) -> NTSTATUS {
    STATUS_NOT_SUPPORTED
}

unsafe extern "C" fn create_listener(
    _adapter: *mut NDK_ADAPTER,
    _connect_event: Option<NDK_FN_CONNECT_EVENT_CALLBACK>,
    _connect_event_context: PVOID,
    _completion: Option<NDK_FN_CREATE_COMPLETION>,
    _context: PVOID,
    _result: *mut *mut NDK_LISTENER,
) -> NTSTATUS {
    STATUS_NOT_SUPPORTED
}

unsafe extern "C" fn build_lam(
    _adapter: *mut NDK_ADAPTER,
    _mdl: *mut MDL,
    _length: SIZE_T,
    _completion: Option<NDK_FN_REQUEST_COMPLETION>,
    _context: PVOID,
    _mapping: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    _mapping_size: *mut ULONG,
    _first_byte_offset: *mut ULONG,
) -> NTSTATUS {
    STATUS_NOT_SUPPORTED
}

unsafe extern "C" fn release_lam(_adapter: *mut NDK_ADAPTER, _mapping: *mut NDK_LOGICAL_ADDRESS_MAPPING) {}
