//! Devices of drivers that are not NDIS's: `IoCreateDevice` and symbolic links.
//!
//! Such a device is in its driver's list, is served by the driver object's table, and cannot be opened before
//! DO_DEVICE_INITIALIZING is cleared, which the I/O manager does for what DriverEntry made. Devices and links that are still
//! there when their driver is unloaded are leaks.

use std::ffi::c_void;

use super::device::{
    self, CreateError, DO_DEVICE_HAS_NAME, DO_DEVICE_INITIALIZING, DO_EXCLUSIVE, Device, DeviceDescription, Dispatch,
};
use super::links;
use super::object::DEVICE_OBJECT;
use super::security::SecurityDescriptor;
use crate::bugcheck::{BugCheck, bugcheck};
use crate::fault;
use crate::ledger;
use crate::ndis::configuration::text_of;
use crate::nt::{DRIVER_OBJECT, UNICODE_STRING};
use crate::ntoskrnl::tracing;
use crate::status::{self, NtStatus};

/// The kinds under which they are recorded.
const DEVICE: &str = "device object";
const LINK: &str = "symbolic link";

/// The access rights of a device without a descriptor: every user may read and write.
const DEFAULT_SECURITY: &str = "D:P(A;;GA;;;SY)(A;;GA;;;BA)(A;;GRGWGX;;;WD)";

fn wrong(address: usize, rule: &str) -> ! {
    bugcheck(BugCheck::DRIVER_VERIFIER_IOMANAGER_VIOLATION, [0, address as u64, 0, 0], rule)
}

/// What DriverEntry made may be opened from now on.
pub fn after_driver_entry(driver: *mut DRIVER_OBJECT) {
    // SAFETY: the driver object that the host made, and the devices that hang in its list.
    unsafe {
        let mut next = (*driver).DeviceObject.cast::<DEVICE_OBJECT>();
        while !next.is_null() {
            (*next).Flags &= !DO_DEVICE_INITIALIZING;
            if let Some(device) = device::of_object(next.cast()) {
                device.check_flags();
            }
            next = (*next).NextDevice;
        }
    }
}

/// Inserts a device into its driver's list.
///
/// # Safety
///
/// Both are valid; a driver serializes its own lists, as in Windows.
unsafe fn enlist(driver: *mut DRIVER_OBJECT, object: *mut DEVICE_OBJECT) {
    // SAFETY: the caller's contract.
    unsafe {
        (*object).NextDevice = (*driver).DeviceObject.cast();
        (*driver).DeviceObject = object.cast();
    }
}

/// Takes a device out of its driver's list.
///
/// # Safety
///
/// As [`enlist`].
unsafe fn delist(driver: *mut DRIVER_OBJECT, object: *mut DEVICE_OBJECT) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut place = (&raw mut (*driver).DeviceObject).cast::<*mut DEVICE_OBJECT>();
        while !(*place).is_null() && *place != object {
            place = &raw mut (**place).NextDevice;
        }
        if *place == object {
            *place = (*object).NextDevice;
        }
    }
}

fn create(driver: *mut DRIVER_OBJECT, description: DeviceDescription) -> Result<*mut DEVICE_OBJECT, NtStatus> {
    let detail = description.name.clone();
    let device = Device::create(description).map_err(|problem| match problem {
        CreateError::NameTaken | CreateError::LinkTaken => status::STATUS_OBJECT_NAME_COLLISION,
    })?;
    // SAFETY: the driver's object and the new device.
    unsafe { enlist(driver, device.object()) };
    ledger::record(DEVICE, device.object() as usize, detail);
    Ok(device.object())
}

/// The counted string of an argument; a NULL or broken one is the driver's error.
fn text(function: &str, argument: *const UNICODE_STRING) -> String {
    text_of(argument.cast())
        .unwrap_or_else(|| wrong(argument as usize, &format!("{function}: a name that is no counted string")))
}

crate::exports! {
    module "ntoskrnl.exe";

    /// Makes a device object with an extension of zeroes, served by the driver object's routines. Every user may
    /// open it; DO_DEVICE_INITIALIZING is cleared when DriverEntry returns, and by the driver for later devices.
    /// Checks: a driver object that is not NDIS's; a name that is a counted string below \Device; can be made to fail; deleted
    /// before the driver is unloaded
    /// Source: WDM: IoCreateDevice
    [UP_TO_APC] fn IoCreateDevice(
        driver: *mut DRIVER_OBJECT, extension: u32, name: *const UNICODE_STRING, kind: u32, characteristics: u32,
        exclusive: u8, made: *mut *mut DEVICE_OBJECT,
    ) -> NtStatus {
        if driver.is_null() || made.is_null() {
            wrong(driver as usize, "IoCreateDevice: a required pointer is NULL");
        }
        if crate::ndis::registration::driver_of(driver as usize).is_some() {
            wrong(driver as usize, "IoCreateDevice by a miniport driver, whose driver object is NDIS's: NdisRegisterDeviceEx is for it");
        }
        let name = if name.is_null() { String::new() } else { text("IoCreateDevice", name) };
        if !name.is_empty() && !name.to_lowercase().starts_with(r"\device\") {
            return status::STATUS_OBJECT_NAME_NOT_FOUND;
        }
        let Some(security) = SecurityDescriptor::parse(DEFAULT_SECURITY).filter(|_| !fault::should_fail("IoCreateDevice"))
        else {
            return status::STATUS_INSUFFICIENT_RESOURCES;
        };
        let named = if name.is_empty() { 0 } else { DO_DEVICE_HAS_NAME };
        let alone = if exclusive == 0 { 0 } else { DO_EXCLUSIVE };
        let description = DeviceDescription {
            name,
            symbolic_link: None,
            driver_object: driver as usize,
            dispatch: Dispatch::OfDriver,
            extension_size: extension as usize,
            security,
            kind,
            flags: DO_DEVICE_INITIALIZING | named | alone,
            characteristics,
        };
        match create(driver, description) {
            Ok(object) => {
                // SAFETY: the caller's out parameter.
                unsafe { made.write(object) };
                status::STATUS_SUCCESS
            }
            Err(problem) => problem,
        }
    }

    /// Deletes a device object; files that are open on it keep it until they are closed.
    /// Checks: a device of IoCreateDevice, deleted once, not registered with WMI
    /// Source: WDM: IoDeleteDevice
    [UP_TO_APC] fn IoDeleteDevice(object: *mut DEVICE_OBJECT) {
        let Some(device) = device::of_object(object.cast::<c_void>()).filter(|_| ledger::release(DEVICE, object as usize).is_some())
        else {
            wrong(object as usize, "IoDeleteDevice: no device of IoCreateDevice, or one that was deleted before");
        };
        if ledger::holds(tracing::KIND_WMI, object as usize) {
            bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, [0xDB, object as u64, 0, 0],
                "IoDeleteDevice is given a device that is registered with WMI");
        }
        // SAFETY: a live device in its driver's list.
        unsafe { delist(device.description.driver_object as *mut DRIVER_OBJECT, object) };
        device.delete();
    }

    /// Makes a symbolic link; what it leads to need not be there.
    /// Checks: counted strings; can be made to fail; deleted before the driver is unloaded
    /// Source: WDM: IoCreateSymbolicLink
    [PASSIVE_ONLY] fn IoCreateSymbolicLink(link: *const UNICODE_STRING, target: *const UNICODE_STRING) -> NtStatus {
        let (link, target) = (text("IoCreateSymbolicLink", link), text("IoCreateSymbolicLink", target));
        if fault::should_fail("IoCreateSymbolicLink") {
            return status::STATUS_INSUFFICIENT_RESOURCES;
        }
        let Some(number) = links::add(&link, &target) else { return status::STATUS_OBJECT_NAME_COLLISION };
        ledger::record(LINK, number, link);
        status::STATUS_SUCCESS
    }

    /// Deletes a symbolic link; files that were opened through it stay.
    /// Source: WDM: IoDeleteSymbolicLink
    [PASSIVE_ONLY] fn IoDeleteSymbolicLink(link: *const UNICODE_STRING) -> NtStatus {
        match links::remove(&text("IoDeleteSymbolicLink", link)) {
            Some(number) => {
                ledger::release(LINK, number);
                status::STATUS_SUCCESS
            }
            None => status::STATUS_OBJECT_NAME_NOT_FOUND,
        }
    }
}
