//! Functions of an adapter, and the two that every object has.

use super::super::callback::{
    NDK_FN_CLOSE_COMPLETION, NDK_FN_CONNECT_EVENT_CALLBACK, NDK_FN_CQ_NOTIFICATION_CALLBACK, NDK_FN_CREATE_COMPLETION,
    NDK_FN_REQUEST_COMPLETION,
};
use super::super::memory::NDK_LOGICAL_ADDRESS_MAPPING;
use super::super::object::{
    NDK_ADAPTER, NDK_CONNECTOR, NDK_CQ, NDK_EXTENSION_INTERFACE, NDK_LISTENER, NDK_OBJECT_HEADER, NDK_PD,
    NDK_SHARED_ENDPOINT,
};
use crate::abi::abi_fn;
use crate::ndkinfo::{NDK_ADAPTER_INFO, NDK_VERSION};
use crate::nt::{GROUP_AFFINITY, GUID, MDL, NTSTATUS, PVOID, SIZE_T, SOCKADDR, ULONG};

abi_fn! {
    /// Closes an object. It cannot fail. IRQL <= DISPATCH_LEVEL.
    ///
    /// It may come before the closes of objects that depend on this one; then it pends until they are closed and every
    /// callback of the object has returned. Pending requests on the object are cancelled. A listener refuses new
    /// connections from this call on.
    ///
    /// - `STATUS_SUCCESS`: closed, the completion is never called.
    /// - `STATUS_PENDING`: the completion will be called.
    pub type NDK_FN_CLOSE_OBJECT = fn(
        pNdkObject: *mut NDK_OBJECT_HEADER,
        CloseCompletion: Option<NDK_FN_CLOSE_COMPLETION>,
        RequestContext: PVOID,
    ) -> NTSTATUS;

    /// Queries an object for an extension interface. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`: `pExtensionInterface` is filled.
    /// - `STATUS_NOT_SUPPORTED`: no such extension or version.
    pub type NDK_FN_QUERY_EXTENSION_INTERFACE = fn(
        pNdkObject: *mut NDK_OBJECT_HEADER,
        ExtensionInterfaceID: *mut GUID,
        ExtensionInterfaceVersion: NDK_VERSION,
        pExtensionInterface: *mut NDK_EXTENSION_INTERFACE,
    ) -> NTSTATUS;

    /// Limits and abilities of the adapter. **PASSIVE_LEVEL**, may block.
    ///
    /// `pInfo` may be NULL to ask for the size. `*pBufferSize` is the capacity on entry, the bytes written or needed on
    /// return.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_BUFFER_TOO_SMALL`: `*pBufferSize` is the required size.
    pub type NDK_FN_QUERY_ADAPTER_INFO = fn(
        pNdkAdapter: *mut NDK_ADAPTER,
        pInfo: *mut NDK_ADAPTER_INFO,
        pBufferSize: *mut ULONG,
    ) -> NTSTATUS;

    /// As [`NDK_FN_QUERY_ADAPTER_INFO`] for a given version. Declared by the header, but in no dispatch table. IRQL <=
    /// DISPATCH_LEVEL.
    pub type NDK_FN_QUERY_ADAPTER_INFO_EX = fn(
        pNdkAdapter: *mut NDK_ADAPTER,
        Version: NDK_VERSION,
        pInfo: *mut NDK_ADAPTER_INFO,
        pBufferSize: *mut ULONG,
    ) -> NTSTATUS;

    /// Creates a completion queue, unarmed. `Affinity` (may be NULL) is a preference for the processor of notifications. Some
    /// consumers pass no notification. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`: `*ppNdkCq` is the queue.
    /// - `STATUS_PENDING`
    /// - `STATUS_INVALID_PARAMETER`: deeper than `MaxCqDepth`.
    /// - `STATUS_INSUFFICIENT_RESOURCES` (inline or completion)
    pub type NDK_FN_CREATE_CQ = fn(
        pNdkAdapter: *mut NDK_ADAPTER,
        CqDepth: ULONG,
        CqNotification: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
        CqNotificationContext: PVOID,
        Affinity: *mut GROUP_AFFINITY,
        CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
        RequestContext: PVOID,
        ppNdkCq: *mut *mut NDK_CQ,
    ) -> NTSTATUS;

    /// Creates a protection domain. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`: `*ppNdkPd` is the domain.
    /// - `STATUS_PENDING`
    /// - `STATUS_INSUFFICIENT_RESOURCES` (inline or completion)
    pub type NDK_FN_CREATE_PD = fn(
        pNdkAdapter: *mut NDK_ADAPTER,
        CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
        RequestContext: PVOID,
        ppNdkPd: *mut *mut NDK_PD,
    ) -> NTSTATUS;

    /// Creates a local endpoint for several connectors. Port 0 lets the provider choose one of 49152–65535. IRQL <=
    /// DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`: `*ppNdkSharedEndpoint` is the endpoint.
    /// - `STATUS_PENDING`
    /// - `STATUS_INSUFFICIENT_RESOURCES` (inline or completion)
    /// - `STATUS_SHARING_VIOLATION` (inline or completion): the address is in use.
    /// - `STATUS_INVALID_ADDRESS` (inline or completion): not an address of this adapter.
    /// - `STATUS_TOO_MANY_ADDRESSES`: no port left to choose.
    pub type NDK_FN_CREATE_SHARED_ENDPOINT = fn(
        pNdkAdapter: *mut NDK_ADAPTER,
        pAddress: *const SOCKADDR,
        AddressLength: ULONG,
        CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
        RequestContext: PVOID,
        ppNdkSharedEndpoint: *mut *mut NDK_SHARED_ENDPOINT,
    ) -> NTSTATUS;

    /// Creates a connector. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`: `*ppNdkConnector` is the connector.
    /// - `STATUS_PENDING`
    /// - `STATUS_INSUFFICIENT_RESOURCES` (inline or completion)
    pub type NDK_FN_CREATE_CONNECTOR = fn(
        pNdkAdapter: *mut NDK_ADAPTER,
        CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
        RequestContext: PVOID,
        ppNdkConnector: *mut *mut NDK_CONNECTOR,
    ) -> NTSTATUS;

    /// Creates a listener, idle until `NdkListen`. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`: `*ppNdkListener` is the listener.
    /// - `STATUS_PENDING`
    /// - `STATUS_INSUFFICIENT_RESOURCES` (inline or completion)
    pub type NDK_FN_CREATE_LISTENER = fn(
        pNdkAdapter: *mut NDK_ADAPTER,
        ConnectEvent: Option<NDK_FN_CONNECT_EVENT_CALLBACK>,
        ConnectEventContext: PVOID,
        CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
        RequestContext: PVOID,
        ppNdkListener: *mut *mut NDK_LISTENER,
    ) -> NTSTATUS;

    /// Gives the first `Length` bytes of an MDL chain adapter logical addresses. The chain must be virtually
    /// contiguous; it is the consumer's again, to be freed if it likes, when the request has completed. IRQL <=
    /// DISPATCH_LEVEL.
    ///
    /// `*pLAMSize` is the capacity on entry, the bytes written or needed on return; `*pFBO` the offset in the first
    /// page. Without `RequestCompletion` the request finishes inline.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_PENDING`
    /// - `STATUS_INVALID_PARAMETER`: not virtually contiguous.
    /// - `STATUS_INSUFFICIENT_RESOURCES` (inline or completion)
    /// - `STATUS_BUFFER_TOO_SMALL`: `*pLAMSize` is the required size.
    pub type NDK_FN_BUILD_LAM = fn(
        pNdkAdapter: *mut NDK_ADAPTER,
        Mdl: *mut MDL,
        Length: SIZE_T,
        RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
        RequestContext: PVOID,
        pNdkLAM: *mut NDK_LOGICAL_ADDRESS_MAPPING,
        pLAMSize: *mut ULONG,
        pFBO: *mut ULONG,
    ) -> NTSTATUS;

    /// Ends a mapping. All work requests that used it have completed. IRQL <= DISPATCH_LEVEL.
    pub type NDK_FN_RELEASE_LAM = fn(
        pNdkAdapter: *mut NDK_ADAPTER,
        pNdkLAM: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    );
}
