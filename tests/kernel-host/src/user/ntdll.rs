//! The functions of ntdll.dll that programs import.

use super::call::system_call;
use super::dos_error;
use super::kernel32::waits;
use super::overlapped::{self, ControlCall};
use crate::dispatcher;
use crate::status::NtStatus;

crate::exports! {
    module "ntdll.dll";

    /// Sends a control request of METHOD_BUFFERED, METHOD_IN_DIRECT or METHOD_OUT_DIRECT. Its packet goes to the port of the file
    /// when there is an ApcContext. An APC routine is STATUS_NOT_IMPLEMENTED.
    /// Checks: handles of the process; memory of the process, with the access that the method needs
    /// Source: Winternl: NtDeviceIoControlFile
    [PASSIVE_ONLY] fn NtDeviceIoControlFile(
        file: usize, event: usize, apc_routine: usize, apc_context: usize, status_block: usize, code: u32, input: usize,
        input_length: u32, output: usize, output_length: u32,
    ) -> NtStatus {
        let call = ControlCall {
            file,
            event,
            apc_routine,
            apc_context,
            status_block,
            code,
            input,
            input_length: input_length as usize,
            output,
            output_length: output_length as usize,
        };
        system_call(|process| overlapped::control(process, &call))
    }

    /// Waits for an event, or for the event of a file, in virtual time.
    /// Checks: a handle of the process
    /// Source: Winternl: NtWaitForSingleObject
    [PASSIVE_ONLY] fn NtWaitForSingleObject(handle: usize, _alertable: u8, timeout: *const i64) -> NtStatus {
        // SAFETY: the caller's interval; NULL is for ever.
        let deadline = unsafe { timeout.as_ref() }.map(|interval| dispatcher::deadline_of(*interval));
        system_call(|process| match process.handles.find(handle) {
            Ok(object) => waits::wait_for(process, &object, deadline),
            Err(refusal) => refusal,
        })
    }

    /// The Win32 error code of a status: those that the host itself gives, 317 for others.
    /// Source: Winternl: RtlNtStatusToDosError
    [PASSIVE_ONLY] fn RtlNtStatusToDosError(status: NtStatus) -> u32 {
        dos_error::of_status(status)
    }
}
