//! Calls through a register without a look at the target.

#![no_std]

use core::arch::asm;
use images::Driver;

#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "C" fn driver_entry(driver: &mut Driver, argument: usize) -> i32 {
    if let Some(callback) = driver.callbacks[0] {
        // SAFETY: the callback takes one argument and returns.
        unsafe { asm!("call {callback}", callback = in(reg) callback, in("rcx") argument, clobber_abi("C")) };
    }
    0
}
