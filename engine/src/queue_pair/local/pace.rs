//! How many bytes a requester copies in one piece: fewer where memory is slow.
//!
//! Between two pieces other contexts run, and the level is lowered. A piece costs what three small requests cost, so it is long; but a
//! piece of memory that no cache has takes five times as long as one that the caches know, and more where other processors load the
//! memory. So a requester begins with short ones and goes by the time that the last one took.

use crate::limits::{PIECE, PIECE_FIRST, PIECE_LEAST, PIECE_QUICK, PIECE_SLOW, PIECE_TIMED};
use crate::platform::Platform;

/// The bytes of the next piece.
pub(super) struct Pace(u64);

/// A piece that has begun.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    /// Its bytes, at most.
    pub(super) most: u64,
    /// When, if it may be long.
    began: Option<u64>,
}

impl Pace {
    pub(super) const fn new() -> Self {
        Self(PIECE_FIRST)
    }

    /// A piece of at most so many bytes, whose first request has so many. The clock is read for long ones alone.
    #[inline]
    pub(super) fn begin(&self, platform: &impl Platform, most: u64, first: u64) -> Piece {
        let is_long = most > PIECE_LEAST && first >= PIECE_TIMED;
        Piece { most: most.min(self.0), began: is_long.then(|| platform.now()) }
    }

    /// What it moved says how long the next one is.
    #[inline]
    pub(super) fn end(&mut self, platform: &impl Platform, piece: Piece, moved: u64) {
        let Some(began) = piece.began else { return };
        let took = platform.now().saturating_sub(began);
        if took > PIECE_SLOW {
            self.0 = (self.0 / 2).max(PIECE_LEAST);
        } else if took < PIECE_QUICK && moved >= self.0 {
            self.0 = self.0.saturating_mul(2).min(PIECE);
        }
    }
}
