//! Messages out of segments: the numbers, the continuity and the limits of one direction of a stream.
//!
//! A Send that has begun goes on until its last segment; Writes and Read Responses may come between its segments, because some senders
//! do so and no harm comes of it. A Write has no end that its sink could see. Read Responses belong to the oldest Read that is open, in
//! order and within its length: the STag of a response names nothing but that Read.
//!
//! Rules: numbers begin at 1 in each queue and count each message once; more Read Requests than were agreed are refused, however
//! short they are; after a fault no segment is taken.

use crate::segment::{Header, ReadRequest, Segment, Send, SendKind, Tagged};
use crate::terminate::{Code, Terminate};

/// A Read of this side whose response has not come whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OpenRead {
    /// The sink that its request named; the tagged offset began at 0.
    pub stag: u32,
    pub length: u32,
    /// Bytes that have come.
    pub received: u32,
}

/// What a segment brings.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Message<'a> {
    /// Bytes for memory that the peer may write.
    Write {
        stag: u32,
        offset: u64,
        data: &'a [u8],
        is_last: bool,
    },
    /// Bytes of a Send. The first of them takes a receive.
    Send {
        kind: SendKind,
        is_first: bool,
        offset: u32,
        data: &'a [u8],
        is_last: bool,
    },
    ReadRequest(ReadRequest),
    /// Bytes of the oldest open Read, which they end with the last.
    ReadResponse {
        offset: u32,
        data: &'a [u8],
        is_last: bool,
    },
    /// The peer has ended the stream. Without a code where its message was too short for one.
    Terminate(Option<Terminate<'a>>),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Inbound {
    /// The number of the next Send and of the next Read Request.
    next_send: u32,
    next_read: u32,
    /// The Send that has begun, and the bytes of it that have come.
    open: Option<(SendKind, u32)>,
    /// Read Requests that are not answered, and the most there may be.
    requests: u32,
    most_requests: u32,
    has_ended: bool,
}

impl Inbound {
    #[must_use]
    pub const fn new(most_requests: u32) -> Self {
        Self { next_send: 1, next_read: 1, open: None, requests: 0, most_requests, has_ended: false }
    }

    /// Takes a segment. `oldest` is the oldest open Read of this side; it goes with the message that ends it.
    pub fn take<'a>(&mut self, segment: Segment<'a>, oldest: Option<&mut OpenRead>) -> Result<Message<'a>, Code> {
        if self.has_ended {
            return Err(Code::STREAM_CATASTROPHIC);
        }
        let Segment { header, data } = segment;
        let message = match header {
            Header::Write(tagged) => write(tagged, data),
            Header::Send(send) => self.send(send, data),
            Header::ReadRequest(request) => self.request(request),
            Header::ReadResponse(tagged) => response(tagged, data, oldest),
            Header::Terminate { .. } => Ok(Message::Terminate(Terminate::decode(data))),
        };
        self.has_ended = matches!(message, Err(_) | Ok(Message::Terminate(_)));
        message
    }

    /// The response to the oldest Read Request has been sent.
    pub fn answered(&mut self) {
        self.requests = self.requests.saturating_sub(1);
    }

    fn send<'a>(&mut self, send: Send, data: &'a [u8]) -> Result<Message<'a>, Code> {
        let Send { kind, msn, offset, is_last } = send;
        if msn != self.next_send {
            return Err(Code::MSN_RANGE);
        }
        let is_first = self.open.is_none();
        let (begun, received) = self.open.unwrap_or((kind, 0));
        if kind != begun {
            return Err(Code::UNEXPECTED_OPCODE);
        }
        if offset != received {
            return Err(Code::MESSAGE_OFFSET);
        }
        let end = received.checked_add(data.len() as u32).ok_or(Code::MESSAGE_TOO_LONG)?;
        self.open = if is_last { None } else { Some((kind, end)) };
        if is_last {
            self.next_send = self.next_send.wrapping_add(1);
        }
        Ok(Message::Send { kind, is_first, offset, data, is_last })
    }

    fn request<'a>(&mut self, request: ReadRequest) -> Result<Message<'a>, Code> {
        if request.msn != self.next_read {
            return Err(Code::MSN_RANGE);
        }
        if self.requests >= self.most_requests {
            return Err(Code::NO_BUFFER);
        }
        if request.source_offset.checked_add(request.length.into()).is_none() {
            return Err(Code::REMOTE_WRAP);
        }
        self.next_read = self.next_read.wrapping_add(1);
        self.requests = self.requests.saturating_add(1);
        Ok(Message::ReadRequest(request))
    }
}

fn write(tagged: Tagged, data: &[u8]) -> Result<Message<'_>, Code> {
    let Tagged { stag, offset, is_last } = tagged;
    match offset.checked_add(data.len() as u64) {
        None => Err(Code::TAGGED_WRAP),
        Some(_) => Ok(Message::Write { stag, offset, data, is_last }),
    }
}

fn response<'a>(tagged: Tagged, data: &'a [u8], oldest: Option<&mut OpenRead>) -> Result<Message<'a>, Code> {
    let Tagged { stag, offset, is_last } = tagged;
    let Some(read) = oldest.filter(|read| read.stag == stag) else { return Err(Code::TAGGED_INVALID_STAG) };
    let at = read.received;
    let end = u64::from(at).saturating_add(data.len() as u64);
    // A response may be no longer and no shorter than its Read.
    let fits = offset == u64::from(at) && end <= u64::from(read.length) && is_last == (end == u64::from(read.length));
    if !fits {
        return Err(Code::TAGGED_BOUNDS);
    }
    read.received = end as u32;
    Ok(Message::ReadResponse { offset: at, data, is_last })
}

#[cfg(test)]
mod tests {
    use super::Inbound;
    use crate::segment::{Header, ReadRequest, Segment, Send, SendKind};
    use crate::terminate::Code;

    #[test]
    fn numbers_go_on_behind_the_last() {
        let mut inbound = Inbound { next_send: u32::MAX, next_read: u32::MAX, ..Inbound::new(3) };
        for msn in [u32::MAX, 0, 1] {
            let send = Header::Send(Send { kind: SendKind::default(), msn, offset: 0, is_last: true });
            let read = ReadRequest { msn, sink_stag: 1, sink_offset: 0, length: 0, source_stag: 1, source_offset: 0 };
            for header in [send, Header::ReadRequest(read)] {
                assert!(inbound.take(Segment { header, data: b"" }, None).is_ok(), "{header:?}");
            }
        }
        let again = Header::Send(Send { kind: SendKind::default(), msn: 1, offset: 0, is_last: true });
        assert_eq!(inbound.take(Segment { header: again, data: b"" }, None), Err(Code::MSN_RANGE));
    }
}
