//! What the bad drivers import from ntoskrnl.exe, and the structures it takes.
//!
//! Declared here by hand, opaque where no field is used: these drivers must not share code with softndk.sys, so that
//! a mistake in one cannot hide the same mistake in the other. Sizes and offsets are those of the 64-bit Windows kernel.

use core::ffi::c_void;

pub type NtStatus = i32;

pub const STATUS_SUCCESS: NtStatus = 0;
pub const STATUS_PENDING: NtStatus = 0x103;
pub const STATUS_OBJECT_NAME_NOT_FOUND: NtStatus = 0xC000_0034_u32 as i32;
pub const STATUS_NOT_SUPPORTED: NtStatus = 0xC000_00BB_u32 as i32;
pub const STATUS_CANCELLED: NtStatus = 0xC000_0120_u32 as i32;

pub const PASSIVE_LEVEL: u8 = 0;
pub const DISPATCH_LEVEL: u8 = 2;
pub const DEVICE_LEVEL: u8 = 5;

pub const PAGE: usize = 4096;
/// "badd", as pool tags are written.
pub const TAG: u32 = u32::from_le_bytes(*b"badd");
pub const OTHER_TAG: u32 = u32::from_le_bytes(*b"evil");
pub const POOL_FLAG_NON_PAGED: u64 = 0x40;

pub const MDL_PAGES_LOCKED: i16 = 2;
pub const NORMAL_PRIORITY: u32 = 16;
pub const MAPPING_NO_EXECUTE: u32 = 0x4000_0000;
pub const MAPPING_NO_WRITE: u32 = 0x8000_0000;

/// Offsets in `IRP` and `IO_STACK_LOCATION`.
pub const IRP_STATUS: usize = 48;
pub const IRP_INFORMATION: usize = 56;
pub const IRP_STACK_LOCATION: usize = 184;
pub const IRP_MDL: usize = 8;
pub const IRP_CANCEL: usize = 68;
pub const IRP_CANCEL_IRQL: usize = 69;
pub const IRP_CANCEL_ROUTINE: usize = 104;
pub const IRP_LIST_ENTRY: usize = 168;
pub const STACK_CONTROL: usize = 3;
pub const STACK_OUTPUT_LENGTH: usize = 8;
pub const SL_PENDING_RETURNED: u8 = 1;

#[repr(C)]
pub struct UnicodeString {
    pub length: u16,
    pub maximum_length: u16,
    pub buffer: *const u16,
}

/// `DRIVER_OBJECT` as far as its unload routine.
#[repr(C)]
pub struct DriverObject {
    pub unused: [u64; 13],
    pub unload: Option<unsafe extern "C" fn(*mut DriverObject)>,
}

#[repr(C, align(8))]
pub struct Dpc(pub [u8; 64]);
#[repr(C, align(8))]
pub struct Timer(pub [u8; 64]);
#[repr(C, align(8))]
pub struct Event(pub [u8; 24]);
#[repr(C, align(8))]
pub struct Rundown(pub [u8; 8]);
pub type SpinLock = usize;

#[repr(C)]
pub struct ListEntry {
    pub next: *mut ListEntry,
    pub previous: *mut ListEntry,
}

/// `WORK_QUEUE_ITEM`.
#[repr(C)]
pub struct WorkQueueItem {
    pub link: [usize; 2],
    pub routine: Option<StartRoutine>,
    pub parameter: *mut c_void,
}

#[repr(C)]
pub struct Mdl {
    pub next: *mut Mdl,
    pub size: i16,
    pub flags: i16,
    pub process: *mut c_void,
    pub mapped_system_va: *mut c_void,
    pub start_va: *mut c_void,
    pub byte_count: u32,
    pub byte_offset: u32,
}

#[repr(C)]
pub struct ProcessorNumber {
    pub group: u16,
    pub number: u8,
    pub reserved: u8,
}

pub type DpcRoutine = unsafe extern "C" fn(*mut Dpc, *mut c_void, *mut c_void, *mut c_void);
pub type StartRoutine = unsafe extern "C" fn(*mut c_void);

#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    pub fn KeBugCheckEx(code: u32, first: usize, second: usize, third: usize, fourth: usize) -> !;

    pub fn KfRaiseIrql(level: u8) -> u8;
    pub fn KeLowerIrql(level: u8);
    pub fn KeGetCurrentIrql() -> u8;

    pub fn KeInitializeEvent(event: *mut Event, kind: i32, state: u8);
    pub fn KeSetEvent(event: *mut Event, increment: i32, wait: u8) -> i32;
    pub fn KeWaitForSingleObject(
        object: *mut c_void,
        reason: i32,
        mode: i8,
        alertable: u8,
        timeout: *const i64,
    ) -> NtStatus;
    pub fn KeDelayExecutionThread(mode: i8, alertable: u8, interval: *const i64) -> NtStatus;

    pub fn KeAcquireSpinLockRaiseToDpc(lock: *mut SpinLock) -> u8;
    pub fn KeReleaseSpinLock(lock: *mut SpinLock, level: u8);
    pub fn KeAcquireSpinLockAtDpcLevel(lock: *mut SpinLock);
    pub fn KeReleaseSpinLockFromDpcLevel(lock: *mut SpinLock);

    pub fn KeInitializeDpc(dpc: *mut Dpc, routine: DpcRoutine, context: *mut c_void);
    pub fn KeInsertQueueDpc(dpc: *mut Dpc, first: *mut c_void, second: *mut c_void) -> u8;
    pub fn KeSetTargetProcessorDpcEx(dpc: *mut Dpc, number: *mut ProcessorNumber) -> NtStatus;
    pub fn KeFlushQueuedDpcs();
    pub fn KeStallExecutionProcessor(microseconds: u32);

    pub fn KeInitializeTimerEx(timer: *mut Timer, kind: i32);
    pub fn KeSetTimerEx(timer: *mut Timer, due: i64, period: i32, dpc: *mut Dpc) -> u8;
    pub fn KeCancelTimer(timer: *mut Timer) -> u8;

    pub fn ExAllocatePool2(flags: u64, size: usize, tag: u32) -> *mut c_void;
    pub fn ExFreePoolWithTag(block: *mut c_void, tag: u32);

    pub fn IoAllocateMdl(address: *mut c_void, length: u32, secondary: u8, charge: u8, irp: *mut c_void) -> *mut Mdl;
    pub fn IoFreeMdl(mdl: *mut Mdl);
    pub fn MmBuildMdlForNonPagedPool(mdl: *mut Mdl);
    pub fn MmMapLockedPagesSpecifyCache(
        mdl: *mut Mdl,
        mode: i8,
        cache: i32,
        address: *mut c_void,
        bugcheck_on_failure: u32,
        priority: u32,
    ) -> *mut c_void;
    pub fn MmProbeAndLockPages(mdl: *mut Mdl, mode: i8, operation: i32);
    pub fn MmUnlockPages(mdl: *mut Mdl);
    pub fn MmUnmapLockedPages(address: *mut c_void, mdl: *mut Mdl);

    pub fn ExInitializeRundownProtection(rundown: *mut Rundown);
    pub fn ExAcquireRundownProtection(rundown: *mut Rundown) -> u8;
    pub fn ExReleaseRundownProtection(rundown: *mut Rundown);
    pub fn ExWaitForRundownProtectionRelease(rundown: *mut Rundown);

    pub fn PsCreateSystemThread(
        handle: *mut *mut c_void,
        access: u32,
        attributes: *mut c_void,
        process: *mut c_void,
        client: *mut c_void,
        routine: StartRoutine,
        context: *mut c_void,
    ) -> NtStatus;
    pub fn ObReferenceObjectByHandle(
        handle: *mut c_void,
        access: u32,
        kind: *mut c_void,
        mode: i8,
        object: *mut *mut c_void,
        information: *mut c_void,
    ) -> NtStatus;
    pub fn ObfDereferenceObject(object: *mut c_void) -> isize;
    pub fn ZwClose(handle: *mut c_void) -> NtStatus;
    pub fn KeGetCurrentThread() -> *mut c_void;
    pub fn KeSetPriorityThread(thread: *mut c_void, priority: i32) -> i32;
    pub fn KeQueryActiveProcessorCountEx(group: u16) -> u32;

    pub fn ExQueueWorkItem(item: *mut WorkQueueItem, queue: u32);
    pub fn ExInterlockedInsertTailList(
        head: *mut ListEntry,
        entry: *mut ListEntry,
        lock: *mut SpinLock,
    ) -> *mut ListEntry;
    pub fn IoCreateDevice(
        driver: *mut DriverObject,
        extension: u32,
        name: *const UnicodeString,
        kind: u32,
        characteristics: u32,
        exclusive: u8,
        made: *mut *mut c_void,
    ) -> NtStatus;
    pub fn IoDeleteDevice(device: *mut c_void);

    pub fn IofCompleteRequest(irp: *mut c_void, boost: i8);
    pub fn IoReleaseCancelSpinLock(level: u8);
}

#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "C" {
    pub fn _snprintf(buffer: *mut u8, capacity: usize, format: *const u8, ...) -> i32;
}

// What the compiler calls by itself; no line of ours names them.
#[allow(dead_code)]
#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "C" {
    pub fn memcpy(target: *mut c_void, source: *const c_void, length: usize) -> *mut c_void;
    pub fn memmove(target: *mut c_void, source: *const c_void, length: usize) -> *mut c_void;
    pub fn memset(target: *mut c_void, byte: i32, length: usize) -> *mut c_void;
    pub fn memcmp(left: *const c_void, right: *const c_void, length: usize) -> i32;
}

/// A block of non-paged pool, or null.
pub unsafe fn allocate(size: usize) -> *mut u8 {
    ExAllocatePool2(POOL_FLAG_NON_PAGED, size, TAG).cast()
}

pub unsafe fn free(block: *mut u8) {
    ExFreePoolWithTag(block.cast(), TAG);
}
