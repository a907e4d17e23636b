//! The dispatch table of a connector, and how incoming connections reach the consumer.
//!
//! Handles are cloned before a call that may pend: its completion can run, and the consumer can close the object in it,
//! before the call returns here.

use core::{ffi::c_void, slice};

use ndkpi_sys::{
    ndkpi::{
        NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH, NDK_FN_DISCONNECT_EVENT_CALLBACK, NDK_FN_DISCONNECT_EVENT_CALLBACK_EX,
        NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER, NDK_OBJECT_TYPE, NDK_QP, NDK_SHARED_ENDPOINT,
        NdkObjectTypeConnector,
    },
    nt::{NTSTATUS, PVOID, SOCKADDR, STATUS_PENDING, STATUS_SUCCESS, ULONG},
};
use softndk_engine::{
    Accept, Close, Connect, ConnectError, ConnectEvent, Connector, Hold, ReadLimits, Requested, Source,
};
use softndk_ioctl::NdkCall;
use softndk_kernel::pool::{PoolBox, Tag};

use super::{
    adapter::query_extension,
    consumer_object::{self, CloseCallback, ConsumerObject, Kind, Object},
    deferred,
    queue_pair::QueuePairKind,
    shared_endpoint::SharedEndpointKind,
    socket,
};
use crate::{
    configuration::CompletionMode,
    platform::{Callback, DisconnectFunction, KernelPlatform, RequestCallback},
    refusal::{Nothing, Refusal, refuse},
    tags,
};

static DISPATCH: NDK_CONNECTOR_DISPATCH = NDK_CONNECTOR_DISPATCH {
    NdkCloseConnector: consumer_object::close::<ConnectorKind>,
    NdkQueryExtension: query_extension,
    NdkConnect: connect,
    NdkConnectWithSharedEndpoint: connect_with_shared_endpoint,
    NdkCompleteConnect: complete_connect,
    NdkAccept: accept,
    NdkReject: reject,
    NdkGetConnectionData: connection_data,
    NdkGetLocalAddress: local_address,
    NdkGetPeerAddress: peer_address,
    NdkDisconnect: disconnect,
    NdkCompleteConnectEx: complete_connect_ex,
    NdkAcceptEx: accept_ex,
};

pub struct ConnectorKind;

impl Kind for ConnectorKind {
    type Visible = NDK_CONNECTOR;
    type Handle = Connector<KernelPlatform>;

    const TYPE: NDK_OBJECT_TYPE = NdkObjectTypeConnector;
    const TAG: Tag = tags::CONNECTOR;

    fn visible(header: NDK_OBJECT_HEADER) -> NDK_CONNECTOR {
        NDK_CONNECTOR { Header: header, Dispatch: &raw const DISPATCH }
    }

    fn consumer_object(object: PoolBox<Object<Self>>) -> ConsumerObject {
        ConsumerObject::Connector(object)
    }

    fn close(handle: &Self::Handle, callback: CloseCallback) -> Close<KernelPlatform> {
        handle.close(callback)
    }

    fn hold(handle: &Self::Handle) -> Hold<KernelPlatform> {
        handle.hold()
    }
}

/// A private buffer is at most as long as the contract's limits allow; more is refused before it is read.
const PRIVATE_DATA_MAX: ULONG = softndk_engine::limits::PRIVATE_DATA as ULONG;

type DisconnectCallback = Callback<DisconnectFunction>;

/// Makes a connector for an incoming connection and hands it to the listener's consumer. Without memory for it the
/// connection is refused.
pub fn deliver(event: ConnectEvent<KernelPlatform>) {
    let ConnectEvent { callback, connector, .. } = event;
    // SAFETY: the open outlives its listeners, and the listener cannot close before the event is dropped.
    let Some(open) = (unsafe { callback.open.0.as_ref() }) else { return };
    // Dropping the arrival refuses the connection.
    let Ok((object, consumer_object)) = Object::<ConnectorKind>::reserve(open.origin) else { return };
    let handle = connector.adopt(consumer_object);
    // SAFETY: the engine keeps the consumer object, and the consumer has not got it yet.
    let visible = unsafe { Object::complete(object, handle) };
    let notify = callback.callback;
    // SAFETY: the consumer gave function and context with NdkCreateListener; no lock is held.
    unsafe { (notify.function)(notify.context.0, visible) };
    // What is left of the event ends here and lets the listener close.
}

/// The consumer's private data.
///
/// # Safety
/// `data` is null or has `length` bytes that stay as they are during the call.
unsafe fn private_data<'a>(data: *const c_void, length: ULONG) -> Result<&'a [u8], Refusal> {
    if length == 0 {
        return Ok(&[]);
    }
    if length > PRIVATE_DATA_MAX {
        return Err(ConnectError::PrivateDataTooLong.into());
    }
    if data.is_null() {
        return Err(Refusal::NO_PRIVATE_DATA);
    }
    // SAFETY: the consumer's buffer for the length of the call.
    Ok(unsafe { slice::from_raw_parts(data.cast(), length as usize) })
}

/// The completion mode of the connector's functions, and the engine's part of it.
///
/// # Safety
/// `connector` is null or a connector of this provider that is not closed yet.
unsafe fn find<'a>(connector: *mut NDK_CONNECTOR) -> Option<(CompletionMode, &'a Connector<KernelPlatform>)> {
    // SAFETY: the caller's promise.
    let object = unsafe { Object::<ConnectorKind>::from_visible(connector) }?;
    Some((object.origin.completion_mode, object.handle()?))
}

/// Completes a request that the engine has decided on or taken over.
fn requested(
    connector: &Connector<KernelPlatform>,
    completion_mode: CompletionMode,
    answer: Result<Requested, ConnectError>,
    callback: RequestCallback,
) -> NTSTATUS {
    let status = match answer {
        Ok(Requested::Pending) => return STATUS_PENDING,
        Ok(Requested::Done) => STATUS_SUCCESS,
        Err(cause) => refuse(callback.call, connector, cause),
    };
    deferred::request(completion_mode, status, Some(callback.callback), || connector.hold())
}

/// What NdkConnect and NdkConnectWithSharedEndpoint have in common.
struct ConnectArguments {
    call: NdkCall,
    connector: *mut NDK_CONNECTOR,
    queue_pair: *mut NDK_QP,
    destination: *const SOCKADDR,
    destination_length: ULONG,
    limits: ReadLimits,
    data: *const c_void,
    data_length: ULONG,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
}

/// NDKPI: NDK_FN_CONNECT.
unsafe extern "C" fn connect(
    connector: *mut NDK_CONNECTOR,
    queue_pair: *mut NDK_QP,
    source: *const SOCKADDR,
    source_length: ULONG,
    destination: *const SOCKADDR,
    destination_length: ULONG,
    inbound: ULONG,
    outbound: ULONG,
    data: *const c_void,
    data_length: ULONG,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    let limits = ReadLimits { inbound, outbound };
    let arguments = ConnectArguments {
        call: NdkCall::CONNECT,
        connector,
        queue_pair,
        destination,
        destination_length,
        limits,
        data,
        data_length,
        completion,
        context,
    };
    // SAFETY: the consumer's addresses for the length of the call.
    match unsafe { socket::read(source, source_length) } {
        // SAFETY: the consumer's arguments, passed on.
        Ok(source) => unsafe { connect_from(&arguments, Source::Address(source)) },
        Err(refusal) => {
            // SAFETY: the consumer passes a connector of this provider.
            let connector = unsafe { consumer_object::handle::<ConnectorKind>(connector) };
            refuse(NdkCall::CONNECT, &connector, refusal)
        }
    }
}

/// NDKPI: NDK_FN_CONNECT_WITH_SHARED_ENDPOINT.
unsafe extern "C" fn connect_with_shared_endpoint(
    connector: *mut NDK_CONNECTOR,
    queue_pair: *mut NDK_QP,
    endpoint: *mut NDK_SHARED_ENDPOINT,
    destination: *const SOCKADDR,
    destination_length: ULONG,
    inbound: ULONG,
    outbound: ULONG,
    data: *const c_void,
    data_length: ULONG,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    let limits = ReadLimits { inbound, outbound };
    let arguments = ConnectArguments {
        call: NdkCall::CONNECT_WITH_SHARED_ENDPOINT,
        connector,
        queue_pair,
        destination,
        destination_length,
        limits,
        data,
        data_length,
        completion,
        context,
    };
    // SAFETY: the consumer passes a shared endpoint of this provider.
    let Some(endpoint) = (unsafe { consumer_object::handle::<SharedEndpointKind>(endpoint) }) else {
        // SAFETY: the consumer passes a connector of this provider.
        let connector = unsafe { consumer_object::handle::<ConnectorKind>(connector) };
        return refuse(NdkCall::CONNECT_WITH_SHARED_ENDPOINT, &connector, Refusal::NO_OBJECT);
    };
    let endpoint = endpoint.clone();
    // SAFETY: the consumer's arguments, passed on.
    unsafe { connect_from(&arguments, Source::Shared(&endpoint)) }
}

/// # Safety
/// The pointers are what a consumer passes to NdkConnect.
unsafe fn connect_from(arguments: &ConnectArguments, source: Source<'_, KernelPlatform>) -> NTSTATUS {
    // SAFETY: the consumer passes a connector of this provider.
    let connector = unsafe { find(arguments.connector) };
    // SAFETY: the consumer passes a queue pair of this provider.
    let queue_pair = unsafe { consumer_object::handle::<QueuePairKind>(arguments.queue_pair) };
    let (Some((completion_mode, connector)), Some(queue_pair)) = (connector, queue_pair) else {
        return refuse(arguments.call, &connector.map(|(_, connector)| connector), Refusal::NO_OBJECT);
    };
    let Some(function) = arguments.completion else {
        return refuse(arguments.call, connector, Refusal::NO_CALLBACK);
    };
    // SAFETY: the consumer's address for the length of the call.
    let destination = unsafe { socket::read(arguments.destination, arguments.destination_length) };
    // SAFETY: the consumer's private data for the length of the call.
    let data = unsafe { private_data(arguments.data, arguments.data_length) };
    let (destination, private_data) = match (destination, data) {
        (Ok(destination), Ok(data)) => (destination, data),
        (Err(refusal), _) | (_, Err(refusal)) => return refuse(arguments.call, connector, refusal),
    };
    let (connector, queue_pair) = (connector.clone(), queue_pair.clone());
    let callback = RequestCallback { callback: Callback::new(function, arguments.context), call: arguments.call };
    let answer = connector.connect(Connect {
        queue_pair: &queue_pair,
        source,
        destination,
        limits: arguments.limits,
        private_data,
        callback,
    });
    requested(&connector, completion_mode, answer, callback)
}

/// NDKPI: NDK_FN_COMPLETE_CONNECT.
unsafe extern "C" fn complete_connect(
    connector: *mut NDK_CONNECTOR,
    disconnect: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    disconnect_context: PVOID,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    let disconnect = disconnect.map(|function| Callback::new(DisconnectFunction::Plain(function), disconnect_context));
    // SAFETY: the consumer's arguments, passed on.
    unsafe { complete(NdkCall::COMPLETE_CONNECT, connector, disconnect, completion, context) }
}

/// NDKPI: NDK_FN_COMPLETE_CONNECT_EX.
unsafe extern "C" fn complete_connect_ex(
    connector: *mut NDK_CONNECTOR,
    disconnect: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    disconnect_context: PVOID,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    let disconnect =
        disconnect.map(|function| Callback::new(DisconnectFunction::Extended(function), disconnect_context));
    // SAFETY: the consumer's arguments, passed on.
    unsafe { complete(NdkCall::COMPLETE_CONNECT_EX, connector, disconnect, completion, context) }
}

/// # Safety
/// `connector` is null or a connector of this provider that is not closed yet.
unsafe fn complete(
    call: NdkCall,
    connector: *mut NDK_CONNECTOR,
    disconnect: Option<DisconnectCallback>,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the caller's promise.
    let connector = unsafe { find(connector) };
    let Some((completion_mode, connector)) = connector else { return refuse(call, &Nothing, Refusal::NO_OBJECT) };
    let Some(function) = completion else { return refuse(call, connector, Refusal::NO_CALLBACK) };
    let connector = connector.clone();
    let callback = RequestCallback { callback: Callback::new(function, context), call };
    requested(&connector, completion_mode, connector.complete_connect(disconnect, callback), callback)
}

/// What NdkAccept and NdkAcceptEx have in common.
struct AcceptArguments {
    call: NdkCall,
    connector: *mut NDK_CONNECTOR,
    queue_pair: *mut NDK_QP,
    limits: ReadLimits,
    data: *const c_void,
    data_length: ULONG,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
}

/// NDKPI: NDK_FN_ACCEPT.
unsafe extern "C" fn accept(
    connector: *mut NDK_CONNECTOR,
    queue_pair: *mut NDK_QP,
    inbound: ULONG,
    outbound: ULONG,
    data: *const c_void,
    data_length: ULONG,
    disconnect: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    disconnect_context: PVOID,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    let limits = ReadLimits { inbound, outbound };
    let disconnect = disconnect.map(|function| Callback::new(DisconnectFunction::Plain(function), disconnect_context));
    let arguments = AcceptArguments {
        call: NdkCall::ACCEPT,
        connector,
        queue_pair,
        limits,
        data,
        data_length,
        completion,
        context,
    };
    // SAFETY: the consumer's arguments, passed on.
    unsafe { accept_with(&arguments, disconnect) }
}

/// NDKPI: NDK_FN_ACCEPT_EX.
unsafe extern "C" fn accept_ex(
    connector: *mut NDK_CONNECTOR,
    queue_pair: *mut NDK_QP,
    inbound: ULONG,
    outbound: ULONG,
    data: *const c_void,
    data_length: ULONG,
    disconnect: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    disconnect_context: PVOID,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    let limits = ReadLimits { inbound, outbound };
    let disconnect =
        disconnect.map(|function| Callback::new(DisconnectFunction::Extended(function), disconnect_context));
    let arguments = AcceptArguments {
        call: NdkCall::ACCEPT_EX,
        connector,
        queue_pair,
        limits,
        data,
        data_length,
        completion,
        context,
    };
    // SAFETY: the consumer's arguments, passed on.
    unsafe { accept_with(&arguments, disconnect) }
}

/// # Safety
/// The pointers are what a consumer passes to NdkAccept.
unsafe fn accept_with(arguments: &AcceptArguments, disconnect: Option<DisconnectCallback>) -> NTSTATUS {
    // SAFETY: the consumer passes a connector of this provider.
    let connector = unsafe { find(arguments.connector) };
    // SAFETY: the consumer passes a queue pair of this provider.
    let queue_pair = unsafe { consumer_object::handle::<QueuePairKind>(arguments.queue_pair) };
    let (Some((completion_mode, connector)), Some(queue_pair)) = (connector, queue_pair) else {
        return refuse(arguments.call, &connector.map(|(_, connector)| connector), Refusal::NO_OBJECT);
    };
    let Some(function) = arguments.completion else {
        return refuse(arguments.call, connector, Refusal::NO_CALLBACK);
    };
    // SAFETY: the consumer's private data for the length of the call.
    let private_data = match unsafe { private_data(arguments.data, arguments.data_length) } {
        Ok(data) => data,
        Err(refusal) => return refuse(arguments.call, connector, refusal),
    };
    let (connector, queue_pair) = (connector.clone(), queue_pair.clone());
    let callback = RequestCallback { callback: Callback::new(function, arguments.context), call: arguments.call };
    let limits = arguments.limits;
    let answer = connector.accept(Accept { queue_pair: &queue_pair, limits, private_data, disconnect, callback });
    requested(&connector, completion_mode, answer, callback)
}

/// NDKPI: NDK_FN_REJECT. Inline only.
unsafe extern "C" fn reject(connector: *mut NDK_CONNECTOR, data: *const c_void, data_length: ULONG) -> NTSTATUS {
    // SAFETY: the consumer passes a connector of this provider.
    let Some(connector) = (unsafe { consumer_object::handle::<ConnectorKind>(connector) }) else {
        return refuse(NdkCall::REJECT, &Nothing, Refusal::NO_OBJECT);
    };
    // SAFETY: the consumer's private data for the length of the call.
    let data = unsafe { private_data(data, data_length) };
    let rejected = data.and_then(|data| connector.reject(data).map_err(Refusal::from));
    rejected.map_or_else(|refusal| refuse(NdkCall::REJECT, connector, refusal), |()| STATUS_SUCCESS)
}

/// NDKPI: NDK_FN_GET_CONNECTION_DATA. The size reported is the one a buffer needs, not what the peer sent.
unsafe extern "C" fn connection_data(
    connector: *mut NDK_CONNECTOR,
    inbound: *mut ULONG,
    outbound: *mut ULONG,
    data: PVOID,
    data_length: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer passes a connector of this provider.
    let Some(connector) = (unsafe { consumer_object::handle::<ConnectorKind>(connector) }) else {
        return refuse(NdkCall::GET_CONNECTION_DATA, &Nothing, Refusal::NO_OBJECT);
    };
    // SAFETY: null, or the consumer's place for the length.
    let Some(length) = (unsafe { data_length.as_mut() }) else {
        return refuse(NdkCall::GET_CONNECTION_DATA, connector, Refusal::NO_LENGTH);
    };
    if data.is_null() && *length != 0 {
        return refuse(NdkCall::GET_CONNECTION_DATA, connector, Refusal::NO_PRIVATE_DATA);
    }
    let capacity = if data.is_null() { 0 } else { *length as usize };
    // The engine writes into the driver's memory; the consumer's buffer is filled from it.
    let mut copy = [0_u8; PRIVATE_DATA_MAX as usize];
    let taken = capacity.min(copy.len());
    let found = match connector.connection_data(copy.get_mut(..taken).unwrap_or(&mut [])) {
        Ok(found) => found,
        Err(cause) => return refuse(NdkCall::GET_CONNECTION_DATA, connector, cause),
    };
    let copied = (found.copied as usize).min(taken);
    // SAFETY: `copied` is at most the length of the consumer's buffer.
    unsafe { data.cast::<u8>().copy_from_nonoverlapping(copy.as_ptr(), copied) };
    *length = found.required;
    // SAFETY: null, or the consumer's place for the limit.
    if let Some(inbound) = unsafe { inbound.as_mut() } {
        *inbound = found.limits.inbound;
    }
    // SAFETY: as above.
    if let Some(outbound) = unsafe { outbound.as_mut() } {
        *outbound = found.limits.outbound;
    }
    if data.is_null() || capacity >= found.required as usize {
        return STATUS_SUCCESS;
    }
    refuse(NdkCall::GET_CONNECTION_DATA, connector, Refusal::SMALL_BUFFER)
}

/// NDKPI: NDK_FN_GET_LOCAL_ADDRESS.
unsafe extern "C" fn local_address(
    connector: *mut NDK_CONNECTOR,
    address: *mut SOCKADDR,
    length: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer passes a connector of this provider.
    let Some(connector) = (unsafe { consumer_object::handle::<ConnectorKind>(connector) }) else {
        return refuse(NdkCall::GET_LOCAL_ADDRESS, &Nothing, Refusal::NO_OBJECT);
    };
    // SAFETY: the consumer's buffer and its length.
    let written = unsafe { socket::write(connector.local_address(), address, length) };
    written.map_or_else(|refusal| refuse(NdkCall::GET_LOCAL_ADDRESS, connector, refusal), |()| STATUS_SUCCESS)
}

/// NDKPI: NDK_FN_GET_PEER_ADDRESS.
unsafe extern "C" fn peer_address(
    connector: *mut NDK_CONNECTOR,
    address: *mut SOCKADDR,
    length: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer passes a connector of this provider.
    let Some(connector) = (unsafe { consumer_object::handle::<ConnectorKind>(connector) }) else {
        return refuse(NdkCall::GET_PEER_ADDRESS, &Nothing, Refusal::NO_OBJECT);
    };
    // SAFETY: the consumer's buffer and its length.
    let written = unsafe { socket::write(connector.peer_address(), address, length) };
    written.map_or_else(|refusal| refuse(NdkCall::GET_PEER_ADDRESS, connector, refusal), |()| STATUS_SUCCESS)
}

/// NDKPI: NDK_FN_DISCONNECT.
unsafe extern "C" fn disconnect(
    connector: *mut NDK_CONNECTOR,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer passes a connector of this provider.
    let connector = unsafe { find(connector) };
    let Some((completion_mode, connector)) = connector else {
        return refuse(NdkCall::DISCONNECT, &Nothing, Refusal::NO_OBJECT);
    };
    let Some(function) = completion else { return refuse(NdkCall::DISCONNECT, connector, Refusal::NO_CALLBACK) };
    let connector = connector.clone();
    let callback = RequestCallback { callback: Callback::new(function, context), call: NdkCall::DISCONNECT };
    requested(&connector, completion_mode, connector.disconnect(callback), callback)
}
