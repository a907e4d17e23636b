//! Files of devices: opened, given control requests, waited for, cancelled, closed.

use std::ffi::c_void;
use std::sync::Arc;

use super::{boolean, fails};
use crate::io::{Opener, cancel, file as device_file, irp};
use crate::status::{self, NtStatus};
use crate::user::call::{set_last_error, system_call};
use crate::user::file::FileObject;
use crate::user::handles::{CURRENT_PROCESS, Object};
use crate::user::overlapped::{self, ControlCall, is_error};
use crate::user::process::ProcessState;
use crate::user::{dos_error, event};

const INVALID_HANDLE_VALUE: usize = usize::MAX;
const FILE_FLAG_OVERLAPPED: u32 = 0x4000_0000;
const DUPLICATE_CLOSE_SOURCE: u32 = 1;

/// The longest path, in units of UTF-16.
const LONGEST_PATH: usize = 1024;

/// OVERLAPPED: a status block first, then what the host has no use for, then the event.
#[repr(C)]
pub struct OVERLAPPED {
    Internal: usize,
    InternalHigh: usize,
    Offset: u64,
    hEvent: usize,
}

const _: () = assert!(size_of::<OVERLAPPED>() == 32);

/// IO_STATUS_BLOCK.
#[repr(C)]
struct StatusBlock {
    status: NtStatus,
    information: usize,
}

/// The status of a request, which its end writes at any time.
///
/// # Safety
///
/// `overlapped` is the program's.
unsafe fn status_of(overlapped: *const OVERLAPPED) -> NtStatus {
    // SAFETY: the caller's contract; the low half is the status.
    unsafe { overlapped.cast::<NtStatus>().read_volatile() }
}

/// The units of a text up to its zero.
///
/// # Safety
///
/// `text` ends with a zero.
pub(super) unsafe fn wide_text(text: *const u16) -> String {
    // SAFETY: the caller's contract.
    let units = (0..LONGEST_PATH).map(|index| unsafe { text.add(index).read() });
    String::from_utf16_lossy(&units.take_while(|unit| *unit != 0).collect::<Vec<_>>())
}

fn open(process: &ProcessState, path: &str, access: u32, overlapped: bool) -> Result<usize, NtStatus> {
    let opener = Opener { caller: process.caller, process: process.number };
    let file = FileObject::new(device_file::open(path, access, opener)?, overlapped);
    process.handles.open(Object::File(Arc::new(file))).ok_or(status::STATUS_INSUFFICIENT_RESOURCES)
}

fn cancel_requests(process: &ProcessState, file: usize, overlapped: usize) -> Result<(), NtStatus> {
    let file = process.handles.file(file)?;
    let is_meant = |packet: &Arc<irp::ActiveIrp>| {
        packet.process == process.number && (overlapped == 0 || packet.user_iosb == overlapped)
    };
    let packets = irp::outstanding_of(file.device_file.object());
    let cancelled = packets.iter().filter(|packet| is_meant(packet)).filter(|packet| cancel::cancel(packet)).count();
    if cancelled == 0 { Err(status::STATUS_NOT_FOUND) } else { Ok(()) }
}

crate::exports! {
    module "kernel32.dll";

    /// Opens a device by its Win32 path, for the user whose process it is. Only FILE_FLAG_OVERLAPPED of the flags means
    /// something.
    /// Source: Win32: CreateFileW
    [PASSIVE_ONLY] fn CreateFileW(
        name: *const u16, access: u32, _share: u32, _security: *const c_void, _disposition: u32, flags: u32, _template: usize,
    ) -> usize {
        // SAFETY: the caller's text.
        let path = unsafe { wide_text(name) };
        system_call(|process| match open(process, &path, access, flags & FILE_FLAG_OVERLAPPED != 0) {
            Ok(handle) => handle,
            Err(refusal) => {
                set_last_error(dos_error::of_status(refusal));
                INVALID_HANDLE_VALUE
            }
        })
    }

    /// Closes a handle; the last one of a file sends CLEANUP, waits for its packets and sends CLOSE.
    /// Checks: a handle of the process
    /// Source: Win32: CloseHandle
    [PASSIVE_ONLY] fn CloseHandle(handle: usize) -> u32 {
        system_call(|process| boolean(process.handles.close(handle)))
    }

    /// Another handle of the same object, in the same process.
    /// Source: Win32: DuplicateHandle
    [PASSIVE_ONLY] fn DuplicateHandle(
        source_process: usize, source: usize, target_process: usize, target: *mut usize, _access: u32, _inherit: u32, options: u32,
    ) -> u32 {
        system_call(|process| {
            if source_process != CURRENT_PROCESS || target_process != CURRENT_PROCESS {
                return fails(dos_error::ERROR_INVALID_HANDLE);
            }
            let made = process.handles.find(source).and_then(|object| {
                process.handles.open(object).ok_or(status::STATUS_INSUFFICIENT_RESOURCES)
            });
            boolean(made.map(|handle| {
                // SAFETY: the caller's out parameter.
                unsafe { target.write(handle) };
                if options & DUPLICATE_CLOSE_SOURCE != 0 {
                    let _ = process.handles.close(source);
                }
            }))
        })
    }

    /// Sends a control request, as NtDeviceIoControlFile does, with the event and the address of the OVERLAPPED; the low bit of the
    /// event keeps its packet from the port. Without an OVERLAPPED the call waits for the end.
    /// Source: Win32: DeviceIoControl
    [PASSIVE_ONLY] fn DeviceIoControl(
        file: usize, code: u32, input: usize, input_length: u32, output: usize, output_length: u32, returned: *mut u32,
        overlapped: *mut OVERLAPPED,
    ) -> u32 {
        system_call(|process| {
            let (input_length, output_length) = (input_length as usize, output_length as usize);
            let call = ControlCall {
                file, event: 0, apc_routine: 0, apc_context: 0, status_block: 0, code, input, input_length, output, output_length,
            };
            if overlapped.is_null() {
                return wait_for_control(process, call, returned);
            }
            // SAFETY: the caller's OVERLAPPED.
            let event = unsafe {
                (*overlapped).Internal = status::STATUS_PENDING as usize;
                (*overlapped).hEvent
            };
            let apc_context = if event & 1 == 0 { overlapped as usize } else { 0 };
            let answer = overlapped::control(process, &ControlCall { event, apc_context, status_block: overlapped as usize, ..call });
            if !is_error(answer) && !returned.is_null() {
                // SAFETY: the caller's OVERLAPPED and out parameter.
                unsafe { returned.write((*overlapped).InternalHigh as u32) };
            }
            let done = status::is_success(answer) && answer != status::STATUS_PENDING;
            boolean(if done { Ok(()) } else { Err(answer) })
        })
    }

    /// The end of a request: its status and its bytes, waited for by the event of the OVERLAPPED or of the file.
    /// Source: Win32: GetOverlappedResult
    [PASSIVE_ONLY] fn GetOverlappedResult(file: usize, overlapped: *mut OVERLAPPED, bytes: *mut u32, wait: u32) -> u32 {
        system_call(|process| {
            // SAFETY: the caller's OVERLAPPED.
            if unsafe { status_of(overlapped) } == status::STATUS_PENDING {
                if wait == 0 {
                    return fails(dos_error::ERROR_IO_INCOMPLETE);
                }
                // SAFETY: the caller's OVERLAPPED.
                let handle = unsafe { (*overlapped).hEvent };
                // A handle whose low bits alone are set is none to wait for, although it is none for the request.
                let waited = if handle == 0 {
                    process.handles.file(file).map(|file| event::wait(process, &file.event, None))
                } else {
                    process.handles.event(handle & !3).map(|event| event::wait(process, &event, None))
                };
                if let Err(refusal) = waited {
                    return boolean(Err(refusal));
                }
                if process.is_dead() {
                    return 0;
                }
            }
            // SAFETY: the caller's OVERLAPPED and out parameter.
            let answer = unsafe {
                bytes.write((*overlapped).InternalHigh as u32);
                status_of(overlapped)
            };
            boolean(if status::is_success(answer) { Ok(()) } else { Err(answer) })
        })
    }

    /// Cancels the requests of a file that this process has sent, in their order, or the one with this OVERLAPPED.
    /// Source: Win32: CancelIoEx
    [PASSIVE_ONLY] fn CancelIoEx(file: usize, overlapped: usize) -> u32 {
        system_call(|process| boolean(cancel_requests(process, file, overlapped)))
    }

    /// FILE_SKIP_COMPLETION_PORT_ON_SUCCESS (1) and FILE_SKIP_SET_EVENT_ON_HANDLE (2). A warning that does not pend is queued to the
    /// port all the same.
    /// Source: Win32: SetFileCompletionNotificationModes
    [PASSIVE_ONLY] fn SetFileCompletionNotificationModes(file: usize, modes: u8) -> u32 {
        system_call(|process| boolean(process.handles.file(file).map(|file| file.add_modes(modes))))
    }
}

/// A control request that the caller waits for, with a status block of its own in the program's memory.
fn wait_for_control(process: &Arc<ProcessState>, call: ControlCall, returned: *mut u32) -> u32 {
    let block = process.memory.allocate(size_of::<StatusBlock>(), crate::memory::address_space::Protection::ReadWrite);
    let handle = call.file;
    let mut answer = overlapped::control(process, &ControlCall { status_block: block, ..call });
    if answer == status::STATUS_PENDING
        && let Ok(file) = process.handles.file(handle)
    {
        event::wait(process, &file.event, None);
        if process.is_dead() {
            return 0;
        }
        // SAFETY: memory of the process, which it still has.
        answer = unsafe { (*(block as *const StatusBlock)).status };
    }
    if !is_error(answer) && !returned.is_null() {
        // SAFETY: as above, and the caller's out parameter.
        unsafe { returned.write((*(block as *const StatusBlock)).information as u32) };
    }
    process.memory.free(block);
    boolean(if status::is_success(answer) { Ok(()) } else { Err(answer) })
}
