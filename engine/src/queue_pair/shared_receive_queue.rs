//! Shared receive queues: receives that several queue pairs take from.
//!
//! This file has the posted receives behind one lock, the senders that wait for one, and the threshold below which the consumer
//! is notified. A receive that was taken belongs to the queue pair that took it and completes there, whatever becomes of the
//! shared queue.
//!
//! Rules (NDKPI: NDK_FN_SRQ_RECEIVE, NDK_FN_MODIFY_SRQ, NDK_FN_SRQ_NOTIFICATION_CALLBACK): receives are handed out in the order
//! they were posted, each once; senders that find none are served in the order they came, each promised one receive when there
//! is one, so that no sender that comes after it takes it; a promise that is not kept goes to the next. A new queue is not
//! armed; a notification disarms. Receives that are left when the queue is closed are dropped without a completion: there is no
//! queue pair that they belong to. Posting, taking and waiting allocate nothing and do a bounded amount of work.

use alloc::vec::Vec;

use softndk_cells::atomic::{AtomicBool, Ordering};
use softndk_cells::{Dispose, List, NoMemory, Serialized, Shared};

use crate::capacity::push_within_capacity;
use crate::completion::rings::{Ring, Rings, UsedUp};
use crate::error::{CreateError, PostError, ResizeError};
use crate::limits::GRANT_STEP;
use crate::memory::protection_domain::{DomainObject, ProtectionDomain};
use crate::object::event::{Close, Notification, Notifying, ServicePass, Sink};
use crate::object::header::{Antecedents, Core, Hold, Object, object};
use crate::object::snapshot::ObjectKind;
use crate::platform::{Lock, Platform};
use crate::queue_pair::request::Receive;
use crate::token::Sge;

/// Modifications at the same time that one of them lets pass; the contract allows none.
const MODIFY_TRIES: u32 = 4;

pub(crate) struct SharedReceiveObject<P: Platform> {
    pub(crate) core: Core<P>,
    pub(crate) domain: Shared<DomainObject<P>>,
    /// Most SGEs of a receive.
    sges: u32,
    notify: Option<P::NotifyCallback>,
    /// Where notifications run by preference.
    home: Option<u32>,
    /// SGEs of the receive that is being posted; the consumer's list is not read under the lock.
    staging: Serialized<Vec<Sge>>,
    inner: P::Lock<SharedReceives<P>>,
}

/// Receives and SGEs count from 1 in the order they were posted; positions never wrap while a machine runs.
#[expect(clippy::struct_excessive_bools, reason = "independent facts of the notification protocol")]
struct SharedReceives<P: Platform> {
    receives: Rings<Receive>,
    sges: Rings<Sge>,
    depth: u64,
    posted: u64,
    taken: u64,
    sges_posted: u64,
    sges_taken: u64,
    /// Senders that wait, the first to come in front. Those who gave up are skipped when they come to the front.
    waiting: List<Shared<WaitingSender<P>>>,
    /// Receives that senders have been promised and not taken yet.
    promised: u64,
    threshold: u64,
    armed: bool,
    due: bool,
    notifying: bool,
    closed: bool,
}

/// Where the sender of one queue pair waits for a receive; a place for each queue pair that uses a shared queue.
pub(crate) struct WaitingSender<P: Platform> {
    /// Scheduled when it is promised a receive.
    sender: P::Lock<Option<Object<P>>>,
    /// Promised; changes under the lock of the shared queue.
    granted: AtomicBool,
}

impl<P: Platform> Dispose for WaitingSender<P> {}

/// How a queue pair uses a shared queue.
pub(crate) struct SrqAttachment<P: Platform> {
    pub(crate) queue: Shared<SharedReceiveObject<P>>,
    line: Shared<WaitingSender<P>>,
}

/// Memory to give back with no lock held.
pub(crate) type Emptied = (Option<Ring<Receive>>, Option<Ring<Sge>>);

/// A shared receive queue.
pub struct SharedReceiveQueue<P: Platform>(pub(crate) Shared<SharedReceiveObject<P>>);

impl<P: Platform> Clone for SharedReceiveQueue<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// What a shared receive queue is made with.
#[derive(Clone, Copy)]
pub struct SharedReceiveQueueSettings<P: Platform> {
    pub depth: u32,
    /// Most SGEs of a receive.
    pub sges: u32,
    /// Kept until the queue is armed by [`SharedReceiveQueue::modify`].
    pub threshold: u32,
    pub notify: Option<P::NotifyCallback>,
    /// The processor to run notifications on.
    pub processor: Option<u32>,
}

impl<P: Platform> SharedReceiveQueueSettings<P> {
    pub(crate) fn check(&self, domain: &Shared<DomainObject<P>>) -> Result<(), CreateError> {
        let limits = &domain.open.adapter.limits;
        let over = self.depth == 0 || self.depth > limits.shared_depth || self.sges > limits.receive_sges;
        if over { Err(CreateError::OverLimit) } else { Ok(()) }
    }

    /// Bytes of the rings, which are what the queue is made of.
    pub(crate) fn size(&self) -> u64 {
        size(self.depth, self.sges)
    }
}

/// As [`SharedReceiveQueueSettings::size`].
fn size(depth: u32, sges: u32) -> u64 {
    let ring =
        |entries: u64, size: usize| entries.checked_next_power_of_two().unwrap_or(u64::MAX).saturating_mul(size as u64);
    let sges = u64::from(depth).saturating_mul(u64::from(sges));
    ring(u64::from(depth), size_of::<Receive>()).saturating_add(ring(sges, size_of::<Sge>()))
}

/// SGEs of as many receives; one alone lies in its receive.
fn sge_capacity(depth: u32, sges: u32) -> Result<usize, NoMemory> {
    if sges > 1 { (depth as usize).checked_mul(sges as usize).ok_or(NoMemory) } else { Ok(1) }
}

/// Rings for a new depth, and lists that can also hold the earlier rings.
struct FreshRings {
    receives: (Ring<Receive>, Vec<Ring<Receive>>),
    sges: (Ring<Sge>, Vec<Ring<Sge>>),
}

impl FreshRings {
    fn try_new(depth: u32, sges: u32, rings: (usize, usize)) -> Result<Self, NoMemory> {
        let (mut receives, mut sge_list) = (Vec::new(), Vec::new());
        receives.try_reserve_exact(rings.0)?;
        sge_list.try_reserve_exact(rings.1)?;
        Ok(Self {
            receives: (Ring::try_new(depth as usize)?, receives),
            sges: (Ring::try_new(sge_capacity(depth, sges)?)?, sge_list),
        })
    }
}

/// How a modification ended under the lock.
enum Modified {
    Done(Option<(UsedUp<Receive>, UsedUp<Sge>)>),
    Occupied,
    /// Another one happened in between: the lists have to be longer.
    MoreRings,
}

impl<P: Platform> SharedReceiveQueue<P> {
    /// Bytes that such a queue takes, roughly; an error where it would be refused.
    pub fn size(domain: &ProtectionDomain<P>, settings: &SharedReceiveQueueSettings<P>) -> Result<u64, CreateError> {
        settings.check(&domain.0)?;
        Ok(settings.size())
    }

    /// A queue of receives for several queue pairs. It is armed by [`Self::modify`] only.
    #[expect(clippy::needless_pass_by_value, reason = "the settings are used up by the call")]
    pub fn create(
        domain: &ProtectionDomain<P>,
        settings: SharedReceiveQueueSettings<P>,
        consumer_object: P::ConsumerObject,
    ) -> Result<Self, CreateError> {
        let domain = &domain.0;
        let adapter = &domain.open.adapter;
        adapter.ready()?;
        settings.check(domain)?;
        let mut staging = Vec::new();
        staging.try_reserve_exact(settings.sges as usize).map_err(NoMemory::from)?;
        let inner = SharedReceives {
            receives: Rings::try_new(settings.depth as usize)?,
            sges: Rings::try_new(sge_capacity(settings.depth, settings.sges)?)?,
            depth: u64::from(settings.depth),
            posted: 0,
            taken: 0,
            sges_posted: 0,
            sges_taken: 0,
            waiting: List::new(),
            promised: 0,
            threshold: u64::from(settings.threshold),
            armed: false,
            due: false,
            notifying: false,
            closed: false,
        };
        let queue = Shared::try_new(SharedReceiveObject {
            core: adapter.core(
                ObjectKind::SharedReceiveQueue,
                Some(consumer_object),
                Antecedents::none().with(Object::of(domain)),
            ),
            domain: domain.clone(),
            sges: settings.sges,
            notify: settings.notify,
            home: settings.processor,
            staging: Serialized::new(staging),
            inner: P::Lock::new(inner),
        })?;
        adapter.register(&Object::of(&queue))?;
        Ok(Self(queue))
    }

    /// The SGEs that a receive may have.
    pub(crate) fn most_sges(&self) -> u32 {
        self.0.sges
    }

    /// Posts a receive for whichever queue pair needs one first.
    pub fn receive(&self, context: u64, sges: impl ExactSizeIterator<Item = Sge>) -> Result<(), PostError> {
        let queue = &self.0;
        let count = sges.len();
        if count > queue.sges as usize {
            return Err(PostError::TooManySges);
        }
        let mut staged = queue.staging.raise().ok_or(PostError::Concurrent)?;
        staged.clear();
        let mut length = 0_u64;
        for sge in sges.take(count) {
            length += u64::from(sge.length);
            push_within_capacity(&mut staged, sge).map_err(|_| PostError::TooManySges)?;
        }
        if length > u64::from(queue.domain.open.adapter.limits.transfer_length) {
            return Err(PostError::TooMuchData);
        }
        let single = if count == 1 { staged.first().copied().unwrap_or_default() } else { Sge::default() };
        let length = u32::try_from(length).map_err(|_| PostError::TooMuchData)?;
        let listed = u16::try_from(count).map_err(|_| PostError::TooManySges)?;
        let receive = Receive { context, first: 0, count: listed, single, length, shared: true };
        let granted = queue.inner.with(|inner| {
            inner.post(receive, if count > 1 { &staged } else { &[] })?;
            Ok(inner.grant(queue))
        })?;
        drop(staged);
        wake(queue, granted);
        Ok(())
    }

    /// Changes depth and threshold; 0 keeps what there is. A threshold arms the notification, which is made at once when fewer
    /// receives are queued. With an error nothing has changed.
    pub fn modify(&self, depth: u32, threshold: u32) -> Result<(), ResizeError> {
        let queue = &self.0;
        if depth > queue.domain.open.adapter.limits.shared_depth {
            return Err(ResizeError::OverLimit);
        }
        for _ in 0..MODIFY_TRIES {
            let rings = queue.inner.with(|inner| (inner.receives.count(), inner.sges.count()));
            let mut fresh = if depth > 0 { Some(FreshRings::try_new(depth, queue.sges, rings)?) } else { None };
            match queue.inner.with(|inner| inner.modify(depth, threshold, &mut fresh, queue)) {
                Modified::Done(used_up) => {
                    drop(used_up);
                    return Ok(());
                }
                Modified::Occupied => return Err(ResizeError::Occupied),
                Modified::MoreRings => {}
            }
        }
        Err(ResizeError::NoResources)
    }

    /// Bytes that the queue takes with this depth, roughly; 0 for 0.
    pub fn size_of(&self, depth: u32) -> u64 {
        if depth == 0 { 0 } else { size(depth, self.0.sges) }
    }

    /// Receives that are posted and not taken.
    pub fn queued(&self) -> u32 {
        self.0.inner.with(|inner| inner.queued() as u32)
    }

    /// Keeps the close from completing while something of the front end's own is under way.
    pub fn hold(&self) -> Hold<P> {
        Hold::new(Object::of(&self.0))
    }

    pub fn close(&self, callback: P::CloseCallback) -> Close<P> {
        self.0.core.close(Some(callback), || {
            self.0.inner.with(|inner| {
                inner.closed = true;
                inner.armed = false;
                inner.due = false;
            });
        })
    }
}

impl<P: Platform> SharedReceives<P> {
    fn queued(&self) -> u64 {
        self.posted - self.taken
    }

    fn post(&mut self, mut receive: Receive, sges: &[Sge]) -> Result<(), PostError> {
        if self.queued() >= self.depth {
            return Err(PostError::QueueFull);
        }
        receive.first = self.sges_posted as usize;
        for sge in sges {
            self.sges.store(self.sges_posted, || *sge);
            self.sges_posted += 1;
        }
        self.receives.store(self.posted, || receive);
        self.posted += 1;
        Ok(())
    }

    /// Takes the oldest receive and copies its SGEs.
    fn pop(&mut self, sges: &mut Vec<Sge>, queue: &Shared<SharedReceiveObject<P>>) -> (Option<Receive>, Emptied) {
        let (receive, ring) = self.receives.take(self.taken);
        self.taken += 1;
        let mut emptied = (ring, None);
        sges.clear();
        if let Some(receive) = &receive {
            if receive.count == 1 {
                let kept = push_within_capacity(sges, receive.single);
                debug_assert!(kept.is_ok());
            } else {
                for _ in 0..receive.count {
                    let (sge, ring) = self.sges.take(self.sges_taken);
                    self.sges_taken += 1;
                    // Rings end between two receives, so that there is one at most.
                    emptied.1 = emptied.1.or(ring);
                    let kept = push_within_capacity(sges, sge.unwrap_or_default());
                    debug_assert!(kept.is_ok());
                }
            }
        }
        self.apply_threshold(queue);
        (receive, emptied)
    }

    /// Promises free receives to waiting senders, first come, first served; returns the sender to wake. One receive is free at
    /// a time, unless many have given up waiting: then a service pass goes on.
    fn grant(&mut self, queue: &Shared<SharedReceiveObject<P>>) -> Option<Object<P>> {
        for _ in 0..GRANT_STEP {
            if self.queued() <= self.promised {
                return None;
            }
            let line = self.waiting.pop()?;
            if let Some(sender) = line.sender.with(Option::take) {
                line.granted.store(true, Ordering::Relaxed);
                self.promised += 1;
                if self.queued() > self.promised && !self.waiting.is_empty() {
                    link(queue);
                }
                return Some(sender);
            }
        }
        link(queue);
        None
    }

    /// Disarms and makes a notification due when there are too few receives.
    fn apply_threshold(&mut self, queue: &Shared<SharedReceiveObject<P>>) {
        if self.armed && self.queued() < self.threshold {
            self.armed = false;
            self.due = queue.notify.is_some() && !self.closed;
        }
        if self.due && !self.notifying {
            link(queue);
        }
    }

    fn modify(
        &mut self,
        depth: u32,
        threshold: u32,
        fresh: &mut Option<FreshRings>,
        queue: &Shared<SharedReceiveObject<P>>,
    ) -> Modified {
        let mut used_up = None;
        if depth > 0 {
            if self.queued() > u64::from(depth) {
                return Modified::Occupied;
            }
            let rings = (self.receives.count(), self.sges.count());
            let enough =
                |fresh: &mut FreshRings| fresh.receives.1.capacity() >= rings.0 && fresh.sges.1.capacity() >= rings.1;
            let Some(fresh) = fresh.take_if(enough) else { return Modified::MoreRings };
            let (ring, list) = fresh.receives;
            let receives = self.receives.change(ring, list, self.taken, self.posted);
            let (ring, list) = fresh.sges;
            let sges = self.sges.change(ring, list, self.sges_taken, self.sges_posted);
            self.depth = u64::from(depth);
            used_up = Some((receives, sges));
        }
        if threshold > 0 {
            self.threshold = u64::from(threshold);
            self.armed = !self.closed;
            self.apply_threshold(queue);
        }
        Modified::Done(used_up)
    }
}

impl<P: Platform> SrqAttachment<P> {
    pub(crate) fn try_new(queue: &SharedReceiveQueue<P>) -> Result<Self, NoMemory> {
        let line = Shared::try_new(WaitingSender { sender: P::Lock::new(None), granted: AtomicBool::new(false) })?;
        Ok(Self { queue: queue.0.clone(), line })
    }

    /// Gives the sender the next receive and its SGEs, if the sender is next; else it waits, if it may. What is returned is
    /// dropped with no lock held.
    pub(crate) fn take(&self, sender: &Object<P>, may_wait: bool, sges: &mut Vec<Sge>) -> (Option<Receive>, Emptied) {
        self.queue.inner.with(|inner| {
            if self.line.granted.swap(false, Ordering::Relaxed) {
                inner.promised = inner.promised.saturating_sub(1);
                return inner.pop(sges, &self.queue);
            }
            if inner.queued() > inner.promised && inner.waiting.is_empty() {
                return inner.pop(sges, &self.queue);
            }
            if may_wait {
                let before = self.line.sender.with(|place| place.replace(sender.clone()));
                debug_assert!(before.is_none_or(|before| before.is(sender)));
                if let Some(line) = self.line.link() {
                    inner.waiting.push(line);
                }
                if inner.queued() > inner.promised {
                    // Those in front have given up, or a service pass is on its way to them.
                    link(&self.queue);
                }
            }
            (None, (None, None))
        })
    }

    /// The sender takes no more: its place and what it was promised go to others.
    pub(crate) fn leave(&self) {
        let (sender, granted) = self.queue.inner.with(|inner| {
            let sender = self.line.sender.with(Option::take);
            if !self.line.granted.swap(false, Ordering::Relaxed) {
                return (sender, None);
            }
            inner.promised = inner.promised.saturating_sub(1);
            (sender, inner.grant(&self.queue))
        });
        drop(sender);
        wake(&self.queue, granted);
    }
}

fn wake<P: Platform>(queue: &SharedReceiveObject<P>, sender: Option<Object<P>>) {
    if let Some(sender) = sender {
        queue.core.scheduler.link(&sender);
    }
}

fn link<P: Platform>(queue: &Shared<SharedReceiveObject<P>>) {
    queue.core.scheduler.link_at(&Object::of(queue), queue.home);
}

object!(SharedReceiveObject {
    fn work(&self, pass: &mut ServicePass<'_, P>) {
        service(self, pass.sink);
    }

    fn notified(&self) {
        notified(self);
    }
});

/// Continues with promises and makes a due notification.
#[inline(never)]
fn service<P: Platform>(queue: &Shared<SharedReceiveObject<P>>, sink: &mut dyn Sink<P>) {
    let (granted, begun) = queue.inner.with(|inner| {
        let granted = inner.grant(queue);
        let begins = inner.due && !inner.notifying && !inner.closed;
        inner.due &= !begins;
        inner.notifying |= begins;
        // Held before the lock is let go: a close that comes now waits for the callback.
        (granted, begins.then(|| Hold::new(Object::of(queue))))
    });
    wake(queue, granted);
    if let (Some(hold), Some(callback)) = (begun, queue.notify) {
        sink.notify(Notification { callback, status: Ok(()), guard: Notifying(Object::of(queue)), hold });
    }
}

/// The notification has returned.
fn notified<P: Platform>(queue: &Shared<SharedReceiveObject<P>>) {
    queue.inner.with(|inner| {
        inner.notifying = false;
        inner.apply_threshold(queue);
    });
}
