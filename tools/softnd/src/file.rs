//! Files of the driver's device, and the files that clients send their overlapped requests through.

use core::ptr;

use softnd_interfaces::Status;
use softndk_ioctl::nd::WIN32_DEVICE_NAME;

use crate::{
    device::Device,
    handle::OwnedHandle,
    imports::{
        CreateFileW, ERROR_ACCESS_DENIED, ERROR_FILE_NOT_FOUND, ERROR_PATH_NOT_FOUND, FILE_FLAG_OVERLAPPED,
        GENERIC_READ_WRITE, GetLastError, OPEN_EXISTING, SHARE_READ_WRITE, SKIP_COMPLETION_PORT_ON_SUCCESS,
        SKIP_SET_EVENT_ON_HANDLE, SetFileCompletionNotificationModes,
    },
};

/// The device's name as the system takes it, with the zero at its end.
const NAME: [u16; WIN32_DEVICE_NAME.len() + 1] = {
    let bytes = WIN32_DEVICE_NAME.as_bytes();
    let mut wide = [0; WIN32_DEVICE_NAME.len() + 1];
    let mut index = 0;
    while index < bytes.len() {
        wide[index] = bytes[index] as u16;
        index += 1;
    }
    wide
};

/// Opens the device for overlapped requests. DEVICE_NOT_READY where there is none; ACCESS_DENIED; UNSUCCESSFUL.
pub fn open() -> Result<OwnedHandle, Status> {
    // SAFETY: the name ends with a zero; there is neither security nor template.
    let file = unsafe {
        CreateFileW(
            NAME.as_ptr(),
            GENERIC_READ_WRITE,
            SHARE_READ_WRITE,
            ptr::null(),
            OPEN_EXISTING,
            FILE_FLAG_OVERLAPPED,
            ptr::null_mut(),
        )
    };
    OwnedHandle::new(file).ok_or_else(|| {
        // SAFETY: no precondition.
        match unsafe { GetLastError() } {
            ERROR_FILE_NOT_FOUND | ERROR_PATH_NOT_FOUND => Status::DEVICE_NOT_READY,
            ERROR_ACCESS_DENIED => Status::ACCESS_DENIED,
            _ => Status::UNSUCCESSFUL,
        }
    })
}

/// What a file leaves on its completion port.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Packets {
    /// One for a request that pended (version 2).
    WhenPended,
    /// One for a request that did not fail (version 1).
    WhenNotFailed,
}

/// Opens a second file for a client's overlapped requests, on which the handles of `device` are good.
pub fn open_overlapped(device: &Device, packets: Packets) -> Result<OwnedHandle, Status> {
    let file = open()?;
    device.bind(&file)?;
    if packets == Packets::WhenPended {
        let modes = SKIP_COMPLETION_PORT_ON_SUCCESS | SKIP_SET_EVENT_ON_HANDLE;
        // SAFETY: a file of this function.
        if unsafe { SetFileCompletionNotificationModes(file.raw(), modes) } == 0 {
            return Err(Status::UNSUCCESSFUL);
        }
    }
    Ok(file)
}
