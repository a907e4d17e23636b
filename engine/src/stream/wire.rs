//! What one context at a time has of a stream: the socket, and what is said on it.

use alloc::vec::Vec;

use softndk_cells::NoMemory;
use softndk_iwarp::negotiation::ReadLimits;
use softndk_iwarp::stream::{End, Event, Memory, Owner, Sizes, Stream};

use super::{News, NoOwner, Phase, StartData, StreamObject, reason_of};
use crate::adapter::adapter::{AdapterObject, StreamCrc};
use crate::error::{ConnectError, DisconnectReason};
use crate::limits::{
    LAST_SENDS, LINGER, NUDGE_AFTER, NUDGES, PIECE, PRIVATE_DATA, REQUEST_COST, STREAM_HELD, STREAM_PAYLOAD,
    STREAM_PIECES, STREAM_SEND, STREAM_START,
};
use crate::platform::Platform;
use crate::platform::socket::{Arrived, Socket};
use crate::private_data::PrivateData;

/// See the module.
#[expect(clippy::struct_excessive_bools, reason = "each end has its own")]
pub(crate) struct Wire<P: Platform> {
    pub(crate) socket: P::Socket,
    pub(crate) stream: Stream<Vec<u8>>,
    pub(crate) phase: Phase,
    /// The stream ends behind what is to be sent.
    pub(super) is_finishing: bool,
    /// The queue pair takes nothing any more.
    pub(super) is_left: bool,
    /// The queue pair has nothing more to send.
    pub(crate) is_idle: bool,
    /// The queue pair waits for space in the send ring.
    pub(crate) waits_for_space: bool,
    pub(super) is_active: bool,
    asks_for_crc: bool,
    has_reply: bool,
    /// A frame has gone out.
    has_sent_frame: bool,
    /// Something has come behind the start-up frame.
    pub(super) has_received: bool,
    /// When the next empty Write goes out, and how many may.
    nudge: Option<u64>,
    nudges_left: u8,
    pub(super) has_heard_notice: bool,
    has_heard_end: bool,
    has_sent_end: bool,
    /// The connector has been closed behind its disconnect.
    pub(super) is_closed: bool,
    /// When it is broken: no Request has come, no end of the peer, or it does not take what is left for it.
    pub(super) deadline: Option<u64>,
    /// What has been received since [`Wire::take_cost`], in bytes and in what frames cost.
    cost: u64,
}

/// What received bytes have led to.
pub(crate) enum Received {
    Event(Event),
    /// There are no more at present.
    Nothing,
    /// There will be no more.
    Finished,
    /// The connection has been broken.
    Reset,
}

fn sizes<P: Platform>(adapter: &AdapterObject<P>) -> Sizes {
    let reads = adapter.limits.inbound_reads.max(adapter.limits.outbound_reads);
    Sizes { reads: u16::try_from(reads).unwrap_or(u16::MAX), held: STREAM_HELD, payload: STREAM_PAYLOAD }
}

fn asks_for_crc<P: Platform>(adapter: &AdapterObject<P>) -> bool {
    adapter.stream_crc == StreamCrc::Always
}

fn zeroed(length: usize) -> Result<Vec<u8>, NoMemory> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(length)?;
    memory.resize(length, 0);
    Ok(memory)
}

fn open_memory<P: Platform>(adapter: &AdapterObject<P>) -> Result<Memory<Vec<u8>>, NoMemory> {
    Ok(Memory::try_new(zeroed(STREAM_SEND)?, sizes(adapter))?)
}

/// What a stream that has come gets when it is accepted.
pub(crate) struct OpenMemory<P: Platform> {
    stream: Memory<Vec<u8>>,
    socket: <P::Socket as Socket<P>>::Memory,
}

impl<P: Platform> OpenMemory<P> {
    pub(super) fn try_new(adapter: &AdapterObject<P>) -> Result<Self, NoMemory> {
        Ok(Self { stream: open_memory(adapter)?, socket: P::Socket::allocate()? })
    }
}

impl<P: Platform> Wire<P> {
    fn new(adapter: &AdapterObject<P>, socket: P::Socket, stream: Stream<Vec<u8>>, is_active: bool) -> Self {
        Self {
            socket,
            stream,
            phase: Phase::Start,
            is_finishing: false,
            is_left: false,
            is_idle: false,
            waits_for_space: false,
            is_active,
            asks_for_crc: asks_for_crc(adapter),
            has_reply: false,
            has_sent_frame: false,
            has_received: false,
            nudge: None,
            nudges_left: NUDGES,
            has_heard_notice: false,
            has_heard_end: false,
            has_sent_end: false,
            is_closed: false,
            deadline: None,
            cost: 0,
        }
    }

    pub(super) fn connect(
        adapter: &AdapterObject<P>,
        socket: P::Socket,
        start: &StartData,
    ) -> Result<Option<Self>, NoMemory> {
        let stream =
            Stream::connect(open_memory(adapter)?, start.limits, asks_for_crc(adapter), start.private_data.data())?;
        Ok(stream.map(|stream| Self::new(adapter, socket, stream, true)))
    }

    pub(super) fn listen(adapter: &AdapterObject<P>, socket: P::Socket) -> Result<Self, NoMemory> {
        Ok(Self::new(adapter, socket, Stream::listen(zeroed(STREAM_START)?)?, false))
    }

    pub(super) fn accept(&mut self, start: &StartData, memory: OpenMemory<P>) -> Option<()> {
        self.socket.take_memory(memory.socket);
        self.stream.accept(memory.stream, start.limits, self.asks_for_crc, start.private_data.data())?;
        self.has_reply = true;
        Some(())
    }

    /// Whether a stream that has come has had no Request yet.
    pub(super) fn waits_for_request(&self) -> bool {
        self.phase == Phase::Start && !self.is_active && self.deadline.is_some()
    }

    /// A reset here loses the Reply, and siw as responder does not survive it.
    pub(super) const fn is_between_reply_and_first_frame(&self) -> bool {
        self.has_reply && !self.has_received
    }

    /// An initiator of the client-server model sends no frame of which the responder would wait: the Reply is enough.
    pub(super) const fn is_ready_with_its_reply(&self) -> bool {
        self.stream.agreement().ready.is_none()
    }

    pub(super) fn reject(&mut self, start: &StartData) -> Option<()> {
        self.stream.reject(start.private_data.data())
    }

    pub(super) fn open(&mut self) {
        if self.stream.open().is_some() {
            self.begin();
        }
    }

    /// From here on the queue pair takes what comes, unless it has drained before. A stream that is over stays so.
    pub(super) fn begin(&mut self) {
        if self.phase == Phase::Start {
            self.phase = if self.is_left { Phase::Over } else { Phase::Open };
        }
    }

    /// What the start-up frame of the peer says.
    pub(super) fn peer_start(&mut self) -> Option<StartData> {
        self.has_reply |= self.is_active;
        let agreed = self.stream.agreement().limits;
        let frame = self.stream.peer_frame()?;
        let limits = match (self.is_active, frame.enhanced) {
            (true, _) => agreed,
            (false, Some(theirs)) => ReadLimits { inbound: theirs.inbound_reads, outbound: theirs.outbound_reads },
            (false, None) => ReadLimits { inbound: u16::MAX, outbound: u16::MAX },
        };
        // A consumer reads what the peer has sent, whatever its own adapter lets it send.
        let length = frame.private_data.len().min(PRIVATE_DATA);
        let data = frame.private_data.get(..length).unwrap_or_default();
        let private_data = PrivateData::new(data, length as u32).ok()?;
        Some(StartData { limits, private_data })
    }

    /// What a connector hears of an end before the stream is open.
    pub(super) fn news_of_early_end(&self) -> News {
        match (self.is_active, self.has_reply) {
            // What has come is no Reply.
            (true, false) if self.stream.end().is_some() => News::Refused(ConnectError::Aborted),
            (true, false) => News::Refused(self.socket.refusal()),
            (true, true) => News::Ended(DisconnectReason::Closed),
            (false, _) => News::Abandoned,
        }
    }

    /// Hands received bytes to the stream, until something has happened, there are no more, or it has been enough for one step.
    pub(crate) fn receive(&mut self, owner: &mut impl Owner) -> Received {
        let most = self.cost.saturating_add(PIECE);
        for _ in 0..STREAM_PIECES {
            let (bytes, frames) = (self.socket.bytes(), self.stream.frames_taken());
            let mut rest = bytes;
            let event = self.stream.receive(&mut rest, owner);
            let (taken, is_used_up) = (bytes.len().saturating_sub(rest.len()), rest.is_empty());
            self.has_received |= self.phase != Phase::Start && taken > 0;
            self.socket.consume(taken);
            let frames = u64::from(self.stream.frames_taken().wrapping_sub(frames));
            self.charge(taken, frames);
            // A pause without bytes waits for nothing but an end.
            if event != Event::More && !(event == Event::Paused && is_used_up) {
                return Received::Event(event);
            }
            if let Some(received) = self.take_input() {
                return received;
            }
            if self.cost >= most {
                break;
            }
        }
        Received::Event(Event::More)
    }

    /// How the peer's bytes end, where Sends without a receive keep those before it from being taken.
    pub(crate) fn end_behind_held(&self) -> Arrived {
        if self.stream.is_holding() { self.socket.end_ahead() } else { Arrived::Nothing }
    }

    fn charge(&mut self, bytes: usize, frames: u64) {
        self.cost = self.cost.saturating_add(bytes as u64).saturating_add(REQUEST_COST.saturating_mul(frames));
    }

    /// What has been received since the last call, as part of a bound in bytes.
    pub(crate) const fn take_cost(&mut self) -> u64 {
        core::mem::replace(&mut self.cost, 0)
    }

    /// Looks for the next bytes, or says why there are none.
    fn take_input(&mut self) -> Option<Received> {
        match self.socket.receive() {
            Arrived::Bytes => {}
            Arrived::Nothing => return Some(Received::Nothing),
            Arrived::Finished => return Some(Received::Finished),
            Arrived::Reset => return Some(Received::Reset),
        }
        // As TCP has it: no socket is there any more.
        if self.is_closed {
            self.socket.abort();
            return Some(Received::Reset);
        }
        None
    }

    /// The stream has ended: its last words go out, unless its end has gone before them, or it is broken.
    pub(crate) fn end(&mut self, now: u64) {
        match self.stream.end() {
            Some(End::Fault(_)) if !self.has_sent_end || self.has_heard_notice => self.linger(now),
            _ => self.socket.abort(),
        }
    }

    /// Ends behind what is to be sent, and waits for the peer's end, for a time that is bounded.
    pub(super) fn linger(&mut self, now: u64) {
        self.is_finishing = true;
        let until = now.saturating_add(LINGER);
        self.deadline = Some(self.deadline.map_or(until, |before| before.min(until)));
    }

    /// Bounds the time of what is left to be sent when both sides have ended: the peer may keep its window shut, and what knew of the
    /// connection may be closed.
    pub(super) fn bound_last_sends(&mut self, now: impl Fn() -> u64) {
        if self.is_left && self.is_finishing && self.has_heard_notice && self.deadline.is_none() {
            self.deadline = Some(now().saturating_add(LAST_SENDS));
        }
    }

    /// Whether an initiator still looks for a sign that its first frame has been seen.
    const fn awaits_first_answer(&self) -> bool {
        let is_open = matches!(self.phase, Phase::Open) && !self.has_sent_end;
        self.is_active && self.has_sent_frame && !self.has_received && is_open && self.nudges_left > 0
    }

    /// Sends a Write of no bytes where nothing has come for a while: a responder that has missed the first frame, as siw may, looks
    /// again when another segment of TCP comes. Called when all has been handed over; whether there is something to be handed over.
    pub(super) fn send_nudge(&mut self, now: impl Fn() -> u64) -> bool {
        if !self.awaits_first_answer() {
            self.nudge = None;
            return false;
        }
        let now = now();
        let is_due = self.nudge.is_some_and(|due| now >= due);
        if is_due || self.nudge.is_none() {
            self.nudge = Some(now.saturating_add(NUDGE_AFTER));
        }
        if !is_due {
            return false;
        }
        self.nudges_left = self.nudges_left.saturating_sub(1);
        self.stream.nudge().is_some()
    }

    /// Whether a timer has fired and nothing else has happened: then the queue pair has nothing to do.
    pub(super) fn has_only_a_nudge_due(&mut self, now: impl Fn() -> u64) -> bool {
        let is_due = self.nudge.is_some_and(|due| now() >= due);
        is_due && !self.waits_for_space && !self.is_finishing && self.socket.receive() == Arrived::Nothing
    }

    /// When it is looked at without a cause from outside.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.deadline.into_iter().chain(self.nudge).min()
    }

    /// Whether the end has been sent.
    pub(crate) fn has_finished(&self) -> bool {
        self.has_sent_end
    }

    /// Whether a peer that has finished has left something unfinished.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.stream.is_inside_frame()
    }

    /// Discards received bytes until the peer's end, which it reports to the connector; whether bytes are left for another step.
    pub(super) fn discard(&mut self, stream: &StreamObject<P>) -> bool {
        let mut news = None;
        for _ in 0..STREAM_PIECES {
            let is_read = self.stream.end().is_none() && !self.stream.is_paused();
            let received = if is_read { self.receive(&mut NoOwner) } else { self.throw_away() };
            news = match received {
                Received::Event(Event::Ended(end)) => {
                    self.end(stream.now());
                    Some(News::Ended(reason_of(end)))
                }
                Received::Event(_) if self.cost >= PIECE => return true,
                Received::Event(_) => continue,
                Received::Nothing => return false,
                Received::Finished => Some(News::Notice),
                Received::Reset => Some(News::Ended(DisconnectReason::Closed)),
            };
            break;
        }
        let Some(news) = news else { return true };
        self.report_end(stream, news);
        false
    }

    /// What comes on a stream that has ended means nothing.
    fn throw_away(&mut self) -> Received {
        let count = self.socket.bytes().len();
        self.socket.consume(count);
        self.charge(count, 0);
        self.take_input().unwrap_or(Received::Event(Event::More))
    }

    /// The connector hears that the peer sends nothing more, and that the connection has ended; each once.
    pub(crate) fn report_end(&mut self, stream: &StreamObject<P>, news: News) {
        // Both ends are established.
        self.has_received |= news == News::Notice;
        let heard = if news == News::Notice { &mut self.has_heard_notice } else { &mut self.has_heard_end };
        if !core::mem::replace(heard, true) && (news != News::Notice || !self.has_heard_end) {
            stream.say(news);
        }
    }

    /// Hands built frames to the socket, and the end behind them; whether that has made space for which the queue pair waits.
    pub(super) fn flush(&mut self) -> bool {
        let ring = self.stream.outgoing();
        let mut has_moved = false;
        loop {
            let piece = ring.next_piece();
            if piece.is_empty() {
                break;
            }
            let taken = self.socket.send(piece);
            if taken == 0 {
                // It wakes when it has space.
                return false;
            }
            has_moved = true;
            self.has_sent_frame |= self.phase == Phase::Open;
            ring.handed_over(taken);
            ring.done(taken);
        }
        if self.is_finishing && (self.phase == Phase::Over || self.is_idle) {
            self.has_sent_end = true;
            self.socket.finish();
        }
        core::mem::take(&mut self.waits_for_space) && has_moved
    }
}
