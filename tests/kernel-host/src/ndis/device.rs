//! Control devices of a miniport driver: `NdisRegisterDeviceEx` and its relatives. The device itself is the I/O manager's.

use std::ffi::c_void;
use std::sync::Arc;

use ndkpi_sys::ndis::NDIS_DEVICE_OBJECT_ATTRIBUTES;

use super::attributes::{ExpectedHeader, check_header};
use super::configuration::text_of;
use super::rule::{Group, broken, live};
use super::{NdisStatus, ndis, status};
use crate::io::device::{self, DO_BUFFERED_IO, Device, DeviceDescription, Dispatch, MAJOR_FUNCTIONS};
use crate::io::security::SecurityDescriptor;

/// A registered control device.
pub struct ControlDevice {
    pub handle: usize,
    /// The miniport driver that it belongs to.
    pub owner: usize,
    pub device: Arc<Device>,
}

const PNP: usize = 0x1B;
const POWER: usize = 0x16;

fn check_attributes(from: &NDIS_DEVICE_OBJECT_ATTRIBUTES) -> Result<(), String> {
    const NAME: &str = "NDIS_DEVICE_OBJECT_ATTRIBUTES";
    let expected = ExpectedHeader { structure: NAME, object_type: 0x85, revision: 1, size: 0x38, size_of: 0x38 };
    check_header(from.Header, expected)?;
    if from.MajorFunctions.is_null() || from.DeviceName.is_null() || from.SymbolicName.is_null() {
        return Err(format!("{NAME}: DeviceName, SymbolicName or MajorFunctions is NULL"));
    }
    if !from.DeviceClassGuid.is_null() {
        return Err(format!("{NAME}: DeviceClassGuid is reserved and must be NULL"));
    }
    if from.DefaultSDDLString.is_null() {
        return Err(format!("{NAME}: DefaultSDDLString is NULL; who may open the device would be undefined"));
    }
    Ok(())
}

const FILE_DEVICE_NETWORK: u32 = 0x12;
const FILE_DEVICE_SECURE_OPEN: u32 = 0x100;

fn describe(from: &NDIS_DEVICE_OBJECT_ATTRIBUTES, driver_object: usize) -> Result<DeviceDescription, String> {
    check_attributes(from)?;
    let name =
        text_of(from.DeviceName).filter(|name| name.starts_with(r"\Device\")).ok_or(r"DeviceName is not \Device\…")?;
    let link = text_of(from.SymbolicName).filter(|name| name.starts_with(r"\DosDevices\") || name.starts_with(r"\??\"));
    let link = link.ok_or(r"SymbolicName is not \DosDevices\…")?;
    let sddl = text_of(from.DefaultSDDLString).unwrap_or_default();
    let security = SecurityDescriptor::parse(&sddl)
        .ok_or_else(|| format!("DefaultSDDLString \"{sddl}\" is not one this host reads"))?;
    let table: *const usize = from.MajorFunctions.cast_const().cast();
    let mut dispatch = [0_usize; MAJOR_FUNCTIONS];
    for (index, slot) in dispatch.iter_mut().enumerate() {
        // SAFETY: a table of IRP_MJ_MAXIMUM_FUNCTION + 1 pointers by contract.
        *slot = unsafe { table.add(index).read_unaligned() };
    }
    for (index, name) in [(PNP, "IRP_MJ_PNP"), (POWER, "IRP_MJ_POWER")] {
        if dispatch.get(index).is_some_and(|routine| *routine != 0) {
            return Err(format!("MajorFunctions has a routine for {name}, which is NDIS's"));
        }
    }
    let strange = dispatch.iter().find(|routine| **routine != 0 && !crate::image::contains_code(**routine));
    if let Some(routine) = strange {
        return Err(format!("MajorFunctions holds {routine:#x}, which is no code of an image"));
    }
    Ok(DeviceDescription {
        name,
        symbolic_link: Some(link),
        driver_object,
        dispatch: Dispatch::OfNdis(Box::new(dispatch)),
        extension_size: from.ExtensionSize as usize,
        security,
        kind: FILE_DEVICE_NETWORK,
        flags: DO_BUFFERED_IO,
        characteristics: FILE_DEVICE_SECURE_OPEN,
    })
}

crate::exports! {
    module "ndis.sys";

    /// Makes a named control device with a dispatch table of its own.
    /// Checks: a live driver handle, object header, names, SDDL given, no PnP and power routines, routines in an image; a name
    /// that is taken is answered with FAILURE.
    /// Source: NDIS: NdisRegisterDeviceEx, NDIS_DEVICE_OBJECT_ATTRIBUTES
    [PASSIVE_ONLY] fn NdisRegisterDeviceEx(
        driver: *mut c_void,
        attributes: *const NDIS_DEVICE_OBJECT_ATTRIBUTES,
        object: *mut *mut c_void,
        handle: *mut *mut c_void,
    ) -> NdisStatus {
        let driver = live(ndis().drivers.get(driver), "NdisRegisterDeviceEx", "miniport driver", driver);
        let rule = |text: &str| -> ! { broken(Group::Device, driver.handle, format!("NdisRegisterDeviceEx: {text}")) };
        if attributes.is_null() || object.is_null() || handle.is_null() {
            rule("a required pointer is NULL");
        }
        // SAFETY: not null; the driver's structure by contract.
        let attributes = unsafe { attributes.read_unaligned() };
        let description = describe(&attributes, driver.driver_object).unwrap_or_else(|text| rule(&text));
        if crate::fault::should_fail("NdisRegisterDeviceEx") {
            return status::RESOURCES;
        }
        match Device::create(description) {
            Ok(device) => {
                let made = ndis().devices.insert_with(|number| ControlDevice { handle: number, owner: driver.handle, device });
                // SAFETY: the caller's out parameters.
                unsafe {
                    object.write(made.device.object().cast());
                    handle.write(made.handle as *mut c_void);
                }
                status::SUCCESS
            }
            Err(problem) => {
                super::log::record(format!("NdisRegisterDeviceEx fails: {problem:?}"));
                status::FAILURE
            }
        }
    }

    /// Deletes a control device; files that are open on it keep it until they are closed. Whether their last packets reach the
    /// driver is a test's choice, because NDIS promises neither.
    /// Checks: a live device handle.
    /// Source: NDIS: NdisDeregisterDeviceEx
    [PASSIVE_ONLY] fn NdisDeregisterDeviceEx(handle: *mut c_void) {
        let device = live(ndis().devices.remove(handle), "NdisDeregisterDeviceEx", "control device", handle);
        if device::ndis_keeps_packets() {
            device.device.cut_off();
        }
        device.device.delete();
    }

    /// The driver's own bytes behind a control device.
    /// Checks: a device object of NdisRegisterDeviceEx.
    /// Source: NDIS: NdisGetDeviceReservedExtension
    [ANY] fn NdisGetDeviceReservedExtension(object: *mut c_void) -> *mut c_void {
        match device::of_object(object) {
            Some(device) => device.extension().cast(),
            None => broken(Group::Device, object as usize, "NdisGetDeviceReservedExtension: no device of NdisRegisterDeviceEx"),
        }
    }
}
