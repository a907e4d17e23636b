//! OpenNDKAdapter and CloseNDKAdapter: how NDIS lets consumers in.

use core::{cell::UnsafeCell, ptr::NonNull};

use ndkpi_sys::{
    ndis::{
        NDIS_HANDLE, NDIS_STATUS, NDIS_STATUS_ADAPTER_NOT_READY, NDIS_STATUS_BAD_VERSION, NDIS_STATUS_FAILURE,
        NDIS_STATUS_INVALID_PARAMETER, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS,
    },
    ndisndk::NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
    ndkinfo::NDK_VERSION,
    ndkpi::{NDK_ADAPTER, NDK_OBJECT_HEADER, NdkObjectTypeAdapter},
};

use super::adapter;
use crate::{
    adapter::Adapter,
    kernel::{
        pool::{OutOfMemory, PoolBox, tags},
        rundown::Rundown,
    },
    version,
};

/// One open of the adapter. The consumer sees the first member; `Dispatch` and `NdkReserved` in it are not ours after
/// creation.
#[repr(C)]
pub struct OpenAdapter {
    object: UnsafeCell<NDK_ADAPTER>,
    pub version: NDK_VERSION,
    adapter: NonNull<Adapter>,
    /// One reference per object made from this open, given back after the object's last callback returned.
    pub descendants: Rundown,
}

// SAFETY: the adapter outlives its opens and the object part is written by its consumers only.
unsafe impl Send for OpenAdapter {}
// SAFETY: as above.
unsafe impl Sync for OpenAdapter {}

impl OpenAdapter {
    fn try_new(adapter: &Adapter, version: NDK_VERSION) -> Result<PoolBox<Self>, OutOfMemory> {
        let object = NDK_ADAPTER {
            Header: NDK_OBJECT_HEADER::new(version, NdkObjectTypeAdapter),
            Dispatch: &raw const adapter::DISPATCH,
        };
        let open = Self {
            object: UnsafeCell::new(object),
            version,
            adapter: NonNull::from(adapter),
            descendants: Rundown::try_open()?,
        };
        PoolBox::try_new(tags::NDK_ADAPTER, open)
    }

    /// The open behind the object a consumer passes.
    ///
    /// # Safety
    /// `object` is null or came from [`open_adapter`] and is not closed yet.
    pub unsafe fn from_object<'a>(object: *mut NDK_ADAPTER) -> Option<&'a Self> {
        // SAFETY: the object is the first member of the open (the caller's promise).
        unsafe { object.cast::<Self>().as_ref() }
    }

    pub fn adapter(&self) -> &Adapter {
        // SAFETY: the open holds a reference on the provider, so the adapter is alive.
        unsafe { self.adapter.as_ref() }
    }
}

/// NDKPI: OPEN_NDK_ADAPTER_HANDLER. PASSIVE_LEVEL.
///
/// # Safety
/// NDIS passes the context of an initialised adapter, parameters valid for the call and a place for the result.
pub unsafe extern "C" fn open_adapter(
    context: NDIS_HANDLE,
    parameters: *mut NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
    result: *mut *mut NDK_ADAPTER,
) -> NDIS_STATUS {
    // SAFETY: NDIS passes our context while the adapter is initialised.
    let Some(adapter) = (unsafe { Adapter::from_context(context) }) else { return NDIS_STATUS_FAILURE };
    // SAFETY: the parameters are valid for the call.
    let Some(parameters) = (unsafe { parameters.as_ref() }) else { return NDIS_STATUS_INVALID_PARAMETER };
    let open = match open(adapter, parameters.Version) {
        Ok(open) => open,
        Err(status) => return status,
    };
    // SAFETY: NDIS gave a place for the result.
    unsafe { result.write(open.into_raw().as_ptr().cast()) };
    NDIS_STATUS_SUCCESS
}

/// Opens the adapter with a version that satisfies `wanted`.
pub fn open(adapter: &Adapter, wanted: NDK_VERSION) -> Result<PoolBox<OpenAdapter>, NDIS_STATUS> {
    let version = version::negotiate(wanted).ok_or(NDIS_STATUS_BAD_VERSION)?;
    if !adapter.provider.opening() {
        return Err(NDIS_STATUS_ADAPTER_NOT_READY);
    }
    OpenAdapter::try_new(adapter, version).map_err(|OutOfMemory| {
        adapter.provider.closed();
        NDIS_STATUS_RESOURCES
    })
}

/// NDKPI: CLOSE_NDK_ADAPTER_HANDLER. PASSIVE_LEVEL; blocks until every descendant is closed and every callback of theirs
/// has returned.
///
/// # Safety
/// NDIS passes the context of an initialised adapter and an object from [`open_adapter`], once.
pub unsafe extern "C" fn close_adapter(context: NDIS_HANDLE, object: *mut NDK_ADAPTER) {
    // SAFETY: NDIS passes our context while the adapter is initialised.
    let Some(adapter) = (unsafe { Adapter::from_context(context) }) else { return };
    if let Some(block) = NonNull::new(object.cast::<OpenAdapter>()) {
        // SAFETY: the object is the first member of the block that `open_adapter` gave away.
        close(adapter, unsafe { PoolBox::from_raw(tags::NDK_ADAPTER, block) });
    }
}

/// Waits for the descendants and frees the open.
pub fn close(adapter: &Adapter, open: PoolBox<OpenAdapter>) {
    open.descendants.shut();
    drop(open);
    adapter.provider.closed();
}
