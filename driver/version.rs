//! The driver's version numbers and names, in one place, so that all reports agree.

use ndkpi_sys::ndkinfo::NDK_VERSION;

/// NDIS contract of the characteristics: 6.60 (from Windows 10 1607 on).
pub const NDIS_CONTRACT: (u8, u8) = (6, 60);

/// Version of this driver, as OID_GEN_VENDOR_DRIVER_VERSION and the control device report it.
pub const DRIVER: (u8, u8) = (0, 1);

/// The value of OID_GEN_VENDOR_DESCRIPTION.
pub const VENDOR_DESCRIPTION: &[u8] = b"softndk software RDMA adapter\0";

/// "No OUI": three bytes of ones.
pub const VENDOR_ID: u32 = 0x00FF_FFFF;

/// Device number inside the vendor's space (`NDK_ADAPTER_INFO.DeviceId`).
pub const DEVICE_ID: u32 = 1;

/// Highest minor version per NDKPI major version that this provider speaks.
const NDKPI_HIGHEST: [(u16, u16); 2] = [(1, 2), (2, 1)];

/// The version in force for an open that requests `wanted`: the highest minor of that major, or `None`.
///
/// NDKPI: the open parameters carry the lowest minor the consumer accepts.
pub fn negotiate(wanted: NDK_VERSION) -> Option<NDK_VERSION> {
    NDKPI_HIGHEST
        .iter()
        .find(|&&(major, minor)| wanted.Major == major && wanted.Minor <= minor)
        .map(|&(major, minor)| NDK_VERSION { Major: major, Minor: minor })
}

/// The version reported where no consumer has requested one.
pub const NDKPI_NEWEST: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 1 };
