//! The dispatch table of a connector, and how incoming connections reach the consumer.
//!
//! Handles are cloned before a call that may pend: its completion can run, and the consumer can close the object in it,
//! before the call returns here.

use core::ffi::c_void;

use ndkpi_sys::{
    ndkpi::{
        NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH, NDK_FN_DISCONNECT_EVENT_CALLBACK, NDK_FN_DISCONNECT_EVENT_CALLBACK_EX,
        NDK_FN_REQUEST_COMPLETION, NDK_QP, NDK_SHARED_ENDPOINT,
    },
    nt::{NTSTATUS, PVOID, SOCKADDR, STATUS_PENDING, STATUS_SUCCESS, ULONG},
};
use softndk_engine::{
    Accept, Arrival, Connect, ConnectError, Connector, ReadLimits, Requested, Source, limits::PRIVATE_DATA,
};
use softndk_ioctl::NdkCall;

use super::{
    consumer_object::{self, Object},
    entry::{Buffer, Out, PrivateData, entry},
    extension::query_extension,
    kind::kind,
    open::OpenAdapter,
    queue_pair::QueuePairRef,
    shared_endpoint::SharedEndpointRef,
    socket::{self, ConsumerAddress},
};
use crate::{
    link::configuration::CompletionMode,
    runtime::{
        deferred,
        platform::{Callback, ConsumerListener, ConsumerRequest, DisconnectFunction, KernelPlatform},
        refusal::{Nothing, Refusal, refuse},
    },
};

kind!(ConnectorKind, ConnectorRef: Connector, NDK_CONNECTOR, NdkObjectTypeConnector, CONNECTOR);

pub static DISPATCH: NDK_CONNECTOR_DISPATCH = NDK_CONNECTOR_DISPATCH {
    NdkCloseConnector: consumer_object::close::<ConnectorKind>,
    NdkQueryExtension: query_extension,
    NdkConnect: entry!(
        connect(
            *mut NDK_CONNECTOR,
            *mut NDK_QP,
            [*const SOCKADDR, ULONG],
            [*const SOCKADDR, ULONG],
            [ULONG, ULONG],
            [*const c_void, ULONG],
            [Option<NDK_FN_REQUEST_COMPLETION>, PVOID]
        ) -> NTSTATUS
    ),
    NdkConnectWithSharedEndpoint: entry!(
        connect_with_shared_endpoint(
            *mut NDK_CONNECTOR,
            *mut NDK_QP,
            *mut NDK_SHARED_ENDPOINT,
            [*const SOCKADDR, ULONG],
            [ULONG, ULONG],
            [*const c_void, ULONG],
            [Option<NDK_FN_REQUEST_COMPLETION>, PVOID]
        ) -> NTSTATUS
    ),
    NdkCompleteConnect: entry!(
        complete_connect(
            *mut NDK_CONNECTOR,
            [Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>, PVOID],
            [Option<NDK_FN_REQUEST_COMPLETION>, PVOID]
        ) -> NTSTATUS
    ),
    NdkAccept: entry!(
        accept(
            *mut NDK_CONNECTOR,
            *mut NDK_QP,
            [ULONG, ULONG],
            [*const c_void, ULONG],
            [Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>, PVOID],
            [Option<NDK_FN_REQUEST_COMPLETION>, PVOID]
        ) -> NTSTATUS
    ),
    NdkReject: entry!(reject(*mut NDK_CONNECTOR, [*const c_void, ULONG]) -> NTSTATUS),
    NdkGetConnectionData: entry!(
        connection_data(*mut NDK_CONNECTOR, *mut ULONG, *mut ULONG, [PVOID, *mut ULONG]) -> NTSTATUS
    ),
    NdkGetLocalAddress: entry!(local_address(*mut NDK_CONNECTOR, [*mut SOCKADDR, *mut ULONG]) -> NTSTATUS),
    NdkGetPeerAddress: entry!(peer_address(*mut NDK_CONNECTOR, [*mut SOCKADDR, *mut ULONG]) -> NTSTATUS),
    NdkDisconnect: entry!(disconnect(*mut NDK_CONNECTOR, [Option<NDK_FN_REQUEST_COMPLETION>, PVOID]) -> NTSTATUS),
    NdkCompleteConnectEx: entry!(
        complete_connect_ex(
            *mut NDK_CONNECTOR,
            [Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>, PVOID],
            [Option<NDK_FN_REQUEST_COMPLETION>, PVOID]
        ) -> NTSTATUS
    ),
    NdkAcceptEx: entry!(
        accept_ex(
            *mut NDK_CONNECTOR,
            *mut NDK_QP,
            [ULONG, ULONG],
            [*const c_void, ULONG],
            [Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>, PVOID],
            [Option<NDK_FN_REQUEST_COMPLETION>, PVOID]
        ) -> NTSTATUS
    ),
};

type Completion = Option<Callback<NDK_FN_REQUEST_COMPLETION>>;
type Disconnect<F> = Option<Callback<F>>;

/// Makes a connector for an incoming connection and hands it to the listener's consumer. Without memory for it the
/// connection is refused.
pub fn deliver(callback: ConsumerListener, connector: Arrival<KernelPlatform>) {
    // SAFETY: the open outlives its listeners, and the listener cannot close before the event is dropped.
    let Some(open) = (unsafe { callback.open.0.cast::<OpenAdapter>().as_ref() }) else { return };
    // Dropping the arrival refuses the connection.
    let Ok((object, consumer_object)) = Object::<ConnectorKind>::reserve(open.origin) else { return };
    let handle = connector.adopt(consumer_object);
    // SAFETY: the engine keeps the consumer object, and the consumer has not got it yet.
    let visible = unsafe { Object::complete(object, handle) };
    let notify = callback.callback;
    notify.connect(visible);
}

/// Completes a request that the engine has decided on or taken over.
fn requested(
    connector: &Connector<KernelPlatform>,
    completion_mode: CompletionMode,
    answer: Result<Requested, ConnectError>,
    callback: ConsumerRequest,
) -> NTSTATUS {
    let status = match answer {
        Ok(Requested::Pending) => return STATUS_PENDING,
        Ok(Requested::Done) => STATUS_SUCCESS,
        Err(cause) => refuse(callback.call, connector, cause),
    };
    deferred::request(completion_mode, status, Some(callback.callback), || connector.hold())
}

/// What NdkConnect and NdkConnectWithSharedEndpoint have in common.
struct ConnectArguments<'call> {
    call: NdkCall,
    connector: ConnectorRef<'call>,
    queue_pair: QueuePairRef<'call>,
    destination: ConsumerAddress<'call>,
    limits: ReadLimits,
    data: PrivateData<'call>,
    completion: Completion,
}

/// NDKPI: NDK_FN_CONNECT.
fn connect(
    connector: ConnectorRef<'_>,
    queue_pair: QueuePairRef<'_>,
    source: ConsumerAddress<'_>,
    destination: ConsumerAddress<'_>,
    limits: ReadLimits,
    data: PrivateData<'_>,
    completion: Completion,
) -> NTSTATUS {
    match source.get() {
        Ok(source) => {
            let call = NdkCall::CONNECT;
            let arguments = ConnectArguments { call, connector, queue_pair, destination, limits, data, completion };
            connect_from(&arguments, Source::Address(source))
        }
        Err(refusal) => refuse(NdkCall::CONNECT, &connector.get(), refusal),
    }
}

/// NDKPI: NDK_FN_CONNECT_WITH_SHARED_ENDPOINT.
fn connect_with_shared_endpoint(
    connector: ConnectorRef<'_>,
    queue_pair: QueuePairRef<'_>,
    endpoint: SharedEndpointRef<'_>,
    destination: ConsumerAddress<'_>,
    limits: ReadLimits,
    data: PrivateData<'_>,
    completion: Completion,
) -> NTSTATUS {
    let call = NdkCall::CONNECT_WITH_SHARED_ENDPOINT;
    let Some(endpoint) = endpoint.get() else { return refuse(call, &connector.get(), Refusal::NO_OBJECT) };
    let endpoint = endpoint.clone();
    let arguments = ConnectArguments { call, connector, queue_pair, destination, limits, data, completion };
    connect_from(&arguments, Source::Shared(&endpoint))
}

fn connect_from(arguments: &ConnectArguments<'_>, source: Source<'_, KernelPlatform>) -> NTSTATUS {
    let connector = arguments.connector.both();
    let (Some((object, connector)), Some(queue_pair)) = (connector, arguments.queue_pair.get()) else {
        return refuse(arguments.call, &connector.map(|(_, connector)| connector), Refusal::NO_OBJECT);
    };
    let Some(callback) = arguments.completion else {
        return refuse(arguments.call, connector, Refusal::NO_CALLBACK);
    };
    let (destination, private_data) = match (arguments.destination.get(), arguments.data.get()) {
        (Ok(destination), Ok(data)) => (destination, data),
        (Err(refusal), _) | (_, Err(refusal)) => return refuse(arguments.call, connector, refusal),
    };
    let completion_mode = object.origin.completion_mode;
    let (connector, queue_pair) = (connector.clone(), queue_pair.clone());
    let callback = ConsumerRequest { callback, call: arguments.call };
    let answer = connector.connect(Connect {
        queue_pair: &queue_pair,
        source,
        destination,
        limits: arguments.limits,
        private_data,
        callback: callback.into(),
    });
    requested(&connector, completion_mode, answer, callback)
}

/// NDKPI: NDK_FN_COMPLETE_CONNECT.
fn complete_connect(
    connector: ConnectorRef<'_>,
    disconnect: Disconnect<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    completion: Completion,
) -> NTSTATUS {
    complete(NdkCall::COMPLETE_CONNECT, connector, disconnect.map(Callback::from), completion)
}

/// NDKPI: NDK_FN_COMPLETE_CONNECT_EX.
fn complete_connect_ex(
    connector: ConnectorRef<'_>,
    disconnect: Disconnect<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    completion: Completion,
) -> NTSTATUS {
    complete(NdkCall::COMPLETE_CONNECT_EX, connector, disconnect.map(Callback::from), completion)
}

fn complete(
    call: NdkCall,
    connector: ConnectorRef<'_>,
    disconnect: Disconnect<DisconnectFunction>,
    completion: Completion,
) -> NTSTATUS {
    let Some((object, connector)) = connector.both() else { return refuse(call, &Nothing, Refusal::NO_OBJECT) };
    let Some(callback) = completion else { return refuse(call, connector, Refusal::NO_CALLBACK) };
    let (completion_mode, connector) = (object.origin.completion_mode, connector.clone());
    let callback = ConsumerRequest { callback, call };
    requested(&connector, completion_mode, connector.complete_connect(disconnect, callback.into()), callback)
}

/// What NdkAccept and NdkAcceptEx have in common.
struct AcceptArguments<'call> {
    call: NdkCall,
    connector: ConnectorRef<'call>,
    queue_pair: QueuePairRef<'call>,
    limits: ReadLimits,
    data: PrivateData<'call>,
    completion: Completion,
}

/// NDKPI: NDK_FN_ACCEPT.
fn accept(
    connector: ConnectorRef<'_>,
    queue_pair: QueuePairRef<'_>,
    limits: ReadLimits,
    data: PrivateData<'_>,
    disconnect: Disconnect<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    completion: Completion,
) -> NTSTATUS {
    let arguments = AcceptArguments { call: NdkCall::ACCEPT, connector, queue_pair, limits, data, completion };
    accept_with(&arguments, disconnect.map(Callback::from))
}

/// NDKPI: NDK_FN_ACCEPT_EX.
fn accept_ex(
    connector: ConnectorRef<'_>,
    queue_pair: QueuePairRef<'_>,
    limits: ReadLimits,
    data: PrivateData<'_>,
    disconnect: Disconnect<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    completion: Completion,
) -> NTSTATUS {
    let arguments = AcceptArguments { call: NdkCall::ACCEPT_EX, connector, queue_pair, limits, data, completion };
    accept_with(&arguments, disconnect.map(Callback::from))
}

fn accept_with(arguments: &AcceptArguments<'_>, disconnect: Disconnect<DisconnectFunction>) -> NTSTATUS {
    let connector = arguments.connector.both();
    let (Some((object, connector)), Some(queue_pair)) = (connector, arguments.queue_pair.get()) else {
        return refuse(arguments.call, &connector.map(|(_, connector)| connector), Refusal::NO_OBJECT);
    };
    let Some(callback) = arguments.completion else {
        return refuse(arguments.call, connector, Refusal::NO_CALLBACK);
    };
    let private_data = match arguments.data.get() {
        Ok(data) => data,
        Err(refusal) => return refuse(arguments.call, connector, refusal),
    };
    let completion_mode = object.origin.completion_mode;
    let (connector, queue_pair) = (connector.clone(), queue_pair.clone());
    let callback = ConsumerRequest { callback, call: arguments.call };
    let limits = arguments.limits;
    let accept = Accept { queue_pair: &queue_pair, limits, private_data, disconnect, callback: callback.into() };
    let answer = connector.accept(accept);
    requested(&connector, completion_mode, answer, callback)
}

/// NDKPI: NDK_FN_REJECT. Inline only.
fn reject(connector: ConnectorRef<'_>, data: PrivateData<'_>) -> NTSTATUS {
    let Some(connector) = connector.get() else {
        return refuse(NdkCall::REJECT, &Nothing, Refusal::NO_OBJECT);
    };
    let rejected = data.get().and_then(|data| connector.reject(data).map_err(Refusal::from));
    rejected.map_or_else(|refusal| refuse(NdkCall::REJECT, connector, refusal), |()| STATUS_SUCCESS)
}

/// NDKPI: NDK_FN_GET_CONNECTION_DATA. The size reported is the one a buffer needs, not what the peer sent.
fn connection_data(
    connector: ConnectorRef<'_>,
    inbound: Out<'_, ULONG>,
    outbound: Out<'_, ULONG>,
    data: Buffer<'_>,
) -> NTSTATUS {
    let Some(connector) = connector.get() else {
        return refuse(NdkCall::GET_CONNECTION_DATA, &Nothing, Refusal::NO_OBJECT);
    };
    let space = match data.get() {
        Ok(space) if space.is_null() && space.size != 0 => {
            return refuse(NdkCall::GET_CONNECTION_DATA, connector, Refusal::NO_PRIVATE_DATA);
        }
        Ok(space) => space,
        Err(refusal) => return refuse(NdkCall::GET_CONNECTION_DATA, connector, refusal),
    };
    // The engine writes into the driver's memory; the consumer's buffer is filled from it.
    let mut copy = [0_u8; PRIVATE_DATA];
    let taken = (space.size as usize).min(copy.len());
    let found = match connector.connection_data(copy.get_mut(..taken).unwrap_or(&mut [])) {
        Ok(found) => found,
        Err(cause) => return refuse(NdkCall::GET_CONNECTION_DATA, connector, cause),
    };
    space.copy(&copy, (found.copied as usize).min(taken));
    space.set_length(found.required);
    inbound.write(found.limits.inbound);
    outbound.write(found.limits.outbound);
    if space.is_null() || space.size >= found.required {
        return STATUS_SUCCESS;
    }
    refuse(NdkCall::GET_CONNECTION_DATA, connector, Refusal::SMALL_BUFFER)
}

/// NDKPI: NDK_FN_GET_LOCAL_ADDRESS.
fn local_address(connector: ConnectorRef<'_>, buffer: Buffer<'_>) -> NTSTATUS {
    let Some(connector) = connector.get() else {
        return refuse(NdkCall::GET_LOCAL_ADDRESS, &Nothing, Refusal::NO_OBJECT);
    };
    let written = socket::write(connector.local_address(), buffer);
    written.map_or_else(|refusal| refuse(NdkCall::GET_LOCAL_ADDRESS, connector, refusal), |()| STATUS_SUCCESS)
}

/// NDKPI: NDK_FN_GET_PEER_ADDRESS.
fn peer_address(connector: ConnectorRef<'_>, buffer: Buffer<'_>) -> NTSTATUS {
    let Some(connector) = connector.get() else {
        return refuse(NdkCall::GET_PEER_ADDRESS, &Nothing, Refusal::NO_OBJECT);
    };
    let written = socket::write(connector.peer_address(), buffer);
    written.map_or_else(|refusal| refuse(NdkCall::GET_PEER_ADDRESS, connector, refusal), |()| STATUS_SUCCESS)
}

/// NDKPI: NDK_FN_DISCONNECT.
fn disconnect(connector: ConnectorRef<'_>, completion: Completion) -> NTSTATUS {
    let Some((object, connector)) = connector.both() else {
        return refuse(NdkCall::DISCONNECT, &Nothing, Refusal::NO_OBJECT);
    };
    let Some(callback) = completion else { return refuse(NdkCall::DISCONNECT, connector, Refusal::NO_CALLBACK) };
    let (completion_mode, connector) = (object.origin.completion_mode, connector.clone());
    let callback = ConsumerRequest { callback, call: NdkCall::DISCONNECT };
    requested(&connector, completion_mode, connector.disconnect(callback.into()), callback)
}
