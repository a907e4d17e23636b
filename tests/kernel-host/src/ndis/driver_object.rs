//! What NDIS does with a miniport's driver object: it is NDIS's from registration on, and a driver that writes its members is
//! stopped. (NDIS: a miniport driver does not set `MajorFunction`, `DriverUnload` or `AddDevice`.)

use std::ffi::c_void;

use super::registration::{MiniportDriver, driver_of};
use super::rule::{Group, broken};
use crate::nt::DRIVER_OBJECT;

/// Stands for NDIS's own dispatch routine; never called, because devices of miniports have tables of their own.
const NDIS_DISPATCH: usize = 0x00ED_1500_F000_0000;

/// NDIS fills the driver object; unloading calls the miniport's unload handler.
pub fn take_over(object: *mut DRIVER_OBJECT, driver: &MiniportDriver) {
    // SAFETY: the driver object that the host made for this image.
    unsafe {
        (&raw mut (*object).DriverUnload).write(driver.handlers.unload as *mut c_void);
        (&raw mut (*object).MajorFunction).write([NDIS_DISPATCH as *mut c_void; 28]);
    }
}

/// Whether the members are still NDIS's; called after DriverEntry and before unload.
pub fn check_untouched(object: *mut DRIVER_OBJECT, when: &str) {
    let Some(driver) = driver_of(object as usize) else { return };
    // SAFETY: as above.
    let (unload, dispatch) =
        unsafe { ((&raw const (*object).DriverUnload).read() as usize, (&raw const (*object).MajorFunction).read()) };
    let changed = dispatch.iter().position(|routine| *routine as usize != NDIS_DISPATCH);
    if let Some(index) = changed {
        let rule = format!(
            "{when}: the miniport driver wrote MajorFunction[{index:#x}] of its driver object, which is NDIS's"
        );
        broken(Group::DriverObject, object as usize, rule);
    }
    if unload != driver.handlers.unload {
        let rule = format!("{when}: the miniport driver wrote DriverUnload of its driver object, which is NDIS's");
        broken(Group::DriverObject, object as usize, rule);
    }
}

/// After DriverEntry: the driver object untouched, and no registration left behind by a DriverEntry that failed.
pub fn after_driver_entry(object: *mut DRIVER_OBJECT, succeeded: bool) {
    if succeeded {
        check_untouched(object, "DriverEntry returned");
    } else if driver_of(object as usize).is_some() {
        let rule = "DriverEntry failed without NdisMDeregisterMiniportDriver; NDIS would call into an unloaded image";
        broken(Group::Registration, object as usize, rule);
    }
}

/// Before DriverUnload: plug and play has removed every device of the driver, and no file is open on one of its control
/// devices, because those keep the driver referenced.
pub fn before_unload(object: *mut DRIVER_OBJECT) {
    super::adapter::remove_all_of(object as usize);
    let files = crate::io::device::open_files_of(object as usize);
    assert!(
        files == 0,
        "{files} files are open on the driver's devices: Windows would not unload it, close them first"
    );
    check_untouched(object, "before the unload handler");
}

/// After DriverUnload: the registration is ended.
pub fn after_unload(object: *mut DRIVER_OBJECT) {
    if driver_of(object as usize).is_some() {
        let rule = "the unload handler returned without NdisMDeregisterMiniportDriver";
        broken(Group::Registration, object as usize, rule);
    }
}
