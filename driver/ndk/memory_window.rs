//! The dispatch table of a memory window. Binding and unbinding are work requests: `queue_pair.rs`.

use ndkpi_sys::{
    ndkpi::{NDK_MW, NDK_MW_DISPATCH},
    nt::UINT32,
};

use super::{consumer_object, entry::entry, extension::query_extension, kind::kind};

kind!(MemoryWindowKind, MemoryWindowRef: MemoryWindow, NDK_MW, NdkObjectTypeMw, MEMORY_WINDOW);

pub static DISPATCH: NDK_MW_DISPATCH = NDK_MW_DISPATCH {
    NdkCloseMw: consumer_object::close::<MemoryWindowKind>,
    NdkQueryExtension: query_extension,
    NdkGetRemoteTokenFromMw: entry!(remote_token(*mut NDK_MW) -> UINT32),
};

/// NDKPI: NDK_FN_GET_REMOTE_TOKEN_FROM_MW. Of the newest bind, also while that is queued.
fn remote_token(window: MemoryWindowRef<'_>) -> UINT32 {
    window.get().map_or(0, |window| window.remote_token().0)
}
