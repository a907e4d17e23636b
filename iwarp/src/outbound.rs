//! Segments out of messages: the numbers of one direction of a stream, and where messages are cut.
//!
//! A message is asked for piece by piece, each with a header; `frame::build` puts the two together. All pieces of a message are made
//! before those of another, except for those of a Write, which may be given up in the middle.

use core::ops::Range;

use crate::crc;
use crate::frame::{HEADER, MOST_PAYLOAD};
use crate::segment::{Header, ReadRequest, Send, SendKind, Tagged};

/// A message to be sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outgoing {
    Write {
        stag: u32,
        offset: u64,
    },
    Send(SendKind),
    /// One segment; the bytes that it asks for are not its own.
    ReadRequest {
        sink_stag: u32,
        length: u32,
        source_stag: u32,
        source_offset: u64,
    },
    ReadResponse {
        stag: u32,
        offset: u64,
    },
    /// The last message of a stream. One segment.
    Terminate,
}

/// One segment of a message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Piece {
    pub header: Header,
    /// The bytes of the message that it carries.
    pub range: Range<u32>,
    pub is_last: bool,
}

impl Piece {
    /// Bytes of its payload.
    #[must_use]
    pub fn payload(&self) -> usize {
        self.header.length().saturating_add(self.range.len())
    }
}

/// The least and the most that a payload may be limited to (RFC 5044, without markers).
const LEAST_LIMIT: usize = 128;
const MOST_LIMIT: usize = 64_768;

/// The longest payload (MULPDU) whose frame fits into so many bytes, which a segment of TCP has.
#[must_use]
pub const fn most_payload(segment: usize) -> usize {
    let frame = segment - segment % 4;
    let payload = frame.saturating_sub(HEADER + crc::LENGTH);
    if payload < LEAST_LIMIT {
        LEAST_LIMIT
    } else if payload > MOST_LIMIT {
        MOST_LIMIT
    } else {
        payload
    }
}

const _: () = assert!(MOST_LIMIT <= MOST_PAYLOAD);

/// See the module.
#[derive(Clone, Debug)]
pub struct Outbound {
    send: u32,
    read: u32,
    most: usize,
}

impl Outbound {
    /// For payloads of at most so many bytes, as [`most_payload`] has it.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { send: 1, read: 1, most: most.clamp(LEAST_LIMIT, MOST_LIMIT) }
    }

    /// The piece that begins `sent` bytes into a message of `length` bytes.
    pub fn next(&mut self, message: &Outgoing, length: u32, sent: u32) -> Piece {
        let carried = if let Outgoing::ReadRequest { .. } = message { 0 } else { length };
        let mut piece =
            Piece { header: self.header(message, sent, true), range: sent..carried.max(sent), is_last: true };
        let space = self.most.saturating_sub(piece.header.length()) as u32;
        if piece.range.len() as u64 > space.into() {
            piece.range.end = sent.saturating_add(space);
            piece.is_last = false;
            piece.header = self.header(message, sent, false);
        }
        match message {
            Outgoing::Send(_) if piece.is_last => self.send = self.send.wrapping_add(1),
            Outgoing::ReadRequest { .. } => self.read = self.read.wrapping_add(1),
            _ => {}
        }
        piece
    }

    fn header(&self, message: &Outgoing, sent: u32, is_last: bool) -> Header {
        let tagged = |stag, offset: u64| Tagged { stag, offset: offset.wrapping_add(sent.into()), is_last };
        match *message {
            Outgoing::Write { stag, offset } => Header::Write(tagged(stag, offset)),
            Outgoing::ReadResponse { stag, offset } => Header::ReadResponse(tagged(stag, offset)),
            Outgoing::Send(kind) => Header::Send(Send { kind, msn: self.send, offset: sent, is_last }),
            Outgoing::Terminate => Header::Terminate { msn: 1 },
            Outgoing::ReadRequest { sink_stag, length, source_stag, source_offset } => {
                Header::ReadRequest(ReadRequest {
                    msn: self.read,
                    sink_stag,
                    sink_offset: 0,
                    length,
                    source_stag,
                    source_offset,
                })
            }
        }
    }
}
