//! The miniport's control device: one I/O control that completes, one that pends until cleanup, and the ways to get
//! either wrong.

use core::ffi::c_void;
use core::mem::size_of;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use ndkpi_sys::ndis::*;
use ndkpi_sys::nt;

use crate::kernel::{
    DISPATCH_LEVEL, IRP_INFORMATION, IRP_STACK_LOCATION, IRP_STATUS, IofCompleteRequest, KfRaiseIrql, NtStatus,
    SL_PENDING_RETURNED, STACK_CONTROL, STACK_OUTPUT_LENGTH, STATUS_CANCELLED, STATUS_PENDING, STATUS_SUCCESS,
};

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
}

/// CTL_CODE(0x8BAD, 0x801, METHOD_BUFFERED, READ | WRITE): pends until cleanup. Every other code completes at once.
const IOCTL_PENDS: u32 = (0x8BAD << 16) | (3 << 14) | (0x801 << 2);

static FAULT: AtomicU8 = AtomicU8::new(Fault::None as u8);
static DEVICE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
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
    table[0x02] = Some(succeed);
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
        complete(pended, STATUS_CANCELLED, 0);
    }
    succeed(device, irp)
}

unsafe extern "C" fn control(_device: *mut nt::DEVICE_OBJECT, irp: *mut nt::IRP) -> NtStatus {
    let code = stack_location(irp).add(0x18).cast::<u32>().read();
    if code == IOCTL_PENDS {
        return pend(irp);
    }
    let room = stack_location(irp).add(STACK_OUTPUT_LENGTH).cast::<u32>().read() as usize;
    if faulty(Fault::MarkedNotPending) {
        mark_pending(irp);
    }
    if faulty(Fault::CompletedRaised) {
        KfRaiseIrql(DISPATCH_LEVEL + 1);
    }
    complete(irp, STATUS_SUCCESS, if faulty(Fault::InformationTooLarge) { room + 1 } else { 0 });
    if faulty(Fault::CompletedTwice) {
        IofCompleteRequest(irp.cast(), 0);
    }
    if faulty(Fault::StatusDiffers) { STATUS_CANCELLED } else { STATUS_SUCCESS }
}

unsafe fn pend(irp: *mut nt::IRP) -> NtStatus {
    if !faulty(Fault::PendingNotMarked) {
        mark_pending(irp);
    }
    PENDED.store(irp, Ordering::Release);
    STATUS_PENDING
}
