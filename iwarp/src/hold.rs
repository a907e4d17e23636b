//! Sends that came before there was a receive for them, in a bounded buffer.
//!
//! A Send waits for its receive, but what comes behind it on the stream, responses and Writes, must not wait: its peer may post the
//! receive only when its Read has been answered. So segments of Sends are kept here, in order, as long as there is space; after that
//! nothing more of the stream is read.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

use crate::segment::SendKind;

/// A segment of a Send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SendPart<'a> {
    pub kind: SendKind,
    pub is_first: bool,
    pub offset: u32,
    pub data: &'a [u8],
    pub is_last: bool,
}

/// What is kept of a segment in front of its bytes.
#[derive(Clone, Copy)]
struct HeldPart {
    kind: SendKind,
    is_first: bool,
    offset: u32,
    is_last: bool,
    length: usize,
}

/// See the module.
pub struct Hold {
    parts: Vec<HeldPart>,
    bytes: Vec<u8>,
    /// The first part that is still held, and its first byte.
    first: usize,
    at: usize,
}

impl Hold {
    /// Space for so many segments and bytes.
    pub fn try_new(parts: usize, bytes: usize) -> Result<Self, TryReserveError> {
        let mut hold = Self { parts: Vec::new(), bytes: Vec::new(), first: 0, at: 0 };
        hold.parts.try_reserve_exact(parts)?;
        hold.bytes.try_reserve_exact(bytes)?;
        Ok(hold)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first == self.parts.len()
    }

    /// Whether there is space for a segment of so many bytes.
    #[must_use]
    pub fn fits(&self, length: usize) -> bool {
        let free = self.bytes.capacity().saturating_sub(self.bytes.len());
        self.parts.len() < self.parts.capacity() && length <= free
    }

    /// Keeps a segment, if there is space.
    pub fn push(&mut self, part: &SendPart<'_>) -> bool {
        let SendPart { kind, is_first, offset, data, is_last } = *part;
        let fits = self.fits(data.len());
        if fits {
            self.parts.push(HeldPart { kind, is_first, offset, is_last, length: data.len() });
            self.bytes.extend_from_slice(data);
        }
        fits
    }

    /// The oldest segment.
    #[must_use]
    pub fn front(&self) -> Option<SendPart<'_>> {
        let HeldPart { kind, is_first, offset, is_last, length } = *self.parts.get(self.first)?;
        let data = self.bytes.get(self.at..self.at.checked_add(length)?)?;
        Some(SendPart { kind, is_first, offset, data, is_last })
    }

    /// The oldest has been taken. The space comes back when all have.
    pub fn pop(&mut self) {
        let Some(part) = self.parts.get(self.first) else { return };
        (self.first, self.at) = (self.first + 1, self.at.saturating_add(part.length));
        if self.is_empty() {
            self.clear();
        }
    }

    pub fn clear(&mut self) {
        self.parts.clear();
        self.bytes.clear();
        (self.first, self.at) = (0, 0);
    }
}
