//! Identifiers of interfaces and classes.

use core::fmt;

/// GUID.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Guid {
    data1: u32,
    data2: u16,
    data3: u16,
    data4: [u8; 8],
}

impl Guid {
    /// The identifier with these 32 digits, in the order in which they are written.
    #[must_use]
    pub const fn new(digits: u128) -> Self {
        Self {
            data1: (digits >> 96) as u32,
            data2: (digits >> 80) as u16,
            data3: (digits >> 64) as u16,
            data4: (digits as u64).to_be_bytes(),
        }
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = u64::from_be_bytes(self.data4);
        write!(out, "{:08X}-{:04X}-{:04X}-", self.data1, self.data2, self.data3)?;
        write!(out, "{:04X}-{:012X}", last >> 48, last & 0xFFFF_FFFF_FFFF)
    }
}

const _: () = assert!(size_of::<Guid>() == 16);
