//! Pushes to a vector in a callback: out of memory there is the end of the system.

#![no_std]

extern crate alloc;

use alloc::vec::Vec;
use core::hint::black_box;
use images::Driver;

unsafe extern "C" fn callback(argument: usize) -> usize {
    let mut numbers = Vec::new();
    for number in 0..argument {
        numbers.push(black_box(number));
    }
    numbers.iter().fold(0, |sum, number| sum ^ number)
}

#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "C" fn driver_entry(driver: &mut Driver, _: usize) -> i32 {
    driver.callbacks[0] = Some(callback);
    0
}
