//! Completion queues: the results of requests, and their notifications.
//!
//! A completion queue is bounded and has one lock, taken once a batch. The rules of arming and moderation are in `arming.rs`. A
//! due notification is a mark in the queue; a service pass makes the call.
//!
//! Rules (NDKPI: NDK_FN_CQ_NOTIFICATION_CALLBACK, NDK_FN_RESIZE_CQ): queues start unarmed; notifications of one queue never
//! overlap; errors satisfy a solicited arm; a resize loses no completion, and one that finds more of them than the new depth
//! changes nothing; a queue that took more than it holds has failed for good, and every queue pair that uses it ends.

use alloc::vec::Vec;

use arrayvec::ArrayVec;
use softndk_cells::atomic::{AtomicBool, Ordering};
use softndk_cells::{NoMemory, Shared};

use crate::adapter::open::OpenObject;
use crate::completion::arming::{Ask, Moderation, Queue, Resized, UNBOUNDED};
use crate::completion::rings::Ring;
use crate::counters::count;
use crate::error::{AccessFault, CreateError, ModerationError, Outcome, ResizeError};
use crate::flags::Operation;
use crate::limits::{ABORT_STEP, BATCH, DISPATCH_RESULTS, RINGS};
use crate::object::allowance::Allowance;
use crate::object::event::{Close, Notification, Notifying, ServicePass, Sink};
use crate::object::header::{Antecedents, Core, Hold, Object, object};
use crate::object::snapshot::ObjectKind;
use crate::object::timer::Timer;
use crate::platform::{Lock, Platform};

/// Resizes at the same time that one of them lets pass; the contract allows none.
const RESIZE_TRIES: u32 = 4;

/// How a completion queue is armed, weakest first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Arm {
    /// Notify when the queue fails.
    Errors,
    /// Also when a solicited message was received or a request failed.
    Solicited,
    /// Also on any completion.
    Any,
}

/// The bit that marks a Terminate's code; below it are four bits of the layer, four of the type and eight of the code.
pub const TERMINATED: u32 = 1 << 16;

/// One completion.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Completion {
    /// The consumer's value given with the request.
    pub context: u64,
    /// The consumer's value given with the queue pair.
    pub queue_pair_context: u64,
    pub outcome: Outcome,
    /// What was wrong, of a request that failed by memory, a token or a receive.
    pub fault: Option<AccessFault>,
    pub operation: Operation,
    /// The message was sent with the solicited flag.
    pub solicited: bool,
    /// Bytes received, or written by the Write that took the receive; the length of a Send, Read or Write; 0 of other requests and of all that
    /// failed.
    pub bytes: u32,
    /// The token that a `ReceiveAndInvalidate` invalidated, or the immediate data of a receive that brought some; of what a Terminate has
    /// failed, [`TERMINATED`] and its layer, type and code.
    pub output: u32,
    /// The front end's number of the queue pair ([`QueuePair::set_tag`](crate::QueuePair::set_tag)).
    pub tag: u32,
}

impl Completion {
    pub(crate) fn satisfies_solicited(&self) -> bool {
        self.solicited || self.outcome != Outcome::Success
    }
}

/// Completions gathered for one queue, so that its lock is taken once for several. On the stack of the context that gathers them.
pub(crate) struct Batch(ArrayVec<Completion, BATCH>);

impl Batch {
    pub(crate) const fn new() -> Self {
        Self(ArrayVec::new_const())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.is_full()
    }

    /// Completions that can still be pushed.
    pub(crate) fn free(&self) -> usize {
        BATCH.saturating_sub(self.0.len())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Precondition: the batch is not full.
    pub(crate) fn push(&mut self, completion: Completion) {
        let kept = self.0.try_push(completion);
        debug_assert!(kept.is_ok());
    }

    pub(crate) fn entries(&mut self) -> &mut [Completion] {
        &mut self.0
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

pub(crate) struct CompletionQueueObject<P: Platform> {
    pub(crate) core: Core<P>,
    pub(crate) open: Shared<OpenObject<P>>,
    notify: Option<P::NotifyCallback>,
    /// Where notifications run by preference.
    home: Option<u32>,
    /// It has overrun: what depends on it ends.
    failed: AtomicBool,
    inner: P::Lock<LockedQueue<P>>,
}

struct LockedQueue<P: Platform> {
    queue: Queue,
    /// There once the queue has been moderated by an interval.
    timer: Option<Timer<P>>,
    /// The exhaustion of an allowance in which the queue has returned no results.
    answered_empty: u64,
    /// Results that the queue may still hand out in that exhaustion: it alone, whatever others have answered.
    granted: u64,
    /// Where in the adapter's registry the search for objects that depend on this failed queue is; `None` when there is nothing
    /// to do.
    aborting: Option<usize>,
}

impl<P: Platform> LockedQueue<P> {
    /// The follow-up that the change requires; a deadline is set at once.
    #[inline]
    fn update_due(&mut self, queue: &Shared<CompletionQueueObject<P>>) -> Ask {
        // Mostly the consumer polls, or has not armed yet.
        if queue.notify.is_some() && self.queue.is_wanted() { self.find_due(queue) } else { Ask::Nothing }
    }

    #[inline(never)]
    fn find_due(&mut self, queue: &Shared<CompletionQueueObject<P>>) -> Ask {
        let platform = &queue.core.scheduler.platform();
        let (now, resolution) =
            if self.queue.needs_clock() { (platform.now(), platform.timer_resolution()) } else { (0, 0) };
        let ask = self.queue.update_due(now, resolution);
        if let (Ask::At(deadline), Some(timer)) = (ask, &self.timer)
            && deadline != UNBOUNDED
        {
            timer.set(&Object::of(queue), deadline);
        }
        ask
    }
}

/// What a poll at DISPATCH_LEVEL may hand out.
#[derive(Clone, Copy)]
enum Permitted {
    /// Of the processor's allowance.
    Results(u32),
    /// Of what the queue has earned by an empty answer.
    Granted(u32),
}

impl Permitted {
    fn results(self) -> u32 {
        match self {
            Self::Results(results) | Self::Granted(results) => results,
        }
    }
}

fn saturate(results: u64) -> u32 {
    u32::try_from(results).unwrap_or(u32::MAX)
}

/// A completion queue.
pub struct CompletionQueue<P: Platform>(pub(crate) Shared<CompletionQueueObject<P>>);

impl<P: Platform> Clone for CompletionQueue<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Platform> CompletionQueue<P> {
    pub(crate) fn create(
        open: &Shared<OpenObject<P>>,
        depth: u32,
        notify: Option<P::NotifyCallback>,
        home: Option<u32>,
        consumer_object: P::ConsumerObject,
    ) -> Result<Self, CreateError> {
        let adapter = &open.adapter;
        adapter.ready()?;
        Self::size(open, depth)?;
        let queue = Shared::try_new(CompletionQueueObject {
            core: adapter.core(
                ObjectKind::CompletionQueue,
                Some(consumer_object),
                Antecedents::none().with(Object::of(open)),
            ),
            open: open.clone(),
            notify,
            home,
            failed: AtomicBool::new(false),
            inner: P::Lock::new(LockedQueue {
                queue: Queue::try_new(depth, open.semantics.queue_slack)?,
                timer: None,
                answered_empty: 0,
                granted: 0,
                aborting: None,
            }),
        })?;
        adapter.register(&Object::of(&queue))?;
        Ok(Self(queue))
    }

    /// Bytes that a queue of this depth takes, roughly; an error where there can be none.
    pub(crate) fn size(open: &OpenObject<P>, depth: u32) -> Result<u64, CreateError> {
        if depth == 0 || depth > open.adapter.limits.completion_depth {
            return Err(CreateError::OverLimit);
        }
        Ok(u64::from(with_slack(open, depth)).next_power_of_two().saturating_mul(size_of::<Completion>() as u64))
    }

    pub fn depth(&self) -> u32 {
        self.0.inner.with(|inner| inner.queue.depth as u32)
    }

    /// Takes up to `most` completions, oldest first, and gives each with its index to `each`, with no lock held: what it writes
    /// to may be pageable when the caller is at PASSIVE_LEVEL. Returns their number. The contract requires that callers are
    /// serialized; two at a time get each completion once, but in no order.
    ///
    /// At DISPATCH_LEVEL a poll that finds nothing brings a queue pair that waits on this processor a bounded step forward and
    /// still returns 0, and one that has handed out [`DISPATCH_RESULTS`] in a row returns 0 once: a loop that ends with an empty
    /// queue ends, and one that waits for a result finds it.
    pub fn poll(&self, most: u32, each: impl FnMut(u32, &Completion)) -> u32 {
        let scheduler = &self.0.core.scheduler;
        let allowance = if scheduler.platform().at_dispatch() { scheduler.allowance() } else { None };
        let permitted = allowance.map_or(Permitted::Results(u32::MAX), |allowance| self.permitted(allowance));
        let most = most.min(permitted.results());
        let given = self.hand_out(most, each);
        match (allowance, permitted) {
            (Some(allowance), Permitted::Results(_)) => allowance.hand_out(u64::from(given)),
            (Some(_), Permitted::Granted(_)) => {
                self.0.inner.with(|inner| inner.granted = inner.granted.saturating_sub(u64::from(given)));
            }
            (None, _) => {}
        }
        if given == 0 {
            scheduler.step_for_poll();
        }
        given
    }

    /// Results that a poll at DISPATCH_LEVEL may hand out.
    fn permitted(&self, allowance: &Allowance) -> Permitted {
        let left = allowance.results();
        if left != 0 && left != DISPATCH_RESULTS {
            return Permitted::Results(saturate(left));
        }
        let (permitted, ask) = self.0.inner.with(|inner| {
            let waiting = inner.queue.waiting();
            if left != 0 {
                allowance.foresee(waiting);
                return (Permitted::Results(saturate(allowance.results())), Ask::Nothing);
            }
            let again = core::mem::replace(&mut inner.answered_empty, allowance.exhaustion()) == allowance.exhaustion();
            if again && inner.granted > 0 {
                return (Permitted::Granted(saturate(inner.granted)), Ask::Nothing);
            }
            // A consumer that polls this queue again is not in a loop that ends with it. It may be in one that ends with
            // another queue, which has not returned empty yet: the grant belongs to this queue.
            inner.granted = DISPATCH_RESULTS.max(waiting);
            // What stays behind has not been seen: the arm that follows, or stands, notifies of it.
            inner.queue.count_waiting_as_new();
            (Permitted::Granted(0), inner.update_due(&self.0))
        });
        request_pass(&self.0, ask);
        permitted
    }

    #[inline]
    fn hand_out(&self, most: u32, mut each: impl FnMut(u32, &Completion)) -> u32 {
        let mut given = 0;
        let mut batch = Batch::new();
        while given < most {
            // A batch at a time, so that a context that adds completions does not wait for long.
            let capacity = batch.free().min((most - given) as usize);
            let (used_up, more) = self.0.inner.with(|inner| {
                let (_, used_up) = inner.queue.take(capacity, |completion| batch.push(*completion));
                (used_up, inner.queue.waiting() > 0)
            });
            drop(used_up);
            for completion in batch.entries() {
                each(given, completion);
                given += 1;
            }
            batch.clear();
            if !more {
                break;
            }
        }
        given
    }

    /// Takes the oldest completions for a front end that keeps bounds of its own: how many, and whether more wait. With
    /// `arm_empty` a queue that is empty then is armed for any.
    #[inline(never)]
    pub fn take(&self, into: &mut [Completion], arm_empty: bool) -> (usize, bool) {
        let (count, used_up, more, ask) = self.0.inner.with(|inner| {
            let mut places = into.iter_mut();
            let (count, used_up) = inner.queue.take(places.len(), |completion| {
                if let Some(place) = places.next() {
                    *place = *completion;
                }
            });
            let more = inner.queue.waiting() > 0;
            let ask = if arm_empty && !more {
                inner.queue.arm(Arm::Any);
                inner.update_due(&self.0)
            } else {
                Ask::Nothing
            };
            (count, used_up, more, ask)
        });
        drop(used_up);
        request_pass(&self.0, ask);
        (count, more)
    }

    /// Takes back the arm, if no notification is due: the caller is going to look.
    pub fn disarm(&self) {
        self.0.inner.with(|inner| inner.queue.disarm());
    }

    /// Requests one notification.
    pub fn arm(&self, arm: Arm) {
        let ask = self.0.inner.with(|inner| {
            inner.queue.arm(arm);
            inner.update_due(&self.0)
        });
        request_pass(&self.0, ask);
    }

    /// As [`Self::arm`] for any completion, for a consumer that leaves completions behind: those count as new, so that it is
    /// notified of them in a later service pass.
    pub fn arm_for_rest(&self) {
        let ask = self.0.inner.with(|inner| {
            inner.queue.count_waiting_as_new();
            inner.queue.arm(Arm::Any);
            inner.update_due(&self.0)
        });
        request_pass(&self.0, ask);
    }

    /// Whether it took more completions than it holds and reports no more.
    pub fn has_failed(&self) -> bool {
        self.0.has_failed()
    }

    /// Keeps the close from completing while something of the front end's own is under way.
    pub fn hold(&self) -> Hold<P> {
        Hold::new(Object::of(&self.0))
    }

    /// Bytes that the queue takes with another depth, roughly; an error where it cannot have it.
    pub fn size_of(&self, depth: u32) -> Result<u64, CreateError> {
        Self::size(&self.0.open, depth)
    }

    /// Gives the queue another depth. Completions stay, whatever is added or taken meanwhile. Each resize of a queue that is
    /// never polled leaves a ring behind, so there is a bound to them.
    pub fn resize(&self, depth: u32) -> Result<(), ResizeError> {
        if depth == 0 || depth > self.0.open.adapter.limits.completion_depth {
            return Err(ResizeError::OverLimit);
        }
        let capacity = with_slack(&self.0.open, depth) as usize;
        let mut spare = None;
        for _ in 0..RESIZE_TRIES {
            let (rings, failed) = self.0.inner.with(|inner| (inner.queue.rings(), inner.queue.failure.is_some()));
            if failed {
                return Err(ResizeError::Failed);
            }
            if rings >= RINGS {
                return Err(ResizeError::NoResources);
            }
            let mut list = Vec::new();
            list.try_reserve_exact(rings).map_err(NoMemory::from)?;
            spare = Some((spare.take().map_or_else(|| Ring::try_new(capacity), |(fresh, _)| Ok(fresh))?, list));
            match self.0.inner.with(|inner| inner.queue.resize(depth, &mut spare)) {
                Resized::Done(used_up) => {
                    drop(used_up);
                    return Ok(());
                }
                Resized::Occupied => return Err(ResizeError::Occupied),
                Resized::MoreRings => {}
            }
        }
        Err(ResizeError::NoResources)
    }

    /// Holds notifications back until `count` completions have come together or the first of them is `interval` microseconds
    /// old. 0 and 1 stand for no moderation at all, `u32::MAX` (and a count over the depth) for no bound; two of these are a
    /// [`ModerationError::Mix`]. The newest settings hold at once.
    pub fn moderate(&self, interval: u32, count: u32) -> Result<(), ModerationError> {
        let timer = if moderates_by_time(interval, count) {
            let processor = self.0.home.unwrap_or_else(|| self.0.core.scheduler.platform().processor());
            Some(Timer::try_new(&self.0.core.scheduler, processor).map_err(|NoMemory| ModerationError::NoResources)?)
        } else {
            None
        };
        let (ask, unused) = self.0.inner.with(|inner| {
            let moderation = moderation_of(interval, count, inner.queue.depth)?;
            let unused = if inner.timer.is_none() && !inner.queue.closed {
                inner.timer = timer;
                None
            } else {
                timer
            };
            inner.queue.moderate(moderation);
            Ok((inner.update_due(&self.0), unused))
        })?;
        drop(unused);
        request_pass(&self.0, ask);
        Ok(())
    }

    pub fn close(&self, callback: P::CloseCallback) -> Close<P> {
        self.0.core.close(Some(callback), || {
            self.0.inner.with(|inner| {
                inner.queue.close();
                if let Some(timer) = &inner.timer {
                    timer.clear();
                }
            });
        })
    }
}

const fn moderates_by_time(interval: u32, count: u32) -> bool {
    interval != 0 && interval != u32::MAX && count > 1
}

/// The entries that a queue of this depth has.
fn with_slack<P: Platform>(open: &OpenObject<P>, depth: u32) -> u32 {
    depth.saturating_add(open.semantics.queue_slack)
}

/// The settings as the queue takes them.
fn moderation_of(interval: u32, count: u32, depth: u64) -> Result<Option<Moderation>, ModerationError> {
    if interval == 0 || count <= 1 {
        return Ok(None);
    }
    let endless = count == u32::MAX || u64::from(count) > depth;
    match (interval == u32::MAX, endless) {
        (true, true) => Err(ModerationError::Mix),
        (true, false) => Ok(Some(Moderation { interval: UNBOUNDED, count: u64::from(count) })),
        (false, _) => {
            let count = if endless { UNBOUNDED } else { u64::from(count) };
            Ok(Some(Moderation { interval: u64::from(interval) * 1000, count }))
        }
    }
}

/// Adds completions under one lock and schedules a notification if one is due; false when the queue has failed and takes none.
pub(crate) fn push_batch<P: Platform>(queue: &Shared<CompletionQueueObject<P>>, completions: &[Completion]) -> bool {
    if completions.is_empty() {
        return true;
    }
    push(queue, |entries| entries.push(completions).is_ok())
}

/// Adds a completion as [`push_batch`] does: a success that is not solicited, made in its place.
#[inline]
pub(crate) fn push_success<P: Platform>(
    queue: &Shared<CompletionQueueObject<P>>,
    make: impl FnOnce() -> Completion,
) -> bool {
    push(queue, |entries| entries.push_success(make).is_ok())
}

#[inline]
fn push<P: Platform>(queue: &Shared<CompletionQueueObject<P>>, add: impl FnOnce(&mut Queue) -> bool) -> bool {
    let (pushed, ask, just_failed) = queue.inner.with(|inner| {
        let failed_before = inner.queue.failure.is_some();
        let pushed = add(&mut inner.queue);
        let just_failed = !pushed && !failed_before;
        if just_failed {
            inner.aborting = Some(0);
        }
        (pushed, inner.update_due(queue), just_failed)
    });
    if just_failed {
        fail(queue);
    }
    request_pass(queue, ask);
    pushed
}

/// The queue has overrun: what depends on it ends in a service pass.
#[cold]
fn fail<P: Platform>(queue: &Shared<CompletionQueueObject<P>>) {
    queue.failed.store(true, Ordering::Release);
    count(&queue.open.adapter.statistics.completion_queue_error);
    queue.core.scheduler.link(&Object::of(queue));
}

#[inline]
fn request_pass<P: Platform>(queue: &Shared<CompletionQueueObject<P>>, ask: Ask) {
    if let Ask::Pass | Ask::PassEnd = ask {
        link(queue, ask == Ask::PassEnd);
    }
}

#[inline(never)]
fn link<P: Platform>(queue: &Shared<CompletionQueueObject<P>>, at_end: bool) {
    let scheduler = &queue.core.scheduler;
    if at_end {
        scheduler.link_last(&Object::of(queue), queue.home);
    } else {
        scheduler.link_at(&Object::of(queue), queue.home);
    }
}

/// Puts a bounded number of the objects that depend on a failed queue on the run queue; the rest in a later service pass.
fn abort<P: Platform>(queue: &Shared<CompletionQueueObject<P>>) {
    let Some(mut index) = queue.inner.with(|inner| inner.aborting.take()) else { return };
    let scheduler = &queue.core.scheduler;
    let this = Object::of(queue);
    for _ in 0..ABORT_STEP {
        let Some((after, object)) = queue.open.adapter.registry.scan_from(index) else { return };
        index = after;
        let dependant = object.filter(|object| object.core().is_some_and(|core| core.depends_on(&this)));
        if let Some(dependant) = dependant {
            scheduler.link(&dependant);
        }
    }
    queue.inner.with(|inner| inner.aborting = Some(index));
    scheduler.link(&this);
}

impl<P: Platform> CompletionQueueObject<P> {
    /// Whether it takes no more completions. What depends on it finds out in a service pass.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}

object!(CompletionQueueObject {
    fn work(&self, pass: &mut ServicePass<'_, P>) {
        service(self, pass.sink);
    }

    fn notified(&self) {
        let ask = self.inner.with(|inner| {
            inner.queue.notifying = false;
            inner.update_due(self)
        });
        request_pass(self, ask);
    }
});

/// Makes a due notification.
fn service<P: Platform>(queue: &Shared<CompletionQueueObject<P>>, sink: &mut dyn Sink<P>) {
    abort(queue);
    let Some(callback) = queue.notify else { return };
    let begun = queue.inner.with(|inner| {
        // What was held back may have become due.
        inner.update_due(queue);
        // Held before the lock is let go: a close that comes now waits for the callback.
        inner.queue.begin().map(|status| (status, Hold::new(Object::of(queue))))
    });
    let Some((status, hold)) = begun else { return };
    let guard = Notifying(Object::of(queue));
    sink.notify(Notification { callback, status, guard, hold });
}
