//! Queue pairs: the objects that a consumer posts to.
//!
//! This file has the object, its states, and posting: each post walks the same visible sequence (state, flags, count, lengths,
//! capacity, enqueue) and leaves the queue pair untouched when it refuses. The processing is in `requester.rs`, the receiving
//! in `receive_queue.rs`.
//!
//! Rules (NDKPI: work requests): the SGEs are copied during the call; success means exactly one completion (none for a silent
//! success); an inline failure means none, and processes what was held back by the deferred flag; queue pairs are single-use,
//! and posts on an ended one are accepted and cancelled.

use core::sync::atomic::{AtomicU32, Ordering};

use softndk_cells::ring::{self, Claim, Receiver, Sender};
use softndk_cells::{NoMemory, Ready, Reserved, Serialized, Shared};

use crate::adapter::open::OpenObject;
use crate::capacity::push_within_capacity;
use crate::completion::completion_queue::{CompletionQueue, CompletionQueueObject};
use crate::counters::{TrafficCounter, TrafficCounters};
use crate::error::{CreateError, PostError};
use crate::flags::{Operation, RequestFlags, Rights};
use crate::limits::{FLUSH_STEP, IN_PLACE_PASSIVE, PAGE, PIECE};
use crate::memory::memory_region::{FastRegion, MemoryRegion, RegionObject};
use crate::memory::memory_window::{self, MemoryWindow, WindowObject, Windows};
use crate::memory::protection_domain::{DomainObject, ProtectionDomain};
use crate::memory::transfer::{CHUNK, Queued};
use crate::object::allowance::Allowance;
use crate::object::event::{Close, ServicePass};
use crate::object::header::{Antecedents, Core, Hold, Object, object};
use crate::object::run_queue::Lane;
use crate::object::snapshot::{ObjectKind, ObjectState};
use crate::object::timer::Timer;
use crate::platform::{Lock, Platform};
use crate::queue_pair::receive_queue::{self, Receive, ReceiveQueue};
use crate::queue_pair::requester::{self, Initiator};
use crate::queue_pair::shared_receive_queue::{SharedReceiveQueue, SrqAttachment};
use crate::token::{LogicalAddress, MemoryToken, Sge};

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
    pub(crate) initiator_queue: Shared<CompletionQueueObject<P>>,
    pub(crate) receive_queue: Shared<CompletionQueueObject<P>>,
    state: AtomicU32,
    limits: PostLimits,
    requests: Sender<Request<P>>,
    sges: Sender<Sge>,
    chunks: Sender<[u8; CHUNK]>,
    receives: Sender<Receive>,
    receive_sges: Sender<Sge>,
    /// Processing of the initiator queue, by one context at a time.
    pub(crate) work: Serialized<Initiator<P>>,
    pub(crate) receiving: ReceiveQueue<P>,
    /// The source of its receives instead of its own queue.
    pub(crate) attachment: Option<SrqAttachment<P>>,
    pub(crate) link: P::Lock<PeerLink<P>>,
    /// Bound through it and not yet unbound.
    pub(crate) windows: Shared<Windows<P>>,
    pub(crate) patience: Option<Patience<P>>,
    pub(crate) traffic_counter: Shared<TrafficCounter>,
}

/// How long a message waits for a receive of the peer.
pub(crate) struct Patience<P: Platform> {
    pub(crate) nanoseconds: u64,
    pub(crate) timer: Timer<P>,
}

impl<P: Platform> Patience<P> {
    /// `None` for a queue pair that waits for ever.
    fn of(open: &OpenObject<P>) -> Result<Option<Self>, NoMemory> {
        let adapter = &open.adapter;
        let set = adapter.timeouts.receiver_not_ready;
        let nanoseconds = if set == 0 { open.semantics.receiver_not_ready } else { set };
        if nanoseconds == 0 {
            return Ok(None);
        }
        let timer = Timer::try_new(&adapter.scheduler, adapter.scheduler.platform().processor())?;
        Ok(Some(Self { nanoseconds, timer }))
    }
}

/// The other objects that a connected queue pair refers to.
pub(crate) struct PeerLink<P: Platform> {
    /// The connector it is tied to; it is told when the queue pair has failed or drained.
    pub(crate) connector: Option<Object<P>>,
    /// The queue pair at the other end.
    pub(crate) peer: Option<Shared<QueuePairObject<P>>>,
    /// Keeps the close from completing until both queues are drained.
    closing: Option<Hold<P>>,
}

#[derive(Clone, Copy)]
struct PostLimits {
    initiator_sges: u32,
    read_sges: u32,
    receive_sges: u32,
    inline_data: u32,
    transfer_length: u64,
}

/// A posted initiator request.
pub(crate) struct Request<P: Platform> {
    pub(crate) operation: Operation,
    pub(crate) flags: RequestFlags,
    pub(crate) context: u64,
    /// Where its SGEs, or the chunks of its inline data, begin in their rings.
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// The SGE of a request that has one; it is not in the ring. Of a Bind: the token of the region.
    pub(crate) single: Sge,
    pub(crate) length: u64,
    pub(crate) address: u64,
    /// The peer's token; of a Bind: the token to give.
    pub(crate) token: MemoryToken,
    pub(crate) subject: Subject<P>,
}

impl<P: Platform> Request<P> {
    /// Its SGEs; `ring` is that of its queue pair.
    #[inline]
    pub(crate) fn sges<'a>(&self, ring: &'a Receiver<Sge>) -> Queued<'a> {
        Queued::new(ring, self.first, self.count, self.single)
    }
}

/// What a request is about, if not only bytes.
pub(crate) enum Subject<P: Platform> {
    Bytes,
    Fast(Shared<FastRegion>),
    /// With the page list to publish, until that is done.
    Pages(Shared<FastRegion>, Option<Ready>),
    Window(Shared<WindowObject<P>>),
    Binding(Shared<WindowObject<P>>, Shared<RegionObject<P>>, Rights),
}

impl<P: Platform> Subject<P> {
    /// Frees the page list of a registration that did not take place.
    pub(crate) fn discard(&mut self) {
        if let Self::Pages(fast, ready) = self
            && let Some(ready) = ready.take()
        {
            fast.buffers.discard(ready);
        }
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
            entries.checked_next_power_of_two().unwrap_or(u64::MAX).saturating_mul(size as u64)
        };
        let rings = [
            ring(self.initiator_depth, 1, size_of::<Request<P>>()),
            ring(self.initiator_depth, self.initiator_sges, size_of::<Sge>()),
            ring(self.initiator_depth, self.inline_data.div_ceil(CHUNK as u32), CHUNK),
            ring(self.receive_depth(), 1, size_of::<Receive>()),
            ring(self.receive_depth(), self.receive_sges(), size_of::<Sge>()),
        ];
        rings.into_iter().fold(0, u64::saturating_add)
    }
}

/// What a fast registration makes of its region; the pages are passed as an iterator.
#[derive(Clone, Copy, Debug)]
pub struct FastRegistration {
    /// Where the region begins in its first page.
    pub first_byte_offset: u32,
    pub length: u64,
    /// The label of the first byte; the same offset in its page, or 0 where that offset is 0.
    pub base: u64,
    pub rights: Rights,
}

/// What a queue pair is made of and may fail for.
struct Parts<P: Platform> {
    requests: Sender<Request<P>>,
    sges: Sender<Sge>,
    chunks: Sender<[u8; CHUNK]>,
    receives: Sender<Receive>,
    receive_sges: Sender<Sge>,
    work: Initiator<P>,
    receiving: ReceiveQueue<P>,
    attachment: Option<SrqAttachment<P>>,
    windows: Shared<Windows<P>>,
    patience: Option<Patience<P>>,
    traffic_counter: Shared<TrafficCounter>,
}

impl<P: Platform> Parts<P> {
    #[inline(never)]
    fn try_new(domain: &DomainObject<P>, settings: &QueuePairSettings<'_, P>) -> Result<Self, NoMemory> {
        let product = |depth: u32, each: u32| (depth as usize).checked_mul(each as usize).ok_or(NoMemory);
        let depth = settings.initiator_depth;
        let (requests, request_end) = ring::channel(depth as usize)?;
        let (sges, sge_end) = ring::channel(product(depth, settings.initiator_sges)?)?;
        let (chunks, chunk_end) = ring::channel(product(depth, settings.inline_data.div_ceil(CHUNK as u32))?)?;
        let (receives, receive_end) = ring::channel(settings.receive_depth() as usize)?;
        let most = product(settings.receive_depth(), settings.receive_sges())?;
        let (receive_sges, receive_sge_end) = ring::channel(most)?;
        Ok(Self {
            requests,
            sges,
            chunks,
            receives,
            receive_sges,
            work: Initiator::try_new(request_end, sge_end, chunk_end)?,
            receiving: ReceiveQueue::new(receive_end, receive_sge_end),
            attachment: settings.shared.map(SrqAttachment::try_new).transpose()?,
            windows: Shared::try_new(Windows::new())?,
            patience: Patience::of(&domain.open)?,
            traffic_counter: domain.open.adapter.traffic_counters.with(TrafficCounters::add)?,
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
    parts: Parts<P>,
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
        work: Serialized::new(parts.work),
        receiving: parts.receiving,
        attachment: parts.attachment,
        link: P::Lock::new(PeerLink { connector: None, peer: None, closing: None }),
        windows: parts.windows,
        patience: parts.patience,
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
        let parts = Parts::try_new(domain, &settings)?;
        let pair = assemble(place, domain, &settings, consumer_object, parts);
        adapter.register(&Object::of(&pair))?;
        Ok(Self(pair))
    }

    pub fn send(
        &self,
        context: u64,
        flags: RequestFlags,
        sges: impl ExactSizeIterator<Item = Sge>,
    ) -> Result<(), PostError> {
        self.post(&Order { operation: Operation::Send, flags, context, address: 0, token: MemoryToken::NONE }, sges)
    }

    pub fn send_and_invalidate(
        &self,
        context: u64,
        flags: RequestFlags,
        sges: impl ExactSizeIterator<Item = Sge>,
        token: MemoryToken,
    ) -> Result<(), PostError> {
        self.post(&Order { operation: Operation::SendAndInvalidate, flags, context, address: 0, token }, sges)
    }

    pub fn read(
        &self,
        context: u64,
        flags: RequestFlags,
        sges: impl ExactSizeIterator<Item = Sge>,
        address: u64,
        token: MemoryToken,
    ) -> Result<(), PostError> {
        self.post(&Order { operation: Operation::Read, flags, context, address, token }, sges)
    }

    pub fn write(
        &self,
        context: u64,
        flags: RequestFlags,
        sges: impl ExactSizeIterator<Item = Sge>,
        address: u64,
        token: MemoryToken,
    ) -> Result<(), PostError> {
        self.post(&Order { operation: Operation::Write, flags, context, address, token }, sges)
    }

    pub fn receive(&self, context: u64, sges: impl ExactSizeIterator<Item = Sge>) -> Result<(), PostError> {
        let pair = &self.0;
        if pair.attachment.is_some() {
            return Err(PostError::BadParameter);
        }
        let count = sges.len();
        if count > pair.limits.receive_sges as usize {
            return Err(PostError::TooManySges);
        }
        let mut requests = pair.receives.claim().ok_or(PostError::Concurrent)?;
        if requests.free() == 0 {
            return Err(PostError::QueueFull);
        }
        let mut receive = Receive { context, first: 0, count, single: Sge::default(), length: 0, shared: false };
        if count == 1 {
            receive.single = sges.take(1).next().ok_or(PostError::BadParameter)?;
            receive.length = u64::from(receive.single.length);
            pair.check_length(receive.length)?;
            requests.stage(receive).map_err(|_| PostError::QueueFull)?;
        } else {
            let mut ring = pair.receive_sges.claim().ok_or(PostError::Concurrent)?;
            receive.first = ring.position();
            receive.length = stage_sges(&mut ring, sges.take(count))?;
            pair.check_length(receive.length)?;
            requests.stage(receive).map_err(|_| PostError::QueueFull)?;
            ring.publish();
        }
        requests.announce();
        receive_queue::posted(pair);
        Ok(())
    }

    /// Gives a fast-register region its pages; takes effect in the order of the initiator queue.
    pub fn fast_register(
        &self,
        context: u64,
        flags: RequestFlags,
        region: &MemoryRegion<P>,
        registration: FastRegistration,
        pages: impl ExactSizeIterator<Item = LogicalAddress>,
    ) -> Result<(), PostError> {
        let posted = self.post_fast_register(context, flags, region, registration, pages);
        self.after_post(flags, posted)
    }

    /// Revokes the access to a fast-register region, in the order of the initiator queue.
    pub fn invalidate(&self, context: u64, flags: RequestFlags, region: &MemoryRegion<P>) -> Result<(), PostError> {
        let posted = self.post_invalidate_region(context, flags, region);
        self.after_post(flags, posted)
    }

    /// Lends `length` bytes of a registered region to the peer through a window, in the order of the initiator queue. The
    /// window's new token can be read when this returns. `address` is an address of the region.
    #[expect(clippy::too_many_arguments, reason = "the parameters of NDK_FN_BIND")]
    pub fn bind(
        &self,
        context: u64,
        flags: RequestFlags,
        region: &MemoryRegion<P>,
        window: &MemoryWindow<P>,
        address: u64,
        length: u64,
        rights: Rights,
    ) -> Result<(), PostError> {
        let posted = self.post_bind(context, flags, (region, window), (address, length), rights);
        self.after_post(flags, posted)
    }

    /// Unbinds a window, in the order of the initiator queue.
    pub fn invalidate_window(
        &self,
        context: u64,
        flags: RequestFlags,
        window: &MemoryWindow<P>,
    ) -> Result<(), PostError> {
        let posted = self.post_invalidate_window(context, flags, window);
        self.after_post(flags, posted)
    }

    /// The front end refused a post by itself: requests held back are processed.
    pub fn schedule_held(&self) {
        if !self.0.requests.is_empty() {
            process_in_place(&self.0);
        }
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
        pair.core.close(Some(callback), || {
            let hold = Hold::new(Object::of(pair));
            pair.link.with(|link| link.closing = Some(hold));
            pair.mark(state::ENDED | state::DRAIN);
            // An idle queue pair is closed at once; the rest drains in a service pass.
            if pair.requests.is_empty() && pair.receives.is_empty() {
                pair.core.scheduler.platform().raised(|| requester::step(pair, None, PIECE));
            } else {
                pair.core.scheduler.link(&Object::of(pair));
            }
        })
    }

    fn post(&self, order: &Order, sges: impl ExactSizeIterator<Item = Sge>) -> Result<(), PostError> {
        let posted = self.enqueue(order, sges);
        self.after_post(order.flags, posted)
    }

    /// Processes what may be processed: after a post that is not deferred, and after any that failed.
    fn after_post(&self, flags: RequestFlags, posted: Result<(), PostError>) -> Result<(), PostError> {
        match posted {
            Ok(()) if flags.contains(RequestFlags::DEFER) && !self.0.is_ended() => {}
            Ok(()) => process_in_place(&self.0),
            Err(_) => self.schedule_held(),
        }
        posted
    }

    fn check_state_and_flags(&self, operation: Operation, flags: RequestFlags) -> Result<(), PostError> {
        if self.0.state() & state::CONNECTED == 0 {
            return Err(PostError::NotConnected);
        }
        if operation.accepts().contains(flags) { Ok(()) } else { Err(PostError::BadFlags) }
    }

    fn enqueue(&self, order: &Order, sges: impl ExactSizeIterator<Item = Sge>) -> Result<(), PostError> {
        let pair = &self.0;
        self.check_state_and_flags(order.operation, order.flags)?;
        let count = sges.len();
        let inline = order.flags.contains(RequestFlags::INLINE);
        let most = match order.operation {
            Operation::Read => pair.limits.read_sges,
            _ => pair.limits.initiator_sges,
        };
        if !inline && count > most as usize {
            return Err(PostError::TooManySges);
        }
        if order.flags.contains(RequestFlags::LOCAL_INVALIDATE) && count == 0 {
            return Err(PostError::BadFlags);
        }
        let mut requests = pair.requests.claim().ok_or(PostError::Concurrent)?;
        if requests.free() == 0 {
            return Err(PostError::QueueFull);
        }
        let mut request = order.request();
        if inline {
            let mut ring = pair.chunks.claim().ok_or(PostError::Concurrent)?;
            request.first = ring.position();
            request.length = self.stage_inline(&mut ring, sges.take(count))?;
            requests.stage(request).map_err(|_| PostError::QueueFull)?;
            ring.publish();
        } else if count == 1 {
            request.count = 1;
            request.single = sges.take(1).next().ok_or(PostError::BadParameter)?;
            request.length = u64::from(request.single.length);
            pair.check_length(request.length)?;
            requests.stage(request).map_err(|_| PostError::QueueFull)?;
        } else {
            let mut ring = pair.sges.claim().ok_or(PostError::Concurrent)?;
            request.first = ring.position();
            request.count = count;
            request.length = stage_sges(&mut ring, sges.take(count))?;
            pair.check_length(request.length)?;
            requests.stage(request).map_err(|_| PostError::QueueFull)?;
            ring.publish();
        }
        show(requests, order.flags);
        Ok(())
    }

    /// Copies inline data into chunks of the ring and returns its length.
    fn stage_inline(
        &self,
        ring: &mut Claim<'_, [u8; CHUNK]>,
        sges: impl Iterator<Item = Sge>,
    ) -> Result<u64, PostError> {
        let most = u64::from(self.0.limits.inline_data);
        let mut chunk = [0; CHUNK];
        let mut length = 0_u64;
        for sge in sges {
            if length + u64::from(sge.length) > most {
                return Err(PostError::TooMuchData);
            }
            let mut done = 0;
            while done < sge.length {
                let at = length as usize % CHUNK;
                let part = (CHUNK - at).min((sge.length - done) as usize);
                let into = chunk.get_mut(at..at + part).ok_or(PostError::TooMuchData)?;
                let address = sge.address.wrapping_add(u64::from(done));
                self.0.core.scheduler.platform().read_inline(address, into);
                done += part as u32;
                length += part as u64;
                if at + part == CHUNK {
                    ring.stage(chunk).map_err(|_| PostError::TooMuchData)?;
                }
            }
        }
        if !length.is_multiple_of(CHUNK as u64) {
            ring.stage(chunk).map_err(|_| PostError::TooMuchData)?;
        }
        Ok(length)
    }

    fn post_fast_register(
        &self,
        context: u64,
        flags: RequestFlags,
        region: &MemoryRegion<P>,
        registration: FastRegistration,
        pages: impl ExactSizeIterator<Item = LogicalAddress>,
    ) -> Result<(), PostError> {
        let pair = &self.0;
        self.check_state_and_flags(Operation::FastRegister, flags)?;
        if !region.0.domain.is(&pair.domain) {
            return Err(PostError::BadParameter);
        }
        let fast = region.0.fast().ok_or(PostError::BadParameter)?;
        check_registration(&fast, &registration, pages.len())?;
        let mut requests = pair.requests.claim().ok_or(PostError::Concurrent)?;
        if requests.free() == 0 {
            return Err(PostError::QueueFull);
        }
        // Page lists that the peer or a Read invalidated are free by now.
        fast.buffers.reclaim();
        let mut draft = fast.buffers.draft().ok_or(PostError::NoResources)?;
        let most = draft.pages.capacity().min(pages.len());
        draft.pages.clear();
        for page in pages.take(most) {
            push_within_capacity(&mut draft.pages, page.0).map_err(|_| PostError::NoResources)?;
        }
        if draft.pages.iter().any(|page| !page.is_multiple_of(PAGE)) {
            return Err(PostError::BadParameter);
        }
        draft.first_byte_offset = u64::from(registration.first_byte_offset);
        draft.base = registration.base;
        draft.length = registration.length;
        draft.rights = registration.rights;
        let ready = draft.finish();
        let order = Order { operation: Operation::FastRegister, flags, context, address: 0, token: MemoryToken::NONE };
        let request = Request { subject: Subject::Pages(fast.clone(), Some(ready)), ..order.request() };
        if let Err(mut request) = requests.stage(request) {
            request.subject.discard();
            return Err(PostError::QueueFull);
        }
        show(requests, flags);
        Ok(())
    }

    fn post_bind(
        &self,
        context: u64,
        flags: RequestFlags,
        (region, window): (&MemoryRegion<P>, &MemoryWindow<P>),
        (address, length): (u64, u64),
        rights: Rights,
    ) -> Result<(), PostError> {
        let pair = &self.0;
        self.check_state_and_flags(Operation::Bind, flags)?;
        if !region.0.domain.is(&pair.domain) || !window.0.domain.is(&pair.domain) {
            return Err(PostError::BadParameter);
        }
        let registration = region.0.lends(address, length, rights)?;
        let mut requests = pair.requests.claim().ok_or(PostError::Concurrent)?;
        if requests.free() == 0 {
            return Err(PostError::QueueFull);
        }
        // Only now, so that a refused bind leaves the window its token.
        let token = window.0.issue();
        let order = Order { operation: Operation::Bind, flags, context, address, token };
        let request = Request {
            length,
            single: Sge { token: registration, ..Sge::default() },
            subject: Subject::Binding(window.0.clone(), region.0.clone(), rights),
            ..order.request()
        };
        requests.stage(request).map_err(|_| PostError::QueueFull)?;
        show(requests, flags);
        Ok(())
    }

    fn post_invalidate_region(
        &self,
        context: u64,
        flags: RequestFlags,
        region: &MemoryRegion<P>,
    ) -> Result<(), PostError> {
        self.check_state_and_flags(Operation::Invalidate, flags)?;
        if !region.0.domain.is(&self.0.domain) {
            return Err(PostError::BadParameter);
        }
        let fast = region.0.fast().ok_or(PostError::BadParameter)?;
        self.post_invalidate(context, flags, Subject::Fast(fast))
    }

    fn post_invalidate_window(
        &self,
        context: u64,
        flags: RequestFlags,
        window: &MemoryWindow<P>,
    ) -> Result<(), PostError> {
        self.check_state_and_flags(Operation::Invalidate, flags)?;
        if !window.0.domain.is(&self.0.domain) {
            return Err(PostError::BadParameter);
        }
        self.post_invalidate(context, flags, Subject::Window(window.0.clone()))
    }

    fn post_invalidate(&self, context: u64, flags: RequestFlags, subject: Subject<P>) -> Result<(), PostError> {
        let mut requests = self.0.requests.claim().ok_or(PostError::Concurrent)?;
        let order = Order { operation: Operation::Invalidate, flags, context, address: 0, token: MemoryToken::NONE };
        requests.stage(Request { subject, ..order.request() }).map_err(|_| PostError::QueueFull)?;
        show(requests, flags);
        Ok(())
    }
}

/// Makes the staged request visible. A held one has no context that processes it next: its poster checks whether the queue pair
/// has ended meanwhile, and must not check before the request is visible.
#[inline]
fn show<P: Platform>(requests: Claim<'_, Request<P>>, flags: RequestFlags) {
    if flags.contains(RequestFlags::DEFER) {
        requests.announce();
    } else {
        requests.publish();
    }
}

/// What the data-moving posts have in common.
struct Order {
    operation: Operation,
    flags: RequestFlags,
    context: u64,
    address: u64,
    token: MemoryToken,
}

impl Order {
    fn request<P: Platform>(&self) -> Request<P> {
        Request {
            operation: self.operation,
            flags: self.flags,
            context: self.context,
            first: 0,
            count: 0,
            single: Sge::default(),
            length: 0,
            address: self.address,
            token: self.token,
            subject: Subject::Bytes,
        }
    }
}

/// Copies SGEs into a ring and returns the length of the message.
fn stage_sges(ring: &mut Claim<'_, Sge>, sges: impl Iterator<Item = Sge>) -> Result<u64, PostError> {
    let mut length = 0_u64;
    for sge in sges {
        length += u64::from(sge.length);
        ring.stage(sge).map_err(|_| PostError::TooManySges)?;
    }
    Ok(length)
}

fn check_registration(fast: &FastRegion, registration: &FastRegistration, pages: usize) -> Result<(), PostError> {
    let remote = Rights::REMOTE_READ | Rights::REMOTE_WRITE;
    if registration.rights.intersects(remote) && !fast.remote_access {
        return Err(PostError::AccessDenied);
    }
    let offset = u64::from(registration.first_byte_offset);
    let capacity = (pages as u64).saturating_mul(PAGE).saturating_sub(offset);
    let bad = pages == 0
        || pages > fast.most_pages as usize
        || offset >= PAGE
        || registration.base % PAGE != offset
        || registration.length == 0
        || registration.length > capacity
        || registration.base.checked_add(registration.length - 1).is_none();
    if bad { Err(PostError::BadParameter) } else { Ok(()) }
}

/// Processes posted requests in the caller's context as far as its level and the processor's allowance go; the rest goes to a
/// service pass. Inside a callback that is everything.
fn process_in_place<P: Platform>(pair: &Shared<QueuePairObject<P>>) {
    let scheduler = &pair.core.scheduler;
    let platform = scheduler.platform();
    let allowance = scheduler.allowance();
    let at_dispatch = platform.at_dispatch();
    let mut left = if at_dispatch {
        allowance.map_or(0, Allowance::in_place)
    } else {
        if let Some(allowance) = allowance {
            allowance.renew();
        }
        IN_PLACE_PASSIVE
    };
    while left > 0 {
        let piece = || requester::step(pair, None, left.min(PIECE));
        let stepped = if at_dispatch { piece() } else { platform.raised(piece) };
        if let Some(allowance) = allowance.filter(|_| at_dispatch) {
            allowance.charge(stepped.used());
        }
        match stepped {
            requester::Stepped::Rest(_) => return,
            requester::Stepped::More(used) => left = left.saturating_sub(used.max(1)),
        }
    }
    scheduler.link(&Object::of(pair));
}

impl<P: Platform> QueuePairObject<P> {
    fn check_length(&self, length: u64) -> Result<(), PostError> {
        if length > self.limits.transfer_length { Err(PostError::TooMuchData) } else { Ok(()) }
    }

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

    /// Whether one of its completion queues has failed.
    fn has_overrun(&self) -> bool {
        self.initiator_queue.has_failed() || self.receive_queue.has_failed()
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
    drop(peer);
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
