//! Random numbers by a seed: the same in every run.

/// An xorshift generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        // A zero state would never change.
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub const fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Below the bound, which is not 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        (self.draw() >> 16) % bound
    }

    /// From the first to the last, both included.
    pub fn between(&mut self, first: u32, last: u32) -> u32 {
        let span = u64::from(last.saturating_sub(first)) + 1;
        // Below a span of 32-bit numbers.
        first.saturating_add(self.below(span) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn equal_seeds_give_equal_numbers_within_bounds() {
        let (mut one, mut same) = (Random::new(7), Random::new(7));
        for _ in 0..1_000 {
            let number = one.between(3, 9);
            assert_eq!(number, same.between(3, 9));
            assert!((3..=9).contains(&number));
        }
        assert_eq!(one.between(5, 5), 5);
    }
}
