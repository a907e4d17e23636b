//! Receive side scaling: the little that a miniport without it needs.

use super::object::NDIS_OBJECT_HEADER;
use crate::abi::{layout, zeroed};
use crate::nt::{PROCESSOR_NUMBER, UCHAR, ULONG, USHORT};

pub type NDIS_RSS_CAPS_FLAGS = ULONG;
pub type NDIS_RSS_PROFILE = i32;

/// What receive side scaling an adapter can do.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_RECEIVE_SCALE_CAPABILITIES {
    pub Header: NDIS_OBJECT_HEADER,
    pub CapabilitiesFlags: NDIS_RSS_CAPS_FLAGS,
    pub NumberOfInterruptMessages: ULONG,
    pub NumberOfReceiveQueues: ULONG,
    /// Revision 2.
    pub NumberOfIndirectionTableEntries: USHORT,
}
layout!(NDIS_RECEIVE_SCALE_CAPABILITIES, size 20, align 4, {
    Header: 0, CapabilitiesFlags: 4, NumberOfInterruptMessages: 8, NumberOfReceiveQueues: 12,
    NumberOfIndirectionTableEntries: 16,
});
pub const NDIS_SIZEOF_RECEIVE_SCALE_CAPABILITIES_REVISION_1: USHORT = 0x10;
pub const NDIS_SIZEOF_RECEIVE_SCALE_CAPABILITIES_REVISION_2: USHORT = 0x12;
pub const NDIS_SIZEOF_RECEIVE_SCALE_CAPABILITIES_REVISION_3: USHORT = 0x12;

/// Processors that an adapter should use; an array of processors lies at an offset behind it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDIS_RSS_PROCESSOR_INFO {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub RssBaseProcessor: PROCESSOR_NUMBER,
    pub MaxNumRssProcessors: ULONG,
    pub PreferredNumaNode: USHORT,
    pub RssProcessorArrayOffset: ULONG,
    pub RssProcessorCount: ULONG,
    pub RssProcessorEntrySize: ULONG,
    /// Revision 2.
    pub RssMaxProcessor: PROCESSOR_NUMBER,
    /// Revision 2.
    pub RssProfile: NDIS_RSS_PROFILE,
}
layout!(NDIS_RSS_PROCESSOR_INFO, size 40, align 4, {
    Header: 0, Flags: 4, RssBaseProcessor: 8, MaxNumRssProcessors: 12, PreferredNumaNode: 16,
    RssProcessorArrayOffset: 20, RssProcessorCount: 24, RssProcessorEntrySize: 28, RssMaxProcessor: 32, RssProfile: 36,
});
pub const NDIS_RSS_PROCESSOR_INFO_REVISION_1: UCHAR = 1;
pub const NDIS_RSS_PROCESSOR_INFO_REVISION_2: UCHAR = 2;
pub const NDIS_SIZEOF_RSS_PROCESSOR_INFO_REVISION_1: USHORT = 0x20;
pub const NDIS_SIZEOF_RSS_PROCESSOR_INFO_REVISION_2: USHORT = 0x28;

zeroed!(NDIS_RECEIVE_SCALE_CAPABILITIES, NDIS_RSS_PROCESSOR_INFO);
