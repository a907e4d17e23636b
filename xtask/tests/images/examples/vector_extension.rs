//! Touches AVX state.

#![no_std]

use core::arch::asm;
use images::Driver;

#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "C" fn driver_entry(_: &mut Driver, _: usize) -> i32 {
    // SAFETY: the image is never run.
    unsafe { asm!("vpxor ymm0, ymm0, ymm0") };
    0
}
