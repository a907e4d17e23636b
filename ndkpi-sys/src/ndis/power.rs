//! Power management capabilities. A miniport of NDIS 6.20 or later must give them, all zero if it has none.

use super::object::NDIS_OBJECT_HEADER;
use crate::abi::{layout, open_enum, zeroed};
use crate::nt::{UCHAR, ULONG, USHORT};

open_enum! {
    /// Device power state (`NDIS_DEVICE_POWER_STATE`); value of `OID_PNP_SET_POWER`.
    pub enum NDIS_DEVICE_POWER_STATE {
        NdisDeviceStateUnspecified = 0,
        NdisDeviceStateD0 = 1,
        NdisDeviceStateD1 = 2,
        NdisDeviceStateD2 = 3,
        NdisDeviceStateD3 = 4,
        NdisDeviceStateMaximum = 5,
    }
}

/// What wakes the adapter.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_PM_CAPABILITIES {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub SupportedWoLPacketPatterns: ULONG,
    pub NumTotalWoLPatterns: ULONG,
    pub MaxWoLPatternSize: ULONG,
    pub MaxWoLPatternOffset: ULONG,
    pub MaxWoLPacketSaveBuffer: ULONG,
    pub SupportedProtocolOffloads: ULONG,
    pub NumArpOffloadIPv4Addresses: ULONG,
    pub NumNSOffloadIPv6Addresses: ULONG,
    pub MinMagicPacketWakeUp: NDIS_DEVICE_POWER_STATE,
    pub MinPatternWakeUp: NDIS_DEVICE_POWER_STATE,
    pub MinLinkChangeWakeUp: NDIS_DEVICE_POWER_STATE,
    /// Revision 2.
    pub SupportedWakeUpEvents: ULONG,
    /// Revision 2.
    pub MediaSpecificWakeUpEvents: ULONG,
}
layout!(NDIS_PM_CAPABILITIES, size 60, align 4, {
    Header: 0, Flags: 4, SupportedWoLPacketPatterns: 8, NumTotalWoLPatterns: 12, MaxWoLPatternSize: 16,
    MaxWoLPatternOffset: 20, MaxWoLPacketSaveBuffer: 24, SupportedProtocolOffloads: 28, NumArpOffloadIPv4Addresses: 32,
    NumNSOffloadIPv6Addresses: 36, MinMagicPacketWakeUp: 40, MinPatternWakeUp: 44, MinLinkChangeWakeUp: 48,
    SupportedWakeUpEvents: 52, MediaSpecificWakeUpEvents: 56,
});
pub const NDIS_PM_CAPABILITIES_REVISION_1: UCHAR = 1;
pub const NDIS_PM_CAPABILITIES_REVISION_2: UCHAR = 2;
pub const NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_1: USHORT = 0x34;
pub const NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_2: USHORT = 0x3C;

/// `OID_PM_PARAMETERS`: what is switched on.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_PM_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub EnabledWoLPacketPatterns: ULONG,
    pub EnabledProtocolOffloads: ULONG,
    pub WakeUpFlags: ULONG,
    /// Revision 2.
    pub MediaSpecificWakeUpEvents: ULONG,
}
layout!(NDIS_PM_PARAMETERS, size 20, align 4, {
    Header: 0, EnabledWoLPacketPatterns: 4, EnabledProtocolOffloads: 8, WakeUpFlags: 12, MediaSpecificWakeUpEvents: 16,
});
pub const NDIS_PM_PARAMETERS_REVISION_1: UCHAR = 1;
pub const NDIS_PM_PARAMETERS_REVISION_2: UCHAR = 2;
pub const NDIS_SIZEOF_NDIS_PM_PARAMETERS_REVISION_1: USHORT = 0x10;
pub const NDIS_SIZEOF_NDIS_PM_PARAMETERS_REVISION_2: USHORT = 0x14;

zeroed!(NDIS_PM_CAPABILITIES, NDIS_PM_PARAMETERS);
