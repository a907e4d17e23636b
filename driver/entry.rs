//! `DriverEntry` and unload: everything that exists once per driver is made and unmade here.

use wdk_sys::{DRIVER_OBJECT, NTSTATUS, PCUNICODE_STRING, STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS};

use softndk_kernel::copy;

use crate::{driver::Driver, miniport, runtime::event};

/// Loads the driver: driver-wide state, then the miniport registration. NDIS calls SetOptions inside it.
///
/// # Safety
/// Called once by the system, at PASSIVE_LEVEL, with the driver object and the registry path of the service.
// SAFETY: the loader looks for this name and nothing else in the image defines it.
#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "system" fn driver_entry(
    driver_object: &mut DRIVER_OBJECT,
    registry_path: PCUNICODE_STRING,
) -> NTSTATUS {
    let Ok(driver) = Driver::publish() else { return STATUS_INSUFFICIENT_RESOURCES };
    copy::choose();
    event::start();
    let object: *mut DRIVER_OBJECT = driver_object;
    let started = driver.engine.start().and_then(|()| miniport::register(object, registry_path, driver, unload));
    match started {
        Ok(()) => STATUS_SUCCESS,
        Err(status) => {
            driver.engine.stop();
            event::stop();
            // SAFETY: the registration failed, so nothing can reach the driver state any more.
            unsafe { Driver::withdraw() };
            status
        }
    }
}

/// The system unloads the driver; every adapter has been halted.
///
/// # Safety
/// Called once by NDIS at PASSIVE_LEVEL as the unload handler of the miniport registration.
pub unsafe extern "C" fn unload(_driver_object: *mut ndkpi_sys::nt::DRIVER_OBJECT) {
    if let Some(driver) = Driver::get() {
        miniport::deregister(driver);
        driver.engine.stop();
    }
    event::stop();
    // SAFETY: no adapter and no registration is left, so no entry point can run any more.
    unsafe { Driver::withdraw() };
}
