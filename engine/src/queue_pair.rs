//! Queue pairs: what a consumer posts to.
//!
//! What it is: the object, its states, and posting: each post walks the same visible sequence (state, flags, count, lengths,
//! room, enqueue) and leaves the queue pair untouched when it refuses. What it is not: the processing (`initiator.rs`) nor the
//! receiving (`receive_queue.rs`).
//!
//! Rules (NDKPI: work requests): the elements are copied during the call; success means exactly one completion (none for a
//! silent success); an inline failure means none, and processes what was held back by the deferred flag; queue pairs are
//! single-use, and posts on an ended one are accepted and cancelled.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use softndk_cells::ring::{self, Claim, Sender};
use softndk_cells::{Baton, NoMemory, Ready, Shared};

use crate::cause::{CreateError, PostError};
use crate::completion_queue::{CompletionQueue, CompletionQueueObject};
use crate::connector::ConnectorObject;
use crate::event::Close;
use crate::flags::{Operation, RequestFlags, Rights};
use crate::initiator::{self, Initiator};
use crate::life::{Antecedents, Core, Hold, Object};
use crate::limits::{IN_PLACE_DISPATCH, IN_PLACE_PASSIVE, PAGE, PIECE, RECEIVE_ELEMENTS};
use crate::memory_region::{FastRegion, MemoryRegion};
use crate::platform::{Lock, Platform};
use crate::protection_domain::DomainObject;
use crate::receive_queue::{self, Receive, ReceiveQueue};
use crate::room::push_in_room;
use crate::statistics::{Meter, Meters};
use crate::token::{Element, LogicalAddress, MemoryToken};
use crate::transfer::CHUNK;

/// States of a queue pair; bits, because they come in any order.
pub(crate) mod state {
    /// A connector has taken it.
    pub(crate) const CLAIMED: u32 = 1;
    /// It is or was connected: the initiator queue takes requests.
    pub(crate) const CONNECTED: u32 = 1 << 1;
    /// Its connection is over or it was flushed: initiator requests are cancelled.
    pub(crate) const ENDED: u32 = 1 << 2;
    /// Receives are cancelled too.
    pub(crate) const DRAIN: u32 = 1 << 3;
    /// Both queues were seen empty after the end.
    pub(crate) const DRAINED: u32 = 1 << 4;
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
    elements: Sender<Element>,
    chunks: Sender<[u8; CHUNK]>,
    receives: Sender<Receive>,
    receive_elements: Sender<Element>,
    /// Processing of the initiator queue, by one context at a time.
    pub(crate) work: Baton<Initiator<P>>,
    pub(crate) receiving: ReceiveQueue<P>,
    pub(crate) bond: P::Lock<Bond<P>>,
    pub(crate) meter: Shared<Meter>,
}

/// What a queue pair is tied to while it lives.
pub(crate) struct Bond<P: Platform> {
    pub(crate) connector: Option<Shared<ConnectorObject<P>>>,
    /// The queue pair at the other end.
    pub(crate) far: Option<Shared<QueuePairObject<P>>>,
    /// Keeps the close from completing until both queues are drained.
    closing: Option<Hold<P>>,
}

#[derive(Clone, Copy)]
struct PostLimits {
    initiator_elements: u32,
    read_elements: u32,
    receive_elements: u32,
    inline_data: u32,
    transfer_length: u64,
}

/// A posted initiator request.
pub(crate) struct Request<P: Platform> {
    pub(crate) operation: Operation,
    pub(crate) flags: RequestFlags,
    pub(crate) context: u64,
    /// Where its elements, or the chunks of its inline data, begin in their rings.
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// The element of a request that has one; it is not in the ring.
    pub(crate) single: Element,
    pub(crate) length: u64,
    pub(crate) address: u64,
    pub(crate) token: MemoryToken,
    pub(crate) fast: Option<Shared<FastRegion>>,
    pub(crate) ready: Option<Ready>,
    pub(crate) platform: core::marker::PhantomData<fn() -> P>,
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
    /// Comes back in each completion.
    pub context: u64,
    pub receive_depth: u32,
    pub initiator_depth: u32,
    pub receive_elements: u32,
    pub initiator_elements: u32,
    pub inline_data: u32,
}

impl<P: Platform> QueuePairSettings<'_, P> {
    fn check(&self, domain: &Shared<DomainObject<P>>) -> Result<(), CreateError> {
        let limits = &domain.core.adapter.limits;
        let over = self.receive_depth > limits.receive_depth
            || self.initiator_depth > limits.initiator_depth
            || self.receive_elements > limits.receive_elements
            || self.initiator_elements > limits.initiator_elements
            || self.inline_data > limits.inline_data;
        if over {
            return Err(CreateError::OverLimit);
        }
        let foreign = |queue: &CompletionQueue<P>| !queue.0.opening.is(&domain.opening);
        if foreign(self.receive_queue) || foreign(self.initiator_queue) {
            return Err(CreateError::Foreign);
        }
        Ok(())
    }
}

/// What a fast registration makes of its region; the pages come as an iterator beside it.
#[derive(Clone, Copy, Debug)]
pub struct FastRegistration {
    /// Where the region begins in its first page.
    pub first_byte_offset: u32,
    pub length: u64,
    /// The label of the first byte; the same offset in its page, or 0 where that offset is 0.
    pub base: u64,
    pub rights: Rights,
}

impl<P: Platform> QueuePair<P> {
    pub(crate) fn create(
        domain: &Shared<DomainObject<P>>,
        settings: &QueuePairSettings<'_, P>,
        block: P::Block,
    ) -> Result<Self, CreateError> {
        let adapter = &domain.core.adapter;
        adapter.ready()?;
        settings.check(domain)?;
        let product = |depth: u32, each: u32| (depth as usize).checked_mul(each as usize).ok_or(NoMemory);
        let depth = settings.initiator_depth;
        let (requests, request_end) = ring::channel(depth as usize)?;
        let (elements, element_end) = ring::channel(product(depth, settings.initiator_elements)?)?;
        let (chunks, chunk_end) = ring::channel(product(depth, settings.inline_data.div_ceil(CHUNK as u32))?)?;
        let (receives, receive_end) = ring::channel(settings.receive_depth as usize)?;
        let most = product(settings.receive_depth, settings.receive_elements)?;
        let (receive_elements, receive_element_end) = ring::channel(most)?;
        let mut scratch = Vec::new();
        scratch.try_reserve_exact(RECEIVE_ELEMENTS).map_err(NoMemory::from)?;
        let antecedents = Antecedents::none()
            .with(Object::Domain(domain.clone()))
            .with(Object::CompletionQueue(settings.receive_queue.0.clone()))
            .with(Object::CompletionQueue(settings.initiator_queue.0.clone()));
        let pair = Shared::try_new(QueuePairObject {
            core: Core::new(adapter, Some(block), antecedents),
            domain: domain.clone(),
            context: settings.context,
            initiator_queue: settings.initiator_queue.0.clone(),
            receive_queue: settings.receive_queue.0.clone(),
            state: AtomicU32::new(0),
            limits: PostLimits {
                initiator_elements: settings.initiator_elements,
                read_elements: settings.initiator_elements.min(adapter.limits.read_elements),
                receive_elements: settings.receive_elements,
                inline_data: settings.inline_data,
                transfer_length: u64::from(adapter.limits.transfer_length),
            },
            requests,
            elements,
            chunks,
            receives,
            receive_elements,
            work: Baton::new(Initiator::new(request_end, element_end, chunk_end, scratch)),
            receiving: ReceiveQueue::new(receive_end, receive_element_end),
            bond: P::Lock::new(Bond { connector: None, far: None, closing: None }),
            meter: adapter.meters.with(Meters::add)?,
        })?;
        adapter.register(&Object::QueuePair(pair.clone()))?;
        Ok(Self(pair))
    }

    pub fn send(
        &self,
        context: u64,
        flags: RequestFlags,
        elements: impl ExactSizeIterator<Item = Element>,
    ) -> Result<(), PostError> {
        self.post(&Order { operation: Operation::Send, flags, context, address: 0, token: MemoryToken::NONE }, elements)
    }

    pub fn send_and_invalidate(
        &self,
        context: u64,
        flags: RequestFlags,
        elements: impl ExactSizeIterator<Item = Element>,
        token: MemoryToken,
    ) -> Result<(), PostError> {
        self.post(&Order { operation: Operation::SendAndInvalidate, flags, context, address: 0, token }, elements)
    }

    pub fn read(
        &self,
        context: u64,
        flags: RequestFlags,
        elements: impl ExactSizeIterator<Item = Element>,
        address: u64,
        token: MemoryToken,
    ) -> Result<(), PostError> {
        self.post(&Order { operation: Operation::Read, flags, context, address, token }, elements)
    }

    pub fn write(
        &self,
        context: u64,
        flags: RequestFlags,
        elements: impl ExactSizeIterator<Item = Element>,
        address: u64,
        token: MemoryToken,
    ) -> Result<(), PostError> {
        self.post(&Order { operation: Operation::Write, flags, context, address, token }, elements)
    }

    pub fn receive(&self, context: u64, elements: impl ExactSizeIterator<Item = Element>) -> Result<(), PostError> {
        let pair = &self.0;
        let count = elements.len();
        if count > pair.limits.receive_elements as usize {
            return Err(PostError::TooManyElements);
        }
        let mut requests = pair.receives.claim().ok_or(PostError::Concurrent)?;
        if requests.room() == 0 {
            return Err(PostError::QueueFull);
        }
        let mut receive = Receive { context, first: 0, count, single: Element::default(), length: 0 };
        if count == 1 {
            receive.single = elements.take(1).next().ok_or(PostError::BadParameter)?;
            receive.length = u64::from(receive.single.length);
            pair.check_length(receive.length)?;
            requests.stage(receive).map_err(|_| PostError::QueueFull)?;
        } else {
            let mut ring = pair.receive_elements.claim().ok_or(PostError::Concurrent)?;
            receive.first = ring.position();
            receive.length = stage_elements(&mut ring, elements.take(count))?;
            pair.check_length(receive.length)?;
            requests.stage(receive).map_err(|_| PostError::QueueFull)?;
            ring.publish();
        }
        requests.announce();
        receive_queue::posted(pair);
        Ok(())
    }

    /// Gives a fast-register region its pages; takes effect in its turn on the initiator queue.
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

    /// Takes the access to a fast-register region away, in its turn on the initiator queue.
    pub fn invalidate(&self, context: u64, flags: RequestFlags, region: &MemoryRegion<P>) -> Result<(), PostError> {
        let posted = self.post_invalidate(context, flags, region);
        self.after_post(flags, posted)
    }

    /// The front end refused a post by itself: requests held back are processed.
    pub fn kick_held(&self) {
        if !self.0.requests.is_empty() {
            process_in_place(&self.0);
        }
    }

    /// Cancels everything posted, from a turn. The queue pair then only drains.
    pub fn flush(&self) {
        self.0.end();
    }

    pub fn close(&self, callback: P::CloseCallback) -> Close<P> {
        let pair = &self.0;
        pair.core.close(Some(callback), || {
            let hold = Hold::new(Object::QueuePair(pair.clone()));
            pair.bond.with(|bond| bond.closing = Some(hold));
            pair.mark(state::ENDED | state::DRAIN);
            // What is idle is closed at once; the rest drains in a turn.
            if pair.requests.is_empty() && pair.receives.is_empty() {
                initiator::step(pair, PIECE);
            } else {
                pair.core.fabric.link(&Object::QueuePair(pair.clone()));
            }
        })
    }

    fn post(&self, order: &Order, elements: impl ExactSizeIterator<Item = Element>) -> Result<(), PostError> {
        let posted = self.enqueue(order, elements);
        self.after_post(order.flags, posted)
    }

    /// Processes what may be processed: after a post that is not deferred, and after any that failed.
    fn after_post(&self, flags: RequestFlags, posted: Result<(), PostError>) -> Result<(), PostError> {
        match posted {
            Ok(()) if flags.contains(RequestFlags::DEFER) && !self.0.is_ended() => {}
            Ok(()) => process_in_place(&self.0),
            Err(_) => self.kick_held(),
        }
        posted
    }

    fn check_state_and_flags(&self, operation: Operation, flags: RequestFlags) -> Result<(), PostError> {
        if self.0.state() & state::CONNECTED == 0 {
            return Err(PostError::NotConnected);
        }
        if operation.accepts().contains(flags) { Ok(()) } else { Err(PostError::BadFlags) }
    }

    fn enqueue(&self, order: &Order, elements: impl ExactSizeIterator<Item = Element>) -> Result<(), PostError> {
        let pair = &self.0;
        self.check_state_and_flags(order.operation, order.flags)?;
        let count = elements.len();
        let inline = order.flags.contains(RequestFlags::INLINE);
        let most = match order.operation {
            Operation::Read => pair.limits.read_elements,
            _ => pair.limits.initiator_elements,
        };
        if !inline && count > most as usize {
            return Err(PostError::TooManyElements);
        }
        let mut requests = pair.requests.claim().ok_or(PostError::Concurrent)?;
        if requests.room() == 0 {
            return Err(PostError::QueueFull);
        }
        let mut request = order.request();
        if inline {
            let mut ring = pair.chunks.claim().ok_or(PostError::Concurrent)?;
            request.first = ring.position();
            request.length = self.stage_inline(&mut ring, elements.take(count))?;
            requests.stage(request).map_err(|_| PostError::QueueFull)?;
            ring.publish();
        } else if count == 1 {
            request.count = 1;
            request.single = elements.take(1).next().ok_or(PostError::BadParameter)?;
            request.length = u64::from(request.single.length);
            pair.check_length(request.length)?;
            requests.stage(request).map_err(|_| PostError::QueueFull)?;
        } else {
            let mut ring = pair.elements.claim().ok_or(PostError::Concurrent)?;
            request.first = ring.position();
            request.count = count;
            request.length = stage_elements(&mut ring, elements.take(count))?;
            pair.check_length(request.length)?;
            requests.stage(request).map_err(|_| PostError::QueueFull)?;
            ring.publish();
        }
        requests.publish();
        Ok(())
    }

    /// Copies inline data into chunks of the ring and answers its length.
    fn stage_inline(
        &self,
        ring: &mut Claim<'_, [u8; CHUNK]>,
        elements: impl Iterator<Item = Element>,
    ) -> Result<u64, PostError> {
        let most = u64::from(self.0.limits.inline_data);
        let mut chunk = [0; CHUNK];
        let mut length = 0_u64;
        for element in elements {
            if length + u64::from(element.length) > most {
                return Err(PostError::TooMuchData);
            }
            let mut done = 0;
            while done < element.length {
                let at = length as usize % CHUNK;
                let part = (CHUNK - at).min((element.length - done) as usize);
                let into = chunk.get_mut(at..at + part).ok_or(PostError::TooMuchData)?;
                let address = element.address.wrapping_add(u64::from(done));
                self.0.core.fabric.0.platform.read_inline(address, into);
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
        if requests.room() == 0 {
            return Err(PostError::QueueFull);
        }
        // Editions that the peer or a Read invalidated are free by now.
        fast.editions.reclaim();
        let mut draft = fast.editions.draft().ok_or(PostError::NoResources)?;
        let most = draft.pages.capacity().min(pages.len());
        draft.pages.clear();
        for page in pages.take(most) {
            push_in_room(&mut draft.pages, page.0).map_err(|_| PostError::NoResources)?;
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
        let request = Request { ready: Some(ready), fast: Some(fast.clone()), ..order.request() };
        if let Err(request) = requests.stage(request) {
            if let Some(ready) = request.ready {
                fast.editions.discard(ready);
            }
            return Err(PostError::QueueFull);
        }
        requests.publish();
        Ok(())
    }

    fn post_invalidate(&self, context: u64, flags: RequestFlags, region: &MemoryRegion<P>) -> Result<(), PostError> {
        let pair = &self.0;
        self.check_state_and_flags(Operation::Invalidate, flags)?;
        if !region.0.domain.is(&pair.domain) {
            return Err(PostError::BadParameter);
        }
        let fast = region.0.fast().ok_or(PostError::BadParameter)?;
        let mut requests = pair.requests.claim().ok_or(PostError::Concurrent)?;
        let order = Order { operation: Operation::Invalidate, flags, context, address: 0, token: MemoryToken::NONE };
        let request = Request { fast: Some(fast), ..order.request() };
        requests.stage(request).map_err(|_| PostError::QueueFull)?;
        requests.publish();
        Ok(())
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
            single: Element::default(),
            length: 0,
            address: self.address,
            token: self.token,
            fast: None,
            ready: None,
            platform: core::marker::PhantomData,
        }
    }
}

/// Copies elements into a ring and answers the length of the message.
fn stage_elements(ring: &mut Claim<'_, Element>, elements: impl Iterator<Item = Element>) -> Result<u64, PostError> {
    let mut length = 0_u64;
    for element in elements {
        length += u64::from(element.length);
        ring.stage(element).map_err(|_| PostError::TooManyElements)?;
    }
    Ok(length)
}

fn check_registration(fast: &FastRegion, registration: &FastRegistration, pages: usize) -> Result<(), PostError> {
    let remote = Rights::REMOTE_READ | Rights::REMOTE_WRITE;
    if registration.rights.intersects(remote) && !fast.remote_access {
        return Err(PostError::AccessDenied);
    }
    let offset = u64::from(registration.first_byte_offset);
    let room = (pages as u64).saturating_mul(PAGE).saturating_sub(offset);
    let bad = pages == 0
        || pages > fast.most_pages as usize
        || offset >= PAGE
        || registration.base % PAGE != offset
        || registration.length == 0
        || registration.length > room
        || registration.base.checked_add(registration.length - 1).is_none();
    if bad { Err(PostError::BadParameter) } else { Ok(()) }
}

/// Processes posted requests in the caller's context as far as its level allows; the rest goes to a turn.
fn process_in_place<P: Platform>(pair: &Shared<QueuePairObject<P>>) {
    let platform = &pair.core.fabric.0.platform;
    let mut left = if platform.at_dispatch() { IN_PLACE_DISPATCH } else { IN_PLACE_PASSIVE };
    while left > 0 {
        match initiator::step(pair, left.min(PIECE)) {
            initiator::Stepped::Rest(_) => return,
            initiator::Stepped::More(used) => left = left.saturating_sub(used.max(1)),
        }
    }
    pair.core.fabric.link(&Object::QueuePair(pair.clone()));
}

impl<P: Platform> QueuePairObject<P> {
    fn check_length(&self, length: u64) -> Result<(), PostError> {
        if length > self.limits.transfer_length { Err(PostError::TooMuchData) } else { Ok(()) }
    }

    pub(crate) fn state(&self) -> u32 {
        self.state.load(Ordering::SeqCst)
    }

    /// Sets state bits and answers those that were set before.
    pub(crate) fn mark(&self, bits: u32) -> u32 {
        self.state.fetch_or(bits, Ordering::SeqCst)
    }

    /// Gives a claim back after a connection attempt that came to nothing.
    pub(crate) fn unclaim(&self) {
        self.state.fetch_and(!state::CLAIMED, Ordering::SeqCst);
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.state() & state::ENDED != 0
    }
}

/// Endings, on the shared pointer because they link the object.
pub(crate) trait End {
    /// Cancels everything that is posted or will be.
    fn end(&self);
    /// Cancels initiator requests, and receives as well if the contract says so.
    fn cut(&self, receives: bool);
    /// A request failed: everything is cancelled and the connection ends.
    fn fail(&self);
}

impl<P: Platform> End for Shared<QueuePairObject<P>> {
    fn end(&self) {
        self.cut(true);
    }

    fn cut(&self, receives: bool) {
        self.mark(state::ENDED | if receives { state::DRAIN } else { 0 });
        self.core.fabric.link(&Object::QueuePair(self.clone()));
    }

    fn fail(&self) {
        self.end();
        let connector = self.bond.with(|bond| bond.connector.clone());
        if let Some(connector) = connector {
            crate::connector::queue_pair_failed(&connector);
        }
    }
}

/// Both queues may be empty for good: called by the holder of the initiator's baton, with its queue empty after the end.
pub(crate) fn settle_end<P: Platform>(pair: &Shared<QueuePairObject<P>>) {
    if pair.state() & state::DRAIN == 0 || !pair.receiving.is_drained() {
        return;
    }
    pair.mark(state::DRAINED);
    let (connector, far, closing) =
        pair.bond.with(|bond| (bond.connector.clone(), bond.far.take(), bond.closing.take()));
    if let Some(connector) = connector {
        crate::connector::queue_pair_drained(&connector, pair);
    }
    drop(far);
    // The last hold may go here: the object is linked and handed out by a turn.
    drop(closing);
}

/// A turn's look at a queue pair: flushes a bounded number of receives, processes a bounded number of requests. What is left
/// stays on the list of this turn, wherever its thread runs: a thread takes a long transfer over from the deferred procedures.
pub(crate) fn look_at<P: Platform>(pair: &Shared<QueuePairObject<P>>, processor: u32, bytes: &mut u64) {
    let more_receives = pair.state() & state::DRAIN != 0 && receive_queue::flush(pair);
    let stepped = initiator::step(pair, (*bytes).min(PIECE));
    let (used, more) = match stepped {
        initiator::Stepped::Rest(used) => (used, false),
        initiator::Stepped::More(used) => (used, true),
    };
    *bytes = bytes.saturating_sub(used);
    if more || more_receives {
        pair.core.fabric.link_at(&Object::QueuePair(pair.clone()), Some(processor));
    }
}
