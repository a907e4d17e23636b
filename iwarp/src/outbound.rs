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

#[cfg(test)]
mod tests {
    use super::{LEAST_LIMIT, MOST_LIMIT, Outbound, Outgoing, most_payload};
    use crate::frame;

    #[test]
    fn the_longest_payload_is_that_of_the_rfc() {
        for (segment, payload) in [(1460, 1454), (1461, 1454), (1463, 1454), (1448, 1442), (8960, 8954)] {
            assert_eq!(most_payload(segment), payload);
            assert!(frame::length(payload) <= segment && frame::length(payload + 4) > segment, "{segment}");
        }
        for (segment, payload) in [
            (0, LEAST_LIMIT),
            (3, LEAST_LIMIT),
            (137, 130),
            (135, LEAST_LIMIT),
            (64_776, MOST_LIMIT),
            (usize::MAX, MOST_LIMIT),
        ] {
            assert_eq!(most_payload(segment), payload, "{segment}");
        }
    }

    /// The last piece ends with the message, and no piece is longer than the limit.
    #[test]
    fn messages_are_cut_at_the_limit() {
        let mut outbound = Outbound::new(128);
        let message = Outgoing::Write { stag: 1, offset: 0 };
        for (length, pieces) in [(0, 1), (1, 1), (114, 1), (115, 2), (228, 2), (229, 3)] {
            let (mut sent, mut count) = (0, 0);
            loop {
                let piece = outbound.next(&message, length, sent);
                assert!(piece.payload() <= 128 && piece.range.start == sent);
                (sent, count) = (piece.range.end, count + 1);
                if piece.is_last {
                    break;
                }
            }
            assert_eq!((sent, count), (length, pieces));
        }
    }
}
