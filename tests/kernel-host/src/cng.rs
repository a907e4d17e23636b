//! Random numbers of cng.sys: the same in each run, so that a run can be repeated.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use ndkpi_sys::bcrypt::BCRYPT_USE_SYSTEM_PREFERRED_RNG;

use crate::status::{self, NtStatus};

/// The next number (`SplitMix64`).
fn next() -> u64 {
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    static STATE: AtomicU64 = AtomicU64::new(0);
    let mut mixed = STATE.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

crate::exports! {
    module "cng.sys";

    /// Fills a buffer with pseudo-random bytes.
    /// Checks: an algorithm handle, or the flag for the preferred generator.
    /// Source: CNG: BCryptGenRandom
    [PASSIVE_ONLY] fn BCryptGenRandom(algorithm: *mut c_void, buffer: *mut u8, length: u32, flags: u32) -> NtStatus {
        if buffer.is_null() {
            return status::STATUS_INVALID_PARAMETER;
        }
        if !algorithm.is_null() || flags != BCRYPT_USE_SYSTEM_PREFERRED_RNG {
            return status::STATUS_INVALID_HANDLE;
        }
        if crate::fault::should_fail("BCryptGenRandom") {
            return status::STATUS_INSUFFICIENT_RESOURCES;
        }
        for at in 0..length as usize {
            // SAFETY: the caller's buffer, of this length.
            unsafe { buffer.add(at).write(next() as u8) };
        }
        status::STATUS_SUCCESS
    }
}
