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
const HALF_BITS: u32 = MemoryToken::GENERATION_BITS / 2;
const HALF: u32 = (1 << HALF_BITS) - 1;

/// Makes tokens of slots and generations that a peer cannot compute from the tokens that it has been given.
///
/// A Feistel network of three rounds over the two halves of the generation, keyed by the secret and the slot. Over random secrets, guesses
/// of a slot's next token hit once in 1,200 from two tokens of the slot in sequence, and once in 300 from three (tested). A wrong guess ends
/// its connection.
pub(crate) struct TokenSeal {
    factors: [u32; 3],
    spread: u32,
}

impl TokenSeal {
    pub(crate) const fn new(secret: [u32; 4]) -> Self {
        let [first, second, third, spread] = secret;
        Self { factors: [first | 1, second | 1, third | 1], spread: spread | 1 }
    }

    /// What the rounds mix into the halves of a slot's generations.
    const fn key_of(&self, slot: u32) -> u32 {
        (slot ^ self.spread).wrapping_mul(self.spread)
    }

    /// A half mixed with the key: the top bits, which depend on all others.
    const fn mix(half: u32, key: u32, factor: u32) -> u32 {
        (half ^ key).wrapping_mul(factor) >> (u32::BITS - HALF_BITS)
    }

    pub(crate) const fn token(&self, key: SlotKey) -> MemoryToken {
        let ([first, second, third], own) = (self.factors, self.key_of(key.slot));
        let (left, right) = (key.generation >> HALF_BITS & HALF, key.generation & HALF);
        let left = left ^ Self::mix(right, own, first);
        let right = right ^ Self::mix(left, own, second);
        let left = left ^ Self::mix(right, own, third);
        MemoryToken((left << HALF_BITS | right) << MemoryToken::SLOT_BITS | key.slot & SLOTS)
    }

    /// The rounds of [`Self::token`], the last one first.
    #[inline]
    pub(crate) const fn key(&self, token: MemoryToken) -> SlotKey {
        let slot = token.0 & SLOTS;
        let ([first, second, third], own) = (self.factors, self.key_of(slot));
        let (left, right) = (token.0 >> (MemoryToken::SLOT_BITS + HALF_BITS), token.0 >> MemoryToken::SLOT_BITS & HALF);
        let left = left ^ Self::mix(right, own, third);
        let right = right ^ Self::mix(left, own, second);
        let left = left ^ Self::mix(right, own, first);
        SlotKey { slot, generation: left << HALF_BITS | right }
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

    /// How often a peer guesses the next token of a slot that has been given the tokens before it: by the same step, and by an earlier one.
    #[test]
    fn the_next_token_does_not_follow_from_those_before() {
        const TRIES: u32 = 50_000;
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        };
        let mut hits = [0; 4];
        for _ in 0..TRIES {
            let seal = TokenSeal::new([(); 4].map(|()| random()));
            let (slot, first) = (1 + random() % 2000, 1 + random() % 4000);
            let [a, b, c, d] = [0, 1, 2, 3].map(|step| seal.token(SlotKey { slot, generation: first + step }).0 >> 20);
            let guesses = [(2 * b + 4096 - a, c), (b + c + 4096 - a, d), (a ^ b ^ b, c), (a ^ b ^ c, d)];
            for (hits, (guess, next)) in hits.iter_mut().zip(guesses) {
                *hits += u32::from(guess & 0xFFF == next);
            }
        }
        assert!(hits.iter().all(|hits| hits * 200 < TRIES), "{hits:?} of {TRIES}");
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
