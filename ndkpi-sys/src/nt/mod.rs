//! The few types of `ntdef.h`, `wdm.h` and `ws2def.h` that the network headers build on.
//!
//! Devices, drivers, IRPs and processes are opaque here; their owners (wdk-sys, or the test that plays the kernel) have the
//! full types. Pointers convert with `cast`.

use core::ffi::c_void;

use crate::abi::{abi_fn, layout, opaque, zeroed};

mod mdl;
mod socket;
mod status;

pub use mdl::*;
pub use socket::*;
pub use status::*;

pub type BOOLEAN = u8;
pub type CHAR = i8;
pub type CCHAR = i8;
pub type UCHAR = u8;
pub type SHORT = i16;
pub type CSHORT = i16;
pub type USHORT = u16;
pub type LONG = i32;
pub type UINT = u32;
pub type ULONG = u32;
pub type LONGLONG = i64;
pub type ULONGLONG = u64;
pub type UINT8 = u8;
pub type UINT32 = u32;
pub type UINT64 = u64;
pub type ULONG64 = u64;
pub type ULONG_PTR = usize;
pub type SIZE_T = usize;
pub type WCHAR = u16;
pub type PVOID = *mut c_void;
pub type HANDLE = *mut c_void;
pub type KIRQL = UCHAR;
pub type KAFFINITY = ULONG_PTR;
pub type KSPIN_LOCK = ULONG_PTR;
pub type PFN_NUMBER = ULONG_PTR;

/// `BOOLEAN` true. Any other non-zero value is true as well: compare with [`FALSE`].
pub const TRUE: BOOLEAN = 1;
pub const FALSE: BOOLEAN = 0;

pub const PASSIVE_LEVEL: KIRQL = 0;
pub const APC_LEVEL: KIRQL = 1;
pub const DISPATCH_LEVEL: KIRQL = 2;

pub const PAGE_SHIFT: usize = 12;
pub const PAGE_SIZE: usize = 1 << PAGE_SHIFT;

opaque! {
    /// `DEVICE_OBJECT`, by address.
    pub struct DEVICE_OBJECT;
    /// `DRIVER_OBJECT`, by address.
    pub struct DRIVER_OBJECT;
    /// `IRP`, by address.
    pub struct IRP;
    /// `EPROCESS`, by address.
    pub struct EPROCESS;
    /// `ETHREAD`, by address.
    pub struct ETHREAD;
    /// `CM_RESOURCE_LIST`, by address.
    pub struct CM_RESOURCE_LIST;
}

pub type PDEVICE_OBJECT = *mut DEVICE_OBJECT;
pub type PDRIVER_OBJECT = *mut DRIVER_OBJECT;
pub type PIRP = *mut IRP;
pub type PEPROCESS = *mut EPROCESS;
pub type PETHREAD = *mut ETHREAD;
/// An opaque security descriptor.
pub type PSECURITY_DESCRIPTOR = PVOID;

abi_fn! {
    /// I/O request handler of a device (`DRIVER_DISPATCH`).
    pub type PDRIVER_DISPATCH = fn(DeviceObject: *mut DEVICE_OBJECT, Irp: *mut IRP) -> NTSTATUS;
    /// Driver unload routine (`DRIVER_UNLOAD`), PASSIVE_LEVEL.
    pub type PDRIVER_UNLOAD = fn(DriverObject: *mut DRIVER_OBJECT);
    /// Driver entry point (`DRIVER_INITIALIZE`), PASSIVE_LEVEL.
    pub type PDRIVER_INITIALIZE = fn(DriverObject: *mut DRIVER_OBJECT, RegistryPath: *mut UNICODE_STRING) -> NTSTATUS;
}

/// A signed 64-bit number; in C a union with its halves.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LARGE_INTEGER {
    pub QuadPart: LONGLONG,
}
layout!(LARGE_INTEGER, size 8, align 8, { QuadPart: 0 });

impl LARGE_INTEGER {
    /// The lower 32 bits (`LowPart`).
    #[must_use]
    pub const fn LowPart(self) -> ULONG {
        self.QuadPart as ULONG
    }

    /// The upper 32 bits (`HighPart`).
    #[must_use]
    pub const fn HighPart(self) -> LONG {
        (self.QuadPart >> 32) as LONG
    }
}

pub type PHYSICAL_ADDRESS = LARGE_INTEGER;

/// A counted UTF-16 string. `Length` and `MaximumLength` are bytes and do not count a terminator.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UNICODE_STRING {
    pub Length: USHORT,
    pub MaximumLength: USHORT,
    pub Buffer: *mut WCHAR,
}
layout!(UNICODE_STRING, size 16, align 8, { Length: 0, MaximumLength: 2, Buffer: 8 });

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GUID {
    pub Data1: u32,
    pub Data2: u16,
    pub Data3: u16,
    pub Data4: [u8; 8],
}
layout!(GUID, size 16, align 4, { Data1: 0, Data2: 4, Data3: 6, Data4: 8 });

impl GUID {
    /// Reads a GUID written as one number: `{7969ba4d-dd80-4bc7-b3e6-68043997e519}` is
    /// `GUID::from_u128(0x7969ba4d_dd80_4bc7_b3e6_68043997e519)`.
    #[must_use]
    pub const fn from_u128(value: u128) -> Self {
        Self {
            Data1: (value >> 96) as u32,
            Data2: (value >> 80) as u16,
            Data3: (value >> 64) as u16,
            Data4: (value as u64).to_be_bytes(),
        }
    }
}

/// Processors of one group.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GROUP_AFFINITY {
    pub Mask: KAFFINITY,
    pub Group: USHORT,
    pub Reserved: [USHORT; 3],
}
layout!(GROUP_AFFINITY, size 16, align 8, { Mask: 0, Group: 8, Reserved: 10 });

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PROCESSOR_NUMBER {
    pub Group: USHORT,
    pub Number: UCHAR,
    pub Reserved: UCHAR,
}
layout!(PROCESSOR_NUMBER, size 4, align 2, { Group: 0, Number: 2, Reserved: 3 });

/// Head of an interlocked singly linked list; 16-byte aligned, and its contents belong to the kernel.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug)]
pub struct SLIST_HEADER {
    pub Alignment: ULONGLONG,
    pub Region: ULONGLONG,
}
layout!(SLIST_HEADER, size 16, align 16, { Alignment: 0, Region: 8 });

#[repr(C, align(16))]
#[derive(Clone, Copy, Debug)]
pub struct SLIST_ENTRY {
    pub Next: *mut SLIST_ENTRY,
}
layout!(SLIST_ENTRY, size 16, align 16, { Next: 0 });

/// A kernel event, as storage: it must stay at its address while a thread can wait on it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KEVENT {
    pub Header: [ULONG64; 3],
}
layout!(KEVENT, size 24, align 8, { Header: 0 });

/// One contiguous piece of a scatter/gather list for a device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SCATTER_GATHER_ELEMENT {
    pub Address: PHYSICAL_ADDRESS,
    pub Length: ULONG,
    pub Reserved: ULONG_PTR,
}
layout!(SCATTER_GATHER_ELEMENT, size 24, align 8, { Address: 0, Length: 8, Reserved: 16 });

/// Header of a scatter/gather list; `NumberOfElements` elements follow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SCATTER_GATHER_LIST {
    pub NumberOfElements: ULONG,
    pub Reserved: ULONG_PTR,
    pub Elements: [SCATTER_GATHER_ELEMENT; 0],
}
layout!(SCATTER_GATHER_LIST, size 16, align 8, { NumberOfElements: 0, Reserved: 8, Elements: 16 });

zeroed!(UNICODE_STRING, SLIST_HEADER, SLIST_ENTRY, KEVENT, SCATTER_GATHER_ELEMENT);
