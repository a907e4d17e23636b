//! The scheduler: which objects a service pass looks at, on which processor, and when.
//!
//! It holds what every object needs to get work done: the platform, the epoch, and for each processor a run queue, the deadlines
//! and the allowance. It knows objects by their headers only.
//!
//! An object to which no pointer is left is dropped by a pass, too: what it owns may be much, the last pointer may go under a lock,
//! and each object that it kept alive comes to the run queue later, so that drops never nest.
//!
//! Rules: a pass holds no lock and is inside no epoch while a sink method runs; its work is bounded by the budget; linking an
//! object never allocates and never fails. The locks of the run queues, of the deadlines and of those parked for the epoch are
//! not held while a pointer to an object is dropped.

use alloc::boxed::Box;
use alloc::vec::Vec;

use softndk_cells::atomic::{AtomicBool, AtomicU64, Ordering};
use softndk_cells::{Dispose, Epoch, Guard, NoMemory, Serialized, Shared, Stamp};

use crate::limits;
use crate::object::allowance::Allowance;
use crate::object::event::{Budget, Pass, ServicePass, Sink};
use crate::object::header::{LastObject, Object};
use crate::object::run_queue::{Lane, Rest, RunQueue};
use crate::object::timer::TimerQueue;
use crate::platform::{Lock, Platform};

struct SchedulerParts<P: Platform> {
    platform: P,
    epoch: Shared<Epoch>,
    next_object: AtomicU64,
    work: Box<[P::Lock<RunQueue<P>>]>,
    /// Objects that wait for a deadline, by processor.
    timer_queues: Box<[TimerQueue<P>]>,
    /// What calls at DISPATCH_LEVEL may still do, by processor.
    allowances: Box<[Allowance]>,
    /// Objects that wait for contexts to leave the epoch.
    parked: P::Lock<RunQueue<P>>,
    /// There are no service passes any more.
    ended: AtomicBool,
    /// Held by the context that drops objects after that.
    disposing: Serialized<()>,
}

impl<P: Platform> Dispose for SchedulerParts<P> {}

/// The scheduler of a fabric; see the module.
pub(crate) struct Scheduler<P: Platform>(Shared<SchedulerParts<P>>);

impl<P: Platform> Clone for Scheduler<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// One of each processor.
fn by_processor<T>(processors: usize, make: impl FnMut(u32) -> T) -> Result<Box<[T]>, NoMemory> {
    let mut list = Vec::new();
    list.try_reserve_exact(processors)?;
    list.extend((0..processors as u32).map(make));
    Ok(list.into_boxed_slice())
}

impl<P: Platform> Scheduler<P> {
    /// `processors` is the number of processors that may ever call in (more share the lists of others).
    pub(crate) fn try_new(platform: P, processors: u32) -> Result<Self, NoMemory> {
        let processors = (processors.max(1) as usize).min(limits::PROCESSORS);
        // A context on each processor, one it interrupted, and as many preempted threads as one is likely to meet.
        let epoch = Shared::try_new(Epoch::try_new(2 * processors + 64)?)?;
        Ok(Self(Shared::try_new(SchedulerParts {
            platform,
            epoch,
            next_object: AtomicU64::new(1),
            work: by_processor(processors, |_| P::Lock::new(RunQueue::new()))?,
            timer_queues: by_processor(processors, |_| TimerQueue::new())?,
            allowances: by_processor(processors, Allowance::new)?,
            parked: P::Lock::new(RunQueue::new()),
            ended: AtomicBool::new(false),
            disposing: Serialized::new(()),
        })?))
    }

    pub(crate) fn platform(&self) -> &P {
        &self.0.platform
    }

    pub(crate) fn epoch(&self) -> &Shared<Epoch> {
        &self.0.epoch
    }

    /// A number that no object has or had.
    pub(crate) fn next_object(&self) -> u64 {
        self.0.next_object.fetch_add(1, Ordering::Relaxed)
    }

    /// The deadlines of a processor; more processors than there are share.
    pub(crate) fn timer_queue(&self, processor: u32) -> Option<&TimerQueue<P>> {
        self.0.timer_queues.get((processor as usize).checked_rem(self.0.timer_queues.len())?)
    }

    /// Enters the epoch on this processor; `None` when too many contexts are inside, then the work goes to a service pass.
    pub(crate) fn enter(&self, processor: u32) -> Option<Guard<'_>> {
        self.0.epoch.enter(processor as usize)
    }

    /// Leaves the epoch and wakes the objects that waited for it.
    pub(crate) fn leave(&self, guard: Guard<'_>) {
        if guard.leave() {
            self.unpark();
        }
    }

    /// Puts an object on this processor's list, unless it is on one.
    pub(crate) fn link(&self, object: &Object<P>) {
        self.link_at(object, None);
    }

    /// Puts an object on the run queue of a processor (`None`: this one), unless it is on one.
    pub(crate) fn link_at(&self, object: &Object<P>, processor: Option<u32>) {
        if let Some(link) = object.link() {
            self.push_at(processor, |run_queue| run_queue.push(object.lane(), link));
        }
    }

    /// Puts an object where a pass looks when everything else has been served, unless it is on a list.
    pub(crate) fn link_last(&self, object: &Object<P>, processor: Option<u32>) {
        if let Some(link) = object.link() {
            self.push_at(processor, |run_queue| run_queue.push(Lane::Last, link));
        }
    }

    /// Raised: others that find the run queue in use leave its pass to this context, which must not be preempted before it has asked for
    /// one.
    fn push_at(&self, processor: Option<u32>, add: impl FnOnce(&mut RunQueue<P>)) {
        self.0.platform.raised(|_| self.push_raised(processor, add));
    }

    fn push_raised(&self, processor: Option<u32>, add: impl FnOnce(&mut RunQueue<P>)) {
        let processor = processor.unwrap_or_else(|| self.0.platform.processor()) as usize;
        let processor = processor % self.0.work.len().max(1);
        let Some(work) = self.0.work.get(processor) else { return };
        let woken = work.with(|run_queue| {
            let was_empty = run_queue.is_empty();
            add(run_queue);
            was_empty && !run_queue.is_empty()
        });
        // A pass over this very run queue, on this processor, looks once more after all that it does itself.
        let is_served = || {
            let here = self.0.platform.processor();
            self.allowance_of(here).is_some_and(|allowance| allowance.serves(here, processor as u32))
        };
        if woken && !self.has_ended() && !is_served() {
            self.0.platform.schedule(processor as u32);
        }
    }

    /// Has an object to which no pointer is left dropped by a service pass. Takes a pointer of its own: the object's goes with it.
    #[cold]
    pub(crate) fn dispose(self, object: LastObject<P>) {
        self.push_at(None, |run_queue| run_queue.push_disposal(object));
        // Behind the push: the lock orders it before the search of `end`, or this sees that the end has come.
        if self.has_ended() {
            self.dispose_all();
        }
    }

    /// There are no service passes from now on: objects are dropped by the contexts that drop their last pointers.
    pub(crate) fn end(&self) {
        self.0.ended.store(true, Ordering::Relaxed);
        self.dispose_all();
    }

    fn has_ended(&self) -> bool {
        self.0.ended.load(Ordering::Relaxed)
    }

    /// Drops every object that waits for it. One context does this at a time, so that drops do not nest here either.
    fn dispose_all(&self) {
        let mut held = self.0.disposing.raise();
        while let Some(disposing) = held {
            for work in &self.0.work {
                loop {
                    let objects = work.with(|run_queue| run_queue.pop_disposals(usize::MAX));
                    if objects.is_empty() {
                        break;
                    }
                    drop(objects);
                }
            }
            held = disposing.finish();
        }
    }

    /// Lets an object wait until the stamp has passed; it is then on a run queue. Call after leaving the epoch.
    pub(crate) fn park(&self, object: &Object<P>, stamp: Stamp) {
        // Without a link it is in a run queue and looks again by itself, or is parked already.
        if let Some(link) = object.link() {
            self.0.parked.with(|parked| parked.push(object.lane(), link));
        }
        self.0.epoch.want(stamp);
        if self.0.epoch.passed(stamp) {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if self.0.epoch.take_wanted() {
            self.push_at(None, |run_queue| self.0.parked.with(|parked| parked.move_to(run_queue)));
        }
    }

    /// What calls at DISPATCH_LEVEL may still do on the processor that runs this.
    pub(crate) fn allowance(&self) -> Option<&Allowance> {
        self.allowance_of(self.0.platform.processor())
    }

    /// The same of a processor that the caller knows to be its own.
    #[inline]
    pub(crate) fn allowance_of(&self, processor: u32) -> Option<&Allowance> {
        let processor = processor as usize;
        // Without a division where there are as many as processors.
        match self.0.allowances.get(processor) {
            Some(own) => Some(own),
            None => self.0.allowances.get(processor.checked_rem(self.0.allowances.len())?),
        }
    }

    /// Runs a callback of a consumer at DISPATCH_LEVEL, and so that posts inside it only enqueue.
    pub(crate) fn callback<R>(&self, call: impl FnOnce() -> R) -> R {
        self.0.platform.raised(|_| {
            let allowance = self.allowance();
            if let Some(allowance) = allowance {
                allowance.begin_pass();
            }
            let result = call();
            if let Some(allowance) = allowance {
                allowance.end_pass();
            }
            result
        })
    }

    /// One bounded step of an object of [`Lane::Requests`] on this processor's run queue, for a poll that found nothing: at
    /// DISPATCH_LEVEL nothing else on this processor would bring it forward. No callback is made.
    pub(crate) fn step_for_poll(&self) {
        self.0.platform.raised(|_| {
            let processor = self.0.platform.processor();
            let index = processor as usize % self.0.work.len().max(1);
            let Some(object) = self.0.work.get(index).and_then(|work| work.with(RunQueue::pop_requests)) else {
                return;
            };
            let mut bytes = limits::IN_PLACE_DISPATCH;
            object.service_requests(index as u32, &mut bytes);
            if let Some(allowance) = self.allowance() {
                allowance.charge_pass(limits::IN_PLACE_DISPATCH.saturating_sub(bytes));
            }
            if object.core().is_some_and(|core| core.holds() == 0) {
                // Finished: only a service pass hands it out.
                self.link_at(&object, Some(index as u32));
            }
        });
    }

    /// As [`Fabric::service_pass`](crate::Fabric::service_pass).
    pub(crate) fn service_pass(&self, processor: u32, budget: Budget, sink: &mut dyn Sink<P>) -> Pass {
        self.callback(|| self.service(processor, budget, sink))
    }

    /// Serves objects as far as the budget goes; what may wait behind them.
    fn serve_objects(
        &self,
        work: &P::Lock<RunQueue<P>>,
        (processor, budget): (u32, &Budget),
        allowance: Option<&Allowance>,
        sink: &mut dyn Sink<P>,
    ) -> Rest {
        let mut bytes = budget.bytes;
        for _ in 0..budget.items.max(1) {
            let (item, rest) = work.with(|run_queue| (run_queue.pop(), run_queue.rest()));
            let Some(item) = item else { return rest };
            item.service(&mut ServicePass { processor, bytes: &mut bytes, sink });
            bytes = bytes.saturating_sub(allowance.map_or(0, Allowance::take_owed));
            if bytes == 0 || self.0.platform.should_yield() {
                break;
            }
        }
        Rest { objects: true, disposals: true }
    }

    /// What waits until the objects have been served.
    fn serve_last(&self, work: &P::Lock<RunQueue<P>>, (processor, budget): (u32, &Budget), sink: &mut dyn Sink<P>) {
        let mut bytes = budget.bytes;
        for _ in 0..budget.items.max(1) {
            let Some(item) = work.with(RunQueue::pop_last) else { break };
            item.service(&mut ServicePass { processor, bytes: &mut bytes, sink });
            if self.0.platform.should_yield() {
                break;
            }
        }
    }

    /// Drops a bounded number of objects; whether nothing is left of anything.
    fn dispose_some(&self, work: &P::Lock<RunQueue<P>>) -> Pass {
        let mut left = limits::DISPOSE_STEP;
        loop {
            let (objects, is_empty) = work.with(|run_queue| (run_queue.pop_disposals(left), run_queue.is_empty()));
            if objects.is_empty() {
                return if is_empty { Pass::Idle } else { Pass::More };
            }
            left = left.saturating_sub(objects.len());
            drop(objects);
            if self.0.platform.should_yield() {
                return Pass::More;
            }
        }
    }

    fn service(&self, processor: u32, budget: Budget, sink: &mut dyn Sink<P>) -> Pass {
        let here = self.0.platform.processor();
        let processor = processor as usize % self.0.work.len().max(1);
        let Some(work) = self.0.work.get(processor) else { return Pass::Idle };
        let allowance = self.allowance_of(here);
        if let Some(allowance) = allowance {
            allowance.serve(here, processor as u32);
        }
        if let Some(timer_queue) = self.timer_queue(processor as u32) {
            timer_queue.expire(self, processor as u32);
        }
        let rest = self.serve_objects(work, (processor as u32, &budget), allowance, sink);
        if rest.objects {
            self.serve_last(work, (processor as u32, &budget), sink);
        }
        // The last look at the run queue comes after everything that this pass does: what it links itself is not scheduled (`push_at`), and at
        // DISPATCH_LEVEL nothing else of this processor links. Where there was nothing behind the objects, there was nothing at all.
        let pass = if rest.objects || rest.disposals { self.dispose_some(work) } else { Pass::Idle };
        if let Some(allowance) = allowance {
            allowance.serve_none();
        }
        pass
    }
}
