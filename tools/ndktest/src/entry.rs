//! `DriverEntry` and unload.

use wdk_sys::{DRIVER_OBJECT, NTSTATUS, PCUNICODE_STRING, STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS};

use softndk_kernel::copy;

use crate::{device::Device, driver::Driver};

/// Loads the driver: its state and threads, the registration with Winsock Kernel, and the device at last.
///
/// # Safety
/// Called once by the system, at PASSIVE_LEVEL, with the driver object and the registry path of the service.
// SAFETY: the loader looks for this name and nothing else in the image defines it.
#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "system" fn driver_entry(
    driver_object: &mut DRIVER_OBJECT,
    _registry_path: PCUNICODE_STRING,
) -> NTSTATUS {
    let Ok(driver) = Driver::publish() else { return STATUS_INSUFFICIENT_RESOURCES };
    copy::choose();
    let started = driver.start().and_then(|()| Device::create(driver_object));
    match started {
        Ok(device) => {
            driver.set_device(device);
            driver_object.DriverUnload = Some(unload);
            STATUS_SUCCESS
        }
        Err(status) => {
            driver.stop();
            // SAFETY: there is no device, so nothing can reach the driver state any more.
            unsafe { Driver::withdraw() };
            status
        }
    }
}

/// The system unloads the driver.
///
/// # Safety
/// Called once at PASSIVE_LEVEL, when no file of the device is open.
unsafe extern "C" fn unload(_driver_object: *mut DRIVER_OBJECT) {
    if let Some(driver) = Driver::get() {
        // No file is open, so no request is under way and no pair is left.
        driver.delete_device();
        driver.stop();
    }
    // SAFETY: no device and no thread is left, so no entry point can run any more.
    unsafe { Driver::withdraw() };
}
