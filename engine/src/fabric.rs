//! One engine instance: adapters, memory tables, endpoints, run queues.
//!
//! A fabric holds what all adapters of a driver share, and [`Fabric::service_pass`], through which everything leaves the
//! engine. It has no threads; the front end decides when a pass runs.
//!
//! Rules: a pass holds no lock and is inside no epoch while a sink method runs; its work is bounded by the budget.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use softndk_cells::{Epoch, Guard, NoMemory, Shared, SlotTable, Stamp};

use crate::adapter::{Adapter, AdapterObject, AdapterSettings};
use crate::allowance::Allowance;
use crate::capacity::push_within_capacity;
use crate::endpoint::Directory;
use crate::error::CreateError;
use crate::event::{Budget, Pass, ServicePass, Sink};
use crate::limits;
use crate::mapping::{Mapping, MappingObject};
use crate::memory_region::Entry;
use crate::object::Object;
use crate::platform::{Lock, Platform};
use crate::protection_domain::RetiredSlots;
use crate::run_queue::{Lane, RunQueue};
use crate::timer::TimerQueue;
use crate::token::{LogicalAddress, MemoryToken};

pub(crate) struct FabricObject<P: Platform> {
    pub(crate) platform: P,
    pub(crate) epoch: Shared<Epoch>,
    /// What memory tokens name.
    pub(crate) tokens: SlotTable<Entry<P>>,
    /// What logical addresses name.
    pub(crate) mappings: SlotTable<Mapping<P>>,
    /// The builder of the mapping in each slot.
    pub(crate) builders: P::Lock<Vec<Option<Shared<MappingObject<P>>>>>,
    pub(crate) retired_slots: P::Lock<RetiredSlots>,
    pub(crate) directory: P::Lock<Directory<P>>,
    adapters: P::Lock<Vec<Shared<AdapterObject<P>>>>,
    next_adapter: AtomicU32,
    next_object: AtomicU64,
    work: Box<[P::Lock<RunQueue<P>>]>,
    /// Objects that wait for a deadline, by processor.
    timer_queues: Box<[TimerQueue<P>]>,
    /// What calls at DISPATCH_LEVEL may still do, by processor.
    allowances: Box<[Allowance]>,
    /// Objects that wait for contexts to leave the epoch.
    parked: P::Lock<RunQueue<P>>,
}

/// One engine instance: the adapters of a driver, their wire, their run queues.
pub struct Fabric<P: Platform>(pub(crate) Shared<FabricObject<P>>);

impl<P: Platform> Clone for Fabric<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Platform> Fabric<P> {
    /// `processors` is the number of processors that may ever call in (more share the lists of others).
    pub fn try_new(platform: P, processors: u32) -> Result<Self, NoMemory> {
        let processors = (processors.max(1) as usize).min(limits::PROCESSORS);
        // A context on each processor, one it interrupted, and as many preempted threads as one is likely to meet.
        let epoch = Shared::try_new(Epoch::try_new(2 * processors + 64)?)?;
        let mut work = Vec::new();
        work.try_reserve_exact(processors)?;
        work.extend((0..processors).map(|_| P::Lock::new(RunQueue::new())));
        let mut timer_queues = Vec::new();
        timer_queues.try_reserve_exact(processors)?;
        timer_queues.extend((0..processors).map(|_| TimerQueue::new()));
        let mut allowances = Vec::new();
        allowances.try_reserve_exact(processors)?;
        allowances.extend((0..processors as u32).map(Allowance::new));
        let generations = |bits: u32| (1 << bits) - 1;
        Ok(Self(Shared::try_new(FabricObject {
            platform,
            tokens: SlotTable::try_new(
                1 << MemoryToken::SLOT_BITS,
                generations(MemoryToken::GENERATION_BITS),
                epoch.clone(),
            )?,
            mappings: SlotTable::try_new(
                1 << LogicalAddress::SLOT_BITS,
                generations(LogicalAddress::GENERATION_BITS),
                epoch.clone(),
            )?,
            builders: P::Lock::new(Vec::new()),
            retired_slots: P::Lock::new(RetiredSlots::new()),
            directory: P::Lock::new(Directory::new()),
            adapters: P::Lock::new(Vec::new()),
            next_adapter: AtomicU32::new(1),
            next_object: AtomicU64::new(1),
            epoch,
            work: work.into_boxed_slice(),
            timer_queues: timer_queues.into_boxed_slice(),
            allowances: allowances.into_boxed_slice(),
            parked: P::Lock::new(RunQueue::new()),
        })?))
    }

    pub fn platform(&self) -> &P {
        &self.0.platform
    }

    /// A number that no object has or had.
    pub(crate) fn next_object(&self) -> u64 {
        self.0.next_object.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds an adapter without addresses; [`Adapter::remove`] takes it out again.
    pub fn add_adapter(&self, settings: AdapterSettings) -> Result<Adapter<P>, CreateError> {
        let limits = &settings.limits;
        let data = limits.caller_data.max(limits.callee_data) as usize;
        let too_many = limits.receive_sges as usize > limits::RECEIVE_SGES;
        if data > limits::PRIVATE_DATA || limits.registration_size > limits::MAPPING_LENGTH || too_many {
            return Err(CreateError::OverLimit);
        }
        let number = self.0.next_adapter.fetch_add(1, Ordering::Relaxed);
        let adapter = Shared::try_new(AdapterObject::new(self.clone(), number, settings))?;
        let reserved = self.0.adapters.with(|adapters| {
            adapters.try_reserve(1).map_err(NoMemory::from)?;
            push_within_capacity(adapters, adapter.clone()).map_err(|_| NoMemory)
        });
        reserved?;
        Ok(Adapter(adapter))
    }

    pub(crate) fn remove_adapter(&self, adapter: &Shared<AdapterObject<P>>) {
        self.0.adapters.with(|adapters| adapters.retain(|other| !other.is(adapter)));
    }

    /// The first adapter that satisfies `wanted`.
    pub(crate) fn find_adapter(&self, wanted: impl Fn(&AdapterObject<P>) -> bool) -> Option<Shared<AdapterObject<P>>> {
        self.0.adapters.with(|adapters| adapters.iter().find(|adapter| wanted(adapter)).cloned())
    }

    /// The clock of a processor; more processors than there are share.
    pub(crate) fn timer_queue(&self, processor: u32) -> Option<&TimerQueue<P>> {
        self.0.timer_queues.get((processor as usize).checked_rem(self.0.timer_queues.len())?)
    }

    /// Enters the epoch; `None` when too many contexts are inside, then the work goes to a service pass.
    pub(crate) fn enter(&self) -> Option<Guard<'_>> {
        self.0.epoch.enter(self.0.platform.processor() as usize)
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

    /// Puts a queue where a turn looks at it when everything else has been looked at, unless it is on a list.
    pub(crate) fn link_last(&self, queue: &Object<P>, processor: Option<u32>) {
        if let Some(link) = queue.link() {
            self.push_at(processor, |run_queue| run_queue.push(Lane::Last, link));
        }
    }

    fn push_at(&self, processor: Option<u32>, add: impl FnOnce(&mut RunQueue<P>)) {
        let processor = processor.unwrap_or_else(|| self.0.platform.processor()) as usize;
        let processor = processor % self.0.work.len().max(1);
        let Some(work) = self.0.work.get(processor) else { return };
        let woken = work.with(|run_queue| {
            let was_empty = run_queue.is_empty();
            add(run_queue);
            was_empty && !run_queue.is_empty()
        });
        // A pass over this very run queue checks whether something is left, under the lock and after `serve_none`.
        if woken && !self.allowance().is_some_and(|allowance| allowance.serves(processor as u32)) {
            self.0.platform.schedule(processor as u32);
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
        let processor = self.0.platform.processor() as usize;
        self.0.allowances.get(processor.checked_rem(self.0.allowances.len())?)
    }

    /// Runs a callback of a consumer that is not handed out by [`Self::service_pass`]: at DISPATCH_LEVEL, and so that posts inside it
    /// only enqueue, as inside a pass.
    pub fn callback<R>(&self, call: impl FnOnce() -> R) -> R {
        self.0.platform.raised(|| {
            let allowance = self.allowance();
            if let Some(allowance) = allowance {
                allowance.enter();
            }
            let result = call();
            if let Some(allowance) = allowance {
                allowance.leave();
            }
            result
        })
    }

    /// One bounded step of a queue pair that waits on this processor's run queue, for a poll that found nothing: at
    /// DISPATCH_LEVEL nothing else on this processor would bring it forward. No callback is made.
    pub(crate) fn step_for_poll(&self) {
        self.0.platform.raised(|| {
            let processor = self.0.platform.processor();
            let index = processor as usize % self.0.work.len().max(1);
            let Some(pair) = self.0.work.get(index).and_then(|work| work.with(RunQueue::pop_queue_pair)) else {
                return;
            };
            let mut bytes = limits::PIECE;
            pair.service_requests(index as u32, &mut bytes);
            if let Some(allowance) = self.allowance() {
                allowance.charge_pass(limits::PIECE.saturating_sub(bytes));
            }
            if pair.core().is_some_and(|core| core.holds() == 0) {
                // Finished: only a turn hands it out.
                self.link_at(&pair, Some(index as u32));
            }
        });
    }

    /// Works off the list of a processor: call from a DPC or a thread of the front end, at DISPATCH_LEVEL, with no lock held
    /// and not under a dispatch function. After [`Pass::Idle`] the next work kicks; after [`Pass::More`] nothing does. Objects
    /// whose moment has come are looked at too, see [`Platform::wake_at`].
    pub fn service_pass(&self, processor: u32, budget: Budget, sink: &mut dyn Sink<P>) -> Pass {
        self.callback(|| self.service(processor, budget, sink))
    }

    fn service(&self, processor: u32, budget: Budget, sink: &mut dyn Sink<P>) -> Pass {
        let processor = processor as usize % self.0.work.len().max(1);
        let Some(work) = self.0.work.get(processor) else { return Pass::Idle };
        let allowance = self.allowance();
        if let Some(allowance) = allowance {
            allowance.serve(processor as u32);
        }
        if let Some(timer_queue) = self.timer_queue(processor as u32) {
            timer_queue.expire(self, processor as u32);
        }
        let mut bytes = budget.bytes;
        for _ in 0..budget.items.max(1) {
            let Some(item) = work.with(RunQueue::pop) else { break };
            item.service(&mut ServicePass { processor: processor as u32, bytes: &mut bytes, sink });
            bytes = bytes.saturating_sub(allowance.map_or(0, Allowance::take_owed));
            if bytes == 0 || self.0.platform.should_yield() {
                break;
            }
        }
        for _ in 0..budget.items.max(1) {
            let Some(item) = work.with(RunQueue::pop_last) else { break };
            item.service(&mut ServicePass { processor: processor as u32, bytes: &mut bytes, sink });
            if self.0.platform.should_yield() {
                break;
            }
        }
        if let Some(allowance) = allowance {
            allowance.serve_none();
        }
        if work.with(|run_queue| run_queue.is_empty()) { Pass::Idle } else { Pass::More }
    }
}
