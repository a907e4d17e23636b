//! A device of `IoCreateDevice`, and its flags.

use core::ffi::c_void;

use crate::kernel::{DriverObject, IoCreateDevice, IoDeleteDevice};

const DO_BUFFERED_IO: u32 = 0x04;
const DO_DIRECT_IO: u32 = 0x10;
/// Offset of `Flags` in `DEVICE_OBJECT`.
const FLAGS: usize = 48;
const FILE_DEVICE_UNKNOWN: u32 = 0x22;

static DEVICE: crate::spin_lock::Shared<*mut c_void> =
    crate::spin_lock::Shared(core::cell::UnsafeCell::new(core::ptr::null_mut()));

pub unsafe fn make(driver: *mut DriverObject, good: bool) {
    IoCreateDevice(driver, 0, core::ptr::null(), FILE_DEVICE_UNKNOWN, 0, 0, DEVICE.0.get());
    let flags = (*DEVICE.0.get()).byte_add(FLAGS).cast::<u32>();
    *flags |= DO_BUFFERED_IO;
    if !good {
        *flags |= DO_DIRECT_IO;
    }
}

pub unsafe fn delete() {
    IoDeleteDevice(*DEVICE.0.get());
}
