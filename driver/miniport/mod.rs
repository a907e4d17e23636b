//! The NDIS miniport: registration, one file per group of entry points.
//!
//! NDK traffic is not governed by pause and restart; only disabling NDK and removal end it.

pub mod characteristics;
pub mod data_path;
pub mod halt;
pub mod initialize;
pub mod ndk;
pub mod oid;
pub mod state;

use core::ptr;

use ndkpi_sys::ndis::{
    MINIPORT_DRIVER_UNLOAD, NDIS_HANDLE, NDIS_PACKET_TYPES, NDIS_STATUS_SUCCESS, NdisMDeregisterMiniportDriver,
    NdisMRegisterMiniportDriver,
};
use wdk_sys::{DRIVER_OBJECT, NTSTATUS, PCUNICODE_STRING};

use crate::driver::Driver;

/// The packet filter bits this miniport supports.
pub const SUPPORTED_PACKET_FILTERS: NDIS_PACKET_TYPES = NDIS_PACKET_TYPES::DIRECTED
    .union(NDIS_PACKET_TYPES::MULTICAST)
    .union(NDIS_PACKET_TYPES::ALL_MULTICAST)
    .union(NDIS_PACKET_TYPES::BROADCAST)
    .union(NDIS_PACKET_TYPES::PROMISCUOUS);

/// Registers the miniport driver; NDIS calls SetOptions inside. PASSIVE_LEVEL, from DriverEntry.
pub fn register(
    driver_object: *mut DRIVER_OBJECT,
    registry_path: PCUNICODE_STRING,
    driver: &'static Driver,
    unload: MINIPORT_DRIVER_UNLOAD,
) -> Result<(), NTSTATUS> {
    let mut characteristics = characteristics::miniport(unload);
    let mut handle: NDIS_HANDLE = ptr::null_mut();
    // SAFETY: PASSIVE_LEVEL in DriverEntry; driver object and registry path are the system's; NDIS copies the
    // characteristics, which are complete, and stores the handle.
    let status = unsafe {
        NdisMRegisterMiniportDriver(
            driver_object.cast(),
            registry_path.cast_mut().cast(),
            ptr::null_mut(),
            &raw mut characteristics,
            &raw mut handle,
        )
    };
    if status != NDIS_STATUS_SUCCESS {
        return Err(status);
    }
    driver.set_registration(handle);
    Ok(())
}

/// Deregisters the miniport driver. PASSIVE_LEVEL, from the unload handler.
pub fn deregister(driver: &Driver) {
    let handle = driver.registration();
    if !handle.is_null() {
        // SAFETY: the handle of a registration that is still in force, given back once.
        unsafe { NdisMDeregisterMiniportDriver(handle) };
        driver.set_registration(ptr::null_mut());
    }
}
