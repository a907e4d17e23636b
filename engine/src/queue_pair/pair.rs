//! Queue pairs: the objects that a consumer posts to.
//!
//! This file has the object, how it is made, its states and its ends. Posting is in `posting.rs`, the processing in
//! `requester.rs` and below it, the receiving in `receive_queue.rs`.
//!
//! Rules (NDKPI: work requests): queue pairs are single-use; every end unbinds the windows, and a connection that ends by a
//! failure is reported to the connector.

use softndk_cells::atomic::{AtomicU32, Ordering};
use softndk_cells::ring::{self, Sender, Together};
use softndk_cells::{NoMemory, Reserved, Serialized, Shared};

use crate::adapter::open::OpenObject;
use crate::completion::completion_queue::{Completion, CompletionQueue, CompletionQueueObject};
use crate::counters::{TrafficCounter, TrafficCounters};
use crate::error::CreateError;
use crate::flags::Operation;
use crate::limits::{FLUSH_STEP, PIECE};
use crate::memory::memory_window::{self, Windows};
use crate::memory::protection_domain::{DomainObject, ProtectionDomain};
use crate::memory::transfer::CHUNK;
use crate::object::event::{Close, ServicePass};
use crate::object::header::{Antecedents, Core, Hold, Object, object};
use crate::object::run_queue::Lane;
use crate::object::snapshot::{ObjectKind, ObjectState};
use crate::object::timer::Timer;
use crate::platform::{Lock, Platform};
use crate::queue_pair::peer::PeerQueuePair;
use crate::queue_pair::receive_queue::{self, ReceiveQueue};
use crate::queue_pair::request::{Receive, Request};
use crate::queue_pair::requester::{self, Requester};
use crate::queue_pair::shared_receive_queue::{SharedReceiveQueue, SrqAttachment};
use crate::queue_pair::work::Work;
use crate::token::Sge;

/// States of a queue pair; bits, because they are set in any order.
pub(crate) mod state {
    /// A connector has taken it.
    pub(crate) const CLAIMED: u32 = 1;
    /// It is or was connected: the initiator queue takes requests.
    pub(crate) const CONNECTED: u32 = 1 << 1;
    /// Its connection has ended or it was flushed: initiator requests are cancelled.
    pub(crate) const ENDED: u32 = 1 << 2;
    /// Receives are cancelled too.
    pub(crate) const DRAIN: u32 = 1 << 3;
    /// The connection has no outbound Reads at all. Any other limit is kept by itself: one Read is under way at a time.
    pub(crate) const NO_READS: u32 = 1 << 4;
    /// It has failed, and a service pass will end its connection.
    pub(crate) const FAILED: u32 = 1 << 5;
    /// One of its completion queues has failed, and with it the queue pair.
    pub(crate) const OVERRUN: u32 = 1 << 6;

    /// The bits of a connection that has begun, with this many outbound Reads.
    pub(crate) const fn connected(outbound_reads: u32) -> u32 {
        if outbound_reads == 0 { CONNECTED | NO_READS } else { CONNECTED }
    }
}

pub(crate) struct QueuePairObject<P: Platform> {
    pub(crate) core: Core<P>,
    pub(crate) domain: Shared<DomainObject<P>>,
    pub(crate) context: u64,
    /// The front end's number.
    tag: AtomicU32,
    pub(crate) initiator_queue: Shared<CompletionQueueObject<P>>,
    pub(crate) receive_queue: Shared<CompletionQueueObject<P>>,
    state: AtomicU32,
    pub(super) limits: PostLimits,
    pub(super) requests: Sender<Request<P>>,
    pub(super) sges: Sender<Sge, Together>,
    pub(super) chunks: Sender<[u8; CHUNK], Together>,
    pub(super) receives: Sender<Receive>,
    pub(super) receive_sges: Sender<Sge, Together>,
    /// Processing of the initiator queue, by one context at a time.
    pub(crate) work: Serialized<Requester<P>>,
    pub(crate) receiving: ReceiveQueue<P>,
    /// The source of its receives instead of its own queue.
    pub(crate) attachment: Option<SrqAttachment<P>>,
    pub(crate) link: P::Lock<PeerLink<P>>,
    /// Bound through it and not yet unbound.
    pub(crate) windows: Shared<Windows<P>>,
    /// Nanoseconds that a message waits for a receive of the peer; `None` without limit.
    pub(crate) receiver_not_ready: Option<u64>,
    /// For a message that waits for a receive, and for an end that meets a post.
    pub(crate) timer: Timer<P>,
    pub(crate) traffic_counter: Shared<TrafficCounter>,
}

/// Nanoseconds that a message waits for a receive of the peer; `None` without limit.
fn receiver_not_ready<P: Platform>(open: &OpenObject<P>) -> Option<u64> {
    let nanoseconds = open.adapter.timeouts.receiver_not_ready.unwrap_or(open.semantics.receiver_not_ready);
    (nanoseconds > 0).then_some(nanoseconds)
}

/// The other objects that a connected queue pair refers to.
pub(crate) struct PeerLink<P: Platform> {
    /// The connector it is tied to; it hears when the queue pair has failed or drained.
    pub(crate) connector: Option<Object<P>>,
    /// The queue pair at the other end.
    pub(crate) peer: Option<PeerQueuePair<P>>,
    /// Keeps the close from completing until both queues are drained.
    closing: Option<Hold<P>>,
}

#[derive(Clone, Copy)]
pub(super) struct PostLimits {
    pub(super) initiator_sges: u32,
    pub(super) read_sges: u32,
    pub(super) receive_sges: u32,
    pub(super) inline_data: u32,
    pub(super) transfer_length: u64,
}

impl PostLimits {
    /// Most SGEs of an initiator request.
    #[inline]
    pub(super) fn sges_of(&self, operation: Operation) -> u32 {
        if operation == Operation::Read { self.read_sges } else { self.initiator_sges }
    }
}

/// A queue pair.
pub struct QueuePair<P: Platform>(pub(crate) Shared<QueuePairObject<P>>);

impl<P: Platform> Clone for QueuePair<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// What a queue pair is made with.
pub struct QueuePairSettings<'a, P: Platform> {
    /// May be the same as `initiator_queue`.
    pub receive_queue: &'a CompletionQueue<P>,
    pub initiator_queue: &'a CompletionQueue<P>,
    /// Returned in each completion.
    pub context: u64,
    pub receive_depth: u32,
    pub initiator_depth: u32,
    pub receive_sges: u32,
    pub initiator_sges: u32,
    pub inline_data: u32,
    /// The source of its receives; then `receive_depth` and `receive_sges` are unused.
    pub shared: Option<&'a SharedReceiveQueue<P>>,
}

impl<P: Platform> QueuePairSettings<'_, P> {
    pub(crate) fn check(&self, domain: &Shared<DomainObject<P>>) -> Result<(), CreateError> {
        let limits = &domain.open.adapter.limits;
        let over = self.receive_depth() > limits.receive_depth
            || self.initiator_depth > limits.initiator_depth
            || self.receive_sges() > limits.receive_sges
            || self.initiator_sges > limits.initiator_sges
            || self.inline_data > limits.inline_data;
        if over {
            return Err(CreateError::OverLimit);
        }
        let foreign = |queue: &CompletionQueue<P>| !queue.0.open.adapter.is(&domain.open.adapter);
        let unshared = self.shared.is_some_and(|queue| !queue.0.domain.is(domain));
        if foreign(self.receive_queue) || foreign(self.initiator_queue) || unshared {
            return Err(CreateError::Foreign);
        }
        Ok(())
    }
}

impl<P: Platform> QueuePairSettings<'_, P> {
    /// Receives of its own.
    fn receive_depth(&self) -> u32 {
        if self.shared.is_some() { 0 } else { self.receive_depth }
    }

    fn receive_sges(&self) -> u32 {
        if self.shared.is_some() { 0 } else { self.receive_sges }
    }

    /// Bytes of the rings, which are what a queue pair is made of.
    pub(crate) fn size(&self) -> u64 {
        let ring = |depth: u32, each: u32, size: usize| {
            let entries = u64::from(depth).saturating_mul(u64::from(each));
            let places = if entries == 0 { 0 } else { entries.checked_next_power_of_two().unwrap_or(u64::MAX) };
            places.saturating_mul(size as u64)
        };
        let rings = [
            ring(self.initiator_depth, 1, size_of::<Request<P>>()),
            ring(self.initiator_depth, listed(self.initiator_sges), size_of::<Sge>()),
            ring(self.initiator_depth, self.inline_data.div_ceil(CHUNK as u32), CHUNK),
            ring(self.receive_depth(), 1, size_of::<Receive>()),
            ring(self.receive_depth(), listed(self.receive_sges()), size_of::<Sge>()),
        ];
        rings.into_iter().fold(0, u64::saturating_add)
    }
}

/// The SGEs of a request that are in a ring of their own: one is a part of its request.
const fn listed(sges: u32) -> u32 {
    if sges > 1 { sges } else { 0 }
}

/// What a queue pair is made of and may fail for.
struct QueuePairParts<P: Platform> {
    requests: Sender<Request<P>>,
    sges: Sender<Sge, Together>,
    chunks: Sender<[u8; CHUNK], Together>,
    receives: Sender<Receive>,
    receive_sges: Sender<Sge, Together>,
    work: Work<P>,
    receiving: ReceiveQueue<P>,
    attachment: Option<SrqAttachment<P>>,
    windows: Shared<Windows<P>>,
    timer: Timer<P>,
    traffic_counter: Shared<TrafficCounter>,
}

impl<P: Platform> QueuePairParts<P> {
    #[inline(never)]
    fn try_new(domain: &DomainObject<P>, settings: &QueuePairSettings<'_, P>) -> Result<Self, NoMemory> {
        // A request takes a line and a quarter, a completion half a line: few lines a request are what makes small requests fast.
        const { assert!(size_of::<Request<P>>() <= 80 && size_of::<Completion>() == 32 && size_of::<Receive>() <= 40) };
        let product = |depth: u32, each: u32| (depth as usize).checked_mul(each as usize).ok_or(NoMemory);
        let depth = settings.initiator_depth;
        let (requests, request_end) = ring::channel(depth as usize)?;
        let (sges, sge_end) = ring::channel(product(depth, listed(settings.initiator_sges))?)?;
        let (chunks, chunk_end) = ring::channel(product(depth, settings.inline_data.div_ceil(CHUNK as u32))?)?;
        let (receives, receive_end) = ring::channel(settings.receive_depth() as usize)?;
        let most = product(settings.receive_depth(), listed(settings.receive_sges()))?;
        let (receive_sges, receive_sge_end) = ring::channel(most)?;
        let adapter = &domain.open.adapter;
        let filled_sges = settings.shared.map_or(settings.receive_sges(), SharedReceiveQueue::most_sges);
        Ok(Self {
            requests,
            sges,
            chunks,
            receives,
            receive_sges,
            work: Work::new(request_end, sge_end, chunk_end),
            receiving: ReceiveQueue::try_new(receive_end, receive_sge_end, filled_sges)?,
            attachment: settings.shared.map(SrqAttachment::try_new).transpose()?,
            windows: Shared::try_new(Windows::new())?,
            timer: Timer::try_new(&adapter.scheduler, adapter.scheduler.platform().processor())?,
            traffic_counter: adapter.traffic_counters.with(TrafficCounters::add)?,
        })
    }
}

/// Puts a queue pair together in its place. Its frame holds the whole object, so nothing below it may go deep: nothing fails here,
/// and nothing is dropped.
#[inline(never)]
fn assemble<P: Platform>(
    place: Reserved<QueuePairObject<P>>,
    domain: &Shared<DomainObject<P>>,
    settings: &QueuePairSettings<'_, P>,
    consumer_object: P::ConsumerObject,
    parts: QueuePairParts<P>,
) -> Shared<QueuePairObject<P>> {
    let adapter = &domain.open.adapter;
    let overrun = settings.initiator_queue.0.has_failed() || settings.receive_queue.0.has_failed();
    let mut antecedents = Antecedents::none()
        .with(Object::of(domain))
        .with(Object::of(&settings.receive_queue.0))
        .with(Object::of(&settings.initiator_queue.0));
    if let Some(shared) = settings.shared {
        antecedents = antecedents.with(Object::of(&shared.0));
    }
    place.fill(QueuePairObject {
        core: adapter.core(ObjectKind::QueuePair, Some(consumer_object), antecedents),
        domain: domain.clone(),
        context: settings.context,
        tag: AtomicU32::new(0),
        initiator_queue: settings.initiator_queue.0.clone(),
        receive_queue: settings.receive_queue.0.clone(),
        // A queue that had failed before ends this queue pair with its first completion.
        state: AtomicU32::new(if overrun { state::OVERRUN } else { 0 }),
        limits: PostLimits {
            initiator_sges: settings.initiator_sges,
            read_sges: settings.initiator_sges.min(adapter.limits.read_sges),
            receive_sges: settings.receive_sges(),
            inline_data: settings.inline_data,
            transfer_length: u64::from(adapter.limits.transfer_length),
        },
        requests: parts.requests,
        sges: parts.sges,
        chunks: parts.chunks,
        receives: parts.receives,
        receive_sges: parts.receive_sges,
        work: Serialized::new(Requester::new(parts.work)),
        receiving: parts.receiving,
        attachment: parts.attachment,
        link: P::Lock::new(PeerLink { connector: None, peer: None, closing: None }),
        windows: parts.windows,
        receiver_not_ready: receiver_not_ready(&domain.open),
        timer: parts.timer,
        traffic_counter: parts.traffic_counter,
    })
}

impl<P: Platform> QueuePair<P> {
    /// Bytes that such a queue pair takes, roughly; an error where it would be refused.
    pub fn size(domain: &ProtectionDomain<P>, settings: &QueuePairSettings<'_, P>) -> Result<u64, CreateError> {
        settings.check(&domain.0)?;
        Ok(settings.size())
    }

    #[expect(clippy::needless_pass_by_value, reason = "the settings are used up by the call")]
    pub fn create(
        domain: &ProtectionDomain<P>,
        settings: QueuePairSettings<'_, P>,
        consumer_object: P::ConsumerObject,
    ) -> Result<Self, CreateError> {
        let domain = &domain.0;
        let adapter = &domain.open.adapter;
        adapter.ready()?;
        settings.check(domain)?;
        let place = Reserved::try_new()?;
        let parts = QueuePairParts::try_new(domain, &settings)?;
        let pair = assemble(place, domain, &settings, consumer_object, parts);
        adapter.register(&Object::of(&pair))?;
        Ok(Self(pair))
    }

    /// Gives the queue pair the front end's number, which comes with each completion. Before anything is posted.
    pub fn set_tag(&self, tag: u32) {
        self.0.tag.store(tag, Ordering::Relaxed);
    }

    /// Requests that occupy a slot of the initiator queue and of the receive queue. A slot is free before the completion of
    /// its request can be polled.
    pub fn outstanding(&self) -> (u32, u32) {
        (self.0.requests.len() as u32, self.0.receives.len() as u32)
    }

    /// Whether the initiator queue takes requests: it is or was connected.
    pub fn was_connected(&self) -> bool {
        self.0.state() & state::CONNECTED != 0
    }

    /// Whether its connection has ended or it was flushed.
    pub fn has_ended(&self) -> bool {
        self.0.is_ended()
    }

    /// Cancels everything posted, in a service pass. The queue pair then only drains.
    pub fn flush(&self) {
        self.0.end();
    }

    /// Keeps the close from completing while something of the front end's own is under way.
    pub fn hold(&self) -> Hold<P> {
        Hold::new(Object::of(&self.0))
    }

    pub fn close(&self, callback: P::CloseCallback) -> Close<P> {
        let pair = &self.0;
        let platform = pair.core.scheduler.platform();
        let tear_down = || {
            let hold = Hold::new(Object::of(pair));
            pair.link.with(|link| link.closing = Some(hold));
            pair.mark(state::ENDED | state::DRAIN);
            // An idle queue pair is closed at once; the rest drains in a service pass.
            if pair.requests.is_empty() && pair.receives.is_empty() {
                requester::step(pair, None, PIECE);
            } else {
                pair.core.scheduler.link(&Object::of(pair));
            }
        };
        // Raised once for all its locks.
        platform.raised(|_| pair.core.close(Some(callback), tear_down))
    }
}

impl<P: Platform> QueuePairObject<P> {
    pub(crate) fn state(&self) -> u32 {
        self.state.load(Ordering::SeqCst)
    }

    /// Sets state bits and returns those that were set before.
    pub(crate) fn mark(&self, bits: u32) -> u32 {
        self.state.fetch_or(bits, Ordering::SeqCst)
    }

    /// Takes a state bit back; whether it was set.
    fn unmark(&self, bit: u32) -> bool {
        self.state.fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    /// Gives a claim back after a connection attempt that failed.
    pub(crate) fn unclaim(&self) {
        self.unmark(state::CLAIMED);
    }

    pub(crate) fn tag(&self) -> u32 {
        self.tag.load(Ordering::Relaxed)
    }

    /// Whether one of its completion queues has failed.
    fn has_overrun(&self) -> bool {
        self.initiator_queue.has_failed() || self.receive_queue.has_failed()
    }

    /// Whether its connection has begun and has not ended.
    pub(crate) fn is_connected(&self) -> bool {
        self.state() & (state::CONNECTED | state::ENDED) == state::CONNECTED
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.state() & state::ENDED != 0
    }
}

/// Endings, on the shared pointer because they link the object.
pub(crate) trait End {
    /// Cancels everything that is posted or will be.
    fn end(&self);
    /// Cancels initiator requests, and receives as well if the contract requires it.
    fn cut(&self, receives: bool);
    /// Everything is cancelled and the connection ends.
    fn fail(&self);
    /// The same, for callers deep down the stack: the connection ends in the service pass that cancels.
    fn defer_failure(&self);
}

impl<P: Platform> End for Shared<QueuePairObject<P>> {
    fn end(&self) {
        self.cut(true);
    }

    fn cut(&self, receives: bool) {
        self.mark(state::ENDED | if receives { state::DRAIN } else { 0 });
        self.core.scheduler.link(&Object::of(self));
    }

    fn fail(&self) {
        self.end();
        end_connection(self);
    }

    fn defer_failure(&self) {
        self.mark(state::ENDED | state::DRAIN | state::FAILED);
        self.core.scheduler.link(&Object::of(self));
    }
}

/// Ends the connection of a queue pair that failed, with a message to the peer.
#[inline(never)]
pub(crate) fn end_connection<P: Platform>(pair: &QueuePairObject<P>) {
    let connector = pair.link.with(|link| link.connector.clone());
    if let Some(connector) = connector {
        connector.tied_failed();
    }
}

/// The initiator queue, or both queues, may be empty for good: called by the requester's holder, with its queue empty after the
/// end.
#[inline(never)]
pub(crate) fn update_end<P: Platform>(pair: &Shared<QueuePairObject<P>>) {
    // Every end unbinds, also one that leaves the receives to the consumer. No bind comes after it: binds are processed by the
    // requester, which the caller holds, and are cancelled from the end on.
    if memory_window::unbind_all(&pair.windows, FLUSH_STEP) {
        pair.core.scheduler.link(&Object::of(pair));
        return;
    }
    if pair.state() & state::DRAIN == 0 || !pair.receiving.is_drained() {
        return;
    }
    if let Some(attachment) = &pair.attachment {
        attachment.leave();
    }
    let (connector, peer, closing) =
        pair.link.with(|link| (link.connector.clone(), link.peer.take(), link.closing.take()));
    if connector.is_some_and(|connector| connector.tied_drained()) {
        let connector = pair.link.with(|link| link.connector.take());
        drop(connector);
    }
    PeerQueuePair::leave(peer);
    // The last hold may go here: the object is linked and handed out by a service pass.
    drop(closing);
}

object!(QueuePairObject {
    fn lane(&self) -> Lane {
        Lane::Requests
    }

    fn service_requests(&self, processor: u32, bytes: &mut u64) {
        service(self, processor, bytes);
    }

    fn work(&self, pass: &mut ServicePass<'_, P>) {
        service(self, pass.processor, pass.bytes);
    }

    fn snapshot_state(&self) -> ObjectState {
        let stages = [
            (state::ENDED, ObjectState::Ended),
            (state::CONNECTED, ObjectState::Connected),
            (state::CLAIMED, ObjectState::Claimed),
        ];
        let bits = self.state();
        stages.iter().find(|(bit, _)| bits & bit != 0).map_or(ObjectState::Idle, |(_, stage)| *stage)
    }

    fn snapshot_traffic(&self) -> [u64; 2] {
        self.traffic_counter.octets()
    }
});

/// Services a queue pair: flushes a bounded number of receives, processes a bounded number of requests. What is left stays on the
/// run queue of this pass, wherever its thread runs: a thread takes a long transfer over from the deferred procedures.
#[inline(never)]
fn service<P: Platform>(pair: &Shared<QueuePairObject<P>>, processor: u32, bytes: &mut u64) {
    if pair.has_overrun() && pair.mark(state::OVERRUN) & state::OVERRUN == 0 {
        // One that was flushed too: its connection may be open, and the peer has to hear of its end.
        pair.fail();
    }
    let more_receives = pair.state() & state::DRAIN != 0 && receive_queue::flush(pair);
    if pair.unmark(state::FAILED) {
        end_connection(pair);
    }
    let stepped = requester::step(pair, Some(processor), (*bytes).min(PIECE));
    *bytes = bytes.saturating_sub(stepped.used());
    if matches!(stepped, requester::Stepped::More(_)) || more_receives {
        pair.core.scheduler.link_at(&Object::of(pair), Some(processor));
    }
}
