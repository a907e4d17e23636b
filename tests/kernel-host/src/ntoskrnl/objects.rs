//! Handles, references and run-time look-up of routines.

use std::ffi::c_void;

use crate::bugcheck::{BugCheck, bugcheck};
use crate::dispatcher;
use crate::export::DataExport;
use crate::exports;
use crate::fault;
use crate::image::loader;
use crate::io::device_handles;
use crate::ledger;
use crate::nt::UNICODE_STRING;
use crate::object_table::{self, ObjectKind};
use crate::registry;
use crate::status::{NtStatus, STATUS_INSUFFICIENT_RESOURCES, STATUS_OBJECT_TYPE_MISMATCH, STATUS_SUCCESS};

/// The target of the type exports: an opaque object whose address names the type.
#[repr(transparent)]
pub struct TypeObject(*const u8);

// SAFETY: an address that is only compared.
unsafe impl Sync for TypeObject {}

static THREAD_TYPE_BODY: u8 = ObjectKind::Thread as u8;

/// `PsThreadType`: a pointer to the type object.
static THREAD_TYPE: TypeObject = TypeObject(&raw const THREAD_TYPE_BODY);

pub static DATA_EXPORTS: &[DataExport] = &[DataExport {
    module: "ntoskrnl.exe",
    name: "PsThreadType",
    documentation: &[" The type of thread objects.", " Source: WDM: ObReferenceObjectByHandle"],
    address: (&raw const THREAD_TYPE).cast::<c_void>(),
}];

exports! {
    module "ntoskrnl.exe";

    /// A reference to the object of a handle.
    /// Checks: the handle is open; the type fits; can be made to fail
    /// Source: WDM: ObReferenceObjectByHandle
    [PASSIVE_ONLY] fn ObReferenceObjectByHandle(
        handle: usize, _access: u32, kind: *const u8, _mode: u8, object: *mut usize, _information: *mut c_void,
    ) -> NtStatus {
        // One hold: another thread may close the handle.
        let Some(found) = object_table::reference_by_handle(handle) else {
            let (subject, what) = if handle == 0 { (0xF5, "NULL".to_owned()) } else { (0x3C, format!("{handle:#x}")) };
            bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, [subject, handle as u64, kind as u64, 0],
                format!("ObReferenceObjectByHandle is given {what}, which is no open handle of an object"));
        };
        let failed = if fault::should_fail("ObReferenceObjectByHandle") {
            Some(STATUS_INSUFFICIENT_RESOURCES)
        } else {
            (!kind.is_null() && kind != THREAD_TYPE.0).then_some(STATUS_OBJECT_TYPE_MISMATCH)
        };
        if let Some(status) = failed {
            object_table::dereference(found, "ObReferenceObjectByHandle");
            return status;
        }
        ledger::record(object_table::LEDGER_KIND_REFERENCE, found, "");
        // SAFETY: the image's output.
        unsafe { object.write(found) };
        STATUS_SUCCESS
    }

    /// One more reference.
    /// Checks: a live object
    /// Source: WDM: ObReferenceObject
    [UP_TO_DISPATCH] fn ObfReferenceObject(object: usize) -> isize {
        if !object_table::reference(object) {
            bugcheck(BugCheck::REFERENCE_BY_POINTER, [0, object as u64, 0, 0],
                format!("ObReferenceObject is given {object:#x}, which is no object (any more)"));
        }
        1
    }

    /// One reference less; the last removes the object.
    /// Checks: a live object
    /// Source: WDM: ObDereferenceObject
    [UP_TO_DISPATCH] fn ObfDereferenceObject(object: usize) -> isize {
        ledger::release(object_table::LEDGER_KIND_REFERENCE, object);
        object_table::dereference(object, "ObDereferenceObject");
        0
    }

    /// Closes a handle.
    /// Checks: open; closing a bad kernel handle is a bugcheck under Driver Verifier
    /// Source: WDM: ZwClose
    [PASSIVE_ONLY] fn ZwClose(handle: usize) -> NtStatus {
        if !object_table::close(handle) && !registry::close(handle) && !device_handles::close(handle) {
            bugcheck(BugCheck::INVALID_KERNEL_HANDLE, [handle as u64, 0, 0, 1],
                format!("ZwClose is given {handle:#x}, which is no open handle"));
        }
        STATUS_SUCCESS
    }

    /// Waits for the object of a handle, for ever or until a time-out. The wait keeps the object.
    /// Checks: the handle is open; a bad kernel handle is a bugcheck under Driver Verifier
    /// Source: WDM: ZwWaitForSingleObject
    [PASSIVE_ONLY] fn ZwWaitForSingleObject(handle: usize, _alertable: u8, timeout: *const i64) -> NtStatus {
        let Some(object) = object_table::reference_by_handle(handle) else {
            bugcheck(BugCheck::INVALID_KERNEL_HANDLE, [handle as u64, 0, 0, 1],
                format!("ZwWaitForSingleObject is given {handle:#x}, which is no open handle of an object"));
        };
        // SAFETY: an object that is referenced; the image's time-out.
        let status = unsafe {
            let timeout = (!timeout.is_null()).then(|| timeout.read());
            dispatcher::wait("ZwWaitForSingleObject", &[object], false, timeout)
        };
        object_table::dereference(object, "ZwWaitForSingleObject");
        status
    }

    /// The address of a routine of ntoskrnl or hal by name, or NULL.
    /// Source: WDM: MmGetSystemRoutineAddress
    [PASSIVE_ONLY] fn MmGetSystemRoutineAddress(name: *const UNICODE_STRING) -> usize {
        // SAFETY: the image's string.
        let name = unsafe { (*name).text() };
        loader::address_of("ntoskrnl.exe", &name).or_else(|| loader::address_of("hal.dll", &name)).unwrap_or(0)
    }
}
