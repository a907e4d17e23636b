//! The names of memory on the wire and in scatter/gather elements: 32-bit tokens and 64-bit logical addresses.
//!
//! Both carry a generation, so that a stale name is recognised. Nothing here is ever dereferenced.

use core::fmt;

use softndk_cells::SlotKey;

/// A memory token: a slot, and its generation under a seal. Zero is never issued.
///
/// Bits 0–19 are the slot, bits 20–31 the sealed generation.
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
}

const SLOTS: u32 = (1 << MemoryToken::SLOT_BITS) - 1;
const GENERATIONS: u32 = (1 << MemoryToken::GENERATION_BITS) - 1;
const HALF: u32 = MemoryToken::GENERATION_BITS / 2;

/// Makes tokens of slots and generations that a peer cannot guess, also when it knows tokens of other slots, or an older one of the slot.
///
/// A generation is mixed with a number of its slot, in two rounds that can be undone. A wrong guess ends its connection, so what matters
/// is the chance of one: no better than one in some hundreds.
pub(crate) struct TokenSeal {
    factors: [u32; 2],
    inverses: [u32; 2],
    spread: u32,
    offset: u32,
}

/// Of an odd number, modulo the number of generations and 1.
const fn inverse(factor: u32) -> u32 {
    // Right in three bits; each step doubles them.
    let mut inverse = factor;
    let mut step = 0;
    while step < 2 {
        inverse = inverse.wrapping_mul(2_u32.wrapping_sub(factor.wrapping_mul(inverse)));
        step += 1;
    }
    inverse & GENERATIONS
}

impl TokenSeal {
    pub(crate) const fn new(secret: [u32; 4]) -> Self {
        let [first, second, spread, offset] = secret;
        let factors = [first | 1, second | 1];
        let [first, second] = factors;
        Self { factors, inverses: [inverse(first), inverse(second)], spread: spread | 1, offset }
    }

    const fn number_of(&self, slot: u32) -> u32 {
        slot.wrapping_add(self.offset).wrapping_mul(self.spread) >> MemoryToken::SLOT_BITS
    }

    pub(crate) const fn token(&self, key: SlotKey) -> MemoryToken {
        let [first, second] = self.factors;
        let mixed = (key.generation ^ self.number_of(key.slot)).wrapping_mul(first) & GENERATIONS;
        let sealed = (mixed ^ mixed >> HALF).wrapping_mul(second) & GENERATIONS;
        MemoryToken(sealed << MemoryToken::SLOT_BITS | key.slot & SLOTS)
    }

    #[inline]
    pub(crate) const fn key(&self, token: MemoryToken) -> SlotKey {
        let slot = token.0 & SLOTS;
        let [first, second] = self.inverses;
        let mixed = (token.0 >> MemoryToken::SLOT_BITS).wrapping_mul(second) & GENERATIONS;
        let generation = (mixed ^ mixed >> HALF).wrapping_mul(first) & GENERATIONS ^ self.number_of(slot);
        SlotKey { slot, generation }
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
    use super::{LogicalAddress, MemoryToken, TokenSeal};
    use softndk_cells::SlotKey;

    const SECRETS: [[u32; 4]; 3] = [[0; 4], [0x9E37_79B9, 0x7F4A_7C15, 0xBF58_476D, 0x1CE4_E5B9], [u32::MAX; 4]];

    #[test]
    fn every_generation_of_a_slot_has_a_token_of_its_own_that_names_it() {
        for seal in SECRETS.map(TokenSeal::new) {
            for slot in [1, 2, 12_345, (1 << 20) - 1] {
                let mut seen = [false; 4096];
                for generation in 1..4096 {
                    let key = SlotKey { slot, generation };
                    let token = seal.token(key);
                    assert_eq!((token.0 & 0xF_FFFF, seal.key(token)), (slot, key));
                    assert_ne!(token, MemoryToken::NONE);
                    assert!(!core::mem::replace(&mut seen[(token.0 >> 20) as usize], true));
                }
            }
        }
    }

    /// What a peer may guess from a token: that another slot has the same generation, or that the slot has the next one.
    #[test]
    fn a_token_says_little_about_the_next() {
        let seal = TokenSeal::new(SECRETS[1]);
        let sealed = |slot, generation| seal.token(SlotKey { slot, generation }).0 >> 20;
        let count = |holds: &dyn Fn(u32) -> bool| (1..2000).filter(|number| holds(*number)).count();
        let step = sealed(7, 2).wrapping_sub(sealed(7, 1)) & 0xFFF;
        assert!(count(&|slot| sealed(slot, 1) == sealed(slot + 1, 1)) < 20, "slots do not share their numbers");
        assert!(
            count(&|generation| sealed(7, generation + 1).wrapping_sub(sealed(7, generation)) & 0xFFF == step) < 200
        );
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
