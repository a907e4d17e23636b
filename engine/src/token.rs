//! The names of memory on the wire and in scatter/gather elements: 32-bit tokens and 64-bit logical addresses.
//!
//! Both are numbers with a documented bit layout that carry a generation, so that a stale name is recognised. Nothing here is
//! ever dereferenced.

use core::fmt;

/// A memory token: slot and generation. Zero is never issued.
///
/// Bits 0–19 are the slot, bits 20–31 the generation (1–4095).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(transparent)]
pub struct MemoryToken(pub u32);

impl MemoryToken {
    /// The token of no object.
    pub const NONE: Self = Self(0);
    /// Bits of the slot number.
    pub const SLOT_BITS: u32 = 20;
    /// Bits of the generation.
    pub const GENERATION_BITS: u32 = 12;

    pub(crate) const fn new(slot: u32, generation: u32) -> Self {
        Self(generation << Self::SLOT_BITS | slot)
    }

    pub(crate) const fn slot(self) -> u32 {
        self.0 & ((1 << Self::SLOT_BITS) - 1)
    }

    pub(crate) const fn generation(self) -> u32 {
        self.0 >> Self::SLOT_BITS
    }
}

/// A logical address: what a logical mapping hands out and a fast registration lists.
///
/// Bits 0–31 are the byte offset in the mapping, bits 32–51 the slot (never 0), bits 52–62 the generation, bit 63 is zero so
/// that the number is positive as a `LARGE_INTEGER`. A mapping is at most 4 GiB less a page long: the last page of each slot
/// stays a guard, so that addresses of two mappings are never neighbours.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct LogicalAddress(pub u64);

impl LogicalAddress {
    /// Bits of the byte offset.
    pub const OFFSET_BITS: u32 = 32;
    /// Bits of the slot number.
    pub const SLOT_BITS: u32 = 20;
    /// Bits of the generation.
    pub const GENERATION_BITS: u32 = 11;

    pub(crate) const fn new(slot: u32, generation: u32, offset: u32) -> Self {
        Self((generation as u64) << 52 | (slot as u64) << 32 | offset as u64)
    }

    pub(crate) const fn slot(self) -> u32 {
        (self.0 >> Self::OFFSET_BITS) as u32 & ((1 << Self::SLOT_BITS) - 1)
    }

    /// Everything above the slot: a set top bit makes a generation that was never issued.
    pub(crate) const fn generation(self) -> u32 {
        (self.0 >> (Self::OFFSET_BITS + Self::SLOT_BITS)) as u32
    }

    pub(crate) const fn offset(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::LowerHex for LogicalAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, out)
    }
}

/// A scatter/gather element: address (a label in a region, or a logical address with the privileged token), length, token.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sge {
    pub address: u64,
    pub length: u32,
    pub token: MemoryToken,
}

#[cfg(test)]
mod tests {
    use super::{LogicalAddress, MemoryToken};

    #[test]
    fn token_keeps_slot_and_generation_at_their_extremes() {
        for (slot, generation) in [(0, 1), (1, 1), ((1 << 20) - 1, 4095), (12345, 77)] {
            let token = MemoryToken::new(slot, generation);
            assert_eq!((token.slot(), token.generation()), (slot, generation));
            assert_ne!(token, MemoryToken::NONE);
        }
    }

    #[test]
    fn logical_address_keeps_its_fields_and_is_positive() {
        for (slot, generation, offset) in [(1, 1, 0), ((1 << 20) - 1, 2047, u32::MAX), (9, 3, 4096)] {
            let address = LogicalAddress::new(slot, generation, offset);
            assert_eq!((address.slot(), address.generation(), address.offset()), (slot, generation, offset));
            assert!(address.0.cast_signed() > 0);
        }
    }

    #[test]
    fn a_negative_logical_address_has_a_generation_that_is_never_issued() {
        assert!(LogicalAddress(u64::MAX).generation() > 2047);
    }
}
