//! An open handle of the control device: made at create, emptied at cleanup, freed at close.

use core::{
    cell::UnsafeCell,
    ptr,
    ptr::NonNull,
    sync::atomic::{AtomicBool, Ordering},
};

use ndkpi_sys::nt::{DEVICE_OBJECT, IRP};
use softndk_ioctl::Status;
use softndk_kernel::{
    pool::{OutOfMemory, PoolBox},
    rundown::Rundown,
    spin_lock::SpinLock,
};
use wdk_sys::{
    FILE_OBJECT, NTSTATUS, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_DEVICE_REQUEST, STATUS_OBJECT_NAME_NOT_FOUND,
    STATUS_SUCCESS,
};

use super::{device::FILES, irp::Request};
use crate::{driver::Driver, tags};

// Create, cleanup and close do not pass the driver's gate for requests (`Driver::requests`), and need not. They use what exists
// until unload (the pairs, the workers), and the system does not unload a driver one of whose devices has an open file (NDIS:
// the device object keeps the driver object). A pair's hold on an adapter is a reference on that adapter's gate, for which
// HaltEx waits; of a halt and a cleanup that end the same pair, one waits for the other (`Pairs::closing`). And a file has to
// be cleaned up when the gate is shut, too: handles outlive adapters.

/// What a handle owns.
pub struct ControlFile {
    /// One reference per request that pends.
    requests: Rundown,
    /// The last handle is closed: requests should end.
    closing: AtomicBool,
    /// Under the lock of [`Files`].
    links: UnsafeCell<Links>,
}

// SAFETY: the links are reached under the lock of `Files` only; everything else guards itself.
unsafe impl Send for ControlFile {}
// SAFETY: as above.
unsafe impl Sync for ControlFile {}

/// A file's neighbours in the list; null at its ends.
struct Links {
    next: *mut ControlFile,
    previous: *mut ControlFile,
}

/// Every file that is not closed, so that unload can free those whose close never arrives: when and whether cleanup and close
/// of a handle reach a driver that has deregistered its device with NdisDeregisterDeviceEx is up to NDIS.
pub struct Files {
    first: SpinLock<First>,
}

struct First(*mut ControlFile);

// SAFETY: the files are followed under the lock only.
unsafe impl Send for First {}

impl Files {
    pub const fn new() -> Self {
        Self { first: SpinLock::new(First(ptr::null_mut())) }
    }

    /// Takes a file over. `IRQL <= DISPATCH_LEVEL`.
    fn add(&self, file: PoolBox<ControlFile>) -> NonNull<ControlFile> {
        let file = file.into_raw();
        let mut first = self.first.lock();
        let next = core::mem::replace(&mut first.0, file.as_ptr());
        // SAFETY: the file is alive, and reached under the lock only.
        unsafe { file.as_ref() }.set_links(Links { next, previous: ptr::null_mut() });
        // SAFETY: null, or a file in the list, which is alive.
        if let Some(next) = unsafe { next.as_ref() } {
            next.with_links(|links| links.previous = file.as_ptr());
        }
        file
    }

    /// Gives a file back to its caller.
    ///
    /// # Safety
    /// The file is in the list, and nothing else uses it or will.
    unsafe fn take(&self, file: NonNull<ControlFile>) -> PoolBox<ControlFile> {
        let mut first = self.first.lock();
        // SAFETY: the caller's promise; the lock is held.
        unsafe { Self::unlink(&mut first, file) }
    }

    /// # Safety
    /// As [`Files::take`].
    unsafe fn unlink(first: &mut First, file: NonNull<ControlFile>) -> PoolBox<ControlFile> {
        // SAFETY: a file in the list is alive.
        let (next, previous) = unsafe { file.as_ref() }.with_links(|links| (links.next, links.previous));
        // SAFETY: null, or a file in the list, which is alive.
        match unsafe { previous.as_ref() } {
            Some(previous) => previous.with_links(|links| links.next = next),
            None => first.0 = next,
        }
        // SAFETY: as above.
        if let Some(next) = unsafe { next.as_ref() } {
            next.with_links(|links| links.previous = previous);
        }
        // SAFETY: `add` took it from a box with this tag; it is in no list any more (the caller's promise).
        unsafe { PoolBox::from_raw(tags::CONTROL_FILE, file) }
    }

    /// Frees what is left. PASSIVE_LEVEL.
    ///
    /// # Safety
    /// No request of any file is under way or will come.
    pub unsafe fn free(&self) {
        loop {
            let file = {
                let mut first = self.first.lock();
                let Some(file) = NonNull::new(first.0) else { return };
                // SAFETY: the caller's promise.
                unsafe { Self::unlink(&mut first, file) }
            };
            drop(file);
        }
    }
}

impl ControlFile {
    fn try_new() -> Result<Self, OutOfMemory> {
        let requests = Rundown::try_open(tags::RUNDOWN)?;
        FILES.fetch_add(1, Ordering::Relaxed);
        let links = UnsafeCell::new(Links { next: ptr::null_mut(), previous: ptr::null_mut() });
        Ok(Self { requests, closing: AtomicBool::new(false), links })
    }

    /// Under the lock of [`Files`].
    fn with_links<R>(&self, change: impl FnOnce(&mut Links) -> R) -> R {
        // SAFETY: every caller holds the lock of the list, and no `change` comes back here.
        change(unsafe { &mut *self.links.get() })
    }

    /// Under the lock of [`Files`].
    fn set_links(&self, links: Links) {
        self.with_links(|place| *place = links);
    }

    /// A reference for a request; false once the file is being closed.
    pub fn enter(&self) -> bool {
        !self.is_closing() && self.requests.acquire()
    }

    /// Gives a reference back.
    pub fn leave(&self) {
        self.requests.release();
    }

    /// The file's identity for pairs.
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
/// The I/O manager passes the driver's device and an IRP of this kind.
pub unsafe extern "C" fn create(_device: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    // SAFETY: the IRP was dispatched to the driver.
    let Some(request) = (unsafe { Request::from_raw(irp) }) else { return STATUS_INVALID_DEVICE_REQUEST };
    let status = match request.file() {
        Some(file) => open(file),
        None => STATUS_INVALID_DEVICE_REQUEST,
    };
    request.complete(status, 0);
    status
}

fn open(file: NonNull<FILE_OBJECT>) -> NTSTATUS {
    // SAFETY: the file object lives as long as the request; only the address of the field is computed.
    let name_length = unsafe { &raw const (*file.as_ptr()).FileName.Length };
    // There is nothing behind the device; a name there would slip past the device's own security descriptor.
    // SAFETY: a field of a live file object.
    if unsafe { name_length.read() } != 0 {
        return STATUS_OBJECT_NAME_NOT_FOUND;
    }
    let Some(driver) = Driver::get() else { return Status::DEVICE_REMOVED.0 };
    match ControlFile::try_new().and_then(|state| PoolBox::try_new(tags::CONTROL_FILE, state)) {
        Ok(state) => {
            set_context(file, driver.files.add(state).as_ptr());
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
    // SAFETY: the IRP was dispatched to the driver.
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
    // SAFETY: the IRP was dispatched to the driver.
    let Some(request) = (unsafe { Request::from_raw(irp) }) else { return STATUS_INVALID_DEVICE_REQUEST };
    if let (Some(file), Some(driver)) = (request.file(), Driver::get())
        && let Some(state) = NonNull::new(context(file))
    {
        set_context(file, ptr::null_mut());
        // SAFETY: `open` put it there and in the list, and close comes once, after everything else of the file.
        drop(unsafe { driver.files.take(state) });
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
    // SAFETY: the file object lives as long as the request; only the address of the field is computed.
    let place = unsafe { &raw const (*file.as_ptr()).FsContext };
    // SAFETY: a field of a live file object that is this driver's own.
    unsafe { place.read() }.cast()
}

/// PASSIVE_LEVEL, in create and close, beside which no request of the file runs.
fn set_context(file: NonNull<FILE_OBJECT>, state: *mut ControlFile) {
    // SAFETY: the file object lives as long as the request; only the address of the field is computed.
    let place = unsafe { &raw mut (*file.as_ptr()).FsContext };
    // SAFETY: a field of a live file object that is this driver's own.
    unsafe { place.write(state.cast()) };
}
