//! Attributes of an adapter, set with `NdisMSetMiniportAttributes` in `MiniportInitializeEx`: registration attributes first,
//! general attributes second, all others after them. NDIS copies them.

use super::media::{
    NDIS_INTERFACE_TYPE, NDIS_LINK_STATE_FLAGS, NDIS_MAX_PHYS_ADDRESS_LENGTH, NDIS_MEDIA_CONNECT_STATE,
    NDIS_MEDIA_DUPLEX_STATE, NDIS_MEDIUM, NDIS_PHYSICAL_MEDIUM, NET_IF_ACCESS_TYPE, NET_IF_CONNECTION_TYPE,
    NET_IF_DIRECTION_TYPE, NET_IFTYPE,
};
use super::ndk::NDIS_NDK_CAPABILITIES;
use super::object::{NDIS_HANDLE, NDIS_OBJECT_HEADER};
use super::oid::NDIS_OID;
use super::power::NDIS_PM_CAPABILITIES;
use super::rss::NDIS_RECEIVE_SCALE_CAPABILITIES;
use super::statistics::NDIS_STATISTICS_FLAGS;
use crate::abi::{flags, layout, zeroed};
use crate::nt::{BOOLEAN, PVOID, UCHAR, UINT, ULONG, ULONG64, USHORT};

flags! {
    /// `AttributeFlags` of the registration attributes.
    pub struct NDIS_MINIPORT_ATTRIBUTE_FLAGS: ULONG {
        HARDWARE_DEVICE / NDIS_MINIPORT_ATTRIBUTES_HARDWARE_DEVICE = 0x0000_0001;
        NDIS_WDM / NDIS_MINIPORT_ATTRIBUTES_NDIS_WDM = 0x0000_0002;
        SURPRISE_REMOVE_OK / NDIS_MINIPORT_ATTRIBUTES_SURPRISE_REMOVE_OK = 0x0000_0004;
        NOT_CO_NDIS / NDIS_MINIPORT_ATTRIBUTES_NOT_CO_NDIS = 0x0000_0008;
        DO_NOT_BIND_TO_ALL_CO / NDIS_MINIPORT_ATTRIBUTES_DO_NOT_BIND_TO_ALL_CO = 0x0000_0010;
        NO_HALT_ON_SUSPEND / NDIS_MINIPORT_ATTRIBUTES_NO_HALT_ON_SUSPEND = 0x0000_0020;
        BUS_MASTER / NDIS_MINIPORT_ATTRIBUTES_BUS_MASTER = 0x0000_0040;
        CONTROLS_DEFAULT_PORT / NDIS_MINIPORT_ATTRIBUTES_CONTROLS_DEFAULT_PORT = 0x0000_0080;
        NO_PAUSE_ON_SUSPEND / NDIS_MINIPORT_ATTRIBUTES_NO_PAUSE_ON_SUSPEND = 0x0000_0100;
        NO_OID_INTERCEPT_ON_NONDEFAULT_PORTS /
            NDIS_MINIPORT_ATTRIBUTES_NO_OID_INTERCEPT_ON_NONDEFAULT_PORTS = 0x0000_0200;
        REGISTER_BUGCHECK_CALLBACK / NDIS_MINIPORT_ATTRIBUTES_REGISTER_BUGCHECK_CALLBACK = 0x0000_0400;
    }
}

flags! {
    /// `MacOptions` of the general attributes.
    pub struct NDIS_MAC_OPTIONS: ULONG {
        COPY_LOOKAHEAD_DATA / NDIS_MAC_OPTION_COPY_LOOKAHEAD_DATA = 0x0000_0001;
        RECEIVE_SERIALIZED / NDIS_MAC_OPTION_RECEIVE_SERIALIZED = 0x0000_0002;
        TRANSFERS_NOT_PEND / NDIS_MAC_OPTION_TRANSFERS_NOT_PEND = 0x0000_0004;
        NO_LOOPBACK / NDIS_MAC_OPTION_NO_LOOPBACK = 0x0000_0008;
        FULL_DUPLEX / NDIS_MAC_OPTION_FULL_DUPLEX = 0x0000_0010;
        EOTX_INDICATION / NDIS_MAC_OPTION_EOTX_INDICATION = 0x0000_0020;
        PRIORITY_8021P / NDIS_MAC_OPTION_8021P_PRIORITY = 0x0000_0040;
        SUPPORTS_MAC_ADDRESS_OVERWRITE / NDIS_MAC_OPTION_SUPPORTS_MAC_ADDRESS_OVERWRITE = 0x0000_0080;
        RECEIVE_AT_DPC / NDIS_MAC_OPTION_RECEIVE_AT_DPC = 0x0000_0100;
        VLAN_8021Q / NDIS_MAC_OPTION_8021Q_VLAN = 0x0000_0200;
    }
}

flags! {
    /// Packet filter (`OID_GEN_CURRENT_PACKET_FILTER`).
    pub struct NDIS_PACKET_TYPES: ULONG {
        DIRECTED / NDIS_PACKET_TYPE_DIRECTED = 0x0000_0001;
        MULTICAST / NDIS_PACKET_TYPE_MULTICAST = 0x0000_0002;
        ALL_MULTICAST / NDIS_PACKET_TYPE_ALL_MULTICAST = 0x0000_0004;
        BROADCAST / NDIS_PACKET_TYPE_BROADCAST = 0x0000_0008;
        SOURCE_ROUTING / NDIS_PACKET_TYPE_SOURCE_ROUTING = 0x0000_0010;
        PROMISCUOUS / NDIS_PACKET_TYPE_PROMISCUOUS = 0x0000_0020;
        SMT / NDIS_PACKET_TYPE_SMT = 0x0000_0040;
        ALL_LOCAL / NDIS_PACKET_TYPE_ALL_LOCAL = 0x0000_0080;
        GROUP / NDIS_PACKET_TYPE_GROUP = 0x0000_1000;
        ALL_FUNCTIONAL / NDIS_PACKET_TYPE_ALL_FUNCTIONAL = 0x0000_2000;
        FUNCTIONAL / NDIS_PACKET_TYPE_FUNCTIONAL = 0x0000_4000;
        MAC_FRAME / NDIS_PACKET_TYPE_MAC_FRAME = 0x0000_8000;
    }
}

/// The first attributes to set. `Size` is 0x1C, less than the type.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES {
    pub Header: NDIS_OBJECT_HEADER,
    /// Passed to every entry point; also names the adapter to the NDK handlers.
    pub MiniportAdapterContext: NDIS_HANDLE,
    pub AttributeFlags: NDIS_MINIPORT_ATTRIBUTE_FLAGS,
    pub CheckForHangTimeInSeconds: UINT,
    pub InterfaceType: NDIS_INTERFACE_TYPE,
}
layout!(NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES, size 32, align 8, {
    Header: 0, MiniportAdapterContext: 8, AttributeFlags: 16, CheckForHangTimeInSeconds: 20, InterfaceType: 24,
});
pub const NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_1: UCHAR = 1;
pub const NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2: UCHAR = 2;
pub const NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_1: USHORT = 0x1C;
pub const NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2: USHORT = 0x1C;

/// The second attributes to set, mandatory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub MediaType: NDIS_MEDIUM,
    /// Agrees with the INF.
    pub PhysicalMediumType: NDIS_PHYSICAL_MEDIUM,
    /// Payload bytes, without the Ethernet header.
    pub MtuSize: ULONG,
    /// Bits per second, as the next three.
    pub MaxXmitLinkSpeed: ULONG64,
    pub XmitLinkSpeed: ULONG64,
    pub MaxRcvLinkSpeed: ULONG64,
    pub RcvLinkSpeed: ULONG64,
    pub MediaConnectState: NDIS_MEDIA_CONNECT_STATE,
    pub MediaDuplexState: NDIS_MEDIA_DUPLEX_STATE,
    pub LookaheadSize: ULONG,
    /// `NDIS_PNP_CAPABILITIES`, before NDIS 6.20; NULL since.
    pub PowerManagementCapabilities: PVOID,
    pub MacOptions: NDIS_MAC_OPTIONS,
    pub SupportedPacketFilters: NDIS_PACKET_TYPES,
    pub MaxMulticastListSize: ULONG,
    pub MacAddressLength: USHORT,
    pub PermanentMacAddress: [UCHAR; NDIS_MAX_PHYS_ADDRESS_LENGTH],
    pub CurrentMacAddress: [UCHAR; NDIS_MAX_PHYS_ADDRESS_LENGTH],
    /// NULL: no receive side scaling.
    pub RecvScaleCapabilities: *mut NDIS_RECEIVE_SCALE_CAPABILITIES,
    pub AccessType: NET_IF_ACCESS_TYPE,
    pub DirectionType: NET_IF_DIRECTION_TYPE,
    pub ConnectionType: NET_IF_CONNECTION_TYPE,
    pub IfType: NET_IFTYPE,
    /// FALSE for a virtual adapter.
    pub IfConnectorPresent: BOOLEAN,
    pub SupportedStatistics: NDIS_STATISTICS_FLAGS,
    /// A `NDIS_SUPPORTED_PAUSE_FUNCTIONS` value.
    pub SupportedPauseFunctions: ULONG,
    pub DataBackFillSize: ULONG,
    pub ContextBackFillSize: ULONG,
    pub SupportedOidList: *mut NDIS_OID,
    /// Bytes.
    pub SupportedOidListLength: ULONG,
    pub AutoNegotiationFlags: NDIS_LINK_STATE_FLAGS,
    /// Revision 2; mandatory from NDIS 6.20 on.
    pub PowerManagementCapabilitiesEx: *mut NDIS_PM_CAPABILITIES,
}
layout!(NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES, size 224, align 8, {
    Header: 0, Flags: 4, MediaType: 8, PhysicalMediumType: 12, MtuSize: 16, MaxXmitLinkSpeed: 24, XmitLinkSpeed: 32,
    MaxRcvLinkSpeed: 40, RcvLinkSpeed: 48, MediaConnectState: 56, MediaDuplexState: 60, LookaheadSize: 64,
    PowerManagementCapabilities: 72, MacOptions: 80, SupportedPacketFilters: 84, MaxMulticastListSize: 88,
    MacAddressLength: 92, PermanentMacAddress: 94, CurrentMacAddress: 126, RecvScaleCapabilities: 160, AccessType: 168,
    DirectionType: 172, ConnectionType: 176, IfType: 180, IfConnectorPresent: 182, SupportedStatistics: 184,
    SupportedPauseFunctions: 188, DataBackFillSize: 192, ContextBackFillSize: 196, SupportedOidList: 200,
    SupportedOidListLength: 208, AutoNegotiationFlags: 212, PowerManagementCapabilitiesEx: 216,
});
pub const NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_1: UCHAR = 1;
pub const NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2: UCHAR = 2;
pub const NDIS_SIZEOF_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_1: USHORT = 0xD8;
pub const NDIS_SIZEOF_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2: USHORT = 0xE0;

/// NDK attributes, set even while NDK is disabled.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES {
    pub Header: NDIS_OBJECT_HEADER,
    /// Whether NDK is enabled now.
    pub Enabled: BOOLEAN,
    pub NdkCapabilities: *mut NDIS_NDK_CAPABILITIES,
}
layout!(NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES, size 16, align 8, { Header: 0, Enabled: 4, NdkCapabilities: 8 });
pub const NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1: UCHAR = 1;
pub const NDIS_SIZEOF_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1: USHORT = 0x10;

/// Set from the add-device handler of drivers that have one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_MINIPORT_ADD_DEVICE_REGISTRATION_ATTRIBUTES {
    pub Header: NDIS_OBJECT_HEADER,
    pub MiniportAddDeviceContext: NDIS_HANDLE,
    pub Flags: ULONG,
}
layout!(NDIS_MINIPORT_ADD_DEVICE_REGISTRATION_ATTRIBUTES, size 24, align 8, {
    Header: 0, MiniportAddDeviceContext: 8, Flags: 16,
});
pub const NDIS_MINIPORT_ADD_DEVICE_REGISTRATION_ATTRIBUTES_REVISION_1: UCHAR = 1;
pub const NDIS_SIZEOF_MINIPORT_ADD_DEVICE_REGISTRATION_ATTRIBUTES_REVISION_1: USHORT = 0x14;

/// Any attributes; the header tells which. The offload, native 802.11, hardware assist and packet direct members of the header
/// are left out: none of them is larger.
#[repr(C)]
#[derive(Clone, Copy)]
pub union NDIS_MINIPORT_ADAPTER_ATTRIBUTES {
    pub Header: NDIS_OBJECT_HEADER,
    pub AddDeviceRegistrationAttributes: NDIS_MINIPORT_ADD_DEVICE_REGISTRATION_ATTRIBUTES,
    pub RegistrationAttributes: NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES,
    pub GeneralAttributes: NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
    pub NDKAttributes: NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
}
layout!(union NDIS_MINIPORT_ADAPTER_ATTRIBUTES, size 224, align 8, {
    Header: 0, AddDeviceRegistrationAttributes: 0, RegistrationAttributes: 0, GeneralAttributes: 0, NDKAttributes: 0,
});

zeroed!(
    NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
    NDIS_MINIPORT_ADD_DEVICE_REGISTRATION_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_ATTRIBUTES,
);
