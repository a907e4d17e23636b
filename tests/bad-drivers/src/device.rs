//! The miniport's control device: one I/O control that completes, one that pends until it is cancelled or its file is cleaned up, and the ways to get
//! either wrong.

use core::ffi::c_void;
use core::mem::size_of;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use ndkpi_sys::ndis::*;
use ndkpi_sys::nt;

use crate::kernel::{
    DISPATCH_LEVEL, ExInterlockedInsertTailList, IRP_CANCEL, IRP_CANCEL_IRQL, IRP_CANCEL_ROUTINE, IRP_INFORMATION,
    IRP_LIST_ENTRY, IRP_MDL, IRP_STACK_LOCATION, IRP_STATUS, IoReleaseCancelSpinLock, IofCompleteRequest,
    KeAcquireSpinLockRaiseToDpc, KeReleaseSpinLock, KfRaiseIrql, ListEntry, MAPPING_NO_EXECUTE, Mdl,
    MmMapLockedPagesSpecifyCache, NORMAL_PRIORITY, NtStatus, SL_PENDING_RETURNED, STACK_CONTROL, STACK_OUTPUT_LENGTH,
    STATUS_CANCELLED, STATUS_PENDING, STATUS_SUCCESS, SpinLock,
};
use crate::mutexes::KeEnterCriticalRegion;
use crate::spin_lock::Shared;

/// How the device can break the rules of the I/O manager.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    CompletedTwice,
    NeverCompleted,
    InformationTooLarge,
    PendingNotMarked,
    MarkedNotPending,
    StatusDiffers,
    CompletedRaised,
    CompletedPending,
    CompletedLocked,
    CompletedCancelable,
    OutputUnwritten,
    NotCancelable,
    CancelKeepsLock,
    ReturnsInRegion,
    StatusUnwritten,
    StatusMeaningless,
    CleanupFails,
    CloseFails,
    MarkedAfterUnlock,
    MarkedAfterQueue,
    CancelNotRead,
    InputWritten,
}

/// CTL_CODE(0x8BAD, function, method, READ | WRITE).
const fn code(function: u32, method: u32) -> u32 {
    (0x8BAD << 16) | (3 << 14) | (function << 2) | method
}

/// Pends until cleanup. Every code that is not named completes at once.
const IOCTL_PENDS: u32 = code(0x801, 0);
/// As the other, and queues the IRP by `ExInterlockedInsertTailList`.
const IOCTL_PENDS_INTERLOCKED: u32 = code(0x803, 0);
/// METHOD_IN_DIRECT: reads the second buffer.
const IOCTL_READS: u32 = code(0x804, 1);

const STATUS_UNSUCCESSFUL: NtStatus = 0xC000_0001_u32 as i32;
/// Bit 28 of a status is always 0.
const MEANINGLESS: NtStatus = 0xDEAD_BEEF_u32 as i32;

static FAULT: AtomicU8 = AtomicU8::new(Fault::None as u8);
static DEVICE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static LOCK: Shared<SpinLock> = Shared(core::cell::UnsafeCell::new(0));
static QUEUE: Shared<ListEntry> =
    Shared(core::cell::UnsafeCell::new(ListEntry { next: core::ptr::null_mut(), previous: core::ptr::null_mut() }));
static PENDED: AtomicPtr<nt::IRP> = AtomicPtr::new(core::ptr::null_mut());

pub fn choose(fault: Fault) {
    FAULT.store(fault as u8, Ordering::Relaxed);
}

fn faulty(fault: Fault) -> bool {
    FAULT.load(Ordering::Relaxed) == fault as u8
}

macro_rules! utf16 {
    ($text:literal) => {{
        const UNITS: [u16; $text.len()] = {
            let mut units = [0; $text.len()];
            let mut index = 0;
            while index < units.len() {
                units[index] = $text[index] as u16;
                index += 1;
            }
            units
        };
        static TEXT: [u16; UNITS.len()] = UNITS;
        nt::UNICODE_STRING {
            Length: (TEXT.len() * 2) as u16,
            MaximumLength: (TEXT.len() * 2) as u16,
            Buffer: TEXT.as_ptr().cast_mut(),
        }
    }};
}

pub unsafe fn register(driver: NDIS_HANDLE) -> NtStatus {
    let mut name = utf16!(br"\Device\SoftNdkBad");
    let mut link = utf16!(br"\DosDevices\SoftNdkBad");
    let mut access = utf16!(br"D:P(A;;GA;;;SY)(A;;GA;;;BA)");
    let mut table: [Option<nt::PDRIVER_DISPATCH>; 28] = [None; 28];
    table[0x00] = Some(succeed);
    table[0x02] = Some(close);
    table[0x0E] = Some(control);
    table[0x12] = Some(cleanup);
    let mut attributes = NDIS_DEVICE_OBJECT_ATTRIBUTES::zeroed();
    attributes.Header = NDIS_OBJECT_HEADER {
        Type: NDIS_OBJECT_TYPE_DEVICE_OBJECT_ATTRIBUTES,
        Revision: 1,
        Size: size_of::<NDIS_DEVICE_OBJECT_ATTRIBUTES>() as u16,
    };
    attributes.DeviceName = &raw mut name;
    attributes.SymbolicName = &raw mut link;
    attributes.MajorFunctions = (&raw mut table).cast();
    attributes.DefaultSDDLString = &raw mut access;
    let mut object = core::ptr::null_mut();
    let mut handle = core::ptr::null_mut();
    let status = NdisRegisterDeviceEx(driver, &raw mut attributes, &raw mut object, &raw mut handle);
    DEVICE.store(handle, Ordering::Relaxed);
    status
}

pub unsafe fn deregister() {
    NdisDeregisterDeviceEx(DEVICE.load(Ordering::Relaxed));
}

unsafe fn stack_location(irp: *mut nt::IRP) -> *mut u8 {
    irp.byte_add(IRP_STACK_LOCATION).cast::<*mut u8>().read()
}

unsafe fn complete(irp: *mut nt::IRP, status: NtStatus, information: usize) {
    irp.byte_add(IRP_STATUS).cast::<NtStatus>().write(status);
    irp.byte_add(IRP_INFORMATION).cast::<usize>().write(information);
    IofCompleteRequest(irp.cast(), 0);
}

unsafe fn mark_pending(irp: *mut nt::IRP) {
    *stack_location(irp).add(STACK_CONTROL) |= SL_PENDING_RETURNED;
}

unsafe extern "C" fn succeed(_device: *mut nt::DEVICE_OBJECT, irp: *mut nt::IRP) -> NtStatus {
    complete(irp, STATUS_SUCCESS, 0);
    STATUS_SUCCESS
}

unsafe extern "C" fn cleanup(device: *mut nt::DEVICE_OBJECT, irp: *mut nt::IRP) -> NtStatus {
    let pended = PENDED.swap(core::ptr::null_mut(), Ordering::AcqRel);
    if !pended.is_null() && !faulty(Fault::NeverCompleted) {
        set_cancel_routine(pended, 0);
        complete(pended, STATUS_CANCELLED, 0);
    }
    if faulty(Fault::CleanupFails) {
        complete(irp, STATUS_UNSUCCESSFUL, 0);
        return STATUS_UNSUCCESSFUL;
    }
    succeed(device, irp)
}

unsafe extern "C" fn close(device: *mut nt::DEVICE_OBJECT, irp: *mut nt::IRP) -> NtStatus {
    if faulty(Fault::CloseFails) {
        complete(irp, STATUS_UNSUCCESSFUL, 0);
        return STATUS_UNSUCCESSFUL;
    }
    succeed(device, irp)
}

unsafe extern "C" fn control(_device: *mut nt::DEVICE_OBJECT, irp: *mut nt::IRP) -> NtStatus {
    let code = stack_location(irp).add(0x18).cast::<u32>().read();
    match code {
        IOCTL_PENDS | IOCTL_PENDS_INTERLOCKED => return pend(irp, code == IOCTL_PENDS_INTERLOCKED),
        IOCTL_READS => return read_input(irp),
        _ => {}
    }
    if faulty(Fault::StatusUnwritten) {
        irp.byte_add(IRP_INFORMATION).cast::<usize>().write(0);
        let status = irp.byte_add(IRP_STATUS).cast::<NtStatus>().read();
        IofCompleteRequest(irp.cast(), 0);
        return status;
    }
    if faulty(Fault::StatusMeaningless) {
        complete(irp, MEANINGLESS, 0);
        return MEANINGLESS;
    }
    let capacity = stack_location(irp).add(STACK_OUTPUT_LENGTH).cast::<u32>().read() as usize;
    if faulty(Fault::MarkedNotPending) {
        mark_pending(irp);
    }
    if faulty(Fault::CompletedRaised) {
        KfRaiseIrql(DISPATCH_LEVEL + 1);
    }
    if faulty(Fault::CompletedCancelable) {
        set_cancel_routine(irp, cancel as *const () as usize);
    }
    if faulty(Fault::ReturnsInRegion) {
        KeEnterCriticalRegion();
    }
    let information = match () {
        () if faulty(Fault::InformationTooLarge) => capacity + 1,
        () if faulty(Fault::OutputUnwritten) => capacity,
        () => 0,
    };
    let status = if faulty(Fault::CompletedPending) { STATUS_PENDING } else { STATUS_SUCCESS };
    if faulty(Fault::CompletedLocked) {
        KeAcquireSpinLockRaiseToDpc(LOCK.0.get());
    }
    complete(irp, status, information);
    if faulty(Fault::CompletedTwice) {
        IofCompleteRequest(irp.cast(), 0);
    }
    if faulty(Fault::StatusDiffers) { STATUS_CANCELLED } else { STATUS_SUCCESS }
}

/// `IoSetCancelRoutine`, an inline function of the headers.
unsafe fn set_cancel_routine(irp: *mut nt::IRP, routine: usize) -> usize {
    let place = irp.byte_add(IRP_CANCEL_ROUTINE).cast::<usize>();
    core::sync::atomic::AtomicUsize::from_ptr(place).swap(routine, Ordering::SeqCst)
}

/// Entered with the cancel spin lock.
unsafe extern "C" fn cancel(_device: *mut nt::DEVICE_OBJECT, irp: *mut nt::IRP) {
    let level = irp.byte_add(IRP_CANCEL_IRQL).cast::<u8>().read();
    if faulty(Fault::CancelKeepsLock) {
        return;
    }
    IoReleaseCancelSpinLock(level);
    if PENDED.compare_exchange(irp, core::ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        complete(irp, STATUS_CANCELLED, 0);
    }
}

/// Pends: cancellable, queued and marked, in this order and under the queue's lock, or with the mark before.
unsafe fn pend(irp: *mut nt::IRP, interlocked: bool) -> NtStatus {
    let queue = QUEUE.0.get();
    (*queue).next = queue;
    (*queue).previous = queue;
    let entry = irp.byte_add(IRP_LIST_ENTRY).cast::<ListEntry>();
    let marked = !faulty(Fault::PendingNotMarked);
    if interlocked {
        if !faulty(Fault::NotCancelable) {
            set_cancel_routine(irp, cancel as *const () as usize);
        }
        PENDED.store(irp, Ordering::Release);
        if marked && !faulty(Fault::MarkedAfterQueue) {
            mark_pending(irp);
        }
        ExInterlockedInsertTailList(queue, entry, LOCK.0.get());
        if faulty(Fault::MarkedAfterQueue) {
            mark_pending(irp);
        }
        return STATUS_PENDING;
    }
    let before = KeAcquireSpinLockRaiseToDpc(LOCK.0.get());
    if !faulty(Fault::NotCancelable) {
        set_cancel_routine(irp, cancel as *const () as usize);
    }
    let cancelled = !faulty(Fault::CancelNotRead) && irp.byte_add(IRP_CANCEL).cast::<u8>().read_volatile() != 0;
    if cancelled && set_cancel_routine(irp, 0) != 0 {
        KeReleaseSpinLock(LOCK.0.get(), before);
        mark_pending(irp);
        complete(irp, STATUS_CANCELLED, 0);
        return STATUS_PENDING;
    }
    PENDED.store(irp, Ordering::Release);
    if marked {
        *entry = ListEntry { next: queue, previous: queue };
    }
    if marked && !faulty(Fault::MarkedAfterUnlock) {
        mark_pending(irp);
    }
    KeReleaseSpinLock(LOCK.0.get(), before);
    if faulty(Fault::MarkedAfterUnlock) {
        mark_pending(irp);
    }
    STATUS_PENDING
}

/// Reads the first byte of the buffer that was locked for reading; the bad twin writes it.
unsafe fn read_input(irp: *mut nt::IRP) -> NtStatus {
    let mdl = irp.byte_add(IRP_MDL).cast::<*mut Mdl>().read();
    let none = core::ptr::null_mut();
    let view = MmMapLockedPagesSpecifyCache(mdl, 0, 1, none, 0, NORMAL_PRIORITY | MAPPING_NO_EXECUTE).cast::<u8>();
    let first = view.read_volatile();
    if faulty(Fault::InputWritten) {
        view.write_volatile(!first);
    }
    complete(irp, STATUS_SUCCESS, 0);
    STATUS_SUCCESS
}
