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
    handle::OwnedHandle,
    imports::{GetOverlappedResult, NtDeviceIoControlFile, RawHandle},
};

/// The file that the overlapped requests of one object go to: a handle of its own, so that the client may close the one it gave.
pub struct RequestFile(OwnedHandle);

impl RequestFile {
    /// INVALID_HANDLE when `file` is none.
    pub fn of(file: RawHandle) -> Result<Self, Status> {
        OwnedHandle::duplicate(file).map(Self)
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

    /// The status of a request and its bytes; PENDING while it has not ended. With `wait` it has.
    pub fn result(&self, overlapped: Overlap, bytes: Place<usize>, wait: i32) -> Status {
        result(self.0.raw(), overlapped, bytes, wait)
    }
}

/// The status of a request that went to `file`.
pub fn result(file: RawHandle, overlapped: Overlap, bytes: Place<usize>, wait: i32) -> Status {
    let Some(pointer) = overlapped.pointer() else { return Status::INVALID_PARAMETER };
    let pointer: *mut Overlapped = pointer.as_ptr();
    let mut transferred = 0_u32;
    // SAFETY: the client's promise: the OVERLAPPED is valid, and one of this file's requests.
    let _ = unsafe { GetOverlappedResult(file, pointer.cast(), &raw mut transferred, wait) };
    // SAFETY: as above; an OVERLAPPED begins with the status, which the system writes last.
    let status = unsafe { AtomicUsize::from_ptr(pointer.cast()) }.load(Ordering::Acquire);
    let status = Status(status as u32 as i32);
    let _ = bytes.write(if status == Status::PENDING { 0 } else { transferred as usize });
    status
}
