//! The C structures of ntoskrnl that the host reads and writes, for x64, with their layouts asserted. NDIS and NDK
//! structures are `ndkpi-sys`'s.

use std::ffi::c_void;
use std::mem::{align_of, offset_of, size_of};
use std::sync::atomic::{AtomicI32, AtomicU8};

macro_rules! layout {
    ($type:ty, $size:literal, $align:literal $(, $field:ident @ $offset:literal)* $(,)?) => {
        const _: () = {
            assert!(size_of::<$type>() == $size);
            assert!(align_of::<$type>() == $align);
            $(assert!(offset_of!($type, $field) == $offset);)*
        };
    };
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LIST_ENTRY {
    pub Flink: *mut LIST_ENTRY,
    pub Blink: *mut LIST_ENTRY,
}
layout!(LIST_ENTRY, 16, 8, Flink @ 0, Blink @ 8);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UNICODE_STRING {
    pub Length: u16,
    pub MaximumLength: u16,
    pub Buffer: *mut u16,
}
layout!(UNICODE_STRING, 16, 8, Length @ 0, MaximumLength @ 2, Buffer @ 8);

impl UNICODE_STRING {
    /// The string's text; what is no UTF-16 shows as replacement characters.
    ///
    /// # Safety
    ///
    /// `Buffer` is readable for `Length` bytes.
    pub unsafe fn text(&self) -> String {
        if self.Buffer.is_null() {
            return String::new();
        }
        // SAFETY: the caller's contract.
        String::from_utf16_lossy(unsafe { std::slice::from_raw_parts(self.Buffer, usize::from(self.Length) / 2) })
    }
}

/// Dispatcher object types, as `KOBJECTS` numbers them.
pub mod object_type {
    pub const NOTIFICATION_EVENT: u8 = 0;
    pub const SYNCHRONIZATION_EVENT: u8 = 1;
    pub const MUTANT: u8 = 2;
    pub const SEMAPHORE: u8 = 5;
    pub const THREAD: u8 = 6;
    pub const NOTIFICATION_TIMER: u8 = 8;
    pub const SYNCHRONIZATION_TIMER: u8 = 9;
}

#[repr(C)]
#[derive(Debug)]
pub struct DISPATCHER_HEADER {
    pub Type: AtomicU8,
    pub Signalling: AtomicU8,
    pub Size: AtomicU8,
    pub Reserved1: AtomicU8,
    pub SignalState: AtomicI32,
    pub WaitListHead: LIST_ENTRY,
}
layout!(DISPATCHER_HEADER, 24, 8, SignalState @ 4, WaitListHead @ 8);

#[repr(C)]
#[derive(Debug)]
pub struct KEVENT {
    pub Header: DISPATCHER_HEADER,
}
layout!(KEVENT, 24, 8);

#[repr(C)]
#[derive(Debug)]
pub struct KSEMAPHORE {
    pub Header: DISPATCHER_HEADER,
    pub Limit: i32,
}
layout!(KSEMAPHORE, 32, 8, Limit @ 24);

#[repr(C)]
#[derive(Debug)]
pub struct KMUTANT {
    pub Header: DISPATCHER_HEADER,
    pub MutantListEntry: LIST_ENTRY,
    pub OwnerThread: *mut KTHREAD,
    pub MutantFlags: u8,
    pub ApcDisable: u8,
}
layout!(KMUTANT, 56, 8, OwnerThread @ 40);

#[repr(C)]
#[derive(Debug)]
pub struct KTIMER {
    pub Header: DISPATCHER_HEADER,
    pub DueTime: u64,
    pub TimerListEntry: LIST_ENTRY,
    pub Dpc: *mut KDPC,
    pub Processor: u16,
    pub TimerType: u16,
    pub Period: u32,
}
layout!(KTIMER, 64, 8, DueTime @ 24, TimerListEntry @ 32, Dpc @ 48, Processor @ 56, TimerType @ 58, Period @ 60);

#[repr(C)]
#[derive(Debug)]
pub struct KDPC {
    pub Type: u8,
    pub Importance: u8,
    pub Number: u16,
    pub DpcListEntry: *mut KDPC,
    pub ProcessorHistory: u64,
    pub DeferredRoutine: *mut c_void,
    pub DeferredContext: *mut c_void,
    pub SystemArgument1: *mut c_void,
    pub SystemArgument2: *mut c_void,
    pub DpcData: *mut c_void,
}
layout!(KDPC, 64, 8, Number @ 2, DpcListEntry @ 8, ProcessorHistory @ 16, DeferredRoutine @ 24, DeferredContext @ 32,
    SystemArgument1 @ 40, SystemArgument2 @ 48, DpcData @ 56);

/// The part of a thread object that others may read: it is a dispatcher object. What lies behind is the host's.
#[repr(C)]
#[derive(Debug)]
pub struct KTHREAD {
    pub Header: DISPATCHER_HEADER,
    pub Thread: *const c_void,
}

#[repr(C)]
#[derive(Debug)]
pub struct KLOCK_QUEUE_HANDLE {
    pub Next: *mut c_void,
    pub Lock: *mut usize,
    pub OldIrql: u8,
}
layout!(KLOCK_QUEUE_HANDLE, 24, 8, Lock @ 8, OldIrql @ 16);

#[repr(C)]
#[derive(Debug)]
pub struct FAST_MUTEX {
    pub Count: i32,
    pub Owner: *mut c_void,
    pub Contention: u32,
    pub Event: KEVENT,
    pub OldIrql: u32,
}
layout!(FAST_MUTEX, 56, 8, Owner @ 8, Contention @ 16, Event @ 24, OldIrql @ 48);

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PROCESSOR_NUMBER {
    pub Group: u16,
    pub Number: u8,
    pub Reserved: u8,
}
layout!(PROCESSOR_NUMBER, 4, 2, Number @ 2);

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct GROUP_AFFINITY {
    pub Mask: u64,
    pub Group: u16,
    pub Reserved: [u16; 3],
}
layout!(GROUP_AFFINITY, 16, 8, Group @ 8);

#[repr(C)]
#[derive(Debug)]
pub struct OBJECT_ATTRIBUTES {
    pub Length: u32,
    pub RootDirectory: *mut c_void,
    pub ObjectName: *mut UNICODE_STRING,
    pub Attributes: u32,
    pub SecurityDescriptor: *mut c_void,
    pub SecurityQualityOfService: *mut c_void,
}
layout!(OBJECT_ATTRIBUTES, 48, 8, RootDirectory @ 8, ObjectName @ 16, Attributes @ 24);

/// A memory descriptor list; the page frame numbers (`u64` each) follow it.
#[repr(C)]
#[derive(Debug)]
pub struct MDL {
    pub Next: *mut MDL,
    pub Size: i16,
    pub MdlFlags: i16,
    pub Process: *mut c_void,
    pub MappedSystemVa: *mut c_void,
    pub StartVa: *mut c_void,
    pub ByteCount: u32,
    pub ByteOffset: u32,
}
layout!(MDL, 48, 8, Size @ 8, MdlFlags @ 10, Process @ 16, MappedSystemVa @ 24, StartVa @ 32, ByteCount @ 40,
    ByteOffset @ 44);

#[repr(C)]
#[derive(Clone, Copy)]
pub union IO_STATUS_BLOCK_UNION {
    pub Status: i32,
    pub Pointer: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct IO_STATUS_BLOCK {
    pub u: IO_STATUS_BLOCK_UNION,
    pub Information: usize,
}
layout!(IO_STATUS_BLOCK, 16, 8, Information @ 8);

/// An I/O request packet. The parts that only the I/O manager uses are left as bytes.
#[repr(C, align(16))]
pub struct IRP {
    pub Type: i16,
    pub Size: u16,
    pub MdlAddress: *mut MDL,
    pub Flags: u32,
    /// `AssociatedIrp.SystemBuffer`.
    pub SystemBuffer: *mut c_void,
    pub ThreadListEntry: LIST_ENTRY,
    pub IoStatus: IO_STATUS_BLOCK,
    pub RequestorMode: i8,
    pub PendingReturned: u8,
    pub StackCount: i8,
    pub CurrentLocation: i8,
    pub Cancel: u8,
    pub CancelIrql: u8,
    pub ApcEnvironment: i8,
    pub AllocationFlags: u8,
    pub UserIosb: *mut IO_STATUS_BLOCK,
    pub UserEvent: *mut KEVENT,
    pub Overlay: [u64; 2],
    pub CancelRoutine: *mut c_void,
    pub UserBuffer: *mut c_void,
    /// `Tail.Overlay.DriverContext`.
    pub DriverContext: [*mut c_void; 4],
    pub Thread: *mut c_void,
    pub AuxiliaryBuffer: *mut c_void,
    /// `Tail.Overlay.ListEntry`.
    pub ListEntry: LIST_ENTRY,
    pub CurrentStackLocation: *mut IO_STACK_LOCATION,
    pub OriginalFileObject: *mut c_void,
    pub TailRest: u64,
}
layout!(IRP, 208, 16, MdlAddress @ 8, Flags @ 16, SystemBuffer @ 24, ThreadListEntry @ 32, IoStatus @ 48,
    RequestorMode @ 64, PendingReturned @ 65, StackCount @ 66, CurrentLocation @ 67, Cancel @ 68, CancelIrql @ 69,
    UserIosb @ 72, UserEvent @ 80, Overlay @ 88, CancelRoutine @ 104, UserBuffer @ 112, DriverContext @ 120,
    Thread @ 152, AuxiliaryBuffer @ 160, ListEntry @ 168, CurrentStackLocation @ 184, OriginalFileObject @ 192);

#[repr(C)]
pub struct IO_STACK_LOCATION {
    pub MajorFunction: u8,
    pub MinorFunction: u8,
    pub Flags: u8,
    pub Control: u8,
    /// `Parameters`, 32 bytes from offset 8: for `IRP_MJ_DEVICE_CONTROL` the words are output length, input length,
    /// control code and the type-3 input buffer.
    pub Parameters: [u64; 4],
    pub DeviceObject: *mut c_void,
    pub FileObject: *mut c_void,
    pub CompletionRoutine: *mut c_void,
    pub Context: *mut c_void,
}
layout!(IO_STACK_LOCATION, 72, 8, Parameters @ 8, DeviceObject @ 40, FileObject @ 48, CompletionRoutine @ 56,
    Context @ 64);

#[repr(C)]
pub struct IO_CSQ {
    pub Type: u32,
    pub CsqInsertIrp: *mut c_void,
    pub CsqRemoveIrp: *mut c_void,
    pub CsqPeekNextIrp: *mut c_void,
    pub CsqAcquireLock: *mut c_void,
    pub CsqReleaseLock: *mut c_void,
    pub CsqCompleteCanceledIrp: *mut c_void,
    pub ReservePointer: *mut c_void,
}
layout!(IO_CSQ, 64, 8, CsqInsertIrp @ 8, CsqCompleteCanceledIrp @ 48, ReservePointer @ 56);

#[repr(C)]
pub struct DRIVER_EXTENSION {
    pub DriverObject: *mut DRIVER_OBJECT,
    pub AddDevice: *mut c_void,
    pub Count: u32,
    pub ServiceKeyName: UNICODE_STRING,
}
layout!(DRIVER_EXTENSION, 40, 8, AddDevice @ 8, Count @ 16, ServiceKeyName @ 24);

#[repr(C)]
pub struct DRIVER_OBJECT {
    pub Type: i16,
    pub Size: i16,
    pub DeviceObject: *mut c_void,
    pub Flags: u32,
    pub DriverStart: *mut c_void,
    pub DriverSize: u32,
    pub DriverSection: *mut c_void,
    pub DriverExtension: *mut DRIVER_EXTENSION,
    pub DriverName: UNICODE_STRING,
    pub HardwareDatabase: *mut UNICODE_STRING,
    pub FastIoDispatch: *mut c_void,
    pub DriverInit: *mut c_void,
    pub DriverStartIo: *mut c_void,
    pub DriverUnload: *mut c_void,
    pub MajorFunction: [*mut c_void; 28],
}
layout!(DRIVER_OBJECT, 336, 8, DeviceObject @ 8, DriverStart @ 24, DriverExtension @ 48, DriverName @ 56,
    DriverInit @ 88, DriverUnload @ 104, MajorFunction @ 112);

#[repr(C, align(16))]
#[derive(Debug)]
pub struct SLIST_HEADER {
    pub Alignment: u64,
    pub Region: u64,
}
layout!(SLIST_HEADER, 16, 16);
