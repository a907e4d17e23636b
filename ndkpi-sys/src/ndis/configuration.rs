//! The registry parameters of an adapter.

use super::object::{NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_STRING};
use crate::abi::{layout, open_enum, zeroed};
use crate::nt::{PVOID, UCHAR, ULONG, USHORT};

open_enum! {
    /// How a parameter is read. Enumeration keywords are text, which `NdisParameterInteger` converts.
    pub enum NDIS_PARAMETER_TYPE {
        NdisParameterInteger = 0,
        NdisParameterHexInteger = 1,
        NdisParameterString = 2,
        NdisParameterMultiString = 3,
        NdisParameterBinary = 4,
    }
}

/// Input of `NdisOpenConfigurationEx`. `Size` is 0x14, less than the type.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_CONFIGURATION_OBJECT {
    pub Header: NDIS_OBJECT_HEADER,
    /// The miniport adapter handle.
    pub NdisHandle: NDIS_HANDLE,
    pub Flags: ULONG,
}
layout!(NDIS_CONFIGURATION_OBJECT, size 24, align 8, { Header: 0, NdisHandle: 8, Flags: 16 });
pub const NDIS_CONFIGURATION_OBJECT_REVISION_1: UCHAR = 1;
pub const NDIS_SIZEOF_CONFIGURATION_OBJECT_REVISION_1: USHORT = 0x14;

/// Counted bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BINARY_DATA {
    pub Length: USHORT,
    pub Buffer: PVOID,
}
layout!(BINARY_DATA, size 16, align 8, { Length: 0, Buffer: 8 });

/// Value of a parameter; the type says which member.
#[repr(C)]
#[derive(Clone, Copy)]
pub union NDIS_CONFIGURATION_PARAMETER_DATA {
    pub IntegerData: ULONG,
    pub StringData: NDIS_STRING,
    pub BinaryData: BINARY_DATA,
}
layout!(union NDIS_CONFIGURATION_PARAMETER_DATA, size 16, align 8, { IntegerData: 0, StringData: 0, BinaryData: 0 });

/// A parameter. Its memory belongs to NDIS and is freed with the configuration handle.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_CONFIGURATION_PARAMETER {
    pub ParameterType: NDIS_PARAMETER_TYPE,
    pub ParameterData: NDIS_CONFIGURATION_PARAMETER_DATA,
}
layout!(NDIS_CONFIGURATION_PARAMETER, size 24, align 8, { ParameterType: 0, ParameterData: 8 });

zeroed!(NDIS_CONFIGURATION_OBJECT, BINARY_DATA, NDIS_CONFIGURATION_PARAMETER);
