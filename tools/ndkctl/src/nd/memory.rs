//! Memory of the client's process that requests use: pages, and what is in them.
//!
//! Adapters write such memory at any time, so no reference to its bytes is ever made: bytes are copied in and out.

use super::system::System;
use crate::failure::{Failure, Kind};
use std::ffi::c_void;
use std::ptr;

/// Zeroed pages.
#[derive(Debug)]
pub struct Pages<'s> {
    system: &'s System<'s>,
    address: *mut c_void,
    length: usize,
}

/// How many bytes are compared at a time.
const CHUNK: usize = 512;

impl<'s> Pages<'s> {
    pub fn allocate(system: &'s System<'s>, length: usize) -> Result<Self, Failure> {
        let address = system.allocate(length.max(1));
        if address.is_null() {
            let what = format!("cannot allocate {length} bytes");
            return Err(Failure::new(
                Kind::Refused,
                what,
                "the process has no memory left",
                "use a smaller size or depth",
            ));
        }
        Ok(Self { system, address, length })
    }

    #[must_use]
    pub const fn address(&self) -> *mut c_void {
        self.address
    }

    #[must_use]
    pub const fn length(&self) -> usize {
        self.length
    }

    /// The address of a place.
    fn at(&self, offset: usize, length: usize) -> *mut u8 {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.length), "{length} bytes at {offset} of {}", self.length);
        // SAFETY: inside of the pages.
        unsafe { self.address.cast::<u8>().add(offset) }
    }

    /// Writes these bytes.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        // SAFETY: writable pages, which stay; a request that uses them meanwhile sees some bytes or others.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset, bytes.len()), bytes.len()) };
    }

    /// Reads as many bytes as fit.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        // SAFETY: readable pages, which stay; a request that uses them meanwhile makes some bytes or others.
        unsafe { ptr::copy_nonoverlapping(self.at(offset, bytes.len()), bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Writes one byte everywhere.
    pub fn set(&self, offset: usize, length: usize, byte: u8) {
        // SAFETY: writable pages, which stay; a request that uses them meanwhile sees some bytes or others.
        unsafe { ptr::write_bytes(self.at(offset, length), byte, length) };
    }

    /// Writes the bytes of a pattern.
    pub fn fill(&self, offset: usize, length: usize, pattern: Pattern) {
        let mut chunk = [0; CHUNK];
        for start in (0..length).step_by(CHUNK) {
            let part = CHUNK.min(length - start);
            pattern.write(start, &mut chunk[..part]);
            self.write(offset + start, &chunk[..part]);
        }
    }

    /// The first byte that is not the pattern's.
    #[must_use]
    pub fn differs(&self, offset: usize, length: usize, pattern: Pattern) -> Option<usize> {
        let (mut found, mut expected) = ([0; CHUNK], [0; CHUNK]);
        for start in (0..length).step_by(CHUNK) {
            let part = CHUNK.min(length - start);
            self.read(offset + start, &mut found[..part]);
            pattern.write(start, &mut expected[..part]);
            if found[..part] != expected[..part] {
                let same = found.iter().zip(&expected).take_while(|(one, other)| one == other).count();
                return Some(start + same);
            }
        }
        None
    }
}

impl Drop for Pages<'_> {
    fn drop(&mut self) {
        // SAFETY: its own pages; requests that use them hold the object that this is a field of.
        unsafe { self.system.free(self.address) };
    }
}

/// Bytes that differ from place to place and from pattern to pattern, never zero where memory that was not written is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern(pub u64);

/// Bytes of a pattern that are made at once.
const WORD: usize = 8;

impl Pattern {
    fn word(self, number: usize) -> [u8; WORD] {
        let mixed = (self.0 ^ (number as u64).rotate_left(33)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        ((mixed ^ mixed >> 32) | 0x0101_0101_0101_0101).to_le_bytes()
    }

    fn write(self, start: usize, bytes: &mut [u8]) {
        let mut done = 0;
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let place = start + done;
            let word = self.word(place / WORD);
            for (byte, made) in rest.iter_mut().zip(&word[place % WORD..]) {
                *byte = *made;
                done += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    fn bytes(pattern: u64, start: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        Pattern(pattern).write(start, &mut bytes);
        bytes
    }

    #[test]
    fn patterns_differ_by_seed_and_place_and_are_never_zero() {
        let one = bytes(1, 0, 4096);
        assert!(one.iter().all(|byte| *byte != 0));
        assert_ne!(one, bytes(2, 0, 4096));
        assert_ne!(one[..64], one[64..128]);
        assert_eq!(one[100..], bytes(1, 100, 3996), "a part is a part of the whole");
        assert!(one.iter().collect::<std::collections::HashSet<_>>().len() > 100);
    }
}
