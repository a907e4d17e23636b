//! Named devices of the driver: registered with the first adapter, removed with the last.
//!
//! NDIS owns the driver object, so a device comes from NdisRegisterDeviceEx and its IRPs arrive at a table of the driver's own.
//! What is behind a name (`control`, `nd`) brings names, security descriptor and functions.

use core::{ffi::c_void, ptr};

use ndkpi_sys::{
    ndis::{
        NDIS_DEVICE_OBJECT_ATTRIBUTES, NDIS_DEVICE_OBJECT_ATTRIBUTES_REVISION_1, NDIS_HANDLE, NDIS_OBJECT_HEADER,
        NDIS_OBJECT_TYPE_DEVICE_OBJECT_ATTRIBUTES, NDIS_SIZEOF_DEVICE_OBJECT_ATTRIBUTES_REVISION_1, NDIS_STATUS,
        NDIS_STATUS_SUCCESS, NdisDeregisterDeviceEx, NdisRegisterDeviceEx,
    },
    nt::{PDEVICE_OBJECT, PDRIVER_DISPATCH, UNICODE_STRING},
};
use softndk_kernel::{event::Mutex, pool::NoMemory, rundown::Rundown, utf16};
use wdk_sys::{IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_CREATE, IRP_MJ_DEVICE_CONTROL, IRP_MJ_MAXIMUM_FUNCTION};

use crate::tags;

/// Full access for SYSTEM and administrators, none for others.
pub const ADMINISTRATORS: &[u16] = utf16!("D:P(A;;GA;;;SY)(A;;GA;;;BA)");

/// What a device is registered with.
pub struct DeviceDescription<'a> {
    pub name: &'a [u16],
    pub symbolic_link: &'a [u16],
    /// In SDDL.
    pub security: &'a [u16],
    pub create: PDRIVER_DISPATCH,
    pub cleanup: PDRIVER_DISPATCH,
    pub close: PDRIVER_DISPATCH,
    pub device_control: PDRIVER_DISPATCH,
}

/// One device of the driver.
pub struct NamedDevice {
    registration: Mutex<DeviceRegistration>,
    /// Open while the device is registered; one reference for each request that is being worked on.
    pub requests: Rundown,
}

/// The device, and how many adapters hold it.
struct DeviceRegistration {
    adapters: u32,
    handle: *mut c_void,
}

// SAFETY: the handle is a token; the mutex serialises its use.
unsafe impl Send for DeviceRegistration {}

impl NamedDevice {
    /// PASSIVE_LEVEL.
    pub fn try_new() -> Result<Self, NoMemory> {
        let registration = DeviceRegistration { adapters: 0, handle: ptr::null_mut() };
        Ok(Self {
            registration: Mutex::try_new(tags::EVENT, registration)?,
            requests: Rundown::try_shut(tags::RUNDOWN)?,
        })
    }

    /// An adapter comes: the first one registers the device by `register`. PASSIVE_LEVEL.
    pub fn attach(&self, register: impl FnOnce() -> Result<DeviceHandle, NDIS_STATUS>) -> Result<(), NDIS_STATUS> {
        let mut device = self.registration.lock();
        if device.adapters == 0 {
            // Before the device has a name: a request may come as soon as it has.
            self.requests.reopen();
            match register() {
                Ok(DeviceHandle(handle)) => device.handle = handle,
                Err(status) => {
                    self.requests.shut();
                    return Err(status);
                }
            }
        }
        device.adapters = device.adapters.saturating_add(1);
        Ok(())
    }

    /// An adapter was removed: the last one removes the device, and then its files are `forgotten`. PASSIVE_LEVEL.
    pub fn detach(&self, forget: impl FnOnce()) {
        let mut device = self.registration.lock();
        device.adapters = device.adapters.saturating_sub(1);
        if device.adapters == 0 {
            // What comes over handles that stay open is refused from here on.
            self.requests.shut();
            let handle = core::mem::replace(&mut device.handle, ptr::null_mut());
            // SAFETY: PASSIVE_LEVEL; the handle came from NdisRegisterDeviceEx and is given back once.
            unsafe { NdisDeregisterDeviceEx(handle) };
            forget();
        }
    }
}

/// A registered device.
pub struct DeviceHandle(*mut c_void);

fn counted(name: &[u16]) -> UNICODE_STRING {
    let bytes = size_of_val(name) as u16;
    UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: name.as_ptr().cast_mut() }
}

/// Registers a device. PASSIVE_LEVEL.
pub fn register(driver: NDIS_HANDLE, description: &DeviceDescription<'_>) -> Result<DeviceHandle, NDIS_STATUS> {
    let mut device_name = counted(description.name);
    let mut link_name = counted(description.symbolic_link);
    let security = counted(description.security);
    let mut functions: [Option<PDRIVER_DISPATCH>; IRP_MJ_MAXIMUM_FUNCTION as usize + 1] =
        [None; IRP_MJ_MAXIMUM_FUNCTION as usize + 1];
    let handlers: [(u32, PDRIVER_DISPATCH); 4] = [
        (IRP_MJ_CREATE, description.create),
        (IRP_MJ_CLEANUP, description.cleanup),
        (IRP_MJ_CLOSE, description.close),
        (IRP_MJ_DEVICE_CONTROL, description.device_control),
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
    let status = unsafe { NdisRegisterDeviceEx(driver, &raw mut attributes, &raw mut object, &raw mut handle) };
    if status == NDIS_STATUS_SUCCESS { Ok(DeviceHandle(handle)) } else { Err(status) }
}
