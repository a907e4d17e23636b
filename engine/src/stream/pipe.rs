//! Connections of TCP in memory, for tests: bytes in any cut, late, with a window that fills, ends and resets.
//!
//! It stands for the system's TCP, and for nothing of ours. Rules: bytes arrive in order and a reset overtakes them; sending
//! allocates nothing; a socket links its stream when something has arrived, and when a full window has space again.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Deref;

use fastrand::Rng;
use softndk_cells::{Dispose, NoMemory, Shared, View};

use super::StreamObject;
use crate::adapter::adapter::{AdapterObject, Travel};
use crate::error::ConnectError;
use crate::object::event::ServicePass;
use crate::object::header::{AnyObject, Core, Object};
use crate::object::run_queue::Lane;
use crate::object::scheduler::Scheduler;
use crate::object::timer::Timer;
use crate::platform::{Lock, Platform};

/// Pieces under way in one direction, and bytes of one.
const PIECES: usize = 24;
const PIECE: usize = 2048;

/// Bytes that have been received in one piece.
pub(crate) struct Bytes(Vec<u8>);

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// What there is to be received.
pub(crate) enum Arrived {
    Bytes(Bytes),
    Nothing,
    /// The peer has sent its last.
    Finished,
    Reset,
}

/// One end of a pipe.
pub(crate) struct Socket<P: Platform> {
    pipe: Shared<Pipe<P>>,
    end: usize,
}

/// See the module.
struct Pipe<P: Platform> {
    scheduler: Scheduler<P>,
    timer: Timer<P>,
    state: P::Lock<PipeState<P>>,
}

struct PipeState<P: Platform> {
    /// What goes to each end.
    flows: [Flow; 2],
    streams: [Option<Shared<StreamObject<P>>>; 2],
    /// Why it was never made.
    refusal: ConnectError,
    travel: Travel,
    random: Rng,
}

/// What goes to one end.
struct Flow {
    pieces: VecDeque<(u64, Vec<u8>)>,
    free: Vec<Vec<u8>>,
    /// When what was sent last arrives.
    last: u64,
    finish: Option<u64>,
    reset: Option<u64>,
    /// The sender has found the window full.
    is_awaited: bool,
    /// The receiver has seen the end, and that it is a reset.
    has_ended: bool,
    was_reset: bool,
}

impl Flow {
    fn try_new() -> Result<Self, NoMemory> {
        let (mut pieces, mut free) = (VecDeque::new(), Vec::new());
        pieces.try_reserve_exact(PIECES)?;
        free.try_reserve_exact(PIECES)?;
        for _ in 0..PIECES {
            let mut piece = Vec::new();
            piece.try_reserve_exact(PIECE)?;
            free.push(piece);
        }
        Ok(Self {
            pieces,
            free,
            last: 0,
            finish: None,
            reset: None,
            is_awaited: false,
            has_ended: false,
            was_reset: false,
        })
    }

    /// When the next thing arrives.
    fn next(&self) -> Option<u64> {
        let first = self.pieces.front().map(|(due, _)| *due).or(self.finish).filter(|_| !self.has_ended);
        [first, self.reset.filter(|_| !self.was_reset)].into_iter().flatten().min()
    }

    /// Whether the sender has ended it.
    const fn is_closed(&self) -> bool {
        self.finish.is_some() || self.reset.is_some()
    }
}

impl<P: Platform> PipeState<P> {
    /// When something that goes now arrives.
    fn due(&mut self, now: u64) -> u64 {
        let is_quick = matches!(self.travel, Travel::UpTo(_)) && self.random.u8(..3) == 0;
        now.saturating_add(if is_quick { 0 } else { self.travel.take(&mut self.random) })
    }

    /// A piece of what is sent: in most cases all of it, in some a few bytes.
    fn cut(&mut self, length: usize) -> usize {
        let most = length.min(PIECE);
        if most > 1 && self.random.u8(..4) == 0 { self.random.usize(1..most.min(64)) } else { most }
    }
}

/// A connection of TCP between two streams of an adapter whose peers are across streams.
pub(crate) fn connect<P: Platform>(adapter: &AdapterObject<P>) -> Result<[Socket<P>; 2], NoMemory> {
    let scheduler = &adapter.scheduler;
    let number = scheduler.next_object();
    let state = PipeState {
        flows: [Flow::try_new()?, Flow::try_new()?],
        streams: [None, None],
        refusal: ConnectError::Refused,
        travel: adapter.streams.unwrap_or_default(),
        random: Rng::with_seed(number),
    };
    // Not always on the processor of the consumer.
    let timer = Timer::try_new(scheduler, number as u32)?;
    let pipe = Shared::try_new(Pipe { scheduler: scheduler.clone(), timer, state: P::Lock::new(state) })?;
    Ok([0, 1].map(|end| Socket { pipe: pipe.clone(), end }))
}

impl<P: Platform> Pipe<P> {
    /// Changes the state, has ends that something has arrived at look, and sets the timer for the next thing.
    fn change<R>(pipe: &Shared<Self>, change: impl FnOnce(&mut PipeState<P>, u64) -> R) -> R {
        let now = pipe.scheduler.platform().now();
        let (result, streams, next) = pipe.state.with(|state| {
            let result = change(state, now);
            let PipeState { flows, streams, .. } = state;
            let mut arrived = [None, None];
            for ((flow, stream), arrived) in flows.iter().zip(&*streams).zip(&mut arrived) {
                if flow.next().is_some_and(|due| due <= now) {
                    arrived.clone_from(stream);
                }
            }
            let next = flows.iter().filter_map(Flow::next).filter(|due| *due > now).min();
            (result, arrived, next)
        });
        for stream in streams.into_iter().flatten() {
            pipe.scheduler.link(&Object::of(&stream));
        }
        if let Some(next) = next {
            pipe.timer.set(&Object::of(pipe), next);
        }
        result
    }
}

impl<P: Platform> Socket<P> {
    const fn other(&self) -> usize {
        1 - self.end
    }

    /// Has the stream linked from now on.
    pub(super) fn attach(&self, stream: &Shared<StreamObject<P>>) {
        let before = self.pipe.state.with(|state| state.streams.get_mut(self.end)?.replace(stream.clone()));
        drop(before);
    }

    /// Sends as many of these bytes as there is space for.
    pub(super) fn send(&self, bytes: &[u8]) -> usize {
        let other = self.other();
        Pipe::change(&self.pipe, |state, now| {
            let mut sent = 0;
            while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
                let (cut, due) = (state.cut(rest.len()), state.due(now));
                let Some(flow) = state.flows.get_mut(other) else { break };
                if flow.is_closed() || flow.has_ended {
                    // As TCP has it: nothing says that they are not taken.
                    return bytes.len();
                }
                let Some(mut piece) = flow.free.pop() else {
                    flow.is_awaited = true;
                    break;
                };
                piece.extend(rest.iter().take(cut));
                sent += piece.len();
                flow.last = flow.last.max(due);
                flow.pieces.push_back((flow.last, piece));
            }
            sent
        })
    }

    /// The next bytes that have arrived.
    pub(super) fn receive(&self) -> Arrived {
        Pipe::change(&self.pipe, |state, now| {
            let Some(flow) = state.flows.get_mut(self.end) else { return Arrived::Reset };
            if flow.reset.is_some_and(|due| due <= now) {
                (flow.has_ended, flow.was_reset) = (true, true);
                while let Some((_, mut piece)) = flow.pieces.pop_front() {
                    piece.clear();
                    flow.free.push(piece);
                }
                return Arrived::Reset;
            }
            if let Some((due, _)) = flow.pieces.front() {
                return if *due <= now {
                    flow.pieces.pop_front().map_or(Arrived::Nothing, |(_, piece)| Arrived::Bytes(Bytes(piece)))
                } else {
                    Arrived::Nothing
                };
            }
            if flow.finish.is_some_and(|due| due <= now) {
                flow.has_ended = true;
                return Arrived::Finished;
            }
            Arrived::Nothing
        })
    }

    /// Bytes that are not needed any more.
    pub(super) fn release(&self, bytes: Bytes) {
        let Bytes(mut piece) = bytes;
        piece.clear();
        let (end, other) = (self.end, self.other());
        let sender = self.pipe.state.with(|state| {
            let flow = state.flows.get_mut(end)?;
            flow.free.push(piece);
            let awaited = core::mem::take(&mut flow.is_awaited);
            state.streams.get(other)?.clone().filter(|_| awaited)
        });
        if let Some(sender) = sender {
            self.pipe.scheduler.link(&Object::of(&sender));
        }
    }

    /// Sends the end.
    pub(super) fn finish(&self) {
        let other = self.other();
        Pipe::change(&self.pipe, |state, now| {
            let due = state.due(now);
            let Some(flow) = state.flows.get_mut(other).filter(|flow| !flow.is_closed()) else { return };
            flow.last = flow.last.max(due);
            flow.finish = Some(flow.last);
        });
    }

    /// The connection is not made.
    pub(super) fn refuse(&self, error: ConnectError) {
        self.pipe.state.with(|state| state.refusal = error);
        self.abort();
    }

    /// Why it was not made.
    pub(super) fn refusal(&self) -> ConnectError {
        self.pipe.state.with(|state| state.refusal)
    }

    /// Breaks the connection.
    pub(crate) fn abort(&self) {
        let (end, other) = (self.end, self.other());
        Pipe::change(&self.pipe, |state, now| {
            let due = state.due(now);
            if let Some(flow) = state.flows.get_mut(end) {
                flow.reset.get_or_insert(now);
                (flow.has_ended, flow.was_reset) = (true, true);
            }
            if let Some(flow) = state.flows.get_mut(other) {
                flow.reset.get_or_insert(due);
            }
        });
    }

    /// Whether both directions have ended, as this end knows.
    pub(super) fn is_over(&self) -> bool {
        let (end, other) = (self.end, self.other());
        self.pipe.state.with(|state| {
            let incoming = state.flows.get(end).is_none_or(|flow| flow.has_ended);
            let was_reset = state.flows.get(end).is_none_or(|flow| flow.was_reset);
            let outgoing = state.flows.get(other).is_none_or(Flow::is_closed);
            incoming && (outgoing || was_reset)
        })
    }

    /// Links nothing any more.
    pub(super) fn close(&self) {
        let stream = self.pipe.state.with(|state| state.streams.get_mut(self.end)?.take());
        drop(stream);
    }
}

impl<P: Platform> Dispose for Pipe<P> {}

impl<P: Platform> View for Pipe<P> {
    type As = dyn AnyObject<P>;

    fn view(object: &Shared<Self>) -> &Self::As {
        object
    }
}

impl<P: Platform> AnyObject<P> for Shared<Pipe<P>> {
    fn core(&self) -> Option<&Core<P>> {
        None
    }

    fn lane(&self) -> Lane {
        Lane::Requests
    }

    fn service_requests(&self, _processor: u32, _bytes: &mut u64) {
        Pipe::change(self, |_, _| {});
    }

    fn work(&self, _pass: &mut ServicePass<'_, P>) {
        Pipe::change(self, |_, _| {});
    }
}
