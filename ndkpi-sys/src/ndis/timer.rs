//! NDIS timers and work items.

use super::object::{NDIS_HANDLE, NDIS_OBJECT_HEADER};
use crate::abi::{abi_fn, layout, zeroed};
use crate::nt::{PVOID, UCHAR, ULONG, USHORT};

abi_fn! {
    /// Timer function, DISPATCH_LEVEL.
    pub type PNDIS_TIMER_FUNCTION = fn(
        SystemSpecific1: PVOID,
        FunctionContext: PVOID,
        SystemSpecific2: PVOID,
        SystemSpecific3: PVOID,
    );

    /// Work item function, PASSIVE_LEVEL.
    pub type NDIS_IO_WORKITEM_ROUTINE = fn(WorkItemContext: PVOID, NdisIoWorkItemHandle: NDIS_HANDLE);
}

/// Input of `NdisAllocateTimerObject`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_TIMER_CHARACTERISTICS {
    pub Header: NDIS_OBJECT_HEADER,
    pub AllocationTag: ULONG,
    pub TimerFunction: Option<PNDIS_TIMER_FUNCTION>,
    pub FunctionContext: PVOID,
}
layout!(NDIS_TIMER_CHARACTERISTICS, size 24, align 8, {
    Header: 0, AllocationTag: 4, TimerFunction: 8, FunctionContext: 16,
});
pub const NDIS_TIMER_CHARACTERISTICS_REVISION_1: UCHAR = 1;
pub const NDIS_SIZEOF_TIMER_CHARACTERISTICS_REVISION_1: USHORT = 0x18;
zeroed!(NDIS_TIMER_CHARACTERISTICS);
