//! Events and waits.

use std::ffi::c_void;
use std::sync::Arc;

use super::boolean;
use crate::dispatcher::{self, Event};
use crate::status::{self, NtStatus};
use crate::user::call::{set_last_error, system_call};
use crate::user::handles::Object;
use crate::user::process::ProcessState;
use crate::user::{dos_error, event};

const WAIT_OBJECT_0: u32 = 0;
const WAIT_FAILED: u32 = u32::MAX;

fn wait(process: &ProcessState, handle: usize, milliseconds: u32) -> Result<NtStatus, NtStatus> {
    let deadline = event::deadline_of(milliseconds);
    match process.handles.find(handle)? {
        Object::Event(object) => Ok(event::wait(process, &object, deadline)),
        Object::File(file) => Ok(event::wait(process, &file.event, deadline)),
        Object::Port(_) => Err(status::STATUS_OBJECT_TYPE_MISMATCH),
    }
}

crate::exports! {
    module "kernel32.dll";

    /// Makes an event without a name.
    /// Source: Win32: CreateEventW
    [PASSIVE_ONLY] fn CreateEventW(_security: *const c_void, manual_reset: u32, initial: u32, name: *const u16) -> usize {
        system_call(|process| {
            let event = if manual_reset == 0 { Event::synchronization() } else { Event::notification() };
            if initial != 0 {
                event.set();
            }
            let handle = process.handles.open(Object::Event(Arc::new(event))).filter(|_| name.is_null());
            handle.unwrap_or_else(|| {
                set_last_error(dos_error::of_status(status::STATUS_NOT_SUPPORTED));
                0
            })
        })
    }

    /// Signals an event.
    /// Checks: a handle of the process
    /// Source: Win32: SetEvent
    [PASSIVE_ONLY] fn SetEvent(handle: usize) -> u32 {
        system_call(|process| boolean(process.handles.event(handle).map(|event| event.set())))
    }

    /// Resets an event.
    /// Checks: a handle of the process
    /// Source: Win32: ResetEvent
    [PASSIVE_ONLY] fn ResetEvent(handle: usize) -> u32 {
        system_call(|process| boolean(process.handles.event(handle).map(|event| event.reset())))
    }

    /// Waits for an event, or for the event of a file, in virtual time.
    /// Checks: a handle of the process
    /// Source: Win32: WaitForSingleObject
    [PASSIVE_ONLY] fn WaitForSingleObject(handle: usize, milliseconds: u32) -> u32 {
        system_call(|process| match wait(process, handle, milliseconds) {
            Ok(status::STATUS_TIMEOUT) => dos_error::WAIT_TIMEOUT,
            Ok(_) => WAIT_OBJECT_0,
            Err(refusal) => {
                set_last_error(dos_error::of_status(refusal));
                WAIT_FAILED
            }
        })
    }

    /// Sleeps in virtual time; 0 lets others run.
    /// Source: Win32: Sleep
    [PASSIVE_ONLY] fn Sleep(milliseconds: u32) {
        system_call(|process| {
            if milliseconds == 0 {
                crate::schedule::let_others();
                return;
            }
            event::wait(process, &Event::notification(), event::deadline_of(milliseconds));
        });
    }

    /// Lets others run.
    /// Source: Win32: SwitchToThread
    [PASSIVE_ONLY] fn SwitchToThread() -> u32 {
        system_call(|_| {
            crate::schedule::let_others();
            1
        })
    }

    /// Milliseconds of virtual time since the kernel was booted.
    /// Source: Win32: GetTickCount64
    [PASSIVE_ONLY] fn GetTickCount64() -> u64 {
        dispatcher::now() / (dispatcher::UNITS_PER_SECOND / 1000)
    }
}
