//! Indexes by a number from outside, in a callback and through a library function.

#![no_std]

use images::Driver;

static TABLE: [usize; 5] = [2, 3, 5, 7, 11];

unsafe extern "C" fn index(argument: usize) -> usize {
    TABLE[argument]
}

unsafe extern "C" fn unwrap(argument: usize) -> usize {
    TABLE.get(argument).copied().unwrap()
}

#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "C" fn driver_entry(driver: &mut Driver, _: usize) -> i32 {
    driver.callbacks = [Some(index), Some(unwrap), None, None];
    0
}
