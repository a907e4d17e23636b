//! `DEVICE_OBJECT` and `FILE_OBJECT` as drivers see them on x64. What only the I/O manager uses is left as bytes.

use std::ffi::c_void;
use std::mem::offset_of;

use crate::nt::UNICODE_STRING;

#[repr(C, align(16))]
pub struct DEVICE_OBJECT {
    pub Type: i16,
    pub Size: u16,
    pub ReferenceCount: i32,
    pub DriverObject: *mut c_void,
    pub NextDevice: *mut DEVICE_OBJECT,
    pub AttachedDevice: *mut DEVICE_OBJECT,
    pub CurrentIrp: *mut c_void,
    pub Timer: *mut c_void,
    pub Flags: u32,
    pub Characteristics: u32,
    pub Vpb: *mut c_void,
    pub DeviceExtension: *mut c_void,
    pub DeviceType: u32,
    pub StackSize: i8,
    pub Queue: [u64; 9],
    pub AlignmentRequirement: u32,
    pub Rest: [u64; 22],
}

const _: () = {
    assert!(size_of::<DEVICE_OBJECT>() == 336);
    assert!(offset_of!(DEVICE_OBJECT, DriverObject) == 8);
    assert!(offset_of!(DEVICE_OBJECT, Flags) == 48);
    assert!(offset_of!(DEVICE_OBJECT, DeviceExtension) == 64);
    assert!(offset_of!(DEVICE_OBJECT, DeviceType) == 72);
    assert!(offset_of!(DEVICE_OBJECT, StackSize) == 76);
    assert!(offset_of!(DEVICE_OBJECT, Queue) == 80);
    assert!(offset_of!(DEVICE_OBJECT, AlignmentRequirement) == 152);
};

#[repr(C)]
pub struct FILE_OBJECT {
    pub Type: i16,
    pub Size: i16,
    pub DeviceObject: *mut DEVICE_OBJECT,
    pub Vpb: *mut c_void,
    pub FsContext: *mut c_void,
    pub FsContext2: *mut c_void,
    pub SectionObjectPointer: *mut c_void,
    pub PrivateCacheMap: *mut c_void,
    pub FinalStatus: i32,
    pub RelatedFileObject: *mut FILE_OBJECT,
    pub LockOperation: u8,
    pub DeletePending: u8,
    pub ReadAccess: u8,
    pub WriteAccess: u8,
    pub DeleteAccess: u8,
    pub SharedRead: u8,
    pub SharedWrite: u8,
    pub SharedDelete: u8,
    pub Flags: u32,
    pub FileName: UNICODE_STRING,
    pub Rest: [u64; 14],
}

const _: () = {
    assert!(size_of::<FILE_OBJECT>() == 216);
    assert!(offset_of!(FILE_OBJECT, DeviceObject) == 8);
    assert!(offset_of!(FILE_OBJECT, FsContext) == 24);
    assert!(offset_of!(FILE_OBJECT, FinalStatus) == 56);
    assert!(offset_of!(FILE_OBJECT, LockOperation) == 72);
    assert!(offset_of!(FILE_OBJECT, Flags) == 80);
    assert!(offset_of!(FILE_OBJECT, FileName) == 88);
};

/// `IO_TYPE_DEVICE` and `IO_TYPE_FILE`, `IO_TYPE_IRP`.
pub const IO_TYPE_DEVICE: i16 = 3;
pub const IO_TYPE_FILE: i16 = 5;
pub const IO_TYPE_IRP: i16 = 6;
