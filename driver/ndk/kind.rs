//! The kinds of NDK objects: a line for each says what differs between them.

use ndkpi_sys::ndkpi::{
    NDK_CONNECTOR, NDK_CQ, NDK_LISTENER, NDK_MR, NDK_MW, NDK_OBJECT_HEADER, NDK_OBJECT_TYPE, NDK_PD, NDK_QP,
    NDK_SHARED_ENDPOINT, NDK_SRQ, NdkObjectTypeConnector, NdkObjectTypeCq, NdkObjectTypeListener, NdkObjectTypeMr,
    NdkObjectTypeMw, NdkObjectTypePd, NdkObjectTypeQp, NdkObjectTypeSharedEndpoint, NdkObjectTypeSrq,
};
use softndk_cells::Erased;
use softndk_engine::{
    Close, CompletionQueue, Connector, Hold, Listener, MemoryRegion, MemoryWindow, ProtectionDomain, QueuePair,
    SharedEndpoint, SharedReceiveQueue,
};
use softndk_kernel::pool::{PoolBox, Tag};

use super::{
    completion_queue, connector,
    consumer_object::{CloseCallback, Object},
    entry::ConsumerRef,
    listener, memory_region, memory_window,
    open::OpenAdapter,
    protection_domain, queue_pair, shared_endpoint, shared_receive_queue,
};
use crate::{
    platform::{KernelPlatform, UserModeObject},
    tags,
};

/// What differs between the kinds of objects.
pub trait Kind: Sized {
    /// What the consumer sees, e.g. NDK_CQ.
    type Visible;
    /// The engine's object.
    type Handle: Clone;

    const TYPE: NDK_OBJECT_TYPE;
    const TAG: Tag;

    /// The visible part with this kind's dispatch table.
    fn visible(header: NDK_OBJECT_HEADER) -> Self::Visible;
    fn consumer_object(object: PoolBox<Object<Self>>) -> ConsumerObject;
    fn close(handle: &Self::Handle, callback: CloseCallback) -> Close<KernelPlatform>;
    /// Keeps the close from completing.
    fn hold(handle: &Self::Handle) -> Hold<KernelPlatform>;
}

/// Kind and what a consumer passes of it: engine's object, visible part (dispatch table), type, tag.
macro_rules! kinds {
    ($($Kind:ident, $Ref:ident: $Handle:ident, $Visible:ident ($module:ident), $TYPE:ident, $TAG:ident;)+) => {
        /// A block of some kind, as the engine keeps it. Dropping it frees it.
        #[expect(dead_code, reason = "the blocks are owned here and reached through the consumers' pointers")]
        pub enum ConsumerObject {
            Open(PoolBox<OpenAdapter>),
            UserMode(Erased<dyn UserModeObject>),
            $($Handle(PoolBox<Object<$Kind>>),)+
        }

        $(
            pub struct $Kind;
            pub type $Ref<'call> = ConsumerRef<'call, Object<$Kind>>;

            impl Kind for $Kind {
                type Visible = $Visible;
                type Handle = $Handle<KernelPlatform>;

                const TYPE: NDK_OBJECT_TYPE = $TYPE;
                const TAG: Tag = tags::$TAG;

                fn visible(header: NDK_OBJECT_HEADER) -> $Visible {
                    $Visible { Header: header, Dispatch: &raw const $module::DISPATCH }
                }

                fn consumer_object(object: PoolBox<Object<Self>>) -> ConsumerObject {
                    ConsumerObject::$Handle(object)
                }

                fn close(handle: &Self::Handle, callback: CloseCallback) -> Close<KernelPlatform> {
                    handle.close(callback)
                }

                fn hold(handle: &Self::Handle) -> Hold<KernelPlatform> {
                    handle.hold()
                }
            }
        )+
    };
}

kinds! {
    CompletionQueueKind, CompletionQueueRef: CompletionQueue, NDK_CQ (completion_queue), NdkObjectTypeCq, COMPLETION_QUEUE;
    ProtectionDomainKind, ProtectionDomainRef: ProtectionDomain, NDK_PD (protection_domain), NdkObjectTypePd, PROTECTION_DOMAIN;
    MemoryRegionKind, MemoryRegionRef: MemoryRegion, NDK_MR (memory_region), NdkObjectTypeMr, MEMORY_REGION;
    MemoryWindowKind, MemoryWindowRef: MemoryWindow, NDK_MW (memory_window), NdkObjectTypeMw, MEMORY_WINDOW;
    SharedReceiveQueueKind, SharedReceiveQueueRef: SharedReceiveQueue, NDK_SRQ (shared_receive_queue), NdkObjectTypeSrq, SHARED_RECEIVE_QUEUE;
    QueuePairKind, QueuePairRef: QueuePair, NDK_QP (queue_pair), NdkObjectTypeQp, QUEUE_PAIR;
    ListenerKind, ListenerRef: Listener, NDK_LISTENER (listener), NdkObjectTypeListener, LISTENER;
    ConnectorKind, ConnectorRef: Connector, NDK_CONNECTOR (connector), NdkObjectTypeConnector, CONNECTOR;
    SharedEndpointKind, SharedEndpointRef: SharedEndpoint, NDK_SHARED_ENDPOINT (shared_endpoint), NdkObjectTypeSharedEndpoint, SHARED_ENDPOINT;
}
