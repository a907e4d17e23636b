//! The consumer-visible part of every NDK object: a header and a pointer to a constant dispatch table.
//!
//! After creation the object is shared with foreign code: the provider neither writes `NdkReserved` nor reads
//! `Dispatch` until the object is closed, because a mediation layer between consumer and provider uses both.

use super::dispatch::{
    NDK_ADAPTER_DISPATCH, NDK_CONNECTOR_DISPATCH, NDK_CQ_DISPATCH, NDK_LISTENER_DISPATCH, NDK_MR_DISPATCH,
    NDK_MW_DISPATCH, NDK_PD_DISPATCH, NDK_QP_DISPATCH, NDK_SHARED_ENDPOINT_DISPATCH, NDK_SRQ_DISPATCH,
};
use crate::abi::{layout, open_enum, zeroed};
use crate::ndkinfo::NDK_VERSION;
use crate::nt::PVOID;

open_enum! {
    /// What an NDK object is.
    pub enum NDK_OBJECT_TYPE {
        NdkObjectTypeUndefined = 0,
        NdkObjectTypeAdapter = 1,
        NdkObjectTypeQp = 2,
        NdkObjectTypeCq = 3,
        NdkObjectTypeMr = 4,
        NdkObjectTypeMw = 5,
        NdkObjectTypePd = 6,
        NdkObjectTypeSharedEndpoint = 7,
        NdkObjectTypeConnector = 8,
        NdkObjectTypeListener = 9,
        NdkObjectTypeSrq = 10,
        NdkObjectTypeMax = 11,
    }
}

/// Words that belong to the layer above the provider.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDK_OBJECT_HEADER_RESERVED_BLOCK {
    pub rf: [PVOID; 4],
}
layout!(NDK_OBJECT_HEADER_RESERVED_BLOCK, size 32, align 8, { rf: 0 });

/// First member of every NDK object.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDK_OBJECT_HEADER {
    /// The version in force for the adapter that the object belongs to.
    pub Version: NDK_VERSION,
    pub ObjectType: NDK_OBJECT_TYPE,
    /// Zeroed at creation, then not the provider's.
    pub NdkReserved: NDK_OBJECT_HEADER_RESERVED_BLOCK,
}
layout!(NDK_OBJECT_HEADER, size 40, align 8, { Version: 0, ObjectType: 4, NdkReserved: 8 });

zeroed!(NDK_OBJECT_HEADER_RESERVED_BLOCK, NDK_OBJECT_HEADER);

impl NDK_OBJECT_HEADER {
    /// The header of a new object.
    #[must_use]
    pub const fn new(Version: NDK_VERSION, ObjectType: NDK_OBJECT_TYPE) -> Self {
        Self { Version, ObjectType, NdkReserved: NDK_OBJECT_HEADER_RESERVED_BLOCK::zeroed() }
    }
}

macro_rules! objects {
    ($( $(#[$meta:meta])* $Object:ident, $Dispatch:ident; )*) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $Object {
            pub Header: NDK_OBJECT_HEADER,
            pub Dispatch: *const $Dispatch,
        }
        layout!($Object, size 48, align 8, { Header: 0, Dispatch: 40 });
    )*};
}

objects! {
    /// An open adapter. It has no close function: it is closed through the layer that opened it.
    NDK_ADAPTER, NDK_ADAPTER_DISPATCH;
    /// A completion queue.
    NDK_CQ, NDK_CQ_DISPATCH;
    /// A protection domain.
    NDK_PD, NDK_PD_DISPATCH;
    /// A memory region.
    NDK_MR, NDK_MR_DISPATCH;
    /// A memory window.
    NDK_MW, NDK_MW_DISPATCH;
    /// A shared receive queue.
    NDK_SRQ, NDK_SRQ_DISPATCH;
    /// A queue pair.
    NDK_QP, NDK_QP_DISPATCH;
    /// A connector: one connection, attempted or established.
    NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH;
    /// A listener.
    NDK_LISTENER, NDK_LISTENER_DISPATCH;
    /// A local endpoint that several connectors share.
    NDK_SHARED_ENDPOINT, NDK_SHARED_ENDPOINT_DISPATCH;
}

/// Output of `NdkQueryExtension`: the table of an extension, of a type that the extension's GUID names.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDK_EXTENSION_INTERFACE {
    pub Dispatch: *const core::ffi::c_void,
}
layout!(NDK_EXTENSION_INTERFACE, size 8, align 8, { Dispatch: 0 });
zeroed!(NDK_EXTENSION_INTERFACE);

#[cfg(test)]
mod tests {
    extern crate std;

    use std::format;

    use super::*;

    #[test]
    fn an_unknown_object_type_stays_a_number() {
        assert_eq!(format!("{NdkObjectTypeSrq:?}"), "NdkObjectTypeSrq");
        assert_eq!(format!("{:?}", NDK_OBJECT_TYPE(-7)), "NDK_OBJECT_TYPE(-7)");
        assert_ne!(NDK_OBJECT_TYPE(12), NdkObjectTypeMax);
    }
}
