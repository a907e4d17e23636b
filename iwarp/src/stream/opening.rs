//! From the first byte to the first frame: the Request, the consumer's answer, the Reply, and who sends first.

use alloc::collections::TryReserveError;

use super::{End, Event, Memory, Push, State, Stream, slots};
use crate::inbound::Inbound;
use crate::negotiation::{self, Agreement, ReadLimits, ReadyToReceive, Refusal};
use crate::outbound::Outgoing;
use crate::start::{self, StartFault, StartFlags, StartFrame};
use crate::terminate::{Code, Echo};

/// The STag of a ready-to-receive frame, which names nothing.
pub(super) const NO_STAG: u32 = 1;

impl<B: AsRef<[u8]> + AsMut<[u8]>> Stream<B> {
    /// The passive end. What goes out until it is accepted, a Reply that rejects or a Terminate, lies in this.
    pub fn listen(outgoing: B) -> Result<Self, TryReserveError> {
        Self::try_new(State::Listening, Memory::for_start(outgoing)?)
    }

    /// The active end, with its Request. `None` where the private data is too long, or the memory too short.
    pub fn connect(
        memory: Memory<B>,
        limits: ReadLimits,
        crc: bool,
        private_data: &[u8],
    ) -> Result<Option<Self>, TryReserveError> {
        let mut stream = Self::try_new(State::Requesting, memory)?;
        let limits = stream.capped(limits);
        let request = negotiation::request(limits, crc, private_data);
        stream.asked = Some((limits, request.flags));
        Ok(stream.put_start(&request).map(|()| stream))
    }

    fn capped(&self, limits: ReadLimits) -> ReadLimits {
        ReadLimits { inbound: limits.inbound.min(self.sizes.reads), outbound: limits.outbound.min(self.sizes.reads) }
    }

    /// What some peer does not survive is not sent.
    fn put_start(&mut self, frame: &StartFrame<'_>) -> Option<()> {
        if frame.private_data.len() > start::MOST_PRIVATE_DATA {
            return None;
        }
        let length =
            start::HEADER + frame.private_data.len() + if frame.enhanced.is_some() { start::ENHANCED } else { 0 };
        self.ring.build(length, |into| frame.encode(into).map(|_| ()))
    }

    /// Accepts the Request. `None` where that cannot be: markers are wanted, the data is too long, there is no Request.
    pub fn accept(
        &mut self,
        memory: Memory<B>,
        limits: ReadLimits,
        crc: bool,
        private_data: &[u8],
    ) -> Option<Agreement> {
        if self.state != State::Asked {
            return None;
        }
        self.take_memory(memory);
        let limits = self.capped(limits);
        let request = self.start.read(&mut &[][..]).ok().flatten()?;
        let (reply, agreement) = negotiation::accept(&request, limits, crc, private_data).ok()?;
        self.put_start(&reply)?;
        self.begin(agreement);
        self.ready_write = agreement.ready == Some(ReadyToReceive::Write);
        self.state = State::Answered;
        Some(agreement)
    }

    /// Refuses the Request. What has been built goes out, and then the stream is closed.
    pub fn reject(&mut self, private_data: &[u8]) -> Option<()> {
        let request = self.start.read(&mut &[][..]).ok().flatten().filter(|_| self.state == State::Asked)?;
        let reply = negotiation::reject(&request, private_data);
        self.put_start(&reply)?;
        self.state = State::Ended(End::Rejected);
        Some(())
    }

    /// The consumer of the active end goes on: the first frame goes out, and the stream is read again.
    pub fn open(&mut self) -> Option<()> {
        if self.state != State::Replied {
            return None;
        }
        self.state = State::Open;
        match self.agreement.ready {
            None => Some(()),
            Some(ReadyToReceive::Write) => self.nudge(),
            Some(ReadyToReceive::Read) => {
                self.ready_read = true;
                matches!(self.read(0, NO_STAG, 0), Push::Sent(_)).then_some(())
            }
        }
    }

    /// Sends a Write of no bytes. A responder that has missed the first frame, as siw may, looks again when more comes.
    pub fn nudge(&mut self) -> Option<()> {
        let empty = self.push(&Outgoing::Write { stag: NO_STAG, offset: 0 }, 0, 0, |_, _| Some(()));
        matches!(empty, Push::Sent(_)).then_some(())
    }

    fn begin(&mut self, agreement: Agreement) {
        self.agreement = agreement;
        self.reader.begin(agreement.crc);
        // A Read as the first frame needs a slot, whatever is agreed.
        let first = u16::from(agreement.ready == Some(ReadyToReceive::Read));
        self.inbound = Inbound::new(slots(agreement.limits.inbound.max(first).min(self.sizes.reads)));
    }

    pub(super) fn request(&mut self, input: &mut &[u8]) -> Event {
        match self.start.read(input) {
            Ok(None) => Event::More,
            Err(fault) => self.ended(End::Start(fault)),
            Ok(Some(frame)) => match negotiation::offer(&frame, ReadLimits { inbound: 1, outbound: 1 }) {
                Err(Refusal::Revision) => self.ended(End::Start(StartFault::Revision)),
                Err(Refusal::Markers) => {
                    self.state = State::Asked;
                    // Where there is no space for the Reply, the end says the same.
                    let _rejected = self.reject(&[]);
                    self.ended(End::Rejected)
                }
                Ok(_) => {
                    self.state = State::Asked;
                    Event::Requested
                }
            },
        }
    }

    pub(super) fn reply(&mut self, input: &mut &[u8]) -> Event {
        let Some((own, flags)) = self.asked else { return self.ended(End::Start(StartFault::Key)) };
        let crc = flags.contains(StartFlags::CRC);
        let settled = match self.start.read(input) {
            Ok(None) => return Event::More,
            Err(_) => Err(Code::START_FRAME),
            Ok(Some(reply)) if reply.flags.contains(StartFlags::REJECT) => {
                self.state = State::Ended(End::Rejected);
                return Event::Replied;
            }
            Ok(Some(reply)) => negotiation::settle(&negotiation::request(own, crc, &[]), own, &reply),
        };
        match settled {
            Ok(agreement) => {
                self.begin(agreement);
                self.state = State::Replied;
                Event::Replied
            }
            Err(code) => self.terminate(code, Echo::Nothing),
        }
    }
}
