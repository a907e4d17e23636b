//! Media, links and the interface properties of RFC 2863 as NDIS reports them.

use super::object::NDIS_OBJECT_HEADER;
use crate::abi::{flags, layout, open_enum, zeroed};
use crate::nt::{UCHAR, ULONG, ULONG64, USHORT};

pub type NET_IFINDEX = ULONG;
pub type NET_IFTYPE = USHORT;
pub type IF_INDEX = NET_IFINDEX;

pub const NET_IFINDEX_UNSPECIFIED: NET_IFINDEX = 0;
pub const IF_TYPE_ETHERNET_CSMACD: NET_IFTYPE = 6;
/// Bytes of a physical address field (`IF_MAX_PHYS_ADDRESS_LENGTH`, `NDIS_MAX_PHYS_ADDRESS_LENGTH`).
pub const NDIS_MAX_PHYS_ADDRESS_LENGTH: usize = 32;

/// Locally unique identifier of an interface. In C a union with bit fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NET_LUID {
    pub Value: ULONG64,
}
layout!(NET_LUID, size 8, align 8, { Value: 0 });

impl NET_LUID {
    /// `Info.NetLuidIndex`, bits 24..48.
    #[must_use]
    pub const fn NetLuidIndex(self) -> u32 {
        (self.Value >> 24) as u32 & 0x00FF_FFFF
    }

    /// `Info.IfType`, bits 48..64.
    #[must_use]
    pub const fn IfType(self) -> NET_IFTYPE {
        (self.Value >> 48) as NET_IFTYPE
    }
}

open_enum! {
    /// Medium type.
    pub enum NDIS_MEDIUM {
        NdisMedium802_3 = 0,
        NdisMedium802_5 = 1,
        NdisMediumFddi = 2,
        NdisMediumWan = 3,
        NdisMediumLocalTalk = 4,
        NdisMediumDix = 5,
        NdisMediumArcnetRaw = 6,
        NdisMediumArcnet878_2 = 7,
        NdisMediumAtm = 8,
        NdisMediumWirelessWan = 9,
        NdisMediumIrda = 10,
        NdisMediumBpc = 11,
        NdisMediumCoWan = 12,
        NdisMedium1394 = 13,
        NdisMediumInfiniBand = 14,
        NdisMediumTunnel = 15,
        NdisMediumNative802_11 = 16,
        NdisMediumLoopback = 17,
        NdisMediumWiMAX = 18,
        NdisMediumIP = 19,
        NdisMediumMax = 20,
    }
}

open_enum! {
    /// Physical medium type.
    pub enum NDIS_PHYSICAL_MEDIUM {
        NdisPhysicalMediumUnspecified = 0,
        NdisPhysicalMediumWirelessLan = 1,
        NdisPhysicalMediumCableModem = 2,
        NdisPhysicalMediumPhoneLine = 3,
        NdisPhysicalMediumPowerLine = 4,
        NdisPhysicalMediumDSL = 5,
        NdisPhysicalMediumFibreChannel = 6,
        NdisPhysicalMedium1394 = 7,
        NdisPhysicalMediumWirelessWan = 8,
        NdisPhysicalMediumNative802_11 = 9,
        NdisPhysicalMediumBluetooth = 10,
        NdisPhysicalMediumInfiniband = 11,
        NdisPhysicalMediumWiMax = 12,
        NdisPhysicalMediumUWB = 13,
        NdisPhysicalMedium802_3 = 14,
        NdisPhysicalMedium802_5 = 15,
        NdisPhysicalMediumIrda = 16,
        NdisPhysicalMediumWiredWAN = 17,
        NdisPhysicalMediumWiredCoWan = 18,
        NdisPhysicalMediumOther = 19,
        NdisPhysicalMediumNative802_15_4 = 20,
        NdisPhysicalMediumMax = 21,
    }
}

open_enum! {
    /// Bus that an adapter sits on.
    pub enum NDIS_INTERFACE_TYPE {
        NdisInterfaceInternal = 0,
        NdisInterfaceIsa = 1,
        NdisInterfaceEisa = 2,
        NdisInterfaceMca = 3,
        NdisInterfaceTurboChannel = 4,
        NdisInterfacePci = 5,
        NdisInterfacePcMcia = 8,
        NdisInterfaceCBus = 9,
        NdisInterfaceMPIBus = 10,
        NdisInterfaceMPSABus = 11,
        NdisInterfaceProcessorInternal = 12,
        NdisInterfaceInternalPowerBus = 13,
        NdisInterfacePNPISABus = 14,
        NdisInterfacePNPBus = 15,
        NdisInterfaceUSB = 16,
        NdisInterfaceIrda = 17,
        NdisInterface1394 = 18,
        NdisMaximumInterfaceType = 19,
    }
}

open_enum! {
    /// Legacy media state.
    pub enum NDIS_MEDIA_STATE {
        NdisMediaStateConnected = 0,
        NdisMediaStateDisconnected = 1,
    }
}

open_enum! {
    /// Whether the link is up.
    pub enum NET_IF_MEDIA_CONNECT_STATE {
        MediaConnectStateUnknown = 0,
        MediaConnectStateConnected = 1,
        MediaConnectStateDisconnected = 2,
    }
}
pub type NDIS_MEDIA_CONNECT_STATE = NET_IF_MEDIA_CONNECT_STATE;

open_enum! {
    /// Duplex state of the link.
    pub enum NET_IF_MEDIA_DUPLEX_STATE {
        MediaDuplexStateUnknown = 0,
        MediaDuplexStateHalf = 1,
        MediaDuplexStateFull = 2,
    }
}
pub type NDIS_MEDIA_DUPLEX_STATE = NET_IF_MEDIA_DUPLEX_STATE;

open_enum! {
    /// Access type of an interface.
    pub enum NET_IF_ACCESS_TYPE {
        NET_IF_ACCESS_LOOPBACK = 1,
        NET_IF_ACCESS_BROADCAST = 2,
        NET_IF_ACCESS_POINT_TO_POINT = 3,
        NET_IF_ACCESS_POINT_TO_MULTI_POINT = 4,
        NET_IF_ACCESS_MAXIMUM = 5,
    }
}

open_enum! {
    /// Direction of an interface.
    pub enum NET_IF_DIRECTION_TYPE {
        NET_IF_DIRECTION_SENDRECEIVE = 0,
        NET_IF_DIRECTION_SENDONLY = 1,
        NET_IF_DIRECTION_RECEIVEONLY = 2,
        NET_IF_DIRECTION_MAXIMUM = 3,
    }
}

open_enum! {
    /// Connection type of an interface.
    pub enum NET_IF_CONNECTION_TYPE {
        NET_IF_CONNECTION_DEDICATED = 1,
        NET_IF_CONNECTION_PASSIVE = 2,
        NET_IF_CONNECTION_DEMAND = 3,
        NET_IF_CONNECTION_MAXIMUM = 4,
    }
}

open_enum! {
    /// Administrative status of an interface.
    pub enum NET_IF_ADMIN_STATUS {
        NET_IF_ADMIN_STATUS_UP = 1,
        NET_IF_ADMIN_STATUS_DOWN = 2,
        NET_IF_ADMIN_STATUS_TESTING = 3,
    }
}

open_enum! {
    /// Operational status of an interface.
    pub enum NET_IF_OPER_STATUS {
        NET_IF_OPER_STATUS_UP = 1,
        NET_IF_OPER_STATUS_DOWN = 2,
        NET_IF_OPER_STATUS_TESTING = 3,
        NET_IF_OPER_STATUS_UNKNOWN = 4,
        NET_IF_OPER_STATUS_DORMANT = 5,
        NET_IF_OPER_STATUS_NOT_PRESENT = 6,
        NET_IF_OPER_STATUS_LOWER_LAYER_DOWN = 7,
    }
}

open_enum! {
    /// Ethernet flow control.
    pub enum NDIS_SUPPORTED_PAUSE_FUNCTIONS {
        NdisPauseFunctionsUnsupported = 0,
        NdisPauseFunctionsSendOnly = 1,
        NdisPauseFunctionsReceiveOnly = 2,
        NdisPauseFunctionsSendAndReceive = 3,
        NdisPauseFunctionsUnknown = 4,
    }
}

flags! {
    /// What of a link was negotiated (`AutoNegotiationFlags`).
    pub struct NDIS_LINK_STATE_FLAGS: ULONG {
        XMIT_LINK_SPEED_AUTO_NEGOTIATED / NDIS_LINK_STATE_XMIT_LINK_SPEED_AUTO_NEGOTIATED = 0x0000_0001;
        RCV_LINK_SPEED_AUTO_NEGOTIATED / NDIS_LINK_STATE_RCV_LINK_SPEED_AUTO_NEGOTIATED = 0x0000_0002;
        DUPLEX_AUTO_NEGOTIATED / NDIS_LINK_STATE_DUPLEX_AUTO_NEGOTIATED = 0x0000_0004;
        PAUSE_FUNCTIONS_AUTO_NEGOTIATED / NDIS_LINK_STATE_PAUSE_FUNCTIONS_AUTO_NEGOTIATED = 0x0000_0008;
    }
}

/// Speeds in both directions, bits per second.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_LINK_SPEED {
    pub XmitLinkSpeed: ULONG64,
    pub RcvLinkSpeed: ULONG64,
}
layout!(NDIS_LINK_SPEED, size 16, align 8, { XmitLinkSpeed: 0, RcvLinkSpeed: 8 });

/// `NDIS_STATUS_LINK_STATE` indication, `OID_GEN_LINK_STATE`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_LINK_STATE {
    pub Header: NDIS_OBJECT_HEADER,
    pub MediaConnectState: NDIS_MEDIA_CONNECT_STATE,
    pub MediaDuplexState: NDIS_MEDIA_DUPLEX_STATE,
    /// Bits per second.
    pub XmitLinkSpeed: ULONG64,
    /// Bits per second.
    pub RcvLinkSpeed: ULONG64,
    pub PauseFunctions: NDIS_SUPPORTED_PAUSE_FUNCTIONS,
    pub AutoNegotiationFlags: NDIS_LINK_STATE_FLAGS,
}
layout!(NDIS_LINK_STATE, size 40, align 8, {
    Header: 0, MediaConnectState: 4, MediaDuplexState: 8, XmitLinkSpeed: 16, RcvLinkSpeed: 24, PauseFunctions: 32,
    AutoNegotiationFlags: 36,
});
pub const NDIS_LINK_STATE_REVISION_1: UCHAR = 1;
pub const NDIS_SIZEOF_LINK_STATE_REVISION_1: USHORT = 0x28;

/// Input of `OID_GEN_LINK_PARAMETERS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_LINK_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub MediaDuplexState: NDIS_MEDIA_DUPLEX_STATE,
    pub XmitLinkSpeed: ULONG64,
    pub RcvLinkSpeed: ULONG64,
    pub PauseFunctions: NDIS_SUPPORTED_PAUSE_FUNCTIONS,
    pub AutoNegotiationFlags: NDIS_LINK_STATE_FLAGS,
}
layout!(NDIS_LINK_PARAMETERS, size 32, align 8, {
    Header: 0, MediaDuplexState: 4, XmitLinkSpeed: 8, RcvLinkSpeed: 16, PauseFunctions: 24, AutoNegotiationFlags: 28,
});
pub const NDIS_LINK_PARAMETERS_REVISION_1: UCHAR = 1;
pub const NDIS_SIZEOF_LINK_PARAMETERS_REVISION_1: USHORT = 0x20;

/// Operational status of an interface with its reasons.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_OPER_STATE {
    pub Header: NDIS_OBJECT_HEADER,
    pub OperationalStatus: NET_IF_OPER_STATUS,
    pub OperationalStatusFlags: ULONG,
}
layout!(NDIS_OPER_STATE, size 12, align 4, { Header: 0, OperationalStatus: 4, OperationalStatusFlags: 8 });
pub const NDIS_OPER_STATE_REVISION_1: UCHAR = 1;
pub const NDIS_SIZEOF_OPER_STATE_REVISION_1: USHORT = 0xC;

open_enum! {
    /// State of interrupt moderation.
    pub enum NDIS_INTERRUPT_MODERATION {
        NdisInterruptModerationUnknown = 0,
        NdisInterruptModerationNotSupported = 1,
        NdisInterruptModerationEnabled = 2,
        NdisInterruptModerationDisabled = 3,
    }
}

/// `OID_GEN_INTERRUPT_MODERATION`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_INTERRUPT_MODERATION_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub InterruptModeration: NDIS_INTERRUPT_MODERATION,
}
layout!(NDIS_INTERRUPT_MODERATION_PARAMETERS, size 12, align 4, { Header: 0, Flags: 4, InterruptModeration: 8 });
pub const NDIS_INTERRUPT_MODERATION_PARAMETERS_REVISION_1: UCHAR = 1;
pub const NDIS_SIZEOF_INTERRUPT_MODERATION_PARAMETERS_REVISION_1: USHORT = 0xC;

zeroed!(
    NET_LUID,
    NDIS_LINK_SPEED,
    NDIS_LINK_STATE,
    NDIS_LINK_PARAMETERS,
    NDIS_OPER_STATE,
    NDIS_INTERRUPT_MODERATION_PARAMETERS,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luid_fields_come_from_their_bits() {
        let luid = NET_LUID { Value: 0x0006_0080_0312_3456 };
        assert_eq!(luid.IfType(), IF_TYPE_ETHERNET_CSMACD);
        assert_eq!(luid.NetLuidIndex(), 0x00_8003);
    }
}
