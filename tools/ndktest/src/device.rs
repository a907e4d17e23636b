//! The device object `\Device\NdkTest` and the link by which programs open it: there while the driver is loaded.

use core::{mem::size_of_val, ptr};

use softndk_kernel::utf16;
use wdk_sys::{
    DEVICE_OBJECT, DRIVER_OBJECT, FILE_DEVICE_SECURE_OPEN, FILE_DEVICE_UNKNOWN, IRP_MJ_CLEANUP, IRP_MJ_CLOSE,
    IRP_MJ_CREATE, IRP_MJ_DEVICE_CONTROL, NTSTATUS, STATUS_SUCCESS, UNICODE_STRING,
    ntddk::{IoCreateDevice, IoCreateSymbolicLink, IoDeleteDevice, IoDeleteSymbolicLink},
};

use crate::{
    control::{file, request},
    security,
};

const DEVICE_NAME: &[u16] = utf16!(softndk_ioctl::TEST_DEVICE_NAME);
const LINK_NAME: &[u16] = utf16!(softndk_ioctl::TEST_SYMBOLIC_LINK_NAME);

fn counted(name: &[u16]) -> UNICODE_STRING {
    let bytes = size_of_val(name) as u16;
    UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: name.as_ptr().cast_mut() }
}

/// The device with its link; dropping it deletes both. PASSIVE_LEVEL.
pub struct Device {
    object: *mut DEVICE_OBJECT,
}

// SAFETY: the object is deleted once, by whichever thread unloads the driver.
unsafe impl Send for Device {}

impl Device {
    /// Makes device and link, says who may open it, and names the routines that serve them. PASSIVE_LEVEL, from DriverEntry: the
    /// device cannot be opened before that has returned.
    pub fn create(driver: &mut DRIVER_OBJECT) -> Result<Self, NTSTATUS> {
        let handlers: [(u32, wdk_sys::PDRIVER_DISPATCH); 4] = [
            (IRP_MJ_CREATE, Some(file::create)),
            (IRP_MJ_CLEANUP, Some(file::cleanup)),
            (IRP_MJ_CLOSE, Some(file::close)),
            (IRP_MJ_DEVICE_CONTROL, Some(request::device_control)),
        ];
        for (major, handler) in handlers {
            if let Some(slot) = driver.MajorFunction.get_mut(major as usize) {
                *slot = handler;
            }
        }
        let mut name = counted(DEVICE_NAME);
        let mut link = counted(LINK_NAME);
        let mut object = ptr::null_mut();
        // SAFETY: PASSIVE_LEVEL; the driver object is ours; the name lives for the call; a place for the answer.
        let status = unsafe {
            IoCreateDevice(driver, 0, &raw mut name, FILE_DEVICE_UNKNOWN, FILE_DEVICE_SECURE_OPEN, 0, &raw mut object)
        };
        if status != STATUS_SUCCESS {
            return Err(status);
        }
        // SAFETY: a device of ours, just made.
        let ready = unsafe { security::protect(object) }.and_then(|()| {
            // SAFETY: PASSIVE_LEVEL; both names live for the call.
            let status = unsafe { IoCreateSymbolicLink(&raw mut link, &raw mut name) };
            if status == STATUS_SUCCESS { Ok(()) } else { Err(status) }
        });
        if let Err(status) = ready {
            // SAFETY: just made, and known to no program yet.
            unsafe { IoDeleteDevice(object) };
            return Err(status);
        }
        Ok(Self { object })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let mut link = counted(LINK_NAME);
        // SAFETY: PASSIVE_LEVEL; the name lives for the call.
        let _status = unsafe { IoDeleteSymbolicLink(&raw mut link) };
        // SAFETY: made by `create`, deleted once.
        unsafe { IoDeleteDevice(self.object) };
    }
}
