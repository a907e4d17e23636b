//! OpenNDKAdapter and CloseNDKAdapter: how NDIS opens and closes the provider for consumers.

use ndkpi_sys::{
    ndis::{NDIS_HANDLE, NDIS_STATUS, NDIS_STATUS_FAILURE, NDIS_STATUS_SUCCESS},
    ndisndk::NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
    ndkpi::NDK_ADAPTER,
};
use softndk_ioctl::{NdkCall, RefusalCause};

use crate::{
    adapter::Adapter,
    ndk,
    runtime::refusal::{Nothing, Refusal, refuse},
};

/// NDKPI: OPEN_NDK_ADAPTER_HANDLER. PASSIVE_LEVEL.
///
/// # Safety
/// NDIS passes the context of an initialised adapter, parameters valid for the call and a place for the result.
pub unsafe extern "C" fn open(
    context: NDIS_HANDLE,
    parameters: *mut NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
    result: *mut *mut NDK_ADAPTER,
) -> NDIS_STATUS {
    // SAFETY: NDIS passes the driver's context while the adapter is initialised.
    let Some(adapter) = (unsafe { Adapter::from_context(context) }) else {
        let refusal = Refusal::new(RefusalCause::NO_OBJECT, NDIS_STATUS_FAILURE);
        return refuse(NdkCall::OPEN_ADAPTER, &Nothing, refusal);
    };
    // SAFETY: the parameters are valid for the call.
    let Some(parameters) = (unsafe { parameters.as_ref() }) else {
        return refuse(NdkCall::OPEN_ADAPTER, &Nothing, Refusal::NO_OBJECT);
    };
    let open = match ndk::open::open(&adapter.provider, parameters.Version) {
        Ok(open) => open,
        Err(refusal) => return refuse(NdkCall::OPEN_ADAPTER, &Nothing, refusal),
    };
    // SAFETY: NDIS gave a place for the result.
    unsafe { result.write(open) };
    NDIS_STATUS_SUCCESS
}

/// NDKPI: CLOSE_NDK_ADAPTER_HANDLER. PASSIVE_LEVEL; blocks until every descendant is closed and every callback of theirs
/// has returned.
///
/// # Safety
/// NDIS passes the context of an initialised adapter and an object from [`open`], once.
pub unsafe extern "C" fn close(context: NDIS_HANDLE, object: *mut NDK_ADAPTER) {
    // SAFETY: NDIS passes the driver's context while the adapter is initialised.
    let Some(adapter) = (unsafe { Adapter::from_context(context) }) else { return };
    // SAFETY: an object from `open`, closed once.
    unsafe { ndk::open::close(&adapter.provider, object) };
}
