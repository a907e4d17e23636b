//! The number of live objects in the driver, for finding leaks.

use crate::header::{Method, Request, RequestHeader, control_code};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Counts live objects of all adapters and files. METHOD_BUFFERED.
///
/// Statuses: SUCCESS; INFO_LENGTH_MISMATCH; REVISION_MISMATCH; BUFFER_TOO_SMALL (output shorter than
/// [`ObjectSummaryReply`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ObjectSummaryRequest {
    /// Version and size.
    pub header: RequestHeader,
}

impl Request for ObjectSummaryRequest {
    const CODE: u32 = control_code(0x802, Method::Buffered);
    type Reply = ObjectSummaryReply;
}

/// Live objects of a provider, and pairs of ndktest.sys; each driver leaves the other's numbers 0. The numbers are read one after the other, not at one
/// instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ObjectSummaryReply {
    /// ABI version, and the size of this reply.
    pub header: RequestHeader,
    /// Adapters initialised.
    pub adapters: u32,
    /// NDK_ADAPTER objects open.
    pub ndk_adapters: u32,
    /// Completion queues.
    pub completion_queues: u32,
    /// Protection domains.
    pub protection_domains: u32,
    /// Memory regions, fast-register ones included.
    pub memory_regions: u32,
    /// Logical address mappings.
    pub logical_mappings: u32,
    /// Memory windows.
    pub memory_windows: u32,
    /// Shared receive queues.
    pub shared_receive_queues: u32,
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Listeners.
    pub listeners: u32,
    /// Connectors.
    pub connectors: u32,
    /// Shared endpoints.
    pub shared_endpoints: u32,
    /// Files open on the control device.
    pub files: u32,
    /// Pairs of all files.
    pub pairs: u32,
    /// Pool bytes the driver holds for NDK objects and their queues.
    pub pool_bytes: u64,
    /// Pool blocks the driver holds for NDK objects and their queues.
    pub pool_blocks: u64,
}

const _: () = {
    assert!(size_of::<ObjectSummaryRequest>() == 8);
    assert!(size_of::<ObjectSummaryReply>() == 80);
    assert!(core::mem::offset_of!(ObjectSummaryReply, adapters) == 8);
    assert!(core::mem::offset_of!(ObjectSummaryReply, pairs) == 60);
    assert!(core::mem::offset_of!(ObjectSummaryReply, pool_bytes) == 64);
    assert!(core::mem::offset_of!(ObjectSummaryReply, pool_blocks) == 72);
};
