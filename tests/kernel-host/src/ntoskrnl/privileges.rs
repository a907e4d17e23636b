//! Privileges of the thread that asks, and the security descriptors of devices.

use std::ffi::c_void;

use crate::bugcheck::{BugCheck, bugcheck};
use crate::fault;
use crate::io::security::{self, SecurityDescriptor};
use crate::io::{device, device_handles};
use crate::status::{self, NtStatus};

const OBJ_KERNEL_HANDLE: u32 = 0x200;
const DACL_SECURITY_INFORMATION: u32 = 4;
const WRITE_DAC: u32 = 0x0004_0000;
/// Bytes of a descriptor's header, and the longest list behind it.
const DESCRIPTOR: usize = 20;

crate::exports! {
    module "ntoskrnl.exe";

    /// Whether a privilege is enabled for the caller of the current thread: kernel mode has all; otherwise the opener whose
    /// IRP_MJ_CREATE is being dispatched is asked. To hold one is not enough: most are disabled until a program enables them.
    /// Checks: a privilege this host knows; asked for user mode inside a create request only, where the thread is the opener's.
    /// Source: NTDDK: SeSinglePrivilegeCheck
    [PASSIVE_ONLY] fn SeSinglePrivilegeCheck(privilege: u64, previous_mode: u8) -> u8 {
        u8::from(previous_mode == 0 || security::opener_has_enabled(privilege))
    }

    /// A kernel handle of a device object, whatever its descriptor says.
    /// Checks: OBJ_KERNEL_HANDLE and KernelMode; a live device; can be made to fail
    /// Source: NTIFS: ObOpenObjectByPointer
    [PASSIVE_ONLY] fn ObOpenObjectByPointer(
        object: *mut c_void, attributes: u32, _passed: *mut c_void, access: u32, _kind: *const u8, mode: u8, handle: *mut usize,
    ) -> NtStatus {
        if attributes & OBJ_KERNEL_HANDLE == 0 || mode != 0 {
            bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, [0x101A, object as u64, u64::from(attributes), 0],
                "ObOpenObjectByPointer: only kernel handles for kernel mode are modelled; a user program could use another");
        }
        let Some(device) = device::of_object(object) else {
            bugcheck(BugCheck::REFERENCE_BY_POINTER, [0, object as u64, 0, 0],
                format!("ObOpenObjectByPointer is given {object:p}, which is no device object (any more)"));
        };
        if fault::should_fail("ObOpenObjectByPointer") {
            return status::STATUS_INSUFFICIENT_RESOURCES;
        }
        let opened = device_handles::open(device, access);
        // SAFETY: the image's output.
        unsafe { handle.write(opened) };
        status::STATUS_SUCCESS
    }

    /// Gives a device a security descriptor: only its discretionary list is taken, from the self-relative form.
    /// Checks: an open handle of a device; WRITE_DAC, else STATUS_ACCESS_DENIED; the descriptor has that form, else
    /// STATUS_INVALID_SECURITY_DESCR; can be made to fail
    /// Source: NTIFS: ZwSetSecurityObject
    [PASSIVE_ONLY] fn ZwSetSecurityObject(handle: usize, information: u32, descriptor: *const u8) -> NtStatus {
        let Some((device, access)) = device_handles::find(handle) else {
            bugcheck(BugCheck::INVALID_KERNEL_HANDLE, [handle as u64, 0, 0, 1],
                format!("ZwSetSecurityObject is given {handle:#x}, which is no open handle of a device"));
        };
        if information != DACL_SECURITY_INFORMATION || access & WRITE_DAC == 0 {
            return status::STATUS_ACCESS_DENIED;
        }
        if fault::should_fail("ZwSetSecurityObject") {
            return status::STATUS_INSUFFICIENT_RESOURCES;
        }
        // SAFETY: the image's descriptor, as long as it says itself; a wrong one faults and is reported.
        let read = unsafe { read_descriptor(descriptor) };
        let Some(security) = read.as_deref().and_then(SecurityDescriptor::from_self_relative) else {
            return status::STATUS_INVALID_SECURITY_DESCR;
        };
        device.set_security(security);
        status::STATUS_SUCCESS
    }
}

/// A descriptor with the discretionary list behind its header.
///
/// # Safety
///
/// There is a descriptor as long as its header says.
unsafe fn read_descriptor(descriptor: *const u8) -> Option<Vec<u8>> {
    if descriptor.is_null() {
        return None;
    }
    // SAFETY: the caller's contract.
    unsafe {
        let list = descriptor.add(16).cast::<u32>().read_unaligned() as usize;
        if list != DESCRIPTOR {
            return None;
        }
        let length = usize::from(descriptor.add(list + 2).cast::<u16>().read_unaligned());
        Some(std::slice::from_raw_parts(descriptor, list + length).to_vec())
    }
}
