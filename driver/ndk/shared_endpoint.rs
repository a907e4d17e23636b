//! The dispatch table of a shared endpoint.

use ndkpi_sys::{
    ndkpi::{
        NDK_OBJECT_HEADER, NDK_OBJECT_TYPE, NDK_SHARED_ENDPOINT, NDK_SHARED_ENDPOINT_DISPATCH,
        NdkObjectTypeSharedEndpoint,
    },
    nt::{NTSTATUS, SOCKADDR, STATUS_SUCCESS, ULONG},
};
use softndk_engine::{Close, Hold, SharedEndpoint};
use softndk_ioctl::NdkCall;
use softndk_kernel::pool::{PoolBox, Tag};

use super::{
    adapter::query_extension,
    consumer_object::{self, CloseCallback, ConsumerObject, Kind, Object},
    socket,
};
use crate::{
    platform::KernelPlatform,
    refusal::{Nothing, Refusal, refuse},
    tags,
};

static DISPATCH: NDK_SHARED_ENDPOINT_DISPATCH = NDK_SHARED_ENDPOINT_DISPATCH {
    NdkCloseSharedEndpoint: consumer_object::close::<SharedEndpointKind>,
    NdkQueryExtension: query_extension,
    NdkGetLocalAddress: local_address,
};

pub struct SharedEndpointKind;

impl Kind for SharedEndpointKind {
    type Visible = NDK_SHARED_ENDPOINT;
    type Handle = SharedEndpoint<KernelPlatform>;

    const TYPE: NDK_OBJECT_TYPE = NdkObjectTypeSharedEndpoint;
    const TAG: Tag = tags::SHARED_ENDPOINT;

    fn visible(header: NDK_OBJECT_HEADER) -> NDK_SHARED_ENDPOINT {
        NDK_SHARED_ENDPOINT { Header: header, Dispatch: &raw const DISPATCH }
    }

    fn consumer_object(object: PoolBox<Object<Self>>) -> ConsumerObject {
        ConsumerObject::SharedEndpoint(object)
    }

    fn close(handle: &Self::Handle, callback: CloseCallback) -> Close<KernelPlatform> {
        handle.close(callback)
    }

    fn hold(handle: &Self::Handle) -> Hold<KernelPlatform> {
        handle.hold()
    }
}

/// NDKPI: NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS.
unsafe extern "C" fn local_address(
    endpoint: *mut NDK_SHARED_ENDPOINT,
    address: *mut SOCKADDR,
    length: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer passes a shared endpoint of this provider.
    let Some(endpoint) = (unsafe { consumer_object::handle::<SharedEndpointKind>(endpoint) }) else {
        return refuse(NdkCall::GET_LOCAL_ADDRESS, &Nothing, Refusal::NO_OBJECT);
    };
    // SAFETY: the consumer's buffer and its length.
    let written = unsafe { socket::write(Some(endpoint.local_address()), address, length) };
    written.map_or_else(|refusal| refuse(NdkCall::GET_LOCAL_ADDRESS, endpoint, refusal), |()| STATUS_SUCCESS)
}
