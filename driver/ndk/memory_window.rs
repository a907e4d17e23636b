//! The dispatch table of a memory window. Binding and unbinding are work requests: `queue_pair.rs`.

use ndkpi_sys::{
    ndkpi::{NDK_MW, NDK_MW_DISPATCH, NDK_OBJECT_HEADER, NDK_OBJECT_TYPE, NdkObjectTypeMw},
    nt::UINT32,
};
use softndk_engine::{Close, Hold, MemoryWindow};
use softndk_kernel::pool::{PoolBox, Tag};

use super::{
    adapter::query_extension,
    consumer_object::{self, CloseCallback, ConsumerObject, Kind, Object},
};
use crate::{platform::KernelPlatform, tags};

static DISPATCH: NDK_MW_DISPATCH = NDK_MW_DISPATCH {
    NdkCloseMw: consumer_object::close::<MemoryWindowKind>,
    NdkQueryExtension: query_extension,
    NdkGetRemoteTokenFromMw: remote_token,
};

pub struct MemoryWindowKind;

impl Kind for MemoryWindowKind {
    type Visible = NDK_MW;
    type Handle = MemoryWindow<KernelPlatform>;

    const TYPE: NDK_OBJECT_TYPE = NdkObjectTypeMw;
    const TAG: Tag = tags::MEMORY_WINDOW;

    fn visible(header: NDK_OBJECT_HEADER) -> NDK_MW {
        NDK_MW { Header: header, Dispatch: &raw const DISPATCH }
    }

    fn consumer_object(object: PoolBox<Object<Self>>) -> ConsumerObject {
        ConsumerObject::MemoryWindow(object)
    }

    fn close(handle: &Self::Handle, callback: CloseCallback) -> Close<KernelPlatform> {
        handle.close(callback)
    }

    fn hold(handle: &Self::Handle) -> Hold<KernelPlatform> {
        handle.hold()
    }
}

/// NDKPI: NDK_FN_GET_REMOTE_TOKEN_FROM_MW. Of the newest bind, also while that is queued.
unsafe extern "C" fn remote_token(window: *mut NDK_MW) -> UINT32 {
    // SAFETY: the consumer passes a memory window of this provider.
    unsafe { consumer_object::handle::<MemoryWindowKind>(window) }.map_or(0, |window| window.remote_token().0)
}
