//! The frames that begin a stream: MPA Request and Reply, of revisions 1 and 2 (RFC 5044, RFC 6581).

use alloc::collections::TryReserveError;

use bitflags::bitflags;

use crate::bounded::Bytes;
use crate::bytes::{Reader, Writer};

/// Bytes in front of what the length names.
pub const HEADER: usize = 20;

/// Bytes of the enhanced set-up data, which the length counts as well.
pub const ENHANCED: usize = 4;

/// Most bytes behind the header (RFC 5044).
pub const MOST_DATA: usize = 512;

/// Most bytes that every peer in sight takes behind the header: siw and Chelsio's cards read no more, and siw as initiator
/// follows a null pointer on more.
pub const MOST_SENT: usize = 252;

/// Most private data that every peer takes.
pub const MOST_PRIVATE_DATA: usize = MOST_SENT - ENHANCED;

const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8; 16] = b"MPA ID Rep Frame";

/// The read limit that says that something else negotiates it.
pub const LIMIT_UNKNOWN: u16 = 0x3FFF;
const LIMIT_MASK: u16 = 0x3FFF;

bitflags! {
    /// Flags of a start-up frame. Bits of others, siw's 0x08 among them, mean nothing here.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct StartFlags: u8 {
        /// The sender wants markers in what it receives.
        const MARKERS = 0x80;
        const CRC = 0x40;
        /// Of a Reply: the connection is refused.
        const REJECT = 0x20;
        /// Enhanced set-up data stands in front of the private data.
        const ENHANCED = 0x10;
    }
}

/// Enhanced set-up data.
#[expect(clippy::struct_excessive_bools, reason = "four bits of the frame, each with its own meaning")]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Enhanced {
    /// The initiator sends a ready-to-receive frame first (A).
    pub is_peer_to_peer: bool,
    /// Offered, or in a Reply chosen, as that frame: an empty frame (B), an empty Write (C), an empty Read (D).
    pub empty_frame: bool,
    pub write: bool,
    pub read: bool,
    /// Reads that the sender serves at once.
    pub inbound_reads: u16,
    /// Reads that the sender wants under way.
    pub outbound_reads: u16,
}

impl Enhanced {
    /// Nothing is offered or wanted.
    pub const NONE: Self = Self {
        is_peer_to_peer: false,
        empty_frame: false,
        write: false,
        read: false,
        inbound_reads: 0,
        outbound_reads: 0,
    };

    fn encode(self) -> [u16; 2] {
        let bits = |first, second, limit: u16| u16::from(first) << 15 | u16::from(second) << 14 | limit.min(LIMIT_MASK);
        [
            bits(self.is_peer_to_peer, self.empty_frame, self.inbound_reads),
            bits(self.write, self.read, self.outbound_reads),
        ]
    }

    fn decode([first, second]: [u16; 2]) -> Self {
        let bit = |word: u16, bit: u32| word >> bit & 1 == 1;
        Self {
            is_peer_to_peer: bit(first, 15),
            empty_frame: bit(first, 14),
            write: bit(second, 15),
            read: bit(second, 14),
            inbound_reads: first & LIMIT_MASK,
            outbound_reads: second & LIMIT_MASK,
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StartKind {
    Request,
    Reply,
}

/// A start-up frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StartFrame<'a> {
    pub kind: StartKind,
    pub flags: StartFlags,
    pub revision: u8,
    /// With the flag and revision 2.
    pub enhanced: Option<Enhanced>,
    pub private_data: &'a [u8],
}

/// What is wrong with a start-up frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StartFault {
    /// It is none, or a Reply where a Request belongs.
    Key,
    /// Newer than RFC 6581. The receiver closes the stream without an answer.
    Revision,
    /// Longer than [`MOST_DATA`], or too short for its enhanced data.
    Length,
    /// Bytes follow before the other side may send any.
    Early,
}

impl StartFrame<'_> {
    /// Writes the frame; its length, or `None` where it does not fit or is longer than a frame may be.
    pub fn encode(&self, into: &mut [u8]) -> Option<usize> {
        let enhanced = self.enhanced.map(Enhanced::encode);
        let length = self.private_data.len().checked_add(if enhanced.is_some() { ENHANCED } else { 0 })?;
        if length > MOST_DATA {
            return None;
        }
        let mut flags = self.flags;
        flags.set(StartFlags::ENHANCED, enhanced.is_some());
        let key = if self.kind == StartKind::Request { REQUEST_KEY } else { REPLY_KEY };
        let mut writer = Writer::new(into).put(key).put(&[flags.bits(), self.revision]).u16(length as u16);
        for word in enhanced.into_iter().flatten() {
            writer = writer.u16(word);
        }
        writer.put(self.private_data).finish()
    }
}

/// Collects a start-up frame of a stream, in its own bytes.
pub struct StartReader {
    kind: StartKind,
    bytes: Bytes,
}

impl StartReader {
    /// Allocates the bytes of the longest frame.
    pub fn try_new(kind: StartKind) -> Result<Self, TryReserveError> {
        Ok(Self { kind, bytes: Bytes::try_new(HEADER + MOST_DATA)? })
    }

    /// Takes bytes of the stream off `input`, those of the frame only; the frame when it is whole.
    pub fn read(&mut self, input: &mut &[u8]) -> Result<Option<StartFrame<'_>>, StartFault> {
        self.take(input, HEADER);
        let Some(header) = self.header()? else { return Ok(None) };
        let whole = HEADER + header.length;
        self.take(input, whole);
        if self.bytes.as_slice().len() < whole {
            return Ok(None);
        }
        let mut reader = Reader(self.bytes.as_slice().get(HEADER..whole).unwrap_or_default());
        // In a Reply that refuses siw sets the flag, and sends nothing for it.
        let is_empty = header.length == 0 && header.flags.contains(StartFlags::REJECT);
        let has_enhanced = header.revision >= 2 && header.flags.contains(StartFlags::ENHANCED) && !is_empty;
        let enhanced = if has_enhanced {
            let (Some(first), Some(second)) = (reader.u16(), reader.u16()) else { return Err(StartFault::Length) };
            Some(Enhanced::decode([first, second]))
        } else {
            None
        };
        let StartHeader { flags, revision, .. } = header;
        Ok(Some(StartFrame { kind: self.kind, flags, revision, enhanced, private_data: reader.0 }))
    }

    fn take(&mut self, input: &mut &[u8], until: usize) {
        let missing = until.min(HEADER + MOST_DATA).saturating_sub(self.bytes.as_slice().len()).min(input.len());
        let Some((first, rest)) = input.split_at_checked(missing) else { return };
        if self.bytes.add(first) {
            *input = rest;
        }
    }

    /// The header, once it is there. A wrong key shows with its first wrong byte.
    fn header(&self) -> Result<Option<StartHeader>, StartFault> {
        let expected = if self.kind == StartKind::Request { REQUEST_KEY } else { REPLY_KEY };
        let come = self.bytes.as_slice();
        if come.iter().zip(expected).any(|(byte, expected)| byte != expected) {
            return Err(StartFault::Key);
        }
        let mut reader = Reader(come);
        let (Some(_key), Some(flags), Some(revision), Some(length)) =
            (reader.array::<16>(), reader.u8(), reader.u8(), reader.u16())
        else {
            return Ok(None);
        };
        if revision > 2 {
            return Err(StartFault::Revision);
        }
        let length = usize::from(length);
        if length > MOST_DATA {
            return Err(StartFault::Length);
        }
        Ok(Some(StartHeader { flags: StartFlags::from_bits_truncate(flags), revision, length }))
    }
}

struct StartHeader {
    flags: StartFlags,
    revision: u8,
    length: usize,
}
