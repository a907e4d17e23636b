//! `bcrypt.h`: random numbers. On Windows targets the import from `cng.sys`.

use crate::nt::ULONG;
#[cfg(target_os = "windows")]
use crate::nt::{NTSTATUS, PVOID, UCHAR};

/// No algorithm is named: the system's preferred generator.
pub const BCRYPT_USE_SYSTEM_PREFERRED_RNG: ULONG = 2;

#[cfg(target_os = "windows")]
#[link(name = "cng.sys", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "C" {
    /// Fills a buffer with random bytes. `Algorithm` is NULL with [`BCRYPT_USE_SYSTEM_PREFERRED_RNG`]. PASSIVE_LEVEL.
    pub fn BCryptGenRandom(Algorithm: PVOID, Buffer: *mut UCHAR, Length: ULONG, Flags: ULONG) -> NTSTATUS;
}
