//! The device object of the tools. Access is for SYSTEM and administrators; the codes demand read and write access on top.

use ndkpi_sys::ndis::NDIS_STATUS;
use softndk_kernel::utf16;

use super::{file, request};
use crate::{
    device::{self, ADMINISTRATORS, DeviceDescription},
    driver::Driver,
};

/// An adapter comes: the first one registers the device. PASSIVE_LEVEL.
pub fn attach(driver: &Driver) -> Result<(), NDIS_STATUS> {
    let description = DeviceDescription {
        name: utf16!(softndk_ioctl::DEVICE_NAME),
        symbolic_link: utf16!(softndk_ioctl::SYMBOLIC_LINK_NAME),
        security: ADMINISTRATORS,
        create: file::create,
        cleanup: file::cleanup,
        close: file::close,
        device_control: request::device_control,
    };
    driver.control.attach(|| device::register(driver.registration(), &description))
}

/// An adapter was removed: the last one removes the device. PASSIVE_LEVEL.
pub fn detach(driver: &Driver) {
    driver.control.detach(file::forget_all);
}
