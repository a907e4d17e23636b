//! NET_BUFFER_LIST and NET_BUFFER, the flags that travel with them, and the accessor macros of `nblaccessors.h`.
//!
//! Lists and buffers are made by NDIS pools only: the running NDIS decides how large they are, so these types are for access
//! through pointers, never for making one or for `size_of`. The anonymous unions that overlay the first 16 bytes with an
//! `SLIST_HEADER` are left out of the two types; cast the pointer where a list is needed.

use super::object::{NDIS_HANDLE, NDIS_OBJECT_HEADER};
use super::status::NDIS_STATUS;
use crate::abi::{abi_fn, flags, layout, open_enum, zeroed};
use crate::nt::{
    BOOLEAN, LONG, MDL, PHYSICAL_ADDRESS, PVOID, SCATTER_GATHER_LIST, SIZE_T, SLIST_HEADER, UCHAR, ULONG, ULONG_PTR,
    USHORT,
};

/// `DataLength` and `stDataLength`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union NET_BUFFER_DATA_LENGTH {
    pub DataLength: ULONG,
    pub stDataLength: SIZE_T,
}
layout!(union NET_BUFFER_DATA_LENGTH, size 8, align 8, { DataLength: 0, stDataLength: 0 });

/// The data part of a NET_BUFFER: where one frame lies.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NET_BUFFER_DATA {
    pub Next: *mut NET_BUFFER,
    pub CurrentMdl: *mut MDL,
    pub CurrentMdlOffset: ULONG,
    pub NbDataLength: NET_BUFFER_DATA_LENGTH,
    pub MdlChain: *mut MDL,
    pub DataOffset: ULONG,
}
layout!(NET_BUFFER_DATA, size 48, align 8, {
    Next: 0, CurrentMdl: 8, CurrentMdlOffset: 16, NbDataLength: 24, MdlChain: 32, DataOffset: 40,
});

/// The data part as it lies in a NET_BUFFER.
#[repr(C)]
#[derive(Clone, Copy)]
pub union NET_BUFFER_HEADER {
    pub NetBufferData: NET_BUFFER_DATA,
    pub Link: SLIST_HEADER,
}
layout!(union NET_BUFFER_HEADER, size 48, align 16, { NetBufferData: 0, Link: 0 });

/// `SharedMemoryInfo` and `ScatterGatherList`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union NET_BUFFER_MEMORY {
    pub SharedMemoryInfo: PVOID,
    pub ScatterGatherList: *mut SCATTER_GATHER_LIST,
}
layout!(union NET_BUFFER_MEMORY, size 8, align 8, { SharedMemoryInfo: 0, ScatterGatherList: 0 });

/// One frame: `DataLength` bytes along an MDL chain, from `CurrentMdlOffset` in `CurrentMdl` on.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct NET_BUFFER {
    pub Next: *mut NET_BUFFER,
    pub CurrentMdl: *mut MDL,
    pub CurrentMdlOffset: ULONG,
    pub NbDataLength: NET_BUFFER_DATA_LENGTH,
    pub MdlChain: *mut MDL,
    /// Bytes from the start of the chain to the data.
    pub DataOffset: ULONG,
    /// Padding: end of the overlaid part.
    pub Padding: ULONG,
    pub ChecksumBias: USHORT,
    pub Reserved: USHORT,
    pub NdisPoolHandle: NDIS_HANDLE,
    pub NdisReserved: [PVOID; 2],
    pub ProtocolReserved: [PVOID; 6],
    /// The miniport's own while it has the buffer.
    pub MiniportReserved: [PVOID; 4],
    pub DataPhysicalAddress: PHYSICAL_ADDRESS,
    pub Memory: NET_BUFFER_MEMORY,
}
layout!(NET_BUFFER, size 176, align 16, {
    Next: 0, CurrentMdl: 8, CurrentMdlOffset: 16, NbDataLength: 24, MdlChain: 32, DataOffset: 40, Padding: 44,
    ChecksumBias: 48, Reserved: 50, NdisPoolHandle: 56, NdisReserved: 64, ProtocolReserved: 80, MiniportReserved: 128,
    DataPhysicalAddress: 160, Memory: 168,
});

/// Links of a NET_BUFFER_LIST.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NET_BUFFER_LIST_DATA {
    pub Next: *mut NET_BUFFER_LIST,
    pub FirstNetBuffer: *mut NET_BUFFER,
}
layout!(NET_BUFFER_LIST_DATA, size 16, align 8, { Next: 0, FirstNetBuffer: 8 });

/// The links as they lie in a NET_BUFFER_LIST.
#[repr(C)]
#[derive(Clone, Copy)]
pub union NET_BUFFER_LIST_HEADER {
    pub NetBufferListData: NET_BUFFER_LIST_DATA,
    pub Link: SLIST_HEADER,
}
layout!(union NET_BUFFER_LIST_HEADER, size 16, align 16, { NetBufferListData: 0, Link: 0 });

/// A context block; its data follows.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug)]
pub struct NET_BUFFER_LIST_CONTEXT {
    pub Next: *mut NET_BUFFER_LIST_CONTEXT,
    pub Size: USHORT,
    pub Offset: USHORT,
}
layout!(NET_BUFFER_LIST_CONTEXT, size 16, align 16, { Next: 0, Size: 8, Offset: 10 });

/// Slots of `NetBufferListInfo` in the 6.60 contract; the running NDIS may have more behind them.
pub const NDIS_NET_BUFFER_LIST_INFO_SLOTS: usize = 26;

/// A list of frames that travel together.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug)]
pub struct NET_BUFFER_LIST {
    pub Next: *mut NET_BUFFER_LIST,
    pub FirstNetBuffer: *mut NET_BUFFER,
    pub Context: *mut NET_BUFFER_LIST_CONTEXT,
    pub ParentNetBufferList: *mut NET_BUFFER_LIST,
    pub NdisPoolHandle: NDIS_HANDLE,
    /// Padding: the next field is 16-byte aligned.
    pub Padding: ULONG_PTR,
    pub NdisReserved: [PVOID; 2],
    pub ProtocolReserved: [PVOID; 4],
    /// The miniport's own while it has the list.
    pub MiniportReserved: [PVOID; 2],
    /// The current owner's.
    pub Scratch: PVOID,
    /// The adapter handle of the indicator or sender of the list.
    pub SourceHandle: NDIS_HANDLE,
    pub NblFlags: ULONG,
    pub ChildRefCount: LONG,
    pub Flags: NDIS_NBL_FLAGS,
    pub Status: NDIS_STATUS,
    /// Indexed by [`NDIS_NET_BUFFER_LIST_INFO`].
    pub NetBufferListInfo: [PVOID; NDIS_NET_BUFFER_LIST_INFO_SLOTS],
}
layout!(NET_BUFFER_LIST, size 352, align 16, {
    Next: 0, FirstNetBuffer: 8, Context: 16, ParentNetBufferList: 24, NdisPoolHandle: 32, Padding: 40, NdisReserved: 48,
    ProtocolReserved: 64, MiniportReserved: 96, Scratch: 112, SourceHandle: 120, NblFlags: 128, ChildRefCount: 132,
    Flags: 136, Status: 140, NetBufferListInfo: 144,
});

open_enum! {
    /// Slots of `NetBufferListInfo`. Names that share a slot are given once.
    pub enum NDIS_NET_BUFFER_LIST_INFO {
        TcpIpChecksumNetBufferListInfo = 0,
        IPsecOffloadV1NetBufferListInfo = 1,
        TcpLargeSendNetBufferListInfo = 2,
        ClassificationHandleNetBufferListInfo = 3,
        Ieee8021QNetBufferListInfo = 4,
        NetBufferListCancelId = 5,
        MediaSpecificInformation = 6,
        NetBufferListFrameType = 7,
        NetBufferListHashValue = 8,
        NetBufferListHashInfo = 9,
        WfpNetBufferListInfo = 10,
        IPsecOffloadV2TunnelNetBufferListInfo = 11,
        IPsecOffloadV2HeaderNetBufferListInfo = 12,
        NetBufferListCorrelationId = 13,
        NetBufferListFilteringInfo = 14,
        MediaSpecificInformationEx = 15,
        NblOriginalInterfaceIfIndex = 16,
        TcpReceiveBytesTransferred = 17,
        SwitchForwardingReserved = 18,
        SwitchForwardingDetail = 19,
        VirtualSubnetInfo = 20,
        IMReserved = 21,
        TcpRecvSegCoalesceInfo = 22,
        RscTcpTimestampDelta = 23,
        GftOffloadInformation = 24,
        GftFlowEntryId = 25,
    }
}

flags! {
    /// `NET_BUFFER_LIST.Flags`.
    pub struct NDIS_NBL_FLAGS: ULONG {
        SEND_READ_ONLY / NDIS_NBL_FLAGS_SEND_READ_ONLY = 0x0000_0001;
        RECV_READ_ONLY / NDIS_NBL_FLAGS_RECV_READ_ONLY = 0x0000_0002;
        HD_SPLIT / NDIS_NBL_FLAGS_HD_SPLIT = 0x0000_0100;
        IS_IPV4 / NDIS_NBL_FLAGS_IS_IPV4 = 0x0000_0200;
        IS_IPV6 / NDIS_NBL_FLAGS_IS_IPV6 = 0x0000_0400;
        IS_TCP / NDIS_NBL_FLAGS_IS_TCP = 0x0000_0800;
        IS_UDP / NDIS_NBL_FLAGS_IS_UDP = 0x0000_1000;
        SPLIT_AT_UPPER_LAYER_PROTOCOL_HEADER / NDIS_NBL_FLAGS_SPLIT_AT_UPPER_LAYER_PROTOCOL_HEADER = 0x0000_2000;
        SPLIT_AT_UPPER_LAYER_PROTOCOL_PAYLOAD / NDIS_NBL_FLAGS_SPLIT_AT_UPPER_LAYER_PROTOCOL_PAYLOAD = 0x0000_4000;
        IS_LOOPBACK_PACKET / NDIS_NBL_FLAGS_IS_LOOPBACK_PACKET = 0x0000_8000;
        CAPTURE_TIMESTAMP_ON_TRANSMIT / NDIS_NBL_FLAGS_CAPTURE_TIMESTAMP_ON_TRANSMIT = 0x0001_0000;
    }
}

flags! {
    /// Argument of `MiniportSendNetBufferLists`.
    pub struct NDIS_SEND_FLAGS: ULONG {
        /// The caller is at DISPATCH_LEVEL.
        DISPATCH_LEVEL / NDIS_SEND_FLAGS_DISPATCH_LEVEL = 0x0000_0001;
        CHECK_FOR_LOOPBACK / NDIS_SEND_FLAGS_CHECK_FOR_LOOPBACK = 0x0000_0002;
        SINGLE_QUEUE / NDIS_SEND_FLAGS_SINGLE_QUEUE = 0x0000_0004;
        SWITCH_DESTINATION_GROUP / NDIS_SEND_FLAGS_SWITCH_DESTINATION_GROUP = 0x0000_0010;
        SWITCH_SINGLE_SOURCE / NDIS_SEND_FLAGS_SWITCH_SINGLE_SOURCE = 0x0000_0020;
    }
}

flags! {
    /// Argument of `NdisMSendNetBufferListsComplete`.
    pub struct NDIS_SEND_COMPLETE_FLAGS: ULONG {
        /// The caller is at DISPATCH_LEVEL.
        DISPATCH_LEVEL / NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL = 0x0000_0001;
        SINGLE_QUEUE / NDIS_SEND_COMPLETE_FLAGS_SINGLE_QUEUE = 0x0000_0002;
        SWITCH_SINGLE_SOURCE / NDIS_SEND_COMPLETE_FLAGS_SWITCH_SINGLE_SOURCE = 0x0000_0004;
    }
}

flags! {
    /// Argument of `NdisMIndicateReceiveNetBufferLists`.
    pub struct NDIS_RECEIVE_FLAGS: ULONG {
        /// The caller is at DISPATCH_LEVEL.
        DISPATCH_LEVEL / NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL = 0x0000_0001;
        /// The miniport gets the lists back when the call returns.
        RESOURCES / NDIS_RECEIVE_FLAGS_RESOURCES = 0x0000_0002;
        SINGLE_ETHER_TYPE / NDIS_RECEIVE_FLAGS_SINGLE_ETHER_TYPE = 0x0000_0100;
        SINGLE_VLAN / NDIS_RECEIVE_FLAGS_SINGLE_VLAN = 0x0000_0200;
        /// The packet filter was applied exactly.
        PERFECT_FILTERED / NDIS_RECEIVE_FLAGS_PERFECT_FILTERED = 0x0000_0400;
        SINGLE_QUEUE / NDIS_RECEIVE_FLAGS_SINGLE_QUEUE = 0x0000_0800;
        SHARED_MEMORY_INFO_VALID / NDIS_RECEIVE_FLAGS_SHARED_MEMORY_INFO_VALID = 0x0000_1000;
        MORE_NBLS / NDIS_RECEIVE_FLAGS_MORE_NBLS = 0x0000_2000;
        SWITCH_DESTINATION_GROUP / NDIS_RECEIVE_FLAGS_SWITCH_DESTINATION_GROUP = 0x0000_4000;
        SWITCH_SINGLE_SOURCE / NDIS_RECEIVE_FLAGS_SWITCH_SINGLE_SOURCE = 0x0000_8000;
    }
}

flags! {
    /// Argument of `MiniportReturnNetBufferLists`.
    pub struct NDIS_RETURN_FLAGS: ULONG {
        /// The caller is at DISPATCH_LEVEL.
        DISPATCH_LEVEL / NDIS_RETURN_FLAGS_DISPATCH_LEVEL = 0x0000_0001;
        SINGLE_QUEUE / NDIS_RETURN_FLAGS_SINGLE_QUEUE = 0x0000_0002;
        SWITCH_SINGLE_SOURCE / NDIS_RETURN_FLAGS_SWITCH_SINGLE_SOURCE = 0x0000_0004;
    }
}

/// What `NdisAllocateNetBufferListPool` makes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NET_BUFFER_LIST_POOL_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub ProtocolId: UCHAR,
    pub fAllocateNetBuffer: BOOLEAN,
    /// A multiple of 16.
    pub ContextSize: USHORT,
    pub PoolTag: ULONG,
    /// Bytes of data behind every buffer, 0 for none.
    pub DataSize: ULONG,
}
layout!(NET_BUFFER_LIST_POOL_PARAMETERS, size 16, align 4, {
    Header: 0, ProtocolId: 4, fAllocateNetBuffer: 5, ContextSize: 6, PoolTag: 8, DataSize: 12,
});
pub const NET_BUFFER_LIST_POOL_PARAMETERS_REVISION_1: UCHAR = 1;
pub const NDIS_SIZEOF_NET_BUFFER_LIST_POOL_PARAMETERS_REVISION_1: USHORT = 0x10;
/// `ProtocolId` of a pool that belongs to no protocol.
pub const NDIS_PROTOCOL_ID_DEFAULT: UCHAR = 0;

/// What `NdisAllocateNetBufferPool` makes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NET_BUFFER_POOL_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub PoolTag: ULONG,
    pub DataSize: ULONG,
}
layout!(NET_BUFFER_POOL_PARAMETERS, size 12, align 4, { Header: 0, PoolTag: 4, DataSize: 8 });
pub const NET_BUFFER_POOL_PARAMETERS_REVISION_1: UCHAR = 1;
pub const NDIS_SIZEOF_NET_BUFFER_POOL_PARAMETERS_REVISION_1: USHORT = 0xC;

abi_fn! {
    /// Frees an MDL that a data start was advanced over.
    pub type NET_BUFFER_FREE_MDL_HANDLER = fn(Mdl: *mut MDL);
    /// Makes an MDL for a data start to retreat into; NULL if it cannot.
    pub type NET_BUFFER_ALLOCATE_MDL_HANDLER = fn(BufferSize: *mut ULONG) -> *mut MDL;
}

zeroed!(NET_BUFFER_LIST_POOL_PARAMETERS, NET_BUFFER_POOL_PARAMETERS);

macro_rules! accessors {
    ($( $(#[$doc:meta])* $name:ident($Object:ident) -> $Result:ty { $($field:tt)+ } )*) => {$(
        $(#[$doc])*
        ///
        /// The C macro is an lvalue, so this gives the address of the field.
        ///
        /// # Safety
        /// The argument points to a live object of this type.
        #[inline]
        #[must_use]
        pub const unsafe fn $name(object: *mut $Object) -> *mut $Result {
            // SAFETY: the caller guarantees a live object; only the address of its field is formed.
            unsafe { &raw mut (*object).$($field)+ }
        }
    )*};
}

accessors! {
    /// Next buffer of the list.
    NET_BUFFER_NEXT_NB(NET_BUFFER) -> *mut NET_BUFFER { Next }
    /// First MDL of the chain.
    NET_BUFFER_FIRST_MDL(NET_BUFFER) -> *mut MDL { MdlChain }
    /// MDL that the data starts in.
    NET_BUFFER_CURRENT_MDL(NET_BUFFER) -> *mut MDL { CurrentMdl }
    /// Offset of the data in that MDL.
    NET_BUFFER_CURRENT_MDL_OFFSET(NET_BUFFER) -> ULONG { CurrentMdlOffset }
    /// Offset of the data in the chain.
    NET_BUFFER_DATA_OFFSET(NET_BUFFER) -> ULONG { DataOffset }
    /// Bytes of data.
    NET_BUFFER_DATA_LENGTH(NET_BUFFER) -> ULONG { NbDataLength.DataLength }
    /// The miniport's own words.
    NET_BUFFER_MINIPORT_RESERVED(NET_BUFFER) -> [PVOID; 4] { MiniportReserved }
    /// Next list of the chain.
    NET_BUFFER_LIST_NEXT_NBL(NET_BUFFER_LIST) -> *mut NET_BUFFER_LIST { Next }
    /// First buffer of the list.
    NET_BUFFER_LIST_FIRST_NB(NET_BUFFER_LIST) -> *mut NET_BUFFER { FirstNetBuffer }
    /// Completion status.
    NET_BUFFER_LIST_STATUS(NET_BUFFER_LIST) -> NDIS_STATUS { Status }
    /// Flags of the list's owner.
    NET_BUFFER_LIST_FLAGS(NET_BUFFER_LIST) -> NDIS_NBL_FLAGS { Flags }
    /// The miniport's own words.
    NET_BUFFER_LIST_MINIPORT_RESERVED(NET_BUFFER_LIST) -> [PVOID; 2] { MiniportReserved }
    /// Handle of the indicator or sender of the list.
    NET_BUFFER_LIST_SOURCE_HANDLE(NET_BUFFER_LIST) -> NDIS_HANDLE { SourceHandle }
}

/// Address of an information slot (`NET_BUFFER_LIST_INFO`), or `None` for a slot beyond the 6.60 contract.
///
/// # Safety
/// `Nbl` points to a live list.
#[inline]
#[must_use]
pub unsafe fn NET_BUFFER_LIST_INFO(Nbl: *mut NET_BUFFER_LIST, Id: NDIS_NET_BUFFER_LIST_INFO) -> Option<*mut PVOID> {
    let slot = usize::try_from(Id.0).ok().filter(|slot| *slot < NDIS_NET_BUFFER_LIST_INFO_SLOTS)?;
    // SAFETY: the caller guarantees a live list; only the address of its array is formed.
    let slots = unsafe { &raw mut (*Nbl).NetBufferListInfo };
    Some(slots.cast::<PVOID>().wrapping_add(slot))
}

const CANCEL_ID_SLOT: usize = NetBufferListCancelId.0 as usize;

/// The cancel id of a list (`NDIS_GET_NET_BUFFER_LIST_CANCEL_ID`).
///
/// # Safety
/// `Nbl` points to a live list.
#[inline]
#[must_use]
pub unsafe fn NDIS_GET_NET_BUFFER_LIST_CANCEL_ID(Nbl: *const NET_BUFFER_LIST) -> PVOID {
    // SAFETY: the caller guarantees a live list.
    let list = unsafe { &*Nbl };
    list.NetBufferListInfo[CANCEL_ID_SLOT]
}

/// Gives a list a cancel id (`NDIS_SET_NET_BUFFER_LIST_CANCEL_ID`).
///
/// # Safety
/// `Nbl` points to a live list that the caller owns.
#[inline]
pub unsafe fn NDIS_SET_NET_BUFFER_LIST_CANCEL_ID(Nbl: *mut NET_BUFFER_LIST, CancelId: PVOID) {
    // SAFETY: the caller guarantees a valid list without other accesses.
    let list = unsafe { &mut *Nbl };
    list.NetBufferListInfo[CANCEL_ID_SLOT] = CancelId;
}

#[cfg(test)]
mod tests {
    use core::mem::MaybeUninit;
    use core::ptr::{null_mut, without_provenance_mut};

    use super::*;

    #[test]
    fn accessors_reach_the_fields_that_they_name() {
        // NDIS makes lists; a zeroed one serves for its addresses.
        let mut storage = MaybeUninit::<NET_BUFFER_LIST>::zeroed();
        let list = storage.as_mut_ptr();
        // SAFETY: the list lives until the end of the test.
        let status = unsafe { NET_BUFFER_LIST_STATUS(list) };
        assert_eq!(status.addr() - list.addr(), 0x8C);
        // SAFETY: as above.
        let source = unsafe { NET_BUFFER_LIST_SOURCE_HANDLE(list) };
        assert_eq!(source.addr() - list.addr(), 0x78);

        let mut storage = MaybeUninit::<NET_BUFFER>::zeroed();
        let buffer = storage.as_mut_ptr();
        // SAFETY: the buffer lives until the end of the test.
        let length = unsafe { NET_BUFFER_DATA_LENGTH(buffer) };
        assert_eq!(length.addr() - buffer.addr(), 0x18);
    }

    #[test]
    fn the_cancel_id_is_slot_five_and_unknown_slots_are_refused() {
        let mut storage = MaybeUninit::<NET_BUFFER_LIST>::zeroed();
        let list = storage.as_mut_ptr();
        // SAFETY: the list lives until the end of the test, here and below.
        unsafe { NDIS_SET_NET_BUFFER_LIST_CANCEL_ID(list, without_provenance_mut(0x55)) };
        // SAFETY: as above.
        assert_eq!(unsafe { NDIS_GET_NET_BUFFER_LIST_CANCEL_ID(list) }.addr(), 0x55);
        // SAFETY: as above.
        let slot = unsafe { NET_BUFFER_LIST_INFO(list, NetBufferListCancelId) }.unwrap_or(null_mut());
        assert_eq!(slot.addr() - list.addr(), 0x90 + 5 * 8);
        // SAFETY: as above.
        assert_eq!(unsafe { NET_BUFFER_LIST_INFO(list, NDIS_NET_BUFFER_LIST_INFO(26)) }, None);
        // SAFETY: as above.
        assert_eq!(unsafe { NET_BUFFER_LIST_INFO(list, NDIS_NET_BUFFER_LIST_INFO(-1)) }, None);
    }
}
