//! Extensions of the dispatch tables: none is offered.

use ndkpi_sys::{
    ndkinfo::NDK_VERSION,
    ndkpi::{NDK_EXTENSION_INTERFACE, NDK_OBJECT_HEADER},
    nt::{GUID, NTSTATUS},
};
use softndk_ioctl::NdkCall;

use crate::runtime::refusal::{Nothing, Refusal, refuse};

/// NDKPI: NDK_FN_QUERY_EXTENSION_INTERFACE, for every object type. No extension is offered.
pub unsafe extern "C" fn query_extension(
    _object: *mut NDK_OBJECT_HEADER,
    _id: *mut GUID,
    _version: NDK_VERSION,
    _interface: *mut NDK_EXTENSION_INTERFACE,
) -> NTSTATUS {
    refuse(NdkCall::QUERY_EXTENSION, &Nothing, Refusal::NO_EXTENSION)
}
