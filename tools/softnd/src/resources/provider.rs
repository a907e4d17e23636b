//! The way to the driver: its device, opened when it is first needed, and again when the driver was taken away and came back.

use alloc::vec::Vec;
use core::mem::size_of;

use softnd_interfaces::Status;
use softndk_ioctl::nd::{
    VERSION,
    control::{Handle, PROVIDER_RESOLVE_ADDRESS, ResolveAddress, SocketAddress},
    private::{AddressListReply, QUERY_ADDRESSES},
};
use zerocopy::{FromBytes, IntoBytes};

use super::adapter::Adapter;
use crate::{device::Device, heap::try_zeroes, shared::Shared, socket_address, spin_lock::SpinLock};

/// Addresses that the first request for them has room for.
const FIRST_ADDRESSES: usize = 16;
/// How often a list that has grown meanwhile is asked for again.
const ATTEMPTS: usize = 8;

pub struct Provider {
    device: SpinLock<Option<Shared<Device>>>,
}

impl Provider {
    pub const fn new() -> Self {
        Self { device: SpinLock::new(None) }
    }

    /// The addresses of all adapters; none where there is no driver, or the user may not open its device. Clients that list the adapters of
    /// every provider take another failure than of memory for the end of them all; why there are none, [`Provider::open_adapter`] says.
    pub fn addresses(&self) -> Result<Vec<SocketAddress>, Status> {
        match self.with_device(|device| addresses(device, 0)) {
            Err(status) if status != Status::NO_MEMORY && status != Status::INSUFFICIENT_RESOURCES => Ok(Vec::new()),
            other => other,
        }
    }

    /// The adapter that has an address. INVALID_ADDRESS where none has that the user can open, or there is no driver.
    pub fn resolve(&self, address: SocketAddress) -> Result<u64, Status> {
        let input = ResolveAddress { version: VERSION, reserved: 0, address };
        self.with_device(|device| device.ask(PROVIDER_RESOLVE_ADDRESS, &input)).map_err(|status| match status {
            Status::DEVICE_NOT_READY | Status::ACCESS_DENIED => Status::INVALID_ADDRESS,
            other => other,
        })
    }

    pub fn open_adapter(&self, id: u64) -> Result<Shared<Adapter>, Status> {
        self.with_device(|device| Adapter::open(device, id))
    }

    /// Does something with the device; once more with a new one when the old one has gone.
    fn with_device<T>(&self, what: impl Fn(&Shared<Device>) -> Result<T, Status>) -> Result<T, Status> {
        let device = self.device()?;
        match what(&device) {
            Err(
                Status::DEVICE_REMOVED
                | Status::NO_SUCH_DEVICE
                | Status::DEVICE_DOES_NOT_EXIST
                | Status::FILE_CLOSED
                | Status::INVALID_HANDLE,
            ) => {
                let mut current = self.device.lock();
                let old = current.take_if(|current| current.is(&device));
                drop(current);
                drop(old);
                what(&self.device()?)
            }
            other => other,
        }
    }

    fn device(&self) -> Result<Shared<Device>, Status> {
        if let Some(device) = &*self.device.lock() {
            return Ok(device.clone());
        }
        let opened = Device::open()?;
        let mut current = self.device.lock();
        // Another thread may have been faster; the device that is too many is closed after the lock.
        let device = current.get_or_insert_with(|| opened.clone()).clone();
        drop(current);
        Ok(device)
    }
}

/// The addresses of one adapter, or of all with handle 0.
pub fn addresses(device: &Device, handle: u64) -> Result<Vec<SocketAddress>, Status> {
    let header = size_of::<AddressListReply>();
    let mut room = FIRST_ADDRESSES;
    for _ in 0..ATTEMPTS {
        let length = room.saturating_mul(size_of::<SocketAddress>()).saturating_add(header);
        let mut answer = try_zeroes(length)?;
        let input = Handle { version: VERSION, reserved: 0, handle };
        let returned = device.call(QUERY_ADDRESSES, input.as_bytes(), &mut answer)?;
        answer.truncate(returned);
        let (reply, listed) = AddressListReply::read_from_prefix(&answer).map_err(|_| Status::INTERNAL_ERROR)?;
        if reply.count <= reply.returned {
            let bytes = (reply.returned as usize).saturating_mul(size_of::<SocketAddress>()).min(listed.len());
            return socket_address::from_answer(listed.get(..bytes).unwrap_or_default());
        }
        room = reply.count as usize;
    }
    Err(Status::INSUFFICIENT_RESOURCES)
}
