//! The device object `\Device\SoftNd`: registered with the first adapter, removed with the last.
//!
//! The codes of `ndioctl.h` ask for no access right, our own for reading and writing: the security descriptor says who gets in, and the
//! registry value `NetworkDirectSddl` of the first adapter that one. A text that is no descriptor, or that the system refuses, is replaced by the default: SYSTEM and administrators.

use ndkpi_sys::ndis::NDIS_STATUS;
use softndk_ioctl::nd;
use softndk_kernel::utf16;

use super::{account, dispatch, file, poller};
use crate::{
    device::{self, ADMINISTRATORS, DeviceDescription, DeviceHandle},
    driver::Driver,
    link::{configuration::Configuration, handle::MiniportHandle},
};

/// An adapter comes: the first one registers the device. PASSIVE_LEVEL.
pub fn attach(driver: &Driver, miniport: MiniportHandle) -> Result<(), NDIS_STATUS> {
    driver.network_direct.attach(|| {
        file::prepare()?;
        account::set_limits(Configuration::process_limits(miniport));
        poller::start();
        let registered = Configuration::with_network_direct_security(miniport, |security| {
            let asked = security.filter(|text| super::security::is_descriptor(text));
            let registered = asked.and_then(|security| register(driver, security).ok());
            registered.map_or_else(|| register(driver, ADMINISTRATORS), Ok)
        });
        // Without a device there will be no file.
        registered.inspect_err(|_| end())
    })
}

fn register(driver: &Driver, security: &[u16]) -> Result<DeviceHandle, NDIS_STATUS> {
    let description = DeviceDescription {
        name: utf16!(nd::DEVICE_NAME),
        symbolic_link: utf16!(nd::SYMBOLIC_LINK_NAME),
        security,
        create: file::create,
        cleanup: file::cleanup,
        close: file::close,
        device_control: dispatch::device_control,
    };
    device::register(driver.registration(), &description)
}

/// An adapter is being halted and is in the driver's table no more: every object that a process has of it ends. PASSIVE_LEVEL.
pub fn adapter_removed(index: usize) {
    file::each_context(&mut |context| context.end_adapter(index));
}

/// The device is gone: its files end, and what looks at their rings.
fn end() {
    file::forget_all();
    poller::stop();
}

/// An adapter was removed: the last one removes the device, and with it the files. PASSIVE_LEVEL.
pub fn detach(driver: &Driver) {
    driver.network_direct.detach(end);
}
