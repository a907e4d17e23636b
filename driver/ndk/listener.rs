//! The dispatch table of a listener.

use ndkpi_sys::{
    ndkpi::{
        NDK_FN_REQUEST_COMPLETION, NDK_LISTENER, NDK_LISTENER_DISPATCH, NDK_OBJECT_HEADER, NDK_OBJECT_TYPE,
        NdkObjectTypeListener,
    },
    nt::{BOOLEAN, FALSE, NTSTATUS, PVOID, SOCKADDR, STATUS_SUCCESS, ULONG},
};
use softndk_engine::{Close, Hold, Listener};
use softndk_ioctl::NdkCall;
use softndk_kernel::pool::{PoolBox, Tag};

use super::{
    adapter::query_extension,
    consumer_object::{self, CloseCallback, ConsumerObject, Kind, Object},
    deferred, socket,
};
use crate::{
    platform::{Callback, KernelPlatform},
    refusal::{Nothing, Refusal, refuse},
    tags,
};

static DISPATCH: NDK_LISTENER_DISPATCH = NDK_LISTENER_DISPATCH {
    NdkCloseListener: consumer_object::close::<ListenerKind>,
    NdkQueryExtension: query_extension,
    NdkListen: listen,
    NdkGetLocalAddress: local_address,
    NdkControlConnectEvents: control_connect_events,
};

pub struct ListenerKind;

impl Kind for ListenerKind {
    type Visible = NDK_LISTENER;
    type Handle = Listener<KernelPlatform>;

    const TYPE: NDK_OBJECT_TYPE = NdkObjectTypeListener;
    const TAG: Tag = tags::LISTENER;

    fn visible(header: NDK_OBJECT_HEADER) -> NDK_LISTENER {
        NDK_LISTENER { Header: header, Dispatch: &raw const DISPATCH }
    }

    fn consumer_object(object: PoolBox<Object<Self>>) -> ConsumerObject {
        ConsumerObject::Listener(object)
    }

    fn close(handle: &Self::Handle, callback: CloseCallback) -> Close<KernelPlatform> {
        handle.close(callback)
    }

    fn hold(handle: &Self::Handle) -> Hold<KernelPlatform> {
        handle.hold()
    }
}

/// NDKPI: NDK_FN_LISTEN.
unsafe extern "C" fn listen(
    listener: *mut NDK_LISTENER,
    address: *const SOCKADDR,
    address_length: ULONG,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer passes a listener of this provider.
    let Some(object) = (unsafe { Object::<ListenerKind>::from_visible(listener) }) else {
        return refuse(NdkCall::LISTEN, &Nothing, Refusal::NO_OBJECT);
    };
    let Some(listener) = object.handle() else { return refuse(NdkCall::LISTEN, &Nothing, Refusal::NO_OBJECT) };
    // SAFETY: the consumer's address for the length of the call.
    let status = match unsafe { socket::read(address, address_length) } {
        Ok(address) => {
            let refused = |cause| refuse(NdkCall::LISTEN, listener, cause);
            listener.listen(address).map_or_else(refused, |()| STATUS_SUCCESS)
        }
        Err(refusal) => return refuse(NdkCall::LISTEN, listener, refusal),
    };
    let callback = completion.map(|function| Callback::new(function, context));
    deferred::request(object.origin.completion_mode, status, callback, || listener.hold())
}

/// NDKPI: NDK_FN_GET_LISTENER_LOCAL_ADDRESS.
unsafe extern "C" fn local_address(
    listener: *mut NDK_LISTENER,
    address: *mut SOCKADDR,
    length: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer passes a listener of this provider.
    let Some(listener) = (unsafe { consumer_object::handle::<ListenerKind>(listener) }) else {
        return refuse(NdkCall::GET_LOCAL_ADDRESS, &Nothing, Refusal::NO_OBJECT);
    };
    // SAFETY: the consumer's buffer and its length.
    let written = unsafe { socket::write(listener.local_address(), address, length) };
    written.map_or_else(|refusal| refuse(NdkCall::GET_LOCAL_ADDRESS, listener, refusal), |()| STATUS_SUCCESS)
}

/// NDKPI: NDK_FN_CONTROL_CONNECT_EVENTS.
unsafe extern "C" fn control_connect_events(listener: *mut NDK_LISTENER, pause: BOOLEAN) {
    // SAFETY: the consumer passes a listener of this provider.
    if let Some(listener) = unsafe { consumer_object::handle::<ListenerKind>(listener) } {
        listener.pause(pause != FALSE);
    }
}
