//! MPA frames (FPDUs): a length, a payload (ULPDU), padding to four bytes, a CRC.
//!
//! A frame is built in one slice, and read from a stream whose pieces have nothing to do with frames. Where a frame lies whole in what
//! has come it is read there; otherwise it is assembled in a buffer that the reader was made with.
//!
//! Rules: a frame is handed out after its CRC has been checked, where one was agreed; markers are never agreed; nothing is allocated
//! after the reader is made.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

use crate::crc;
use crate::terminate::Code;

/// Bytes of the length in front of a payload.
pub const HEADER: usize = 2;

/// The longest payload that its field can name.
pub const MOST_PAYLOAD: usize = u16::MAX as usize;

/// The longest frame.
pub const MOST: usize = length(MOST_PAYLOAD);

/// The shortest payload that any segment has.
const LEAST_PAYLOAD: usize = 14;

/// Bytes of a frame with so long a payload.
#[must_use]
pub const fn length(payload: usize) -> usize {
    // No payload is longer than 64 KiB.
    (HEADER.saturating_add(payload).saturating_add(3) & !3).saturating_add(crc::LENGTH)
}

/// Builds a frame around a payload that `fill` writes; the bytes of the frame. `None` where it does not fit, or `fill` fails.
pub fn build(
    into: &mut [u8],
    payload: usize,
    with_crc: bool,
    fill: impl FnOnce(&mut [u8]) -> Option<()>,
) -> Option<usize> {
    let named = u16::try_from(payload).ok()?;
    let frame = into.get_mut(..length(payload))?;
    let (covered, checksum) = frame.split_at_mut_checked(frame.len().checked_sub(crc::LENGTH)?)?;
    covered.first_chunk_mut::<HEADER>()?.copy_from_slice(&named.to_be_bytes());
    fill(covered.get_mut(HEADER..HEADER + payload)?)?;
    covered.get_mut(HEADER + payload..)?.fill(0);
    checksum.copy_from_slice(&if with_crc { crc::of(covered) } else { [0; crc::LENGTH] });
    Some(length(payload))
}

/// A frame that has come whole, and is right.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Frame<'a> {
    /// Its length and its payload: what a Terminate echoes begins with the length.
    whole: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The payload (ULPDU).
    #[must_use]
    pub fn payload(self) -> &'a [u8] {
        self.whole.get(HEADER..).unwrap_or_default()
    }

    /// The first bytes of the frame, the length included.
    #[must_use]
    pub fn headers(self, length: usize) -> &'a [u8] {
        self.whole.get(..length).unwrap_or(self.whole)
    }
}

/// Finds frames in a stream; see the module.
pub struct FrameReader {
    /// The beginning of a frame that has not come whole.
    assembly: Vec<u8>,
    checks_crc: bool,
    /// What the assembly holds has been handed out.
    is_used: bool,
    fault: Option<Code>,
}

impl FrameReader {
    /// Allocates the assembly of one frame, 64 KiB.
    pub fn try_new() -> Result<Self, TryReserveError> {
        Self::allocate(MOST)
    }

    /// The assembly of a frame of so many bytes; of none, where no frame is read.
    pub(crate) fn allocate(capacity: usize) -> Result<Self, TryReserveError> {
        let mut assembly = Vec::new();
        assembly.try_reserve_exact(capacity)?;
        Ok(Self { assembly, checks_crc: true, is_used: false, fault: None })
    }

    /// Begins a stream, with or without a CRC as it was agreed.
    pub fn begin(&mut self, checks_crc: bool) {
        self.assembly.clear();
        (self.checks_crc, self.is_used, self.fault) = (checks_crc, false, None);
    }

    /// The next frame of the stream, of which `input` is what has come and not been looked at: what is used up is taken off. `None`
    /// when more has to come; all of the input is used up then. A fault is for good.
    pub fn next<'r, 'i: 'r>(&'r mut self, input: &mut &'i [u8]) -> Result<Option<Frame<'r>>, Code> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.is_used {
            self.assembly.clear();
            self.is_used = false;
        }
        let result = self.find(input);
        if let Err(fault) = result {
            self.fault = Some(fault);
        }
        let Some(found) = result? else { return Ok(None) };
        let frame = match found {
            Found::Assembly => self.assembly.as_slice(),
            Found::Input(frame) => frame,
        };
        let payload = payload_of(frame).unwrap_or_default();
        Ok(Some(Frame { whole: frame.get(..HEADER + payload).unwrap_or_default() }))
    }

    /// Whether bytes have come that no frame has been handed out for.
    #[must_use]
    pub const fn is_inside_frame(&self) -> bool {
        !self.assembly.is_empty() && !self.is_used
    }

    /// Puts the frame back that was handed out last; `before` is what the input was then.
    pub const fn put_back<'i>(&mut self, input: &mut &'i [u8], before: &'i [u8]) {
        if self.is_used {
            self.is_used = false;
        } else {
            *input = before;
        }
    }

    fn find<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Found<'a>>, Code> {
        if self.assembly.is_empty() {
            let Some(payload) = payload_of(input) else { return Ok(self.assemble(input, HEADER)) };
            let length = checked(payload)?;
            let Some((frame, rest)) = input.split_at_checked(length) else {
                return Ok(self.assemble(input, length));
            };
            *input = rest;
            return self.check(frame).map(|()| Some(Found::Input(frame)));
        }
        if self.assembly.len() < HEADER {
            self.assemble(input, HEADER);
        }
        let Some(payload) = payload_of(&self.assembly) else { return Ok(None) };
        let length = checked(payload)?;
        self.assemble(input, length);
        if self.assembly.len() < length {
            return Ok(None);
        }
        self.is_used = true;
        self.check(&self.assembly).map(|()| Some(Found::Assembly))
    }

    /// Moves input to the assembly, until that has so many bytes. No frame has come of it yet.
    fn assemble<'a>(&mut self, input: &mut &'a [u8], length: usize) -> Option<Found<'a>> {
        let wanted = length.saturating_sub(self.assembly.len()).min(input.len());
        // The capacity is that of the longest frame.
        let fits = wanted.min(self.assembly.capacity().saturating_sub(self.assembly.len()));
        let (first, rest) = input.split_at_checked(fits)?;
        self.assembly.extend_from_slice(first);
        *input = rest;
        None
    }

    fn check(&self, frame: &[u8]) -> Result<(), Code> {
        let (covered, checksum) = frame.split_last_chunk::<{ crc::LENGTH }>().ok_or(Code::FRAME_LENGTH)?;
        if self.checks_crc && crc::of(covered) != *checksum { Err(Code::CRC) } else { Ok(()) }
    }
}

enum Found<'a> {
    Assembly,
    Input(&'a [u8]),
}

fn payload_of(frame: &[u8]) -> Option<usize> {
    frame.first_chunk::<HEADER>().map(|bytes| usize::from(u16::from_be_bytes(*bytes)))
}

/// The length of a frame with so long a payload, which a segment may have.
const fn checked(payload: usize) -> Result<usize, Code> {
    if payload < LEAST_PAYLOAD { Err(Code::FRAME_LENGTH) } else { Ok(length(payload)) }
}
