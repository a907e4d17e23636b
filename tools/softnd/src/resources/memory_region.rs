//! A memory region: memory of the client's that is lent to the driver, and the registration made of it.
//!
//! Registering is two requests. The first lends the memory, through the provider's own file, and pends as long as the region is
//! registered: that keeps the pages locked, whatever becomes of the client's thread and file. The second is the client's overlapped
//! one; its answer, the two tokens, goes into the loan, which outlives both.

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use softnd_interfaces::{Status, constants::region_flag};
use softndk_ioctl::nd::{
    VERSION,
    control::{MR_CANCEL_IO, MR_CREATE, MR_DEREGISTER, MR_FREE, MR_REGISTER, Register, RegisterReply},
    private::{LOCK_FOR_READING, LOCK_FOR_WRITING, LockMemory},
};
use zerocopy::IntoBytes;

use super::{Resource, adapter::Adapter};
use crate::{
    argument::{Bytes, Overlap},
    device::Loan,
    imports::RawHandle,
    overlapped::RequestFile,
    shared::Shared,
    spin_lock::SpinLock,
};

pub struct MemoryRegion {
    resource: Resource,
    file: RequestFile,
    loan: SpinLock<Option<Shared<Loan>>>,
}

impl MemoryRegion {
    pub fn new(adapter: &Shared<Adapter>, file: RawHandle) -> Result<Shared<Self>, Status> {
        let file = RequestFile::of(adapter.device(), file)?;
        let resource = Resource::under(adapter, MR_CREATE, MR_FREE, adapter.domain())?;
        Shared::new(Self { resource, file, loan: SpinLock::new(None) })
    }

    pub fn handle(&self) -> u64 {
        self.resource.handle()
    }

    /// See [`Resource::shares_handles`].
    pub fn shares_handles(&self, adapter: &Adapter) -> bool {
        self.resource.shares_handles(adapter)
    }

    /// What can be said of a registration without the driver.
    fn check(buffer: Bytes, length: usize, flags: u32, most: u64) -> Result<(), Status> {
        const FLAGS: u32 = region_flag::ALLOW_REMOTE_WRITE
            | region_flag::ALLOW_REMOTE_READ
            | region_flag::RDMA_READ_SINK
            | region_flag::DO_NOT_SECURE_VM;
        if buffer.is_none() || flags & !FLAGS != 0 || length as u64 > most {
            Err(Status::INVALID_PARAMETER)
        } else if length == 0 {
            Err(Status::INVALID_BUFFER_SIZE)
        } else {
            Ok(())
        }
    }

    /// Registers the client's memory. INVALID_PARAMETER for no memory, unknown flags or more than the adapter registers,
    /// INVALID_BUFFER_SIZE for no bytes, ACCESS_VIOLATION where the memory is not there, INVALID_DEVICE_STATE while the region has
    /// memory; otherwise PENDING.
    pub fn register(&self, buffer: Bytes, length: usize, flags: u32, overlapped: Overlap) -> Status {
        self.try_register(buffer, length, flags, overlapped).unwrap_or_else(|status| status)
    }

    fn try_register(&self, buffer: Bytes, length: usize, flags: u32, overlapped: Overlap) -> Result<Status, Status> {
        if overlapped.pointer().is_none() {
            return Err(Status::INVALID_PARAMETER);
        }
        let adapter = self.resource.adapter();
        Self::check(buffer, length, flags, adapter.info().max_registration_size)?;
        // The request that lends it has 32 bits for the length.
        let short = u32::try_from(length).map_err(|_| Status::INVALID_PARAMETER)?;
        let loan = Loan::new(None)?;
        let writes = flags & (region_flag::ALLOW_LOCAL_WRITE | region_flag::RDMA_READ_SINK | REMOTE_WRITE) != 0;
        let code = if writes { LOCK_FOR_WRITING } else { LOCK_FOR_READING };
        let input = LockMemory { version: VERSION, reserved: 0, region: self.handle() };
        let memory = buffer.address() as *mut c_void;
        let device = adapter.device();
        let lend = || device.lend(code, &input, (memory, short), &loan);
        match lend() {
            // The memory of a registration that failed is still on its way back.
            Err(Status::INVALID_DEVICE_STATE) if self.wait_for_recalled() => lend()?,
            answered => answered?,
        }

        let input = Register {
            version: VERSION,
            flags,
            length: length as u64,
            target_address: buffer.address(),
            handle: self.handle(),
            address: buffer.address(),
        };
        let output = (loan.reply().as_ptr().cast_mut().cast(), size_of::<RegisterReply>() as u32);
        let old = self.loan.lock().replace(loan.clone());
        drop(old);
        let status = self.file.start(overlapped, MR_REGISTER, input.as_bytes(), output);
        if !status.is_success() {
            device.recall(&loan);
        }
        Ok(status)
    }

    /// Whether there was memory of a failed registration, and is no more.
    fn wait_for_recalled(&self) -> bool {
        let loan = self.loan.lock().clone();
        loan.is_some_and(|loan| loan.is_recalled() && self.resource.device().wait_for(&loan))
    }

    /// Ends the registration. DEVICE_BUSY while windows are bound to it; otherwise PENDING.
    pub fn deregister(&self, overlapped: Overlap) -> Status {
        match self.file.start_on(overlapped, MR_DEREGISTER, self.handle()) {
            // An error of the driver's, so that no packet can come of it; a warning for the client.
            Status::RESOURCE_IN_USE => Status::DEVICE_BUSY,
            other => other,
        }
    }

    /// Whether the memory of the last registration is back.
    pub fn is_returned(&self) -> bool {
        self.loan.lock().as_ref().is_none_or(|loan| loan.is_returned())
    }

    fn token(&self, index: usize) -> u32 {
        let loan = self.loan.lock();
        let token = loan.as_ref().and_then(|loan| loan.reply().get(index));
        token.map_or(0, |token| token.load(Ordering::Acquire))
    }

    pub fn local_token(&self) -> u32 {
        self.token(0)
    }

    pub fn remote_token(&self) -> u32 {
        self.token(1)
    }

    pub fn cancel(&self) -> Result<(), Status> {
        self.resource.call(MR_CANCEL_IO)
    }
}

/// The bit of ALLOW_REMOTE_WRITE that is not local write.
const REMOTE_WRITE: u32 = region_flag::ALLOW_REMOTE_WRITE & !region_flag::ALLOW_LOCAL_WRITE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registrations_are_looked_at_before_the_driver_is_asked() {
        // SAFETY: an address that is not read.
        let buffer = unsafe { Bytes::at(core::ptr::without_provenance(8)) };
        // SAFETY: no memory.
        let none = unsafe { Bytes::at(core::ptr::null()) };
        for (buffer, length, flags, expected) in [
            (none, 0, 0, Err(Status::INVALID_PARAMETER)),
            (none, 1, 0, Err(Status::INVALID_PARAMETER)),
            (buffer, 0, 0, Err(Status::INVALID_BUFFER_SIZE)),
            (buffer, 100, 0x8000_000F, Ok(())),
            (buffer, 101, 0, Err(Status::INVALID_PARAMETER)),
            (buffer, 1, 0x10, Err(Status::INVALID_PARAMETER)),
        ] {
            assert_eq!(MemoryRegion::check(buffer, length, flags, 100), expected, "{length} {flags:x}");
        }
    }
}
