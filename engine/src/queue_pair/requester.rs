//! The requester: processes each request of the initiator queue in order, to its one completion.
//!
//! This is the state of the request at the front and the steps that bring it forward, run by one context at a time. It takes no
//! lock while it copies, and reaches the peer through the [`Wire`] only.
//!
//! Rules: requests are processed and completed in the order they were posted, so a read fence is always satisfied; a request
//! that fails carries its error, ends the connection, and everything after it is cancelled; completions are entered in batches,
//! a sender's before the receiver's, so that an answer never overtakes them; a step stays inside the epoch for at most one
//! piece of copying; an invalidation completes only when no context inside can have seen the region.

use alloc::vec::Vec;

use softndk_cells::ring::Receiver;
use softndk_cells::{Guard, NoMemory, Shared, SlotKey, Stamp};

use crate::capacity::push_within_capacity;
use crate::completion::completion_queue::{self, Completion};
use crate::counters::Traffic;
use crate::error::Outcome;
use crate::flags::{Operation, RequestFlags, Rights};
use crate::limits::{BATCH, RECEIVE_SGES, REQUEST_COST, STEP_REQUESTS};
use crate::memory::access::{Accessor, Denied};
use crate::memory::memory_region::Edges;
use crate::memory::memory_window::{self, Binding, NotBound};
use crate::memory::transfer::{CHUNK, Fault, List, Sges};
use crate::object::header::Object;
use crate::platform::{Lock, Platform};
use crate::queue_pair::loopback::Loopback;
use crate::queue_pair::pair::{self as queue_pair, End, QueuePairObject, Request, Subject, state, update_end};
use crate::queue_pair::receive_queue::Receive;
use crate::queue_pair::wire::{Begun, Delivery, Refused, Wire};
use crate::token::{MemoryToken, Sge};

/// What is known about the request at the front.
enum Phase {
    /// Not begun.
    Fresh,
    /// Checked, and this many bytes moved.
    Moving(u64),
    /// Moved; the access to a region has been revoked and its readers have to leave.
    Leaving(Stamp),
}

/// The processing state of a queue pair; see the module.
pub(crate) struct Initiator<P: Platform> {
    requests: Receiver<Request<P>>,
    sges: Receiver<Sge>,
    chunks: Receiver<[u8; CHUNK]>,
    phase: Phase,
    /// The other end, once known.
    peer: Option<Shared<QueuePairObject<P>>>,
    /// The receive that the message at the front goes into, and its SGEs.
    receive: Option<Receive>,
    /// Until when the message at the front waits for a receive.
    deadline: Option<u64>,
    /// Receives of the peer are marked as being filled by this requester.
    occupied: bool,
    scratch: Vec<Sge>,
    done: Batch,
    filled: Batch,
    /// A request failed; the connection has not been ended yet.
    failed: bool,
    outgoing: Traffic,
    incoming: Traffic,
}

/// The queue pair, the other end if there is one, and the epoch this context is in.
struct Ends<'a, P: Platform> {
    pair: &'a Shared<QueuePairObject<P>>,
    peer: Option<&'a Shared<QueuePairObject<P>>>,
    guard: &'a Guard<'a>,
}

/// The same with the other end known.
struct Both<'a, P: Platform> {
    pair: &'a Shared<QueuePairObject<P>>,
    peer: &'a Shared<QueuePairObject<P>>,
    guard: &'a Guard<'a>,
}

impl<'a, P: Platform> Both<'a, P> {
    /// Access to this end's memory.
    fn here(&self) -> Accessor<'a, P> {
        let domain = &self.pair.domain;
        let (tables, domain) = (&domain.tables, domain.number);
        Accessor { tables, guard: self.guard, domain, pair: 0 }
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

/// Completions gathered for one queue. In memory of its own: a queue pair is moved over the stack when it is made.
struct Batch(Vec<Completion>);

impl Batch {
    fn try_new() -> Result<Self, NoMemory> {
        let mut entries = Vec::new();
        entries.try_reserve_exact(BATCH)?;
        Ok(Self(entries))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn is_full(&self) -> bool {
        self.0.len() >= BATCH
    }

    /// Precondition: the caller has checked the capacity.
    fn push(&mut self, completion: Completion) {
        let kept = push_within_capacity(&mut self.0, completion);
        debug_assert!(kept.is_ok());
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// How much a step did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stepped {
    /// The step can do no more here, after this much (as for `More`): the queue is empty, another context will link the queue
    /// pair, or another context has the requester.
    Rest(u64),
    /// The bounds of a step were reached after this much, in bytes; a request costs at least [`REQUEST_COST`].
    More(u64),
}

impl Stepped {
    pub(crate) const fn used(self) -> u64 {
        match self {
            Self::Rest(used) | Self::More(used) => used,
        }
    }
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
    pub(crate) fn try_new(
        requests: Receiver<Request<P>>,
        sges: Receiver<Sge>,
        chunks: Receiver<[u8; CHUNK]>,
    ) -> Result<Self, NoMemory> {
        let mut scratch = Vec::new();
        scratch.try_reserve_exact(RECEIVE_SGES)?;
        Ok(Self {
            requests,
            sges,
            chunks,
            phase: Phase::Fresh,
            peer: None,
            receive: None,
            deadline: None,
            occupied: false,
            scratch,
            done: Batch::try_new()?,
            filled: Batch::try_new()?,
            failed: false,
            outgoing: Traffic::default(),
            incoming: Traffic::default(),
        })
    }

    /// Brings requests forward until a bound is reached or something has to be waited for.
    fn run(&mut self, pair: &Shared<QueuePairObject<P>>, guard: &Guard<'_>, most: u64) -> (u64, Stop) {
        // The pointer is moved and not counted: nothing per request touches the peer's count.
        let peer = self.peer.take().or_else(|| pair.link.with(|link| link.peer.clone()));
        let answer = self.run_with(Ends { pair, peer: peer.as_ref(), guard }, most);
        if core::mem::take(&mut self.failed) {
            // Before the results: a consumer that sees the failed request finds the connection ended.
            queue_pair::end_connection(pair);
        }
        self.commit(pair, peer.as_ref());
        self.peer = peer;
        answer
    }

    fn run_with(&mut self, ends: Ends<'_, P>, most: u64) -> (u64, Stop) {
        let mut bytes = 0_u64;
        for _ in 0..STEP_REQUESTS {
            if self.requests.is_empty() {
                return (bytes, Stop::Empty);
            }
            if self.done.is_full() || self.filled.is_full() {
                self.commit(ends.pair, ends.peer);
            }
            match self.advance(ends, most.saturating_sub(bytes).max(1)) {
                Progress::Completed => bytes = bytes.saturating_add(REQUEST_COST),
                Progress::Moved(moved) => bytes = bytes.saturating_add(moved.max(REQUEST_COST)),
                Progress::NoReceive if !self.filled.is_empty() => self.commit(ends.pair, ends.peer),
                Progress::NoReceive if self.waits(ends) => return (bytes, Stop::NoReceive),
                Progress::NoReceive => {
                    self.fail(ends.pair, Outcome::NotReady);
                    bytes = bytes.saturating_add(REQUEST_COST);
                }
                Progress::Epoch(stamp, moved) => return (bytes.saturating_add(moved), Stop::Epoch(stamp)),
            }
            if bytes >= most || self.failed {
                break;
            }
        }
        (bytes, Stop::Bounds)
    }

    /// The message at the front found no receive: whether it continues to wait.
    fn waits(&mut self, ends: Ends<'_, P>) -> bool {
        let Some(patience) = ends.pair.patience.as_ref().filter(|_| !ends.peer.is_some_and(Loopback::is_patient))
        else {
            return true;
        };
        let now = ends.pair.core.scheduler.platform().now();
        let deadline = *self.deadline.get_or_insert_with(|| now.saturating_add(patience.nanoseconds));
        if now >= deadline {
            return false;
        }
        patience.timer.set(&Object::of(ends.pair), deadline);
        true
    }

    /// The message at the front waits for no receive any more. The timer points to the queue pair while it is set.
    #[inline]
    fn stop_waiting(&mut self, pair: &QueuePairObject<P>) {
        if self.deadline.take().is_some()
            && let Some(patience) = &pair.patience
        {
            patience.timer.clear();
        }
    }

    /// One step of the request at the front. Rare steps have frames of their own.
    fn advance(&mut self, ends: Ends<'_, P>, most: u64) -> Progress {
        // A request whose access has been revoked already is finished; only its readers have to leave.
        let goes_on = matches!(self.phase, Phase::Leaving(_)) || !ends.pair.is_ended();
        let Some(peer) = ends.peer.filter(|_| goes_on) else {
            return self.complete(ends.pair, Outcome::Cancelled);
        };
        let ends = Both { pair: ends.pair, peer, guard: ends.guard };
        let Some(request) = self.requests.front() else { return Progress::Completed };
        match request.operation {
            Operation::Send | Operation::SendAndInvalidate => self.advance_send(ends, most),
            Operation::Read if ends.pair.state() & state::NO_READS != 0 => {
                self.fail(ends.pair, Outcome::InvalidRequest)
            }
            Operation::Read | Operation::Write => self.advance_remote(ends, most),
            Operation::FastRegister => self.fast_register(ends.pair),
            Operation::Bind => self.bind(ends.pair),
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
        let moved = until.saturating_sub(at);
        if length > 0 {
            match self.move_remote(ends, request, at..until) {
                Ok(()) => {}
                Err(Refused::Local) => return self.fail(pair, Outcome::LocalAccess),
                Err(Refused::Unfit) => return self.fail(pair, Outcome::InvalidRequest),
                Err(Refused::Remote) => return self.fail(pair, pair.domain.open.semantics.remote_access),
            }
        }
        if read {
            self.incoming.add(moved);
        } else {
            self.outgoing.add(moved);
        }
        if until < length {
            self.phase = Phase::Moving(until);
            return Progress::Moved(moved);
        }
        if request_flags(&self.requests).contains(RequestFlags::LOCAL_INVALIDATE) {
            return self.invalidate_sink(ends, moved);
        }
        self.complete(pair, Outcome::Success);
        Progress::Moved(moved)
    }

    fn move_remote(
        &self,
        ends: Both<'_, P>,
        request: &Request<P>,
        range: core::ops::Range<u64>,
    ) -> Result<(), Refused> {
        let (here, peer) = (ends.here(), ends.peer);
        let read = request.operation == Operation::Read;
        let needed = if read { Rights::LOCAL_WRITE } else { Rights::empty() };
        if request.flags.contains(RequestFlags::INLINE) {
            return Loopback::write_inline(peer, here, request, &self.chunks);
        }
        let sges = request.sges(&self.sges);
        let mut local = List::new(here, sges, needed);
        if range.start == 0 {
            local.check().map_err(|Denied| Refused::Local)?;
            // Before the first byte: the Read could not close such memory to its peers.
            if request.flags.contains(RequestFlags::LOCAL_INVALIDATE) {
                let first = request.sges(&self.sges).sge(0);
                first.filter(|first| here.fast(first.token).is_ok()).ok_or(Refused::Unfit)?;
            }
        }
        if read {
            Loopback::read(peer, here, request, &mut local, range)
        } else {
            Loopback::write(peer, here, request, &mut local, range)
        }
    }

    /// Read with local invalidate: revokes the access to the first SGE's region before the completion.
    fn invalidate_sink(&mut self, ends: Both<'_, P>, moved: u64) -> Progress {
        let (here, pair) = (ends.here(), ends.pair);
        let request = self.requests.peek(self.requests.position());
        let first = request.and_then(|request| request.sges(&self.sges).sge(0));
        let token = first.map(|sge| sge.token);
        let stamp = token.and_then(|token| here.fast(token).ok()).and_then(|fast| fast.buffers.withdraw());
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
                Ok(true) => {
                    self.phase = Phase::Moving(0);
                    self.stop_waiting(ends.pair);
                }
                Ok(false) => return Progress::NoReceive,
                Err(progress) => return progress,
            }
        }
        let Phase::Moving(at) = self.phase else { return Progress::Completed };
        let Some(request) = self.requests.peek(self.requests.position()) else { return Progress::Completed };
        let length = request.length;
        let inline = request.flags.contains(RequestFlags::INLINE);
        // Inline data is short and is moved in one piece.
        let until = if inline { length } else { length.min(at.saturating_add(most)) };
        let moved = until.saturating_sub(at);
        match self.move_send(ends, request, at..until) {
            Ok(()) => {}
            Err(Fault::Source) => return self.fail(ends.pair, Outcome::LocalAccess),
            Err(Fault::Sink) => return self.receiver_failed(ends, Outcome::LocalAccess),
        }
        self.outgoing.add(moved);
        if until < length {
            self.phase = Phase::Moving(until);
            return Progress::Moved(moved);
        }
        self.end_send(ends, moved)
    }

    /// Finds and checks everything a message needs before its first byte moves; `Ok(false)` when there is no receive.
    fn begin_send(&mut self, ends: Both<'_, P>) -> Result<bool, Progress> {
        let (here, pair, peer) = (ends.here(), ends.pair, ends.peer);
        let Some(request) = self.requests.peek(self.requests.position()) else { return Ok(false) };
        let (length, token) = (request.length, request.token);
        let invalidates = (request.operation == Operation::SendAndInvalidate).then_some(token);
        if !request.flags.contains(RequestFlags::INLINE) && length > 0 {
            let sges = request.sges(&self.sges);
            if List::new(here, sges, Rights::empty()).check().is_err() {
                return Err(self.fail(pair, Outcome::LocalAccess));
            }
        }
        let delivery = Delivery { length, invalidates, filled: self.filled.0.len() };
        match Loopback::begin_send(pair, peer, here, delivery, &mut self.scratch) {
            Begun::NoReceive => Ok(false),
            Begun::UnknownToken => {
                Loopback::break_off(peer);
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
            return Loopback::send_inline(
                ends.peer,
                here,
                &self.scratch,
                (&self.chunks, request.first),
                request.length,
            );
        }
        let sges = request.sges(&self.sges);
        let mut source = List::new(here, sges, Rights::empty());
        Loopback::send(ends.peer, here, &self.scratch, &mut source, range, request.length)
    }

    fn end_send(&mut self, ends: Both<'_, P>, moved: u64) -> Progress {
        let (pair, peer) = (ends.pair, ends.peer);
        let Some(request) = self.requests.peek(self.requests.position()) else { return Progress::Completed };
        if request.operation == Operation::SendAndInvalidate {
            let Some(stamp) = Loopback::invalidate(peer, ends.here(), request.token) else {
                Loopback::break_off(peer);
                return self.fail(pair, Outcome::RemoteError);
            };
            self.phase = Phase::Leaving(stamp);
            return Progress::Epoch(stamp, moved);
        }
        self.fill(Outcome::Success);
        self.complete(pair, Outcome::Success);
        Progress::Moved(moved)
    }

    /// Records the completion of the receive that the message at the front went into.
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

    /// The receive at the other end failed: both ends fail.
    fn receiver_failed(&mut self, ends: Both<'_, P>, outcome: Outcome) -> Progress {
        let pair = ends.pair;
        self.fill(outcome);
        Loopback::break_off(ends.peer);
        let semantics = &pair.domain.open.semantics;
        match outcome {
            Outcome::ReceiveTooSmall => self.fail(pair, semantics.receiver_too_small),
            _ => self.fail(pair, Outcome::RemoteError),
        }
    }

    /// Access was revoked; completes the request when every reader has left.
    fn left(&mut self, ends: Both<'_, P>, stamp: Stamp) -> Progress {
        let pair = ends.pair;
        if !pair.core.scheduler.epoch().passed(stamp) {
            return Progress::Epoch(stamp, 0);
        }
        self.fill(Outcome::Success);
        match self.requests.front().map(|request| &request.subject) {
            Some(Subject::Fast(fast)) => {
                fast.buffers.reclaim();
            }
            Some(Subject::Window(window)) => {
                window.binding.reclaim();
            }
            _ => {}
        }
        self.complete(pair, Outcome::Success)
    }

    #[inline(never)]
    fn fast_register(&mut self, pair: &Shared<QueuePairObject<P>>) -> Progress {
        let Some(request) = self.requests.front() else { return Progress::Completed };
        let Subject::Pages(fast, ready) = &mut request.subject else {
            return self.fail(pair, Outcome::InvalidRequest);
        };
        match ready.take().map(|ready| fast.buffers.publish(ready)) {
            Some(Ok(())) => self.complete(pair, Outcome::Success),
            Some(Err(ready)) => {
                fast.buffers.discard(ready);
                self.fail(pair, Outcome::InvalidRequest)
            }
            None => self.fail(pair, Outcome::InvalidRequest),
        }
    }

    #[inline(never)]
    fn bind(&mut self, pair: &Shared<QueuePairObject<P>>) -> Progress {
        let Some(request) = self.requests.front() else { return Progress::Completed };
        let Subject::Binding(window, region, rights) = &request.subject else {
            return self.fail(pair, Outcome::InvalidRequest);
        };
        let registration = request.single.token;
        // Deregistered meanwhile, or being closed.
        let Some(hold) = region.bound(registration) else { return self.fail(pair, Outcome::InvalidRequest) };
        let binding = Binding {
            token: request.token,
            pair: pair.windows.address(),
            region: SlotKey { slot: registration.slot(), generation: registration.generation() },
            address: request.address,
            length: request.length,
            rights: *rights,
        };
        match memory_window::bind(window, binding, &pair.windows, (region.clone(), hold)) {
            Ok(()) => self.complete(pair, Outcome::Success),
            Err((error, hold)) => {
                region.unbound(hold);
                match error {
                    NotBound::Occupied => self.fail(pair, Outcome::InvalidRequest),
                    NotBound::Wait(stamp) => Progress::Epoch(stamp, 0),
                }
            }
        }
    }

    #[inline(never)]
    fn invalidate(&mut self, ends: Both<'_, P>) -> Progress {
        let pair = ends.pair;
        if let Phase::Leaving(stamp) = self.phase {
            return self.left(ends, stamp);
        }
        let withdrawn = match self.requests.front().map(|request| &request.subject) {
            Some(Subject::Fast(fast)) => fast.buffers.withdraw(),
            // A window is unbound only by the queue pair it is bound to.
            Some(Subject::Window(window)) => memory_window::unbind(window, |bound| bound.is(&pair.windows)),
            _ => None,
        };
        match withdrawn {
            Some(stamp) => {
                self.phase = Phase::Leaving(stamp);
                Progress::Epoch(stamp, 0)
            }
            None => self.fail(pair, Outcome::InvalidRequest),
        }
    }

    /// Completes the request at the front with its error; the connection ends when the run does, on a stack that is less deep.
    fn fail(&mut self, pair: &Shared<QueuePairObject<P>>, outcome: Outcome) -> Progress {
        let progress = self.complete(pair, outcome);
        pair.end();
        self.failed = true;
        progress
    }

    /// Records the completion of the request at the front, once, and takes it off the queue.
    fn complete(&mut self, pair: &QueuePairObject<P>, outcome: Outcome) -> Progress {
        self.phase = Phase::Fresh;
        self.stop_waiting(pair);
        // A receive of the peer's own queue is still there; one out of a shared queue is nowhere else.
        if let Some(receive) = self.receive.take().filter(|receive| receive.shared) {
            self.filled.push(Completion {
                context: receive.context,
                outcome: Outcome::Cancelled,
                operation: Operation::Receive,
                ..Completion::default()
            });
        }
        // The request leaves last: a context that sees its place free finds places for SGEs and inline data as well.
        if let Some(request) = self.requests.peek(self.requests.position()) {
            if request.count > 1 {
                self.sges.skip(request.count);
            }
            if request.flags.contains(RequestFlags::INLINE) {
                self.chunks.skip((request.length as usize).div_ceil(CHUNK));
            }
        }
        let Some(mut request) = self.requests.pop() else { return Progress::Completed };
        request.subject.discard();
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

    /// Enters the gathered completions: this side's first, so that an answer of the peer never comes before them.
    fn commit(&mut self, pair: &Shared<QueuePairObject<P>>, peer: Option<&Shared<QueuePairObject<P>>>) {
        let entered = completion_queue::enter(&pair.initiator_queue, &self.done.0);
        self.done.clear();
        if let Some(peer) = peer {
            if self.occupied {
                self.occupied = self.receive.is_some();
                Loopback::end_sends(peer, &mut self.filled.0, self.occupied);
            }
            self.count_traffic(pair, peer);
        }
        self.filled.clear();
        if !entered {
            pair.defer_failure();
        }
    }

    fn count_traffic(&mut self, pair: &QueuePairObject<P>, peer: &Shared<QueuePairObject<P>>) {
        let (outgoing, incoming) = (core::mem::take(&mut self.outgoing), core::mem::take(&mut self.incoming));
        pair.traffic_counter.count_own(outgoing, incoming);
        Loopback::count(peer, incoming, outgoing);
    }

    /// Releases the other end; called when nothing is left to send.
    fn forget_peer(&mut self) {
        if let Some(peer) = self.peer.take() {
            Loopback::give_up(&peer);
        }
    }
}

fn request_flags<P: Platform>(requests: &Receiver<Request<P>>) -> RequestFlags {
    requests.peek(requests.position()).map_or(RequestFlags::empty(), |request| request.flags)
}

/// Processes one piece of the initiator queue, unless another context does. What the step cannot do goes to the run queue of
/// `processor`, whose pass this is; without one to that of the current processor. At DISPATCH_LEVEL: a context that holds the
/// requester or is inside the epoch must not be preempted.
pub(crate) fn step<P: Platform>(pair: &Shared<QueuePairObject<P>>, processor: Option<u32>, most: u64) -> Stepped {
    let scheduler = &pair.core.scheduler;
    let Some(mut held) = pair.work.raise() else { return Stepped::Rest(0) };
    let mut bytes = 0_u64;
    for _ in 0..STEP_REQUESTS {
        let Some(guard) = scheduler.enter() else { break };
        let (moved, stop) = held.run(pair, &guard, most.saturating_sub(bytes));
        scheduler.leave(guard);
        bytes = bytes.saturating_add(moved);
        match stop {
            Stop::Bounds => return Stepped::More(bytes),
            Stop::Epoch(stamp) if scheduler.epoch().passed(stamp) => continue,
            Stop::Epoch(stamp) => scheduler.park(&Object::of(pair), stamp),
            Stop::Empty if pair.is_ended() => {
                held.forget_peer();
                update_end(pair);
            }
            Stop::Empty | Stop::NoReceive => {}
        }
        match held.finish() {
            Some(again) => held = again,
            None => return Stepped::Rest(bytes),
        }
    }
    // Too many rounds, or too many contexts inside the epoch. The requester is released first: a context that finds it held
    // leaves.
    drop(held);
    scheduler.link_at(&Object::of(pair), processor);
    Stepped::Rest(bytes)
}
