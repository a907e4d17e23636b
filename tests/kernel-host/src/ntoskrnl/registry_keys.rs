//! Registry keys and values.

use crate::bugcheck::{BugCheck, bugcheck};
use crate::exports;
use crate::fault;
use crate::ndis::configuration::text_of;
use crate::nt::{OBJECT_ATTRIBUTES, UNICODE_STRING};
use crate::registry::{self, Value};
use crate::status::{
    NtStatus, STATUS_BUFFER_OVERFLOW, STATUS_BUFFER_TOO_SMALL, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER,
    STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS,
};

const OBJ_KERNEL_HANDLE: u32 = 0x200;
const KEY_VALUE_PARTIAL_INFORMATION: u32 = 2;
/// Title index, type and length of the data.
const PARTIAL_HEADER: usize = 12;

exports! {
    module "ntoskrnl.exe";

    /// Opens a key that exists.
    /// Checks: a kernel handle is asked for; well-formed attributes and name; a whole path, as relative ones are not modelled; can be made to fail
    /// Source: WDM: ZwOpenKey
    [PASSIVE_ONLY] fn ZwOpenKey(handle: *mut usize, _access: u32, attributes: *const OBJECT_ATTRIBUTES) -> NtStatus {
        // SAFETY: the image's attributes.
        let (length, name, flags, root) = unsafe {
            ((*attributes).Length, (*attributes).ObjectName, (*attributes).Attributes, (*attributes).RootDirectory)
        };
        if length as usize != size_of::<OBJECT_ATTRIBUTES>() {
            malformed("ZwOpenKey", attributes as usize, "an OBJECT_ATTRIBUTES");
        }
        let path = text(name, "ZwOpenKey");
        if flags & OBJ_KERNEL_HANDLE == 0 {
            bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, [0x101A, 1, 0, 0],
                "ZwOpenKey is called without OBJ_KERNEL_HANDLE: a user program could use the handle");
        }
        if fault::should_fail("ZwOpenKey") {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let Some(opened) = registry::open(&path).filter(|_| root.is_null()) else { return STATUS_OBJECT_NAME_NOT_FOUND };
        // SAFETY: the image's output.
        unsafe { handle.write(opened) };
        STATUS_SUCCESS
    }

    /// Gives a value's type and data; only the partial information is modelled.
    /// Checks: an open key (a bad kernel handle is a bugcheck under Driver Verifier)
    /// Source: WDM: ZwQueryValueKey
    [PASSIVE_ONLY] fn ZwQueryValueKey(
        key: usize, name: *const UNICODE_STRING, class: u32, information: *mut u8, length: u32, needed: *mut u32,
    ) -> NtStatus {
        let path = path_of(key, "ZwQueryValueKey");
        if class != KEY_VALUE_PARTIAL_INFORMATION {
            return STATUS_INVALID_PARAMETER;
        }
        let Some(value) = registry::get(&path, &text(name, "ZwQueryValueKey")) else { return STATUS_OBJECT_NAME_NOT_FOUND };
        // SAFETY: the image's outputs, of the length that it says.
        unsafe { give(&value, information, length as usize, needed) }
    }

    /// Writes a value.
    /// Checks: an open key (a bad kernel handle is a bugcheck under Driver Verifier); can be made to fail
    /// Source: WDM: ZwSetValueKey
    [PASSIVE_ONLY] fn ZwSetValueKey(
        key: usize, name: *const UNICODE_STRING, _title: u32, kind: u32, data: *const u8, length: u32,
    ) -> NtStatus {
        let path = path_of(key, "ZwSetValueKey");
        if fault::should_fail("ZwSetValueKey") {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        // SAFETY: the image's data.
        let data = unsafe { std::slice::from_raw_parts(data, length as usize) };
        registry::set(&path, &text(name, "ZwSetValueKey"), Value { kind, data: data.to_vec() });
        STATUS_SUCCESS
    }
}

fn malformed(function: &str, address: usize, what: &str) -> ! {
    bugcheck(
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        [0xE4, 0, address as u64, 0],
        format!("{function} is given {what} that is malformed, at {address:#x}"),
    )
}

/// The text of a counted string of a system service.
fn text(string: *const UNICODE_STRING, function: &str) -> String {
    text_of(string.cast()).unwrap_or_else(|| malformed(function, string as usize, "a UNICODE_STRING"))
}

fn path_of(key: usize, function: &str) -> String {
    registry::path_of(key).unwrap_or_else(|| {
        bugcheck(
            BugCheck::INVALID_KERNEL_HANDLE,
            [key as u64, 0, 0, 1],
            format!("{function} is given {key:#x}, which is no open key"),
        )
    })
}

/// Writes `KEY_VALUE_PARTIAL_INFORMATION`, or as much of it as fits.
unsafe fn give(value: &Value, information: *mut u8, length: usize, needed: *mut u32) -> NtStatus {
    let whole = PARTIAL_HEADER + value.data.len();
    // SAFETY: the caller's contract.
    unsafe {
        needed.write(whole as u32);
        if length < PARTIAL_HEADER {
            return STATUS_BUFFER_TOO_SMALL;
        }
        let words = information.cast::<u32>();
        words.write_unaligned(0);
        words.add(1).write_unaligned(value.kind);
        words.add(2).write_unaligned(value.data.len() as u32);
        let fits = value.data.len().min(length - PARTIAL_HEADER);
        std::ptr::copy_nonoverlapping(value.data.as_ptr(), information.add(PARTIAL_HEADER), fits);
    }
    if whole > length { STATUS_BUFFER_OVERFLOW } else { STATUS_SUCCESS }
}
