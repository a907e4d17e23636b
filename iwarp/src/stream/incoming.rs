//! Frames of the peer: segments, messages, and what they do to the owner.

use core::mem;

use super::opening::NO_STAG;
use super::{End, Event, MOST_FRAMES, Owner, State, Stream, Taken};
use crate::bounded::Fifo;
use crate::frame::{self, Frame};
use crate::hold::{Hold, SendPart};
use crate::inbound::{Inbound, Message, OpenRead};
use crate::segment::{self, Header, ReadRequest, Segment};
use crate::terminate::{Code, Echo};

impl<B: AsRef<[u8]> + AsMut<[u8]>> Stream<B> {
    /// Takes frames until something has happened, or it has been enough for one call.
    pub(super) fn frames(&mut self, input: &mut &[u8], owner: &mut impl Owner) -> Event {
        match deliver_held(&mut self.hold, owner) {
            Err(code) => return self.terminate(code, Echo::Nothing),
            Ok(Taken::Pause) => return Event::Held,
            Ok(_) => {}
        }
        for _ in 0..MOST_FRAMES {
            let before = *input;
            let frame = match self.reader.next(input) {
                Err(code) => return self.terminate(code, Echo::Nothing),
                Ok(None) => return Event::More,
                Ok(Some(frame)) => frame,
            };
            let segment = match Segment::decode(frame.payload()) {
                Err(code) => return self.terminate(code, Echo::Nothing),
                Ok(segment) => segment,
            };
            if self.state == State::Answered {
                self.reader.put_back(input, before);
                self.state = State::Open;
                return Event::Ready;
            }
            let is_send = matches!(segment.header, Header::Send(_));
            if is_send && !self.hold.is_empty() && !self.hold.fits(segment.data.len()) {
                self.reader.put_back(input, before);
                return Event::Held;
            }
            self.frames = self.frames.wrapping_add(1);
            let mut parts = Parts {
                inbound: &mut self.inbound,
                hold: &mut self.hold,
                reads: &mut self.reads,
                answers: &mut self.answers,
                ready_read: &mut self.ready_read,
                ready_write: &mut self.ready_write,
            };
            match parts.take(segment, owner) {
                Ok(Done::Frame) => {}
                Ok(Done::Pause) => return Event::Held,
                Ok(Done::Asked) => return Event::Asked,
                Ok(Done::End(end)) => return self.ended(end),
                Err(code) => {
                    let mut headers = [0; LONGEST_HEADERS];
                    let echo = echo_of(frame, segment.header.length(), code, &mut headers);
                    return self.terminate(code, echo);
                }
            }
        }
        Event::More
    }
}

/// The length of a frame, and the headers of a Read Request.
const LONGEST_HEADERS: usize = frame::HEADER + segment::UNTAGGED_HEADER + segment::READ_REQUEST;

/// The headers of a segment for a Terminate, where its layer has any to show.
fn echo_of<'e>(frame: Frame<'_>, length: usize, code: Code, into: &'e mut [u8; LONGEST_HEADERS]) -> Echo<'e> {
    let headers = frame.headers(frame::HEADER.saturating_add(length));
    match into.get_mut(..headers.len()).filter(|_| code.layer < 2) {
        None => Echo::Nothing,
        Some(copy) => {
            copy.copy_from_slice(headers);
            Echo::Headers(copy)
        }
    }
}

/// What a frame has led to.
enum Done {
    Frame,
    Pause,
    Asked,
    End(End),
}

/// What a frame changes.
struct Parts<'s> {
    inbound: &'s mut Inbound,
    hold: &'s mut Hold,
    reads: &'s mut Fifo<OpenRead>,
    answers: &'s mut Fifo<ReadRequest>,
    ready_read: &'s mut bool,
    ready_write: &'s mut bool,
}

impl Parts<'_> {
    /// Takes a segment.
    fn take(&mut self, segment: Segment<'_>, owner: &mut impl Owner) -> Result<Done, Code> {
        let taken = match self.inbound.take(segment, self.reads.front_mut())? {
            Message::Write { stag, offset, data, is_last } => {
                // An initiator's first frame; or one by which it has this side look again.
                let is_sign = mem::take(self.ready_write) || stag == NO_STAG && offset == 0 && is_last;
                if !(is_sign && data.is_empty()) {
                    owner.write(stag, offset, data, is_last)?;
                }
                Taken::Done
            }
            Message::Send { kind, is_first, offset, data, is_last } => {
                let part = SendPart { kind, is_first, offset, data, is_last };
                let taken = if self.hold.is_empty() { owner.send(&part)? } else { Taken::NoReceive };
                if taken == Taken::NoReceive {
                    // There is space: the hold was empty, or has been asked.
                    self.hold.push(&part).then_some(()).ok_or(Code::NO_BUFFER)?;
                }
                taken
            }
            Message::ReadRequest(request) => {
                self.answers.add(request).then_some(()).ok_or(Code::NO_BUFFER)?;
                return Ok(Done::Asked);
            }
            Message::ReadResponse { offset, data, is_last } => {
                if is_last {
                    self.reads.take();
                }
                if mem::take(self.ready_read) { Taken::Done } else { owner.response(offset, data, is_last)? }
            }
            Message::Terminate(terminate) => return Ok(Done::End(End::Terminated(terminate.map(|it| it.code)))),
        };
        Ok(if taken == Taken::Pause { Done::Pause } else { Done::Frame })
    }
}

/// Hands over what was held, as far as there are receives and the owner does not pause.
fn deliver_held(hold: &mut Hold, owner: &mut impl Owner) -> Result<Taken, Code> {
    while let Some(part) = hold.front() {
        let taken = owner.send(&part)?;
        if taken == Taken::NoReceive {
            break;
        }
        hold.pop();
        if taken == Taken::Pause {
            return Ok(Taken::Pause);
        }
    }
    Ok(Taken::Done)
}
