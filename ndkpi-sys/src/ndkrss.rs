//! `ndkrss.h`: the one public extension interface of NDK adapters, found with `NdkQueryExtension` on the adapter. A provider
//! may return `STATUS_NOT_SUPPORTED`.

use crate::abi::{abi_fn, layout};
use crate::ndis::{NDIS_RSS_PROCESSOR_INFO, NDIS_STATUS};
use crate::ndkpi::NDK_ADAPTER;
use crate::nt::{GUID, SIZE_T};

/// Names the extension.
pub const NDK_EXTENSION_ID_ADAPTER_RSS_DISPATCH: GUID = GUID::from_u128(0xbab27026_86c3_4e31_9f72_4936ded76d42);

abi_fn! {
    /// Receive side scaling processors of the adapter, IRQL <= DISPATCH_LEVEL. `RssProcessorInfo` may be NULL to ask
    /// for the size.
    pub type NDK_FN_GET_RSS_PROCESSOR_INFO = fn(
        pNdkAdapter: *mut NDK_ADAPTER,
        RssProcessorInfo: *mut NDIS_RSS_PROCESSOR_INFO,
        Size: *mut SIZE_T,
    ) -> NDIS_STATUS;
}

/// Table of the extension.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDK_EXTENSION_ADAPTER_RSS_DISPATCH {
    pub NdkGetRssProcessorInfo: NDK_FN_GET_RSS_PROCESSOR_INFO,
}
layout!(NDK_EXTENSION_ADAPTER_RSS_DISPATCH, size 8, align 8, { NdkGetRssProcessorInfo: 0 });
