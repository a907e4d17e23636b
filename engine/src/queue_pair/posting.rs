//! Posting: what a consumer's call puts on the queues of a queue pair.
//!
//! Each post walks the same visible sequence (state, flags, count, lengths, capacity, enqueue) and leaves the queue pair untouched
//! when it refuses. What was posted is processed in the caller's context as far as its level and the processor's allowance go.
//!
//! Rules (NDKPI: work requests): the SGEs are copied during the call; success means exactly one completion (none for a silent
//! success); an inline failure means none, and processes what was held back by the deferred flag; posts on an ended queue pair are
//! accepted and cancelled.

use softndk_cells::Shared;
use softndk_cells::ring::{Claim, Together};

use crate::error::PostError;
use crate::flags::{Operation, RequestFlags, Rights};
use crate::limits::{IN_PLACE_PASSIVE, PAGE, PIECE};
use crate::memory::memory_region::{FastRegion, MemoryRegion, Pages};
use crate::memory::memory_window::MemoryWindow;
use crate::memory::transfer::CHUNK;
use crate::object::allowance::Allowance;
use crate::object::header::Object;
use crate::platform::Platform;
use crate::queue_pair::local::alone::Alone;
use crate::queue_pair::local::plain::Move;
use crate::queue_pair::pair::{QueuePair, QueuePairObject, state};
use crate::queue_pair::receive_queue;
use crate::queue_pair::request::{Receive, Request, Subject};
use crate::queue_pair::requester;
use crate::token::{MemoryToken, Sge};

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

impl<P: Platform> QueuePair<P> {
    pub fn send(
        &self,
        context: u64,
        flags: RequestFlags,
        sges: impl ExactSizeIterator<Item = Sge>,
    ) -> Result<(), PostError> {
        self.post(&Order { operation: Operation::Send, flags, context, ..Order::default() }, sges)
    }

    /// A Send that brings immediate data along, which comes with the peer's receive.
    pub fn send_immediate(
        &self,
        context: u64,
        flags: RequestFlags,
        sges: impl ExactSizeIterator<Item = Sge>,
        immediate: u32,
    ) -> Result<(), PostError> {
        self.post(&Order { operation: Operation::SendImmediate, flags, context, immediate, ..Order::default() }, sges)
    }

    pub fn send_and_invalidate(
        &self,
        context: u64,
        flags: RequestFlags,
        sges: impl ExactSizeIterator<Item = Sge>,
        token: MemoryToken,
    ) -> Result<(), PostError> {
        self.post(&Order { operation: Operation::SendAndInvalidate, flags, context, token, ..Order::default() }, sges)
    }

    pub fn read(
        &self,
        context: u64,
        flags: RequestFlags,
        sges: impl ExactSizeIterator<Item = Sge>,
        address: u64,
        token: MemoryToken,
    ) -> Result<(), PostError> {
        self.post(&Order { operation: Operation::Read, flags, context, address, token, immediate: 0 }, sges)
    }

    pub fn write(
        &self,
        context: u64,
        flags: RequestFlags,
        sges: impl ExactSizeIterator<Item = Sge>,
        address: u64,
        token: MemoryToken,
    ) -> Result<(), PostError> {
        self.post(&Order { operation: Operation::Write, flags, context, address, token, immediate: 0 }, sges)
    }

    /// A Write that takes a receive of the peer when its bytes are in place; the immediate data comes with that.
    pub fn write_immediate(
        &self,
        context: u64,
        flags: RequestFlags,
        sges: impl ExactSizeIterator<Item = Sge>,
        (address, token): (u64, MemoryToken),
        immediate: u32,
    ) -> Result<(), PostError> {
        self.post(&Order { operation: Operation::WriteImmediate, flags, context, address, token, immediate }, sges)
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
        let listed = u16::try_from(count).map_err(|_| PostError::TooManySges)?;
        let mut receive =
            Receive { context, first: 0, count: listed, single: Sge::default(), length: 0, shared: false };
        if count == 1 {
            receive.single = sges.take(1).next().ok_or(PostError::BadParameter)?;
            receive.length = receive.single.length;
            pair.check_length(u64::from(receive.length))?;
            requests.stage(receive).map_err(|_| PostError::QueueFull)?;
        } else {
            let mut ring = pair.receive_sges.claim().ok_or(PostError::Concurrent)?;
            receive.first = ring.position();
            let length = stage_sges(&mut ring, sges.take(count))?;
            pair.check_length(length)?;
            receive.length = u32::try_from(length).map_err(|_| PostError::TooMuchData)?;
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
        pages: impl Pages,
    ) -> Result<(), PostError> {
        let posted = self.post_fast_register(context, flags, region, registration, pages);
        self.after_post(posted)
    }

    /// Revokes the access to a fast-register region, in the order of the initiator queue.
    pub fn invalidate(&self, context: u64, flags: RequestFlags, region: &MemoryRegion<P>) -> Result<(), PostError> {
        let posted = self.post_invalidate_region(context, flags, region);
        self.after_post(posted)
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
        self.after_post(posted)
    }

    /// Unbinds a window, in the order of the initiator queue.
    pub fn invalidate_window(
        &self,
        context: u64,
        flags: RequestFlags,
        window: &MemoryWindow<P>,
    ) -> Result<(), PostError> {
        let posted = self.post_invalidate_window(context, flags, window);
        self.after_post(posted)
    }

    /// The front end refused a post by itself: requests held back are processed.
    pub fn schedule_held(&self) {
        if !self.0.requests.is_empty() {
            process_in_place(&self.0);
        }
    }

    /// Inlined where the operation is known, which decides most of the checks.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: 30 of 450 instructions of a Read in a chain")]
    fn post(&self, order: &Order, sges: impl ExactSizeIterator<Item = Sge>) -> Result<(), PostError> {
        if order.is_plain(sges.len()) { self.post_plain(order, sges) } else { self.post_any(order, sges) }
    }

    #[inline(never)]
    fn post_any(&self, order: &Order, sges: impl ExactSizeIterator<Item = Sge>) -> Result<(), PostError> {
        let posted = self.enqueue(order, sges);
        self.after_post(posted)
    }

    /// A post of one SGE and nothing else, as most are.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn post_plain(&self, order: &Order, mut sges: impl Iterator<Item = Sge>) -> Result<(), PostError> {
        if !self.may_go_alone(order) {
            let posted = self.enqueue_plain(order, || sges.next());
            return self.after_post(posted);
        }
        let single = sges.next();
        match single {
            Some(single) if self.move_alone(order, single) => Ok(()),
            _ => self.enqueue_and_process(order, single),
        }
    }

    #[inline(never)]
    fn enqueue_and_process(&self, order: &Order, single: Option<Sge>) -> Result<(), PostError> {
        self.process_after(self.enqueue_plain(order, || single))
    }

    /// Whether it is a good post of a Read or Write, not deferred, to a queue in which there is none.
    #[inline]
    fn may_go_alone(&self, order: &Order) -> bool {
        matches!(order.operation, Operation::Read | Operation::Write)
            && !order.flags.contains(RequestFlags::DEFER)
            && self.0.requests.is_vacant()
            && self.check_plain(order).is_ok()
    }

    /// Whether it could be moved past the queue; what others have left for the requester meanwhile has been processed then, too.
    #[inline(never)]
    fn move_alone(&self, order: &Order, single: Sge) -> bool {
        if self.0.check_length(u64::from(single.length)).is_err() {
            return false;
        }
        let Order { operation, flags, context, address, token, .. } = *order;
        let request = Alone { bytes: Move { operation, single, address, token }, flags, context };
        let platform = self.0.core.scheduler.platform();
        let tried = platform.raised(|was_there| request.try_move(&self.0, was_there));
        if tried.raised {
            process_in_place(&self.0);
        }
        tried.moved
    }

    /// Claims the initiator queue for a request, and says what becomes of that.
    ///
    /// A held request has no context that processes it next, so that its poster has to know whether the queue pair has ended. It looks
    /// with the claim: an end that finds none has marked the queue pair before, and one that finds it looks again.
    #[inline]
    fn claim(&self, flags: RequestFlags) -> Result<(Claim<'_, Request<P>>, Posted), PostError> {
        let requests = self.0.requests.claim().ok_or(PostError::Concurrent)?;
        if requests.free() == 0 {
            return Err(PostError::QueueFull);
        }
        let held = flags.contains(RequestFlags::DEFER) && !self.0.is_ended();
        Ok((requests, if held { Posted::Held } else { Posted::Queued }))
    }

    #[inline]
    fn check_plain(&self, order: &Order) -> Result<(), PostError> {
        self.check_state_and_flags(order.operation, order.flags)?;
        if self.0.limits.sges_of(order.operation) == 0 { Err(PostError::TooManySges) } else { Ok(()) }
    }

    #[inline]
    fn enqueue_plain(&self, order: &Order, single: impl FnOnce() -> Option<Sge>) -> Result<Posted, PostError> {
        self.check_plain(order)?;
        let (mut requests, posted) = self.claim(order.flags)?;
        let single = single().ok_or(PostError::BadParameter)?;
        let length = u64::from(single.length);
        self.0.check_length(length)?;
        if !requests.stage_with(|| Request { count: 1, is_plain: true, single, length, ..order.request() }) {
            return Err(PostError::QueueFull);
        }
        requests.publish();
        Ok(posted)
    }

    /// Processes what may be processed: after a post that is not deferred, and after any that failed.
    #[inline]
    fn after_post(&self, posted: Result<Posted, PostError>) -> Result<(), PostError> {
        if let Ok(Posted::Held) = posted { Ok(()) } else { self.process_after(posted) }
    }

    #[inline(never)]
    fn process_after(&self, posted: Result<Posted, PostError>) -> Result<(), PostError> {
        match posted {
            Ok(_) => process_in_place(&self.0),
            Err(_) => self.schedule_held(),
        }
        posted.map(|_| ())
    }

    fn check_state_and_flags(&self, operation: Operation, flags: RequestFlags) -> Result<(), PostError> {
        if self.0.state() & state::CONNECTED == 0 {
            return Err(PostError::NotConnected);
        }
        if operation.accepts().contains(flags) { Ok(()) } else { Err(PostError::BadFlags) }
    }

    fn enqueue(&self, order: &Order, sges: impl ExactSizeIterator<Item = Sge>) -> Result<Posted, PostError> {
        let pair = &self.0;
        self.check_state_and_flags(order.operation, order.flags)?;
        let count = sges.len();
        let inline = order.flags.contains(RequestFlags::INLINE);
        if !inline && count > pair.limits.sges_of(order.operation) as usize {
            return Err(PostError::TooManySges);
        }
        if order.flags.contains(RequestFlags::LOCAL_INVALIDATE) && count == 0 {
            return Err(PostError::BadFlags);
        }
        let (mut requests, posted) = self.claim(order.flags)?;
        let mut request = order.request();
        if inline {
            let mut ring = pair.chunks.claim().ok_or(PostError::Concurrent)?;
            request.single.address = ring.position() as u64;
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
            request.single.address = ring.position() as u64;
            request.count = u16::try_from(count).map_err(|_| PostError::TooManySges)?;
            request.length = stage_sges(&mut ring, sges.take(count))?;
            pair.check_length(request.length)?;
            requests.stage(request).map_err(|_| PostError::QueueFull)?;
            ring.publish();
        }
        requests.publish();
        Ok(posted)
    }

    /// Copies inline data into chunks of the ring and returns its length.
    fn stage_inline(
        &self,
        ring: &mut Claim<'_, [u8; CHUNK], Together>,
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
        pages: impl Pages,
    ) -> Result<Posted, PostError> {
        let pair = &self.0;
        self.check_state_and_flags(Operation::FastRegister, flags)?;
        if !region.0.domain.is(&pair.domain) {
            return Err(PostError::BadParameter);
        }
        let fast = region.0.fast().ok_or(PostError::BadParameter)?;
        check_registration(fast, &registration, pages.count())?;
        let (mut requests, posted) = self.claim(flags)?;
        // Page lists that the peer or a Read invalidated are free by now.
        fast.buffers.reclaim();
        let mut draft = fast.buffers.draft().ok_or(PostError::NoResources)?;
        draft.fill(pages)?;
        draft.first_byte_offset = u64::from(registration.first_byte_offset);
        draft.base = registration.base;
        draft.length = registration.length;
        draft.rights = registration.rights;
        let ready = draft.finish();
        let order = Order { operation: Operation::FastRegister, flags, context, ..Order::default() };
        let request = Request { subject: Subject::Pages(fast.clone(), Some(ready)), ..order.request() };
        if let Err(mut request) = requests.stage(request) {
            request.subject.discard();
            return Err(PostError::QueueFull);
        }
        requests.publish();
        Ok(posted)
    }

    fn post_bind(
        &self,
        context: u64,
        flags: RequestFlags,
        (region, window): (&MemoryRegion<P>, &MemoryWindow<P>),
        (address, length): (u64, u64),
        rights: Rights,
    ) -> Result<Posted, PostError> {
        let pair = &self.0;
        self.check_state_and_flags(Operation::Bind, flags)?;
        if !region.0.domain.is(&pair.domain) || !window.0.domain.is(&pair.domain) {
            return Err(PostError::BadParameter);
        }
        let registration = region.0.lends(address, length, rights)?;
        let (mut requests, posted) = self.claim(flags)?;
        // Only now, so that a refused bind leaves the window its token.
        let token = window.0.issue();
        let order = Order { operation: Operation::Bind, flags, context, address, token, immediate: 0 };
        let request = Request {
            length,
            single: Sge { token: registration, ..Sge::default() },
            subject: Subject::Binding(window.0.clone(), region.0.clone(), rights),
            ..order.request()
        };
        requests.stage(request).map_err(|_| PostError::QueueFull)?;
        requests.publish();
        Ok(posted)
    }

    fn post_invalidate_region(
        &self,
        context: u64,
        flags: RequestFlags,
        region: &MemoryRegion<P>,
    ) -> Result<Posted, PostError> {
        self.check_state_and_flags(Operation::Invalidate, flags)?;
        if !region.0.domain.is(&self.0.domain) {
            return Err(PostError::BadParameter);
        }
        let fast = region.0.fast().ok_or(PostError::BadParameter)?;
        self.post_invalidate(context, flags, Subject::Fast(fast.clone()))
    }

    fn post_invalidate_window(
        &self,
        context: u64,
        flags: RequestFlags,
        window: &MemoryWindow<P>,
    ) -> Result<Posted, PostError> {
        self.check_state_and_flags(Operation::Invalidate, flags)?;
        if !window.0.domain.is(&self.0.domain) {
            return Err(PostError::BadParameter);
        }
        self.post_invalidate(context, flags, Subject::Window(window.0.clone()))
    }

    fn post_invalidate(&self, context: u64, flags: RequestFlags, subject: Subject<P>) -> Result<Posted, PostError> {
        let (mut requests, posted) = self.claim(flags)?;
        let order = Order { operation: Operation::Invalidate, flags, context, ..Order::default() };
        requests.stage(Request { subject, ..order.request() }).map_err(|_| PostError::QueueFull)?;
        requests.publish();
        Ok(posted)
    }
}

/// What became of a post that succeeds.
#[derive(Clone, Copy)]
enum Posted {
    /// To be processed.
    Queued,
    /// Held back: nothing is to be done for it now.
    Held,
}

/// What the data-moving posts have in common.
#[derive(Default)]
struct Order {
    operation: Operation,
    flags: RequestFlags,
    context: u64,
    address: u64,
    token: MemoryToken,
    immediate: u32,
}

impl Order {
    /// Whether a request of so many SGEs may be moved in one go.
    fn is_plain(&self, sges: usize) -> bool {
        sges == 1
            && matches!(self.operation, Operation::Send | Operation::Read | Operation::Write)
            && !self.flags.intersects(RequestFlags::INLINE | RequestFlags::LOCAL_INVALIDATE)
    }

    fn request<P: Platform>(&self) -> Request<P> {
        Request {
            operation: self.operation,
            flags: self.flags,
            context: self.context,
            count: 0,
            single: Sge::default(),
            length: 0,
            address: self.address,
            token: self.token,
            immediate: self.immediate,
            subject: Subject::Bytes,
            is_plain: false,
        }
    }
}

/// Copies SGEs into a ring and returns the length of the message.
fn stage_sges(ring: &mut Claim<'_, Sge, Together>, sges: impl Iterator<Item = Sge>) -> Result<u64, PostError> {
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
/// service pass. EpochContext a callback that is everything.
#[inline(never)]
fn process_in_place<P: Platform>(pair: &Shared<QueuePairObject<P>>) {
    let platform = pair.core.scheduler.platform();
    let mut left = platform.raised(|at_dispatch| process_piece(pair, at_dispatch, None));
    while let Some(rest) = left {
        left = platform.raised(|at_dispatch| process_piece(pair, at_dispatch, Some(rest)));
    }
}

/// One piece, at DISPATCH_LEVEL, of the `left` bytes that the call may still process, which the first piece finds out. What is left
/// for another one; `None` when this was the last.
#[inline]
fn process_piece<P: Platform>(pair: &Shared<QueuePairObject<P>>, at_dispatch: bool, left: Option<u64>) -> Option<u64> {
    let scheduler = &pair.core.scheduler;
    let processor = scheduler.platform().processor();
    let allowance = scheduler.allowance_of(processor);
    let left = match left {
        Some(left) => left,
        None if at_dispatch => allowance.map_or(0, Allowance::in_place),
        None => {
            if let Some(allowance) = allowance {
                allowance.renew();
            }
            IN_PLACE_PASSIVE
        }
    };
    if left > 0 {
        let stepped = requester::step(pair, Some(processor), left.min(PIECE));
        if let Some(allowance) = allowance.filter(|_| at_dispatch) {
            allowance.charge(stepped.used());
        }
        match stepped {
            requester::Stepped::Rest(_) => return None,
            requester::Stepped::More(used) if used < left => return Some(left.saturating_sub(used.max(1))),
            // The last request ended with the bound. A context that raised the requester meanwhile had published before.
            requester::Stepped::More(_) if pair.requests.is_empty() && !pair.is_ended() => return None,
            requester::Stepped::More(_) => {}
        }
    }
    scheduler.link_at(&Object::of(pair), Some(processor));
    None
}

impl<P: Platform> QueuePairObject<P> {
    fn check_length(&self, length: u64) -> Result<(), PostError> {
        if length > self.limits.transfer_length { Err(PostError::TooMuchData) } else { Ok(()) }
    }
}
