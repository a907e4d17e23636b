//! The functions of kernel32.dll that programs import, by subject, and what their results have in common: the last error.

pub mod address_waits;
pub mod clock;
pub mod ends;
pub mod files;
pub mod host;
pub mod libraries;
pub mod memory;
pub mod ports;
pub mod system;
pub mod threads;
pub mod waits;

use super::call::set_last_error;
use super::dos_error;
use crate::status::NtStatus;

/// BOOL of a function that fails with a status.
fn boolean(result: Result<(), NtStatus>) -> u32 {
    match result {
        Ok(()) => 1,
        Err(refusal) => fails(dos_error::of_status(refusal)),
    }
}

/// FALSE, or NULL, with this error.
fn fails(error: u32) -> u32 {
    set_last_error(error);
    0
}
