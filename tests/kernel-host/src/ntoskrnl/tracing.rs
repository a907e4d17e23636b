//! Event tracing: providers can be registered, and there is no session. What a driver writes is dropped.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bugcheck::{BugCheck, bugcheck};
use crate::fault;
use crate::ledger;
use crate::status::{self, NtStatus};

const KIND: &str = "ETW registration";
/// The kind under which registrations with WMI are recorded, by device object or callback.
pub(crate) const KIND_WMI: &str = "WMI registration";

fn check(function: &str, handle: u64) {
    if !ledger::holds(KIND, handle as usize) {
        let rule = format!("{function} of {handle:#x}, which is no registered provider (any more)");
        bugcheck(BugCheck::INVALID_KERNEL_HANDLE, [handle, 0, 0, 0], rule);
    }
}

crate::exports! {
    module "ntoskrnl.exe";

    /// Registers a provider; there is no session.
    /// Checks: can be made to fail; unregistered before the driver is unloaded
    /// Source: ETW: EtwRegister
    [PASSIVE_ONLY] fn EtwRegister(
        _provider: *const c_void, _callback: *const c_void, _context: *const c_void, handle: *mut u64,
    ) -> NtStatus {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        if fault::should_fail("EtwRegister") {
            return status::STATUS_INSUFFICIENT_RESOURCES;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        ledger::record(KIND, number, "");
        // SAFETY: the image's output.
        unsafe { handle.write(number as u64) };
        status::STATUS_SUCCESS
    }

    /// Ends a registration.
    /// Checks: a registered provider
    /// Source: ETW: EtwUnregister
    [PASSIVE_ONLY] fn EtwUnregister(handle: u64) -> NtStatus {
        check("EtwUnregister", handle);
        ledger::release(KIND, handle as usize);
        status::STATUS_SUCCESS
    }

    /// The event has no session.
    /// Source: ETW: EtwEventEnabled
    [ANY] fn EtwEventEnabled(_handle: u64, _event: *const c_void) -> u8 {
        0
    }

    /// The provider has no session.
    /// Source: ETW: EtwProviderEnabled
    [ANY] fn EtwProviderEnabled(_handle: u64, _level: u8, _keyword: u64) -> u8 {
        0
    }

    /// Takes traits of the provider and drops them.
    /// Checks: a registered provider
    /// Source: ETW: EtwSetInformation
    [PASSIVE_ONLY] fn EtwSetInformation(handle: u64, _class: u32, _information: *const c_void, _length: u32) -> NtStatus {
        check("EtwSetInformation", handle);
        status::STATUS_SUCCESS
    }

    /// Drops an event.
    /// Checks: a registered provider
    /// Source: ETW: EtwWrite
    [ANY] fn EtwWrite(
        handle: u64, _event: *const c_void, _activity: *const c_void, _count: u32, _data: *const c_void,
    ) -> NtStatus {
        check("EtwWrite", handle);
        status::STATUS_SUCCESS
    }

    /// Drops an event.
    /// Checks: a registered provider
    /// Source: ETW: EtwWriteTransfer
    [ANY] fn EtwWriteTransfer(
        handle: u64, _event: *const c_void, _activity: *const c_void, _related: *const c_void, _count: u32,
        _data: *const c_void,
    ) -> NtStatus {
        check("EtwWriteTransfer", handle);
        status::STATUS_SUCCESS
    }

    /// Takes a registration or its end, of a device object or of a callback (WPP); nothing is asked of it.
    /// Checks: ended before the device is deleted and the driver is unloaded
    /// Source: WDM: IoWMIRegistrationControl
    [PASSIVE_ONLY] fn IoWMIRegistrationControl(object: *mut c_void, action: u32) -> NtStatus {
        const REGISTER: u32 = 1;
        const DEREGISTER: u32 = 2;
        // The low word is the action, the high one the kind of the object.
        match action & 0xFFFF {
            REGISTER => ledger::record(KIND_WMI, object as usize, "(WMI callback or device)"),
            DEREGISTER if ledger::release(KIND_WMI, object as usize).is_none() => return status::STATUS_INVALID_PARAMETER,
            _ => {}
        }
        status::STATUS_SUCCESS
    }
}
