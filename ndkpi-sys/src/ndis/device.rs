//! A control device beside the adapters (`NdisRegisterDeviceEx`). NDIS owns the driver's dispatch table; it routes the
//! requests of such a device to the table given here.

use super::object::{NDIS_OBJECT_HEADER, NDIS_STRING};
use crate::abi::{layout, zeroed};
use crate::nt::{GUID, PDRIVER_DISPATCH, UCHAR, ULONG, UNICODE_STRING, USHORT};

/// Number of entries of a dispatch table: `IRP_MJ_MAXIMUM_FUNCTION + 1`.
pub const NDIS_DEVICE_MAJOR_FUNCTIONS: usize = 28;

/// Input of `NdisRegisterDeviceEx`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_DEVICE_OBJECT_ATTRIBUTES {
    pub Header: NDIS_OBJECT_HEADER,
    pub DeviceName: *mut NDIS_STRING,
    pub SymbolicName: *mut NDIS_STRING,
    /// [`NDIS_DEVICE_MAJOR_FUNCTIONS`] entries; NDIS copies them.
    pub MajorFunctions: *mut Option<PDRIVER_DISPATCH>,
    /// Bytes that `NdisGetDeviceReservedExtension` gives.
    pub ExtensionSize: ULONG,
    /// The access rights of the device; always give one.
    pub DefaultSDDLString: *const UNICODE_STRING,
    /// Reserved, NULL.
    pub DeviceClassGuid: *const GUID,
}
layout!(NDIS_DEVICE_OBJECT_ATTRIBUTES, size 56, align 8, {
    Header: 0, DeviceName: 8, SymbolicName: 16, MajorFunctions: 24, ExtensionSize: 32, DefaultSDDLString: 40,
    DeviceClassGuid: 48,
});
pub const NDIS_DEVICE_OBJECT_ATTRIBUTES_REVISION_1: UCHAR = 1;
pub const NDIS_SIZEOF_DEVICE_OBJECT_ATTRIBUTES_REVISION_1: USHORT = 0x38;
zeroed!(NDIS_DEVICE_OBJECT_ATTRIBUTES);
