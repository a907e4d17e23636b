//! Requests of clients, each with the client's OVERLAPPED.
//!
//! They go to the driver through the client's file, with the OVERLAPPED as status block, event and context, so that the system
//! itself tells the client of the end: by the event, or by a packet to the file's completion port. An event with its lowest bit set
//! asks for no packet. What is returned is the driver's status: PENDING means that the OVERLAPPED will tell, a failure that it
//! will not.

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
};

use softnd_interfaces::{Status, structures::Overlapped};
use softndk_ioctl::nd::{VERSION, control::Handle};
use zerocopy::IntoBytes;

use crate::{
    argument::{Overlap, Place},
    device::Device,
    handle::OwnedHandle,
    imports::{INFINITE, NtDeviceIoControlFile, RawHandle, Sleep, SwitchToThread, WaitForSingleObject},
};

/// How often a wait gives the processor to others before it sleeps.
const QUICK_PAUSES: u32 = 32;

/// The file that the overlapped requests of one object go to: a handle of its own, so that the client may close the one it gave.
pub struct RequestFile(OwnedHandle);

impl RequestFile {
    /// INVALID_HANDLE when `file` is none, INVALID_PARAMETER_2 when it is not one on which the handles of `device` are good: those of
    /// another provider's files mean other objects.
    pub fn of(device: &Device, file: RawHandle) -> Result<Self, Status> {
        let file = OwnedHandle::duplicate(file)?;
        match device.bind(&file) {
            Ok(()) => Ok(Self(file)),
            Err(
                status @ (Status::NO_MEMORY
                | Status::INSUFFICIENT_RESOURCES
                | Status::DEVICE_REMOVED
                | Status::FILE_CLOSED),
            ) => Err(status),
            Err(_) => Err(Status::INVALID_PARAMETER_2),
        }
    }

    /// Starts a request. `output` is where its answer goes; it has to be there until the request has ended.
    pub fn start(&self, overlapped: Overlap, code: u32, input: &[u8], output: (*mut c_void, u32)) -> Status {
        let Some(pointer) = overlapped.pointer() else { return Status::INVALID_PARAMETER };
        let pointer = pointer.as_ptr();
        // SAFETY: the client's promise: the OVERLAPPED is valid until the request has ended.
        let event = unsafe { (*pointer).event };
        // SAFETY: as above; no request uses it yet.
        unsafe { (*pointer).internal = Status::PENDING.0 as u32 as usize };
        let context = if event as usize & 1 == 0 { pointer.cast() } else { ptr::null_mut() };
        // SAFETY: as above; an OVERLAPPED begins with a status block. The input is copied during the call.
        let status = unsafe {
            NtDeviceIoControlFile(
                self.0.raw(),
                event,
                ptr::null_mut(),
                context,
                pointer.cast(),
                code,
                input.as_ptr().cast(),
                input.len() as u32,
                output.0,
                output.1,
            )
        };
        Status(status)
    }

    /// Starts a request about one object, without an answer.
    pub fn start_on(&self, overlapped: Overlap, code: u32, handle: u64) -> Status {
        let input = Handle { version: VERSION, reserved: 0, handle };
        self.start(overlapped, code, input.as_bytes(), (ptr::null_mut(), 0))
    }
}

/// Whether an event is one that can be waited for: the two lowest bits are no part of a handle.
fn is_event(event: RawHandle) -> bool {
    event as usize & !3 != 0
}

/// The status of a request and its bytes; PENDING while it has not ended. With `wait` it has.
///
/// A client's event is waited for. Without one there is nothing that the system would set: files of version 2 leave their own event alone,
/// and those of version 1 have one for all requests; so the status is looked at again and again, the processor given to others meanwhile.
pub fn result(overlapped: Overlap, bytes: Place<usize>, wait: i32) -> Status {
    let Some(pointer) = overlapped.pointer() else { return Status::INVALID_PARAMETER };
    let pointer: *mut Overlapped = pointer.as_ptr();
    // SAFETY: the client's promise: the OVERLAPPED is valid, and one of a request on this object.
    let event = unsafe { (*pointer).event };
    // SAFETY: as above; an OVERLAPPED begins with the status, which the system writes last.
    let word = unsafe { AtomicUsize::from_ptr(pointer.cast()) };
    let status = || Status(word.load(Ordering::Acquire) as u32 as i32);
    if wait != 0 && status() == Status::PENDING && is_event(event) {
        // SAFETY: no precondition: what is no event is not waited for.
        unsafe { WaitForSingleObject(event, INFINITE) };
    }
    // Another request may have set the event.
    let mut pauses = 0;
    while wait != 0 && status() == Status::PENDING {
        pause(&mut pauses);
    }
    let status = status();
    // SAFETY: as above; the bytes are written before the status.
    let transferred = if status == Status::PENDING { 0 } else { unsafe { (*pointer).internal_high } };
    bytes.offer(transferred);
    status
}

/// Lets other threads run; longer when it was done often.
fn pause(pauses: &mut u32) {
    *pauses = pauses.saturating_add(1);
    if *pauses <= QUICK_PAUSES {
        // SAFETY: no precondition.
        unsafe { SwitchToThread() };
    } else {
        // SAFETY: no precondition.
        unsafe { Sleep(1) };
    }
}
