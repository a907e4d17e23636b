//! One end of a stream, from the first byte of its start-up to the end: bytes in, bytes out, and what they ask of an [`Owner`].
//!
//! | state | waits for | left by |
//! |---|---|---|
//! | `Listening` | the Request | `receive` |
//! | `Asked` | the consumer | `accept`, `reject` |
//! | `Answered` | the initiator's first frame | `receive` |
//! | `Requesting` | the Reply | `receive` |
//! | `Replied` | the consumer; the stream is not read meanwhile | `open` |
//! | `Open` | frames, both ways | a fault, a Terminate |
//! | `Ended` | nothing: what has been built still goes out | |
//!
//! Rules: a responder sends no frame before the first of the initiator; responses and requests share the stream, message by message;
//! a Send without a receive is held, and when there is no space for that no byte behind it is taken; an end is said once. Before the
//! acceptance a passive end has memory for start-up frames only.

mod incoming;
mod opening;
mod sending;

use alloc::collections::TryReserveError;

use crate::bounded::Fifo;
use crate::frame::{self, FrameReader, MOST_PAYLOAD};
use crate::hold::{Hold, SendPart};
use crate::inbound::{Inbound, OpenRead};
use crate::negotiation::{Agreement, ReadLimits};
use crate::outbound::{Outbound, Piece};
use crate::ring::SendRing;
use crate::segment::{self, ReadRequest};
use crate::start::{StartFault, StartFlags, StartFrame, StartKind, StartReader};
use crate::terminate::{self, Code};

/// What a stream asks of the queue pair that it belongs to.
pub trait Owner {
    /// Bytes of the peer's Write, of which there are none in a Write of no bytes.
    fn write(&mut self, stag: u32, offset: u64, data: &[u8], is_last: bool) -> Result<(), Code>;

    /// A segment of the peer's Send. The first takes a receive, the last completes it.
    fn send(&mut self, part: &SendPart<'_>) -> Result<Taken, Code>;

    /// A Read of the peer is about to be answered: whether it may have all of its bytes, of which there are some.
    fn allow_read(&mut self, stag: u32, offset: u64, length: u32) -> Result<(), Code>;

    /// Reads memory for it.
    fn load(&mut self, stag: u32, offset: u64, into: &mut [u8]) -> Result<(), Code>;

    /// The last bytes for a Read of the peer have been built; it asked for so many.
    fn answered(&mut self, length: u32);

    /// Bytes of the oldest Read of this side, which the last complete.
    fn response(&mut self, offset: u32, data: &[u8], is_last: bool) -> Result<Taken, Code>;
}

/// Whether bytes could be taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Taken {
    Done,
    /// Done; the owner has to wait for something before it takes more.
    Pause,
    /// The first segment found no receive.
    NoReceive,
}

/// What received bytes have led to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// All of them are used up, or [`MOST_FRAMES`] have been taken.
    More,
    /// The Request is there: [`Stream::peer_frame`].
    Requested,
    /// The Reply accepts, and [`Stream::agreement`] holds; or it rejects, and the stream has ended.
    Replied,
    /// The initiator has sent its first frame: this side may send. The frame has not been taken.
    Ready,
    /// A Read of the peer has come, to be answered before what follows it is taken: [`Stream::serve`].
    Asked,
    /// No receive, and no space to hold more, or the owner pauses: the rest is for later.
    Held,
    /// The stream is not read in this state.
    Paused,
    Ended(End),
}

/// Why a stream has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// By this side, with a Terminate.
    Fault(Code),
    /// By a Terminate of the peer.
    Terminated(Option<Code>),
    /// A Request is wrong, or bytes came where none may.
    Start(StartFault),
    /// The Request was refused, by this side or the peer.
    Rejected,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Listening,
    Asked,
    Answered,
    Requesting,
    Replied,
    Open,
    Ended(End),
}

/// Whether a piece could be sent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Push {
    Sent(Piece),
    /// There is no space, a limit is reached, or a response is being sent: later.
    Wait,
    /// The bytes could not be loaded. Nothing was sent.
    Failed,
}

/// Who is in the middle of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sender {
    Requester,
    Responder,
}

/// The sizes of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Reads that either side may have under way.
    pub reads: u16,
    /// Bytes of Sends that are held without a receive; those of one frame at least.
    pub held: usize,
    /// The longest payload that is sent ([`most_payload`](crate::outbound::most_payload)).
    pub payload: usize,
}

/// What an open stream keeps bytes and requests in.
pub struct Memory<B> {
    ring: SendRing<B>,
    reader: FrameReader,
    hold: Hold,
    reads: Fifo<OpenRead>,
    answers: Fifo<ReadRequest>,
    sizes: Sizes,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Memory<B> {
    /// Allocates everything but what goes out lies in: a few frames of the longest payload.
    pub fn try_new(outgoing: B, sizes: Sizes) -> Result<Self, TryReserveError> {
        let sizes = Sizes { reads: sizes.reads.max(1), held: sizes.held.max(MOST_PAYLOAD), ..sizes };
        Self::allocate(outgoing, sizes, HELD_PARTS, frame::MOST)
    }

    /// Start-up frames alone need what goes out to lie in.
    fn for_start(outgoing: B) -> Result<Self, TryReserveError> {
        Self::allocate(outgoing, Sizes { reads: 0, held: 0, payload: 0 }, 0, 0)
    }

    fn allocate(outgoing: B, sizes: Sizes, held_parts: usize, assembly: usize) -> Result<Self, TryReserveError> {
        Ok(Self {
            ring: SendRing::new(outgoing, TERMINATE),
            reader: FrameReader::allocate(assembly)?,
            hold: Hold::try_new(held_parts, sizes.held)?,
            reads: Fifo::try_new(sizes.reads.into())?,
            answers: Fifo::try_new(slots(sizes.reads) as usize)?,
            sizes,
        })
    }
}

/// Bytes of the longest Terminate.
const TERMINATE: usize = frame::length(segment::UNTAGGED_HEADER + terminate::MOST);

/// Segments that are held; more only where they are short.
const HELD_PARTS: usize = 64;

/// Frames that one call of [`Stream::receive`] takes: a frame of no bytes costs time, too.
pub const MOST_FRAMES: usize = 64;

/// See the module.
pub struct Stream<B> {
    state: State,
    start: StartReader,
    reader: FrameReader,
    inbound: Inbound,
    outbound: Outbound,
    ring: SendRing<B>,
    hold: Hold,
    agreement: Agreement,
    /// What this side has asked for, to compare the Reply with.
    asked: Option<(ReadLimits, StartFlags)>,
    /// Reads of this side, the oldest in front; a ready-to-receive one is not the owner's.
    reads: Fifo<OpenRead>,
    ready_read: bool,
    /// The peer's, if it is a Write, is not the owner's either.
    ready_write: bool,
    /// The peer's, and the bytes of the oldest that have been sent.
    answers: Fifo<ReadRequest>,
    answered: u32,
    sending: Option<Sender>,
    /// The sink of the next Read.
    next_sink: u32,
    sizes: Sizes,
    /// Frames that have been taken, modulo 2³².
    frames: u32,
}

/// The slots for so many Reads of a peer: siw takes the next power of two for its own limit.
fn slots(reads: u16) -> u32 {
    u32::from(reads).next_power_of_two()
}

const NOTHING_AGREED: Agreement = Agreement { crc: true, limits: ReadLimits { inbound: 0, outbound: 0 }, ready: None };

impl<B: AsRef<[u8]> + AsMut<[u8]>> Stream<B> {
    fn try_new(state: State, memory: Memory<B>) -> Result<Self, TryReserveError> {
        let kind = if state == State::Listening { StartKind::Request } else { StartKind::Reply };
        let Memory { ring, reader, hold, reads, answers, sizes } = memory;
        Ok(Self {
            state,
            start: StartReader::try_new(kind)?,
            reader,
            inbound: Inbound::new(0),
            outbound: Outbound::new(sizes.payload),
            ring,
            hold,
            agreement: NOTHING_AGREED,
            asked: None,
            reads,
            ready_read: false,
            ready_write: false,
            answers,
            answered: 0,
            sending: None,
            next_sink: 1,
            sizes,
            frames: 0,
        })
    }

    /// Replaces what holds start-up frames, before anything is built in it.
    fn take_memory(&mut self, memory: Memory<B>) {
        let Memory { ring, reader, hold, reads, answers, sizes } = memory;
        self.outbound = Outbound::new(sizes.payload);
        (self.ring, self.reader, self.hold, self.reads) = (ring, reader, hold, reads);
        (self.answers, self.sizes) = (answers, sizes);
    }

    /// The start-up frame of the peer, once it is there.
    pub fn peer_frame(&mut self) -> Option<StartFrame<'_>> {
        self.start.read(&mut &[][..]).ok().flatten()
    }

    /// What holds, from an acceptance on.
    #[must_use]
    pub const fn agreement(&self) -> Agreement {
        self.agreement
    }

    /// Whether this side may send frames.
    #[must_use]
    pub fn may_send(&self) -> bool {
        self.state == State::Open
    }

    /// Whether what comes is not read now, before the consumer has gone on.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        matches!(self.state, State::Asked | State::Replied)
    }

    /// Why the stream has ended, if it has.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        if let State::Ended(end) = self.state { Some(end) } else { None }
    }

    /// Whether the last byte that came is not the last of a frame.
    #[must_use]
    pub const fn is_inside_frame(&self) -> bool {
        self.reader.is_inside_frame()
    }

    /// Whether Sends wait here for a receive.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        !self.hold.is_empty()
    }

    /// Whether Reads of the peer have not been answered.
    #[must_use]
    pub fn is_answering(&self) -> bool {
        !self.answers.is_empty()
    }

    /// How many frames have been taken so far, modulo 2³².
    #[must_use]
    pub const fn frames_taken(&self) -> u32 {
        self.frames
    }

    /// The bytes for the system, to be handed over and done with.
    pub fn outgoing(&mut self) -> &mut SendRing<B> {
        &mut self.ring
    }

    /// Takes received bytes off `input`, until something has happened. To be called again until all are used up; with none, when a
    /// receive was posted.
    pub fn receive(&mut self, input: &mut &[u8], owner: &mut impl Owner) -> Event {
        match self.state {
            State::Listening => self.request(input),
            // The initiator sends nothing before the Reply.
            State::Asked if !input.is_empty() => self.ended(End::Start(StartFault::Early)),
            State::Requesting => self.reply(input),
            State::Asked | State::Replied => Event::Paused,
            State::Answered | State::Open => self.frames(input, owner),
            State::Ended(end) => Event::Ended(end),
        }
    }

    fn ended(&mut self, end: End) -> Event {
        self.state = State::Ended(end);
        Event::Ended(end)
    }
}
