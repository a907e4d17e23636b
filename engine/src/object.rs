//! The life cycle of an object: its holds, its close, and what it releases at the end.
//!
//! Each object has one [`Core`] and the close protocol over it. An object is held by its consumer, by its successors, by its
//! pending requests and by its events under way; the close is complete when the last hold is gone, and only then, after the
//! consumer's close callback has returned, do the objects it depended on lose theirs. The memory of an object stays allocated
//! as long as a pointer to it exists.
//!
//! Rules (NDKPI: closing objects): a close never fails; an antecedent may be closed before its successors and then pends; the
//! close completion is the last callback of an object; nothing allocates.

use core::sync::atomic::{AtomicU32, Ordering};

use softndk_cells::Shared;

use crate::adapter::AdapterObject;
use crate::completion_queue::CompletionQueueObject;
use crate::connector::ConnectorObject;
use crate::event::{Close, CloseCompletion, Closed, Sink};
use crate::fabric::Fabric;
use crate::listener::ListenerObject;
use crate::memory_region::RegionObject;
use crate::memory_window::WindowObject;
use crate::open::OpenObject;
use crate::platform::{Lock, Platform};
use crate::protection_domain::DomainObject;
use crate::queue_pair::QueuePairObject;
use crate::shared_endpoint::SharedEndpointObject;
use crate::shared_receive_queue::SharedReceiveObject;
use crate::snapshot::ObjectKind;

/// Any object that can be closed.
pub(crate) enum Object<P: Platform> {
    Open(Shared<OpenObject<P>>),
    CompletionQueue(Shared<CompletionQueueObject<P>>),
    Domain(Shared<DomainObject<P>>),
    Region(Shared<RegionObject<P>>),
    Window(Shared<WindowObject<P>>),
    SharedReceiveQueue(Shared<SharedReceiveObject<P>>),
    QueuePair(Shared<QueuePairObject<P>>),
    Listener(Shared<ListenerObject<P>>),
    Connector(Shared<ConnectorObject<P>>),
    SharedEndpoint(Shared<SharedEndpointObject<P>>),
}

impl<P: Platform> Object<P> {
    pub(crate) fn core(&self) -> &Core<P> {
        match self {
            Self::Open(object) => &object.core,
            Self::CompletionQueue(object) => &object.core,
            Self::Domain(object) => &object.core,
            Self::Region(object) => &object.core,
            Self::Window(object) => &object.core,
            Self::SharedReceiveQueue(object) => &object.core,
            Self::QueuePair(object) => &object.core,
            Self::Listener(object) => &object.core,
            Self::Connector(object) => &object.core,
            Self::SharedEndpoint(object) => &object.core,
        }
    }

    /// A number that identifies an object among those of its kind.
    pub(crate) fn id(&self) -> u64 {
        let address = match self {
            Self::Open(object) => object.address(),
            Self::CompletionQueue(object) => object.address(),
            Self::Domain(object) => object.address(),
            Self::Region(object) => object.address(),
            Self::Window(object) => object.address(),
            Self::SharedReceiveQueue(object) => object.address(),
            Self::QueuePair(object) => object.address(),
            Self::Listener(object) => object.address(),
            Self::Connector(object) => object.address(),
            Self::SharedEndpoint(object) => object.address(),
        };
        address as u64
    }
}

impl<P: Platform> Clone for Object<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Open(object) => Self::Open(object.clone()),
            Self::CompletionQueue(object) => Self::CompletionQueue(object.clone()),
            Self::Domain(object) => Self::Domain(object.clone()),
            Self::Region(object) => Self::Region(object.clone()),
            Self::Window(object) => Self::Window(object.clone()),
            Self::SharedReceiveQueue(object) => Self::SharedReceiveQueue(object.clone()),
            Self::QueuePair(object) => Self::QueuePair(object.clone()),
            Self::Listener(object) => Self::Listener(object.clone()),
            Self::Connector(object) => Self::Connector(object.clone()),
            Self::SharedEndpoint(object) => Self::SharedEndpoint(object.clone()),
        }
    }
}

/// A reason for an object to stay open: its close does not complete while this exists.
pub struct Hold<P: Platform>(Object<P>);

impl<P: Platform> Hold<P> {
    /// Precondition: the object is held already (by its consumer or by something the caller keeps).
    pub(crate) fn new(object: Object<P>) -> Self {
        object.core().holds.fetch_add(1, Ordering::Relaxed);
        Self(object)
    }

    /// What it holds: kind and number, as in a listing ([`ObjectSnapshot`](crate::ObjectSnapshot)).
    #[must_use]
    pub fn object(&self) -> (ObjectKind, u64) {
        (ObjectKind::of(&self.0), self.0.core().number)
    }
}

impl<P: Platform> Drop for Hold<P> {
    fn drop(&mut self) {
        let core = self.0.core();
        if core.release() {
            core.fabric.link(&self.0);
        }
    }
}

/// Most objects that one depends on: an arrived connector over a shared endpoint has open, listener, queue pair, endpoint; a
/// queue pair has domain, two completion queues, shared receive queue.
const ANTECEDENTS: usize = 6;

/// The holds an object has on those it depends on.
pub(crate) struct Antecedents<P: Platform>([Option<Hold<P>>; ANTECEDENTS]);

impl<P: Platform> Antecedents<P> {
    pub(crate) const fn none() -> Self {
        Self([const { None }; ANTECEDENTS])
    }

    pub(crate) fn with(mut self, object: Object<P>) -> Self {
        self.add(object);
        self
    }

    fn add(&mut self, object: Object<P>) {
        if let Some(place) = self.0.iter_mut().find(|place| place.is_none()) {
            object.core().dependants.fetch_add(1, Ordering::Relaxed);
            *place = Some(Hold::new(object));
        } else {
            debug_assert!(false, "an object depends on more than its antecedents hold");
            // Not dropped: objects are put together on large frames, below which no object may be dropped.
            core::mem::forget(object);
        }
    }

    /// The numbers of the objects, as many as fit.
    fn number(&self, into: &mut [u64]) {
        for (place, hold) in into.iter_mut().zip(self.0.iter().flatten()) {
            *place = hold.0.core().number;
        }
    }
}

impl<P: Platform> Drop for Antecedents<P> {
    fn drop(&mut self) {
        // Before the holds are released, so that no object counts more dependants than holds.
        for hold in self.0.iter().flatten() {
            hold.0.core().dependants.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Open,
    Closing,
    Finished,
}

struct Closing<P: Platform> {
    stage: Stage,
    callback: Option<P::CloseCallback>,
    consumer_object: Option<P::ConsumerObject>,
    memory: Option<P::Memory>,
    antecedents: Antecedents<P>,
}

/// What every object has: its adapter, its holds, its close.
pub(crate) struct Core<P: Platform> {
    pub(crate) fabric: Fabric<P>,
    pub(crate) adapter: Shared<AdapterObject<P>>,
    /// Where the adapter's registry keeps it.
    pub(crate) index: AtomicU32,
    holds: AtomicU32,
    /// Those of the holds that are objects made from this one.
    dependants: AtomicU32,
    /// Identifies an object among all of a fabric, for listings; never used twice.
    pub(crate) number: u64,
    /// When it was made, by the platform's clock.
    pub(crate) made: u64,
    closing: P::Lock<Closing<P>>,
}

impl<P: Platform> Core<P> {
    /// A core held by its consumer.
    pub(crate) fn new(
        adapter: &Shared<AdapterObject<P>>,
        consumer_object: Option<P::ConsumerObject>,
        antecedents: Antecedents<P>,
    ) -> Self {
        let closing = Closing { stage: Stage::Open, callback: None, consumer_object, memory: None, antecedents };
        Self {
            fabric: adapter.fabric.clone(),
            adapter: adapter.clone(),
            index: AtomicU32::new(u32::MAX),
            holds: AtomicU32::new(1),
            dependants: AtomicU32::new(0),
            number: adapter.fabric.next_object(),
            made: adapter.fabric.platform().now(),
            closing: P::Lock::new(closing),
        }
    }

    /// Releases one hold; true when it was the last.
    fn release(&self) -> bool {
        self.holds.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Objects of one adapter work together, whichever open each was made on.
    pub(crate) fn is_of(&self, adapter: &Shared<AdapterObject<P>>) -> bool {
        self.adapter.is(adapter)
    }

    pub(crate) fn holds(&self) -> u32 {
        self.holds.load(Ordering::Relaxed)
    }

    pub(crate) fn dependants(&self) -> u32 {
        self.dependants.load(Ordering::Relaxed)
    }

    /// The numbers of the objects that this one keeps, as many as fit.
    pub(crate) fn antecedents(&self, into: &mut [u64]) {
        self.closing.with(|closing| closing.antecedents.number(into));
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.with(|closing| closing.stage != Stage::Open)
    }

    /// Adds an object this one depends on from now on; not after it is finished.
    pub(crate) fn depend_on(&self, object: Object<P>) {
        self.closing.with(|closing| closing.antecedents.add(object));
    }

    pub(crate) fn set_consumer_object(&self, consumer_object: P::ConsumerObject) {
        self.closing.with(|closing| closing.consumer_object = Some(consumer_object));
    }

    /// Memory to hand out with the finished object.
    pub(crate) fn leave_memory(&self, memory: P::Memory) {
        self.closing.with(|closing| closing.memory = Some(memory));
    }

    /// Takes what is left of an object without holds, once.
    fn take(&self) -> Option<(Option<P::CloseCallback>, Closed<P>)> {
        let taken = self.closing.with(|closing| {
            if closing.stage != Stage::Closing || self.holds.load(Ordering::Acquire) != 0 {
                return None;
            }
            closing.stage = Stage::Finished;
            let antecedents = core::mem::replace(&mut closing.antecedents, Antecedents::none());
            let object =
                Closed { consumer_object: closing.consumer_object.take(), memory: closing.memory.take(), antecedents };
            Some((closing.callback.take(), object))
        })?;
        self.adapter.forget(self.index.load(Ordering::Relaxed));
        Some(taken)
    }

    /// The close protocol: marks the object, tears it down, releases the consumer's hold. A second close does nothing.
    pub(crate) fn close(&self, callback: Option<P::CloseCallback>, tear_down: impl FnOnce()) -> Close<P> {
        let first = self.closing.with(|closing| {
            let first = closing.stage == Stage::Open;
            if first {
                closing.stage = Stage::Closing;
                closing.callback = callback;
            }
            first
        });
        if !first {
            return Close::Done(Closed { consumer_object: None, memory: None, antecedents: Antecedents::none() });
        }
        tear_down();
        if !self.release() {
            return Close::Pending;
        }
        match self.take() {
            Some((_, object)) => Close::Done(object),
            None => Close::Pending,
        }
    }

    /// Hands the finished object out, if it is finished and not handed out yet. True when it was.
    #[inline(never)]
    pub(crate) fn finish(&self, sink: &mut impl Sink<P>) -> bool {
        if self.holds.load(Ordering::Acquire) != 0 {
            return false;
        }
        let Some((callback, object)) = self.take() else { return false };
        // An arrived connector that was not adopted has no callback: its close is not reported.
        if let Some(callback) = callback {
            sink.closed(CloseCompletion { callback, object });
        }
        true
    }
}
