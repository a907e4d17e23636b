//! OID requests, in the 6.60 layout. A request of an older NDIS is shorter: read what follows `Reserved2` only if the
//! header's size covers it.

use super::object::{NDIS_HANDLE, NDIS_NIC_SWITCH_ID, NDIS_NIC_SWITCH_VPORT_ID, NDIS_OBJECT_HEADER, NDIS_PORT_NUMBER};
use super::oid::NDIS_OID;
use crate::abi::{layout, open_enum, zeroed};
use crate::nt::{PVOID, UCHAR, UINT, ULONG, USHORT};

open_enum! {
    /// Kind of an OID request. Statistics queries are treated as queries.
    pub enum NDIS_REQUEST_TYPE {
        NdisRequestQueryInformation = 0,
        NdisRequestSetInformation = 1,
        NdisRequestQueryStatistics = 2,
        NdisRequestOpen = 3,
        NdisRequestClose = 4,
        NdisRequestSend = 5,
        NdisRequestTransferData = 6,
        NdisRequestReset = 7,
        NdisRequestGeneric1 = 8,
        NdisRequestGeneric2 = 9,
        NdisRequestGeneric3 = 10,
        NdisRequestGeneric4 = 11,
        NdisRequestMethod = 12,
    }
}

/// A query: the handler fills the buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_OID_REQUEST_QUERY {
    pub Oid: NDIS_OID,
    pub InformationBuffer: PVOID,
    pub InformationBufferLength: UINT,
    pub BytesWritten: UINT,
    pub BytesNeeded: UINT,
}
layout!(NDIS_OID_REQUEST_QUERY, size 32, align 8, {
    Oid: 0, InformationBuffer: 8, InformationBufferLength: 16, BytesWritten: 20, BytesNeeded: 24,
});

/// A set: the handler reads the buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_OID_REQUEST_SET {
    pub Oid: NDIS_OID,
    pub InformationBuffer: PVOID,
    pub InformationBufferLength: UINT,
    pub BytesRead: UINT,
    pub BytesNeeded: UINT,
}
layout!(NDIS_OID_REQUEST_SET, size 32, align 8, {
    Oid: 0, InformationBuffer: 8, InformationBufferLength: 16, BytesRead: 20, BytesNeeded: 24,
});

/// A method: one buffer in and out.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_OID_REQUEST_METHOD {
    pub Oid: NDIS_OID,
    pub InformationBuffer: PVOID,
    pub InputBufferLength: ULONG,
    pub OutputBufferLength: ULONG,
    pub MethodId: ULONG,
    pub BytesWritten: UINT,
    pub BytesRead: UINT,
    pub BytesNeeded: UINT,
}
layout!(NDIS_OID_REQUEST_METHOD, size 40, align 8, {
    Oid: 0, InformationBuffer: 8, InputBufferLength: 16, OutputBufferLength: 20, MethodId: 24, BytesWritten: 28,
    BytesRead: 32, BytesNeeded: 36,
});

/// The part of a request that its type decides (`DATA`).
#[repr(C)]
#[derive(Clone, Copy)]
pub union NDIS_OID_REQUEST_DATA {
    pub QUERY_INFORMATION: NDIS_OID_REQUEST_QUERY,
    pub SET_INFORMATION: NDIS_OID_REQUEST_SET,
    pub METHOD_INFORMATION: NDIS_OID_REQUEST_METHOD,
    /// Every member begins with the object identifier.
    pub Oid: NDIS_OID,
}
layout!(union NDIS_OID_REQUEST_DATA, size 40, align 8, {
    QUERY_INFORMATION: 0, SET_INFORMATION: 0, METHOD_INFORMATION: 0, Oid: 0,
});

/// An OID request.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_OID_REQUEST {
    pub Header: NDIS_OBJECT_HEADER,
    pub RequestType: NDIS_REQUEST_TYPE,
    pub PortNumber: NDIS_PORT_NUMBER,
    pub Timeout: UINT,
    pub RequestId: PVOID,
    pub RequestHandle: NDIS_HANDLE,
    pub DATA: NDIS_OID_REQUEST_DATA,
    pub NdisReserved: [UCHAR; 128],
    /// The miniport's own while it has the request.
    pub MiniportReserved: [UCHAR; 16],
    pub SourceReserved: [UCHAR; 16],
    pub SupportedRevision: UCHAR,
    pub Reserved1: UCHAR,
    pub Reserved2: USHORT,
    /// Revision 2.
    pub SwitchId: NDIS_NIC_SWITCH_ID,
    /// Revision 2.
    pub VPortId: NDIS_NIC_SWITCH_VPORT_ID,
    /// Revision 2.
    pub Flags: ULONG,
}
layout!(NDIS_OID_REQUEST, size 248, align 8, {
    Header: 0, RequestType: 4, PortNumber: 8, Timeout: 12, RequestId: 16, RequestHandle: 24, DATA: 32, NdisReserved: 72,
    MiniportReserved: 200, SourceReserved: 216, SupportedRevision: 232, Reserved1: 233, Reserved2: 234, SwitchId: 236,
    VPortId: 240, Flags: 244,
});
pub const NDIS_OID_REQUEST_REVISION_1: UCHAR = 1;
pub const NDIS_OID_REQUEST_REVISION_2: UCHAR = 2;
pub const NDIS_SIZEOF_OID_REQUEST_REVISION_1: USHORT = 0xEC;
pub const NDIS_SIZEOF_OID_REQUEST_REVISION_2: USHORT = 0xF8;

zeroed!(NDIS_OID_REQUEST_QUERY, NDIS_OID_REQUEST_SET, NDIS_OID_REQUEST_METHOD, NDIS_OID_REQUEST_DATA, NDIS_OID_REQUEST);

impl NDIS_OID_REQUEST {
    /// The object identifier, whatever the type of the request.
    #[must_use]
    pub const fn Oid(&self) -> NDIS_OID {
        // SAFETY: every member of the union begins with the identifier, and any bytes are valid for it.
        unsafe { self.DATA.Oid }
    }
}
