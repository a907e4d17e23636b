//! An open handle of the device: made at create, emptied at cleanup, freed at close.

use core::{
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use softndk_kernel::{
    event::CriticalRegion,
    irp::Request,
    pool::{NoMemory, PoolBox},
    rundown::Rundown,
};
use wdk_sys::{
    DEVICE_OBJECT, FILE_OBJECT, IRP, NTSTATUS, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS,
};

use crate::{driver::Driver, tags};

/// Open handles.
static FILES: AtomicU32 = AtomicU32::new(0);

/// Open files of the device now.
pub fn file_count() -> u32 {
    FILES.load(Ordering::Relaxed)
}

/// What a handle owns.
pub struct ControlFile {
    /// One reference per request that pends.
    requests: Rundown,
    /// The last handle is closed: requests should end.
    closing: AtomicBool,
}

impl ControlFile {
    fn try_new() -> Result<Self, NoMemory> {
        let requests = Rundown::try_open(tags::RUNDOWN)?;
        FILES.fetch_add(1, Ordering::Relaxed);
        Ok(Self { requests, closing: AtomicBool::new(false) })
    }

    /// A reference for a request; false once the file is being closed.
    pub fn begin_request(&self) -> bool {
        !self.is_closing() && self.requests.acquire()
    }

    /// Gives a reference back.
    pub fn end_request(&self) {
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

/// IRP_MJ_CREATE: the security descriptor of the device has let the opener in. PASSIVE_LEVEL.
///
/// # Safety
/// The I/O manager passes our device and an IRP of this kind.
pub unsafe extern "C" fn create(_device: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    let _not_suspended = CriticalRegion::enter();
    // SAFETY: the IRP was dispatched to us.
    let Some(request) = (unsafe { Request::from_raw(irp) }) else { return STATUS_INVALID_DEVICE_REQUEST };
    let status = match request.file() {
        Some(file) => open(file),
        None => STATUS_INVALID_DEVICE_REQUEST,
    };
    request.complete(status, 0);
    status
}

fn open(file: NonNull<FILE_OBJECT>) -> NTSTATUS {
    // There is nothing behind the device.
    // SAFETY: a field of a file object, which lives as long as the request.
    if unsafe { (*file.as_ptr()).FileName.Length } != 0 {
        return STATUS_OBJECT_NAME_NOT_FOUND;
    }
    match ControlFile::try_new().and_then(|state| PoolBox::try_new(tags::CONTROL_FILE, state)) {
        Ok(state) => {
            set_context(file, state.into_raw().as_ptr());
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
    let _not_suspended = CriticalRegion::enter();
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
    let _not_suspended = CriticalRegion::enter();
    // SAFETY: the IRP was dispatched to us.
    let Some(request) = (unsafe { Request::from_raw(irp) }) else { return STATUS_INVALID_DEVICE_REQUEST };
    if let Some(file) = request.file()
        && let Some(state) = NonNull::new(context(file))
    {
        set_context(file, ptr::null_mut());
        // SAFETY: `open` put it there, from a box with this tag, and close comes once, after everything else of the file.
        drop(unsafe { PoolBox::from_raw(tags::CONTROL_FILE, state) });
    }
    request.complete(STATUS_SUCCESS, 0);
    STATUS_SUCCESS
}

/// The state of the file a request came through.
pub fn state(request: &Request) -> Option<&ControlFile> {
    let context = context(request.file()?);
    // SAFETY: `open` put it there and `close` comes after the last request.
    unsafe { context.as_ref() }
}

// The I/O manager writes other fields of a file object at any time, so no reference is made to one.

/// What `open` left in the file object of a request that is not complete.
fn context(file: NonNull<FILE_OBJECT>) -> *mut ControlFile {
    // SAFETY: a field that is this driver's own, of a file object, which lives as long as the request.
    unsafe { (*file.as_ptr()).FsContext }.cast()
}

/// PASSIVE_LEVEL, in create and close, beside which no request of the file runs.
fn set_context(file: NonNull<FILE_OBJECT>, state: *mut ControlFile) {
    // SAFETY: as above.
    unsafe { (*file.as_ptr()).FsContext = state.cast() };
}
