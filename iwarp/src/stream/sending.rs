//! What goes out: pieces of this side's requests, responses to the peer's Reads, the last message.

use core::ops::Range;

use super::{End, Event, Owner, Push, Sender, State, Stream};
use crate::frame;
use crate::inbound::OpenRead;
use crate::outbound::{Outgoing, Piece};
use crate::ring::SendRing;
use crate::segment::{self, Header, ReadRequest};
use crate::terminate::{self, Code, Echo, Terminate};

impl<B: AsRef<[u8]> + AsMut<[u8]>> Stream<B> {
    /// Ends the stream, with a Terminate. Nothing is taken or sent after it.
    pub fn terminate(&mut self, code: Code, echo: Echo<'_>) -> Event {
        if let State::Ended(end) = self.state {
            return Event::Ended(end);
        }
        let mut payload = [0; terminate::MOST];
        if let Some(length) = (Terminate { code, echo }).encode(&mut payload)
            && let Some(data) = payload.get(..length)
        {
            let header = Header::Terminate { msn: 1 };
            let (at, crc) = (header.length(), self.agreement.crc);
            let payload = at.saturating_add(length);
            // Where the system has not been done with anything for long there is no space, and the end says it.
            let _built = self.ring.build_last(frame::length(payload), |into| {
                frame::build(into, payload, crc, |into| {
                    header.encode(into)?;
                    into.get_mut(at..)?.copy_from_slice(data);
                    Some(())
                })
            });
        }
        self.ended(End::Fault(code))
    }

    /// Answers the peer's Reads, as far as there is space.
    pub fn serve(&mut self, owner: &mut impl Owner) -> Option<End> {
        while let Some(request) = self.answers.front().copied().filter(|_| self.may_send()) {
            if self.sending == Some(Sender::Requester) {
                break;
            }
            let message = Outgoing::ReadResponse { stag: request.sink_stag, offset: request.sink_offset };
            let piece = self.outbound.next(&message, request.length, self.answered);
            let length = frame::length(piece.payload());
            if !self.ring.has_space(length) {
                break;
            }
            let allowed = if self.answered == 0 && request.length > 0 {
                owner.allow_read(request.source_stag, request.source_offset, request.length)
            } else {
                Ok(())
            };
            let mut fault = allowed.err();
            let from = request.source_offset.wrapping_add(piece.range.start.into());
            let built = put(&mut self.ring, &piece, self.agreement.crc, |_, into| {
                if into.is_empty() || fault.is_some() {
                    return fault.is_none().then_some(());
                }
                owner.load(request.source_stag, from, into).map_err(|code| fault = Some(code)).ok()
            });
            if let Some(code) = fault {
                let mut echo = [0; frame::HEADER + segment::UNTAGGED_HEADER + segment::READ_REQUEST];
                let headers = echo_of(&request, &mut echo);
                self.terminate(code, headers);
                return self.end();
            }
            built?;
            self.answered = piece.range.end;
            self.sending = (!piece.is_last).then_some(Sender::Responder);
            if piece.is_last {
                self.answers.take();
                self.answered = 0;
                self.inbound.answered();
                owner.answered(request.length);
            }
        }
        self.end()
    }

    /// Sends the piece of a message of this side that begins `sent` bytes into it. `load` writes its bytes.
    pub fn push(
        &mut self,
        message: &Outgoing,
        length: u32,
        sent: u32,
        load: impl FnOnce(Range<u32>, &mut [u8]) -> Option<()>,
    ) -> Push {
        if !self.may_send() || self.sending == Some(Sender::Responder) {
            return Push::Wait;
        }
        let mut outbound = self.outbound.clone();
        let piece = outbound.next(message, length, sent);
        if !self.ring.has_space(frame::length(piece.payload())) {
            return Push::Wait;
        }
        if put(&mut self.ring, &piece, self.agreement.crc, load).is_none() {
            return Push::Failed;
        }
        self.outbound = outbound;
        // The pieces of a Write are Writes of their own.
        let is_open = !piece.is_last && !matches!(message, Outgoing::Write { .. });
        self.sending = is_open.then_some(Sender::Requester);
        Push::Sent(piece)
    }

    /// Sends a Read Request. Its sink is a number of this stream, which names no memory.
    pub fn read(&mut self, length: u32, source_stag: u32, source_offset: u64) -> Push {
        let most = usize::from(self.agreement.limits.outbound.max(u16::from(self.ready_read)).min(self.sizes.reads));
        if self.reads.len() >= most {
            return Push::Wait;
        }
        let sink_stag = self.next_sink;
        let message = Outgoing::ReadRequest { sink_stag, length, source_stag, source_offset };
        let pushed = self.push(&message, length, 0, |_, _| Some(()));
        if let Push::Sent(_) = pushed {
            let _added = self.reads.add(OpenRead { stag: sink_stag, length, received: 0 });
            self.next_sink = self.next_sink.checked_add(1).unwrap_or(1);
        }
        pushed
    }
}

fn put<B: AsRef<[u8]> + AsMut<[u8]>>(
    ring: &mut SendRing<B>,
    piece: &Piece,
    crc: bool,
    load: impl FnOnce(Range<u32>, &mut [u8]) -> Option<()>,
) -> Option<()> {
    let (header, payload) = (&piece.header, piece.payload());
    let built = ring.build(frame::length(payload), |into| {
        frame::build(into, payload, crc, |into| {
            let at = header.encode(into)?;
            load(piece.range.clone(), into.get_mut(at..)?)
        })
    });
    built.map(|_| ())
}

fn echo_of<'e>(request: &ReadRequest, into: &'e mut [u8]) -> Echo<'e> {
    let header = Header::ReadRequest(*request);
    let written = into.split_first_chunk_mut::<{ frame::HEADER }>().and_then(|(length, rest)| {
        *length = (header.length() as u16).to_be_bytes();
        header.encode(rest)
    });
    if written.is_some() { Echo::Headers(into) } else { Echo::Nothing }
}
