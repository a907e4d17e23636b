//! The path from a requester to a far responder: what is under way, in its order, there and back.
//!
//! It is an object of its own, because it has work when neither end has. A service pass carries out at the other end what has
//! arrived there, and schedules the requester when an answer has arrived here.

use alloc::vec::Vec;
use core::ops::Range;

use fastrand::Rng;
use softndk_cells::{Dispose, Guard, NoMemory, Shared, Stamp, View};

use crate::adapter::adapter::{AdapterObject, FarPeers, Travel};
use crate::capacity::push_within_capacity;
use crate::counters::Traffic;
use crate::error::{AccessFault, Outcome};
use crate::flags::Rights;
use crate::memory::transfer::{self, Fault};
use crate::object::event::ServicePass;
use crate::object::header::{AnyObject, Core, Object};
use crate::object::scheduler::Scheduler;
use crate::object::timer::Timer;
use crate::platform::{Lock, Platform};
use crate::queue_pair::message::{Begun, Failure, RemoteBuffer, SendMessage};
use crate::queue_pair::pair::QueuePairObject;
use crate::queue_pair::responder::{self, Delivery, EpochContext};

/// Bytes of one operation.
pub(super) const PIECE: u64 = 2048;

/// Operations under way at a time.
const WINDOW: usize = 16;

/// A piece of a request, as it travels. The last one of a request completes it.
#[derive(Clone)]
pub(super) enum FarOperation {
    Read {
        buffer: RemoteBuffer,
        range: Range<u64>,
        is_last: bool,
    },
    /// The last piece of a Write with immediate data announces it.
    Write {
        buffer: RemoteBuffer,
        range: Range<u64>,
        announces: Option<SendMessage>,
        is_last: bool,
    },
    Send {
        message: SendMessage,
        range: Range<u64>,
        is_last: bool,
    },
}

impl FarOperation {
    /// The bytes of its request.
    const fn length(&self) -> u64 {
        match self {
            Self::Read { buffer, .. } | Self::Write { buffer, .. } => buffer.length,
            Self::Send { message, .. } => message.length,
        }
    }

    /// How many bytes it moves, and whether it is the last of its request.
    pub(super) const fn extent(&self) -> (u64, bool) {
        let (Self::Read { range, is_last, .. }
        | Self::Write { range, is_last, .. }
        | Self::Send { range, is_last, .. }) = self;
        (range.end.saturating_sub(range.start), *is_last)
    }
}

/// What came of an operation.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    Done,
    /// Not carried out yet: the message waits there for a receive.
    NoReceive {
        unlimited: bool,
    },
    Refused(AccessFault),
    ReceiverFailed(Failure),
    UnknownToken,
    /// What was read could not be stored at this end.
    NotPlaced(AccessFault),
}

/// What an operation that has arrived waits for.
enum Waits {
    Receive { unlimited: bool },
    Readers(Stamp),
}

/// See the module.
pub(crate) struct Path<P: Platform> {
    scheduler: Scheduler<P>,
    timer: Timer<P>,
    state: P::Lock<PathState<P>>,
}

struct PathState<P: Platform> {
    /// The queue pair at the other end.
    peer: Option<Shared<QueuePairObject<P>>>,
    /// The queue pair at this end, while anything is under way.
    asker: Option<Object<P>>,
    slots: Vec<Slot>,
    /// Of the slots from `first` on so many are in use, and so many of these have been carried out.
    first: usize,
    used: usize,
    carried: usize,
    /// A message is half delivered at the other end.
    is_open: bool,
    /// The oldest that has not been carried out waits there for a receive.
    without_receive: Option<bool>,
    /// Access has been revoked; the answer waits for its readers.
    leaving: Option<Stamp>,
    /// An operation has failed: nothing after it is carried out.
    has_failed: bool,
    /// When what was sent last arrives, there and here.
    last_due: [u64; 2],
    travel: Travel,
    random: Rng,
}

struct Slot {
    operation: Option<FarOperation>,
    due: u64,
    answer: Answer,
    bytes: Vec<u8>,
}

/// What a service pass finds to do when something has arrived.
struct Arrived<P: Platform> {
    asker: Option<Object<P>>,
    readers: Option<Stamp>,
}

impl<P: Platform> PathState<P> {
    fn slot(&self, number: usize) -> usize {
        self.first.wrapping_add(number) % WINDOW
    }

    /// When something that goes now arrives: never before what went earlier. A third of what may arrive at any time does so at once,
    /// in another pass.
    fn due(&mut self, now: u64, way: usize) -> u64 {
        let is_quick = matches!(self.travel, Travel::UpTo(_)) && self.random.u8(..3) == 0;
        let arrives = now.saturating_add(if is_quick { 0 } else { self.travel.take(&mut self.random) });
        let Some(last) = self.last_due.get_mut(way) else { return arrives };
        *last = (*last).max(arrives);
        *last
    }

    /// Carries an operation out at the other end.
    fn carry_out(
        &mut self,
        number: usize,
        guard: &Guard<'_>,
        (path, scheduler): (&Object<P>, &Scheduler<P>),
        delivery: &mut Delivery,
    ) -> Result<Answer, Waits> {
        let Some(peer) = self.peer.clone() else { return Ok(Answer::Refused(AccessFault::NotInUse)) };
        let epoch = EpochContext { tables: &peer.domain.tables, guard };
        let slot = self.slot(number);
        let Some(Slot { operation: Some(operation), bytes, .. }) = self.slots.get_mut(slot) else {
            return Ok(Answer::Done);
        };
        let platform = scheduler.platform();
        let operation = operation.clone();
        match operation {
            FarOperation::Read { buffer, .. } | FarOperation::Write { buffer, announces: None, .. }
                if buffer.length == 0 =>
            {
                Ok(Answer::Done)
            }
            FarOperation::Read { buffer, range, .. } => {
                let read = responder::remote(&peer, epoch, buffer, Rights::REMOTE_READ).and_then(|mut memory| {
                    let into = bytes.get_mut(..length(&range)).ok_or(AccessFault::Bounds)?;
                    transfer::load(platform, &mut memory, range, into).map_err(Fault::what)
                });
                Ok(read.map_or_else(Answer::Refused, |()| Answer::Done))
            }
            FarOperation::Write { buffer, range, announces, .. } => {
                if buffer.length > 0 {
                    let written =
                        responder::remote(&peer, epoch, buffer, Rights::REMOTE_WRITE).and_then(|mut memory| {
                            let bytes = bytes.get(..length(&range)).ok_or(AccessFault::Bounds)?;
                            transfer::store_bytes(platform, bytes, &mut memory, range).map_err(Fault::what)
                        });
                    if let Err(fault) = written {
                        return Ok(Answer::Refused(fault));
                    }
                }
                let Some(message) = announces else { return Ok(Answer::Done) };
                self.begin(&peer, epoch, message, path, delivery)?
                    .map_or_else(|| self.end_message(message, delivery), Ok)
            }
            FarOperation::Send { message, range, is_last, .. } => {
                if let Some(answer) = self.begin(&peer, epoch, message, path, delivery)? {
                    return Ok(answer);
                }
                let bytes = self.slots.get(slot).and_then(|slot| slot.bytes.get(..length(&range)));
                let stored = bytes
                    .ok_or(Fault::Source(AccessFault::Bounds))
                    .and_then(|bytes| transfer::store_bytes(platform, bytes, &mut delivery.sink(&peer, epoch), range));
                if let Err(fault) = stored {
                    self.is_open = false;
                    let failure = Failure::of(Outcome::LocalAccess, fault.what());
                    return Ok(Answer::ReceiverFailed(delivery.fail_receive(&peer, message, failure)));
                }
                if !is_last {
                    return Ok(Answer::Done);
                }
                if let Some(token) = message.invalidates() {
                    let stamp = self.leaving.take().or_else(|| responder::invalidate(&peer, epoch, token));
                    let Some(stamp) = stamp else { return Ok(Answer::UnknownToken) };
                    if !scheduler.epoch().passed(stamp) {
                        self.leaving = Some(stamp);
                        return Err(Waits::Readers(stamp));
                    }
                }
                self.end_message(message, delivery)
            }
        }
    }

    /// Finds the receive of a message, unless it has it; an answer where it gets none.
    fn begin(
        &mut self,
        peer: &Shared<QueuePairObject<P>>,
        epoch: EpochContext<'_, P>,
        message: SendMessage,
        path: &Object<P>,
        delivery: &mut Delivery,
    ) -> Result<Option<Answer>, Waits> {
        if self.is_open {
            return Ok(None);
        }
        Ok(match delivery.begin(peer, epoch, message, path) {
            Begun::Found => {
                self.is_open = true;
                None
            }
            Begun::NoReceive { unlimited } => return Err(Waits::Receive { unlimited }),
            Begun::UnknownToken => Some(Answer::UnknownToken),
            Begun::Failed(failure) => Some(Answer::ReceiverFailed(failure)),
        })
    }

    fn end_message(&mut self, message: SendMessage, delivery: &mut Delivery) -> Result<Answer, Waits> {
        self.is_open = false;
        delivery.fill(message, Outcome::Success);
        Ok(Answer::Done)
    }

    /// Carries out what has arrived at the other end.
    fn carry_out_arrived(&mut self, path: &Shared<Path<P>>, guard: &Guard<'_>, now: u64) -> Option<Stamp> {
        let Some(peer) = self.peer.clone() else { return None };
        let (this, scheduler) = (Object::of(path), &path.scheduler);
        let mut delivery = Delivery::new();
        if self.is_open {
            delivery.resume(&peer);
        }
        let (mut sent, mut received) = (Traffic::default(), Traffic::default());
        let mut readers = None;
        while self.carried < self.used && !self.has_failed {
            let number = self.carried;
            let slot = self.slot(number);
            if self.slots.get(slot).is_none_or(|slot| slot.due > now) {
                break;
            }
            if delivery.filled.is_full() {
                delivery.commit(&peer, (core::mem::take(&mut sent), core::mem::take(&mut received)));
            }
            let has_ended = peer.is_ended();
            let answer = match self.carry_out(number, guard, (&this, scheduler), &mut delivery) {
                // What it closes as it ends is no fault of this request: the end of the connection is under way.
                Ok(answer) if has_ended && !matches!(answer, Answer::Done) => {
                    self.has_failed = true;
                    break;
                }
                Ok(answer) => answer,
                // The filled receives are still in front of those that are free.
                Err(Waits::Receive { .. }) if !delivery.filled.is_empty() => {
                    delivery.commit(&peer, (core::mem::take(&mut sent), core::mem::take(&mut received)));
                    continue;
                }
                Err(Waits::Receive { .. }) if has_ended => break,
                Err(Waits::Receive { unlimited }) => {
                    self.without_receive = Some(unlimited);
                    break;
                }
                Err(Waits::Readers(stamp)) => {
                    readers = Some(stamp);
                    break;
                }
            };
            self.has_failed = !matches!(answer, Answer::Done);
            let due = self.due(now, 1);
            if let Some(Slot { operation: Some(operation), due: answered, answer: given, .. }) =
                self.slots.get_mut(slot)
            {
                // Counted as one request, whatever pieces it came in.
                if let (Answer::Done, (_, true)) = (answer, operation.extent()) {
                    let is_read = matches!(operation, FarOperation::Read { .. });
                    if is_read { &mut sent } else { &mut received }.add(operation.length());
                }
                (*answered, *given) = (due, answer);
            }
            self.carried = self.carried.saturating_add(1);
        }
        delivery.commit(&peer, (sent, received));
        readers
    }

    /// Whether something has arrived there that has not been carried out, and when the next thing arrives, there or here.
    fn next(&self, now: u64) -> (bool, Option<u64>) {
        let due_of = |number: usize| self.slots.get(self.slot(number)).map(|slot| slot.due);
        let answered = due_of(0).filter(|_| self.carried > 0);
        let arriving = due_of(self.carried).filter(|_| self.carried < self.used && !self.has_failed);
        let next = [answered, arriving].into_iter().flatten().filter(|due| *due > now).min();
        (arriving.is_some_and(|due| due <= now), next)
    }

    /// Carries out what has arrived there, and finds what has arrived here; sets the timer for the next.
    fn arrive(&mut self, path: &Shared<Path<P>>, guard: &Guard<'_>) -> Arrived<P> {
        let now = path.scheduler.platform().now();
        let waited = self.without_receive.take().is_some();
        let readers = self.carry_out_arrived(path, guard, now);
        let first = self.slots.get(self.first).filter(|_| self.carried > 0);
        let has_answer = first.is_some_and(|slot| slot.due <= now);
        let waits_alone = self.without_receive.is_some() && self.carried == 0 && !waited;
        if let (_, Some(next)) = self.next(now) {
            path.timer.set(&Object::of(path), next);
        }
        Arrived { asker: self.asker.clone().filter(|_| has_answer || waits_alone), readers }
    }

    /// Frees the oldest slot.
    fn free_first(&mut self) -> Option<FarOperation> {
        let operation = self.slots.get_mut(self.first)?.operation.take();
        self.first = self.slot(1);
        self.used = self.used.saturating_sub(1);
        self.carried = self.carried.saturating_sub(1);
        operation
    }
}

fn length(range: &Range<u64>) -> usize {
    range.end.saturating_sub(range.start) as usize
}

impl<P: Platform> Path<P> {
    pub(crate) fn try_new(adapter: &AdapterObject<P>) -> Result<Shared<Self>, NoMemory> {
        let scheduler = &adapter.scheduler;
        let mut slots = Vec::new();
        // A queue pair of an adapter whose peers are at hand has no use for them.
        let is_far = matches!(adapter.far, Some(FarPeers::ConnectorsAndQueuePairs(_)));
        let window = if is_far { WINDOW } else { 0 };
        slots.try_reserve_exact(window)?;
        for _ in 0..window {
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(PIECE as usize)?;
            bytes.resize(PIECE as usize, 0);
            let slot = Slot { operation: None, due: 0, answer: Answer::Done, bytes };
            push_within_capacity(&mut slots, slot).map_err(|_| NoMemory)?;
        }
        let number = scheduler.next_object();
        let state = PathState {
            peer: None,
            asker: None,
            slots,
            first: 0,
            used: 0,
            carried: 0,
            is_open: false,
            without_receive: None,
            leaving: None,
            has_failed: false,
            last_due: [0; 2],
            travel: adapter.far.map(FarPeers::travel).unwrap_or_default(),
            random: Rng::with_seed(number),
        };
        // Not always on the processor of the consumer.
        let timer = Timer::try_new(scheduler, number as u32)?;
        Shared::try_new(Self { scheduler: scheduler.clone(), timer, state: P::Lock::new(state) })
    }

    pub(super) fn attach(&self, peer: Shared<QueuePairObject<P>>) {
        let before = self.state.with(|state| state.peer.replace(peer));
        drop(before);
    }

    /// Sends an operation with the bytes that `load` puts in their slot; `None` where there is no slot.
    pub(super) fn send(
        path: &Shared<Self>,
        pair: &Shared<QueuePairObject<P>>,
        operation: FarOperation,
        load: impl FnOnce(&mut [u8]) -> Result<(), Fault>,
    ) -> Option<Result<(), Fault>> {
        let now = path.scheduler.platform().now();
        path.state.with(|state| {
            if state.used >= state.slots.len() {
                return None;
            }
            let number = state.slot(state.used);
            let (moved, _) = operation.extent();
            if let Err(fault) = load(state.slots.get_mut(number)?.bytes.get_mut(..moved as usize)?) {
                return Some(Err(fault));
            }
            let due = state.due(now, 0);
            let slot = state.slots.get_mut(number)?;
            (slot.operation, slot.due, slot.answer) = (Some(operation), due, Answer::Done);
            state.used = state.used.saturating_add(1);
            state.asker.get_or_insert_with(|| Object::of(pair));
            match state.next(now) {
                (true, _) => path.scheduler.link(&Object::of(path)),
                (false, Some(next)) => path.timer.set(&Object::of(path), next),
                (false, None) => {}
            }
            Some(Ok(()))
        })
    }

    /// The oldest operation with its answer, if that has arrived; `store` stores what a Read brings. The answer that it waits
    /// for a receive comes each time, and its operation stays. Without an answer the requester is scheduled when it arrives.
    pub(super) fn take_answer(
        path: &Shared<Self>,
        now: u64,
        store: impl FnOnce(&FarOperation, &[u8]) -> Result<(), AccessFault>,
    ) -> Option<(FarOperation, Answer)> {
        let (taken, asker) = path.state.with(|state| {
            let taken = state.take_answer(now, store);
            if let (None, (_, Some(next))) = (&taken, state.next(now)) {
                path.timer.set(&Object::of(path), next);
            }
            let asker = if state.used == 0 { state.asker.take() } else { None };
            (taken, asker)
        });
        drop(asker);
        taken
    }

    /// The request of what is under way has ended, and with it everything: nothing is waited for. A receive that a message is half
    /// delivered into is given back.
    pub(super) fn abandon(&self) {
        let asker = self.state.with(|state| {
            while state.free_first().is_some() {}
            let open = core::mem::take(&mut state.is_open);
            if let Some(peer) = state.peer.as_ref().filter(|_| open) {
                let mut delivery = Delivery::new();
                delivery.resume(peer);
                delivery.end_request();
                delivery.commit(peer, (Traffic::default(), Traffic::default()));
            }
            (state.leaving, state.without_receive, state.has_failed) = (None, None, false);
            state.asker.take()
        });
        drop(asker);
    }

    /// Nothing more is asked.
    pub(super) fn release(&self) {
        self.abandon();
        let peer = self.state.with(|state| state.peer.take());
        if let Some(peer) = peer {
            responder::release(&peer);
        }
    }
}

impl<P: Platform> PathState<P> {
    fn take_answer(
        &mut self,
        now: u64,
        store: impl FnOnce(&FarOperation, &[u8]) -> Result<(), AccessFault>,
    ) -> Option<(FarOperation, Answer)> {
        let first = self.slots.get(self.first).filter(|_| self.used > 0)?;
        let operation = first.operation.as_ref()?;
        if self.carried == 0 {
            let unlimited = self.without_receive?;
            return Some((operation.clone(), Answer::NoReceive { unlimited }));
        }
        if first.due > now {
            return None;
        }
        let (moved, _) = operation.extent();
        let answer = match first.answer {
            Answer::Done => {
                let placed = first.bytes.get(..moved as usize).ok_or(AccessFault::Bounds);
                placed.and_then(|bytes| store(operation, bytes)).map_or_else(Answer::NotPlaced, |()| Answer::Done)
            }
            other => other,
        };
        Some((self.free_first()?, answer))
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
        let Arrived { asker, readers } = self.state.with(|state| state.arrive(self, &guard));
        self.scheduler.leave(guard);
        if let Some(stamp) = readers {
            self.scheduler.park(&Object::of(self), stamp);
        }
        if let Some(asker) = asker {
            self.scheduler.link(&asker);
        }
    }
}
