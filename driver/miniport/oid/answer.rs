//! Reading and answering the buffers of an OID request under the rules of NDIS.
//!
//! NDIS: a query buffer that is too small gives BUFFER_TOO_SHORT with BytesNeeded and writes nothing; a set buffer that is too
//! small gives INVALID_LENGTH with BytesNeeded. Nothing is ever read back from an output buffer.

use core::{ffi::c_void, mem::size_of, slice};

use ndkpi_sys::ndis::{NDIS_STATUS, NDIS_STATUS_BUFFER_TOO_SHORT, NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_SUCCESS};

/// The output of a query request.
pub struct OidAnswer<'a> {
    pub buffer: *mut c_void,
    pub length: u32,
    pub written: &'a mut u32,
    pub needed: &'a mut u32,
}

impl OidAnswer<'_> {
    /// Writes all of `bytes` or nothing.
    pub fn bytes(self, bytes: &[u8]) -> NDIS_STATUS {
        let Ok(needed) = u32::try_from(bytes.len()) else { return NDIS_STATUS_BUFFER_TOO_SHORT };
        *self.needed = needed;
        *self.written = 0;
        if self.length < needed || (self.buffer.is_null() && needed != 0) {
            return NDIS_STATUS_BUFFER_TOO_SHORT;
        }
        // SAFETY: NDIS gave a buffer of `length` bytes, which is at least `bytes.len()`, and it is not the driver's own memory.
        unsafe { self.buffer.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        *self.written = needed;
        NDIS_STATUS_SUCCESS
    }

    pub fn u32(self, value: u32) -> NDIS_STATUS {
        self.bytes(&value.to_ne_bytes())
    }

    /// NDIS: a 64-bit counter fits a buffer of 8 bytes whole, one of 4 to 7 bytes with its low half.
    pub fn counter(self, value: u64) -> NDIS_STATUS {
        if (4..8).contains(&self.length) {
            let OidAnswer { buffer, length, written, needed } = self;
            let status = OidAnswer { buffer, length, written, needed: &mut *needed }.u32(value as u32);
            *needed = 8;
            status
        } else {
            self.bytes(&value.to_ne_bytes())
        }
    }

    /// Writes a C structure up to `size` bytes.
    ///
    /// # Safety
    /// The first `size` bytes of `T` hold no padding (or padding that was zeroed), because all of them reach the caller.
    pub unsafe fn structure<T>(self, value: &T, size: u16) -> NDIS_STATUS {
        let size = usize::from(size).min(size_of::<T>());
        let first: *const T = value;
        // SAFETY: `size` is at most the size of the live value and its bytes are initialised (the caller's promise).
        self.bytes(unsafe { slice::from_raw_parts(first.cast::<u8>(), size) })
    }
}

/// The input of a set request.
pub struct OidInput<'a> {
    pub buffer: *const c_void,
    pub length: u32,
    pub read: &'a mut u32,
    pub needed: &'a mut u32,
}

impl OidInput<'_> {
    /// A copy of the first `LENGTH` bytes; the caller's buffer is read once.
    pub fn bytes<const LENGTH: usize>(self) -> Result<[u8; LENGTH], NDIS_STATUS> {
        if (self.length as usize) < LENGTH || self.buffer.is_null() {
            *self.needed = LENGTH as u32;
            return Err(NDIS_STATUS_INVALID_LENGTH);
        }
        let mut copy = [0; LENGTH];
        // SAFETY: NDIS gave a buffer of `length` bytes, at least LENGTH; the copy is a local.
        unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(self.buffer.cast(), LENGTH) };
        *self.read = LENGTH as u32;
        Ok(copy)
    }

    pub fn u32(self) -> Result<u32, NDIS_STATUS> {
        self.bytes().map(u32::from_ne_bytes)
    }

    /// Copies at most `target.len()` bytes and returns how many there were in all.
    pub fn copy_to(self, target: &mut [u8]) -> usize {
        let length = if self.buffer.is_null() { 0 } else { self.length as usize };
        let taken = length.min(target.len());
        // SAFETY: both have at least `taken` bytes; the target is a local.
        unsafe { target.as_mut_ptr().copy_from_nonoverlapping(self.buffer.cast(), taken) };
        *self.read = taken as u32;
        length
    }
}
