//! Imports from a module that is no kernel module.

#![no_std]

use images::Driver;

#[link(name = "user32.dll", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "C" {
    fn MessageBeep(kind: u32) -> i32;
}

#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "C" fn driver_entry(_: &mut Driver, _: usize) -> i32 {
    // SAFETY: the image is never run.
    unsafe { MessageBeep(0) }
}
