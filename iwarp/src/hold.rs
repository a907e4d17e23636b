//! Sends that came before there was a receive for them, in a bounded buffer.
//!
//! A Send waits for its receive, but what comes behind it on the stream, responses and Writes, must not wait: its peer may post the
//! receive only when its Read has been answered. So segments of Sends are kept here, in order, as long as there is space; after that
//! nothing more of the stream is read.

use alloc::collections::TryReserveError;

use crate::bounded::{Bytes, Fifo};
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
    parts: Fifo<HeldPart>,
    bytes: Bytes,
    /// The first byte that is still held.
    at: usize,
}

impl Hold {
    /// Space for so many segments and bytes.
    pub fn try_new(parts: usize, bytes: usize) -> Result<Self, TryReserveError> {
        Ok(Self { parts: Fifo::try_new(parts)?, bytes: Bytes::try_new(bytes)?, at: 0 })
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether there is space for a segment of so many bytes.
    #[must_use]
    pub fn fits(&self, length: usize) -> bool {
        self.parts.has_space() && length <= self.bytes.free()
    }

    /// Keeps a segment, if there is space.
    pub fn push(&mut self, part: &SendPart<'_>) -> bool {
        let SendPart { kind, is_first, offset, data, is_last } = *part;
        self.fits(data.len())
            && self.parts.add(HeldPart { kind, is_first, offset, is_last, length: data.len() })
            && self.bytes.add(data)
    }

    /// The oldest segment.
    #[must_use]
    pub fn front(&self) -> Option<SendPart<'_>> {
        let HeldPart { kind, is_first, offset, is_last, length } = *self.parts.front()?;
        let data = self.bytes.as_slice().get(self.at..self.at.checked_add(length)?)?;
        Some(SendPart { kind, is_first, offset, data, is_last })
    }

    /// The oldest has been taken. The space comes back when all have.
    pub fn pop(&mut self) {
        let Some(part) = self.parts.take() else { return };
        self.at = self.at.saturating_add(part.length);
        if self.is_empty() {
            self.clear();
        }
    }

    pub fn clear(&mut self) {
        self.parts.clear();
        self.bytes.clear();
        self.at = 0;
    }
}
