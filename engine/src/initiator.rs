//! Processing of the initiator queue: each request in its turn, to its one completion.
//!
//! What it is: the state of the request at the front and the steps that bring it forward, run by one context at a time. What it
//! is not: a lock holder; the queue pair's own processing takes no lock while it copies, and the peer is reached through the
//! [`Wire`] only.
//!
//! Rules: requests are processed and completed in the order they were posted, so a read fence is always satisfied; a request
//! that fails carries its cause, ends the connection, and everything after it is cancelled; completions are entered in batches,
//! a sender's before the receiver's, so that an answer never overtakes them; a step stays inside the epoch for at most one piece
//! of copying; an invalidation completes only when nobody inside can have seen the region.

use alloc::vec::Vec;

use softndk_cells::ring::Receiver;
use softndk_cells::{Guard, Shared, Stamp};

use crate::access::{Accessor, Denied};
use crate::cause::Outcome;
use crate::completion_queue::{self, Completion};
use crate::flags::{Operation, RequestFlags, Rights};
use crate::life::Object;
use crate::limits::{BATCH, REQUEST_COST, STEP_REQUESTS};
use crate::loopback::Loopback;
use crate::platform::{Lock, Platform};
use crate::queue_pair::{End, QueuePairObject, Request, settle_end};
use crate::receive_queue::Receive;
use crate::statistics::Traffic;
use crate::token::{Element, MemoryToken};
use crate::transfer::{CHUNK, Elements, Fault, List, Queued};
use crate::wire::{Begun, Delivery, Refused, Wire};

/// What is known about the request at the front.
enum Phase {
    /// Not looked at yet.
    Fresh,
    /// Checked, and this many bytes moved.
    Moving(u64),
    /// Moved; the access to a region has been taken away and its readers have to leave.
    Leaving(Stamp),
}

/// The processing state of a queue pair; see the module.
pub(crate) struct Initiator<P: Platform> {
    requests: Receiver<Request<P>>,
    elements: Receiver<Element>,
    chunks: Receiver<[u8; CHUNK]>,
    phase: Phase,
    /// The other end, once known.
    far: Option<Shared<QueuePairObject<P>>>,
    /// The receive that the message at the front goes into, and its elements.
    receive: Option<Receive>,
    /// Receives of the peer are marked as being filled by us.
    occupied: bool,
    scratch: Vec<Element>,
    done: Batch,
    filled: Batch,
    outgoing: Traffic,
    incoming: Traffic,
}

/// The queue pair, the other end if there is one, and the epoch this context is in.
struct Ends<'a, P: Platform> {
    pair: &'a Shared<QueuePairObject<P>>,
    far: Option<&'a Shared<QueuePairObject<P>>>,
    guard: &'a Guard<'a>,
}

/// The same with the other end known.
struct Both<'a, P: Platform> {
    pair: &'a Shared<QueuePairObject<P>>,
    far: &'a Shared<QueuePairObject<P>>,
    guard: &'a Guard<'a>,
}

impl<'a, P: Platform> Both<'a, P> {
    /// Access to this end's memory.
    fn here(&self) -> Accessor<'a, P> {
        Accessor { fabric: &self.pair.core.fabric, guard: self.guard, domain: self.pair.domain.number }
    }
}

impl<P: Platform> Clone for Ends<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for Ends<'_, P> {}

impl<P: Platform> Clone for Both<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for Both<'_, P> {}

/// Completions gathered for one queue.
struct Batch {
    entries: [Completion; BATCH],
    count: usize,
}

impl Batch {
    const fn new() -> Self {
        const EMPTY: Completion = Completion {
            context: 0,
            queue_pair_context: 0,
            outcome: Outcome::Success,
            operation: Operation::Receive,
            solicited: false,
            bytes: 0,
            output: MemoryToken::NONE,
        };
        Self { entries: [EMPTY; BATCH], count: 0 }
    }

    fn is_full(&self) -> bool {
        self.count == BATCH
    }

    /// The caller has looked whether there is room.
    fn push(&mut self, completion: Completion) {
        if let Some(place) = self.entries.get_mut(self.count) {
            *place = completion;
            self.count += 1;
        }
    }

    fn entries_mut(&mut self) -> &mut [Completion] {
        self.entries.get_mut(..self.count).unwrap_or_default()
    }

    fn entries(&self) -> &[Completion] {
        self.entries.get(..self.count).unwrap_or_default()
    }
}

/// How far a step came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stepped {
    /// Nothing is left to do here, after this much (as for `More`): empty, waiting for somebody who will link the queue pair, or
    /// in other hands.
    Rest(u64),
    /// The bounds of a step were reached after this much, in bytes; a request costs at least [`REQUEST_COST`].
    More(u64),
}

/// Why a run stopped.
enum Stop {
    Bounds,
    Empty,
    NoReceive,
    Epoch(Stamp),
}

/// What happened to the request at the front.
enum Progress {
    Completed,
    Moved(u64),
    NoReceive,
    /// After this many bytes.
    Epoch(Stamp, u64),
}

impl<P: Platform> Initiator<P> {
    pub(crate) fn new(
        requests: Receiver<Request<P>>,
        elements: Receiver<Element>,
        chunks: Receiver<[u8; CHUNK]>,
        scratch: Vec<Element>,
    ) -> Self {
        Self {
            requests,
            elements,
            chunks,
            phase: Phase::Fresh,
            far: None,
            receive: None,
            occupied: false,
            scratch,
            done: Batch::new(),
            filled: Batch::new(),
            outgoing: Traffic::default(),
            incoming: Traffic::default(),
        }
    }

    /// Brings requests forward until a bound is reached or something has to be waited for.
    fn run(&mut self, pair: &Shared<QueuePairObject<P>>, guard: &Guard<'_>, most: u64) -> (u64, Stop) {
        // The pointer is moved and not counted: nothing per request touches the peer's count.
        let far = self.far.take().or_else(|| pair.bond.with(|bond| bond.far.clone()));
        let answer = self.run_with(Ends { pair, far: far.as_ref(), guard }, most);
        self.commit(pair, far.as_ref());
        self.far = far;
        answer
    }

    fn run_with(&mut self, ends: Ends<'_, P>, most: u64) -> (u64, Stop) {
        let mut bytes = 0_u64;
        for _ in 0..STEP_REQUESTS {
            if self.requests.is_empty() {
                return (bytes, Stop::Empty);
            }
            if self.done.is_full() || self.filled.is_full() {
                self.commit(ends.pair, ends.far);
            }
            match self.advance(ends, most.saturating_sub(bytes).max(1)) {
                Progress::Completed => bytes = bytes.saturating_add(REQUEST_COST),
                Progress::Moved(moved) => bytes = bytes.saturating_add(moved.max(REQUEST_COST)),
                Progress::NoReceive if self.filled.count > 0 => self.commit(ends.pair, ends.far),
                Progress::NoReceive => return (bytes, Stop::NoReceive),
                Progress::Epoch(stamp, moved) => return (bytes.saturating_add(moved), Stop::Epoch(stamp)),
            }
            if bytes >= most {
                break;
            }
        }
        (bytes, Stop::Bounds)
    }

    /// One thing done to the request at the front.
    fn advance(&mut self, ends: Ends<'_, P>, most: u64) -> Progress {
        // A request whose access has been taken away already is finished; only its readers have to leave.
        let goes_on = matches!(self.phase, Phase::Leaving(_)) || !ends.pair.is_ended();
        let Some(far) = ends.far.filter(|_| goes_on) else {
            return self.complete(ends.pair, Outcome::Cancelled);
        };
        let ends = Both { pair: ends.pair, far, guard: ends.guard };
        let Some(request) = self.requests.front() else { return Progress::Completed };
        match request.operation {
            Operation::Send | Operation::SendAndInvalidate => self.advance_send(ends, most),
            Operation::Read | Operation::Write => self.advance_remote(ends, most),
            Operation::FastRegister => self.fast_register(ends.pair),
            Operation::Invalidate => self.invalidate(ends),
            Operation::Receive | Operation::ReceiveAndInvalidate => self.complete(ends.pair, Outcome::InvalidRequest),
        }
    }

    /// Read and Write: check once, move piece by piece, invalidate if asked, complete.
    fn advance_remote(&mut self, ends: Both<'_, P>, most: u64) -> Progress {
        let pair = ends.pair;
        if let Phase::Leaving(stamp) = self.phase {
            return self.left(ends, stamp);
        }
        let Some(request) = self.requests.peek(self.requests.position()) else { return Progress::Completed };
        let (length, read) = (request.length, request.operation == Operation::Read);
        let at = match self.phase {
            Phase::Moving(at) => at,
            _ => 0,
        };
        let until = length.min(at.saturating_add(most));
        if length > 0 {
            match self.move_remote(ends, request, at..until) {
                Ok(()) => {}
                Err(Refused::Local) => return self.fail(pair, Outcome::LocalAccess),
                Err(Refused::Remote) => return self.fail(pair, pair.domain.opening.semantics.remote_access),
            }
        }
        if read {
            self.incoming.add(until - at);
        } else {
            self.outgoing.add(until - at);
        }
        if until < length {
            self.phase = Phase::Moving(until);
            return Progress::Moved(until - at);
        }
        if request_flags(&self.requests).contains(RequestFlags::LOCAL_INVALIDATE) {
            return self.invalidate_sink(ends, until - at);
        }
        self.complete(pair, Outcome::Success);
        Progress::Moved(until - at)
    }

    fn move_remote(
        &self,
        ends: Both<'_, P>,
        request: &Request<P>,
        range: core::ops::Range<u64>,
    ) -> Result<(), Refused> {
        let (here, far) = (ends.here(), ends.far);
        let read = request.operation == Operation::Read;
        let needed = if read { Rights::LOCAL_WRITE } else { Rights::empty() };
        if request.flags.contains(RequestFlags::INLINE) {
            return Loopback::write_inline(far, here, request, &self.chunks);
        }
        let elements = Queued::of(request, &self.elements);
        let mut local = List::new(here, elements, needed);
        if range.start == 0 {
            local.check().map_err(|Denied| Refused::Local)?;
        }
        if read {
            Loopback::read(far, here, request, &mut local, range)
        } else {
            Loopback::write(far, here, request, &mut local, range)
        }
    }

    /// Read with local invalidate: takes the access to the first element's region away before the completion.
    fn invalidate_sink(&mut self, ends: Both<'_, P>, moved: u64) -> Progress {
        let (here, pair) = (ends.here(), ends.pair);
        let request = self.requests.peek(self.requests.position());
        let first = request.and_then(|request| Queued::of(request, &self.elements).element(0));
        let token = first.map(|element| element.token);
        let stamp = token.and_then(|token| here.fast(token).ok()).and_then(|fast| fast.editions.withdraw());
        match stamp {
            Some(stamp) => {
                self.phase = Phase::Leaving(stamp);
                Progress::Epoch(stamp, moved)
            }
            None => self.fail(pair, Outcome::InvalidRequest),
        }
    }

    /// Send: find a receive, check once, move piece by piece, invalidate if asked, complete both sides.
    fn advance_send(&mut self, ends: Both<'_, P>, most: u64) -> Progress {
        if let Phase::Leaving(stamp) = self.phase {
            return self.left(ends, stamp);
        }
        if let Phase::Fresh = self.phase {
            match self.begin_send(ends) {
                Ok(true) => self.phase = Phase::Moving(0),
                Ok(false) => return Progress::NoReceive,
                Err(progress) => return progress,
            }
        }
        let Phase::Moving(at) = self.phase else { return Progress::Completed };
        let Some(request) = self.requests.peek(self.requests.position()) else { return Progress::Completed };
        let length = request.length;
        let inline = request.flags.contains(RequestFlags::INLINE);
        // Inline data is short and goes in one piece.
        let until = if inline { length } else { length.min(at.saturating_add(most)) };
        match self.move_send(ends, request, at..until) {
            Ok(()) => {}
            Err(Fault::Source) => return self.fail(ends.pair, Outcome::LocalAccess),
            Err(Fault::Sink) => return self.receiver_failed(ends, Outcome::LocalAccess),
        }
        self.outgoing.add(until - at);
        if until < length {
            self.phase = Phase::Moving(until);
            return Progress::Moved(until - at);
        }
        self.end_send(ends, until - at)
    }

    /// Finds and checks everything a message needs before its first byte moves; `Ok(false)` when there is no receive.
    fn begin_send(&mut self, ends: Both<'_, P>) -> Result<bool, Progress> {
        let (here, pair, far) = (ends.here(), ends.pair, ends.far);
        let Some(request) = self.requests.peek(self.requests.position()) else { return Ok(false) };
        let (length, token) = (request.length, request.token);
        let invalidates = (request.operation == Operation::SendAndInvalidate).then_some(token);
        if !request.flags.contains(RequestFlags::INLINE) && length > 0 {
            let elements = Queued::of(request, &self.elements);
            if List::new(here, elements, Rights::empty()).check().is_err() {
                return Err(self.fail(pair, Outcome::LocalAccess));
            }
        }
        let delivery = Delivery { length, invalidates, filled: self.filled.count };
        match Loopback::begin_send(pair, far, here, delivery, &mut self.scratch) {
            Begun::NoReceive => Ok(false),
            Begun::UnknownToken => {
                Loopback::break_off(far);
                Err(self.fail(pair, Outcome::RemoteError))
            }
            Begun::Found(receive) => {
                self.occupy(receive);
                Ok(true)
            }
            Begun::Failed(receive, outcome) => {
                self.occupy(receive);
                Err(self.receiver_failed(ends, outcome))
            }
        }
    }

    fn occupy(&mut self, receive: Receive) {
        self.receive = Some(receive);
        self.occupied = true;
    }

    fn move_send(&self, ends: Both<'_, P>, request: &Request<P>, range: core::ops::Range<u64>) -> Result<(), Fault> {
        let here = ends.here();
        if request.flags.contains(RequestFlags::INLINE) {
            return Loopback::send_inline(ends.far, here, &self.scratch, (&self.chunks, request.first), request.length);
        }
        let elements = Queued::of(request, &self.elements);
        let mut source = List::new(here, elements, Rights::empty());
        Loopback::send(ends.far, here, &self.scratch, &mut source, range, request.length)
    }

    fn end_send(&mut self, ends: Both<'_, P>, moved: u64) -> Progress {
        let (pair, far) = (ends.pair, ends.far);
        let Some(request) = self.requests.peek(self.requests.position()) else { return Progress::Completed };
        if request.operation == Operation::SendAndInvalidate {
            let Some(stamp) = Loopback::invalidate(far, ends.here(), request.token) else {
                self.receive = None;
                Loopback::break_off(far);
                return self.fail(pair, Outcome::RemoteError);
            };
            self.phase = Phase::Leaving(stamp);
            return Progress::Epoch(stamp, moved);
        }
        self.fill(Outcome::Success);
        self.complete(pair, Outcome::Success);
        Progress::Moved(moved)
    }

    /// Notes the completion of the receive that the message at the front went into.
    fn fill(&mut self, outcome: Outcome) {
        let Some(receive) = self.receive.take() else { return };
        let Some(request) = self.requests.peek(self.requests.position()) else { return };
        let invalidated = request.operation == Operation::SendAndInvalidate && outcome == Outcome::Success;
        self.filled.push(Completion {
            context: receive.context,
            // Known at the other end.
            queue_pair_context: 0,
            outcome,
            operation: if invalidated { Operation::ReceiveAndInvalidate } else { Operation::Receive },
            solicited: request.flags.contains(RequestFlags::SOLICIT),
            bytes: if outcome == Outcome::Success { request.length as u32 } else { 0 },
            output: if invalidated { request.token } else { MemoryToken::NONE },
        });
    }

    /// The receive at the other end failed: both ends are done for.
    fn receiver_failed(&mut self, ends: Both<'_, P>, outcome: Outcome) -> Progress {
        let pair = ends.pair;
        self.fill(outcome);
        Loopback::break_off(ends.far);
        let semantics = &pair.domain.opening.semantics;
        match outcome {
            Outcome::ReceiveTooSmall => self.fail(pair, semantics.receiver_too_small),
            _ => self.fail(pair, Outcome::RemoteError),
        }
    }

    /// Access was taken away; completes the request when every reader has left.
    fn left(&mut self, ends: Both<'_, P>, stamp: Stamp) -> Progress {
        let pair = ends.pair;
        if !pair.core.fabric.0.epoch.passed(stamp) {
            return Progress::Epoch(stamp, 0);
        }
        self.fill(Outcome::Success);
        if let Some(fast) = self.requests.front().and_then(|request| request.fast.as_ref()) {
            fast.editions.reclaim();
        }
        self.complete(pair, Outcome::Success)
    }

    fn fast_register(&mut self, pair: &Shared<QueuePairObject<P>>) -> Progress {
        let Some(request) = self.requests.front() else { return Progress::Completed };
        let (Some(fast), Some(ready)) = (request.fast.as_ref(), request.ready.take()) else {
            return self.fail(pair, Outcome::InvalidRequest);
        };
        match fast.editions.publish(ready) {
            Ok(()) => self.complete(pair, Outcome::Success),
            Err(ready) => {
                fast.editions.discard(ready);
                self.fail(pair, Outcome::InvalidRequest)
            }
        }
    }

    fn invalidate(&mut self, ends: Both<'_, P>) -> Progress {
        let pair = ends.pair;
        if let Phase::Leaving(stamp) = self.phase {
            return self.left(ends, stamp);
        }
        let fast = self.requests.front().and_then(|request| request.fast.as_ref());
        match fast.and_then(|fast| fast.editions.withdraw()) {
            Some(stamp) => {
                self.phase = Phase::Leaving(stamp);
                Progress::Epoch(stamp, 0)
            }
            None => self.fail(pair, Outcome::InvalidRequest),
        }
    }

    /// Completes the request at the front and ends the connection, unless the outcome is a success after all.
    fn fail(&mut self, pair: &Shared<QueuePairObject<P>>, outcome: Outcome) -> Progress {
        let progress = self.complete(pair, outcome);
        pair.fail();
        progress
    }

    /// Notes the completion of the request at the front, once, and takes it off the queue.
    fn complete(&mut self, pair: &QueuePairObject<P>, outcome: Outcome) -> Progress {
        self.phase = Phase::Fresh;
        self.receive = None;
        // The request leaves last: whoever sees its room finds room for elements and inline data as well.
        if let Some(request) = self.requests.peek(self.requests.position()) {
            if request.count > 1 {
                self.elements.skip(request.count);
            }
            if request.flags.contains(RequestFlags::INLINE) {
                self.chunks.skip((request.length as usize).div_ceil(CHUNK));
            }
        }
        let Some(request) = self.requests.pop() else { return Progress::Completed };
        if let (Some(fast), Some(ready)) = (&request.fast, request.ready) {
            fast.editions.discard(ready);
        }
        if outcome != Outcome::Success || !request.flags.contains(RequestFlags::SILENT_SUCCESS) {
            self.done.push(Completion {
                context: request.context,
                queue_pair_context: pair.context,
                outcome,
                operation: match request.operation {
                    Operation::SendAndInvalidate => Operation::Send,
                    other => other,
                },
                ..Completion::default()
            });
        }
        Progress::Completed
    }

    /// Enters the gathered completions: ours first, so that an answer of the peer never comes before them.
    fn commit(&mut self, pair: &Shared<QueuePairObject<P>>, far: Option<&Shared<QueuePairObject<P>>>) {
        let entered = completion_queue::enter(&pair.initiator_queue, self.done.entries());
        self.done.count = 0;
        if let Some(far) = far {
            if self.occupied {
                self.occupied = self.receive.is_some();
                Loopback::end_sends(far, self.filled.entries_mut(), self.occupied);
            }
            self.count_traffic(pair, far);
        }
        self.filled.count = 0;
        if !entered {
            pair.fail();
        }
    }

    fn count_traffic(&mut self, pair: &QueuePairObject<P>, far: &Shared<QueuePairObject<P>>) {
        let (outgoing, incoming) = (core::mem::take(&mut self.outgoing), core::mem::take(&mut self.incoming));
        pair.meter.count_own(outgoing, incoming);
        Loopback::count(far, incoming, outgoing);
    }

    /// Lets the other end go; called when nothing is left to send.
    fn forget_far(&mut self) {
        self.far = None;
    }
}

fn request_flags<P: Platform>(requests: &Receiver<Request<P>>) -> RequestFlags {
    requests.peek(requests.position()).map_or(RequestFlags::empty(), |request| request.flags)
}

/// Processes one piece of the initiator queue, unless another context does.
pub(crate) fn step<P: Platform>(pair: &Shared<QueuePairObject<P>>, most: u64) -> Stepped {
    pair.core.fabric.0.platform.uninterrupted(|| step_inside(pair, most))
}

fn step_inside<P: Platform>(pair: &Shared<QueuePairObject<P>>, most: u64) -> Stepped {
    let fabric = &pair.core.fabric;
    let Some(mut held) = pair.work.raise() else { return Stepped::Rest(0) };
    let mut bytes = 0_u64;
    for _ in 0..STEP_REQUESTS {
        let Some(guard) = fabric.enter() else { break };
        let (moved, stop) = held.run(pair, &guard, most.saturating_sub(bytes));
        fabric.leave(guard);
        bytes = bytes.saturating_add(moved);
        match stop {
            Stop::Bounds => return Stepped::More(bytes),
            Stop::Epoch(stamp) if fabric.0.epoch.passed(stamp) => continue,
            Stop::Epoch(stamp) => fabric.park(&Object::QueuePair(pair.clone()), stamp),
            Stop::Empty if pair.is_ended() => {
                held.forget_far();
                settle_end(pair);
            }
            Stop::Empty | Stop::NoReceive => {}
        }
        match held.finish() {
            Some(again) => held = again,
            None => return Stepped::Rest(bytes),
        }
    }
    // Too many rounds, or too many contexts inside the epoch. The baton goes down first: whoever finds it held goes away.
    drop(held);
    fabric.link(&Object::QueuePair(pair.clone()));
    Stepped::Rest(bytes)
}
