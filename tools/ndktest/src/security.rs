//! Who may open the device: SYSTEM and administrators.
//!
//! A device of `IoCreateDevice` lets every user in. The routine that takes a descriptor, `IoCreateDeviceSecure`, is a static library of
//! the kit that no image without that library can link; on Windows it does what is done here. The descriptor is set through a handle
//! before DriverEntry returns: until then DO_DEVICE_INITIALIZING keeps every opener out.

use core::{ffi::c_void, ptr};

use wdk_sys::{DEVICE_OBJECT, HANDLE, NTSTATUS, STATUS_SUCCESS, ntddk::ZwClose};

#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "C" {
    /// NTIFS. PASSIVE_LEVEL.
    fn ObOpenObjectByPointer(
        object: *mut c_void,
        attributes: u32,
        passed_access: *mut c_void,
        access: u32,
        object_type: *mut c_void,
        mode: i8,
        handle: *mut HANDLE,
    ) -> NTSTATUS;

    /// NTIFS. PASSIVE_LEVEL.
    fn ZwSetSecurityObject(handle: HANDLE, information: u32, descriptor: *const c_void) -> NTSTATUS;
}

const OBJ_KERNEL_HANDLE: u32 = 0x200;
const KERNEL_MODE: i8 = 0;
const WRITE_DAC: u32 = 0x0004_0000;
const DACL_SECURITY_INFORMATION: u32 = 4;

const FILE_ALL_ACCESS: u32 = 0x001F_01FF;
const ACL_REVISION: u8 = 2;
const SE_DACL_PRESENT: u16 = 0x0004;
const SE_DACL_PROTECTED: u16 = 0x1000;
const SE_SELF_RELATIVE: u16 = 0x8000;

/// A SID of NT AUTHORITY with so many parts.
#[repr(C)]
struct Sid<const PARTS: usize> {
    revision: u8,
    parts: u8,
    authority: [u8; 6],
    part: [u32; PARTS],
}

const fn sid<const PARTS: usize>(part: [u32; PARTS]) -> Sid<PARTS> {
    Sid { revision: 1, parts: PARTS as u8, authority: [0, 0, 0, 0, 0, 5], part }
}

/// `ACCESS_ALLOWED_ACE`.
#[repr(C)]
struct Allowed<const PARTS: usize> {
    kind: u8,
    flags: u8,
    size: u16,
    mask: u32,
    sid: Sid<PARTS>,
}

const fn everything_for<const PARTS: usize>(part: [u32; PARTS]) -> Allowed<PARTS> {
    Allowed { kind: 0, flags: 0, size: size_of::<Allowed<PARTS>>() as u16, mask: FILE_ALL_ACCESS, sid: sid(part) }
}

/// `ACL`.
#[repr(C)]
struct AccessList {
    revision: u8,
    reserved: u8,
    size: u16,
    count: u16,
    reserved2: u16,
    system: Allowed<1>,
    administrators: Allowed<2>,
}

/// `SECURITY_DESCRIPTOR_RELATIVE` with its list.
#[repr(C)]
struct Descriptor {
    revision: u8,
    reserved: u8,
    control: u16,
    owner: u32,
    group: u32,
    system_list: u32,
    list_offset: u32,
    list: AccessList,
}

/// `D:P(A;;FA;;;SY)(A;;FA;;;BA)`.
static DESCRIPTOR: Descriptor = Descriptor {
    revision: 1,
    reserved: 0,
    control: SE_SELF_RELATIVE | SE_DACL_PRESENT | SE_DACL_PROTECTED,
    owner: 0,
    group: 0,
    system_list: 0,
    list_offset: core::mem::offset_of!(Descriptor, list) as u32,
    list: AccessList {
        revision: ACL_REVISION,
        reserved: 0,
        size: size_of::<AccessList>() as u16,
        count: 2,
        reserved2: 0,
        system: everything_for([18]),
        administrators: everything_for([32, 544]),
    },
};

const _: () = assert!(size_of::<Descriptor>() == 72 && size_of::<AccessList>() == 52);

/// Lets SYSTEM and administrators in, and no other opener. PASSIVE_LEVEL.
///
/// # Safety
/// `device` is a device of this driver's.
pub unsafe fn protect(device: *mut DEVICE_OBJECT) -> Result<(), NTSTATUS> {
    let mut handle: HANDLE = ptr::null_mut();
    // SAFETY: PASSIVE_LEVEL; a live object; for kernel mode no type is needed; a place for the answer.
    let opened = unsafe {
        ObOpenObjectByPointer(
            device.cast(),
            OBJ_KERNEL_HANDLE,
            ptr::null_mut(),
            WRITE_DAC,
            ptr::null_mut(),
            KERNEL_MODE,
            &raw mut handle,
        )
    };
    if opened != STATUS_SUCCESS {
        return Err(opened);
    }
    // SAFETY: PASSIVE_LEVEL; a handle with the right to change the list; a complete descriptor, which the system copies.
    let set = unsafe { ZwSetSecurityObject(handle, DACL_SECURITY_INFORMATION, (&raw const DESCRIPTOR).cast()) };
    // SAFETY: PASSIVE_LEVEL; our own handle, closed once.
    let _status = unsafe { ZwClose(handle) };
    if set == STATUS_SUCCESS { Ok(()) } else { Err(set) }
}
