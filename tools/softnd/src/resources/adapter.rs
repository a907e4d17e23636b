//! An open adapter and its protection domain: what every other object lives under.

use alloc::vec::Vec;

use softnd_interfaces::Status;
use softndk_ioctl::nd::{
    INFO_VERSION, VERSION,
    control::{
        ADAPTER_CLOSE, ADAPTER_OPEN, ADAPTER_QUERY, AdapterInfo, AdapterQuery, Handle, OpenAdapter, PD_CREATE, PD_FREE,
        ResourceDescriptor, SocketAddress,
    },
};

use super::provider;
use crate::{device::Device, shared::Shared};

/// The request that lends memory to the driver has 32 bits for its length: all pages that fit into them.
const MAX_REGISTRATION: u64 = 0xFFFF_F000;

pub struct Adapter {
    device: Shared<Device>,
    handle: u64,
    /// 0 until it is made.
    domain: u64,
    info: AdapterInfo,
}

impl Adapter {
    /// INVALID_PARAMETER where no adapter has this id.
    pub fn open(device: &Shared<Device>, id: u64) -> Result<Shared<Self>, Status> {
        let input = OpenAdapter { version: VERSION, adapter_id: id, ..OpenAdapter::default() };
        let made: ResourceDescriptor = device.ask(ADAPTER_OPEN, &input)?;
        // From here on the drop closes it.
        let mut adapter = Self { device: device.clone(), handle: made.handle, domain: 0, info: AdapterInfo::default() };
        let query = AdapterQuery { version: VERSION, info_version: INFO_VERSION, adapter: made.handle };
        adapter.info = device.ask(ADAPTER_QUERY, &query)?;
        adapter.info.max_registration_size = adapter.info.max_registration_size.min(MAX_REGISTRATION);
        adapter.domain = device.ask(PD_CREATE, &Handle { version: VERSION, reserved: 0, handle: made.handle })?;
        Shared::new(adapter)
    }

    pub fn device(&self) -> &Shared<Device> {
        &self.device
    }

    pub fn handle(&self) -> u64 {
        self.handle
    }

    pub fn domain(&self) -> u64 {
        self.domain
    }

    pub fn info(&self) -> &AdapterInfo {
        &self.info
    }

    /// Whether a client may ask for the information by this version: the driver says so, and counts what is no version. NOT_SUPPORTED.
    pub fn check_version(&self, version: u32) -> Result<(), Status> {
        if version == INFO_VERSION {
            return Ok(());
        }
        let query = AdapterQuery { version: VERSION, info_version: version, adapter: self.handle };
        self.device.ask::<AdapterInfo>(ADAPTER_QUERY, &query).map(drop)
    }

    pub fn addresses(&self) -> Result<Vec<SocketAddress>, Status> {
        provider::addresses(&self.device, self.handle)
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        // What fails here goes with the file.
        if self.domain != 0 {
            let _ = self.device.on_handle(PD_FREE, self.domain);
        }
        let _ = self.device.on_handle(ADAPTER_CLOSE, self.handle);
    }
}
