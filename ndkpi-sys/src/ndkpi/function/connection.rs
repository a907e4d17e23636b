//! Functions of listeners, connectors and shared endpoints.
//!
//! Order of a connection: the active side connects; the passive side gets a connect event and accepts; the active
//! side's connect completes and it completes the connection; then the passive side's accept completes. Read limits are
//! capped silently by each side's adapter.

use super::super::callback::{
    NDK_FN_DISCONNECT_EVENT_CALLBACK, NDK_FN_DISCONNECT_EVENT_CALLBACK_EX, NDK_FN_REQUEST_COMPLETION,
};
use super::super::object::{NDK_CONNECTOR, NDK_LISTENER, NDK_QP, NDK_SHARED_ENDPOINT};
use crate::abi::abi_fn;
use crate::nt::{BOOLEAN, NTSTATUS, PVOID, SOCKADDR, ULONG};
use core::ffi::c_void;

abi_fn! {
    /// Starts to listen. Port 0 lets the provider choose one of 49152–65535. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_PENDING`
    /// - `STATUS_INSUFFICIENT_RESOURCES` (inline or completion)
    /// - `STATUS_SHARING_VIOLATION` (inline or completion): address and port in use.
    /// - `STATUS_INVALID_ADDRESS` (inline or completion): not an address of this adapter.
    /// - `STATUS_TOO_MANY_ADDRESSES` (inline or completion): no port left to choose.
    pub type NDK_FN_LISTEN = fn(
        pNdkListener: *mut NDK_LISTENER,
        pAddress: *const SOCKADDR,
        AddressLength: ULONG,
        RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
        RequestContext: PVOID,
    ) -> NTSTATUS;

    /// Local address of a listener. `pAddress` may be NULL to ask for the length. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_BUFFER_TOO_SMALL`: `*pAddressLength` is the required length.
    pub type NDK_FN_GET_LISTENER_LOCAL_ADDRESS = fn(
        pNdkListener: *mut NDK_LISTENER,
        pAddress: *mut SOCKADDR,
        pAddressLength: *mut ULONG,
    ) -> NTSTATUS;

    /// Pauses the listener (peers are refused as if it were not there) or lets it go on. IRQL <= DISPATCH_LEVEL.
    pub type NDK_FN_CONTROL_CONNECT_EVENTS = fn(pNdkListener: *mut NDK_LISTENER, Pause: BOOLEAN);

    /// Connects a queue pair from a local to a remote address. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_PENDING`
    /// - `STATUS_INSUFFICIENT_RESOURCES` (inline or completion, as all that follow)
    /// - `STATUS_NETWORK_UNREACHABLE`, `STATUS_HOST_UNREACHABLE`: may be tried again.
    /// - `STATUS_CONNECTION_REFUSED`: no listener there, or the peer rejected; may be tried again.
    /// - `STATUS_IO_TIMEOUT`: may be tried again.
    /// - `STATUS_SHARING_VIOLATION`: the local address is in use.
    /// - `STATUS_INVALID_ADDRESS`: the local address is not one of this adapter.
    /// - `STATUS_TOO_MANY_ADDRESSES`: no local port left to choose.
    /// - `STATUS_ADDRESS_ALREADY_EXISTS`: such a connection exists already.
    pub type NDK_FN_CONNECT = fn(
        pNdkConnector: *mut NDK_CONNECTOR,
        pNdkQp: *mut NDK_QP,
        pSrcAddress: *const SOCKADDR,
        SrcAddressLength: ULONG,
        pDestAddress: *const SOCKADDR,
        DestAddressLength: ULONG,
        InboundReadLimit: ULONG,
        OutboundReadLimit: ULONG,
        pPrivateData: *const c_void,
        PrivateDataLength: ULONG,
        RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
        RequestContext: PVOID,
    ) -> NTSTATUS;

    /// Connects from a shared endpoint. Statuses as [`NDK_FN_CONNECT`], without those about the local address. IRQL <=
    /// DISPATCH_LEVEL.
    pub type NDK_FN_CONNECT_WITH_SHARED_ENDPOINT = fn(
        pNdkConnector: *mut NDK_CONNECTOR,
        pNdkQp: *mut NDK_QP,
        pNdkSharedEndpoint: *mut NDK_SHARED_ENDPOINT,
        pDestAddress: *const SOCKADDR,
        DestAddressLength: ULONG,
        InboundReadLimit: ULONG,
        OutboundReadLimit: ULONG,
        pPrivateData: *const c_void,
        PrivateDataLength: ULONG,
        RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
        RequestContext: PVOID,
    ) -> NTSTATUS;

    /// The active side's last step. The disconnect event may be absent. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_PENDING`
    /// - `STATUS_CONNECTION_INVALID` (inline or completion, as all that follow): the queue pair is not connecting.
    /// - `STATUS_CONNECTION_ABORTED`: the passive side gave up.
    /// - `STATUS_IO_TIMEOUT`: this connector is finished.
    pub type NDK_FN_COMPLETE_CONNECT = fn(
        pNdkConnector: *mut NDK_CONNECTOR,
        DisconnectEvent: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
        DisconnectEventContext: PVOID,
        RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
        RequestContext: PVOID,
    ) -> NTSTATUS;

    /// As [`NDK_FN_COMPLETE_CONNECT`], the event carries a reason (NDKPI 2.1). IRQL <= DISPATCH_LEVEL.
    pub type NDK_FN_COMPLETE_CONNECT_EX = fn(
        pNdkConnector: *mut NDK_CONNECTOR,
        DisconnectEvent: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
        DisconnectEventContext: PVOID,
        RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
        RequestContext: PVOID,
    ) -> NTSTATUS;

    /// Accepts a connection with a queue pair; completes when the active side has completed the connection. The
    /// disconnect event may be absent. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_PENDING`
    /// - `STATUS_CONNECTION_ABORTED` (inline or completion, as the next): the active side gave up.
    /// - `STATUS_IO_TIMEOUT`: the active side never completed the connection.
    pub type NDK_FN_ACCEPT = fn(
        pNdkConnector: *mut NDK_CONNECTOR,
        pNdkQp: *mut NDK_QP,
        InboundReadLimit: ULONG,
        OutboundReadLimit: ULONG,
        pPrivateData: *const c_void,
        PrivateDataLength: ULONG,
        DisconnectEvent: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
        DisconnectEventContext: PVOID,
        RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
        RequestContext: PVOID,
    ) -> NTSTATUS;

    /// As [`NDK_FN_ACCEPT`], the event carries a reason (NDKPI 2.1). IRQL <= DISPATCH_LEVEL.
    pub type NDK_FN_ACCEPT_EX = fn(
        pNdkConnector: *mut NDK_CONNECTOR,
        pNdkQp: *mut NDK_QP,
        InboundReadLimit: ULONG,
        OutboundReadLimit: ULONG,
        pPrivateData: *const c_void,
        PrivateDataLength: ULONG,
        DisconnectEvent: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
        DisconnectEventContext: PVOID,
        RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
        RequestContext: PVOID,
    ) -> NTSTATUS;

    /// Turns a connection down, from either side; never pends. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_CONNECTION_ABORTED`: the peer gave up.
    pub type NDK_FN_REJECT = fn(
        pNdkConnector: *mut NDK_CONNECTOR,
        pPrivateData: *const c_void,
        PrivateDataLength: ULONG,
    ) -> NTSTATUS;

    /// Effective read limits (each pointer may be NULL) and the peer's private data. NULL with length 0 queries the length; the
    /// length reported is the connection's fixed size, not what the peer sent. Never pends. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_BUFFER_TOO_SMALL`: what fits was copied, `*pPrivateDataLength` is the required length.
    pub type NDK_FN_GET_CONNECTION_DATA = fn(
        pNdkConnector: *mut NDK_CONNECTOR,
        pInboundReadLimit: *mut ULONG,
        pOutboundReadLimit: *mut ULONG,
        pPrivateData: PVOID,
        pPrivateDataLength: *mut ULONG,
    ) -> NTSTATUS;

    /// Local address of a connector. `pAddress` may be NULL to ask for the length. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_BUFFER_TOO_SMALL`: `*pAddressLength` is the required length.
    pub type NDK_FN_GET_LOCAL_ADDRESS = fn(
        pNdkConnector: *mut NDK_CONNECTOR,
        pAddress: *mut SOCKADDR,
        pAddressLength: *mut ULONG,
    ) -> NTSTATUS;

    /// Address of a connector's peer. `pAddress` may be NULL to ask for the length. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_BUFFER_TOO_SMALL`: `*pAddressLength` is the required length.
    pub type NDK_FN_GET_PEER_ADDRESS = fn(
        pNdkConnector: *mut NDK_CONNECTOR,
        pAddress: *mut SOCKADDR,
        pAddressLength: *mut ULONG,
    ) -> NTSTATUS;

    /// Ends a connection gracefully: completes when the peer has disconnected too and the queue pair is quiet, then
    /// flushes the queue pair. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_PENDING`
    /// - `STATUS_IO_TIMEOUT` (inline or completion): the peer did not answer.
    /// - any other failure: the connection was aborted.
    pub type NDK_FN_DISCONNECT = fn(
        pNdkConnector: *mut NDK_CONNECTOR,
        RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
        RequestContext: PVOID,
    ) -> NTSTATUS;

    /// A disconnect that can be abortive. Declared by the header, but in no dispatch table. IRQL <= DISPATCH_LEVEL.
    pub type NDK_FN_DISCONNECT_EX = fn(
        pNdkConnector: *mut NDK_CONNECTOR,
        Abortive: BOOLEAN,
        RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
        RequestContext: PVOID,
    ) -> NTSTATUS;

    /// Address of a shared endpoint. `pAddress` may be NULL to ask for the length. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_BUFFER_TOO_SMALL`: `*pAddressLength` is the required length.
    pub type NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS = fn(
        pNdkSharedEndpoint: *mut NDK_SHARED_ENDPOINT,
        pAddress: *mut SOCKADDR,
        pAddressLength: *mut ULONG,
    ) -> NTSTATUS;
}
