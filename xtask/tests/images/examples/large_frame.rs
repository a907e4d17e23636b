//! Has a frame of more than a page, for which the compiler calls a stack probe; the probe is part of the image.

#![no_std]

use core::{arch::global_asm, hint::black_box};
use images::Driver;

global_asm!(".globl __chkstk", "__chkstk:", "ret");

#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "C" fn driver_entry(_: &mut Driver, argument: usize) -> i32 {
    let mut large = [0u64; 700];
    for slot in &mut large {
        *slot = black_box(argument as u64);
    }
    black_box(&large);
    0
}
