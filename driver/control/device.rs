//! The device object: registered with the first adapter, removed with the last.
//!
//! NDIS owns the driver object, so the device comes from NdisRegisterDeviceEx and its IRPs arrive at the driver's own table.
//! Access is for SYSTEM and administrators; the codes demand read and write access on top.

use core::{ffi::c_void, mem::size_of_val, ptr};

use ndkpi_sys::{
    ndis::{
        NDIS_DEVICE_OBJECT_ATTRIBUTES, NDIS_DEVICE_OBJECT_ATTRIBUTES_REVISION_1, NDIS_HANDLE, NDIS_OBJECT_HEADER,
        NDIS_OBJECT_TYPE_DEVICE_OBJECT_ATTRIBUTES, NDIS_SIZEOF_DEVICE_OBJECT_ATTRIBUTES_REVISION_1, NDIS_STATUS,
        NDIS_STATUS_SUCCESS, NdisDeregisterDeviceEx, NdisRegisterDeviceEx,
    },
    nt::{PDEVICE_OBJECT, PDRIVER_DISPATCH, UNICODE_STRING},
};
use softndk_kernel::utf16;
use wdk_sys::{IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_CREATE, IRP_MJ_DEVICE_CONTROL, IRP_MJ_MAXIMUM_FUNCTION};

use super::{file, request};
use crate::driver::Driver;

/// Full access for SYSTEM and administrators, none for others.
const SECURITY: &[u16] = utf16!("D:P(A;;GA;;;SY)(A;;GA;;;BA)");
const DEVICE_NAME: &[u16] = utf16!(softndk_ioctl::DEVICE_NAME);
const LINK_NAME: &[u16] = utf16!(softndk_ioctl::SYMBOLIC_LINK_NAME);

fn counted(name: &[u16]) -> UNICODE_STRING {
    let bytes = size_of_val(name) as u16;
    UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: name.as_ptr().cast_mut() }
}

/// An adapter comes: the first one registers the device. PASSIVE_LEVEL.
pub fn attach(driver: &Driver) -> Result<(), NDIS_STATUS> {
    let mut device = driver.control.lock();
    if device.adapters == 0 {
        // Before the device has a name: a request may come as soon as it has.
        driver.requests.reopen();
        match register(driver.registration()) {
            Ok(handle) => device.handle = handle,
            Err(status) => {
                driver.requests.shut();
                return Err(status);
            }
        }
    }
    device.adapters = device.adapters.saturating_add(1);
    Ok(())
}

/// An adapter was removed: the last one removes the device. PASSIVE_LEVEL.
pub fn detach(driver: &Driver) {
    let mut device = driver.control.lock();
    device.adapters = device.adapters.saturating_sub(1);
    if device.adapters == 0 {
        // What comes over handles that stay open is refused from here on.
        driver.requests.shut();
        let handle = core::mem::replace(&mut device.handle, ptr::null_mut());
        // SAFETY: PASSIVE_LEVEL; the handle came from NdisRegisterDeviceEx and is given back once.
        unsafe { NdisDeregisterDeviceEx(handle) };
        file::forget_all();
    }
}

fn register(driver_handle: NDIS_HANDLE) -> Result<NDIS_HANDLE, NDIS_STATUS> {
    let mut device_name = counted(DEVICE_NAME);
    let mut link_name = counted(LINK_NAME);
    let security = counted(SECURITY);
    let mut functions: [Option<PDRIVER_DISPATCH>; IRP_MJ_MAXIMUM_FUNCTION as usize + 1] =
        [None; IRP_MJ_MAXIMUM_FUNCTION as usize + 1];
    let handlers: [(u32, PDRIVER_DISPATCH); 4] = [
        (IRP_MJ_CREATE, file::create),
        (IRP_MJ_CLEANUP, file::cleanup),
        (IRP_MJ_CLOSE, file::close),
        (IRP_MJ_DEVICE_CONTROL, request::device_control),
    ];
    for (major, handler) in handlers {
        if let Some(slot) = functions.get_mut(major as usize) {
            *slot = Some(handler);
        }
    }
    let mut attributes = NDIS_DEVICE_OBJECT_ATTRIBUTES {
        Header: NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_DEVICE_OBJECT_ATTRIBUTES,
            Revision: NDIS_DEVICE_OBJECT_ATTRIBUTES_REVISION_1,
            Size: NDIS_SIZEOF_DEVICE_OBJECT_ATTRIBUTES_REVISION_1,
        },
        DeviceName: &raw mut device_name,
        SymbolicName: &raw mut link_name,
        MajorFunctions: functions.as_mut_ptr(),
        ExtensionSize: 0,
        DefaultSDDLString: &raw const security,
        DeviceClassGuid: ptr::null(),
    };
    let mut object: PDEVICE_OBJECT = ptr::null_mut();
    let mut handle: *mut c_void = ptr::null_mut();
    // SAFETY: PASSIVE_LEVEL; the driver handle is registered; NDIS copies names, security and table before it returns.
    let status = unsafe { NdisRegisterDeviceEx(driver_handle, &raw mut attributes, &raw mut object, &raw mut handle) };
    if status == NDIS_STATUS_SUCCESS { Ok(handle) } else { Err(status) }
}
