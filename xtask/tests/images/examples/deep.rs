//! Three functions, none of which has a large frame, but all of which are on the stack at the same time.

#![no_std]

use core::hint::black_box;
use images::Driver;

#[inline(never)]
fn bottom(argument: usize) -> usize {
    let mut values = [0_usize; 200];
    values[argument & 127] = argument;
    black_box(&mut values)[argument & 63]
}

#[inline(never)]
fn middle(argument: usize) -> usize {
    let mut values = [0_usize; 200];
    values[argument & 127] = bottom(argument);
    black_box(&mut values)[argument & 63]
}

unsafe extern "C" fn callback(argument: usize) -> usize {
    let mut values = [0_usize; 200];
    values[argument & 127] = middle(argument);
    black_box(&mut values)[argument & 63]
}

#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "C" fn driver_entry(driver: &mut Driver, _: usize) -> i32 {
    driver.callbacks[0] = Some(callback);
    0
}
