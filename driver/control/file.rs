//! Open handles of the control device: they own nothing, and are counted.
//!
//! Whether NDIS passes on the close of a handle whose device was taken back is up to NDIS, so the count begins anew with each
//! registration of the device: a handle carries the number of the one it was opened on.

use core::{
    ptr::{self, NonNull},
    sync::atomic::{AtomicU64, Ordering},
};

use ndkpi_sys::nt::{DEVICE_OBJECT, IRP};
use softndk_kernel::{event::CriticalRegion, irp::Request};
use wdk_sys::{FILE_OBJECT, NTSTATUS, STATUS_INVALID_DEVICE_REQUEST, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS};

/// The number of the registration, never 0, above the number of its open handles.
static FILES: AtomicU64 = AtomicU64::new(1 << COUNT_BITS);
const COUNT_BITS: u32 = 32;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// Open files of the device now.
pub fn file_count() -> u32 {
    (FILES.load(Ordering::Relaxed) & COUNT) as u32
}

/// The device is gone, and its handles with it.
pub fn forget_all() {
    let _previous = FILES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |files| {
        // Never 0: that is a file that was not opened.
        Some((files >> COUNT_BITS).wrapping_add(1).max(1) << COUNT_BITS)
    });
}

/// IRP_MJ_CREATE. PASSIVE_LEVEL.
///
/// # Safety
/// The I/O manager passes the driver's device and an IRP of this kind.
pub unsafe extern "C" fn create(_device: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    let _not_suspended = CriticalRegion::enter();
    // SAFETY: the IRP was dispatched to us.
    let Some(request) = (unsafe { Request::from_raw(irp.cast()) }) else { return STATUS_INVALID_DEVICE_REQUEST };
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
    let before = FILES.fetch_add(1, Ordering::Relaxed);
    set_context(file, before >> COUNT_BITS);
    STATUS_SUCCESS
}

/// IRP_MJ_CLEANUP: the last handle is closed. PASSIVE_LEVEL.
///
/// # Safety
/// As [`create`].
pub unsafe extern "C" fn cleanup(_device: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    let _not_suspended = CriticalRegion::enter();
    // SAFETY: the IRP was dispatched to us.
    let Some(request) = (unsafe { Request::from_raw(irp.cast()) }) else { return STATUS_INVALID_DEVICE_REQUEST };
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
    let Some(request) = (unsafe { Request::from_raw(irp.cast()) }) else { return STATUS_INVALID_DEVICE_REQUEST };
    if let Some(file) = request.file() {
        let registration = context(file) as u64;
        let _previous = FILES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |files| {
            let counted = files >> COUNT_BITS == registration && files & COUNT != 0;
            counted.then(|| files.wrapping_sub(1))
        });
    }
    request.complete(STATUS_SUCCESS, 0);
    STATUS_SUCCESS
}

// The I/O manager writes other fields of a file object at any time, so no reference is made to one.

/// What `open` left in the file object of a request that is not complete.
fn context(file: NonNull<FILE_OBJECT>) -> usize {
    // SAFETY: the file object lives as long as the request; only the address of the field is computed.
    let place = unsafe { &raw const (*file.as_ptr()).FsContext };
    // SAFETY: a field of a live file object that is this driver's own.
    unsafe { place.read() }.addr()
}

/// PASSIVE_LEVEL, in create, beside which no request of the file runs.
fn set_context(file: NonNull<FILE_OBJECT>, registration: u64) {
    // SAFETY: the file object lives as long as the request; only the address of the field is computed.
    let place = unsafe { &raw mut (*file.as_ptr()).FsContext };
    // SAFETY: a field of a live file object that is this driver's own.
    unsafe { place.write(ptr::without_provenance_mut(registration as usize)) };
}
