//! A memory window.
//!
//! It keeps the region that it was bound to last: the driver does not free a region under a window, and clients release both in any
//! order.

use core::sync::atomic::{AtomicU32, Ordering};

use softnd_interfaces::Status;
use softndk_ioctl::nd::control::{MW_CREATE, MW_FREE};

use super::{Resource, adapter::Adapter, memory_region::MemoryRegion};
use crate::{shared::Shared, spin_lock::SpinLock};

pub struct MemoryWindow {
    // Freed before the region is.
    resource: Resource,
    region: SpinLock<Option<Shared<MemoryRegion>>>,
    token: AtomicU32,
}

impl MemoryWindow {
    pub fn new(adapter: &Shared<Adapter>) -> Result<Self, Status> {
        let resource = Resource::under(adapter, MW_CREATE, MW_FREE, adapter.domain())?;
        Ok(Self { resource, region: SpinLock::new(None), token: AtomicU32::new(0) })
    }

    pub fn handle(&self) -> u64 {
        self.resource.handle()
    }

    /// See [`Resource::shares_handles`].
    pub fn shares_handles(&self, adapter: &Adapter) -> bool {
        self.resource.shares_handles(adapter)
    }

    /// A Bind was posted.
    pub fn bound(&self, region: &Shared<MemoryRegion>, token: u32) {
        self.token.store(token, Ordering::Release);
        let old = self.region.lock().replace(region.clone());
        drop(old);
    }

    /// The token of the last Bind, 0 before the first.
    pub fn remote_token(&self) -> u32 {
        self.token.load(Ordering::Acquire)
    }
}
