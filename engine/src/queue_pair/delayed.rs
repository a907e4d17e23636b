//! A transport for tests: the other end is far away.
//!
//! Every operation travels as a parcel with its bytes, at most [`PIECE`] of them, and is carried out in another service pass,
//! after a delay that differs from parcel to parcel; its answer travels back in the same way. Parcels of one queue pair keep
//! their order, those of two queue pairs overtake each other. No context ever has the memory of both ends at hand.
//!
//! Rules: nothing is allocated once the queue pair is made. One operation at a time waits for its answer; what needs none (the
//! end of a message, a batch of results) follows it. A queue pair that ends does not wait: its last parcels still arrive.

use alloc::vec::Vec;
use core::ops::Range;

use fastrand::Rng;
use softndk_cells::{Dispose, Guard, NoMemory, Shared, Stamp, View};

use crate::capacity::push_within_capacity;
use crate::completion::completion_queue::Batch;
use crate::counters::Traffic;
use crate::error::{AccessFault, Outcome};
use crate::flags::Rights;
use crate::memory::transfer::{self, Fault, LocalBytes};
use crate::object::event::ServicePass;
use crate::object::header::{AnyObject, Core, Hold, Object};
use crate::object::scheduler::Scheduler;
use crate::object::timer::Timer;
use crate::platform::{Lock, Platform};
use crate::queue_pair::pair::QueuePairObject;
use crate::queue_pair::responder::{Inside, Responder};
use crate::queue_pair::transport::{
    Answer, AtHand, Begun, Failure, Filled, Near, NotSent, Refused, RemoteBuffer, SendMessage, Transport,
};
use crate::token::MemoryToken;

/// Bytes of one parcel.
const PIECE: u64 = 16 * 1024;

/// Parcels under way at a time: an operation, and what follows it when the queue pair ends.
const PARCELS: usize = 8;

/// A parcel that travels longer than not at all needs up to this many nanoseconds.
const LONGEST: u64 = 10_000;

/// See the module.
pub(crate) struct Delayed<P: Platform> {
    path: Shared<Path<P>>,
    other_end: OtherEnd,
    asked: OperationState,
    /// A message has its receive and is not complete.
    open: bool,
    /// Receives have been filled that are not committed.
    gathered: bool,
    /// Something at the other end waits for the next commit.
    uncommitted: bool,
}

/// Whether there is another end.
#[derive(Clone, Copy, Eq, PartialEq)]
enum OtherEnd {
    Unconnected,
    Connected,
    /// Nothing is asked any more.
    Released,
}

/// Whether an operation waits for its answer.
#[derive(Clone, Copy, Eq, PartialEq)]
enum OperationState {
    Nothing,
    Waiting,
    /// Its request is over, and with it everything that could be asked: the queue pair has ended.
    GivenUp,
}

/// The path between a requester and its responder: an object of its own, because it has work when neither end has.
struct Path<P: Platform> {
    scheduler: Scheduler<P>,
    timer: Timer<P>,
    state: P::Lock<PathState<P>>,
}

struct PathState<P: Platform> {
    responder: Responder<P>,
    /// Receives that the responder has filled.
    filled: Batch,
    parcels: Vec<Parcel>,
    /// The bytes of the operation under way.
    bytes: Vec<u8>,
    answer: Option<(u64, Reply)>,
    /// The queue pair to schedule when the answer has arrived.
    asker: Option<Object<P>>,
    /// The message in front waits at the other end for a receive; whether that may take any time.
    without_receive: Option<bool>,
    /// Keeps the queue pair from being closed while its parcels travel.
    hold: Option<Hold<P>>,
    /// Access has been revoked; the answer waits for its readers.
    leaving: Option<Stamp>,
    /// When the parcel that was sent last arrives.
    last_due: u64,
    random: Rng,
}

#[derive(Clone)]
struct Parcel {
    due: u64,
    task: Task,
}

/// What is carried out at the other end.
#[derive(Clone)]
enum Task {
    Read(RemoteBuffer, Range<u64>),
    Write(RemoteBuffer, Range<u64>),
    Begin(SendMessage),
    Send(SendMessage, Range<u64>),
    Invalidate(MemoryToken),
    EndSend(SendMessage),
    EndRequest,
    Commit(Traffic, Traffic),
    Release,
}

/// The answer to an operation.
enum Reply {
    Access(Result<u64, Refused>),
    Begun(Begun),
    Sent(Result<u64, NotSent>),
    Invalidated(Option<Stamp>),
}

/// What a parcel that has arrived waits for.
enum Waits {
    Receive,
    Readers(Stamp),
}

impl<P: Platform> PathState<P> {
    /// When something that is sent now arrives: about a third at once, in another pass; never before what was sent earlier.
    fn due(&mut self, now: u64) -> u64 {
        let travel = if self.random.u8(..3) == 0 { 0 } else { self.random.u64(..LONGEST) };
        self.last_due = self.last_due.max(now.saturating_add(travel));
        self.last_due
    }

    /// Whether the request of the operation in front is over.
    fn is_given_up(&self) -> bool {
        self.parcels.iter().any(|parcel| matches!(parcel.task, Task::EndRequest))
    }

    /// Carries out a parcel at the other end; an operation gives an answer. `Err`: it has to wait there.
    fn carry_out(
        &mut self,
        scheduler: &Scheduler<P>,
        guard: &Guard<'_>,
        path: &Object<P>,
        task: Task,
    ) -> Result<Option<Reply>, Waits> {
        let platform = scheduler.platform();
        let (responder, filled) = (&mut self.responder, &mut self.filled);
        let Some(pair) = responder.pair().cloned() else { return Ok(None) };
        let inside = Inside { tables: &pair.domain.tables, guard };
        Ok(match task {
            Task::Read(source, range) => {
                let moved = range.end.saturating_sub(range.start);
                let read = responder.remote(inside, source, Rights::REMOTE_READ).map_err(Fault::Source);
                let read = read.and_then(|mut memory| {
                    let into = self.bytes.get_mut(..moved as usize).ok_or(Fault::Source(AccessFault::Bounds))?;
                    transfer::load(platform, &mut memory, range, into)
                });
                Some(Reply::Access(read.map(|()| moved).map_err(|fault| Refused::Remote(fault.what()))))
            }
            Task::Write(sink, range) => {
                let moved = range.end.saturating_sub(range.start);
                let written = responder.remote(inside, sink, Rights::REMOTE_WRITE).map_err(Fault::Sink);
                let written = written.and_then(|mut memory| {
                    let bytes = self.bytes.get(..moved as usize).ok_or(Fault::Source(AccessFault::Bounds))?;
                    transfer::store_bytes(platform, bytes, &mut memory, range)
                });
                Some(Reply::Access(written.map(|()| moved).map_err(|fault| Refused::Remote(fault.what()))))
            }
            Task::Begin(message) => match responder.begin(inside, message, path, filled) {
                // It waits there, unless its queue pair has given up.
                Begun::NoReceive { patient } if !self.is_given_up() => {
                    self.without_receive = Some(patient);
                    return Err(Waits::Receive);
                }
                Begun::NoReceive { .. } => None,
                begun => Some(Reply::Begun(begun)),
            },
            Task::Send(message, range) => {
                let moved = range.end.saturating_sub(range.start);
                let written = responder.sink(inside).map_err(Fault::Sink).and_then(|mut memory| {
                    let bytes = self.bytes.get(..moved as usize).ok_or(Fault::Source(AccessFault::Bounds))?;
                    transfer::store_bytes(platform, bytes, &mut memory, range)
                });
                let fail = |fault: Fault| {
                    let failure = Failure::of(Outcome::LocalAccess, fault.what());
                    NotSent::Receiver(responder.fail_receive(message, failure, filled))
                };
                Some(Reply::Sent(written.map(|()| moved).map_err(fail)))
            }
            Task::Invalidate(token) => {
                let Some(stamp) = self.leaving.take().or_else(|| responder.invalidate(inside, token)) else {
                    return Ok(Some(Reply::Invalidated(None)));
                };
                if !scheduler.epoch().passed(stamp) {
                    self.leaving = Some(stamp);
                    return Err(Waits::Readers(stamp));
                }
                Some(Reply::Invalidated(Some(stamp)))
            }
            Task::EndSend(message) => {
                responder.fill(message, Outcome::Success, filled);
                None
            }
            Task::EndRequest => {
                responder.end_request(filled);
                None
            }
            Task::Commit(sent, received) => {
                responder.commit(filled, sent, received);
                None
            }
            Task::Release => None,
        })
    }
}

/// What a service pass finds to do when parcels have arrived.
struct Arrived<P: Platform> {
    /// Scheduled, because its answer has arrived or its message waits.
    asker: Option<Object<P>>,
    released: Option<Shared<QueuePairObject<P>>>,
    hold: Option<Hold<P>>,
    readers: Option<Stamp>,
}

impl<P: Platform> PathState<P> {
    /// Carries out the parcels that have arrived and sets the timer for the next.
    fn arrive(&mut self, path: &Shared<Path<P>>, guard: &Guard<'_>) -> Arrived<P> {
        let now = path.scheduler.platform().now();
        let this = Object::of(path);
        let mut arrived = Arrived { asker: None, released: None, hold: None, readers: None };
        let waited = self.without_receive.take().is_some();
        while let Some(task) = self.parcels.first().filter(|parcel| parcel.due <= now).map(|parcel| parcel.task.clone())
        {
            let released = matches!(task, Task::Release);
            match self.carry_out(&path.scheduler, guard, &this, task) {
                Ok(reply) => {
                    self.parcels.remove(0);
                    if let Some(reply) = reply {
                        self.answer = Some((self.due(now), reply));
                    }
                }
                Err(Waits::Receive) => {
                    arrived.asker = self.asker.clone().filter(|_| !waited);
                    break;
                }
                Err(Waits::Readers(stamp)) => {
                    arrived.readers = Some(stamp);
                    break;
                }
            }
            if released {
                arrived.released = self.responder.release();
            }
        }
        if self.parcels.is_empty() {
            arrived.hold = self.hold.take();
        }
        let answer = self.answer.as_ref().map(|(due, _)| *due);
        if answer.is_some_and(|due| due <= now) {
            arrived.asker = self.asker.take();
        }
        let dues = self.parcels.iter().map(|parcel| parcel.due).chain(answer);
        if let Some(next) = dues.filter(|due| *due > now).min() {
            path.timer.set(&this, next);
        }
        arrived
    }
}

impl<P: Platform> Dispose for Path<P> {}

impl<P: Platform> View for Path<P> {
    type As = dyn AnyObject<P>;

    fn view(object: &Shared<Self>) -> &Self::As {
        object
    }
}

impl<P: Platform> AnyObject<P> for Shared<Path<P>> {
    fn core(&self) -> Option<&Core<P>> {
        None
    }

    fn work(&self, _pass: &mut ServicePass<'_, P>) {
        let Some(guard) = self.scheduler.enter(self.scheduler.platform().processor()) else {
            self.scheduler.link(&Object::of(self));
            return;
        };
        let arrived = self.state.with(|state| state.arrive(self, &guard));
        self.scheduler.leave(guard);
        if let Some(stamp) = arrived.readers {
            self.scheduler.park(&Object::of(self), stamp);
        }
        if let Some(asker) = arrived.asker {
            self.scheduler.link(&asker);
        }
        drop((arrived.released, arrived.hold));
    }
}

impl<P: Platform> Path<P> {
    /// Sends a parcel; a service pass finds it when it has arrived.
    fn send(path: &Shared<Self>, pair: &Shared<QueuePairObject<P>>, state: &mut PathState<P>, task: Task) {
        if let (Some(Parcel { task: Task::Commit(sent, received), .. }), Task::Commit(also_sent, also_received)) =
            (state.parcels.last_mut(), &task)
        {
            sent.join(*also_sent);
            received.join(*also_received);
            return;
        }
        state.hold.get_or_insert_with(|| Hold::new(Object::of(pair)));
        let now = path.scheduler.platform().now();
        let due = state.due(now);
        let sent = push_within_capacity(&mut state.parcels, Parcel { due, task });
        debug_assert!(sent.is_ok(), "more parcels than a queue pair has under way");
        if due <= now {
            path.scheduler.link(&Object::of(path));
        } else {
            path.timer.set(&Object::of(path), due);
        }
    }
}

impl<P: Platform> Delayed<P> {
    /// Asks the other end, or finds its answer. `pack` puts bytes that travel along in their place, `unpack` takes the answer.
    fn ask<T>(
        &mut self,
        near: Near<'_, P>,
        pack: impl FnOnce(&mut [u8]) -> Result<Task, T>,
        unpack: impl FnOnce(Reply, &[u8]) -> Option<T>,
    ) -> Answer<T> {
        let (path, asked) = (&self.path, &mut self.asked);
        let now = path.scheduler.platform().now();
        path.state.with(|state| {
            if *asked != OperationState::Nothing {
                let Some((_, reply)) = state.answer.take_if(|(due, _)| *due <= now) else { return Answer::Later };
                *asked = OperationState::Nothing;
                state.asker = None;
                return unpack(reply, &state.bytes).map_or(Answer::Later, Answer::Ready);
            }
            match pack(&mut state.bytes) {
                Ok(task) => {
                    *asked = OperationState::Waiting;
                    state.asker = Some(Object::of(near.pair));
                    Path::send(path, near.pair, state, task);
                    Answer::Later
                }
                Err(refused) => Answer::Ready(refused),
            }
        })
    }

    /// Sends what has no answer.
    fn send_one_way(&self, pair: &Shared<QueuePairObject<P>>, task: Task) {
        self.path.state.with(|state| Path::send(&self.path, pair, state, task));
    }
}

/// As much of a range as a parcel holds.
fn piece(range: &Range<u64>) -> Range<u64> {
    range.start..range.end.min(range.start.saturating_add(PIECE))
}

impl<P: Platform> Transport<P> for Delayed<P> {
    fn try_new(scheduler: &Scheduler<P>) -> Result<Self, NoMemory> {
        let (mut parcels, mut bytes) = (Vec::new(), Vec::new());
        parcels.try_reserve_exact(PARCELS)?;
        bytes.try_reserve_exact(PIECE as usize)?;
        bytes.resize(PIECE as usize, 0);
        let number = scheduler.next_object();
        let state = PathState {
            responder: Responder::new(),
            filled: Batch::new(),
            parcels,
            bytes,
            answer: None,
            asker: None,
            without_receive: None,
            hold: None,
            leaving: None,
            last_due: 0,
            random: Rng::with_seed(number),
        };
        // Not always on the processor of the consumer.
        let timer = Timer::try_new(scheduler, number as u32)?;
        let path = Shared::try_new(Path { scheduler: scheduler.clone(), timer, state: P::Lock::new(state) })?;
        Ok(Self {
            path,
            other_end: OtherEnd::Unconnected,
            asked: OperationState::Nothing,
            open: false,
            gathered: false,
            uncommitted: false,
        })
    }

    fn connect(&mut self, pair: &QueuePairObject<P>) -> bool {
        if self.other_end == OtherEnd::Unconnected
            && let Some(peer) = pair.link.with(|link| link.peer.clone())
        {
            self.other_end = OtherEnd::Connected;
            self.path.state.with(|state| state.responder.attach(Some(peer)));
        }
        self.other_end == OtherEnd::Connected
    }

    fn read(
        &mut self,
        near: Near<'_, P>,
        source: RemoteBuffer,
        sink: &mut impl LocalBytes<P>,
        range: Range<u64>,
    ) -> Answer<Result<u64, Refused>> {
        let range = piece(&range);
        let platform = near.pair.core.scheduler.platform();
        self.ask(
            near,
            |_| Ok(Task::Read(source, range.clone())),
            |reply, bytes| match reply {
                Reply::Access(Ok(moved)) => {
                    let arrived = bytes.get(..moved as usize).ok_or(Fault::Sink(AccessFault::Bounds));
                    let stored = arrived.and_then(|bytes| sink.store(platform, bytes, range.clone()));
                    Some(stored.map(|()| moved).map_err(|fault| Refused::Local(fault.what())))
                }
                Reply::Access(refused) => Some(refused),
                _ => None,
            },
        )
    }

    fn write(
        &mut self,
        near: Near<'_, P>,
        source: &mut impl LocalBytes<P>,
        sink: RemoteBuffer,
        range: Range<u64>,
    ) -> Answer<Result<u64, Refused>> {
        let range = piece(&range);
        let platform = near.pair.core.scheduler.platform();
        self.ask(
            near,
            |bytes| match source.load(platform, range.clone(), bytes) {
                Ok(()) => Ok(Task::Write(sink, range.clone())),
                Err(fault) => Err(Err(Refused::Local(fault.what()))),
            },
            |reply, _| if let Reply::Access(answer) = reply { Some(answer) } else { None },
        )
    }

    fn at_hand(&mut self) -> Option<AtHand<'_, P>> {
        None
    }

    fn begin_send(&mut self, near: Near<'_, P>, message: SendMessage, _filled: &mut Filled) -> Answer<Begun> {
        if self.gathered {
            // Results that came before are on their way first.
            return Answer::Ready(Begun::NoReceive { patient: true });
        }
        let answer = self.ask(
            near,
            |_| Ok(Task::Begin(message)),
            |reply, _| if let Reply::Begun(begun) = reply { Some(begun) } else { None },
        );
        match answer {
            Answer::Ready(begun) => {
                self.open = begun == Begun::Found;
                self.uncommitted |= begun != Begun::UnknownToken;
                Answer::Ready(begun)
            }
            Answer::Later => match self.path.state.with(|state| state.without_receive) {
                Some(patient) => Answer::Ready(Begun::NoReceive { patient }),
                None => Answer::Later,
            },
        }
    }

    fn send(
        &mut self,
        near: Near<'_, P>,
        message: SendMessage,
        source: &mut impl LocalBytes<P>,
        range: Range<u64>,
        _filled: &mut Filled,
    ) -> Answer<Result<u64, NotSent>> {
        let range = piece(&range);
        let platform = near.pair.core.scheduler.platform();
        let answer = self.ask(
            near,
            |bytes| match source.load(platform, range.clone(), bytes) {
                Ok(()) => Ok(Task::Send(message, range.clone())),
                Err(fault) => Err(Err(NotSent::Local(fault.what()))),
            },
            |reply, _| if let Reply::Sent(answer) = reply { Some(answer) } else { None },
        );
        if let Answer::Ready(Err(NotSent::Receiver(_))) = answer {
            self.open = false;
        }
        answer
    }

    fn invalidate(&mut self, near: Near<'_, P>, token: MemoryToken) -> Answer<Option<Stamp>> {
        self.ask(
            near,
            |_| Ok(Task::Invalidate(token)),
            |reply, _| if let Reply::Invalidated(stamp) = reply { Some(stamp) } else { None },
        )
    }

    fn end_send(&mut self, pair: &Shared<QueuePairObject<P>>, message: SendMessage, _filled: &mut Filled) {
        if self.open {
            self.open = false;
            self.gathered = true;
            self.send_one_way(pair, Task::EndSend(message));
        }
    }

    fn end_request(&mut self, pair: &Shared<QueuePairObject<P>>, _filled: &mut Filled) {
        if self.open || self.asked == OperationState::Waiting {
            if self.asked == OperationState::Waiting {
                self.asked = OperationState::GivenUp;
            }
            self.open = false;
            self.uncommitted = true;
            let asker = self.path.state.with(|state| state.asker.take());
            drop(asker);
            self.send_one_way(pair, Task::EndRequest);
        }
    }

    fn has_gathered(&self, _filled: &Filled) -> bool {
        self.gathered
    }

    fn is_full(&self, _filled: &Filled) -> bool {
        false
    }

    fn commit(
        &mut self,
        pair: &Shared<QueuePairObject<P>>,
        _filled: &mut Filled,
        outgoing: Traffic,
        incoming: Traffic,
    ) {
        let anything = self.gathered || self.uncommitted || !outgoing.is_empty() || !incoming.is_empty();
        if anything {
            self.gathered = false;
            self.uncommitted = false;
            self.send_one_way(pair, Task::Commit(incoming, outgoing));
        }
    }

    fn release(&mut self, pair: &Shared<QueuePairObject<P>>) {
        if self.other_end == OtherEnd::Connected {
            self.other_end = OtherEnd::Released;
            self.send_one_way(pair, Task::Release);
        }
    }
}
