//! Plug and play events, in both directions: from NDIS to a miniport about its device, and from a miniport to the layers above
//! (NDK enable and disable among them).

use super::object::{NDIS_NIC_SWITCH_ID, NDIS_NIC_SWITCH_VPORT_ID, NDIS_OBJECT_HEADER, NDIS_PORT_NUMBER};
use crate::abi::{layout, open_enum, zeroed};
use crate::nt::{PVOID, UCHAR, ULONG, ULONG_PTR, USHORT};

open_enum! {
    /// Event of `MiniportDevicePnPEventNotify`.
    pub enum NDIS_DEVICE_PNP_EVENT {
        NdisDevicePnPEventQueryRemoved = 0,
        NdisDevicePnPEventRemoved = 1,
        NdisDevicePnPEventSurpriseRemoved = 2,
        NdisDevicePnPEventQueryStopped = 3,
        NdisDevicePnPEventStopped = 4,
        NdisDevicePnPEventPowerProfileChanged = 5,
        NdisDevicePnPEventFilterListChanged = 6,
        NdisDevicePnPEventMaximum = 7,
    }
}

/// Argument of `MiniportDevicePnPEventNotify`. `Size` is 0x2C, less than the type.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NET_DEVICE_PNP_EVENT {
    pub Header: NDIS_OBJECT_HEADER,
    pub PortNumber: NDIS_PORT_NUMBER,
    pub DevicePnPEvent: NDIS_DEVICE_PNP_EVENT,
    pub InformationBuffer: PVOID,
    pub InformationBufferLength: ULONG,
    pub NdisReserved: [UCHAR; 16],
}
layout!(NET_DEVICE_PNP_EVENT, size 48, align 8, {
    Header: 0, PortNumber: 4, DevicePnPEvent: 8, InformationBuffer: 16, InformationBufferLength: 24, NdisReserved: 28,
});
pub const NET_DEVICE_PNP_EVENT_REVISION_1: UCHAR = 1;
pub const NDIS_SIZEOF_NET_DEVICE_PNP_EVENT_REVISION_1: USHORT = 0x2C;

open_enum! {
    /// Event that a miniport or NDIS raises.
    pub enum NET_PNP_EVENT_CODE {
        NetEventSetPower = 0,
        NetEventQueryPower = 1,
        NetEventQueryRemoveDevice = 2,
        NetEventCancelRemoveDevice = 3,
        NetEventReconfigure = 4,
        NetEventBindList = 5,
        NetEventBindsComplete = 6,
        NetEventPnPCapabilities = 7,
        NetEventPause = 8,
        NetEventRestart = 9,
        NetEventPortActivation = 10,
        NetEventPortDeactivation = 11,
        NetEventIMReEnableDevice = 12,
        NetEventNDKEnable = 13,
        NetEventNDKDisable = 14,
        NetEventFilterPreDetach = 15,
        NetEventBindFailed = 16,
        NetEventSwitchActivate = 17,
        NetEventAllowBindsAbove = 18,
        NetEventInhibitBindsAbove = 19,
        NetEventAllowStart = 20,
        NetEventRequirePause = 21,
        NetEventUploadGftFlowEntries = 22,
        NetEventMaximum = 23,
    }
}

/// An event with its buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NET_PNP_EVENT {
    pub NetEvent: NET_PNP_EVENT_CODE,
    pub Buffer: PVOID,
    pub BufferLength: ULONG,
    pub NdisReserved: [ULONG_PTR; 4],
    pub TransportReserved: [ULONG_PTR; 4],
    pub TdiReserved: [ULONG_PTR; 4],
    pub TdiClientReserved: [ULONG_PTR; 4],
}
layout!(NET_PNP_EVENT, size 152, align 8, {
    NetEvent: 0, Buffer: 8, BufferLength: 16, NdisReserved: 24, TransportReserved: 56, TdiReserved: 88,
    TdiClientReserved: 120,
});

/// Argument of `NdisMNetPnPEvent`. `Size` is 0xA4 (revision 1) or 0xAC (revision 2), less than the type.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NET_PNP_EVENT_NOTIFICATION {
    pub Header: NDIS_OBJECT_HEADER,
    pub PortNumber: NDIS_PORT_NUMBER,
    pub NetPnPEvent: NET_PNP_EVENT,
    pub Flags: ULONG,
    /// Revision 2.
    pub SwitchId: NDIS_NIC_SWITCH_ID,
    /// Revision 2; only with `NET_EVENT_FLAGS_VPORT_ID_VALID`.
    pub VPortId: NDIS_NIC_SWITCH_VPORT_ID,
}
layout!(NET_PNP_EVENT_NOTIFICATION, size 176, align 8, {
    Header: 0, PortNumber: 4, NetPnPEvent: 8, Flags: 160, SwitchId: 164, VPortId: 168,
});
pub const NET_PNP_EVENT_NOTIFICATION_REVISION_1: UCHAR = 1;
pub const NET_PNP_EVENT_NOTIFICATION_REVISION_2: UCHAR = 2;
pub const NDIS_SIZEOF_NET_PNP_EVENT_NOTIFICATION_REVISION_1: USHORT = 0xA4;
pub const NDIS_SIZEOF_NET_PNP_EVENT_NOTIFICATION_REVISION_2: USHORT = 0xAC;
pub const NET_EVENT_HALT_MINIPORT_ON_LOW_POWER: ULONG = 0x1;
pub const NET_EVENT_FLAGS_VPORT_ID_VALID: ULONG = 0x2;

zeroed!(NET_DEVICE_PNP_EVENT, NET_PNP_EVENT, NET_PNP_EVENT_NOTIFICATION);
