//! IND2MemoryRegion.

use softnd_interfaces::{
    Guid, Status,
    v2::{IND2MemoryRegion, IND2Overlapped, MemoryRegionTable2},
};

use super::{class, overlapped_table};
use crate::{
    argument::{Bytes, Overlap, entry},
    com::Face,
    resources::memory_region::MemoryRegion,
    shared::Shared,
};

pub struct V2MemoryRegion(Shared<MemoryRegion>);

impl Face for V2MemoryRegion {
    type Table = MemoryRegionTable2;
    const TABLE: &'static Self::Table = &MemoryRegionTable2 {
        base: overlapped_table!(V2MemoryRegion),
        register: entry!(
            V2MemoryRegion,
            register(buffer: Bytes, length: usize, flags: u32, overlapped: Overlap) -> Status
        ),
        deregister: entry!(V2MemoryRegion, deregister(overlapped: Overlap) -> Status),
        get_local_token: entry!(V2MemoryRegion, get_local_token() -> u32),
        get_remote_token: entry!(V2MemoryRegion, get_remote_token() -> u32),
    };
    const CLASS: Guid = class(5);
    const INTERFACES: &'static [Guid] = &[IND2MemoryRegion::IID, IND2Overlapped::IID];
}

impl V2MemoryRegion {
    pub fn new(region: Shared<MemoryRegion>) -> Self {
        Self(region)
    }

    pub fn region(&self) -> &Shared<MemoryRegion> {
        &self.0
    }

    fn cancel(&self) -> Result<(), Status> {
        self.0.cancel()
    }

    fn register(&self, buffer: Bytes, length: usize, flags: u32, overlapped: Overlap) -> Status {
        self.0.register(buffer, length, flags, overlapped)
    }

    fn deregister(&self, overlapped: Overlap) -> Status {
        self.0.deregister(overlapped)
    }

    fn get_local_token(&self) -> u32 {
        self.0.local_token()
    }

    fn get_remote_token(&self) -> u32 {
        self.0.remote_token()
    }
}
