//! Imports a kernel function that is not on the list.

#![no_std]

use images::Driver;

#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "C" {
    fn MmMapIoSpace(address: u64, size: usize, caching: i32) -> usize;
}

#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "C" fn driver_entry(_: &mut Driver, _: usize) -> i32 {
    // SAFETY: the image is never run.
    unsafe { MmMapIoSpace(0, 4096, 0) as i32 }
}
