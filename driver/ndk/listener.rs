//! The dispatch table of a listener.

use ndkpi_sys::{
    ndkpi::{NDK_FN_REQUEST_COMPLETION, NDK_LISTENER, NDK_LISTENER_DISPATCH},
    nt::{BOOLEAN, FALSE, NTSTATUS, PVOID, SOCKADDR, STATUS_PENDING, STATUS_SUCCESS, ULONG},
};
use softndk_engine::Requested;
use softndk_ioctl::NdkCall;

use super::{
    consumer_object,
    entry::{Buffer, entry},
    extension::query_extension,
    kind::kind,
    socket::{self, ConsumerAddress},
};
use crate::runtime::{
    deferred,
    platform::{Callback, ConsumerRequest},
    refusal::{Nothing, Refusal, refuse},
};

kind!(ListenerKind, ListenerRef: Listener, NDK_LISTENER, NdkObjectTypeListener, LISTENER);

pub static DISPATCH: NDK_LISTENER_DISPATCH = NDK_LISTENER_DISPATCH {
    NdkCloseListener: consumer_object::close::<ListenerKind>,
    NdkQueryExtension: query_extension,
    NdkListen: entry!(
        listen(*mut NDK_LISTENER, [*const SOCKADDR, ULONG], [Option<NDK_FN_REQUEST_COMPLETION>, PVOID]) -> NTSTATUS
    ),
    NdkGetLocalAddress: entry!(local_address(*mut NDK_LISTENER, [*mut SOCKADDR, *mut ULONG]) -> NTSTATUS),
    NdkControlConnectEvents: entry!(control_connect_events(*mut NDK_LISTENER, BOOLEAN)),
};

/// NDKPI: NDK_FN_LISTEN.
fn listen(
    listener: ListenerRef<'_>,
    address: ConsumerAddress<'_>,
    completion: Option<Callback<NDK_FN_REQUEST_COMPLETION>>,
) -> NTSTATUS {
    let Some((object, listener)) = listener.both() else {
        return refuse(NdkCall::LISTEN, &Nothing, Refusal::NO_OBJECT);
    };
    let request = completion.map(|callback| ConsumerRequest { callback, call: NdkCall::LISTEN }.into());
    // The completion may come before this returns, and close the consumer's object.
    let (listener, mode) = (&listener.clone(), object.origin.completion_mode);
    let status = match address.get() {
        Ok(address) => match listener.listen(address, request) {
            Ok(Requested::Pending) => return STATUS_PENDING,
            Ok(Requested::Done) => STATUS_SUCCESS,
            Err(cause) => refuse(NdkCall::LISTEN, listener, cause),
        },
        Err(refusal) => return refuse(NdkCall::LISTEN, listener, refusal),
    };
    deferred::request(mode, status, completion, || listener.hold())
}

/// NDKPI: NDK_FN_GET_LISTENER_LOCAL_ADDRESS.
fn local_address(listener: ListenerRef<'_>, buffer: Buffer<'_>) -> NTSTATUS {
    let Some(listener) = listener.get() else {
        return refuse(NdkCall::GET_LOCAL_ADDRESS, &Nothing, Refusal::NO_OBJECT);
    };
    let written = socket::write(listener.local_address(), buffer);
    written.map_or_else(|refusal| refuse(NdkCall::GET_LOCAL_ADDRESS, listener, refusal), |()| STATUS_SUCCESS)
}

/// NDKPI: NDK_FN_CONTROL_CONNECT_EVENTS.
fn control_connect_events(listener: ListenerRef<'_>, pause: BOOLEAN) {
    if let Some(listener) = listener.get() {
        listener.pause(pause != FALSE);
    }
}
