//! Status indications: how a miniport reports a change to the layers above.

use super::object::{NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_PORT_NUMBER};
use super::status::NDIS_STATUS;
use crate::abi::{layout, zeroed};
use crate::nt::{GUID, PVOID, UCHAR, ULONG, USHORT};

/// Argument of `NdisMIndicateStatusEx`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_STATUS_INDICATION {
    pub Header: NDIS_OBJECT_HEADER,
    /// The miniport adapter handle.
    pub SourceHandle: NDIS_HANDLE,
    pub PortNumber: NDIS_PORT_NUMBER,
    pub StatusCode: NDIS_STATUS,
    pub Flags: ULONG,
    pub DestinationHandle: NDIS_HANDLE,
    pub RequestId: PVOID,
    pub StatusBuffer: PVOID,
    pub StatusBufferSize: ULONG,
    pub Guid: GUID,
    pub NdisReserved: [PVOID; 4],
}
layout!(NDIS_STATUS_INDICATION, size 112, align 8, {
    Header: 0, SourceHandle: 8, PortNumber: 16, StatusCode: 20, Flags: 24, DestinationHandle: 32, RequestId: 40,
    StatusBuffer: 48, StatusBufferSize: 56, Guid: 60, NdisReserved: 80,
});
pub const NDIS_STATUS_INDICATION_REVISION_1: UCHAR = 1;
pub const NDIS_SIZEOF_STATUS_INDICATION_REVISION_1: USHORT = 0x70;
zeroed!(NDIS_STATUS_INDICATION);
