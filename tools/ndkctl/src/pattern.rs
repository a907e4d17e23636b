//! Bytes that look like data: a fast generator, so that a copy that went wrong (shifted, stale, zero) is seen.

/// An xorshift generator; equal seeds give equal bytes.
pub struct Pattern {
    state: u64,
}

impl Pattern {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        // A zero state would never change.
        Self { state: seed ^ 0x9E37_79B9_7F4A_7C15 | 1 }
    }

    /// Fills the buffer with the next bytes.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            chunk.copy_from_slice(&self.state.to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn equal_seeds_give_equal_bytes_and_others_do_not() {
        let [mut first, mut same, mut other] = [[0; 1003]; 3];
        Pattern::new(1).fill(&mut first);
        Pattern::new(1).fill(&mut same);
        Pattern::new(4).fill(&mut other);
        assert_eq!(first, same);
        assert_ne!(first, other);
    }

    #[test]
    fn pages_differ() {
        let mut bytes = vec![0; 3 * 4096];
        Pattern::new(7).fill(&mut bytes);
        let (first, rest) = bytes.split_at(4096);
        assert_ne!(first, &rest[..4096]);
        assert_ne!(&rest[..4096], &rest[4096..]);
    }
}
