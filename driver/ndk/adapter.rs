//! The dispatch table of an open adapter.

use ndkpi_sys::{
    ndkinfo::{NDK_ADAPTER_INFO, NDK_VERSION},
    ndkpi::{
        NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NDK_CONNECTOR, NDK_CQ, NDK_FN_CONNECT_EVENT_CALLBACK,
        NDK_FN_CQ_NOTIFICATION_CALLBACK, NDK_FN_CREATE_COMPLETION, NDK_LISTENER, NDK_PD, NDK_SHARED_ENDPOINT,
    },
    nt::{GROUP_AFFINITY, NTSTATUS, PVOID, SOCKADDR, STATUS_SUCCESS, ULONG},
};
use softndk_ioctl::NdkCall;

use super::{
    completion_queue::CompletionQueueKind,
    connector::{self, ConnectorKind},
    consumer_object::Creation,
    entry::{Buffer, CreateAnswer, Input, entry, home},
    extension::query_extension,
    limits,
    listener::ListenerKind,
    logical_mapping,
    open::OpenRef,
    protection_domain::ProtectionDomainKind,
    shared_endpoint::SharedEndpointKind,
    socket::ConsumerAddress,
};
use crate::runtime::{
    platform::{Callback, ConnectCallback, ConsumerListener},
    refusal::{Nothing, Refusal, refuse},
};

/// The table every open adapter points to.
pub static DISPATCH: NDK_ADAPTER_DISPATCH = NDK_ADAPTER_DISPATCH {
    NdkQueryExtension: query_extension,
    NdkQueryAdapterInfo: entry!(query_adapter_info(*mut NDK_ADAPTER, [*mut NDK_ADAPTER_INFO, *mut ULONG]) -> NTSTATUS),
    NdkCreateCq: entry!(
        create_cq(
            *mut NDK_ADAPTER,
            ULONG,
            [Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>, PVOID],
            *mut GROUP_AFFINITY,
            [Option<NDK_FN_CREATE_COMPLETION>, PVOID, *mut *mut NDK_CQ]
        ) -> NTSTATUS
    ),
    NdkCreatePd: entry!(
        create_pd(*mut NDK_ADAPTER, [Option<NDK_FN_CREATE_COMPLETION>, PVOID, *mut *mut NDK_PD]) -> NTSTATUS
    ),
    NdkCreateSharedEndpoint: entry!(
        create_shared_endpoint(
            *mut NDK_ADAPTER,
            [*const SOCKADDR, ULONG],
            [Option<NDK_FN_CREATE_COMPLETION>, PVOID, *mut *mut NDK_SHARED_ENDPOINT]
        ) -> NTSTATUS
    ),
    NdkCreateConnector: entry!(
        create_connector(
            *mut NDK_ADAPTER,
            [Option<NDK_FN_CREATE_COMPLETION>, PVOID, *mut *mut NDK_CONNECTOR]
        ) -> NTSTATUS
    ),
    NdkCreateListener: entry!(
        create_listener(
            *mut NDK_ADAPTER,
            [Option<NDK_FN_CONNECT_EVENT_CALLBACK>, PVOID],
            [Option<NDK_FN_CREATE_COMPLETION>, PVOID, *mut *mut NDK_LISTENER]
        ) -> NTSTATUS
    ),
    NdkBuildLAM: logical_mapping::BUILD,
    NdkReleaseLAM: logical_mapping::RELEASE,
};

/// NDKPI: NDK_FN_QUERY_ADAPTER_INFO. PASSIVE_LEVEL.
fn query_adapter_info(open: OpenRef<'_>, buffer: Buffer<'_>) -> NTSTATUS {
    let Some((open, engine_open)) = open.both() else {
        return refuse(NdkCall::QUERY_ADAPTER_INFO, &Nothing, Refusal::NO_OBJECT);
    };
    let version = open.origin.version;
    let answer = limits::adapter_information(version, open.provider().configuration());
    let written = buffer.get().and_then(|space| space.fill(&answer, information_size(version)));
    written.map_or_else(|refusal| refuse(NdkCall::QUERY_ADAPTER_INFO, engine_open, refusal), |()| STATUS_SUCCESS)
}

/// The 1.x layout ends before `RdmaTechnology`.
fn information_size(version: NDK_VERSION) -> usize {
    if version.Major < 2 { ndkpi_sys::ndkinfo::NDK_ADAPTER_INFO_SIZE_1 } else { size_of::<NDK_ADAPTER_INFO>() }
}

/// NDKPI: NDK_FN_CREATE_CQ. A deep queue is allocated by the mapper's thread. Some consumers pass no notification callback:
/// then none is made.
fn create_cq(
    open: OpenRef<'_>,
    depth: ULONG,
    notify: Option<Callback<NDK_FN_CQ_NOTIFICATION_CALLBACK>>,
    affinity: Input<'_, GROUP_AFFINITY>,
    answer: CreateAnswer<'_, NDK_CQ>,
) -> NTSTATUS {
    let Some((open, engine_open)) = open.both() else {
        return refuse(NdkCall::CREATE_CQ, &Nothing, Refusal::NO_OBJECT);
    };
    let size = match engine_open.completion_queue_size(depth) {
        Ok(size) => size,
        Err(cause) => return refuse(NdkCall::CREATE_CQ, engine_open, cause),
    };
    let home = affinity.get().and_then(home);
    let maker = engine_open.clone();
    let make = move |consumer_object| {
        maker.create_completion_queue(depth, notify, home, consumer_object).map_err(Refusal::from)
    };
    let creation = Creation { call: NdkCall::CREATE_CQ, origin: open.origin, answer };
    creation.run_sized::<CompletionQueueKind>(size, || engine_open.hold(), make)
}

/// NDKPI: NDK_FN_CREATE_PD.
fn create_pd(open: OpenRef<'_>, answer: CreateAnswer<'_, NDK_PD>) -> NTSTATUS {
    let Some((open, engine_open)) = open.both() else {
        return refuse(NdkCall::CREATE_PD, &Nothing, Refusal::NO_OBJECT);
    };
    let make = |consumer_object| engine_open.create_protection_domain(consumer_object).map_err(Refusal::from);
    let creation = Creation { call: NdkCall::CREATE_PD, origin: open.origin, answer };
    creation.run::<ProtectionDomainKind>(|| engine_open.hold(), make)
}

/// NDKPI: NDK_FN_CREATE_SHARED_ENDPOINT.
fn create_shared_endpoint(
    open: OpenRef<'_>,
    address: ConsumerAddress<'_>,
    answer: CreateAnswer<'_, NDK_SHARED_ENDPOINT>,
) -> NTSTATUS {
    let Some((open, engine_open)) = open.both() else {
        return refuse(NdkCall::CREATE_SHARED_ENDPOINT, &Nothing, Refusal::NO_OBJECT);
    };
    let address = match address.get() {
        Ok(address) => address,
        Err(refusal) => return refuse(NdkCall::CREATE_SHARED_ENDPOINT, engine_open, refusal),
    };
    let make = |consumer_object| engine_open.create_shared_endpoint(address, consumer_object).map_err(Refusal::from);
    let creation = Creation { call: NdkCall::CREATE_SHARED_ENDPOINT, origin: open.origin, answer };
    creation.run::<SharedEndpointKind>(|| engine_open.hold(), make)
}

/// NDKPI: NDK_FN_CREATE_CONNECTOR.
fn create_connector(open: OpenRef<'_>, answer: CreateAnswer<'_, NDK_CONNECTOR>) -> NTSTATUS {
    let Some((open, engine_open)) = open.both() else {
        return refuse(NdkCall::CREATE_CONNECTOR, &Nothing, Refusal::NO_OBJECT);
    };
    let make = |consumer_object| engine_open.create_connector(consumer_object).map_err(Refusal::from);
    let creation = Creation { call: NdkCall::CREATE_CONNECTOR, origin: open.origin, answer };
    creation.run::<ConnectorKind>(|| engine_open.hold(), make)
}

/// NDKPI: NDK_FN_CREATE_LISTENER.
fn create_listener(
    open: OpenRef<'_>,
    connect_event: Option<Callback<NDK_FN_CONNECT_EVENT_CALLBACK>>,
    answer: CreateAnswer<'_, NDK_LISTENER>,
) -> NTSTATUS {
    let Some((open, engine_open)) = open.both() else {
        return refuse(NdkCall::CREATE_LISTENER, &Nothing, Refusal::NO_OBJECT);
    };
    let Some(callback) = connect_event else {
        return refuse(NdkCall::CREATE_LISTENER, engine_open, Refusal::NO_CALLBACK);
    };
    let callback =
        ConnectCallback::Consumer(ConsumerListener { callback, open: open.context(), deliver: connector::deliver });
    let make = |consumer_object| engine_open.create_listener(callback, consumer_object).map_err(Refusal::from);
    let creation = Creation { call: NdkCall::CREATE_LISTENER, origin: open.origin, answer };
    creation.run::<ListenerKind>(|| engine_open.hold(), make)
}
