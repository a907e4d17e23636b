//! The dispatch table of a shared endpoint.

use ndkpi_sys::{
    ndkpi::{NDK_SHARED_ENDPOINT, NDK_SHARED_ENDPOINT_DISPATCH},
    nt::{NTSTATUS, SOCKADDR, STATUS_SUCCESS, ULONG},
};
use softndk_ioctl::NdkCall;

use super::{
    consumer_object,
    entry::{Buffer, entry},
    extension::query_extension,
    kind::kind,
    socket,
};
use crate::runtime::refusal::{Nothing, Refusal, refuse};

kind!(SharedEndpointKind, SharedEndpointRef: SharedEndpoint, NDK_SHARED_ENDPOINT, NdkObjectTypeSharedEndpoint, SHARED_ENDPOINT);

pub static DISPATCH: NDK_SHARED_ENDPOINT_DISPATCH = NDK_SHARED_ENDPOINT_DISPATCH {
    NdkCloseSharedEndpoint: consumer_object::close::<SharedEndpointKind>,
    NdkQueryExtension: query_extension,
    NdkGetLocalAddress: entry!(local_address(*mut NDK_SHARED_ENDPOINT, [*mut SOCKADDR, *mut ULONG]) -> NTSTATUS),
};

/// NDKPI: NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS.
fn local_address(endpoint: SharedEndpointRef<'_>, buffer: Buffer<'_>) -> NTSTATUS {
    let Some(endpoint) = endpoint.get() else {
        return refuse(NdkCall::GET_LOCAL_ADDRESS, &Nothing, Refusal::NO_OBJECT);
    };
    let written = socket::write(Some(endpoint.local_address()), buffer);
    written.map_or_else(|refusal| refuse(NdkCall::GET_LOCAL_ADDRESS, endpoint, refusal), |()| STATUS_SUCCESS)
}
