//! Random numbers of the system's generator, for names that a peer must not compute.

use core::ptr;

use ndkpi_sys::bcrypt::{BCRYPT_USE_SYSTEM_PREFERRED_RNG, BCryptGenRandom};

use crate::pool::NoMemory;

/// Four of them. PASSIVE_LEVEL.
pub fn numbers() -> Result<[u32; 4], NoMemory> {
    let mut bytes = [[0; 4]; 4];
    let length = size_of_val(&bytes) as u32;
    // SAFETY: no algorithm is named, and all of the buffer may be written.
    let status = unsafe {
        BCryptGenRandom(ptr::null_mut(), bytes.as_flattened_mut().as_mut_ptr(), length, BCRYPT_USE_SYSTEM_PREFERRED_RNG)
    };
    if status >= 0 { Ok(bytes.map(u32::from_ne_bytes)) } else { Err(NoMemory) }
}
