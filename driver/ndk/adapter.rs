//! The dispatch table of an open adapter.

use core::mem::size_of;

use ndkpi_sys::{
    ndkinfo::{NDK_ADAPTER_INFO, NDK_VERSION},
    ndkpi::{
        NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NDK_CONNECTOR, NDK_CQ, NDK_EXTENSION_INTERFACE,
        NDK_FN_CONNECT_EVENT_CALLBACK, NDK_FN_CQ_NOTIFICATION_CALLBACK, NDK_FN_CREATE_COMPLETION, NDK_LISTENER,
        NDK_OBJECT_HEADER, NDK_PD, NDK_SHARED_ENDPOINT,
    },
    nt::{GROUP_AFFINITY, GUID, NTSTATUS, PVOID, SOCKADDR, STATUS_SUCCESS, ULONG},
};
use softndk_engine::Open;
use softndk_ioctl::NdkCall;
use softndk_kernel::irql;

use super::{
    completion_queue::CompletionQueueKind, connector::ConnectorKind, consumer_object::Creation, limits,
    listener::ListenerKind, logical_mapping, open::OpenAdapter, protection_domain::ProtectionDomainKind,
    shared_endpoint::SharedEndpointKind, socket,
};
use crate::{
    platform::{Callback, ConnectCallback, KernelPlatform, OpenPointer},
    refusal::{Nothing, Refusal, refuse},
};

/// The table every open adapter points to.
pub static DISPATCH: NDK_ADAPTER_DISPATCH = NDK_ADAPTER_DISPATCH {
    NdkQueryExtension: query_extension,
    NdkQueryAdapterInfo: query_adapter_info,
    NdkCreateCq: create_cq,
    NdkCreatePd: create_pd,
    NdkCreateSharedEndpoint: create_shared_endpoint,
    NdkCreateConnector: create_connector,
    NdkCreateListener: create_listener,
    NdkBuildLAM: logical_mapping::build,
    NdkReleaseLAM: logical_mapping::release,
};

/// NDKPI: NDK_FN_QUERY_EXTENSION_INTERFACE, for every object type. No extension is offered.
pub unsafe extern "C" fn query_extension(
    _object: *mut NDK_OBJECT_HEADER,
    _id: *mut GUID,
    _version: NDK_VERSION,
    _interface: *mut NDK_EXTENSION_INTERFACE,
) -> NTSTATUS {
    refuse(NdkCall::QUERY_EXTENSION, &Nothing, Refusal::NO_EXTENSION)
}

/// The open and its engine part behind what a consumer passes.
///
/// # Safety
/// `adapter` is null or an adapter that was opened and is not closed yet.
unsafe fn find<'a>(adapter: *mut NDK_ADAPTER) -> Option<(&'a OpenAdapter, &'a Open<KernelPlatform>)> {
    // SAFETY: the caller's promise.
    let open = unsafe { OpenAdapter::from_object(adapter) }?;
    Some((open, open.engine_open()?))
}

/// NDKPI: NDK_FN_QUERY_ADAPTER_INFO. PASSIVE_LEVEL.
unsafe extern "C" fn query_adapter_info(
    adapter: *mut NDK_ADAPTER,
    information: *mut NDK_ADAPTER_INFO,
    size: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer passes an adapter that it opened.
    let Some((open, engine_open)) = (unsafe { find(adapter) }) else {
        return refuse(NdkCall::QUERY_ADAPTER_INFO, &Nothing, Refusal::NO_OBJECT);
    };
    // SAFETY: the consumer passes a place that holds its buffer's size.
    let Some(size) = (unsafe { size.as_mut() }) else {
        return refuse(NdkCall::QUERY_ADAPTER_INFO, engine_open, Refusal::NO_LENGTH);
    };
    let needed = information_size(open.origin.version);
    let capacity = core::mem::replace(size, needed as ULONG) as usize;
    if information.is_null() || capacity < needed {
        return refuse(NdkCall::QUERY_ADAPTER_INFO, engine_open, Refusal::SMALL_BUFFER);
    }
    let answer = limits::adapter_information(open.origin.version, &open.adapter().configuration);
    let answer: *const NDK_ADAPTER_INFO = &raw const answer;
    // SAFETY: the consumer's buffer holds `capacity >= needed` bytes, and `needed` is at most the size of the structure.
    unsafe { information.cast::<u8>().copy_from_nonoverlapping(answer.cast(), needed) };
    STATUS_SUCCESS
}

/// The 1.x layout ends before `RdmaTechnology`.
fn information_size(version: NDK_VERSION) -> usize {
    if version.Major < 2 { ndkpi_sys::ndkinfo::NDK_ADAPTER_INFO_SIZE_1 } else { size_of::<NDK_ADAPTER_INFO>() }
}

/// NDKPI: NDK_FN_CREATE_CQ. A deep queue is allocated by the mapper's thread. Some consumers pass no notification callback:
/// then none is made.
unsafe extern "C" fn create_cq(
    adapter: *mut NDK_ADAPTER,
    depth: ULONG,
    notification: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
    notification_context: PVOID,
    affinity: *mut GROUP_AFFINITY,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: PVOID,
    result: *mut *mut NDK_CQ,
) -> NTSTATUS {
    // SAFETY: the consumer passes an adapter that it opened.
    let Some((open, engine_open)) = (unsafe { find(adapter) }) else {
        return refuse(NdkCall::CREATE_CQ, &Nothing, Refusal::NO_OBJECT);
    };
    let size = match engine_open.completion_queue_size(depth) {
        Ok(size) => size,
        Err(cause) => return refuse(NdkCall::CREATE_CQ, engine_open, cause),
    };
    let notify = notification.map(|function| Callback::new(function, notification_context));
    // SAFETY: null, or the consumer's affinity for the length of the call.
    let home = unsafe { affinity.as_ref() }.and_then(home);
    let maker = engine_open.clone();
    let make = move |consumer_object| {
        maker.create_completion_queue(depth, notify, home, consumer_object).map_err(Refusal::from)
    };
    let creation = Creation { call: NdkCall::CREATE_CQ, origin: open.origin, completion, context, result };
    // SAFETY: the consumer's arguments.
    unsafe { creation.run_sized::<CompletionQueueKind>(size, || engine_open.hold(), make) }
}

/// The first processor a consumer prefers, if there is one.
pub fn home(affinity: &GROUP_AFFINITY) -> Option<u32> {
    let first = u8::try_from(affinity.Mask.trailing_zeros()).ok()?;
    if affinity.Mask == 0 { None } else { irql::processor_index(affinity.Group, first) }
}

/// NDKPI: NDK_FN_CREATE_PD.
unsafe extern "C" fn create_pd(
    adapter: *mut NDK_ADAPTER,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: PVOID,
    result: *mut *mut NDK_PD,
) -> NTSTATUS {
    // SAFETY: the consumer passes an adapter that it opened.
    let Some((open, engine_open)) = (unsafe { find(adapter) }) else {
        return refuse(NdkCall::CREATE_PD, &Nothing, Refusal::NO_OBJECT);
    };
    let make = |consumer_object| engine_open.create_protection_domain(consumer_object).map_err(Refusal::from);
    let creation = Creation { call: NdkCall::CREATE_PD, origin: open.origin, completion, context, result };
    // SAFETY: the consumer's arguments.
    unsafe { creation.run::<ProtectionDomainKind>(|| engine_open.hold(), make) }
}

/// NDKPI: NDK_FN_CREATE_SHARED_ENDPOINT.
unsafe extern "C" fn create_shared_endpoint(
    adapter: *mut NDK_ADAPTER,
    address: *const SOCKADDR,
    address_length: ULONG,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: PVOID,
    result: *mut *mut NDK_SHARED_ENDPOINT,
) -> NTSTATUS {
    // SAFETY: the consumer passes an adapter that it opened.
    let Some((open, engine_open)) = (unsafe { find(adapter) }) else {
        return refuse(NdkCall::CREATE_SHARED_ENDPOINT, &Nothing, Refusal::NO_OBJECT);
    };
    // SAFETY: the consumer's address for the length of the call.
    let address = match unsafe { socket::read(address, address_length) } {
        Ok(address) => address,
        Err(refusal) => return refuse(NdkCall::CREATE_SHARED_ENDPOINT, engine_open, refusal),
    };
    let make = |consumer_object| engine_open.create_shared_endpoint(address, consumer_object).map_err(Refusal::from);
    let creation = Creation { call: NdkCall::CREATE_SHARED_ENDPOINT, origin: open.origin, completion, context, result };
    // SAFETY: the consumer's arguments.
    unsafe { creation.run::<SharedEndpointKind>(|| engine_open.hold(), make) }
}

/// NDKPI: NDK_FN_CREATE_CONNECTOR.
unsafe extern "C" fn create_connector(
    adapter: *mut NDK_ADAPTER,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: PVOID,
    result: *mut *mut NDK_CONNECTOR,
) -> NTSTATUS {
    // SAFETY: the consumer passes an adapter that it opened.
    let Some((open, engine_open)) = (unsafe { find(adapter) }) else {
        return refuse(NdkCall::CREATE_CONNECTOR, &Nothing, Refusal::NO_OBJECT);
    };
    let make = |consumer_object| engine_open.create_connector(consumer_object).map_err(Refusal::from);
    let creation = Creation { call: NdkCall::CREATE_CONNECTOR, origin: open.origin, completion, context, result };
    // SAFETY: the consumer's arguments.
    unsafe { creation.run::<ConnectorKind>(|| engine_open.hold(), make) }
}

/// NDKPI: NDK_FN_CREATE_LISTENER.
unsafe extern "C" fn create_listener(
    adapter: *mut NDK_ADAPTER,
    connect_event: Option<NDK_FN_CONNECT_EVENT_CALLBACK>,
    connect_event_context: PVOID,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: PVOID,
    result: *mut *mut NDK_LISTENER,
) -> NTSTATUS {
    // SAFETY: the consumer passes an adapter that it opened.
    let Some((open, engine_open)) = (unsafe { find(adapter) }) else {
        return refuse(NdkCall::CREATE_LISTENER, &Nothing, Refusal::NO_OBJECT);
    };
    let Some(function) = connect_event else {
        return refuse(NdkCall::CREATE_LISTENER, engine_open, Refusal::NO_CALLBACK);
    };
    let callback = ConnectCallback {
        callback: Callback::new(function, connect_event_context),
        open: OpenPointer(core::ptr::from_ref(open)),
    };
    let make = |consumer_object| engine_open.create_listener(callback, consumer_object).map_err(Refusal::from);
    let creation = Creation { call: NdkCall::CREATE_LISTENER, origin: open.origin, completion, context, result };
    // SAFETY: the consumer's arguments.
    unsafe { creation.run::<ListenerKind>(|| engine_open.hold(), make) }
}
