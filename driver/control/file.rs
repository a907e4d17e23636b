//! An open handle of the control device: made at create, emptied at cleanup, freed at close.

use core::{
    ptr,
    ptr::NonNull,
    sync::atomic::{AtomicBool, Ordering},
};

use ndkpi_sys::nt::{DEVICE_OBJECT, IRP};
use wdk_sys::{
    FILE_OBJECT, NTSTATUS, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_DEVICE_REQUEST, STATUS_OBJECT_NAME_NOT_FOUND,
    STATUS_SUCCESS,
};

use super::{device::FILES, irp::Request};
use crate::{
    driver::Driver,
    kernel::{
        pool::{OutOfMemory, PoolBox, tags},
        rundown::Rundown,
    },
};

// Create, cleanup and close do not pass the driver's gate for requests (`Driver::requests`), and need not. They use what lives until
// unload (the pairs, the workers), and the system does not unload a driver one of whose devices has an open file (NDIS: the device
// object keeps the driver object). What a pair has of an adapter is a reference on that adapter's gate, for which HaltEx waits; of a
// halt and a cleanup that end the same pair, one waits for the other (`Pairs::closing`). And a file has to be cleaned up when the
// gate is shut, too: handles outlive adapters.

/// What a handle owns.
pub struct ControlFile {
    /// One reference per request that pends.
    requests: Rundown,
    /// The last handle is closed: requests should end.
    closing: AtomicBool,
}

impl ControlFile {
    fn try_new() -> Result<Self, OutOfMemory> {
        let requests = Rundown::try_open()?;
        FILES.fetch_add(1, Ordering::Relaxed);
        Ok(Self { requests, closing: AtomicBool::new(false) })
    }

    /// A reference for a request; false once the file is being closed.
    pub fn enter(&self) -> bool {
        !self.is_closing() && self.requests.acquire()
    }

    /// Gives a reference back.
    pub fn leave(&self) {
        self.requests.release();
    }

    /// What pairs know the file by.
    pub fn id(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Ends everything of the file. PASSIVE_LEVEL.
    fn clean_up(&self) {
        self.closing.store(true, Ordering::Release);
        let driver = Driver::get();
        if let Some(driver) = driver {
            driver.workers.call_off();
        }
        self.requests.shut();
        if let Some(driver) = driver {
            driver.pairs.close_file(self.id(), &driver.workers);
        }
    }
}

impl Drop for ControlFile {
    fn drop(&mut self) {
        FILES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// IRP_MJ_CREATE. PASSIVE_LEVEL.
///
/// # Safety
/// The I/O manager passes our device and an IRP of this kind.
pub unsafe extern "C" fn create(_device: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    // SAFETY: the IRP was dispatched to us.
    let Some(request) = (unsafe { Request::from_raw(irp) }) else { return STATUS_INVALID_DEVICE_REQUEST };
    let status = match request.file() {
        // SAFETY: the file object lives as long as the request.
        Some(mut file) => open(unsafe { file.as_mut() }),
        None => STATUS_INVALID_DEVICE_REQUEST,
    };
    request.complete(status, 0);
    status
}

fn open(file: &mut FILE_OBJECT) -> NTSTATUS {
    // There is nothing behind the device; a name there would slip past the device's own security descriptor.
    if file.FileName.Length != 0 {
        return STATUS_OBJECT_NAME_NOT_FOUND;
    }
    match ControlFile::try_new().and_then(|state| PoolBox::try_new(tags::CONTROL_FILE, state)) {
        Ok(state) => {
            file.FsContext = state.into_raw().as_ptr().cast();
            STATUS_SUCCESS
        }
        Err(_) => STATUS_INSUFFICIENT_RESOURCES,
    }
}

/// IRP_MJ_CLEANUP: the last handle is closed; everything that pends for the file is completed. PASSIVE_LEVEL.
///
/// # Safety
/// As [`create`].
pub unsafe extern "C" fn cleanup(_device: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    // SAFETY: the IRP was dispatched to us.
    let Some(request) = (unsafe { Request::from_raw(irp) }) else { return STATUS_INVALID_DEVICE_REQUEST };
    if let Some(file) = state(&request) {
        file.clean_up();
    }
    request.complete(STATUS_SUCCESS, 0);
    STATUS_SUCCESS
}

/// IRP_MJ_CLOSE: nothing refers to the file any more. PASSIVE_LEVEL.
///
/// # Safety
/// As [`create`].
pub unsafe extern "C" fn close(_device: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    // SAFETY: the IRP was dispatched to us.
    let Some(request) = (unsafe { Request::from_raw(irp) }) else { return STATUS_INVALID_DEVICE_REQUEST };
    if let Some(mut file) = request.file() {
        // SAFETY: the file object lives as long as the request.
        let file = unsafe { file.as_mut() };
        let state = core::mem::replace(&mut file.FsContext, ptr::null_mut());
        if let Some(state) = NonNull::new(state.cast::<ControlFile>()) {
            // SAFETY: `open` put it there and close comes once, after everything else of the file.
            drop(unsafe { PoolBox::from_raw(tags::CONTROL_FILE, state) });
        }
    }
    request.complete(STATUS_SUCCESS, 0);
    STATUS_SUCCESS
}

/// The state of the file a request came through.
pub fn state(request: &Request) -> Option<&ControlFile> {
    let file = request.file()?;
    // SAFETY: the file object lives as long as the request.
    let context = unsafe { file.as_ref() }.FsContext.cast::<ControlFile>();
    // SAFETY: `open` put it there and `close` comes after the last request.
    unsafe { context.as_ref() }
}
