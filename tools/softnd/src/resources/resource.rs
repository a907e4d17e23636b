//! A handle of the driver's that is freed when its owner goes.

use softnd_interfaces::Status;
use zerocopy::{Immutable, IntoBytes};

use super::adapter::Adapter;
use crate::{device::Device, shared::Shared};
use softndk_ioctl::nd::{
    VERSION,
    control::{Handle, ResourceDescriptor},
};

/// An object of the driver below an adapter, which it keeps.
pub struct Resource {
    adapter: Shared<Adapter>,
    handle: u64,
    free: u32,
}

impl Resource {
    /// Creates one of the simple kinds: under a parent's handle, without anything else.
    pub fn under(adapter: &Shared<Adapter>, create: u32, free: u32, parent: u64) -> Result<Self, Status> {
        let handle = adapter.device().ask(create, &Handle { version: VERSION, reserved: 0, handle: parent })?;
        Ok(Self { adapter: adapter.clone(), handle, free })
    }

    /// Creates a queue.
    pub fn queue(
        adapter: &Shared<Adapter>,
        create: u32,
        free: u32,
        input: &(impl IntoBytes + Immutable),
    ) -> Result<Self, Status> {
        let made: ResourceDescriptor = adapter.device().ask(create, input)?;
        Ok(Self { adapter: adapter.clone(), handle: made.handle, free })
    }

    pub fn adapter(&self) -> &Shared<Adapter> {
        &self.adapter
    }

    /// Whether its handle means this object in a request about the adapter: numbers of other files are other objects, or none. Whether
    /// objects of two opens of one adapter go together is the driver's to say.
    pub fn shares_handles(&self, adapter: &Adapter) -> bool {
        self.adapter.device().is(adapter.device())
    }

    pub fn device(&self) -> &Device {
        self.adapter.device()
    }

    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Sends a request about it and waits for its end.
    pub fn call(&self, code: u32) -> Result<(), Status> {
        self.device().on_handle(code, self.handle)
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        // What the driver cannot free now goes with the file.
        let _ = self.device().on_handle(self.free, self.handle);
        self.device().collect();
    }
}
