//! What every NDIS structure begins with, and the small types that most of them use.
//!
//! The rule of the header: `Size` is the size *through the last field of the revision*, which can be less than the size of the
//! Rust type. The receiver of a structure accepts a revision and a size that are at least its own.

use crate::abi::{layout, zeroed};
use crate::nt::{PVOID, UCHAR, ULONG, UNICODE_STRING, USHORT};

pub type NDIS_HANDLE = PVOID;
pub type PNDIS_HANDLE = *mut NDIS_HANDLE;
pub type NDIS_STRING = UNICODE_STRING;
pub type NDIS_PORT_NUMBER = ULONG;
pub type NDIS_NIC_SWITCH_ID = ULONG;
pub type NDIS_NIC_SWITCH_VPORT_ID = ULONG;
pub type NDIS_SWITCH_PORT_ID = ULONG;

pub const NDIS_DEFAULT_PORT_NUMBER: NDIS_PORT_NUMBER = 0;
pub const NDIS_DEFAULT_SWITCH_ID: NDIS_NIC_SWITCH_ID = 0;
pub const NDIS_DEFAULT_VPORT_ID: NDIS_NIC_SWITCH_VPORT_ID = 0;

/// The contract that this module's layouts belong to, as a miniport declares it: 6.60, Windows Server 2016 and later.
pub const NDIS_MINIPORT_MAJOR_VERSION: UCHAR = 6;
pub const NDIS_MINIPORT_MINOR_VERSION: UCHAR = 60;

/// `NdisGetVersion` of Windows Server 2012, the first with NDKPI.
pub const NDIS_RUNTIME_VERSION_630: ULONG = 0x0006_001E;
/// `NdisGetVersion` of Windows 10 1607 and Windows Server 2016.
pub const NDIS_RUNTIME_VERSION_660: ULONG = 0x0006_003C;
/// `NdisGetVersion` of Windows Server 2022.
pub const NDIS_RUNTIME_VERSION_685: ULONG = 0x0006_0055;

/// Type, revision and size of an NDIS structure.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NDIS_OBJECT_HEADER {
    pub Type: UCHAR,
    pub Revision: UCHAR,
    pub Size: USHORT,
}
layout!(NDIS_OBJECT_HEADER, size 4, align 2, { Type: 0, Revision: 1, Size: 2 });
zeroed!(NDIS_OBJECT_HEADER);

impl NDIS_OBJECT_HEADER {
    #[must_use]
    pub const fn new(Type: UCHAR, Revision: UCHAR, Size: USHORT) -> Self {
        Self { Type, Revision, Size }
    }

    /// True if the structure is of this type and at least as new and as long as required: the check a receiver makes.
    #[must_use]
    pub const fn is_at_least(self, Type: UCHAR, Revision: UCHAR, Size: USHORT) -> bool {
        self.Type == Type && self.Revision >= Revision && self.Size >= Size
    }
}

/// For structures that have no type of their own.
pub const NDIS_OBJECT_TYPE_DEFAULT: UCHAR = 0x80;
pub const NDIS_OBJECT_TYPE_MINIPORT_INIT_PARAMETERS: UCHAR = 0x81;
pub const NDIS_OBJECT_TYPE_SG_DMA_DESCRIPTION: UCHAR = 0x83;
pub const NDIS_OBJECT_TYPE_MINIPORT_INTERRUPT: UCHAR = 0x84;
pub const NDIS_OBJECT_TYPE_DEVICE_OBJECT_ATTRIBUTES: UCHAR = 0x85;
pub const NDIS_OBJECT_TYPE_BIND_PARAMETERS: UCHAR = 0x86;
pub const NDIS_OBJECT_TYPE_OPEN_PARAMETERS: UCHAR = 0x87;
pub const NDIS_OBJECT_TYPE_RSS_CAPABILITIES: UCHAR = 0x88;
pub const NDIS_OBJECT_TYPE_RSS_PARAMETERS: UCHAR = 0x89;
pub const NDIS_OBJECT_TYPE_MINIPORT_DRIVER_CHARACTERISTICS: UCHAR = 0x8A;
pub const NDIS_OBJECT_TYPE_FILTER_DRIVER_CHARACTERISTICS: UCHAR = 0x8B;
pub const NDIS_OBJECT_TYPE_FILTER_PARTIAL_CHARACTERISTICS: UCHAR = 0x8C;
pub const NDIS_OBJECT_TYPE_FILTER_ATTRIBUTES: UCHAR = 0x8D;
pub const NDIS_OBJECT_TYPE_CO_PROTOCOL_CHARACTERISTICS: UCHAR = 0x90;
pub const NDIS_OBJECT_TYPE_CO_MINIPORT_CHARACTERISTICS: UCHAR = 0x91;
pub const NDIS_OBJECT_TYPE_MINIPORT_PNP_CHARACTERISTICS: UCHAR = 0x92;
pub const NDIS_OBJECT_TYPE_PROTOCOL_DRIVER_CHARACTERISTICS: UCHAR = 0x95;
pub const NDIS_OBJECT_TYPE_OID_REQUEST: UCHAR = 0x96;
pub const NDIS_OBJECT_TYPE_TIMER_CHARACTERISTICS: UCHAR = 0x97;
pub const NDIS_OBJECT_TYPE_STATUS_INDICATION: UCHAR = 0x98;
pub const NDIS_OBJECT_TYPE_FILTER_ATTACH_PARAMETERS: UCHAR = 0x99;
pub const NDIS_OBJECT_TYPE_FILTER_PAUSE_PARAMETERS: UCHAR = 0x9A;
pub const NDIS_OBJECT_TYPE_FILTER_RESTART_PARAMETERS: UCHAR = 0x9B;
pub const NDIS_OBJECT_TYPE_PORT_CHARACTERISTICS: UCHAR = 0x9C;
pub const NDIS_OBJECT_TYPE_PORT_STATE: UCHAR = 0x9D;
pub const NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES: UCHAR = 0x9E;
pub const NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES: UCHAR = 0x9F;
pub const NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES: UCHAR = 0xA0;
pub const NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NATIVE_802_11_ATTRIBUTES: UCHAR = 0xA1;
pub const NDIS_OBJECT_TYPE_RESTART_GENERAL_ATTRIBUTES: UCHAR = 0xA2;
pub const NDIS_OBJECT_TYPE_PROTOCOL_RESTART_PARAMETERS: UCHAR = 0xA3;
pub const NDIS_OBJECT_TYPE_MINIPORT_ADD_DEVICE_REGISTRATION_ATTRIBUTES: UCHAR = 0xA4;
pub const NDIS_OBJECT_TYPE_CO_CALL_MANAGER_OPTIONAL_HANDLERS: UCHAR = 0xA5;
pub const NDIS_OBJECT_TYPE_CO_CLIENT_OPTIONAL_HANDLERS: UCHAR = 0xA6;
pub const NDIS_OBJECT_TYPE_OFFLOAD: UCHAR = 0xA7;
pub const NDIS_OBJECT_TYPE_OFFLOAD_ENCAPSULATION: UCHAR = 0xA8;
pub const NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT: UCHAR = 0xA9;
pub const NDIS_OBJECT_TYPE_DRIVER_WRAPPER_OBJECT: UCHAR = 0xAA;
pub const NDIS_OBJECT_TYPE_HD_SPLIT_ATTRIBUTES: UCHAR = 0xAB;
pub const NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES: UCHAR = 0xAF;
pub const NDIS_OBJECT_TYPE_SHARED_MEMORY_PROVIDER_CHARACTERISTICS: UCHAR = 0xB0;
pub const NDIS_OBJECT_TYPE_RSS_PROCESSOR_INFO: UCHAR = 0xB1;
pub const NDIS_OBJECT_TYPE_NDK_PROVIDER_CHARACTERISTICS: UCHAR = 0xB2;
pub const NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES: UCHAR = 0xB3;
pub const NDIS_OBJECT_TYPE_MINIPORT_SS_CHARACTERISTICS: UCHAR = 0xB4;
pub const NDIS_OBJECT_TYPE_QOS_CAPABILITIES: UCHAR = 0xB5;
pub const NDIS_OBJECT_TYPE_QOS_PARAMETERS: UCHAR = 0xB6;
pub const NDIS_OBJECT_TYPE_QOS_CLASSIFICATION_ELEMENT: UCHAR = 0xB7;
pub const NDIS_OBJECT_TYPE_SWITCH_OPTIONAL_HANDLERS: UCHAR = 0xB8;
pub const NDIS_OBJECT_TYPE_PD_TRANSMIT_QUEUE: UCHAR = 0xBE;
pub const NDIS_OBJECT_TYPE_PD_RECEIVE_QUEUE: UCHAR = 0xBF;
pub const NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_PACKET_DIRECT_ATTRIBUTES: UCHAR = 0xC5;
pub const NDIS_OBJECT_TYPE_MINIPORT_DEVICE_POWER_NOTIFICATION: UCHAR = 0xC6;
pub const NDIS_OBJECT_TYPE_RSS_PARAMETERS_V2: UCHAR = 0xC8;
pub const NDIS_OBJECT_TYPE_RSS_SET_INDIRECTION_ENTRIES: UCHAR = 0xC9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_or_longer_structure_is_accepted_and_an_older_or_shorter_one_is_not() {
        let known = |revision, size| {
            NDIS_OBJECT_HEADER::new(NDIS_OBJECT_TYPE_OID_REQUEST, revision, size).is_at_least(
                NDIS_OBJECT_TYPE_OID_REQUEST,
                2,
                0xF8,
            )
        };
        assert!(known(2, 0xF8));
        assert!(known(3, 0x100));
        assert!(!known(1, 0xF8));
        assert!(!known(2, 0xF7));
        let other = NDIS_OBJECT_HEADER::new(NDIS_OBJECT_TYPE_DEFAULT, 2, 0xF8);
        assert!(!other.is_at_least(NDIS_OBJECT_TYPE_OID_REQUEST, 2, 0xF8));
    }
}
