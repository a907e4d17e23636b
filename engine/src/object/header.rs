//! The life cycle of an object: its holds, its close, and what it releases at the end.
//!
//! Each object has one [`Core`] and the close protocol over it. An object is held by its consumer, by its successors, by its
//! pending requests and by its events under way; the close is complete when the last hold is gone, and only then, after the
//! consumer's close callback has returned, do the objects it depended on lose theirs. The memory of an object stays allocated
//! as long as a pointer to it exists; then a service pass frees it ([`Scheduler::dispose`]).
//!
//! Rules (NDKPI: closing objects): a close never fails; an antecedent may be closed before its successors and then pends; the
//! close completion is the last callback of an object; nothing allocates.

use core::net::IpAddr;
use core::sync::atomic::{AtomicU32, Ordering};

use softndk_cells::{Erased, ErasedLast, Shared};

use crate::object::event::{Close, CloseCompletion, Closed, ServicePass};
use crate::object::registry::Registry;
use crate::object::run_queue::Lane;
use crate::object::scheduler::Scheduler;
use crate::object::snapshot::{ConnectionEntry, EndpointEntry, ObjectKind, ObjectState};
use crate::platform::{Lock, Platform};

/// Any object, and what else a service pass looks after: each kind brings the functions of its row.
pub(crate) type Object<P> = Erased<dyn AnyObject<P>>;

/// An object to which no pointer is left; a service pass drops it.
pub(crate) type LastObject<P> = ErasedLast<dyn AnyObject<P>>;

/// What is asked of an object whose kind the caller does not know. Implemented for the counted pointers to the objects.
pub(crate) trait AnyObject<P: Platform>: Send + Sync {
    /// `None` for what is no object of a consumer's: a released logical mapping.
    fn core(&self) -> Option<&Core<P>>;

    /// Does what is due, beside the end of the object: inside a service pass, with no lock held.
    fn work(&self, _pass: &mut ServicePass<'_, P>) {}

    /// What a service pass does for it.
    fn service(&self, pass: &mut ServicePass<'_, P>) {
        self.work(pass);
        if let Some(core) = self.core() {
            core.finish(pass);
        }
    }

    /// The bounded step of an object of [`Lane::Requests`] inside a poll: no callback is made.
    fn service_requests(&self, _processor: u32, _bytes: &mut u64) {}

    /// Where it waits for a service pass.
    fn lane(&self) -> Lane {
        Lane::Objects
    }

    /// Whether the adapter's limit of objects of each kind holds for it.
    fn is_limited(&self) -> bool {
        true
    }

    fn snapshot_state(&self) -> ObjectState {
        ObjectState::Open
    }

    /// Bytes that a queue pair has sent and received.
    fn snapshot_traffic(&self) -> [u64; 2] {
        [0; 2]
    }

    /// What the front end called it.
    fn label(&self) -> u64 {
        0
    }

    /// The consumer's notification callback has returned.
    fn notified(&self) {}

    /// Addresses of the adapter are gone.
    fn addresses_gone(&self, _gone: &dyn Fn(IpAddr) -> bool) {}

    /// A stream of its own connects from another port than it was to.
    fn connects_from(&self, _stream: &Object<P>, _port: u16) {}

    /// The adapter has other addresses than before.
    fn addresses_come(&self) {}

    /// The object that it was tied to has failed. What follows for the consumer waits for a service pass.
    fn tied_failed(&self) {}

    /// The object that it was tied to has completed everything after its end; true when this ends the tie.
    fn tied_drained(&self) -> bool {
        false
    }

    /// The connection it stands for.
    fn connection(&self) -> Option<ConnectionEntry> {
        None
    }

    /// The endpoint it occupies.
    fn endpoint(&self) -> Option<EndpointEntry> {
        None
    }
}

/// Says that a type with a `core` is seen as an [`Object`] where its kind is not known: its row of functions, with those that
/// differ from the defaults.
macro_rules! object {
    ($object:ident { $($function:item)* }) => {
        impl<P: crate::platform::Platform> softndk_cells::Dispose for $object<P> {
            fn dispose(last: softndk_cells::Last<Self>) {
                let scheduler = last.core.scheduler.clone();
                scheduler.dispose(last.into());
            }
        }

        impl<P: crate::platform::Platform> softndk_cells::View for $object<P> {
            type As = dyn crate::object::header::AnyObject<P>;

            fn view(object: &softndk_cells::Shared<Self>) -> &Self::As {
                object
            }
        }

        impl<P: crate::platform::Platform> crate::object::header::AnyObject<P> for softndk_cells::Shared<$object<P>> {
            fn core(&self) -> Option<&crate::object::header::Core<P>> {
                Some(&self.core)
            }

            $($function)*
        }
    };
}
pub(crate) use object;

/// A reason for an object to stay open: its close does not complete while this exists.
pub struct Hold<P: Platform>(Object<P>);

impl<P: Platform> Hold<P> {
    /// Precondition: the object is held already (by its consumer or by something the caller keeps).
    pub(crate) fn new(object: Object<P>) -> Self {
        if let Some(core) = object.core() {
            core.holds.fetch_add(1, Ordering::Relaxed);
        }
        Self(object)
    }

    /// What it holds: kind and number, as in a listing ([`ObjectSnapshot`](crate::ObjectSnapshot)).
    #[must_use]
    pub fn object(&self) -> (ObjectKind, u64) {
        self.0.core().map_or((ObjectKind::Open, 0), |core| (core.kind, core.number))
    }
}

impl<P: Platform> Drop for Hold<P> {
    fn drop(&mut self) {
        if let Some(core) = self.0.core()
            && core.release()
        {
            core.scheduler.link(&self.0);
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
            if let Some(core) = object.core() {
                core.dependants.fetch_add(1, Ordering::Relaxed);
            }
            *place = Some(Hold::new(object));
        } else {
            debug_assert!(false, "an object depends on more than its antecedents hold");
        }
    }

    /// The numbers of the objects, as many as fit.
    fn number(&self, into: &mut [u64]) {
        for (place, core) in into.iter_mut().zip(self.0.iter().flatten().filter_map(|hold| hold.0.core())) {
            *place = core.number;
        }
    }
}

impl<P: Platform> Drop for Antecedents<P> {
    fn drop(&mut self) {
        // Before the holds go, so that no object counts more dependants than holds.
        for core in self.0.iter().flatten().filter_map(|hold| hold.0.core()) {
            core.dependants.fetch_sub(1, Ordering::Relaxed);
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

/// What every object has: where it is scheduled and registered, its holds, its close.
pub(crate) struct Core<P: Platform> {
    pub(crate) kind: ObjectKind,
    pub(crate) scheduler: Scheduler<P>,
    registry: Shared<Registry<P>>,
    /// Where the registry keeps it.
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
        kind: ObjectKind,
        scheduler: &Scheduler<P>,
        registry: &Shared<Registry<P>>,
        consumer_object: Option<P::ConsumerObject>,
        antecedents: Antecedents<P>,
    ) -> Self {
        let closing = Closing { stage: Stage::Open, callback: None, consumer_object, memory: None, antecedents };
        Self {
            kind,
            scheduler: scheduler.clone(),
            registry: registry.clone(),
            index: AtomicU32::new(u32::MAX),
            holds: AtomicU32::new(1),
            dependants: AtomicU32::new(0),
            number: scheduler.next_object(),
            made: scheduler.platform().now(),
            closing: P::Lock::new(closing),
        }
    }

    /// Releases one hold; true when it was the last.
    fn release(&self) -> bool {
        self.holds.fetch_sub(1, Ordering::AcqRel) == 1
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

    /// Whether this object keeps `other`.
    pub(crate) fn depends_on(&self, other: &Object<P>) -> bool {
        self.closing.with(|closing| closing.antecedents.0.iter().flatten().any(|hold| hold.0.is(other)))
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
    pub(crate) fn keep_memory(&self, memory: P::Memory) {
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
        self.registry.forget(self.index.load(Ordering::Relaxed));
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

    /// Hands the finished object out, if it is finished and no pass has yet.
    pub(crate) fn finish(&self, pass: &mut ServicePass<'_, P>) {
        if self.holds.load(Ordering::Acquire) != 0 {
            return;
        }
        let Some((callback, object)) = self.take() else { return };
        // An arrived connector that was never adopted has no callback: no consumer knows of it.
        if let Some(callback) = callback {
            pass.sink.closed(CloseCompletion { callback, object });
        }
    }
}
